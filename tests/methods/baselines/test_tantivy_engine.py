"""BM25 by tantivy compared with bm25s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Services
from methods.registry import Component
from tests.support.errors import raises

pytest.importorskip("tantivy")
OPTIONS = {"k1": 1.2, "b": 0.75}
WORDS = ["moss", "river", "tin", "lamp", "crow", "salt", "harp", "日本語", "C++"]


def corpus_of(texts: list[str]) -> Corpus:
    return Corpus.of(Passage(passage_id("", text, str(n)), "", text, (), str(n)) for n, text in enumerate(texts))


def bm25(**options: Any) -> Any:
    return Component.of("bm25", {**OPTIONS, **options}).build(Services())


def test_scores_of_short_passages_equal_bm25s_after_reopening(tmp_path: Path) -> None:
    """Lengths up to 40 words are exact in tantivy; its formula has a factor k1 + 1."""
    draw = np.random.default_rng(0)
    corpus = corpus_of([" ".join(draw.choice(WORDS, draw.integers(0, 20))) for _ in range(60)])
    queries = [Query("a", "moss river moss"), Query("b", "日本語 C++"), Query("c", "unknown"), Query("d", "")]
    exact = bm25().index(corpus).retrieve(queries, len(corpus))
    for folder in (None, tmp_path, tmp_path):
        for ours, theirs in zip(bm25(engine="tantivy").index(corpus, folder).retrieve(queries, len(corpus)), exact, strict=True):
            own = dict(zip(ours.ids, ours.scores, strict=True))
            assert {key: score / 2.2 for key, score in own.items()} == pytest.approx(
                dict(zip(theirs.ids, theirs.scores, strict=True)), rel=1e-4
            )


def test_equal_scores_keep_the_order_of_the_corpus_at_every_depth() -> None:
    corpus = corpus_of(["old moss"] * 30)
    index = bm25(engine="tantivy").index(corpus)
    for k in (1, 4, 30):
        assert index.retrieve([Query("q", "moss")], k)[0].ids == tuple(corpus.ids[:k])


@pytest.mark.parametrize("options", [{"k1": 0.9}, {"b": 0.4}, {"statistics": "candidates"}])
def test_options_that_tantivy_does_not_support_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        bm25(engine="tantivy", **options)


def test_questions_with_candidates_are_refused() -> None:
    corpus = corpus_of(["moss"])
    with raises("tantivy-candidates"):
        bm25(engine="tantivy").index(corpus).retrieve([Query("q", "moss", candidates=corpus.ids)], 1)


def test_fingerprint_includes_the_engine_unless_it_is_the_default() -> None:
    default, named, other = (Component.of("bm25", {**OPTIONS, **more}) for more in ({}, {"engine": "bm25s"}, {"engine": "tantivy"}))
    assert "engine" not in default.describe()["config"]
    assert default.fingerprint == named.fingerprint != other.fingerprint
