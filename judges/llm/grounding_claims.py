"""What the grounding judge reads out of replies, and the arithmetic on it; no model and no ragas in here.

A text is taken apart into claims, then each claim is judged against another text: 1, it follows from it; 0, it does
not. Faithfulness and factual correctness are counts of such verdicts, as ragas defines them, but never rounded.

Stricter than ragas where a broken reply would pass for a low or a high score: a verdict other than 0 and 1, more or
fewer verdicts than claims, a reply that breaks off, a reference in which no claim was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from judges.judging import JudgeCall, Parsed, Score
from methods.models.structured import parse

STATEMENTS, STATEMENT_VERDICTS = "statements", "statements supported"
ANSWER_CLAIMS, ANSWER_VERDICTS = "answer claims", "answer claims supported"
REFERENCE_CLAIMS, REFERENCE_VERDICTS = "reference claims", "reference claims supported"
FOLLOWS = {STATEMENTS: STATEMENT_VERDICTS, ANSWER_CLAIMS: ANSWER_VERDICTS, REFERENCE_CLAIMS: REFERENCE_VERDICTS}
"""Parts that take a text apart, each with the part that judges what was found."""
UNASKED = "unasked"
"""The part of an item for which no call is needed: the answer is empty, or there is nothing to hold it against."""

Mode = Literal["f1", "precision", "recall"]


class Statements(BaseModel):
    """A text taken apart, as ragas' Faithfulness asks for it."""

    statements: list[str]

    def said(self) -> dict[str, list[Any]]:
        """The claims."""
        return {"claims": _claims(self.statements)}


class Claims(BaseModel):
    """A text taken apart, as ragas' FactualCorrectness asks for it."""

    claims: list[str]

    def said(self) -> dict[str, list[Any]]:
        """The claims."""
        return {"claims": _claims(self.claims)}


class Verdict(BaseModel):
    """A verdict on a claim; what else the reply says of it is of no account."""

    verdict: int = Field(ge=0, le=1)


class Verdicts(BaseModel):
    """Verdicts in the order in which the claims were given."""

    statements: list[Verdict]

    def said(self) -> dict[str, list[Any]]:
        """The verdicts."""
        return {"verdicts": [one.verdict for one in self.statements]}


def read_reply(part: str, reply: str) -> Parsed:
    """Read a raw reply: `{"claims": [text, …]}` of a part that takes apart, `{"verdicts": [0 or 1, …]}` of the others.

    Raises:
        MissingPackage: It is not plain JSON, and what could repair it is not installed.
    """
    form: type[Statements | Claims | Verdicts] = Verdicts
    if part in FOLLOWS:
        form = Statements if part == STATEMENTS else Claims
    reply = reply.rpartition("</think>")[2]
    found = parse(reply, form)
    if found.value is None:
        return Parsed(None, found.failed)
    if found.repaired and breaks_off(reply):
        return Parsed(None, "the reply breaks off in the middle of its JSON object")
    return Parsed(found.value.said())


def breaks_off(reply: str) -> bool:
    """Whether the last object that a reply begins is never closed: what stood behind is lost, and must not be guessed.

    Braces inside strings do not count; where the quotes are not JSON's, this may call a whole object a broken one.
    """
    depth, inside, escaped = 0, False, False
    for character in reply[max(reply.find("{"), 0) :]:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"' and depth:
            inside = True
        elif character in "{[":
            depth += 1
        elif character in "}]" and depth:
            depth -= 1
    return depth > 0


def sound(text: str) -> str:
    """A text without halves of characters, which neither JSON nor the store can carry."""
    return text.encode("utf-8", "replace").decode()


def _claims(found: Sequence[str]) -> list[str]:
    return [sound(claim) for claim in found if claim.strip()]


# -- arithmetic --


def faithfulness(round_: Mapping[str, Parsed]) -> Score:
    """The share of the answer's claims that follow from the passages, from the calls of one repetition."""
    verdicts = _verdicts(round_, STATEMENTS)
    if isinstance(verdicts, str):
        return Score(None, verdicts)
    if not verdicts:
        return Score(None, "no claim was found in the answer")
    return Score(sum(verdicts) / len(verdicts))


def factual_correctness(round_: Mapping[str, Parsed], mode: Mode) -> Score:
    """Agreement of the answer's claims with the reference, from the calls of one repetition; see `from_counts`."""
    answer = _verdicts(round_, ANSWER_CLAIMS)
    if isinstance(answer, str):
        return Score(None, answer)
    if mode == "precision":
        return Score(from_counts(answer, [], mode))
    reference = _verdicts(round_, REFERENCE_CLAIMS)
    if isinstance(reference, str):
        return Score(None, reference)
    if not reference:
        return Score(None, "no claim was found in the reference")
    return Score(from_counts(answer, reference, mode))


def from_counts(answer: Sequence[int], reference: Sequence[int], mode: Mode) -> float:
    """ragas' arithmetic, unrounded.

    tp is how many of the answer's claims the reference supports, fp how many it does not, fn how many of the
    reference's claims the answer does not support. precision = tp/(tp+fp), recall = tp/(tp+fn), f1 is their harmonic
    mean, and all are 0 where tp is. (So recall counts claims of both texts; that is ragas' definition.)

    Args:
        answer: Per claim of the answer whether the reference supports it.
        reference: Per claim of the reference whether the answer supports it.
        mode: Which of the three.
    """
    tp = sum(answer)
    fp, fn = len(answer) - tp, len(reference) - sum(reference)
    if not tp:
        return 0.0
    if mode == "precision":
        return tp / (tp + fp)
    if mode == "recall":
        return tp / (tp + fn)
    return 2 * tp / (2 * tp + fp + fn)


def _verdicts(round_: Mapping[str, Parsed], part: str) -> list[int] | str:
    """The verdicts on the claims that a part found, or why there are none."""
    found = _value(round_, part)
    if isinstance(found, str):
        return found
    claims = found["claims"]
    if not claims:
        return []
    judged = _value(round_, FOLLOWS[part])
    if isinstance(judged, str):
        return judged
    verdicts: list[int] = judged["verdicts"]
    if len(verdicts) != len(claims):
        return f"{FOLLOWS[part]}: {len(verdicts)} verdicts on {len(claims)} claims"
    return verdicts


def _value(round_: Mapping[str, Parsed], part: str) -> Mapping[str, Any] | str:
    call = round_.get(part)
    if call is None:
        return f"{part}: no call was made"
    if call.value is None:
        return f"{part}: {call.unscored}"
    return call.value


def rounds(calls: Sequence[JudgeCall]) -> list[dict[str, Parsed]]:
    """What the calls of an item say, by part, for each repetition."""
    found: dict[int, dict[str, Parsed]] = {}
    for call in calls:
        found.setdefault(call.repetition, {})[call.part] = call.parsed
    return [found[repetition] for repetition in sorted(found)]


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean over the repetitions that have a score; where none has, the first one's reason."""
    values = [score.value for score in scores if score.value is not None]
    if values:
        return Score(sum(values) / len(values))
    return scores[0] if scores else Score(None, "no call was made")
