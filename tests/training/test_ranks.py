"""Several ranks make the step that one makes; they are real processes here."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed

from worldwise.episodes.sequences import TrainingSequence
from worldwise.training.critic_config import CriticConfig
from worldwise.training.learner import Learner, LearnerConfig
from worldwise.training.metrics import Means
from worldwise.training.ranks import ALONE, ranks_here

from .toy import batch, toy_model

RANKS = 2
CASES = {
    "token_mean": {"updates": 2},
    "one micro-batch": {"micro_batch_tokens": 100_000},
    "dr_grpo": {
        "aggregation": "constant",
        "aggregation_length": 40,
        "kl_coefficient": 0.1,
        "entropy_coefficient": 0.01,
    },
    "gspo": {
        "ratio": "sequence",
        "aggregation": "seq_mean_token_mean",
        "gradient_clip": 0.01,
        "old_logprobs": "learner",
    },
    "ppo": {"critic": CriticConfig(trunk="own")},
}


def _sequences() -> list[TrainingSequence]:
    rng = np.random.default_rng(0)
    found = []
    for sequence in batch(8):
        values = rng.normal(size=len(sequence)).astype(np.float32)
        found.append(replace(sequence, returns=values, values=np.zeros_like(values)))
    return found


def _train(folder: Path, name: str) -> None:
    """Every call of a learner; leaves weights and numbers in a folder."""
    for case, settings in CASES.items():
        config = LearnerConfig.model_validate({"learning_rate": 1e-3, "micro_batch_tokens": 128, **settings})
        model = toy_model()
        learner = Learner(model, config, 10)
        sequences = _sequences()
        numbers = [learner.update(sequences), learner.update(sequences)]
        numbers.append(learner.supervised_update(sequences[:3], observation_weight=0.5))
        tensors = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
        tensors["logprobs"] = torch.from_numpy(np.concatenate(learner.log_probs(sequences)))
        if config.critic is not None:
            tensors["values"] = torch.from_numpy(np.concatenate(learner.values(sequences)))
        save_file(tensors, folder / f"{case} {name}.safetensors")
        (folder / f"{case} {name}.json").write_text(json.dumps(numbers))


def _rank(folder: Path, number: int) -> None:
    torch.set_num_threads(1)
    place = f"file://{(folder / 'meeting').as_posix()}"
    patience = timedelta(seconds=60)
    distributed.init_process_group("gloo", init_method=place, rank=number, world_size=RANKS, timeout=patience)
    assert (ranks_here().number, ranks_here().count) == (number, RANKS)
    _train(folder, str(number))
    distributed.destroy_process_group()


def _read(folder: Path, case: str, name: str) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    numbers: list[dict[str, float]] = json.loads((folder / f"{case} {name}.json").read_text())
    return load_file(folder / f"{case} {name}.safetensors"), numbers


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process and what two ranks leave."""
    folder = tmp_path_factory.mktemp("ranks")
    _train(folder, "alone")
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_rank, args=(folder, number)) for number in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
    assert [rank.exitcode for rank in ranks] == [0] * RANKS
    return folder


@pytest.mark.parametrize("case", list(CASES))
def test_ranks_make_the_step_that_one_makes(trained: Path, case: str) -> None:
    (alone, numbers), *others = (_read(trained, case, name) for name in ("alone", "0", "1"))
    for tensors, own in others:
        assert tensors.keys() == alone.keys()
        for key, value in alone.items():
            torch.testing.assert_close(
                tensors[key], value, atol=2e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
            )
        for theirs, ours in zip(own, numbers, strict=True):
            assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-6)
    first, second = others
    assert all(torch.equal(first[0][key], second[0][key]) for key in alone), "the ranks must never part"
    start: dict[str, Any] = toy_model().state_dict()
    assert any(not torch.equal(alone[key], value) for key, value in start.items())


def test_one_process_sends_nothing() -> None:
    assert ranks_here() is ALONE
    values = torch.ones(2)
    ALONE.add_up([values])
    assert values.tolist() == [1.0, 1.0]
    assert ALONE.share([1, 2, 3]) == [1, 2, 3]
    means = Means("steps")
    means.add("loss", 2.0)
    assert means.result() == {"loss": 2.0, "steps": 0.0}
