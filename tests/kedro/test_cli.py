"""The project's own commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kedro.config import OmegaConfigLoader
from kedro.framework.startup import bootstrap_project

from worldwise.cli.doctor import training_bytes
from worldwise.cli.run import _known_names
from worldwise.cli.worldwise import worldwise
from worldwise.generation.models import save_model, weight_count
from worldwise.generation.tiny import Architecture, tiny_model, tiny_tokenizer
from worldwise.ledger.manifest import Provenance, write_manifest
from worldwise.pipelines.parameters import validated

Invoke = Callable[..., Result]
Loader = Callable[..., OmegaConfigLoader]


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
    for command in ("check-world", "data", "doctor", "lineage", "plan", "play", "store", "sweep"):
        assert command in result.stdout


def test_pipelines_are_known_without_torch() -> None:
    """`plan`, `lineage`, `kedro registry list` and the start of every run wait for what this imports."""
    code = (
        "import sys, worldwise.pipeline_registry\n"
        "assert len(worldwise.pipeline_registry.register_pipelines()) > 10\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'sentence_transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


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


def test_play_a_stored_model(invoke: Invoke, tiny_folder: Path, tmp_path: Path) -> None:
    version = "2026-01-01T00.00.00.000Z"
    folder = tmp_path / "06_models/household/base_model" / version / "base_model"
    shutil.copytree(tiny_folder, folder)
    write_manifest(folder, Provenance())
    params = f"--params=data_root={tmp_path.as_posix()},agent.restrict_to_admissible=true"
    result = invoke("play", "--env=test", "--who=base_model", params)
    assert result.exit_code == 0, result.output
    assert result.output.count("\n> ") == 8
    assert "stored here: base_model)" in said(invoke("play", "--env=test", "--who=policy_model", params))


def said(result: Result) -> str:
    """The message of wrong usage, without line breaks."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    "who", ["training_tasks", "parameters", "params:seed", "base_evaluation", "no_such_model", "", "/no/such"]
)
def test_play_refuses_whoever_is_no_player(invoke: Invoke, tmp_path: Path, who: str) -> None:
    (tmp_path / "02_intermediate/household").mkdir(parents=True)
    result = invoke("play", "--env=test", f"--who={who}", f"--params=data_root={tmp_path.as_posix()}")
    assert f"{who!r} is not known: use oracle, random, model (the configured one), an existing model" in said(result)


def test_play_names_what_is_not_stored(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("play", "--env=test", "--who=policy_model", f"--params=data_root={tmp_path.as_posix()}")
    assert f"'policy_model' is a model that is not stored in {tmp_path}" in said(result)


def test_play_names_a_broken_model(invoke: Invoke, tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "broken")
    (tmp_path / "broken" / "tokenizer.json").unlink()
    result = invoke("play", "--env=test", f"--who={tmp_path.as_posix()}/broken")
    assert result.exit_code == 1
    assert "has no tokenizer" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("play --split=odd", "'odd' is no split of household: use one of train, valid_seen, valid_unseen"),
        ("play --game=1000000", "1000000 is too high, valid_seen has 1000 games: use 0 to 999"),
        ("play --game=x", "'x' is not a valid integer"),
        ("play --temperature=nan", "nan is not in the range"),
        ("play --temperature=-1", "-1.0 is not in the range"),
        ("play --params=seed=-1", "parameter seed is -1"),
        ("play --params=seed=${no_such}", "the configuration or --params cannot be read: Interpolation key"),
        ("play --params=seed", "must contain a key and a value"),
        ("play --env=odd", "'odd' is no folder in"),
        ("check-world --split=odd", "'odd' is no split of household: use one of train, valid_seen, valid_unseen"),
        ("check-world --episodes=0", "0 is not in the range"),
        ("check-world --episodes=1000000", "1000000 is more than the 100000 tasks of train"),
        (
            "check-world --params=world=chess",
            "parameter world.name is 'chess', which is not known: use one of household",
        ),
        ("check-world --params=odd=1", "parameter odd is not known"),
        ("check-world --env=odd", "use one of base, gpu"),
        ("doctor --env=odd", "'odd' is no folder in"),
        ("doctor --params=odd=1", "parameter odd is not known"),
        ("data odd", "No such command 'odd'"),
        ("odd", "No such command 'odd'"),
    ],
)
def test_nonsense_gets_a_plain_message(invoke: Invoke, arguments: str, message: str) -> None:
    command, *options = arguments.split()
    env = [] if command in ("data", "odd") or "--env=odd" in options else ["--env=test"]
    assert message in said(invoke(command, *env, *options))


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


def test_doctor_looks_where_results_go(invoke: Invoke, tiny_folder: Path, tmp_path: Path) -> None:
    model = f"model.name={tiny_folder.as_posix()}"
    result = invoke("doctor", "--env=test", f"--params={model},data_root={tmp_path.as_posix()}/new/root")
    assert f"free for data_root {tmp_path}/new/root" in result.output
    assert "ready to run" in result.output
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    result = invoke("doctor", "--env=test", f"--params={model},data_root={tmp_path.as_posix()}/file/root")
    assert result.exit_code == 1
    assert f"data_root {tmp_path}/file/root cannot be written to" in result.output
    assert "1 problem: a run would not get through" in result.output


def test_doctor_names_model_encoder_and_adapter_once(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    from worldwise.training import adapter_config

    monkeypatch.setattr(adapter_config, "PACKAGE", "peft_that_is_absent")
    wrong = "model.name=/no/model,encoder.name=/no/encoder,policy.learner.adapter.rank=4"
    result = invoke("doctor", "--env=test", f"--params={wrong}")
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if line.startswith("problem")]
    assert [line.split()[1] for line in lines] == ["model", "encoder", "parameters"]
    assert "policy.learner.adapter is given" in lines[2]


@pytest.mark.parametrize("architecture", ["gpt2", "qwen3"])
def test_an_adapter_needs_less_memory(loader: Loader, tmp_path: Path, architecture: Architecture) -> None:
    save_model(tiny_model(architecture), tiny_tokenizer(), tmp_path)
    adapted = validated(loader("test", policy={"learner": {"adapter": {"rank": 4}}})["parameters"])
    needs = training_bytes(tmp_path, adapted)
    assert needs["rwml.learner"] - needs["policy.learner"] == 12 * weight_count(tmp_path)
    assert not any(path.startswith("base_model") for path in needs)


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
