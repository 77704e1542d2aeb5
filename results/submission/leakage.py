"""Gold in prompts: does a prompt say the answer, or mark the evidence, where nothing delivered says it?

Prompts and delivered texts (the question, topic entities, the passages of the row's evidence) are normalised to
tokens. A *place* is an occurrence of a gold answer in a message that the model did not write itself (role
`assistant` is its own). A place is **explained** when

- the answer together with its two neighbours on one side stands in a delivered text: it is a copy, cut at one end
  perhaps; or
- it can be the title of a delivered passage: a title that is not followed by its text accounts for one place per
  message; or
- it is boilerplate: the answer stands unexplained beside the same word in most of a sample of other questions'
  prompts (instructions, worked examples, "answer yes or no").

What is left is a leak for certain (`from nowhere`) where no delivered text holds the answer at all, or where the same
words announce it in prompt after prompt ("gold answer:"): an error once it concerns more than a few questions. Other
places are warnings: a passage in other words, a note of an earlier step that was not marked as the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from benchmarks.corpus import Corpus
from benchmarks.schema import SENTENCE_MARK, Question
from benchmarks.text import normalise
from methods.api import Prediction
from results.submission.findings import Findings, Severity, shown
from results.submission.rows import PROMPT

SHARE = 0.05
"""Share of the prompts from which on a leak is no coincidence."""
FEW = 3
"""Fewer leaks than this are a coincidence, unless they are most of the prompts."""
SAMPLE = 40
"""Other questions' prompts in which an answer is looked for, to know boilerplate."""
_NEIGHBOURS = 2
_OPENING = 200
"""Characters of a text that hold its first words."""
_LABEL = re.compile(
    r"\b(is_?supporting|is_?gold|is_?positive|has_?answer|gold_?evidence)\b[\"']?\s*[:=]\s*[\"']?"
    r"(true|false|yes|no|[01])\b",
    re.IGNORECASE,
)


