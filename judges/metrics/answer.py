"""Answer metrics: em, f1, answer_precision, answer_recall, cover_em.

What all of them share:

- **Several golds** (answers and aliases): the maximum over them. Golds that normalize to nothing ("A", "The The")
  would equal or lie in anything; they are left out, and a question with none left is unscorable. `golds=first` looks
  at the first answer alone, without aliases and without the others of a set, as CLaRa's and ARK's code does.
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
    """Return the answers to be named, each with its wordings; what normalizes to nothing, or the same, is left out."""
    groups: dict[str, Wordings] = {}
    for answer in question.answers:
        normal = dict.fromkeys(normalize(text) for text in (answer, *question.aliases.get(answer, ())))
        wordings = [text.split() for text in normal if text]
        if wordings:
            groups.setdefault(" ".join(wordings[0]), wordings)
    return list(groups.values())


def set_em(words: Sequence[str], groups: Sequence[Wordings]) -> float:
    """Return 1 if the prediction is every answer once, in some wording and order, perhaps joined by "and"; else 0."""
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
    """Return token overlap, as multisets, between the prediction and all answers together.

    Each answer is in the wording of which the largest share occurs in the prediction; of those in the one with
    the most tokens in common, of those in the shortest.
    A complete answer by `set_em` has the value 1 in all three.
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
    """Return 1 if the normalized prediction contains every answer in some wording, else 0."""
    named = (any(covers(prediction, " ".join(wording), match) for wording in wordings) for wordings in groups)
    return float(all(named))


GOLDS = Parameter("golds", str, "all", ("all", "first"), "the best of all accepted answers, or only the first", quiet=True)
"""`first` is how CLaRa's and ARK's released code reads several answers."""


def accepted(question: Question, golds: str) -> tuple[str, ...]:
    """Return the strings that an answer may equal: every accepted one, or only the first answer."""
    return question.golds if golds == "all" else question.answers[:1]


def references(question: Question, golds: str) -> tuple[str, ...]:
    """Return the texts that an answer may resemble.

    Those of `accepted`; of a set of answers all of them as one text, a line each in the dataset's order; none if the
    question cannot be answered.
    """
    if not question.answerable:
        return ()
    if question.answer_set and golds == "all":
        return ("\n".join(question.wanted),)
    return accepted(question, golds)


@dataclass(frozen=True)
class Pairs:
    """Every answer of a batch next to each of its references, flat.

    Attributes:
        size: Number of questions.
        rows: The question of each pair. Shape (pairs,).
        answers, references: One text a pair each.
    """

    size: int
    rows: NDArray[np.int64]
    answers: list[str]
    references: list[str]

    def best(self, values: Scores) -> Scores:
        """Return the highest value of each question's pairs, NaN if all are NaN.

        Args:
            values: Shape (pairs,), NaN if a reference is not usable.
        """
        result = np.full(self.size, np.nan)
        np.fmax.at(result, self.rows, values)
        return result

    @cached_property
    def has_pair(self) -> NDArray[np.bool_]:
        """Return which questions have at least one pair. Shape (questions,)."""
        return np.bincount(self.rows, minlength=self.size) > 0


def pairs(batch: Batch, golds: str, usable: Callable[[str], bool] = bool) -> Pairs:
    """Return the pairs of a batch, made once for all metrics that ask for the same.

    Args:
        batch: Questions and predictions.
        golds: `all` or `first`.
        usable: The usable references.
    """

    def make() -> Pairs:
        texts: list[Sequence[str]] = [list(filter(usable, references(each, golds))) for each in batch.questions]
        rows = np.repeat(np.arange(len(batch)), np.fromiter(map(len, texts), np.int64, len(batch)))
        return Pairs(len(batch), rows, [batch.answers[row] for row in rows.tolist()], [text for row in texts for text in row])

    return batch.once(("pairs", golds, usable), make)


_COUNTING = ("squad", "squad_v2", "hotpotqa", "longbench", "longbench_zh", "infinitebench_zh", "clara", "lenient", "strict")
"""Whose scripts divide by all questions; MuSiQue's leaves out those that cannot be answered."""

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
    """Return whose words the rules of a metric know."""
    return rules_named(values["rules"]).language


_register_answer = partial(register, group="answer", needs=("answer",), language=rules_language, zero_under=_COUNTING)


@_register_answer("em", source="SQuAD exact_match_score; SARK's released script (strict)", parameters=(_EM_RULES, GOLDS))
def em(batch: Batch, rules: str, golds: str) -> Scores:
    """Return exact match: 1 if the prediction equals any gold after normalization, else 0.

    squad: lower-case, ASCII punctuation deleted, articles dropped, white space collapsed; so do HotpotQA, 2Wiki,
    MuSiQue and LongBench. squad_v2: the same, and unanswerable questions want an abstention. clara: True and False read
    as yes and no. lenient: texts that differ only in form are equal (Unicode, case, punctuation, spaces, entities,
    thousands separators), and "Yes, both are." is yes; compare it with the official value. strict: the raw string equals
    the first gold. Of a set of answers each must be named once, in any order, and nothing else (strict: the first gold
    alone). Without a gold that normalizes to something: unscorable.
    """
    if rules == "strict":
        return np.array([_strict(*pair) for pair in zip(batch.questions, batch.answers, strict=True)], dtype=np.float64)
    return _em(batch, rules, golds)


