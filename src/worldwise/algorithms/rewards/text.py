"""Similarity of texts as plain strings."""

from __future__ import annotations

from difflib import SequenceMatcher


def collapse(text: str) -> str:
    """The text with every run of white space as one blank and none at the ends."""
    return " ".join(text.split())


def exact(prediction: str | None, observation: str) -> bool:
    """Whether the texts are equal after collapsing white space; no prediction is never right."""
    return prediction is not None and collapse(prediction) == collapse(observation)


def text_ratio(prediction: str | None, observation: str, autojunk: bool = False) -> float:
    """Ratcliff and Obershelp's ratio 2M / (|a| + |b|) over matching blocks, in [0, 1]; 0 without prediction.

    difflib's junk heuristic is off unless `autojunk` asks for it: it drops frequent characters of texts over 200
    characters and wrecks the ratio of real observations.
    """
    if prediction is None:
        return 0.0
    said, came = collapse(prediction), collapse(observation)
    return 1.0 if said == came else SequenceMatcher(None, said, came, autojunk=autojunk).ratio()
