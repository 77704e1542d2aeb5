"""Sensitivity to style: what is 1, 0 and −1 by construction, and what real rerankers do with parallel texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, load
from benchmarks.schema import Passage, Query
from benchmarks.styles.mix import styled
from benchmarks.styles.pairs import StylePairs
from methods.api import Ranking, Services
from methods.registry import Component
from methods.retrieval.ranking import PointwiseReranker
from methods.sark.reranker import ToldTwice, kendall_tau, sensitivity, told_twice


class ByRule(PointwiseReranker):
    """Scores texts by a function of them."""

    def __init__(self, rule: Callable[[str], float]) -> None:
        super().__init__(None)
        self.rule = rule

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> np.ndarray:
        return np.array([self.rule(passage.text) for passage in corpus.get(ids)])


@pytest.fixture(scope="module")
def worlds() -> Benchmark:
    return styled(load("worlds/multihop:test").limited(5), mix={"informal": 1.0})


@given(st.permutations(range(9)), st.permutations(range(9)))
def test_tau_is_scipys(first: list[int], second: list[int]) -> None:
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_tau_of_known_orders() -> None:
    assert kendall_tau([0, 1, 2, 3], [0, 1, 2, 3]) == 1
    assert kendall_tau([0, 1, 2, 3], [3, 2, 1, 0]) == -1
    assert kendall_tau([0, 1, 2, 3], [1, 0, 2, 3]) == pytest.approx(1 - 2 / 6)
    assert np.isnan(kendall_tau([0], [0]))


def test_the_candidates_are_those_of_the_question_told_twice(worlds: Benchmark) -> None:
    base = load("worlds/multihop:test").limited(5)
    asked = told_twice(worlds, "informal")
    assert [one.question for one in asked] == [question.id for question in base.questions]
    for one, question, told in zip(asked, base.questions, worlds.questions, strict=True):
        assert tuple(passage.id for passage in one.formal) == question.candidates
        assert tuple(passage.id for passage in one.told) == told.candidates
        assert [p.title for p in one.formal] == [p.title for p in one.told]
        assert any(p.text != q.text for p, q in zip(one.formal, one.told, strict=True))


def test_whoever_ranks_by_what_style_leaves_alone_is_not_moved(worlds: Benchmark) -> None:
    class ByTitle(ByRule):
        def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> np.ndarray:
            return np.array([self.rule(passage.title) for passage in corpus.get(ids)])

    found = sensitivity(ByTitle(lambda title: float(sum(map(ord, title)))), told_twice(worlds, "informal"))
    assert found.tau.tolist() == [1] * 5
    assert found.shift.tolist() == found.relative_shift.tolist() == found.signed_shift.tolist() == [0] * 5
    assert found.candidates.tolist() == [len(question.candidates or ()) for question in worlds.questions]


def test_a_shift_that_all_candidates_share_moves_scores_and_no_rank(worlds: Benchmark) -> None:
    asked = told_twice(worlds, "informal")
    formal = {passage.text: float(n) for one in asked for n, passage in enumerate(one.formal)}
    informal = {told.text: formal[said.text] + 3 for one in asked for said, told in zip(one.formal, one.told, strict=True)}
    for question in asked:
        found = sensitivity(ByRule({**formal, **informal}.__getitem__), [question])
        ranks = np.array([formal[passage.text] for passage in question.formal])
        assert found.tau.tolist() == [1]
        assert found.shift == pytest.approx([3])
        assert found.signed_shift == pytest.approx([3])
        both = np.concatenate([ranks, ranks + 3])
        assert found.relative_shift == pytest.approx([3 / both.std()])
        scaled = sensitivity(ByRule(lambda text: 100 * {**formal, **informal}[text]), [question])
        assert scaled.relative_shift == pytest.approx(found.relative_shift)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=12))
def test_the_relative_shift_lies_between_none_and_two(scores: list[tuple[float, float]]) -> None:
    formal = tuple(Passage(f"f{n}", "", f"f{n}") for n in range(len(scores)))
    told = tuple(Passage(f"t{n}", "", f"t{n}") for n in range(len(scores)))
    value = {f"f{n}": one for n, (one, _) in enumerate(scores)} | {f"t{n}": two for n, (_, two) in enumerate(scores)}
    found = sensitivity(ByRule(value.__getitem__), [ToldTwice("q", Query("q", "?"), formal, told)])
    assert -1 <= found.tau[0] <= 1
    assert np.isnan(found.relative_shift[0]) or 0 <= found.relative_shift[0] <= 2 + 1e-6
    assert found.shift == pytest.approx([np.mean([abs(one - two) for one, two in scores])])


@pytest.mark.slow
def test_a_question_alone_says_what_it_says_among_others(worlds: Benchmark) -> None:
    reranker = Component.of("bi_encoder").build(Services(device="cpu"))
    asked = told_twice(worlds, "informal")
    together = sensitivity(reranker, asked)
    for place, one in enumerate(asked[:2]):
        alone = sensitivity(reranker, [one])
        assert (alone.tau[0], alone.shift[0]) == (together.tau[place], together.shift[place])


def test_progress_is_told_and_the_order_given_changes_nothing(worlds: Benchmark) -> None:
    asked: list[ToldTwice] = told_twice(worlds, "informal")
    told: list[tuple[int, int]] = []
    rule = ByRule(lambda text: float(len(text)))
    first = sensitivity(rule, asked, lambda done, total: told.append((done, total)))
    assert told == [(5, 5)]
    again = sensitivity(rule, asked[::-1])
    assert again.tau.tolist() == first.tau.tolist()[::-1]
    assert again.shift.tolist() == first.shift.tolist()[::-1]


def test_what_cannot_be_compared_is_an_error(worlds: Benchmark) -> None:
    with pytest.raises(UserError, match="told in one style"):
        told_twice(load("worlds/multihop:test"), "informal")
    with pytest.raises(UserError, match="romance"):
        told_twice(worlds, "romance")


@pytest.mark.slow
def test_real_parallel_passages_move_the_cosine_more_than_themselves(data_folder: Path) -> None:
    """Verses that people translated: another version of a text moves a cosine, yet much of the order stays."""
    base = load("parallel_style/bible:test", {"path": str(data_folder / "sark_style" / "bible_genesis.jsonl")})
    pairs = StylePairs(base.extra["pairs"])
    few = base.limited(3)
    reranker = Component.of("bi_encoder").build(Services(device="cpu"))
    found = {style: sensitivity(reranker, told_twice(styled(few, pairs, {style: 1.0}), style)) for style in ("ylt", "bbe")}
    for one in found.values():
        assert ((one.tau > 0) & (one.tau < 1)).all()
        assert (one.shift > 0).all()
        assert one.candidates.min() > 20
    same = sensitivity(ByRule(lambda text: 0.0), told_twice(styled(few, pairs, {"bbe": 1.0}), "bbe"))
    assert same.tau.tolist() == [1] * 3
    assert np.isnan(same.relative_shift).all()


def test_a_reranker_that_returns_rankings_in_its_own_order_is_read_right(worlds: Benchmark) -> None:
    """Scores come with ranks, not with the candidates' places."""

    class Backwards:
        def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
            return [Ranking(q.id, r.ids[::-1], tuple(float(-n) for n in range(len(r.ids)))) for q, r in zip(queries, rankings, strict=True)]

    found = sensitivity(Backwards(), told_twice(worlds, "informal"))
    assert found.tau.tolist() == [1] * 5
    assert found.shift.tolist() == [0] * 5
