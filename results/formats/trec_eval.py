"""Any TREC run against any qrels, without a benchmark: the measures of trec_eval, by its definitions and names.

Both files are taken as they are: ids are compared byte by byte, nothing is unescaped. As in trec_eval the rank column is
not read; documents are ordered by falling score as a 32-bit float, equal scores by falling document id. A grade above 0 is
relevant and is the document's gain, 0 is judged and not relevant, a negative one is not judged.

Source: NIST's trec_eval 9.0 (`-m all_trec`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from judges.metrics.retrieval import Positions, find_positives

CUTS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
SUCCESS = (1, 5, 10)
RECALLS = tuple(tenth / 10 for tenth in range(11))
COUNTS = ("num_ret", "num_rel", "num_rel_ret")
"""Measures that are summed, over questions with results; all others are averaged."""
_SMALLEST = 1e-5
"""What gm_map counts for an average precision below it."""
_LARGEST = float(np.finfo(np.float32).max)
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(rb"[+-]?\d{1,9}")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """What trec_eval says of a run.

    Attributes:
        questions: Those of the qrels, in their order.
        retrieved: Whether the run has documents for it. Shape (questions,).
        values: By measure, shape (questions,); 0 for a question without results, and for one without relevant documents.
        unjudged: Questions of the run that the qrels lack; they count nowhere.
    """

    questions: tuple[str, ...]
    retrieved: NDArray[np.bool_]
    values: Mapping[str, Floats]
    unjudged: int

    def summary(self, *, complete: bool = False) -> dict[str, float]:
        """One value a measure, in the order in which trec_eval prints them.

        Args:
            complete: Over all questions of the qrels, as `trec_eval -c` does; else over those that the run has documents
                for.
        """
        rows = np.ones(len(self.questions), dtype=bool) if complete else self.retrieved
        result = {"num_q": float(rows.sum())}
        for name, values in self.values.items():
            result[name] = float(values[self.retrieved].sum() if name in COUNTS else values[rows].mean())
            if name == "map":
                result["gm_map"] = float(np.exp(np.log(np.maximum(values[rows], _SMALLEST)).mean()))
        return result


def evaluate(run: Path, qrels: Path) -> Evaluation:
    """Score a run file against a qrels file.

    Raises:
        UserError: A file cannot be read or is not what it should be (with its line), or the two share no question.
    """
    grades = read_qrels(qrels)
    rankings = read_run(run)
    questions = tuple(grades)
    retrieved = np.array([question in rankings for question in questions], dtype=bool)
    if not retrieved.any():
        raise UserError(
            f"no question of the run is among the {len(questions)} of the qrels",
            where=f"{run} and {qrels}",
            try_this="give the run first, and the qrels of the same questions",
        )
    values = measures([rankings.get(question, []) for question in questions], list(grades.values()))
    return Evaluation(questions, retrieved, values, len(rankings.keys() - grades.keys()))


def measures(rankings: list[list[str]], grades: list[dict[str, int]]) -> dict[str, Floats]:
    """Every measure of every question.

    Args:
        rankings: Document ids, best first, each once.
        grades: By question, the grade of each judged document.

    Returns:
        By measure, shape (questions,).
    """
    relevant = [{document: grade for document, grade in row.items() if grade > 0} for row in grades]
    others = [[document for document, grade in row.items() if grade == 0] for row in grades]
    at = find_positives(rankings, relevant, relevant, distinct=True)
    depth = np.array([len(ranking) for ranking in rankings], dtype=np.float64)
    every = int(depth.max(initial=0))
    hits = at.result(every)
    precisions = _interpolated(at)
    precision, recall = hits / np.maximum(depth, 1), at.recall(every)
    values = {"num_ret": depth, "num_rel": at.positives.astype(np.float64), "num_rel_ret": hits}
    values["map"] = at.average_precision(every)
    values["Rprec"] = at.r_precision()
    values["bpref"] = at.bpref(find_positives(rankings, others, distinct=True))
    values["recip_rank"] = at.reciprocal_rank(every)
    values |= {f"iprec_at_recall_{level:.2f}": row for level, row in zip(RECALLS, precisions, strict=True)}
    values["11pt_avg"] = precisions.mean(axis=0)
    values |= {f"P_{k}": at.precision(k) for k in CUTS}
    values |= {f"recall_{k}": at.recall(k) for k in CUTS}
    values["ndcg"] = at.ndcg(max(every, int(at.positives.max(initial=1))))
    values |= {f"ndcg_cut_{k}": at.ndcg(k) for k in CUTS}
    values |= {f"map_cut_{k}": at.average_precision(k) for k in CUTS}
    values |= {f"success_{k}": at.hit(k) for k in SUCCESS}
    values |= {"set_P": precision, "set_recall": recall, "set_F": 2 * precision * recall / np.maximum(precision + recall, 1e-300)}
    # Where nothing is relevant trec_eval counts 0.
    return {name: np.nan_to_num(row) for name, row in values.items()}


def _interpolated(at: Positions) -> Floats:
    """Highest precision at or below the rank where each share of the relevant documents is reached. Shape (11, questions)."""
    result = np.zeros((len(RECALLS), len(at.positives)))
    starts = np.searchsorted(at.query, np.arange(len(at.positives) + 1))
    for question, (start, end) in enumerate(pairwise(starts)):
        if start < end:
            precision = np.arange(1, end - start + 1) / at.rank[start:end]
            best = np.maximum.accumulate(precision[::-1])[::-1]
            for level, share in enumerate(RECALLS):
                needed = max(int(share * at.positives[question] + 0.9), 1)
                result[level, question] = best[needed - 1] if needed <= len(best) else 0.0
    return result


def read_run(path: Path) -> dict[str, list[str]]:
    """By question, its documents in trec_eval's order.

    Raises:
        UserError: The file cannot be read, or a line is not `qid Q0 docid rank score tag` or lists a document again.
    """
    held: dict[bytes, dict[bytes, np.float32]] = {}
    for where, (question, _, document, _, score, _) in _columns(path, "qid Q0 docid rank score tag"):
        if not _NUMBER.fullmatch(score) or abs(value := float(score)) > _LARGEST:
            raise UserError(f"the score {_text(score)!r} is not a finite number", where=where, try_this="qid Q0 docid rank score tag")
        documents = held.setdefault(question, {})
        _require_new(document, documents, question, where)
        documents[document] = np.float32(value)
    by_score = {
        question: sorted(sorted(documents, reverse=True), key=documents.__getitem__, reverse=True) for question, documents in held.items()
    }
    return {_text(question): list(map(_text, documents)) for question, documents in by_score.items()}


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """By question, the grade of each of its judged documents.

    Raises:
        UserError: The file cannot be read, or a line is not `qid 0 docid grade` or judges a document again.
    """
    held: dict[bytes, dict[bytes, int]] = {}
    for where, (question, _, document, grade) in _columns(path, "qid 0 docid grade"):
        if not _WHOLE.fullmatch(grade):
            raise UserError(f"the grade {_text(grade)!r} is not a whole number", where=where, try_this="qid 0 docid grade")
        documents = held.setdefault(question, {})
        _require_new(document, documents, question, where)
        documents[document] = int(grade)
    return {_text(question): {_text(name): grade for name, grade in documents.items()} for question, documents in held.items()}


def _require_new(document: bytes, known: Container[bytes], question: bytes, where: str) -> None:
    if document in known:
        what = f"document {_text(document)!r} is listed twice for question {_text(question)!r}"
        raise UserError(what, where=where, try_this="keep one of the lines")


def _columns(path: Path, form: str) -> Iterator[tuple[str, list[bytes]]]:
    """The place and the columns of each line that holds something; white space is ASCII's, as in trec_eval."""
    wanted, number = len(form.split()), 0
    try:
        with open(path, "rb") as source:
            for number, line in enumerate(source, 1):
                columns = line.split()
                if columns and len(columns) != wanted:
                    what = f"a line has {len(columns)} columns, not the {wanted} of a {'run' if wanted == 6 else 'qrels file'}"
                    raise UserError(what, where=f"{path}:{number}", try_this=form)
                if columns:
                    yield f"{path}:{number}", columns
    except OSError as error:
        raise UserError(f"this file cannot be read: {error.strerror}", where=str(path)) from error
    if not number:
        raise UserError("the file is empty", where=str(path), try_this=form)


def _text(column: bytes) -> str:
    return column.decode("utf-8", "surrogateescape")
