"""A thousand calls through a server with every kind of error lose nothing; kill -9 loses only calls in flight."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from methods.models.chat import DOUBT, ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.reply_cache import ResponseCache, shared
from tests.support.errors import raises
from tests.support.faults import LASTING, PASSING, Faults
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

ROOT = Path(__file__).resolve().parents[3]


def say(request: ChatRequest) -> Written:
    return Written(f"Answer: {request.prompt.split()[-1]}", len(request.prompt), 2)


def chat(url: str, **options: Any) -> ChatModel:
    cache = options.pop("cache", None)
    config = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.01, "timeout_s": 30.0, **options}
    return ChatModel(ChatConfig(**config), cache=cache)


def prompts(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": text}] for text in texts]


def content(path: Path, url: str) -> list[tuple[str, str]]:
    """Return requests and replies without the port, which differs between servers."""
    cache = ResponseCache(path)
    rows = sorted((entry.request.replace(url, "URL"), entry.reply) for entry in cache.entries())
    cache.close()
    return rows


@pytest.mark.slow
def test_calls_to_a_faulty_server_give_the_results_of_a_clean_one(tmp_path: Path) -> None:
    calls = 150
    texts = [f"say {number}" for number in range(calls)]
    seen: dict[str, Any] = {}
    for name, passing, patience in (("faulty", 0.3, 0.7), ("clean", 0.0, 60.0)):
        faults = Faults(passing=passing, lasting=0.04, seed=3)
        server = OpenAIServer("m", say, intercept=faults)
        with server.running() as url:
            model = chat(url, concurrency=64, cache=tmp_path / f"{name}.sqlite", attempts=8, timeout_s=patience)
            replies = model.complete(prompts(*texts))
            sent = server.calls
            again = model.complete(prompts(*(t for t, r in zip(texts, replies, strict=True) if r.failed is None)))
            assert server.calls == sent  # what was answered is never asked again
        refused = {text for text in texts if faults.lasts(text)}
        for text, reply in zip(texts, replies, strict=True):
            if text in refused:
                assert reply.text == ""
                assert "filter" in reply.failed or "maximum context length" in reply.failed
            else:
                assert (reply.text, reply.failed) == (f"Answer: {text.split()[1]}", None)
        assert 0.02 * calls <= len(refused) <= 0.07 * calls
        assert all(reply.cached for reply in again)
        spent = model.usage_by_role.of("chat")
        assert (spent.failed, spent.cached) == (len(refused), calls - len(refused))
        assert spent.calls == sum(reply.calls for reply in replies)
        assert spent.calls >= sent  # a try may fail before its request arrives
        seen[name] = content(tmp_path / f"{name}.sqlite", url)
        if passing:
            assert set(faults.played) == {*PASSING, *LASTING}
            assert model.rate_limiter.cuts > 0
        else:
            assert set(faults.played) == set(LASTING)
            assert sent == calls
    assert seen["faulty"] == seen["clean"]
    assert len(seen["clean"]) == calls - len(refused)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PASSING)
def test_every_kind_of_transient_error_is_survived(kind: str) -> None:
    faults = Faults(passing=1.0, kinds=[kind], most_in_a_row=2)
    with OpenAIServer("m", say, intercept=faults).running() as url:
        replies = chat(url, timeout_s=2.0 if kind == "slow_bytes" else 30).complete(prompts("say a", "say b"))
    assert [(reply.text, reply.calls, reply.failed) for reply in replies] == [("Answer: a", 3, None), ("Answer: b", 3, None)]
    assert faults.played == {kind: 4}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PASSING)
def test_permanent_error_fails_the_call_with_its_reason(kind: str) -> None:
    reasons = {
        "429": "429",
        "429_after": "429",
        "500": "500",
        "slow_bytes": "timed out",
        "cut_connection": "onnection",
        "invalid_json": "not JSON",
        "empty_choices": "no choice",
        "wrong_content_type": "text/html",
    }
    faults = Faults(passing=1.0, kinds=[kind], most_in_a_row=99)
    server = OpenAIServer("m", say)
    with server.running() as url:
        model = chat(url, timeout_s=2.0 if kind == "slow_bytes" else 30, attempts=2)
        assert model.complete(prompts("say a"))[0].failed is None
        server.intercept = faults
        reply = model.complete(prompts("say b"))[0]
    assert (reply.text, reply.calls) == ("", 2)
    assert reasons[kind] in reply.failed


_CLIENT = """
import sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from methods.models.chat import ChatConfig, ChatModel
config = ChatConfig(model="m", base_url=sys.argv[1], key_variable=None, concurrency=8)
model = ChatModel(config, cache=Path(sys.argv[2]))
model.complete([[{"role": "user", "content": f"say {number}"}] for number in range(240)])
"""


@pytest.mark.slow
def test_kill_9_loses_at_most_the_calls_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    queries: Counter[str] = Counter()
    lock = threading.Lock()

    def slowly(request: ChatRequest) -> Written:
        with lock:
            queries[request.prompt] += 1
        time.sleep(0.01)
        return say(request)

    with OpenAIServer("m", slowly).running() as url:
        command = [sys.executable, "-c", _CLIENT, url, str(path), str(ROOT)]
        for stop in (60, 140):
            process = subprocess.Popen(command)
            while sum(queries.values()) < stop and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        assert subprocess.run(command, check=False, timeout=120).returncode == 0
        rows = content(path, url)
    assert len(rows) == len(queries) == 240
    # Each death may cost the eight calls in flight, asked a second time, and nothing else.
    assert sum(queries.values()) - 240 <= 2 * 8
    assert {json.loads(reply)["text"] for _, reply in rows} == {f"Answer: {number}" for number in range(240)}


def test_second_run_makes_no_call_even_without_a_server(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with OpenAIServer("m", say).running() as url:
        first = chat(url, cache=path).complete(prompts("say a", "say b"))
    again = chat(url, cache=path).complete(prompts("say b", "say a"))
    assert [(r.text, r.prompt_tokens, r.cost_usd, r.cached) for r in again] == [
        (r.text, r.prompt_tokens, r.cost_usd, True) for r in first[::-1]
    ]
    assert chat(url, cache=path, attempts=1).complete(prompts("say c"))[0].failed


def test_outage_fails_calls_of_a_later_model_only_if_it_lasts() -> None:
    with OpenAIServer("m", say).running() as url:
        chat(url).preflight()
    later = chat(url, attempts=2)
    assert "Connect" in str(later.complete(prompts("say a"))[0].failed)
    with raises("endpoint-unreachable"):
        chat(f"{url}/never", attempts=2).complete(prompts("say a"))


def test_cached_reply_that_was_broken_off_is_requested_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with OpenAIServer("m", say).running() as url:
        (first,) = chat(url, cache=path).complete(prompts("say a"))
        with shared(path).opened() as connection:
            connection.execute("UPDATE replies SET reply = json_set(reply, '$.text', 'Answ', '$.finish_reason', 'abort')")
        model = chat(url, cache=path)
        assert model.estimate(prompts("say a")).calls == 1
        (again,) = model.complete(prompts("say a"))
        assert (again.text, again.cached) == (first.text, False)
    assert [reply.cached for reply in chat(url, cache=path).complete(prompts("say a"))] == [True]


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_cached_reply_keeps_its_finish_reason(tmp_path: Path, reason: str) -> None:
    with OpenAIServer("m", lambda request: Written("Answ", 3, 1, reason)).running() as url:
        replies = [chat(url, cache=tmp_path / "cache.sqlite").complete(prompts("say a"))[0] for _ in range(2)]
    assert [(reply.cached, reply.finish_reason) for reply in replies] == [(False, reason), (True, reason)]


def test_identical_concurrent_calls_are_sent_once(tmp_path: Path) -> None:
    def slowly(request: ChatRequest) -> Written:
        time.sleep(0.1)
        return say(request)

    server = OpenAIServer("m", slowly)
    with server.running() as url:
        models = [chat(url, cache=tmp_path / "cache.sqlite") for _ in range(3)]
        results: list[Any] = []
        threads = [threading.Thread(target=lambda m=m: results.append(m.complete(prompts("say a", "say a", "say b")))) for m in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.calls == 2
        assert [[reply.text for reply in replies] for replies in results] == [["Answer: a", "Answer: a", "Answer: b"]] * 3
        assert sum(model.usage_by_role.of("chat").calls for model in models) == 2
        # Further draws of the same conversation are other calls.
        models[0].complete(prompts("say a"), repetition=1)
        assert server.calls == 3


def test_failure_is_shared_by_waiting_calls_but_never_cached(tmp_path: Path) -> None:
    broken = [True]

    def fussy(request: ChatRequest) -> Written:
        time.sleep(0.05)
        if broken[0]:
            raise Refused(400, "no")
        return say(request)

    server = OpenAIServer("m", fussy)
    with server.running() as url:
        model = chat(url, cache=tmp_path / "cache.sqlite")
        assert [reply.failed is not None for reply in model.complete(prompts("say a", "say a"))] == [True, True]
        assert server.calls == 1
        broken[0] = False
        assert model.complete(prompts("say a"))[0].text == "Answer: a"


def test_cancelled_call_is_taken_over_by_identical_waiting_calls(tmp_path: Path) -> None:
    """Two models send the same call; the first gets its key refused, which ends only its own run."""
    server = OpenAIServer("m", say)
    gate = threading.Event()

    def refuse_first(handler: Any, request: ChatRequest) -> bool:
        if server.calls == 1:
            gate.wait(60)
            handler.refuse(Refused(401, "bad key"))
            return True
        return False

    server.intercept = refuse_first
    with server.running() as url:
        first, second = (chat(url, cache=tmp_path / "cache.sqlite") for _ in range(2))

        def lead() -> None:
            with suppress(UserError):
                first.complete(prompts("say a"))

        leader = threading.Thread(target=lead)
        leader.start()
        while server.calls == 0:
            time.sleep(0.005)
        results: list[Any] = []
        follower = threading.Thread(target=lambda: results.extend(second.complete(prompts("say a"))))
        follower.start()
        time.sleep(0.1)
        gate.set()
        leader.join()
        follower.join()
    assert [reply.text for reply in results] == ["Answer: a"]
    assert server.calls == 2


_FORKING = """
import os, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from methods.models.chat import ChatConfig, ChatModel
model = ChatModel(ChatConfig(model="m", base_url=sys.argv[1], key_variable=None), cache=Path(sys.argv[2]))
ask = lambda text: model.complete([[{"role": "user", "content": text}]])[0].text
assert ask("say parent") == "Answer: parent"
pid = os.fork()
if pid == 0:
    os._exit(0 if (ask("say child"), ask("say parent")) == ("Answer: child", "Answer: parent") else 1)
