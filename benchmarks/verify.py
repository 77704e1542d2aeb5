"""Does a dataset hold what its card says, and what of it should a reader of scores know?

Every question about it becomes a `Finding`. Red: it is not what it claims to be. Yellow: it may be used, and more than
one question in twenty is touched by an oddity, or records are missing. Notes and what is fine do not change the color.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.fingerprint import file_sha256
from benchmarks.io.files import archive_of, recorded
from benchmarks.io.hub import stated_sizes
from benchmarks.leakage import THRESHOLD, near_duplicates
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.sources import MADE, Availability
from benchmarks.text import is_scorable_gold
from benchmarks.text_batch import normalize_all

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS = 24


@dataclass(frozen=True)
class Distribution:
    """Distribution of an integer.

    Attributes:
        values: Sorted. Shape (n,).
    """

    values: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, values: Iterable[int]) -> Distribution:
        """Compute the distribution of values in any order."""
        return cls(np.sort(np.asarray(values if isinstance(values, array) else list(values), dtype=np.int64)))

    @property
    def mean(self) -> float:
        """Return the mean; 0 without values."""
        return float(self.values.mean()) if len(self.values) else 0.0

    @property
    def quantiles(self) -> tuple[int, ...]:
        """Return the values at `QUANTILES`: the smallest that so great a share of all does not exceed."""
        if not len(self.values):
            return (0,) * len(QUANTILES)
        return tuple(int(v) for v in np.quantile(self.values, QUANTILES, method="inverted_cdf"))

    def histogram(self, bins: int = BINS) -> list[tuple[float, float, int]]:
        """Lower edge, upper edge and count of each bin; few different whole numbers get a bin each.

        Where the longest is more than a hundred times the median, bins grow by a constant factor instead.
        """
        if not len(self.values):
            return []
        low, high = int(self.values[0]), int(self.values[-1])
        if high - low < bins:
            edges = np.arange(low, high + 2, dtype=np.float64)
        elif low > 0 and high > 100 * max(1, int(np.median(self.values))):
            edges = np.geomspace(low, high + 1, bins + 1)
        else:
            edges = np.linspace(low, high + 1, bins + 1)
        counts, edges = np.histogram(self.values, edges)
        return [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return number, mean, quantiles by share, and the histogram."""
        quantiles = {f"{share:g}": value for share, value in zip(QUANTILES, self.quantiles, strict=True)}
        return {"n": len(self.values), "mean": self.mean, "quantiles": quantiles, "histogram": self.histogram()}


