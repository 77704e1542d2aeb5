"""Hosted embedding and reranking models, against a loopback server with each dialect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import ENDPOINT_READ, FAILED, Ranking, Services
from methods.flow import each, run, stream, trace
from methods.models.endpoint import Fault
from methods.registry import Component
from methods.retrieval.hosted import HostedDenseConfig, HostedRerankerConfig
from methods.retrieval.hosted_config import stated_by
from methods.retrieval.hosted_model import HostedModel
from tests.support.errors import raises
from tests.support.hosted import KEY, Hosted, hosted, reply, vector

TEXTS = ["alpha beta gamma.", "delta epsilon.", "zeta eta theta.", "iota kappa lambda mu."]
P = [passage_id("", text) for text in TEXTS]
CORPUS = Corpus.of([Passage(identifier, "", text) for identifier, text in zip(P, TEXTS, strict=True)])
QUERIES = [Query("q0", "zeta eta"), Query("q1", "kappa lambda mu")]
HTML = {"content-type": "text/html"}
DIALECTS = ("openai", "cohere", "jina", "voyage", "tei")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    monkeypatch.setenv("HOSTED_KEY", KEY)
    with hosted() as running:
        yield running


def options(server: Hosted, dialect: str, **further: Any) -> dict[str, Any]:
    fast = {"backoff_s": 0.001, "attempts": 3}
    return {"model": "m", "dialect": dialect, "base_url": f"{server.url}/{dialect}", "key_variable": "HOSTED_KEY", **fast, **further}


def retrieve(server: Hosted, dialect: str, folder: Path | None = None, **further: Any) -> list[Ranking]:
    retriever = Component.of("hosted_dense", options(server, dialect, **further)).build(Services(artifacts=folder))
    return each(retriever.index(CORPUS, folder and folder / "index"), "retrieve", QUERIES, 2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_ranks_by_the_vectors_of_its_endpoint(server: Hosted, dialect: str) -> None:
    rankings = retrieve(server, dialect)
    for query, ranking in zip(QUERIES, rankings, strict=True):
        vectors = np.array([vector(text) for text in TEXTS])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        wanted = np.array(vector(query.text)) / np.linalg.norm(vector(query.text))
        assert ranking.ids[0] == P[(vectors @ wanted).argmax()]
        assert ranking.scores[0] == pytest.approx(float((vectors @ wanted).max()), abs=1e-6)
        assert ranking.usage.prompt_tokens == (0 if dialect == "tei" else 7)


def test_base64_and_dimensions_give_the_vectors_of_plain_numbers(server: Hosted) -> None:
    plain = retrieve(server, "openai", dimensions=8)
    assert retrieve(server, "openai", dimensions=8, encoding="base64") == plain
    assert {body["dimensions"] for _, body in server.requests} == {8}


@pytest.mark.parametrize("dialect", ["openai", "tei"])
def test_field_with_a_value_per_side_is_sent_with_the_value_of_that_side(server: Hosted, dialect: str) -> None:
    own = {"input_type", "user"}
    server.fault = lambda server, path, body: (200, reply(path, {name: body[name] for name in body.keys() - own}, 9), {})
    retrieve(
        server,
        dialect,
        parameters={"input_type": {"query": "question", "passage": "text"}, "user": {"for": {"query": 1, "passage": 2}}},
        batch_size=2,
    )
    questions = {query.text for query in QUERIES}
    assert len(server.requests) == 3 + len(QUERIES)  # a probe and two batches of passages
    for _, body in server.requests:
        texts = body.get("input") or body["inputs"]
        assert body["input_type"] == ("question" if set(texts) <= questions else "text")
        assert body["user"] == {"for": 1 if set(texts) <= questions else 2}


@pytest.mark.parametrize("dialect", ["cohere", "jina", "voyage", "tei"])
def test_each_dialect_reranks_by_the_scores_of_its_endpoint(server: Hosted, dialect: str) -> None:
    reranker = Component.of("hosted_reranker", options(server, dialect, batch_size=2, depth=3)).build(Services())
    before = [Ranking(query.id, (P[3], P[0], P[2], P[1]), (4.0, 3.0, 2.0, 1.0)) for query in QUERIES]
    first, second = each(reranker, "rerank", QUERIES, before, CORPUS)
    assert first.ids == (P[2], P[3], P[0], P[1])  # the last one is below depth
    assert second.ids == (P[3], P[0], P[2], P[1])
    assert list(first.scores) == sorted(first.scores, reverse=True)


def test_vectors_are_requested_once(server: Hosted, tmp_path: Path) -> None:
    first = retrieve(server, "openai", tmp_path)
    before = len(server.requests)
    again = retrieve(server, "openai", tmp_path)
    assert [(item.ids, item.scores) for item in again] == [(item.ids, item.scores) for item in first]
    assert len(server.requests) == before
    assert [item.usage.prompt_tokens for item in again] == [0, 0]


def test_request_that_is_too_large_is_sent_in_halves(server: Hosted) -> None:
    whole = retrieve(server, "openai")
    server.most = 1
    assert retrieve(server, "openai") == whole


TOO_MANY = {
    "openai": (400, "Invalid 'input': array too long. Expected an array with maximum length 1, but got an array with length 4 instead."),
    "dashscope": (400, "Value error, batch size is invalid, it should not be larger than 1.: input.contents"),
    "mistral": (400, "Too many tokens overall, split into more batches."),
    "tei": (422, "batch size 4 > maximum allowed batch size 1"),
}


@pytest.mark.parametrize("kind", TOO_MANY)
def test_batch_that_is_refused_in_any_wording_is_sent_in_halves(server: Hosted, kind: str) -> None:
    whole = retrieve(server, "openai")
    status, message = TOO_MANY[kind]
    server.fault = lambda server, path, body: (status, {"error": message}, {}) if len(body["input"]) > 1 else None
    assert retrieve(server, "openai") == whole


def test_batches_keep_the_size_that_the_endpoint_takes(server: Hosted) -> None:
    server.most = 2
    model = HostedModel(HostedDenseConfig.model_validate(options(server, "openai", batch_size=4)))
    model.embed_now(TEXTS, "passage", None)
    before = len(server.requests)
    model.embed_now(TEXTS, "passage", None)
    assert [len(body["input"]) for _, body in server.requests[before:]] == [2, 2]


def test_vectors_without_an_index_are_in_the_order_of_the_texts(server: Hosted) -> None:
    whole = retrieve(server, "openai")
    for change in ({"index": None}, {}):

        def reply_to(server: Hosted, path: str, body: dict[str, Any], change: dict[str, Any] = change) -> Any:
            data = [{"embedding": vector(text), **change} for text in body["input"]]
            return 200, {"data": data, "usage": {"total_tokens": 7 * len(data)}}, {}

        server.fault = reply_to
        assert retrieve(server, "openai") == whole

    def without_zero(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        data = [{"embedding": vector(text), **({"index": at} if at else {})} for at, text in enumerate(body["input"])]
        return 200, {"data": data[::-1], "usage": {"total_tokens": 7 * len(data)}}, {}

    server.fault = without_zero
    assert retrieve(server, "openai") == whole


def test_results_of_a_reranker_without_an_index_are_refused(server: Hosted) -> None:
    server.fault = lambda server, path, body: (200, {"results": [{"relevance_score": 1.0} for _ in body["documents"]]}, {})
    with pytest.raises(Fault):
        run(HostedModel(HostedRerankerConfig.model_validate(options(server, "jina"))).score("q", TEXTS))


def test_reranker_requests_the_score_of_every_passage(server: Hosted) -> None:
    def best_only(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        scores = [{"index": at, "score": float(at)} for at in range(len(body["documents"]))]
        return 200, {"results": scores[: body.get("top_n", body.get("top_k", 2))]}, {}

    server.fault = best_only
    for dialect in ("cohere", "jina", "voyage"):
        scores, _ = run(HostedModel(HostedRerankerConfig.model_validate(options(server, dialect))).score("q", TEXTS))
        assert scores.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("tokens", "reported"), [(2000, None), (100, {"reported": 400, "estimated": 6000}), (1, None)])
def test_endpoint_that_counts_too_few_tokens_is_noted(server: Hosted, tmp_path: Path, tokens: int, reported: dict[str, int] | None) -> None:
    long = Corpus.of([Passage(f"d{number}", "", f"word{number} " * 1000) for number in range(4)])

    def counting(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        data = [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]
        return 200, {"data": data, "usage": {"prompt_tokens": tokens * len(data)}}, {}

    server.fault = counting
    retriever = Component.of("hosted_dense", options(server, "openai")).build(Services(artifacts=tmp_path))
    for _ in range(2):  # the second index is read from its folder
        notes = retriever.index(long, tmp_path / "index").notes
        assert notes == ({} if reported is None else {ENDPOINT_READ: reported})


@pytest.mark.parametrize(
    ("dialect", "model", "further", "lacking"),
    [
        ("openai", "intfloat/e5-base-v2", {}, 'query_prompt: "query: ", passage_prompt: "passage: "'),
        ("tei", "BAAI/bge-base-en-v1.5", {}, 'query_prompt: "Represent this sentence for searching relevant passages: "'),
        ("openai", "intfloat/e5-base-v2", {"query_prompt": "query: "}, 'passage_prompt: "passage: "'),
        ("openai", "intfloat/e5-base-v2", {"query_prompt": "", "passage_prompt": ""}, None),
        ("openai", "BAAI/bge-m3", {}, None),
        ("openai", "text-embedding-3-small", {}, None),
        ("jina", "jina-embeddings-v3", {}, None),
    ],
)
def test_served_encoder_without_its_prompts_is_noted(
    server: Hosted, dialect: str, model: str, further: dict[str, str], lacking: str | None
) -> None:
    component = Component.of("hosted_dense", options(server, dialect, **{"model": model, **further}))
    notes = component.build(Services()).index(CORPUS).notes
    assert notes.get("preset", {}).get("options") == lacking


def test_prompt_of_an_instructed_encoder_names_its_instruction(server: Hosted) -> None:
    notes = Component.of("hosted_dense", options(server, "openai", model="qwen3-embedding:0.6b")).build(Services()).index(CORPUS).notes
    assert "{" not in notes["preset"]["options"]


def broken(change: Any) -> Any:
    """Malform a valid reply."""
    from tests.support.hosted import reply

    return lambda server, path, body: (200, change(reply(path, body, 99)), {})


def nan(value: Any) -> Any:
    value["data"][0]["embedding"][0] = float("nan")
    return value


def repeated(value: Any) -> Any:
    return {**value, "data": [{**item, "index": 0} for item in value["data"]] * 2}


@pytest.mark.parametrize(
    "fault",
    [
        broken(lambda value: {**value, "data": value["data"][:-1]}),
        broken(repeated),
        broken(nan),
        broken(lambda value: {**value, "data": [{**item, "embedding": None} for item in value["data"]]}),
        broken(lambda value: {**value, "data": [{**item, "embedding": [0.0] * 16} for item in value["data"]]}),
        broken(lambda value: []),
        lambda server, path, body: (200, b"<!doctype html><title>login</title>", {"content-type": "text/html"}),
        lambda server, path, body: (500, {}, {}),
    ],
    ids=["missing", "repeated", "nan", "null", "zeros", "empty", "html", "500"],
)
def test_malformed_reply_never_becomes_an_index(server: Hosted, fault: Any) -> None:
    server.fault = fault
    with raises("hosted-model-fails"):
        retrieve(server, "openai")


def test_vectors_of_another_than_the_requested_length_are_refused(server: Hosted) -> None:
    server.fault = lambda server, path, body: (
        200,
        {"data": [{"index": at, "embedding": [1.0] * 5} for at in range(len(body["input"]))]},
        {},
    )
    with raises("hosted-model-fails"):
        retrieve(server, "openai", dimensions=8)


def test_usage_that_is_no_count_is_not_counted(server: Hosted) -> None:
    plain = retrieve(server, "openai")
    server.fault = broken(lambda value: {**value, "usage": {"total_tokens": float("inf")}})
    rankings = retrieve(server, "openai")
    assert [item.ids for item in rankings] == [item.ids for item in plain]
    assert [item.usage.prompt_tokens for item in rankings] == [0, 0]


def test_busy_endpoint_is_retried(server: Hosted) -> None:
    whole = retrieve(server, "openai")
    refused: list[str] = []

    def busy(server: Hosted, path: str, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]] | None:
        if body["input"][0] in refused:
            return None
        refused.append(body["input"][0])
        return 429, {}, {"retry-after": "0"}

    server.fault = busy
    rankings = retrieve(server, "openai")
    assert [item.ids for item in rankings] == [item.ids for item in whole]
    assert [item.usage.model_calls for item in rankings] == [2, 2]


def test_question_refused_by_the_endpoint_fails_without_others(server: Hosted) -> None:
    server.fault = lambda server, path, body: (400, {"error": "too long"}, {}) if body["input"] == [QUERIES[0].text] else None
    first, second = retrieve(server, "openai")
    assert "HTTP 400" in first.notes[FAILED]
    assert FAILED not in second.notes
    assert second.ids


@pytest.mark.parametrize(
    "refusal",
    [
        (403, b"<html>blocked</html>", {"content-type": "text/html"}),
        (200, b"<html>blocked</html>", {"content-type": "text/html"}),
        (404, {}, {}),
    ],
)
def test_text_that_a_firewall_refuses_fails_without_others(server: Hosted, refusal: Any) -> None:
    server.fault = lambda server, path, body: refusal if body["input"] == [QUERIES[0].text] else None
    first, second = retrieve(server, "openai")
    assert FAILED in first.notes
    assert second.ids
    server.fault = lambda server, path, body: refusal
    with raises("hosted-model-fails"):
        retrieve(server, "openai")


@pytest.mark.parametrize("status", [408, 409, 424, 429, 503])
def test_passing_failure_is_retried(server: Hosted, status: int) -> None:
    whole = retrieve(server, "tei")
    seen: list[str] = []

    def once(server: Hosted, path: str, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]] | None:
        first = body["inputs"][0] not in seen
        seen.append(body["inputs"][0])
        return (status, {"error": "backend", "error_type": "backend"}, {}) if first else None

    server.fault = once
    assert [item.ids for item in retrieve(server, "tei")] == [item.ids for item in whole]


def test_cost_of_an_index_is_stored_with_it(server: Hosted, tmp_path: Path) -> None:
    def usage() -> Any:
        retriever = Component.of("hosted_dense", options(server, "openai", usd_per_million_tokens=10.0)).build(Services(artifacts=tmp_path))
        return retriever.index(CORPUS, tmp_path / "index").usage

    first = usage()
    assert first.prompt_tokens == 7 * (len(TEXTS) + 1)  # one text more to learn the dimension
    assert first.cost_usd == pytest.approx(first.prompt_tokens / 1e5)
    assert usage() == first


def reversed_vectors(server: Hosted, path: str, body: dict[str, Any]) -> Any:
    """Answer like another model whose vectors have the same length."""
    data = [{"index": at, "embedding": vector(text)[::-1]} for at, text in enumerate(body["input"])]
    return 200, {"data": data}, {}


@pytest.mark.parametrize(
    ("reported", "usd"),
    [
        ({"meta": {"billed_units": {"search_units": 3.0}}}, 0.006),
        ({"meta": {"billed_units": {"search_units": None}}}, 0.002),
        ({}, 0.002),
        ({"usage": {"total_tokens": 9, "cost": 0.5}}, 0.5),
    ],
)
def test_cost_of_a_request_is_the_one_that_its_reply_reports(server: Hosted, reported: dict[str, Any], usd: float) -> None:
    results = [{"index": at, "relevance_score": 0.5} for at in range(len(TEXTS))]
    server.fault = lambda server, path, body: (200, {"results": results, **reported}, {})
    model = HostedModel(HostedRerankerConfig.model_validate(options(server, "cohere", usd_per_call=0.002)))
    assert run(model.score("q", TEXTS))[1].cost_usd == pytest.approx(usd)


def test_served_model_is_recorded_with_the_question(server: Hosted) -> None:
    def named(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        return 200, {"model": "other", "results": [{"index": at, "relevance_score": 0.5} for at in range(len(body["documents"]))]}, {}

    server.fault = named
    model = HostedModel(HostedRerankerConfig.model_validate(options(server, "jina")))

    async def program(number: int) -> set[tuple[str, str, str, str]]:
        await model.score("q", TEXTS)
        return trace().endpoints

    assert list(stream(program, [1], 1)) == [{("m", "other", "", "")}]


@pytest.mark.parametrize("built", [True, False], ids=["index", "half an index"])
def test_vectors_of_two_models_are_not_compared(server: Hosted, tmp_path: Path, built: bool) -> None:
    first = retrieve(server, "openai", tmp_path)
    stored = len(server.requests)
    server.fault = reversed_vectors
    assert [item.ids for item in retrieve(server, "openai", tmp_path)] == [item.ids for item in first]  # nothing is requested
    assert len(server.requests) == stored
    retriever = Component.of("hosted_dense", options(server, "openai")).build(Services(artifacts=tmp_path))
    with raises("hosted-model-changed"):
        if built:
            each(retriever.index(CORPUS, tmp_path / "index"), "retrieve", [Query("q2", "iota")], 2)
        else:
            retriever.index(Corpus.of([*CORPUS, Passage("new", "", "nu xi omicron.")]), tmp_path / "other")
    again = retrieve(server, "openai", tmp_path / "new", revision="2")
    assert again[0].ids[0] == P[2]


def test_small_differences_of_numbers_are_the_same_model(server: Hosted, tmp_path: Path) -> None:
    retrieve(server, "openai", tmp_path)

    def half(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        rows = np.array([vector(text) for text in body["input"]])
        rows = rows + 0.02 * np.sin(np.arange(rows.shape[1]))
        return 200, {"data": [{"index": at, "embedding": row.tolist()} for at, row in enumerate(rows)]}, {}

    server.fault = half
    retriever = Component.of("hosted_dense", options(server, "openai")).build(Services(artifacts=tmp_path))
    (ranking,) = each(retriever.index(CORPUS, tmp_path / "index"), "retrieve", [Query("q2", "iota kappa")], 2)
    assert ranking.ids[0] == P[3]


@pytest.mark.parametrize(
    "info",
    [
        (200, {"model_id": "/data/bge", "model_sha": None, "max_input_length": 512}, {}),
        (200, {"model_id": "BAAI/bge-small", "model_sha": "abc123"}, {}),
        (404, {"error": "Not Found"}, {}),
    ],
    ids=["folder", "commit", "another server"],
)
def test_tei_server_is_used_whether_or_not_it_states_a_revision(server: Hosted, info: Any) -> None:
    server.info = info
    component = Component.of("hosted_dense", options(server, "tei", key_variable=None))
    assert each(component.build(Services()).index(CORPUS), "retrieve", QUERIES, 1)[0].ids == (P[2],)
    other = Component.of("hosted_dense", options(server, "tei", key_variable=None, revision="other"))
    assert component.fingerprint != other.fingerprint


def test_models_without_a_revision_at_one_tei_address_differ_by_name(server: Hosted) -> None:
    prints = set()
    for name in ("/data/bge", "/data/e5"):
        with hosted() as other:
            other.info = (200, {"model_id": name, "model_sha": None}, {})
            prints.add(stated_by(f"{other.url}/tei", None))
    assert prints == {"/data/bge", "/data/e5"}


@pytest.mark.parametrize("info", [(503, {}, {}), (401, {}, {}), (200, b"<html></html>", {})])
def test_tei_server_that_does_not_state_its_model_ends_the_task(server: Hosted, info: Any) -> None:
    server.info = info
    with raises("unreadable-revision"):
        retrieve(server, "tei", key_variable=None)


def test_cost_of_requests_whose_tokens_are_not_reported_is_unknown(server: Hosted) -> None:
    def uncounted(server: Hosted, path: str, body: dict[str, Any]) -> Any:
        return 200, {"data": [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]}, {}

    server.fault = uncounted
    priced = HostedModel(HostedDenseConfig.model_validate(options(server, "openai", usd_per_million_tokens=1e6, run_usd=5.0)))

    async def asked() -> tuple[int, float]:
        _, usage = await priced.embed(["a word or two"], "query", None)
        return trace().unpriced, usage.cost_usd

    async def program(number: int) -> tuple[int, float]:
        return await asked()

    assert list(stream(program, [1], 1)) == [(1, 0.0)]
    with pytest.raises(Fault):  # the limit counts the estimate
        run(priced.embed(["a word or two"], "query", None))


def test_slow_or_absent_endpoint_ends_the_task(server: Hosted) -> None:
    server.fault = lambda server, path, body: time.sleep(0.1)
    with raises("hosted-model-fails"):
        retrieve(server, "openai", timeout_s=0.02, attempts=2)
    with raises("hosted-model-fails"):
        retrieve(server, "openai", base_url="http://127.0.0.1:9/v1", attempts=2)


def test_wrong_key_ends_the_task_and_is_not_shown(server: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_KEY", "wrong-9876543210-key")
    with raises("hosted-model-fails") as caught:
        retrieve(server, "openai")
    assert "9876543210" not in str(caught.value)


def test_missing_key_is_refused_before_the_first_request(server: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTED_KEY")
    with raises("missing-variable"):
        Component.of("hosted_dense", options(server, "openai")).preflight()


def test_identity_includes_model_and_revision_but_no_speed_options(server: Hosted) -> None:
    def of(**further: Any) -> str:
        return Component.of("hosted_dense", options(server, "openai", **further)).fingerprint

    assert of() == of(concurrency=2, batch_size=5, usd_per_million_tokens=1.0)
    assert len({of(), of(model="n"), of(revision="2"), of(dimensions=8), of(query_prompt="query: ")}) == 5
    tei = Component.of("hosted_dense", options(server, "tei", key_variable=None))
    assert tei.fingerprint != Component.of("hosted_dense", options(server, "tei", key_variable=None, revision="other")).fingerprint


@pytest.mark.parametrize(
    ("identifier", "wrong"),
    [
        ("hosted_dense", {"dialect": "openai", "truncate": True}),
        ("hosted_dense", {"dialect": "tei", "base_url": "http://x", "dimensions": 8}),
        ("hosted_dense", {"dialect": "tei"}),
        ("hosted_dense", {"base_url": "http://user:secret@host/v1"}),
        ("hosted_dense", {"key_variable": "sk-abcdefghijkl"}),
        ("hosted_dense", {"dialect": "cohere", "encoding": "base64"}),
        ("hosted_dense", {"base_url": "http://host:8000/v1/embeddings"}),
        ("hosted_dense", {"base_url": "http://host:port/v1"}),
        ("hosted_dense", {"parameters": {"input": ["x"]}}),
        ("hosted_dense", {"parameters": {"user": float("nan")}}),
        ("hosted_dense", {"parameters": {"input_type": {"query": "query", "document": "passage"}}}),
        ("hosted_dense", {"parameters": {"extra": {"prompt": {"Query": "q: "}}}}),
        ("hosted_dense", {"parameters": {"input_type": {"query": "a", "passage": "b", "title": "c"}}}),
        ("hosted_dense", {"dialect": "jina", "parameters": {"embedding_type": "ubinary"}}),
        ("hosted_dense", {"dialect": "cohere", "parameters": {"embedding_types": ["binary"]}}),
        ("hosted_reranker", {"dialect": "jina", "parameters": {"top_n": 3}}),
        ("hosted_reranker", {"dialect": "openai"}),
    ],
)
def test_options_that_cannot_work_are_refused(identifier: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Component.of(identifier, {"model": "m", **wrong})
