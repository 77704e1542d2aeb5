"""Generate instruction-tuning rows for the user's corpus: a language model answers questions from retrieved documents.

The model gets the prompt with which CLaRa's generator answers from text, and its answer becomes the training target. Documents
stay in retrieval order, whether or not they contain the answer. Refusals and abstentions are dropped and counted. Results are
saved at once, so that an interrupted run resumes.

Source: He et al. 2025, section 2.2 and the appendix on training data (Mistral-7B answers from five documents).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.registry import Benchmark
from benchmarks.text import is_abstention
from methods.api import Services
from methods.clara.config import PoolConfig
from methods.clara.data import ranked_documents
from methods.clara.prompts import READING, answer_from_text, background_of
from methods.clara.rows import DOCUMENTS, InstructionRow
from methods.models.chat import ChatModel
from methods.models.counting import Estimate
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.models.rewriter import bare_text, refuses
from methods.prompts import Messages
from methods.readers.extract import short_answer
from methods.training import Progress, Silent
from methods.training.journal import Journal, each_once

VERSION = 1
"""Version of parsing replies; increase it if the same replies can produce other rows."""


class TeacherConfig(AskingConfig, FrozenModel):
    """Options of the teacher: language model, and number of documents."""

    llm: Annotated[LLM, defaults(max_tokens=128)] = Field(description="the teacher; paper: Mistral-7B-Instruct-v0.2")
    prompt: str | None = Field(None, description="`ours`, `published` (the authors') or a template file; null: ours")
    pool: PoolConfig = Field(
        PoolConfig(depth=DOCUMENTS),
        description="source of the documents of a question; paper: the best 5 of a dense retriever (source: retriever)",
    )
    keep_abstentions: bool = Field(False, description="keep answers that state that the documents do not answer the question")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its documents, for the teacher.

    Attributes:
        id, text: Id and text of the question.
        documents: Documents to answer from, best first.
        gold: A short reference answer; "" if the data has none.
    """

    id: str
    text: str
    documents: tuple[str, ...]
    gold: str


@dataclass(frozen=True, slots=True)
class Taught:
    """The teacher's result for one question.

    Attributes:
        answer: The cleaned answer; "" if it was dropped.
        left_out: Reason of dropping: `refused`, `abstained` or `empty`.
        failed: Reason of a failed call, which is retried next time.
        by: Model, as named by its endpoint.
        prompt_tokens, completion_tokens, cost_usd: Cost of the reply.
        cut: Whether the answer ends at the limit of tokens, so that the model learns to stop there.
    """

    answer: str = ""
    left_out: str = ""
    failed: str | None = None
    by: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cut: bool = False

    @property
    def came(self) -> bool:
        """Return whether the call got a reply."""
        return self.failed is None

    @property
    def lasting(self) -> bool:
        """Return whether the result is final and saved."""
        return self.failed is None


def questions_of(benchmark: Benchmark, pool: PoolConfig, services: Services) -> list[Question]:
    """Return a benchmark's questions with their documents in retrieval order.

    Raises:
        UserError: No question has documents.
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
    """Language model that answers questions from documents, with saved results.

    Args:
        config: The model and its prompt.
        services: Services: reply cache, and for a local model device and seed.
        states: Saved results by question; None saves nothing.
        model: Model that replaces the configured one.

    Raises:
        UserError: The API key is not set, or the prompt is invalid.
    """

    def __init__(
        self, config: TeacherConfig, services: Services | None = None, states: Journal | None = None, *, model: ChatModel | None = None
    ) -> None:
        self.config, self._states = config, states
        self._prompt = READING["answer"].load(config.prompt)
        self.model = model or open_llm(config.llm, services or Services(), role="teacher")
        self._made_of = [VERSION, self.model.config.identity(address=False), self._prompt.hash, config.keep_abstentions]

    def answers(self, questions: Sequence[Question], progress: Progress | None = None) -> list[Taught]:
        """Answer each question; saved results are reused.

        Raises:
            Broke: No call succeeded, or no further call could succeed. Finished work is saved.
        """
        progress = progress or Silent()
        progress.begin("asking the teacher", len(questions))
        items = [(item.id, fingerprint(*self._made_of, item.text, list(item.documents)), item) for item in questions]
        return each_once(self._answer, items, Taught, self._states, progress, self.model.in_flight, "llm")

    def estimate(self, questions: Sequence[Question]) -> Estimate:
        """Estimate the cost of the remaining calls without making any."""
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
        text = short_answer(bare_text(reply.text))
        reasons = {"empty": not text, "refused": refuses(text), "abstained": is_abstention(text) and not self.config.keep_abstentions}
        left_out = next((reason for reason, holds in reasons.items() if holds), "")
        return made("" if left_out else text, left_out, cut=not left_out and reply.finish_reason == "length")


def rows_of(questions: Sequence[Question], taught: Sequence[Taught]) -> Iterator[InstructionRow]:
    """Yield training rows for the questions that have an answer."""
    for question, item in zip(questions, taught, strict=True):
        if item.answer:
            yield InstructionRow(question.text, question.documents, item.answer, question.gold or item.answer, question.id)


def statistics_of(taught: Sequence[Taught]) -> dict[str, Any]:
    """Return counts of outcomes, tokens and dollars of all replies, and the models that replied.

    Of the answered questions, those whose answer was cut are also counted as `cut`.
    """
    counts = Counter(item.left_out or ("failed" if item.failed is not None else "answered") for item in taught)
    sums = {name: sum(getattr(item, name) for item in taught) for name in ("prompt_tokens", "completion_tokens", "cost_usd")}
    if cut := sum(item.cut for item in taught):
        counts["cut"] = cut
    failures = Counter(item.failed.partition(":")[0] for item in taught if item.failed is not None)
    return {**dict(sorted(counts.items())), **sums, "by": sorted({item.by for item in taught if item.by}), "failures": dict(failures)}
