"""HyDE: the query vector is a mean, and failed replies do not enter it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.schema import Query
from methods.api import Ranking, Services
from methods.baselines.hyde import NOTE, cut
from methods.flow import each
from methods.pipeline import assemble
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

Says = Callable[[ChatRequest, int], str]
ENCODER: dict[str, str] = {}
"""Default encoder of these tests; what they test is the same for every encoder."""


@pytest.fixture(scope="module", autouse=True)
def _encoder(tiny_encoder: str) -> None:
    ENCODER["model"] = tiny_encoder


@contextmanager
def endpoint(says: Says, requests: list[ChatRequest] | None = None) -> Iterator[str]:
    """Serve replies by prompt and by the number of its requests."""
    seen: dict[str, int] = {}

    def answer(request: ChatRequest) -> Written:
        number = seen[request.prompt] = seen.get(request.prompt, -1) + 1
        if requests is not None:
            requests.append(request)
        return Written(says(request, number), 11, 5)

    with OpenAIServer("m", answer, any_model=True).running() as url:
        yield url


def question_in(request: ChatRequest) -> str:
    return request.prompt.partition("Question: ")[2].partition("\n")[0]


def hyde(url: str, services: Services | None = None, **config: Any) -> Any:
    llm = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, "attempts": 2}
    options = {"llm": {**llm, **config.pop("llm", {})}, "dense": {**ENCODER, **config.pop("dense", {})}, **config}
    return Component.of("hyde", options).build(services or Services(device="cpu"))


def ranked(says: Says, ground: Any, count: int = 4, k: int = 8, **config: Any) -> list[Ranking]:
    with endpoint(says) as url:
        index = hyde(url, **config).index(ground.corpus)
        index.build_for(queries(ground, count))
        return list(each(index, "retrieve", queries(ground, count), k))


def queries(ground: Any, count: int = 4) -> list[Query]:
    return [question.query() for question in ground.questions[:count]]


def plain(ground: Any, count: int = 4, k: int = 8, **options: Any) -> list[Ranking]:
    dense = Component.of("dense", {**ENCODER, **options}).build(Services(device="cpu"))
    return list(each(dense.index(ground.corpus), "retrieve", queries(ground, count), k))


def close(results: Sequence[Ranking], expected: Sequence[Ranking]) -> None:
    assert [ranking.ids for ranking in results] == [ranking.ids for ranking in expected]
    for item, other in zip(results, expected, strict=True):
        assert item.scores == pytest.approx(other.scores, abs=2e-6)


@pytest.mark.slow
def test_zero_samples_equal_plain_retrieval(ground: Any) -> None:
    real = {"model": "minilm"}
    assert ranked(lambda request, number: "never asked", ground, samples=0, dense=real) == plain(ground, **real)


@pytest.mark.slow
def test_passages_equal_to_the_question_give_plain_retrieval(ground: Any) -> None:
    # The encoder puts nothing before a query, so both sides encode a text alike.
    close(ranked(lambda request, number: question_in(request), ground, samples=3), plain(ground))


@pytest.mark.slow
def test_the_vector_is_the_mean_of_question_and_passages(ground: Any) -> None:
    texts = ["A baker of Lorn.", "Kestle is far from Hulme."]
    results = ranked(lambda request, number: texts[number], ground, samples=2, k=len(ground.corpus), count=2)
    encoder = Component.of("dense", ENCODER).build(Services(device="cpu")).encoder
    passages = encoder.passages([passage.full_text for passage in ground.corpus]).astype(np.float64)
    for query, ranking in zip(queries(ground, 2), results, strict=True):
        vectors = encoder.passages([query.text, *texts]).astype(np.float64)
        scores = dict(zip(ground.corpus.ids, passages @ vectors.mean(axis=0), strict=True))
        assert ranking.scores == pytest.approx([scores[name] for name in ranking.ids], abs=2e-6)
        assert list(ranking.scores) == sorted(ranking.scores, reverse=True)


@pytest.mark.slow
def test_the_order_of_the_samples_does_not_matter(ground: Any) -> None:
    texts = ["A baker of Lorn.", "Kestle is far.", "Number7 lived in Arle."]
    forth = ranked(lambda request, number: texts[number], ground, samples=3)
    assert ranked(lambda request, number: texts[2 - number], ground, samples=3) == forth


@pytest.mark.slow
def test_question_without_instruction_is_encoded_like_a_passage(ground: Any) -> None:
    dense = {"query_prompt": "search for the opposite of: "}
    with_it = ranked(lambda request, number: "x", ground, samples=0, dense=dense)
    without = ranked(lambda request, number: "x", ground, samples=0, dense=dense, instruction=False)
    close(without, plain(ground))
    assert with_it != without


def test_empty_reply_falls_back_to_the_question_and_is_noted(ground: Any) -> None:
    results = ranked(lambda request, number: "", ground, samples=2)
    close(results, plain(ground))
    assert all(ranking.notes[NOTE]["passages"] == 0 for ranking in results)
    assert all("empty" in ranking.notes[NOTE]["failed"][0] for ranking in results)


@pytest.mark.slow
def test_one_failed_call_does_not_discard_the_other_passages(ground: Any) -> None:
    def says(request: ChatRequest, number: int) -> str:
        if number == 1:
            raise Refused(400, "content policy")
        return "A baker of Lorn."

    result = ranked(says, ground, samples=2, count=1)
    expected = ranked(lambda request, number: "A baker of Lorn.", ground, samples=1, count=1)
    close(result, expected)
    assert result[0].notes[NOTE]["passages"] == 1
    assert "content policy" in result[0].notes[NOTE]["failed"][0]


def test_a_passage_ends_at_two_blank_lines() -> None:
    assert cut("One.\n\nStill.\n\n\nQuestion: next") == "One.\n\nStill."


@pytest.mark.slow
def test_calls_are_counted_cached_and_worded_as_in_the_paper(ground: Any, tmp_path: Path) -> None:
    requests: list[ChatRequest] = []
    services = Services(device="cpu", cache=tmp_path / "replies.sqlite", artifacts=tmp_path / "artifacts")
    with endpoint(lambda request, number: f"Passage {number}.", requests) as url:
        first = each(hyde(url, services).index(ground.corpus), "retrieve", queries(ground, 2), 5)
        again = each(hyde(url, services).index(ground.corpus), "retrieve", queries(ground, 2), 5)
    assert len(requests) == 16, "two questions of eight samples, the second time from the cache"
    assert again == first
    usage = first[0].usage
    assert (usage.model_calls, usage.prompt_tokens, usage.completion_tokens) == (8, 88, 40)
    response = requests[0].body
    assert (response["temperature"], response["top_p"], response["max_tokens"]) == (0.7, 1.0, 512)
    assert response["stop"] == ["\n\n\n"]


def test_cost_and_notes_of_retrieval_reach_the_prediction(ground: Any) -> None:
    with endpoint(lambda request, number: "Lorn.") as url:
        options = {"llm": {"model": "m", "base_url": url, "key_variable": None}, "samples": 3, "dense": ENCODER}
        method = assemble(Component.of("hyde", options), Services(device="cpu"))
        method.index(ground.corpus)
        (prediction,) = method.answer(queries(ground, 1))
    assert prediction.usage.model_calls == 3
    assert prediction.usage.prompt_tokens == 33
    assert prediction.notes[NOTE] == {"passages": 3}


def test_unknown_encoder_option_is_refused() -> None:
    with raises("unknown-preset"):
        Component.of("hyde", {"llm": {"model": "m"}, "dense": {"preset": "nothing"}})
