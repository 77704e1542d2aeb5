"""The data of a training: documents in chunks and the questions about them, checked against what must stay unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks import registry
from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.fingerprint import content_id
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from benchmarks.worlds.seeds import require_training_seed
from methods.ark.config import ArkTrainingConfig
from methods.knowledge.chunking import ChunkConfig, chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a document.

    Attributes:
        id: Unique over documents.
        index: Its place in the document.
        text: What is scored and trained on.
        start, end: Where it stands in the document's text.
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
        """The whole text."""
        return document_text(self.passages)


@dataclass(frozen=True)
class Material:
    """All documents of the training data, and the fingerprints of the benchmarks that they are of."""

    documents: tuple[Document, ...]
    fingerprints: tuple[str, ...]

    @cached_property
    def texts(self) -> dict[str, str]:
        """Chunk texts by id."""
        return {piece.id: piece.text for document in self.documents for piece in document.pieces}

    @property
    def questions(self) -> list[Question]:
        """All questions."""
        return [question for document in self.documents for question in document.questions]


def load_benchmarks(references: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load references, each dataset with its options."""
    return [registry.load(one, options.get(registry.resolve(one)[0].name, {})) for one in references]


def load_material(config: ArkTrainingConfig) -> Material:
    """Load and cut the training data.

    Raises:
        UserError: It may not be trained on, shares a document or question with evaluation sets, or asks about no
            document.
    """
    benchmarks = load_benchmarks(config.data, config.data_options)
    for benchmark in benchmarks:
        _require_training_worlds(benchmark)
    for unseen, options in ((config.validation, config.validation_options), (config.evaluation, {})):
        for other in load_benchmarks(unseen, options):
            for benchmark in benchmarks:
                require_disjoint(benchmark, other)
    documents: dict[str, Document] = {}
    for benchmark in benchmarks:
        for document in documents_of(benchmark, config.chunks):
            there = documents.get(document.id)
            asked = (*there.questions, *document.questions) if there else document.questions
            unique = tuple({question.id: question for question in asked}.values())
            documents[document.id] = Document(document.id, document.passages, document.pieces, unique)
    return Material(tuple(documents.values()), tuple(benchmark.fingerprint for benchmark in benchmarks))


def documents_of(benchmark: Benchmark, chunks: ChunkConfig | str) -> list[Document]:
    """The documents of a benchmark with their questions, in the order of the first question about each.

    Questions without a gold answer are left out: nothing can be aligned with them.

    Raises:
        UserError: A question names neither a document nor passages of its own.
    """
    asked: dict[str, list[Question]] = {}
    passages: dict[str, tuple[str, ...]] = {}
    for question in benchmark.questions:
        identifier, members = pool(question, benchmark.corpus, str(benchmark.reference))
        passages[identifier] = members
        if question.answerable and question.answers:
            asked.setdefault(identifier, []).append(question)
    found = []
    for identifier, questions in asked.items():
        texts = tuple(benchmark.corpus.get(passages[identifier]))
        found.append(Document(identifier, texts, pieces_of(identifier, texts, chunks), tuple(questions)))
    return found


def pool(question: Question, corpus: Corpus, where: str) -> tuple[str, tuple[str, ...]]:
    """The id of the document that a question is asked about, and the ids of its passages.

    Raises:
        UserError: It is asked about no document.
    """
    if question.document_id is not None:
        return question.document_id, corpus.by_document[question.document_id]
    if question.candidates:
        members = tuple(question.candidates)
        return content_id("d", *members), members
    raise UserError(
        f"question {question.id} is asked about a whole corpus, and ARK needs the document it is about",
        where=where,
        try_this="data of long documents (ultradomain, longbench, worlds/long), or with candidates",
    )


def pieces_of(document: str, passages: Sequence[Passage], chunks: ChunkConfig | str) -> tuple[Piece, ...]:
    """Cut a document."""
    if isinstance(chunks, ChunkConfig):
        cut = chunk(document_text(passages), chunks)
        return tuple(Piece(content_id("c", document, str(one.index), one.text), one.index, one.text, one.start, one.end) for one in cut)
    pieces, at = [], 0
    for index, passage in enumerate(passages):
        pieces.append(Piece(passage.id, index, passage.full_text, at, at + len(passage.text)))
        at += len(_joined(passage.text))
    return tuple(pieces)


def document_text(passages: Sequence[Passage]) -> str:
    """The text of passages in their order, a line break where the white space between them is lost."""
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
    shared = next((one for one in unseen.corpus.ids if one in training.corpus), None)
    if shared is not None:
        raise _overlap(training, unseen, f"the passage {shared}")
    asked = {" ".join(question.text.casefold().split()) for question in training.questions}
    for question in unseen.questions:
        if " ".join(question.text.casefold().split()) in asked:
            raise _overlap(training, unseen, f"the question {question.id}")


def _overlap(training: Benchmark, unseen: Benchmark, what: str) -> UserError:
    return UserError(
        f"{training.reference} and {unseen.reference} share {what}: what is evaluated must not be trained on",
        where="data",
        try_this="other splits or subsets",
    )
