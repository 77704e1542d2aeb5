"""Options of a model behind an endpoint: its dialect, key, prices and revision."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from methods.models import secrets
from methods.models.connection import base_url_of, json_fields, require_headers
from methods.models.revision import DESCRIPTION, Probe, Revision, ask, fetch
from methods.registry import MethodConfig
from methods.work import Use, Work, unknown

Side = Literal["query", "passage"]
_DEFAULTS: Mapping[str, tuple[str | None, str | None, int]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY", 256),
    "cohere": ("https://api.cohere.com/v2", "COHERE_API_KEY", 96),
    "jina": ("https://api.jina.ai/v1", "JINA_API_KEY", 128),
    "voyage": ("https://api.voyageai.com/v1", "VOYAGE_API_KEY", 128),
    "tei": (None, None, 32),
}
"""Defaults per dialect: base URL, variable of the key, and maximum number of texts per request."""
TASKS: Mapping[tuple[str, Side], tuple[str, str]] = {
    ("cohere", "query"): ("input_type", "search_query"),
    ("cohere", "passage"): ("input_type", "search_document"),
    ("jina", "query"): ("task", "retrieval.query"),
    ("jina", "passage"): ("task", "retrieval.passage"),
    ("voyage", "query"): ("input_type", "query"),
    ("voyage", "passage"): ("input_type", "document"),
}
"""Request field and value that mark queries and passages."""
_SIDES = frozenset({"query", "queries", "question", "passage", "passages", "document", "documents", "doc", "corpus"})
_INFO_S = 10.0
_OWN = frozenset({"model", "input", "inputs", "texts", "query", "documents", "top_n", "top_k", "encoding_format", "stream"})


class HostedConfig(MethodConfig):
    """Options of a model behind an endpoint. Options that affect only speed or cost are left out of fingerprints."""

    default_extra = "llm"

    model: str = Field(description="the model's name at the endpoint")
    dialect: Literal["openai", "cohere", "jina", "voyage", "tei"] = Field("openai", description="API dialect of the endpoint")
    base_url: str = Field("", description="address with its version, such as http://localhost:8000/v1; default: the provider's")
    key_variable: str | None = Field(
        None, description="environment variable of the key; null: no key; default: the provider's", exclude=True
    )
    truncate: bool = Field(False, description="let the endpoint cut texts that are too long; false: the endpoint refuses them")
    parameters: dict[str, Any] = Field(
        default={}, description="additional fields of every request; of an embedding model, {query: …, passage: …} is a value per side"
    )
    batch_size: int = Field(0, ge=0, description="maximum texts per request; 0: the provider's limit", exclude=True)
    concurrency: int = Field(8, ge=1, description="maximum concurrent requests", exclude=True)
    timeout_s: float = Field(120.0, gt=0, description="time limit for a reply", exclude=True)
    attempts: int = Field(8, ge=1, description="attempts per request, for errors that a retry may fix", exclude=True)
    backoff_s: float = Field(1.0, ge=0, description="maximum pause before the second try; doubles with each try", exclude=True)
    longest_wait_s: float = Field(120.0, ge=0, description="maximum pause that the endpoint may ask for (Retry-After)", exclude=True)
    usd_per_million_tokens: float = Field(0.0, ge=0, description="price of tokens", exclude=True)
    usd_per_call: float = Field(0.0, ge=0, description="price of a request, for providers that bill searches", exclude=True)
    run_usd: float | None = Field(None, ge=0, description="maximum dollars in one execution of a task", exclude=True)
    revision: Revision = Field(
        None, description=f"{DESCRIPTION}; null: for dialect tei, `model_sha` in /info, else `model_id`", exclude=True
    )

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        url, key, _ = _DEFAULTS.get(str(value.get("dialect", "openai")), ("", None, 0))
        # The provider's key goes to the provider's address only.
        own = {"key_variable": key} if not value.get("base_url") else {}
        return {**own, **value, "base_url": str(value.get("base_url") or url or "").rstrip("/")}

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        return base_url_of(value)

    @field_validator("parameters")
    @classmethod
    def _further(cls, value: dict[str, Any]) -> dict[str, Any]:
        if packed := next((name for name, item in value.items() if "binary" in json.dumps(item, default=str)), None):
            raise ValueError(f"parameters.{packed} must not ask for binary vectors: bits in bytes are not compared as bits")
        return json_fields(value, _OWN)

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
            raise ValueError("key_variable is the name of an environment variable in capitals, never the key itself")
        return value

    @property
    def batch(self) -> int:
        """Return the maximum number of texts per request."""
        return self.batch_size or _DEFAULTS[self.dialect][2]

    @property
    def served(self) -> str:
        """Name the endpoint and model for provenance and messages."""
        return f"{self.model} at {self.base_url}"

    def key(self) -> str:
        """Return the key, "" for none.

        Raises:
            UserError: The variable is not set.
        """
        if self.key_variable is None:
            return ""
        if not (key := os.environ.get(self.key_variable, "").strip()):
            raise UserError(
                f"no key for the model {self.model!r}: the environment variable {self.key_variable} is not set",
                code="missing-variable",
                where="key_variable",
                try_this=f"export {self.key_variable}=…, or key_variable: null for an endpoint that wants no key",
            )
        require_headers({"authorization": key}, self.key_variable)
        return key

    def headers(self) -> dict[str, str]:
        """Return the headers of a request."""
        key = self.key()
        return {"content-type": "application/json", **({"authorization": f"Bearer {secrets.use(key)}"} if key else {})}

    def preflight(self) -> None:
        """Check that the key is set."""
        self.key()

    def checkpoint_hash(self) -> str:
        """Return a hash of the address, the model and its revision.

        Raises:
            Broke: The revision cannot be read.
        """
        text = self.revision or ""
        if isinstance(self.revision, Probe):
            text = _resolved(self.revision.model_dump_json(), self.base_url, self.key_variable)
        elif self.revision is None and self.dialect == "tei":
            text = stated_by(self.base_url, self.key_variable)
        return fingerprint("hosted", self.base_url, self.model, text)

    def fields(self, side: Side | None) -> dict[str, Any]:
        """Return the additional fields of a request, those with a value per side with that of `side`; None: a reranker's request."""
        return {name: of_side(value, side) for name, value in self.parameters.items()} if side else self.parameters

    def usd(self, tokens: int, calls: int) -> float:
        """Return dollars by the configured prices."""
        return tokens * self.usd_per_million_tokens / 1e6 + calls * self.usd_per_call

    def work(self, texts: float, length: float, calls: float) -> Work:
        """Estimate the work of sending texts of a given length in tokens."""
        usd = self.usd(round(texts * length), round(calls))
        use = Use(self.model, calls=calls, prompt=texts * length, dtype="auto", where="away" if self.key_variable else "served")
        priced = usd or not self.key_variable
        return Work((use,), usd=usd) + (Work() if priced else unknown(f"dollars of {self.model}: no price is set"))


