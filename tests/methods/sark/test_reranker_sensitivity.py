"""Sensitivity to style: 1, 0 and −1 by construction, and real rerankers with parallel texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, load
from benchmarks.schema import Passage, Query
from benchmarks.styles.mix import styled
from benchmarks.styles.pairs import StylePairs
from methods.api import Ranking, Services
from methods.registry import Component
from methods.retrieval.ranking import PointwiseReranker
from methods.sark.reranker import InBothStyles, in_both_styles, kendall_tau, sensitivity
from tests.support.errors import raises


class ByRule(PointwiseReranker):
    """Reranker that scores texts by a function."""

    def __init__(self, rule: Callable[[str], float]) -> None:
        super().__init__(None)
        self.rule = rule

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> np.ndarray:
        return np.array([self.rule(passage.text) for passage in corpus.get(ids)])


@pytest.fixture(scope="module")
def worlds() -> Benchmark:
    return styled(load("worlds/multihop:test").limited(5), mix={"informal": 1.0})


@given(st.permutations(range(9)), st.permutations(range(9)))
def test_tau_equals_scipy(first: list[int], second: list[int]) -> None:
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_tau_equals_hand_computed_values() -> None:
    assert kendall_tau([0, 1, 2, 3], [0, 1, 2, 3]) == 1
    assert kendall_tau([0, 1, 2, 3], [3, 2, 1, 0]) == -1
    assert kendall_tau([0, 1, 2, 3], [1, 0, 2, 3]) == pytest.approx(1 - 2 / 6)
    assert np.isnan(kendall_tau([0], [0]))


def test_candidates_are_those_of_the_question_in_both_styles(worlds: Benchmark) -> None:
    base = load("worlds/multihop:test").limited(5)
    queries = in_both_styles(worlds, "informal")
    assert [item.question for item in queries] == [question.id for question in base.questions]
    for item, question, rendering in zip(queries, base.questions, worlds.questions, strict=True):
        assert tuple(passage.id for passage in item.formal) == question.candidates
        assert tuple(passage.id for passage in item.styled) == rendering.candidates
        assert [p.title for p in item.formal] == [p.title for p in item.styled]
        assert any(p.text != q.text for p, q in zip(item.formal, item.styled, strict=True))


def test_reranker_that_ignores_style_has_zero_sensitivity(worlds: Benchmark) -> None:
    class ByTitle(ByRule):
        def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> np.ndarray:
            return np.array([self.rule(passage.title) for passage in corpus.get(ids)])

    result = sensitivity(ByTitle(lambda title: float(sum(map(ord, title)))), in_both_styles(worlds, "informal"))
    assert result.tau.tolist() == [1] * 5
    assert result.shift.tolist() == result.relative_shift.tolist() == result.signed_shift.tolist() == [0] * 5
    assert result.candidates.tolist() == [len(question.candidates or ()) for question in worlds.questions]


def test_constant_score_shift_changes_no_rank(worlds: Benchmark) -> None:
    every = in_both_styles(worlds, "informal")
    # Some sentences are informal as they are: no shift can be given to those.
    queries = [item for item in every if not {p.text for p in item.formal} & {p.text for p in item.styled}]
    assert queries
    # Questions share passages: a number for each, so that no two of a question are equal.
    formal = {text: float(n) for n, text in enumerate(dict.fromkeys(p.text for item in queries for p in item.formal))}
    informal = {
        rendering.text: formal[response.text] + 3 for item in queries for response, rendering in zip(item.formal, item.styled, strict=True)
    }
    for question in queries:
        result = sensitivity(ByRule({**formal, **informal}.__getitem__), [question])
        ranks = np.array([formal[passage.text] for passage in question.formal])
        assert result.tau.tolist() == [1]
        assert result.shift == pytest.approx([3])
        assert result.signed_shift == pytest.approx([3])
        both = np.concatenate([ranks, ranks + 3])
        assert result.relative_shift == pytest.approx([3 / both.std()])
        scaled = sensitivity(ByRule(lambda text: 100 * {**formal, **informal}[text]), [question])
        assert scaled.relative_shift == pytest.approx(result.relative_shift)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=12))
def test_relative_shift_is_between_zero_and_two(scores: list[tuple[float, float]]) -> None:
    formal = tuple(Passage(f"f{n}", "", f"f{n}") for n in range(len(scores)))
    renderings = tuple(Passage(f"t{n}", "", f"t{n}") for n in range(len(scores)))
    value = {f"f{n}": item for n, (item, _) in enumerate(scores)} | {f"t{n}": two for n, (_, two) in enumerate(scores)}
    result = sensitivity(ByRule(value.__getitem__), [InBothStyles("q", Query("q", "?"), formal, renderings)])
    assert -1 <= result.tau[0] <= 1
    assert np.isnan(result.relative_shift[0]) or 0 <= result.relative_shift[0] <= 2 + 1e-6
    assert result.shift == pytest.approx([np.mean([abs(item - two) for item, two in scores])])


@pytest.mark.slow
def test_sensitivity_of_a_question_does_not_depend_on_others(worlds: Benchmark) -> None:
    reranker = Component.of("bi_encoder").build(Services(device="cpu"))
    query = in_both_styles(worlds, "informal")
    together = sensitivity(reranker, query)
    for position, item in enumerate(query[:2]):
        alone = sensitivity(reranker, [item])
        assert (alone.tau[0], alone.shift[0]) == (together.tau[position], together.shift[position])


def test_progress_is_reported_and_candidate_order_does_not_matter(worlds: Benchmark) -> None:
    queries: list[InBothStyles] = in_both_styles(worlds, "informal")
    renderings: list[tuple[int, int]] = []
    rule = ByRule(lambda text: float(len(text)))
    first = sensitivity(rule, queries, lambda done, total: renderings.append((done, total)))
    assert renderings == [(5, 5)]
    again = sensitivity(rule, queries[::-1])
    assert again.tau.tolist() == first.tau.tolist()[::-1]
    assert again.shift.tolist() == first.shift.tolist()[::-1]


def test_data_without_comparable_styles_is_refused(worlds: Benchmark) -> None:
    with raises("single-style"):
        in_both_styles(load("worlds/multihop:test"), "informal")
    with raises("no-question-with-two-candidates"):
        in_both_styles(worlds, "romance")


@pytest.mark.slow
def test_real_style_pairs_shift_cosine_similarity_more_than_identical_texts(data_folder: Path) -> None:
    """Another translation of a verse changes its cosine similarity, but much of the order stays."""
    base = load("parallel_style/bible:test", {"path": str(data_folder / "sark_style" / "bible_genesis.jsonl")})
    pairs = StylePairs(base.extra["pairs"])
    few = base.limited(3)
    reranker = Component.of("bi_encoder").build(Services(device="cpu"))
    results = {style: sensitivity(reranker, in_both_styles(styled(few, pairs, {style: 1.0}), style)) for style in ("ylt", "bbe")}
    for item in results.values():
        assert ((item.tau > 0) & (item.tau < 1)).all()
        assert (item.shift > 0).all()
        assert item.candidates.min() > 20
    same = sensitivity(ByRule(lambda text: 0.0), in_both_styles(styled(few, pairs, {"bbe": 1.0}), "bbe"))
    assert same.tau.tolist() == [1] * 3
    assert np.isnan(same.relative_shift).all()


def test_rankings_returned_in_another_order_are_matched_by_question(worlds: Benchmark) -> None:
    """Scores are returned in rank order, not in the order of candidates."""

    class Backwards:
        def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
            return [Ranking(q.id, r.ids[::-1], tuple(float(-n) for n in range(len(r.ids)))) for q, r in zip(queries, rankings, strict=True)]

    result = sensitivity(Backwards(), in_both_styles(worlds, "informal"))
    assert result.tau.tolist() == [1] * 5
    assert result.shift.tolist() == [0] * 5
