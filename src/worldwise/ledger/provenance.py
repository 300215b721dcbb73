"""The wire between a node that runs and what it stores: each version's manifest says what made it.

A hook says what runs, the datasets read it when they store. It lives in a context variable, so that two runs in two
threads do not mix.
"""

from __future__ import annotations

from contextvars import ContextVar

from worldwise.ledger.manifest import Provenance

_MADE: ContextVar[Provenance | None] = ContextVar("worldwise_made", default=None)


def made_now() -> Provenance:
    """What makes the versions that are stored now; empty outside of a run."""
    return _MADE.get() or Provenance()


def set_made(made: Provenance | None) -> None:
    """Says what makes the versions that are stored from now on; None = nothing that is known."""
    _MADE.set(made)
