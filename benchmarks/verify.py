"""Check whether a dataset matches its card, and which of its properties affect scores.

Each check returns a `Finding`. Red: the data is not what its card claims. Yellow: usable, but records are missing, or more than
one question in twenty is affected by a peculiarity. Notes and green findings do not change the overall color.
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

from benchmarks.availability import MADE, Availability
from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.fingerprint import file_sha256
from benchmarks.io.files import archive_of, recorded
from benchmarks.io.hub import stated_sizes
from benchmarks.near_duplicates import THRESHOLD, near_duplicates
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.text import is_scorable_gold
from benchmarks.text_batch import normalize_all

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS = 24


@dataclass(frozen=True)
class Distribution:
    """Distribution of integers, with mean, quantiles and histogram.

    Attributes:
        values: Sorted. Shape (n,).
    """

    values: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, values: Iterable[int]) -> Distribution:
        """Build the distribution from values in any order."""
        return cls(np.sort(np.asarray(values if isinstance(values, array) else list(values), dtype=np.int64)))

    @property
    def mean(self) -> float:
        """Return the mean; 0 without values."""
        return float(self.values.mean()) if len(self.values) else 0.0

    @property
    def quantiles(self) -> tuple[int, ...]:
        """Return the quantiles at `QUANTILES`: for share q, the smallest value that at least q of all values do not exceed."""
        if not len(self.values):
            return (0,) * len(QUANTILES)
        return tuple(int(v) for v in np.quantile(self.values, QUANTILES, method="inverted_cdf"))

    def histogram(self, bins: int = BINS) -> list[tuple[float, float, int]]:
        """Return (lower edge, upper edge, count) per bin; a small number of distinct values get a bin each.

        If the maximum is more than 100 times the median, the bins are logarithmic.
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
        """Return count, mean, quantiles and histogram as JSON."""
        quantiles = {f"{share:g}": value for share, value in zip(QUANTILES, self.quantiles, strict=True)}
        return {"n": len(self.values), "mean": self.mean, "quantiles": quantiles, "histogram": self.histogram()}


@dataclass(frozen=True)
class Statistics:
    """Statistics of a benchmark.

    Attributes:
        counts: Counts by name: questions, passages, documents, answerable …
        types: Number of questions by type.
        words, characters: Length distributions of questions, answers, passages and documents, if present.
        each: Distribution of the number per question of answers, wordings (answers and aliases), evidence, supporting facts,
            triples and candidates.
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
    """Compute the statistics of a benchmark; words are separated by white space, and passage lengths exclude titles."""
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
    """Return the lengths of passages and documents, in one pass over the corpus."""
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
"""Fraction of affected questions above which a peculiarity turns yellow."""
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of a dataset.

    Attributes:
        name: Name of the check.
        status: `green`, `note`, `yellow` or `red`.
        detail: Explanation; "" if none is needed.
        examples: Ids of the first affected questions, or pairs of ids.
    """

    name: str
    status: str
    detail: str = ""
    examples: tuple[str, ...] = ()


def color(findings: Iterable[Finding]) -> str:
    """Return the worst status among the findings."""
    results = {finding.status for finding in findings}
    return RED if RED in results else YELLOW if YELLOW in results else GREEN


def examine(benchmark: Benchmark, *, partial: bool = False) -> list[Finding]:
    """Run all checks on one loaded split.

    Args:
        benchmark: A single split.
        partial: Whether fewer questions than the card states are acceptable.
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
    """Check the number of questions against the card, or against the file's layout if that differs."""
    name, reference = "number of questions", benchmark.reference
    expected = benchmark.extra.get("expected", benchmark.card.splits_of(reference.subset)[reference.split or ""])
    total = len(benchmark.questions) + len(benchmark.skipped)
    if expected is None:
        return Finding(name, NOTE, f"{total:,}; the card states no number to compare with")
    if total == expected or benchmark.card.hub_id is None:
        # What is generated has as many as it is asked for.
        return Finding(name, GREEN, f"{total:,}")
    if total < expected and partial:
        return Finding(name, NOTE, f"{total:,} of {expected:,} (partial)")
    hint = "; a cut of it needs --partial" if total < expected else ""
    return Finding(name, RED, f"{total:,}, the card says {expected:,}{hint}")


def files_verified(benchmark: Benchmark, position: Availability) -> Finding:
    """Check whether the files are verified, by a pinned hub commit or by a SHA256SUMS file next to them."""
    name, source = "files are verified", benchmark.extra.get("source")
    if source:
        # The hub's client has compared every file with what the hub states of it.
        unpinned = "" if source["pinned"] else ", not pinned"
        return Finding(name, NOTE if unpinned else GREEN, f"{source['hub']} at {source['revision']}{unpinned}")
    if position.state == MADE:
        return Finding(name, GREEN, "generated")
    files = [path if (archive := archive_of(path)) is None else archive[0] for path in position.paths]
    # Files that differ from what it records are refused when they are found.
    listed = bool(files) and all(file.name in recorded(file.parent) for file in files)
    return Finding(name, GREEN, "SHA256SUMS") if listed else Finding(name, NOTE, "unknown: there is no SHA256SUMS file next to them")


def skipped(benchmark: Benchmark) -> Finding:
    """Report the records that `skip_bad` skipped."""
    positions = tuple(f"{item.where}: {item.reason}" for item in benchmark.skipped[:EXAMPLES])
    if not benchmark.skipped:
        return Finding("no record was left out", GREEN)
    return Finding("no record was left out", YELLOW, f"{len(benchmark.skipped):,} were left out (skip_bad)", positions)


