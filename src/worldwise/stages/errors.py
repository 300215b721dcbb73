"""What goes wrong inside a stage, said so that the user can act on it."""

from __future__ import annotations


class StageError(RuntimeError):
    """A stage cannot go on. The message names the stage, what it needed, what it got and what to change."""
