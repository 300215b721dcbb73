"""Admissible commands as tries for restricted decoding, remembered because states recur."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from worldwise.agents.agent import Agent
from worldwise.generation.protocol import Trie
from worldwise.generation.tries import build_trie

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
        return build_trie(self._agent.allowed_sequences(admissible))
