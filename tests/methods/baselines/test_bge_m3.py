"""BGE-M3 as a retriever: the weighted sum of three scores, stored and reopened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Services
from methods.baselines import bge_m3
from methods.models.late_interaction import SCORES, M3Config, M3Encoder
from methods.registry import Component


def retriever(folder: str, **config: Any) -> Any:
    return Component.of("bge_m3", {"model": folder, "max_length": 64, **config}).build(Services(device="cpu"))


@pytest.mark.parametrize("modes", [("dense",), ("sparse",), ("multi",), ("dense", "sparse", "multi")])
def test_scores_are_the_weighted_sum_of_the_modes(tiny_bge_m3: str, ground: Any, modes: tuple[str, ...]) -> None:
    encoder = M3Encoder(M3Config(model=tiny_bge_m3, max_length=64), "cpu")
    query = ground.questions[0].query()
    passages = encoder.encode([passage.full_text for passage in ground.corpus])
    weights = {"dense": 1.0, "sparse": 0.3, "multi": 1.0}
    parts = [weights[mode] * SCORES[mode](encoder.encode([query.text]), passages)[0] for mode in modes]
    expected = dict(zip(ground.corpus.ids, np.sum(parts, axis=0), strict=True))
    (ranking,) = retriever(tiny_bge_m3, modes=modes).index(ground.corpus).retrieve([query], len(ground.corpus))
    assert len(ranking.ids) == len(ground.corpus)
    # Vectors of tokens are kept in half precision.
    assert ranking.scores == pytest.approx([expected[name] for name in ranking.ids], abs=2e-3)


@pytest.mark.slow
def test_reopened_index_ranks_like_a_fresh_one(tiny_bge_m3: str, ground: Any, tmp_path: Path) -> None:
    queries = [question.query() for question in ground.questions]
    fresh = retriever(tiny_bge_m3).index(ground.corpus).retrieve(queries, 10)
    retriever(tiny_bge_m3).index(ground.corpus, tmp_path / "index")
    again = retriever(tiny_bge_m3).index(ground.corpus, tmp_path / "index")
    assert again.retrieve(queries, 10) == fresh


def test_scoring_in_parts_changes_nothing(tiny_bge_m3: str, ground: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [question.query() for question in ground.questions]
    index = retriever(tiny_bge_m3).index(ground.corpus)
    whole = index.retrieve(queries, 10)
    monkeypatch.setattr(bge_m3, "SCORED", 7)
    for item, other in zip(index.retrieve(queries, 10), whole, strict=True):
        assert item.ids == other.ids
        assert item.scores == pytest.approx(other.scores, abs=1e-6)


def test_empty_and_single_passage_corpora_can_be_queried(tiny_bge_m3: str, ground: Any, tmp_path: Path) -> None:
    query = Query("q", "Who?")
    assert retriever(tiny_bge_m3).index(Corpus.of([]), tmp_path / "none").retrieve([query], 5)[0].ids == ()
    single = Corpus.of([ground.corpus[0]])
    assert retriever(tiny_bge_m3).index(single).retrieve([query], 5)[0].ids == single.ids


def test_default_weights_are_those_of_the_ark_paper() -> None:
    assert Component.of("bge_m3").config.model_dump()["weights"] == {"dense": 1.0, "sparse": 0.3, "multi": 1.0}
    assert tuple(Component.of("bge_m3", {"preset": "dense_only"}).config.model_dump()["modes"]) == ("dense",)
