"""Comparisons of several runs, and which stage loses what, on stores small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question, passage_id
from methods.api import Evidence, Prediction, Usage
from results.boards.compare import compare
from results.statistics.difference import Range
from results.statistics.holm import holm
from results.statistics.intervals import all_pairs, difference
from results.store import queries
from results.store.provenance import attribution
from results.store.queries import RunRow
from results.store.store import FINISHED, Run, Store
from tests.support.errors import raises
from tests.support.toy import CARD

NAN = float("nan")
SCORES: dict[str, list[float]] = {"bm25": [0, 1, 0, 1, 0, NAN], "dense": [1, 1, 0, 0, 0.5, NAN], "hybrid": [1, 1, 1, 1, 0, 1]}
TYPES = ["bridge", "comparison", "bridge", "bridge", "comparison", "bridge"]
REQUESTED = [(kind, 1 + n % 2) for n, kind in enumerate(TYPES)]
"""Type and number of gold passages of each question."""
EM = "em#v2"
Made = Callable[..., dict[str, RunRow]]
PIPELINE: dict[str, Any] = {"method": {"id": "bm25"}, "rerankers": [], "compressor": None, "reader": {"id": "extractive"}, "budget": None}


def build(
    store: Store,
    scores: dict[str, list[float]],
    *,
    settings: dict[str, str] | None = None,
    descriptions: dict[str, dict[str, Any]] | None = None,
    limit: int = 6,
    requests: Sequence[tuple[str, int]] = REQUESTED,
) -> dict[str, RunRow]:
    passages = [Passage(passage_id("T", str(n)), "T", str(n)) for n in range(max(count for _, count in requests))]
    questions = [
        Question(f"q{n}", f"what {n}?", ("a",), evidence=tuple(p.id for p in passages[:count]), type=kind)
        for n, (kind, count) in enumerate(requests[:limit])
    ]
    world = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of(passages))
    store.put_benchmark(world, world.fingerprint)
    for name, values in scores.items():
        setting = (settings or {}).get(name, "distractor")
        about = (descriptions or {}).get(name, PIPELINE)
        run = f"{name}-{limit}"
        store.start(Run(run, name, "bm25", "retriever", about, "toy:dev", world.fingerprint, setting, 0, limit, {}))
        responses = [Prediction(q.id, "x", (Evidence(passages[0].id, 1.0),), Usage(1, 1)) for q in questions]
        store.append(run, responses, {EM: np.array(values[:limit], float)}, passages)
        store.end(run, FINISHED)
    return {row.method: row for row in queries.runs(store) if row.run.endswith(f"-{limit}")}


@pytest.fixture
def made(once: Callable[..., dict[str, RunRow]]) -> Made:
    return partial(once, by=build)


@pytest.mark.slow
def test_every_pair_is_the_paired_difference_and_is_corrected_over_all_pairs(made: Made, store: Store) -> None:
    runs = made(store, SCORES)
    result = compare(store, [runs[name] for name in SCORES], EM)
    assert [(pair.first, pair.second) for pair in result.pairs] == [(0, 1), (0, 2), (1, 2)]
    names = list(SCORES)
    # All questions have the first passage as gold: they are one cluster.
    assert len(set(result.sampled.labels or ())) == 1
    together = all_pairs(list(SCORES.values()), clusters=result.sampled.labels, metric=Range())
    assert [(p.difference.low, p.difference.high) for p in result.pairs] == [(item.low, item.high) for item in together.differences]
    for pair in result.pairs:
        ours, theirs = SCORES[names[pair.first]], SCORES[names[pair.second]]
        assert pair.difference.value == pytest.approx(np.nanmean(np.array(ours) - np.array(theirs)))
        assert pair.difference.p == pytest.approx(difference(ours, theirs, clusters=result.sampled.labels).p)
        both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a == a and b == b]
        counts = [sum(a > b for a, b in both), sum(a == b for a, b in both), sum(a < b for a, b in both)]
        assert [pair.difference.wins, pair.difference.ties, pair.difference.losses] == counts
    assert [pair.p_holm for pair in result.pairs] == pytest.approx(holm([pair.difference.p for pair in result.pairs]), nan_ok=True)


def test_questions_on_which_runs_differ_come_widest_gap_first_and_one_value_alone_is_no_difference(made: Made, store: Store) -> None:
    runs = made(store, SCORES)
    result = compare(store, [runs[name] for name in SCORES], EM)
    assert result.apart() == [0, 2, 3, 4]


def test_slices_by_type_and_by_gold_passages_cover_every_question_once(made: Made, store: Store) -> None:
    runs = made(store, SCORES)
    result = compare(store, [runs[name] for name in SCORES], EM)
    assert [(part.name, part.questions) for part in result.by_type] == [("bridge", 4), ("comparison", 2)]
    assert [part.name for part in result.by_evidence] == ["1 gold passage", "2 gold passages"]
    for part, kind in zip(result.by_type, ("bridge", "comparison"), strict=True):
        for number, name in enumerate(SCORES):
            own = [value for value, query in zip(SCORES[name], TYPES, strict=True) if query == kind]
            assert part.estimates[number].value == pytest.approx(np.nanmean(own))
            assert part.zeros[number] == own.count(0)


def test_slices_come_by_frequency_of_the_type_and_by_number_of_gold_passages(made: Made, store: Store) -> None:
    requests = [("b", 10), ("c", 2), ("a", 0), ("c", 1), ("b", 2), ("c", 10), ("a", 10)]
    values = [float(number) for number in range(len(requests))]
    runs = made(store, {"bm25": values, "dense": values}, requests=requests, limit=len(requests))
    result = compare(store, list(runs.values()), EM)
    assert [(part.name, part.estimates[0].value) for part in result.by_type] == [("c", 3.0), ("a", 4.0), ("b", 2.0)]
    assert [(part.name, round(part.estimates[0].value, 3)) for part in result.by_evidence] == [
        ("no gold passage", 2.0),
        ("1 gold passage", 3.0),
        ("2 gold passages", 2.5),
        ("10 gold passages", 3.667),
    ]


def test_runs_about_different_data_are_refused(made: Made, store: Store) -> None:
    first, second = made(store, SCORES)["bm25"], made(store, SCORES, limit=4)["dense"]
    with raises("runs-on-different-data"):
        compare(store, [first, second], EM)
    with raises("too-few-runs"):
        compare(store, [first, first], EM)


STAGES: dict[str, list[float]] = {
    "usual": [0, 0, 1, 0, 1, 0],
    "noisy": [1, 0, 1, 0, 1, 0],
    "clean": [1, 1, 1, 0, 1, 0],
    "blind": [0, 0, 0, 0, 1, 0],
}
SETTINGS = {
    "usual": "corpus(retriever=bm25,n=20)",
    "noisy": "oracle(base=corpus(retriever=bm25,n=20),n=20)",
    "clean": "gold_only",
    "blind": "closed_book",
}


@pytest.mark.slow
def test_stages_lose_what_the_oracle_settings_of_the_same_pipeline_gain(made: Made, store: Store) -> None:
    runs = made(store, STAGES, settings=SETTINGS)
    result = attribution(store, runs["usual"], EM)
    assert not result.missing
    assert result.losses is not None
    assert result.questions == 6
    assert result.losses.retrieval.value == pytest.approx(1 / 6)
    assert result.losses.reranking.value == pytest.approx(1 / 6)
    assert result.losses.reading.value == pytest.approx(2 / 6)
    assert result.losses.evidence_gain.value == pytest.approx(1 / 6)
    assert result.losses.compression is None


@pytest.mark.slow
def test_runs_of_another_pipeline_do_not_stand_in(made: Made, store: Store) -> None:
    other: dict[str, Any] = {**PIPELINE, "reader": {"id": "another"}}
    runs = made(store, STAGES, settings=SETTINGS, descriptions={"noisy": other, "blind": other})
    result = attribution(store, runs["usual"], EM)
    assert result.losses is None
    assert result.missing == (SETTINGS["noisy"], "closed_book")


@pytest.mark.slow
def test_a_compressor_is_distinguished_from_the_reader_where_the_evidence_was_also_read_in_full(made: Made, store: Store) -> None:
    squeezed: dict[str, Any] = {**PIPELINE, "compressor": {"id": "c"}, "budget": 20}
    runs = made(
        store,
        {**STAGES, "full": [1, 1, 1, 1, 1, 0]},
        settings={**SETTINGS, "full": "gold_only"},
        descriptions=dict.fromkeys(STAGES, squeezed),
    )
    result = attribution(store, runs["usual"], EM)
    assert result.losses is not None
    assert result.losses.compression is not None
    assert result.losses.compression.value == pytest.approx(1 / 6)
    assert result.losses.reading.value == pytest.approx(1 / 6)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["corpus", "closed_book"])
def test_a_setting_without_candidates_says_why_nothing_can_be_split(made: Made, setting: str, store: Store) -> None:
    runs = made(store, {"usual": STAGES["usual"]}, settings={"usual": setting})
    result = attribution(store, runs["usual"], EM)
    assert result.losses is None
    assert "corpus(retriever=bm25,n=20)" in result.obstacle