@dataclass(frozen=True)
class Statistics:
    """Statistics of a benchmark.

    Attributes:
        counts: Numbers by name: questions, passages, documents, answerable …
        types: Questions by type.
        words, characters: Lengths of questions, answers, passages and documents, where there are any.
        each: Per question: answers, wordings (answers with aliases), evidence, supporting facts, triples, candidates.
    """

    counts: Mapping[str, int]
    types: Mapping[str, int]
    words: Mapping[str, Distribution]
    characters: Mapping[str, Distribution]
    each: Mapping[str, Distribution]

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as JSON."""
        measured = {"words": self.words, "characters": self.characters, "per_question": self.each}
        of_each = {name: {key: item.to_json() for key, item in distributions.items()} for name, distributions in measured.items()}
        return {"counts": self.counts, "types": self.types, **of_each}


def statistics(benchmark: Benchmark) -> Statistics:
    """Return count and measure a benchmark; a word is what lies between white space, passages are measured without titles."""
    questions = benchmark.questions
    passages, documents = _passages(benchmark)
    texts = {
        "questions": _lengths(question.text for question in questions),
        "answers": _lengths(answer for question in questions for answer in question.answers),
        "passages": passages,
        "documents": documents,
    }
    texts = {name: lengths for name, lengths in texts.items() if len(lengths[0])}
    listed = [question for question in questions if question.candidates is not None]
    each: dict[str, Sequence[int]] = {
        "answers": [len(question.answers) for question in questions],
        "wordings": [len(question.golds) for question in questions],
        "evidence": [len(question.evidence) for question in questions],
        "supporting facts": [len(question.supporting_facts) for question in questions],
        "triples": [len(question.triples) for question in questions],
        "candidates": [len(question.candidates or ()) for question in listed],
        "topic entities": [len(question.topic_entities) for question in questions],
    }
    counts = {
        "questions": len(questions),
        "answerable": sum(question.answerable for question in questions),
        "with gold answers": sum(bool(question.golds) for question in questions),
        "with evidence": sum(bool(question.evidence) for question in questions),
        "with candidates": len(listed),
        "passages": len(benchmark.corpus),
        "documents": len(documents[0]),
        "skipped records": len(benchmark.skipped),
    }
    return Statistics(
        counts,
        dict(Counter(question.type or "(none)" for question in questions).most_common()),
        {name: Distribution.of(lengths[0]) for name, lengths in texts.items()},
        {name: Distribution.of(lengths[1]) for name, lengths in texts.items()},
        {name: Distribution.of(values) for name, values in each.items() if any(values)},
    )


Lengths = tuple["array[int]", "array[int]"]
"""Words and characters of each text."""


def _lengths(texts: Iterable[str]) -> Lengths:
    words, characters = array("q"), array("q")
    for text in texts:
        words.append(len(text.split()))
        characters.append(len(text))
    return words, characters


def _passages(benchmark: Benchmark) -> tuple[Lengths, Lengths]:
    """Return lengths of passages, and of the documents that they make up, in one pass over the corpus."""
    passages: Lengths = (array("q"), array("q"))
    documents: dict[str, list[int]] = {}
    for passage in benchmark.corpus:
        words, characters = len(passage.text.split()), len(passage.text)
        passages[0].append(words)
        passages[1].append(characters)
        if passage.document_id is not None:
            total = documents.setdefault(passage.document_id, [0, 0])
            total[0] += words
            total[1] += characters
    sums = documents.values()
    return passages, (array("q", [s[0] for s in sums]), array("q", [s[1] for s in sums]))


GREEN, NOTE, YELLOW, RED = "green", "note", "yellow", "red"
TOLERATED = 0.05
"""Share of questions from which an oddity is more than a note."""
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One question about a dataset and its answer.

    Attributes:
        name: What was looked at.
        status: `green`, `note`, `yellow` or `red`.
        detail: What was found; "" where there is nothing to say.
        examples: Ids of the first questions (or pairs of them) that are meant.
    """

    name: str
    status: str
    detail: str = ""
    examples: tuple[str, ...] = ()


def color(findings: Iterable[Finding]) -> str:
    """Return the color of a whole: the worst of its findings'."""
    results = {finding.status for finding in findings}
    return RED if RED in results else YELLOW if YELLOW in results else GREEN


def examine(benchmark: Benchmark, *, partial: bool = False) -> list[Finding]:
    """Check one loaded split, and return all findings.

    Args:
        benchmark: A single split.
        partial: Whether it may hold fewer questions than the card says.
    """
    return [
        size(benchmark, partial=partial),
        skipped(benchmark),
        unique_ids(benchmark.questions),
        repeated(benchmark.questions),
        missing_golds(benchmark.questions),
        empty_golds(benchmark.questions),
        absent_evidence(benchmark),
        *(Finding("reported by the loader", NOTE, note) for note in benchmark.extra.get("notes", ())),
    ]


