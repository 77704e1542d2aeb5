"""Define what human labels refer to (a question and one answer, or two) and their values.

A label is used as long as the runs give exactly the labeled answers. If they give other answers or are deleted, the
label is kept but unused, until a run of the same fingerprint gives the same answer again. A label is not used for other
runs with the same answer, because the answers that they share are not a random sample of theirs.
"""

from __future__ import annotations

import hashlib

DIGITS = 16
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


VALUES = {"match": 1.0, "partial": 0.0, "mismatch": 0.0, "yes": 1.0, "no": 0.0, "right": 1.0, "wrong": 0.0, "formal": 0.0, "informal": 1.0}
"""Values of the word labels of single answers; numbers from 0 to 1 are labels, too."""


def worth(label: str) -> float:
    """Convert a label of a single answer to a number from 0 to 1.

    Raises:
        ValueError: The text is not a label.
    """
    if label in VALUES:
        return VALUES[label]
    value = float(label.replace(",", "."))
    if not 0 <= value <= 1:
        raise ValueError(label)
    return value
