"""A question's score does not depend on other questions, their order or their number."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.registry import Benchmark, load
from benchmarks.schema import Passage, Question, sentence_of
from judges.metric import METRICS, Metric, QuestionGraphs, parse
from judges.score import score
from methods.api import FAILED, SUPPORT, TRIPLES, Evidence, Prediction

WORLDS = ("multihop", "graph")
SIZE = 16
"""Number of questions per world, and of random questions."""
ODD = (
    Question("none", "?", ()),
    Question("nothing", "?", ("The The",)),
    Question("skipped", "?", ("A+", "A plus"), aliases={"A+": ("a",)}),
    Question("unanswerable", "?", ("no answer",), answerable=False),
    Question("yes", "?", ("yes",)),
    Question("set", "?", ("Rome", "Milan and Pavia", "Rome"), aliases={"Rome": ("Roma", "the eternal city")}, answer_set=True),
)
"""Golds of every kind that metrics treat differently."""
SAID = ("", "yes", "Rome\nMilan and Pavia", "Rome", "Rome, Roma", "unanswerable", "a", "No. Rome is the eternal city.")


def every_metric() -> list[Metric]:
    """Return all metrics that need no model, under all parameters."""
    results = []
    for entry in METRICS:
        if METRICS.source(entry.id).startswith("judges.metrics.") and "model" not in entry.needs:
            options = [[(p.name, value) for value in ((1, 5) if p.name == "k" else p.choices or (p.default,))] for p in entry.parameters]
            results += [Metric(entry, dict(chosen)) for chosen in itertools.product(*options)]
    return [metric for metric in results if metric.values.get("extractor", "rule") == "rule"]  # spaCy's entities need its model


@cache
def answered(subset: str) -> tuple[Benchmark, list[Question], list[Prediction | None]]:
    """Return questions of a world and special cases, each with a prediction that is right, wrong, partly right or missing."""
    benchmark = load(f"worlds/{subset}:validation").limited(SIZE)
    draw = np.random.default_rng(0)
    questions = [*benchmark.questions, *ODD]
    held = [passage.id for passage, _ in zip(benchmark.corpus, range(40), strict=False)]
    predictions: list[Prediction | None] = []
    for question in questions:
        right = draw.random() < 0.3
        answer = "\n".join(question.answers[: None if question.answer_set else 1]) if right else str(draw.choice([*question.golds, *SAID]))
        ranked = [*question.evidence, *draw.permutation(held[:6])] if right else draw.permutation([*held[:6], *question.evidence])
        sentences = [list(sentence_of(fact)) for fact in question.supporting_facts]
        notes = {
            SUPPORT: [*(sentences or question.evidence), *(() if right else held[:2])],
            TRIPLES: [*map(list, question.triples[: None if right else 1]), *([] if right else [["a", "b", "c"]])],
            **({FAILED: "timeout"} if draw.random() < 0.1 else {}),
        }
        made = Prediction(question.query_id, answer, tuple(Evidence(str(item), 1.0) for item in dict.fromkeys(ranked)), notes=notes)
        predictions.append(None if draw.random() < 0.1 else made)
    return benchmark, questions, predictions


def scored(subset: str, rows: list[int], metrics: list[Metric]) -> dict[str, np.ndarray]:
    benchmark, questions, predictions = answered(subset)

    def passage(identifier: str) -> Passage:
        return benchmark.corpus.get([identifier])[0]

    graphs = QuestionGraphs.of(benchmark)
    return score([questions[row] for row in rows], [predictions[row] for row in rows], metrics, passage, graphs)


@cache
def whole(subset: str) -> dict[str, np.ndarray]:
    """Return the score of each question within the whole batch."""
    return scored(subset, list(range(SIZE + len(ODD))), every_metric())


@pytest.mark.slow
@pytest.mark.parametrize("subset", WORLDS)
@given(rows=st.lists(st.integers(0, SIZE + len(ODD) - 1), min_size=1, max_size=24))
@settings(max_examples=6, deadline=None)
def test_scores_do_not_change_under_permutation_repetition_or_subsets(subset: str, rows: list[int]) -> None:
    for name, values in scored(subset, rows, every_metric()).items():
        np.testing.assert_array_equal(values, whole(subset)[name][rows], err_msg=name)


def test_test_questions_give_every_metric_varying_scores() -> None:
    """Otherwise the property above could not fail: nearly every metric must have varying and unscorable values."""
    constant = {name for name, values in whole("multihop").items() if len(set(values[~np.isnan(values)])) < 2}
    constant &= {name for name, values in whole("graph").items() if len(set(values[~np.isnan(values)])) < 2}
    # What reads WebQSP's parses, MuSiQue's twins, LongBench's classes and KILT's pages has nothing to go by in worlds.
    assert [
        name
        for name in constant
        if not name.startswith(("webqsp_", "group_", "sufficiency", "longbench_", "kilt_", "choice", "infinitebench_", "span_recall"))
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "atol"),
    [
        ("perplexity(model=pocket)", 0.0),
        # If all similarities of a token are negative, bert-score takes the 0 of a batch's padding as the maximum.
        ("bertscore(model=minilm,layer=6)", 2e-3),
    ],
)
def test_batch_composition_changes_model_scores_only_by_rounding(metric: str, atol: float) -> None:
    rows = [*range(0, SIZE + len(ODD), 3), 3, 3]
    (together,) = scored("multihop", rows, [parse(metric)]).values()
    single = [float(next(iter(scored("multihop", [row], [parse(metric)]).values()))[0]) for row in rows]
    np.testing.assert_allclose(together, single, rtol=1e-4, atol=atol)
