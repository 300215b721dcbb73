"""The learner: training sequences in, changed weights and metrics out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.algorithms.losses.aggregation import aggregate
from worldwise.algorithms.losses.kl import kl_tokens
from worldwise.episodes.sequences import TrainingSequence
from worldwise.generation.effective import adapted_layers
from worldwise.training.adapters import adapter_off, attach
from worldwise.training.batching import MicroBatch, Row, make_row, micro_batches
from worldwise.training.config import LearnerConfig
from worldwise.training.critic import Critic, explained_variance
from worldwise.training.errors import LearnerError
from worldwise.training.forward import score_tokens, states_at
from worldwise.training.gradient_probe import gradient_cosine, probe_parameter
from worldwise.training.metrics import Means
from worldwise.training.minibatch import (
    PolicyBatch,
    concatenate,
    kl_in_loss,
    loss_names,
    policy_batch,
    policy_losses,
    responses,
    role_weights,
    split_by_group,
)
from worldwise.training.optimizer import Optimizer
from worldwise.training.ranks import ranks_here
from worldwise.training.sampler_gap import SamplerGap, checked_gap
from worldwise.training.scoring import by_row, score_rows
from worldwise.training.world_config import WorldModelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Learner", "LearnerConfig", "LearnerError"]

_SEEN = 16
"""Rows on which the divergence of an update is measured: enough to see an explosion, few enough to cost little."""


class Learner:
    """Owns the optimizer of a model and changes the model in place.

    The model stays in evaluation mode (no dropout), so that its log-probabilities are those of the sampler.
    What trains must be float32; `precision="bf16"` computes in bfloat16 all the same. With an adapter in the
    configuration the model carries it until `finish`.

    Attributes:
        model: the model being trained.
        reference: the frozen model of the KL term, or None. With an adapter it is the model itself, with the
            adapter off.
        critic: the value head of PPO, or None.
        ranks: processes that train the model together: those of torch's process group, where one is initialised.
            All give the same sequences to the same calls in the same order, and all get the same results.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: LearnerConfig,
        total_steps: int,
        reference: PreTrainedModel | None = None,
        seed: int = 0,
        world_model: WorldModelConfig | None = None,
    ) -> None:
        """Prepare the optimizer.

        Args:
            model: a causal language model with float32 parameters (beside an adapter they may be bfloat16).
            config: the settings.
            total_steps: optimizer steps planned over the whole run (for the schedule), >= 1.
            reference: the model that the KL term holds on to. None takes `model` as it is now where
                `kl_coefficient` > 0 (a copy, unless an adapter leaves it as it is); with a coefficient of 0 no
                reference is kept.
            seed: of a new adapter.
            world_model: loss of observation tokens where sequences mark some for a world model; None leaves them alone.

        Raises:
            LearnerError: parameters in half precision, `total_steps` < 1, an adapter that does not fit, or a
                model that still carries one.
        """
        if total_steps < 1:
            raise LearnerError(f"total_steps is {total_steps}: give the planned optimizer steps, >= 1")
        if adapted_layers(model):
            raise LearnerError("the model carries another learner's adapter: call its finish(), or load the model anew")
        self.critic = None if config.critic is None else Critic(model, config.critic)
        self._adapter = None if config.adapter is None else attach(model, config.adapter, seed)
        narrow = {str(p.dtype) for p in model.parameters() if p.requires_grad and p.dtype != torch.float32}
        if narrow:
            raise LearnerError(
                f"the model has trainable parameters in {sorted(narrow)}: load it with dtype float32 "
                "(precision='bf16' computes in bfloat16 and keeps the float32 weights that small steps need)"
            )
        self.model = model
        self.model.eval()  # type: ignore[no-untyped-call]
        self.config, self.world_model = config, world_model
        self.ranks = ranks_here()
        self._finished = False
        self.reference = None
        if config.kl_coefficient > 0.0 and reference is None and self._adapter is not None:
            self.reference = model
        elif config.kl_coefficient > 0.0:
            self.reference = copy.deepcopy(model) if reference is None else reference
            self.reference.eval().requires_grad_(False)  # type: ignore[no-untyped-call]
        parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = Optimizer(parameters, config, total_steps, self.ranks)

    def update(self, sequences: Sequence[TrainingSequence]) -> dict[str, float]:
        """One iteration of policy training on collected sequences.

        Args:
            sequences: rows with behaviour log-probabilities and advantages on their response tokens.

        Returns:
            Metrics, means over the response tokens of all optimizer steps unless said otherwise:
            `policy_loss` and, where used, `kl_loss`, `entropy_loss`, `value_loss` (as summed into the loss, mean over
            steps); `kl_update` (k3 of KL(before || after) of this call, on up to 16 of its rows), `kl_old` (k3 of
            the ratio before each optimizer step: KL(old || new)), `kl_reference` (always k3, so that runs compare;
            `kl_loss` is by `kl_estimator`), `clip_fraction`, `dual_clip_fraction`, `entropy`, `ratio_mean`,
            `ratio_max`, `advantage_size` (mean of the absolute value); where a mismatch is corrected
            `mismatch_weight_mean`, `mismatch_share` (of the tokens whose weight was truncated or masked) and
            `mismatch_kl` (k3 of KL(sampler || learner)); with a critic `value_clip_fraction`, `value_mean`,
            `return_mean`, `explained_variance` (see `critic.explained_variance`) and `critic_grad_norm`; where
            sequences mark observation tokens for a world model `world_loss` (mean over steps), and over these tokens
            `world_probability`, `world_nats` (-log p), `world_open_share` (of p <= rho), `world_tokens` (their number),
            `world_gradient_cosine` (see `gradient_probe`); `grad_norm`
            (before clipping, mean over steps), `grad_norm_max`; `learning_rate` (of the last step);
            `optimizer_steps`, `response_tokens`, `input_tokens`, `sequences`, `skipped_sequences` (counts);
            `pad_ratio` (share of padding in what went through the model).
            With `skip_zero_advantage` the means are over the rows that went through the model.

        Raises:
            LearnerError: no response tokens at all, a temperature of 0, or a loss or gradient that is not
                finite.
        """
        if not sequences:
            raise LearnerError("update was given no sequences: collect episodes with a valid reward first")
        parts = split_by_group(sequences, self.config.updates)
        batches = [policy_batch(part, self.config, self._device, self.world_model) for part in parts]
        means = Means("optimizer_steps", "response_tokens", "input_tokens", "padded_tokens")
        with self._threads():
            if self.config.old_logprobs == "learner":
                # The first step starts from these very weights: its old log-probabilities are its own.
                later = [replace(batch, old_logprobs=self._score(batch.rows)) for batch in batches[1:]]
                batches = [replace(batches[0], old_logprobs=None), *later]
            watched = _some([row.sequence for batch in batches for row in batch.rows])
            seen = [make_row(sequence, responses(sequence)) for sequence in watched]
            before = self._before(seen)
            for batch in batches:
                self._policy_step(batch, means)
            if seen:
                means.add("kl_update", kl_tokens(before, self._score(seen), "k3"))
        return self._report(means)

    def supervised_update(
        self,
        sequences: Sequence[TrainingSequence],
        *,
        weights: Sequence[NDArray[np.float32]] | None = None,
        observation_weight: float = 0.0,
    ) -> dict[str, float]:
        """One optimizer step of weighted cross-entropy (temperature and restrictions do not matter here).

        loss = sum(w * -log p) / sum(w) over all tokens with w > 0.

        Args:
            sequences: the mini-batch; the caller cuts the data.
            weights: float32 [T] >= 0 per sequence, weight of each token; None = 1 on RESPONSE tokens,
                `observation_weight` on OBSERVATION tokens (a first token, which nothing precedes, is left
                out).
            observation_weight: >= 0, used only without `weights`.

        Returns:
            `loss`, `token_accuracy` (the most probable token was right), `entropy` (means over tokens with
            w > 0), and the counts and gradient metrics of `update`.

        Raises:
            LearnerError: no token has a weight, or a loss or gradient is not finite.
        """
        given = weights if weights is not None else [role_weights(s, observation_weight) for s in sequences]
        if len(given) != len(sequences):
            raise LearnerError(f"weights has {len(given)} arrays for {len(sequences)} sequences: give one each")
        rows = [make_row(s, np.flatnonzero(w > 0), sampled=False) for s, w in zip(sequences, given, strict=True)]
        flat = concatenate(w[row.scored] for row, w in zip(rows, given, strict=True))
        if len(flat) == 0:
            raise LearnerError("no token has a weight > 0: mark RESPONSE tokens, or give weights")
        share = self._tensor(flat / flat.sum(dtype=np.float64))
        means = Means("optimizer_steps", "response_tokens", "input_tokens", "padded_tokens")
        means.count("sequences", len(sequences) * self.ranks.first)
        with self._threads():
            loss = 0.0
            for micro in micro_batches(rows, self.config.micro_batch_tokens, self._device, self.ranks):
                scores = score_tokens(
                    self.model, micro, dtype=self._dtype, recomputed=self.config.gradient_checkpointing
                )
                part = aggregate(-scores.logprobs, share[micro.places])
                part.backward()  # type: ignore[no-untyped-call]
                loss += float(part.detach())
                means.add("entropy", scores.entropies)
                means.add("token_accuracy", scores.hits)
                _count(means, micro)
            (loss,) = self._over_ranks([loss])
            means.add("loss", loss)
            self._step(loss, means)
        return self._report(means)

    @torch.no_grad()
    def log_probs(self, sequences: Sequence[TrainingSequence]) -> list[NDArray[np.float32]]:
        """The model's log-probabilities of the response tokens, under the distribution they were sampled
        from.

        Returns:
            float32 [T] per sequence, nats, 0 on other tokens; computed in `precision`.

        Raises:
            LearnerError: a temperature of 0, or malformed branches.
        """
        rows = [make_row(sequence, responses(sequence)) for sequence in sequences]
        with self._threads():
            return by_row(rows, self._score(rows))

    def observation_numbers(self, sequences: Sequence[TrainingSequence]) -> dict[str, float]:
        """How well the observation tokens that have a world weight > 0 are foreseen, without any training.

        Returns:
            `world_nats` (mean -log p), `world_probability` (mean p).
        """
        rows = [make_row(own, np.flatnonzero(_world_places(own)), sampled=False) for own in sequences]
        with self._threads():
            logprobs = self._score(rows).double()
        return {"world_nats": float(-logprobs.mean()), "world_probability": float(logprobs.exp().mean())}

    @torch.no_grad()
    def values(self, sequences: Sequence[TrainingSequence]) -> list[NDArray[np.float32]]:
        """What the critic says before each response token, as it is now.

        Returns:
            float32 [T] per sequence, 0 on other tokens.

        Raises:
            LearnerError: there is no critic.
        """
        if self.critic is None:
            raise LearnerError("the learner has no critic: give one in its settings (critic)")
        rows = [make_row(sequence, responses(sequence)) for sequence in sequences]
        flat = torch.zeros(sum(len(row.scored) for row in rows), device=self._device)
        with self._threads():
            for micro in micro_batches(rows, self.config.micro_batch_tokens, self._device, self.ranks):
                states = None if self.critic.trunk is not None else states_at(self.model, micro, dtype=self._dtype)
                flat[torch.from_numpy(micro.places).to(self._device)] = self.critic.values(micro, states, self._dtype)
            self.ranks.add_up([flat])
        return by_row(rows, flat)

    @torch.no_grad()
    def reference_kl(self, sequences: Sequence[TrainingSequence]) -> list[NDArray[np.float32]]:
        """The divergence from the reference of each response token, by `kl_estimator`, for a KL in the reward.

        Returns:
            float32 [T] per sequence, nats, 0 on other tokens; from the log-probabilities that `old_logprobs` names.

        Raises:
            LearnerError: no reference is kept (`kl_coefficient` is 0).
        """
        if self.reference is None:
            raise LearnerError("kl_coefficient is 0, so no reference is kept: raise it, or set kl_in to loss")
        rows = [make_row(sequence, responses(sequence)) for sequence in sequences]
        recorded = self._tensor(concatenate(row.sequence.logprobs[row.scored] for row in rows))
        with self._threads():
            if self.config.old_logprobs == "learner":
                recorded = self._score(rows)
            with adapter_off(self.reference):
                reference = self._score(rows, model=self.reference)
        return by_row(rows, kl_tokens(recorded, reference, self.config.kl_estimator))

    @torch.no_grad()
    def check_sampler_gap(self, sequences: Sequence[TrainingSequence], limit: float = 1e-5) -> SamplerGap:
        """Compare recorded behaviour log-probabilities with the learner's own, before the first step on them.

        Always computed in float32, so that a wrong mask, position, temperature or restriction shows whatever
        the training precision is.

        Args:
            sequences: rows sampled with the present weights.
            limit: see `sampler_gap.checked_gap`; differences beyond 1 nat count as a share of the recorded value,
                since rounding grows with it.

        Returns:
            The differences over the response tokens; zeros without any.

        Raises:
            LearnerError: a difference is above its limit, or not a number.
        """
        rows = [make_row(sequence, responses(sequence)) for sequence in sequences]
        recorded = concatenate(row.sequence.logprobs[row.scored] for row in rows)
        if len(recorded) == 0:
            return SamplerGap(0.0, 0.0)
        with self._threads():
            gaps = np.abs(self._score(rows, precise=True).cpu().numpy() - recorded)
        gaps /= np.maximum(1.0, np.abs(recorded))
        return checked_gap(gaps, [row.sequence.sequence_id for row in rows for _ in row.scored], limit)

    def finish(self) -> None:
        """End the training: an adapter is merged into the weights and the model is a plain one again.

        Updates are refused from here on. Without an adapter the model is as it was. Further calls do nothing.
        """
        if self._adapter is not None and not self._finished:
            self._adapter.merge()
        self._finished = True

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs besides the model's weights: optimizer state and step counter.

        Tensors and plain values only, so `torch.load(..., weights_only=True)` reads it back. The reference
        model is
        not in it: give the resumed learner the same one.
        """
        own = self._optimizer.state_dict()
        return own if self.critic is None else {**own, "critic": self.critic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()` of a learner with the same model and configuration.

        Raises:
            LearnerError: it was made for another number of planned steps (the schedule would jump).
        """
        self._optimizer.load_state_dict(state)
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])

    @property
    def steps(self) -> int:
        """Optimizer steps so far (the position in the schedule)."""
        return self._optimizer.steps

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next optimizer step."""
        return self._optimizer.learning_rate

    @property
    def _device(self) -> torch.device:
        return torch.device(self.model.device)

    def _tensor(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.config.precision == "bf16" else torch.float32

    @contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(self.config.threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _before(self, rows: Sequence[Row]) -> torch.Tensor:
        """Log-probabilities of rows before an update: recorded ones where they are the learner's own."""
        if self.config.old_logprobs == "learner":
            return self._score(rows)
        return self._tensor(concatenate(row.sequence.logprobs[row.scored] for row in rows))

    def _policy_step(self, batch: PolicyBatch, means: Means) -> None:
        # What all ranks know is counted by one.
        means.count("sequences", batch.sequences * self.ranks.first)
        means.count("skipped_sequences", (batch.sequences - len(batch.rows)) * self.ranks.first)
        losses = dict.fromkeys(loss_names(self.config, batch), 0.0)
        micros = micro_batches(batch.rows, self.config.micro_batch_tokens, self._device, self.ranks)
        for number, micro in enumerate(micros):
            parts = self._policy_losses(batch, micro, means)
            if number == 0 and "world_loss" in parts:
                self._probe(parts, means)
            total = torch.stack(list(parts.values())).sum()
            total.backward()  # type: ignore[no-untyped-call]
            for name, part in parts.items():
                losses[name] += float(part.detach())
            _count(means, micro)
        losses = dict(zip(losses, self._over_ranks(list(losses.values())), strict=True))
        for name, loss in losses.items():
            means.add(name, loss)
        if self.critic is not None and batch.rows:
            # Before any weights change: an error leaves both as they were.
            self.critic.prepare(self.ranks)
        self._step(sum(losses.values()), means, idle=not batch.rows)
        if self.critic is not None and batch.rows:
            self.critic.step(means)

    def _policy_losses(self, batch: PolicyBatch, micro: MicroBatch, means: Means) -> dict[str, torch.Tensor]:
        config = self.config
        scores = score_tokens(
            self.model,
            micro,
            dtype=self._dtype,
            entropy_gradient=config.entropy_coefficient > 0.0,
            recomputed=config.gradient_checkpointing,
        )
        reference = None
        if kl_in_loss(config) and self.reference is not None:
            with torch.no_grad(), adapter_off(self.reference):
                reference = score_tokens(self.reference, micro, dtype=self._dtype).logprobs
        parts = policy_losses(batch, micro.places, scores, reference, config, means)
        if self.critic is not None and batch.targets is not None:
            again = config.gradient_checkpointing
            values = self.critic.values(micro, scores.states, self._dtype, recomputed=again)
            sampled = batch.sampled(micro.places)
            targets = batch.targets.at(micro.places[sampled])
            parts["value_loss"] = self.critic.loss(values[sampled], targets, batch.tokens, means)
        return parts

    def _probe(self, parts: dict[str, torch.Tensor], means: Means) -> None:
        """On the first micro-batch of a step: it is enough to see a direction, and costs little."""
        cosine = gradient_cosine(parts["policy_loss"], parts["world_loss"], probe_parameter(self.model))
        if cosine is not None:
            means.add("world_gradient_cosine", cosine)

    def _score(
        self, rows: Sequence[Row], *, precise: bool = False, model: PreTrainedModel | None = None
    ) -> torch.Tensor:
        """As `score_rows`, in `precision` unless it has to be `precise`; None = the trained model."""
        dtype = torch.float32 if precise else self._dtype
        return score_rows(
            self.model if model is None else model, rows, self.config.micro_batch_tokens, dtype, self.ranks
        )

    def _step(self, loss: float, means: Means, *, idle: bool = False) -> None:
        if self._finished:
            raise LearnerError("the training was ended by finish(): make a new learner")
        self._optimizer.step(loss, means, idle=idle)

    def _over_ranks(self, numbers: list[float]) -> list[float]:
        """Their sums over the ranks."""
        total = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        self.ranks.add_up([total])
        return [float(value) for value in total]

    def _report(self, means: Means) -> dict[str, float]:
        metrics = explained_variance(means.result(self.ranks, self._device))
        padded = metrics.pop("padded_tokens", 0.0)
        metrics["pad_ratio"] = 1.0 - metrics["input_tokens"] / padded if padded else 0.0
        return metrics


def _some(sequences: Sequence[TrainingSequence]) -> list[TrainingSequence]:
    """At most `_SEEN` of them, evenly spread."""
    return list(sequences[:: max(1, -(-len(sequences) // _SEEN))])


def _world_places(sequence: TrainingSequence) -> NDArray[np.bool_]:
    weights = sequence.world_weights
    return np.zeros(len(sequence), dtype=bool) if weights is None else weights > 0.0


def _count(means: Means, micro: MicroBatch) -> None:
    means.count("response_tokens", len(micro.places))
    means.count("input_tokens", micro.tokens)
    means.count("padded_tokens", micro.input_ids.numel())
