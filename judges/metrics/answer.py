"""Answer metrics: em, f1, answer_precision, answer_recall, cover_em.

What all of them share:

- **Several golds** (answers and aliases): the maximum over them. Golds that normalise to nothing ("A", "The The")
  would equal or lie in anything; they are left out, and a question with none left is unscorable. `golds=first` looks
  at the first answer alone, without aliases and without the others of a set, as CLaRa's and ARK's code does.
- **A set of answers** (`answer_set=True`): all are wanted, see `answer_sets`; the yes/no rule does not apply.
- **Unanswerable questions** (`answerable=False`): scored under `squad_v2` alone, where a prediction is right if and
  only if it abstains (`benchmarks.text.is_abstention`: nothing, or a set phrase such as "unanswerable"). Under all
  other rules they are unscorable, as MuSiQue's evaluator leaves them out.
- **A missing or failed answer** scores 0; that is not an abstention (`judges.scoring`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.schema import Question
from benchmarks.text import COVER_MATCHES, is_abstention, rules_named
from benchmarks.text_batch import AnswerPairs
from judges.api import Batch, Parameter, Scores
from judges.metrics.answer_sets import Wordings, set_cover, set_em, set_precision_recall_f1, wanted_answers
from judges.metrics.references import GOLDS, accepted
from judges.registry import register

F1_RULES = ("squad", "squad_v2", "hotpotqa", "musique", "longbench", "clara")
_F1_RULES = Parameter("rules", str, "squad", F1_RULES, "whose evaluator: normalisation, yes/no rule, empty texts")
_EM_RULES = Parameter("rules", str, "squad", ("squad", "squad_v2", "strict", "clara"), "what counts as equal")
_MATCH = Parameter("match", str, "substring", COVER_MATCHES, "what counts as contained")


@register(
    "em",
    source="SQuAD exact_match_score; SARK's released script (strict)",
    group="answer",
    needs=("answer",),
    parameters=(_EM_RULES, GOLDS),
)
def em(batch: Batch, rules: str, golds: str) -> Scores:
    """Exact match: 1 if the prediction equals any gold after normalisation, else 0.

    squad: lower-case, ASCII punctuation deleted, articles dropped, white space collapsed; so do HotpotQA, 2Wiki,
    MuSiQue and LongBench. squad_v2: the same, and unanswerable questions want an abstention. clara: True and False read
    as yes and no. strict: the raw string equals the first gold. Of a set of answers each must be named once, in any
    order, and nothing else (strict: the first gold alone). Without a gold that normalises to something: unscorable.
    """
    if rules == "strict":
        return np.array([_strict(*pair) for pair in zip(batch.questions, batch.answers, strict=True)], dtype=np.float64)
    return _em(batch, rules, golds)


@register(
    "f1",
    source="SQuAD 1.1/2.0, HotpotQA, MuSiQue, LongBench, CLaRa evaluators",
    group="answer",
    needs=("answer",),
    parameters=(_F1_RULES, GOLDS),
)
def f1(batch: Batch, rules: str, golds: str) -> Scores:
    """Token F1: overlap of the normalised tokens as multisets, the maximum over the golds.

    squad, longbench, musique: no special cases. hotpotqa (and 2Wiki), clara: 0 where prediction or gold is yes, no or
    noanswer and the two differ. squad_v2: unanswerable questions want an abstention. A set of answers is compared as
    one bag of tokens, each answer in its best wording, without the yes/no rule. Without a gold that normalises to
    something: unscorable.
    """
    return _overlap(batch, rules, golds, 2)


@register("answer_precision", source="HotpotQA and 2Wiki v1.1 evaluators", group="answer", needs=("answer",), parameters=(_F1_RULES, GOLDS))
def answer_precision(batch: Batch, rules: str, golds: str) -> Scores:
    """Share of the prediction's tokens that the gold has, as multisets, the maximum over the golds; rules as in f1."""
    return _overlap(batch, rules, golds, 0)


@register("answer_recall", source="HotpotQA and 2Wiki v1.1 evaluators", group="answer", needs=("answer",), parameters=(_F1_RULES, GOLDS))
def answer_recall(batch: Batch, rules: str, golds: str) -> Scores:
    """Share of the gold's tokens that the prediction has, as multisets, the maximum over the golds; rules as in f1."""
    return _overlap(batch, rules, golds, 1)


@register("cover_em", source="CLaRa (ACC); PISCO; BERGEN", group="answer", needs=("answer",), parameters=(_MATCH, GOLDS))
def cover_em(batch: Batch, match: str, golds: str) -> Scores:
    """1 if the normalised prediction contains any normalised gold, else 0.

    substring (CLaRa's wording, PISCO, BERGEN): anywhere, inside words too. word: as consecutive whole tokens. tokens
    (CLaRa's code): every token of the gold occurs somewhere. Of a set of answers each must be contained. Without a gold
    that normalises to something: unscorable.
    """
    values = _pairs(batch, "squad", golds).cover_em(match)
    return _scored(batch, "squad", golds, values, lambda words, groups: set_cover(" ".join(words), groups, match))


def answer_parts(batch: Batch, rules: str) -> tuple[Scores, Scores, Scores, Scores]:
    """EM, precision, recall and F1 under the same rules, for metrics made of them; NaN where unscorable."""
    precision, recall, f1 = (_overlap(batch, rules, "all", part) for part in range(3))
    return _em(batch, rules, "all"), precision, recall, f1


def _pairs(batch: Batch, rules: str, golds: str) -> AnswerPairs:
    """The batch's answers and golds, normalised once for all rules that normalise alike."""

    def make() -> AnswerPairs:
        texts = [accepted(question, golds) for question in batch.questions]
        return AnswerPairs(batch.answers, texts, rules, drop_empty=True)

    return batch.once(("answer_pairs", rules_named(rules).normalise, golds), make)


def _em(batch: Batch, rules: str, golds: str) -> Scores:
    return _scored(batch, rules, golds, _pairs(batch, rules, golds).em(), set_em)


def _overlap(batch: Batch, rules: str, golds: str, part: int) -> Scores:
    values = _pairs(batch, rules, golds).precision_recall_f1(rules)[part]
    return _scored(batch, rules, golds, values, lambda words, groups: set_precision_recall_f1(words, groups)[part])


SetScore = Callable[[Sequence[str], Sequence[Wordings]], float]
"""From the prediction's tokens and the wanted answers to a score."""


def _scored(batch: Batch, rules: str, golds: str, values: Scores, set_score: SetScore) -> Scores:
    """The values of ordinary questions, completed for sets of answers and for unanswerable and goldless questions."""
    scores = np.where(_pairs(batch, rules, golds).scorable, values, np.nan)
    normal = rules_named(rules).normalise
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
