"""Score how well each chunk supports the answer to a question, as a weighted sum of three normalized scores.

S_f is the mean log-likelihood per token of the answer, given question and chunk. S_b is that of the question, given answer and
chunk. S_v is the retriever's cosine similarity. Scores are normalized over the chunks of one document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.fingerprint import content_id, fingerprint
from benchmarks.schema import Passage, Question
from methods.api import Services
from methods.ark.config import ArkTrainingConfig, ScoreConfig
from methods.ark.data import Document
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.formats import own_format
from methods.models.likelihood import LikelihoodScorer, ScoringRequest, ScoringTemplate
from methods.training.stages import read_json, write_json

Scores = NDArray[np.float64]
"""Scores of a document's chunks for one question, shape (chunks,)."""
SHORT = 10
"""Number of tokens below which a chunk is penalized as short."""


@dataclass(frozen=True, slots=True)
class AlignmentRow:
    """Scores of one chunk for a question: raw, normalized (None for unused terms), total, and rank."""

    question_id: str
    chunk_id: str
    s_f: float | None
    s_b: float | None
    s_v: float | None
    n_f: float | None
    n_b: float | None
    n_v: float | None
    total: float
    rank: int


def normalized(scores: Scores, how: Literal["minmax", "zscore", "none"]) -> Scores:
    """Normalize scores of one question; equal scores become 0.5 (minmax) or 0 (zscore)."""
    if how == "none":
        return scores
    if how == "minmax":
        low, width = scores.min(), np.ptp(scores)
        return (scores - low) / width if width > 0 else np.full_like(scores, 0.5)
    # Of equal scores the deviation need not come out as zero: their mean is rounded.
    return (scores - scores.mean()) / scores.std() if np.ptp(scores) > 0 else np.zeros_like(scores)


def aligned(
    question_id: str, chunk_ids: Sequence[str], raw: Mapping[str, Scores], config: ScoreConfig, tokens: Sequence[int] | None = None
) -> list[AlignmentRow]:
    """Rank the chunks of a document by how well they support an answer.

    Args:
        question_id: Id of the question.
        chunk_ids: Chunk ids in the document's order.
        raw: Scores by term (`f`, `b`, `v`); terms with weight 0 may be missing.
        config: Normalization and weights.
        tokens: Length of each chunk, if short ones are penalized.

    Returns:
        Rows in the document's order; ties are ranked by position in the document.
    """
    weights = {"f": config.f.weight, "b": config.b.weight, "v": config.v.weight}
    terms = {name: raw[name] for name, weight in weights.items() if weight > 0}
    scaled = {name: normalized(scores, config.normalize) for name, scores in terms.items()}
    total = np.sum([weights[name] * scores for name, scores in scaled.items()], axis=0)
    if tokens is not None:
        total = total * np.minimum(1.0, np.asarray(tokens) / SHORT)
    ranks = np.empty(len(total), dtype=np.int64)
    ranks[np.argsort(-total, kind="stable")] = np.arange(len(total))

    def values(scores: Mapping[str, Scores], position: int) -> Iterator[float | None]:
        return (float(scores[name][position]) if name in scores else None for name in "fbv")

    rows = []
    for position, chunk in enumerate(chunk_ids):
        (s_f, s_b, s_v), (n_f, n_b, n_v) = values(terms, position), values(scaled, position)
        numbers = (s_f, s_b, s_v, n_f, n_b, n_v)
        rows.append(AlignmentRow(question_id, chunk, *numbers, total=float(total[position]), rank=int(ranks[position])))
    return rows


def positives(rows: Sequence[AlignmentRow], count: int) -> list[str]:
    """Return the ids of the `count` best chunks, best first."""
    return [row.chunk_id for row in sorted(rows, key=lambda row: row.rank)[:count]]


def kept_out(rows: Sequence[AlignmentRow], evidence: Sequence[str], config: ArkTrainingConfig) -> list[str]:
    """Return the ids of chunks that must not be negatives of a question: the paper's ten best chunks, and known evidence."""
    return [*positives(rows, max(config.score.positives, config.mine.keep_out)), *evidence]


def row_of(fields: Mapping[str, Any]) -> AlignmentRow:
    """Restore a row from its JSON object."""
    return AlignmentRow(**fields)


FORWARD = (
    "Use the context to answer the question as briefly as you can: a name, a number or a short phrase, without any "
    "explanation. Answer a yes-no question with yes, no or unanswerable. Where the context does not hold the answer, "
    "write unanswerable.\n\nContext: $chunk\n\nQuestion: $question\nAnswer:"
)
BACKWARD = (
    "Below are a context and an answer. Write the question that is answered by it: clear, understandable on its own, "
    "and the one that the context supports best.\n\nContext: $chunk\n\nAnswer: $answer\nQuestion:"
)
CHUNK = (Passage("", "", "$chunk"),)


class Term(Protocol):
    """Protocol of one of the three scores."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the scores."""
        ...

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """Return per question the scores of all chunks; for S_f and S_b followed by the score without a chunk."""
        ...


