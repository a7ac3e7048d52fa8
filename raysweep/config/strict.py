"""Strict, frozen configuration models."""

from typing import TYPE_CHECKING

from pydantic import (
    BaseModel,
    ConfigDict,
)

if TYPE_CHECKING:
    pass


class Frozen(BaseModel):
    """Strict and immutable: no unknown keys, no silent conversions beyond int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
