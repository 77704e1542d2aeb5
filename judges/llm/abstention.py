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
    """Return whether there is no answer to judge: the question failed, or the answer is blank."""
    return FAILED in prediction.notes or not prediction.answer.strip()


def declines(prediction: Prediction) -> bool:
    """Return whether an answer is missing, or only consists of a set phrase such as "I don't know"."""
    return missing(prediction) or is_abstention(prediction.answer)


def equals_gold(question: Question, prediction: Prediction) -> bool:
    """Return whether an answer equals a gold answer under SQuAD's normalization, or literally if normalization removes everything."""
    answer = prediction.answer
    if normalize(answer):
        return bool(em(answer, question.golds))
    return not missing(prediction) and answer.strip().casefold() in {gold.strip().casefold() for gold in question.golds}


def gold_abstains(question: Question) -> bool:
    """Return whether abstaining is correct: the question is unanswerable, or a gold answer is itself a set phrase that abstains."""
    return not question.answerable or any(normalize(gold) and is_abstention(gold) for gold in question.golds)


def rightly_declines(question: Question, prediction: Prediction, declining: Callable[[Prediction], bool] = declines) -> bool:
    """Return whether an answer correctly abstains: abstaining is correct for this question, and the answer is not missing.

    Args:
        question: The question with its gold.
        prediction: The predicted answer.
        declining: Function that decides whether an answer abstains.
    """
    return gold_abstains(question) and FAILED not in prediction.notes and bool(normalize(prediction.answer)) and declining(prediction)


def settled(question: Question, first: Prediction, second: Prediction, declining: Callable[[Prediction], bool] = declines) -> str | None:
    """Decide a comparison without a model if one of the two answers abstains or is missing.

    If abstaining is correct, it wins over an answer without a gold string and ties with one that contains it. Otherwise an
    abstaining answer loses, and two abstaining answers get the verdict `None`.

    Args:
        question: The question with its gold.
        first, second: The answers in the order shown.
        declining: Function that decides whether an answer abstains.

    Returns:
        The verdict in the words of the prompts; Python's None if both are answers and a judge must compare them.
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