assert os.waitpid(pid, 0)[1] == 0
assert (ask("say after"), ask("say child")) == ("Answer: after", "Answer: child")
"""


@pytest.mark.slow
def test_forked_child_opens_its_own_connections(tmp_path: Path) -> None:
    server = OpenAIServer("m", say)
    with server.running() as url:
        command = [sys.executable, "-c", _FORKING, url, str(tmp_path / "cache.sqlite"), str(ROOT)]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert server.calls == 3


def test_interrupted_caller_leaves_no_call_in_flight(tmp_path: Path) -> None:
    """A batch that is stopped by a refused key cancels its other calls and releases their slots."""

    def fussy(request: ChatRequest) -> Written:
        if request.prompt == "say 3":
            raise Refused(401, "revoked")
        time.sleep(0.05)
        return say(request)

    with OpenAIServer("m", fussy).running() as url:
        model = chat(url, cache=tmp_path / "cache.sqlite")
        with raises("endpoint-error"):
            model.complete(prompts(*(f"say {number}" for number in range(40))))
        assert [reply.failed for reply in model.complete(prompts(*(f"say {number}" for number in range(40, 60))))] == ([None] * 20)
        assert model._cache is not None
        assert model._cache.flights == {}


def test_used_up_credit_stops_an_endpoint_that_answered_before() -> None:
    server = OpenAIServer("m", say)
    with server.running() as url:
        model = chat(url)
        assert model.complete(prompts("say a"))[0].text == "Answer: a"
        server.intercept = lambda handler, _: handler.refuse(Refused(402, "Insufficient credits")) or True
        with raises("endpoint-error"):
            model.complete(prompts("say b"))


@pytest.mark.parametrize("status", [408, 409, 425, 429])
def test_passing_status_is_retried(status: int) -> None:
    server = OpenAIServer("m", say)
    server.intercept = lambda handler, _: server.calls == 1 and (handler.refuse(Refused(status, "later")) or True)
    with server.running() as url:
        (reply,) = chat(url).complete(prompts("say a"))
    assert (reply.text, reply.calls) == ("Answer: a", 2)


def test_attempts_are_few_until_an_endpoint_has_answered_once() -> None:
    page = Faults(passing=1.0, kinds=["wrong_content_type"], most_in_a_row=99)
    server = OpenAIServer("m", say, intercept=page)
    with server.running() as url:
        with raises("endpoint-error"):
            chat(url, attempts=20).complete(prompts("say a"))
        assert server.calls == DOUBT
        # Once it has answered, patience is what was asked for.
        server.intercept = None
        model = chat(url, attempts=6)
        model.complete(prompts("say a"))
        server.intercept = page
        assert model.complete(prompts("say b"))[0].calls == 6
