"""Iter-RetGen and IRCoT: alternate between generation and retrieval, with the generated text as the next query.

Source: Shao et al. 2023, Iter-RetGen (arXiv:2305.15294); Trivedi et al. 2023, IRCoT (arXiv:2212.10509).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from benchmarks.text import sentences
from methods.models.llm import LLM, defaults
from methods.program import NO_END, ProgramConfig, Session, behind, register_program

ANSWER_IS = "answer is"


class IterRetGenConfig(ProgramConfig):
    """Options of Iter-RetGen."""

    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(description="the model; paper: text-davinci-003")
    rounds: int = Field(2, ge=1, description="number of searches and answers; paper: up to 7, the second helps most")
    reasons: bool = Field(
        True, description="write reasoning and search with it; false: write only answers, for models that write nothing else"
    )


@register_program(
    "iter_retgen",
    summary="searches again with the question and the previous output; the last round answers",
    version=2,
    config=IterRetGenConfig,
    prompts=("iter_retgen",),
    calls=lambda config: config.rounds + 1,
    searches=lambda config: config.rounds + 1,
    paper="Shao et al. 2023, Iter-RetGen (arXiv:2305.15294)",
    presets={"paper": {"rounds": 2, "k": 5}},
)
async def iter_retgen(q: Session) -> str:
    """Run Iter-RetGen on a question, and return the last round's answer; each round only reads its own search results."""
    written = ""
    for _ in range(q.config.rounds):
        passages = await q.search(f"{written} {q.text}".strip())
        written = await (q.ask("iter_retgen", passages, question=q.text) if q.config.reasons else q.read(passages))
        if q.config.reasons and not behind(written, ANSWER_IS):
            q.unusable(written)
    return (behind(written, ANSWER_IS) if q.config.reasons else written) or await q.plain()


class IrcotConfig(ProgramConfig):
    """Options of IRCoT."""

    llm: Annotated[LLM, defaults(max_tokens=200)] = Field(description="the model; paper: code-davinci-002, Flan-T5")
    k: int = Field(4, ge=1, le=100, description="passages per search (tuned among 2, 4, 6, 8)")
    sentences: int = Field(10, ge=1, description="maximum sentences in a chain")
    pool: int = Field(15, ge=1, description="maximum passages shown")


_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_NO_QUERY = re.compile(rf"^(?:thus|so|therefore|hence|that is)\b|{_NUMBER} [-+] {_NUMBER} = {_NUMBER}", re.IGNORECASE)
"""Sentences that conclude or calculate ("4 + 5 = 9"), which do not retrieve anything; ranges and fractions do not count as calculations."""


@register_program(
    "ircot",
    summary="searches with each sentence of a chain of thought, then reads all retrieved passages",
    version=3,
    config=IrcotConfig,
    prompts=("ircot",),
    calls=lambda config: config.sentences + 1,
    searches=lambda config: config.sentences + 1,
    paper="Trivedi et al. 2023, IRCoT (arXiv:2212.10509)",
    presets={"paper": {"k": 4, "sentences": 10, "pool": 15}},
)
async def ircot(q: Session) -> str:
    """Run IRCoT on a question, and return the answer read from the collected passages; if reading fails, the answer in the
    chain.
    """
    pool = {passage.id: passage for passage in await q.search(q.text)}
    chain: list[str] = []
    for _ in range(q.config.sentences):
        reply = await q.ask("ircot", list(pool.values()), question=q.text, chain=" ".join(chain) or "(nothing yet)")
        first = next(iter(sentences(reply)), "")
        if not first:
            break
        chain.append(first)
        if ANSWER_IS in first.lower():
            break
        for passage in await q.search(q.text if _NO_QUERY.search(first) else first):
            if len(pool) < q.config.pool:
                pool.setdefault(passage.id, passage)
    else:
        q.fallback(NO_END)
    answer = await q.read(list(pool.values()))
    return answer or (behind(chain[-1], ANSWER_IS) if chain else "") or ""
