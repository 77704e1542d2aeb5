"""No key reaches a page, whatever field or text it was put into; what only looks a little like one stays."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from methods.api import FAILED, Prediction
from results import queries
from results.redaction import HIDDEN, redacted, shareable, without_secrets
from results.store import FAILED_RUN, Run, Store

KEYS = [
    "sk-proj-Ab3dEf6hIj9kLm2nOp5q", "sk-ab***************************xyz9", "hf_AbCdEfGhIjKlMnOpQrStUv",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "glpat-abcdefghij0123456789", "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu", "xoxb-123456789012-abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
]  # fmt: skip
NAMES = ["api_key", "apiKey", "OPENAI_API_KEY", "openaiApiKey", "token", "hf_token", "access-token", "password",
         "db.password", "client_secret", "Authorization", "credentials", "private_key", "cookie"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_text_with_a_key_loses_the_key_alone(key: str) -> None:
    assert without_secrets(f"Incorrect key provided: {key}. See the docs.") == (
        f"Incorrect key provided: {HIDDEN}. See the docs."
    )
    assert shareable(json.dumps({"notes": [f"used {key}"]})) == {"notes": [f"used {HIDDEN}"]}


def test_what_stands_after_bearer_and_before_a_host_is_hidden() -> None:
    said = without_secrets("GET https://me:hunter2@models.example/v1 with Authorization: Bearer abcdef0123456789")
    assert said == f"GET https://{HIDDEN}@models.example/v1 with Authorization: Bearer {HIDDEN}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["hunter2", 1234, ["hunter2"], {"inner": "hunter2"}])
def test_a_field_named_like_a_secret_is_hidden_whatever_it_holds(name: str, value: Any) -> None:
    found = shareable(json.dumps({"reader": {"config": {name: value, "model": "m"}}}))
    assert "hunter2" not in json.dumps(found)
    assert "1234" not in json.dumps(found)
    assert HIDDEN in json.dumps(found)
    assert found["reader"]["config"]["model"] == "m"


@pytest.mark.parametrize(
    "said",
    [
        {"key_variable": "OPENAI_API_KEY", "max_tokens": 64, "tokens": 4, "memory_tokens": 16},
        {"tokenizer": "bpe", "pad_token": "<pad>", "weights": "ab" * 32, "base_url": "https://api.example.com:8000/v1"},
        {"api_key": None, "token": "", "password": False, "text": "sk-learn-like-estimators and a risk-free-task"},
        {"keys": ["a"], "key": "bm25", "revision": "1f2e3d4c5b6a79880716253443526170"},
        {"mail": "who@example.org", "at": "http://[::1]:8000/a@b", "hf_hub_id": "hf_dummy"},
    ],
)
def test_what_is_no_secret_stays(said: dict[str, Any]) -> None:
    assert shareable(json.dumps(said)) == said == redacted(said)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3), max_leaves=12,
)  # fmt: skip


@given(value=json_values, name=st.sampled_from(NAMES), escaped=st.booleans())
def test_the_quick_look_misses_nothing_that_the_slow_one_finds(value: Any, name: str, escaped: bool) -> None:
    document = json.dumps({"before": value, name: "hunter2", "after": value})
    if escaped:
        document = document.replace(f'"{name}"', '"' + "".join(f"\\u{ord(letter):04x}" for letter in name) + '"')
    assert shareable(document) == redacted(json.loads(document))
    assert shareable(document)[name] == HIDDEN


@given(value=json_values)
def test_redaction_changes_nothing_twice(value: Any) -> None:
    assert redacted(redacted(value)) == redacted(value)


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    texts = ["-----BEGIN PRIVATE KEY-----" * 4000, "://a:" * 20_000, "sk-" + "a-" * 50_000, "bearer " * 20_000,
             '"' + "password" * 10_000, "eyJ" + "a" * 100_000]  # fmt: skip
    for text in texts:
        began = time.perf_counter()
        without_secrets(text)
        shareable(json.dumps([text]))
        assert time.perf_counter() - began < 1.0, text[:20]


def test_runs_and_answers_are_read_without_secrets(store: Store) -> None:
    key = KEYS[0]
    asked = Benchmark(DataReference("toy", None, "dev"), 1, _card(), [Question("q0", "what?", ("a",))], Corpus.of([]))
    store.put_benchmark(asked, asked.fingerprint)
    store.start(
        Run("ab" * 8, "m", "m", "method", {"reader": {"api_key": "hunter2"}}, "toy:dev", asked.fingerprint,
            "distractor", 0, 1, {"url": f"https://x.example/?k={key}"}, {"token": "hunter2"}, "submitted",
            {"settings": {"password": "hunter2"}})
    )  # fmt: skip
    store.append("ab" * 8, [Prediction("q0", "", notes={FAILED: f"401: {key}"})], {})
    store.end("ab" * 8, FAILED_RUN, f"Incorrect API key provided: {key}")
    (run,) = queries.runs(store)
    (question,) = queries.questions(store, asked.fingerprint)
    said = repr((run, queries.answers(store, question, [run.run])))
    assert key not in said
    assert "hunter2" not in said
    assert run.error == f"Incorrect API key provided: {HIDDEN}"


def _card() -> Any:
    from benchmarks.registry import DatasetCard

    return DatasetCard(
        title="Toy", task="QA", description="d", hub_id=None, revision=None, licence="none", citation="c",
        languages=("en",), splits={"dev": 4}, metrics=("em",), settings=("distractor",),
    )  # fmt: skip
