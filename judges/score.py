"""Score a run: from questions and predictions to one number per question and metric, and check what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np

from benchmarks.core.errors import Incomplete, UserError, counted
from benchmarks.schema import Passage, Question
from judges.metric import Batch, Metric, QuestionGraphs, Scores, parse
from methods.api import FAILED, Evidence, Prediction, raised

_AT_ONCE = 64
"""Questions tried together; usually the first ones suffice."""

TOLERANCE = 1e-9
"""Maximum difference that counts as rounding."""


def score(
    questions: Sequence[Question],
    predictions: Sequence[Prediction | None] | Mapping[str, Prediction],
    metrics: Iterable[Metric | str],
    passage: Callable[[str], Passage] | None = None,
    graphs: QuestionGraphs | None = None,
    faults: dict[Metric, BaseException] | None = None,
) -> dict[str, Scores]:
    """Score predictions on several metrics; values that metrics share are computed once.

    Every question counts. A question without a prediction gets the metric's `missing` value, unless its gold makes it
    unscorable; for metrics that read the answer, so does a failed prediction (`notes["failed"]`). Evidence that a failed
    prediction returned is scored.

    Args:
        questions: The questions of the task.
        predictions: One per question in the same order, None if missing; or a mapping by question id (the one that methods see,
            or the dataset's own).
        metrics: Metrics or their ids.
        passage: Looks up a passage (or triple) by id, for metrics that read texts.
        graphs: Graphs of the questions, for metrics that need them (`QuestionGraphs.of(benchmark)`).
        faults: Collects the errors that metrics raise; these metrics are left out. None raises the first error.

    Returns:
        Scores by canonical metric id, shape (questions,); NaN if unscorable.

    Raises:
        UserError: A metric id is unknown, or a prediction belongs to another question.
    """
    wanted = [parse(metric) if isinstance(metric, str) else metric for metric in metrics]
    aligned = _aligned(questions, predictions)
    absent = np.array([prediction is None for prediction in aligned], dtype=bool)
    failed = np.array([bool(prediction and prediction.notes.get(FAILED)) for prediction in aligned], dtype=bool)
    batch = Batch(questions, list(map(_message, questions, aligned)), passage, graphs=graphs)
    results: dict[str, Scores] = {}
    for metric in wanted:
        try:
            scores = metric.compute(batch).copy()
            if metric.entry.code is not None:
                _require_values(metric, batch, scores)
        except BaseException as error:
            if faults is None or isinstance(error, KeyboardInterrupt):
                raise
            faults[metric] = error
            continue
        missing = metric.entry.missing
        if missing != "empty":  # what an empty answer scores is there already
            lost = absent | failed if "answer" in metric.entry.needs else absent
            scores[lost & ~np.isnan(scores)] = np.nan if missing == "unscorable" else missing
        results[str(metric)] = scores
    return results


def _require_values(metric: Metric, batch: Batch, scores: Scores) -> None:
    """Check that what a plug-in's metric calls unscorable does not depend on the answer: the mean would leave out wrong ones.

    Raises:
        ValueError: Without an answer, or for the right one, a question has a value.
    """
    rows = np.flatnonzero(np.isnan(scores)).tolist()
    if not rows or not metric.entry.exact or metric.entry.missing == "unscorable" or "group" in metric.entry.needs:
        return
    questions = [batch.questions[row] for row in rows]
    right = [Prediction(q.query_id, next(iter(q.golds), ""), tuple(Evidence(name, 1.0) for name in q.evidence)) for q in questions]
    for predictions in ([Prediction(q.query_id, "") for q in questions], right):
        values = metric.compute(replace(batch, questions=questions, predictions=predictions, memo={}))
        depends = np.flatnonzero(~np.isnan(values)).tolist()
        if depends:
            raise ValueError(
                f"{metric} gave question {questions[depends[0]].id!r} no value (NaN), and gives it one for another answer: "
                "NaN is for questions without gold"
            )


def require_no_faults(faults: Mapping[Metric, BaseException], try_this: str) -> None:
    """Refuse what metrics raised (`faults` of `score`); `try_this` continues "fix the metric or".

    Raises:
        UserError: A metric lacks something.
        Incomplete: A metric's code raised an error or returned invalid values.
    """
    for error in faults.values():
        if isinstance(error, UserError):
            raise error
    if faults:
        raise Incomplete(
            f"{counted(len(faults), 'metric')} raised",
            code="metric-raised",
            where="; ".join(f"{metric}: {raised(error)}" for metric, error in faults.items()),
            try_this=f"fix the metric or {try_this}",
        )


def can_score(metric: Metric, questions: Sequence[Question], graphs: QuestionGraphs | None = None) -> bool:
    """Return whether a metric can give a value to any of these questions, whatever the answers are.

    For a metric that needs a model, return True without loading it.

    Raises:
        Incomplete: The metric raised an error or returned invalid values.
    """
    if "model" in metric.entry.needs:
        return True

    def no_passage(identifier: str) -> Passage:
        raise KeyError(identifier)  # nothing is ranked, so nothing is looked up

    for start in range(0, len(questions), _AT_ONCE):
        part = questions[start : start + _AT_ONCE]
        batch = Batch(part, [Prediction(question.query_id, "") for question in part], no_passage, graphs=graphs)
        try:
            if not np.isnan(metric.compute(batch)).all():
                return True
        except Exception as error:
            require_no_faults({metric: error}, "remove it from `metrics`")
    return False


def _message(question: Question, prediction: Prediction | None) -> Prediction:
    """Return the scored answer of a prediction; None if it is missing or marked as failed."""
    if prediction is None:
        return Prediction(question.query_id, "")
    return replace(prediction, answer="") if prediction.notes.get(FAILED) else prediction


def _aligned(questions: Sequence[Question], predictions: Sequence[Prediction | None] | Mapping[str, Prediction]) -> list[Prediction | None]:
    """Return one prediction or None per question, after checking the ids."""
    if isinstance(predictions, Mapping):
        names = {name for question in questions for name in (question.id, question.query_id)}
        for name in predictions:
            if name not in names:
                raise UserError(
                    f"there is a prediction for {name!r}, which is not one of the questions",
                    code="prediction-of-other-question",
                    try_this="score it against the split that it was made on",
                )
        return [predictions.get(question.query_id, predictions.get(question.id)) for question in questions]
    if len(predictions) != len(questions):
        raise UserError(
            f"{len(predictions)} predictions for {len(questions)} questions",
            code="prediction-count-mismatch",
            try_this="give one per question, None if there is none, or a mapping by question id",
        )
    for question, prediction in zip(questions, predictions, strict=True):
        if prediction is not None and prediction.question_id not in (question.id, question.query_id):
            raise UserError(
                f"the prediction for {prediction.question_id!r} is in the position of that for {question.query_id!r}",
                code="predictions-out-of-order",
                where=f"question {question.id!r}",
                try_this="put the predictions in the order of the questions, or give a mapping by question id",
            )
    return list(predictions)


def check_invariants(scores: Mapping[Metric, Scores]) -> list[str]:
    """Check the invariants that must hold between the scores of one run, over its scorable questions.

    - Every value is finite and within its metric's declared range.
    - What is the same by definition is equal: mrr@1, precision@1 and hit@1; has_answer_mrr@1 and
      has_answer@1; rog_accuracy and rog_recall.
    - What cannot exceed another does not: recall (also that of answer entities), hit, all, mrr, map, has_answer
      and has_answer_mrr their own values at a larger k; all, recall and hit one another in this order, and so on
      (`_NEVER_ABOVE`); em the values of f1, answer_precision, answer_recall and cover_em under rules that normalize
      alike; cover_em of whole words its other readings; rougeL rouge1.
    - Metrics that are compared so leave the same questions unscored; em may score more than f1 and cover_em.

    Args:
        scores: Shape (questions,) per metric, NaN if unscorable.

    Returns:
        One sentence per violation, with the number of questions and the first of them; empty if all is well.
    """
    results: list[str] = []
    for metric, values in scores.items():
        low, high = metric.entry.low, metric.entry.high
        if low is not None:
            _note(results, values < low - TOLERANCE, f"{metric} is below its lowest value {low:g}")
        if high is not None:
            _note(results, values > high + TOLERANCE, f"{metric} is above its highest value {high:g}")
        _note(results, np.isinf(values), f"{metric} is infinite")
    for smaller, larger in _ordered(list(scores)):
        _note(results, scores[smaller] > scores[larger] + TOLERANCE, f"{smaller} is greater than {larger}")
        _same_scorable(results, smaller, larger, scores)
    for same in _EQUAL:
        related = sorted((metric for metric in scores if _bare(metric) in same), key=lambda metric: str(metric.values.get("searched")))
        for left, right in pairwise(related):
            if not _agree(left, right):
                continue
            _note(results, np.abs(scores[left] - scores[right]) > TOLERANCE, f"{left} and {right} differ")
            _same_scorable(results, left, right, scores)
    return results


_EQUAL = (
    frozenset(("mrr@1", "precision@1", "hit@1")),
    frozenset(("has_answer_mrr@1", "has_answer@1")),
    frozenset(("rog_accuracy", "rog_recall")),
)
_NEVER_ABOVE = frozenset(
    (
        ("all", "recall"),
        ("recall", "hit"),
        ("precision", "hit"),
        ("mrr", "hit"),
        ("map", "recall"),
        ("ndcg", "hit"),
        ("has_answer_mrr", "has_answer"),
        ("rog_hit1", "rog_hit"),
        ("rog_recall", "rog_hit"),
        ("strict_matched", "strict_lines"),
        ("strict_matched", "strict_golds"),
        ("sp_em", "sp_f1"),
        ("support_em", "support_f1"),
        ("evidence_em", "evidence_f1"),
        ("joint_em", "joint_f1"),
    )
)
"""Pairs of metrics of which the first never exceeds the second with equal shared parameters."""
_GROWING = ("recall", "hit", "all", "mrr", "map", "has_answer", "has_answer_mrr", "answer_entity_recall")
_OVERLAPS = ("f1", "answer_precision", "answer_recall")
_SAME_GOLD = {
    "squad": ("squad", "hotpotqa", "musique", "longbench"),
    "squad_v2": ("squad_v2",),
    "clara": ("clara",),
    "lenient": ("lenient",),
}
"""Rules of em, with the rules of f1 that normalize the same way and score the same questions."""


def _bare(metric: Metric) -> str:
    """Return a metric's name with its k, without other parameters."""
    return f"{metric.entry.id}@{metric.values['k']}" if "k" in metric.values else metric.entry.id


def _ordered(metrics: Sequence[Metric]) -> list[tuple[Metric, Metric]]:
    """Return pairs of metrics of which the first can never exceed the second."""
    pairs = [pair for pair in permutations(metrics, 2) if _never_above(*pair)]
    growing = sorted((m for m in metrics if m.entry.id in _GROWING), key=lambda metric: int(metric.values["k"]))
    for number, item in enumerate(growing):
        pairs += [(item, other) for other in growing[number + 1 :] if item.entry is other.entry and _agree(item, other, "k")][:1]
    return pairs


def _never_above(item: Metric, other: Metric) -> bool:
    names = item.entry.id, other.entry.id
    if names in _NEVER_ABOVE:
        return _agree(item, other)
    if names[0] == "em" and names[1] in _OVERLAPS:
        if other.values.get("lines", "all") != "all":
            return False  # em reads all lines
        return _agree(item, other, "rules") and other.values["rules"] in _SAME_GOLD.get(item.values["rules"], ())
    if names == ("em", "cover_em"):
        return _agree(item, other, "rules") and item.values["rules"] == "squad"
    if names == ("cover_em", "cover_em"):
        return _agree(item, other, "match") and item.values["match"] == "word"
    if names == ("rouge", "rouge"):
        return _agree(item, other, "type") and (item.values["type"], other.values["type"]) == ("rougeL", "rouge1")
    return False


def _agree(item: Metric, other: Metric, but: str = "") -> bool:
    """Return whether the shared parameters are equal, except for one."""
    return all(item.values[name] == other.values[name] for name in item.values.keys() & other.values.keys() - {but})


def _same_scorable(results: list[str], item: Metric, other: Metric, scores: Mapping[Metric, Scores]) -> None:
    differ = np.isnan(scores[item]) != np.isnan(scores[other])
    if item.entry.id == "em":
        differ &= np.isnan(scores[item])  # a gold answer such as "A" has no tokens to overlap with, but can be equal
    _note(results, differ, f"{item} and {other} differ in what is unscorable")


def _note(results: list[str], violated: np.ndarray, what: str) -> None:
    rows = np.flatnonzero(violated)
    if rows.size:
        noun = "question" if rows.size == 1 else "questions"
        results.append(f"{what} for {rows.size} {noun}, first in row {rows[0]}")