def size(benchmark: Benchmark, *, partial: bool) -> Finding:
    """Return the number of questions against the card's, or against that of the layout that the file is in."""
    name, reference = "as many questions as the card says", benchmark.reference
    expected = benchmark.extra.get("expected", benchmark.card.splits_of(reference.subset)[reference.split or ""])
    held = len(benchmark.questions) + len(benchmark.skipped)
    if expected is None:
        return Finding(name, NOTE, f"{held:,}; the card gives no number")
    if held == expected or benchmark.card.hub_id is None:
        # What is generated has as many as it is asked for.
        return Finding(name, GREEN, f"{held:,}")
    if held < expected and partial:
        return Finding(name, NOTE, f"{held:,} of {expected:,} (partial)")
    hint = "; a cut of it needs --partial" if held < expected else ""
    return Finding(name, RED, f"{held:,}, the card says {expected:,}{hint}")


def vouched(benchmark: Benchmark, position: Availability) -> Finding:
    """Check whether the files are verified: by a pinned commit of the hub, or by a SHA256SUMS file next to them."""
    name, source = "files are those that somebody vouches for", benchmark.extra.get("source")
    if source:
        # The hub's client has compared every file with what the hub states of it.
        unpinned = "" if source["pinned"] else ", not pinned"
        return Finding(name, NOTE if unpinned else GREEN, f"{source['hub']} at {source['revision']}{unpinned}")
    if position.state == MADE:
        return Finding(name, GREEN, "generated")
    files = [path if (archive := archive_of(path)) is None else archive[0] for path in position.paths]
    # Files that differ from what it records are refused when they are found.
    listed = bool(files) and all(file.name in recorded(file.parent) for file in files)
    return Finding(name, GREEN, "SHA256SUMS") if listed else Finding(name, NOTE, "no SHA256SUMS beside them")


def skipped(benchmark: Benchmark) -> Finding:
    """Return records that `skip_bad` left out."""
    positions = tuple(f"{item.where}: {item.reason}" for item in benchmark.skipped[:EXAMPLES])
    if not benchmark.skipped:
        return Finding("no record was left out", GREEN)
    return Finding("no record was left out", YELLOW, f"{len(benchmark.skipped):,} were left out (skip_bad)", positions)


def unique_ids(questions: Sequence[Question]) -> Finding:
    """Return ids, and the opaque ids that methods see."""
    seen = Counter(question.id for question in questions)
    again = [identifier for identifier, times in seen.items() if times > 1]
    opaque = len({question.query_id for question in questions})
    if again or opaque < len(seen):
        return Finding("ids are unique", RED, f"{len(again) or len(seen) - opaque:,} are not", tuple(again[:EXAMPLES]))
    return Finding("ids are unique", GREEN)


def repeated(questions: Sequence[Question]) -> Finding:
    """Return questions that say the same as an earlier one once normalized, about the same document or passages."""
    normal = normalize_all([question.text for question in questions])
    earlier: dict[tuple[str, str | None], list[Question]] = {}
    again = []
    for question, text in zip(questions, normal, strict=True):
        alike = earlier.setdefault((text, question.document_id), [])
        # Many documents are asked the same ("what is the title?"), and MuSiQue has its unanswerable twins.
        if any(list(question.candidates or ()) == list(other.candidates or ()) for other in alike):
            again.append(question.id)
        alike.append(question)
    return _share("no question stands twice", again, len(questions), "repeat an earlier one")


def missing_golds(questions: Sequence[Question]) -> Finding:
    """Check that answerable questions have a gold answer; a split may hide all answers if it has evidence to score rankings by."""
    name = "questions have gold answers"
    without = [question.id for question in questions if question.answerable and not question.golds]
    if without and len(without) == sum(question.answerable for question in questions):
        if any(question.evidence for question in questions):
            return Finding(name, NOTE, "no question has one in the file: only rankings can be scored")
        return Finding(
            name, YELLOW, "no question has an answer or evidence: only judges that compare answers without gold can score these questions"
        )
    return _share(name, without, len(questions), "have none")


def empty_golds(questions: Sequence[Question]) -> Finding:
    """Return golds that normalize to nothing ("A", "The The"): they equal and lie in anything, so nothing scores them."""
    name = "gold answers say something once normalized"
    some = [q.id for q in questions if q.golds and not all(map(is_scorable_gold, q.golds))]
    none = [q.id for q in questions if q.golds and not any(map(is_scorable_gold, q.golds))]
    what = "have one that does not" + (f" ({len(none):,} have no other and cannot be scored)" if none else "")
    return _share(name, some, len(questions), what)


