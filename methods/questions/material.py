"""Select passages for question generation: single passages, or pairs that share an entity."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from benchmarks.text import tokens

SHORTEST = 12
"""Minimum words of a passage for asking questions about it."""
_MOST_SHARED = 0.1
"""Maximum fraction of passages that contain a linking word."""
_LETTERS = 4


@dataclass(frozen=True, slots=True)
class Material:
    """Passages for generating one question.

    Attributes:
        kind: Question type: `single`, `multi`, `unanswerable`, `cloze` or `heading`.
        passages: The passages.
    """

    kind: str
    passages: tuple[Passage, ...]

    @property
    def id(self) -> str:
        """Return a unique id."""
        return f"{self.kind}/{'+'.join(passage.id for passage in self.passages)}"

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the ids of the passages' documents."""
        return tuple(dict.fromkeys(passage.document_id or passage.id for passage in self.passages))

    @property
    def text(self) -> str:
        """Format the passages for prompts."""
        return "\n\n".join(passage.full_text for passage in self.passages)


def divided(passages: Sequence[Passage], share: float, seed: int) -> tuple[list[Passage], list[Passage]]:
    """Split passages into two parts by document.

    Args:
        passages: The passages.
        share: Fraction of the documents in the second part; at least one document if above 0 and there are two or more.
        seed: Random seed.
    """
    documents = list(dict.fromkeys(passage.document_id for passage in passages))
    ordered = sorted(documents, key=lambda name: fingerprint("held out", seed, name))
    number = min(max(round(share * len(ordered)), 1), len(ordered) - 1) if share > 0 else 0
    second = frozenset(ordered[:number])
    return [p for p in passages if p.document_id not in second], [p for p in passages if p.document_id in second]


def drawn(kind: str, passages: Sequence[Passage], count: int, seed: int) -> list[Material]:
    """Draw the material for `count` questions of one type, balanced over documents."""
    usable = [passage for passage in passages if len(passage.text.split()) >= SHORTEST]
    if kind == "multi":
        every = [Material(kind, pair) for pair in linked(usable)]
    else:
        every = [Material(kind, (passage,)) for passage in usable]
    by_document: dict[str, list[Material]] = defaultdict(list)
    draws = Draws("questions", kind, seed)
    for item in draws.sample(every, len(every)):
        by_document[item.documents[0]].append(item)
    rounds = [
        items[row] for row in range(max(map(len, by_document.values()), default=0)) for items in by_document.values() if row < len(items)
    ]
    return rounds[:count]


def linked(passages: Sequence[Passage]) -> Iterator[tuple[Passage, Passage]]:
    """Yield pairs of passages that share rare words, each passage with its best partner; partners from other documents are
    preferred.
    """
    words = [Counter(word for word in tokens(passage.full_text) if len(word) >= _LETTERS) for passage in passages]
    holding: dict[str, list[int]] = defaultdict(list)
    for row, each in enumerate(words):
        for word in each:
            holding[word].append(row)
    most = max(2, int(_MOST_SHARED * len(passages)))
    seen: set[frozenset[int]] = set()
    for row, each in enumerate(words):
        score: dict[int, float] = defaultdict(float)
        for word in each:
            rows = holding[word]
            if 2 <= len(rows) <= most:
                for other in rows:
                    score[other] += math.log(len(passages) / len(rows)) + 1e-9
        score.pop(row, None)
        if score:
            here = passages[row].document_id
            best = max(score, key=lambda other: (passages[other].document_id != here, score[other], -other))
            if (pair := frozenset((row, best))) not in seen:
                seen.add(pair)
                yield passages[row], passages[best]
