"""GenGround: generate a sub-question and an answer from memory, ground the answer in retrieved passages, and repeat.

Source: Shi et al. 2024, Generate-then-Ground (arXiv:2406.14891): ten documents, batches of three; the first batch with evidence
revises the answer. The authors' code (mangopy/Generate-then-Ground at 661b02bf) uses nine documents and up to seven hops; it
reads all batches, appends each cited passage to the next batch, and revises once with the last one. Ours: an unparsable
revision is not retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from benchmarks.schema import Passage
from benchmarks.text import f1
from methods.models.llm import LLM, defaults
from methods.models.structured import parse
from methods.program import NO_END, NOTHING_FOUND, ProgramConfig, Session, register_program, tagged

EMPTY = "empty"
"""Citation for a batch without evidence."""


class GenGroundConfig(ProgramConfig):
    """Options of GenGround."""

    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(description="the model; paper: gpt-3.5-turbo")
    k: int = Field(10, ge=1, le=100, description="passages found for a sub-question (released: 9)")
    batch: int = Field(3, ge=1, description="passages per prompt")
    hops: int = Field(5, ge=1, description="sub-questions at most (released: 7)")
    grounding: Literal["first_evidence", "all_batches"] = Field(
        "first_evidence", description="batches that revise an answer: the first with evidence (paper), or all (released)"
    )

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.grounding == "all_batches" and self.batch < 2:
            raise ValueError("grounding: all_batches needs a batch of at least 2, since a cited passage joins the next batch")
        return self

    @property
    def readings(self) -> int:
        """Return the maximum number of calls for grounding an answer."""
        if self.grounding == "first_evidence":
            return -(-self.k // self.batch)
        return -(-max(0, self.k - self.batch) // (self.batch - 1)) + 1


@register_program(
    "genground",
    summary="sub-question by sub-question: an answer from memory, revised by cited evidence",
    version=3,
    config=GenGroundConfig,
    prompts=("genground_deduce", "genground_ground", "genground_cite", "genground_revise"),
    calls=lambda config: config.hops * (1 + config.readings) + 1,
    searches=lambda config: config.hops + 1,
    paper="Shi et al. 2024, Generate-then-Ground (arXiv:2406.14891)",
    presets={"paper": {"k": 10, "hops": 5}, "released": {"k": 9, "hops": 7, "grounding": "all_batches"}},
)
async def genground(q: Session) -> str:
    """Run GenGround on a question, and return the model's conclusion, or the last revised answer at the hop limit or after an
    unusable reply.
    """
    steps: list[tuple[str, str]] = []
    for _ in range(q.config.hops):
        reply = await q.ask("genground_deduce", question=q.text, steps=write_steps(steps))
        if final := tagged(reply, "finish"):
            return final
        sub, answer = tagged(reply, "question"), tagged(reply, "answer")
        if not sub or answer is None:
            q.unusable(reply)
        if not sub:
            break
        steps.append((sub, await grounded(q, sub, answer or "unknown")))
    else:
        q.fallback(NO_END)
    if not steps:
        return await q.plain()
    q.ended = "stopped"
    return steps[-1][1]


async def grounded(q: Session, question: str, answer: str) -> str:
    """Revise an answer by retrieved passages; without evidence, it is returned unchanged."""
    passages = await q.search(question)
    if not passages:
        q.fallback(NOTHING_FOUND)
    if q.config.grounding == "all_batches":
        return await corrected(q, question, answer, await evidence(q, question, passages))
    for start in range(0, len(passages), q.config.batch):
        batch = passages[start : start + q.config.batch]
        reply = await q.ask("genground_ground", batch, question=question, answer=answer)
        cited, revised = tagged(reply, "ref"), tagged(reply, "revise")
        if cited is None or not revised:
            q.unusable(reply)
        elif cited and cited.lower() != EMPTY:
            return revised
    return answer


async def evidence(q: Session, question: str, passages: Sequence[Passage]) -> list[Passage]:
    """Read all batches, appending the passage that the model cites to the next batch, and return the last batch."""
    queue, size = list(passages), q.config.batch
    while len(queue) > size:
        batch, queue = queue[:size], queue[size:]
        reply = await q.ask("genground_cite", batch, question=question)
        cited = tagged(reply, "ref")
        if cited is None:
            q.unusable(reply)
        elif cited and cited.lower() != EMPTY:
            queue.append(max(batch, key=lambda passage: f1(cited, [passage.text])))
    return queue


class _Revision(BaseModel):
    answer: str = Field(min_length=1)


async def corrected(q: Session, question: str, answer: str, passages: Sequence[Passage]) -> str:
    """Let the model correct an answer by passages; unchanged without passages or a usable reply."""
    if not passages:
        return answer
    reply = await q.ask("genground_revise", passages, question=question, answer=answer)
    if revision := parse(reply, _Revision).value:
        return revision.answer
    q.unusable(reply)
    return answer


def write_steps(steps: Sequence[tuple[str, str]]) -> str:
    """Format the steps so far for the prompt."""
    return "\n".join(f"Question {n}: {question}\nAnswer {n}: {answer}" for n, (question, answer) in enumerate(steps, 1)) or "(none)"
