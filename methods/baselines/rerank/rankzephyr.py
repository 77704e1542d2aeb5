"""RankZephyr: a model of seven billion parameters that was trained to order windows of passages, shown in one message."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import WindowConfig, WindowReranker, made_of, windows_work
from methods.models.llm import LLM, defaults
from methods.registry import register
from methods.work import needs_of

MODEL = "castorini/rank_zephyr_7b_v1_full"


class RankZephyrConfig(WindowConfig):
    """Options of RankZephyr."""

    llm: Annotated[LLM, defaults(max_tokens=160)] = Field(
        default={"local": MODEL, "dtype": "bfloat16"}, validate_default=True, description="the checkpoint here or at an endpoint"
    )
    context: int | None = Field(4096, ge=64, description="tokens that prompt and reply may take together; it was trained with 4,096")


@register(
    "rankzephyr",
    kind="reranker",
    summary="a 7B model trained to order windows of 20 passages",
    config=RankZephyrConfig,
    paper="Pradeep et al. 2023, RankZephyr (arXiv:2312.02724)",
    training_data=("msmarco",),
    extra="models",
    checkpoint_hash=made_of(lambda config: "rankzephyr"),
    work=windows_work,
    needs=lambda config: needs_of(config.llm),
)
def rankzephyr(config: RankZephyrConfig, services: Services) -> WindowReranker:
    """The reranker."""
    return WindowReranker(config, services, "rankzephyr", passage_words=config.passage_words)
