"""Reading commands and predictions out of responses."""

from __future__ import annotations

import pytest

from worldwise.agents.parsing import (
    read_plain,
    read_prediction,
    read_predictions,
    read_reflection,
    read_selection,
    read_tagged,
)


@pytest.mark.parametrize(
    ("text", "finished", "control", "command", "valid"),
    [
        ("go to drawer 1", True, -1, "go to drawer 1", True),
        ("  look \n", True, -1, "look", True),
        ("go to drawer 1", False, -1, "go to drawer 1", False),
        ("", True, -1, "", False),
        ("open drawer 1\nYou open the drawer 1. In it, you see a mug 1.", True, -1, "open drawer 1", False),
        ("look<|user|>You see a mug 1.", True, 4, "look", False),
        ("<|user|>look", True, 0, "", False),
    ],
)
def test_plain(text: str, finished: bool, control: int, command: str, valid: bool) -> None:
    found = read_plain(text, finished, control)
    assert (found.command, found.valid) == (command, valid)
    assert text[found.start : found.end] == command


@pytest.mark.parametrize(
    ("text", "command", "valid"),
    [
        ("<think>why</think><action>look</action>", "look", True),
        ("<think>why</think>\nSo:\n<action> look </action>\n", "look", True),
        # No thought, or one that is not closed, or closed only behind the action.
        ("<action>look</action>", "look", False),
        ("<think>why <action>look</action>", "look", False),
        ("<action>look</action><think>why</think>", "", False),
        # A block inside of the thought is not the action.
        ("<think>maybe <action>open it</action></think><action>look</action>", "look", True),
        ("<think>maybe <action>open it</action></think>", "", False),
        # Two thoughts: what counts stands behind the last one.
        ("<think>a</think><action>x</action><think>b</think><action>look</action>", "look", True),
        # Several blocks, none, one that is closed before it is opened, an empty one, one with two lines.
        ("<think>a</think><action>look</action><action>wait</action>", "look", False),
        ("<think>a</think>look", "", False),
        ("<think>a</think></action>look<action>", "", False),
        ("<think>a</think></action><action>look</action>", "look", False),
        ("<think>a</think><action> </action>", "", False),
        ("<think>a</think><action>look\nwait</action>", "look", False),
        # The world's answer forged behind the action.
        ("<think>a</think><action>look</action>\nYou see a mug 1.", "look", False),
    ],
)
def test_tagged_with_thought(text: str, command: str, valid: bool) -> None:
    found = read_tagged(text, True, -1, thought=True)
    assert (found.command, found.valid) == (command, valid)
    assert text[found.start : found.end] == command


def test_tagged_without_thought_accepts_one_but_not_a_half() -> None:
    assert read_tagged("<action>look</action>", True, -1, thought=False).valid
    assert read_tagged("<think>a</think><action>look</action>", True, -1, thought=False).valid
    assert not read_tagged("<think>a<action>look</action>", True, -1, thought=False).valid


def test_tagged_cut_at_the_limit_or_at_a_special_token_is_invalid() -> None:
    text = "<think>a</think><action>look</action>"
    assert not read_tagged(text, False, -1, thought=True).valid
    cut = read_tagged(text + "<|user|>You win.", True, len(text), thought=True)
    assert (cut.command, cut.valid) == ("look", False)


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        ("<next_state>You see a mug 1.</next_state>", "You see a mug 1."),
        ("<think>hm <next_state>x</next_state></think><next_state>\nyes\n</next_state>", "yes"),
        ("<next_state>two\nlines</next_state> and more", "two\nlines"),
        ("You see a mug 1.", None),
        ("<next_state> </next_state>", None),
        ("<next_state>a", None),
        ("a</next_state>", None),
        ("</next_state>a<next_state>", None),
        ("<next_state>a</next_state><next_state>b</next_state>", None),
    ],
)
def test_prediction(text: str, prediction: str | None) -> None:
    assert read_prediction(text) == prediction


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("<next_state>a</next_state>", 1, ["a"]),
        ("<next_state>a</next_state><next_state>b</next_state>", 1, [None]),
        ("<next_state>a</next_state> and <next_state> b </next_state>", 2, ["a", "b"]),
        ("<next_state>a</next_state>", 2, ["a", None]),
        ("<next_state></next_state><next_state>b</next_state>", 2, [None, "b"]),
        ("<next_state>a<next_state>b</next_state>", 2, [None, None]),
        ("<next_state>a</next_state><next_state>b", 2, ["a", None]),
        ("<think><next_state>x</next_state></think><next_state>a</next_state>", 2, ["a", None]),
        ("nothing", 3, [None, None, None]),
        ("<next_state>a</next_state>" * 4, 2, ["a", "a"]),
    ],
)
def test_several_predictions_are_read_in_order(text: str, count: int, expected: list[str | None]) -> None:
    assert read_predictions(text, count) == expected


MODES = ("navigation_loop", "wrong_receptacle")


def reflection(**lines: str) -> str:
    inside = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return f"<reflection>\n{inside}\n</reflection>"


def test_a_reflection_is_read_field_by_field() -> None:
    said = "<think>why?</think>" + reflection(
        mode="Navigation loop.", detail="It went: to and fro.", turn="Turn 12", lesson="look", query="mug"
    )
    assert read_reflection(said, MODES) == {
        "mode": "navigation_loop",
        "detail": "It went: to and fro.",
        "turn": "12",
        "lesson": "look",
        "query": "mug",
    }
    short = read_reflection(reflection(mode="wrong_receptacle", turn="none"), MODES)
    assert short == {"mode": "wrong_receptacle", "detail": "", "turn": "", "lesson": "", "query": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mode: navigation_loop",
        reflection(mode="boredom"),
        reflection(detail="no mode"),
        reflection(mode="navigation_loop") * 2,
        reflection(mode="navigation_loop").removesuffix("</reflection>"),
        f"<think>{reflection(mode='navigation_loop')}</think>",
    ],
)
def test_what_is_no_reflection_is_none(text: str) -> None:
    assert read_reflection(text, MODES) is None


def test_a_selection_is_read_line_by_line() -> None:
    said = "<selected_tasks>\n3: same thing\n 1. also\nnone\n3: again\n9: too far\n0: no\n</selected_tasks>"
    assert read_selection(said, 5) == [3, 1]
    assert read_selection("<selected_tasks></selected_tasks>", 5) == []
    for wrong in ("3: same", said * 2, "</selected_tasks>3<selected_tasks>"):
        assert read_selection(wrong, 5) is None
