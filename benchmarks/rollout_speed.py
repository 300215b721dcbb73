"""Generation: tokens a second of play and of prediction, in CPU and wall time, and how often context is run anew.

    python benchmarks/rollout_speed.py [--slots 64] [--turns 20] [--threads 1] [--generate]

Two loads on a random model of the embedded model's shape: `play` (every slot an episode that gets 20-40 new
tokens a turn and answers with up to 8) and `predict` (8 answers of 40 tokens to each of `slots / 8` prompts of
400). `--generate` adds the same play by `model.generate`, which computes every context anew each turn (shorter,
because it is slow). The prefix ratio is context tokens run per context token to read: 1 where each goes through the
model once, less where prompts are shared. CPU seconds compare best on a machine with other load.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from common import parser, publish, random_model, torch_setting
from transformers import PreTrainedModel

from worldwise.generation.protocol import Request, Sampling
from worldwise.generation.torch_engine import TorchEngine

SAMPLING = Sampling(max_tokens=8)


@dataclass(frozen=True)
class Tokens:
    """What a load took: context tokens to read, context tokens run, tokens sampled."""

    read: int
    run: int
    sampled: int


def stop_ids(model: PreTrainedModel) -> list[int]:
    """An untrained model hits one of these about every eighth token."""
    return list(range(int(model.config.vocab_size) // 8))


def observations(model: PreTrainedModel, slots: int, rng: random.Random) -> list[list[int]]:
    """20 to 40 new tokens for each slot."""
    return [[rng.randrange(model.config.vocab_size) for _ in range(rng.randint(20, 40))] for _ in range(slots)]


def play(model: PreTrainedModel, slots: int, turns: int) -> Tokens:
    """Turns of all slots by the engine, which keeps their contexts."""
    rng, engine = random.Random(0), TorchEngine(model, slots, min(48 * turns, 4096))
    opened = [engine.open() for _ in range(slots)]
    read = 0
    for turn in range(turns):
        new = observations(model, slots, rng)
        # The last token of the answer before was sampled and still has to be read.
        read += sum(map(len, new)) + slots * (turn > 0)
        requests = [Request(slot, ids, rng.getrandbits(63)) for slot, ids in zip(opened, new, strict=True)]
        engine.generate(requests, SAMPLING, stop_ids(model))
    return Tokens(read, engine.stats.prefix_tokens, engine.stats.sampled_tokens)


def predict(model: PreTrainedModel, slots: int) -> Tokens:
    """Eight answers to each prompt."""
    rng, engine = random.Random(0), TorchEngine(model, slots, 512)
    stems = [engine.open() for _ in range(max(slots // 8, 1))]
    engine.extend({stem: [rng.randrange(model.config.vocab_size) for _ in range(400)] for stem in stems})
    forks = [engine.fork(stem) for stem in stems for _ in range(7)] if slots >= 8 else []
    requests = [Request(slot, [], rng.getrandbits(63)) for slot in [*stems, *forks]]
    engine.generate(requests, Sampling(max_tokens=40), [])
    return Tokens(400 * len(requests), engine.stats.prefix_tokens, engine.stats.sampled_tokens)


def play_by_generate(model: PreTrainedModel, slots: int, turns: int) -> Tokens:
    """The same play by transformers' own `generate`."""
    rng, stops = random.Random(0), stop_ids(model)
    contexts: list[list[int]] = [[] for _ in range(slots)]
    read = run = sampled = 0
    for turn in range(turns):
        new = observations(model, slots, rng)
        read += sum(map(len, new)) + slots * (turn > 0)
        contexts = [context + ids for context, ids in zip(contexts, new, strict=True)]
        run += sum(map(len, contexts))
        longest = max(map(len, contexts))
        padding = [longest - len(context) for context in contexts]
        ids = torch.tensor([[0] * pad + context for pad, context in zip(padding, contexts, strict=True)])
        mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
        with torch.no_grad():
            output = model.generate(  # type: ignore[operator]
                ids, attention_mask=mask, do_sample=True, max_new_tokens=8, eos_token_id=stops, pad_token_id=0, top_k=0
            )
        for context, answer in zip(contexts, output[:, longest:].tolist(), strict=True):
            ends = [index for index, token in enumerate(answer) if token in stops]
            kept = answer[: ends[0] + 1] if ends else answer
            context += kept
            sampled += len(kept)
    return Tokens(read, run, sampled)


def row(name: str, work: Callable[[], Tokens], repeats: int) -> list[str]:
    """The repeat that took the fewest CPU seconds: what else runs on a shared core only ever adds."""
    measured = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = work()
        measured.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = min(measured)
    return [
        name,
        str(tokens.sampled),
        f"{wall:.2f}",
        f"{cpu:.2f}",
        f"{tokens.sampled / wall:.0f}",
        f"{tokens.sampled / cpu:.0f}",
        str(tokens.read),
        f"{tokens.run / tokens.read:.3f}",
    ]


def main() -> None:
    """Measure and print Markdown."""
    options = parser(__doc__)
    options.add_argument("--slots", type=int, default=64)
    options.add_argument("--turns", type=int, default=20)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=3, help="measure so often, report the best (default 3)")
    options.add_argument("--generate", action="store_true", help="measure model.generate as well")
    chosen = options.parse_args()
    facts = torch_setting(chosen.threads)
    model, slots, turns = random_model(), chosen.slots, chosen.turns
    play(model, 8, 2)
    rows = [
        row(f"play, {turns} turns", lambda: play(model, slots, turns), chosen.repeats),
        row("predict, 8 x 40 tokens", lambda: predict(model, slots), chosen.repeats),
    ]
    if chosen.generate:
        few = min(turns, 5)
        rows += [
            row(f"play, {few} turns", lambda: play(model, slots, few), chosen.repeats),
            row(f"model.generate, {few} turns", lambda: play_by_generate(model, slots, few), chosen.repeats),
        ]
    facts["load of the engine"] = f"{slots} slots"
    header = ["Load", "Sampled", "Wall s", "CPU s", "Sampled/wall s", "Sampled/CPU s", "Context tokens", "Prefix ratio"]
    text = f"The best of {chosen.repeats} repeat(s)."
    publish("Generation speed", facts, [(text, (header, rows))], chosen.out)


if __name__ == "__main__":
    main()
