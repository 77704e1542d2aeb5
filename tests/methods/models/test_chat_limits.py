"""Limits, accounting, estimates and the pre-flight call."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.api import Services
from methods.models import secrets
from methods.models.counting import PER_MESSAGE, Estimate, TokenCounter
from methods.models.limits import LIMIT, Budget, UsageByRole, execution
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import Refused, Written

PRICES = {"usd_per_million_prompt_tokens": 1e6, "usd_per_million_completion_tokens": 2e6}
"""One dollar per prompt token, two per token of the reply."""


@pytest.mark.slow
def test_run_stops_at_its_call_limit_and_keeps_replies(endpoint: Any, busy: ModuleType, tmp_path: Path) -> None:
    """A call may need 6 + 10 tokens and uses 12, so a limit of 64 allows five calls."""
    path = tmp_path / "cache.sqlite"
    model = endpoint.chat(run_tokens=64, max_tokens=10, cache=path)
    replies = model.complete(busy.prompts(20))
    done = [reply for reply in replies if reply.failed is None]
    rest = [reply for reply in replies if reply.failed is not None]
    assert len(done) == len(endpoint.starts) == 5
    assert {(reply.calls, reply.failed[: len(LIMIT)]) for reply in rest} == {(0, LIMIT)}
    assert "run_tokens 64, of which 60 are used" in rest[0].failed
    assert model.usage_by_role.of("chat").prompt_tokens + model.usage_by_role.of("chat").completion_tokens == 60
    # With a higher limit the run continues; what is paid for is not paid again.
    again = endpoint.chat(run_tokens=10_000, max_tokens=10, cache=path).complete(busy.prompts(20))
    assert all(reply.failed is None for reply in again)
    assert len(endpoint.starts) == 20


def test_run_stops_at_its_dollar_limit(endpoint: Any, busy: ModuleType) -> None:
    """A call costs 10 + 2 · 2 dollars and may cost 6 + 2 · 4."""
    model = endpoint.chat(run_usd=50.0, max_tokens=4, **PRICES)
    replies = model.complete(busy.prompts(9))
    assert sum(reply.failed is None for reply in replies) == 3
    assert model.usage_by_role.total.cost_usd == pytest.approx(42)
    assert "run_usd 50" in next(reply.failed for reply in replies if reply.failed)


def test_concurrent_calls_cannot_exceed_a_limit_together(endpoint: Any, busy: ModuleType) -> None:
    endpoint.delay = 0.05
    model = endpoint.chat(run_tokens=160, max_tokens=10, concurrency=64)
    replies = model.complete(busy.prompts(100))
    spent = sum(reply.prompt_tokens + reply.completion_tokens for reply in replies)
    assert spent <= 160
    assert spent > 160 - 16 - 12  # and the room there is gets used


def test_models_of_one_execution_share_one_budget(endpoint: Any, busy: ModuleType) -> None:
    """The smallest limit applies, also to a model without its own."""
    with execution():
        models = [endpoint.chat(role=str(tokens), run_tokens=tokens, max_tokens=10) for tokens in (100, 64, None)]
    alone = endpoint.chat(run_tokens=64, max_tokens=10)
    replies = [reply for model in models for reply in model.complete(busy.prompts(4, model.role))]
    assert sum(reply.failed is None for reply in replies) == 5
    assert sum(reply.prompt_tokens + reply.completion_tokens for reply in replies) == 60
    assert all(reply.failed is None for reply in alone.complete(busy.prompts(4)))


def test_call_larger_than_the_limit_per_call_is_not_sent(endpoint: Any) -> None:
    model = endpoint.chat(call_tokens=100, max_tokens=10)
    small, large = model.complete([[{"role": "user", "content": "x"}], [{"role": "user", "content": "x" * 400}]])
    assert small.failed is None
    assert large.failed == f"{LIMIT}: call_tokens 100, and this call may need 114"
    assert len(endpoint.starts) == 1
    (dear,) = endpoint.chat(call_usd=5.0, max_tokens=10, **PRICES).complete([[{"role": "user", "content": "x"}]])
    assert dear.failed == f"{LIMIT}: call_usd 5, and this call may cost 25"


def test_tokens_are_estimated_if_the_endpoint_reports_none(endpoint: Any, busy: ModuleType) -> None:
    endpoint.server.answer = lambda request: Written("x" * 40, 0, 0)
    replies = endpoint.chat(run_tokens=60, max_tokens=10).complete(busy.prompts(10))
    # 4 + 2 for the prompt and 10 for the reply, each time.
    assert sum(reply.failed is None for reply in replies) == 3


@given(limit=st.integers(0, 200), calls=st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), max_size=30))
def test_budget_is_never_exceeded_and_never_blocks(limit: int, calls: list[tuple[int, float]]) -> None:
    async def story() -> int:
        budget = Budget(limit, None)

        async def one(most: int, share: float) -> int:
            if await budget.reserve(most, 0.0):
                assert budget.spent_tokens + most > limit
                return 0
            await asyncio.sleep(0)
            used = int(most * share)
            budget.settle((most, 0.0), (used, 0.0))
            return used

        return sum(await asyncio.wait_for(asyncio.gather(*(one(*call) for call in calls)), 5))

    assert asyncio.run(story()) <= limit


def test_limits_and_speed_options_do_not_change_the_fingerprint() -> None:
    options = {"model": "m", "base_url": "http://localhost/v1", "key_variable": None}
    before = Component.of("chat", {"llm": options}).fingerprint
    assert Component.of("chat", {"llm": {**options, "run_usd": 1.0, "concurrency": 2, "attempts": 1}}).fingerprint == before
    assert Component.of("chat", {"llm": {**options, "max_tokens": 65}}).fingerprint != before


def test_usage_is_recorded_per_role(endpoint: Any, busy: ModuleType, tmp_path: Path) -> None:
    usage_by_role = UsageByRole()
    endpoint.refuse = lambda request: Refused(400, "no") if request.prompt == "judge 1" else None
    cache = tmp_path / "cache.sqlite"
    endpoint.chat(role="reader", usage_by_role=usage_by_role, cache=cache, **PRICES).complete(busy.prompts(3))
    endpoint.chat(role="reader", usage_by_role=usage_by_role, cache=cache, **PRICES).complete(busy.prompts(4))
    endpoint.chat(role="judge", usage_by_role=usage_by_role).complete(busy.prompts(2, "judge"))
    rest = {"cached_tokens": 0, "unpriced": 0}
    assert usage_by_role.to_json() == {
        "judge": {"calls": 2, "cached": 0, "failed": 1, "prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.0, **rest},
        "reader": {"calls": 4, "cached": 3, "failed": 0, "prompt_tokens": 40, "completion_tokens": 8, "cost_usd": 56.0, **rest},
    }
    assert usage_by_role.total.calls == 6


def test_estimate_counts_uncached_calls_without_sending_any(endpoint: Any, busy: ModuleType, tmp_path: Path) -> None:
    model = endpoint.chat(cache=tmp_path / "cache.sqlite", max_tokens=7, **PRICES)
    model.complete(busy.prompts(2))
    estimate = model.estimate([*busy.prompts(5), *busy.prompts(5)])
    assert (estimate.calls, estimate.cached) == (3, 7)
    # "say 4" is five characters, two tokens by characters / 4.
    assert estimate.prompt_tokens == 3 * (PER_MESSAGE + 2)
    assert estimate.completion_tokens == 21
    assert estimate.usd == pytest.approx(18 + 42)
    assert "characters / 4" in str(estimate)
    assert len(endpoint.starts) == 2


def test_tokens_are_counted_with_a_tokenizer_if_available(tiny_llama: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    text = "Where did Ann live?"
    expected = len(AutoTokenizer.from_pretrained(tiny_llama)(text, add_special_tokens=False)["input_ids"])
    assert TokenCounter(tiny_llama).count([{"role": "user", "content": text}]) == expected + PER_MESSAGE
    with raises("unreadable-tokenizer"):
        TokenCounter(str(tmp_path / "absent.json"))


def test_reader_estimates_its_prompts(endpoint: Any) -> None:
    from benchmarks.schema import Passage, Query
    from methods.api import Context

    options = {"model": "m", "base_url": endpoint.server.url, "key_variable": None}
    reader = Component.of("chat", {"llm": options}).build(Services())
    query, context = Query("q", "Who?"), Context("q", (Passage("p", "", "x" * 400),))
    more = Context("q", (Passage("p", "", "x" * 800),))
    few, many = (reader.estimate([query], [item]).prompt_tokens for item in (context, more))
    assert many - few == 100
    assert endpoint.starts == []


def test_working_endpoint_passes_preflight_with_one_call(endpoint: Any) -> None:
    assert endpoint.chat().preflight().text == "ok"
    assert len(endpoint.starts) == 1


@pytest.mark.parametrize(
    ("options", "refused", "message"),
    [
        ({"model": "mm"}, None, "endpoint-error"),
        ({}, Refused(401, "Incorrect API key provided: sk-secret-1234"), "endpoint-error"),
        ({}, Refused(403, "no"), "endpoint-error"),
        ({}, Refused(429, "pay", "insufficient_quota"), "endpoint-error"),
        ({}, Refused(400, "use 'max_completion_tokens' instead"), "endpoint-error"),
        ({}, Refused(500, "broken"), "endpoint-error"),
    ],
)
def test_preflight_errors_name_the_cause(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], refused: Refused | None, message: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    endpoint.refuse = lambda request: refused
    with raises(message) as caught:
        endpoint.chat(key_variable="MY_KEY", **options).preflight()
    assert "sk-secret-1234" not in "".join(traceback.format_exception(caught.value))


def test_preflight_detects_a_wrong_path_and_an_empty_reply(endpoint: Any) -> None:
    with raises("endpoint-error"):
        endpoint.chat(base_url=endpoint.server.url.removesuffix("/v1")).preflight()
    endpoint.server.answer = lambda request: Written("", 1, 16, "length")
    with raises("reply-without-answer"):
        endpoint.chat().preflight()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return everything that libraries log."""
    root, text = logging.getLogger(), io.StringIO()
    level = root.level
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(text)])
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(level)


