"""Which code a run was made by."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("worldwise", "torch", "transformers", "numpy", "sentence-transformers", "kedro")
"""Libraries whose versions are told with every result."""


def git_tags(project: Path) -> dict[str, str]:
    """The commit and whether files differ from it, as MLflow names them; nothing where there is no git work tree."""
    state = git_state(project)
    if not state:
        return {}
    return {"mlflow.source.git.commit": str(state["git_commit"]), "git.dirty": str(state["git_dirty"]).lower()}


def git_state(project: Path) -> dict[str, str | bool]:
    """`git_commit`, and `git_dirty` where files differ from it; nothing where there is no git work tree."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changed = _git(project, "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit, "git_dirty": bool(changed)}


def package_versions() -> dict[str, str]:
    """Version of every library of `PACKAGES` that is installed."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _git(project: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=project, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
