"""Base classes of options and cards that are read from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)


class FrozenModel(BaseModel):
    """Immutable pydantic model that rejects unknown keys, NaN and infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_number_from_boolean(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        result = validate(value)
        if isinstance(value, bool) and isinstance(result, int | float) and not isinstance(result, bool):
            raise ValueError(f"must be a number, not {str(value).lower()} (YAML reads yes, no, on and off as true and false)")
        return result


class RetiredOptions(FrozenModel):
    """Options class with removed options: files that set a removed option to its retired value are still accepted.

    Attributes:
        retired: Removed options with the only accepted value. Any other value is an unknown key.
    """

    retired: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, options: Any) -> Any:
        if not cls.retired or not isinstance(options, Mapping):
            return options
        return {name: value for name, value in options.items() if name not in cls.retired or value != cls.retired[name]}


class LaterOptions(FrozenModel):
    """Options class with options added later: at their defaults they are left out of dumps, so that old fingerprints stay
    valid.
    """

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {name: value for name, value in dump(self).items() if name not in self.later or value != fields[name].default}
