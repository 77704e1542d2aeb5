"""Answer metrics: em, f1, answer_precision, answer_recall, cover_em.

What all of them share:

- **Several golds** (answers and aliases): the maximum over them. Golds that normalize to nothing ("A", "The The")
  would lie in anything; they are left out next to others. If a question has no others, `em` is 1 for an answer that
  normalizes to nothing, as in SQuAD's script, and so is `f1` under rules whose script counts that as equal (SQuAD 2.0,
  MuSiQue); all else is unscorable. `golds=first` looks at the first answer alone, without aliases and without the others
  of a set, as CLaRa's and ARK's code does.
- **A set of answers** (`answer_set=True`): all are wanted, see below; the yes/no rule does not apply.
- **Unanswerable questions** (`answerable=False`): scored under `squad_v2` alone, where a prediction is right if and
  only if it abstains (`benchmarks.text.is_abstention`: nothing, or a set phrase such as "unanswerable"). Under all
  other rules they are unscorable, as MuSiQue's evaluator leaves them out.
- **A missing or failed answer** scores 0; that is not an abstention (`judges.score`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import Question
from benchmarks.text import COVER_MATCHES, covers, is_abstention, overlap_scores, rules_named
from benchmarks.text_batch import AnswerPairs
from judges.metric import Batch, Parameter, Scores, english, register

# Scores of an answer that must name a whole set, against `Question.answers` with `answer_set=True`.
# The maximum over the golds, right where any of them suffices, would call one name out of five complete. Here the
# prediction is compared with all of them, in any order and with any separators: punctuation is gone after
# normalization, and "and" between items is not counted.


Wordings = list[list[str]]
"""The accepted wordings of one answer, each as tokens."""

_LINK = "and"


def wanted_answers(question: Question, normalize: Callable[[str], str]) -> list[Wordings]:
    """Return the gold answers that must be named, each with its wordings; wordings that normalize to nothing or to a duplicate
    are left out.
    """
    groups: dict[str, Wordings] = {}
    for answer in question.answers:
        normal = dict.fromkeys(normalize(text) for text in (answer, *question.aliases.get(answer, ())))
        wordings = [text.split() for text in normal if text]
        if wordings:
            groups.setdefault(" ".join(wordings[0]), wordings)
    return list(groups.values())


def set_em(words: Sequence[str], groups: Sequence[Wordings]) -> float:
    """Return 1 if the prediction consists of every answer of a set once, in any wording and order, optionally joined by "and"; else 0."""
    starts: dict[str, list[tuple[int, list[str]]]] = {}
    for number, wordings in enumerate(groups):
        for wording in wordings:
            starts.setdefault(wording[0], []).append((number, wording))
    # Lay answers end to end along the words; the set of answers used so far is a bit mask.
    complete = (1 << len(groups)) - 1
    seen: set[tuple[int, int]] = set()
    open_ends = [(0, 0)]
    while open_ends:
        end = open_ends.pop()
        if end in seen:
            continue
        seen.add(end)
        at, used = end
        if at == len(words):
            if used == complete:
                return 1.0
            continue
        if words[at] == _LINK:
            open_ends.append((at + 1, used))
        for number, wording in starts.get(words[at], ()):
            if not used >> number & 1 and list(words[at : at + len(wording)]) == wording:
                open_ends.append((at + len(wording), used | 1 << number))
    return 0.0


def set_precision_recall_f1(words: Sequence[str], groups: Sequence[Wordings]) -> tuple[float, float, float]:
    """Compute token precision, recall and F1 (multisets) between the prediction and all answers of a set together.

    For each answer, the wording with the largest share of tokens in the prediction is used; ties go to the one with more common
    tokens, then to the shorter one. A prediction for which `set_em` is 1 has 1 in all three.
    """
    if set_em(words, groups):
        return 1.0, 1.0, 1.0
    predicted = Counter(words)

    def fit(wording: list[str]) -> tuple[float, int, int]:
        same = (Counter(wording) & predicted).total()
        return same / len(wording), same, -len(wording)

    wanted: Counter[str] = Counter()
    for wordings in groups:
        best: list[str] = max(wordings, key=fit)
        wanted.update(best)
    if predicted[_LINK] > wanted[_LINK]:
        predicted[_LINK] = wanted[_LINK]
    same = (predicted & wanted).total()
    return overlap_scores(same, predicted.total(), wanted.total())


def set_cover(prediction: str, groups: Sequence[Wordings], match: str) -> float:
    """Return 1 if the normalized prediction contains every answer of a set in some wording, else 0."""
    named = (any(covers(prediction, " ".join(wording), match) for wording in wordings) for wordings in groups)
    return float(all(named))


GOLDS = Parameter("golds", str, "all", ("all", "first"), "the best of all accepted answers, or only the first", quiet=True)
"""Accepted golds; CLaRa's and ARK's released code use only the `first`."""


def accepted(question: Question, golds: str) -> tuple[str, ...]:
    """Return the strings that an answer may equal: all accepted ones, or only the first gold answer."""
    return question.golds if golds == "all" else question.answers[:1]


def references(question: Question, golds: str) -> tuple[str, ...]:
    """Return the reference texts to compare an answer with.

    These are the strings of `accepted`; for a set of answers, one text with a line per answer in the dataset's order; empty if
    the question is unanswerable.
    """
    if not question.answerable:
        return ()
    if question.answer_set and golds == "all":
        return ("\n".join(question.wanted),)
    return accepted(question, golds)


@dataclass(frozen=True)
class Pairs:
    """(Answer, reference) text pairs of a batch in flat arrays: every answer with each of its references.

    Attributes:
        size: Number of questions.
        rows: Position of the question of each pair, shape (pairs,).
        answers, references: One text per pair.
    """

    size: int
    rows: NDArray[np.int64]
    answers: list[str]
    references: list[str]

    def best(self, values: Scores) -> Scores:
        """Reduce values of pairs to the maximum per question, shape (questions,); NaN if all are NaN.

        Args:
            values: Values per pair, shape (pairs,); NaN if a reference is not usable.
        """
        result = np.full(self.size, np.nan)
        np.fmax.at(result, self.rows, values)
        return result

    @cached_property
    def has_pair(self) -> NDArray[np.bool_]:
        """Return a mask of the questions with at least one pair, shape (questions,)."""
        return np.bincount(self.rows, minlength=self.size) > 0


def pairs(batch: Batch, golds: str, usable: Callable[[str], bool] = bool) -> Pairs:
    """Build the (answer, reference) pairs of a batch; cached, so that metrics share them.

    Args:
        batch: Questions and predictions.
        golds: Which gold answers are references: `all` or `first`.
        usable: Returns whether a reference can be used.
    """

    def make() -> Pairs:
        texts: list[Sequence[str]] = [list(filter(usable, references(each, golds))) for each in batch.questions]
        rows = np.repeat(np.arange(len(batch)), np.fromiter(map(len, texts), np.int64, len(batch)))
        return Pairs(len(batch), rows, [batch.answers[row] for row in rows.tolist()], [text for row in texts for text in row])

    return batch.once(("pairs", golds, usable), make)


_COUNTING = ("squad", "squad_v2", "hotpotqa", "longbench", "longbench_zh", "infinitebench_zh", "clara", "lenient", "strict")
"""Rules whose scripts divide by all questions; MuSiQue's omits unanswerable ones."""

