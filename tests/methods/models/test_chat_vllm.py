"""A server with vLLM's dialect: guided JSON, log-probabilities, cached tokens, and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from jsonschema import validate
from pydantic import BaseModel

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.structured import parse
from results.store.failures import kind_of
from tests.support.errors import raises
from tests.support.vllm import BLOCK, TOO_LONG, VLLM, schema_of

pytest.importorskip("openai")


class Inner(BaseModel):
    claim: str
    number: int


class Verdict(BaseModel):
    label: Literal["correct", "incorrect"]
    first: Inner
    others: list[Inner] = []
    note: str | None = None


@pytest.fixture
def server() -> Iterator[VLLM]:
    server = VLLM("Qwen/Qwen3-8B", max_model_len=128)
    with server.running():
        yield server


def chat(server: VLLM, **options: Any) -> ChatModel:
    config = {"model": server.model, "base_url": server.url, "key_variable": None, "backoff_s": 0.001, "concurrency": 1, "max_tokens": 8}
    return ChatModel(ChatConfig(**{**config, **options}))


def user(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": text}] for text in texts]


def test_guided_json_is_parsed_with_the_schema_that_was_sent(server: VLLM) -> None:
    (reply,) = chat(server).complete(user("judge"), shape=Verdict)
    value = parse(reply.text, Verdict)
    assert (value.value, value.repaired) == (Verdict(label="correct", first=Inner(claim="text", number=0), note="text"), False)
    validate(value.value.model_dump(), schema_of(server.requests[0].body))


@pytest.mark.parametrize("field", ["guided_json", "structured_outputs"])
def test_vllm_json_fields_are_sent_as_parameters(server: VLLM, field: str) -> None:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    parameters = {field: schema if field == "guided_json" else {"json": schema}}
    (reply,) = chat(server, parameters=parameters).complete(user("judge"))
    assert reply.text == '{"label": "text"}'


def test_requesting_log_probabilities_does_not_change_answers(server: VLLM) -> None:
    (plain,) = chat(server).complete(user("a"))
    (scored,) = chat(server, parameters={"logprobs": True, "top_logprobs": 1}).complete(user("a"))
    assert (plain.text, scored.text, server.requests[1].body["top_logprobs"]) == ("Ann", "Ann", 1)


def test_tokens_cached_by_the_server_are_counted(server: VLLM) -> None:
    text = " ".join(["word"] * 3 * BLOCK)
    replies = chat(server).complete(user(text, f"{text} more"))
    assert [reply.cached_tokens for reply in replies] == [0, 3 * BLOCK]
    assert [reply.prompt_tokens for reply in replies] == [3 * BLOCK + 1, 3 * BLOCK + 2]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("words", TOO_LONG)
def test_too_long_prompt_fails_only_its_question_as_a_truncation(server: VLLM, words: str, nested: bool) -> None:
    server.nested, server.too_long = nested, words
    short, long = chat(server, attempts=3).complete(user("a", "word " * 200))
    assert (short.text, long.text, long.calls) == ("Ann", "", 1)
    assert kind_of(long.failed) == "truncation"


@pytest.mark.parametrize("nested", [True, False])
def test_unknown_model_stops_the_run_and_suggests_the_served_one(server: VLLM, nested: bool) -> None:
    server.nested = nested
    with raises("endpoint-error") as caught:
        chat(server, model="other").preflight()
    assert server.model in str(caught.value.try_this)
