"""The chat client and reader against a loopback server with every error that is retried, fails a question or stops the run."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.schema import Passage, Query
from methods.api import FAILED, Context, Services
from methods.flow import each
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.registry import Component
from tests.support.errors import raises

KEY = "sk-secret-0123456789"
Fault = tuple[int, dict[str, str], str]
"""Status, headers and body of an error reply."""


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint: answers with the last line but one of the prompt, unless set to fail."""

    daemon_threads = True
    block_on_close = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.paths: set[str] = set()
        self.faults: Callable[[str, int], Fault | None] = lambda prompt, attempt: None
        self.seen: dict[str, int] = {}
        self.lock = threading.Lock()
        self.now, self.most = 0, 0
        self.delay = 0.0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that gave up waiting."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = request["messages"][-1]["content"]
        with self.server.lock:
            self.server.requests.append(request)
            self.server.keys.add(self.headers["authorization"])
            self.server.paths.add(self.path)
            attempt = self.server.seen[prompt] = self.server.seen.get(prompt, 0) + 1
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        time.sleep(self.server.delay)
        with self.server.lock:
            self.server.now -= 1
        fault = self.server.faults(prompt, attempt)
        if fault is None:
            self._send(200, {"content-type": "application/json"}, json.dumps(completion(prompt)))
        else:
            self._send(*fault)

    def _send(self, status: int, headers: dict[str, str], body: str) -> None:
        raw = body.encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


def completion(prompt: str, content: str | None = None, **choice: Any) -> dict[str, Any]:
    answer = content if content is not None else f"Answer: {prompt.split()[-1]}"
    message = {"role": "assistant", "content": answer}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny-2026",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, **choice}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Fault:
    body = json.dumps({"error": {"message": message, "code": code, "type": "t"}})
    return status, {"content-type": "application/json", **headers}, body


def json_reply(value: Any) -> Fault:
    return 200, {"content-type": "application/json"}, value if isinstance(value, str) else json.dumps(value)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def model(server: Server, **config: Any) -> ChatModel:
    return ChatModel(ChatConfig(model="tiny", base_url=server.url, **{"backoff_s": 0.001, **config}))


def ask(server: Server, *prompts: str, **config: Any) -> list[Any]:
    return model(server, **config).complete([[{"role": "user", "content": prompt}] for prompt in prompts])


def test_replies_keep_the_order_of_questions_and_have_costs(server: Server) -> None:
    prices = {"usd_per_million_prompt_tokens": 2.0, "usd_per_million_completion_tokens": 5.0}
    replies = ask(server, *(f"say {number}" for number in range(30)), concurrency=7, **prices)
    assert [reply.text for reply in replies] == [f"Answer: {number}" for number in range(30)]
    assert {(r.prompt_tokens, r.completion_tokens, r.calls, r.failed) for r in replies} == {(10, 2, 1, None)}
    assert replies[0].cost_usd == pytest.approx(30e-6)
    assert replies[0].model == "tiny-2026"
    assert server.keys == {f"Bearer {KEY}"}
    assert server.paths == {"/v1/chat/completions"}
    assert {name: server.requests[0][name] for name in ("model", "temperature", "max_tokens")} == {
        "model": "tiny",
        "temperature": 0.0,
        "max_tokens": 64,
    }


@pytest.mark.slow
def test_calls_in_flight_never_exceed_concurrency(server: Server) -> None:
    server.delay = 0.02
    ask(server, *(f"say {number}" for number in range(20)), concurrency=3)
    assert 2 <= server.most <= 3


def test_limit_name_option_renames_the_token_limit_parameter(server: Server) -> None:
    ask(server, "say a", limit_name="max_completion_tokens", max_tokens=5)
    assert server.requests[0]["max_completion_tokens"] == 5
    assert "max_tokens" not in server.requests[0]


@pytest.mark.parametrize("fault", [error(429), error(500), error(503), (502, {"content-type": "text/html"}, "<html>")])
def test_transient_error_is_retried(server: Server, fault: Fault) -> None:
    server.faults = lambda prompt, attempt: fault if attempt <= 2 else None
    replies = ask(server, "say a", "say b")
    assert [(reply.text, reply.calls, reply.failed) for reply in replies] == [("Answer: a", 3, None), ("Answer: b", 3, None)]


def test_retry_after_is_honored(server: Server) -> None:
    server.faults = lambda prompt, attempt: error(429, **{"retry-after": "0.4"}) if attempt == 1 else None
    reply = ask(server, "say a")[0]
    assert reply.calls == 2
    assert reply.seconds >= 0.4


