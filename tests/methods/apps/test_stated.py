"""What replies state about themselves, in the forms of Dify, RAGFlow, LangServe, Flowise, Haystack and chat APIs."""

from __future__ import annotations

from typing import Any

import pytest

from methods.api import FAILED
from methods.apps.stated import is_error
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.record import Shown
from tests.methods.apps.test_http import ask, one, sse
from tests.support.app import app

ANTHROPIC = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Ly", "citations": []}, {"type": "text", "text": "on"}]
RESPONSES = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "content": [{"type": "output_text", "text": "Ly"}, {"type": "output_text", "text": "on"}]},
]
GEMINI = [{"text": "hm", "thought": True}, {"text": "Ly"}, {"text": "on", "thoughtSignature": "x"}]


LANGSERVE = b"""event: metadata\r
data: {"run_id": "1"}\r
\r
event: data\r
data: "Ly"\r
\r
event: data\r
data: "on 2"\r
\r
event: end\r
\r
"""


def dify(event: str, answer: str | None = None, **further: Any) -> dict[str, Any]:
    return {"event": event, "task_id": "t", **({} if answer is None else {"answer": answer}), **further}


def cookies(requests: Any) -> list[str]:
    return [value for request in requests for name, value in request.headers.items() if name.lower() == "cookie"]


def test_questions_share_no_session_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = (200, {"answer": "Lyon"}, {"set-cookie": "session=abc; Path=/"})
    _, requests = ask(lambda request: reply, "a", "b", "c", concurrency=1)
    assert cookies(requests) == []
    monkeypatch.setenv("APP_COOKIE", "login=1")
    _, requests = ask(lambda request: reply, "a", "b", concurrency=1, headers={"Cookie": "${APP_COOKIE}"})
    assert cookies(requests) == ["login=1", "login=1"]


def test_calls_of_a_chat_endpoint_share_no_session() -> None:
    reply = {"choices": [{"message": {"content": "Lyon"}, "finish_reason": "stop"}]}
    with app(lambda request: (200, reply, {"set-cookie": "session=abc; Path=/"})) as (url, requests):
        model = ChatModel(ChatConfig(model="m", base_url=url, key_variable=None))
        for question in "ab":
            model.complete([[{"role": "user", "content": question}]])
        assert len(requests) == 2
        assert cookies(requests) == []


@pytest.mark.parametrize(
    ("events", "options", "answer"),
    [
        ([dify("message", "Ly"), dify("message", "on"), dify("message_end")], {}, "Lyon"),
        ([dify("message", "Ly")], {}, ""),
        ([dify("message", "Ly"), dify("error", status=400, code="quota")], {}, ""),
        ([dify("message", "Par"), dify("message_replace", "Lyon"), dify("message_end")], {}, "Lyon"),
        (
            [
                {"event": "text_chunk", "data": {"text": "Ly"}, "task_id": "t"},
                {"event": "workflow_finished", "data": {"status": "failed", "error": "no index"}, "task_id": "t"},
            ],
            {"answer": "data.text"},
            "",
        ),
        ([{"event": "message", "answer": "Lyon"}], {}, "Lyon"),  # an app of its own, whose streams end without a word
        ([{"code": 500, "message": "no key", "data": {"answer": "**ERROR**"}}, {"code": 0, "data": True}], {"answer": "data.answer"}, ""),
    ],
    ids=["dify", "dify cut", "dify error", "dify replaced", "dify workflow", "other", "ragflow error"],
)
def test_streams_of_app_servers_fail_when_they_say_so(events: list[Any], options: dict[str, Any], answer: str) -> None:
    prediction = one(lambda request: sse(*events), stream="sse", attempts=1, **options)
    assert prediction.answer == answer
    assert (FAILED in prediction.notes) == (not answer)


def test_last_event_that_is_no_object_does_not_hide_the_fields_before_it() -> None:
    events = [
        {"code": 0, "data": {"answer": "Ly", "reference": {}}},
        {"code": 0, "data": {"answer": "Lyon", "reference": {"chunks": [{"content": "a", "id": "7"}]}}},
        {"code": 0, "data": True},
    ]
    paths = {"answer": "data.answer", "contexts": "data.reference.chunks[]"}
    prediction = one(lambda request: sse(*events), stream="sse", pieces=False, **paths)
    assert (prediction.answer, prediction.contexts) == ("Lyon", (Shown("a", "7"),))


