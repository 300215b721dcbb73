"""Sizes and times in words."""

from __future__ import annotations

from datetime import UTC, datetime


def size(count: float) -> str:
    """`512 B`, `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(moment: str, now: datetime | None = None) -> str:
    """How long ago an ISO time was: `3 hours ago`, `in the future` where the clock went backwards."""
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(moment)).total_seconds()
    if seconds < -1:
        return "in the future"
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
