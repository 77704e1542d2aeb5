"""The base of options and cards that are read from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator


class FrozenModel(BaseModel):
    """Values that never change; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RetiredOptions(FrozenModel):
    """Options of which some were removed: a file that still states one at the value that holds now is read.

    Attributes:
        retired: From the removed options to that value. With another value they are unknown keys.
    """

    retired: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, options: Any) -> Any:
        if not cls.retired or not isinstance(options, Mapping):
            return options
        return {name: value for name, value in options.items() if name not in cls.retired or value != cls.retired[name]}


class LaterOptions(FrozenModel):
    """Options of which some came later: at their default they are left out, so that what was made before keeps its identity."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {name: value for name, value in dump(self).items() if name not in self.later or value != fields[name].default}
