"""Evaluate an application behind HTTP: one request per question, and JSON paths into the reply.

    methods:
      - id: http
        config: {url: "http://localhost:8000/ask", answer: data.answer, contexts: "docs[].text"}

The app searches its own documents and only receives the question. ragmeter matches the contexts that it returns with corpus
passages (`results.contexts`).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from benchmarks.core.errors import Broke, UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import FAILED, Call, Indexed, Prediction, Services, kept, reason
from methods.apps.client import HOPELESS, Client, Stream, excerpt, require_no_error
from methods.apps.paths import Path, shape
from methods.apps.reply import BadReply, ReplyPlaces, answer_of, completion_of, fields_of, streamed_fields
from methods.apps.stated import answering, completion_with, finish_reason, holders, is_error, parts_completion, repeats_itself
from methods.apps.template import KNOWN, fill, placeholders, with_variables
from methods.flow import event_loop, trace
from methods.models.connection import connection_variables
from methods.models.endpoint import Fault
from methods.models.limits import Address, budget_of, limiters
from methods.models.reply import Completion, Content, read
from methods.registry import MethodConfig, register
from methods.spending import charged
from methods.work import Lengths, Needs, Use, Work, unknown

_SECRET = re.compile(r"auth|cookie|key|pass|secret|token|credential|signature", re.IGNORECASE)
_FORM = "application/x-www-form-urlencoded"
_CHAT = {"body": {"messages": "{{messages}}"}, "answer": "choices[0].message.content"}
_CHAT_USAGE = {"usage": {"prompt_tokens": "usage.prompt_tokens?", "completion_tokens": "usage.completion_tokens?"}}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "chat": {**_CHAT, **_CHAT_USAGE, "cites": "choices[0].message.annotations[].url_citation.url?"},
    "perplexity": {
        **_CHAT,
        **_CHAT_USAGE,
        "contexts": {"text": "search_results[].snippet?", "url": "search_results[].url?"},
        "cites": "citations[]?",
    },
    "azure": {
        **_CHAT,
        **_CHAT_USAGE,
        "contexts": {
            "text": "choices[0].message.context.citations[].content?",
            "id": "choices[0].message.context.citations[].filepath?",
            "url": "choices[0].message.context.citations[].url?",
        },
        "searches": "choices[0].message.context.intent?",
    },
}
"""Presets for chat endpoints with citations: OpenAI's annotations, Perplexity's search results, Azure's data sources."""


