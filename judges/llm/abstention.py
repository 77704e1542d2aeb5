"""Answers that decline to answer, judged against the gold.

Declining is usually no answer, and the other one wins. It is right if the gold itself declines ("Unanswerable") or
happens to read like that (a film called "Unknown"): an answer that equals a gold is never disqualified.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.schema import Question
from benchmarks.text import cover_em, em, is_abstention, normalize
from methods.api import FAILED, Prediction


def missing(prediction: Prediction) -> bool:
    """Return whether there is no answer to judge: it failed or is blank."""
    return FAILED in prediction.notes or not prediction.answer.strip()


def declines(prediction: Prediction) -> bool:
    """Return whether an answer is missing, or nothing but a set phrase that says it is unknown."""
    return missing(prediction) or is_abstention(prediction.answer)


def equals_gold(question: Question, prediction: Prediction) -> bool:
    """Return whether an answer equals a gold by squad's rules, or as it is written if these leave nothing of it."""
    answer = prediction.answer
    if normalize(answer):
        return bool(em(answer, question.golds))
    return not missing(prediction) and answer.strip().casefold() in {gold.strip().casefold() for gold in question.golds}


def gold_abstains(question: Question) -> bool:
    """Return whether declining is a right answer: the question has none, or a gold is a set phrase that declines."""
    return not question.answerable or any(normalize(gold) and is_abstention(gold) for gold in question.golds)


def rightly_declines(question: Question, prediction: Prediction, declining: Callable[[Prediction], bool] = declines) -> bool:
    """Return whether an answer declines a question whose gold declines too; a missing answer does not.

    Args:
        question: With its gold.
        prediction: The answer.
        declining: Texts that count as declining.
    """
    return gold_abstains(question) and FAILED not in prediction.notes and bool(normalize(prediction.answer)) and declining(prediction)


def settled(question: Question, first: Prediction, second: Prediction, declining: Callable[[Prediction], bool] = declines) -> str | None:
    """Return the verdict on two answers if one of them declines or is missing, in the words of the prompts.

    If declining is right, it wins over an answer that holds no gold and ties with one that does. Otherwise an answer
    that declines loses, and two such get None.

    Args:
        question: With its gold.
        first, second: The answers in the order shown.
        declining: Texts that count as declining.

    Returns:
        None if both are answers, and a judge must compare them.
    """
    answers = (first, second)
    if any(rightly_declines(question, answer, declining) for answer in answers):
        right = [rightly_declines(question, answer, declining) or _holds_gold(question, answer) for answer in answers]
        return "Tie" if all(right) else "Answer 1" if right[0] else "Answer 2"
    out = [missing(answer) or (declining(answer) and not equals_gold(question, answer)) for answer in answers]
    if all(out):
        return "None"
    return ("Answer 2" if out[0] else "Answer 1") if any(out) else None


def _holds_gold(question: Question, prediction: Prediction) -> bool:
    return not missing(prediction) and bool(cover_em(prediction.answer, question.golds, match="word"))
