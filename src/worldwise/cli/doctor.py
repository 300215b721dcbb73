"""`kedro worldwise doctor`: is this machine ready for the configured run?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, configured

State = Literal["ok", "note", "problem"]
GIB = 2**30

_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what was looked at.
        state: `note` is worth reading and stops nothing.
        text: what was found, and what to do about a problem.
    """

    name: str
    state: State
    text: str


@click.command()
@configured
@click.pass_obj
def doctor(metadata: ProjectMetadata, /, env: str, params: dict[str, Any]) -> None:
    """Look at machine, packages, data and model before anything is loaded."""
    values = blocks(metadata, env, params)
    findings = examine(values, metadata.project_path)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = click.style(f"{finding.state:<8}", fg=_COLOURS[finding.state])
        click.echo(f"{state}{finding.name:<{width + 2}}{finding.text}")
    if any(finding.state == "problem" for finding in findings):
        raise click.exceptions.Exit(1)


def examine(values: dict[str, Any], project: Path) -> list[Finding]:
    """All findings for validated parameter blocks."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        machine,
        lambda: disk(project),
        packages,
        lambda: model(values),
        lambda: parameters(values),
        games,
    ]
    return [finding for check in checks for finding in check()]


def machine() -> Iterator[Finding]:
    """Python, cores, memory, GPU."""
    import platform

    import psutil
    import torch

    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    cores = psutil.cpu_count(logical=False) or 1
    yield Finding(
        "cores", "ok", f"{cores} physical, {psutil.cpu_count()} logical, {torch.get_num_threads()} torch threads"
    )
    memory = psutil.virtual_memory()
    enough = memory.available >= 4 * GIB
    text = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    advice = "" if enough else "; the main job takes up to 6 GiB: close something, or lower rollout.slots"
    yield Finding("memory", "ok" if enough else "note", text + advice)
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        yield Finding("gpu", "ok", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB")
    else:
        yield Finding("gpu", "note", "none; the embedded model and smollm need none")


def disk(project: Path) -> Iterator[Finding]:
    """Room for what is stored."""
    import shutil

    free = shutil.disk_usage(project).free
    text = f"{free / GIB:.0f} GiB free at {project}"
    yield Finding("disk", "ok" if free > 2 * GIB else "note", text)


def packages() -> Iterator[Finding]:
    """Installed versions against the tested ranges."""
    from importlib.metadata import PackageNotFoundError, requires, version

    from packaging.requirements import Requirement

    wrong = []
    tested = [Requirement(text) for text in requires("worldwise") or [] if "extra ==" not in text]
    for requirement in tested:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found.partition("+")[0], prereleases=True):
            wrong.append(f"{requirement.name} {found} is outside of {requirement.specifier}")
    if wrong:
        yield Finding(
            "packages", "problem", f"{'; '.join(wrong)}: run `make clean run`, or pip install -c constraints.txt -e ."
        )
    else:
        yield Finding("packages", "ok", f"{len(tested)} requirements within their tested ranges")


def model(values: dict[str, Any]) -> Iterator[Finding]:
    """The model's folder, its size, and the memory that training it takes."""
    import psutil

    from worldwise.generation.models import EMBEDDED, resolve_model

    name = values["model"].name
    if name != EMBEDDED and not Path(name).expanduser().is_dir():
        yield Finding("model", "note", f"{name}: fetched or converted when a run begins")
        return
    try:
        folder = resolve_model(values["model"])
    except ValueError as error:
        yield Finding("model", "problem", str(error))
        return
    weights = weight_count(folder)
    need = training_bytes(folder, weights, values)
    free = psutil.virtual_memory().available
    text = f"{name}: {weights / 1e6:.1f} million weights; training takes about {need / GIB:.1f} GiB"
    if need > free:
        yield Finding("model", "problem", f"{text}, {free / GIB:.1f} are free: lower policy.learner.micro_batch_tokens")
    else:
        yield Finding("model", "ok", text)


def weight_count(folder: Path) -> int:
    """Number of weights in a model folder, from the headers of its files."""
    import math

    from safetensors import safe_open

    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def training_bytes(folder: Path, weights: int, values: dict[str, Any]) -> int:
    """A rough need of memory: fp32 weights, gradients and Adam's two moments, activations, and the logits.

    Activations are taken as 34 hidden-sized values a token and layer, logits as two copies.
    """
    import json

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokens = int(values["policy"].learner.micro_batch_tokens)
    activations = 34 * int(config["num_hidden_layers"]) * int(config["hidden_size"])
    head = 2 * int(config["vocab_size"])
    return 16 * weights + 4 * tokens * (activations + head)


def parameters(values: dict[str, Any]) -> Iterator[Finding]:
    """The checks that a run makes of its parameters."""
    from worldwise.pipelines.errors import InputError
    from worldwise.pipelines.preflight import preflight

    try:
        preflight(values)
    except InputError as error:
        for finding in error.findings:
            yield Finding("parameters", "problem", finding)
    else:
        yield Finding(
            "parameters", "ok", f"world {values['world'].name}, model {values['model'].name}, seed {values['seed']}"
        )


def games() -> Iterator[Finding]:
    """ALFWorld's own games, which are optional."""
    from worldwise.worlds.household.official import OfficialGames

    found = OfficialGames.found()
    if found is None:
        yield Finding(
            "official games", "note", "absent (optional); `kedro worldwise data alfworld` says how to get them"
        )
    else:
        yield Finding("official games", "ok", f"{', '.join(found.splits)} in {found.folder}")
