"""Node functions that are handed a context look to Kedro as if they took the settings that make it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from kedro.framework.project import pipelines

from worldwise.generation.models import ModelConfig
from worldwise.ledger.publish import is_scratch, publish_folder
from worldwise.ledger.workspace import Workspace, set_workspace
from worldwise.pipelines.parameters import BLOCKS, ComputeConfig
from worldwise.pipelines.support import MODEL_SETTINGS, SETTINGS, growing_folder, in_context
from worldwise.rollouts.config import RolloutConfig
from worldwise.stages.actor import StageContext
from worldwise.worlds.registry import WorldConfig


@in_context
def plays(first: int, context: StageContext) -> tuple[int, StageContext]:
    """Plays."""
    return first, context


@in_context
def loads(first: int, second: str, context: StageContext, model: ModelConfig) -> tuple[int, str, int, ModelConfig]:
    """Loads a model."""
    return first, second, context.seed, model


def names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_settings_stand_behind_the_own_parameters() -> None:
    assert names(plays) == ["first", *(name.removeprefix("params:") for name in SETTINGS)]
    assert names(loads) == ["first", "second", *(name.removeprefix("params:") for name in MODEL_SETTINGS)]
    assert plays.__doc__ == "Plays."
    hints = get_type_hints(loads)
    assert (hints["world"], hints["rollout"], hints["compute"]) == (WorldConfig, RolloutConfig, ComputeConfig)
    assert (hints["seed"], hints["second"], hints["model"]) == (int, str, ModelConfig)


def test_the_context_holds_the_settings() -> None:
    world, agent, rollout = WorldConfig(), BLOCKS["agent"](), RolloutConfig(slots=3)
    first, context = plays(1, 7, world, agent, rollout, ComputeConfig(workers=2))
    assert first == 1
    assert (context.seed, context.agent, context.rollout, context.workers) == (7, agent, rollout, 2)
    assert context.family.name == "household"
    model = ModelConfig()
    assert loads(1, "b", 8, world, agent, rollout, ComputeConfig(), model=model) == (1, "b", 8, model)
    with pytest.raises(TypeError, match="missing a required argument"):
        plays(1, 7)


def test_every_block_reaches_its_node_typed(project: Any) -> None:
    seen = set()
    for node in pipelines["rwml_then_rl"].nodes + pipelines["wm_sft_then_rl"].nodes:
        hints = get_type_hints(node.func)
        for name, argument in zip(node.inputs, inspect.signature(node.func).parameters, strict=False):
            if name.startswith("params:") and name != "params:seed":
                block = name.removeprefix("params:")
                assert hints[argument] is BLOCKS[block], f"{node.name}: {name}"
                seen.add(block)
    assert {"world", "agent", "rollout", "compute", "model", "policy", "rwml", "evaluate", "report"} <= seen


KILLED = """
import os, sys
from pathlib import Path
from worldwise.files import whole_file
folder = Path(sys.argv[1])
with whole_file(folder / "a.parquet") as part:
    part.write_text("whole")
with whole_file(folder / "b.parquet") as part:
    part.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_a_folder_that_grows_has_nothing_of_a_process_that_was_killed_in_the_middle_of_a_file(tmp_path: Path) -> None:
    own = Workspace(tmp_path / "work", 0.0)
    set_workspace(own)
    try:
        folder = growing_folder("episodes")
        killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
        assert killed.returncode == -9
        assert len(list(folder.iterdir())) == 2
        assert growing_folder("episodes") == folder
        assert [path.name for path in folder.iterdir()] == ["a.parquet"]
    finally:
        set_workspace(None)
    publish_folder(folder, tmp_path / "episodes")
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["a.parquet"]
    assert is_scratch(growing_folder("episodes")), "nothing is kept where there is no workspace"