class HttpConfig(MethodConfig, ReplyPlaces):
    """Options of an application behind HTTP.

    Options that affect only speed or cost are left out of dumps, and therefore of fingerprints.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(description="address; {{question}}, {{id}} and {{turns}} are filled in")
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field("POST", description="HTTP method")
    headers: dict[str, str] = Field(default={}, description="request headers; secrets from the environment: ${NAME}", exclude=True)
    body: Any = Field(
        None,
        description="body: JSON, text, or form fields if the content type is a form; {{question}}, {{id}}, {{turns}}, "
        "{{messages}} and ${NAME} are filled in; default: {question: '{{question}}'}",
    )
    stream: Stream | None = Field(None, description="sse: Server-Sent Events; lines: JSON Lines; null: one document")
    pieces: bool = Field(True, description="content of a stream's events: a piece of the answer, or the answer so far")
    concurrency: int = Field(4, ge=1, description="maximum concurrent requests", exclude=True)
    timeout_s: float = Field(120.0, gt=0, description="time limit for a complete reply", exclude=True)
    attempts: int = Field(4, ge=1, description="attempts per question, for errors that a retry may fix", exclude=True)
    backoff_s: float = Field(1.0, ge=0, description="maximum pause before the second try; doubles with each try", exclude=True)
    longest_wait_s: float = Field(120.0, ge=0, description="maximum pause that the app may ask for (Retry-After)", exclude=True)
    largest_mib: float = Field(8.0, gt=0, description="maximum length of a reply; a longer reply fails the question", exclude=True)
    usd_per_call: float = Field(0.0, ge=0, description="price of a request, if the reply does not state its cost")
    run_usd: float | None = Field(None, ge=0, description="maximum cost in dollars of one execution of a task", exclude=True)

    @field_validator("url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        if re.match(r"\$\{\w+\}", value):  # checked when it is filled in
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must start with http:// or https://")
        if parts.username or parts.password:
            raise ValueError("url must not hold a password: use headers: {Authorization: 'Basic ${NAME}'}")
        if any(_SECRET.search(name) and not text.startswith("${") for name, text in parse_qsl(parts.query)):
            raise ValueError("url must not hold a secret: take it from an environment variable, ?key=${NAME}")
        return value

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or "\n" in text or "\r" in text:
                raise ValueError(f"{name!r} cannot be sent as a header")
            if _SECRET.search(name) and "${" not in text:
                raise ValueError(f"the header {name} must take its value from an environment variable: {name}: ${{NAME}}")
        return value

    @field_validator("body")
    @classmethod
    def _no_secret_fields(cls, value: Any) -> Any:
        for name, text in value.items() if isinstance(value, Mapping) else ():
            if _SECRET.search(str(name)) and isinstance(text, str) and "${" not in text and "max" not in str(name).lower():
                raise ValueError(f"the field {name} of body must take its value from an environment variable: {name}: ${{NAME}}")
        return value

    @model_validator(mode="after")
    def _asks(self) -> HttpConfig:
        known = placeholders([self.url, self.headers, self.template])
        if unknown := sorted(known - set(KNOWN)):
            raise ValueError(f"unknown placeholder {unknown[0]!r}: {', '.join(f'{{{{{name}}}}}' for name in KNOWN)}")
        if not known & {"question", "messages"}:
            raise ValueError("url or body must contain {{question}} or {{messages}}")
        return self

    @property
    def template(self) -> Any:
        """Return the template of the request body."""
        if self.body is not None or self.method == "GET" or placeholders(self.url) & {"question", "messages"}:
            return self.body
        return {"question": "{{question}}"}

    @property
    def served(self) -> str:
        """Return the name of the app or model, for provenance."""
        return f"app at {self.url.partition('?')[0]}"

    @property
    def priced(self) -> bool:
        """Return whether a request's cost is known: a price is set (which may be 0), or the app reports its cost."""
        return self.cost is not None or "usd_per_call" in self.model_fields_set

    def preflight(self) -> None:
        """Check that the environment variables are set."""
        try:
            url, _, _ = with_variables([self.url, self.headers, self.template])
        except ValueError as error:
            raise UserError(str(error), code="missing-variable", where=self.served) from None
        if not url.startswith(("http://", "https://")):
            raise UserError(
                "url must start with http:// or https://", code="bad-app-url", where=self.served, try_this="correct the variable"
            )


def _work(config: HttpConfig, lengths: Lengths) -> Work:
    """Estimate the work: one request per question, with unknown tokens."""
    requests = Work((Use(config.served, calls=lengths.questions, where="away"),), usd=lengths.questions * config.usd_per_call)
    open_ones = "tokens" if config.usd_per_call else "tokens and dollars"
    return requests + unknown(f"{open_ones} of the {config.served}")


DOUBT = 3
"""Number of rejections after which the run stops, if no request has succeeded."""