@pytest.mark.parametrize(
    "body", [LANGSERVE, b"data: Ly\n\ndata: on\n\ndata:  \n\ndata: 2\n\ndata: [DONE]\n\n"], ids=["langserve", "plain text"]
)
def test_events_that_are_texts_are_pieces_of_the_answer(body: bytes) -> None:
    assert one(lambda request: (200, body, {}), answer="$", stream="sse", attempts=1).answer == "Lyon 2"
    broken = one(lambda request: (200, b'data: {"answer": "Ly"}\n\ndata: {"answer": "o\n\n', {}), stream="sse", attempts=1)
    assert "is not JSON" in broken.notes[FAILED]


@pytest.mark.parametrize(
    ("body", "kind", "option"),
    [
        (b': ping\n\nevent: message\ndata: {"answer": "Ly"}\n\n', "text/plain", "stream: sse"),
        (b"data: Ly\n\ndata: on\n\n", "text/event-stream; charset=utf-8", "stream: sse"),
        (b'{"answer": "Ly"}\n{"answer": "on"}\n', "application/json", "stream: lines"),
    ],
)
def test_stream_in_place_of_a_document_is_not_the_answer(body: bytes, kind: str, option: str) -> None:
    blank = one(lambda request: (200, b"\n" * 10_000 + b": \n\n" * 10_000 + b"Lyon", {"content-type": "text/plain"}), answer="$")
    assert blank.answer.endswith("Lyon")
    prediction = one(lambda request: (200, body, {"content-type": kind}), answer="$", attempts=1)
    assert prediction.answer == ""
    assert option in prediction.notes[FAILED]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"content": ANTHROPIC, "stop_reason": "end_turn"}, "content"),
        ({"status": "completed", "output": RESPONSES}, "output"),
        ({"candidates": [{"content": {"parts": GEMINI}, "finishReason": "STOP"}]}, "candidates[0].content.parts"),
        ({"messages": [{"type": "human", "content": "Where?"}, {"type": "ai", "content": ANTHROPIC[1:]}]}, "messages[-1].content"),
    ],
)
def test_parts_of_one_message_are_one_answer_without_its_thought(document: Any, path: str) -> None:
    assert one(lambda request: document, answer=path).answer == "Lyon"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"content": ANTHROPIC}, "content[].text?"),
        ({"answers": [{"answer": "Lyon"}, {"answer": "Paris"}]}, "answers[].answer"),
        ({"messages": [{"type": "human", "content": "Where?"}, {"type": "ai", "content": "Lyon"}]}, "messages"),
        ({"docs": [{"id": 1, "text": "Lyon"}]}, "docs"),
        ({"parts": GEMINI}, "parts[0].text"),
        ({"content": [{"type": "tool_use", "name": "find", "input": {}}, {"type": "text", "text": " "}]}, "content"),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "I must not"}]}]}, "output"),
    ],
)
def test_one_of_several_texts_is_no_answer(document: Any, path: str) -> None:
    prediction = one(lambda request: document, answer=path)
    assert prediction.answer == ""
    assert FAILED in prediction.notes


def test_streamed_thought_of_gemini_is_no_piece_of_the_answer() -> None:
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in GEMINI]
    events[-1]["candidates"][0]["finishReason"] = "STOP"  # type: ignore[assignment]
    assert one(lambda request: sse(*events), answer="candidates[0].content.parts[0].text", stream="sse").answer == "Lyon"


def test_streamed_parts_are_pieces_without_thoughts() -> None:
    contents = [[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], [{"type": "text", "text": "Ly"}], "on"]
    events = [{"choices": [{"delta": {"content": content}}]} for content in contents]  # Mistral's
    assert one(lambda request: sse(*events, "[DONE]"), answer="choices[0].delta.content", stream="sse").answer == "Lyon"


def test_documents_of_langchain_js_and_haystack_are_contexts() -> None:
    documents = [{"pageContent": "a", "metadata": {"source": "u"}}, {"content": "b", "id": "7", "meta": {"url": "v"}, "score": 0.5}]
    shown = (Shown("a", url="u"), Shown("b", "7", "v", 0.5))
    assert one(lambda request: {"answer": "Lyon", "sources": documents}, contexts="sources[]").contexts == shown


@pytest.mark.parametrize("word", ["None", "null", "false"])
def test_text_that_names_no_error_is_no_error(word: str) -> None:
    assert one(lambda request: {"answer": "Lyon", "error": word}).answer == "Lyon"


