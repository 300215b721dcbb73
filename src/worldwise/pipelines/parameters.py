"""The parameter blocks of a run: their names, their types, and errors that say what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from worldwise.agents.config import AgentConfig
from worldwise.config import COSMETIC, FrozenConfig
from worldwise.generation.models import ModelConfig
from worldwise.pipelines.errors import InputError
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.base_model.build import BaseModelConfig
from worldwise.stages.collect import CollectConfig
from worldwise.stages.encoder import EncoderConfig
from worldwise.stages.evaluate import EvaluateConfig
from worldwise.stages.format_tuning import FormatTuningConfig
from worldwise.stages.midtrain import RwmlConfig
from worldwise.stages.subsample import SubsampleConfig
from worldwise.stages.supervised import SupervisedConfig
from worldwise.stages.train_policy import PolicyConfig
from worldwise.worlds.registry import WorldConfig

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class ComputeConfig(FrozenConfig):
    """What the machine gives. Changes speed, not results.

    Attributes:
        threads: torch threads of the process, which trains; None leaves torch's own choice (the physical cores).
        workers: processes that play and predict, with one thread each; None = one per core on a CPU, 1 = only
            the process that trains (always so on a GPU). Never more than cores. Each needs memory for a copy of
            the weights and for `rollout.slots` contexts.
    """

    threads: Annotated[int | None, COSMETIC] = Field(None, ge=1, le=1024)
    workers: Annotated[int | None, COSMETIC] = Field(None, ge=1, le=1024)


class LedgerConfig(FrozenConfig):
    """How nodes keep where they stand.

    Attributes:
        save_every_s: seconds between two states of a node that trains; 0 = after every step. Saving never takes more
            than 3 % of the time, except with 0.
    """

    save_every_s: Annotated[float, COSMETIC] = Field(60.0, ge=0.0)


class TasksConfig(FrozenConfig):
    """Which training tasks a run uses.

    Attributes:
        split: the world's split they come from.
        train: tasks to collect and to train on.
        held_out: training tasks that only the checks between updates play; they follow on the others.
    """

    split: str = "train"
    train: int = Field(2048, ge=1)
    held_out: int = Field(64, ge=1)


class ReportConfig(FrozenConfig):
    """What the report shows.

    Attributes:
        episodes: in the browser of the HTML report, for the evaluation of each model and for the last iteration
            of each policy RL; fewer where they would make the page too large.
    """

    episodes: int = Field(12, ge=0, le=500)


BLOCKS: dict[str, Any] = {
    "seed": Seed,
    "world": WorldConfig,
    "tasks": TasksConfig,
    "model": ModelConfig,
    "agent": AgentConfig,
    "rollout": RolloutConfig,
    "format_tuning": FormatTuningConfig,
    "collect": CollectConfig,
    "encoder": EncoderConfig,
    "subsample": SubsampleConfig,
    "rwml": RwmlConfig,
    "wm_sft": SupervisedConfig,
    "policy": PolicyConfig,
    "evaluate": EvaluateConfig,
    "base_model": BaseModelConfig,
    "report": ReportConfig,
    "compute": ComputeConfig,
    "ledger": LedgerConfig,
}
"""Parameter block -> its type. A new block adds a line here and a `conf/base/parameters_*.yml`."""

NOT_BLOCKS = frozenset({"data_root"})
"""Top-level parameters that only configuration files read."""


def validated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """All parameter blocks as their types.

    Args:
        raw: block name -> what the configuration files and `--params` say.

    Raises:
        InputError: an unknown block or key, a wrong type, a value outside of its range, a missing block. All
            findings at once.
    """
    findings = [_unknown(name, BLOCKS) for name in raw if name not in BLOCKS and name not in NOT_BLOCKS]
    if "data_root" in raw and not (isinstance(raw["data_root"], str) and raw["data_root"].strip()):
        findings.append(f"parameter data_root is {raw['data_root']!r}: give the folder that everything is stored in")
    values: dict[str, Any] = {}
    for name, kind in BLOCKS.items():
        if name not in raw:
            findings.append(f"parameter {name} is missing from the configuration files: conf/base has it")
            continue
        try:
            values[name] = TypeAdapter(kind).validate_python(raw[name])
        except ValidationError as error:
            findings += _explain(name, kind, error)
    if findings:
        raise InputError(*findings)
    return values


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name.rsplit(".", 1)[-1], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"
    return f"parameter {name} is not known; {hint}"


def _explain(block: str, kind: Any, error: ValidationError) -> Iterator[str]:
    """One finding for every parameter: what all alternatives of its type say stands in one line."""
    details = error.errors(include_url=False)
    places = {_place(kind, detail["loc"]) for detail in details}
    wanted: dict[str, list[str]] = {}
    for detail in details:
        place = _place(kind, detail["loc"])
        if any(other != place and other[: len(place)] == place for other in places):
            continue  # A part of it was refused already, and the whole only for that.
        path = ".".join([block, *(str(part) for part in place)])
        if detail["type"] == "extra_forbidden":
            yield _unknown(path, _fields(kind, detail["loc"][:-1]))
        elif detail["type"] == "value_error":
            text = str(detail["ctx"]["error"])
            named = re.split(r"[ =]", text, maxsplit=1)[0] in _fields(kind, detail["loc"])
            yield f"parameter {path}.{text}" if named else f"parameter {path}: {text}"
        else:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            wanted.setdefault(f"parameter {path} is {detail['input']!r}", []).append(message)
    for beginning, messages in wanted.items():
        others = [message.removeprefix("input should be ") for message in messages[1:]]
        yield f"{beginning}: {', or '.join([messages[0], *others])}"


def _place(kind: Any, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The location without what pydantic puts there beside names of fields and positions: the kinds of a union."""
    place: list[int | str] = []
    for part in location:
        known = part in kind.model_fields if _is_block(kind) else isinstance(part, int)
        if known or (_is_block(kind) and part == location[-1]):
            place.append(part)
            inner = kind.model_fields.get(part) if _is_block(kind) else None
            kind = _given(inner.annotation) if inner is not None else None
    return tuple(place)


def _fields(kind: Any, location: tuple[int | str, ...]) -> Mapping[str, Any]:
    """The keys that the block inside `kind` at `location` knows; empty where that is no block."""
    for part in location:
        inner = kind.model_fields.get(part) if _is_block(kind) else None
        kind = _given(inner.annotation) if inner is not None else None
    return dict(kind.model_fields) if _is_block(kind) else {}


def _given(kind: Any) -> Any:
    """The block of an optional one; other types as they are."""
    return next((part for part in get_args(kind) if _is_block(part)), kind)


def _is_block(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, FrozenConfig)
