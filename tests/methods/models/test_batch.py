"""Batches against a loopback server that implements OpenAI's batch API."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import Broke
from methods.flow import ordered
from methods.models import batch
from methods.models.chat import ChatModel, Reply
from methods.models.chat_config import ChatConfig
from tests.support.batches import Batches
from tests.support.errors import raises

PROMPTS = ["one", "two", "three"]
PRICES = {"usd_per_million_prompt_tokens": 1e5, "usd_per_million_completion_tokens": 0.0}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SETTLE_S", 0.01)
    monkeypatch.setattr(batch, "FIRST_PAUSE_S", 0.005)


@pytest.fixture
def server() -> Iterator[Batches]:
    with Batches().running() as server:
        yield server


@pytest.fixture
def ask(server: Batches, tmp_path: Path) -> Callable[..., list[Reply]]:
    """Send prompts with a separate client, like another execution."""

    def ask(prompts: list[str] = PROMPTS, known: bool = True, **options: Any) -> list[Reply]:
        options = {
            "model": "m",
            "base_url": server.url,
            "key_variable": None,
            "batch": True,
            "poll_s": 0.005,
            "backoff_s": 0.001,
            **options,
        }
        model = ChatModel(ChatConfig(**options), cache=tmp_path / "cache.sqlite", known=known)
        conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
        return ordered(model.ask, conversations, model.in_flight)

    return ask


def texts(replies: list[Reply]) -> list[str]:
    return [reply.text for reply in replies]


def records(tmp_path: Path) -> list[Path]:
    """Return the files of the ledger; its record of delivered replies is deleted a moment later."""
    files: list[Path] = []
    for _ in range(2000):
        files = list((tmp_path / "batches").rglob("*.json"))
        if not files:
            break
        time.sleep(0.01)
    return files


@pytest.mark.slow
def test_calls_are_sent_in_one_batch_and_replies_cached(ask: Any, server: Batches, tmp_path: Path) -> None:
    replies = ask()
    assert texts(replies) == ["ONE", "TWO", "THREE"]
    assert (len(server.batches), server.live) == (1, [])
    assert records(tmp_path) == []
    assert all(reply.cached for reply in ask(batch=False))
    assert (len(server.batches), server.live) == (1, [])


def test_batch_calls_cost_half_the_price(ask: Any) -> None:
    assert ask(["one"], batch_price=0.5, **PRICES)[0].cost_usd == pytest.approx(0.5)
    assert ask(["one"], batch_price=0.5, batch=False, **PRICES)[0].cost_usd == pytest.approx(0.5)
    assert ask(["two"], **PRICES)[0].cost_usd == pytest.approx(1.0)


def test_calls_that_depend_on_replies_are_sent_live(ask: Any, server: Batches, capfd: pytest.CaptureFixture[str]) -> None:
    assert texts(ask(known=False, model="another")) == ["ONE", "TWO", "THREE"]
    assert (len(server.batches), len(server.live)) == (0, 3)
    assert "live" in capfd.readouterr().err


def test_files_contain_at_most_the_allowed_requests(ask: Any, server: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_REQUESTS", 2)
    assert len(ask([str(number) for number in range(5)])) == 5
    assert sorted(item["request_counts"]["total"] for item in server.batches.values()) == [1, 2, 2]
    server.batches.clear()
    monkeypatch.setattr(batch, "MOST_BYTES", 10)
    ask(["a", "b"])
    assert len(server.batches) == 2


def test_refused_request_fails_without_others_and_is_sent_again_by_a_retry(ask: Any, server: Batches) -> None:
    server.failing = lambda prompt: prompt == "two"
    replies = ask()
    assert [reply.failed is None for reply in replies] == [True, False, True]
    assert "content policy" in str(replies[1].failed)
    server.failing = lambda prompt: False
    assert texts(ask()) == ["ONE", "TWO", "THREE"]
    assert server.requests == [*PROMPTS, "two"]


@pytest.mark.parametrize("final", ["expired", "cancelled"])
def test_unanswered_requests_of_a_batch_fail_and_are_sent_again(ask: Any, server: Batches, final: str) -> None:
    server.final, server.unanswered = final, lambda prompt: prompt == "three"
    replies = ask()
    assert texts(replies) == ["ONE", "TWO", ""]
    server.final = "completed"
    assert texts(ask()) == ["ONE", "TWO", "THREE"]
    assert server.requests == [*PROMPTS, "three"]


def test_failed_batch_fails_its_requests_with_its_reason(ask: Any, server: Batches, tmp_path: Path) -> None:
    server.final = "failed"
    assert all("enqueued token limit" in str(reply.failed) for reply in ask())
    assert records(tmp_path) == []


def test_truncated_output_file_fails_only_the_request_of_the_cut_line(ask: Any, server: Batches) -> None:
    server.cut = 20
    assert sorted(reply.failed is None for reply in ask()) == [False, True, True]
    server.cut = 0
    assert texts(ask()) == ["ONE", "TWO", "THREE"]


def test_of_two_lines_about_a_request_the_answer_counts(ask: Any, server: Batches) -> None:
    server.twice = True
    assert texts(ask()) == ["ONE", "TWO", "THREE"]


def test_busy_api_is_retried(ask: Any, server: Batches) -> None:
    busy = {"/files": [429], "/batches": [500, 429], "/batches/batch_1": [503]}
    server.refuse = lambda method, path: busy[path].pop() if busy.get(path) else None
    assert texts(ask()) == ["ONE", "TWO", "THREE"]
    assert len(server.batches) == 1


def test_refused_key_stops_the_run(ask: Any, server: Batches) -> None:
    server.refuse = lambda method, path: 401
    with raises("endpoint-error"):
        ask()


def test_endpoint_without_the_batch_api_is_named(ask: Any, server: Batches) -> None:
    server.refuse = lambda method, path: 404 if path.startswith("/files") else None
    with raises("batch-api-failed") as caught:
        ask()
    assert "batch: false" in str(caught.value.try_this)


@pytest.mark.parametrize("forgets", [False, True])
def test_another_execution_attaches_to_a_batch(ask: Any, server: Batches, tmp_path: Path, forgets: bool) -> None:
    server.refuse = lambda method, path: 403 if method == "GET" else None
    with pytest.raises(Broke):
        ask()
    (record,) = (tmp_path / "batches").rglob("*.json")
    if forgets:  # as if the process had been killed before the reply of the server
        record.write_text(record.read_text().replace('"batch": "batch_1"', '"batch": ""'))
    server.refuse = lambda method, path: None
    assert texts(ask()) == ["ONE", "TWO", "THREE"]
    assert len(server.batches) == 1
    assert records(tmp_path) == []


SCRIPT = """
import sys
from pathlib import Path
from methods.flow import ordered
from methods.models import batch
from methods.models.chat import ChatModel
from methods.models.endpoint import ChatConfig
batch.SETTLE_S = 0.01
config = ChatConfig(model="m", base_url=sys.argv[1], key_variable=None, batch=True, poll_s=0.01)
model = ChatModel(config, cache=Path(sys.argv[2]), known=True)
ordered(model.ask, [[{"role": "user", "content": text}] for text in ("one", "two", "three")], 10)
"""


@pytest.mark.slow
def test_killed_process_submits_no_request_twice(ask: Any, server: Batches, tmp_path: Path) -> None:
    server.held.set()
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, server.url, str(tmp_path / "cache.sqlite")], env=dict(os.environ))
    deadline = time.monotonic() + 120
    while not (server.batches and server.batches["batch_1"]["status"] == "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.held.clear()
    assert texts(ask()) == ["ONE", "TWO", "THREE"]
    assert (len(server.batches), len(server.requests)) == (1, 3)
    assert records(tmp_path) == []
