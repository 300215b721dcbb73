"""`kedro worldwise play`: watch one game."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, check_split, configured, data_root, family, project_context, short_errors

SCRIPTED = ("oracle", "random")


def _number(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """FloatRange lets through what is no number at all."""
    if math.isnan(value):
        raise click.BadParameter("nan is not in the range 0<=x<=10.")
    return value


@click.command()
@click.option(
    "--who",
    default="oracle",
    show_default=True,
    help="oracle, random, a stored model (base_model, world_model, policy_model, ...), `model` for the configured "
    "one, or a model folder.",
)
@click.option("--split", default="valid_seen", show_default=True, help="Whose games.")
@click.option("--game", type=click.IntRange(0), default=0, show_default=True, help="Number of the game in its split.")
@click.option(
    "--temperature",
    type=click.FloatRange(0, 10),
    callback=_number,
    default=0.0,
    show_default=True,
    help="0 = greedy.",
)
@configured
@click.pass_obj
def play(
    metadata: ProjectMetadata,
    /,
    who: str,
    split: str,
    game: int,
    temperature: float,
    env: str,
    params: dict[str, Any],
) -> None:
    """Watch the oracle, random play or a model play one game."""
    values = blocks(metadata, env, params)
    world = family(values)
    check_split(world, split)
    with short_errors():
        folder = None if who in SCRIPTED else _model_folder(metadata, who, values, env, params)
        tasks = world.tasks(split)
        if game >= len(tasks):
            last = f"{split} has {len(tasks)} games: use 0 to {len(tasks) - 1}" if tasks else f"{split} has no games"
            raise click.BadParameter(f"{game} is too high, {last}", param_hint="--game")
        task = tasks[game]
        click.secho(f"{task.task_id} ({task.task_type}), played by {who}", bold=True)
        if folder is None:
            from worldwise.rollouts.scripted import play_scripted

            script = play_scripted(world, "oracle" if who == "oracle" else "random", task, values["seed"])
            lines = zip(script.observations, script.actions, strict=False)
            show(lines, script.observations[-1], script.termination.value)
        else:
            episode = _play_model(folder, world, task, temperature, values)
            turns = episode.turns
            end = turns[-1].next_observation if turns else ""
            show(((turn.observation, turn.action) for turn in turns), end, episode.termination.value)


def show(turns: Iterable[tuple[str, str]], last: str, ending: str) -> None:
    """Prints a game: what the world says, then what the player does."""
    for observation, action in turns:
        click.echo(observation)
        click.secho(f"> {action}", fg="cyan")
    click.echo(last)
    click.secho(ending.replace("_", " "), bold=True)


def _model_folder(
    metadata: ProjectMetadata, who: str, values: dict[str, Any], env: str, params: dict[str, Any]
) -> Path:
    """The folder, which is whole, of a model that is named in any of the ways that `--who` knows.

    Raises:
        BadParameter: there is no such model.
        ModelError, FolderError: there is one, and it is broken.
    """
    from worldwise.generation.hub import existing_folder
    from worldwise.generation.models import check_model_folder, resolve_model

    if who == "model":
        return resolve_model(values["model"])
    folder = existing_folder(who)
    if folder is None:
        folder = _stored(metadata, who, env, params)
    check_model_folder(folder)
    return folder


def _stored(metadata: ProjectMetadata, who: str, env: str, params: dict[str, Any]) -> Path:
    """The newest version of a stored model."""
    from kedro.framework.project import pipelines

    from worldwise.datasets.checkpoint import CheckpointDataset

    with project_context(metadata, env, params) as (_, catalog):
        outputs = sorted({name for pipeline in pipelines.values() for name in pipeline.all_outputs()})
        datasets = {name: catalog.get(name) for name in outputs}
        models = {name: dataset for name, dataset in datasets.items() if isinstance(dataset, CheckpointDataset)}
        stored = [name for name, dataset in models.items() if dataset.exists()]
        if who in stored:
            return Path(models[who].load())
    there = f"stored here: {', '.join(stored)}" if stored else "none is stored here yet, `kedro run` makes them"
    known = f"a model that is not stored in {data_root(metadata, env, params)}" if who in models else "not known"
    raise click.BadParameter(
        f"{who!r} is {known}: use oracle, random, model (the configured one), an existing model folder, "
        f"or a stored model ({there})",
        param_hint="--who",
    )


def _play_model(folder: Path, family: Any, task: Any, temperature: float, values: dict[str, Any]) -> Any:
    from worldwise.hooks.environment import quiet_libraries
    from worldwise.rollouts.config import plan_groups
    from worldwise.stages.actor import StageContext, load_checkpoint, make_actor
    from worldwise.stages.playing import play_plans

    quiet_libraries()
    rollout = values["rollout"].model_copy(update={"slots": 1})
    context = StageContext(family, values["agent"], rollout, values["seed"])
    actor = make_actor(load_checkpoint(folder, "play", values["model"]), context)
    plans = plan_groups([task], 1, "play", 0, values["seed"], temperature)
    return next(iter(play_plans(actor, plans, context)))
