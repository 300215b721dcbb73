"""ALFWorld's official games as tasks: unpacked releases and `<split>.tar.xz` archives.

The games are not part of this package. `verify.how_to_obtain` says where they come from.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import tarfile
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from worldwise.worlds.contract import Task, WorldError
from worldwise.worlds.household.game import TASK_TYPES, Game, GameFileError
from worldwise.worlds.household.pddl import GameFile, build_game, open_game_file

OFFICIAL_SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
"""valid_train is disjoint from train; ALFWorld's authors do not report it."""

GAME_FILE = "game.tw-pddl"
DATA_VARIABLE = "WORLDWISE_DATA"
DATA_COMMAND = "kedro worldwise data alfworld"

LARGEST_GAME_FILE = 16 * 2**20
"""Bytes; the largest official one has a fraction of a MiB. What is larger is none, and is not read."""

_SOLVABLE = re.compile(rb'"solvable"\s*:\s*(true|false)')
_SKIPPED = ("movable", "Sliced")
"""ALFWorld leaves out the tasks with these words in their path."""


def data_folder(folder: str | Path | None = None) -> tuple[Path | None, str]:
    """Where the official games should be, and in words how that was decided.

    Args:
        folder: takes precedence if given; else `WORLDWISE_DATA`/alfworld, else ../shared/data/alfworld
            beside this checkout.

    Returns:
        The folder (None where nothing names one), and the words for error messages.
    """
    if folder is not None:
        return Path(folder).expanduser(), f"folder {str(folder)!r}"
    value = os.environ.get(DATA_VARIABLE)
    if value:
        return Path(value).expanduser() / "alfworld", f"{DATA_VARIABLE}={value!r}"
    root = Path(__file__).resolve().parents[4]
    beside = root.parent / "shared" / "data" / "alfworld"
    if (root / "pyproject.toml").is_file() and beside.is_dir():
        return beside, f"{DATA_VARIABLE} (not set, so {str(beside)!r})"
    return None, f"{DATA_VARIABLE} (not set)"


class OfficialGames:
    """The official games of a folder: their tasks, and the game of a task.

    Picklable: it keeps the folder and opens the splits where it is used. An archive is read once,
    front to back, at the first use of its split (train: some seconds), and what the games need of
    it is kept compressed (about 4 KB a game).

    Args:
        folder: holds the splits, or a release folder (`json_2.1.1`) with the splits, or `<split>.tar.xz`;
            None: see `data_folder`.

    Raises:
        WorldError: there is no such folder, or no split in it.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        found, words = data_folder(folder)
        if found is None or not found.is_dir():
            where = "no folder is named" if found is None else f"there is no folder {str(found)!r}"
            raise WorldError(
                f"no official games: {where} by {words}. Set {DATA_VARIABLE} to the folder that holds "
                f"alfworld/ (or household.data to the games' own folder); `{DATA_COMMAND}` says how to get them"
            )
        self.folder = found
        self._words = words
        self._sources = {split: source for split in OFFICIAL_SPLITS if (source := _locate(found, split))}
        if not self._sources:
            raise WorldError(
                f"no official games in {str(found)!r} (from {words}): expected json_2.1.1/<split>/, <split>/ or "
                f"<split>.tar.xz with <split> of {', '.join(OFFICIAL_SPLITS)}; `{DATA_COMMAND}` says how to get them"
            )

    @classmethod
    def found(cls, folder: str | Path | None = None) -> OfficialGames | None:
        """The official games, or None where they are absent."""
        try:
            return cls(folder)
        except WorldError:
            return None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are there."""
        return tuple(self._sources)

    def __reduce__(self) -> tuple[type[OfficialGames], tuple[str]]:
        return OfficialGames, (str(self.folder),)

    def source(self, split: str) -> GameSource:
        """The files of a split.

        Raises:
            WorldError: the split is unknown or absent.
        """
        found = self._sources.get(split)
        if found is None:
            known = f"{', '.join(self._sources)} are there" if split in OFFICIAL_SPLITS else "unknown split"
            raise WorldError(
                f"split {split!r} of the official games is not in {str(self.folder)!r} (from {self._words}): "
                f"{known}; the splits are {', '.join(OFFICIAL_SPLITS)}, and `{DATA_COMMAND}` says how to get them"
            )
        return found

    def tasks(self, split: str, count: int | None = None) -> Sequence[Task]:
        """The tasks of a split, sorted by path; unsolvable games are left out as ALFWorld does.

        Raises:
            WorldError: the split is unknown or absent, or has fewer than `count` games.
            GameFileError: a file is damaged.
        """
        ids = self.source(split).ids()
        if count is not None and not 0 <= count <= len(ids):
            raise WorldError(f"count={count} is outside of 0..{len(ids)}, the games of {split}: ask for fewer")
        return [Task(name, task_type_of(name), split) for name in ids[:count]]

    def load(self, task: Task) -> Game:
        """The game of a task.

        Raises:
            WorldError: the task is none of the official games' tasks.
            GameFileError: its file is damaged.
        """
        source = self.source(task.split)
        return build_game(source.file(task.task_id), task.task_id, source.describe(task.task_id))

    __call__ = load


def task_type_of(task_id: str) -> str:
    """The task type, from the folder above the trial ("pick_two_obj_and_place-CD-None-Safe-308").

    Raises:
        GameFileError: the path is no official game's.
    """
    parts = task_id.split("/")
    task_type = parts[1].partition("-")[0] if len(parts) == 3 else ""
    if task_type not in TASK_TYPES:
        raise GameFileError(f"{task_id}: unknown task type {task_type!r}; expected one of {', '.join(TASK_TYPES)}")
    return task_type