def test_slow_reply_is_retried_and_then_fails(server: Server) -> None:
    patient = model(server, timeout_s=0.05, attempts=2)
    server.delay = 0.3
    reply = patient.complete([[{"role": "user", "content": "say b"}]])[0]
    assert reply.calls == 2
    assert "timed out" in reply.failed.lower()


def test_permanent_error_fails_only_its_question(server: Server) -> None:
    server.faults = lambda prompt, attempt: error(500, "broken") if prompt == "say b" else None
    good, bad, also_good = ask(server, "say a", "say b", "say c", attempts=3)
    assert (good.text, also_good.text) == ("Answer: a", "Answer: c")
    assert (bad.text, bad.calls) == ("", 3)
    assert "500" in bad.failed
    assert "broken" in bad.failed


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (json_reply("{not json"), "not JSON"),
        (json_reply("[]"), "not a chat completion"),
        (json_reply({"error": "x"}), "error in place of a reply: x"),
        ((200, {"content-type": "text/html"}, "<html>hello</html>"), "/v1"),
        (json_reply({**completion("x"), "choices": []}), "no choice"),
    ],
)
def test_malformed_reply_is_retried_and_then_fails_only_its_question(server: Server, fault: Fault, reason: str) -> None:
    server.faults = lambda prompt, attempt: fault if prompt == "say b" and attempt <= 2 else None
    assert [(reply.text, reply.calls) for reply in ask(server, "say a", "say b")] == [("Answer: a", 1), ("Answer: b", 3)]
    server.faults = lambda prompt, attempt: fault if prompt == "say b" else None
    good, bad = ask(server, "say a", "say b", attempts=3)
    assert good.text == "Answer: a"
    assert (bad.text, bad.calls) == ("", 3)
    assert reason in bad.failed


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (json_reply(completion("x", "")), "empty"),
        (json_reply(completion("x", message={"role": "assistant", "content": None}, finish_reason="content_filter")), "content_filter"),
        (error(400, "maximum context length is 10"), "maximum context length"),
        (error(422, "unknown field"), "unknown field"),
    ],
)
def test_permanent_refusal_fails_its_question_without_retry(server: Server, fault: Fault, reason: str) -> None:
    server.faults = lambda prompt, attempt: fault if prompt == "say b" else None
    good, bad = ask(server, "say a", "say b")
    assert good.text == "Answer: a"
    assert (bad.text, bad.calls) == ("", 1)
    assert reason in bad.failed


def test_html_reply_to_the_first_call_is_reported_as_a_wrong_url(server: Server) -> None:
    server.faults = lambda prompt, attempt: (200, {"content-type": "text/html"}, "<html>hello</html>")
    with raises("endpoint-error"):
        ask(server, "say a", attempts=2)


@pytest.mark.parametrize("status", [403, 404])
def test_refusal_among_successful_calls_fails_only_its_question(server: Server, status: int) -> None:
    chat = model(server)
    assert chat.complete([[{"role": "user", "content": "say a"}]])[0].failed is None
    server.faults = lambda prompt, attempt: error(status, "moderation") if prompt == "say b" else None
    bad, good = chat.complete([[{"role": "user", "content": f"say {word}"}] for word in "bc"])
    assert (bad.calls, "moderation" in bad.failed, good.text) == (1, True, "Answer: c")


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, None, "endpoint-error"),
        (403, None, "endpoint-error"),
        (404, None, "endpoint-error"),
        (429, "insufficient_quota", "endpoint-error"),
    ],
)
def test_fatal_error_stops_the_run_without_showing_the_key(server: Server, status: int, code: str | None, message: str) -> None:
    server.faults = lambda prompt, attempt: error(status, f"Incorrect API key provided: {KEY}", code)
    with raises(message) as caught:
        ask(server, *(f"say {number}" for number in range(5)), concurrency=1)
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown
    assert "tiny" in str(caught.value)
    assert "***" in str(caught.value)


def test_key_in_an_error_message_is_redacted_from_notes(server: Server) -> None:
    server.faults = lambda prompt, attempt: error(400, f"bad request by {KEY}")
    assert KEY not in ask(server, "say a")[0].failed


def test_unreachable_endpoint_stops_the_run() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    chat = ChatModel(ChatConfig(model="m", base_url=url, key_variable=None, attempts=2, backoff_s=0.001))
    with raises("endpoint-unreachable"):
        chat.complete([[{"role": "user", "content": "x"}]])