@register(
    "http",
    kind="method",
    summary="your application behind HTTP: a URL, a request template, and paths into the reply",
    version=3,
    config=HttpConfig,
    presets=PRESETS,
    extra="llm",
    work=_work,
    needs=lambda config: Needs(),
)
class Http:
    """Method that sends one request per question to an application.

    Args:
        config: Options.
        services: Unused.
    """

    waits = True
    reads_turns = True

    def __init__(self, config: HttpConfig, services: Services) -> None:
        config.preflight()
        self.config = config
        self.in_flight = config.concurrency
        self._url, self._headers, self._template = with_variables([config.url, config.headers, config.template])
        self._known = placeholders([config.url, config.headers, config.template])
        self._client = Client(config.concurrency, config.timeout_s, int(config.largest_mib * 2**20), config.longest_wait_s)
        address = Address.of(config.url, json.dumps(self._headers, sort_keys=True), "app")
        self._budget = budget_of(address, None, config.run_usd)
        self._limiter = limiters(address)
        weakref.finalize(self, self._limiter.part, self._limiter.join(config.concurrency))
        weakref.finalize(self, _close, self._client)
        self._answered = False
        self._refused = 0

    def index(self, corpus: Corpus) -> Indexed:
        """Do nothing, because the app has its own documents."""
        return Indexed()

    async def answer_one(self, query: Query) -> Prediction:
        """Send a question to the app, and convert its reply to a prediction.

        Raises:
            Broke: No further question could be answered.
            UserError: A question has earlier turns, and the request has no place for them.
        """
        if query.turns and not self._known & {"turns", "messages"}:
            raise UserError(
                "a question has earlier turns, but the request has no placeholder for them",
                code="no-place-for-turns",
                where=self.config.served,
                try_this="add {{turns}} or {{messages}} to body",
            )
        reserved = (0, self.config.usd_per_call)
        with trace().during(waiting=1):
            refused = await self._budget.reserve(*reserved)
        if refused:
            return Prediction(query.id, "", notes={FAILED: reason(refused)})
        spent: float | None = None
        try:
            prediction, calls = await self._tried(query)
            spent = prediction.usage.cost_usd or calls * self.config.usd_per_call
            return replace(prediction, usage=replace(prediction.usage, cost_usd=spent))
        finally:
            self._budget.settle(reserved, None if spent is None else (0, spent))

    async def _tried(self, query: Query) -> tuple[Prediction, int]:
        """Send a question with retries; returns the prediction and the number of requests."""
        for number in range(1, self.config.attempts + 1):
            with trace().during(waiting=1):
                ticket = await self._limiter.enter(again=number > 1)
            after = None
            try:
                async with charged(self.config.usd_per_call, self.config.served) as charge:
                    charge.usd = self.config.usd_per_call or None
                    with trace().during(serving=1):
                        prediction = await self._asked(query)
                    charge.usd = prediction.usage.cost_usd or self.config.usd_per_call
                self._limiter.ended(ticket, "ok")
                self._answered = True
                return prediction, number
            except Fault as fault:
                self._limiter.ended(ticket, fault.signal, faulty=fault.advice == "retry")
                after = fault.after
                if fault.advice != "retry" or number == self.config.attempts:
                    if self._hopeless(fault):
                        raise self._error(fault) from None
                    return Prediction(query.id, "", notes={FAILED: reason(fault.reason)}), number
            finally:
                self._limiter.leave(after)
            pause = random.uniform(0, self.config.backoff_s * 2 ** (number - 1)) if after is None else after
            with trace().during(waiting=1):
                await asyncio.sleep(min(pause, self.config.longest_wait_s))
        raise AssertionError("the last try returns or raises")

    async def _asked(self, query: Query) -> Prediction:
        """Send a question once.

        Raises:
            Fault: There was no reply, or it has no answer.
        """
        config = self.config
        headers = {name.lower(): text for name, text in fill(self._headers, query).items()}
        content, kind = _encoded(fill(self._template, query), headers.get("content-type", ""))
        headers = {"accept": "application/json, text/event-stream, */*", "user-agent": "ragmeter", **kind, **headers}
        document, events = await self._client.send(config.method, fill(self._url, query, quoted=True), headers, content, config.stream)
        fields: Callable[[Any, HttpConfig, str], dict[str, Any]] = fields_of
        try:
            if config.stream is not None:
                completion = _streamed(events, config)
                document = reduce(merged, events)
                fields = partial(streamed_fields, events)
            else:
                for holder in holders(document, Path.of(config.answer)):
                    require_no_error(holder)
                completion = completion_of(document, config.answer)
            parts = read(completion)
            _trace(query.text, completion, parts)
            if parts.failed is not None:
                raise BadReply(parts.failed)
            if is_error(parts.text):
                raise BadReply(f"its answer is an error: {excerpt(parts.text)}")
            if config.cost is not None and not config.usd_per_call and not Path.of(config.cost).find(document):
                trace().unpriced += 1
            whole = completion.raw if completion.raw.strip() != parts.text else ""
            return Prediction(query.id, parts.text, raw=whole, **fields(document, config, parts.text))
        except BadReply as error:
            self._answered = True  # the app replied; the paths may be wrong for this reply alone
            raise Fault(f"the reply cannot be used: {error}", "fail") from None

    def _hopeless(self, fault: Fault) -> bool:
        """Return whether every further question would fail, too."""
        if self._answered:
            return False
        redirected = fault.status is not None and 300 <= fault.status < 400
        self._refused += fault.status in HOPELESS or redirected or fault.misdirected or not fault.reached
        return fault.status == 401 or self._refused >= DOUBT or (not fault.reached and self._refused > 0)

    def _error(self, fault: Fault) -> Broke:
        hint = "correct the options: `ragmeter method try http` sends one question and shows what comes back"
        if not fault.reached:
            body = self.config.template
            sent = f" with the fields {', '.join(body)}" if isinstance(body, dict) else ""
            hint = f"start the app, or correct `url`; the app receives a {self.config.method}{sent} and must accept it; {hint}"
        if way := connection_variables(self.config.url):
            hint += f"; or a proxy answers in its place (in effect: {way})"
        return Broke(f"the app does not answer: {fault.reason}", code="app-does-not-answer", where=self.config.served, try_this=hint)


