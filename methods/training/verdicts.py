"""Decide whether answers are correct: by exact match, else by a judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Question
from benchmarks.text import em, normalize, tokens
from methods.api import Judge
from methods.flow import one

MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"
VERDICTS = (MATCH, PARTIAL, MISMATCH)
EM, JUDGE, BLANK, UNSEEN = "em", "judge", "blank", "no judge"
"""Sources of a verdict: exact match, the judge, a blank answer, or no judge available."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an answer (Match, Partial, Mismatch; None if the judge's reply could not be parsed) and its source."""

    verdict: str | None
    by: str


class Verifier:
    """Checks whether answers are correct.

    Args:
        judge: Judge for answers without an exact match; None counts them as Mismatch.
        exact: Normalization rules of exact match; `strict` compares unnormalized with the first gold only.
    """

    def __init__(self, judge: Judge | None, exact: Literal["squad", "strict"] = "squad") -> None:
        self._judge, self._exact = judge, exact
        self._ask = None if judge is None else one(judge, "verdicts")

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the verdicts, including the judge's prompt and options."""
        return fingerprint(self._exact, None if self._judge is None else self._judge.fingerprint)

    async def verdict(self, question: Question, answer: str) -> Verdict:
        """Return the verdict on an answer; the judge is not called for blank answers and exact matches.

        Raises:
            ValueError: The judge returned an unknown verdict.
        """
        if not answer.strip():
            return Verdict(MISMATCH, BLANK)
        if exact_match(question, answer, self._exact):
            return Verdict(MATCH, EM)
        if self._ask is None:
            return Verdict(MISMATCH, UNSEEN)
        verdict = await self._ask(question, answer)
        if verdict is not None and verdict not in VERDICTS:
            raise ValueError(f"a judge of answers says {', '.join(VERDICTS)}, not {verdict!r}")
        return Verdict(verdict, JUDGE)


def exact_match(question: Question, answer: str, rules: Literal["squad", "strict"] = "squad") -> bool:
    """Return whether an answer equals a gold answer; if all answers of a set are required, whether it equals the set."""
    if rules == "strict":
        return bool(question.answers) and answer == question.answers[0]
    if question.answer_set and len(question.wanted) > 1:
        return _whole_set(question, answer)
    return em(answer, [gold for gold in question.golds if normalize(gold)]) == 1.0


def _whole_set(question: Question, answer: str) -> bool:
    """Return whether an answer consists of every gold answer, each in one of its wordings, and `and`."""
    words = Counter(tokens(answer))
    wanted: Counter[str] = Counter()
    text = f" {' '.join(tokens(answer))} "
    for gold in question.wanted:
        wordings = [tokens(item) for item in (gold, *question.aliases.get(gold, ()))]
        # The longest that is there: of "New York" and "York", both do.
        longest = max((wording for wording in wordings if wording and f" {' '.join(wording)} " in text), key=len, default=None)
        if longest is None:
            return False
        wanted.update(longest)
    return {word: n for word, n in (words - wanted).items() if word != "and"} == {} and not wanted - words
