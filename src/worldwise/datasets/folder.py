"""A versioned folder as a Kedro dataset."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from kedro.io.core import AbstractVersionedDataset, DatasetError, Version
from kedro_datasets._typing import JSONPreview

from worldwise.datasets.complete import CompleteVersions
from worldwise.ledger.publish import PublishError, publish_folder


class FolderError(DatasetError):
    """A stored folder is missing something, or a folder cannot be stored."""


class FolderDataset(CompleteVersions, AbstractVersionedDataset[Path, Path]):
    """A folder of files. Saving takes a prepared folder over, loading returns the stored folder's path.

    Only paths travel between nodes: weights and episodes are never copied through memory, and a worker
    process or an inference server opens the same folder by its path.

    Args:
        filepath: where the versions lie, as `<filepath>/<version>/<name>/`.
        version: as Kedro gives it.
        metadata: for other tools (kedro-viz reads the layer out of it).
    """

    def __init__(
        self, *, filepath: str, version: Version | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__(PurePosixPath(filepath), version)
        self.metadata = metadata

    def load(self) -> Path:
        """The stored folder.

        Raises:
            FolderError: it lacks a file that it must have.
        """
        folder = Path(self._get_load_path())
        self.check(folder)
        return folder

    def save(self, data: Path) -> None:
        """Stores `data`: a scratch folder is moved, any other copied; the version appears in one step.

        Raises:
            FolderError: the folder lacks a file, or cannot be stored.
        """
        self.check(data)
        try:
            publish_folder(data, self.target(), self.commit)
        except PublishError as error:
            raise FolderError(str(error)) from error

    def target(self) -> Path:
        """Where the version of this run lies, or will lie."""
        version = self.resolve_save_version()
        return Path(self._filepath if version is None else self._get_versioned_path(version))

    def check(self, folder: Path) -> None:
        """Raises FolderError where `folder` is not what this dataset holds."""
        if not folder.is_dir():
            raise FolderError(f"{folder} is not a folder")

    def preview(self) -> JSONPreview:
        """What kedro-viz shows; it goes by the name of the return type."""
        return JSONPreview(self.summary(self.load()))

    def summary(self, folder: Path) -> str:
        """A JSON text that says what the folder holds."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return json.dumps({str(path.relative_to(folder)): path.stat().st_size for path in files})

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath), "version": self._version}
