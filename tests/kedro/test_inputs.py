"""Bad input gets a clear error before anything expensive."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from kedro.config import OmegaConfigLoader
from kedro.framework.project import pipelines

from worldwise.hooks.preflight import PreflightHooks
from worldwise.pipelines import learner_checks
from worldwise.pipelines.errors import InputError
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.preflight import preflight
from worldwise.training import adapter_config

Loader = Callable[..., OmegaConfigLoader]
Check = Callable[..., None]


@pytest.fixture
def check(loader: Loader) -> Check:
    """What a run checks of its parameters, with changes as `--params` makes them."""

    def run_checks(**params: Any) -> None:
        preflight(validated(loader("test", **params)["parameters"]))

    return run_checks


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"polcy": {"iterations": 1}}, "parameter polcy is not known; did you mean policy?"),
        ({"policy": {"iteration": 1}}, "parameter policy.iteration is not known; did you mean iterations?"),
        ({"world": {"household": {"max_turn": 3}}}, "world.household.max_turn is not known; did you mean max_turns?"),
        ({"policy": {"iterations": "many"}}, "parameter policy.iterations is 'many': input should be a valid integer"),
        ({"policy": {"iterations": True}}, "policy.iterations is True: .*a number, not true or false"),
        ({"rwml": {"tau_d": False}}, "rwml.tau_d is False: .*a number, not true or false"),
        ({"policy": {"iterations": -1}}, "parameter policy.iterations is -1: input should be greater than"),
        ({"policy": {"max_minutes": -5}}, "parameter policy.max_minutes is -5: input should be greater than 0"),
        ({"policy": {"group_size": 1}}, "parameter policy.group_size is 1: .* give at least 2"),
        (
            {"policy": {"modules": {"agent_in_world": {"judge": "model"}}}},
            "agent_in_world.judge is 'model' and agent.style is 'plain', which has no words",
        ),
        (
            {"policy": {"modules": {"agent_in_world": {"retrieval": "embedding", "encoder": {"name": "no such/x/y"}}}}},
            "parameter policy.modules.agent_in_world.encoder.name 'no such/x/y' is a path",
        ),
        ({"policy": {"modules": {"paw": {"rho": 0}}}}, "policy.modules.paw.rho is 0: input should be greater than 0"),
        ({"policy": {"modules": {"pow": True}}}, "policy.modules.pow is not known; did you mean paw?"),
        ({"rwml": {"group_size": 1}}, "parameter rwml.group_size is 1: .* give at least 2"),
        ({"rwml": {"tau_d": 2.5}}, "parameter rwml.tau_d is 2.5: .* in \\(0, 2\\]"),
        ({"subsample": {"tau_d": -0.1}}, "parameter subsample.tau_d is -0.1: .* in \\(0, 2\\]"),
        ({"seed": -1}, "parameter seed is -1: input should be greater than or equal to 0"),
        ({"agent": {"style": "papers"}}, "set agent.context=window"),
        ({"world": "chess"}, "world.name='chess' is not known: use one of household"),
        ({"evaluate": {"splits": ["valid_odd"]}}, "evaluate.splits names the split 'valid_odd': household has train"),
        ({"evaluate": {"splits": ["train"]}}, "evaluate.splits names 'train', which tasks.split trains on"),
        ({"tasks": {"split": "valid_seen"}}, "evaluate.splits names 'valid_seen', which tasks.split trains on"),
        ({"data_root": ""}, "parameter data_root is '': give the folder"),
        ({"data_root": None}, "parameter data_root is None: give the folder"),
        ({"tasks": {"split": "training"}}, "parameter tasks.split names the split 'training'"),
        ({"tasks": {"train": 200_000}}, r"tasks.train \+ tasks.held_out: count=200004 is outside of 0..100000"),
        ({"tasks": {"train": 200_000}}, r"raise train_games .*settings stand below world.household\)"),
        (
            {"rwml": {"tau_d": "abc"}},
            "^parameter rwml.tau_d is 'abc': input should be 'published' or 'mixed', or a valid number, unable",
        ),
        (
            {"world": {"household": {"rooms": ["attic"]}}},
            "^parameter world.household.rooms.0 is 'attic': input should be 'kitchen', .* or 'bathroom'$",
        ),
        (
            {"world": {"household": {"receptacles_min": 9, "receptacles_max": 5}}},
            "^parameter world.household.receptacles_min=9 is above receptacles_max=5",
        ),
        ({"wm_sft": {"learner": {"critic": {}}}}, "parameter wm_sft.learner.critic is given: only policy.learner"),
        ({"rwml": {"learner": {"kl_in": "reward"}}}, "rwml: learner.kl_in and learner.critic are for policy RL"),
        ({"policy": {"algorithm": "ppo"}}, "parameter policy: learner.critic is null and algorithm is ppo"),
        ({"wm_sft": {"learner": {"adapter": 5}}}, "^parameter wm_sft.learner.adapter is 5: input should be"),
        ({"collect": {"tasks": 13}}, "collect.tasks is 13 and tasks.train is 12: raise tasks.train or lower"),
        ({"rwml": {"group_size": 32}}, "rwml.group_size is 32 and rollout.slots is 16: .* at least 32"),
        ({"subsample": {"tries": 17}}, "subsample.tries is 17 and rollout.slots is 16"),
        ({"model": {"device": "cuda"}}, "model.device is 'cuda' but torch sees no GPU"),
        ({"model": {"device": "tpu"}}, "parameter model.device is 'tpu'"),
        (
            {"model": {"sampler_dtype": "bfloat16"}, "policy": {"sampler_gap": 0.3}},
            r"model.sampler_dtype is bfloat16 and policy.learner.old_logprobs is 'sampler'.*old_logprobs to learner",
        ),
        (
            {"model": {"sampler_dtype": "bfloat16"}, "policy": {"learner": {"old_logprobs": "learner"}}},
            r"model.sampler_dtype is bfloat16 and rwml.learner.old_logprobs is 'sampler'.*\n.*"
            r"rwml.sampler_gap is 1e-05 and model.sampler_dtype is bfloat16.*\n.*"
            "policy.sampler_gap is 1e-05 and model.sampler_dtype is bfloat16",
        ),
        (
            {"model": {"sampler_dtype": "float32"}, "policy": {"learner": {"precision": "bf16"}}},
            "model.sampler_dtype is float32 and policy.learner.old_logprobs is 'sampler'.*precision is bf16",
        ),
        (
            {"rwml": {"learner": {"precision": "bf16"}}},
            "model.dtype is float32 and rwml.learner.old_logprobs is 'sampler'.*precision is bf16",
        ),
        (
            {"model": {"dtype": "bfloat16"}, "rwml": {"learner": {"adapter": {"rank": 4}}}},
            "model.dtype is bfloat16 and rwml.learner.old_logprobs is 'sampler'",
        ),
        ({"model": {"sampler_dtype": "float16"}}, "parameter model.sampler_dtype is 'float16'"),
        ({"policy": {"learner": {"adapter": {"rank": 0}}}}, "parameter policy.learner.adapter.rank is 0: .*greater"),
        (
            {"wm_sft": {"learner": {"adapter": {"ranks": 4}}}},
            "wm_sft.learner.adapter.ranks is not known; did you mean rank?",
        ),
        (
            {"subsample": {"sft": {"learner": {"adapter": {"targets": ["c_attn"]}}}}},
            "parameter subsample.sft.learner.adapter.targets names 'c_attn', which the model has not",
        ),
        (
            {"rwml": {"learner": {"adapter": {"rank": 4000}}}},
            "parameter rwml.learner.adapter.rank is 4000 and .* give a rank of at most",
        ),
    ],
)
def test_a_wrong_parameter_is_named(check: Check, params: dict[str, Any], message: str) -> None:
    import torch

    if params == {"model": {"device": "cuda"}} and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InputError, match=message):
        check(**params)


def test_adapters_and_a_bfloat16_sampler_pass_where_they_fit(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    adapted = {"adapter": {"rank": 4, "targets": ["q_proj", "down_proj"]}, "old_logprobs": "learner"}
    both = {"rwml": {"learner": adapted, "sampler_gap": None}, "policy": {"learner": adapted, "sampler_gap": None}}
    check(**both)
    check(model={"sampler_dtype": "bfloat16"}, **both)
    check(model={"dtype": "bfloat16"}, **both)
    check(model={"dtype": "bfloat16"})
    check(model={"sampler_dtype": "float32"})
    monkeypatch.setattr(adapter_config, "PACKAGE", "peft_that_is_absent")
    with pytest.raises(InputError, match=r"policy.learner.adapter is given and .* is not installed: pip install"):
        check(**both)


def test_the_environment_for_gpus_has_precisions_that_fit(loader: Loader) -> None:
    blocks = validated(loader("gpu")["parameters"])
    assert list(learner_checks.precision(blocks)) == []
    assert blocks["model"].dtype == "float32"


def test_all_findings_come_at_once(check: Check) -> None:
    with pytest.raises(InputError) as caught:
        check(seed=-1, polcy={}, rollout={"slots": 0})
    assert len(caught.value.findings) == 3
    assert str(caught.value).count("\n- ") == 2


def test_missing_official_games_are_said(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDWISE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"no official games: there is no folder .*nowhere.*worldwise data alfworld"):
        check(world={"household": {"source": "official"}})


def test_a_damaged_game_file_is_named_before_training(tmp_path: Path) -> None:
    from worldwise.pipelines.tasks import table_of
    from worldwise.worlds.household.config import HouseholdConfig
    from worldwise.worlds.registry import WorldConfig, make_family

    game = "pick_and_place_simple-Mug-None-Desk-308/trial_T20190907_000000_000000"
    path = tmp_path / "valid_seen" / game / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text('{"solvable": true, "pddl_problem": "(define", "grammar": "", "walkthrough": []}')
    household = HouseholdConfig(source="official", data=str(tmp_path))
    family = make_family("household", WorldConfig(household=household))
    listed = family.tasks("valid_seen")
    assert len(listed) == 1
    with pytest.raises(ValueError, match="trial_T20190907_000000_000000"):
        table_of(family, {"valid_seen": listed})


def test_a_cut_distribution_does_not_train_on_its_own_log_probabilities(check: Check) -> None:
    with pytest.raises(InputError, match=r"parameter rollout\.top_p is 0\.9 and rollout\.min_p is 0"):
        check(rollout={"top_p": 0.9})
    check(rollout={"top_p": 0.9}, policy={"learner": {"old_logprobs": "learner"}})


def test_a_model_folder_without_tokenizer_is_named(check: Check, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_folder, folder)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match=f"model folder {folder} has no tokenizer"):
        check(model={"name": str(folder)})


@pytest.fixture
def invoke(project: Path, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`kedro run` in process, on an empty data root, at toy sizes."""
    from worldwise.cli.run import run

    monkeypatch.chdir(project)
    monkeypatch.delenv("WORLDWISE_TRACEBACK", raising=False)

    def call(*arguments: str, params: str = "") -> Result:
        given = f"data_root={tmp_path.as_posix()},model.name={tiny_folder.as_posix()},agent.restrict_to_admissible=true"
        return CliRunner().invoke(run, [*arguments, "--env=test", f"--params={given}{params and ',' + params}"])

    return call


