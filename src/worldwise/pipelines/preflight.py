"""Checks across parameters and against the machine, before anything expensive begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from worldwise.agents.agent import Agent
from worldwise.agents.errors import AgentError
from worldwise.agents.prompts import can_reflect
from worldwise.generation.models import ModelConfig, ModelError, check_model, load_tokenizer, resolve_device
from worldwise.pipelines import learner_checks
from worldwise.pipelines.errors import InputError
from worldwise.stages.encoder import check_encoder
from worldwise.stages.errors import StageError
from worldwise.stages.format_tuning import FormatTuningConfig, objection
from worldwise.worlds.contract import WorldError
from worldwise.worlds.registry import WorldConfig, make_family

Check = Callable[[Mapping[str, Any]], Iterator[str]]


def preflight(blocks: Mapping[str, Any], datasets: Collection[str] | None = None) -> None:
    """Everything about validated parameters that can be known before the first node.

    Args:
        blocks: parameter block -> its type.
        datasets: what the run reads and makes; checks of a thing that it has no use for are left out (a report of
            stored results needs no encoder). None = all checks.

    Raises:
        InputError: all findings.
    """
    wanted = [check for needed, check in CHECKS if needed == ALWAYS or datasets is None or needed in datasets]
    findings = [finding for check in wanted for finding in check(blocks)]
    if findings:
        raise InputError(*findings)


def _world(blocks: Mapping[str, Any]) -> Iterator[str]:
    world: WorldConfig = blocks["world"]
    try:
        make_family(world.name, world)
    except ValueError as error:
        yield str(error)


def _training_tasks(blocks: Mapping[str, Any]) -> Iterator[str]:
    tasks = blocks["tasks"]
    count = tasks.train + tasks.held_out
    yield from _enough(blocks, "tasks.split", tasks.split, "tasks.train + tasks.held_out", count)


def _evaluation_tasks(blocks: Mapping[str, Any]) -> Iterator[str]:
    evaluate = blocks["evaluate"]
    for split in evaluate.splits:
        yield from _enough(blocks, "evaluate.splits", split, "evaluate.games", evaluate.games)


def _enough(blocks: Mapping[str, Any], parameter: str, split: str, counted: str, count: int | None) -> Iterator[str]:
    """Whether the world has a split, and so many tasks in it.

    Args:
        blocks: all parameters.
        parameter, split: what names the split, and its name.
        counted, count: what says how many, and how many (None = all).
    """
    world: WorldConfig = blocks["world"]
    try:
        family = make_family(world.name, world)
    except ValueError:
        return  # The check of the world says so.
    if split not in family.splits:
        yield f"parameter {parameter} names the split {split!r}: {world.name} has {', '.join(family.splits)}"
        return
    try:
        family.tasks(split, count)
    except ValueError as error:
        yield f"parameter {counted}: {error} (the world's own settings stand below world.{world.name})"


def _splits(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Evaluated tasks are none that were trained on."""
    trained = blocks["tasks"].split
    for split in blocks["evaluate"].splits:
        if split == trained:
            yield (
                f"parameter evaluate.splits names {split!r}, which tasks.split trains on: games that were trained on "
                "say little about others, so leave it out or change tasks.split"
            )


def _device(blocks: Mapping[str, Any]) -> Iterator[str]:
    try:
        resolve_device(blocks["model"].device)
    except ModelError as error:
        yield f"parameter {error}"


def _model(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Folder and files of the model, and whether its chat template can serve the agent."""
    model: ModelConfig = blocks["model"]
    try:
        folder = check_model(model)
    except ModelError as error:
        named = str(error).startswith("model.name")
        yield f"parameter {error}" if named else f"parameter model.name is {model.name!r}: {error}"
        return
    if folder is None:
        return
    try:
        world: WorldConfig = blocks["world"]
        Agent(load_tokenizer(folder), blocks["agent"], make_family(world.name, world))
    except AgentError as error:
        yield f"parameter model.name is {model.name!r}, and with agent.style {blocks['agent'].style!r}: {error}"
    except WorldError:
        return  # The check of the world says so.


def _format_tuning(blocks: Mapping[str, Any]) -> Iterator[str]:
    tuning: FormatTuningConfig = blocks["format_tuning"]
    reason = objection(blocks["agent"], blocks["world"].name) if tuning.updates else None
    if reason is not None:
        yield f"parameter format_tuning.updates is {tuning.updates}: {reason}"


def _encoder(blocks: Mapping[str, Any]) -> Iterator[str]:
    try:
        check_encoder(blocks["encoder"])
    except StageError as error:
        yield f"parameter {error}"


def _modules(blocks: Mapping[str, Any]) -> Iterator[str]:
    """What Agent-In-World wants of the agent and of an encoder of its own."""
    curriculum, style = blocks["policy"].modules.agent_in_world, blocks["agent"].style
    if curriculum is None:
        return
    wanted = {"judge": curriculum.judge, "retrieval": curriculum.retrieval}
    asks = [name for name, value in wanted.items() if value == "model"]
    if asks and not can_reflect(style):
        yield (
            f"parameter policy.modules.agent_in_world.{asks[0]} is 'model' and agent.style is {style!r}, which has no "
            "words to ask about failures: set it to auto, or agent.style to instruct"
        )
    if curriculum.retrieval == "embedding":
        try:
            check_encoder(curriculum.encoder)
        except StageError as error:
            yield f"parameter policy.modules.agent_in_world.{error}"


def _slots(blocks: Mapping[str, Any]) -> Iterator[str]:
    slots = blocks["rollout"].slots
    wanted = {"subsample.tries": blocks["subsample"].tries, "rwml.group_size": blocks["rwml"].group_size}
    for name, value in wanted.items():
        if value > slots:
            yield (
                f"parameter {name} is {value} and rollout.slots is {slots}: a prompt's predictions are made "
                f"together, so raise rollout.slots to at least {value} or lower {name}"
            )


def _budgets(blocks: Mapping[str, Any]) -> Iterator[str]:
    have = blocks["tasks"].train
    wanted = {
        "collect.tasks": blocks["collect"].tasks,
        "policy.tasks_per_iteration": blocks["policy"].tasks_per_iteration,
    }
    for name, value in wanted.items():
        if value > have:
            yield f"parameter {name} is {value} and tasks.train is {have}: raise tasks.train or lower {name}"


ALWAYS = ""

CHECKS: tuple[tuple[str, Check], ...] = (
    (ALWAYS, _world),
    ("training_tasks", _training_tasks),
    ("evaluation_tasks", _evaluation_tasks),
    (ALWAYS, _splits),
    ("params:model", _device),
    ("pretrained_model", _model),
    (ALWAYS, _format_tuning),
    ("params:encoder", _encoder),
    (ALWAYS, _slots),
    (ALWAYS, _budgets),
    (ALWAYS, learner_checks.adapters),
    (ALWAYS, learner_checks.precision),
    (ALWAYS, learner_checks.policy_only),
    ("params:policy", learner_checks.truncated_sampling),
    ("params:policy", _modules),
)
"""(the dataset without which a run does not need it, check)"""
