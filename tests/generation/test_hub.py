"""Names that are neither folders nor in the hub's cache: paths are told from ids, and nothing is asked in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from worldwise.generation import models
from worldwise.generation.models import ModelConfig, ModelError, check_model, resolve_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def answers(monkeypatch: pytest.MonkeyPatch, answer: Exception | None) -> list[str]:
    """Lets the hub answer so; returns the names that it is asked for."""
    asked: list[str] = []

    def info(self: object, name: str, **_: Any) -> None:
        asked.append(name)
        if answer is not None:
            raise answer

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    return asked


@pytest.mark.parametrize(
    "name", ["/no/such", "./such", "../such", "~/no-such-folder", "~nobody-here/x", "a/b/c", "such/", "a\\b"]
)
def test_a_path_that_is_not_there_asks_nobody(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, None)
    for look in (check_model, resolve_model):
        with pytest.raises(ModelError, match=r"is a path to a folder that does not exist .*correct the path"):
            look(ModelConfig(name=name))
    assert asked == []


def test_a_path_with_one_slash_is_one_where_its_first_part_is_a_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelError, match=r"the folder 'models' in .* has no folder 'tuned'"):
        check_model(ModelConfig(name="models/tuned"))
    assert asked == []
    assert check_model(ModelConfig(name="organisation/tuned")) is None
    assert asked == ["organisation/tuned"]


def test_a_file_and_a_misspelt_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="is a file: give the folder that it lies in"):
        check_model(ModelConfig(name=str(tmp_path / "model.safetensors")))
    with pytest.raises(ModelError, match="did you mean 'embedded'"):
        check_model(ModelConfig(name="embeded"))
    with pytest.raises(ModelError, match="correct the name or create the folder"):
        check_model(ModelConfig(name="x" * 5000))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            errors.RepositoryNotFoundError.__new__(errors.RepositoryNotFoundError),
            "the hub has no model of that name that you may read",
        ),
        (errors.GatedRepoError.__new__(errors.GatedRepoError), "its owner has to grant you access"),
        (errors.RevisionNotFoundError.__new__(errors.RevisionNotFoundError), "it has no revision 'v2'"),
        (ConnectionError("Name or service not known"), "does not answer .*Name or service not known"),
    ],
)
def test_what_the_hub_refuses_is_said(
    answer: Exception, words: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, answer)
    with pytest.raises(ModelError, match=f"model.name 'some/model' is no folder.*{words}"):
        check_model(ModelConfig(name="some/model", revision="v2"))


def test_a_cache_that_cannot_be_written_to_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, None)
    cache.touch()
    with pytest.raises(ModelError, match=r"has to be downloaded into .*hub, which cannot be written to .* set HF_HOME"):
        check_model(ModelConfig(name="some/model"))


def test_smollm2_needs_a_cache_that_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_smollm2_source", lambda: tmp_path / "weights.gguf")
    (tmp_path / "home").touch()
    for look in (check_model, resolve_model):
        with pytest.raises(ModelError, match=r"which cannot be written to \(.*home.*\): set WORLDWISE_CACHE"):
            look(ModelConfig(name="smollm2"), tmp_path / "home" / ".cache" / "worldwise")
    assert check_model(ModelConfig(name="smollm2"), tmp_path / "new" / "cache") is None
    assert not (tmp_path / "new").exists()


def test_a_failed_conversion_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "_smollm2_source", lambda: tmp_path / "weights.gguf")
    monkeypatch.setattr(models, "_convert_gguf", full)
    with pytest.raises(ModelError, match=r"No space left on device.*room for 0\.6 GB"):
        resolve_model(ModelConfig(name="smollm2"), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_user_without_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLDWISE_CACHE", raising=False)
    monkeypatch.setattr(models.os.path, "expanduser", lambda path: path)
    with pytest.raises(ModelError, match="set WORLDWISE_CACHE"):
        models.default_cache_folder()
