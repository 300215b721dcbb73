"""Sampling from effective weights: adapters folded in, copies in another precision, models that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from worldwise.generation.decoder import Decoder, unsupported
from worldwise.generation.effective import adapted_layers, effective_weight, is_adapted
from worldwise.generation.engines import make_engine
from worldwise.generation.hf_engine import HFEngine
from worldwise.generation.models import ModelConfig, folder_at_hand, save_model, tensor_shapes
from worldwise.generation.protocol import Request, Sampling
from worldwise.generation.shared_weights import share_weights
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.generation.torch_engine import TorchEngine

from .conftest import Judge


def adapted(architecture: Any = "qwen3", **changes: Any) -> PreTrainedModel:
    """A tiny model whose adapter changes what it says."""
    peft = pytest.importorskip("peft")
    model, settings = tiny_model(architecture), {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        peft.inject_adapter_in_model(peft.LoraConfig(**{**settings, **changes}), model)
        for layer in adapted_layers(model).values():
            nn.init.normal_(layer.lora_B["default"].weight, std=0.2)
    return model


def test_the_weight_is_the_sum_of_both_parts() -> None:
    model = adapted()
    layers = adapted_layers(model)
    assert [name.rpartition(".")[2] for name in layers] == ["q_proj", "down_proj"] * 2
    for layer in layers.values():
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        torch.testing.assert_close(effective_weight(layer), layer.base_layer.weight + 2.0 * b @ a)
    plain = nn.Linear(3, 4)
    assert effective_weight(plain) is plain.weight
    assert not is_adapted(plain)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("shared", [False, True])
def test_engines_say_what_the_adapted_model_says(architecture: Any, shared: bool, gap: Judge) -> None:
    model = adapted(architecture)
    engine = make_engine(share_weights(model).model() if shared else model, tiny_tokenizer(), 4, 128)
    assert type(engine) is TorchEngine
    prompt, sampling = list(range(5, 40)), Sampling(max_tokens=12)
    requests = [Request(engine.open(), prompt, seed) for seed in range(3)]
    answers = engine.generate(requests, sampling, [])
    assert max(gap(model, prompt, answer, sampling) for answer in answers) < 1e-5
    assert max(gap(tiny_model(architecture), prompt, answer, sampling) for answer in answers) > 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_engine_has_the_precision_that_is_asked_for(dtype: torch.dtype, gap: Judge) -> None:
    model = tiny_model()
    engine = make_engine(model, tiny_tokenizer(), 4, 128, dtype)
    assert isinstance(engine, TorchEngine)
    assert engine._decoder.dtype == dtype
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    prompt, sampling = list(range(5, 40)), Sampling(max_tokens=12)
    (answer,) = engine.generate([Request(engine.open(), prompt, 1)], sampling, [])
    off = gap(model, prompt, answer, sampling)
    assert off < 1e-5 if dtype == torch.float32 else 1e-5 < off < 0.5
    assert type(make_engine(tiny_model().to(torch.bfloat16), tiny_tokenizer(), 1, 64)) is TorchEngine  # type: ignore[arg-type, unused-ignore]


def test_a_model_without_copies_of_its_own_samples_in_its_own_precision() -> None:
    model = tiny_model("gpt2")
    assert type(make_engine(model, tiny_tokenizer(), 1, 64, torch.float32)) is HFEngine
    with pytest.raises(ValueError, match=r"model.sampler_dtype bfloat16 .*GPT2LMHeadModel.*sampler_dtype to null"):
        make_engine(model, tiny_tokenizer(), 1, 64, torch.bfloat16)


def test_other_adapters_run_through_the_models_own_forward(gap: Judge) -> None:
    model = adapted(use_dora=True)
    assert adapted_layers(model) == {}
    assert "neither linear nor linear with plain LoRA" in (unsupported(model) or "")
    with pytest.raises(ValueError, match="falls back to HFEngine"):
        Decoder(model, 64, torch.float32)
    engine = make_engine(model, tiny_tokenizer(), 1, 64)
    (answer,) = engine.generate([Request(engine.open(), [7, 8, 9], 1)], Sampling(max_tokens=5), [])
    assert gap(model, [7, 8, 9], answer, Sampling()) < 1e-5


def test_shapes_are_read_without_the_weights(tmp_path: Path) -> None:
    model = tiny_model("llama", tied=False)
    save_model(model, tiny_tokenizer(), tmp_path / "model")
    assert tensor_shapes(tmp_path / "model") == {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert folder_at_hand(ModelConfig(name=str(tmp_path / "model"))) == tmp_path / "model"
    assert folder_at_hand(ModelConfig(name="some-one/some-model")) is None
    assert folder_at_hand(ModelConfig(name="smollm2"), tmp_path) is None
    (tmp_path / "model").rename(tmp_path / "smollm2-135m-instruct")
    assert folder_at_hand(ModelConfig(name="smollm2"), tmp_path) == tmp_path / "smollm2-135m-instruct"
    assert folder_at_hand(ModelConfig()) is not None
