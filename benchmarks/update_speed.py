"""Measures a policy update: tokens a second, and which share of this machine's matrix-product speed that is.

    python benchmarks/update_speed.py [--episodes 32] [--tokens 800] [--precision bf16] [--threads 1] [--compare]

One optimizer step on random episodes in which about every sixth token is a response, with a random model of the
embedded model's shape. The peak is that of torch's own matrix product in the same precision, measured before and
after. `--compare` adds the same step through the model's own forward pass instead of the written-out one. CPU
seconds compare best on a machine with other load. Prints one line of JSON with the machine and the commit.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from worldwise.episodes.sequences import Role, TrainingSequence
from worldwise.training.body import llama
from worldwise.training.learner import Learner, LearnerConfig

VOCABULARY, LAYERS, WIDTH, INNER, HEADS, KEYS, SIZE = 1024, 5, 256, 768, 4, 2, 64
REPEATS = 2


def random_model() -> PreTrainedModel:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KEYS,
            head_dim=SIZE,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
        )
    )


def random_episodes(count: int, tokens: int) -> list[TrainingSequence]:
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
                token_ids=rng.integers(0, VOCABULARY, length).astype(np.int32),
                roles=roles,
                turns=np.maximum(place // 36, -1).astype(np.int32),
                logprobs=np.where(roles == Role.RESPONSE, -np.log(VOCABULARY), 0.0).astype(np.float32),
                advantages=(roles == Role.RESPONSE) * np.float32(rng.normal()),
            )
        )
    return episodes


def useful_flops(episodes: list[TrainingSequence]) -> float:
    """Operations of a forward and backward pass: 6 per weight and token; causal pairs only; head on responses."""
    layer = WIDTH * SIZE * (2 * HEADS + 2 * KEYS) + 3 * WIDTH * INNER
    tokens = sum(map(len, episodes))
    pairs = sum(len(episode) ** 2 / 2 for episode in episodes)
    responses = sum(int((episode.roles == Role.RESPONSE).sum()) for episode in episodes)
    return 6.0 * (LAYERS * layer * tokens + LAYERS * 2 * HEADS * SIZE * pairs + VOCABULARY * WIDTH * responses)


def peak_flops(dtype: torch.dtype) -> float:
    """Operations a CPU second of a product as large as those of the model's feed-forward layers."""
    rows = 4096
    left, right = torch.randn(rows, WIDTH).to(dtype), torch.randn(WIDTH, INNER).to(dtype)
    best = 0.0
    for _ in range(5):
        begin = time.process_time()
        for _ in range(20):
            torch.mm(left, right)
        best = max(best, 20 * 2.0 * rows * WIDTH * INNER / (time.process_time() - begin))
    return best


def own_forward(model: PreTrainedModel) -> bool:
    """Stands in for `llama.supports`: no model is supported, all use their own forward pass."""
    return False


def measure(config: LearnerConfig, episodes: list[TrainingSequence], compare: bool) -> dict[str, dict[str, float]]:
    """Best of some updates for each way, the ways taking turns so that other load hits them alike."""
    ways = {"update": llama.supports} | ({"forward_of_the_model": own_forward} if compare else {})
    learners = {name: Learner(random_model(), config, 100) for name in ways}
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    peaks, pad_ratio = [], 0.0
    for repeat in range(REPEATS + 1):
        for name, supports in ways.items():
            llama.supports = supports
            begin, begin_cpu = time.perf_counter(), time.process_time()
            pad_ratio = learners[name].update(episodes[:8] if repeat == 0 else episodes)["pad_ratio"]
            if repeat:
                seconds[name].append((time.process_time() - begin_cpu, time.perf_counter() - begin))
        peaks.append(peak_flops(dtype))
    results: dict[str, dict[str, float]] = {}
    for name, measured in seconds.items():
        cpu, wall = (min(values) for values in zip(*measured, strict=True))
        results[name] = {
            "cpu_s": round(cpu, 2),
            "wall_s": round(wall, 2),
            "tokens_per_cpu_s": round(sum(map(len, episodes)) / cpu),
            "gflops_per_cpu_s": round(useful_flops(episodes) / cpu / 1e9, 1),
            "share_of_peak": round(useful_flops(episodes) / cpu / max(peaks), 3),
        }
    return results | {
        "peak": {"gflops_per_cpu_s": round(max(peaks) / 1e9, 1)},
        "batch": {"pad_ratio": round(pad_ratio, 3)},
    }


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "machine": names[0] if names else platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--micro-batch", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="measure the model's own forward pass as well")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    config = LearnerConfig(learning_rate=2e-4, precision=chosen.precision, micro_batch_tokens=chosen.micro_batch)
    episodes = random_episodes(chosen.episodes, chosen.tokens)
    result = measure(config, episodes, chosen.compare)
    tokens = sum(map(len, episodes))
    print(json.dumps(vars(chosen) | {"all_tokens": tokens} | machine() | result))


if __name__ == "__main__":
    main()
