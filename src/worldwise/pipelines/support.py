"""What several nodes share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from worldwise.agents.config import AgentConfig
from worldwise.ledger.publish import drop_parts, scratch_folder
from worldwise.ledger.workspace import workspace
from worldwise.pipelines.parameters import ComputeConfig
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import Checkpoint, StageContext
from worldwise.stages.saving import SavesNothing
from worldwise.tracking.listeners import reporter
from worldwise.worlds.registry import WorldConfig, make_family

Result = TypeVar("Result")

SETTINGS = ["params:seed", "params:world", "params:agent", "params:rollout", "params:compute"]
"""Inputs of every node that plays, in the order of `stage_context`'s parameters."""

MODEL_SETTINGS = [*SETTINGS, "params:model"]
"""The same for nodes that load a model as well."""


def stage_context(
    seed: int, world: WorldConfig, agent: AgentConfig, rollout: RolloutConfig, compute: ComputeConfig
) -> StageContext:
    """What all stages of a run share; it tells those who listen to the node that calls this."""
    family = make_family(world.name, world)
    return StageContext(family, agent, rollout, seed, reporter(), compute.workers, workspace() or SavesNothing())


def in_context(function: Callable[..., Result]) -> Callable[..., Result]:
    """The node function that takes `SETTINGS` (or `MODEL_SETTINGS`) where `function` takes `context` (and `model`).

    Kedro reads the types of a node's parameters off its signature, so the result has one as if it were written out.

    Args:
        function: with a parameter `context: StageContext`, and `model: ModelConfig` if it loads a model, last.
    """
    known = inspect.signature(function, eval_str=True).parameters
    settings = inspect.signature(stage_context, eval_str=True).parameters
    own = [parameter for name, parameter in known.items() if name not in ("context", "model")]
    last = [known["model"]] if "model" in known else []
    signature = inspect.Signature([*own, *settings.values(), *last])

    @wraps(function)
    def node_function(*args: Any, **kwargs: Any) -> Result:
        given = signature.bind(*args, **kwargs).arguments
        context = stage_context(**{name: given.pop(name) for name in settings})
        return function(**given, context=context)

    node_function.__signature__ = signature  # type: ignore[attr-defined]
    node_function.__annotations__ = {name: found.annotation for name, found in signature.parameters.items()}
    return node_function


def growing_folder(name: str) -> Path:
    """A folder that a node fills while it runs; a node that was killed finds it again as it was."""
    found = workspace()
    if found is None:
        return scratch_folder(name)
    folder = found.place(name)
    # It may have been killed in the middle of a file.
    drop_parts(folder)
    return folder


def stored(checkpoint: Checkpoint) -> Path:
    """The checkpoint in a scratch folder, for a dataset to take over."""
    return checkpoint.save(scratch_folder(checkpoint.version))
