"""Pictures of token roles: one text file under `golden/` for every chat of `chats.CASES` in both contexts.

A line shows tokens of one role and one turn, each between two bars, up to a line break:
`c` context, `o` observation, `r` response (the only tokens that policy losses train), then the turn's number.

After a change that is meant to move tokens, write the files anew and read the difference:

    WORLDWISE_WRITE_GOLDEN=1 pytest tests/agents/test_golden_masks.py
    git diff tests/agents/golden
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worldwise.episodes.sequences import Role, TrainingSequence

from .chat_models import pieces
from .chats import CASES, CONTEXTS, Played, played_case, stretches

GOLDEN = Path(__file__).parent / "golden"
WRITES = bool(os.environ.get("WORLDWISE_WRITE_GOLDEN"))
LETTERS = {Role.CONTEXT: "c", Role.RESPONSE: "r", Role.OBSERVATION: "o"}


def picture(name: str, context: str, play: Played) -> str:
    """The golden file's text. A window shows two turns of history, so that its first turns go out of sight."""
    turns, rows = len(play.episode.turns), len(play.rows)
    lines = [f"{name}, {context}: {turns} turns in {rows} row{'s' if rows > 1 else ''}"]
    for row in play.rows:
        trained = int((row.roles == Role.RESPONSE).sum())
        lines += ["", f"{row.sequence_id}: {len(row)} tokens, {trained} trained", *_lines(play, row)]
    return "\n".join(lines) + "\n"


def _lines(play: Played, row: TrainingSequence) -> list[str]:
    lines: list[tuple[Role, int, list[str]]] = []
    for role, turn, start, end in stretches(row):
        shown: list[str] = []
        for piece in pieces(play.tokenizer, row.token_ids[start:end].tolist()):
            shown.append(piece.replace("\\", "\\\\").replace("\n", "\\n"))
            if piece.endswith("\n"):
                lines.append((role, turn, shown))
                shown = []
        if shown:
            lines.append((role, turn, shown))
    return [f"{LETTERS[role]}{turn} ¦{'¦'.join(shown)}¦" for role, turn, shown in lines]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CASES)
def test_golden_masks(name: str, context: str) -> None:
    text = picture(name, context, played_case(name, context, history=2))
    file = GOLDEN / f"{name}-{context}.txt"
    if WRITES:
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_picture_is_looked_at() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {f"{name}-{context}" for name in CASES for context in CONTEXTS}
