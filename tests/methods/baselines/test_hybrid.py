"""Reciprocal-rank fusion against hand-computed values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Ranking
from methods.baselines import hybrid
from methods.baselines.hybrid import HybridConfig, HybridIndex
from methods.flow import each
from methods.registry import Component
from tests.support.errors import raises

CORPUS = Corpus.of(Passage(name, "", name) for name in "abcde")


class Fixed:
    """Index that returns the same passages for every query."""

    def __init__(self, ids: str) -> None:
        self.ids = tuple(ids)

    def retrieve(self, queries: list[Query], k: int) -> list[Ranking]:
        return [Ranking(q.id, self.ids[:k], tuple(1.0 / (r + 1) for r in range(len(self.ids[:k])))) for q in queries]


def fuse(*rankings: str, k: int = 5, **config: Any) -> Ranking:
    return each(HybridIndex(HybridConfig(**config), CORPUS, [Fixed(ids) for ids in rankings]), "retrieve", [Query("q", "")], k)[0]


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    ranking = fuse("abc", "cad")
    assert ranking.ids == ("a", "c", "b", "d")
    assert ranking.scores == pytest.approx((1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63))


def test_ties_are_broken_by_corpus_order() -> None:
    assert fuse("ea", "ae").ids == ("a", "e")


def test_equal_sums_keep_the_order_of_candidates() -> None:
    """1 / 63 + 1 / 140 = 1 / 84 + 1 / 90, which floats miss by the last digit."""
    others = tuple(f"p{number}" for number in range(100))
    first = (*others[:2], "a", *others[3:23], "b", *others[24:])
    second = (*others[:29], "b", *others[30:79], "a", *others[80:])
    rankings = [Ranking("q", ids, (0.0,) * len(ids)) for ids in (first, second)]
    for pair in (("a", "b"), ("b", "a")):
        fused = hybrid.fuse(Query("q", "", candidates=(*pair, *others)), rankings, 200, CORPUS, 60)
        assert [identifier for identifier in fused.ids if identifier in pair] == list(pair)


def test_the_first_k_do_not_depend_on_k() -> None:
    assert fuse("abcde", "edcba", k=5).ids[:2] == fuse("abcde", "edcba", k=2).ids


def test_smaller_damping_gives_top_ranks_more_weight() -> None:
    # b is third twice, a is first once: 2 / (3 + k) against 1 / (1 + k).
    for damping, first in ((60, "b"), (0.01, "a")):
        index = HybridIndex(HybridConfig(k=damping), CORPUS, [Fixed("adb"), Fixed("ceb")])
        assert each(index, "retrieve", [Query("q", "")], 1)[0].ids == (first,)


def test_retriever_name_selects_its_default_options() -> None:
    named = HybridConfig(retrievers=("bm25", {"id": "random"}))
    assert named == HybridConfig(retrievers=({"id": "bm25", "config": {}}, {"id": "random", "config": {}}))


def test_only_retrievers_can_be_fused() -> None:
    with pytest.raises(ValidationError, match="'extractive' is a reader, not a retriever"):
        HybridConfig(retrievers=("bm25", "extractive"))
    with raises("unknown-method"):
        HybridConfig(retrievers=("bm52",))


def test_changed_option_of_a_part_changes_the_fingerprint() -> None:
    item = Component.of("hybrid", {"retrievers": [{"id": "bm25"}]})
    same = Component.of("hybrid", {"retrievers": ["bm25"]})
    other = Component.of("hybrid", {"retrievers": [{"id": "bm25", "config": {"k1": 0.9}}]})
    assert item.fingerprint == same.fingerprint != other.fingerprint


def test_fusing_one_retriever_keeps_its_order_and_shares_its_index(ground: Any, build: Any, tmp_path: Any) -> None:
    queries = [question.query() for question in ground.questions]
    alone = each(build("bm25").index(ground.corpus), "retrieve", queries, 10)
    fused = each(build("hybrid", retrievers=["bm25"]).index(ground.corpus, tmp_path / "own"), "retrieve", queries, 10)
    assert [ranking.ids for ranking in fused] == [ranking.ids for ranking in alone]
    shared = f"{Component.of('bm25').fingerprint}-{ground.corpus.fingerprint}"
    assert (tmp_path / "artifacts" / "indexes" / shared / "complete.json").exists()
    assert not (tmp_path / "own").exists()
