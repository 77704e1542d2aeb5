"""Guess options of the method `http` for an unknown app, by sending one question and inspecting the reply.

Request bodies are tried until the app accepts one. Fields of the reply are recognized by the names of keys; others are ignored.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from benchmarks.schema import Query
from methods.api import Prediction
from methods.apps.client import Client, excerpt
from methods.apps.http import PRESETS, HttpConfig
from methods.apps.paths import Path, shape
from methods.apps.reply import TEXTS, BadReply, completion_of, fields_of
from methods.apps.stated import is_error, parts_completion, stated_error
from methods.apps.template import fill
from methods.models.endpoint import Fault
from methods.models.reply import read

FIELDS = ("question", "query", "input", "message", "prompt", "text", "q")
"""Common names of the question field in requests, the most likely first; `question` is the default of the method."""
ANSWERS = (
    *("final_answer", "answer", "response", "output", "output_text", "result", "reply", "completion", "generated_text", "prediction"),
    *("summary", "text", "textresponse", "content", "message"),
)
_PARTS = ("content", "output", "candidates[0].content.parts", "messages[-1].content")
"""Paths to messages of Anthropic, OpenAI's Responses, Gemini and LangGraph, which may have parts."""
_HISTORIES = ("messages", "history", "chat_history", "turns")
_STATUS_WORDS = frozenset({"ok", "success", "successful", "succeeded", "done", "completed"})
CONTEXTS = (
    *("contexts", "context", "retrieved_contexts", "source_documents", "documents", "docs", "passages", "chunks", "sources"),
    *("source_nodes", "nodes", "results", "search_results", "hits", "matches", "retrieved", "references", "citations", "evidence"),
)
_INNER = ("document", "node", "chunk", "payload", "doc", "passage", "metadata")
_IDS = ("id", "_id", "id_", "chunk_id", "doc_id", "document_id")
_URLS = ("url", "uri", "link", "source")
_SCORES = ("score", "relevance_score", "similarity")
_PROMPT = ("prompt_tokens", "input_tokens")
_COMPLETION = ("completion_tokens", "output_tokens")
_COSTS = ("cost_usd", "cost", "usd", "total_cost", "total_cost_usd")
_NO_ANSWERS = ("error", "errors", "detail", "status", "id", "code", "model", "object", "session_id", "request_id", "trace_id")
"""Keys that are never taken as the answer."""
_DEPTH = 4
_TIMEOUT_S, _LARGEST = 60.0, 8 * 2**20