SDK = [
    {"type": "start"},
    {"type": "reasoning-delta", "id": "0", "delta": "Paris?"},
    {"type": "text-delta", "id": "1", "delta": "Lyon"},
    {"type": "finish"},
]
AGENT = [
    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"},
    {"type": "TOOL_CALL_ARGS", "delta": "{}"},
    {"type": "TEXT_MESSAGE_CONTENT", "delta": "Lyon"},
]


@pytest.mark.parametrize("events", [SDK, AGENT], ids=["vercel", "ag-ui"])
def test_streamed_thoughts_and_tool_calls_are_no_pieces_of_the_answer(events: list[Any]) -> None:
    assert one(lambda request: sse(*events), answer="delta", stream="sse").answer == "Lyon"
    failed = one(lambda request: sse(*events, {"type": "RUN_ERROR", "message": "no index"}), answer="delta", stream="sse", attempts=1)
    assert "no index" in failed.notes[FAILED]


@pytest.mark.parametrize(
    "pieces",
    [["Ly", "Lyon"], ["", "L", "Ly", "Lyon", "Lyon"], ["Ly", "on", "Lyon"], ["Lyon"] * 2, ["Ly", "Lyon", "Lyon is", "**Lyon** is [1]"]],
)
def test_pieces_that_repeat_the_answer_are_not_joined(pieces: list[str]) -> None:
    events = [{"answer": piece} for piece in pieces]
    joined = one(lambda request: sse(*events), stream="sse")
    assert joined.answer == ""
    assert "pieces: false" in joined.notes[FAILED]
    assert one(lambda request: sse(*events), stream="sse", pieces=False).answer == pieces[-1]


@pytest.mark.parametrize("pieces", [["1", "10"], ["ha", "ha", "ha"], ["Ly", "on"], ["Lyon"], ["The", " The", " city"], ["Bora", " Bora"]])
def test_pieces_of_one_answer_are_joined(pieces: list[str]) -> None:
    assert one(lambda request: sse(*[{"answer": piece} for piece in pieces]), stream="sse").answer == "".join(pieces)


ERRORS = [
    "**ERROR**: GENERIC_ERROR - connection refused",
    "Error code: 429 - {'error': {'message': 'Rate limit reached'}}",
    "An error occurred: Error code: 401 - {'error': 'no key'}",
    "Error: litellm.RateLimitError: RateLimitError: OpenAIException",
    "openai.APIConnectionError: Connection error.",
    "Error: Connection error.",
    "Request timed out.",
    "Sorry, an unexpected error occurred.",
    "Traceback (most recent call last):\n  File",
    "502 Bad Gateway",
    "Internal Server Error",
    "HTTP 503: Service Unavailable",
    "Agent stopped due to iteration limit or time limit.",
]
NO_ERRORS = [
    "Error correction",
    "An error occurred during the landing of Apollo 11",
    "KeyError",
    "ValueError: raised if the list is empty",
    "Connection errors in the network",
    "Too many requests by citizens",
    "404",
    "500 metres",
    "The Error: a novel of 1975",
    "Timeout",
    "A rate limit of 60 calls",
    "I found no answer.",
]


@pytest.mark.parametrize(("texts", "failed"), [(ERRORS, True), (NO_ERRORS, False)], ids=["errors", "answers"])
def test_text_of_an_error_is_no_answer(texts: list[str], failed: bool) -> None:
    assert {text: is_error(text) for text in texts} == dict.fromkeys(texts, failed)
    assert not any(is_error(part * 30_000 + "x") for part in ("error ", "a.", "_", "sorry "))  # in linear time
    prediction = one(lambda request: {"answer": texts[0]})
    assert (FAILED in prediction.notes) == failed


def test_halves_of_characters_are_joined_or_replaced() -> None:
    emoji = one(lambda request: sse({"answer": "Ly \ud83d"}, {"answer": "\ude00"}), stream="sse")
    assert emoji.answer == "Ly \U0001f600"
    reply = {"answer": "Ly\ud83d", "docs": [{"text": "a \ud83d", "id": "\ud83d", "url": "u"}], "query": "\ud83d", "cite": ["\ud83d"]}
    prediction = one(lambda request: reply, contexts="docs[]", searches="query", cites="cite")
    assert prediction.contexts == (Shown("a \ufffd", "\ufffd", "u"),)
    assert prediction.answer == "Ly\ufffd"
    assert prediction.searches[0].query == prediction.statements[0].cites[0] == "\ufffd"
