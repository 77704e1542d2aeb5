"""GenGround: a sub-question and an answer from memory, then the answer grounded in what is found; and again.

Source: Shi et al. 2024, Generate-then-Ground (arXiv:2406.14891): ten documents, batches of three. The authors' code takes
nine documents and up to seven hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from methods.models.llm import LLM, defaults
from methods.program import NO_END, NOTHING_FOUND, ProgramConfig, Session, register_program, tagged

EMPTY = "empty"
"""What a batch without evidence is cited as."""


class GenGroundConfig(ProgramConfig):
    """Options of GenGround."""

    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(description="the model; paper: gpt-3.5-turbo")
    k: int = Field(10, ge=1, le=100, description="passages found for a sub-question (released: 9)")
    batch: int = Field(3, ge=1, description="passages shown at a time")
    hops: int = Field(5, ge=1, description="sub-questions at most (released: 7)")


@register_program(
    "genground",
    summary="sub-question by sub-question: an answer from memory, revised by cited evidence",
    version=2,
    config=GenGroundConfig,
    prompts=("genground_deduce", "genground_ground"),
    calls=lambda config: config.hops * (1 + -(-config.k // config.batch)) + 1,
    searches=lambda config: config.hops + 1,
    paper="Shi et al. 2024, Generate-then-Ground (arXiv:2406.14891)",
    presets={"paper": {"k": 10, "hops": 5}, "released": {"k": 9, "hops": 7}},
)
async def genground(q: Session) -> str:
    """Return the model's conclusion. At the cap, or if a reply is unusable, return the last revised answer."""
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
    """The answer as the first batch with evidence has it; without evidence as it was."""
    passages = await q.search(question)
    if not passages:
        q.fallback(NOTHING_FOUND)
    for start in range(0, len(passages), q.config.batch):
        batch = passages[start : start + q.config.batch]
        reply = await q.ask("genground_ground", batch, question=question, answer=answer)
        cited, revised = tagged(reply, "ref"), tagged(reply, "revise")
        if cited is None or not revised:
            q.unusable(reply)
        elif cited and cited.lower() != EMPTY:
            return revised
    return answer


def write_steps(steps: Sequence[tuple[str, str]]) -> str:
    """The steps so far."""
    return "\n".join(f"Question {n}: {question}\nAnswer {n}: {answer}" for n, (question, answer) in enumerate(steps, 1)) or "(none)"
