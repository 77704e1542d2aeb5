"""An application behind HTTP: requests, replies, streams and every kind of error, on real loopback servers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import certifi
import pytest
from pydantic import ValidationError

from benchmarks.core.errors import Broke
from benchmarks.corpus import Corpus
from benchmarks.schema import Query, Turn
from methods.api import FAILED, SPENDING, WAIT, Prediction, Services
from methods.pipeline import Composition
from methods.record import Search, Shown, Statement
from methods.registry import Component
from tests.support.app import Asked, Reply, app
from tests.support.errors import raises

Answer = Callable[[Asked], Reply | Any]
HTML = (200, b"<!DOCTYPE html><html><title>Sign in</title></html>", {"content-type": "text/html"})
GOOD = {"answer": "Lyon"}


def ask(reply: Answer, *queries: Query | str, **config: Any) -> tuple[list[Prediction], list[Asked]]:
    with app(reply) as (url, requests):
        options = {"url": url, "backoff_s": 0.001, **config}
        method = Composition(Component.of("http", options)).build(Services())
        method.index(Corpus.of([]))
        made = [query if isinstance(query, Query) else Query(f"q{number}", query) for number, query in enumerate(queries or ("Where?",))]
        return sorted(method.answer(made), key=lambda prediction: prediction.question_id), requests


def one(reply: Answer, **config: Any) -> Prediction:
    (prediction,), _ = ask(reply, **config)
    return prediction


def test_question_is_sent_and_reply_paths_are_read() -> None:
    reply = {
        "data": {"answer": " Lyon ", "sure": 0.5},
        "docs": [{"text": "Lyon is big.", "id": 7, "link": "http://a", "score": 0.25}, {"text": "b", "id": None, "link": "", "score": 1}],
        "sentences": [{"text": "Lyon.", "refs": [0, "7"]}],
        "steps": [{"q": "city", "hits": ["7", 8]}],
        "usage": {"in": 10, "out": 3},
        "usd": "0.002",
    }
    (prediction,), requests = ask(
        lambda request: reply,
        answer="data.answer",
        contexts={"text": "docs[].text", "id": "docs[].id?", "url": "docs[].link", "score": "docs[].score"},
        statements={"text": "sentences[].text", "cites": "sentences[].refs"},
        searches={"query": "steps[].q", "found": "steps[].hits"},
        confidence="data.sure",
        usage={"prompt_tokens": "usage.in", "completion_tokens": "usage.out"},
        cost="usd",
    )
    assert requests[0].json == {"question": "Where?"}
    assert prediction.answer == "Lyon"
    assert prediction.contexts == (Shown("Lyon is big.", "7", "http://a", 0.25), Shown("b", score=1.0))
    assert prediction.statements == (Statement("Lyon.", (0, "7")),)
    assert prediction.searches == (Search("city", ("7", "8")),)
    assert (prediction.confidence, prediction.usage.cost_usd) == (0.5, 0.002)
    assert (prediction.usage.prompt_tokens, prediction.usage.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    ("contexts", "reply", "shown"),
    [
        ("docs[].text", {"docs": [{"text": "a"}]}, (Shown("a"),)),
        ("docs", {"docs": ["a", "b"]}, (Shown("a"), Shown("b"))),
        ("docs[]", {"docs": [{"page_content": "a", "metadata": {"source": "u"}}]}, (Shown("a", url="u"),)),
        ("context", {"context": "a"}, (Shown("a"),)),
        ("docs[].text", {"docs": []}, ()),
        ("docs[].text?", {}, None),
        ("docs[].text?", {"docs": None}, None),
        ("docs[].text?", {"docs": []}, ()),
    ],
)
def test_contexts_in_common_layouts(contexts: str, reply: dict[str, Any], shown: tuple[Shown, ...] | None) -> None:
    assert one(lambda request: GOOD | reply, contexts=contexts).contexts == shown


@pytest.mark.parametrize(
    ("contexts", "shown"),
    [
        ({"id": "docs[].id?", "url": "docs[].url?"}, (Shown("", "7", "http://a"), Shown("", "", "http://b"), Shown("", "", ""))),
        ({"url": "docs[].url?", "score": "docs[].score?"}, (Shown("", "", "http://a", 0.5), Shown("", "", "http://b"), Shown("", "", ""))),
    ],
)
def test_contexts_may_be_named_without_texts(contexts: dict[str, str], shown: tuple[Shown, ...]) -> None:
    reply = GOOD | {"docs": [{"id": 7, "url": "http://a", "score": 0.5}, {"url": "http://b"}, {}]}
    assert one(lambda request: reply, contexts=contexts).contexts == shown


def test_contexts_need_a_text_or_a_name() -> None:
    with pytest.raises(ValidationError):
        Component.of("http", {"url": "http://localhost/ask", "contexts": {"score": "docs[].score"}})


def test_templates_fill_in_questions_turns_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_KEY", "secret-value-1234")
    query = Query("q7", 'He said "Où?" & left', turns=(Turn("user", "Hi"), Turn("assistant", "Hello")))
    body = {"messages": "{{messages}}", "history": "{{turns}}", "text": "Q {{ question }} ({{id}})", "n": 3}
    (prediction,), requests = ask(
        lambda request: {"answer": "your key is secret-value-1234"}, query, body=body, headers={"Authorization": "Bearer ${APP_KEY}"}
    )
    assert requests[0].headers["authorization"] == "Bearer secret-value-1234"
    sent = requests[0].json
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert sent["history"] == history
    assert sent["messages"] == [*history, {"role": "user", "content": query.text}]
    assert (sent["text"], sent["n"]) == (f"Q {query.text} (q7)", 3)
    assert prediction.answer == "your key is ***"


def test_get_and_form_requests_url_encode_the_question() -> None:
    question = "a&b = ü?"
    url_query = lambda request: parse_qs(urlsplit(request.path).query)  # noqa: E731
    with app(lambda request: {"answer": url_query(request)["q"][0]}) as (url, _):
        method = Composition(Component.of("http", {"url": f"{url}?q={{{{question}}}}", "method": "GET"})).build(Services())
        assert [prediction.answer for prediction in method.answer([Query("q", question)])] == [question]
    form = {"content-type": "application/x-www-form-urlencoded"}
    _, requests = ask(lambda request: GOOD, question, headers=form, body={"q": "{{question}}"})
    assert parse_qs(requests[0].body.decode()) == {"q": [question]}


def test_plain_text_reply_is_the_answer() -> None:
    assert one(lambda request: (200, "\ufeffZürich".encode(), {"content-type": "text/plain"}), answer="$").answer == "Zürich"


def test_json_is_parsed_with_any_content_type() -> None:
    assert one(lambda request: (200, b'{"answer": "Lyon"}', {"content-type": "text/html"})).answer == "Lyon"


def sse(*events: Any) -> Reply:
    lines = "".join(f"event: message\ndata: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return 200, f": ping\n\n{lines}".encode(), {"content-type": "text/event-stream"}


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


@pytest.mark.parametrize(
    ("body", "kind", "answer"),
    [
        ("Zürich".encode("latin-1"), "text/plain; charset=iso-8859-1", "Zürich"),
        ("Lyon".encode("utf-16-be"), 'text/plain; charset="utf-16be"', "Lyon"),
        ("Zürich".encode(), "text/plain; charset=iso-8859-1", "Zürich"),
        (b"1.50", "text/plain", "1.50"),
        (b"true", "text/plain", "true"),
        (b"1.5", "application/json", "1.5"),
    ],
)
def test_text_is_decoded_by_its_charset_and_kept_as_written(body: bytes, kind: str, answer: str) -> None:
    assert one(lambda request: (200, body, {"content-type": kind}), answer="$").answer == answer


def test_streamed_chunks_are_joined() -> None:
    delta = {"answer": "choices[0].delta.content", "stream": "sse", "contexts": "docs[].text", "body": {"messages": "{{messages}}"}}
    prediction = one(lambda request: sse({"docs": [{"text": "a"}], **piece("Ly")}, piece("on"), {"usage": {}}, "[DONE]"), **delta)
    assert (prediction.answer, prediction.contexts) == ("Lyon", (Shown("a"),))
    lines = '\ufeff{"answer": "Ly\u2028"}\r\n{"answer": "on"}\r\n'.encode()
    assert one(lambda request: (200, lines, {}), stream="lines").answer == "Ly\u2028on"
    assert one(lambda request: (200, lines, {}), stream="lines", pieces=False).answer == "on"
    marked = "\ufeff".encode() + sse(piece("Ly"), piece("on"), "[DONE]")[1].removeprefix(b": ping\n\n").replace(b"event: message\n", b"")
    assert one(lambda request: (200, marked, {}), **delta | {"contexts": None}).answer == "Lyon"
    failed = one(lambda request: sse({"choices": []}), **delta)
    assert "finds nothing in any of 1 events" in failed.notes[FAILED]
    assert "overloaded" in one(lambda request: sse(piece("Ly"), {"error": "overloaded"}), attempts=1, **delta).notes[FAILED]


CHAT = {
    "message": {
        "content": "Lyon [doc1]",
        "context": {"citations": [{"content": "a", "filepath": "a.md", "url": None}], "intent": '["city"]'},
    }
}


@pytest.mark.parametrize(
    ("preset", "reply", "shown", "cites"),
    [
        (
            "chat",
            {
                "choices": [{"message": {"content": "Lyon", "annotations": [{"url_citation": {"url": "http://a"}}]}}],
                "usage": {"prompt_tokens": 5},
            },
            None,
            ("http://a",),
        ),
        ("chat", {"choices": [{"message": {"content": "Lyon"}}]}, None, None),
        (
            "perplexity",
            {
                "choices": [{"message": {"content": "Lyon"}}],
                "citations": ["http://a"],
                "search_results": [{"snippet": "a", "url": "http://a"}, {"url": "http://b"}],
            },
            (Shown("a", url="http://a"),),
            ("http://a",),
        ),
        ("azure", {"choices": [CHAT]}, (Shown("a", "a.md"),), None),
    ],
)
def test_chat_endpoints_return_answers_with_citations(preset: str, reply: Any, shown: Any, cites: Any) -> None:
    (prediction,), requests = ask(lambda request: reply, preset=preset, body={"model": "m"})
    assert requests[0].json == {"messages": [{"role": "user", "content": "Where?"}], "model": "m"}
    assert prediction.answer.startswith("Lyon")
    assert prediction.contexts == shown
    assert prediction.statements == (() if cites is None else (Statement("Lyon", cites),))


def test_fields_that_state_no_error_do_not_fail_an_answer() -> None:
    fine = {"error": {"message": None, "code": 0}, "errors": [], "success": True, "status": "ok", "code": 404, "ok": 1, "isError": False}
    assert one(lambda request: GOOD | fine).answer == "Lyon"
    assert one(lambda request: GOOD | {"error": False, "status": 200, "message": "fine", "code": 0}).answer == "Lyon"


def test_thoughts_parts_and_finish_reasons_of_chats_are_read() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Lyon"}]
    for content, thought in ((parts, "hm"), ("<think>Paris?</think>\n\nLyon", "Paris?"), ("Lyon", "")):
        reply = {"choices": [{"message": {"content": content}, "finish_reason": "length"}]}
        prediction = one(lambda request, reply=reply: reply, **CHAT)
        (call,) = prediction.calls
        assert (prediction.answer, call.thought, call.finish_reason) == ("Lyon", thought, "length")
        assert bool(prediction.raw) == bool(thought)


def test_items_of_several_events_are_collected() -> None:
    events = [
        {"source": {"text": "a", "id": 1}, "query": "city"},
        {"source": {"text": "b", "id": 2}, "query": "river", "cite": "u1"},
        {"source": {"text": "b", "id": 2}, "cite": "u2", "usage": {"in": 3}},
        {"answer": "Lyon", "usage": {"in": 5}},
    ]
    paths = {"contexts": {"text": "source[].text"}, "searches": "query", "cites": "cite", "usage": {"prompt_tokens": "usage.in"}}
    listed = [event | {"source": [event["source"]]} if "source" in event else event for event in events]
    prediction = one(lambda request: sse(*listed), stream="sse", **paths)
    assert prediction.contexts == (Shown("a"), Shown("b"))
    assert prediction.searches == (Search("city"), Search("river"))
    assert prediction.statements == (Statement("Lyon", ("u1", "u2")),)
    assert prediction.usage.prompt_tokens == 5
    single = one(lambda request: sse(*events), stream="sse", contexts="source")
    assert single.contexts == (Shown("a", "1"), Shown("b", "2"))
    growing = [{"docs": [{"text": "a"}]}, {"docs": [{"text": "a"}, {"text": "b"}], "answer": "Lyon"}]
    assert one(lambda request: sse(*growing), stream="sse", contexts="docs[].text").contexts == (Shown("a"), Shown("b"))


def test_events_of_thoughts_and_further_samples_are_no_pieces_of_the_answer() -> None:
    responses = sse(
        {"type": "response.created"},
        {"type": "response.reasoning_summary_text.delta", "delta": "Paris?"},
        {"type": "response.output_text.delta", "delta": "Lyon"},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    )
    prediction = one(lambda request: responses, answer="delta", stream="sse")
    assert (prediction.answer, prediction.calls[0].finish_reason) == ("Lyon", "max_output_tokens")
    chunks = [{"choices": [{"index": n, "delta": {"content": text}}]} for n, text in ((0, "Ly"), (1, "Par"), (0, "on"), (1, "is"))]
    assert one(lambda request: sse(*chunks, "[DONE]"), answer="choices[0].delta.content", stream="sse").answer == "Lyon"


CHAT = {"answer": "choices[0].message.content"}
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing answer": ({"text": "Lyon"}, {}, "the reply is an object with the keys text"),
    "error in place of an answer": ({"error": {"message": "no index"}}, {}, "no index"),
    "error beside an answer": (GOOD | {"error": "rate limit"}, {}, "rate limit"),
    "errors beside an answer": (GOOD | {"errors": [{"message": "partial data"}]}, {}, "partial data"),
    "no success": (GOOD | {"success": False}, {}, "success"),
    "error as a truth value": (GOOD | {"error": True}, {}, "error"),
    "errors as texts": (GOOD | {"errors": ["no index"]}, {}, "no index"),
    "error beside a nested answer": ({"data": GOOD | {"error": "no index"}}, {"answer": "data.answer"}, "no index"),
    "status in the body": (GOOD | {"statusCode": 503}, {}, "503"),
    "code beside a message": (GOOD | {"code": 500, "msg": "no index"}, {}, "no index"),
    "failed tool": (GOOD | {"isError": True}, {}, "isError"),
    "failed choice": ({"choices": [{"message": {"content": "Ly"}, "error": {"code": 502}}]}, CHAT, "502"),
    "chat that calls a tool": (
        {"choices": [{"message": {"content": "I look.", "tool_calls": [{"function": {"name": "find"}}]}, "finish_reason": "tool_calls"}]},
        CHAT,
        "'find'",
    ),
    "chat that refuses": ({"choices": [{"message": {"content": None, "refusal": "I must not"}}]}, CHAT, "I must not"),
    "thought without an answer": (GOOD | {"answer": "<think>Is it Paris"}, {}, "thought"),
    "invisible answer": (GOOD | {"answer": "\u200b"}, {}, "is empty"),
    "filter of another API": ({"candidates": [{"finishReason": "SAFETY"}], **GOOD}, {}, "safety"),
    "failed job": (GOOD | {"status": "failed"}, {}, "failed"),
    "filtered chat": ({"choices": [{"message": {"content": "Ly"}, "finish_reason": "content_filter"}]}, CHAT, "content_filter"),
    "stream of a chat that stops": (
        (200, b'data: {"choices": [{"delta": {"content": "Ly"}, "finish_reason": null}]}\n\n', {}),
        {"answer": "choices[0].delta.content", "stream": "sse", "attempts": 1},
        "before the answer is complete",
    ),
    "stream of a chat without finish reasons that stops": (
        (200, b'data: {"choices": [{"delta": {"content": "Ly"}}]}\n\n', {}),
        {"answer": "choices[0].delta.content", "stream": "sse", "attempts": 1},
        "before the answer is complete",
    ),
    "stream of messages that stops": (
        (200, b'data: {"type": "message_start"}\n\ndata: {"type": "content_block_delta", "delta": {"text": "Ly"}}\n\n', {}),
        {"answer": "delta.text", "stream": "sse", "attempts": 1},
        "before the answer is complete",
    ),
    "stream of a response that fails": (
        (200, b'data: {"type": "response.output_text.delta", "delta": "Ly"}\n\ndata: {"type": "response.failed"}\n\n', {}),
        {"answer": "delta", "stream": "sse", "attempts": 1},
        "response.failed",
    ),
    "stream of lines that stops": (
        (200, b'{"response": "Ly", "done": false}\n', {}),
        {"answer": "response", "stream": "lines", "attempts": 1},
        "before the answer is complete",
    ),
    "error as an event": (
        (200, b'data: {"answer": "Ly"}\n\nevent: error\ndata: {"code": 5}\n\n', {}),
        {"stream": "sse", "attempts": 1},
        "code",
    ),
    "error as a type": ((200, b'{"answer": "Ly"}\n{"type": "error"}\n', {}), {"stream": "lines", "attempts": 1}, "reports an error"),
    "stream in Latin-1": ((200, b'{"answer": "Orl\xe9ans"}\n', {}), {"stream": "lines"}, "not a text in UTF-8"),
    "no content": ((204, b"", {"content-type": "application/json"}), {}, "HTTP 204"),
    "accepted": ((202, b"Accepted", {"content-type": "text/plain"}), {"answer": "$"}, "HTTP 202"),
    "partial": ((206, GOOD, {"content-range": "bytes 0-9/90"}), {"attempts": 2}, "HTTP 206"),
    "answer that is no number": ((200, b'{"answer": NaN}', {}), {}, "is nan"),
    "answer of another type": ({"answer": ["Lyon"]}, {}, "must be a text, not a list of 1"),
    "empty answer": ({"answer": "  "}, {}, "is empty"),
    "missing contexts": (GOOD, {"contexts": "docs[].text"}, "'docs[].text' finds nothing"),
    "contexts of another type": (GOOD | {"docs": [3]}, {"contexts": "docs"}, "must be a text, not a number"),
    "one context without text": (GOOD | {"docs": [{"text": "a"}, {}]}, {"contexts": "docs[].text"}, "an empty object"),
    "usage of another type": (GOOD | {"n": "many"}, {"usage": {"prompt_tokens": "n"}}, "must be a number"),
    "broken JSON": ((200, b'{"answer": "Ly', {}), {"attempts": 2}, "broken JSON"),
    "bytes": ((200, b"\xff\xfe\x00", {"content-type": "image/png"}), {}, "neither JSON nor a text"),
    "huge reply": ({"answer": "x" * 30_000}, {"largest_mib": 0.01}, "longer than 0.01 MiB"),
    "validation error": ((422, {"detail": [{"loc": ["body", "query"]}]}, {}), {}, "HTTP 422"),
    "server error": ((500, b"Traceback", {}), {"attempts": 2}, "HTTP 500: Traceback"),
    "long pause": ((429, b"", {"retry-after": "9000"}), {}, "longest_wait_s"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_reply_fails_the_question_and_names_the_missing_path(name: str) -> None:
    reply, config, stated = BAD[name]
    prediction = one(lambda request: reply, **config)
    assert prediction.answer == ""
    assert stated in prediction.notes[FAILED]


def test_reply_without_a_configured_path_fails_only_its_question() -> None:
    replies = {"q0": GOOD, "q1": {"text": "Lyon"}, "q2": HTML, "q3": GOOD}
    predictions, _ = ask(lambda request: replies[request.json["id"]], *"abcd", body={"id": "{{id}}", "q": "{{question}}"}, concurrency=1)
    assert [bool(prediction.notes.get(FAILED)) for prediction in predictions] == [False, True, True, False]


@pytest.mark.parametrize(
    ("reply", "questions"),
    [
        ((401, {"error": "no key"}, {}), 1),
        (HTML, 3),
        ((302, b"", {"location": "https://login.example.com/?next=ask"}), 3),
        ((404, b"", {}), 3),
    ],
)
def test_app_that_refuses_everything_ends_the_task(reply: Reply, questions: int) -> None:
    with raises("app-does-not-answer") as caught:
        ask(lambda request: reply, *["Where?"] * 5, concurrency=1)
    assert isinstance(caught.value, Broke)
    with raises("app-does-not-answer"):
        ask(lambda request: reply, *["Where?"] * questions, concurrency=1)


def test_unreachable_app_ends_the_task_and_shows_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with app(lambda request: GOOD) as (url, _):
        pass
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    monkeypatch.setenv("APP_KEY", "hidden")
    options = {"url": url, "backoff_s": 0.0, "attempts": 2, "body": {"asked": "{{question}}", "key": "${APP_KEY}"}}
    method = Composition(Component.of("http", options)).build(Services())
    with raises("app-does-not-answer") as caught:
        list(method.answer([Query("q", "Where?")]))
    remedy = caught.value.try_this or ""
    assert "POST with the fields asked, key" in remedy
    assert "hidden" not in remedy
    assert "SSL_CERT_FILE" not in remedy  # no certificate is read for http:


def test_transient_errors_are_retried() -> None:
    replies = iter([(503, b"", {}), (429, b"", {"retry-after": "0.01"}), (200, GOOD, {})])
    (prediction,), requests = ask(lambda request: next(replies), usd_per_call=0.5)
    assert (prediction.answer, len(requests), prediction.usage.cost_usd) == ("Lyon", 3, 1.5)


def test_timeout_covers_the_whole_reply() -> None:
    def slow(request: Asked) -> Any:
        time.sleep(0.2)
        return GOOD

    assert "timed out after 0.05 s" in one(slow, timeout_s=0.05, attempts=1).notes[FAILED]


def test_concurrency_is_bounded_and_queueing_is_excluded_from_latency() -> None:
    lock, met, running, most = threading.Lock(), threading.Event(), 0, 0

    def reply(request: Asked) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if most == 2:
                met.set()
        met.wait(30)
        time.sleep(0.02)
        with lock:
            running -= 1
        return GOOD

    predictions, _ = ask(reply, *["Where?"] * 8, concurrency=2)
    assert most == 2
    assert all(prediction.usage.own_s < 0.5 for prediction in predictions)
    assert WAIT in predictions[0].usage.seconds


def test_cost_that_a_reply_does_not_state_is_unknown() -> None:
    replies = {"q0": GOOD, "q1": GOOD | {"usd": 0}, "q2": GOOD | {"usd": 0.5}}
    body = {"id": "{{id}}", "q": "{{question}}"}
    predictions, _ = ask(lambda request: replies[request.json["id"]], *"abc", body=body, cost="usd?")
    assert [prediction.usage.cost_usd for prediction in predictions] == [0.0, 0.0, 0.5]
    assert [prediction.notes.get(SPENDING) for prediction in predictions] == [{"unpriced": 1}, None, None]


def test_dollar_limit_stops_requests() -> None:
    predictions, requests = ask(
        lambda request: GOOD | {"usd": 0.4}, *["Where?"] * 4, cost="usd", run_usd=1.0, usd_per_call=0.4, concurrency=1
    )
    assert len(requests) == 2
    assert [prediction.notes.get(FAILED, "")[:13] for prediction in predictions] == ["", "", "limit reached", "limit reached"]


@pytest.mark.parametrize(
    "config",
    [
        {"url": "ftp://a/ask"},
        {"url": "http://me:secret@a/ask"},
        {"url": "http://a/ask?api_key=abc"},
        {"headers": {"Authorization": "Bearer abc"}},
        {"headers": {"X\n": "a"}},
        {"body": {"api_key": "abc", "q": "{{question}}"}},
        {"body": {"q": "{{query}}"}},
        {"body": {"q": "fixed"}},
        {"answer": "a..b"},
        {"contexts": {"text": ""}},
        {"attempts": 0},
    ],
)
def test_options_that_cannot_work_or_contain_secrets_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Component.of("http", {"url": "http://a/ask", **config})
    assert "abc" not in str(caught.value)


def test_url_may_come_from_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    component = Component.of("http", {"url": "${APP_URL}/ask?x=1", "answer": "answer"})
    assert component.config.model_dump()["url"] == "${APP_URL}/ask?x=1"
    monkeypatch.setenv("APP_URL", "localhost:8000")
    with raises("bad-app-url"):
        component.preflight()
    with app(lambda request: {"answer": request.path}) as (url, _):
        monkeypatch.setenv("APP_URL", url.removesuffix("/ask"))
        assert [prediction.answer for prediction in Composition(component).build(Services()).answer([Query("q", "?")])] == ["/ask?x=1"]


def test_unset_variable_and_turns_without_a_placeholder_are_refused() -> None:
    with raises("missing-variable"):
        Component.of("http", {"url": "http://a/ask", "headers": {"Authorization": "Bearer ${NO_SUCH_KEY}"}}).preflight()
    with raises("no-place-for-turns"):
        ask(lambda request: GOOD, Query("q", "And?", turns=(Turn("user", "Hi"),)))


def test_secrets_and_speed_options_do_not_change_the_identity() -> None:
    plain = Component.of("http", {"url": "http://a/ask"})
    other = Component.of("http", {"url": "http://a/ask", "headers": {"X-Key": "${A}"}, "concurrency": 9, "run_usd": 1})
    assert plain.fingerprint == other.fingerprint != Component.of("http", {"url": "http://a/ask", "answer": "text"}).fingerprint