def test_the_command_says_it_without_a_traceback(invoke: Callable[..., Result]) -> None:
    result = invoke("--pipeline=rwml_then_rl", params="policy.group_size=1,collect.tasks=-3")
    assert result.exit_code == 1
    assert "parameter policy.group_size is 1" in result.output
    assert "parameter collect.tasks is -3" in result.output
    assert "Traceback" not in result.output
    assert "deprecated" not in result.output


def test_a_run_names_a_damaged_game_file_before_anything_else(invoke: Callable[..., Result], tmp_path: Path) -> None:
    """One file whose beginning is whole, among all of a main job."""
    for split in ("train", "valid_seen", "valid_unseen"):
        for number in range(40):
            game = f"pick_and_place_simple-Mug-None-Desk-308/trial_T{number}"
            path = tmp_path / "games" / split / game / "game.tw-pddl"
            path.parent.mkdir(parents=True)
            path.write_text('{"solvable": true, "pddl_problem": "(define", "grammar": "", "walkthrough": []}')
    games = f"world.household.source=official,world.household.data={tmp_path.as_posix()}/games"
    result = invoke("--pipeline=rwml_then_rl", params=games)
    assert result.exit_code == 1
    assert "pick_and_place_simple-Mug-None-Desk-308/trial_T" in result.output
    assert "Traceback" not in result.output
    assert not list(tmp_path.glob("03_primary*")), "nothing was played"


