"""Convert an application's reply to a prediction.

Every configured path must exist in every reply, unless it ends with `?`. If one is missing, the question counts as failed, with
a reason that names the path. Malformed replies are never scored as wrong answers.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from methods.api import Usage
from methods.apps.paths import Missing, Path, shape
from methods.apps.stated import chat_completion, completion_with, finish_reason, holders, parts_completion
from methods.models import secrets
from methods.models.reply import Completion, ErrorReply
from methods.models.thoughts import INVISIBLE
from methods.record import Search, Shown, Statement

TEXTS = ("text", "content", "page_content", "pageContent", "contents", "snippet", "chunk")
"""Keys that may contain the text of a context object."""
_NAMES = {"id": ("id", "_id", "chunk_id", "doc_id"), "url": ("url", "uri", "link", "source"), "score": ("score", "relevance_score")}
MOST_CONTEXTS = 1000
LONGEST_CONTEXTS = 4_000_000
"""Maximum characters of all contexts of a reply."""
LONGEST_ANSWER = 100_000


class BadReply(ValueError):
    """Raised if a reply does not match the options; the message names the path."""


def _checked(text: str) -> str:
    Path.of(text)
    return text


Place = Annotated[str, AfterValidator(_checked)]
"""Type of options with a path into the reply."""


class _Places(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ContextPlaces(_Places):
    """Paths of the fields of contexts, all within the items of one list. Without `text`, the app only names what it showed."""

    text: Place | None = Field(None, description="docs[].text")
    id: Place | None = Field(None, description="docs[].id")
    url: Place | None = Field(None, description="docs[].url")
    score: Place | None = Field(None, description="docs[].score")

    @model_validator(mode="after")
    def _names_something(self) -> ContextPlaces:
        if not (self.text or self.id or self.url):
            raise ValueError("contexts needs the path of text, id or url")
        return self


class StatementPlaces(_Places):
    """Paths of the fields of statements, all within the items of one list."""

    text: Place = Field(description="sentences[].text")
    cites: Place | None = Field(None, description="sentences[].citations")


class SearchPlaces(_Places):
    """Paths of the fields of searches, all within the items of one list."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    query: Place = Field(description="steps[].query")
    results: Place | None = Field(None, alias="found", description="steps[].ids of the documents found")
    used: Place | None = Field(None, description="steps[].ids of the documents used")


class UsagePlaces(_Places):
    """Paths of the usage counts in a reply."""

    prompt_tokens: Place | None = Field(None, description="usage.prompt_tokens")
    completion_tokens: Place | None = Field(None, description="usage.completion_tokens")
    model_calls: Place | None = Field(None, description="number of model calls")


class ReplyPlaces(_Places):
    """Paths of all fields in a reply."""

    answer: Place = Field("answer", description="path to the answer; $: the whole reply")
    contexts: Place | ContextPlaces | None = Field(
        None, description="path to the texts that the app showed its model, docs[].text; or {text, id, url, score}; text may be absent"
    )
    cites: Place | None = Field(None, description="path to the ids or urls that the answer as a whole cites, citations[]")
    statements: StatementPlaces | None = Field(None, description="{text, cites} for parts of the answer")
    searches: Place | SearchPlaces | None = Field(None, description="path to the queries of searches, or {query, found, used}")
    confidence: Place | None = Field(None, description="path to a number")
    usage: UsagePlaces = Field(
        default_factory=lambda: UsagePlaces.model_validate({}),
        description="paths to counts: {prompt_tokens, completion_tokens, model_calls}",
    )
    cost: Place | None = Field(None, description="path to the cost in dollars")


