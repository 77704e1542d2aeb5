"""Listwise rerankers with sliding windows: RankGPT, RankZephyr, ReasonRank."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import WindowConfig, WindowReranker, made_of, windows_work
from methods.models.llm import LLM, defaults
from methods.registry import register


class RankGptConfig(WindowConfig):
    """Options of RankGPT."""

    system = "rankgpt"
    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(
        description="model that orders the passages; in SARK's tables Qwen2.5-7B-Instruct"
    )


@register(
    "rankgpt",
    kind="reranker",
    summary="a chat model orders windows of 20 passages, from the end of the list to its start",
    paper="Sun et al. 2023, Is ChatGPT Good at Search? (arXiv:2304.09542)",
    checkpoint_hash=made_of,
    work=windows_work,
)
def rankgpt(config: RankGptConfig, services: Services) -> WindowReranker:
    """Build the reranker RankGPT."""
    return WindowReranker(config, services, "rankgpt", passage_words=config.passage_words)


class RankZephyrConfig(WindowConfig):
    """Options of RankZephyr."""

    system = "rankzephyr"
    llm: Annotated[LLM, defaults(max_tokens=160)] = Field(
        default={"local": "castorini/rank_zephyr_7b_v1_full", "dtype": "bfloat16"},
        validate_default=True,
        description="the checkpoint, loaded locally or at an endpoint",
    )
    context: int | None = Field(4096, ge=64, description="maximum tokens of prompt and reply together; it was trained with 4,096")


@register(
    "rankzephyr",
    kind="reranker",
    summary="a 7B model trained to order windows of 20 passages",
    version=2,
    paper="Pradeep et al. 2023, RankZephyr (arXiv:2312.02724)",
    training_data=("msmarco",),
    extra="models",
    checkpoint_hash=made_of,
    work=windows_work,
)
def rankzephyr(config: RankZephyrConfig, services: Services) -> WindowReranker:
    """Build the reranker RankZephyr."""
    return WindowReranker(config, services, "rankzephyr", passage_words=config.passage_words, context=config.context)


class ReasonRankConfig(WindowConfig):
    """Options of ReasonRank."""

    system = "reasonrank"
    llm: Annotated[LLM, defaults(max_tokens=3172)] = Field(description="the checkpoint here or at an endpoint")
    context: int | None = Field(32768, ge=64, description="tokens that prompt and reply may take together")
    passage_words: int | None = Field(None, ge=1, description="words of a passage that are shown; null: all")
    passage_tokens: int | None = Field(100, ge=1, description="maximum tokens per passage; the published value depends on the data")


@register(
    "reasonrank",
    kind="reranker",
    summary="a model that reasons about windows of 20 passages and orders them",
    version=2,
    paper="Liu et al. 2025, ReasonRank (arXiv:2508.07050)",
    presets={size.lower(): {"llm": {"local": f"liuwenhan/reasonrank-{size}", "dtype": "bfloat16"}} for size in ("7B", "32B")},
    checkpoint_hash=made_of,
    work=windows_work,
)
def reasonrank(config: ReasonRankConfig, services: Services) -> WindowReranker:
    """Build the reranker ReasonRank; as in the released code, a reply without an answer tag is parsed after its reasoning."""
    return WindowReranker(
        config, services, "reasonrank", tagged=True, passage_words=config.passage_words, passage_tokens=config.passage_tokens
    )
