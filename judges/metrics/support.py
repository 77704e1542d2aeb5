"""Support metrics: which sentences, paragraphs and triples a method claims to have used.

Claims are in `Prediction.notes["support"]` (ids of passages, and sentences as [passage id, index]) and
`notes["triples"]`. A method that claims nothing scores 0, as in the official evaluators: its ranked evidence never
is in. Questions whose gold has no such support, and unanswerable ones, are unscorable.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import Question, Triple, sentence_id
from judges.metric import Batch, Parameter, Scores, register
from judges.metrics.answer import answer_parts
from methods.api import ANSWERABLE, SUPPORT, TRIPLES, Prediction, support_claims

Names = Sequence[Sequence[str]]
"""Alternative names of a triple's head, and of its tail."""
Parts = tuple[Scores, Scores, Scores, Scores]
"""EM, precision, recall and F1, each of shape (questions,)."""

_HOTPOTQA = "HotpotQA evaluator, update_sp"
_TWO_WIKI = "2WikiMultihopQA evaluator v1.1, update_evi"
_MUSIQUE = "MuSiQue evaluator v1.0, SupportMetric"
_JOINT = Parameter("rules", str, "hotpotqa", ("hotpotqa", "2wiki"), "answer x sentences, or x triples as well")
_register_joint = partial(
    register,
    version=2,
    source="HotpotQA and 2Wiki v1.1 evaluators",
    group="joint",
    needs=("answer", "support", "triples"),
    parameters=(_JOINT,),
)


@register("sp_em", version=2, source=_HOTPOTQA, group="support", needs=("support",))
def sp_em(batch: Batch) -> Scores:
    """Score 1 if the claimed sentences (`notes["support"]`) are exactly the supporting facts, else 0.

    Both are sets of (passage, sentence number); the id of a whole passage claims no sentence. Without a claim the score is 0. A
    question without gold supporting facts is unscorable.
    """
    return sentence_parts(batch)[0]


@register("sp_precision", version=2, source=_HOTPOTQA, group="support", needs=("support",))
def sp_precision(batch: Batch) -> Scores:
    """Compute precision of the claimed sentences against the supporting facts; 0 without a claim, unscorable as in sp_em."""
    return sentence_parts(batch)[1]


@register("sp_recall", version=2, source=_HOTPOTQA, group="support", needs=("support",))
def sp_recall(batch: Batch) -> Scores:
    """Compute recall of the supporting facts among the claimed sentences, unscorable as in sp_em."""
    return sentence_parts(batch)[2]


@register("sp_f1", version=2, source=_HOTPOTQA, group="support", needs=("support",))
def sp_f1(batch: Batch) -> Scores:
    """Compute F1 of the claimed sentences against the supporting facts, 0 if both are disjoint; unscorable as in sp_em."""
    return sentence_parts(batch)[3]


@register("support_em", version=2, source=_MUSIQUE, group="support", needs=("support",))
def support_em(batch: Batch) -> Scores:
    """Score 1 if the claimed paragraphs (`notes["support"]`) are exactly the supporting ones, else 0.

    A claimed sentence claims its paragraph. Without a claim the score is 0. A question without positives, or an unanswerable
    one, is unscorable.
    """
    return paragraph_parts(batch)[0]


@register("support_f1", version=2, source=_MUSIQUE, group="support", needs=("support",))
def support_f1(batch: Batch) -> Scores:
    """Compute F1 of the claimed paragraphs against the supporting ones, as sets; unscorable as in support_em."""
    return paragraph_parts(batch)[3]


_GROUP = ("answer", "support", "answerable", "group")


@register("group_answer_f1", version=2, source="MuSiQue evaluator v1.0, GroupAnswerSufficiencyMetric", group="support", needs=_GROUP)
def group_answer_f1(batch: Batch) -> Scores:
    """Compute f1(rules=musique) of a pair's answerable question if both questions are classified correctly as answerable or not, else 0.

    The classification is `notes["answerable"]`; a missing one is wrong. The value is assigned to the answerable question. The
    unanswerable question of a pair, a question without a pair, and one whose counterpart is missing are unscorable.
    """
    return _of_groups(batch, answer_parts(batch, "musique")[3])


@register("group_support_f1", source="MuSiQue evaluator v1.0, GroupSupportSufficiencyMetric", group="support", needs=_GROUP)
def group_support_f1(batch: Batch) -> Scores:
    """Compute support_f1 of a pair's answerable question if both questions are classified correctly as answerable or not, else 0.

    Classification, pairs and unscorable questions are as in group_answer_f1.
    """
    return _of_groups(batch, paragraph_parts(batch)[3])