def test_key_is_absent_from_repr_dump_and_log(
    endpoint: Any, busy: ModuleType, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    model = endpoint.chat(key_variable="MY_KEY", cache=tmp_path / "cache.sqlite")
    replies = model.complete(busy.prompts(2))
    shown = [repr(model), repr(model.config), model.config.model_dump_json(), repr(replies), logged.getvalue()]
    assert logged.getvalue()
    assert "sk-secret-1234" not in "".join(shown)
    assert b"sk-secret-1234" not in (tmp_path / "cache.sqlite").read_bytes()
    assert b"sk-secret-1234" not in (tmp_path / "cache.sqlite-wal").read_bytes()


def test_key_repeated_by_an_endpoint_is_not_stored(endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = "sk-secret-1234-in-use"
    monkeypatch.setenv("MY_KEY", key)
    endpoint.server.answer = lambda request: Written(f"Your key is {key}, {key}.", 1, 16, "stop")
    (reply,) = endpoint.chat(key_variable="MY_KEY", cache=tmp_path / "cache.sqlite").complete(
        [[{"role": "user", "content": "What is your key?"}]]
    )
    assert reply.text == "Your key is ***, ***."
    assert key.encode() not in (tmp_path / "cache.sqlite").read_bytes() + (tmp_path / "cache.sqlite-wal").read_bytes()


KEY = "sk-proj+Abc/9xYz=QW12er34TY56ui78OP"


@pytest.mark.parametrize(
    "form",
    [
        quote(KEY, safe=""),
        quote(KEY, safe="").replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d"),
        "".join(f"%{ord(letter):02X}" for letter in KEY),
        json.dumps({"Authorization": f"Bearer {KEY}"}),
        json.dumps(KEY).replace("/", "\\/"),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        *(base64.b64encode(f"{before}{KEY}:x".encode()).decode() for before in ("", "u", "u:", "user:", "Bearer ")),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        KEY[:10] + " " + KEY[10:],
        "\u200b".join(KEY),
        "-".join(KEY),
        KEY.upper(),
    ],
)
def test_encoded_and_split_keys_are_redacted(form: str) -> None:
    secrets.use(KEY)
    shown = secrets.hidden(f"it is {form}.")
    assert secrets.HIDDEN in shown
    assert len(shown) < 40, "what is left of it tells nothing"


def test_redacting_keys_takes_linear_time() -> None:
    secrets.use(KEY)
    for text in ("s" * 100_000, "sk-" * 33_000, KEY[:-1] * 3000, "-" * 100_000):
        started = time.process_time()
        assert secrets.hidden(text) == text
        assert time.process_time() - started < 1


@pytest.mark.parametrize(("secret", "counts"), [("EMPTY", False), ("not-needed", False), ("a1b2c3d4", True), ("k" * 16, True), ("", False)])
def test_only_real_keys_are_redacted_from_answers(secret: str, counts: bool) -> None:
    secrets.use(secret)
    text = f"The answer is {secret} here"
    assert (secrets.hidden(text) != text) is counts


def test_estimate_lists_unknown_quantities() -> None:
    known = Estimate(4, 2, 100, 10, 0.0038, "guess")
    assert "4 calls (2 more are cached)" in str(known)
    assert str(known).endswith("at most $0.0038")
    unknown = replace(known, cached=0, usd=0.0, cache_known=False)
    assert "cached)" in str(unknown)
    assert "0 more" not in str(unknown)
    assert str(unknown).endswith("no price configured")
    assert str(replace(known, usd=0.00001)).endswith("less than $0.0001")
    assert str(Estimate(0, 6, 0, 0, 0.0, "guess")).endswith("at no cost")
