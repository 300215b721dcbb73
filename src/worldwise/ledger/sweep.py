"""What lies about and serves nobody: unfinished versions, what killed processes left, and old versions."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from worldwise.ledger.manifest import DamagedVersionError, Manifest, is_complete, read_manifest
from worldwise.ledger.publish import PARTS, SCRATCH_PREFIX, record_of
from worldwise.ledger.workspace import KEY_SHOWN, WORK_FOLDER, WORKSPACES

_MONTH_S = 30 * 86400
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}\.\d{2}\.\d{2}\.\d{3}Z")


@dataclass(frozen=True)
class Leftover:
    """Something to remove.

    Attributes:
        path: file or folder.
        size: bytes.
        why: in words.
    """

    path: Path
    size: int
    why: str

    def remove(self) -> None:
        """Removes it.

        Raises:
            OSError: it cannot be removed.
        """
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Version:
    """A complete version that was found on the disk, whatever catalog it belongs to."""

    filepath: Path
    name: str
    manifest: Manifest

    @property
    def folder(self) -> Path:
        return self.filepath / self.name


def leftovers(root: Path, alive: Collection[str], keep: int | None = None) -> list[Leftover]:
    """What can go.

    Args:
        root: the data root.
        alive: names of the runs that are at work. What they are writing stays, and while there are any also what
            they may be about to read (old versions) and what nobody can be named for.
        keep: how many versions of every dataset stay, the newest, and with them all that they were made from; None
            keeps all.
    """
    found = [*_unfinished(root, alive), *_scratch()]
    if not alive:
        found += [*_parts(root), *_workspaces(root)]
        if keep is not None:
            found += _old(list(_complete(root)), keep)
    return sorted(found, key=lambda own: own.path)


def _version_folders(root: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(root):
        for name in list(names):
            if _VERSION.fullmatch(name):
                # What lies in a version is its content.
                names.remove(name)
                yield Path(folder) / name


def _unfinished(root: Path, alive: Collection[str]) -> Iterator[Leftover]:
    for folder in _version_folders(root):
        if folder.name in alive:
            continue
        if not is_complete(folder / folder.parent.name):
            yield _leftover(folder, "unfinished: it has no manifest")
        elif _manifest(folder) is None:
            yield _leftover(folder, "its manifest cannot be read")


def _parts(root: Path) -> Iterator[Leftover]:
    for place, names, files in os.walk(root):
        folder = Path(place)
        if _VERSION.fullmatch(folder.name):
            if _manifest(folder) is None:
                # It goes as a whole.
                names.clear()
                continue
            # Whatever its name is, a file in there is content that the manifest counts.
            names[:] = [name for name in names if name != folder.parent.name]
        for name in fnmatch.filter([*names, *files], PARTS):
            yield _leftover(folder / name, "a killed process was writing it")
        names[:] = [name for name in names if not fnmatch.fnmatch(name, PARTS)]


def _workspaces(root: Path) -> Iterator[Leftover]:
    """Where killed runs stand: of no use once the node's results are stored, or in a month."""
    finished = {key[:KEY_SHOWN] for key in _finished(root)}
    for path in root.glob(f"{WORK_FOLDER}/{WORKSPACES}/*"):
        if path.name.rpartition("-")[2] in finished:
            yield _leftover(path, "a node stood here whose results are stored")
        elif time.time() - path.stat().st_mtime > _MONTH_S:
            yield _leftover(path, "a node stands here since more than a month")


def _finished(root: Path) -> set[str]:
    """Keys of nodes all of whose outputs one run has stored, so that a plan takes them for cached.

    A node that was killed between two of its outputs still needs where it stands.
    """
    wanted: dict[tuple[str, str], int] = {}
    there: dict[tuple[str, str], set[Path]] = defaultdict(set)
    for version in _complete(root):
        made = version.manifest.made
        wanted[made.key, version.name] = len(made.outputs)
        there[made.key, version.name].add(version.filepath)
    # A manifest that names no outputs does not say when all are there.
    return {run[0] for run, count in wanted.items() if count and len(there[run]) >= count}


def _scratch() -> Iterator[Leftover]:
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*"):
        owner = path.name.removeprefix(SCRATCH_PREFIX).partition("-")[0]
        if path.is_dir() and owner.isdigit() and not psutil.pid_exists(int(owner)):
            yield _leftover(path, "a killed process prepared it")
            if record_of(path).exists():
                yield _leftover(record_of(path), "a killed process prepared it")


def _complete(root: Path) -> Iterator[_Version]:
    for folder in _version_folders(root):
        manifest = _manifest(folder)
        if manifest is not None:
            yield _Version(folder.parent, folder.name, manifest)


def _manifest(folder: Path) -> Manifest | None:
    stored = folder / folder.parent.name
    try:
        return read_manifest(stored) if is_complete(stored) else None
    except DamagedVersionError:
        return None


def _old(versions: Iterable[_Version], keep: int) -> Iterator[Leftover]:
    datasets: dict[Path, list[_Version]] = defaultdict(list)
    by_content: dict[tuple[str, str], list[_Version]] = defaultdict(list)
    for version in versions:
        datasets[version.filepath].append(version)
        by_content[version.name, version.manifest.digest].append(version)
    kept: set[Path] = set()
    waiting = []
    for own in datasets.values():
        own.sort(key=lambda version: (version.manifest.sequence, version.name), reverse=True)
        waiting += own[:keep]
    while waiting:
        version = waiting.pop()
        if version.folder not in kept:
            kept.add(version.folder)
            for entry in version.manifest.made.inputs.values():
                waiting += by_content[entry.version, entry.digest]
    for own in datasets.values():
        for version in own:
            if version.folder not in kept:
                yield _leftover(
                    version.folder, f"older than the newest {keep}, and nothing that stays was made from it"
                )


def _leftover(path: Path, why: str) -> Leftover:
    files = [own for own in path.rglob("*") if own.is_file()] if path.is_dir() else [path]
    return Leftover(path, sum(own.lstat().st_size for own in files), why)
