"""Is an answer right (E of eq. 2): exact match first, and a judge for what matches no gold exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Question
from benchmarks.text import em, normalise, tokens
from methods.api import Judge
from methods.sark.data_config import LabelsConfig

MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"
VERDICTS = (MATCH, PARTIAL, MISMATCH)
EM, JUDGE, BLANK, UNSEEN = "em", "judge", "blank", "no judge"
"""By what a verdict was reached."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said of an answer: Match, Partial or Mismatch (None: the judge's reply could not be used), by what."""

    verdict: str | None
    by: str


class Verifier:
    """Says of answers whether they are right.

    Args:
        judge: Asked about answers that match no gold exactly; None: they are a Mismatch.
        exact: Rules of exact match; strict: as it is written, with the first gold alone.
    """

    def __init__(self, judge: Judge | None, exact: Literal["squad", "strict"] = "squad") -> None:
        self._judge, self._exact = judge, exact

    @property
    def fingerprint(self) -> str:
        """Of what decides, the judge's prompt and options among it."""
        return fingerprint(self._exact, None if self._judge is None else self._judge.fingerprint)

    def verdicts(self, questions: Sequence[Question], answers: Sequence[str]) -> list[Verdict]:
        """One verdict each. The judge sees each question and answer once, and none that is blank or an exact match.

        Raises:
            ValueError: The judge gave more or fewer verdicts than there were answers, or one of its own making.
        """
        found: dict[tuple[str, str], Verdict] = {}
        doubtful: dict[tuple[str, str], Question] = {}
        for question, answer in zip(questions, answers, strict=True):
            key = (question.id, answer)
            if not answer.strip():
                found[key] = Verdict(MISMATCH, BLANK)
            elif exact_match(question, answer, self._exact):
                found[key] = Verdict(MATCH, EM)
            elif self._judge is None:
                found[key] = Verdict(MISMATCH, UNSEEN)
            else:
                doubtful[key] = question
        if doubtful and self._judge is not None:
            said = self._judge.verdicts(list(doubtful.values()), [answer for _, answer in doubtful])
            for key, verdict in zip(doubtful, said, strict=True):
                if verdict is not None and verdict not in VERDICTS:
                    raise ValueError(f"a judge of answers says {', '.join(VERDICTS)}, not {verdict!r}")
                found[key] = Verdict(verdict, JUDGE)
        return [found[question.id, answer] for question, answer in zip(questions, answers, strict=True)]


def verifier_of(config: LabelsConfig, judge: Judge | None) -> Verifier:
    """The verifier that options name.

    Raises:
        UserError: A judge is wanted, and none is lent.
    """
    if config.judge is not None and judge is None:
        raise UserError(
            f"answers that match no gold exactly are to be judged by {config.judge}, and no judge is lent",
            where="labels.judge",
            try_this="labels.judge: null, which calls them wrong",
        )
    return Verifier(None if config.judge is None else judge, config.exact)


def exact_match(question: Question, answer: str, rules: Literal["squad", "strict"] = "squad") -> bool:
    """Whether an answer is a gold word for word; where all of a set are wanted, whether it is all of them."""
    if rules == "strict":
        return bool(question.answers) and answer == question.answers[0]
    if question.answer_set and len(question.answers) > 1:
        return _whole_set(question, answer)
    return em(answer, [gold for gold in question.golds if normalise(gold)]) == 1.0


def _whole_set(question: Question, answer: str) -> bool:
    """Whether an answer has the words of every gold, each in one of its wordings, and no other word but `and`."""
    words = Counter(tokens(answer))
    wanted: Counter[str] = Counter()
    text = f" {' '.join(tokens(answer))} "
    for gold in question.answers:
        wordings = [tokens(one) for one in (gold, *question.aliases.get(gold, ()))]
        # The longest that stands there: of "New York" and "York", both do.
        said = max((one for one in wordings if one and f" {' '.join(one)} " in text), key=len, default=None)
        if said is None:
            return False
        wanted.update(said)
    return {word: n for word, n in (words - wanted).items() if word != "and"} == {} and not wanted - words
