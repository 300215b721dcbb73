"""The complete versions of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.io.core import Version

from worldwise.ledger.manifest import DamagedVersionError, Manifest, is_complete, read_manifest

Versioned = AbstractVersionedDataset[Any, Any]


@dataclass(frozen=True)
class StoredVersion:
    """A complete version.

    Attributes:
        version: its name.
        path: what is stored.
        manifest: what made it.
    """

    version: str
    path: Path
    manifest: Manifest


def versioned(catalog: DataCatalog, name: str) -> Versioned | None:
    """The dataset if the catalog has it and keeps versions of it."""
    dataset = catalog.get(name)
    return dataset if isinstance(dataset, AbstractVersionedDataset) and dataset._version else None


def place_of(dataset: Versioned, version: str) -> Path:
    """Where a version of a dataset lies or would lie."""
    filepath = Path(dataset._filepath)
    return filepath / version / filepath.name


def stored_versions(dataset: Versioned) -> list[StoredVersion]:
    """The complete versions in the order in which they were stored, the newest first.

    Those whose manifest cannot be read do not count.
    """
    folder = Path(dataset._filepath)
    names = [own.name for own in folder.iterdir() if own.is_dir()] if folder.is_dir() else []
    found = [own for name in names if (own := stored_version(dataset, name)) is not None]
    return sorted(found, key=lambda own: (own.manifest.sequence, own.version), reverse=True)


def stored_version(dataset: Versioned, version: str) -> StoredVersion | None:
    """One version; None where it is not complete or its manifest cannot be read."""
    path = place_of(dataset, version)
    try:
        manifest = read_manifest(path) if is_complete(path) else None
    except DamagedVersionError:
        return None
    return None if manifest is None else StoredVersion(version, path, manifest)


def newest(dataset: Versioned) -> StoredVersion | None:
    """The newest complete version."""
    return next(iter(stored_versions(dataset)), None)


def pinned_version(dataset: Versioned) -> str | None:
    """The version that a dataset is told to load, None where it takes the newest."""
    return dataset._version.load if dataset._version else None


def pin(dataset: Versioned, version: str) -> None:
    """From now on the dataset loads this version, which need not be there yet."""
    dataset._version = Version(version, dataset.resolve_save_version())
