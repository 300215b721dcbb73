"""The token sequences that a restricted response may be, as a trie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worldwise.generation.protocol import Trie


def build_trie(sequences: Iterable[Sequence[int]]) -> Trie:
    """The trie of the sequences that a restricted response may be.

    End every sequence with the end token: a response then includes it, and no sequence begins another.

    Raises:
        ValueError: nothing given, an empty sequence, or one that is the beginning of another.
    """
    children: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for sequence in sequences:
        node = 0
        for token in sequence:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
            node = children[node][token]
        ends.add(node)
    if not children[0]:
        raise ValueError("no token sequence to allow: give at least one, and none that is empty")
    if any(children[node] for node in ends):
        raise ValueError("an allowed sequence is empty or the beginning of another: end each with the end token")
    return Trie(children=tuple(children))
