"""Replies that must be JSON of a given shape: how they are asked for, and how they are read.

Asked for by JSON schema where the endpoint offers it, else as a JSON object, else in the prompt alone. Read
tolerantly (fences, prose around, trailing commas, truncated ends, misspelt field names), but values are never
guessed: what does not fit the pydantic model is a failure that says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from benchmarks.errors import MissingPackage
from benchmarks.wording import told_of

WAYS = ("json_schema", "json_object", "prompt")
"""In order of preference."""
LIKENESS = 85.0
"""Least similarity (0 to 100) of a misspelt field name to the one it is taken for."""
_REFUSED = re.compile(r"response_format|response format|json_schema|json_object|json mode|structured|guided|schema", re.I)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """What a reply says.

    Attributes:
        value: The object, None where the reply could not be read.
        failed: Why it could not.
        repaired: Whether it was not plain JSON of the right shape.
    """

    value: M | None
    failed: str | None = None
    repaired: bool = False


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON schema as endpoints' strict modes want it: every field required, none besides."""

    def strict(node: Any) -> Any:
        if isinstance(node, list):
            return [strict(item) for item in node]
        if not isinstance(node, dict):
            return node
        node = {key: strict(value) for key, value in node.items() if key != "default"}
        if node.get("type") == "object" and "properties" in node:
            node["required"] = list(node["properties"])
            node["additionalProperties"] = False
        return node

    return dict(strict(model.model_json_schema()))


def asked(
    way: str, messages: Sequence[Mapping[str, str]], name: str, schema: Mapping[str, Any]
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """A conversation and the further request fields that ask for JSON in one of `WAYS`."""
    conversation = [dict(message) for message in messages]
    if way == "json_schema":
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": True}}
        return conversation, {"response_format": form}
    text = json.dumps(schema, ensure_ascii=False)
    conversation[-1]["content"] += f"\n\nReply with one JSON object that fits this JSON schema, and nothing else:\n{text}"
    return conversation, {"response_format": {"type": "json_object"}} if way == "json_object" else {}


def refuses(status: int | None, reason: str) -> bool:
    """Whether an endpoint's complaint is about the way that JSON was asked for."""
    return status in (400, 415, 422, 501) and bool(_REFUSED.search(reason))


def parse(text: str, model: type[M]) -> Parsed[M]:
    """Read a reply.

    Raises:
        MissingPackage: It is not plain JSON, and what could repair it is not installed.
    """
    try:
        return Parsed(model.model_validate_json(text))
    except ValidationError:
        pass
    try:
        import json_repair
    except ImportError as error:
        raise MissingPackage("json-repair", "llm", "reading a reply that is not plain JSON") from error
    failed = "the reply holds no JSON object"
    fences = [match.strip() for match in _FENCE.findall(text)]
    start = text.find("{")
    for candidate in [*fences, text[start:] if start >= 0 else ""]:
        if "{" not in candidate:
            continue
        found = json_repair.loads(candidate)
        # Several objects in a row come as a list; the last is what a model that thought aloud settled on.
        for value in reversed(found) if isinstance(found, list) else [found]:
            if not isinstance(value, dict) or not value:
                continue
            try:
                return Parsed(model.model_validate(_named(value, model)), repaired=True)
            except ValidationError as error:
                place, wrong = told_of(error)
                failed = f"the reply's JSON does not fit: {place}: {wrong}" if place else wrong
    return Parsed(None, failed)


def _named(value: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Field names as the model has them: letter case and near misses forgiven, values untouched."""
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
        raise MissingPackage("rapidfuzz", "llm", "reading a reply with misspelt field names") from error
    found = process.extractOne(plain, list(missing), scorer=fuzz.ratio, score_cutoff=LIKENESS)
    return missing[found[0]] if found else key


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
