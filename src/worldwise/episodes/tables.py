"""Episodes and transitions as Arrow tables: the schemas, and the way there and back.

Every table names its schema in its metadata under `worldwise.schema`. Token ids, log-probabilities and
texts come back exactly as they went in.

Episodes (`episodes/1`), one row an episode: the fields of `record.Episode` under their own names; `turns` is
a list of structs with the fields of `record.Turn`, spans as `<name>_start` and `<name>_end`; `predictions`
is a list of structs inside of a turn. Parquet stores each of these fields as a column of its own.

Transitions (`transitions/1`), one row a transition: the fields of `transitions.Transition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from worldwise.episodes.record import Episode, Prediction, Termination, Turn
from worldwise.episodes.transitions import Transition

Row = dict[str, Any]

SCHEMA_KEY = b"worldwise.schema"
_IDS, _NATS = pa.list_(pa.int32()), pa.list_(pa.float32())

_PREDICTION = pa.struct(
    [
        ("horizon", pa.int32()),
        ("text", pa.string()),
        ("token_ids", _IDS),
        ("logprobs", _NATS),
        ("score", pa.float64()),
    ]
)
_TURN = pa.struct(
    [
        ("index", pa.int32()),
        ("observation", pa.string()),
        ("context_ids", _IDS),
        ("restart", pa.bool_()),
        ("observation_start", pa.int32()),
        ("observation_end", pa.int32()),
        ("response_ids", _IDS),
        ("logprobs", _NATS),
        ("entropies", _NATS),
        ("response_text", pa.string()),
        ("action", pa.string()),
        ("action_start", pa.int32()),
        ("action_end", pa.int32()),
        ("format_valid", pa.bool_()),
        ("finished", pa.bool_()),
        ("accepted", pa.bool_()),
        ("reward", pa.float64()),
        ("progress", pa.float64()),
        ("next_observation", pa.string()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
        ("admissible", pa.list_(pa.string())),
        ("predictions", pa.list_(_PREDICTION)),
    ]
)
EPISODES = pa.schema(
    [
        ("episode_id", pa.string()),
        ("group_id", pa.string()),
        ("world", pa.string()),
        ("task_id", pa.string()),
        ("task_type", pa.string()),
        ("split", pa.string()),
        ("sample", pa.int32()),
        ("iteration", pa.int32()),
        ("seed", pa.int64()),
        ("world_seed", pa.int64()),
        ("model_version", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("termination", pa.string()),
        ("success", pa.bool_()),
        ("progress", pa.float64()),
        ("reward_valid", pa.bool_()),
        ("temperature", pa.float64()),
        ("restricted", pa.bool_()),
        ("context", pa.string()),
        ("extras", pa.map_(pa.string(), pa.float64())),
    ],
    metadata={SCHEMA_KEY: b"episodes/1"},
)
TRANSITIONS = pa.schema(
    [
        ("transition_id", pa.string()),
        ("episode_id", pa.string()),
        ("task_id", pa.string()),
        ("task_type", pa.string()),
        ("split", pa.string()),
        ("turn", pa.int32()),
        ("kind", pa.string()),
        ("prompt_ids", _IDS),
        ("action", pa.string()),
        ("observation", pa.string()),
        ("next_observation", pa.string()),
        ("accepted", pa.bool_()),
        ("terminal", pa.bool_()),
        ("pass_rate", pa.float64()),
    ],
    metadata={SCHEMA_KEY: b"transitions/1"},
)
_TURN_FIELDS = tuple(field.name for field in _TURN if not field.name.endswith(("_start", "_end")))
_EPISODE_FIELDS = tuple(name for name in EPISODES.names if name not in ("turns", "termination", "extras"))
_ARRAYS = {"context_ids": np.int32, "response_ids": np.int32, "logprobs": np.float32, "entropies": np.float32}


class SchemaError(ValueError):
    """A table is not what it should be. The message names the schema found and the one wanted."""


def check_schema(schema: pa.Schema, wanted: pa.Schema, source: str) -> None:
    """Compares the schema names.

    Raises:
        SchemaError: another schema, or none.
    """
    found = (schema.metadata or {}).get(SCHEMA_KEY, b"none").decode()
    name = wanted.metadata[SCHEMA_KEY].decode()
    if found != name:
        raise SchemaError(f"{source} holds schema {found!r}, and {name!r} is needed: make it again with this version")


def episodes_to_table(episodes: Iterable[Episode]) -> pa.Table:
    """One row an episode, schema `EPISODES`."""
    return pa.Table.from_pylist([_episode_row(episode) for episode in episodes], schema=EPISODES)


def episodes_from_rows(rows: Iterable[Row]) -> list[Episode]:
    """The episodes of a table's or record batch's `to_pylist()`."""
    return [_episode(row) for row in rows]


def transitions_to_table(transitions: Sequence[Transition]) -> pa.Table:
    """One row a transition, schema `TRANSITIONS`."""
    names = [name for name in TRANSITIONS.names if name != "prompt_ids"]
    columns: dict[str, pa.Array] = {
        name: pa.array([getattr(item, name) for item in transitions], TRANSITIONS.field(name).type) for name in names
    }
    columns["prompt_ids"] = _id_lists([item.prompt_ids for item in transitions])
    return pa.table(columns, schema=TRANSITIONS)


def transitions_from_table(table: pa.Table) -> list[Transition]:
    """The transitions of a table with schema `TRANSITIONS`.

    Raises:
        SchemaError: another schema.
    """
    check_schema(table.schema, TRANSITIONS, "the table")
    prompts = table.column("prompt_ids").combine_chunks()
    values = prompts.flatten().to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    ends = np.cumsum(prompts.value_lengths().to_numpy(zero_copy_only=False))
    rest = table.drop_columns(["prompt_ids"]).to_pylist()
    starts = [0, *ends.tolist()]
    return [Transition(prompt_ids=values[starts[i] : starts[i + 1]].copy(), **row) for i, row in enumerate(rest)]


def _id_lists(arrays: Sequence[np.ndarray[Any, np.dtype[np.int32]]]) -> pa.ListArray:
    offsets = np.zeros(len(arrays) + 1, dtype=np.int32)
    np.cumsum([len(ids) for ids in arrays], out=offsets[1:])
    values = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.int32()))


def _episode_row(episode: Episode) -> Row:
    row: Row = {name: getattr(episode, name) for name in _EPISODE_FIELDS}
    row["turns"] = [_turn_row(turn) for turn in episode.turns]
    row["termination"] = episode.termination.value
    row["extras"] = list(episode.extras.items())
    return row


def _turn_row(turn: Turn) -> Row:
    row: Row = {name: getattr(turn, name) for name in _TURN_FIELDS}
    row["observation_start"], row["observation_end"] = turn.observation_span
    row["action_start"], row["action_end"] = turn.action_span
    row["predictions"] = [
        {
            "horizon": prediction.horizon,
            "text": prediction.text,
            "token_ids": prediction.token_ids,
            "logprobs": prediction.logprobs,
            "score": prediction.score,
        }
        for prediction in turn.predictions
    ]
    return row


def _episode(row: Mapping[str, Any]) -> Episode:
    return Episode(
        turns=tuple(_turn(turn) for turn in row["turns"]),
        termination=Termination(row["termination"]),
        extras=dict(row["extras"]),
        **{name: row[name] for name in _EPISODE_FIELDS},
    )


def _turn(row: Mapping[str, Any]) -> Turn:
    fields = {name: row[name] for name in _TURN_FIELDS}
    for name, dtype in _ARRAYS.items():
        fields[name] = np.asarray(row[name], dtype=dtype)
    fields["admissible"] = None if row["admissible"] is None else tuple(row["admissible"])
    fields["predictions"] = tuple(_prediction(entry) for entry in row["predictions"])
    return Turn(
        observation_span=(row["observation_start"], row["observation_end"]),
        action_span=(row["action_start"], row["action_end"]),
        **fields,
    )


def _prediction(row: Mapping[str, Any]) -> Prediction:
    return Prediction(
        horizon=row["horizon"],
        text=row["text"],
        token_ids=np.asarray(row["token_ids"], dtype=np.int32),
        logprobs=np.asarray(row["logprobs"], dtype=np.float32),
        score=row["score"],
    )
