"""What `conf/*/mlflow.yml` may say."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from worldwise.config import FrozenConfig

_SQLITE = "sqlite:///"


class MlflowConfig(FrozenConfig):
    """Where runs are tracked.

    Attributes:
        enabled: False tracks nothing and never imports mlflow.
        tracking_uri: `sqlite:///file` (relative to the project's root, wherever the command is started),
            `http(s)://server`, or what else mlflow takes.
        experiment: name that runs are gathered under.
        timeout_s: seconds to wait for a server before asking it once more. One that has not answered in twice that time
            counts as silent: a run goes on without waiting for it, sends what it missed if it answers later, and waits
            at its end so long once more.
        tags: further tags of every run.
        system_metrics: whether training stages sample the machine beside their curves.
        artifact_bytes: results up to this size are copied to the tracker; 0 = none.
    """

    enabled: bool = True
    tracking_uri: str = "sqlite:///mlflow.db"
    experiment: str = Field("worldwise", min_length=1)
    timeout_s: int = Field(5, ge=1, le=600)
    tags: dict[str, str] = Field(default_factory=dict)
    system_metrics: bool = True
    artifact_bytes: int = Field(2_000_000, ge=0)

    def absolute_uri(self, project: Path) -> str:
        """The tracking URI with a relative SQLite file put into the project's root."""
        name = self.tracking_uri.removeprefix(_SQLITE)
        if not self.tracking_uri.startswith(_SQLITE) or name.startswith("/"):
            return self.tracking_uri
        return f"{_SQLITE}{(project / name).as_posix()}"

    def lacks_database(self, project: Path) -> bool:
        """Whether the store is an SQLite file that is still to be made, which takes a while."""
        uri = self.absolute_uri(project)
        path = Path(uri.removeprefix(_SQLITE))
        return uri.startswith(_SQLITE) and not (path.is_file() and path.stat().st_size)
