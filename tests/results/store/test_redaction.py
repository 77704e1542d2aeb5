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
from results.store import answer_queries, queries
from results.store.redaction import HIDDEN, names_secret, redacted, shareable, variable_is_secret, without_secrets
from results.store.store import FAILED_RUN, Run, Store
from tests.support.toy import CARD

KEYS = [
    "sk-proj-Ab3dEf6hIj9kLm2nOp5q",
    "sk-ab***************************xyz9",
    "hf_AbCdEfGhIjKlMnOpQrStUv",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "glpat-abcdefghij0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "xoxb-123456789012-abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "gsk_AbCdEfGhIj0123456789",
    "r8_AbCdEfGhIj0123456789",
    "xai-AbCdEfGhIj0123456789",
    "nvapi-AbCd_fGhIj-0123456789",
    "pplx-AbCdEfGhIj0123456789",
]
NAMES = ["api_key", "apiKey", "OPENAI_API_KEY", "openaiApiKey", "token", "hf_token", "access-token", "password",
         "db.password", "client_secret", "Authorization", "credentials", "private_key", "cookie",
         "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "OPENAI_KEY", "MYSQL_PWD", "bot_token", "account_key"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_text_with_a_key_loses_the_key_alone(key: str) -> None:
    assert without_secrets(f"Incorrect key provided: {key}. See the docs.") == (f"Incorrect key provided: {HIDDEN}. See the docs.")
    assert shareable(json.dumps({"notes": [f"used {key}"]})) == {"notes": [f"used {HIDDEN}"]}


def test_what_stands_after_bearer_and_before_a_host_is_hidden() -> None:
    response = without_secrets("GET https://me:hunter2@models.example/v1 with Authorization: Bearer abcdef0123456789")
    assert response == f"GET https://{HIDDEN}@models.example/v1 with Authorization: Bearer {HIDDEN}"


@pytest.mark.parametrize(
    ("response", "left"),
    [
        ("GET https://x.example/v1?api-key=abcdef12&n=3 failed", f"GET https://x.example/v1?api-key={HIDDEN}&n=3 failed"),
        ("/blob?sv=2020&sig=aB%2Fcd123&token=zyxw9876#top", f"/blob?sv=2020&sig={HIDDEN}&token={HIDDEN}#top"),
        ("?key=abcdefgh", f"?key={HIDDEN}"),
        ("Client(api_key='hunter22', n=3)", f"Client(api_key='{HIDDEN}', n=3)"),
        ("Client(OPENAI_API_KEY=hunter22)", f"Client(OPENAI_API_KEY={HIDDEN})"),
        ('{"openaiApiKey": "hunter22"}', f'{{"openaiApiKey": "{HIDDEN}"}}'),
        ("headers: x-api-key: abcdef1234", f"headers: x-api-key: {HIDDEN}"),
        ("Authorization: Basic dXNlcjpwdw==", f"Authorization: Basic {HIDDEN}"),
        ("{'authorization': 'Basic dXNlcjpwdw=='}", f"{{'authorization': 'Basic {HIDDEN}'}}"),
        ("clone https://ghtoken12@host.example/x", f"clone https://{HIDDEN}@host.example/x"),
        ("redis://:pw@host.example:6379/0", f"redis://{HIDDEN}@host.example:6379/0"),
        ("https://:pw@host.example", f"https://{HIDDEN}@host.example"),
        ("https://me:p@ss@host.example", f"https://{HIDDEN}@host.example"),
    ],
)
def test_what_stands_behind_a_name_or_before_a_host_is_hidden(response: str, left: str) -> None:
    assert without_secrets(response) == left
    assert without_secrets(left) == left
    assert shareable(json.dumps({"error": response})) == {"error": left}


@pytest.mark.parametrize(
    "response",
    [
        "the key to the city: open it", "tokens per question: 12.3", "a token=1 of 3", "f1(rules=hotpotqa)#v2",
        "Basic understanding of authorization: the act of 1839", "The password is secret: nobody knows it.",
        "API key: see the docs", "api_key: required", "access token: eventually", "api_key=None", "recall@5(key=title)",
        "set api_key_variable='OPENAI_API_KEY'", "git+ssh://git@host.example/x", "https://medium.com/@somebody/a-key",
        "who sang 'Under My Skin'? key=C minor", "/list?page=3&sort=key&n=100", "budget=512, tokens=256, seed=0",
        "Monkey=banana-split-with-cream", "ask someone@host.example", "risk-averse and task-specific", "r8_c4-like",
    ],
)  # fmt: skip
def test_usual_texts_stay(response: str) -> None:
    assert without_secrets(response) == response
    assert shareable(json.dumps([response])) == [response]


_words = st.sampled_from(
    ["the", "key", "to", "a", "token", "of", "authorization", "basic", "understanding:", "password", "secret,", "=",
     "question", "12", "0.5", "recall@5", "f1", "(who", "sang", "it?)", "api", "keys", "tokens", "budget=512", "“auth”",
     "https://en.wikipedia.org/wiki/Key_(music)", "mrr@10", "sk8", "Paris."]
)  # fmt: skip


@given(words=st.lists(_words, max_size=30))
def test_no_order_of_usual_words_is_taken_for_a_secret(words: list[str]) -> None:
    assert without_secrets(" ".join(words)) == " ".join(words)


def test_fields_named_like_keys_that_are_none_stay() -> None:
    names = ("answer_key", "board_key", "pad_token", "eos_token", "bos_token", "unk_token", "mask_token", "sep_token",
             "cls_token", "additional_special_token", "seconds_per_token", "time_to_first_token", "key_variable",
             "public_key", "prompt_tokens", "max_new_tokens", "memory_tokens_per_question")  # fmt: skip
    response = dict.fromkeys(names, "value")
    assert shareable(json.dumps(response)) == response
    assert not any(names_secret(name) for name in names)


@pytest.mark.parametrize(
    "name",
    ["HUGGING_FACE_HUB_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "OPENAI_KEY", "AZURE_OPENAI_KEY", "NPM_TOKEN",
     "CI_JOB_TOKEN", "MYSQL_PWD", "PGPASSWORD", "DB_PASS", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS",
     "SSH_AUTH_SOCK", "OPENAI_APIKEY", "github_token", "SERVICE_KEY_2", "NETRC_AUTH"],
)  # fmt: skip
def test_variables_named_like_secrets_are_secret(name: str) -> None:
    assert variable_is_secret(name, "x")


def test_variables_that_a_process_needs_are_none() -> None:
    usual = (
        "PATH", "HOME", "PWD", "OLDPWD", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
        "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "DISPLAY",
        "XAUTHORITY", "RAGMETER_CACHE", "RAGMETER_DATA", "RAGMETER_MODELS", "RAGMETER_STORE", "SYSTEMROOT", "KEYBOARD",
        "STREAMLIT_SERVER_SSL_CERT_FILE", "STREAMLIT_SERVER_SSL_KEY_FILE", "SSL_CERT_FILE",
    )  # fmt: skip
    assert [name for name in usual if variable_is_secret(name, "/usr/bin:/bin")] == []


def test_a_variable_that_holds_a_secret_is_one_whatever_its_name() -> None:
    assert variable_is_secret("DATABASE_URL", "postgres://me:hunter2@host.example/db")
    assert variable_is_secret("PIP_INDEX_URL", "https://abcdef@pypi.example/simple")
    assert not variable_is_secret("HF_ENDPOINT", "https://hub.example:8000/v1")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["hunter2", 1234, ["hunter2"], {"inner": "hunter2"}])
