"""The process is prepared alike, whether Kedro built the typed block or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from kedro.io import DataCatalog, MemoryDataset

from worldwise.hooks.environment import EnvironmentHooks
from worldwise.pipelines.parameters import ComputeConfig


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("block", [{"threads": 3}, ComputeConfig(threads=3)])
def test_threads_are_set(block: object) -> None:
    EnvironmentHooks().before_pipeline_run(catalog=DataCatalog({"params:compute": MemoryDataset(block)}))
    assert torch.get_num_threads() == 3


def test_without_a_wish_threads_stay() -> None:
    before = torch.get_num_threads()
    EnvironmentHooks().before_pipeline_run(catalog=DataCatalog({"params:compute": MemoryDataset({})}))
    assert torch.get_num_threads() == before