def test_a_stage_without_its_inputs_says_what_to_run_first(invoke: Callable[..., Result]) -> None:
    result = invoke("--pipelines=rwml")
    assert result.exit_code == 1
    assert "dataset base_model has no stored version" in result.output
    assert "run `kedro run --pipelines=data_collection` first" in result.output
    assert "run `kedro run --pipelines=difficulty_subsampling` first" in result.output


def test_unknown_names_are_said_shortly(invoke: Callable[..., Result]) -> None:
    result = invoke("--pipelines=rwml_than_rl")
    assert result.exit_code == 1
    assert "Failed to find the pipeline named 'rwml_than_rl'" in result.output
    assert "Traceback" not in result.output
    assert "nodes named ['train_polcy']" in invoke("--nodes=train_polcy").output


def test_a_version_that_is_not_stored_is_said(invoke: Callable[..., Result]) -> None:
    result = invoke("--pipelines=rwml_then_rl", "--load-versions=world_model:2020-01-01T00.00.00.000Z")
    assert "asks for world_model:2020-01-01T00.00.00.000Z, which is not stored; there are: none" in result.output


def test_a_full_disk_is_said_before_anything_runs(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    result = invoke("--pipelines=rwml_then_rl")
    assert result.exit_code == 1
    assert "this run needs about" in result.output
    assert "data_root" in result.output


def test_a_bug_keeps_its_traceback(invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("worldwise.pipelines.preflight.CHECKS", (("", broken),))
    assert isinstance(invoke("--pipelines=rwml_then_rl").exception, ZeroDivisionError)


@pytest.mark.parametrize("given", [None, "/elsewhere"])
def test_a_data_root_among_the_parameters_files_is_no_silent_wish(loader: Loader, given: str | None) -> None:
    class Configured(dict[str, Any]):
        runtime_params: ClassVar[dict[str, Any]] = {"data_root": given} if given else {}

    parameters = {**loader("test")["parameters"], "data_root": given or "/somewhere"}
    configured = Configured(parameters=parameters, globals={"data_root": "data"})
    context: Any = SimpleNamespace(config_loader=configured)
    if given:
        PreflightHooks().after_context_created(context)
    else:
        with pytest.raises(InputError, match=r"data_root is '/somewhere' in a parameters file.*globals.yml"):
            PreflightHooks().after_context_created(context)


def test_a_run_is_not_held_up_by_what_it_does_not_need(loader: Loader, project: Path) -> None:
    gone = {"model": {"name": "/gone"}, "encoder": {"name": "/gone"}}
    blocks = validated(loader("test", **gone)["parameters"])
    preflight(blocks, pipelines["reporting"].datasets())
    preflight(blocks, pipelines["policy_rl"].datasets())
    with pytest.raises(InputError, match=r"encoder.name '/gone' is a path"):
        preflight(blocks, pipelines["evaluation"].datasets())
    with pytest.raises(InputError, match=r"model.name.*'/gone'"):
        preflight(blocks, pipelines["data_collection"].datasets())