def absent_evidence(benchmark: Benchmark) -> Finding:
    """Return questions with a positive that the corpus does not hold: no method can find it."""
    corpus = benchmark.corpus
    absent = [q.id for q in benchmark.questions if not all(identifier in corpus for identifier in q.evidence)]
    name = "gold evidence is in the corpus"
    if not any(question.evidence for question in benchmark.questions):
        return Finding(name, NOTE, "no question names any")
    return _share(name, absent, len(benchmark.questions), "name some that is not")


def between(first: Benchmark, second: Benchmark, threshold: float = THRESHOLD) -> Finding:
    """Return questions of one split that are nearly those of another (`leakage.py`)."""
    mine, others = ([question.text for question in item.questions] for item in (first, second))
    pairs = near_duplicates(mine, others, threshold)
    touched = {pair.second for pair in pairs}
    closest = sorted(pairs, key=lambda pair: -pair.similarity)[:EXAMPLES]
    examples = tuple(f"{first.questions[pair.first].id} ~ {second.questions[pair.second].id} ({pair.similarity:.2f})" for pair in closest)
    name = f"no question of {second.reference} is nearly one of {first.reference}"
    return _share(name, examples, len(second.questions), "are", count=len(touched))


def _share(name: str, ids: Sequence[str], total: int, what: str, *, count: int | None = None) -> Finding:
    number = len(ids) if count is None else count
    if not number:
        return Finding(name, GREEN)
    status = YELLOW if number > TOLERATED * total else NOTE
    return Finding(name, status, f"{number:,} of {total:,} {what}", tuple(ids[:EXAMPLES]))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded state of a split: its files' SHA-256 by name, and the statistics of the loaded benchmark."""

    files: Mapping[str, str]
    questions: int
    passages: int
    fingerprint: str


def record(benchmark: Benchmark, paths: Sequence[Path]) -> Recorded:
    """Return the record of a split that was loaded from files."""
    source = benchmark.extra.get("source")
    archives = [archive_of(path) for path in paths]
    files = [path if position is None else position[0] for path, position in zip(paths, archives, strict=True)]
    hashes = dict(source["files"]) if source else {file.name: file_sha256(file) for file in files}
    return Recorded(hashes, len(benchmark.questions), len(benchmark.corpus), benchmark.fingerprint)


def write_records(path: Path, records: Mapping[str, Recorded]) -> None:
    """Keep records, by data reference; those that the file holds of other references stay.

    Raises:
        UserError: The file is there and holds something else, or cannot be written.
    """
    kept = read_records(path) if path.exists() else {}
    united = {name: asdict(item) for name, item in sorted({**kept, **records}.items())}
    try:
        partial = path.with_name(f"{path.name}.part")
        partial.write_text(json.dumps(united, indent=1, ensure_ascii=False) + "\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        raise unwritable(error, path) from error


def read_records(path: Path) -> dict[str, Recorded]:
    """Return records by data reference.

    Raises:
        UserError: There is no such file, or it is not one of `write_records`.
    """
    try:
        value: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        return {name: Recorded(**item) for name, item in value.items()}
    except OSError as error:
        raise UserError(f"this file cannot be read: {error.strerror}", code="unreadable-file", where=str(path)) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"this is not a file of recorded hashes: {error}",
            code="not-hash-file",
            where=str(path),
            try_this="write one: ragmeter data check REF -o FILE",
        ) from error


