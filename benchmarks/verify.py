"""Does a dataset hold what its card says, and what of it should a reader of scores know?

Every question about it becomes a `Finding`. Red: it is not what it claims to be. Yellow: it may be used, and more than
one question in twenty is touched by an oddity, or records are missing. Notes and what is fine do not change the colour.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError, unwritable
from benchmarks.fingerprint import file_sha256
from benchmarks.near_duplicates import THRESHOLD, near_duplicates
from benchmarks.open_file import archive_of
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.text import is_scorable_gold
from benchmarks.text_batch import normalise_all

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


def colour(findings: Iterable[Finding]) -> str:
    """The colour of a whole: the worst of its findings'."""
    found = {finding.status for finding in findings}
    return RED if RED in found else YELLOW if YELLOW in found else GREEN


def examine(benchmark: Benchmark, *, partial: bool = False) -> list[Finding]:
    """Everything that one loaded split can be asked.

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
        *(Finding("said by the loader", NOTE, note) for note in benchmark.extra.get("notes", ())),
    ]


def size(benchmark: Benchmark, *, partial: bool) -> Finding:
    """The number of questions against the card's, or against that of the layout that the file is in."""
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


def skipped(benchmark: Benchmark) -> Finding:
    """Records that `skip_bad` left out."""
    places = tuple(f"{one.where}: {one.reason}" for one in benchmark.skipped[:EXAMPLES])
    if not benchmark.skipped:
        return Finding("no record was left out", GREEN)
    return Finding("no record was left out", YELLOW, f"{len(benchmark.skipped):,} were (skip_bad)", places)


def unique_ids(questions: Sequence[Question]) -> Finding:
    """Ids, and the opaque ids that methods see."""
    seen = Counter(question.id for question in questions)
    again = [identifier for identifier, times in seen.items() if times > 1]
    opaque = len({question.query_id for question in questions})
    if again or opaque < len(seen):
        return Finding("ids are unique", RED, f"{len(again) or len(seen) - opaque:,} are not", tuple(again[:EXAMPLES]))
    return Finding("ids are unique", GREEN)


def repeated(questions: Sequence[Question]) -> Finding:
    """Questions that say the same as an earlier one once normalised, about the same document or passages."""
    normal = normalise_all([question.text for question in questions])
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
    """Answerable questions without any gold answer; a split that hides all of them is no oddity."""
    name = "questions have gold answers"
    without = [question.id for question in questions if question.answerable and not question.golds]
    if without and len(without) == sum(question.answerable for question in questions):
        return Finding(name, NOTE, "none has any in the file: nothing can be scored")
    return _share(name, without, len(questions), "have none")


def empty_golds(questions: Sequence[Question]) -> Finding:
    """Golds that normalise to nothing ("A", "The The"): they equal and lie in anything, so nothing scores them."""
    name = "gold answers say something once normalised"
    some = [q.id for q in questions if q.golds and not all(map(is_scorable_gold, q.golds))]
    none = [q.id for q in questions if q.golds and not any(map(is_scorable_gold, q.golds))]
    what = "have one that does not" + (f" ({len(none):,} have no other and cannot be scored)" if none else "")
    return _share(name, some, len(questions), what)


def absent_evidence(benchmark: Benchmark) -> Finding:
    """Questions with a positive that the corpus does not hold: no method can find it."""
    corpus = benchmark.corpus
    absent = [q.id for q in benchmark.questions if not all(identifier in corpus for identifier in q.evidence)]
    name = "gold evidence is in the corpus"
    if not any(question.evidence for question in benchmark.questions):
        return Finding(name, NOTE, "no question names any")
    return _share(name, absent, len(benchmark.questions), "name some that is not")


def between(first: Benchmark, second: Benchmark, threshold: float = THRESHOLD) -> Finding:
    """Questions of one split that are nearly those of another (`near_duplicates`)."""
    mine, others = ([question.text for question in one.questions] for one in (first, second))
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


# --- recorded hashes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a split was when it was recorded: its files' SHA-256 by name, and what they loaded to."""

    files: Mapping[str, str]
    questions: int
    passages: int
    fingerprint: str


def record(benchmark: Benchmark, paths: Sequence[Path]) -> Recorded:
    """What there is to record of a split that was loaded from files."""
    source = benchmark.extra.get("source")
    archives = [archive_of(path) for path in paths]
    files = [path if place is None else place[0] for path, place in zip(paths, archives, strict=True)]
    hashes = dict(source["files"]) if source else {file.name: file_sha256(file) for file in files}
    return Recorded(hashes, len(benchmark.questions), len(benchmark.corpus), benchmark.fingerprint)


def write_records(path: Path, records: Mapping[str, Recorded]) -> None:
    """Keep records, by data reference; those that the file holds of other references stay.

    Raises:
        UserError: The file is there and holds something else, or cannot be written.
    """
    kept = read_records(path) if path.exists() else {}
    united = {name: asdict(one) for name, one in sorted({**kept, **records}.items())}
    try:
        partial = path.with_name(f"{path.name}.part")
        partial.write_text(json.dumps(united, indent=1, ensure_ascii=False) + "\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        raise unwritable(error, path) from error


def read_records(path: Path) -> dict[str, Recorded]:
    """Records by data reference.

    Raises:
        UserError: There is no such file, or it is not one of `write_records`.
    """
    try:
        value: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        return {name: Recorded(**one) for name, one in value.items()}
    except OSError as error:
        raise UserError(f"this file cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"this is no file of recorded hashes: {error}",
            where=str(path),
            try_this="write one: ragmeter datasets verify REF --record FILE",
        ) from error


def against(found: Recorded, wanted: Recorded | None) -> Finding:
    """A split against what was recorded of it."""
    name = "files and content are those recorded"
    if wanted is None:
        return Finding(name, YELLOW, "nothing is recorded of it")
    for label, now, then in (
        *((file, found.files.get(file), sha) for file, sha in wanted.files.items()),
        *((file, sha, wanted.files.get(file)) for file, sha in found.files.items()),
        ("questions", found.questions, wanted.questions),
        ("passages", found.passages, wanted.passages),
        ("fingerprint", found.fingerprint, wanted.fingerprint),
    ):
        if now != then:
            return Finding(name, RED, f"{label}: it is {_shown(now)}, recorded is {_shown(then)}")
    return Finding(name, GREEN)


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)
