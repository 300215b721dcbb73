"""What made a version, back to raw data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kedro.io import DataCatalog

from worldwise.ledger.manifest import InputEntry
from worldwise.ledger.stored import StoredVersion, stored_version, versioned


@dataclass(frozen=True)
class Ancestor:
    """A version in a lineage.

    Attributes:
        depth: steps from the version that was asked for.
        dataset: its name.
        version: its name.
        found: what is stored; None where it is gone.
        changed: it is not what was read when the version below it was made.
        shown: its own lineage was given before.
    """

    depth: int
    dataset: str
    version: str
    found: StoredVersion | None
    changed: bool
    shown: bool


def lineage(catalog: DataCatalog, dataset: str, version: str) -> Iterator[Ancestor]:
    """The version and everything it was made from, inputs below what they made, each of them once in full."""
    yield from _walk(catalog, dataset, InputEntry(version=version, digest=""), 0, set())


def _walk(
    catalog: DataCatalog, dataset: str, entry: InputEntry, depth: int, seen: set[tuple[str, str]]
) -> Iterator[Ancestor]:
    source = versioned(catalog, dataset)
    found = None if source is None else stored_version(source, entry.version)
    shown = (dataset, entry.version) in seen
    seen.add((dataset, entry.version))
    changed = found is not None and bool(entry.digest) and found.manifest.digest != entry.digest
    yield Ancestor(depth, dataset, entry.version, found, changed, shown)
    if found is not None and not shown:
        for name, read in found.manifest.made.inputs.items():
            if read.version:
                yield from _walk(catalog, name, read, depth + 1, seen)