@_register_answer("f1", source="SQuAD 1.1/2.0, HotpotQA, MuSiQue, LongBench, CLaRa evaluators", parameters=(_F1_RULES, GOLDS, LINES))
def f1(batch: Batch, rules: str, golds: str, lines: str) -> Scores:
    """Return token F1: overlap of the normalized tokens as multisets, the maximum over the golds.

    squad, longbench, musique: no special cases. longbench_zh: Chinese words by jieba, punctuation deleted;
    infinitebench_zh: its characters. hotpotqa (and
    2Wiki), clara: 0 if prediction or gold is yes, no or noanswer and the two differ. squad_v2: unanswerable questions
    want an abstention. lenient: 1 if the two differ only in form (as in em), else the overlap of the words that remain, and
    the yes/no rule. A set of answers is compared as one bag of tokens, each answer in its best wording, without the
    yes/no rule. Without a gold that normalizes to something: unscorable. lines=first reads the answer's first line alone.
    """
    return _overlap(shortened(batch, lines), rules, golds, 2)


@_register_answer("answer_precision", source="HotpotQA and 2Wiki v1.1 evaluators", parameters=(_F1_RULES, GOLDS))
def answer_precision(batch: Batch, rules: str, golds: str) -> Scores:
    """Return share of the prediction's tokens that the gold has, as multisets, the maximum over the golds; rules as in f1."""
    return _overlap(batch, rules, golds, 0)


@_register_answer("answer_recall", source="HotpotQA and 2Wiki v1.1 evaluators", parameters=(_F1_RULES, GOLDS))
def answer_recall(batch: Batch, rules: str, golds: str) -> Scores:
    """Return share of the gold's tokens that the prediction has, as multisets, the maximum over the golds; rules as in f1."""
    return _overlap(batch, rules, golds, 1)


@register("cover_em", source="CLaRa (ACC); PISCO; BERGEN", group="answer", needs=("answer",), parameters=(_MATCH, GOLDS), language=english)
def cover_em(batch: Batch, match: str, golds: str) -> Scores:
    """Return 1 if the normalized prediction contains any normalized gold, else 0.

    substring (CLaRa's wording, PISCO, BERGEN): anywhere, inside words too. word: as consecutive whole tokens. tokens
    (CLaRa's code): every token of the gold occurs somewhere. Of a set of answers each must be contained. Without a gold
    that normalizes to something: unscorable.
    """
    values = _pairs(batch, "squad", golds).cover_em(match)
    return _scored(batch, "squad", golds, values, lambda words, groups: set_cover(" ".join(words), groups, match))


def shortened(batch: Batch, lines: str) -> Batch:
    """Return batch whose answers are cut to their first line if `lines` is set."""
    if lines == "all":
        return batch

    def make() -> Batch:
        cut = [replace(item, answer=item.answer.lstrip("\n").split("\n")[0]) for item in batch.predictions]
        return replace(batch, predictions=cut, memo={})

    return batch.once("first lines", make)


def answer_parts(batch: Batch, rules: str) -> tuple[Scores, Scores, Scores, Scores]:
    """Return EM, precision, recall and F1 under the same rules, for metrics made of them; NaN if unscorable."""
    precision, recall, f1 = (_overlap(batch, rules, "all", part) for part in range(3))
    return _em(batch, rules, "all"), precision, recall, f1


def _pairs(batch: Batch, rules: str, golds: str) -> AnswerPairs:
    """Return the batch's answers and golds, normalized once for all rules that normalize alike."""

    def make() -> AnswerPairs:
        texts = [accepted(question, golds) for question in batch.questions]
        return AnswerPairs(batch.answers, texts, rules, drop_empty=True)

    return batch.once(("answer_pairs", rules_named(rules).normalize, golds), make)


def _em(batch: Batch, rules: str, golds: str) -> Scores:
    return _scored(batch, rules, golds, _pairs(batch, rules, golds).em(), set_em)


def _overlap(batch: Batch, rules: str, golds: str, part: int) -> Scores:
    values = _pairs(batch, rules, golds).precision_recall_f1(rules)[part]
    return _scored(batch, rules, golds, values, lambda words, groups: set_precision_recall_f1(words, groups)[part])


SetScore = Callable[[Sequence[str], Sequence[Wordings]], float]
"""Function that scores a prediction's tokens against the gold answers."""


def _scored(batch: Batch, rules: str, golds: str, values: Scores, set_score: SetScore) -> Scores:
    """Return the values of ordinary questions, completed for sets of answers and for unanswerable and goldless questions."""
    scores = np.where(_pairs(batch, rules, golds).scorable, values, np.nan)
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
