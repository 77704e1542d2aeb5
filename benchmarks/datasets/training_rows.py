"""What sets made for training share: rows of documents with questions, streamed or gathered as a benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import Field

from benchmarks.corpus import CorpusBuilder
from benchmarks.datasets.assembling import said
from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.fingerprint import content_id
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.sources import Record, read_records
from benchmarks.views import PassageIds

MOST_QUESTIONS = 1_000_000
"""A benchmark holds its questions in memory, about half a kilobyte each; larger sets are streamed or cut."""

NOTES = {
    "repeated_passages": "{n} documents stand twice in one row; each counts once as a candidate",
    "positives_absent": "{n} positives are no document of their row; they stay in denominators and cannot be found",
    "questions_without_positives": "{n} questions have no positive document: retrieval metrics leave them out",
}
"""What each count of `Benchmark.extra["counts"]` means, as it is said in `Benchmark.extra["notes"]`."""


class RowsConfig(DatasetConfig):
    """Options of the loaders of training rows."""

    first: int | None = Field(None, ge=1, description="read no more than so many rows")
    shuffle: bool = Field(True, description="put candidates whose positives the authors list first into an order drawn from the row's id")


@dataclass(frozen=True, slots=True)
class Row:
    """A row as training reads it.

    Attributes:
        id: Subset and place in the data.
        kind: `qa` and `paraphrase` (one document, everything about it), or `answer` (one question, many documents).
        docs: The documents, in the file's order.
        pairs: Each question with its accepted answers, the first the usual one.
        target: What is taught in place of the first answer, "" where it is that.
        positives: Places of the documents that hold the answer, counted from 0; None where the row does not say.
    """

    id: str
    kind: str
    docs: tuple[str, ...]
    pairs: tuple[tuple[str, tuple[str, ...]], ...]
    target: str = ""
    positives: tuple[int, ...] | None = None


def stream_rows(
    reference: DataReference, paths: Sequence[Path], config: RowsConfig, parse: Callable[[Record, str], Row], skipped: list[SkippedRecord]
) -> Iterator[Row]:
    """The rows of files, one at a time; memory does not grow with their number.

    Args:
        reference: What is loaded, subset set.
        paths: The files, in order.
        config: Its options.
        parse: From a record and the id of its row to the row.
        skipped: Receives what was left out.

    Raises:
        UserError: A file cannot be read.
    """
    name = reference.subset or reference.name

    def each() -> Iterator[Row]:
        for number, path in enumerate(paths):
            prefix = f"{name}-{number:03d}" if len(paths) > 1 else name
            yield from read_records(
                path,
                lambda record, prefix=prefix: parse(record, f"{prefix}-{_ordinal(record):07d}"),  # type: ignore[misc]
                skip_bad=config.skip_bad,
                skipped=skipped,
            )

    return islice(each(), config.first)


def _ordinal(record: Record) -> int:
    """The number that ends `line 3` or `line 1, record 3`; it does not change when others are skipped."""
    return int(record.place.rpartition(" ")[2])


def documents(record: Record, *names: str) -> tuple[str, ...]:
    """The documents of a row, from the first of these fields that it has.

    Raises:
        BadRecord: There are none, or one is no string.
    """
    name = next((name for name in names if record.has(name)), names[0])
    found = record.texts(name)
    if not found:
        raise record.problem(f"field {name!r} is empty", name)
    return found


def gather(
    reference: DataReference, version: int, card: DatasetCard, rows: Iterable[Row], skipped: list[SkippedRecord], *, shuffle: bool
) -> Benchmark:
    """Bring rows together: a question for each of their pairs, their documents as candidates and corpus.

    Args:
        reference: What is loaded, subset and split set.
        version: The loader's code version.
        card: The dataset's card.
        rows: The rows.
        skipped: What was left out of them; complete once the rows are read.
        shuffle: Whether candidates are put into an order drawn from the row's id.

    Raises:
        UserError: There are more than `MOST_QUESTIONS`.
    """
    builder, counts, questions = CorpusBuilder(), Counter[str](), list[Question]()
    for row in rows:
        passages = [Passage(passage_id("", text), "", text) for text in row.docs]
        builder.add(passages)
        candidates = list(dict.fromkeys(passage.id for passage in passages))
        counts["repeated_passages"] += len(passages) - len(candidates)
        evidence = _evidence(row, passages, counts)
        if shuffle:
            Draws("candidates", row.id).shuffle(candidates)
        counts["questions_without_positives"] += len(row.pairs) * (not evidence)
        questions += _questions(row, PassageIds(candidates), evidence)
        if len(questions) > MOST_QUESTIONS:
            raise UserError(
                f"{reference} has more than {MOST_QUESTIONS:,} questions, too many to hold at once",
                where=str(reference),
                try_this="set first to a number of rows; training streams the rows and needs no limit",
            )
    return Benchmark(reference, version, card, questions, builder.build(), tuple(skipped), said(counts, NOTES))


def _evidence(row: Row, passages: Sequence[Passage], counts: Counter[str]) -> tuple[str, ...]:
    evidence = []
    for place in row.positives or ():
        present = 0 <= place < len(passages)
        counts["positives_absent"] += not present
        evidence.append(passages[place].id if present else content_id("p", "absent", row.id, str(place)))
    return tuple(dict.fromkeys(evidence))


def _questions(row: Row, candidates: PassageIds, evidence: tuple[str, ...]) -> Iterator[Question]:
    alone = row.kind == "answer"  # then the question has the row's id
    metadata = ({} if alone else {"row": row.id}) | ({"target": row.target} if row.target else {})
    for number, (text, answers) in enumerate(row.pairs):
        identifier = row.id if alone else f"{row.id}-{number:02d}"
        yield Question(identifier, text, answers, evidence=evidence, type=row.kind, candidates=candidates, metadata=metadata)