@register("sufficiency", source="MuSiQue, Trivedi et al. 2022, §5", group="support", needs=("answerable",))
def sufficiency(batch: Batch) -> Scores:
    """Score 1 if `notes["answerable"]` correctly states whether the question can be answered, else 0; a missing note is wrong.

    Questions outside pairs are unscorable.
    """
    grouped = np.array([question.group is not None for question in batch.questions], dtype=bool)
    return np.where(grouped, _rightly_said(batch), np.nan)


@register("evidence_em", version=2, source=_TWO_WIKI, group="triples", needs=("triples",))
def evidence_em(batch: Batch) -> Scores:
    """Score 1 if the claimed knowledge triples (`notes["triples"]`) are exactly the gold ones, else 0.

    Heads, relations and tails are compared after lower-casing, deleting ASCII punctuation and collapsing white space (articles
    stay). Repeated claims count once. Aliases of a gold head or tail are accepted (without entity ids, only those of the
    answer). Without a claim the score is 0. A question without gold triples is unscorable.
    """
    return triple_parts(batch)[0]


@register("evidence_precision", version=2, source=_TWO_WIKI, group="triples", needs=("triples",))
def evidence_precision(batch: Batch) -> Scores:
    """Compute precision of the claimed knowledge triples, 0 without a claim. Triples are compared as in evidence_em."""
    return triple_parts(batch)[1]


@register("evidence_recall", version=2, source=_TWO_WIKI, group="triples", needs=("triples",))
def evidence_recall(batch: Batch) -> Scores:
    """Compute the share of gold knowledge triples that are claimed, at most 1. Triples are compared as in evidence_em."""
    return triple_parts(batch)[2]


@register("evidence_f1", version=2, source=_TWO_WIKI, group="triples", needs=("triples",))
def evidence_f1(batch: Batch) -> Scores:
    """Compute F1 of the claimed knowledge triples, 0 if precision and recall are 0. Triples are compared as in evidence_em."""
    return triple_parts(batch)[3]


@_register_joint("joint_em")
def joint_em(batch: Batch, rules: str) -> Scores:
    """Compute the product of answer EM and sp_em (2wiki: also evidence_em). Unscorable if one of them is."""
    return joint_parts(batch, rules)[0]


@_register_joint("joint_precision")
def joint_precision(batch: Batch, rules: str) -> Scores:
    """Compute the product of answer precision and sp_precision (2wiki: also evidence_precision). Unscorable if one of them is."""
    return joint_parts(batch, rules)[1]


@_register_joint("joint_recall")
def joint_recall(batch: Batch, rules: str) -> Scores:
    """Compute the product of answer recall and sp_recall (2wiki: also evidence_recall). Unscorable if one of them is."""
    return joint_parts(batch, rules)[2]


@_register_joint("joint_f1")
def joint_f1(batch: Batch, rules: str) -> Scores:
    """Compute the harmonic mean of joint_precision and joint_recall, 0 if both are 0. Unscorable if one of them is."""
    return joint_parts(batch, rules)[3]


def sentence_parts(batch: Batch) -> Parts:
    """Compute EM, precision, recall and F1 of the claimed sentences; NaN if unscorable."""

    def make() -> Parts:
        claimed = [{sentence_id(passage, index) for passage, index in _claims(p) if index is not None} for p in batch.predictions]
        return _set_parts(batch, claimed, [set(question.supporting_facts) for question in batch.questions])

    return batch.once("sentence_parts", make)


def paragraph_parts(batch: Batch) -> Parts:
    """Compute EM, precision, recall and F1 of the claimed paragraphs; NaN if unscorable."""

    def make() -> Parts:
        claimed = [{passage for passage, _ in _claims(p)} for p in batch.predictions]
        return _set_parts(batch, claimed, [set(question.evidence) for question in batch.questions])

    return batch.once("paragraph_parts", make)


def triple_parts(batch: Batch) -> Parts:
    """Compute EM, precision, recall and F1 of the claimed triples; NaN if unscorable."""

    def make() -> Parts:
        matched, claims, golds = [], [], []
        for question, prediction in zip(batch.questions, batch.predictions, strict=True):
            claimed = _claimed_triples(prediction)
            others = question.metadata.get("triple_aliases") or [_by_answer(gold, question) for gold in question.triples]
            accepted = {triple for gold, names in zip(question.triples, others, strict=True) for triple in _accepted(gold, names)}
            matched.append(len(claimed & accepted))
            claims.append(len(claimed))
            golds.append(len(question.triples))
        return _parts(batch, matched, claims, golds)

    return batch.once("triple_parts", make)


