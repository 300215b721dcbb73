"""Versions that count only once their manifest stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedro.io.core import AbstractVersionedDataset

from worldwise.ledger.manifest import is_complete, write_manifest
from worldwise.ledger.provenance import made_now
from worldwise.ledger.stored import stored_versions

if TYPE_CHECKING:
    _Dataset = AbstractVersionedDataset[Any, Any]
else:
    # Kedro wraps the __init__ of every class below its own, and would call that of a mix-in in the dataset's place.
    _Dataset = object


class CompleteVersions(_Dataset):
    """Put before a versioned dataset: what has no manifest is never loaded and never counts as stored."""

    def _get_versions(self) -> list[str]:
        return [str(found.path) for found in stored_versions(self)]

    def _exists(self) -> bool:
        if not self._version:
            return bool(super()._exists())
        return is_complete(Path(self._get_load_path()))

    def commit(self, stored: Path) -> None:
        """Makes what was just written count, the last step of storing it.

        Raises:
            OSError: the disk refused; the version does not count.
        """
        if self._version:
            write_manifest(stored, made_now())
