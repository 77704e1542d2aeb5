"""Graph QA: answers given as lines, against a set of entity names. Two evaluators, both always, by name, and WebQSP's own.

- **rog**: RoG's evaluator, which most papers on WebQSP and CWQ report. A gold counts as found where it lies anywhere in
  the prediction, so accuracy and recall are one number, one line with three right answers has precision 3 and F1 1.5,
  and a gold that normalizes to nothing ("A") is found in anything but an empty prediction. All this is kept.
- **strict**: golds once each, without those that normalize to nothing; the longest first (of equals the first named)
  takes the first free line that holds it; a line can be taken once. Every value is within [0, 1]. Repeated and blank
  lines are dropped.

Both normalize as SQuAD does. The wanted answers are `Question.answers` where all are wanted (`answer_set`); of another
question there is one, in any of its accepted wordings. An alias counts as its answer under strict and for such single
answers; RoG knows none. Unscorable under both: a question that cannot be answered, or without any gold that normalizes
to something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import Question
from benchmarks.text import normalize
from judges.metric import Batch, Parameter, QuestionGraphs, Scores, register
from judges.metrics.positions import Positions

_ROG = "RoG (Luo et al. 2024), evaluate_results.py; hit1: GNN-RAG"
_WEBQSP = "WebQSP (Yih et al. 2016), eval.py"
_STRICT = "ours, after SubgraphRAG's corrections of RoG's evaluator"

Wanted = Sequence[Sequence[str]]
"""Gold answers, each with its accepted wordings."""


@dataclass(frozen=True, slots=True)
class RogScores:
    """Scores of one question under RoG's evaluator; accuracy and recall are equal by definition."""

    accuracy: float = 0.0
    hit: float = 0.0
    hit1: float = 0.0
    precision: float = 0.0
    f1: float = 0.0


@dataclass(frozen=True, slots=True)
class StrictCounts:
    """Counts of one question under the strict evaluator, which micro averages add up."""

    matched: int
    lines: int
    golds: int
    hit1: bool


@register("rog_accuracy", source=_ROG, group="graph", needs=("answer",))
def rog_accuracy(batch: Batch) -> Scores:
    """Compute RoG's accuracy: the share of gold answers that occur in the prediction (its lines joined by spaces); equal to rog_recall.

    Texts are normalized as in SQuAD, and "occur" means as a substring, also inside words. A gold answer that is empty after
    normalization occurs in every non-empty prediction. Gold answers are the answers of a set without aliases, counting
    repetitions; for other questions there is one, in any accepted wording. A question whose gold answers are all empty after
    normalization is unscorable.
    """
    return _rog(batch)[0]


@register("rog_hit", source=_ROG, group="graph", needs=("answer",))
def rog_hit(batch: Batch) -> Scores:
    """Score 1 if any gold answer occurs in the prediction, else 0. "Occur" is defined in rog_accuracy."""
    return _rog(batch)[1]


@register("rog_hit1", source=_ROG, group="graph", needs=("answer",))
def rog_hit1(batch: Batch) -> Scores:
    """Score 1 if any gold answer occurs in the first line of the prediction, else 0. "Occur" is defined in rog_accuracy."""
    return _rog(batch)[2]


@register("rog_recall", source=_ROG, group="graph", needs=("answer",))
def rog_recall(batch: Batch) -> Scores:
    """Compute RoG's recall: the share of gold answers that occur in the prediction; equal to rog_accuracy."""
    return _rog(batch)[0]


@register("rog_precision", source=_ROG, group="graph", needs=("answer",), high=None)
def rog_precision(batch: Batch) -> Scores:
    """Compute RoG's precision: the number of gold answers that occur in the prediction / the number of its lines.

    It exceeds 1 if a line names several answers. Blank lines count, except at the beginning and end. "Occur" is defined in rog_accuracy.
    """
    return _rog(batch)[3]


@register("rog_f1", source=_ROG, group="graph", needs=("answer",), high=None)
def rog_f1(batch: Batch) -> Scores:
    """Compute the harmonic mean of rog_precision and rog_recall, 0 if both are 0; it exceeds 1 if precision does.

    Matching is defined in rog_accuracy.
    """
    return _rog(batch)[4]


