"""The critic of PPO: a value for every response token, from the state in which it was chosen.

The value at a token is read off the hidden state of the token before it, the one that also predicts it, so it is the
value of the state before the choice. Observation tokens and padding have no value (see `advantages.gae`).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.autograd.graph import increment_version

from worldwise.algorithms.losses.value import value_losses
from worldwise.training.batching import MicroBatch
from worldwise.training.critic_config import CriticConfig
from worldwise.training.errors import LearnerError
from worldwise.training.forward import LINEAR_HEADS, states_at
from worldwise.training.metrics import Means
from worldwise.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Targets:
    """What the values of some tokens should become (both float32 [N]).

    Attributes:
        returns: the returns that were seen.
        before: the values at the time of collection.
    """

    returns: torch.Tensor
    before: torch.Tensor

    def at(self, places: NDArray[np.int64]) -> Targets:
        """Those of some of the tokens."""
        return Targets(self.returns[places], self.before[places])


class Critic:
    """A value head, and a trunk of its own unless it shares the policy's.

    Attributes:
        trunk: the copied body, or None where it is shared.
        head: linear, hidden size -> 1, zero at first: the first advantages are plain returns.
    """

    def __init__(self, model: PreTrainedModel, config: CriticConfig) -> None:
        """Prepare head, trunk and optimizer.

        Args:
            model: the policy as it is before training, without an adapter.
            config: the settings.

        Raises:
            LearnerError: a shared trunk for a model whose hidden states are not at hand.
        """
        if config.trunk == "shared" and model.config.model_type not in LINEAR_HEADS:
            raise LearnerError(
                f"critic.trunk is 'shared' and the model is of type {model.config.model_type!r}: that is for "
                f"{', '.join(sorted(LINEAR_HEADS))}; set critic.trunk to own"
            )
        self.config = config
        self.trunk: PreTrainedModel | None = None
        if config.trunk == "own":
            body: Any = copy.deepcopy(model.base_model)
            self.trunk = body.float().eval().requires_grad_(True)
        self.head = nn.Linear(int(model.config.hidden_size), 1, device=model.device, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._optimizer = torch.optim.AdamW(self._parameters(), lr=config.learning_rate, weight_decay=0.0)
        self._norm = 0.0

    def values(
        self, micro: MicroBatch, states: torch.Tensor | None, dtype: torch.dtype, *, recomputed: bool = False
    ) -> torch.Tensor:
        """Values of the scored tokens, float32 [N], differentiable.

        Args:
            micro: the micro-batch.
            states: [N, d], the policy's hidden states; read with a shared trunk only.
            dtype: of the trunk's matrix products.
            recomputed: the trunk's activations, see `recomputing`.
        """
        own = states if self.trunk is None else states_at(self.trunk, micro, dtype=dtype, recomputed=recomputed)
        if own is None:
            raise LearnerError("a critic with a shared trunk needs the policy's hidden states")
        found: torch.Tensor = self.head(own.float())[:, 0]
        return found

    def loss(self, values: torch.Tensor, targets: Targets, tokens: int, means: Means) -> torch.Tensor:
        """Half the mean squared error over the tokens of the whole optimizer step (this micro-batch's part of it).

        With a shared trunk times `coefficient`: a trunk of its own has no other loss to be weighed against.

        Args:
            values: float32 [N], differentiable.
            targets: of the same tokens.
            tokens: response tokens of the whole step.
            means: hears `value_clip_fraction`, `value_mean`, `return_mean`, and the squares behind
                `explained_variance`.
        """
        limit = math.inf if self.config.clip is None else self.config.clip
        losses, held = value_losses(values, targets.before, targets.returns, limit)
        means.add("value_clip_fraction", held)
        means.add("value_mean", values.detach())
        means.add("return_mean", targets.returns)
        means.add("value_error", (values.detach() - targets.returns).square())
        means.add("return_square", targets.returns.square())
        share = 1.0 if self.trunk is not None else self.config.share
        return 0.5 * share * losses.sum() / tokens

    def prepare(self, ranks: Ranks = ALONE) -> None:
        """The gradients at hand, those of all ranks together, checked and clipped for `step`.

        Raises:
            LearnerError: they are not finite.
        """
        parameters = self._parameters()
        ranks.add_up_gradients(parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip or math.inf))
        if not math.isfinite(norm):
            self._optimizer.zero_grad()
            raise LearnerError(
                f"the critic's gradient norm is {norm:g}: lower critic.learning_rate, or check the returns that "
                "came in (policy and critic are unchanged)"
            )
        self._norm = norm

    def step(self, means: Means) -> None:
        """One step of the critic's own optimizer on what `prepare` made ready."""
        self._optimizer.step()
        increment_version(self._parameters())
        self._optimizer.zero_grad()
        means.add("critic_grad_norm", self._norm)

    def state_dict(self) -> dict[str, Any]:
        """`weights` (name -> tensor) and `optimizer`, for a resumed run."""
        weights = {f"head.{name}": value for name, value in self.head.state_dict().items()}
        if self.trunk is not None:
            weights |= {f"trunk.{name}": value for name, value in self.trunk.state_dict().items()}
        return {"weights": weights, "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave.

        Raises:
            RuntimeError: weights of another shape.
        """
        for name, module in (("head.", self.head), ("trunk.", self.trunk)):
            if module is not None:
                own = {key.removeprefix(name): value for key, value in state["weights"].items() if key.startswith(name)}
                module.load_state_dict(own)
        self._optimizer.load_state_dict(state["optimizer"])

    def _parameters(self) -> list[nn.Parameter]:
        return [*self.head.parameters(), *(() if self.trunk is None else self.trunk.parameters())]


def explained_variance(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with `explained_variance` instead of the squares that it is made of.

    1 - mean (value - return)^2 / variance of the returns, over response tokens: 1 is perfect, 0 as good as their mean,
    below 0 worse. Left out where the returns do not vary.
    """
    rest = dict(metrics)
    error, square = rest.pop("value_error", None), rest.pop("return_square", None)
    if error is not None and square is not None:
        variance = square - rest["return_mean"] ** 2
        if variance > 1e-12:
            rest["explained_variance"] = 1.0 - error / variance
    return rest
