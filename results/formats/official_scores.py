"""Compute the output of the official scripts for a file of predictions, with their names, order and rounding.

Our metrics leave a question out if its gold cannot be scored; the scripts count every question. Values per question
(`…_table`) are NaN only if the script leaves the question out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.datasets.longbench import LENGTHS, bucket_of, set_of
from benchmarks.datasets.musique import numbered_paragraphs
from benchmarks.registry import Benchmark
from benchmarks.schema import Question, sentence_id
from benchmarks.text import normalize
from judges.metric import Batch, Scores, parse
from judges.metrics.answer import answer_parts
from judges.metrics.support import Parts, harmonic, triple_parts
from methods.api import FAILED, SUPPORT, TRIPLES, Prediction, support_claims
from results.submission import NOT_IN_FILE

Table = Mapping[str, Scores]
"""Values per question by the script's name. Shape (questions,), NaN if the script omits a question."""
Printed = Callable[[Benchmark, Sequence[Prediction]], Mapping[str, float | None]]
"""Function from the benchmark and one prediction per question to the script's output; None for NaN."""
EMPTY_LIST = "rog_empty_list"
"""Note of a prediction that was an empty list, which RoG's F1 ignores and its accuracy counts."""
_PARTS = ("em", "f1", "prec", "recall")


