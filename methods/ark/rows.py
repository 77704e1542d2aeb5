"""Training rows: a question, one positive and its negatives, by the ids of chunks, so that they can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.errors import UserError
from methods.kept import write_lines


@dataclass(frozen=True, slots=True)
class TrainRow:
    """What one step of the loss is made of.

    Attributes:
        question_id: The dataset's id of the question.
        document_id: The document that the chunks are of.
        stage: `stage1` …; decides which documents of other rows are negatives too.
        query: The question's text.
        positive_id: One of the question's positives.
        negative_ids: Chunks of the same document that are none of its positives.
        positive_ids: All of the question's positives.
    """

    question_id: str
    document_id: str
    stage: str
    query: str
    positive_id: str
    negative_ids: tuple[str, ...]
    positive_ids: tuple[str, ...]


def write_rows(path: Path, rows: Iterable[TrainRow]) -> None:
    """Write rows as JSON Lines; the file appears whole or not at all."""
    write_lines(path, (asdict(row) for row in rows))


def check_rows(rows: Sequence[TrainRow], texts: Mapping[str, str]) -> None:
    """Check that no negative of a row is one of its question's positives, by id or by text.

    Args:
        rows: The rows.
        texts: Chunk texts by id.

    Raises:
        UserError: One is, or a chunk is not known.
    """
    for row in rows:
        unknown = [chunk for chunk in (row.positive_id, *row.negative_ids) if chunk not in texts]
        if unknown:
            raise UserError(f"a row names the chunk {unknown[0]}, which is not among the chunks", where=row.question_id)
        positives = {texts[chunk] for chunk in row.positive_ids}
        if any(texts[chunk] in positives for chunk in row.negative_ids):
            raise UserError("a positive is among the negatives of a row", where=row.question_id)