class LikelihoodTerm:
    """The score S_f or S_b.

    Args:
        name: `f` or `b`.
        template: The prompt.
        model: Hash of the scorer model.
        scorer: Function that loads the scorer on first use.
    """

    def __init__(self, name: str, template: ScoringTemplate, model: str, scorer: Any) -> None:
        self.name, self._template, self._model, self._scorer = name, template, model, scorer

    @property
    def fingerprint(self) -> str:
        """Return a hash of scorer and prompt."""
        return fingerprint(self.name, self._model, self._template.text)

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """Return the mean log-likelihood of each question's target per chunk."""
        queries = [self._request(question) for question in questions]
        flat = [" ".join(chunk.split()) for chunk in chunks]
        grid = self._scorer().grid(flat, queries, self._template)
        return [[row[column].mean for row in grid] for column in range(len(queries))]

    def _request(self, question: Question) -> ScoringRequest:
        answer, text = question.answers[0].strip(), question.text.strip()
        if self.name == "f":
            return ScoringRequest({"question": text}, f" {answer}")
        return ScoringRequest({"answer": answer}, f" {text}")


class VectorTerm:
    """The score S_v: cosine similarity of question and chunk.

    Args:
        config: The encoder.
        instruction: Whether to use the encoder's query prompt.
        device: Device.
        cache: Folder of the embedding cache.
    """

    name = "v"

    def __init__(self, config: EncoderConfig, instruction: bool, device: str | None, cache: Path | None) -> None:
        update = {"normalize": True} if instruction else {"normalize": True, "query_prompt": ""}
        self._config = config.model_copy(update=update)
        self._device, self._cache = device, cache

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._config, self._device, self._cache)

    @property
    def fingerprint(self) -> str:
        """Return a hash of the encoder and its prompts."""
        return fingerprint("v", self._config.checkpoint_hash(), self._config.model_dump(mode="json", exclude={"batch_size"}))

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """Return the cosine similarities of each question with all chunks."""
        passages = self._encoder.passages(chunks).astype(np.float64)
        query = self._encoder.queries([question.text for question in questions]).astype(np.float64)
        return [[float(value) for value in row] for row in query @ passages.T]


class Terms:
    """The score terms with nonzero weight.

    Args:
        config: All options.
        device: Device of the models.
        shelf: Folder of raw scores, shared by trainings with the same settings; None saves none.
        cache: Folder of the embedding cache.
        services: Services; the reply cache is used for a scorer behind an endpoint.
    """

    def __init__(
        self, config: ArkTrainingConfig, device: str | None, shelf: Path | None, cache: Path | None, services: Services | None = None
    ) -> None:
        self._config, self._shelf, self._services = config, shelf, replace(services or Services(), device=device)
        score = config.score
        self.terms: list[Term] = []
        own = own_format(score.scorer)
        for name, weight, value, text in (
            ("f", score.f.weight, score.forward_prompt, own.answer_prompt("$question", CHUNK) if own else FORWARD),
            ("b", score.b.weight, score.backward_prompt, own.question_prompt("$answer", CHUNK) if own else BACKWARD),
        ):
            if weight > 0:
                template = ScoringTemplate(value or text)
                self.terms.append(LikelihoodTerm(name, template, score.causal.identity, lambda: self.scorer))
        if score.v.weight > 0:
            self.terms.append(VectorTerm(config.vector_encoder, config.train.query_instruction, device, cache))
        self.computed = 0

    @cached_property
    def scorer(self) -> LikelihoodScorer:
        """Load the scorer on first use; for an endpoint, its tokenizer."""
        return LikelihoodScorer(self._config.score.causal.open(self._services, "ark"))

    def tokens(self, document: Document) -> list[int]:
        """Return the length of each chunk in the scorer's tokens."""
        encoder = self.scorer.model.text_encoder
        return [len(ids) - len(encoder.before) for ids in encoder.prompts([piece.text for piece in document.pieces])]

    def raw(self, document: Document, questions: Sequence[Question]) -> list[Mapping[str, Scores]]:
        """Return the raw scores of a document's chunks by term, for each question."""
        results: list[dict[str, Scores]] = [{} for _ in questions]
        for term in self.terms:
            for position, values in enumerate(self._kept(term, document, questions)):
                results[position][term.name] = np.array(values, dtype=np.float64)
        return list(results)

    def _kept(self, term: Term, document: Document, questions: Sequence[Question]) -> list[list[float]]:
        """Return saved raw scores, and compute and save missing ones."""
        chunks = [piece.text for piece in document.pieces]
        paths = [self._path(term, chunks, question) for question in questions]
        missing = [position for position, path in enumerate(paths) if path is None or not path.exists()]
        new: dict[int, list[float]] = {}
        if missing:
            scored = term.scores(chunks, [questions[position] for position in missing])
            new = dict(zip(missing, scored, strict=True))
            self.computed += len(missing) * len(chunks)
        for position, scores in new.items():
            path = paths[position]
            if path is not None:
                write_json(path, scores)
        return [new[position] if position in new else read_json(path) for position, path in enumerate(paths)]  # type: ignore[arg-type]

    def _path(self, term: Term, chunks: Sequence[str], question: Question) -> Path | None:
        if self._shelf is None:
            return None
        return self._shelf / term.fingerprint / f"{content_id('s', question.text, question.answers[0], *chunks)}.json"
