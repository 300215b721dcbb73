"""Where the training of a base model stands, so that one that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from worldwise.stages.tensor_files import detached, flat, nested, store_tensors

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

_STATE, _WEIGHTS = "state.json", "weights.safetensors"


@dataclass
class BaseTraining:
    """Everything that changes while a base model is trained. Its rows and their order derive from the recipe.

    Attributes:
        model: float32 weights.
        optimizers: each with its own share of them.
        step: optimizer steps done.
        tokens: seen so far.
        losses: of every step.
        rows: the curve so far, each with its `step`.
        wall_seconds, cpu_seconds: spent by earlier processes.
    """

    model: LlamaForCausalLM
    optimizers: Sequence[torch.optim.Optimizer]
    step: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def write(self, folder: Path, wall_seconds: float, cpu_seconds: float) -> None:
        """Writes all of it into an empty folder, with what was spent until now.

        Raises:
            OSError: the disk refused.
        """
        store_tensors(detached(self.model.state_dict()), folder / _WEIGHTS)
        groups = []
        for number, optimizer in enumerate(self.optimizers):
            content = optimizer.state_dict()
            store_tensors(flat(content["state"]), folder / f"optimizer-{number}.safetensors")
            groups.append(content["param_groups"])
        numbers = {"step": self.step, "tokens": self.tokens, "losses": self.losses, "rows": self.rows}
        spent = {"wall_seconds": wall_seconds, "cpu_seconds": cpu_seconds}
        (folder / _STATE).write_text(json.dumps({**numbers, **spent, "groups": groups}), encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Takes everything back.

        Raises:
            OSError, KeyError, ValueError: the folder does not hold what `write` left.
        """
        from safetensors.torch import load_file

        content = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        self.model.load_state_dict(load_file(folder / _WEIGHTS))
        for number, (optimizer, groups) in enumerate(zip(self.optimizers, content["groups"], strict=True)):
            tensors = load_file(folder / f"optimizer-{number}.safetensors")
            optimizer.load_state_dict({"state": nested(tensors), "param_groups": groups})
        self.step, self.tokens = int(content["step"]), int(content["tokens"])
        self.losses, self.rows = list(content["losses"]), list(content["rows"])
        self.wall_seconds, self.cpu_seconds = float(content["wall_seconds"]), float(content["cpu_seconds"])
