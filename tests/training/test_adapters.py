"""LoRA adapters in the learner: what trains, what samples and what is left when they are merged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from transformers import PreTrainedModel

from worldwise.generation.effective import adapted_layers, effective_weight
from worldwise.generation.models import ModelError, load_model, save_model
from worldwise.generation.protocol import Sampling
from worldwise.generation.tiny import tiny_model, tiny_tokenizer
from worldwise.generation.torch_engine import TorchEngine
from worldwise.training import adapter_config
from worldwise.training.adapter_config import AdapterConfig
from worldwise.training.adapters import adapter_off, attach
from worldwise.training.body import llama
from worldwise.training.learner import Learner, LearnerConfig, LearnerError

from .test_body import _micro, _run
from .test_learning import learning_curve
from .test_sampler import COMMANDS, _trie, _turns
from .toy import batch, on_policy, plain_config, toy_model

pytest.importorskip("peft")

ADAPTER = AdapterConfig(rank=4, alpha=8)
IDS = torch.tensor([[3, 14, 15, 9, 2, 6, 5, 35, 8]])


def stirred(model: PreTrainedModel) -> PreTrainedModel:
    """With an adapter whose B is not 0."""
    torch.manual_seed(3)
    for layer in adapted_layers(model).values():
        nn.init.normal_(layer.lora_B["default"].weight, std=0.3)
    return model


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


def test_only_the_adapter_trains() -> None:
    model = toy_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learner = Learner(model, LearnerConfig(learning_rate=1e-2, adapter=ADAPTER, updates=2), 10)
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable
    assert all(".lora_A." in name or ".lora_B." in name for name in trainable)
    assert len(trainable) == 2 * 2 * 7
    start = {name: value.clone() for name, value in model.state_dict().items()}
    learner.update(batch())
    for name, value in model.state_dict().items():
        assert torch.equal(value, start[name]) == (name not in trainable), name
    for name, value in model.state_dict().items():
        if ".lora_" not in name:
            assert torch.equal(value, before[name.replace(".base_layer", "")]), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_new_adapter_changes_nothing_but_by_its_seed() -> None:
    plain, models = toy_model(), [toy_model() for _ in range(3)]
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    for model, seed in zip(models, (1, 1, 2), strict=True):
        attach(model, ADAPTER, seed)
        torch.testing.assert_close(logits(model), logits(plain), atol=1e-6, rtol=0)
    assert torch.equal(torch.rand(1), expected)
    one, two, three = ([layer.lora_A["default"].weight for layer in adapted_layers(m).values()] for m in models)
    assert all(map(torch.equal, one, two))
    assert not any(map(torch.equal, one, three))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_the_body_has_the_adapters_own_gradients(kind: Any, tree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, micro = toy_model(kind), _micro(tree)
    attach(model, ADAPTER, 0)
    stirred(model)
    assert llama.supports(model)
    ours, gradient = _run(model, micro, torch.float32)
    rough, rough_gradient = _run(model, micro, torch.bfloat16)
    monkeypatch.setattr(llama, "supports", lambda model: False)
    theirs, their_gradient = _run(model, micro, torch.float32)
    cast, cast_gradient = _run(model, micro, torch.bfloat16)
    torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=1e-4)
    assert their_gradient.norm() > 1e-3
    assert (gradient - their_gradient).norm() < 1e-4 * their_gradient.norm()
    assert (rough - theirs).norm() < 2.0 * (cast - theirs).norm()
    assert (rough_gradient - their_gradient).norm() < 2.0 * (cast_gradient - their_gradient).norm()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_merged_is_unmerged_and_a_plain_folder(architecture: Any, tmp_path: Path) -> None:
    # The forward pass in float64, so that only the merging itself rounds (it adds up in float32).
    model = tiny_model(architecture).double()
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    places = [id(parameter) for parameter in model.parameters()]
    adapter = attach(model, ADAPTER, 0)
    unmerged, plain = logits(stirred(model)), logits(tiny_model(architecture).double())
    assert (unmerged - plain).abs().max() > 0.1
    with pytest.raises(ModelError, match=r"still carries an adapter.*finish\(\)"):
        save_model(model, tiny_tokenizer(), tmp_path)
    adapter.merge()
    assert (logits(model) - unmerged).abs().max() < 1e-5
    model.float()
    assert {name: value.shape for name, value in model.state_dict().items()} == shapes
    assert [id(parameter) for parameter in model.parameters()] == places
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(type(module).__module__.startswith("peft") for module in model.modules())
    save_model(model, tiny_tokenizer(), tmp_path)
    assert not list(tmp_path.glob("adapter*"))
    assert torch.equal(logits(load_model(tmp_path)), logits(model))


def test_the_reference_is_the_model_without_its_adapter() -> None:
    config = plain_config(kl_coefficient=0.5, adapter=ADAPTER)
    sequences = on_policy(toy_model(), batch())
    results = []
    for copied in (False, True):
        model = toy_model()
        reference = copy.deepcopy(model) if copied else None
        learner = Learner(model, config, 10, reference=reference, seed=5)
        assert (learner.reference is model) != copied
        stirred(model)
        metrics = learner.update(sequences)
        assert metrics["kl_reference"] > 1e-3
        results.append((metrics, [p.detach().clone() for p in model.parameters() if p.requires_grad]))
    (one, weights), (two, others) = results
    assert one == pytest.approx(two, rel=1e-5)
    for left, right in zip(weights, others, strict=True):
        torch.testing.assert_close(left, right)


def test_off_is_the_base_and_on_again_trains() -> None:
    model, plain = toy_model(), toy_model()
    attach(model, ADAPTER, 0)
    changed = logits(stirred(model))
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    with adapter_off(model):
        assert torch.equal(logits(model), logits(plain))
        assert all(effective_weight(layer) is layer.base_layer.weight for layer in adapted_layers(model).values())
    assert torch.equal(logits(model), changed)
    assert [parameter.requires_grad for parameter in model.parameters()] == trainable


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("restricted", [False, True])
def test_the_sampler_follows_the_adapter(kind: Any, restricted: bool) -> None:
    model = toy_model(kind)
    learner = Learner(model, LearnerConfig(learning_rate=3e-2, adapter=ADAPTER), 10)
    engine = TorchEngine(model, capacity=4, max_length=256)
    trie, sampling = _trie(COMMANDS) if restricted else None, Sampling(max_tokens=8)
    untrained = _turns(engine, sampling, trie)
    for slot in range(4):
        engine.close(slot)
    learner.update(batch())
    with pytest.raises(RuntimeError, match=r"call refresh\(\) first"):
        _turns(engine, sampling, trie)
    engine.refresh()
    for slot in range(4):
        engine.close(slot)
    rows = _turns(engine, sampling, trie)
    assert learner.check_sampler_gap(rows).largest < 1e-5
    assert learner.check_sampler_gap(untrained, limit=np.inf).largest > 1e-2
    learner.finish()
    assert Learner(model, LearnerConfig(), 1).check_sampler_gap(rows).largest < 1e-5
    engine.refresh()
    assert not engine._decoder.stale


def test_a_toy_learns_with_an_adapter() -> None:
    config = LearnerConfig(learning_rate=4e-3, updates=2, adapter=AdapterConfig(rank=4, alpha=8))
    curve = learning_curve(1.0, 25, config)
    assert float(np.mean(curve[-5:])) > max(0.8, float(np.mean(curve[:3])) + 0.2), curve


def test_bfloat16_weights_may_lie_beneath_a_float32_adapter() -> None:
    model = toy_model("llama").to(torch.bfloat16)
    learner = Learner(model, LearnerConfig(learning_rate=1e-2, adapter=ADAPTER), 10)
    assert not llama.supports(model)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    before = learner.supervised_update(batch())["loss"]
    for _ in range(5):
        after = learner.supervised_update(batch())["loss"]
    assert after < before - 0.1
    learner.finish()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_targets_are_chosen_by_the_ends_of_their_names() -> None:
    model = toy_model()
    attach(model, AdapterConfig(rank=2, targets=("q_proj", "layers.1.mlp.up_proj")), 0)
    assert set(adapted_layers(model)) == {
        "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj",
    }  # fmt: skip
    assert llama.supports(model)


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def learner(model: PreTrainedModel, **changes: Any) -> Learner:
        return Learner(model, LearnerConfig(adapter=AdapterConfig(**changes)), 1)

    with pytest.raises(LearnerError, match=r"adapter.targets names 'c_attn', which the model has not; it has d"):
        learner(toy_model(), targets=("q_proj", "c_attn"))
    with pytest.raises(LearnerError, match="names 'lm_head', which the model has not"):
        learner(toy_model("llama"), targets=("lm_head",))
    with pytest.raises(LearnerError, match=r"adapter.rank is 33 and model.layers.0.self_attn.k_proj is 32 x 64"):
        learner(toy_model(), rank=33)
    with pytest.raises(LearnerError, match="no linear layers"):
        learner(tiny_model("gpt2"))
    for wrong in ({"rank": 0}, {"rank": -1}, {"alpha": 0}, {"targets": ()}, {"dropout": 0.1}):
        with pytest.raises(ValidationError):
            AdapterConfig(**wrong)
    model = toy_model()
    first = learner(model)
    with pytest.raises(LearnerError, match=r"another learner's adapter: call its finish\(\)"):
        Learner(model, LearnerConfig(), 1)
    first.finish()
    first.finish()
    with pytest.raises(LearnerError, match="make a new learner"):
        first.supervised_update(batch())
    learner(model).finish()
    monkeypatch.setattr(adapter_config, "PACKAGE", "peft_that_is_absent")
    with pytest.raises(LearnerError, match=r"not installed: pip install 'worldwise\[lora\]'"):
        learner(toy_model())
