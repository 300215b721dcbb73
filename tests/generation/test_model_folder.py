"""A broken model folder is named with the file and the fix, from the heads of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from worldwise.generation.model_folder import ModelError, check_model_folder, tensor_shapes
from worldwise.generation.models import load_model, save_model
from worldwise.generation.tiny import Architecture, tiny_model, tiny_tokenizer

Break = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny_model("llama", tied=False), tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


def cut(name: str, part: float = 0.5) -> Break:
    def apply(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * part)])

    return apply


def write(name: str, text: str) -> Break:
    return lambda folder: (folder / name).write_text(text) and None


def configured(**values: Any) -> Break:
    def apply(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return apply


def without(*patterns: str) -> Break:
    def apply(folder: Path) -> None:
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()

    return apply


def stored(change: Callable[[dict[str, torch.Tensor]], Any]) -> Break:
    def apply(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def sharded(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    tiny_model("llama", tied=False).save_pretrained(str(folder), max_shard_size="20KB")


def then(*breaks: Break) -> Break:
    def apply(folder: Path) -> None:
        for one in breaks:
            one(folder)

    return apply


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def wide_tokenizer(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<one_more>"])
    tokenizer.save_pretrained(str(folder))


UP = "model.layers.1.mlp.up_proj.weight"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (cut("model.safetensors"), r"model\.safetensors of the model folder .* is cut short.*download it again"),
        (cut("model.safetensors", 0.0001), "is cut short or no safetensors file"),
        (cut("model.safetensors", 0), "is cut short or no safetensors file"),
        (write("model.safetensors", LFS), "is a pointer of Git LFS.*git lfs pull"),
        (pickled, r"pytorch_model\.bin, and pickled weights are refused"),
        (without("config.json"), r"has no config\.json"),
        (cut("config.json"), r"config\.json of the model folder .* is no valid JSON"),
        (write("config.json", "[]"), r"config\.json of the model folder .* holds a list"),
        (write("config.json", "{}"), "no causal language model can be made"),
        (write("config.json", LFS), "is a pointer of Git LFS"),
        (configured(model_type="lama"), "no causal language model can be made.*lama"),
        (configured(model_type="t5"), "no causal language model can be made"),
        (configured(hidden_size="wide"), "no causal language model can be made"),
        (configured(model_type="own", auto_map={"AutoConfig": "own.Own"}), "trust_remote_code is off"),
        (configured(hidden_size=64), r"do not fit its config\.json: .* has the shape \(267, 32\) and not \(267, 64\)"),
        (configured(num_hidden_layers=3), r"model\.layers\.2\..* is absent"),
        (configured(num_hidden_layers=1), r"model\.layers\.1\..* has no place in the model"),
        (stored(lambda weights: weights.pop(UP)), f"first: {UP} is absent"),
        (
            stored(lambda weights: weights.update({UP.replace("weight", "bias"): torch.zeros(96)})),
            r"up_proj\.bias has no place in the model",
        ),
        (without("tokenizer*"), "has no tokenizer"),
        (without("tokenizer.json"), "has no tokenizer"),
        (cut("tokenizer.json"), r"tokenizer\.json of the model folder .* is no valid JSON"),
        (write("tokenizer.json", "{}"), "the tokenizer of the model folder .* cannot be loaded"),
        (cut("tokenizer_config.json"), r"tokenizer_config\.json of the model folder .* is no valid JSON"),
        (wide_tokenizer, "has ids up to 267 .*<one_more>.* embeds 267 tokens"),
        (then(sharded, without("model-00002-*")), r"lacks 1 of its \d+ files of weights, first model-00002-of"),
        (then(sharded, cut("model.safetensors.index.json")), r"index\.json of the model folder .* is no valid JSON"),
        (then(sharded, write("model.safetensors.index.json", "{}")), "has no weight_map"),
    ],
)
def test_a_broken_folder_is_named_in_one_line(folder: Path, broken: Break, words: str) -> None:
    broken(folder)
    with pytest.raises(ModelError, match=words) as caught:
        check_model_folder(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shard_that_lacks_what_the_index_lists_is_named(folder: Path) -> None:
    sharded(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    first = sorted(set(index["weight_map"].values()))[0]
    index["weight_map"]["model.own.weight"] = first
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError, match=rf"{first} of the model folder .* lacks model\.own\.weight"):
        check_model_folder(folder)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
def test_whole_folders_pass(tmp_path: Path, architecture: Architecture, tied: bool) -> None:
    save_model(tiny_model(architecture, tied=tied), tiny_tokenizer(), tmp_path)
    check_model_folder(tmp_path)


def test_shards_pass_and_other_weights_beside_them_are_not_counted(folder: Path) -> None:
    whole = tensor_shapes(folder)
    sharded(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    save_file({"copy": torch.zeros(3)}, folder / "consolidated.safetensors")
    check_model_folder(folder)
    assert tensor_shapes(folder) == whole


def test_parts_that_the_model_does_not_have_are_none_of_its_business(folder: Path) -> None:
    stored(lambda weights: weights.update({"v_head.summary.weight": torch.zeros(1, 32)}))(folder)
    check_model_folder(folder)


def test_loading_says_the_same_and_prints_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(hidden_size=64)(folder)
    capsys.readouterr()
    with pytest.raises(ModelError, match=r"do not fit its config\.json"):
        load_model(folder, device="cpu")
    with pytest.raises(ModelError, match=r"do not fit its config\.json"):
        check_model_folder(folder)
    said = capsys.readouterr()
    assert said.out + said.err == ""
