"""Embedding and reranking models behind an endpoint, in the dialects of OpenAI, Cohere, Jina, Voyage and TEI.

Text embeddings inference (TEI) is Hugging Face's server. Every reply is checked: one vector or score per text, by index if the
dialect has one, finite, and of the expected length. If a reply fails a check, the request is repeated, then refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import random
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import Broke
from methods.api import Usage
from methods.apps.client import Client
from methods.flow import event_loop, run, together, trace
from methods.models import secrets
from methods.models.connection import connection_variables
from methods.models.endpoint import Fault
from methods.models.limits import Address, budget_of, limiters
from methods.models.usage import spent as usage_of
from methods.retrieval.hosted_config import TASKS, HostedConfig, Side
from methods.work import CHARACTERS

Vectors = NDArray[np.float32]
EMBEDDING, RERANKING = "/embeddings", "/rerank"
_BATCH_CHARACTERS = 400_000
"""Maximum number of characters per request; OpenAI allows 300,000 tokens."""
_LARGEST = 256 * 2**20
_ADVICE = {
    401: "the endpoint refuses the key: check key_variable",
    403: "the endpoint refuses access: check key_variable and model",
    404: "there is nothing at this URL, or no such model: check base_url, dialect and model",
    405: "the endpoint does not take this request: check base_url and dialect",
    413: "the request or a text is too long: set batch_size lower, truncate: true or part_words",
    422: "the endpoint refuses the request: check dialect and model; of texts that are too long, set truncate: true or part_words",
    400: "the endpoint refuses the request: check model, dimensions and parameters; of long texts, set truncate: true or part_words",
}
_KEY = (401, 402)
_HOPELESS = (403, 404, 405)
_TOO_MANY = (400, 413, 422)
"""Statuses with which endpoints refuse a batch that has too many texts or tokens."""


class HostedModel:
    """Client of one hosted embedding or reranking model. Its `async` functions run on the event loop.

    Args:
        config: Options.
    """

    def __init__(self, config: HostedConfig) -> None:
        self.config = config
        self._headers = config.headers()
        self._most = config.batch
        self._answered = False
        self._client = Client(config.concurrency, config.timeout_s, _LARGEST, config.longest_wait_s, _ADVICE)
        address = Address.of(config.base_url, config.key(), config.model)
        self._budget = budget_of(address, None, config.run_usd)
        self._limiter = limiters(address)
        weakref.finalize(self, self._limiter.part, self._limiter.join(config.concurrency))
        weakref.finalize(self, _close, self._client)

    async def embed(self, texts: Sequence[str], side: Side, dimensions: int | None, encoding: str = "float") -> tuple[Vectors, Usage]:
        """Request the vectors of texts, shape (texts, dimension), and their cost.

        Providers refuse empty texts, so a space is sent instead.

        Raises:
            Fault: A request failed for good.
            Broke: No request can succeed.
        """
        config = self.config
        field, task = TASKS.get((config.dialect, side), ("", ""))

        def body(batch: Sequence[str]) -> tuple[str, dict[str, Any]]:
            shared: dict[str, Any] = {"model": config.model, **({field: task} if field else {})}
            match config.dialect:
                case "openai":
                    sized: dict[str, Any] = {"dimensions": dimensions} if dimensions else {}
                    form = {} if encoding == "float" else {"encoding_format": encoding}  # float is the default, and some refuse the field
                    return EMBEDDING, {**shared, "input": batch, **form, **sized}
                case "jina":
                    sized = {"dimensions": dimensions} if dimensions else {}
                    return EMBEDDING, {**shared, "input": batch, "truncate": config.truncate, **sized}
                case "voyage":
                    sized = {"output_dimension": dimensions} if dimensions else {}
                    return EMBEDDING, {**shared, "input": batch, "truncation": config.truncate, **sized}
                case "cohere":
                    sized = {"output_dimension": dimensions} if dimensions else {}
                    cut = "END" if config.truncate else "NONE"
                    return "/embed", {**shared, "texts": batch, "embedding_types": ["float"], "truncate": cut, **sized}
            return "/embed", {"inputs": batch, "truncate": config.truncate, "normalize": False}

        results = await together(
            *(self._split(batch, body, lambda reply, n: _vectors(reply, n, dimensions), side) for batch in self._batches(texts))
        )
        vectors = [part for part, _ in results]
        if len({part.shape[1] for part in vectors}) > 1:
            raise Fault("the endpoint gave vectors of different lengths", "fail")
        return np.concatenate(vectors), sum((usage for _, usage in results), Usage())

    async def score(self, query: str, texts: Sequence[str]) -> tuple[NDArray[np.float64], Usage]:
        """Request the relevance of each text to a query, shape (texts,), and the cost.

        Raises:
            Fault: A request failed for good.
            Broke: No request can succeed.
        """
        config = self.config

        def body(batch: Sequence[str]) -> tuple[str, dict[str, Any]]:
            # Some servers return only the best few unless the request says how many.
            shared = {"model": config.model, "query": query, "documents": batch}
            match config.dialect:
                case "cohere":
                    return RERANKING, {**shared, "top_n": len(batch)}
                case "jina":
                    return RERANKING, {**shared, "top_n": len(batch), "return_documents": False}
                case "voyage":
                    return RERANKING, {**shared, "top_k": len(batch), "truncation": config.truncate}
            return RERANKING, {"query": query, "texts": batch, "truncate": config.truncate, "raw_scores": True}

        results = await together(*(self._split(batch, body, _scores, None) for batch in self._batches(texts)))
        return np.concatenate([part for part, _ in results]), sum((usage for _, usage in results), Usage())

    def _batches(self, texts: Sequence[str]) -> list[list[str]]:
        batches: list[list[str]] = []
        size = 0
        for text in (text or " " for text in texts):
            if not batches or len(batches[-1]) == self._most or size + len(text) > _BATCH_CHARACTERS:
                batches.append([])
                size = 0
            batches[-1].append(text)
            size += len(text)
        return batches

    async def _split(self, batch: list[str], body: Any, parse: Any, side: Side | None) -> tuple[Any, Usage]:
        """Request a batch; if the endpoint rejects it, request halves, because it may have too many texts or tokens.

        Providers report their limits in many wordings and statuses, so the wording is not read. A text that is refused by itself
        fails with its own reason. After halves succeed, later batches have their size.
        """
        try:
            path, fields = body(batch)
            return await self._tried(path, {**fields, **self.config.fields(side)}, len(batch), sum(map(len, batch)), parse)
        except Fault as fault:
            if fault.status not in _TOO_MANY or len(batch) == 1:
                raise
        middle = -(-len(batch) // 2)
        (one, first), (two, second) = [await self._split(half, body, parse, side) for half in (batch[:middle], batch[middle:])]
        self._most = min(self._most, middle)
        return np.concatenate([one, two]), first + second

    async def _tried(self, path: str, body: dict[str, Any], count: int, characters: int, parse: Any) -> tuple[Any, Usage]:
        config = self.config
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        reserved = (0, config.usd(characters // CHARACTERS + count, 1))
        with trace().during(waiting=1):
            if refused := await self._budget.reserve(*reserved):
                raise Fault(refused, "fail")
        spent: float | None = None
        try:
            for number in range(1, config.attempts + 1):
                with trace().during(waiting=1):
                    ticket = await self._limiter.enter(again=number > 1)
                after = None
                try:
                    with trace().during(serving=1):
                        reply, _ = await self._client.send("POST", config.base_url + path, self._headers, content, None)
                        result = parse(reply, count)
                    self._limiter.ended(ticket, "ok")
                    self._answered = True
                    if isinstance(reply, Mapping) and isinstance(served := reply.get("model"), str) and served:
                        trace().endpoints.add((config.model, secrets.hidden(served)[:300], "", ""))
                    tokens = _tokens(reply)
                    usd = _reported(reply)
                    counted = usd is not None or tokens or not config.usd_per_million_tokens
                    usd = config.usd(tokens, _searches(reply)) if usd is None else usd
                    trace().unpriced += not counted
                    spent = usd if counted else reserved[1]
                    return result, Usage(prompt_tokens=tokens, model_calls=number, cost_usd=usd)
                except Fault as fault:
                    self._limiter.ended(ticket, fault.signal, faulty=fault.advice == "retry")
                    after = fault.after
                    unusable = fault.status in _HOPELESS or fault.misdirected
                    # After it answered, a firewall may refuse a single text, which must not end the others.
                    if fault.status in _KEY or (unusable and not self._answered) or (not fault.reached and number == config.attempts):
                        raise self.error(fault.reason) from None
                    if fault.advice != "retry" or number == config.attempts:
                        raise
                finally:
                    self._limiter.leave(after)
                pause = random.uniform(0, config.backoff_s * 2 ** (number - 1)) if after is None else after
                with trace().during(waiting=1):
                    await asyncio.sleep(min(pause, config.longest_wait_s))
        finally:
            self._budget.settle(reserved, None if spent is None else (0, spent))
        raise AssertionError("the last try returns or raises")

    def error(self, reason: str) -> Broke:
        """Build the error that ends a task."""
        hint = "correct base_url, dialect, model or key_variable"
        if way := connection_variables(self.config.base_url):
            hint += f"; or a proxy answers in its place (in effect: {way})"
        return Broke(f"the endpoint cannot be used: {reason}", code="hosted-model-fails", where=self.config.served, try_this=hint)

    def embed_now(self, texts: Sequence[str], side: Side, dimensions: int | None, encoding: str = "float") -> tuple[Vectors, Usage]:
        """Embed texts from synchronous code.

        Raises:
            Broke: A request failed.
        """
        try:
            return run(self.embed(texts, side, dimensions, encoding))
        except Fault as fault:
            raise self.error(fault.reason) from None


def _close(client: Client) -> None:
    if client.connected:
        asyncio.run_coroutine_threadsafe(client.close(), event_loop())


def _indexed(reply: Any, names: Sequence[str], count: int, values: Sequence[str], *, ordered: bool = False) -> list[Any]:
    """Return the values of a reply's items in the order of their `index`.

    Args:
        reply: The reply: a list of items, or an object with one.
        names: Keys under which the list may be.
        count: Number of texts.
        values: Keys under which an item's value may be.
        ordered: Whether items without any index are in the order of the texts, as vectors are, but not results of a reranker.

    Raises:
        Fault: An index is missing, repeated or out of range.
    """
    items = reply
    if isinstance(reply, Mapping):
        items = next((reply[name] for name in names if isinstance(reply.get(name), list)), None)
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise Fault(f"the reply has no list of {names[0]}: {json.dumps(reply)[:120]}", "retry")
    indices = [item.get("index") for item in items]
    if ordered and not any(index is not None for index in indices):
        indices = list(range(len(items)))
    elif ordered:
        indices = [0 if index is None else index for index in indices]  # encoders such as protobuf's leave zeros out
    results = [next((item[name] for name in values if name in item), None) for item in items]
    by_index = {int(index): value for index, value in zip(indices, results, strict=True) if _is_whole(index)}
    if len(items) != count or sorted(by_index) != list(range(count)):
        raise Fault(f"the reply has {len(items)} results with {len(by_index)} different indices for {count} texts", "retry")
    return [by_index[position] for position in range(count)]


def _is_whole(place: Any) -> bool:
    whole_text = isinstance(place, str) and place.isascii() and place.isdigit()
    return whole_text or type(place) is int or (isinstance(place, float) and place.is_integer())


def _vectors(reply: Any, count: int, dimensions: int | None) -> Vectors:
    """Return the vectors of a reply.

    Raises:
        Fault: Vectors are missing or malformed.
    """
    if isinstance(reply, Mapping) and "embeddings" in reply:
        kinds = reply["embeddings"]
        items = kinds.get("float") if isinstance(kinds, Mapping) else None
    elif isinstance(reply, list):
        items = reply
    else:
        items = _indexed(reply, ("data",), count, ("embedding",), ordered=True)
    if not isinstance(items, list) or len(items) != count:
        raise Fault(f"the reply has {len(items) if isinstance(items, list) else 'no'} vectors for {count} texts", "retry")
    try:
        rows = [np.frombuffer(base64.b64decode(item, validate=True), "<f4") if isinstance(item, str) else item for item in items]
        vectors = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError, binascii.Error):
        raise Fault("the reply has vectors that are not lists of numbers of one length", "retry") from None
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise Fault("the reply has vectors that are not lists of numbers of one length", "retry")
    if dimensions and vectors.shape[1] != dimensions:
        raise Fault(f"the vectors have {vectors.shape[1]} components, and dimensions is {dimensions}", "fail")
    if not np.isfinite(vectors).all() or not np.abs(vectors).max(axis=1).all():
        raise Fault("the reply has vectors with NaN, infinity or zeros only", "retry")
    return vectors


def _scores(reply: Any, count: int) -> NDArray[np.float64]:
    """Return the scores of a reply.

    Raises:
        Fault: Scores are missing or not finite.
    """
    try:
        scores = np.array(_indexed(reply, ("results", "data"), count, ("relevance_score", "score")), dtype=np.float64)
    except (TypeError, ValueError):
        raise Fault("the reply has scores that are not numbers", "retry") from None
    if not np.isfinite(scores).all():
        raise Fault("the reply has scores that are missing, NaN or infinite", "retry")
    return scores


def _reported(reply: Any) -> float | None:
    """Return the cost in dollars that a reply reports (OpenRouter's), or None."""
    return usage_of(reply.get("usage")).cost_usd if isinstance(reply, Mapping) else None


def _searches(reply: Any) -> int:
    """Return the number of searches that a request is billed as: Cohere counts one per 100 passages, and long passages as several."""
    units = reply.get("meta") if isinstance(reply, Mapping) else None
    units = units.get("billed_units") if isinstance(units, Mapping) else None
    number = units.get("search_units") if isinstance(units, Mapping) else None
    return int(number) if isinstance(number, int | float) and 1 <= number < 1e6 else 1


def _tokens(reply: Any) -> int:
    """Return the number of tokens that a reply reports, or 0."""
    if not isinstance(reply, Mapping):
        return 0
    usage, meta = reply.get("usage"), reply.get("meta")
    units = meta.get("billed_units") if isinstance(meta, Mapping) else None
    counts = [
        part.get(name) for part in (usage, units) if isinstance(part, Mapping) for name in ("total_tokens", "prompt_tokens", "input_tokens")
    ]
    return next((int(number) for number in counts if isinstance(number, int | float) and 0 <= number < 1e15), 0)