@register("strict_hit1", source=_STRICT, group="graph", needs=("answer",))
def strict_hit1(batch: Batch) -> Scores:
    """Score 1 if any gold answer occurs in the first line of the prediction, else 0. Matching is defined in strict_recall."""
    return _strict(batch)[3]


@register("strict_precision", source=_STRICT, group="graph", needs=("answer",))
def strict_precision(batch: Batch) -> Scores:
    """Compute strict precision: the number of gold answers found, each in a line of its own / the number of distinct lines.

    It is 0 without lines. Matching is defined in strict_recall.
    """
    matched, lines, _, _ = _strict(batch)
    return matched / np.maximum(lines, 1)


@register("strict_recall", source=_STRICT, group="graph", needs=("answer",))
def strict_recall(batch: Batch) -> Scores:
    """Compute strict recall: the share of distinct gold answers that are found, each in a line of its own.

    Lines and gold answers are normalized as in SQuAD and counted once; empty ones are ignored. Starting with the longest gold
    answer, each one is assigned the first unassigned line that contains it, also inside words. Gold answers are the answers of
    a set, each in any wording; for other questions there is one, in any accepted wording. A question without gold answers is
    unscorable.
    """
    matched, _, golds, _ = _strict(batch)
    return matched / golds


@register("strict_f1", source=_STRICT, group="graph", needs=("answer",))
def strict_f1(batch: Batch) -> Scores:
    """Compute the harmonic mean of strict_precision and strict_recall, 0 if both are 0. Matching is defined in strict_recall."""
    matched, lines, golds, _ = _strict(batch)
    return 2 * matched / (lines + golds)


@register("strict_matched", source=_STRICT, group="graph", needs=("answer",), high=None, missing="empty", unit="number")
def strict_matched(batch: Batch) -> Scores:
    """Count the gold answers found, each in a line of its own (see strict_recall).

    The mean of this metric divided by the mean of strict_lines is the micro precision; divided by the mean of strict_golds, the
    micro recall.
    """
    return _strict(batch)[0]


@register("strict_lines", source=_STRICT, group="graph", needs=("answer",), high=None, missing="empty", unit="number")
def strict_lines(batch: Batch) -> Scores:
    """Count the distinct lines of the prediction; a size, neither good nor bad (see strict_matched)."""
    return _strict(batch)[1]


@register("strict_golds", source=_STRICT, group="graph", needs=("answer",), high=None, missing="empty", unit="number")
def strict_golds(batch: Batch) -> Scores:
    """Count the distinct gold answers, also of unanswered questions; a size (see strict_matched)."""
    return _strict(batch)[2]


@register("webqsp_f1", source=_WEBQSP, group="graph", needs=("answer",))
def webqsp_f1(batch: Batch) -> Scores:
    """Compute WebQSP's F1: F1 of the prediction's lines against the answers of a semantic parse, the maximum over the parses.

    A line names an answer by its exact Freebase id, or by its name, normalized as in SQuAD; repeated answers and lines count
    repeatedly. For a parse without answers, an empty prediction scores 1 and any other 0. A question without a parse that the
    authors call good and complete is unscorable; the official script leaves it out.
    """
    return _parses(batch)[0]


@register("webqsp_accuracy", source=_WEBQSP, group="graph", needs=("answer",))
def webqsp_accuracy(batch: Batch) -> Scores:
    """Score 1 if webqsp_f1 is 1, so that the prediction is exactly the answers of one parse, else 0; unscorable as in webqsp_f1."""
    f1 = _parses(batch)[0]
    return np.where(np.isnan(f1), np.nan, f1 == 1.0)


def best_parse_f1(prediction: str, parses: Sequence[Mapping[str, Any]]) -> float:
    """Compute the highest F1 of a prediction's lines over semantic parses.

    Args:
        prediction: The predicted text; each line is an answer.
        parses: Semantic parses with the keys `answers` (names) and `answer_ids`, in the same order.

    Source:
        WebQSP's `eval.py`, `CalculatePRF1` and its loop over parses.
    """
    lines = [(line.strip(), normalize(line, "rog")) for line in rog_lines(prediction)]
    best = 0.0
    for parse in parses:
        golds = [(identifier, normalize(name, "rog")) for name, identifier in zip(parse["answers"], parse["answer_ids"], strict=True)]
        if not golds or not lines:
            best = max(best, float(not golds and not lines))
            continue
        ids, names = {identifier for identifier, _ in golds}, {name for _, name in golds if name}
        matched = sum(any(line == identifier or (name and name == plain) for line, plain in lines) for identifier, name in golds)
        wrong = sum(line not in ids and plain not in names for line, plain in lines)
        if matched:
            precision, recall = matched / (matched + wrong), matched / len(golds)
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


