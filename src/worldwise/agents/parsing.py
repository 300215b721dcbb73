"""Reading commands and predictions out of responses. Pure functions on text."""

from __future__ import annotations

from dataclasses import dataclass

THINK, END_THINK = "<think>", "</think>"
ACTION, END_ACTION = "<action>", "</action>"
NEXT_STATE, END_NEXT_STATE = "<next_state>", "</next_state>"


@dataclass(frozen=True, slots=True)
class Found:
    """A command inside a response text.

    Attributes:
        command: what goes to the world; "" where the response holds none.
        start, end: its characters in the text; equal where there is none.
        valid: the response has exactly the demanded form.
    """

    command: str
    start: int
    end: int
    valid: bool


def read_plain(text: str, finished: bool, control: int) -> Found:
    """The command of a response that should be nothing else.

    Everything from the first line break or special token on is cut off: there a response would begin to
    write the world's part, or a whole further turn, itself. Such a response is invalid, and so is an empty
    one and one that was cut at the token limit; what it says before the cut is still played.

    Args:
        text: the response without its end token.
        finished: it ended by itself.
        control: position of the first special token in `text`, -1 for none.
    """
    whole = text if control < 0 else text[:control]
    core = whole.strip()
    command = core.split("\n", 1)[0].rstrip()
    start = whole.index(command) if command else 0
    valid = finished and control < 0 and bool(command) and command == core
    return Found(command, start, start + len(command), valid)


def read_tagged(text: str, finished: bool, control: int, thought: bool) -> Found:
    """The command in the one action block behind the last thought.

    Valid: a closed thought first if `thought` demands one, then exactly one `<action>` block with one line in
    it, and nothing behind it. A block inside of the thought does not count, and text
    behind the block, where a response would write the world's answer itself, makes it invalid. The first
    complete block behind the thought is played in any case; without one the command is empty.

    Args:
        text, finished, control: as in `read_plain`.
        thought: a `<think>` block must come first.
    """
    whole = text if control < 0 else text[:control]
    last = whole.rfind(END_THINK)
    begin = last + len(END_THINK) if last >= 0 else 0
    opened = whole.find(ACTION, begin)
    closed = whole.find(END_ACTION, opened) if opened >= 0 else -1
    if closed < 0:
        return Found("", 0, 0, False)
    inside = whole[opened + len(ACTION) : closed]
    core = inside.strip()
    command = core.split("\n", 1)[0].rstrip()
    start = opened + len(ACTION) + (inside.index(command) if command else 0)
    one = whole.count(ACTION, begin) == 1 and whole.count(END_ACTION, begin) == 1
    opening = whole.find(THINK)
    closed_thoughts = whole.count(THINK) == whole.count(END_THINK)
    thought_fits = closed_thoughts and (0 <= opening < last if thought else True)
    clean = finished and control < 0 and not whole[closed + len(END_ACTION) :].strip()
    valid = clean and one and thought_fits and bool(command) and command == core
    return Found(command, start, start + len(command), valid)


def read_prediction(text: str) -> str | None:
    """The text of the one `<next_state>` block behind the last thought, or None.

    None also for an empty block and for several blocks.
    """
    last = text.rfind(END_THINK)
    rest = text[last + len(END_THINK) :] if last >= 0 else text
    if rest.count(NEXT_STATE) != 1 or rest.count(END_NEXT_STATE) != 1:
        return None
    inside = rest.partition(NEXT_STATE)[2].partition(END_NEXT_STATE)
    return inside[0].strip() or None if inside[1] else None
