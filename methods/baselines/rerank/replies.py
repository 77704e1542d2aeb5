"""Parse replies: an order of numbered passages, or the one best passage. Every reply gives a result.

Numbers may be written in other digits. Replies of models that were trained to reason in tags first (ReasonRank, Rank-R1)
are read raw, and only the text after the reasoning is used. Unfinished reasoning gives no result in Rank-R1; for ReasonRank,
the whole text is read as in the released code.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from methods.models.bounded import between

LABELS = string.ascii_uppercase[:23]
"""Passage labels in Setwise prompts."""
UNUSABLE, COMPLETED, REPAIRED = "unusable", "completed", "repaired"
"""States of a reply: nothing was usable, missing numbers were added, or repeated and unknown numbers were removed."""
_BRACKETED = re.compile(r"\[\s*(\d{1,9})\s*\]")
_ANSWER = re.compile("<answer>", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")
_PLACE = (
    r"(?:\b(?:passage|document|doc)\s?)?[\[(*\\]{0,5}(?:(?:passage|document|doc)\s?)?(?:\d{1,9})[\])*\\]{0,5}(?:\s?[-–]\s?\[?\d{1,9}\]?)?"
)
_CHAIN = re.compile(rf"{_PLACE}(?:\s*[>≻=→]+\s*{_PLACE})+", re.IGNORECASE)
"""Pattern of numbers in the requested form, `[2] > [1]`, also without brackets or with names ("Passage 2 > Passage 1")."""
_RISING = re.compile(rf"{_PLACE}(?:\s*<\s*{_PLACE})+", re.IGNORECASE)
_SERIES = re.compile(rf"['\"]?{_PLACE}['\"]?(?:\s*(?:[,、](?:\s*and\b)?|\band\b)\s*['\"]?{_PLACE}['\"]?)+", re.IGNORECASE)
"""Pattern of numbers with commas between them, as in JSON."""
_RANGE = re.compile(r"(\d{1,9})\]?\s?[-–]\s?\[?(\d{1,9})|(\d{1,9})")
_LISTED = re.compile(
    r"^\W{0,5}(?:rank\s?)?(?P<rank>\d{1,3})\s?[.):|*]{1,4}[ \t|*\[(]*(?:passage|document|doc|id)?[ \t:#\[(*]{0,5}"
    r"(?P<place>\d{1,9})\b(?!\s?[.:]\d)",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a line of a numbered list or table: `1. Passage 2`."""