def test_missing_key_variable_is_named_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    component = Component.of("chat", {"llm": {"model": "m", "key_variable": "MY_KEY"}})
    with raises("missing-variable"):
        component.preflight()
    with raises("missing-variable"):
        component.build(Services())


@pytest.mark.parametrize(
    "wrong",
    [{"key_variable": KEY}, {"base_url": f"https://me:{KEY}@host/v1"}, {"base_url": f"https://host/v1?key={KEY}"}, {"base_url": "host"}],
)
def test_key_in_the_options_is_refused_without_repeating_it(wrong: dict[str, str]) -> None:
    for make in (ChatConfig, lambda **value: Component.of("chat", {"llm": value})):
        with pytest.raises(ValidationError) as caught:
            make(model="m", **wrong)
        assert KEY not in str(caught.value)


def test_reader_works_inside_a_running_event_loop(server: Server) -> None:
    async def notebook() -> list[Any]:
        return ask(server, "say a")

    assert asyncio.run(notebook())[0].text == "Answer: a"


def reader(server: Server, **config: Any) -> Any:
    llm = {"model": "tiny", "base_url": server.url, "backoff_s": 0.001}
    return Component.of("chat", {"llm": llm, **config}).build(Services())


PASSAGES = (Passage("p1", "Salt\nRoad", "Ann  Oder\nmade it. $question"), Passage("p2", "", "Nobody."))


def contexts(queries: Sequence[Query]) -> list[Context]:
    return [Context(query.id, PASSAGES if number % 2 == 0 else ()) for number, query in enumerate(queries)]


def test_prompt_contains_question_and_numbered_passages(server: Server) -> None:
    queries = [Query("q0", "Who made $passages?"), Query("q1", "Who?")]
    each(reader(server), "read", queries, contexts(queries))
    by_length = sorted(server.requests, key=lambda request: len(request["messages"][1]["content"]))
    closed, opened = ([message["content"] for message in request["messages"]] for request in by_length)
    assert "[1] Salt Road: Ann Oder made it. $question\n\n[2] Nobody." in opened[1]
    assert "Question: Who made $passages?\n" in opened[1]
    assert "assage" not in closed[0] + closed[1]


@pytest.mark.slow
def test_answers_do_not_depend_on_the_batch(server: Server) -> None:
    queries = [Query(f"q{number}", f"What is number{number}?") for number in range(9)]
    server.faults = lambda prompt, attempt: error(500) if attempt == 1 and "number3" in prompt else None
    chat = reader(server, prompt=None)
    together = each(chat, "read", queries, contexts(queries))
    server.seen.clear()
    alone = [each(chat, "read", [q], [c])[0] for q, c in zip(queries, contexts(queries), strict=True)]
    assert together == alone
    assert together[3].usage.model_calls == 2
    assert (together[0].usage.prompt_tokens, together[0].usage.completion_tokens) == (10, 2)


def test_failed_question_is_marked_in_its_notes(server: Server) -> None:
    server.faults = lambda prompt, attempt: error(400, "filtered") if "bad" in prompt else None
    queries = [Query("q0", "good?"), Query("q1", "bad?")]
    good, bad = each(reader(server), "read", queries, contexts(queries))
    assert FAILED not in good.notes
    assert (bad.text, "filtered" in bad.notes[FAILED]) == ("", True)


def test_custom_template_is_used_and_changes_the_fingerprint(server: Server, tmp_path: Any) -> None:
    own = tmp_path / "own.txt"
    own.write_text("Costs $$5. $passages / $question")
    options = {"llm": {"model": "tiny", "base_url": server.url}, "prompt": str(own)}
    before = Component.of("chat", options).fingerprint
    each(reader(server, prompt=str(own)), "read", [Query("q", "Who?")], [Context("q", PASSAGES[1:])])
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Costs $5. [1] Nobody. / Who?"}]
    own.write_text("Other: $passages $question")
    assert Component.of("chat", options).fingerprint != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no place", "template-missing-placeholder"),
        ("$question $quesiton", "template-unknown-placeholder"),
        ("$question costs $ 5", "template-lone-dollar"),
    ],
)
def test_invalid_template_is_named(tmp_path: Any, text: str, message: str) -> None:
    own = tmp_path / "own.txt"
    own.write_text(text)
    component = Component.of("chat", {"llm": {"model": "m", "key_variable": None}, "prompt": str(own)})
    with raises(message):
        component.preflight()
