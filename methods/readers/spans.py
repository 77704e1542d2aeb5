"""Answer candidates by rule: what kind of answer a question wants, and the spans of that kind in a sentence.

English only, and no more than surface rules: enough that an answer without any model is a few words, not a sentence.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["yes_no", "choice", "date", "year", "number", "name"]

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_YEAR = re.compile(r"\b(?:1\d{3}|20\d{2})\b")
_DATE = re.compile(rf"\b(?:\d{{1,2}} (?:{_MONTHS})|(?:{_MONTHS})(?: \d{{1,2}})?),? (?:1\d{{3}}|20\d{{2}})\b")
_NUMBER = re.compile(r"(?<![\w.])(?:[$€£]\s?)?\d[\d,]*(?:\.\d+)?(?:\s?%| (?:percent|million|billion|thousand|hundred|[a-z]+))?")
_WORD = r"(?:[^\W\d_a-zà-öø-ÿ][\w'’-]*(?:\.(?=[\s,]|[A-Z]))?|(?:[A-Z]\.)+)"
_LINK = r"(?:of|the|de|la|le|du|von|van|der|den|and|for|in|on|al|bin|ibn|da|di|del|&)"
_NAME = re.compile(rf"{_WORD}(?:\s+(?:{_LINK}\s+){{0,2}}{_WORD})*(?:\s+\d{{1,4}}\b)?")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")

_ASKS_YES_NO = re.compile(r"^(?:are|is|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE)
_ASKS_YEAR = re.compile(r"\b(?:what|which) (?:\w+ )?year\b", re.IGNORECASE)
_ASKS_DATE = re.compile(r"\bwhen\b(?! in\b)|\b(?:what|which) (?:\w+ )?(?:date|day|month)\b|\bbirthday\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|high|big|large)\b|\b(?:population|percentage|what number|snowfall)\b", re.IGNORECASE
)
_OPENER_LIST = """
A An The In On At It Its He His She Her They Their This That These Those As After Before During By From For With When
While Where However Although There And But Or If Since Also One Two Some Many Most Other Both Each Such Under Over
Following Until According Born Of To We I You
"""
_OPENERS = frozenset(_OPENER_LIST.split())
"""Words that are capitalised for standing first in a sentence."""


class Span(NamedTuple):
    """A candidate answer: its text, where it starts in its sentence, and what kind of thing it is."""

    text: str
    start: int
    kind: Kind


def kind_of(question: str) -> Kind:
    """What kind of answer a question wants, read off its wording."""
    if options(question) is not None:
        return "choice"
    if _ASKS_YES_NO.match(question.strip()):
        return "yes_no"
    if _ASKS_YEAR.search(question):
        return "year"
    if _ASKS_NUMBER.search(question):
        return "number"
    if _ASKS_DATE.search(question):
        return "date"
    return "name"


def options(question: str) -> tuple[str, str] | None:
    """The two things that a question of the form `…, A or B?` offers, None for other questions."""
    text = question.strip().rstrip("?").strip()
    if " or " not in text:
        return None
    before, _, right = text.rpartition(" or ")
    # The left option is what follows the last comma, or the capitalised words right before "or".
    comma = before.rstrip(",").rfind(", ")
    left = before[comma + 2 :] if comma >= 0 else ""
    if not left or not left[0].isupper() or len(left.split()) > 10:
        names = list(_NAME.finditer(before))
        if not names or names[-1].end() < len(before.rstrip(" ,")):
            return None
        left = names[-1].group()
        first = left.split()[0]
        if names[-1].start() == 0 and _ASKS_YES_NO.match(first):
            left = left.removeprefix(first).strip()
    leading = _NAME.match(right)
    if leading is None or not left:
        return None
    # "Was A or B born first": what follows the second name is the rest of the question.
    right = leading.group() if before.split()[0].lower() in {"was", "is", "did"} else right
    return left.strip(" ,"), right.strip()


def spans(sentence: str) -> list[Span]:
    """Every candidate in a sentence: dates, years, numbers, names and quoted phrases."""
    found = [Span(match.group(), match.start(), "date") for match in _DATE.finditer(sentence)]
    found += [Span(match.group(), match.start(), "year") for match in _YEAR.finditer(sentence)]
    found += [Span(match.group().strip(), match.start(), "number") for match in _NUMBER.finditer(sentence)]
    found += [Span(match.group(1), match.start(1), "name") for match in _QUOTED.finditer(sentence)]
    for match in _NAME.finditer(sentence):
        text, start = match.group(), match.start()
        while (words := text.split(maxsplit=1)) and words[0] in _OPENERS:
            rest = words[1] if len(words) > 1 else ""
            start += len(text) - len(rest)
            text = rest
        text = text.rstrip(" ,")
        if len(text) > 1 and not re.fullmatch(rf"(?:{_LINK}\s*)+", text):
            found.append(Span(text, start, "name"))
    return found


def years(text: str) -> list[int]:
    """The years named in a text, in order."""
    return [int(year) for year in _YEAR.findall(text)]
