"""Request JSON replies of a given shape, and read them.

JSON is requested by schema if the endpoint offers it, else as a JSON object, else only in the prompt. It is read tolerantly
(code fences, surrounding prose, trailing commas, truncated ends, misspelled field names), but values are never guessed: a
value that does not fit the pydantic model is a failure with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from benchmarks.core.errors import MissingPackage, described
from methods.models.bounded import mended

WAYS = ("json_schema", "json_object", "prompt")
"""Ways to request JSON, in order of preference."""
MIN_SIMILARITY = 85.0
"""Minimum similarity (0 to 100) at which a misspelled field name is accepted."""
_REFUSED = re.compile(
    r"response_format|response format|json_schema|json_object|json mode|structured|guided|schema|grammar"
    r"|output_format|output_config|formatted output|requested parameters",
    re.I,
)
"""Words of refusals; OpenRouter (404) says that no endpoint has the requested parameters."""
_FENCE = re.compile(r"```(?:json)?\s*(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)

_FENCES = 16
"""Maximum number of code blocks read per reply."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """Parsed reply.

    Attributes:
        value: The object, None if the reply could not be parsed.
        failed: Reason why it could not be parsed.
        repaired: Whether it was not plain JSON of the right shape.
    """

    value: M | None
    failed: str | None = None
    repaired: bool = False


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema for strict modes of endpoints: every field required, no other fields allowed.

    Docstrings of classes are left out. They are written for readers of the code, and a changed word in them would change the request.
    Descriptions of fields are kept.
    """

    def strict(node: Any) -> Any:
        if isinstance(node, list):
            return [strict(item) for item in node]
        if not isinstance(node, dict):
            return node
        node = {key: strict(value) for key, value in node.items() if key != "default"}
        if node.get("type") == "object" and "properties" in node:
            node["required"] = list(node["properties"])
            node["additionalProperties"] = False
            node.pop("description", None)
        return node

    return dict(strict(model.model_json_schema()))


def asked(
    way: str, messages: Sequence[Mapping[str, str]], name: str, schema: Mapping[str, Any]
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Return the conversation and extra request fields that ask for JSON in one of `WAYS`."""
    conversation = [dict(message) for message in messages]
    if way == "json_schema":
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": True}}
        return conversation, {"response_format": form}
    text = json.dumps(schema, ensure_ascii=False)
    conversation[-1]["content"] += f"\n\nReply with one JSON object that fits this JSON schema, and nothing else:\n{text}"
    return conversation, {"response_format": {"type": "json_object"}} if way == "json_object" else {}


def refuses(status: int | None, reason: str) -> bool:
    """Return whether an endpoint's error means that it rejects this way of requesting JSON."""
    return status in (400, 404, 412, 415, 422, 500, 501) and bool(_REFUSED.search(reason))


def parse(text: str, model: type[M]) -> Parsed[M]:
    """Parse a reply as JSON of the given shape, repairing it if possible.

    Raises:
        MissingPackage: The reply needs repair, and the package for it is not installed.
    """
    try:
        return Parsed(model.model_validate_json(text))
    except ValidationError:
        pass
    failed = "the reply holds no JSON object"
    fences = [match[1].strip() for match in islice(_FENCE.finditer(text), _FENCES)]
    start = text.find("{")
    for candidate in [*fences, text[start:] if start >= 0 else ""]:
        if "{" not in candidate:
            continue
        try:
            result = mended(candidate, "reading a reply that is not plain JSON")
        except ValueError as error:
            failed = f"the reply cannot be read: {error}"
            continue
        # Several objects in a row come as a list; the last is the final one of a model that reasoned in its reply.
        for value in reversed(result) if isinstance(result, list) else [result]:
            if not isinstance(value, dict) or not value:
                continue
            try:
                return Parsed(model.model_validate(_name_fields(value, model)), repaired=True)
            except ValidationError as error:
                position, wrong = described(error)
                failed = f"the reply's JSON does not fit: {position}: {wrong}" if position else wrong
    return Parsed(None, failed)


def _name_fields(value: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Correct the letter case and misspellings of field names to the model's names, without changing values."""
    known = {name: field.alias or name for name, field in model.model_fields.items()}
    wanted = set(known.values())
    missing = {_plain(name): name for name in wanted - set(value)}
    if not missing:
        return value
    renamed = {}
    for key, item in value.items():
        name = key if key in wanted else _closest(str(key), missing)
        renamed[name if name not in renamed else key] = item
    return renamed


def _closest(key: str, missing: Mapping[str, str]) -> str:
    plain = _plain(key)
    if plain in missing:
        return missing[plain]
    try:
        from rapidfuzz import fuzz, process
    except ImportError as error:
        raise MissingPackage("rapidfuzz", "llm", "reading a reply with misspelled field names") from error
    result = process.extractOne(plain, list(missing), scorer=fuzz.ratio, score_cutoff=MIN_SIMILARITY)
    return missing[result[0]] if result else key


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
