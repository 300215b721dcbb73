"""Admissible commands as tries for restricted decoding, remembered because states recur."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from worldwise.agents.agent import Agent
from worldwise.generation.protocol import Trie

_REMEMBERED = 16384


class Restrictions:
    """The trie of what an agent may say for given admissible commands.

    Args:
        agent: knows how commands look in tokens.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._remembered = lru_cache(_REMEMBERED)(self._build)

    def trie(self, admissible: Sequence[str]) -> Trie:
        """The responses that say one of the commands.

        Raises:
            AgentError: no command is left.
        """
        return self._remembered(tuple(admissible))

    def _build(self, admissible: tuple[str, ...]) -> Trie:
        return trie_of(self._agent.allowed_sequences(admissible))


def trie_of(sequences: Sequence[Sequence[int]]) -> Trie:
    """A trie whose paths from the root to the leaves are the sequences; node 0 is the root."""
    children: list[dict[int, int]] = [{}]
    for sequence in sequences:
        node = 0
        for token in sequence:
            following = children[node].get(token)
            if following is None:
                following = children[node][token] = len(children)
                children.append({})
            node = following
    return Trie(tuple(children))