def of_side(value: Any, side: Side) -> Any:
    """Return a request's field with the value of a side, wherever it or a field in it has a value per side.

    Raises:
        ValueError: An object has fields for one side only, or under other names, so both sides would be embedded alike.
    """
    if not isinstance(value, dict):
        return value
    if set(value) == set(get_args(Side)):
        return value[side]
    if sides := sorted(name for name in value if str(name).lower() in _SIDES):
        raise ValueError(f"names the side {', '.join(sides)}: a value per side is {{query: …, passage: …}}, with both and no others")
    return {name: of_side(item, side) for name, item in value.items()}


@lru_cache(maxsize=256)
def _resolved(probe: str, url: str, key_variable: str | None) -> str:
    return ask(Probe.model_validate_json(probe), (url,), _authorization(key_variable))


@lru_cache(maxsize=256)
def stated_by(url: str, key_variable: str | None) -> str:
    """Return what a TEI server states about its model: the revision that it was started with, else the model's name or folder.

    Returns:
        "" if the server has no /info, like others with TEI's dialect.

    Raises:
        Broke: The server does not answer, or refuses.
    """
    place = f"{url}/info"
    try:
        answer = fetch(place, _authorization(key_variable), _INFO_S)
        if answer.status in (404, 405, 501):
            return ""
        answer.require()
        info = answer.json()
    except ValueError as error:
        raise Broke(
            f"the revision cannot be read from {place}: {error}",
            code="unreadable-revision",
            try_this="correct base_url, or state `revision`",
        ) from None
    stated = [info.get(name) for name in ("model_sha", "model_id")] if isinstance(info, dict) else []
    return next((text for text in stated if isinstance(text, str) and text), "")


def _authorization(key_variable: str | None) -> dict[str, str]:
    key = os.environ.get(key_variable or "", "").strip()
    return {"authorization": f"Bearer {key}"} if key else {}