def _parses(batch: Batch) -> Scores:
    """Return the best F1 over parses. Shape (1, questions)."""

    def make() -> Scores:
        table = np.full((1, len(batch)), np.nan)
        for column, (question, answer) in enumerate(zip(batch.questions, batch.answers, strict=True)):
            parses = question.metadata.get("parses", ())
            if any(parse["good"] for parse in parses):
                table[0, column] = best_parse_f1(answer, parses)
        return table

    return batch.once("webqsp", make)


def micro(matched: Scores, lines: Scores, golds: Scores) -> tuple[float, float, float]:
    """Compute micro precision, recall and F1, in which every line and every gold answer of all questions has equal weight.

    Args:
        matched, lines, golds: Values of `strict_matched`, `strict_lines` and `strict_golds`, one per question; those
            of unscorable questions are NaN and left out.

    Returns:
        Sum of matches / sum of lines, sum of matches / sum of gold answers, and their harmonic mean; 0 if a divisor is 0.
    """
    result, predicted, wanted = (float(np.nansum(part)) for part in (matched, lines, golds))
    return result / max(predicted, 1.0), result / max(wanted, 1.0), 2 * result / max(predicted + wanted, 1.0)


def rog_lines(prediction: str | Sequence[str]) -> list[str]:
    """Split a prediction into the lines that RoG counts: the lines of a text, or the distinct items of a list, most frequent first."""
    if isinstance(prediction, str):
        return prediction.strip().split("\n") if prediction.strip() else []
    return [line for line, _ in Counter(prediction).most_common()]


def rog_scores(prediction: str | Sequence[str], wanted: Wanted) -> RogScores:
    """Score one prediction with RoG's evaluator.

    Args:
        prediction: The predicted text, each line an answer, or a list of answers.
        wanted: The gold answers, each with its accepted wordings (in RoG, one each); repetitions count, as in RoG.

    Source:
        RoG, `src/qa_prediction/evaluate_results.py`, `eval_result` with `cal_f1`.
    """
    lines = rog_lines(prediction)
    if not lines or not wanted:
        return RogScores()
    whole, first = normalize(" ".join(lines), "rog"), normalize(lines[0], "rog")
    golds = [[normalize(wording, "rog") for wording in wordings] for wordings in wanted]
    result = sum(_holds(whole, wordings) for wordings in golds)
    precision, recall = result / len(lines), result / len(golds)
    f1 = 2 * precision * recall / (precision + recall) if result else 0.0
    return RogScores(recall, float(result > 0), float(any(_holds(first, each) for each in golds)), precision, f1)


def strict_counts(prediction: str | Sequence[str], wanted: Wanted) -> StrictCounts:
    """Score one prediction with the strict evaluator, as counts.

    Args:
        prediction: The predicted text, each line an answer, or a list of answers.
        wanted: The gold answers, each with its accepted wordings.
    """
    raw = prediction.split("\n") if isinstance(prediction, str) else prediction
    lines = _distinct(normalize(line, "rog") for line in raw)
    golds = {wordings[0]: wordings for texts in wanted if (wordings := _distinct(normalize(t, "rog") for t in texts))}
    hit1 = bool(lines) and any(_holds(lines[0], wordings) for wordings in golds.values())
    free, results = dict.fromkeys(lines), set()
    # The longest wording first, so that "York" leaves the line of "New York" to it; of equal ones the answers' own.
    ordered = sorted(
        ((wording, gold) for gold, wordings in golds.items() for wording in wordings), key=lambda pair: (-len(pair[0]), pair[0] != pair[1])
    )
    for wording, gold in ordered:
        line = next((line for line in free if wording in line), None) if gold not in results else None
        if line is not None:
            del free[line]
            results.add(gold)
    return StrictCounts(len(results), len(lines), len(golds), hit1)


