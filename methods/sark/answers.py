"""Generate answers with a chat model or a local reader, to derive labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.schema import Passage, Question
from benchmarks.styles.sark_files import contents
from methods.api import FAILED, Context, Judge, Reader, Services
from methods.flow import in_flight, one
from methods.models.chat import ChatModel
from methods.models.llm import open_llm
from methods.models.rewriter import bare_text
from methods.readers.extract import short_answer
from methods.sark.config import LabelsConfig
from methods.sark.prompts import ANSWER, asking
from methods.training.verdicts import Verifier


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A question to answer with one passage or none.

    Attributes:
        question: The question; only its text is shown to the model.
        passage: Passage to use; None for none.
        memory: Evidence that a simulated reader may know (`LabelsConfig.known`); never shown to a language model.
    """

    question: Question
    passage: Passage | None = None
    memory: tuple[Passage, ...] = ()


class Answerer(Protocol):
    """Protocol of models that answer questions with one passage or none."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines its answers."""
        ...

    async def answers_one(self, request: AnswerRequest) -> str | None:
        """Return the answer; None if the call failed, which may be retried later.

        Raises:
            Broke: No further call could succeed.
        """
        ...


class LLMAnswerer:
    """Answerer with a language model.

    Args:
        model: The model; with a reply cache, calls are never repeated.
        prompt: A user's template file.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = ANSWER.load(prompt)
        self.in_flight = model.in_flight

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", "short", self._model.config.identity(), self._prompt.hash)

    async def answers_one(self, request: AnswerRequest) -> str | None:
        passage = None if request.passage is None else contents(request.passage)
        reply = await self._model.ask(asking(self._prompt, request.question.text, passage), step="answer")
        return short_answer(bare_text(reply.text)) if reply.failed is None else None


class ReaderAnswerer:
    """Answerer with a registered reader, which can simulate a model that knows some answers.

    Args:
        reader: The reader role.
        identity: Hash of its options and weights.
        known: Fraction of single-evidence questions whose evidence the reader is given without being asked to use it.
        seed: Random seed for choosing these questions.
    """

    def __init__(self, reader: Reader, identity: str, known: float = 0.0, seed: int = 0) -> None:
        self._read, self._identity = one(reader, "read"), identity
        self._known, self._seed = known, seed
        self.in_flight = in_flight([(reader, "read")])

    @property
    def fingerprint(self) -> str:
        return fingerprint("reader", self._identity, self._known, self._seed)

    def knows(self, question: Question) -> bool:
        """Return whether a question is among the known ones; drawn per question, independent of the others.

        Multi-passage questions are never known: no single passage could help an unknowing model, so all their labels would be
        0, and the question type would reveal the label.
        """
        alone = len(set(question.evidence)) == 1
        return alone and Draws("known by heart", self._seed, question.id).chance(self._known)

    async def answers_one(self, request: AnswerRequest) -> str | None:
        query = request.question.query()
        answer = await self._read(query, Context(query.id, self._passages_of(request)))
        return None if answer.notes.get(FAILED) else str(answer.text)

    def _passages_of(self, item: AnswerRequest) -> tuple[Passage, ...]:
        if item.passage is not None:
            return (item.passage,)
        return item.memory if self.knows(item.question) else ()


def answerer_of(config: LabelsConfig, services: Services, seed: int) -> Answerer:
    """Build the answerer that the options select.

    Raises:
        UserError: Its key, template or weights are invalid.
    """
    if (llm := config.active_llm) is not None:
        model = open_llm(llm, services, role="passage labels")
        return LLMAnswerer(model, config.prompt)
    component = config.component
    return ReaderAnswerer(component.build(services), component.fingerprint, config.known, seed)


def verifier_of(config: LabelsConfig, judge: Judge | None) -> Verifier:
    """Build the verifier of answers that the options select.

    Raises:
        UserError: A judge is required, but none is provided.
    """
    if config.judge is not None and judge is None:
        raise UserError(
            f"labels.judge is {config.judge}, but no judge is available",
            code="judge-for-mismatches-needed",
            where="labels.judge",
            try_this="set labels.judge: null, which counts answers without an exact match as wrong",
        )
    return Verifier(None if config.judge is None else judge, config.exact)