@dataclass(frozen=True)
class Trial:
    """Result of sending one question to an app.

    Attributes:
        options: Guessed options of the method `http`, without the URL; empty if no answer was found.
        prediction: Prediction that these options extract from the reply; None without an answer.
        problem: Reason why there are no options; "" if there are some.
        requests: Number of requests.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    prediction: Prediction | None = None
    problem: str = ""
    requests: int = 0


def try_app(url: str, question: str) -> Trial:
    """Send one question to an app, in several request formats if necessary, and guess where the answer and contexts are.

    Raises:
        pydantic.ValidationError: The URL is invalid, or contains a secret.
    """
    HttpConfig.model_validate({"url": url, "body": "{{question}}"})
    return asyncio.run(_tried(url, Query("trial", question)))


def _requests(url: str) -> Iterator[dict[str, Any]]:
    """Yield request options to try, the most likely first."""
    if "{{" in url:
        yield {"method": "GET"}
        return
    chat = {"body": {"messages": "{{messages}}"}}
    if "/chat" in url:
        yield chat
    yield {}  # the method's default: {question: "{{question}}"}
    yield from ({"body": {name: "{{question}}"}} for name in FIELDS[1:])
    if "/chat" not in url:
        yield chat


async def _tried(url: str, query: Query) -> Trial:
    client, problem, number = Client(1, _TIMEOUT_S, _LARGEST, 0.0), "", 0
    try:
        for options in _requests(url):
            number += 1
            config = HttpConfig.model_validate({"url": url, **options})
            content = None if config.template is None else json.dumps(fill(config.template, query)).encode()
            headers = {"user-agent": "ragmeter", **({} if content is None else {"content-type": "application/json"})}
            try:
                document, _ = await client.send(config.method, fill(url, query, quoted=True), headers, content, None)
            except Fault as fault:
                problem = problem or fault.reason
                if fault.status not in (400, 422):
                    break
                continue
            if isinstance(document, Mapping) and (stated := stated_error(document)):
                problem = problem or f"the reply reports an error: {excerpt(json.dumps(stated, ensure_ascii=False))}"
                continue
            paths = guess(document)
            if paths:
                return _read(document, {**options, **paths}, number)
            problem = f"no answer is known in the reply, which is {shape(document)}"
        return Trial(problem=problem, requests=number)
    finally:
        if client.connected:
            await client.close()


def _read(document: Any, options: Mapping[str, Any], number: int) -> Trial:
    """Extract answer and contexts from a reply with guessed options."""
    config = HttpConfig.model_validate({"url": "http://app/{{question}}", **PRESETS.get(options.get("preset", ""), {}), **_plain(options)})
    try:
        content = read(completion_of(document, config.answer))
        if content.failed is not None:
            raise BadReply(content.failed)
        if is_error(content.text):
            raise BadReply(f"its answer is an error: {excerpt(content.text)}")
        return Trial(options, Prediction("trial", content.text, **fields_of(document, config, content.text)), requests=number)
    except BadReply as error:
        return Trial(problem=f"the reply cannot be used: {error}", requests=number)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "preset"}


def guess(document: Any) -> dict[str, Any]:
    """Return options that locate answer, contexts, usage and cost in a reply; empty if no answer is recognized."""
    if isinstance(document, str):
        return {"answer": "$"} if document.strip() else {}
    if preset := _preset(document):
        return {"preset": preset}
    if document and isinstance(document, list):
        document, start = document[0], "[0]"
    else:
        start = ""
    if not isinstance(document, Mapping):
        return {}
    leaves = list(_leaves(document, start))
    answer = _message(document) if not start else None
    answer = answer or _best(leaves, ANSWERS, lambda value: isinstance(value, str) and value.strip().lower() not in ("", *_STATUS_WORDS))
    unlikely = (*_NO_ANSWERS, *CONTEXTS)
    texts = [path for path, key, value in leaves if isinstance(value, str) and value.strip() and key not in unlikely]
    if answer is None and len(texts) == 1:
        answer = texts[0]
    if answer is None:
        return {}
    options: dict[str, Any] = {} if answer == "answer" else {"answer": answer}
    if contexts := _contexts(leaves):
        options["contexts"] = contexts
    counts = {"prompt_tokens": _best(leaves, _PROMPT, _is_count), "completion_tokens": _best(leaves, _COMPLETION, _is_count)}
    if usage := {name: f"{path}?" for name, path in counts.items() if path}:
        options["usage"] = usage
    if cost := _best(leaves, _COSTS, lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        options["cost"] = f"{cost}?"
    return options or {"answer": "answer"}


def _message(document: Mapping[str, Any]) -> str | None:
    """Return the path of a message in parts, or of the last one of a conversation."""
    for place in _PARTS:
        value = next(iter(Path.of(f"{place}?").find(document)), None)
        if parts_completion(document, value) is not None or (isinstance(value, str) and place.startswith(_HISTORIES)):
            return place
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _preset(document: Any) -> str | None:
    """Return the chat API preset that matches a reply; None if none does."""
    try:
        message = document["choices"][0]["message"]
        message["content"] + ""
    except (KeyError, IndexError, TypeError):
        return None
    if isinstance(message.get("context"), Mapping):
        return "azure"
    return "perplexity" if "search_results" in document or "citations" in document else "chat"


def _step(path: str, key: str) -> str:
    plain = re.fullmatch(r"[^.\[\]\"'?$\s]+", key)
    return (f"{path}.{key}" if path else key) if plain else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def _leaves(value: Mapping[str, Any], path: str, depth: int = _DEPTH) -> Iterator[tuple[str, str, Any]]:
    """Yield path, key and value of every leaf of an object, upper levels first."""
    inner = []
    for key, item in value.items():
        at = _step(path, str(key))
        if isinstance(item, Mapping):
            inner.append((at, item))
        else:
            yield at, str(key).casefold(), item
    for at, item in inner if depth else ():
        yield from _leaves(item, at, depth - 1)


def _best(leaves: Sequence[tuple[str, str, Any]], names: Sequence[str], fits: Any) -> str | None:
    """Return the path of the value with the likeliest name that fits."""
    ranked = [(names.index(key), number, path) for number, (path, key, value) in enumerate(leaves) if key in names and fits(value)]
    return min(ranked)[2] if ranked else None


def _contexts(leaves: Sequence[tuple[str, str, Any]]) -> Any:
    """Return the path (or paths to text, id, url and score) of contexts; None if no list contains texts."""
    lists = [(path, key, value) for path, key, value in leaves if isinstance(value, list) and value and key not in (*_HISTORIES, *_PARTS)]
    ranked = sorted(lists, key=lambda item: CONTEXTS.index(item[1]) if item[1] in CONTEXTS else len(CONTEXTS))
    for path, key, items in ranked:
        if all(isinstance(item, str) for item in items):
            # Citations are often addresses or ids instead of texts.
            if key in CONTEXTS and all(" " in item.strip() for item in items):
                return f"{path}[]"
        elif all(isinstance(item, Mapping) for item in items) and (inside := _inside(items)):
            return {name: f"{path}[].{inner}" for name, inner in inside.items()}
    return None


def _inside(items: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return paths within the items of a list of contexts; None if the items have no common text field."""

    def common(names: Sequence[str], kinds: Any) -> str | None:
        outer = [name for name in _INNER if all(isinstance(item.get(name), Mapping) for item in items)]
        for keys in [(name,) for name in names] + [(first, name) for first in outer for name in names]:
            values: list[Any] = [reduce(lambda value, key: value.get(key), keys, item) for item in items]
            if all(isinstance(value, kinds) and value != "" for value in values):
                return ".".join(keys)
        return None

    text = common(TEXTS, str)
    if text is None:
        return None
    rest = {"id": common(_IDS, str | int), "url": common(_URLS, str), "score": common(_SCORES, int | float)}
    return {"text": text, **{name: f"{path}?" for name, path in rest.items() if path}}