F1_RULES = ("squad", "squad_v2", "hotpotqa", "musique", "longbench", "longbench_zh", "infinitebench_zh", "clara", "lenient")
_F1_RULES = Parameter("rules", str, "squad", F1_RULES, "whose evaluator: normalization, yes/no rule, empty texts")
LINES = Parameter(
    "lines",
    str,
    "all",
    ("all", "first"),
    "first: up to the first line break behind leading ones, as LongBench cuts few-shot tasks",
    quiet=True,
)
_EM_RULES = Parameter("rules", str, "squad", ("squad", "squad_v2", "strict", "clara", "lenient"), "what counts as equal")
_MATCH = Parameter("match", str, "substring", COVER_MATCHES, "what counts as contained")


def rules_language(values: Mapping[str, Any]) -> str | None:
    """Return the language that the normalization `rules` of a metric assume; None if they assume none."""
    return rules_named(values["rules"]).language


_register_answer = partial(register, group="answer", needs=("answer",), language=rules_language, zero_under=_COUNTING)


@_register_answer("em", version=2, source="SQuAD exact_match_score; SARK's released script (strict)", parameters=(_EM_RULES, GOLDS))
def em(batch: Batch, rules: str, golds: str) -> Scores:
    """Compute exact match: 1 if the prediction equals any gold answer after normalization, else 0.

    Rules: squad lower-cases, deletes ASCII punctuation and articles, and collapses white space, as HotpotQA, 2Wiki, MuSiQue and
    LongBench do. squad_v2: the same; for unanswerable questions an abstention is correct. clara: True and False mean yes and
    no. lenient: texts that differ only in form (Unicode, case, punctuation, spaces, entities, thousands separators) are equal,
    and "Yes, both are." means yes; report it next to the official value. strict: the raw string must equal the first gold
    answer. A set of answers must be named completely, each once, in any order, and without additions (strict: only the first
    gold answer). Gold answers that are empty after normalization ("The The") are ignored next to others; without others, an answer
    is correct if it is empty after normalization, too. A question without gold answers is unscorable.
    """
    if rules == "strict":
        return np.array([_strict(*pair) for pair in zip(batch.questions, batch.answers, strict=True)], dtype=np.float64)
    return _em(batch, rules, golds)


@_register_answer(
    "f1", version=2, source="SQuAD 1.1/2.0, HotpotQA, MuSiQue, LongBench, CLaRa evaluators", parameters=(_F1_RULES, GOLDS, LINES)
)
def f1(batch: Batch, rules: str, golds: str, lines: str) -> Scores:
    """Compute token F1: overlap of normalized tokens as multisets, the maximum over the gold answers.

    Rules: squad, longbench and musique have no special cases. longbench_zh: Chinese words by jieba, punctuation deleted;
    infinitebench_zh: Chinese characters. hotpotqa (also for 2Wiki) and clara: 0 if prediction or gold answer is yes, no or
    noanswer and the two differ. squad_v2: for unanswerable questions an abstention is correct. lenient: 1 if the two differ
    only in form (as in em), else the overlap of the remaining words, with the yes/no rule. A set of answers is compared as one
    bag of tokens, each answer in its best wording, without the yes/no rule. Gold answers that are empty after normalization are
    ignored next to others; without others, a question is unscorable, but under squad_v2, musique and lenient an answer that is
    empty after normalization, too, scores 1. lines=first reads only the answer's first line.
    """
    return _overlap(shortened(batch, lines), rules, golds, 2)


