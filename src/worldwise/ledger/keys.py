"""The key of a node: a digest of everything that decides what it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from worldwise.config import Cosmetic
from worldwise.ledger.digests import digest_of
from worldwise.ledger.manifest import InputEntry, Provenance


@dataclass(frozen=True)
class NodeKey:
    """What decides the outputs of a node.

    Attributes:
        node: its name.
        code: module -> digest, see `ledger.code`.
        parameters: flat name -> value as text, those that change results.
        raw: what it reads outside of the catalog -> digest.
        inputs: dataset -> what will be read of it.
    """

    node: str
    code: Mapping[str, str]
    parameters: Mapping[str, str]
    raw: Mapping[str, str]
    inputs: Mapping[str, InputEntry]

    @property
    def digest(self) -> str:
        """Equal for runs that promise equal results, whatever the names of the versions they read."""
        inputs = {name: entry.digest for name, entry in self.inputs.items()}
        return digest_of([self.node, dict(self.code), dict(self.parameters), dict(self.raw), inputs])

    def made(self, **others: Any) -> Provenance:
        """What a manifest says of this key."""
        return Provenance(
            node=self.node,
            key=self.digest,
            code=dict(self.code),
            parameters=dict(self.parameters),
            raw=dict(self.raw),
            inputs=dict(self.inputs),
            **others,
        )


def semantic(name: str, value: Any) -> dict[str, str]:
    """A parameter as flat names and texts, without what is marked as `COSMETIC`."""
    return dict(_leaves(name, value))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        for field, info in type(value).model_fields.items():
            if not any(isinstance(mark, Cosmetic) for mark in info.metadata):
                yield from _leaves(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        inner = [dict(_leaves("", own)) for own in value]
        yield name, str([own.get("", own) for own in inner])
    else:
        yield name, repr(value)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`policy.iterations from 30 to 40`, sorted by name."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old != new:
            found.append(f"{name} from {'nothing' if old is None else old} to {'nothing' if new is None else new}")
    return found
