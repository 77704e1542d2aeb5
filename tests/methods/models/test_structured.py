"""Replies with a schema: requested as the endpoint supports it, parsed tolerantly, never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from methods.models.chat import ChatModel, Reply
from methods.models.chat_config import ChatConfig
from methods.models.structured import Parsed, parse, strict_schema
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written


class Verdict(BaseModel):
    label: Literal["correct", "incorrect"]
    reason: str = ""


class Triples(BaseModel):
    triples: list[tuple[str, str, str]]


GOOD = {"label": "correct", "reason": "it is {so}"}


class Endpoint:
    """Server that supports only some JSON modes."""

    def __init__(self) -> None:
        self.offers = {"json_schema", "json_object"}
        self.complaint = "response_format is not supported"
        self.status = 400
        self.says = json.dumps(GOOD)
        self.requests: list[dict[str, Any]] = []
        self.server = OpenAIServer("m", self.answer)

    def answer(self, request: ChatRequest) -> Written:
        self.requests.append(dict(request.body))
        form = request.body.get("response_format")
        if form is not None and form["type"] not in self.offers:
            raise Refused(self.status, self.complaint)
        return Written(self.says, 5, 5)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    with endpoint.server.running():
        yield endpoint


def chat(endpoint: Endpoint, **options: Any) -> ChatModel:
    cache = options.pop("cache", None)
    return ChatModel(ChatConfig(model="m", base_url=endpoint.server.url, key_variable=None, backoff_s=0.001, **options), cache=cache)


class Item(NamedTuple):
    reply: Reply
    parsed: Parsed[Verdict]

    @property
    def value(self) -> Verdict | None:
        return self.parsed.value

    @property
    def failed(self) -> str | None:
        return self.reply.failed or self.parsed.failed


def ask(model: ChatModel, *texts: str) -> list[Item]:
    replies = model.complete([[{"role": "user", "content": text}] for text in texts], shape=Verdict)
    return [Item(reply, parse(reply.text, Verdict)) for reply in replies]


def test_schema_is_sent_if_the_endpoint_supports_it(endpoint: Endpoint) -> None:
    (item,) = ask(chat(endpoint), "judge a")
    assert (item.value, item.failed, item.parsed.repaired) == (Verdict(**GOOD), None, False)
    (request,) = endpoint.requests
    form = request["response_format"]["json_schema"]
    assert (form["name"], form["strict"], form["schema"]["additionalProperties"]) == ("Verdict", True, False)
    assert form["schema"]["required"] == ["label", "reason"]
    assert request["messages"] == [{"role": "user", "content": "judge a"}]


@pytest.mark.parametrize("offers", [{"json_object"}, set()])
def test_refused_json_mode_falls_back_once_to_the_next(endpoint: Endpoint, offers: set[str]) -> None:
    endpoint.offers = offers
    model = chat(endpoint, concurrency=1)
    results = ask(model, "judge a", "judge b", "judge c")
    assert [item.value for item in results] == [Verdict(**GOOD)] * 3
    refusals = 2 - len(offers)
    assert len(endpoint.requests) == 3 + refusals
    last = endpoint.requests[-1]
    assert ("response_format" in last) == bool(offers)
    assert '"incorrect"' in last["messages"][0]["content"]
    # What it refuses is remembered.
    ask(model, "judge d")
    assert len(endpoint.requests) == 4 + refusals


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        (404, "No endpoints found that support the requested parameters: response_format."),
        (404, "No endpoints found that can handle the requested parameters."),
        (422, "Input validation error: grammar is not supported"),
        (400, "Failed to parse grammar"),
        (500, "failed to initialize samplers: grammar error"),
        (412, "Model does not support structured outputs"),
        (400, "This model does not support formatted output."),
        (400, "output_config.format: Extra inputs are not permitted"),
    ],
)
def test_json_mode_falls_back_for_the_refusals_of_many_servers(endpoint: Endpoint, status: int, complaint: str) -> None:
    endpoint.offers, endpoint.status, endpoint.complaint = set(), status, complaint
    (item,) = ask(chat(endpoint, attempts=1), "judge a")
    assert item.value == Verdict(**GOOD)


def test_unrelated_refusal_does_not_change_the_json_mode(endpoint: Endpoint) -> None:
    endpoint.offers, endpoint.complaint = set(), "maximum context length is 10"
    (item,) = ask(chat(endpoint), "judge a")
    assert item.value is None
    assert "maximum context length" in item.failed
    assert len(endpoint.requests) == 1


def test_second_run_makes_no_call_after_any_json_mode(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.offers = set()
    first = ask(chat(endpoint, cache=tmp_path / "cache.sqlite"), "judge a")
    sent = len(endpoint.requests)
    again = ask(chat(endpoint, cache=tmp_path / "cache.sqlite"), "judge a")
    assert [item.value for item in again] == [item.value for item in first]
    assert len(endpoint.requests) == sent
    # Plain text from the same prompt is another call.
    chat(endpoint, cache=tmp_path / "cache.sqlite").complete([[{"role": "user", "content": "judge a"}]])
    assert len(endpoint.requests) == sent + 1


def test_unparsable_reply_is_a_failure_that_keeps_the_reply(endpoint: Endpoint) -> None:
    endpoint.says = "I would rather not."
    (item,) = ask(chat(endpoint), "judge a")
    assert (item.value, item.reply.failed, item.reply.text) == (None, None, "I would rather not.")
    assert item.failed == "the reply holds no JSON object"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        "```json\n" + json.dumps(GOOD, indent=2) + "\n```",
        "Sure! Here it is:\n" + json.dumps(GOOD) + "\nAnything else?",
        "{'label': 'correct', 'reason': 'it is {so}',}",
        '{"label": "correct", "reason": "it is {so}"',
        '{"Label": "correct", "REASON": "it is {so}"}',
        '{"labell": "correct", "reason": "it is {so}"}',
        '{"label": "correct", // indeed\n "reason": "it is {so}"}',
    ],
)
def test_wrapping_and_common_mistakes_in_json_are_tolerated(text: str) -> None:
    assert parse(text, Verdict).value == Verdict(**GOOD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"label": "Correct."}', "label"),
        ('{"label": "incorect"}', "label"),
        ('{"reason": "none"}', "label: is missing"),
        ('{"verdict": "correct"}', "label"),
        ('["correct"]', "no JSON object"),
        ("{}", "no JSON object"),
        ("", "no JSON object"),
        ("}{ ]] \\u0000 ```json\n<|im_end|>", ""),
    ],
)
def test_invalid_values_fail_instead_of_being_guessed(text: str, reason: str) -> None:
    parsed = parse(text, Verdict)
    assert parsed.value is None
    assert reason in parsed.failed


@given(st.text(max_size=200))
def test_parser_never_raises_for_any_text(text: str) -> None:
    for shape in (Verdict, Triples):
        parsed = parse(text, shape)
        assert (parsed.value is None) == (parsed.failed is not None)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20)), max_size=6))
def test_plain_json_is_parsed_unchanged(triples: list[tuple[str, str, str]]) -> None:
    parsed = parse(json.dumps({"triples": triples}), Triples)
    assert (parsed.value.triples, parsed.repaired) == (triples, False)


def test_strict_schema_forbids_extra_properties_and_omits_docstrings() -> None:
    class Inner(BaseModel):
        """A part."""

        number: int = 3

    class Outer(BaseModel):
        """The whole."""

        inner: list[Inner] = Field(default=[])
        note: str | None = Field(None, description="What to add.")

    schema = strict_schema(Outer)
    assert schema["required"] == ["inner", "note"]
    assert "description" not in schema
    assert schema["properties"]["note"]["description"] == "What to add."
    assert schema["$defs"]["Inner"] | {"title": ""} == {
        "properties": {"number": {"title": "Number", "type": "integer"}},
        "title": "",
        "type": "object",
        "required": ["number"],
        "additionalProperties": False,
    }
