"""Reading commands and predictions out of responses. Pure functions on text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

THINK, END_THINK = "<think>", "</think>"
ACTION, END_ACTION = "<action>", "</action>"
NEXT_STATE, END_NEXT_STATE = "<next_state>", "</next_state>"
REFLECTION, END_REFLECTION = "<reflection>", "</reflection>"
SELECTED, END_SELECTED = "<selected_tasks>", "</selected_tasks>"

_FIELDS = ("mode", "detail", "turn", "lesson", "query")
_NUMBER = re.compile(r"\d+")


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


def read_predictions(text: str, count: int) -> list[str | None]:
    """The texts of the first `count` `<next_state>` blocks behind the last thought, in order; None where one is
    missing, empty or never closed.

    One block is read as `read_prediction` does where one is wanted.
    """
    if count == 1:
        return [read_prediction(text)]
    last = text.rfind(END_THINK)
    rest = text[last + len(END_THINK) :] if last >= 0 else text
    found: list[str | None] = []
    while len(found) < count:
        _, opened, rest = rest.partition(NEXT_STATE)
        inside, closed, rest = rest.partition(END_NEXT_STATE)
        # A block that opens inside of another one is none.
        found.append(inside.strip() or None if opened and closed and NEXT_STATE not in inside else None)
    return found


def read_reflection(text: str, modes: Sequence[str]) -> dict[str, str] | None:
    """The fields of the one `<reflection>` block behind the last thought, or None.

    Args:
        text: a response.
        modes: the vocabulary. A block whose mode is none of it is none; case and blanks for underscores are forgiven.

    Returns:
        mode, detail, turn (digits, or empty), lesson, query; empty where a line is missing.
    """
    inside = _one_block(text, REFLECTION, END_REFLECTION)
    if inside is None:
        return None
    found = dict.fromkeys(_FIELDS, "")
    for line in inside.splitlines():
        name, colon, value = line.partition(":")
        key = name.strip().lower()
        if colon and key in found and not found[key]:
            found[key] = value.strip()
    found["mode"] = found["mode"].strip(" .'\"").lower().replace(" ", "_")
    if found["mode"] not in modes:
        return None
    number = _NUMBER.search(found["turn"])
    found["turn"] = number[0] if number else ""
    return found


def read_selection(text: str, count: int) -> list[int] | None:
    """The numbers that the lines of the one `<selected_tasks>` block begin with, or None without such a block.

    Args:
        text: a response.
        count: candidates; numbers outside of 1..count and repeated ones are left out.
    """
    inside = _one_block(text, SELECTED, END_SELECTED)
    if inside is None:
        return None
    found: list[int] = []
    for line in inside.splitlines():
        number = _NUMBER.match(line.strip())
        if number and 1 <= int(number[0]) <= count and int(number[0]) not in found:
            found.append(int(number[0]))
    return found


def _one_block(text: str, opening: str, closing: str) -> str | None:
    last = text.rfind(END_THINK)
    rest = text[last + len(END_THINK) :] if last >= 0 else text
    if rest.count(opening) != 1 or rest.count(closing) != 1:
        return None
    inside = rest.partition(opening)[2].partition(closing)
    return inside[0] if inside[1] else None
