"""Gold in prompts: whether a prompt states the answer, or marks the evidence, although no delivered text does.

Prompts and delivered texts (the question, topic entities, the passages of the row's evidence) are normalized to
tokens. A *place* is an occurrence of a gold answer in a message that the model did not write itself (role
`assistant` is its own). A place is **explained** when

- the answer together with its two neighbors on one side is in a delivered text: it is a copy, cut at one end
  perhaps; or
- it can be the title of a delivered passage: a title that is not followed by its text accounts for one place per
  message; or
- it is boilerplate: the answer stands unexplained next to the same word in most of a sample of other questions'
  prompts (instructions, worked examples, "answer yes or no").

What is left is a leak for certain (`from nowhere`) where no delivered text holds the answer at all, or where the same
words announce it in prompt after prompt ("gold answer:"): an error once it concerns more than a few questions. Other
places are warnings: a passage in other words, a note of an earlier step that was not marked as the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from benchmarks import registry as datasets
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from benchmarks.text import normalize
from benchmarks.worlds.world import TEST
from methods.api import Prediction
from results.store import answer_queries, queries
from results.store.store import Store
from results.store.variants import covers, questions_of
from results.submission import Findings, Severity, shown
from results.submission.card import Card, TrainingPart
from results.submission.rows import PROMPT

LoadTraining = Callable[[str], Mapping[str, str]]
"""Function from a data reference to its question texts by id; raises a UserError if they are not on this machine."""
WORLDS = "worlds"
_SEEDS = re.compile(r"\s*(\d{1,10})(?:\s*(?:-|–|\.\.)\s*(\d{1,10}))?\s*")


def contamination(card: Card, benchmark: Benchmark, load: LoadTraining | None, findings: Findings) -> tuple[str, ...]:
    """Check the declared training data for overlap with the test questions (contamination).

    A training set overlaps in any of four cases: its reference covers the evaluated split (a reference without split covers
    all); it names seeds of test worlds; it lists ids of test questions; or one of its questions has the id (within one dataset)
    or the normalized text of a test question.

    Args:
        card: The card with its declared training data.
        benchmark: The evaluated benchmark.
        load: Loads the questions of a data reference; None compares only references.
        findings: Receives a warning per overlapping training set, and a note per set that could not be compared.

    Returns:
        One sentence per overlapping training set.
    """
    results: list[str] = []
    compared = _Compared(benchmark, load) if load is not None else None
    for number, data in enumerate(card.training_data, 1):
        label = f"training data {number} ({shown(data.reference or data.name)})"
        reasons = [*_by_reference(data, benchmark), *_by_seed(data, benchmark, findings), *_by_id(data, benchmark)]
        # The names in worlds are drawn, so equal questions of different worlds are chance; seeds decide there.
        own_world = data.reference and DataReference.parse(data.reference).name == WORLDS
        if not reasons and data.reference and not own_world and compared is not None:
            reasons = compared.reasons(data.reference, label, findings)
        if not reasons and _sounds_like(data, benchmark):
            findings.listed("training_data_unclear", label)
        results += [f"{label} {reason}" for reason in reasons]
    for sentence in results:
        findings.listed("contaminated", sentence)
    return tuple(results)


def _by_reference(data: TrainingPart, benchmark: Benchmark) -> Iterator[str]:
    if not data.reference or not covers(data.reference, benchmark.name):
        return
    value, evaluated = questions_of(data.reference), questions_of(benchmark.name)
    if value.split is None:
        yield f"names no split, so it covers {benchmark.reference}"
    else:
        requests = set((evaluated.split or "").split("+"))
        # A split may hold another's questions under its own name.
        yield f"covers the evaluated split {'+'.join(sorted(set(value.split.split('+')) & requests or requests))}"


def _by_seed(data: TrainingPart, benchmark: Benchmark, findings: Findings) -> Iterator[str]:
    reference = DataReference.parse(data.reference) if data.reference else None
    if reference and reference.name == WORLDS and "test" in (reference.split or "").split("+"):
        yield "is a split of test worlds"
    evaluated = {
        question.metadata["seed"] for question in benchmark.questions if benchmark.reference.name == WORLDS and "seed" in question.metadata
    }
    for part in filter(None, data.seeds.split(",")):
        match = _SEEDS.fullmatch(part)
        if not match:
            findings.listed("bad_seeds", shown(part))
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= TEST.start:
            yield f"holds seeds of test worlds ({part.strip()})"
        elif any(first <= seed <= last for seed in evaluated):
            yield f"holds the evaluated worlds ({part.strip()})"


def _by_id(data: TrainingPart, benchmark: Benchmark) -> Iterator[str]:
    listed = set(data.question_ids)
    same = sum(1 for question in benchmark.questions if listed and {question.id, question.query_id} & listed)
    if same:
        yield f"lists {same} of the evaluated questions"


class _Compared:
    """Comparison of declared data by their questions; each reference is loaded once, even if a card repeats it."""

    def __init__(self, benchmark: Benchmark, load: LoadTraining) -> None:
        self._benchmark, self._load = benchmark, load
        self._known: dict[DataReference, list[str] | UserError] = {}

    def reasons(self, text: str, label: str, findings: Findings) -> list[str]:
        value = DataReference.parse(text)
        # The order of splits makes no other data, nor does naming one twice.
        reference = replace(value, split="+".join(sorted(set(value.split.split("+")))) if value.split else None)
        if reference not in self._known:
            try:
                self._known[reference] = _by_content(reference.name, self._load(str(reference)), self._benchmark)
            except UserError as error:
                self._known[reference] = error
        result = self._known[reference]
        if isinstance(result, UserError):
            findings.listed("training_data_not_compared", f"{label}: {result.what}")
            return []
        return result


def _by_content(name: str, questions: Mapping[str, str], benchmark: Benchmark) -> list[str]:
    texts = set(map(normalize, questions.values()))
    equal = {question.id for question in benchmark.questions if normalize(question.text) in texts}
    if name == benchmark.reference.name:
        named = sum(1 for question in benchmark.questions if question.id in questions and question.id not in equal)
        if named:
            return [f"has {named} question ids of the evaluated split"]
    return [f"has {len(equal)} of the evaluated questions word for word"] if equal else []


def _sounds_like(data: TrainingPart, benchmark: Benchmark) -> bool:
    stripped = re.sub(r"[^a-z0-9]", "", data.name.lower())
    names = (benchmark.reference.name, benchmark.card.title)
    return not data.reference and any(re.sub(r"[^a-z0-9]", "", name.lower()) in stripped for name in names)


def training_loader() -> LoadTraining:
    """Return a function that loads the questions of a data reference with the dataset's default options."""
    return lambda reference: {question.id: question.text for question in datasets.load(reference).questions}


