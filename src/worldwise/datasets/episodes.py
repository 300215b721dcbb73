"""Episodes as a versioned folder of columnar shards."""

from __future__ import annotations

import json
from pathlib import Path

from worldwise.datasets.folder import FolderDataset, FolderError
from worldwise.episodes.store import DamagedError, count_episodes


class EpisodesDataset(FolderDataset):
    """Shards as `worldwise.episodes.store` writes them. Stages stream them in and out by the folder's path."""

    def check(self, folder: Path) -> None:
        super().check(folder)
        if not any(folder.glob("*.parquet")):
            raise FolderError(f"{folder} holds no shard of episodes (*.parquet)")
        try:
            count_episodes(folder)
        except DamagedError as error:
            raise FolderError(str(error)) from error

    def summary(self, folder: Path) -> str:
        import pyarrow.parquet as parquet

        shards = sorted(folder.glob("*.parquet"))
        rows = {path.name: parquet.ParquetFile(path).metadata.num_rows for path in shards}
        columns = parquet.ParquetFile(shards[0]).schema_arrow.names
        return json.dumps({"rows": sum(rows.values()), "shards": rows, "columns": columns})