def hotpotqa(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that `hotpot_evaluate_v1.py` prints: fractions, not rounded."""
    return {name: _total(values) / len(values) for name, values in hotpotqa_table(benchmark, predictions).items()}


def two_wiki(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that `2wikimultihop_evaluate_v1.1.py` prints: percentages with two decimals."""
    table = two_wiki_table(benchmark, predictions)
    return {name: round(_total(values) / len(values) * 100, 2) for name, values in table.items()}


def musique(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that MuSiQue's `evaluate_v1.0.py` prints: fractions with three decimals; group metrics only for MuSiQue-full."""
    printed: dict[str, float | None] = {}
    for name, values in musique_table(benchmark, predictions).items():
        counted = values[~np.isnan(values)]
        printed[name] = round(_total(counted) / len(counted), 3) if len(counted) else 0.0
    return printed


def longbench(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that LongBench's `eval.py` prints: percentages with two decimals over the lines of the file; for `_e`
    sets, per range of lengths.
    """
    printed: dict[str, float | None] = {}
    for name, values in longbench_table(benchmark, predictions).items():
        counted = values[~np.isnan(values)]
        if name in LENGTHS:
            printed[name] = round(100 * float(np.mean(counted)), 2) if len(counted) else None
        else:
            printed[name] = round(100 * _total(counted) / len(counted), 2) if len(counted) else None
    return printed


def rog(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that RoG's `evaluate_results.py` prints: percentages over the lines of the file."""
    printed: dict[str, float | None] = {}
    for name, values in rog_table(benchmark, predictions).items():
        counted = values[~np.isnan(values)]
        printed[name] = _total(counted) * 100 / len(counted) if len(counted) else None
    return printed


def squad(benchmark: Benchmark, predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Compute the scores that SQuAD's `evaluate-v1.1.py` prints, or `evaluate-v2.0.py` if questions have no answer: percentages.

    Both scripts end without scores if they lack what they need: the first an answer of each question, the second a prediction.
    """
    table = squad_table(benchmark, predictions)
    if "exact" not in table:
        return {name: 100.0 * _total(values) / len(values) for name, values in table.items()}
    if _not_in_file(predictions).any():
        return {}
    answered = np.array([bool(question.answers) for question in benchmark.questions])
    printed: dict[str, float | None] = {}
    for prefix, rows in (("", answered | True), ("HasAns_", answered), ("NoAns_", ~answered)):
        if rows.any():
            printed |= {f"{prefix}{name}": 100.0 * _total(values[rows]) / int(rows.sum()) for name, values in table.items()}
            printed[f"{prefix}total"] = int(rows.sum())
    return printed


def hotpotqa_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of `hotpot_evaluate_v1.py`, one column per score."""
    batch = _batch(benchmark, predictions)
    return _multihop({"": _answers(batch, "hotpotqa"), "sp_": _sentences(batch)})


def two_wiki_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of `2wikimultihop_evaluate_v1.1.py`, one column per score."""
    batch = _batch(benchmark, predictions)
    em, precision, recall, f1 = map(np.nan_to_num, triple_parts(batch))
    for row, (question, prediction) in enumerate(zip(batch.questions, batch.predictions, strict=True)):
        if not question.triples and prediction.notes.get(TRIPLES) == []:
            em[row] = 1.0
    return _multihop({"": _answers(batch, "hotpotqa"), "sp_": _sentences(batch), "evi_": (em, precision, recall, f1)})


def _multihop(parts: Mapping[str, Parts]) -> Table:
    table: dict[str, Scores] = {}
    for prefix, (em, precision, recall, f1) in parts.items():
        table |= {f"{prefix}{name}": values for name, values in zip(_PARTS, (em, f1, precision, recall), strict=True)}
    em, precision, recall = (np.prod([part[place] for part in parts.values()], axis=0) for place in range(3))
    joint = (em, harmonic(precision, recall), precision, recall)
    return table | {f"joint_{name}": values for name, values in zip(_PARTS, joint, strict=True)}


def musique_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of MuSiQue's `evaluate_v1.0.py`; a pair's values are stored at its answerable question."""
    batch = _batch(benchmark, predictions)
    em, _, _, f1 = _answers(batch, "musique")
    support = np.array([_support_f1(*pair) for pair in zip(batch.questions, batch.predictions, strict=True)])
    unanswerable = np.array([not question.answerable for question in batch.questions])
    table = {"answer_f1": f1, "answer_em": em, "support_f1": support}
    if unanswerable.any():
        right = parse("sufficiency").compute(batch)
        twins = {question.group: row for row, question in enumerate(batch.questions) if not question.answerable}
        both = np.array([right[row] * right[twins.get(question.group, row)] for row, question in enumerate(batch.questions)])
        table |= {"group_answer_sufficiency_f1": f1 * both, "group_support_sufficiency_f1": support * both}
    return {name: np.where(unanswerable, np.nan, values) for name, values in table.items()}


def _support_f1(question: Question, prediction: Prediction) -> float:
    gold = {name for name, supports in (numbered_paragraphs(question) or {}).values() if supports}
    claimed = set(prediction.notes.get(SUPPORT, ()))
    if not gold and not claimed:
        return 1.0
    same = len(gold & claimed)
    return 2 * same / (len(gold) + len(claimed))


def longbench_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of LongBench's `eval.py`: one column, or one per range of lengths for an `_e` set."""
    subset = benchmark.reference.subset or ""
    values = np.nan_to_num(parse(set_of(subset).metric).compute(_batch(benchmark, predictions)))
    values[_not_in_file(predictions)] = np.nan
    if not subset.endswith("_e"):
        return {subset: values}
    buckets = np.array([bucket_of(question.metadata) for question in benchmark.questions])
    return {name: np.where(buckets == name, values, np.nan) for name in LENGTHS}


def rog_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of RoG's `evaluate_results.py`; like GNN-RAG's copy, texts are stripped before they are split."""
    names = ("Accuracy", "Hit", "F1", "Precision", "Recall")
    rows = [_rog_row(*pair) for pair in zip(benchmark.questions, predictions, strict=True)]
    return dict(zip(names, np.array(rows, dtype=np.float64).reshape(-1, 5).T, strict=True))


def _rog_row(question: Question, prediction: Prediction) -> tuple[float, float, float, float, float]:
    """Return accuracy, hit, F1, precision and recall. A gold that normalizes to "" is contained in everything, even in an empty answer."""
    if prediction.notes.get(FAILED) == NOT_IN_FILE:
        return (np.nan,) * 5
    lines = prediction.answer.split("\n")
    text = normalize(" ".join(lines), "rog")
    matched = sum(normalize(gold, "rog") in text for gold in question.answers)
    accuracy, hit = matched / max(len(question.answers), 1), float(matched > 0)
    if prediction.notes.get(EMPTY_LIST) or not matched:
        return accuracy, hit, 0.0, 0.0, 0.0
    precision = matched / len(lines)
    return accuracy, hit, 2 * precision * accuracy / (precision + accuracy), precision, accuracy


def squad_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Table:
    """Compute the per-question values of SQuAD's `evaluate-v1.1.py`, or `evaluate-v2.0.py` if questions have no answer, one column per
    score. In the second, an empty answer is right if and only if all golds normalize to "".
    """
    batch = _batch(benchmark, predictions)
    em, _, _, f1 = _answers(batch, "squad")
    if all(question.answers for question in batch.questions):
        return {"exact_match": em, "f1": f1}
    for row, (question, prediction) in enumerate(zip(batch.questions, batch.predictions, strict=True)):
        empty, unanswered = not normalize(prediction.answer), not any(map(normalize, question.golds))
        if not prediction.notes.get(FAILED) and (empty or unanswered):
            em[row] = f1[row] = float(empty and unanswered)
    return {"exact": em, "f1": f1}


def _batch(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Batch:
    return Batch(benchmark.questions, [replace(item, answer="") if item.notes.get(FAILED) else item for item in predictions])


def _not_in_file(predictions: Sequence[Prediction]) -> np.ndarray:
    return np.array([item.notes.get(FAILED) == NOT_IN_FILE for item in predictions], dtype=bool)


def _total(values: Scores) -> float:
    # One after another, as the scripts add: numpy's sum differs in the last digits.
    return sum(values.tolist(), 0.0)


def _answers(batch: Batch, rules: str) -> Parts:
    """Return EM, precision, recall and F1 of the answers: 0 without an answer; EM is 1 if answer and a gold normalize to ""."""
    em, precision, recall, f1 = map(np.nan_to_num, answer_parts(batch, rules))
    for row, (question, prediction) in enumerate(zip(batch.questions, batch.predictions, strict=True)):
        if prediction.notes.get(FAILED):
            em[row] = precision[row] = recall[row] = f1[row] = 0.0
        elif not normalize(prediction.answer, rules) and any(not normalize(gold, rules) for gold in question.golds):
            em[row] = 1.0
            f1[row] = float(rules == "musique")
    return em, precision, recall, f1


def _sentences(batch: Batch) -> Parts:
    """Return EM, precision, recall and F1 of the predicted sentences; a list may name a sentence twice (2Wiki, in other case)."""
    rows = []
    for question, prediction in zip(batch.questions, batch.predictions, strict=True):
        gold = set(question.supporting_facts)
        claims = support_claims(prediction.notes.get(SUPPORT, ())) or []
        claimed = [sentence_id(passage, index) for passage, index in claims if index is not None]
        right = sum(name in gold for name in claimed)
        lost = len(gold.difference(claimed))
        precision = right / len(claimed) if claimed else 0.0
        recall = right / (right + lost) if right + lost else 0.0
        em = float(SUPPORT in prediction.notes and right == len(claimed) and not lost)
        rows.append((em, precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0))
    em_, precision_, recall_, f1_ = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return em_, precision_, recall_, f1_
