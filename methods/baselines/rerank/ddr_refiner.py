"""RAG-DDR's knowledge refinement: a model answers YES or NO for each passage in order, until enough are kept.

Kept passages come first, in order, and only they are given to the reader (all passages if none is kept). As in the released
code, the published prompt is sent for `keep` passages at once, and a passage is kept if its reply contains YES, Yes or yes.

Source: Li et al. 2025, RAG-DDR (arXiv:2410.13509); five passages of at most 1,024 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import OVERHEAD, AskingReranker, AskingRerankerConfig, State, made_of
from methods.baselines.rerank.prompts import PROMPTS
from methods.baselines.rerank.replies import UNUSABLE, plain_digits
from methods.flow import together
from methods.models.llm import LLM, defaults
from methods.registry import register
from methods.work import Lengths, Work, ask

NAME = "ddr_refiner"
RELEASED: Mapping[str, Any] = {
    "local": "meta-llama/Meta-Llama-3-8B-Instruct",
    "adapter": "OpenMatch/RAG-DDR/Kr_model_for_Llama3_8b",
    "dtype": "bfloat16",
    "max_tokens": 32,
}
_VERDICT = re.compile(r"\A\W*(yes|no)\b", re.IGNORECASE)
_WRAPPED = re.compile(r"\b(YES|NO)\b")
_PUBLISHED = re.compile("YES|Yes|yes")


class DdrRefinerConfig(AskingRerankerConfig):
    """Options of the refinement."""

    system = NAME
    llm: Annotated[LLM, defaults(max_tokens=8)] = Field(description="the model that says YES or NO; released: an adapter of Llama-3-8B")
    keep: int = Field(5, ge=1, description="stop after this many passages with a YES")
    passage_tokens: int = Field(1024, ge=1, description="tokens of a passage that are shown")


def _work(config: DdrRefinerConfig, lengths: Lengths) -> Work:
    """Estimate the work: at most one call per passage."""
    prompt = OVERHEAD + lengths.question + min(lengths.passage, config.passage_tokens)
    return ask(config.llm, lengths.questions * lengths.ranked(config.depth), prompt)


@register(
    "ddr_refiner",
    kind="reranker",
    summary="keeps the passages that a language model answers YES to; DDR's adapters, or any model by prompt",
    version=4,
    paper="Li et al. 2025, RAG-DDR (arXiv:2410.13509)",
    presets={"paper": {"keep": 5, "passage_tokens": 1024}, "released": {"llm": RELEASED}},
    checkpoint_hash=made_of,
    work=_work,
)
class DdrRefiner(AskingReranker):
    """Reranker role: RAG-DDR's refinement.

    Args:
        config: Options.
        services: Services; reply cache, device and seed are used.
    """

    def __init__(self, config: DdrRefinerConfig, services: Services) -> None:
        super().__init__(config, services, NAME, NAME, {"passage_tokens": config.passage_tokens})
        self._published = PROMPTS[NAME].is_published(config.chosen_prompt)

    async def order(self, state: State) -> Sequence[int]:
        kept: list[int] = []
        start, end = 0, len(state.ids)
        while start < end and len(kept) < self.config.keep:
            # As released: a whole batch is asked about, so that more may be kept. Of our prompt, one after another would ask so many, too.
            batch = range(start, min(end, start + self.config.keep - (0 if self._published else len(kept))))
            verdicts = await together(*(self._keeps(state, position) for position in batch))
            kept += [position for position, verdict in zip(batch, verdicts, strict=True) if verdict]
            start = batch.stop
        state.selected = kept or None
        return [*kept, *(position for position in range(end) if position not in set(kept))]

    async def _keeps(self, state: State, position: int) -> bool:
        reply = await self.reply(state, self.writer(state.query, state.texts([position]), ["1"]), "")
        if reply is None:
            return False
        if self._published:
            return _PUBLISHED.search(reply.text) is not None
        text = plain_digits(reply.text)
        verdict = _VERDICT.match(text) or _WRAPPED.search(text)
        if verdict is None:
            state.fallbacks[UNUSABLE] += 1
        return verdict is not None and verdict[1].lower() == "yes"
