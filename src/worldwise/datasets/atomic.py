"""Kedro's file datasets, each version of which appears whole or not at all.

As Kedro has them they write in place: after a full disk half a file would stand there as the newest version.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from kedro.io.core import DatasetError, VersionNotFoundError
from kedro_datasets import json, pandas, plotly, text

from worldwise.datasets.complete import CompleteVersions
from worldwise.deferring import deferred
from worldwise.files import whole_file
from worldwise.tracking.interruption import RunInterrupted


class StoreError(DatasetError):
    """A file cannot be stored or read; the message names it and says what to do."""


class AtomicFile(CompleteVersions):
    """Put before a dataset of one file: what that dataset saves goes to a hidden name first and is renamed at the end.

    Kedro finds versions as `<filepath>/*/<name>`, so it never takes what is unfinished for a version.
    """

    def load(self) -> Any:
        """What is stored.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return super().load()  # type: ignore[safe-super]
        except VersionNotFoundError:
            raise
        except DatasetError as error:
            raise StoreError(
                f"{self._get_load_path()} cannot be read ({_reason(error)}): if it is damaged, delete this "
                "version and run the node that makes it again"
            ) from error

    @deferred()
    def save(self, data: Any) -> None:
        """Stores `data` as one new version.

        Raises:
            StoreError: the disk refused, or `data` is nothing that this dataset can write.
        """
        target = Path(self._get_save_path())
        try:
            with whole_file(target) as part:
                self.write(data, part)
            self._commit_or_remove(target)
        except (OSError, DatasetError) as error:
            reason = _reason(error)
            fix = (
                "; free some space, or point data_root to another disk (--params=data_root=/another/folder)"
                if isinstance(reason, OSError)
                else ""
            )
            raise StoreError(f"cannot store {target}: {reason}{fix}. Nothing was stored") from error

    def _commit_or_remove(self, target: Path) -> None:
        try:
            self.commit(target)
        except BaseException:
            target.unlink(missing_ok=True)
            with suppress(OSError):
                target.parent.rmdir()
            raise

    def write(self, data: Any, path: Path) -> None:
        """Writes `data` to `path`, as the dataset behind this class does."""
        beside = self._copy(_version=None, _filepath=PurePosixPath(path))
        super(AtomicFile, beside).save(data)  # type: ignore[misc]


def _reason(error: Exception) -> BaseException:
    """What stands behind an error that Kedro has wrapped.

    Raises:
        RunInterrupted: it is a stop, which is nothing of the file.
    """
    reason = error.__cause__ if isinstance(error, DatasetError) and error.__cause__ is not None else error
    if isinstance(reason, RunInterrupted):
        raise reason
    return reason


class JSONDataset(AtomicFile, json.JSONDataset):  # type: ignore[misc]
    """A JSON file."""


class ParquetDataset(AtomicFile, pandas.ParquetDataset):  # type: ignore[misc]
    """A table of pandas in a Parquet file."""


class TextDataset(AtomicFile, text.TextDataset):  # type: ignore[misc]
    """A text file."""


class FigureDataset(AtomicFile, plotly.JSONDataset):  # type: ignore[misc]
    """A figure of plotly, as JSON."""