class Spot(NamedTuple):
    """Where an answer stands: the two words before it and the one behind it, fewer at the edges of a message."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    def resembles(self, other: Spot) -> bool:
        """Whether a neighbouring word is the same, or the same edge."""
        return self.before[-1:] == other.before[-1:] or self.after == other.after


@dataclass(frozen=True)
class Prompted:
    """A row with prompts, its question, and where the passages are."""

    line: int
    question: Question
    prediction: Prediction
    corpus: Corpus

    @cached_property
    def passages(self) -> tuple[str, ...]:
        """Ids of the delivered passages."""
        ids = (item.id.partition(SENTENCE_MARK)[0] for item in self.prediction.evidence)
        return tuple(identifier for identifier in dict.fromkeys(ids) if identifier in self.corpus)

    @cached_property
    def delivered(self) -> str:
        """Every delivered text as tokens, the texts kept apart."""
        passages = self.corpus.get(self.passages)
        texts = [self.question.text, *self.question.topic_entities, *(passage.full_text for passage in passages)]
        return "\n".join(f" {normalise(text)} " for text in texts)

    @cached_property
    def titles(self) -> tuple[tuple[str, str], ...]:
        """The delivered titles as tokens, and the same followed by the first words of their texts."""
        passages = self.corpus.get(self.passages)
        pairs = ((normalise(one.title), normalise(one.text[:_OPENING]).split()[:_NEIGHBOURS]) for one in passages)
        return tuple((f" {title} ", f" {' '.join((title, *opening))} ") for title, opening in pairs if title)

    @cached_property
    def raw(self) -> tuple[str, ...]:
        """The messages that were not written by the model."""
        return tuple(one["content"] for one in self.prediction.notes[PROMPT] if one["role"] != "assistant")

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """The same as tokens."""
        return tuple(f" {normalise(text)} " for text in self.raw)

    @cached_property
    def golds(self) -> tuple[str, ...]:
        """Accepted answers as tokens, without those that normalise to nothing."""
        return tuple(dict.fromkeys(filter(None, (normalise(gold) for gold in self.question.golds))))

    def places(self, gold: str) -> list[Spot]:
        """The unexplained places of an answer."""
        if gold not in self._places:
            self._places[gold] = [spot for message in self.messages for spot in self._open(gold, message)]
        return self._places[gold]

    @cached_property
    def _places(self) -> dict[str, list[Spot]]:
        return {}

    def _open(self, gold: str, message: str) -> list[Spot]:
        if f" {gold} " not in message:
            return []
        words, size = message.split(), gold.count(" ") + 1
        found = [
            Spot(tuple(words[max(0, at - _NEIGHBOURS) : at]), tuple(words[at + size : at + size + 1]))
            for at in _occurrences(words, gold.split(), size)
            if not self._copied(words, at, at + size)
        ]
        alone = sum(f" {gold} " in title and with_text not in message for title, with_text in self.titles)
        return found[alone:]

    def _copied(self, words: Sequence[str], start: int, end: int) -> bool:
        around = (words[max(0, start - _NEIGHBOURS) : end], words[start : end + _NEIGHBOURS])
        # At the edge of a message there are fewer neighbours; the answer alone explains nothing.
        return any(len(part) == end - start + _NEIGHBOURS and f" {' '.join(part)} " in self.delivered for part in around)


def _occurrences(words: Sequence[str], gold: Sequence[str], size: int) -> Iterator[int]:
    first = gold[0]
    for at, word in enumerate(words):
        if word == first and list(words[at : at + size]) == list(gold):
            yield at


@dataclass(frozen=True, slots=True)
class _Leak:
    row: Prompted
    gold: str
    before: tuple[str, ...]
    nowhere: bool


def check_prompts(rows: Sequence[Prompted], findings: Findings) -> None:
    """Look for gold in prompts; what is found becomes errors and warnings with their share."""
    if not rows:
        return
    checked = [row for row in rows if row.question.answerable and row.golds]
    leaks = [leak for row in checked if (leak := _leak(row, checked)) is not None]
    announced = _announced(leaks, checked)
    certain = [leak for leak in leaks if leak.nowhere or {leak.before, leak.before[-1:]} & announced]
    severity = _severity(len(certain), len(checked))
    for leak in certain:
        by = f" after {shown(' '.join(leak.before))}" if leak.before else ""
        origin = "in no delivered text" if leak.nowhere else "announced by the same words in many prompts"
        findings.add(
            "gold_in_prompt",
            f"the gold answer stands in the prompt where nothing delivered says it: {_share(certain, checked)}",
            f"question {shown(leak.row.question.id)}: {shown(leak.gold)}{by}, {origin}",
            line=leak.row.line,
            severity=severity,
            try_this="keep gold out of prompts; give what the model wrote itself the role `assistant`",
        )
    known = {id(leak) for leak in certain}
    others = [leak for leak in leaks if id(leak) not in known]
    for leak in others:
        findings.add(
            "gold_in_other_words",
            f"the gold answer stands in the prompt outside of copied evidence: {_share(others, checked)}",
            f"question {shown(leak.row.question.id)}: {shown(leak.gold)} after {shown(' '.join(leak.before))}",
            line=leak.row.line,
            severity="warning",
            try_this="no harm where evidence is rewritten or the model quotes itself; say so in the card",
        )
    _check_labels(rows, findings)


def _leak(row: Prompted, rows: Sequence[Prompted]) -> _Leak | None:
    others = [other for other in rows[:: max(1, len(rows) // SAMPLE)] if other is not row]
    for gold in row.golds:
        for spot in row.places(gold):
            if not _boilerplate(gold, spot, others):
                return _Leak(row, gold, spot.before, f" {gold} " not in row.delivered)
    return None


def _boilerplate(gold: str, spot: Spot, others: Sequence[Prompted]) -> bool:
    of_others = [other for other in others if gold not in other.golds]
    holding = sum(1 for other in of_others if any(map(spot.resembles, other.places(gold))))
    return len(of_others) >= FEW and 2 * holding >= len(of_others)


def _announced(leaks: Sequence[_Leak], rows: Sequence[Prompted]) -> set[tuple[str, ...]]:
    """One or two words that precede the gold in many prompts, and mostly the gold: `gold answer`, but not `title`."""
    by_words: dict[tuple[str, ...], list[_Leak]] = {}
    for leak in leaks:
        for words in {leak.before, leak.before[-1:]} - {()}:
            by_words.setdefault(words, []).append(leak)
    found = set()
    for words, those in by_words.items():
        if len(those) >= FEW and _severity(len(those), len(rows)) == "error":
            text = f" {' '.join(words)} "
            if 2 * len(those) >= sum(message.count(text) for leak in those for message in leak.row.messages):
                found.add(words)
    return found


def _check_labels(rows: Sequence[Prompted], findings: Findings) -> None:
    for row in rows:
        delivered = "\n".join(passage.full_text for passage in row.corpus.get(row.passages))
        label = next((m for text in row.raw if (m := _LABEL.search(text)) and m[0] not in delivered), None)
        if label:
            findings.add(
                "labels_in_prompt",
                "a prompt holds labels that say which evidence is right",
                f"question {shown(row.question.id)}: {shown(label[0])}",
                line=row.line,
                try_this="build prompts from what a query gives: id, text, candidates",
            )
    named = [(row, *_named(row)) for row in rows if row.question.evidence]
    foreign = [row for row, _, unknown in named if unknown]
    for row in foreign:
        findings.add(
            "gold_ids_in_prompt",
            "a prompt names positive passages that were neither candidates nor retrieved",
            f"question {shown(row.question.id)}",
            line=row.line,
        )
    marked = [row for row, only_gold, unknown in named if only_gold and not unknown]
    for row in marked:
        findings.add(
            "gold_marked_in_prompt",
            f"of the delivered passages a prompt names just the positives by their ids: {_share(marked, named)}",
            f"question {shown(row.question.id)}",
            line=row.line,
            severity=_severity(len(marked), len(named)),
            try_this="name every delivered passage in the same way, or none",
        )


def _named(row: Prompted) -> tuple[bool, bool]:
    """Whether just the positives among several delivered passages are named, and whether unavailable ones are."""
    gold = {identifier.partition(SENTENCE_MARK)[0] for identifier in row.question.evidence}
    given = {*row.passages, *(row.question.candidates or ())}
    named = {identifier for identifier in gold | given if any(identifier in text for text in row.raw)}
    return bool(named) and named == gold & given and bool(set(row.passages) - gold), bool(named & gold - given)


def _severity(count: int, of: int) -> Severity:
    many = count >= FEW or 2 * count > of
    return "error" if count and many and count >= SHARE * of else "warning"


def _share(found: Sequence[object], of: Iterable[object]) -> str:
    total = sum(1 for _ in of)
    return f"{len(found)} of {total} prompts ({100 * len(found) / total:.1f} %)"
