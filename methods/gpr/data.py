"""Build training rows for each epoch: a question, its triple, a neighbor and a negative, as indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.gpr.config import GprTrainingConfig, ValidateConfig
from methods.gpr.questions import QuestionSet
from methods.gpr.sampling import TripleIndex
from methods.graphs.triples import PretrainingGraph, linearized

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Training rows as indices of questions and triples, each of shape (rows,)."""

    question: Numbers
    anchor: Numbers
    neighbor: Numbers
    negative: Numbers

    def __len__(self) -> int:
        return len(self.question)

    def take(self, which: Numbers | slice) -> Rows:
        """Return the rows at these positions."""
        return Rows(self.question[which], self.anchor[which], self.neighbor[which], self.negative[which])

    def parts(self, size: int) -> list[Rows]:
        """Split into batches; rows with the same triple or neighbors stay together, because they share texts."""
        near = self.take(np.argsort(self.anchor, kind="stable"))
        return [near.take(slice(start, start + size)) for start in range(0, len(near), size)]


class Texts(NamedTuple):
    """Distinct texts of some rows, with each row's indices into them.

    Attributes:
        questions, triples: Distinct texts.
        question: Indices into `questions`, shape (rows,).
        anchor, neighbor, negative: Indices into `triples`, each of shape (rows,).
    """

    questions: list[str]
    triples: list[str]
    question: Numbers
    anchor: Numbers
    neighbor: Numbers
    negative: Numbers


MOST_WATCHED = 1000
"""Maximum number of held-out questions."""


class Material:
    """Questions about a graph, divided into training and held-out questions.

    Args:
        graph: The triples.
        questions: The questions about them.
        config: All options.

    Raises:
        UserError: No triple with a question has a neighbor, or one has no negative.
    """

    def __init__(self, graph: PretrainingGraph, questions: QuestionSet, config: GprTrainingConfig) -> None:
        self.questions, self._config = questions, config
        self._triples = pa.array(linearized(graph.triples, config=config.linearize), pa.large_string())
        self._index = TripleIndex(graph.heads, graph.relations, graph.tails, graph.triples)
        counts = self._index.neighbor_counts(questions.triples, config.sampling.nb_exclude_same_hr)
        usable = np.flatnonzero(counts)
        if not len(usable):
            raise UserError(
                f"none of the {len(graph):,} triples with a question shares an entity with another triple",
                code="no-neighbor-triple",
                where="graph",
                try_this="a larger graph, in which entities have several triples",
            )
        self.dropped = len(questions) - len(usable)
        """Questions whose triple has no neighbor."""
        watched = _watched(questions.triples[usable], config.validate_on, config.seed)
        self._trained = usable[~watched]
        self._held_out = usable[watched][:MOST_WATCHED]
        # Draw once now, so that an error in the graph is raised before a model is loaded.
        self.rows = lru_cache(1)(self._draw_rows)
        self.rows(0)

    def __len__(self) -> int:
        """Return the number of rows per epoch."""
        return len(self._trained)

    def _draw_rows(self, epoch: int) -> Rows:
        """Return the shuffled rows of an epoch."""
        seed = self._config.seed
        rows = self._drawn(self._trained, epoch, seed)
        rng = np.random.default_rng(int(fingerprint("gpr-order", seed, epoch), 16))
        return rows.take(rng.permutation(len(rows)))

    def held_out(self) -> Rows:
        """Return the held-out rows, the same in every epoch."""
        return self._drawn(self._held_out, 0, int(fingerprint("gpr-watched", self._config.seed), 16) % 2**32)

    def _drawn(self, questions: Numbers, epoch: int, seed: int) -> Rows:
        if not len(questions):
            return Rows(*(np.empty(0, np.int64) for _ in range(4)))
        drawn = self._index.draw(epoch, seed, self._config.sampling, self.questions.triples[questions])
        return Rows(questions[drawn.rows], drawn.anchor, drawn.neighbor, drawn.negative)

    def anchors(self) -> list[str]:
        """Return the texts of the triples that questions are about."""
        texts: list[str] = self._triples.take(pa.array(np.unique(self.questions.triples))).to_pylist()
        return texts

    def texts(self, rows: Rows) -> Texts:
        """Return the distinct texts of some rows."""
        query, question = _once([self.questions.texts[position] for position in rows.question.tolist()])
        columns = np.concatenate([rows.anchor, rows.neighbor, rows.negative])
        distinct, inverse = np.unique(columns, return_inverse=True)
        # Relations of which only the last part is written may make two triples read alike.
        triples, positions = _once(self._triples.take(pa.array(distinct)).to_pylist())
        return Texts(query, triples, question, *positions[inverse].reshape(3, len(rows)))


def _once(texts: list[str]) -> tuple[list[str], Numbers]:
    """Return the distinct texts, and the index of each text among them."""
    positions: dict[str, int] = {}
    result = np.array([positions.setdefault(text, len(positions)) for text in texts], np.int64)
    return list(positions), result


def _watched(triples: Numbers, config: ValidateConfig, seed: int) -> NDArray[np.bool_]:
    """Select the held-out questions: all questions about some randomly drawn triples."""
    distinct = np.unique(triples)
    count = min(int(config.share * len(distinct)), MOST_WATCHED)
    rng = np.random.default_rng(int(fingerprint("gpr-held-out", seed), 16))
    return np.isin(triples, rng.choice(distinct, count, replace=False) if count else distinct[:0])
