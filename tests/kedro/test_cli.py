"""The project's own commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kedro.framework.startup import bootstrap_project

from worldwise.cli.doctor import weight_count
from worldwise.cli.run import _known_names
from worldwise.cli.worldwise import worldwise

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(project: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`kedro worldwise ...` in process."""
    monkeypatch.chdir(project)
    metadata = bootstrap_project(project)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(worldwise, arguments, obj=metadata)

    return call


def test_help_is_light() -> None:
    code = (
        "import sys, worldwise.cli, worldwise.settings\n"
        "from worldwise.cli.worldwise import worldwise\n"
        "import click\n"
        "print(worldwise.get_help(click.Context(worldwise)))\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for command in ("check-world", "data", "doctor", "play"):
        assert command in result.stdout


def test_kedro_knows_the_commands(project: Path) -> None:
    from kedro.framework.cli.cli import KedroCLI

    commands = KedroCLI(project)
    result = CliRunner().invoke(commands, ["worldwise", "data", "--help"], standalone_mode=False)
    assert "alfworld" in result.output


def test_check_world(invoke: Invoke) -> None:
    result = invoke("check-world", "--env=test", "--episodes=2")
    assert result.exit_code == 0, result.output
    assert "oracle solves 100%" in result.output
    assert "every rule of the contract holds" in result.output
    assert "is not known" in invoke("check-world", "--params=world=chess").output


@pytest.mark.parametrize("who", ["oracle", "random"])
def test_play_scripted(invoke: Invoke, who: str) -> None:
    result = invoke("play", "--env=test", f"--who={who}", "--game=1")
    assert result.exit_code == 0, result.output
    assert "Your task is to:" in result.output
    assert "\n> " in result.output
    assert result.output.rstrip().endswith("solved" if who == "oracle" else ("solved", "turn limit"))


def test_play_a_model(invoke: Invoke, tiny_folder: Path) -> None:
    params = f"--params=model.name={tiny_folder.as_posix()},agent.restrict_to_admissible=true"
    for who in ("model", tiny_folder.as_posix()):
        result = invoke("play", "--env=test", f"--who={who}", params)
        assert result.exit_code == 0, result.output
        assert result.output.count("\n> ") == 8


def test_play_names_what_is_not_stored(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("play", "--env=test", "--who=policy_model", f"--params=data_root={tmp_path.as_posix()}")
    assert result.exit_code == 2
    assert "neither oracle, random, model, a folder, nor a stored model" in result.output


def test_doctor_is_content_with_a_ready_machine(invoke: Invoke, tiny_folder: Path) -> None:
    result = invoke("doctor", "--env=test", f"--params=model.name={tiny_folder.as_posix()}")
    assert "problem" not in result.output, result.output
    assert result.exit_code == 0
    for name in ("python", "cores", "memory", "disk", "packages", "model", "parameters", "official games"):
        assert name in result.output


def test_doctor_finds_what_would_stop_a_run(invoke: Invoke, tiny_folder: Path) -> None:
    params = (
        f"--params=model.name={tiny_folder.as_posix()},collect.tasks=999,policy.learner.micro_batch_tokens=100000000"
    )
    result = invoke("doctor", "--env=test", params)
    assert result.exit_code == 1
    assert "collect.tasks is 999" in result.output
    assert "lower policy.learner.micro_batch_tokens" in result.output


def test_weights_are_counted_without_loading_them(tiny_folder: Path) -> None:
    from worldwise.generation.models import load_model

    parameters = {id(value): value.numel() for value in load_model(tiny_folder, device="cpu").parameters()}
    assert weight_count(tiny_folder) == sum(parameters.values())


def test_data_says_how_to_get_the_games(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("data", "alfworld", f"--folder={tmp_path.as_posix()}")
    assert result.exit_code == 1
    assert "json_2.1.2_tw-pddl.zip" in result.output
    assert "WORLDWISE_DATA" in result.output


@pytest.mark.official
@pytest.mark.slow
def test_data_verifies_a_copy(invoke: Invoke) -> None:
    from worldwise.worlds.household.official import OfficialGames

    if OfficialGames.found() is None:
        pytest.skip("the official games are not here: set WORLDWISE_DATA")
    result = invoke("data", "alfworld")
    assert result.exit_code == 0, result.output
    assert "3553 of  3553 games" in result.output


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Failed to find the pipeline named 'rwml_then_r'. It needs", " Did you mean rwml_then_rl?"),
        ("Failed to find the pipeline named 'zzz'. It needs", "Known here: __default__, base_model, data_collection"),
        ("Pipeline does not contain nodes named ['evaluate_bas'].", " Did you mean evaluate_base?"),
        ("Pipeline does not contain nodes named ['zzz'].", "Known here: "),
        ("something else", ""),
    ],
)
def test_an_unknown_name_brings_the_known_ones(project: Path, message: str, hint: str) -> None:
    bootstrap_project(project)
    found = _known_names(message)
    assert hint in found if hint else not found
