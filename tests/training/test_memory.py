"""Freed memory goes back to the system."""

from __future__ import annotations

import platform

import numpy as np
import psutil
import pytest

from worldwise.training.memory import release_freed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give memory back by themselves")
def test_gaps_between_live_blocks_are_given_back():
    process = psutil.Process()
    # Blocks below the size that glibc maps on their own; every second one stays, so that the heap cannot shrink.
    blocks = [np.ones(10_000) for _ in range(4000)]
    kept = blocks[::2]
    del blocks
    before = process.memory_info().rss
    release_freed()
    assert before - process.memory_info().rss > 80_000_000
    assert all(block[0] == 1.0 for block in kept)
