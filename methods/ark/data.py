"""The data of a training: documents in chunks and the questions about them, checked against what must stay unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.read_questions import recording
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from benchmarks.worlds.world import require_training_seed
from methods.ark.config import ArkTrainingConfig, TrainConfig
from methods.graphs.chunking import ChunkConfig, chunk
from methods.training.stages import write_lines


@dataclass(frozen=True, slots=True)
class TrainRow:
    """Row of one step of the loss.

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
            raise UserError(f"a row names an unknown chunk: {unknown[0]}", code="row-chunk-unknown", where=row.question_id)
        positives = {texts[chunk] for chunk in row.positive_ids}
        if any(texts[chunk] in positives for chunk in row.negative_ids):
            raise UserError("a positive is among the negatives of a row", code="positive-among-negatives", where=row.question_id)


@dataclass(frozen=True)
class Plan:
    """The steps of a stage.

    Attributes:
        steps: For each step of the optimizer its batches, each a list of row positions.
    """

    steps: tuple[tuple[tuple[int, ...], ...], ...]


def plan(rows: Sequence[TrainRow], config: TrainConfig, epochs: int, *key: str | int) -> Plan:
    """Draw the batches of all epochs.

    Args:
        rows: The rows of a stage.
        config: Size of batches, and how many make a step.
        epochs: Times that each row is used.
        key: What the draws are for: seed and stage.
    """
    steps: list[tuple[tuple[int, ...], ...]] = []
    for epoch in range(epochs):
        batches = iter(_epoch(rows, config, Draws("batches", *key, epoch)))
        while step := tuple(islice(batches, config.accumulation)):
            steps.append(step)
    return Plan(tuple(steps))


def _epoch(rows: Sequence[TrainRow], config: TrainConfig, draws: Draws) -> list[tuple[int, ...]]:
    positions = list(range(len(rows)))
    draws.shuffle(positions)
    return [tuple(positions[start : start + config.batch_size]) for start in range(0, len(positions), config.batch_size)]


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a document.

    Attributes:
        id: Unique over documents.
        index: Its place in the document.
        text: What is scored and trained on.
        start, end: Where it is in the document's text.
    """

    id: str
    index: int
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Document:
    """A document, its chunks, and what is asked about it.

    Attributes:
        id: The dataset's id, or one made of the passages where a question brings its own.
        passages: As the dataset has them, in order.
        pieces: Its chunks.
        questions: Those that have an answer.
    """

    id: str
    passages: tuple[Passage, ...]
    pieces: tuple[Piece, ...]
    questions: tuple[Question, ...]

    @cached_property
    def text(self) -> str:
        """Return the whole text."""
        return document_text(self.passages)


@dataclass(frozen=True)
class Material:
    """All documents of the training data, and the fingerprints of the benchmarks that they are of."""

    documents: tuple[Document, ...]
    fingerprints: tuple[str, ...]

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the text of each chunk by its id."""
        return {piece.id: piece.text for document in self.documents for piece in document.pieces}

    @property
    def questions(self) -> list[Question]:
        """Return all questions."""
        return [question for document in self.documents for question in document.questions]