def joint_parts(batch: Batch, rules: str) -> Parts:
    """Compute EM, precision, recall and F1 of answer and support together, as in HotpotQA's or 2Wiki's evaluator."""

    def make() -> Parts:
        factors = [answer_parts(batch, "hotpotqa"), sentence_parts(batch)]
        if rules == "2wiki":
            factors.append(triple_parts(batch))
        em, precision, recall = (np.prod([factor[part] for factor in factors], axis=0) for part in range(3))
        return em, precision, recall, harmonic(precision, recall)

    return batch.once(("joint_parts", rules), make)


def _rightly_said(batch: Batch) -> Scores:
    pairs = zip(batch.questions, batch.predictions, strict=True)
    return np.array([_answerable(prediction) is question.answerable for question, prediction in pairs], dtype=np.float64)


def _answerable(prediction: Prediction) -> bool | None:
    value = prediction.notes.get(ANSWERABLE)
    if value is not None and not isinstance(value, bool):
        raise _malformed(prediction, ANSWERABLE, "true or false")
    return value


def _of_groups(batch: Batch, scores: Scores) -> Scores:
    """Return the scores of answerable questions with a twin, 0 unless both answers are correct; NaN for other questions."""
    right = _rightly_said(batch)
    twins = {question.group: row for row, question in enumerate(batch.questions) if not question.answerable}
    result = np.full(len(batch), np.nan)
    for row, question in enumerate(batch.questions):
        if question.answerable and question.group is not None and question.group in twins:
            result[row] = scores[row] * right[row] * right[twins[question.group]]
    return result


def _set_parts(batch: Batch, claimed: list[set[str]], gold: list[set[str]]) -> Parts:
    matched = [len(a & b) for a, b in zip(claimed, gold, strict=True)]
    return _parts(batch, matched, [len(row) for row in claimed], [len(row) for row in gold])


def _parts(batch: Batch, matched: list[int], claims: list[int], golds: list[int]) -> Parts:
    """Compute EM, precision, recall and F1 from counts; NaN without gold and for unanswerable questions."""
    same, claimed, wanted = (np.array(counts, dtype=np.float64) for counts in (matched, claims, golds))
    answerable = np.array([question.answerable for question in batch.questions], dtype=bool)
    wanted[(wanted == 0) | ~answerable] = np.nan
    nothing = np.where(np.isnan(wanted), np.nan, 0.0)
    precision = nothing + same / np.maximum(claimed, 1)
    # Two wordings of one gold triple may both be claimed; a share of the gold is still at most all of it.
    recall = np.minimum(same / wanted, 1.0)
    em = nothing + ((same == claimed) & (same == wanted))
    return em, precision, recall, harmonic(precision, recall)


def harmonic(precision: Scores, recall: Scores) -> Scores:
    """Compute the harmonic mean of precision and recall, 0 if both are 0."""
    total = precision + recall
    return np.where(total == 0, 0.0, 2 * precision * recall / np.where(total == 0, 1.0, total))


def _claims(prediction: Prediction) -> list[tuple[str, int | None]]:
    """Return the passages, and sentences in them, that a prediction cites as support."""
    claims = support_claims(prediction.notes.get(SUPPORT) or ())
    if claims is None:
        raise _malformed(prediction, SUPPORT, "a list of ids of passages and of sentences [passage id, index]")
    return claims


def _claimed_triples(prediction: Prediction) -> set[tuple[str, ...]]:
    claims: Any = prediction.notes.get(TRIPLES) or ()
    if isinstance(claims, str) or not all(
        isinstance(claim, list | tuple) and len(claim) == 3 and all(isinstance(part, str) for part in claim) for claim in claims
    ):
        raise _malformed(prediction, TRIPLES, "a list of [head, relation, tail]")
    return {tuple(triple_part(part) for part in claim) for claim in claims}


def _malformed(prediction: Prediction, key: str, wanted: str) -> UserError:
    return UserError(
        f"notes[{key!r}] must be {wanted}", code="bad-notes", where=f"prediction for {prediction.question_id!r}", try_this="correct it"
    )


def _by_answer(triple: Triple, question: Question) -> Names:
    """Return alternative names of head and tail if one of them is the answer; without entity ids no other names are known."""
    return question.aliases.get(triple[0], ()), question.aliases.get(triple[2], ())


def _accepted(triple: Triple, names: Names) -> Iterable[tuple[str, ...]]:
    head, relation, tail = triple
    for item in (head, *names[0]):
        for other in (tail, *names[1]):
            yield triple_part(item), triple_part(relation), triple_part(other)


_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")


def triple_part(text: str) -> str:
    """Normalize a part of a triple as 2Wiki does: like SQuAD's normalization, but articles stay."""
    return " ".join(_PUNCTUATION.sub("", text.lower()).split())