def answer_of(document: Any, place: str) -> str:
    """Return the answer in a reply.

    Raises:
        BadReply: The answer is missing, empty, or neither text nor number.
    """
    value = _single(_find(document, place), place)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadReply(f"the answer at {place!r} must be a text, not {shape(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadReply(f"the answer at {place!r} is {value}, which is not a value of JSON")
    text = value if isinstance(value, str) else str(value)
    if not text.strip(INVISIBLE + string.whitespace):
        raise BadReply(f"the answer at {place!r} is empty")
    return _bounded(text, place).strip()


def storable(text: str) -> str:
    """Return a text without secrets, and with whole characters: streams may separate the halves of one, and models may cut it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return secrets.hidden(text)


def _single(values: Sequence[Any], place: str) -> Any:
    """Return the only value at the path to the answer.

    Raises:
        BadReply: The path finds no value, or several, which may be parts of one answer or several answers.
    """
    if not values:
        raise BadReply(f"no answer at {place!r}")
    if len(values) > 1:
        raise BadReply(
            f"{len(values)} answers at {place!r}: name one by [0] in place of [], or the list itself if it holds the parts of one message"
        )
    return values[0]


def _bounded(text: str, place: str) -> str:
    if len(text) > LONGEST_ANSWER:
        raise BadReply(f"the answer at {place!r} has {len(text):,} characters (at most {LONGEST_ANSWER:,})")
    return storable(text)


def completion_of(document: Any, place: str) -> Completion:
    """Return the answer in a reply with what its chat API states about it; the content of a message may have parts.

    Raises:
        BadReply: The answer is missing, empty, or neither a text, nor a number, nor parts of a message; or it is a thought.
    """
    path = Path.of(place)
    try:
        chat = chat_completion(document, path)
    except (LookupError, ValueError, ErrorReply):
        chat = None  # the path says better what is missing
    if chat is None:
        chat = parts_completion(document, _single(_find(document, place), place))
    if chat is None:
        if any(holder.get("thought") is True for holder in holders(document, path)):
            raise BadReply(f"the text at {place!r} is a thought: name the list of parts")
        return completion_with(answer_of(document, place), finish_reason(document))
    text = _bounded(chat.text, place)
    return replace(chat, text=text, thought=storable(chat.thought), refusal=storable(chat.refusal))


def fields_of(document: Any, paths: ReplyPlaces, answer: str) -> dict[str, Any]:
    """Extract all other configured fields of a reply, as arguments of `Prediction`.

    Raises:
        BadReply: A path is missing or has a value of the wrong type.
    """
    fields: dict[str, Any] = {}
    if paths.contexts is not None:
        contexts = _contexts(document, paths.contexts)
        fields |= {} if contexts is None else {"contexts": contexts}
    if paths.statements is not None:
        fields["statements"] = _statements(document, paths.statements)
    elif paths.cites is not None and (cited := _find(document, paths.cites)):
        fields["statements"] = (Statement(answer, _cites(paths.cites, cited[0] if len(cited) == 1 else cited)),)
    if paths.searches is not None:
        fields["searches"] = _searches(document, paths.searches)
    if paths.confidence is not None and (matches := _find(document, paths.confidence)):
        fields["confidence"] = _number(paths.confidence, matches[0])
    fields["usage"] = _usage(document, paths)
    return fields


def streamed_fields(events: Sequence[Any], document: Any, paths: ReplyPlaces, answer: str) -> dict[str, Any]:
    """Extract all other configured fields of a stream; lists are collected over its events, which may hold one item each.

    Args:
        events: The events of the stream.
        document: The events merged into one document.
        paths: Paths of the fields.
        answer: The answer.

    Raises:
        BadReply: A path is missing in all events, or has a value of the wrong type.
    """
    fields = fields_of(document, paths, answer)
    lists = ReplyPlaces.model_validate({name: _optional(getattr(paths, name)) for name in ("contexts", "cites", "statements", "searches")})
    each = [fields_of(event, lists, answer) for event in events]
    contexts = {(item.text, item.id, item.url): item for one in each for item in one.get("contexts") or ()}
    searches = dict.fromkeys(item for one in each for item in one.get("searches", ()))
    statements: dict[Statement, None] = dict.fromkeys(item for one in each for item in one.get("statements", ()))
    if paths.statements is None and statements:  # the citations of the whole answer
        statements = {Statement(answer, tuple(dict.fromkeys(name for item in statements for name in item.cites))): None}
    collected = {"contexts": bounded(tuple(contexts.values())), "searches": tuple(searches), "statements": tuple(statements)}
    return fields | {name: items for name, items in collected.items() if items}


def _optional(place: Any) -> Any:
    """Return the same path or paths, none of which a reply must have."""
    if isinstance(place, BaseModel):
        return {name: _optional(inner) for name, inner in place.model_dump(by_alias=True).items()}
    return f"{place.strip().removesuffix('?')}?" if isinstance(place, str) else place


def _find(document: Any, place: str) -> list[Any]:
    try:
        return Path.of(place).find(document)
    except Missing as error:
        message = _error_message(document)
        raise BadReply(f"{error}{message or ' (a path that ends with ? may be missing)'}") from None


def _error_message(document: Any) -> str:
    """Return the error message in a reply, or ""."""
    error = document.get("error", document.get("detail")) if isinstance(document, Mapping) else None
    if not error:
        return ""
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False, default=str)
    return f"; it reports {text[:160]!r}"


def _rows(document: Any, paths: Mapping[str, str | None]) -> list[dict[str, Any]] | None:
    """Return the fields of each item of the list that all paths share; None if the list is optional and missing."""
    split = {name: Path.of(place).split for name, place in paths.items() if place is not None}
    (main, _) = next(iter(split.values()))
    for name, (whole, inner) in split.items():
        if whole.steps != main.steps or inner is None:
            raise BadReply(f"the path of {name} must be within the items of the same list as the others: {whole.text!r}, {main.text!r}")
    try:
        matches = main.find(document)
        items = [item for value in matches for item in _listed(main, value)]
        rows = []
        for item in items:
            row = {name: values[0] for name, (_, inner) in split.items() if inner is not None and (values := inner.find(item))}
            # A context that the app does not name keeps its rank.
            if next(iter(split)) in row or next(iter(split)) in ("id", "url"):
                rows.append(row)
        return rows if matches else None
    except Missing as error:
        raise BadReply(f"{error}{_error_message(document) or ' (a path that ends with ? may be missing)'}") from None


def _listed(path: Path, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise BadReply(f"{path.text!r} must be a list, not {shape(value)}")
    return value


def _contexts(document: Any, paths: str | ContextPlaces) -> tuple[Shown, ...] | None:
    if isinstance(paths, str):
        path = Path.of(paths)
        matches = _find(document, paths)
        if not matches and path.optional:
            return () if path.split[0].find(document) else None
        values = matches[0] if path.split[1] is None and len(matches) == 1 and isinstance(matches[0], list | tuple) else matches
        contexts = tuple(shown(paths, value) for value in values)
    else:
        rows = _rows(document, paths.model_dump())
        if rows is None:
            return None
        contexts = tuple(_shown(paths.text, row) if paths.text else _shown("", {"text": "", **row}) for row in rows)
    return bounded(contexts)


def bounded(contexts: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """Check the number and total length of contexts, and return them.

    Raises:
        BadReply: There are too many contexts, or they are too long.
    """
    if len(contexts) > MOST_CONTEXTS or sum(len(item.text) for item in contexts) > LONGEST_CONTEXTS:
        raise BadReply(f"more than {MOST_CONTEXTS:,} contexts or {LONGEST_CONTEXTS:,} characters of contexts")
    return contexts


def shown(place: str, value: Any) -> Shown:
    """Parse a context: a text, or an object with a text under one of `TEXTS`.

    Raises:
        BadReply: The value has another form.
    """
    if isinstance(value, Shown):
        return value
    if not isinstance(value, Mapping):
        return _shown(place, {"text": value})
    text = next((value[name] for name in TEXTS if isinstance(value.get(name), str)), None)
    if text is None:
        raise BadReply(f"a context at {place!r} must be a text or have one of {', '.join(TEXTS)}, and is {shape(value)}")
    metadata: Mapping[str, Any] = next((value[name] for name in ("metadata", "meta") if isinstance(value.get(name), Mapping)), {})
    names = {
        kind: next((source[name] for source in (value, metadata) for name in keys if isinstance(source.get(name), str | int | float)), None)
        for kind, keys in _NAMES.items()
    }
    return _shown(place, {"text": text, **names})


def _shown(place: str, row: Mapping[str, Any]) -> Shown:
    text = row["text"]
    if not isinstance(text, str):
        raise BadReply(f"a context at {place!r} must be a text, not {shape(text)}")
    names = {}
    for name in ("id", "url"):
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise BadReply(f"the {name} of a context must be a text, not {shape(value)}")
        names[name] = storable("" if value is None else str(value))[:4096]
    score = row.get("score")
    return Shown(storable(text), names["id"], names["url"], None if score is None else _number("score of a context", score))


def _statements(document: Any, paths: StatementPlaces) -> tuple[Statement, ...]:
    rows = _rows(document, paths.model_dump()) or []
    statements = []
    for row in rows:
        if not isinstance(row["text"], str):
            raise BadReply(f"a statement at {paths.text!r} must be a text, not {shape(row['text'])}")
        statements.append(Statement(storable(row["text"]), _cites(paths.cites or "", row.get("cites", []))))
    return tuple(statements)


def _cites(place: str, value: Any) -> tuple[str | int, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, str) or type(item) is int for item in values):
        raise BadReply(f"citations at {place!r} must be ids, urls or positions")
    return tuple(dict.fromkeys(storable(item) if isinstance(item, str) else item for item in values))


def _searches(document: Any, paths: str | SearchPlaces) -> tuple[Search, ...]:
    if isinstance(paths, str):
        matches = _find(document, paths)
        queries = matches[0] if len(matches) == 1 and isinstance(matches[0], list) else matches
        rows: list[dict[str, Any]] = [{"query": query} for query in queries]
    else:
        rows = _rows(document, paths.model_dump()) or []
    results = []
    for row in rows:
        if not isinstance(row["query"], str):
            raise BadReply(f"the query of a search must be a text, not {shape(row['query'])}")
        ids = [row.get(name) or [] for name in ("found", "used")]
        if not all(isinstance(names, list) and all(isinstance(name, str | int) for name in names) for names in ids):
            raise BadReply("found and used of a search must be lists of ids")
        results.append(Search(storable(row["query"]), *(tuple(storable(str(name)) for name in names) for names in ids)))
    return tuple(results)


def _number(place: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadReply(f"{place!r} must be a number, not {shape(value) if isinstance(value, str | list | dict) else value}")
    return number


def _usage(document: Any, paths: ReplyPlaces) -> Usage:
    counts: dict[str, int] = {}
    for name, place in paths.usage.model_dump().items():
        if place is not None and (matches := _find(document, place)):
            number = _number(place, matches[0])
            if number < 0 or number != int(number):
                raise BadReply(f"{place!r} must be a count, not {matches[0]!r}")
            counts[name] = int(number)
    cost = 0.0
    if paths.cost is not None and (matches := _find(document, paths.cost)):
        cost = _number(paths.cost, matches[0])
        if cost < 0:
            raise BadReply(f"{paths.cost!r} must be dollars from 0 on, not {matches[0]!r}")
    tokens = counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0)
    return Usage(*tokens, model_calls=counts.get("model_calls", 0), cost_usd=cost)
