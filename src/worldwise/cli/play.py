"""`kedro worldwise play`: watch one game."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, configured, short_errors

SCRIPTED = ("oracle", "random")


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
@click.option("--temperature", type=click.FloatRange(0, 10), default=0.0, show_default=True, help="0 = greedy.")
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

    from worldwise.worlds.registry import make_family

    with short_errors():
        family = make_family(values["world"].name, values["world"])
        task = family.tasks(split, game + 1)[game]
        click.secho(f"{task.task_id} ({task.task_type}), played by {who}", bold=True)
        if who in SCRIPTED:
            from worldwise.rollouts.scripted import play_scripted

            script = play_scripted(family, "oracle" if who == "oracle" else "random", task, values["seed"])
            lines = zip(script.observations, script.actions, strict=False)
            show(lines, script.observations[-1], script.termination.value)
        else:
            folder = _model_folder(metadata, who, values, env, params)
            episode = _play_model(folder, family, task, temperature, values)
            turns = episode.turns
            last = turns[-1].next_observation if turns else ""
            show(((turn.observation, turn.action) for turn in turns), last, episode.termination.value)


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
    from worldwise.generation.models import resolve_model

    if who == "model":
        return resolve_model(values["model"])
    if Path(who).is_dir():
        return Path(who)
    from kedro.framework.session import KedroSession

    with KedroSession.create(metadata.project_path, save_on_close=False, env=env, runtime_params=params) as session:
        assert isinstance(session, KedroSession)
        dataset = session.load_context().catalog.get(who)
        if dataset is None or not dataset.exists():
            raise click.BadParameter(
                f"{who!r} is neither oracle, random, model, a folder, nor a stored model", param_hint="--who"
            )
        return Path(dataset.load())


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