SHARE = 0.05
"""Minimum share of prompts with a leak that is not a coincidence."""
FEW = 3
"""Number of leaks below which they count as a coincidence, unless they are most of the prompts."""
SAMPLE = 40
"""Number of other questions' prompts that are searched for an answer to detect boilerplate."""
_NEIGHBORS = 2
_OPENING = 200
"""Characters at the start of a text that contain its first words."""
_LABEL = re.compile(
    r"\b(is_?supporting|is_?gold|is_?positive|has_?answer|gold_?evidence)\b[\"']?\s*[:=]\s*[\"']?"
    r"(true|false|yes|no|[01])\b",
    re.IGNORECASE,
)


class Spot(NamedTuple):
    """Words around a position in a prompt: the two before and the one after; fewer at the edges of a message."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    def resembles(self, other: Spot) -> bool:
        """Return whether two positions share a neighboring word, or the same edge of a message."""
        return self.before[-1:] == other.before[-1:] or self.after == other.after


@dataclass(frozen=True)
class Prompted:
    """Submitted row with its prompts, its question, and the passages that the prompts may contain."""

    line: int
    question: Question
    prediction: Prediction
    corpus: Corpus

    @cached_property
    def passages(self) -> tuple[str, ...]:
        """Return the ids of the passages that the method received."""
        ids = dict.fromkeys(item.id for item in self.prediction.evidence)
        return tuple(identifier for identifier in ids if identifier in self.corpus)

    @cached_property
    def delivered(self) -> str:
        """Return all texts that the method received, as one tokenized string with separators."""
        passages = self.corpus.get(self.passages)
        texts = [self.question.text, *self.question.topic_entities, *(passage.full_text for passage in passages)]
        return "\n".join(f" {normalize(text)} " for text in texts)

    @cached_property
    def titles(self) -> tuple[tuple[str, str], ...]:
        """Return the tokenized titles of the received passages, each also followed by the first words of its text."""
        passages = self.corpus.get(self.passages)
        pairs = ((normalize(passage.title), normalize(passage.text[:_OPENING]).split()[:_NEIGHBORS]) for passage in passages)
        return tuple((f" {title} ", f" {' '.join((title, *opening))} ") for title, opening in pairs if title)

    @cached_property
    def raw(self) -> tuple[str, ...]:
        """Return the prompt messages that the model did not write."""
        return tuple(note["content"] for note in self.prediction.notes[PROMPT] if note["role"] != "assistant")

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """Return these messages, normalized, each between spaces."""
        return tuple(f" {normalize(text)} " for text in self.raw)

    @cached_property
    def golds(self) -> tuple[str, ...]:
        """Return the accepted answers as tokens; answers without tokens are left out."""
        return tuple(dict.fromkeys(filter(None, (normalize(gold) for gold in self.question.golds))))

    def positions(self, gold: str) -> list[Spot]:
        """Return the positions of an answer in the prompts that no received passage or question text explains."""
        if gold not in self._positions:
            self._positions[gold] = [spot for message in self.messages for spot in self._open(gold, message)]
        return self._positions[gold]

    @cached_property
    def _positions(self) -> dict[str, list[Spot]]:
        return {}

    def _open(self, gold: str, message: str) -> list[Spot]:
        if f" {gold} " not in message:
            return []
        words, size = message.split(), gold.count(" ") + 1
        results = [
            Spot(tuple(words[max(0, at - _NEIGHBORS) : at]), tuple(words[at + size : at + size + 1]))
            for at in _occurrences(words, gold.split(), size)
            if not self._copied(words, at, at + size)
        ]
        alone = sum(f" {gold} " in title and with_text not in message for title, with_text in self.titles)
        return results[alone:]

    def _copied(self, words: Sequence[str], start: int, end: int) -> bool:
        around = (words[max(0, start - _NEIGHBORS) : end], words[start : end + _NEIGHBORS])
        # At the edge of a message there are fewer neighbors; the answer by itself explains nothing.
        return any(len(part) == end - start + _NEIGHBORS and f" {' '.join(part)} " in self.delivered for part in around)


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
    """Search the prompts for gold answers that do not come from passages or questions, and add errors or warnings to the findings."""
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
        findings.listed(
            "gold_in_prompt",
            f"question {shown(leak.row.question.id)}: {shown(leak.gold)}{by}, {origin}",
            line=leak.row.line,
            share=_share(certain, checked),
            severity=severity,
        )
    known = {id(leak) for leak in certain}
    others = [leak for leak in leaks if id(leak) not in known]
    for leak in others:
        findings.listed(
            "gold_in_other_words",
            f"question {shown(leak.row.question.id)}: {shown(leak.gold)} after {shown(' '.join(leak.before))}",
            line=leak.row.line,
            share=_share(others, checked),
        )
    _check_labels(rows, findings)


def _leak(row: Prompted, rows: Sequence[Prompted]) -> _Leak | None:
    others = [other for other in rows[:: max(1, len(rows) // SAMPLE)] if other is not row]
    for gold in row.golds:
        for spot in row.positions(gold):
            if not _boilerplate(gold, spot, others):
                return _Leak(row, gold, spot.before, f" {gold} " not in row.delivered)
    return None


def _boilerplate(gold: str, spot: Spot, others: Sequence[Prompted]) -> bool:
    of_others = [other for other in others if gold not in other.golds]
    holding = sum(1 for other in of_others if any(map(spot.resembles, other.positions(gold))))
    return len(of_others) >= FEW and 2 * holding >= len(of_others)


def _announced(leaks: Sequence[_Leak], rows: Sequence[Prompted]) -> set[tuple[str, ...]]:
    """Return one or two words that precede the gold in many prompts and rarely other text: `gold answer`, but not `title`."""
    by_words: dict[tuple[str, ...], list[_Leak]] = {}
    for leak in leaks:
        for words in {leak.before, leak.before[-1:]} - {()}:
            by_words.setdefault(words, []).append(leak)
    results = set()
    for words, those in by_words.items():
        if len(those) >= FEW and _severity(len(those), len(rows)) == "error":
            text = f" {' '.join(words)} "
            if 2 * len(those) >= sum(message.count(text) for leak in those for message in leak.row.messages):
                results.add(words)
    return results


def _check_labels(rows: Sequence[Prompted], findings: Findings) -> None:
    for row in rows:
        delivered = "\n".join(passage.full_text for passage in row.corpus.get(row.passages))
        label = next((m for text in row.raw if (m := _LABEL.search(text)) and m[0] not in delivered), None)
        if label:
            findings.listed("labels_in_prompt", f"question {shown(row.question.id)}: {shown(label[0])}", line=row.line)
    named = [(row, *_named(row)) for row in rows if row.question.evidence]
    foreign = [row for row, _, unknown in named if unknown]
    for row in foreign:
        findings.listed("gold_ids_in_prompt", f"question {shown(row.question.id)}", line=row.line)
    marked = [row for row, only_gold, unknown in named if only_gold and not unknown]
    for row in marked:
        findings.listed(
            "gold_marked_in_prompt",
            f"question {shown(row.question.id)}",
            line=row.line,
            share=_share(marked, named),
            severity=_severity(len(marked), len(named)),
        )


def _named(row: Prompted) -> tuple[bool, bool]:
    """Return whether exactly the positives among several delivered passages are marked, and whether unavailable ones are."""
    gold = set(row.question.evidence)
    options = {*row.passages, *(row.question.candidates or ())}
    named = {identifier for identifier in gold | options if any(identifier in text for text in row.raw)}
    return bool(named) and named == gold & options and bool(set(row.passages) - gold), bool(named & gold - options)


def _severity(count: int, of: int) -> Severity:
    many = count >= FEW or 2 * count > of
    return "error" if count and many and count >= SHARE * of else "warning"


def _share(results: Sequence[object], of: Iterable[object]) -> str:
    total = sum(1 for _ in of)
    return f"{len(results)} of {total} prompts ({100 * len(results) / total:.1f} %)"


def stored_training(store: Store) -> LoadTraining:
    """Return a function that loads the questions of a data reference only from a store, never from a dataset.

    Args:
        store: The store; it has the questions of benchmarks that were run. Each is read once.
    """

    @cache
    def stored_data() -> dict[str, DataReference]:
        return {data: DataReference.parse(item["reference"]) for data, item in queries.datasets(store).items()}

    @cache
    def asked(data: str) -> dict[str, str]:
        return {row.question: row.text for row in answer_queries.questions(store, data)}

    def load(reference: str) -> Mapping[str, str]:
        results = {name: text for data in _within(DataReference.parse(reference), stored_data()) for name, text in asked(data).items()}
        if not results:
            raise UserError("the store has no questions of this data", code="unknown-question")
        return results

    return load


def _within(wanted: DataReference, known: dict[str, DataReference]) -> Iterator[str]:
    """Yield fingerprints of the stored data within a reference; those with more data would prove too much."""
    splits = set((wanted.split or "").split("+"))
    for data, stored in known.items():
        if (
            stored.name == wanted.name
            and wanted.subset in (None, stored.subset)
            and (wanted.split is None or set((stored.split or "").split("+")) <= splits)
        ):
            yield data
