"""Results that a report shows where they are stored and goes without where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedro_datasets._typing import JSONPreview

from worldwise.datasets.atomic import JSONDataset
from worldwise.datasets.episodes import EpisodesDataset

_ABSENT = '"nothing is stored yet"'


class OptionalJSONDataset(JSONDataset):
    """A JSON file; loading gives None while nothing is stored."""

    def load(self) -> Any:
        return super().load() if self.exists() else None

    def preview(self) -> JSONPreview:
        """What kedro-viz shows; it goes by the name of the return type."""
        return super().preview() if self.exists() else JSONPreview(_ABSENT)


class OptionalEpisodesDataset(EpisodesDataset):
    """Episodes; loading gives None while none are stored."""

    def load(self) -> Path | None:  # type: ignore[override]
        return super().load() if self.exists() else None

    def preview(self) -> JSONPreview:
        """What kedro-viz shows; it goes by the name of the return type."""
        return super().preview() if self.exists() else JSONPreview(_ABSENT)
