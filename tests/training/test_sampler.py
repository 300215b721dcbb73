"""What the engine records is what the learner computes: the same distribution at both ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from worldwise.episodes.sequences import Role, TrainingSequence, allowed_ids
from worldwise.generation.protocol import Completion, Request, Sampling, Trie
from worldwise.generation.torch_engine import TorchEngine
from worldwise.training.learner import Learner, LearnerConfig

from .toy import VOCABULARY, toy_model

COMMANDS = [[5, 6, 7, 0], [5, 6, 8, 0], [5, 9, 0], [30, 0]]


def _trie(commands: list[list[int]]) -> Trie:
    children: list[dict[int, int]] = [{}]
    for command in commands:
        node = 0
        for token in command:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
            node = children[node][token]
    return Trie(tuple(children))


def _turns(engine: TorchEngine, sampling: Sampling, allowed: Trie | None) -> list[TrainingSequence]:
    """Four conversations of three turns: random context, then what the engine samples, with its record."""
    rng, rows = np.random.default_rng(0), []
    slots = [engine.open() for _ in range(4)]
    parts: list[list[tuple[list[int], Completion]]] = [[] for _ in slots]
    for turn in range(3):
        contexts = [rng.integers(1, VOCABULARY, int(rng.integers(3, 40))).tolist() for _ in slots]
        requests = [
            Request(slot, context, seed=turn * 10 + slot, allowed=allowed)
            for slot, context in zip(slots, contexts, strict=True)
        ]
        for part, context, answer in zip(parts, contexts, engine.generate(requests, sampling, [0]), strict=True):
            part.append((context, answer))
    for number, part in enumerate(parts):
        ids, roles, logprobs, choices = [], [], [], list[Any]()
        for context, answer in part:
            ids += [*context, *answer.token_ids.tolist()]
            roles += [Role.CONTEXT] * len(context) + [Role.RESPONSE] * len(answer.token_ids)
            logprobs += [0.0] * len(context) + answer.logprobs.tolist()
            choices += [None] * len(context)
            choices += allowed_ids(COMMANDS, answer.token_ids.tolist()) if allowed else [None] * len(answer.token_ids)
        rows.append(
            TrainingSequence(
                sequence_id=f"s{number}",
                group_id="g",
                token_ids=np.array(ids, dtype=np.int32),
                roles=np.array(roles, dtype=np.int8),
                turns=np.zeros(len(ids), dtype=np.int32),
                logprobs=np.array(logprobs, dtype=np.float32),
                advantages=np.zeros(len(ids), dtype=np.float32),
                temperature=sampling.temperature,
                allowed=choices if allowed else None,
            )
        )
    return rows


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("temperature", [1.0, 0.4])
@pytest.mark.parametrize("restricted", [False, True])
def test_sampler_and_learner_agree(kind: Any, temperature: float, restricted: bool) -> None:
    model = toy_model(kind)
    # Float32 rounding grows with logits / temperature (27 for this model at 0.4, where transformers' own forward is
    # 1.5e-5 off float64): the sampled distribution is as wide at every temperature.
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(temperature)
    engine = TorchEngine(model, capacity=4, max_length=256)
    sampling = Sampling(temperature=temperature, max_tokens=8)
    rows = _turns(engine, sampling, _trie(COMMANDS) if restricted else None)
    assert sum(int((row.roles == Role.RESPONSE).sum()) for row in rows) > 30
    learner = Learner(model, LearnerConfig(), 1)
    assert learner.check_sampler_gap(rows).largest < 1e-5
    other = [replace(row, temperature=0.9 * temperature) for row in rows]
    assert learner.check_sampler_gap(other, math.inf).largest > 1e-2, "a wrong temperature would show"