def against(result: Recorded, wanted: Recorded | None) -> Finding:
    """Return a split against what was recorded of it."""
    name = "files and content are those recorded"
    if wanted is None:
        return Finding(name, YELLOW, "the file has no record of it")
    for label, now, then in (
        *((file, result.files.get(file), sha) for file, sha in wanted.files.items()),
        *((file, sha, wanted.files.get(file)) for file, sha in result.files.items()),
        ("questions", result.questions, wanted.questions),
        ("passages", result.passages, wanted.passages),
        ("fingerprint", result.fingerprint, wanted.fingerprint),
    ):
        if now != then:
            return Finding(name, RED, f"{label}: it is {_show_value(now)}, recorded is {_show_value(then)}")
    return Finding(name, GREEN)


def _show_value(value: object) -> str:
    return "nothing" if value is None else str(value)


# The number in a dataset's card is the authors'; a repository on the hub states its own, and is sometimes another
# release, a cut, or a script's output of long ago. A difference does not say who is wrong: both numbers are reported.


NAME = "as many records as the repository states"
_SHARD = re.compile(r"-\d{5}(-of-\d{5})?$")
_UNNAMED = "default"
"""Name that the hub gives to the only configuration of a repository."""

Sizes = Mapping[str, Mapping[str, int]]
"""Rows by configuration and split, as `hub_card.stated_sizes` gives them."""


def against_repository(benchmark: Benchmark, *, partial: bool) -> Finding | None:
    """Return a split from the hub against what its repository states of it; None where it is not from the hub.

    Args:
        benchmark: A single split.
        partial: Whether it may hold fewer.
    """
    source = benchmark.extra.get("source")
    if not source:
        return None
    try:
        sizes = stated_sizes(source["hub"], source["revision"])
    except UserError as error:
        return Finding(NAME, NOTE, f"not checked: {error.what}")
    if not sizes:
        return Finding(NAME, NOTE, f"{source['hub']} states no sizes")
    stated = stated_of(sizes, source["files"])
    if stated is None:
        listed = ", ".join(f"{config}/{split}" for config, splits in sizes.items() for split in splits)
        return Finding(NAME, NOTE, f"none of the sizes that {source['hub']} states clearly belongs to this split: {listed}")
    return compared(len(benchmark.questions) + len(benchmark.skipped), *stated, partial=partial)


def stated_of(sizes: Sizes, files: Iterable[str]) -> tuple[str, int] | None:
    """Return the configuration and split that files are of, by their names, and its stated rows; None where it is not plain.

    Files lie as `config/split-00000-of-00002.parquet`, `config/split/0000.parquet`, `data/split-….parquet` or
    `split.jsonl`.
    """
    words = [_split_words(file) for file in files]
    every = [(config, split) for config, splits in sizes.items() for split in splits]
    results = [(config, split) for config, split in every if words and all(split in of_one for of_one in words)]
    by_name = [(config, split) for config, split in results if all(config in of_one for of_one in words)]
    unnamed = [(config, split) for config, split in results if config == _UNNAMED or len(sizes) == 1]
    for plain in (by_name, unnamed):
        if len(plain) == 1:
            config, split = plain[0]
            return f"{config}/{split}", sizes[config][split]
    return None


def _split_words(file: str) -> set[str]:
    path = PurePosixPath(file)
    return {*path.parent.parts, _SHARD.sub("", path.stem)}


def compared(held: int, name: str, stated: int, *, partial: bool) -> Finding:
    """Return the finding on two numbers.

    Args:
        held: Records read, those left out included.
        name: Of the split on the hub.
        stated: Its rows as stated.
        partial: Whether fewer are expected.
    """
    if held == stated:
        return Finding(NAME, GREEN, f"{held:,}")
    both = f"{held:,} here, {stated:,} stated of {name}"
    if held < stated:
        meaning = "the files are a cut or another release than its card describes, or a record is not a question of its own"
        return Finding(NAME, NOTE if partial else YELLOW, f"{both}: {stated - held:,} fewer; {meaning}")
    meaning = "the repository grew after its card was written, or a record holds several questions"
    return Finding(NAME, YELLOW, f"{both}: {held - stated:,} more; {meaning}")
