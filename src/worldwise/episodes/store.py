"""Episodes and transitions on disk: Parquet with zstd, see `tables.py` for the columns.

A folder of episodes is a set of shards `<prefix>-<number>.parquet`, read in the order of their names. A shard
appears under its name only once it is complete. Nothing but the current shard is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from worldwise.episodes.record import Episode
from worldwise.episodes.tables import (
    EPISODES,
    TRANSITIONS,
    check_schema,
    episodes_from_rows,
    episodes_to_table,
    transitions_from_table,
    transitions_to_table,
)
from worldwise.episodes.transitions import Transition
from worldwise.files import whole_file

_READ_ROWS = 64


class DamagedError(ValueError):
    """A stored file cannot be read. The message names it and says what to do."""


def write_episodes(folder: Path, episodes: Iterable[Episode], shard_size: int = 256, prefix: str = "episodes") -> int:
    """Writes episodes as shards and returns how many there were.

    Shards of the same prefix that were there before are replaced, others stay: a stage that writes one
    prefix an iteration ("iteration-0007") can do an iteration again. No episodes make one empty shard, so
    that the folder says what it is.

    Args:
        folder: made if missing.
        episodes: read once, a shard at a time.
        shard_size: episodes in a shard, at least 1.
        prefix: beginning of the shards' names.

    Raises:
        ValueError: shard_size below 1, or a path separator in the prefix.
    """
    if shard_size < 1:
        raise ValueError(f"shard_size={shard_size} must be at least 1")
    if not prefix or Path(prefix).name != prefix:
        raise ValueError(f"prefix={prefix!r} must be a plain file name")
    folder.mkdir(parents=True, exist_ok=True)
    old = set(_shards(folder, prefix))
    stream = iter(episodes)
    written, number = 0, 0
    while (shard := list(islice(stream, shard_size))) or number == 0:
        path = folder / f"{prefix}-{number:05d}.parquet"
        _write(episodes_to_table(shard), path)
        old.discard(path)
        written, number = written + len(shard), number + 1
    for path in old:
        path.unlink()
    return written


def read_episodes(folder: Path, prefix: str = "") -> Iterator[Episode]:
    """The episodes of a folder, streamed.

    Args:
        folder: as `write_episodes` left it.
        prefix: only shards whose prefix is this one; "" = all.

    Raises:
        FileNotFoundError: there is no shard.
        DamagedError: a shard cannot be read.
        SchemaError: a shard was written by another version.
    """
    for path in _present(folder, prefix):
        with _readable(path), pq.ParquetFile(path) as file:
            check_schema(file.schema_arrow, EPISODES, str(path))
            for batch in file.iter_batches(batch_size=_READ_ROWS):
                yield from episodes_from_rows(batch.to_pylist())


def count_episodes(folder: Path, prefix: str = "") -> int:
    """How many episodes a folder holds, from the shards' footers.

    Raises:
        FileNotFoundError: there is no shard.
        DamagedError: a shard cannot be read.
    """
    total = 0
    for path in _present(folder, prefix):
        with _readable(path):
            total += pq.read_metadata(path).num_rows
    return total


def read_episode_columns(folder: Path, columns: Sequence[str], prefix: str = "") -> pa.Table:
    """Some columns of all episodes, for tables and figures, without reading tokens and texts.

    Args:
        folder, prefix: as in `read_episodes`.
        columns: for example `task_type`, `success`, or `turns.list.element.reward` for one field of the turns.

    Raises:
        FileNotFoundError: there is no shard.
        DamagedError: a shard cannot be read.
    """
    tables = []
    for path in _present(folder, prefix):
        with _readable(path), pq.ParquetFile(path) as file:
            tables.append(file.read(columns=list(columns)))
    return pa.concat_tables(tables)


def write_transitions(path: Path, transitions: Sequence[Transition]) -> None:
    """Writes transitions into one Parquet file, which appears only once it is complete."""
    _write(transitions_to_table(transitions), path)


def read_transitions(path: Path) -> list[Transition]:
    """The transitions of a file.

    Raises:
        FileNotFoundError: no such file.
        DamagedError: it cannot be read.
        SchemaError: it holds something else, or was written by another version.
    """
    with _readable(path):
        table = pq.read_table(path)
    check_schema(table.schema, TRANSITIONS, str(path))
    return transitions_from_table(table)


def _write(table: pa.Table, path: Path) -> None:
    with whole_file(path) as part:
        pq.write_table(table, part, compression="zstd")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what Arrow says of a damaged file into a `DamagedError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(
            f"{path} cannot be read ({error}): if it is damaged or cut short, delete the stored version that it "
            "belongs to and run the node that makes it again"
        ) from error


def _shards(folder: Path, prefix: str) -> list[Path]:
    found = [path for path in folder.glob("*.parquet") if not path.name.startswith(".")]
    return sorted(path for path in found if not prefix or path.name.rsplit("-", 1)[0] == prefix)


def _present(folder: Path, prefix: str) -> list[Path]:
    shards = _shards(folder, prefix)
    if not shards:
        named = f" with prefix {prefix!r}" if prefix else ""
        raise FileNotFoundError(f"no episodes{named} in {folder}: run the stage that writes them")
    return shards
