"""The base of every configuration, and the one way seeds are derived."""

from __future__ import annotations

import hashlib
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class FrozenConfig(BaseModel):
    """An immutable parameter block that refuses unknown keys, and true and false where numbers are wanted.

    Text that reads as a number is taken as one, as YAML and command lines have it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name is not None:
            kinds = _kinds(cls.model_fields[info.field_name].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("number", "input should be a number, not true or false")
        return value


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation allows; those inside of containers are none of them."""
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*(_kinds(part) for part in get_args(annotation)))
    return {annotation}


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
