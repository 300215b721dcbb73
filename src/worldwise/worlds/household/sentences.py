"""What the household world says: ALFWorld's sentences, written from its grammar and its play.

The forms follow ALFWorld 0.4 (Shridhar et al. 2021, MIT licence): "a" before every noun,
", and " before the last item even of two, "nothing" for an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence

NOTHING_HAPPENS = "Nothing happens."

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


def enumerate_items(items: Sequence[str]) -> str:
    """`a`, `a, and b`, `a, b, and c`; "nothing" for an empty list."""
    if len(items) > 1:
        return f"{', '.join(items[:-1])}, and {items[-1]}"
    return items[0] if items else "nothing"


def indefinite(names: Sequence[str]) -> str:
    """The list of things with their article: `a mug 1, and a apple 2`."""
    return enumerate_items([f"a {name}" for name in names])


def first_observation(surroundings: str, goal: str) -> str:
    """The text after a reset. `goal` is the goal sentence with its full stop."""
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{surroundings}\n\nYour task is to: {goal}"


def room(receptacles: Sequence[str]) -> str:
    """The view from the middle of the room."""
    return f"You are in the middle of a room. Looking quickly around you, you see {indefinite(receptacles)}."


def facing(receptacles: Sequence[str], beside: Sequence[str]) -> str:
    """The view at a receptacle."""
    return f"You are facing the {enumerate_items(receptacles)}. Next to it, you see {indefinite(beside)}."


def thing_condition(name: str, *, clean: bool, hot: bool, cool: bool, sliced: bool, toggled: bool) -> str:
    """What `examine` says of a held thing that is not a vessel.

    The reference tries its sentences in a fixed order and takes the first that holds; the
    order shows in three places: hot goes before cool, a thing that is only cool is "cold",
    and a lamp's switch is mentioned only for a thing that is neither hot, clean nor cold.
    """
    temperature = "hot" if hot else "cool" if cool else ""
    if sliced and (clean or temperature):
        words = f"{temperature} and clean" if clean and temperature else temperature or "clean"
        return f"This is a {words} sliced {name}."
    if clean and temperature:
        return f"This is a {temperature} and clean {name}."
    if clean or temperature:
        return f"This is a {'clean' if clean else 'hot' if hot else 'cold'} {name}."
    if toggled:
        return f"This {name} is on."
    if sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


def translate_put_form(action: str) -> str:
    """The 0.4 form "move X to Y" of a command in the form that ALFWorld had before, "put X in/on Y".

    Any other command comes back unchanged.
    """
    stripped = action.strip()
    if stripped.startswith("put "):
        name, separator, place = stripped[4:].partition(" in/on ")
        if separator:
            return f"move {name} to {place}"
    return action