def _close(client: Client) -> None:
    """Schedule closing of connections on the event loop without waiting, since the garbage collector may call this anywhere."""
    if client.connected:
        asyncio.run_coroutine_threadsafe(client.close(), event_loop())


def _encoded(body: Any, kind: str) -> tuple[bytes | None, dict[str, str]]:
    """Encode a filled template, and return the body with its content-type header."""
    if body is None:
        return None, {}
    if kind.startswith(_FORM) and isinstance(body, Mapping):
        return urlencode({name: text if isinstance(text, str) else json.dumps(text) for name, text in body.items()}).encode(), {}
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), {"content-type": "text/plain; charset=utf-8"}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), {"content-type": "application/json"}


def _trace(question: str, completion: Completion, content: Content) -> None:
    """Record a chat API's reply for the running question, so that cut replies and thoughts are reported."""
    if not completion.finish_reason and not content.thought:
        return
    reply = content.text if content.failed is None else content.failed
    raw = kept(completion.raw) if completion.raw != content.text else ""
    call = Call("app", "", kept(question), kept(reply), failed=content.failed is not None, thought=kept(content.thought), raw=raw)
    trace().calls.append(replace(call, finish_reason=completion.finish_reason, refusal=kept(completion.refusal)))


def _streamed(events: Sequence[Any], config: HttpConfig) -> Completion:
    """Return the answer of a stream: its pieces joined, or the last one.

    Raises:
        BadReply: No event has an answer.
        Fault: An event with a piece of the answer states an error.
    """
    path = replace(Path.of(config.answer), optional=True)
    pieces = []
    for event in answering(events):
        texts = [piece for piece in path.find(event) if path.steps or isinstance(piece, str)]
        inside = list(holders(event, path)) if texts else []
        if any(holder.get("thought") is True for holder in inside):  # Gemini's
            continue
        for holder in inside:
            require_no_error(holder)
        pieces += [piece.text if (piece := parts_completion(event, text)) else text for text in texts]
    if not all(isinstance(piece, str) for piece in pieces):
        raise BadReply(f"a piece of the answer at {config.answer!r} must be a text")
    if not pieces:
        raise BadReply(f"{config.answer!r} finds nothing in any of {len(events)} events: the first is {shape(events[0])}")
    if config.pieces and repeats_itself(pieces):
        raise BadReply(f"the pieces of the answer at {config.answer!r} repeat it: set pieces: false, which takes the last one")
    text = answer_of("".join(pieces) if config.pieces else pieces[-1], "$")
    return completion_with(text, next(filter(None, map(finish_reason, reversed(events))), ""))


def merged(below: Any, above: Any) -> Any:
    """Merge two stream events into one document; on conflicts, the later one wins, but a plain value never replaces an object or a list."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{name: merged(below[name], value) if name in below else value for name, value in above.items()}}
    if isinstance(below, list) and isinstance(above, list):
        both = [merged(one, other) for one, other in zip(below, above, strict=False)]
        return [*both, *below[len(both) :], *above[len(both) :]]
    plain = not isinstance(above, Mapping | list)
    return below if above is None or (plain and isinstance(below, Mapping | list)) else above