def load_benchmarks(references: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load references, each dataset with its options."""
    return [registry.load(reference, options.get(registry.resolve(reference)[0].name, {})) for reference in references]


def load_material(config: ArkTrainingConfig) -> Material:
    """Return load and cut the training data.

    Raises:
        UserError: It may not be trained on, shares a document or question with evaluation sets, or asks about no
            document.
    """
    benchmarks = load_benchmarks(config.data, config.data_options)
    for benchmark in benchmarks:
        _require_training_worlds(benchmark)
    # Nothing is learned from these here; the validator loads those that it reads.
    with recording(None):
        unseen = load_benchmarks(config.validation, config.validation_options) + load_benchmarks(config.evaluation, {})
    for other in unseen:
        for benchmark in benchmarks:
            require_disjoint(benchmark, other)
    documents: dict[str, Document] = {}
    for benchmark in benchmarks:
        for document in documents_of(benchmark, config.chunks):
            there = documents.get(document.id)
            queries = (*there.questions, *document.questions) if there else document.questions
            unique = tuple({question.id: question for question in queries}.values())
            documents[document.id] = Document(document.id, document.passages, document.pieces, unique)
    return Material(tuple(documents.values()), tuple(benchmark.fingerprint for benchmark in benchmarks))


WHOLE = 5_000
"""Passages of a corpus that is still taken for one document."""


def documents_of(benchmark: Benchmark, chunks: ChunkConfig | str) -> list[Document]:
    """Return the documents of a benchmark with their questions, in the order of the first question about each.

    Questions without a gold answer are left out: nothing can be aligned with them.

    Raises:
        UserError: A question names neither a document nor passages of its own.
    """
    queries: dict[str, list[Question]] = {}
    passages: dict[str, tuple[str, ...]] = {}
    for question in benchmark.questions:
        identifier, members = pool(question, benchmark.corpus, str(benchmark.reference))
        passages[identifier] = members
        if question.answerable and question.answers:
            queries.setdefault(identifier, []).append(question)
    results = []
    for identifier, questions in queries.items():
        texts = tuple(benchmark.corpus.get(passages[identifier]))
        results.append(Document(identifier, texts, pieces_of(identifier, texts, chunks), tuple(questions)))
    return results


def pool(question: Question, corpus: Corpus, where: str) -> tuple[str, tuple[str, ...]]:
    """Return the id of the document that a question is asked about, and the ids of its passages; a small corpus counts as one document.

    Raises:
        UserError: A question names no document, and the corpus is too large.
    """
    if question.document_id is not None:
        return question.document_id, corpus.by_document[question.document_id]
    members = tuple(question.candidates if question.candidates is not None else corpus.ids if len(corpus) <= WHOLE else ())
    if members:
        return content_id("d", *members), members
    raise UserError(
        f"question {question.id} is asked about a whole corpus of {len(corpus):,} passages, which is too large to be one document",
        code="question-without-document",
        where=where,
        try_this=f"data of long documents (ultradomain, longbench, worlds/long), with candidates, or of at most {WHOLE:,} passages",
    )


def pieces_of(document: str, passages: Sequence[Passage], chunks: ChunkConfig | str) -> tuple[Piece, ...]:
    """Cut a document."""
    if isinstance(chunks, ChunkConfig):
        cut = chunk(document_text(passages), chunks)
        return tuple(
            Piece(content_id("c", document, str(item.index), item.text), item.index, item.text, item.start, item.end) for item in cut
        )
    pieces, at = [], 0
    for index, passage in enumerate(passages):
        pieces.append(Piece(passage.id, index, passage.full_text, at, at + len(passage.text)))
        at += len(_joined(passage.text))
    return tuple(pieces)


def document_text(passages: Sequence[Passage]) -> str:
    """Return the text of passages in their order, a line break where the white space between them is lost."""
    return "".join(_joined(passage.text) for passage in passages)


def _joined(text: str) -> str:
    return text if text[-1:].isspace() else f"{text}\n"


def _require_training_worlds(benchmark: Benchmark) -> None:
    if benchmark.reference.name == "worlds":
        for seed in sorted({question.metadata["seed"] for question in benchmark.questions}):
            require_training_seed(seed)


def require_disjoint(training: Benchmark, unseen: Benchmark) -> None:
    """Check that two benchmarks share neither a passage nor a question.

    Raises:
        UserError: They do.
    """
    shared = next((identifier for identifier in unseen.corpus.ids if identifier in training.corpus), None)
    if shared is not None:
        raise _overlap(training, unseen, f"the passage {shared}")
    queries = {" ".join(question.text.casefold().split()) for question in training.questions}
    for question in unseen.questions:
        if " ".join(question.text.casefold().split()) in queries:
            raise _overlap(training, unseen, f"the question {question.id}")


def _overlap(training: Benchmark, unseen: Benchmark, what: str) -> UserError:
    return UserError(
        f"{training.reference} and {unseen.reference} share {what}: evaluation data must not be trained on",
        code="trained-on-evaluated",
        where="data",
        try_this="other splits or subsets",
    )
