"""Score a run: from questions and predictions to one number per question and metric, and check what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.errors import UserError
from benchmarks.schema import Question
from judges.api import Batch, Metric, Scores
from judges.registry import parse
from methods.api import FAILED, Prediction

TOLERANCE = 1e-9
"""Differences up to this are rounding, not violations."""


def score(
    questions: Sequence[Question],
    predictions: Sequence[Prediction | None] | Mapping[str, Prediction],
    metrics: Iterable[Metric | str],
    corpus_text: Callable[[str], str] | None = None,
) -> dict[str, Scores]:
    """Score predictions under several metrics; what metrics share is computed once.

    Every question counts. One without prediction, and for metrics that read the answer also one whose prediction says
    that it failed (`notes["failed"]`), scores what the metric declares as `missing`, unless its gold makes it
    unscorable. Evidence that a failed prediction did return is scored.

    Args:
        questions: The questions of the task.
        predictions: One per question in the same order, None where there is none; or by question id (as methods know
            it, or the dataset's own).
        metrics: Metrics or their ids.
        corpus_text: From the id of a passage (or triple) to its text, for metrics that read texts.

    Returns:
        By canonical metric id, shape (questions,), NaN where unscorable.

    Raises:
        UserError: A metric id is unknown, or a prediction belongs to another question.
    """
    wanted = [parse(metric) if isinstance(metric, str) else metric for metric in metrics]
    aligned = _aligned(questions, predictions)
    absent = np.array([prediction is None for prediction in aligned], dtype=bool)
    failed = np.array([bool(prediction and prediction.notes.get(FAILED)) for prediction in aligned], dtype=bool)
    rows = [one or Prediction(question.query_id, "") for question, one in zip(questions, aligned, strict=True)]
    batch = Batch(questions, rows, corpus_text)
    results: dict[str, Scores] = {}
    for metric in wanted:
        scores = metric.compute(batch).copy()
        lost = absent | failed if "answer" in metric.entry.needs else absent
        scores[lost & ~np.isnan(scores)] = metric.entry.missing
        results[str(metric)] = scores
    return results


def _aligned(
    questions: Sequence[Question], predictions: Sequence[Prediction | None] | Mapping[str, Prediction]
) -> list[Prediction | None]:
    """One prediction or None per question, each checked to belong to it."""
    if isinstance(predictions, Mapping):
        names = {name for question in questions for name in (question.id, question.query_id)}
        for name in predictions:
            if name not in names:
                raise UserError(
                    f"there is a prediction for {name!r}, which is not one of the questions",
                    try_this="score it against the split that it was made on",
                )
        return [predictions.get(question.query_id, predictions.get(question.id)) for question in questions]
    if len(predictions) != len(questions):
        raise UserError(
            f"{len(predictions)} predictions for {len(questions)} questions",
            try_this="give one per question, None where there is none, or a mapping by question id",
        )
    for question, prediction in zip(questions, predictions, strict=True):
        if prediction is not None and prediction.question_id not in (question.id, question.query_id):
            raise UserError(
                f"the prediction for {prediction.question_id!r} stands where that for {question.query_id!r} belongs",
                where=f"question {question.id!r}",
                try_this="put the predictions in the order of the questions, or give a mapping by question id",
            )
    return list(predictions)


_SAME_GOLD = {"squad": ("squad", "hotpotqa", "musique", "longbench"), "squad_v2": ("squad_v2",), "clara": ("clara",)}
"""Rules of em, and the rules of f1 that normalise the same way and score the same questions."""


def check_invariants(scores: Mapping[Metric, Scores]) -> list[str]:
    """What must hold between the scores of one run, over its scorable questions.

    mrr@1 = precision@1 = hit@1; recall, hit, all, mrr, map and has_answer never fall as k grows; f1, answer_precision
    and answer_recall >= em under rules that normalise alike; cover_em >= em; every value within its metric's declared
    range and finite; metrics with the same gold leave the same questions unscored.

    Args:
        scores: Shape (questions,) per metric, NaN where unscorable.

    Returns:
        One sentence per violation, with the number of questions and the first of them; empty where all is well.
    """
    found: list[str] = []
    for metric, values in scores.items():
        low, high = metric.entry.low, metric.entry.high
        if low is not None:
            _note(found, values < low - TOLERANCE, f"{metric} is below its lowest value {low:g}")
        if high is not None:
            _note(found, values > high + TOLERANCE, f"{metric} is above its highest value {high:g}")
        _note(found, np.isinf(values), f"{metric} is infinite")
    for smaller, larger in _ordered(scores):
        few, many = scores[smaller], scores[larger]
        _note(found, few > many + TOLERANCE, f"{smaller} is greater than {larger}")
        _note(found, np.isnan(few) != np.isnan(many), f"{smaller} and {larger} differ in what is unscorable")
    first = [metric for metric in scores if metric.entry.id in _AT_ONE and metric.values.get("k") == 1]
    for left, right in pairwise(first):
        _note(found, np.abs(scores[left] - scores[right]) > TOLERANCE, f"{left} and {right} differ")
        nan = np.isnan(scores[left]) != np.isnan(scores[right])
        _note(found, nan, f"{left} and {right} differ in what is unscorable")
    return found


_AT_ONE = ("mrr", "precision", "hit")
_OVERLAPS = ("f1", "answer_precision", "answer_recall")
_GROWING = ("recall", "hit", "all", "mrr", "map", "has_answer")


def _ordered(scores: Mapping[Metric, Scores]) -> list[tuple[Metric, Metric]]:
    """Pairs of metrics of which the first can never exceed the second."""
    pairs: list[tuple[Metric, Metric]] = []
    for name in _GROWING:
        by_k = sorted((m for m in scores if m.entry.id == name), key=lambda metric: int(metric.values["k"]))
        pairs += pairwise(by_k)
    for em in (metric for metric in scores if metric.entry.id == "em"):
        alike = _SAME_GOLD.get(str(em.values["rules"]), ())
        overlaps = [m for m in scores if m.entry.id in _OVERLAPS and m.values["rules"] in alike]
        covers = [m for m in scores if m.entry.id == "cover_em" and em.values["rules"] == "squad"]
        pairs += [(em, other) for other in overlaps + covers]
    return pairs


def _note(found: list[str], violated: np.ndarray, what: str) -> None:
    rows = np.flatnonzero(violated)
    if rows.size:
        noun = "question" if rows.size == 1 else "questions"
        found.append(f"{what} for {rows.size} {noun}, first in row {rows[0]}")
