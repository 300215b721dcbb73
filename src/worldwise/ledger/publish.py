"""Folders that appear whole or not at all, and disk space asked for before it runs out."""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from worldwise.deferring import deferred
from worldwise.files import flush, nearest, part_of
from worldwise.ledger.manifest import Manifest, Provenance, write_manifest
from worldwise.ledger.provenance import made_now

SCRATCH_PREFIX = "worldwise-scratch-"
_KEPT_PREFIX = "worldwise-kept-"

PARTS = ".*.part"
"""Names of what is not finished yet, see `files.part_of`."""


class PublishError(RuntimeError):
    """A folder could not be put in place, or the disk cannot hold what is to come."""


def scratch_folder(name: str) -> Path:
    """An empty folder to prepare a result in; what is left of it goes when the process ends.

    `publish_folder` moves a scratch folder and copies any other, so that a result written here is never
    written twice. It lies in the system's folder for temporary files (TMPDIR).
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(record_of(folder).unlink, missing_ok=True)
    # Written before anything else: a full disk must not part a kept result from what made it.
    record_of(folder).write_text(made_now().model_dump_json(), encoding="utf-8")
    return folder


def record_of(folder: Path) -> Path:
    """The file beside a scratch folder that says what makes its content."""
    return folder.with_name(f"{folder.name}.json")


def is_scratch(folder: Path) -> bool:
    """Whether `folder` was made by `scratch_folder`."""
    return folder.name.startswith(SCRATCH_PREFIX) and folder.parent == Path(tempfile.gettempdir())


def keep_scratch(folder: Path, target: Path) -> str:
    """Takes a scratch folder that could not be stored at `target` out of those that go when the process ends.

    Returns:
        In words where it lies now, and how to put it in place.
    """
    # What is removed at the end of the process goes by its name.
    kept = folder.with_name(_KEPT_PREFIX + folder.name.removeprefix(SCRATCH_PREFIX))
    folder.rename(kept)
    with suppress(FileNotFoundError):
        record_of(folder).rename(record_of(kept))
    command = shlex.join(["kedro", "worldwise", "store", str(kept), str(target)])
    return f"the finished result is kept in {kept}: once there is room, {command}"


def store_kept(kept: Path, target: Path) -> Manifest:
    """Puts what `keep_scratch` kept in its place, with what it knows of its making.

    Raises:
        PublishError: it is no kept result, the target exists, or the disk refused again; it is still kept then.
    """
    if not kept.is_dir() or not kept.name.startswith(_KEPT_PREFIX):
        raise PublishError(f"{kept} is no kept result: those are folders named {_KEPT_PREFIX}...")
    made = Provenance()
    if record_of(kept).is_file():
        made = Provenance.model_validate_json(record_of(kept).read_text(encoding="utf-8"))
    found: list[Manifest] = []
    publish_folder(kept, target, lambda stored: found.append(write_manifest(stored, made)))
    return found[0]


def drop_parts(folder: Path) -> None:
    """Removes what a killed process was writing in a folder that nobody is writing to now.

    Raises:
        OSError: it cannot be removed.
    """
    for part in sorted(folder.rglob(PARTS), reverse=True):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part)
        else:
            part.unlink()


@deferred()
def publish_folder(source: Path, target: Path, commit: Callable[[Path], object] | None = None) -> None:
    """Puts the content of `source` at `target` so that `target` is complete from its first moment on.

    A scratch folder (or a kept one) is renamed, which a file system does in one step. Any other, and one on another
    file system, is copied to a hidden sibling of `target` first. The first are used up; any other source stays.
    What a killed process left unfinished in the source (`.*.part`) is no part of the content.

    Args:
        source: the folder.
        target: its place.
        commit: called with `target` once it stands there; where the disk refuses that, `target` goes again.

    Raises:
        PublishError: no such source, the target exists, or the disk refused. A scratch folder is kept then, and the
            message says where.
    """
    if not source.is_dir():
        raise PublishError(f"{source} is not a folder: nothing to store at {target}")
    if target.exists():
        raise PublishError(f"{target} exists already: a stored version is never overwritten")
    part = part_of(target)
    made = not target.parent.exists()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if _is_ours(source):
            drop_parts(source)
        if not (_is_ours(source) and _renamed(source, target)):
            shutil.copytree(source, part)
            drop_parts(part)
            flush(part)
            part.rename(target)
        if commit is not None:
            _commit(source, target, commit)
    except OSError as error:
        kept = f"; {keep_scratch(source, target)}" if is_scratch(source) else ""
        raise PublishError(f"cannot store {source} at {target}: {_reason(error)}{kept}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if made:
            # Only an empty folder goes.
            with suppress(OSError):
                target.parent.rmdir()
    if _is_ours(source):
        shutil.rmtree(source, ignore_errors=True)
        record_of(source).unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else has a use for a folder that was prepared here."""
    return is_scratch(folder) or folder.name.startswith(_KEPT_PREFIX)


def _commit(source: Path, target: Path, commit: Callable[[Path], object]) -> None:
    """Calls `commit`; an error leaves everything as it was before `target`."""
    try:
        commit(target)
    except BaseException:
        if source.exists():
            shutil.rmtree(target)
        else:
            target.rename(source)
        raise


def _reason(error: OSError) -> str:
    """The error in words; `copytree` gathers a list of (source, target, reason), of which the first tells enough."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return str(error)


def _renamed(source: Path, target: Path) -> bool:
    """Renames a folder; False where the target is on another file system."""
    flush(source)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def folder_size(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def require_free_space(folder: Path, needed: int, purpose: str, remedy: str) -> None:
    """Checks that the disk that holds (or will hold) `folder` has `needed` bytes left.

    Raises:
        PublishError: it has not; the message says what was needed, what there is and, with `remedy`, what to do.
    """
    existing = nearest(folder)
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise PublishError(
            f"{purpose} needs about {needed / 2**20:,.0f} MiB in {existing}, the disk has {free / 2**20:,.0f} MiB "
            f"left: {remedy}"
        )