class GameSource(ABC):
    """The game files of one split."""

    @abstractmethod
    def ids(self) -> Sequence[str]:
        """`<split>/<task>/<trial>` of every solvable game, sorted."""

    @abstractmethod
    def file(self, task_id: str) -> GameFile:
        """The read parts of a game's file.

        Raises:
            WorldError: there is no such game.
            GameFileError: the file is damaged.
        """

    @abstractmethod
    def raw(self) -> Iterator[tuple[str, bytes]]:
        """Id and content of every game file, solvable or not; folders in order, archives as they come."""

    @abstractmethod
    def describe(self, task_id: str) -> str:
        """The file of a game in words, for error messages."""

    @abstractmethod
    def path(self) -> Path:
        """The folder or archive that is read."""


class _Folder(GameSource):
    """An unpacked split."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: list[str] | None = None

    def path(self) -> Path:
        return self._folder

    def describe(self, task_id: str) -> str:
        return str(self._folder.parent / task_id / GAME_FILE)

    def _names(self) -> list[str]:
        games = self._folder.glob(f"*/*/{GAME_FILE}")
        names = [game.parent.relative_to(self._folder.parent).as_posix() for game in games]
        return sorted(name for name in names if not any(word in name for word in _SKIPPED))

    def raw(self) -> Iterator[tuple[str, bytes]]:
        for name in self._names():
            yield name, _content(self._folder.parent / name / GAME_FILE)

    def ids(self) -> Sequence[str]:
        if self._ids is None:
            self._ids = [name for name, data in self.raw() if _is_solvable(data, self.describe(name))]
        return self._ids

    def file(self, task_id: str) -> GameFile:
        name = self.describe(task_id)
        inside = task_id.startswith(f"{self._folder.name}/") and ".." not in task_id
        if not inside or not Path(name).is_file():
            raise WorldError(f"task {task_id!r}: there is no file {name!r}")
        return open_game_file(_content(Path(name)), name)


class _Archive(GameSource):
    """A split in a `.tar.xz`, read without unpacking it to disk."""

    def __init__(self, archive: Path, split: str) -> None:
        self._archive = archive
        self._split = split
        self._kept: dict[str, bytes] | None = None
        self._lock = threading.Lock()

    def path(self) -> Path:
        return self._archive

    def describe(self, task_id: str) -> str:
        return f"{self._archive}: {task_id}/{GAME_FILE}"

    def raw(self) -> Iterator[tuple[str, bytes]]:
        try:
            # tarfile's own "r|xz" takes a truncated archive for a shorter one; lzma reports it.
            with lzma.open(self._archive) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    parts = member.name.split("/")
                    if parts[-1] != GAME_FILE or len(parts) < 4 or parts[-4] != self._split:
                        continue
                    name = "/".join(parts[-4:-1])
                    _check_size(member.size, self.describe(name))
                    content = archive.extractfile(member)
                    if content is not None and not any(word in name for word in _SKIPPED):
                        yield name, content.read()
                while stream.read(1 << 20):
                    pass
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise GameFileError(
                f"{self._archive}: cannot be read as a .tar.xz archive ({error or type(error).__name__}); it is "
                "damaged or truncated, fetch it again"
            ) from error

    def _games(self) -> dict[str, bytes]:
        with self._lock:
            if self._kept is None:
                kept = {}
                for name, data in self.raw():
                    file = open_game_file(data, self.describe(name))
                    if file.solvable:
                        kept[name] = _pack(file)
                self._kept = dict(sorted(kept.items()))
        return self._kept

    def ids(self) -> Sequence[str]:
        return list(self._games())

    def file(self, task_id: str) -> GameFile:
        packed = self._games().get(task_id)
        if packed is None:
            raise WorldError(f"task {task_id!r}: {self._archive} has no such game")
        problem, sentence, walkthrough = json.loads(zlib.decompress(packed))
        return GameFile(problem, sentence, None if walkthrough is None else tuple(walkthrough), True)


def _content(path: Path) -> bytes:
    """A game file.

    Raises:
        GameFileError: it is too large to be one.
    """
    _check_size(path.stat().st_size, str(path))
    return path.read_bytes()


def _check_size(size: int, name: str) -> None:
    if size > LARGEST_GAME_FILE:
        raise GameFileError(
            f"{name}: has {size:,} bytes, and game files up to {LARGEST_GAME_FILE:,} are read; it is damaged or no "
            f"official game, fetch the games again (`{DATA_COMMAND}` says how)"
        )


def _pack(file: GameFile) -> bytes:
    """What a game needs of its file, compressed: the object list before the initial facts is not read."""
    problem = " ".join(file.problem[max(0, file.problem.find("(:init")) :].split())
    return zlib.compress(json.dumps([problem, file.sentence, file.walkthrough]).encode(), 1)


def _is_solvable(data: bytes, name: str) -> bool:
    """Whether a game file says it is solvable, without reading all of it.

    Raises:
        GameFileError: it does not say.
    """
    # Inside of JSON strings quotes are escaped, so only the key itself reads like this.
    found = _SOLVABLE.match(data, max(0, data.rfind(b'"solvable"')))
    return open_game_file(data, name).solvable if found is None else found[1] == b"true"


def _locate(folder: Path, split: str) -> GameSource | None:
    """The files of a split, from the newest release folder if there are several."""
    for base in (folder, folder / "alfworld"):
        releases = sorted((path for path in base.glob("json_*") if path.is_dir()), reverse=True)
        for parent in (base, *releases):
            if next((parent / split).glob(f"*/*/{GAME_FILE}"), None) is not None:
                return _Folder(parent / split)
        archive = base / f"{split}.tar.xz"
        if archive.is_file():
            return _Archive(archive, split)
    return None
