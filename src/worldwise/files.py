"""Files that appear whole or not at all, and whether a folder can be written. Needs the standard library alone."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from worldwise.deferring import deferred


def part_of(path: Path) -> Path:
    """A name beside `path` for what is not finished yet; hidden, and no two calls give the same."""
    return path.parent / f".{path.name}.{uuid.uuid4().hex}.part"


def flush(path: Path) -> None:
    """Waits until a file, or every file below a folder, is on the disk.

    Some file systems find out only here that they are full.

    Raises:
        OSError: the disk refused.
    """
    for file in (path, *path.rglob("*")) if path.is_dir() else (path,):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives the block a place to write to; what it wrote appears at `path` in one step when the block ends.

    A stop waits for the end of the block; it must not last. An error or a second stop inside leaves nothing behind, not
    even the folder that was made for the file. A process that is killed leaves a hidden `.<name>.<number>.part`.

    Raises:
        OSError: the disk refused.
    """
    made = not path.parent.exists()
    part = part_of(path)
    with deferred():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            flush(part)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            if made:
                with suppress(OSError):
                    path.parent.rmdir()
            raise


def nearest(folder: Path) -> Path:
    """`folder`, or the first of the folders above it that is there (a file or a dead link included)."""
    return next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)


def refusal(folder: Path) -> str | None:
    """Why nothing can be written into `folder`, which need not be there yet; None where it can."""
    existing = nearest(folder.absolute())
    if not existing.is_dir():
        return f"{existing} is there and is not a folder"
    try:
        # Rights alone do not tell: a disk may be read-only, and root may write anywhere else.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"{existing} cannot be written ({error.strerror or error})"
