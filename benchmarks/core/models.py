"""The base of options and cards that are read from files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Values that never change; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