@_register_answer("answer_precision", version=2, source="HotpotQA and 2Wiki v1.1 evaluators", parameters=(_F1_RULES, GOLDS))
def answer_precision(batch: Batch, rules: str, golds: str) -> Scores:
    """Compute token precision: the share of the prediction's tokens that occur in the gold answer (multisets), the maximum over
    the gold answers; rules as in f1.
    """
    return _overlap(batch, rules, golds, 0)


@_register_answer("answer_recall", version=2, source="HotpotQA and 2Wiki v1.1 evaluators", parameters=(_F1_RULES, GOLDS))
def answer_recall(batch: Batch, rules: str, golds: str) -> Scores:
    """Compute token recall: the share of the gold answer's tokens that occur in the prediction (multisets), the maximum over
    the gold answers; rules as in f1.
    """
    return _overlap(batch, rules, golds, 1)


@register("cover_em", source="CLaRa (ACC); PISCO; BERGEN", group="answer", needs=("answer",), parameters=(_MATCH, GOLDS), language=english)
def cover_em(batch: Batch, match: str, golds: str) -> Scores:
    """Compute cover exact match: 1 if the normalized prediction contains any normalized gold answer, else 0.

    match=substring (CLaRa's paper, PISCO, BERGEN): anywhere, also inside words. word: as consecutive whole tokens. tokens
    (CLaRa's code): every token of the gold answer occurs somewhere. All answers of a set must be contained. A question whose
    gold answers are all empty after normalization is unscorable.
    """
    normal = _pairs(batch, "squad", golds)
    values = np.where(normal.worded, normal.cover_em(match), np.nan)
    return _scored(batch, "squad", golds, values, lambda words, groups: set_cover(" ".join(words), groups, match))


def shortened(batch: Batch, lines: str) -> Batch:
    """Return the batch with answers cut to their first line if `lines` is "first"."""
    if lines == "all":
        return batch

    def make() -> Batch:
        cut = [replace(item, answer=item.answer.lstrip("\n").split("\n")[0]) for item in batch.predictions]
        return replace(batch, predictions=cut, memo={})

    return batch.once("first lines", make)


def answer_parts(batch: Batch, rules: str) -> tuple[Scores, Scores, Scores, Scores]:
    """Compute exact match, precision, recall and F1 of answers under the same rules, for composed metrics; NaN if one is unscorable."""
    precision, recall, f1 = (_overlap(batch, rules, "all", part) for part in range(3))
    return np.where(np.isnan(f1), np.nan, _em(batch, rules, "all")), precision, recall, f1


def _pairs(batch: Batch, rules: str, golds: str) -> AnswerPairs:
    """Return the batch's answers and golds, normalized once for all rules with the same normalization."""

    def make() -> AnswerPairs:
        texts = [accepted(question, golds) for question in batch.questions]
        return AnswerPairs(batch.answers, texts, rules, drop_empty=True)

    return batch.once(("answer_pairs", rules_named(rules).normalize, golds), make)


def _em(batch: Batch, rules: str, golds: str) -> Scores:
    normal = _pairs(batch, rules, golds)
    return _scored(batch, rules, golds, np.where(normal.scorable, normal.em(), np.nan), set_em)


def _overlap(batch: Batch, rules: str, golds: str, part: int) -> Scores:
    normal = _pairs(batch, rules, golds)
    scorable = normal.scorable if rules_named(rules).both_empty else normal.worded
    values = np.where(scorable, normal.precision_recall_f1(rules)[part], np.nan)
    return _scored(batch, rules, golds, values, lambda words, groups: set_precision_recall_f1(words, groups)[part])


SetScore = Callable[[Sequence[str], Sequence[Wordings]], float]
"""Function that scores a prediction's tokens against the gold answers."""


def _scored(batch: Batch, rules: str, golds: str, values: Scores, set_score: SetScore) -> Scores:
    """Replace the values of answer sets and unanswerable questions; NaN stays NaN for answer sets."""
    scores = values.copy()
    normal = rules_named(rules).normalize
    for row, question in enumerate(batch.questions):
        if not question.answerable:
            scores[row] = float(is_abstention(batch.answers[row])) if rules == "squad_v2" else np.nan
        elif question.answer_set and golds == "all" and not np.isnan(scores[row]):
            scores[row] = set_score(normal(batch.answers[row]).split(), wanted_answers(question, normal))
    return scores


def _strict(question: Question, answer: str) -> float:
    if not question.answerable or not question.answers or not question.answers[0]:
        return np.nan
    return float(answer == question.answers[0])
