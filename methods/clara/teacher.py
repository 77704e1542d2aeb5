"""Rows of instruction tuning for a corpus of one's own: a language model answers questions from the documents found for them.

The model reads the prompt by which CLaRa's generator answers from text. What it answers becomes the target, and the documents
stay in the order in which they were found, whether one of them answers the question or not. Replies that refuse or abstain are
left out and counted. What became of a question is on disk as soon as it is known: a run that was stopped resumes.

Source: He et al. 2025, section 2.2 and the appendix on training data (Mistral-7B answers from five documents).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.registry import Benchmark
from benchmarks.text import is_abstention
from methods.api import Services
from methods.clara.config import PoolConfig
from methods.clara.data import ranked_documents
from methods.clara.prompts import READING, answer_from_text, background_of
from methods.clara.rows import DOCUMENTS, InstructionRow
from methods.models.chat import ChatModel
from methods.models.endpoint import Estimate
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.models.rewriter import refuses, said
from methods.prompts import Messages
from methods.readers.extract import short_answer
from methods.training import Progress, Silent
from methods.training.journal import Journal, each_once

VERSION = 1
"""Version of parsing replies; increase it if equal replies may give other rows."""


class TeacherConfig(AskingConfig):
    """The model that answers, and the documents that it reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm: Annotated[LLM, defaults(max_tokens=128)] = Field(description="the teacher; paper: Mistral-7B-Instruct-v0.2")
    prompt: str | None = Field(None, description="`ours`, `published` (the authors') or a template file; null: ours")
    pool: PoolConfig = Field(
        PoolConfig(depth=DOCUMENTS),
        description="source of the documents of a question; paper: the best 5 of a dense retriever (source: retriever)",
    )
    keep_abstentions: bool = Field(False, description="keep answers that state that the documents do not answer the question")


@dataclass(frozen=True, slots=True)
class Question:
    """Request to the teacher.

    Attributes:
        id, text: Of the question.
        documents: What it reads, best first.
        gold: A short reference answer; "" if the data has none.
    """

    id: str
    text: str
    documents: tuple[str, ...]
    gold: str


@dataclass(frozen=True, slots=True)
class Taught:
    """Outcome of a question.

    Attributes:
        answer: The teacher's, without what models put around an answer; "" if it is left out.
        left_out: Why there is no answer: refused, abstained or empty.
        failed: Why no reply came; it is asked for again.
        by: The model as its endpoint names it.
        prompt_tokens, completion_tokens, cost_usd: Of the reply.
    """

    answer: str = ""
    left_out: str = ""
    failed: str | None = None
    by: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def came(self) -> bool:
        """Return whether the call was answered."""
        return self.failed is None

    @property
    def lasting(self) -> bool:
        """Return whether the result is kept."""
        return self.failed is None


def questions_of(benchmark: Benchmark, pool: PoolConfig, services: Services) -> list[Question]:
    """Return the questions of a benchmark, each with its documents in the order in which they were found.

    Raises:
        UserError: There is none that has documents.
    """
    ranked = ranked_documents(benchmark, list(benchmark.questions), pool, services)
    results = []
    for question in benchmark.questions:
        texts = dict.fromkeys(passage.full_text for passage in benchmark.corpus.get(ranked[question.id]))
        if documents := tuple(texts)[: pool.depth]:
            results.append(Question(question.id, question.text, documents, question.golds[0] if question.golds else ""))
    if not results:
        raise UserError(
            f"no question of {benchmark.reference} has a document",
            code="no-documents",
            where="DATA",
            try_this="--set pool.source=retriever",
        )
    return results


class Teacher:
    """Answers questions from documents.

    Args:
        config: The model and its prompt.
        services: Of them the cache of replies, and for a local model device and seed.
        states: What became of questions; None keeps nothing.
        model: In place of the model that the options name.

    Raises:
        UserError: The key is not set, or the prompt is not right.
    """

    def __init__(
        self, config: TeacherConfig, services: Services | None = None, states: Journal | None = None, *, model: ChatModel | None = None
    ) -> None:
        self.config, self._states = config, states
        self._prompt = READING["answer"].load(config.prompt)
        self.model = model or open_llm(config.llm, services or Services(), role="teacher")
        self._made_of = [
            VERSION,
            self.model.config.model_dump(mode="json", exclude={"base_url"}),
            self._prompt.hash,
            config.keep_abstentions,
        ]

    def answers(self, questions: Sequence[Question], progress: Progress | None = None) -> list[Taught]:
        """Return what becomes of each question; what is known already is not asked again.

        Raises:
            Broke: No call was answered, or no further one could be. What was answered is kept.
        """
        progress = progress or Silent()
        progress.begin("asking the teacher", len(questions))
        items = [(item.id, fingerprint(*self._made_of, item.text, list(item.documents)), item) for item in questions]
        return each_once(self._answer, items, Taught, self._states, progress, self.model.in_flight, "llm")

    def estimate(self, questions: Sequence[Question]) -> Estimate:
        """Estimate what is still to be asked, without asking."""
        waiting = [item for item in questions if self._kept(item) is None]
        return self.model.estimate([self._messages(item) for item in waiting])

    def _kept(self, item: Question) -> Any | None:
        return None if self._states is None else self._states.get(item.id, fingerprint(*self._made_of, item.text, list(item.documents)))

    def _messages(self, item: Question) -> Messages:
        background = background_of(answer_from_text(item.text, item.documents))
        return self._prompt.messages(background=background, question=item.text)

    async def _answer(self, item: Question) -> Taught:
        reply = await self.model.ask(self._messages(item), step="teach")
        usage = reply.usage
        cost = partial(Taught, by=reply.model, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
        made = partial(cost, cost_usd=usage.cost_usd)
        if reply.failed is not None:
            refused = reply.failed.startswith("refused")
            return made(left_out="refused" if refused else "", failed=None if refused else reply.failed)
        text = short_answer(said(reply.text))
        reasons = {"empty": not text, "refused": refuses(text), "abstained": is_abstention(text) and not self.config.keep_abstentions}
        left_out = next((reason for reason, holds in reasons.items() if holds), "")
        return made("" if left_out else text, left_out)


def rows_of(questions: Sequence[Question], taught: Sequence[Taught]) -> Iterator[InstructionRow]:
    """Yield the rows of the questions that have an answer."""
    for question, item in zip(questions, taught, strict=True):
        if item.answer:
            yield InstructionRow(question.text, question.documents, item.answer, question.gold or item.answer, question.id)


def statistics_of(taught: Sequence[Taught]) -> dict[str, Any]:
    """Return counts of what became of questions, tokens and dollars of all replies, and who replied."""
    counts = Counter(item.left_out or ("failed" if item.failed is not None else "answered") for item in taught)
    sums = {name: sum(getattr(item, name) for item in taught) for name in ("prompt_tokens", "completion_tokens", "cost_usd")}
    failures = Counter(item.failed.partition(":")[0] for item in taught if item.failed is not None)
    return {**dict(sorted(counts.items())), **sums, "by": sorted({item.by for item in taught if item.by}), "failures": dict(failures)}