def test_a_field_named_like_a_secret_is_hidden_whatever_it_holds(name: str, value: Any) -> None:
    result = shareable(json.dumps({"reader": {"config": {name: value, "model": "m"}}}))
    assert "hunter2" not in json.dumps(result)
    assert "1234" not in json.dumps(result)
    assert HIDDEN in json.dumps(result)
    assert result["reader"]["config"]["model"] == "m"


@pytest.mark.parametrize(
    "responses",
    [
        {"key_variable": "OPENAI_API_KEY", "max_tokens": 64, "tokens": 4, "memory_tokens": 16},
        {"tokenizer": "bpe", "pad_token": "<pad>", "weights": "ab" * 32, "base_url": "https://api.example.com:8000/v1"},
        {"api_key": None, "token": "", "password": False, "text": "sk-learn-like-estimators and a risk-free-task"},
        {"keys": ["a"], "key": "bm25", "revision": "1f2e3d4c5b6a79880716253443526170"},
        {"mail": "who@example.org", "at": "http://[::1]:8000/a@b", "hf_hub_id": "hf_dummy"},
    ],
)
def test_what_is_no_secret_stays(responses: dict[str, Any]) -> None:
    assert shareable(json.dumps(responses)) == responses == redacted(responses)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)


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


@pytest.mark.slow
def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    texts = [
        "-----BEGIN PRIVATE KEY-----" * 4000,
        "://a:" * 20_000,
        "sk-" + "a-" * 50_000,
        "bearer " * 20_000,
        '"' + "password" * 10_000,
        "eyJ" + "a" * 100_000,
        "sk-" * 50_000,
        "?" + "a" * 100_000,
        "?key" * 30_000,
        "api_key: " * 20_000,
        "api_key='" * 20_000,
        "a_" * 50_000 + "key",
        "https://" + "a" * 100_000,
        "https://" * 20_000,
        "password:    " * 10_000,
    ]
    for text in texts:
        began = time.thread_time()
        without_secrets(text)
        shareable(json.dumps([text]))
        assert time.thread_time() - began < 1.0, text[:20]


def test_runs_and_answers_are_read_without_secrets(store: Store) -> None:
    key = KEYS[0]
    query = Benchmark(DataReference("toy", None, "dev"), 1, CARD, [Question("q0", "what?", ("a",))], Corpus.of([]))
    store.put_benchmark(query, query.fingerprint)
    store.start(
        Run(
            "ab" * 8,
            "m",
            "m",
            "method",
            {"reader": {"api_key": "hunter2"}},
            "toy:dev",
            query.fingerprint,
            "distractor",
            0,
            1,
            {"url": f"https://x.example/?k={key}"},
            {"token": "hunter2"},
            "submitted",
            {"settings": {"password": "hunter2"}},
        )
    )
    store.append("ab" * 8, [Prediction("q0", "", notes={FAILED: f"401: {key}"})], {})
    store.end("ab" * 8, FAILED_RUN, f"Incorrect API key provided: {key}")
    (run,) = queries.runs(store)
    (question,) = answer_queries.questions(store, query.fingerprint)
    response = repr((run, answer_queries.answers(store, question, [run.run])))
    assert key not in response
    assert "hunter2" not in response
    assert run.error == f"Incorrect API key provided: {HIDDEN}"
