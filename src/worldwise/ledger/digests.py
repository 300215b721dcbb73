"""Digests of files and folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from worldwise.config import FrozenConfig
from worldwise.files import whole_file

_CHUNK = 2**20


class FileEntry(FrozenConfig):
    """A stored file.

    Attributes:
        size: bytes.
        sha256: of its content, hexadecimal.
    """

    size: int
    sha256: str


def file_entry(path: Path) -> FileEntry:
    """Size and digest of a file.

    Raises:
        OSError: it cannot be read.
    """
    found = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
            size += len(chunk)
    return FileEntry(size=size, sha256=found.hexdigest())


def file_entries(path: Path) -> dict[str, FileEntry]:
    """The files that are `path` or lie below it: name relative to its parent -> entry, sorted."""
    files = sorted(own for own in path.rglob("*") if own.is_file()) if path.is_dir() else [path]
    return {file.relative_to(path.parent).as_posix(): file_entry(file) for file in files}


def digest_of(value: Any) -> str:
    """SHA-256 of what JSON says of `value`, keys sorted; hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def content_digest(files: Mapping[str, FileEntry]) -> str:
    """One digest for a set of files, whatever the name of the version that holds them."""
    return digest_of({name: entry.sha256 for name, entry in files.items()})


class DigestCache:
    """Digests of files that other programs own, computed again only where size, times or place on the disk are new.

    Args:
        path: JSON file that keeps them between runs; an absent or broken one is an empty one. None keeps nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, tuple[str, str]] = {}
        self._changed = False
        if path is None:
            return
        with suppress(OSError, ValueError, TypeError):
            content = json.loads(path.read_text(encoding="utf-8"))
            self._known = {name: (str(state), str(own)) for name, (state, own) in content.items()}

    def digest(self, path: Path) -> str:
        """Digest of a file, or of all files below a folder with their names; `absent` where there is none."""
        if path.is_dir():
            files = sorted(own for own in path.rglob("*") if own.is_file())
            return digest_of({own.relative_to(path).as_posix(): self._file(own) for own in files})
        return self._file(path) if path.is_file() else "absent"

    def save(self) -> None:
        """Keeps the digests for the next run; a disk that refuses costs time then, and nothing now."""
        if self._changed and self._path is not None:
            with suppress(OSError), whole_file(self._path) as part:
                part.write_text(json.dumps(self._known), encoding="utf-8")
            self._changed = False

    def _file(self, path: Path) -> str:
        found = path.stat()
        name = str(path.absolute())
        state = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
        known = self._known.get(name)
        if known is None or known[0] != state:
            known = self._known[name] = (state, file_entry(path).sha256)
            self._changed = True
        return known[1]