def unique_ids(questions: Sequence[Question]) -> Finding:
    """Check that question ids, and the opaque ids shown to methods, are unique."""
    seen = Counter(question.id for question in questions)
    again = [identifier for identifier, times in seen.items() if times > 1]
    opaque = len({question.query_id for question in questions})
    if again or opaque < len(seen):
        return Finding("ids are unique", RED, f"{len(again) or len(seen) - opaque:,} are not", tuple(again[:EXAMPLES]))
    return Finding("ids are unique", GREEN)


def repeated(questions: Sequence[Question]) -> Finding:
    """Report questions that duplicate an earlier one after normalization, about the same document or passages."""
    normal = normalize_all([question.text for question in questions])
    earlier: dict[tuple[str, str | None], list[Question]] = {}
    again = []
    for question, text in zip(questions, normal, strict=True):
        same_text = earlier.setdefault((text, question.document_id), [])
        # Many documents are asked the same ("what is the title?"), and MuSiQue has its unanswerable twins.
        if any(list(question.candidates or ()) == list(other.candidates or ()) for other in same_text):
            again.append(question.id)
        same_text.append(question)
    return _share("no question stands twice", again, len(questions), "repeat an earlier one")


def missing_golds(questions: Sequence[Question]) -> Finding:
    """Check that answerable questions have a gold answer; a split may hide all answers if it has evidence for ranking metrics."""
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
    """Report golds that are empty after normalization ("A", "The The"). They would match anything, so most metrics ignore them."""
    name = "gold answers say something once normalized"
    some = [q.id for q in questions if q.golds and not all(map(is_scorable_gold, q.golds))]
    none = [q.id for q in questions if q.golds and not any(map(is_scorable_gold, q.golds))]
    what = "have one that does not" + (f" ({len(none):,} have no other: only em can score them)" if none else "")
    return _share(name, some, len(questions), what)


def absent_evidence(benchmark: Benchmark) -> Finding:
    """Report questions with a positive passage that is missing from the corpus, which no method can retrieve."""
    corpus = benchmark.corpus
    absent = [q.id for q in benchmark.questions if not all(identifier in corpus for identifier in q.evidence)]
    name = "gold evidence is in the corpus"
    if not any(question.evidence for question in benchmark.questions):
        return Finding(name, NOTE, "no question names any")
    return _share(name, absent, len(benchmark.questions), "name some that is not")


def between(first: Benchmark, second: Benchmark, threshold: float = THRESHOLD) -> Finding:
    """Report near-duplicate questions between two splits (`near_duplicates`)."""
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
    """Recorded state of a split: SHA-256 by file name, and statistics of the loaded benchmark."""

    files: Mapping[str, str]
    questions: int
    passages: int
    fingerprint: str


def record(benchmark: Benchmark, paths: Sequence[Path]) -> Recorded:
    """Compute the state of a split (hashes and statistics) for later comparison with `against_record`."""
    source = benchmark.extra.get("source")
    archives = [archive_of(path) for path in paths]
    files = [path if position is None else position[0] for path, position in zip(paths, archives, strict=True)]
    hashes = dict(source["files"]) if source else {file.name: file_sha256(file) for file in files}
    return Recorded(hashes, len(benchmark.questions), len(benchmark.corpus), benchmark.fingerprint)


def write_records(path: Path, records: Mapping[str, Recorded]) -> None:
    """Save states by data reference; the file's other entries are kept.

    Raises:
        UserError: The file exists with other content, or cannot be written.
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
    """Load states by data reference.

    Raises:
        UserError: The file does not exist, or is not one of `write_records`.
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


def against_record(result: Recorded, wanted: Recorded | None) -> Finding:
    """Compare a split's state with the recorded one; None as `wanted` means that nothing was recorded."""
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
"""Number of rows by configuration and split (`hub_card.stated_sizes`)."""


def against_repository(benchmark: Benchmark, *, partial: bool) -> Finding | None:
    """Compare the number of records of a split from the hub with the sizes in its repository; None if it is not from the hub.

    Args:
        benchmark: A single split.
        partial: Whether fewer records are acceptable.
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
    expected = reported_size(sizes, source["files"])
    if expected is None:
        listed = ", ".join(f"{config}/{split}" for config, splits in sizes.items() for split in splits)
        return Finding(NAME, NOTE, f"none of the sizes that {source['hub']} states clearly belongs to this split: {listed}")
    return compared(len(benchmark.questions) + len(benchmark.skipped), *expected, partial=partial)


def reported_size(sizes: Sizes, files: Iterable[str]) -> tuple[str, int] | None:
    """Match files to a configuration and split by their names, and return its name and reported rows; None if ambiguous.

    Known layouts: `config/split-00000-of-00002.parquet`, `config/split/0000.parquet`, `data/split-….parquet` or `split.jsonl`.
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


def compared(counted: int, name: str, expected: int, *, partial: bool) -> Finding:
    """Compare the number of records read with the stated number of rows.

    Args:
        counted: Number of records read, including skipped ones.
        name: Name of the split on the hub.
        expected: Stated number of rows.
        partial: Whether fewer records are acceptable.
    """
    if counted == expected:
        return Finding(NAME, GREEN, f"{counted:,}")
    both = f"{counted:,} here, {expected:,} stated of {name}"
    if counted < expected:
        meaning = "the files are a cut or another release than its card describes, or a record is not a question of its own"
        return Finding(NAME, NOTE if partial else YELLOW, f"{both}: {expected - counted:,} fewer; {meaning}")
    meaning = "the repository grew after its card was written, or a record holds several questions"
    return Finding(NAME, YELLOW, f"{both}: {counted - expected:,} more; {meaning}")
