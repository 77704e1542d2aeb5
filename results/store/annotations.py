"""Define what human labels refer to (a question and one answer, or two) and their values.

A label is used as long as the runs give exactly the labeled answers. If they give other answers or are deleted, the
label is kept but unused, until a run of the same fingerprint gives the same answer again. A label is not used for other
runs with the same answer, because the answers that they share are not a random sample of theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from unicodedata import normalize

from benchmarks.core.errors import UserError

DIGITS = 16
REMOVED = frozenset("-–—")
"""Cells that remove an earlier label; an empty cell keeps it, since files with other items are imported, too."""
_SEPARATOR = 31
"""ASCII's unit separator."""


def digest(question: str, answer: str, other: str | None = None) -> str:
    """Hash the labeled texts (question and one or two answers), so that a label can be tied to them.

    Of two answers, the one of the run with the smaller fingerprint comes first.
    """
    texts = [question, answer] if other is None else [question, answer, other]
    return hashlib.sha256(chr(_SEPARATOR).join(texts).encode()).hexdigest()[:DIGITS]


def with_present(items: str = "annotations", questions: str = "questions", predictions: str = "predictions") -> str:
    """Return SQL that adds a column `present` to labels: the hash of the answers that the runs now contain, NULL if there is none.

    Args:
        items: Name of a table with the columns dataset_fingerprint, question, one and other.
        questions, predictions: Names of tables like the store's.
    """
    return f"""SELECT i.*, CASE WHEN p.answer IS NOT NULL AND (i.other IS NULL OR o.answer IS NOT NULL) THEN
            left(sha256(concat_ws(chr({_SEPARATOR}), q.text, p.answer, o.answer)), {DIGITS}) END AS present
        FROM {items} i
        LEFT JOIN {questions} q ON q.dataset_fingerprint = i.dataset_fingerprint AND q.question = i.question
        LEFT JOIN {predictions} p ON p.run = i.one AND p.question = i.question AND q.text IS NOT NULL
        LEFT JOIN {predictions} o ON o.run = i.other AND o.question = i.question"""


def annotator_name(name: str, known: Iterable[str]) -> str:
    """Return a person's name without spaces around it, spelled as before: names that differ only in case, or in how an accented
    letter is encoded, mean one person.

    Args:
        name: The name.
        known: Names of people with labels.

    Raises:
        UserError: The name is empty or has characters that are not printable.
    """
    plain = normalize("NFC", " ".join(name.split()))
    if not plain or not plain.isprintable():
        raise UserError("the annotator has no printable name", code="bad-annotator", where="--annotator", try_this="--annotator ann")
    alike = [other for other in known if normalize("NFC", other).casefold() == plain.casefold()]
    return plain if plain in alike or not alike else alike[0]


_ANSWERS = {"match": {"match", "right"}, "partial": {"partial"}, "mismatch": {"mismatch", "wrong"}}
_ANSWERS["accuracy"] = _ANSWERS["match"]
_STYLES = {"formal": {"formal"}, "informal": {"informal"}}


def label_words(criterion: str) -> dict[str, float]:
    """Return the word labels of single answers by this criterion, with their values.

    A verdict counts 1 if it is what the criterion measures: `mismatch` is 1 by `mismatch` and 0 by `accuracy`.
    """
    words = {"yes": 1.0, "no": 0.0}
    for family in (_ANSWERS, _STYLES):
        if criterion in family:
            return {word: float(word in family[criterion]) for word in sorted(set().union(*family.values()))} | words
    return {"right": 1.0, "wrong": 0.0} | words


def worth(label: str, criterion: str) -> float | None:
    """Convert a label of a single answer to a number from 0 to 1; None if the criterion does not accept it."""
    if (value := label_words(criterion).get(label)) is not None:
        return value
    try:
        value = float(label.replace(",", "."))
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
