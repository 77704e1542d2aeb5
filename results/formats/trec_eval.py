"""Any run against any qrels, without a benchmark: the measures of trec_eval, by its definitions and names.

Ids are compared as they are, nothing is unescaped. As in trec_eval the rank column is not read; documents are ordered by falling
score, equal scores by falling document id. A grade above 0 is relevant and is the document's gain, 0 is judged and not relevant,
a negative one is not judged.

Two versions are in use, and pytrec_eval and ir_measures still wrap the older one:

- 9 (9.0.8, 2020) compares scores as 32-bit floats, and reaches a level of recall at the whole part of level × relevant + 0.9.
- 10 (10.0, 2026) compares them as 64-bit floats, rounds level × relevant, and adds `rbp`, `rbp_resid` and `unj`.

Source: NIST, https://github.com/usnistgov/trec_eval (`-m all_trec`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError, counted, unknown_name
from benchmarks.io.judged import Table, read_table
from judges.metrics.positions import Positions, find_positives

Version = Literal[9, 10]
VERSIONS: Mapping[Version, str] = {9: "9.0.8 (and pytrec_eval, ir_measures)", 10: "10.0"}
"""Versions of trec_eval whose numbers are computed, and the equivalent releases."""

CUTS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
SUCCESS = (1, 5, 10)
UNJUDGED = (5, 10, 20)
RECALLS = tuple(tenth / 10 for tenth in range(11))
COUNTS = ("num_ret", "num_rel", "num_rel_ret")
"""Measures that are summed over questions with results; all others are averaged."""
PERSISTENCE = 0.9
"""Persistence of rank-biased precision in trec_eval 10."""
_SMALLEST = 1e-5
"""Floor of an average precision in gm_map."""

Floats = NDArray[np.float64]
Grades = Mapping[str, int]


@dataclass(frozen=True)
class Evaluation:
    """Per-question values of a run on trec_eval's measures.

    Attributes:
        version: Version of trec_eval whose rules were used.
        questions: Ids of the qrels' questions in byte order, the order in which trec_eval sums.
        retrieved: Whether the run has documents for the question; shape (questions,).
        values: By measure, shape (questions,); 0 for questions without results or without relevant documents.
        unjudged: Questions of the run that the qrels lack; they are ignored.
        notes: Remarks on the files, for example on skipped lines, in sentences.
    """

    version: Version
    questions: tuple[str, ...]
    retrieved: NDArray[np.bool_]
    values: Mapping[str, Floats]
    unjudged: int
    notes: tuple[str, ...] = ()

    def summary(self, *, complete: bool = False) -> dict[str, float]:
        """Return the mean of each measure, in the order in which trec_eval prints them.

        Args:
            complete: Whether to average over all questions of the qrels, as `trec_eval -c` does; else over questions with
                retrieved documents.
        """
        rows = np.ones(len(self.questions), dtype=bool) if complete else self.retrieved
        result = {"num_q": float(rows.sum())}
        for name, values in self.values.items():
            result[name] = _sum(values[rows]) / (1 if name in COUNTS else result["num_q"])
            if name == "map":
                result["gm_map"] = math.exp(_sum(np.log(np.maximum(values[rows], _SMALLEST))) / result["num_q"])
        return result


def _sum(values: Floats) -> float:
    """Add values one after another like C, because another order can change the last printed digit of a mean."""
    return float(np.cumsum(values)[-1])


def evaluate(run: Path, qrels: Path, version: Version = 9) -> Evaluation:
    """Score a run file against a qrels file, each in any layout of `benchmarks.io.judged`.

    Raises:
        UserError: A file cannot be read, a line is invalid, or the two files share no question.
    """
    judged, ranked = read_table(qrels, "qrels"), read_table(run, "run")
    grades, notes = _whole_grades(judged)
    questions = tuple(sorted(grades, key=_bytes))
    retrieved = np.array([question in ranked.values for question in questions], dtype=bool)
    if not retrieved.any():
        raise UserError(
            f"no question of the run is among the {len(questions)} of the qrels",
            code="run-and-qrels-disjoint",
            where=f"{run} and {qrels}",
            try_this="give the run first, and the qrels of the same questions",
        )
    rankings = [order(ranked.values.get(question, {}), version) for question in questions]
    values = measures(rankings, [grades[question] for question in questions], version)
    unjudged = len(ranked.values.keys() - grades.keys())
    moved = sum(ranking != list(ranked.values.get(question, ())) for question, ranking in zip(questions, rankings, strict=True))
    notes = (*judged.notes, *ranked.notes, *notes, *_left_out(version, int((~retrieved).sum()), unjudged), *_moved(moved))
    return Evaluation(version, questions, retrieved, values, unjudged, notes)


def _left_out(version: Version, silent: int, unjudged: int) -> Iterator[str]:
    if silent:
        ends = "; trec_eval 10 without -c ends with an error here" if version == 10 else ""
        yield f"{counted(silent, 'judged question')} without results: left out of the first column, 0 in the second{ends}"
    if unjudged:
        yield f"{counted(unjudged, 'question')} of the run without judgments: left out of both"


def _moved(questions: int) -> Iterator[str]:
    if questions:
        yield f"{counted(questions, 'question')} not in the order of the lines: trec_eval orders by score, and ties by falling document id"


def measure(text: str, known: Iterable[str], *, where: str | None = None) -> str:
    """Resolve the name of a measure (`ndcg_cut_10`, `ndcg_cut.10`, `nDCG@10`, `P@5`) to trec_eval's printed name.

    Raises:
        UserError: No measure has this name.
    """
    name, at, cut = text.partition("@")
    family = {"ndcg": "ndcg_cut", "map": "map_cut", "ap": "map_cut", "r": "recall", "p": "P"}.get(name.lower(), name)
    wanted = f"{family}_{cut}" if at else text.replace(".", "_") if text.partition(".")[0] in _FAMILIES else text
    by_name = list(known)
    if wanted not in by_name:
        raise unknown_name("measure of trec_eval", text, by_name, where=where)
    return wanted


_FAMILIES = frozenset(("P", "recall", "ndcg_cut", "map_cut", "success", "unj"))


def _whole_grades(judged: Table) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
    """Return the integer parts of grades, as trec_eval reads them, and a note if a grade changed."""
    cut = sum(value != math.trunc(value) for documents in judged.values.values() for value in documents.values())
    grades = {question: {name: math.trunc(value) for name, value in row.items()} for question, row in judged.values.items()}
    what = f"{judged.path.name}: {counted(cut, 'grade')} not whole; trec_eval reads the whole part only"
    return grades, (what,) if cut else ()


def order(scores: Mapping[str, float], version: Version = 9) -> list[str]:
    """Sort documents as trec_eval does: by decreasing score, ties by decreasing id (bytewise)."""
    precise: Callable[[float], float] = np.float32 if version == 9 else float  # type: ignore[assignment]
    precise_scores = {document: precise(score) for document, score in scores.items()}
    by_id = sorted(precise_scores, key=_bytes, reverse=True)
    return sorted(by_id, key=precise_scores.__getitem__, reverse=True)


def _bytes(identifier: str) -> bytes:
    return identifier.encode("utf-8", "surrogateescape")


def measures(rankings: Sequence[list[str]], grades: Sequence[Grades], version: Version = 9) -> dict[str, Floats]:
    """Compute all measures for each question.

    Args:
        rankings: For each question, document ids, best first, without repetition.
        grades: For each question, the grade of each judged document.
        version: Version of trec_eval whose rules are used.

    Returns:
        Values by measure, shape (questions,).
    """
    relevant = [{document: grade for document, grade in row.items() if grade > 0} for row in grades]
    others = [[document for document, grade in row.items() if grade == 0] for row in grades]
    at = find_positives(rankings, relevant, relevant, distinct=True)
    depth = np.array([len(ranking) for ranking in rankings], dtype=np.float64)
    every = int(depth.max(initial=0))
    hits = at.result(every)
    negatives = find_positives(rankings, others, distinct=True)
    precisions = _interpolated(at, version)
    precision, recall = hits / np.maximum(depth, 1), at.recall(every)
    values = {"num_ret": depth, "num_rel": at.positives.astype(np.float64), "num_rel_ret": hits}
    values["map"] = at.average_precision(every)
    values["Rprec"] = at.r_precision()
    values["bpref"] = at.bpref(negatives)
    values["recip_rank"] = at.reciprocal_rank(every)
    values |= {f"iprec_at_recall_{level:.2f}": row for level, row in zip(RECALLS, precisions, strict=True)}
    values["11pt_avg"] = np.cumsum(precisions[::-1], axis=0)[-1] / len(RECALLS)
    values |= {f"P_{k}": at.precision(k) for k in CUTS}
    values |= {f"recall_{k}": at.recall(k) for k in CUTS}
    if version == 10:
        # Without results trec_eval 10 counts these as 0 as well.
        judged = {k: at.result(k) + negatives.result(k) for k in UNJUDGED}
        values |= {f"unj_{k}": (np.minimum(depth, k) - judged[k]) / k for k in UNJUDGED}
        values |= _rank_biased(at, rankings, grades)
    values["ndcg"] = at.ndcg(max(every, int(at.positives.max(initial=1))))
    values |= {f"ndcg_cut_{k}": at.ndcg(k) for k in CUTS}
    values |= {f"map_cut_{k}": at.average_precision(k) for k in CUTS}
    values |= {f"success_{k}": at.hit(k) for k in SUCCESS}
    values |= {"set_P": precision, "set_recall": recall, "set_F": 2 * precision * recall / np.maximum(precision + recall, 1e-300)}
    # Where nothing is relevant trec_eval counts 0.
    return {name: np.nan_to_num(row) for name, row in values.items()}


def _rank_biased(at: Positions, rankings: Sequence[list[str]], grades: Sequence[Grades]) -> dict[str, Floats]:
    """Return rank-biased precision, and its increase if every unjudged document had the largest gain.

    Gains are divided by the question's largest grade if that is above 1. (trec_eval 10.0 compares them with a number that it never
    sets; this is the result for 0.)
    """
    largest = np.array([max(1, *row.values()) if row else 1 for row in grades], dtype=np.float64)
    weights = at.grade / largest[at.query] * PERSISTENCE ** (at.rank - 1)
    precision: Floats = (1 - PERSISTENCE) * np.bincount(at.query, weights=weights, minlength=len(grades)).astype(np.float64)
    residual = np.zeros(len(grades))
    for row, (ranking, known) in enumerate(zip(rankings, grades, strict=True)):
        unknown = [rank for rank, document in enumerate(ranking) if known.get(document, -1) < 0]
        if unknown:
            residual[row] = PERSISTENCE ** len(ranking) + (1 - PERSISTENCE) * sum(PERSISTENCE**rank for rank in unknown)
    return {"rbp": precision, "rbp_resid": residual}


def _interpolated(at: Positions, version: Version) -> Floats:
    """Return the highest precision at or below the rank at which each recall level is reached. Shape (11, questions)."""
    result = np.zeros((len(RECALLS), len(at.positives)))
    starts = np.searchsorted(at.query, np.arange(len(at.positives) + 1))
    for question, (start, end) in enumerate(pairwise(starts)):
        if start < end:
            precision = np.arange(1, end - start + 1) / at.rank[start:end]
            best = np.maximum.accumulate(precision[::-1])[::-1]
            for level, share in enumerate(RECALLS):
                # The C function lround rounds halves away from zero.
                wanted = share * at.positives[question] + (0.9 if version == 9 else 0.5)
                needed = max(int(wanted), 1)
                result[level, question] = best[needed - 1] if needed <= len(best) else 0.0
    return result
