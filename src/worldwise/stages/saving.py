"""How a stage keeps where it stands, so that one that was killed goes on: one small protocol and what is written.

A stage asks for the newest state when it begins, and saves a new one between two steps where it is due. Where the
states lie, how often they are due and when they go is not the stage's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worldwise.stages.keeping import LoopState, WeightKeeper
from worldwise.stages.reporter import CurveRecorder
from worldwise.stages.tensor_files import detached, flat, nested, store_tensors

if TYPE_CHECKING:
    from worldwise.training.learner import Learner

_STATE = "state.json"
_WEIGHTS, _OPTIMIZER, _KEPT, _MEMORY, _CRITIC, _CRITIC_OPTIMIZER = (
    f"{name}.safetensors" for name in ("weights", "optimizer", "kept", "memory", "critic", "critic_optimizer")
)


class Saver(Protocol):
    """Keeps the states of one stage."""

    def latest(self) -> Path | None:
        """Folder of the newest state, which is whole; None at the very beginning."""
        ...

    def due(self) -> bool:
        """Whether enough time has passed since the last state that another one costs little beside it."""
        ...

    def save(self, write: Callable[[Path], None]) -> None:
        """Lets `write` fill an empty folder; it becomes the newest state once it is whole."""
        ...


class SavesNothing:
    """A stage that begins at its start whatever happened."""

    def latest(self) -> Path | None:
        """None."""
        return None

    def due(self) -> bool:
        """Never."""
        return False

    def save(self, write: Callable[[Path], None]) -> None:
        """Saves nothing."""


@dataclass
class TrainingState:
    """Everything that changes while a training loop runs. Random draws derive from seeds and the step.

    Attributes:
        learner: its model's weights, optimizer and step counter; its critic, if it has one.
        recorder: rows of the curve so far.
        loop: where the loop stands.
        keeper: the best weights, where the loop keeps them.
        others: further numbers of the loop.
        memory: vectors that the loop's encoder does not compute again.
        notes: anything else that JSON holds.
    """

    learner: Learner
    recorder: CurveRecorder
    loop: LoopState = field(default_factory=LoopState)
    keeper: WeightKeeper | None = None
    others: dict[str, float] = field(default_factory=dict)
    memory: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Writes all of it into an empty folder.

        Raises:
            OSError: the disk refused.
        """
        import torch

        learner = self.learner.state_dict()
        groups = learner["optimizer"]["param_groups"]
        store_tensors(detached(self.learner.model.state_dict()), folder / _WEIGHTS)
        store_tensors(flat(learner["optimizer"]["state"]), folder / _OPTIMIZER)
        if self.keeper is not None and self.keeper.kept:
            store_tensors(detached(self.keeper.kept), folder / _KEPT)
        if self.memory:
            vectors = torch.from_numpy(np.stack(list(self.memory.values())))
            store_tensors({"vectors": vectors}, folder / _MEMORY)
        content = {
            "texts": list(self.memory),
            "loop": asdict(self.loop),
            "rows": self.recorder.rows,
            "others": self.others,
            "notes": self.notes,
            "learner": {"steps": learner["steps"], "total_steps": learner["total_steps"], "groups": groups},
        }
        if "critic" in learner:
            critic = learner["critic"]
            store_tensors(detached(critic["weights"]), folder / _CRITIC)
            store_tensors(flat(critic["optimizer"]["state"]), folder / _CRITIC_OPTIMIZER)
            content["critic_groups"] = critic["optimizer"]["param_groups"]
        (folder / _STATE).write_text(json.dumps(content), encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Takes everything back.

        Raises:
            LearnerError: the state was made for another number of planned steps.
            OSError, KeyError, ValueError: the folder does not hold what `write` left.
        """
        from safetensors.torch import load_file

        content = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        self.learner.model.load_state_dict(load_file(folder / _WEIGHTS))
        own = content["learner"]
        optimizer = {"state": nested(load_file(folder / _OPTIMIZER)), "param_groups": own["groups"]}
        state = {"optimizer": optimizer, "steps": own["steps"], "total_steps": own["total_steps"]}
        if "critic_groups" in content:
            moments = {"state": nested(load_file(folder / _CRITIC_OPTIMIZER)), "param_groups": content["critic_groups"]}
            state["critic"] = {"weights": load_file(folder / _CRITIC), "optimizer": moments}
        self.learner.load_state_dict(state)
        self.loop.take(content["loop"])
        self.recorder.rows[:] = content["rows"]
        self.others.update(content["others"])
        self.notes = content["notes"]
        self.memory.clear()
        if content["texts"]:
            vectors = load_file(folder / _MEMORY)["vectors"].numpy()
            self.memory.update(zip(content["texts"], vectors, strict=True))
        if self.keeper is not None and (folder / _KEPT).exists():
            self.keeper.kept = load_file(folder / _KEPT)


def resumed(state: TrainingState, saver: Saver) -> bool:
    """Takes the newest state back, if there is one; whether there was.

    Call it before an engine or workers read the weights. Who listens hears the curve so far again: what was told just
    before the end may have been lost on its way.
    """
    folder = saver.latest()
    if folder is None:
        return False
    state.read(folder)
    for row in state.recorder.rows:
        state.recorder.inner.log({name: value for name, value in row.items() if name != "step"}, int(row["step"]))
    return True
