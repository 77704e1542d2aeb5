"""RankGPT: a chat model orders windows of passages, shown one a turn."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import WindowConfig, WindowReranker, made_of, windows_work
from methods.models.llm import LLM, defaults
from methods.registry import register
from methods.work import needs_of


class RankGptConfig(WindowConfig):
    """Options of RankGPT."""

    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(description="the model that orders; in SARK's tables Qwen2.5-7B-Instruct")


@register(
    "rankgpt",
    kind="reranker",
    summary="a chat model orders windows of 20 passages, from the tail to the head",
    config=RankGptConfig,
    paper="Sun et al. 2023, Is ChatGPT Good at Search? (arXiv:2304.09542)",
    extra="llm",
    checkpoint_hash=made_of(lambda config: "rankgpt"),
    work=windows_work,
    needs=lambda config: needs_of(config.llm),
)
def rankgpt(config: RankGptConfig, services: Services) -> WindowReranker:
    """The reranker."""
    return WindowReranker(config, services, "rankgpt", passage_words=config.passage_words)
