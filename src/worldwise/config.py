"""The base of every configuration, and the one way seeds are derived."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class FrozenConfig(BaseModel):
    """An immutable parameter block that refuses unknown keys and loose types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class Cosmetic:
    """Marks a field of a configuration that changes no result: `threads: Annotated[int, COSMETIC]`.

    What is stored stays valid when such a field changes.
    """


COSMETIC = Cosmetic()


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from named parts, for example (seed, "collect", iteration, task_id, sample, turn).

    Equal parts give equal seeds on every machine, so results do not depend on the number
    of workers nor on the order in which episodes are played.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
