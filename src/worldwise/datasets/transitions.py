"""Transitions as a versioned Parquet file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from kedro.io.core import AbstractVersionedDataset, Version
from kedro_datasets._typing import TablePreview

from worldwise.datasets.atomic import AtomicFile
from worldwise.episodes.store import read_transitions, write_transitions
from worldwise.episodes.transitions import Transition

_SHOWN = ("transition_id", "kind", "action", "observation", "next_observation", "pass_rate")


class TransitionsDataset(AtomicFile, AbstractVersionedDataset[list[Transition], list[Transition]]):
    """What a world model learns from, in one file that appears only once it is complete.

    Args:
        filepath: where the versions lie.
        version: as Kedro gives it.
        metadata: for other tools.
    """

    def __init__(
        self, *, filepath: str, version: Version | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__(PurePosixPath(filepath), version)
        self.metadata = metadata

    def load(self) -> list[Transition]:
        return read_transitions(Path(self._get_load_path()))

    def write(self, data: list[Transition], path: Path) -> None:
        write_transitions(path, data)

    def preview(self, nrows: int = 5) -> TablePreview:
        """The first transitions, for kedro-viz; it goes by the name of the return type."""
        rows = [[getattr(item, name) for name in _SHOWN] for item in self.load()[:nrows]]
        return TablePreview({"index": list(range(len(rows))), "columns": list(_SHOWN), "data": rows})

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath), "version": self._version}
