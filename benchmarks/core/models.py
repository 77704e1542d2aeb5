"""The base of options and cards that are read from files."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class FrozenModel(BaseModel):
    """Values that never change; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LaterOptions(FrozenModel):
    """Options of which some came later: at their default they are left out, so that what was made before keeps its identity."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {name: value for name, value in dump(self).items() if name not in self.later or value != fields[name].default}
