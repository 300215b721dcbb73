"""Models of the Hugging Face hub: what the cache on this machine has of them, and whether the rest can be fetched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from worldwise.files import refusal
from worldwise.generation.model_folder import ModelError

FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
"""What is fetched of a model: no pickled weights and no code."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WAIT_SECONDS = 10


def existing_folder(name: str) -> Path | None:
    """The folder of that name, `~` written out; None where there is none that this user may see."""
    path = os.path.expanduser(name)
    return Path(path) if os.path.isdir(path) else None


def refuse_paths(parameter: str, name: str, revision: str | None = None) -> None:
    """Whether a name that is no folder could be a hub id; asks nobody.

    Raises:
        ModelError: it is a file, or is written as a path and there is nothing there.
    """
    path = os.path.expanduser(name)
    if os.path.isfile(path):
        raise ModelError(f"{parameter} {name!r} is a file: give the folder that it lies in")
    if os.path.isabs(path) or name.startswith((".", "~")) or name.endswith("/") or "\\" in name or name.count("/") > 1:
        raise ModelError(
            f"{parameter} {name!r} is a path to a folder that does not exist (from {Path.cwd()}): correct the path"
        )
    first, slash, last = name.partition("/")
    if slash and os.path.isdir(first) and cached(name, revision) is None:
        raise ModelError(
            f"{parameter} {name!r}: the folder {first!r} in {Path.cwd()} has no folder {last!r}: correct the path "
            f"(if you mean a hub id, rename that folder or fetch the model with `hf download {name}`)"
        )


def is_id(name: str) -> bool:
    """Whether a name has the form organisation/name."""
    return _ID.fullmatch(name) is not None and "--" not in name and ".." not in name


def cached(name: str, revision: str | None = None) -> Path | None:
    """The folder of a model that is whole in the hub's cache on this machine; None elsewhere. Asks nobody."""
    import huggingface_hub
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, HFValidationError

    try:
        found = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=FILES, local_files_only=True)
    except (CachedRepoTreeNotFoundError, HFValidationError, OSError):
        return None
    return Path(found)


def cached_beside(name: str, file: str, cache: str | None = None) -> Path | None:
    """The folder in the hub's cache where a model's `file` lies, whatever else is there; None if it is not there.

    Args:
        name: hub id.
        file: of the model.
        cache: folder of the cache (None: the hub's own).
    """
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(name, file, cache_dir=cache)
    return Path(found).parent if isinstance(found, str) else None


def fetch(parameter: str, name: str, revision: str | None = None) -> Path:
    """The folder of a model in the hub's cache, downloaded where it is not there.

    Raises:
        ModelError: it is not there and cannot be downloaded.
    """
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        folder = cached(name, revision)
        if folder is None:
            raise _unreachable(parameter, name, "HF_HUB_OFFLINE is set and the hub cache has it not whole")
        return folder
    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=FILES))
    # The hub's client raises errors of its own, of its HTTP library and of the system; each means: not fetched.
    except Exception as error:
        raise _unreachable(parameter, name, _reason(error, revision)) from error


def check_fetchable(parameter: str, name: str, revision: str | None = None) -> None:
    """Whether a download could begin: the hub answers and has the model, and its cache can be written to.

    Raises:
        ModelError: it could not.
    """
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise _unreachable(parameter, name, "HF_HUB_OFFLINE is set and the hub cache has it not whole")
    place = Path(huggingface_hub.constants.HF_HUB_CACHE)
    reason = refusal(place)
    if reason is not None:
        raise ModelError(
            f"{parameter} {name!r} has to be downloaded into {place}, which cannot be written to ({reason}): "
            "set HF_HOME to a folder that can"
        )
    try:
        huggingface_hub.HfApi().model_info(name, revision=revision, timeout=_WAIT_SECONDS)
    except Exception as error:
        raise _unreachable(parameter, name, _reason(error, revision)) from error


def _unreachable(parameter: str, name: str, reason: str) -> ModelError:
    return ModelError(
        f"{parameter} {name!r} is no folder, so it was taken as a hub id, but {reason}. "
        "Correct the name, give a folder that exists, or download it where there is a network"
    )


def _reason(error: Exception, revision: str | None) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "its owner has to grant you access on its page of the hub first (then `hf auth login`)"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no model of that name that you may read (private ones need `hf auth login`)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision {revision!r}"
    text = str(error).strip() or type(error).__name__
    return f"the hub does not answer or cannot be stored from ({text.splitlines()[0][:200]})"
