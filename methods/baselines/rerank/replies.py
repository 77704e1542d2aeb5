"""Parse replies: an order of numbered passages, or the one best passage. Every reply gives a result.

Numbers may be written in other digits. Replies of models that were trained to reason in tags first (ReasonRank, Rank-R1)
are read raw, and only the text after the reasoning is used. Unfinished reasoning gives no result in Rank-R1; for ReasonRank,
the whole text is read as in the released code.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass

from methods.models.bounded import between

LABELS = string.ascii_uppercase[:23]
"""Passage labels in Setwise prompts."""
UNUSABLE, COMPLETED, REPAIRED = "unusable", "completed", "repaired"
"""States of a reply: nothing was usable, missing numbers were added, or repeated and unknown numbers were removed."""
_BRACKETED = re.compile(r"\[\s*(\d{1,9})\s*\]")
_ANSWER = re.compile("<answer>", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")
_LABEL = re.compile(r"\W*(?:passage\W*)?([a-z])(?=\s*(?:[^\w\s]|\n|$))", re.IGNORECASE)
_NAMED = re.compile(r"passage\W{1,3}([a-z])(?!\w)", re.IGNORECASE)


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
        reply: Text of the reply. If it has at least two numbers in brackets, only those count.
        n: Number of passages.
        tagged: Read the order from an answer tag after the reasoning; end tags, and the answer tag itself, may be missing.
        named: Number of passages that it must name; None for all.
    """
    text = plain_digits(reply)
    if tagged:
        text = _ANSWER.split(text.rpartition("</think>")[2])[-1]
        text = text[: end.start()] if (end := re.search("</answer>", text, re.IGNORECASE)) else text
    numbers = _BRACKETED.findall(text)
    if len(numbers) < 2:
        numbers = _NUMBER.findall(text)
    positions = [int(number) - 1 for number in numbers]
    known = list(dict.fromkeys(place for place in positions if 0 <= place < n))
    order = (*known, *(position for position in range(n) if position not in known))
    if not known:
        return Order(order, UNUSABLE)
    return Order(order, COMPLETED if len(known) < min(n, named or n) else REPAIRED if len(positions) > len(known) else "")


def label_of(reply: str, n: int) -> int | None:
    """Return the position of the first labeled passage (A, B …) that a reply names, or None."""
    text = plain_digits(reply)
    match = _LABEL.match(text) or _NAMED.search(text)
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
