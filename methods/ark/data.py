"""Training data of ARK: documents in chunks and their questions, checked against validation and test data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.read_questions import recording
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from methods.ark.config import ArkTrainingConfig, TrainConfig
from methods.graphs.chunking import ChunkConfig, chunk
from methods.training.material import load_data
from methods.training.stages import write_lines


@dataclass(frozen=True, slots=True)
class TrainRow:
    """Training row: a query with a positive and negatives.

    Attributes:
        question_id: Id of the question in the dataset.
        document_id: Document of the chunks.
        stage: `stage1` …; determines which texts of other rows are in-batch negatives.
        query: Text of the question.
        positive_id: One positive of the question.
        negative_ids: Chunks of the same document that are not positives.
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
    """Write rows as JSON Lines, atomically."""
    write_lines(path, (asdict(row) for row in rows))


def check_rows(rows: Sequence[TrainRow], texts: Mapping[str, str]) -> None:
    """Check that no negative of a row is a positive of its question, by id or by text.

    Args:
        rows: The rows.
        texts: Chunk texts by id.

    Raises:
        UserError: A negative is a positive, or a chunk is unknown.
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
    """Batches of a stage.

    Attributes:
        steps: Batches per optimizer step, each a list of row positions.
    """

    steps: tuple[tuple[tuple[int, ...], ...], ...]


def plan(rows: Sequence[TrainRow], config: TrainConfig, epochs: int, *key: str | int) -> Plan:
    """Draw the batches of all epochs randomly.

    Args:
        rows: The rows of a stage.
        config: Batch size, and batches per step.
        epochs: Number of epochs.
        key: Random seed parts: seed and stage.
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
        id: Id, unique across documents.
        index: Index in the document.
        text: The text.
        start, end: Character positions in the document's text.
    """

    id: str
    index: int
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Document:
    """A document with its chunks and questions.

    Attributes:
        id: Id in the dataset, or an id derived from a question's own passages.
        passages: Passages of the dataset, in order.
        pieces: The chunks.
        questions: Questions with an answer.
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
    """All documents of the training data, the fingerprints of their benchmarks, and the number of questions without an answer."""

    documents: tuple[Document, ...]
    fingerprints: tuple[str, ...]
    without_answer: int = 0

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the text of each chunk by its id."""
        return {piece.id: piece.text for document in self.documents for piece in document.pieces}

    @property
    def questions(self) -> list[Question]:
        """Return all questions."""
        return [question for document in self.documents for question in document.questions]


def load_material(config: ArkTrainingConfig) -> Material:
    """Load the training data and cut it into chunks.

    If two datasets give different documents or questions the same id, the later ones get new ids.

    Raises:
        UserError: The data must not be trained on, shares documents or questions with evaluation sets, or has no documents.
    """
    benchmarks = load_data(config.data, config.data_options)
    # Nothing is learned from these here; the validator loads those that it reads.
    with recording(None):
        unseen = load_data(config.validation, config.validation_options, train=False)
        unseen += load_data(config.evaluation, {}, train=False)
    for other in unseen:
        for benchmark in benchmarks:
            require_disjoint(benchmark, other)
    documents: dict[str, Document] = {}
    taken: dict[str, tuple[str, str]] = {}
    for benchmark in benchmarks:
        for document in documents_of(benchmark, config.chunks):
            there = documents.get(document.id)
            if there is not None and there.pieces != document.pieces:
                document, there = replace(document, id=content_id("d", document.id, *(piece.id for piece in document.pieces))), None
            questions = [_with_own_id(question, document.id, taken) for question in document.questions]
            unique = {question.id: question for question in (*(there.questions if there else ()), *questions)}
            documents[document.id] = replace(document, questions=tuple(unique.values()))
    without_answer = sum(not is_answered(question) for benchmark in benchmarks for question in benchmark.questions)
    return Material(tuple(documents.values()), tuple(benchmark.fingerprint for benchmark in benchmarks), without_answer)


def is_answered(question: Question) -> bool:
    """Return whether chunks can be aligned with an answer of the question."""
    return question.answerable and bool(question.answers)


def _with_own_id(question: Question, document: str, taken: dict[str, tuple[str, str]]) -> Question:
    """Return the question, with a new id if another question has its id; `taken` has document and text by id."""
    own = document, question.text
    if taken.setdefault(question.id, own) == own:
        return question
    renamed = replace(question, id=content_id("q", *own))
    taken[renamed.id] = own
    return renamed


WHOLE = 5_000
"""Maximum passages of a corpus that is treated as a single document."""


def documents_of(benchmark: Benchmark, chunks: ChunkConfig | str, wanted: Callable[[Question], bool] = is_answered) -> list[Document]:
    """Return the documents of a benchmark with their questions, in order of first question.

    Args:
        benchmark: The data.
        chunks: How documents are cut.
        wanted: Which questions to keep.

    Raises:
        UserError: A question names neither a document nor passages of its own.
    """
    queries: dict[str, list[Question]] = {}
    passages: dict[str, tuple[str, ...]] = {}
    for question in benchmark.questions:
        identifier, members = pool(question, benchmark.corpus, str(benchmark.reference))
        passages[identifier] = members
        if wanted(question):
            queries.setdefault(identifier, []).append(question)
    results = []
    for identifier, questions in queries.items():
        texts = tuple(benchmark.corpus.get(passages[identifier]))
        results.append(Document(identifier, texts, pieces_of(identifier, texts, chunks), tuple(questions)))
    return results


def pool(question: Question, corpus: Corpus, where: str) -> tuple[str, tuple[str, ...]]:
    """Return the id of a question's document and the ids of its passages; a small corpus counts as one document.

    Raises:
        UserError: The question names no document, and the corpus is too large.
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
    """Cut a document into chunks."""
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
    """Join passages in order; a line break is inserted where white space is missing."""
    return "".join(_joined(passage.text) for passage in passages)


def _joined(text: str) -> str:
    return text if text[-1:].isspace() else f"{text}\n"


def require_disjoint(training: Benchmark, unseen: Benchmark) -> None:
    """Check that two benchmarks share no passage and no question.

    Raises:
        UserError: They share a passage or a question.
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
