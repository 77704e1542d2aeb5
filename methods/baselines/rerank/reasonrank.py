"""ReasonRank: a model that was trained to reason about a window of passages before it orders it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import WindowConfig, WindowReranker, made_of, windows_work
from methods.models.llm import LLM, defaults
from methods.registry import register
from methods.work import needs_of

PRESETS: Mapping[str, Mapping[str, Any]] = {
    size.lower(): {"llm": {"local": f"liuwenhan/reasonrank-{size}", "dtype": "bfloat16"}} for size in ("7B", "32B")
}


class ReasonRankConfig(WindowConfig):
    """Options of ReasonRank."""

    llm: Annotated[LLM, defaults(max_tokens=3172)] = Field(description="the checkpoint here or at an endpoint")
    context: int | None = Field(32768, ge=64, description="tokens that prompt and reply may take together")
    passage_words: int | None = Field(None, ge=1, description="words of a passage that are shown; null: all")
    passage_tokens: int | None = Field(100, ge=1, description="tokens of a passage that are shown; the published value depends on the data")


@register(
    "reasonrank",
    kind="reranker",
    summary="a model that reasons about windows of 20 passages and orders them",
    config=ReasonRankConfig,
    paper="Liu et al. 2025, ReasonRank (arXiv:2508.07050)",
    presets=PRESETS,
    extra="llm",
    checkpoint_hash=made_of(lambda config: "reasonrank"),
    work=windows_work,
    needs=lambda config: needs_of(config.llm),
)
def reasonrank(config: ReasonRankConfig, services: Services) -> WindowReranker:
    """The reranker; a reply without an answer tag leaves a window as it stood, whatever its reasoning names."""
    return WindowReranker(
        config, services, "reasonrank", tagged=True, passage_words=config.passage_words, passage_tokens=config.passage_tokens
    )
