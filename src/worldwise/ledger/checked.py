"""Stored versions are read only after they were found to be what was stored."""

from __future__ import annotations

from kedro.io import DataCatalog

from worldwise.ledger.manifest import DamagedVersionError, damage, is_complete, manifest_of
from worldwise.ledger.stored import StoredVersion, Versioned, place_of, stored_version, stored_versions, versioned


class CheckedVersions:
    """Checks every version once, before it is loaded: the files it should have, their sizes and digests."""

    def __init__(self) -> None:
        self._whole: set[str] = set()

    def check(self, name: str, catalog: DataCatalog) -> None:
        """Checks the version that a dataset will load; datasets that are not versioned or not stored pass.

        Raises:
            DamagedVersionError: it is not what was stored; the message offers another version.
        """
        dataset = versioned(catalog, name)
        if dataset is None or not dataset.exists():
            return
        version = dataset.resolve_load_version()
        if not version or not is_complete(place_of(dataset, version)):
            return
        found = stored_version(dataset, version)
        if found is None:
            raise DamagedVersionError(
                f"{name}:{version} is damaged: its manifest {manifest_of(place_of(dataset, version))} cannot be read. "
                "Name another version with --load-versions, or delete this one and run the node that makes it again"
            )
        if str(found.path) in self._whole:
            return
        reason = damage(found.path, found.manifest.files)
        if reason is not None:
            raise DamagedVersionError(f"{name}:{found.version} is damaged: {reason}. {_way_out(name, dataset, found)}")
        self._whole.add(str(found.path))


def _way_out(name: str, dataset: Versioned, broken: StoredVersion) -> str:
    """What to do about a damaged version."""
    key = broken.manifest.made.key
    others = [own for own in stored_versions(dataset) if own.version != broken.version]
    # Equal keys promise equal results, so those come first; of the rest the newest.
    others.sort(key=lambda own: not key or own.manifest.made.key != key)
    whole = next((own for own in others if damage(own.path, own.manifest.files) is None), None)
    anew = f"delete {broken.path.parent} and run {broken.manifest.made.node or 'the node that makes it'} again"
    if whole is None:
        return f"There is no other whole version: {anew}"
    if key and whole.manifest.made.key == key:
        return f"Use a version that was made in the same way (--load-versions={name}:{whole.version}), or {anew}"
    return (
        f"To have the same again, {anew}. Another version is whole (--load-versions={name}:{whole.version}), but it "
        "was made with other parameters, inputs or code: see kedro worldwise lineage "
        f"{name}:{whole.version} --parameters"
    )
