"""Nested values as the flat names that trackers know."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_NOT_IN_NAMES = re.compile(r"[^\w\-./ ]")


def plain(value: Any) -> Any:
    """`value` with pydantic models turned into what JSON can say."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def flatten(prefix: str, value: Any) -> dict[str, Any]:
    """`{"policy": {"clip": {"low": 0.2}}}` as `{"policy.clip.low": 0.2}`; lists and scalars are leaves."""
    content = plain(value)
    if not isinstance(content, Mapping):
        return {prefix: content}
    flat: dict[str, Any] = {}
    for key, inner in content.items():
        flat.update(flatten(f"{prefix}.{key}" if prefix else str(key), inner))
    return flat


def numbers(prefix: str, value: Any) -> dict[str, float]:
    """The finite numbers among the flattened leaves, under names that MLflow accepts."""
    return {
        _NOT_IN_NAMES.sub("_", name): float(leaf)
        for name, leaf in flatten(prefix, value).items()
        if isinstance(leaf, int | float) and not isinstance(leaf, bool) and math.isfinite(leaf)
    }
