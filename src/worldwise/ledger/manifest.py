"""The manifest: the file beside a stored version that says that it is complete, and what made it.

A version of a dataset lies at `<filepath>/<version>/<name>`; its manifest lies beside it in the same folder and is
written last, in one step. What has none is unfinished: it is never loaded and never counts as stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, ValidationError

from worldwise.config import FrozenConfig
from worldwise.files import whole_file
from worldwise.ledger.digests import FileEntry, content_digest, file_entries, file_entry

MANIFEST = "_manifest.json"
FORMAT = 1


class DamagedVersionError(Exception):
    """A stored version is not what its manifest says."""


class InputEntry(FrozenConfig):
    """What a node read.

    Attributes:
        version: of the dataset; empty where it was absent or keeps none.
        digest: of its content.
    """

    version: str
    digest: str


class Provenance(FrozenConfig):
    """What made a version. All empty where it was stored outside of a run.

    Attributes:
        run_id: of the Kedro run, which is the name of the versions that it stores.
        node: that made it.
        key: digest of code, semantic parameters and inputs (`keys.NodeKey`); equal keys promise equal results.
        code: module -> digest of its code.
        parameters: flat name -> value, those that change results.
        raw: name of something outside of the catalog that was read -> its digest.
        inputs: dataset -> what was read of it.
        outputs: all that the node stores in versions, this one among them: they serve together or not at all.
        reused: version of another run whose results were taken over.
        git_commit, git_dirty: the state of the project's repository.
        mlflow_run: of the node if it has one of its own, of the whole run otherwise.
        packages: library -> version.
        started_at: ISO time when the node began.
    """

    run_id: str = ""
    node: str = ""
    key: str = ""
    code: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, str] = Field(default_factory=dict)
    raw: dict[str, str] = Field(default_factory=dict)
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    reused: str = ""
    git_commit: str = ""
    git_dirty: bool = False
    mlflow_run: str = ""
    packages: dict[str, str] = Field(default_factory=dict)
    started_at: str = ""


class Manifest(FrozenConfig):
    """See the module.

    Attributes:
        format: of this file.
        files: name relative to the version's folder -> size and digest.
        made: what made the version.
        stored_at: ISO time.
        sequence: counts the versions of a dataset in the order in which they were stored; the clock may go backwards.
    """

    format: int = FORMAT
    files: dict[str, FileEntry]
    made: Provenance
    stored_at: str
    sequence: int = 0

    @property
    def digest(self) -> str:
        """Of the content."""
        return content_digest(self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())


def manifest_of(stored: Path) -> Path:
    """Where the manifest of what is stored at `<filepath>/<version>/<name>` lies."""
    return stored.parent / MANIFEST


def is_complete(stored: Path) -> bool:
    """Whether the version stored there counts."""
    return manifest_of(stored).is_file() and stored.exists()


def write_manifest(stored: Path, made: Provenance) -> Manifest:
    """Commits what is stored at a path: from now on the version counts.

    Raises:
        OSError: the disk refused.
    """
    others = [own.sequence for own in _manifests(stored.parent.parent, stored.name)]
    manifest = Manifest(
        files=file_entries(stored),
        made=made,
        stored_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        sequence=1 + max(others, default=0),
    )
    with whole_file(manifest_of(stored)) as part:
        part.write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    return manifest


def _manifests(folder: Path, name: str) -> Iterator[Manifest]:
    for version in folder.iterdir():
        with suppress(DamagedVersionError):
            if is_complete(version / name) and (found := read_manifest(version / name)):
                yield found


def read_manifest(stored: Path) -> Manifest | None:
    """The manifest of what is stored at a path; None where there is none.

    Raises:
        DamagedVersionError: it cannot be read.
    """
    path = manifest_of(stored)
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise DamagedVersionError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def damage(stored: Path, files: Mapping[str, FileEntry]) -> str | None:
    """What is wrong with the files of a version, None if they are what was stored.

    Reads every byte.
    """
    root = stored.parent
    there = {own.relative_to(root).as_posix() for own in stored.rglob("*") if own.is_file()}
    added = sorted(there - set(files))
    if added:
        return f"{root / added[0]} was not there when it was stored"
    for name, entry in files.items():
        path = root / name
        if not path.is_file():
            return f"{path} is gone"
        size = path.stat().st_size
        if size != entry.size:
            return f"{path} has {size:,} bytes instead of {entry.size:,}"
        if file_entry(path).sha256 != entry.sha256:
            return f"{path} has changed since it was stored"
    return None
