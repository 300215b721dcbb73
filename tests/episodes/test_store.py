"""Episodes and transitions go to disk and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from worldwise.episodes.record import Episode, Termination
from worldwise.episodes.store import (
    DamagedError,
    count_episodes,
    read_episode_columns,
    read_episodes,
    read_transitions,
    write_episodes,
    write_transitions,
)
from worldwise.episodes.tables import SchemaError
from worldwise.episodes.transitions import Transition

Make = Callable[..., Episode]


def assert_same(left: object, right: object) -> None:
    """Equal in every field, types and dtypes included."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert isinstance(right, np.ndarray)
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, tuple):
        assert isinstance(right, tuple)
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif is_dataclass(left):
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name))
    else:
        assert left == right


def test_round_trip(tmp_path: Path, episode_of: Make, rich_episode: Episode) -> None:
    failed = replace(
        episode_of("collect/0/task-c/0"),
        turns=(),
        termination=Termination.WORLD_ERROR,
        success=False,
        progress=0.0,
        reward_valid=False,
        context="window",
        temperature=0.4,
    )
    episodes = [episode_of(), rich_episode, failed]
    assert write_episodes(tmp_path / "x", episodes) == 3
    back = list(read_episodes(tmp_path / "x"))
    assert len(back) == 3
    for left, right in zip(episodes, back, strict=True):
        assert_same(left, right)


def test_shards_are_written_and_read_one_at_a_time(tmp_path: Path, episode_of: Make) -> None:
    drawn: list[int] = []

    def stream() -> Iterator[Episode]:
        for number in range(7):
            # Whatever was drawn before the last full shard is on disk by now.
            assert len(list(tmp_path.glob("*.parquet"))) == number // 3
            drawn.append(number)
            yield episode_of(f"collect/0/task-a/{number}")

    assert write_episodes(tmp_path, stream(), shard_size=3) == 7
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"episodes-0000{i}.parquet" for i in range(3)]
    assert [episode.sample for episode in read_episodes(tmp_path)] == list(range(7))
    assert count_episodes(tmp_path) == 7


def test_a_prefix_is_replaced_as_a_whole(tmp_path: Path, episode_of: Make) -> None:
    many = [episode_of(f"train/0/task-a/{i}") for i in range(5)]
    write_episodes(tmp_path, many, shard_size=2, prefix="iteration-0001")
    write_episodes(tmp_path, many[:1], prefix="iteration-0000")
    assert count_episodes(tmp_path) == 6
    write_episodes(tmp_path, many[:2], shard_size=2, prefix="iteration-0001")
    assert count_episodes(tmp_path, "iteration-0001") == 2
    assert [episode.sample for episode in read_episodes(tmp_path)] == [0, 0, 1]


def test_a_write_that_breaks_leaves_what_was_there(tmp_path: Path, episode_of: Make) -> None:
    write_episodes(tmp_path, [episode_of()])

    def breaks() -> Iterator[Episode]:
        yield episode_of("collect/0/task-z/1")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_episodes(tmp_path, breaks())
    assert [episode.task_id for episode in read_episodes(tmp_path)] == ["task-a"]


def test_columns_without_tokens(tmp_path: Path, episode_of: Make) -> None:
    write_episodes(tmp_path, [episode_of(), episode_of("collect/0/task-b/0")], shard_size=1)
    table = read_episode_columns(tmp_path, ["task_id", "success", "turns.list.element.reward"])
    assert table.column("task_id").to_pylist() == ["task-a", "task-b"]
    assert table.column("turns").to_pylist()[0] == [{"reward": 0.0}, {"reward": 0.0}, {"reward": 1.0}]


def test_empty_and_missing(tmp_path: Path) -> None:
    assert write_episodes(tmp_path / "none", []) == 0
    assert list(read_episodes(tmp_path / "none")) == []
    with pytest.raises(FileNotFoundError, match="no episodes with prefix 'x'"):
        list(read_episodes(tmp_path / "none", "x"))
    with pytest.raises(FileNotFoundError, match="no episodes in"):
        count_episodes(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="shard_size=0"):
        write_episodes(tmp_path, [], shard_size=0)
    with pytest.raises(ValueError, match="prefix="):
        write_episodes(tmp_path, [], prefix="a/b")


def test_other_tables_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "episodes-00000.parquet")
    with pytest.raises(SchemaError, match="'none', and 'episodes/1'"):
        list(read_episodes(tmp_path))
    write_transitions(tmp_path / "t.parquet", [])
    assert read_transitions(tmp_path / "t.parquet") == []
    (tmp_path / "episodes-00000.parquet").unlink()
    (tmp_path / "t.parquet").rename(tmp_path / "episodes-00000.parquet")
    with pytest.raises(SchemaError, match="'transitions/1', and 'episodes/1'"):
        list(read_episodes(tmp_path))


@pytest.mark.parametrize("cut", [0, 10, -1, -200])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, episode_of: Make, cut: int) -> None:
    write_episodes(tmp_path, [episode_of(), episode_of("collect/0/task-b/0")], shard_size=1)
    write_transitions(tmp_path / "t.transitions", [])
    shard = tmp_path / "episodes-00001.parquet"
    reads: dict[Path, list[Callable[[], object]]] = {
        shard: [
            lambda: list(read_episodes(tmp_path)),
            lambda: count_episodes(tmp_path),
            lambda: read_episode_columns(tmp_path, ["task_id"]),
        ],
        tmp_path / "t.transitions": [lambda: read_transitions(tmp_path / "t.transitions")],
    }
    for path, calls in reads.items():
        path.write_bytes(path.read_bytes()[:cut])
        for call in calls:
            with pytest.raises(DamagedError, match=rf"{path} cannot be read .*run the node that makes it again"):
                call()


def test_content_that_is_damaged_is_named(tmp_path: Path, episode_of: Make) -> None:
    write_episodes(tmp_path, [episode_of(f"collect/0/task-a/{number}") for number in range(50)])
    path = tmp_path / "episodes-00000.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(2000) + content[2004:])
    with pytest.raises(DamagedError, match=r"episodes-00000\.parquet cannot be read"):
        list(read_episodes(tmp_path))


def test_transitions_round_trip(tmp_path: Path) -> None:
    transitions = [
        Transition(
            f"e#{i}", "e", "task", "walk", "train", i, "go", np.arange(i * 3, dtype=np.int32), "go on", "room é",
            "room\n2", True, i == 2, rate,
        )
        for i, rate in enumerate([None, 0.1, 1 / 3])
    ]  # fmt: skip
    write_transitions(tmp_path / "sub" / "transitions.parquet", transitions)
    back = read_transitions(tmp_path / "sub" / "transitions.parquet")
    for left, right in zip(transitions, back, strict=True):
        assert_same(left, right)
