"""What the benchmarks share: the setting of a measurement, its Markdown, a random model of the embedded shape."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from worldwise.reports.summary import Table, markdown_table

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROJECT = Path(__file__).resolve().parents[1]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options with `--out`; the description is the module's docstring."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=None, help="write the Markdown there as well")
    return made


def setting(**more: object) -> dict[str, object]:
    """Machine, versions and commit, and whatever else belongs to a measurement."""
    return {
        "machine": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **more,
        "commit": commit(),
        "load": f"{os.getloadavg()[0]:.1f} processes running or waiting in the minute before",
    }


def torch_setting(threads: int | None) -> dict[str, object]:
    """The same with what torch has; sets its threads first if any are given."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    capability = torch.backends.cpu.get_cpu_capability()
    return setting(torch=f"{torch.__version__}, {capability}, {torch.get_num_threads()} threads")


def cpu_name() -> str:
    """What the system calls the processor."""
    place = Path("/proc/cpuinfo")
    lines = place.read_text().splitlines() if place.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The short commit of the working tree, and whether tracked files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "conf", "benchmarks/*.py")
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' with uncommitted changes' if changed else ''}"


def random_model() -> PreTrainedModel:
    """A model of the embedded model's shape with random weights, float32, room for 8192 tokens."""
    import torch
    from transformers import AutoConfig, LlamaForCausalLM

    from worldwise.generation.models import ModelConfig, resolve_model

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(resolve_model(ModelConfig(name="embedded")))
    config.max_position_embeddings = 8192
    return LlamaForCausalLM(config).float().eval()


def publish(title: str, facts: Mapping[str, object], sections: Sequence[tuple[str, Table]], out: Path | None) -> str:
    """Print a Markdown report and write it to `out` if that is given; returns it.

    Args:
        title: heading.
        facts: `setting` and what else holds for all of it.
        sections: (sentences before the table, table).
        out: file.
    """
    arguments = " ".join(_without_out(sys.argv[1:]))
    command = f"python benchmarks/{Path(sys.argv[0]).name} {arguments}".strip()
    lines = [f"# {title}", f"`{command}`", "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for text, table in sections:
        lines += [text, markdown_table(table)]
    report = "\n\n".join(lines) + "\n"
    print(report)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report, encoding="utf-8")
    return report


def _without_out(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != "--out" and not argument.startswith("--out="):
            kept.append(argument)
        skip = argument == "--out"
    return kept
