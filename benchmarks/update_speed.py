"""Policy updates: tokens a second, and which share of this machine's matrix-product speed that is.

    python benchmarks/update_speed.py [--episodes 32] [--tokens 800] [--precision bf16] [--threads 1] [--compare]

One optimizer step on random episodes in which about every sixth token is a response, with a random model of the
embedded model's shape. The peak is that of torch's own matrix product in the same precision, as large as those of the
model's feed-forward layers, measured between the updates. `--compare` adds the same step through the model's own
forward pass instead of the written-out one. CPU seconds compare best on a machine with other load.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from common import parser, publish, random_model, torch_setting
from transformers import PreTrainedModel

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.body import llama
from worldwise.training.learner import Learner, LearnerConfig


def random_episodes(count: int, tokens: int, vocabulary: int) -> list[TrainingSequence]:
    """Groups of 8 episodes of about `tokens` tokens: a prompt of 60, then 6 response and 30 other tokens a turn."""
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(count):
        length = int(np.clip(rng.normal(tokens, tokens / 4), tokens / 3, tokens * 1.6))
        place = np.arange(length) - 60
        roles = np.where((place >= 0) & (place % 36 < 6), Role.RESPONSE, Role.CONTEXT).astype(np.int8)
        episodes.append(
            TrainingSequence(
                sequence_id=str(number),
                group_id=str(number // 8),
                token_ids=rng.integers(0, vocabulary, length).astype(np.int32),
                roles=roles,
                turns=np.maximum(place // 36, -1).astype(np.int32),
                logprobs=np.where(roles == Role.RESPONSE, -np.log(vocabulary), 0.0).astype(np.float32),
                advantages=(roles == Role.RESPONSE) * np.float32(rng.normal()),
            )
        )
    return episodes


def useful_flops(episodes: list[TrainingSequence], shape: Any) -> float:
    """Operations of a forward and backward pass: 6 per weight and token; causal pairs only; head on responses."""
    width, heads, size = shape.hidden_size, shape.num_attention_heads, shape.head_dim
    layer = width * size * (2 * heads + 2 * shape.num_key_value_heads) + 3 * width * shape.intermediate_size
    tokens = sum(map(len, episodes))
    pairs = sum(len(episode) ** 2 / 2 for episode in episodes)
    responses = sum(int((episode.roles == Role.RESPONSE).sum()) for episode in episodes)
    layers = shape.num_hidden_layers
    return 6.0 * (layers * layer * tokens + layers * 2 * heads * size * pairs + shape.vocab_size * width * responses)


def peak_flops(dtype: torch.dtype, shape: Any) -> float:
    """Operations a CPU second of a product as large as those of the model's feed-forward layers."""
    rows, width, inner = 4096, shape.hidden_size, shape.intermediate_size
    left, right = torch.randn(rows, width).to(dtype), torch.randn(width, inner).to(dtype)
    best = 0.0
    for _ in range(5):
        begin = time.process_time()
        for _ in range(20):
            torch.mm(left, right)
        best = max(best, 20 * 2.0 * rows * width * inner / (time.process_time() - begin))
    return best


def own_forward(model: PreTrainedModel) -> bool:
    """Stands in for `llama.supports`: no model is supported, all use their own forward pass."""
    return False


def measure(config: LearnerConfig, episodes: list[TrainingSequence], compare: bool, repeats: int) -> list[list[str]]:
    """A row for each way, its best update; the ways take turns so that other load hits them alike."""
    ways = {"written-out passes": llama.supports} | ({"forward of the model": own_forward} if compare else {})
    learners = {name: Learner(random_model(), config, 100) for name in ways}
    shape = next(iter(learners.values())).model.config
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    pads: dict[str, float] = {}
    peaks = []
    for repeat in range(repeats + 1):
        for name, supports in ways.items():
            llama.supports = supports
            begin, begin_cpu = time.perf_counter(), time.process_time()
            pads[name] = learners[name].update(episodes[:8] if repeat == 0 else episodes)["pad_ratio"]
            if repeat:
                seconds[name].append((time.process_time() - begin_cpu, time.perf_counter() - begin))
        peaks.append(peak_flops(dtype, shape))
    peak, work, tokens = max(peaks), useful_flops(episodes, shape), sum(map(len, episodes))
    rows = []
    for name, measured in seconds.items():
        cpu, wall = (min(values) for values in zip(*measured, strict=True))
        rates = [
            f"{tokens / wall:.0f}",
            f"{tokens / cpu:.0f}",
            f"{work / cpu / 1e9:.1f}",
            f"{100 * work / cpu / peak:.0f} %",
        ]
        rows.append([name, f"{wall:.2f}", f"{cpu:.2f}", *rates, f"{100 * pads[name]:.0f} %"])
    limit = [f"{tokens * peak / work:.0f}", f"{peak / 1e9:.1f}", "100 %", "-"]
    return [*rows, ["matrix product alone (the peak)", "-", f"{work / peak:.2f}", "-", *limit]]


def main() -> None:
    """Measure and print Markdown."""
    options = parser(__doc__)
    options.add_argument("--episodes", type=int, default=32)
    options.add_argument("--tokens", type=int, default=800, help="mean tokens of an episode (default 800)")
    options.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    options.add_argument("--micro-batch", type=int, default=4096)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=2, help="updates measured, the best reported (default 2)")
    options.add_argument("--compare", action="store_true", help="measure the model's own forward pass as well")
    chosen = options.parse_args()
    facts = torch_setting(chosen.threads)
    config = LearnerConfig(learning_rate=2e-4, precision=chosen.precision, micro_batch_tokens=chosen.micro_batch)
    vocabulary = int(random_model().config.vocab_size)
    episodes = random_episodes(chosen.episodes, chosen.tokens, vocabulary)
    rows = measure(config, episodes, chosen.compare, chosen.repeats)
    facts["batch"] = (
        f"{len(episodes)} episodes, {sum(map(len, episodes))} tokens, {config.precision}, "
        f"micro-batches of {config.micro_batch_tokens}"
    )
    header = ["Way", "Wall s", "CPU s", "Tokens/wall s", "Tokens/CPU s", "GFLOP/CPU s", "Share of peak", "Padding"]
    text = "One optimizer step, the best of those measured; CPU seconds of all threads."
    publish("Update speed", facts, [(text, (header, rows))], chosen.out)


if __name__ == "__main__":
    main()