def _holds(text: str, wordings: Sequence[str]) -> bool:
    return any(wording in text for wording in wordings)


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _rog_wanted(question: Question) -> list[tuple[str, ...]]:
    if question.answer_set:
        return [(answer,) for answer in question.answers]
    wordings = tuple(gold for gold in question.golds if normalize(gold, "rog"))
    return [wordings] if wordings else []


def _strict_wanted(question: Question) -> list[tuple[str, ...]]:
    if question.answer_set:
        return [(answer, *question.aliases.get(answer, ())) for answer in question.answers]
    return [question.golds]


def _unscorable(question: Question) -> bool:
    return not question.answerable or not any(normalize(gold, "rog") for gold in question.golds)


def _rog(batch: Batch) -> Scores:
    """Return accuracy, hit, hit1, precision and F1. Shape (5, questions)."""
    return batch.once("rog", lambda: _table(batch, 5, lambda q, text: astuple(rog_scores(text, _rog_wanted(q)))))


def _strict(batch: Batch) -> Scores:
    """Return matches, lines, golds and hit1. Shape (4, questions)."""
    return batch.once("strict", lambda: _table(batch, 4, lambda q, text: astuple(strict_counts(text, _strict_wanted(q)))))


def _table(batch: Batch, width: int, score: Callable[[Question, str], tuple[float, ...]]) -> Scores:
    """Return one row per score, one column per question, NaN if unscorable."""
    table = np.full((width, len(batch)), np.nan)
    for column, (question, answer) in enumerate(zip(batch.questions, batch.answers, strict=True)):
        if not _unscorable(question):
            table[:, column] = score(question, answer)
    return table


# Recall of a retriever of triples: the share of answers inside a question's graph that it ranks high.
# Of reference triples the same is asked by `recall@k`: the positives of a question over a graph are ids of triples, and
# a question without any is unscorable.


_K = Parameter("k", int, None, help="how many of the first triples count")


@register(
    "answer_entity_recall",
    source="SubgraphRAG (Li et al. 2025), answer entity recall",
    group="retrieval",
    needs=("ranking", "graph"),
    parameters=(_K,),
)
def answer_entity_recall(batch: Batch, k: int) -> Scores:
    """Compute the share of answer entities in the question's own graph that are head or tail of one of the first k triples.

    Names are compared exactly, without aliases. Answers outside the graph, which no retriever can find, are ignored. A question
    without an answer in the graph (also yes/no questions), or an unanswerable one, is unscorable.
    """
    return batch.once("answer_entities", lambda: _positions(batch)).recall(k)


def _positions(batch: Batch) -> Positions:
    """Return the rank of the first occurrence of each answer in its graph, if any."""
    graphs = batch.graphs
    if graphs is None:
        raise UserError(
            "answer_entity_recall needs the graphs of the questions",
            code="question-graphs-needed",
            try_this="name it under `metrics` of the experiment and run that again: answers that are stored are kept",
        )
    inside = [_inside(batch, row, graphs) for row in range(len(batch))]
    query, rank = [], []
    for row, wanted in enumerate(inside):
        ranks = _first_ranks(wanted, graphs, batch.rankings[row]) if wanted else []
        query += [row] * len(ranks)
        rank += ranks
    counts = np.array([len(wanted) for wanted in inside], dtype=np.int64)
    return Positions(
        np.array(query, dtype=np.int64), np.array(rank, dtype=np.int64), np.ones(len(rank)), counts, np.ones(int(counts.sum()))
    )


def _inside(batch: Batch, row: int, graphs: QuestionGraphs) -> set[str]:
    question = batch.questions[row]
    if not question.answerable or not question.answers:
        return set()
    return graphs.nodes(question.id).intersection(question.answers)


def _first_ranks(wanted: set[str], graphs: QuestionGraphs, ranking: list[str]) -> list[int]:
    """Return the first positions of names in a ranking, ascending; missing names are omitted."""
    results: dict[str, int] = {}
    for rank, (head, _, tail) in enumerate(graphs.triples(ranking), start=1):
        for name in (head, tail):
            if name in wanted:
                results.setdefault(name, rank)
        if len(results) == len(wanted):
            break
    return list(results.values())
