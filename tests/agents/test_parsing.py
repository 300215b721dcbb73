"""Reading commands and predictions out of responses."""

from __future__ import annotations

import pytest

from worldwise.agents.parsing import read_plain, read_prediction, read_tagged


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
