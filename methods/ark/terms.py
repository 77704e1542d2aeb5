"""The raw scores of a document's chunks for its questions, computed once and kept by what decides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.fingerprint import content_id, fingerprint
from benchmarks.schema import Question
from methods.ark.alignment import Scores, formed
from methods.ark.config import ArkTrainingConfig
from methods.ark.material import Document
from methods.kept import read_json, write_json
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.likelihood import Asked, LikelihoodScorer, ScoringTemplate
from methods.models.pocket.prompt import ANSWER, GAP, QUESTION, marker
from methods.models.weights import POCKET, weights_hash

FORWARD = (
    "Use the context to answer the question as briefly as you can: a name, a number or a short phrase, without any "
    "explanation. Answer a yes-no question with yes, no or unanswerable. Where the context does not hold the answer, "
    "write unanswerable.\n\nContext: $chunk\n\nQuestion: $question\nAnswer:"
)
BACKWARD = (
    "Below are a context and an answer. Write the question that is answered by it: clear, understandable on its own, "
    "and the one that the context supports best.\n\nContext: $chunk\n\nAnswer: $answer\nQuestion:"
)
POCKET_FORWARD = f"{marker(1)} $chunk{GAP}{QUESTION} $question\n{ANSWER}"
POCKET_BACKWARD = f"{marker(1)} $chunk{GAP}{ANSWER} $answer\n{QUESTION}"


class Term(Protocol):
    """One of the three scores."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Equal for terms that give equal scores."""
        ...

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """For each question the score of each chunk, and for S_f and S_b last that of no chunk."""
        ...


class LikelihoodTerm:
    """S_f or S_b.

    Args:
        name: `f` or `b`.
        template: The prompt.
        model: The scorer's hash.
        scorer: Makes the scorer when there is something to score.
    """

    def __init__(self, name: str, template: ScoringTemplate, model: str, scorer: Any) -> None:
        self.name, self._template, self._model, self._scorer = name, template, model, scorer

    @property
    def fingerprint(self) -> str:
        """Of scorer and prompt."""
        return fingerprint(self.name, self._model, self._template.text, self._template.chat)

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """Mean log-likelihoods; the last is without a chunk."""
        asked = [self._asked(question) for question in questions]
        flat = [" ".join(chunk.split()) for chunk in chunks]
        grid = self._scorer().grid([*flat, ""], asked, self._template)
        return [[row[column].mean for row in grid] for column in range(len(asked))]

    def _asked(self, question: Question) -> Asked:
        answer, text = question.answers[0].strip(), question.text.strip()
        if self.name == "f":
            return Asked({"question": text}, f" {answer}")
        return Asked({"answer": answer}, f" {text}")


class VectorTerm:
    """S_v: the cosine of question and chunk.

    Args:
        config: The encoder.
        instruction: Whether questions get its query prompt.
        device: Where it computes.
        cache: Folder of vectors.
    """

    name = "v"

    def __init__(self, config: EncoderConfig, instruction: bool, device: str | None, cache: Path | None) -> None:
        update = {"normalise": True} if instruction else {"normalise": True, "query_prompt": ""}
        self._config = config.model_copy(update=update)
        self._device, self._cache = device, cache

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._config, self._device, self._cache)

    @property
    def fingerprint(self) -> str:
        """Of the encoder and its prompts."""
        return fingerprint("v", self._config.weights(), self._config.model_dump(mode="json", exclude={"batch_size"}))

    def scores(self, chunks: Sequence[str], questions: Sequence[Question]) -> list[list[float]]:
        """Cosines."""
        passages = self._encoder.passages(chunks).astype(np.float64)
        asked = self._encoder.queries([question.text for question in questions]).astype(np.float64)
        return [[float(value) for value in row] for row in asked @ passages.T]


class Terms:
    """The terms that have a weight.

    Args:
        config: All options.
        device: Where models compute.
        shelf: Folder in which raw scores are kept for every training that asks for the same; None keeps none.
        cache: Folder of vectors.
    """

    def __init__(self, config: ArkTrainingConfig, device: str | None, shelf: Path | None, cache: Path | None) -> None:
        self._config, self._device, self._shelf = config, device, shelf
        score = config.score
        self.terms: list[Term] = []
        own = score.scorer == POCKET
        for name, weight, given, text in (
            ("f", score.f.weight, score.forward_prompt, POCKET_FORWARD if own else FORWARD),
            ("b", score.b.weight, score.backward_prompt, POCKET_BACKWARD if own else BACKWARD),
        ):
            if weight > 0:
                template = ScoringTemplate(given or text, chat=score.chat_template)
                model = fingerprint(weights_hash(score.scorer, score.revision), score.dtype)
                self.terms.append(LikelihoodTerm(name, template, model, lambda: self.scorer))
        if score.v.weight > 0:
            self.terms.append(VectorTerm(config.vector_encoder, score.v.use_instruction, device, cache))
        self.computed = 0

    @cached_property
    def scorer(self) -> LikelihoodScorer:
        """The scorer, loaded."""
        from methods.models.causal import CausalModel

        return LikelihoodScorer(CausalModel(self._config.score.causal, self._device))

    def tokens(self, document: Document) -> list[int]:
        """Length of each chunk in the scorer's tokens."""
        encoder = self.scorer.model.text_encoder
        return [len(ids) - len(encoder.before) for ids in encoder.prompts([piece.text for piece in document.pieces])]

    def raw(self, document: Document, questions: Sequence[Question]) -> list[Mapping[str, Scores]]:
        """The raw scores of a document's chunks for questions about it, by term."""
        found: list[dict[str, Scores]] = [{} for _ in questions]
        for term in self.terms:
            for place, values in enumerate(self._kept(term, document, questions)):
                found[place][term.name] = self._shaped(term, values)
        return list(found)

    def _shaped(self, term: Term, values: list[float]) -> Scores:
        scores = np.array(values, dtype=np.float64)
        if term.name == "v":
            return scores
        form = self._config.score.f.form if term.name == "f" else "logp"
        return formed(scores[:-1], scores[-1], form)

    def _kept(self, term: Term, document: Document, questions: Sequence[Question]) -> list[list[float]]:
        """Scores from the shelf, those that are missing computed together."""
        chunks = [piece.text for piece in document.pieces]
        paths = [self._path(term, chunks, question) for question in questions]
        missing = [place for place, path in enumerate(paths) if path is None or not path.exists()]
        new: dict[int, list[float]] = {}
        if missing:
            scored = term.scores(chunks, [questions[place] for place in missing])
            new = dict(zip(missing, scored, strict=True))
            self.computed += len(missing) * len(chunks)
        for place, scores in new.items():
            path = paths[place]
            if path is not None:
                write_json(path, scores)
        return [new[place] if place in new else read_json(path) for place, path in enumerate(paths)]  # type: ignore[arg-type]

    def _path(self, term: Term, chunks: Sequence[str], question: Question) -> Path | None:
        if self._shelf is None:
            return None
        return self._shelf / term.fingerprint / f"{content_id('s', question.text, question.answers[0], *chunks)}.json"
