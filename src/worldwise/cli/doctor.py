"""`kedro worldwise doctor`: is this machine ready for the configured run?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from kedro.framework.startup import ProjectMetadata

from worldwise.cli.options import blocks, configured, data_root

State = Literal["ok", "note", "problem"]
GIB = 2**30

_MODEL, _ENCODER = ("parameter model.name", "parameter model.device"), ("parameter encoder.",)
"""How findings of the checks before a run begin that have a line of their own."""

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
    from worldwise.hooks.environment import quiet_libraries

    values = blocks(metadata, env, params)
    quiet_libraries()
    findings = examine(values, data_root(metadata, env, params))
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = click.style(f"{finding.state:<8}", fg=_COLOURS[finding.state])
        click.echo(f"{state}{finding.name:<{width + 2}}{finding.text}")
    problems = sum(finding.state == "problem" for finding in findings)
    if problems:
        click.echo(f"\n{problems} {'problem' if problems == 1 else 'problems'}: a run would not get through")
        raise click.exceptions.Exit(1)
    click.echo("\nready to run; a note is worth reading and stops nothing")


def examine(values: dict[str, Any], root: Path) -> list[Finding]:
    """All findings for validated parameter blocks.

    Args:
        values: the blocks.
        root: the folder that everything is stored in.
    """
    from worldwise.pipelines.errors import InputError
    from worldwise.pipelines.preflight import preflight

    wrong: tuple[str, ...] = ()
    try:
        preflight(values)
    except InputError as error:
        wrong = error.findings
    checks: list[Callable[[], Iterator[Finding]]] = [
        machine,
        lambda: disk(root),
        packages,
        lambda: model(values, wrong),
        lambda: encoder(values, wrong),
        lambda: parameters(values, wrong),
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
        yield Finding("gpu", "note", "none (fine for the embedded model and for --env=smollm; --env=gpu needs one)")


def disk(root: Path) -> Iterator[Finding]:
    """Room for what is stored, where it is stored."""
    import shutil

    from worldwise.files import nearest, refusal

    reason = refusal(root)
    if reason is not None:
        yield Finding(
            "disk", "problem", f"data_root {root} cannot be written to ({reason}): --params=data_root=/another/folder"
        )
        return
    free = shutil.disk_usage(nearest(root.absolute())).free
    text = f"{free / GIB:.1f} GiB free for data_root {root}"
    if free > 2 * GIB:
        yield Finding("disk", "ok", text)
    else:
        yield Finding("disk", "note", f"{text}: a run keeps every model it makes; make room, or change data_root")


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


def model(values: dict[str, Any], wrong: Sequence[str]) -> Iterator[Finding]:
    """The model's folder, its size, and the memory that training it takes."""
    from worldwise.generation.models import folder_at_hand, weight_count

    broken = [finding for finding in wrong if finding.startswith(_MODEL)]
    for finding in broken:
        yield Finding("model", "problem", finding)
    if broken:
        return
    name = values["model"].name
    folder = folder_at_hand(values["model"])
    if folder is None:
        yield Finding("model", "note", f"{name}: downloaded or converted when a run begins")
        return
    needs = training_bytes(folder, values)
    most = max(needs, key=lambda path: needs[path])
    free, where = free_memory(values["model"].device)
    weights = weight_count(folder)
    text = f"{name}: {weights / 1e6:.3g} million weights; training takes about {needs[most] / GIB:.2g} GiB"
    if needs[most] > free:
        advice = f"lower {most}.micro_batch_tokens, or train an adapter ({most}.adapter)"
        yield Finding("model", "problem", f"{text} ({most}), {free / GIB:.1f} GiB are free on the {where}: {advice}")
    else:
        yield Finding("model", "ok", text)


def encoder(values: dict[str, Any], wrong: Sequence[str]) -> Iterator[Finding]:
    """The sentence encoder that measures predictions."""
    broken = [finding for finding in wrong if finding.startswith(_ENCODER)]
    for finding in broken:
        yield Finding("encoder", "problem", finding)
    if not broken:
        yield Finding("encoder", "ok", f"{values['encoder'].name} on {values['encoder'].device}")


def free_memory(device: str) -> tuple[int, str]:
    """Free bytes where a model of `model.device` trains, and what that is."""
    import psutil
    import torch

    from worldwise.generation.models import resolve_device

    chosen = resolve_device(device)
    if chosen.type == "cuda":
        return int(torch.cuda.mem_get_info(chosen)[0]), "GPU"
    return int(psutil.virtual_memory().available), "CPU"


def training_bytes(folder: Path, values: dict[str, Any]) -> dict[str, int]:
    """Learner by its parameter -> a rough need of memory: weights, gradients and Adam's two moments of what trains
    (an adapter trains so little that it is left out), activations, and the logits.

    Activations are taken as 34 hidden-sized values a token and layer, logits as two copies.
    """
    from transformers import AutoConfig

    from worldwise.generation.models import weight_count
    from worldwise.pipelines.learner_checks import learners

    # As attributes the sizes have one name in every architecture.
    sizes: Any = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    text = sizes.get_text_config()
    a_token = 4 * (34 * text.num_hidden_layers * text.hidden_size + 2 * text.vocab_size)
    weights = weight_count(folder)
    stored = 2 if values["model"].dtype == "bfloat16" else 4
    # The base model's own recipe makes another model.
    blocks = {name: block for name, block in values.items() if name != "base_model"}
    return {
        path: weights * (stored if learner.adapter is not None else 16) + a_token * learner.micro_batch_tokens
        for path, learner in learners(blocks).items()
    }


def parameters(values: dict[str, Any], wrong: Sequence[str]) -> Iterator[Finding]:
    """The checks that a run makes of its parameters, model and encoder apart."""
    others = [finding for finding in wrong if not finding.startswith(_MODEL + _ENCODER)]
    for finding in others:
        yield Finding("parameters", "problem", finding)
    if not others:
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
