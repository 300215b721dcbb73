"""Settings of the learner."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from worldwise.algorithms.losses.choices import Aggregation, KlEstimator, Mismatch, MismatchLevel, RatioLevel
from worldwise.config import COSMETIC, FrozenConfig
from worldwise.training.adapter_config import AdapterConfig
from worldwise.training.critic_config import CriticConfig
from worldwise.training.schedule import Schedule


class LearnerConfig(FrozenConfig):
    """How sequences change the weights. Defaults are those of the GiGPO and RWML papers where they name one.

    Attributes:
        learning_rate: peak rate of AdamW (1e-6 suits 1.5B-7B models; a 4M model wants about 2e-4).
        betas, epsilon: of AdamW.
        weight_decay: on matrices; vectors (norms, biases) are left alone.
        gradient_clip: largest gradient norm, None for no clipping.
        schedule, warmup_steps, final_share: see `learning_rate_factor`.
        updates: optimizer steps per call of `update`; the sequences are split into that many
            mini-batches by group (fewer if there are fewer groups).
        micro_batch_tokens: padded tokens per forward pass. It bounds memory and changes only the speed (on
            CPUs small models are fastest around 4,096, where tensors stay in the caches).
        precision: `fp32`, or `bf16` = autocast of the body with float32 weights and float32 head.
        gradient_checkpointing: compute each layer again in the backward pass instead of keeping its activations: much
            less memory for long sequences, about a third more time, the same numbers.
        adapter: train a LoRA adapter instead of all weights (see `AdapterConfig`); None = all weights. It is
            merged at the end of the stage. It wants a higher learning rate, about ten times that of all weights.
        clip_low, clip_high: clip range of the ratio, [1 - low, 1 + high].
        dual_clip: bound of the loss of negative advantages, in advantages; None for none.
        ratio: what the importance ratio belongs to: `token`, or (GSPO) `turn` or `sequence`.
        aggregation: see `losses.aggregation`; its unit is the sequence (each branch of a tree row is one).
        aggregation_length: the constant length of `constant`.
        old_logprobs: `sampler` uses the recorded behaviour log-probabilities, `learner` recomputes them
            before the first step (for samplers in another precision than `precision`, for bfloat16 samplers in
            any case, and for sampling with top-p or min-p).
        mismatch: importance correction of the policy loss where the recorded log-probabilities differ from the
            learner's own: `truncated` or `masked`, see `losses.mismatch`. Wants `old_logprobs` = `learner`.
        mismatch_cap: largest weight of that correction, > 1; `masked` drops what is outside [1 / cap, cap].
        mismatch_level: a weight per `token`, or per `sequence` (the product over its response tokens, whose spread
            grows with the length).
        kl_coefficient: weight of KL(pi || reference); 0 keeps no reference (0.01 in the papers).
        kl_estimator: of the KL term, see `losses.kl` (`k3` in the papers; `k3_ratio` has an unbiased gradient).
        kl_in: where the KL term enters: `loss`, or `reward` = it is taken off the rewards before advantages are made
            (RLHF's and REINFORCE++'s way; the estimator's value at the time of collection, no gradient).
        entropy_coefficient: weight of the entropy bonus.
        critic: value head for `ppo` (see `CriticConfig`); None = none.
        skip_zero_advantage: rows whose advantages are all 0 do not go through the model where nothing
            else would train on them (no KL and no entropy term). They still count in the denominators.
        threads: torch threads during an update; None leaves the process setting.
    """

    learning_rate: float = Field(1e-6, gt=0.0, le=1.0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0.0)
    weight_decay: float = Field(0.01, ge=0.0, le=1.0)
    gradient_clip: float | None = Field(1.0, gt=0.0)
    schedule: Schedule = "constant"
    warmup_steps: int = Field(0, ge=0)
    final_share: float = Field(0.0, ge=0.0, le=1.0)
    updates: int = Field(1, ge=1)
    micro_batch_tokens: int = Field(4096, ge=32)
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_checkpointing: bool = False
    adapter: AdapterConfig | None = None
    clip_low: float = Field(0.2, ge=0.0, lt=1.0)
    clip_high: float = Field(0.2, ge=0.0)
    dual_clip: float | None = Field(3.0, gt=1.0)
    ratio: RatioLevel = "token"
    aggregation: Aggregation = "token_mean"
    aggregation_length: int | None = Field(None, ge=1)
    old_logprobs: Literal["sampler", "learner"] = "sampler"
    mismatch: Mismatch = "none"
    mismatch_cap: float = Field(2.0, gt=1.0)
    mismatch_level: MismatchLevel = "token"
    kl_coefficient: float = Field(0.0, ge=0.0)
    kl_estimator: KlEstimator = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coefficient: float = Field(0.0, ge=0.0)
    critic: CriticConfig | None = None
    skip_zero_advantage: bool = True
    threads: Annotated[int | None, COSMETIC] = Field(None, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.aggregation == "constant" and self.aggregation_length is None:
            raise ValueError(
                "aggregation_length is missing: aggregation 'constant' divides by it; "
                "give the most response tokens a sequence may have"
            )
        if self.mismatch != "none" and self.old_logprobs != "learner":
            raise ValueError(
                f"mismatch is {self.mismatch} and old_logprobs is {self.old_logprobs}: it corrects the recorded "
                "log-probabilities towards the learner's own, and with old_logprobs 'sampler' the two are the same "
                "numbers; set old_logprobs to learner, or mismatch to none"
            )
        if self.kl_in == "reward" and self.kl_estimator in ("k3_plus", "k3_ratio"):
            raise ValueError(
                f"kl_estimator is {self.kl_estimator} and kl_in is reward, where only values count and no gradient: "
                "choose k1 (unbiased), k3 or k2"
            )
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}: allowed are values from 0 up to, not including, 1")
        return self
