"""Measures the generation engine: tokens a second of play and of prediction, in CPU and wall time.

    python benchmarks/rollout_speed.py [--slots 64] [--turns 20] [--threads 1] [--generate]

Two loads on a random model of the embedded model's size: `play` (every slot an episode that gets 20-40 new
tokens a turn and answers with up to 8) and `predict` (8 answers of 40 tokens to each of `slots / 8` prompts of
400). `--generate` adds the same play by `model.generate`, which computes every context anew each turn (shorter,
because it is slow). CPU seconds compare best on a machine with other load. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from worldwise.generation.protocol import Request, Sampling
from worldwise.generation.tiny import tiny_model
from worldwise.generation.torch_engine import TorchEngine

VOCABULARY = 1024
STOPS = list(range(VOCABULARY // 8))
"""An untrained model hits one of these about every eighth token."""
SAMPLING = Sampling(max_tokens=8)


def observation(rng: random.Random) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(20, 40))]


def play(model: PreTrainedModel, slots: int, turns: int) -> dict[str, float]:
    rng, engine = random.Random(0), TorchEngine(model, slots, min(48 * turns, 4096))
    for slot in [engine.open() for _ in range(slots)]:
        assert engine.length(slot) == 0
    for _ in range(turns):
        requests = [Request(slot, observation(rng), rng.getrandbits(63)) for slot in range(slots)]
        engine.generate(requests, SAMPLING, STOPS)
    return counters(engine)


def predict(model: PreTrainedModel, slots: int) -> dict[str, float]:
    rng, engine = random.Random(0), TorchEngine(model, slots, 512)
    stems = [engine.open() for _ in range(max(slots // 8, 1))]
    engine.extend({stem: [rng.randrange(VOCABULARY) for _ in range(400)] for stem in stems})
    forks = [engine.fork(stem) for stem in stems for _ in range(7)] if slots >= 8 else []
    requests = [Request(slot, [], rng.getrandbits(63)) for slot in [*stems, *forks]]
    engine.generate(requests, Sampling(max_tokens=40), [])
    return counters(engine)


def counters(engine: TorchEngine) -> dict[str, float]:
    return {"prefix_tokens": engine.stats.prefix_tokens, "sampled_tokens": engine.stats.sampled_tokens}


def play_by_generate(model: PreTrainedModel, slots: int, turns: int) -> dict[str, float]:
    rng = random.Random(0)
    contexts: list[list[int]] = [[] for _ in range(slots)]
    sampled = 0
    for _ in range(turns):
        contexts = [context + observation(rng) for context in contexts]
        longest = max(map(len, contexts))
        padding = [longest - len(context) for context in contexts]
        ids = torch.tensor([[0] * pad + context for pad, context in zip(padding, contexts, strict=True)])
        mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
        with torch.no_grad():
            output = model.generate(  # type: ignore[operator]
                ids, attention_mask=mask, do_sample=True, max_new_tokens=8, eos_token_id=STOPS, pad_token_id=0, top_k=0
            )
        for context, answer in zip(contexts, output[:, longest:].tolist(), strict=True):
            ends = [index for index, token in enumerate(answer) if token in STOPS]
            context += answer[: ends[0] + 1] if ends else answer
            sampled += ends[0] + 1 if ends else len(answer)
    return {"prefix_tokens": sum(map(len, contexts)) - sampled, "sampled_tokens": sampled}


def timed(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rates = {"wall_s": wall, "cpu_s": cpu, "sampled_tokens_per_cpu_s": result["sampled_tokens"] / cpu}
    return {name: round(value, 2) for name, value in (result | rates).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--generate", action="store_true", help="measure model.generate as well")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    model = tiny_model(
        "llama", vocabulary=VOCABULARY, layers=4, hidden=256, heads=4, kv_heads=2, max_positions=4096, spread=0.02
    )
    play(model, 8, 2)
    result: dict[str, object] = {
        "play": timed(lambda: play(model, chosen.slots, chosen.turns)),
        "predict": timed(lambda: predict(model, chosen.slots)),
    }
    if chosen.generate:
        turns = min(chosen.turns, 5)
        result["generate_turns"] = turns
        result["generate"] = timed(lambda: play_by_generate(model, chosen.slots, turns))
        result["play_same_turns"] = timed(lambda: play(model, chosen.slots, turns))
    setting = {"slots": chosen.slots, "turns": chosen.turns, "threads": chosen.threads}
    machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
    print(json.dumps(setting | machine | result))


if __name__ == "__main__":
    main()
