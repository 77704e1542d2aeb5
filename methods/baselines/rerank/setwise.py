"""Setwise: any language model says which of a few passages is most relevant; sorting by that finds the k best.

As a text (`score: generation`), or as the likeliest label (`likelihood`, weights of this machine alone): one pass of
the model in place of several, and never unreadable. An encoder-decoder model (Flan-T5) writes behind the word
`Passage`, a causal model behind `Passage:` in its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from methods.api import Services
from methods.baselines.rerank.asking import NO_ROOM, ChoiceConfig, ChoiceReranker, State, choices_work, made_of
from methods.baselines.rerank.replies import LABELS, UNUSABLE, label_of
from methods.models.llm import LLM, LabelModel, LocalConfig, defaults
from methods.models.weights import is_encoder_decoder
from methods.registry import register
from methods.work import needs_of

NAME = "setwise"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    f"flan-t5-{size}": {"llm": {"local": f"google/flan-t5-{size}"}} for size in ("large", "xl", "xxl")
}


class SetwiseConfig(ChoiceConfig):
    """Options of Setwise."""

    llm: Annotated[LLM, defaults(max_tokens=4)] = Field(description="the model: an endpoint, or weights of this machine")
    score: Literal["generation", "likelihood"] = Field("generation", description="how the best is named: written, or the likeliest label")
    query_tokens: int = Field(128, ge=1, description="tokens of the query that are shown")
    passage_tokens: int = Field(128, ge=1, description="tokens of a passage that are shown")

    @model_validator(mode="after")
    def _has_likelihoods(self) -> SetwiseConfig:
        if self.score == "likelihood" and not isinstance(self.llm, LocalConfig):
            raise ValueError("score: likelihood needs weights of this machine (llm: {local: …}): an endpoint gives none")
        return self


@register(
    "setwise",
    kind="reranker",
    summary="the k best by asking a language model which of a few passages is most relevant",
    config=SetwiseConfig,
    paper="Zhuang et al. 2024, A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking (arXiv:2310.09497)",
    presets=PRESETS,
    extra="llm",
    checkpoint_hash=made_of(lambda config: NAME),
    work=choices_work,
    needs=lambda config: needs_of(config.llm),
)
class Setwise(ChoiceReranker):
    """The reranker.

    Args:
        config: Options.
        services: Of them the cache of replies, device and seed.
    """

    def __init__(self, config: SetwiseConfig, services: Services) -> None:
        model = None
        if config.score == "likelihood":
            assert isinstance(config.llm, LocalConfig)
            model = LabelModel(config.llm, role=NAME, device=services.device)
        limits: dict[str, Any] = {"query_tokens": config.query_tokens, "passage_tokens": config.passage_tokens}
        if isinstance(config.llm, LocalConfig):
            limits["start"] = "Passage" if is_encoder_decoder(config.llm.local, config.llm.revision) else " Passage:"
        super().__init__(config, services, NAME, NAME, model=model, **limits)

    async def chosen(self, state: State, texts: Sequence[str]) -> int | None:
        messages = self.writer(state.query, texts, LABELS)
        if isinstance(self.model, LabelModel):
            if messages is None:
                state.fallbacks[NO_ROOM] += 1
                return None
            scores, usage = await self.model.choose(messages, [f" {label}" for label in LABELS[: len(texts)]])
            state.calls += 1
            state.usage += usage
            return scores.labels.index(scores.best)
        reply = await self.reply(state, messages, "")
        if reply is None:
            return None
        place = label_of(reply.text, len(texts))
        if place is None:
            state.fallbacks[UNUSABLE] += 1
        return place
