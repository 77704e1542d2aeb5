"""Rank-R1: Setwise by a model that was trained by reinforcement to reason before it names the best of twenty documents.

`reasons: false` is its twin Setwise-SFT, which was trained to name it at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import ChoiceConfig, ChoiceReranker, State, choices_work, made_of
from methods.baselines.rerank.replies import UNUSABLE, answer_of
from methods.models.llm import LLM, defaults
from methods.registry import register
from methods.work import needs_of

NAME = "rank_r1"
SIZES = ("3B", "7B", "14B")


def _local(size: str, adapter: str) -> dict[str, Any]:
    return {"local": f"Qwen/Qwen2.5-{size}-Instruct", "adapter": f"ielabgroup/{adapter}-{size}-v0.1", "dtype": "bfloat16"}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    **{size.lower(): {"llm": _local(size, "Rank-R1")} for size in SIZES},
    **{f"sft-{size.lower()}": {"llm": {**_local(size, "Setwise-SFT"), "max_tokens": 32}, "reasons": False} for size in SIZES},
}
"""The published adapters, and their twins without reasoning."""


class RankR1Config(ChoiceConfig):
    """Options of Rank-R1."""

    llm: Annotated[LLM, defaults(max_tokens=2048)] = Field(description="the model: {local: base, adapter: the checkpoint}, or an endpoint")
    children: int = Field(19, ge=1, le=99, description="documents of a comparison, less one; it was trained with 19")
    reasons: bool = Field(True, description="whether it reasons before it answers")
    query_tokens: int = Field(32, ge=1, description="tokens of the query that are shown; BRIGHT: 1,024")
    passage_tokens: int = Field(512, ge=1, description="tokens of a document that are shown; BRIGHT: 1,024")

    @property
    def template(self) -> str:
        """The prompt that ships."""
        return NAME if self.reasons else f"{NAME}_direct"


@register(
    "rank_r1",
    kind="reranker",
    summary="the k best of documents, by a model that reasons about which of twenty is most relevant",
    config=RankR1Config,
    paper="Zhuang et al. 2025, Rank-R1 (arXiv:2503.06034)",
    presets=PRESETS,
    training_data=("msmarco",),
    extra="llm",
    checkpoint_hash=made_of(lambda config: config.template),
    work=choices_work,
    needs=lambda config: needs_of(config.llm),
)
class RankR1(ChoiceReranker):
    """The reranker; documents are shown in another order in each comparison, as in the published code.

    Args:
        config: Options.
        services: Of them the cache of replies, device and seed.
    """

    def __init__(self, config: RankR1Config, services: Services) -> None:
        limits: dict[str, Any] = {"query_tokens": config.query_tokens, "passage_tokens": config.passage_tokens, "plain_references": True}
        super().__init__(config, services, NAME, config.template, shuffles=True, **limits)

    async def chosen(self, state: State, texts: Sequence[str]) -> int | None:
        labels = [str(number) for number in range(1, len(texts) + 1)]
        reply = await self.reply(state, self.writer(state.query, texts, labels), "")
        if reply is None:
            return None
        place = answer_of(reply.text, len(texts), thinks=self.config.reasons)
        if place is None:
            state.fallbacks[UNUSABLE] += 1
        return place