_ENUMERATED = re.compile(r"(?:^|(?<=>))[ \t]{0,4}\d{1,3}[.)][ \t]{0,4}(?=\[)", re.MULTILINE)
"""Pattern of the rank before a number in a chain: `1. [2] > 2. [1]`."""
_FLAT_OBJECT = re.compile(r"\{[^{}]{1,2000}\}")
_PASSAGES = ("passage", "passage_id", "document", "document_id", "doc", "doc_id", "docid", "id", "identifier", "index", "number")
_RANKS, _SCORES = ("rank", "position"), ("score", "relevance_score", "relevance", "rating")
"""Fields of JSON objects that name a passage, its rank and its score."""
_GRADED = re.compile(
    r"(?:^|[{,])\s{0,9}(?:[-*•]\s)?(?P<mark>[\"'*\[(]{0,5}(?:(?:passage|document|doc)[ #\[(]{0,3})?)(?P<place>\d{1,9})[\])\"'*]{0,5}"
    r"\s?[:=–—-]\s?[\"'*]{0,3}(?:score[:=\s]{0,3})?(?P<grade>-?\d{1,9}(?:\.\d{1,9})?)(?:\s?/\s?\d{1,3})?[\"'*]{0,3}(?=\s*(?:[,}\n]|$))",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a number for a passage: `Passage 1: 8/10`, `"1": 8`."""
_COUNT = re.compile(r"\b\d{1,9}\s+(?:[a-z]{1,20}\s+)?(?:passages|documents|texts|results|candidates)\b", re.IGNORECASE)
"""Pattern of a number of passages, which names none of them."""
_LABEL = re.compile(r"\W*(?:passage\W*)?([a-z])(?!['’-]\w)(?=\s*(?:[^\w\s]|\n|$))", re.IGNORECASE)
_NAMED = re.compile(r"passage\W{1,3}([a-z])(?!\w)", re.IGNORECASE)
_STATED = re.compile(
    r"(?i:<answer>|\\boxed\{|\b(?:answer|option|document|choice|label|relevant|is)(?:\s(?:is|option|document))?[\"'*]{0,3}[\s:]{0,3})"
    r"[\s(\[\"'*]{0,5}([A-W])(?=[)\]\"'*.,:;}<]|\s*$)"
)
"""Pattern of a label in a sentence or mark: "The most relevant is: B"."""


@dataclass(frozen=True, slots=True)
class Order:
    """A parsed order of n passages.

    Attributes:
        positions: The positions 0 … n − 1, best first.
        fault: Problem with the reply; "" if there is none.
    """

    positions: tuple[int, ...]
    fault: str = ""


def order_of(reply: str, n: int, *, tagged: bool = False, named: int | None = None) -> Order:
    """Parse an order of numbered passages from a reply; passages that it omits follow in their order.

    Args:
        reply: Text of the reply. Of an untagged reply, JSON objects of passages count (by their rank or score), else the longest
            chain `[2] > [1]`, else a series of all numbers (`2, 1, 3`), else scores of passages (`Passage 1: 8/10`; unusable if they
            could be ranks), else a numbered list. If there is none, and at least two numbers are in brackets, only those count.
            All numbers 0 … n − 1 count from zero.
        n: Number of passages.
        tagged: Read the order from an answer tag after the reasoning; end tags, and the answer tag itself, may be missing.
        named: Number of passages that it must name; None for all.
    """
    text = plain_digits(reply)
    if tagged:
        text = _ANSWER.split(text.rpartition("</think>")[2])[-1]
        text = text[: end.start()] if (end := re.search("</answer>", text, re.IGNORECASE)) else text
    arranged = None if tagged else _arranged(text, n)
    positions = [number - 1 for number in (_numbers(text) if arranged is None else arranged)]
    from_zero = n > 1 and set(positions) == set(range(-1, n - 1))
    positions = [position + 1 for position in positions] if from_zero else positions
    known = list(dict.fromkeys(place for place in positions if 0 <= place < n))
    order = (*known, *(position for position in range(n) if position not in known))
    if not known:
        return Order(order, UNUSABLE)
    return Order(order, COMPLETED if len(known) < min(n, named or n) else REPAIRED if from_zero or len(positions) > len(known) else "")


def _arranged(text: str, n: int) -> list[int] | None:
    """Return the numbers of JSON objects, of the longest chain in a text (the last of equal ones), of the last series of all n numbers
    that is not just counted up, of scores, or of a numbered list; None without these.
    """
    if (objects := _in_objects(text)) is not None:
        return objects
    text = _ENUMERATED.sub("", text) if ">" in text else text
    falling = [_ranged(match[0], n) for match in _CHAIN.finditer(text)]
    chains = falling or [_ranged(match[0], n)[::-1] for match in _RISING.finditer(text)]
    if chains:
        return max(reversed(chains), key=len)
    series = [_ranged(match[0], n) for match in _SERIES.finditer(text)]
    if full := [numbers for numbers in series if sorted(numbers) in (list(range(1, n + 1)), list(range(n)))]:
        return next((numbers for numbers in reversed(full) if numbers != sorted(numbers)), full[-1])
    if (graded := _graded(text, n)) is not None:
        return graded
    listed = [(int(match["rank"]), int(match["place"])) for match in _LISTED.finditer(text)]
    in_order = len(listed) > 1 and [rank for rank, _ in listed] == list(range(1, len(listed) + 1))
    return [place for _, place in listed] if in_order else None


def _in_objects(text: str) -> list[int] | None:
    """Return the passage numbers in several JSON objects, by rank, by score (highest first), or as listed; None without such objects."""
    values = []
    for match in _FLAT_OBJECT.finditer(text):
        try:
            values.append({str(name).casefold(): value for name, value in json.loads(match[0]).items()})
        except ValueError:
            return None
    passages = [next((value[name] for name in _PASSAGES if name in value), None) for value in values]
    numbers = [_NUMBER.search(str(passage)) for passage in passages]
    if len(values) < 2 or not all(numbers):
        return None
    order: Sequence[int] = range(len(values))
    for names, sign in ((_RANKS, 1), (_SCORES, -1)):
        weights: list[Any] = [next((value[name] for name in names if isinstance(value.get(name), int | float)), None) for value in values]
        if None not in weights:
            order = sorted(order, key=[sign * weight for weight in weights].__getitem__)
            break
    return [int(number[0]) for place in order if (number := numbers[place])]


def _graded(text: str, n: int) -> list[int] | None:
    """Return the numbers of scored passages, the highest score first; [] if the scores could be ranks; None without scores."""
    matches = list(_GRADED.finditer(text))
    grades = {int(match["place"]): float(match["grade"]) for match in matches}
    if len(grades) < 2:
        return None
    if len(set(grades.values())) == len(grades) and set(grades.values()) <= set(range(1, n + 1)):
        return [] if all(match["mark"] for match in matches) else None
    return sorted(grades, key=lambda place: -grades[place])


def _ranged(text: str, n: int) -> list[int]:
    """Return the numbers of a text, with all numbers of a range such as `[5-20]`."""
    numbers: list[int] = []
    for match in _RANGE.finditer(text):
        numbers += [int(match[3])] if match[3] else range(int(match[1]), min(int(match[2]), n) + 1)
    return numbers


def _numbers(text: str) -> list[int]:
    """Return the numbers in brackets if there are several, else all numbers that do not count passages."""
    numbers = _BRACKETED.findall(text)
    return list(map(int, numbers if len(numbers) > 1 else _NUMBER.findall(_COUNT.sub("", text))))


def label_of(reply: str, n: int) -> int | None:
    """Return the position of the first labeled passage (A, B …) that a reply names, or None."""
    text = plain_digits(reply)
    match = _LABEL.match(text) or _NAMED.search(text) or _STATED.search(text)
    position = LABELS.find(match[1].upper()) if match else -1
    return position if 0 <= position < n else None


def answer_of(reply: str, n: int, *, thinks: bool) -> int | None:
    """Return the position of the passage that the answer tag names as `[3]`, or None.

    Args:
        reply: The raw reply.
        n: Number of passages.
        thinks: Whether completed reasoning must precede it.
    """
    if thinks and "</think>" not in reply.lower():
        return None
    answer = _between(_reasoned(reply), "answer")
    match = _BRACKETED.fullmatch(answer.strip()) if answer is not None else None
    return int(match[1]) - 1 if match and 1 <= int(match[1]) <= n else None


def plain_digits(reply: str) -> str:
    """Normalize digits and letters of a reply to ASCII."""
    return unicodedata.normalize("NFKC", reply)


def _reasoned(reply: str) -> str:
    """Return the text after the reasoning of a raw reply; "" if the reasoning has no end."""
    text = plain_digits(reply)
    _, ended, rest = text.rpartition("</think>")
    return rest if ended else "" if "<think>" in text else text


def _between(text: str, tag: str) -> str | None:
    """Return the text between the first pair of tags; case is ignored."""
    match = between(text, f"<{tag}>", f"</{tag}>")
    return match[1] if match else None
