"""Which code a run was made by."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_tags(project: Path) -> dict[str, str]:
    """The commit and whether files differ from it; nothing where the project is not a git work tree."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changed = _git(project, "status", "--porcelain", "--untracked-files=no")
    return {"mlflow.source.git.commit": commit, "git.dirty": str(bool(changed)).lower()}


def _git(project: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=project, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
