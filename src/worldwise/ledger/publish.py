"""Folders that appear whole or not at all, and disk space asked for before it runs out."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from pathlib import Path

_SCRATCH_PREFIX = "worldwise-scratch-"


class PublishError(RuntimeError):
    """A folder could not be put in place, or the disk cannot hold what is to come."""


def scratch_folder(name: str) -> Path:
    """An empty folder to prepare a result in; what is left of it goes when the process ends.

    `publish_folder` moves a scratch folder and copies any other, so that a result written here is never
    written twice. It lies in the system's folder for temporary files (TMPDIR).
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_scratch(folder: Path) -> bool:
    """Whether `folder` was made by `scratch_folder`."""
    return folder.name.startswith(_SCRATCH_PREFIX) and folder.parent == Path(tempfile.gettempdir())


def publish_folder(source: Path, target: Path) -> None:
    """Puts the content of `source` at `target` so that `target` is complete from its first moment on.

    The content is moved or copied to a sibling of `target` and renamed, which a file system does in one
    step. A scratch folder is used up; any other source stays as it is.

    Raises:
        PublishError: no such source, the target exists, or the disk refused.
    """
    if not source.is_dir():
        raise PublishError(f"{source} is not a folder: nothing to store at {target}")
    if target.exists():
        raise PublishError(f"{target} exists already: a stored version is never overwritten")
    part = target.parent / f".{target.name}.{uuid.uuid4().hex}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_scratch(source):
            shutil.move(source, part)
        else:
            shutil.copytree(source, part)
        part.rename(target)
    except OSError as error:
        raise PublishError(f"cannot store {source} at {target}: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def folder_size(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def require_free_space(folder: Path, needed: int, purpose: str) -> None:
    """Checks that the disk that holds (or will hold) `folder` has `needed` bytes left.

    Raises:
        PublishError: it has not; the message says what was needed, what there is and what to do.
    """
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise PublishError(
            f"{purpose} needs about {needed / 2**20:,.0f} MiB in {existing}, the disk has {free / 2**20:,.0f} MiB "
            "left: free some, delete old versions below data/, or point data_root to another disk "
            "(--params=data_root=/another/folder)"
        )
