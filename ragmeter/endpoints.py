"""One table of endpoints per experiment: where each served model is, and the variable that holds its key.

    endpoints:
      gemini-2.5-flash: {base_url: "https://…/v1beta/openai", key_variable: GEMINI_API_KEY}

Every `llm:` of the file that names such a model gets its address, unless it states one itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from benchmarks.core.models import FrozenModel
from ragmeter.yaml_source import Source

KEY = "endpoints"
_LLM = "llm"


class EndpointSpec(FrozenModel):
    """Named endpoint of an experiment file (`endpoints:`): the address at which a model is served."""

    base_url: str = Field(description="e.g. http://localhost:8000/v1")
    key_variable: str | None = Field(None, description="environment variable that holds the key; null: the endpoint needs none")


def addressed(source: Source) -> Source:
    """Insert the addresses of the file's `endpoints` table into its models; return the file unchanged without a table."""
    table = source.value.get(KEY)
    if not isinstance(table, Mapping):
        return source

    def fill(value: Any, key: str = "") -> Any:
        if isinstance(value, list):
            return [fill(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        filled = {name: fill(item, str(name)) for name, item in value.items()}
        own = table.get(filled.get("model")) if key == _LLM and isinstance(filled.get("model"), str) else None
        return {"key_variable": None, **own, **filled} if isinstance(own, Mapping) and "base_url" not in filled else filled

    kept = (KEY, "profiles")
    return replace(source, value={name: item if name in kept else fill(item) for name, item in source.value.items()})
