"""Find questions of a benchmark that a checkpoint's training read, from the record in the store (`benchmarks.read_questions`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from duckdb import DuckDBPyConnection

from benchmarks.core.fingerprint import READ_QUESTIONS
from benchmarks.datasets import fold_of
from benchmarks.read_questions import ReadQuestions
from results.store import answer_queries
from results.store.store import Store

Fold = tuple[int, int]
"""Number of a question's fold (by its text), and number of folds."""
SHARE = 0.05
"""Share of contaminated questions above which a run is excluded from comparisons."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Test questions that occur in the training data of a run's parts.

    Attributes:
        questions: Ids of these questions.
        by: Names of the checkpoints that were trained on some of them.
        sampled: Fraction of the hashes that the records keep, if they are samples; empty if complete.
    """

    questions: frozenset[str] = frozenset()
    by: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()

    def __or__(self, other: Touched) -> Touched:
        every = (dict.fromkeys(mine + theirs) for mine, theirs in ((self.by, other.by), (self.sampled, other.sampled)))
        return Touched(self.questions | other.questions, *map(tuple, every))

    def in_words(self, of: int) -> str:
        """Describe how many of a benchmark's questions occur in the training data, and of which checkpoints."""
        sampled = f" (at least: the record keeps {', '.join(self.sampled)})" if self.sampled else ""
        return f"{len(self.questions):,} of {of:,} questions were read when {' and '.join(self.by)} was trained{sampled}"


@dataclass(frozen=True, eq=False)
class Record:
    """Record of the questions in a checkpoint's training data, as hashes.

    Attributes:
        store: The store that holds the record.
        sha256: Hash of the checkpoint.
    """

    store: Store
    sha256: str
    _known: dict[tuple[str, Fold | None], Touched] = field(default_factory=dict, repr=False)

    def touched(self, dataset: str, who: str, fold: Fold | None = None) -> Touched:
        """Find the questions of a benchmark that the checkpoint was trained on; the result is cached per benchmark.

        Args:
            dataset: Fingerprint of the benchmark.
            who: Name of the checkpoint, for messages.
            fold: Consider only questions of this fold; None considers all.
        """
        key = dataset, fold
        if key not in self._known:
            ((content,),) = self.store.database.rows("SELECT hashes FROM read_questions WHERE sha256 = ?", [self.sha256])
            read = ReadQuestions.from_bytes(content, f"checkpoint {self.sha256}")
            rows = answer_queries.questions(self.store, dataset)
            hits = read.touched([row.text for row in rows], [row.golds for row in rows])
            members = (fold is None or fold_of(row.text, fold[1]) == fold[0] for row in rows)
            ids = frozenset(row.question for row, hit, own in zip(rows, hits.tolist(), members, strict=True) if hit and own)
            self._known[key] = Touched(ids, (who,), tuple(filter(None, [read.rate]))) if ids else Touched()
        return self._known[key]


def records(store: Store) -> dict[str, Record]:
    """Return all stored records of training questions, by the hash of their checkpoint."""
    rows = store.database.rows("SELECT sha256 FROM read_questions", lenient=True)
    return {sha256: Record(store, sha256) for (sha256,) in rows}


def put_record(connection: DuckDBPyConnection, sha256: str, folder: Path) -> None:
    """Store the record of training questions from a checkpoint folder, replacing an earlier one; without a record, nothing changes.

    Raises:
        UserError: The record is damaged.
    """
    path = folder / READ_QUESTIONS
    if path.is_file():
        content = path.read_bytes()
        if not len(ReadQuestions.from_bytes(content, str(path)).questions):
            return  # an empty record: the questions that were read stay unknown
        connection.execute("DELETE FROM read_questions WHERE sha256 = ?", [sha256])
        connection.execute("INSERT INTO read_questions VALUES (?, ?)", [sha256, content])


def is_contaminated(touched: Collection[str], questions: int) -> bool:
    """Return whether so many test questions occur in the training data that the run must not be compared."""
    return bool(touched) and len(touched) >= SHARE * questions
