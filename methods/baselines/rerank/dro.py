"""DRO's selector: a language model names the passages that together answer the question, best first.

It uses RankGPT's windows. No checkpoint is published: `llm` is a prompted model, or one trained with `ragmeter train dro`.

Source: Shi et al. 2025, Direct Retrieval-augmented Optimization (arXiv:2505.03075): five of twenty passages.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from methods.api import Services
from methods.baselines.rerank.asking import WindowConfig, WindowReranker, made_of, windows_work
from methods.models.llm import LLM, defaults
from methods.registry import register


class DroConfig(WindowConfig):
    """Options of the selector."""

    system = "dro"
    llm: Annotated[LLM, defaults(max_tokens=64)] = Field(description="the model that selects; paper: Llama-3-8B or Mistral-7B, trained")
    named: int = Field(5, ge=1, description="passages that a reply has to name; the others follow in their original order")


@register(
    "dro",
    kind="reranker",
    summary="DRO's list-wise selector: a model names five of twenty passages, in windows",
    paper="Shi et al. 2025, Direct Retrieval-augmented Optimization (arXiv:2505.03075)",
    presets={"paper": {"window": 20, "named": 5}},
    checkpoint_hash=made_of,
    work=windows_work,
)
def dro(config: DroConfig, services: Services) -> WindowReranker:
    """Build the reranker."""
    return WindowReranker(config, services, "dro", named=config.named, passage_words=config.passage_words)
