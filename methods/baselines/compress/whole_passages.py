"""Uncompressed baseline at an equal token budget: the first passages of the ranking that fit completely, as text."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.models.pretrained import load_tokenizer
from methods.registry import ModelMethodConfig, register
from methods.work import free


class WholePassagesConfig(ModelMethodConfig):
    """Options of the uncompressed baseline."""

    model: str = Field(description="the reader's model, whose tokenizer counts: a folder, hub id or `pocket`")
    revision: str | None = Field(None, description="revision of a hub id")


@register(
    "whole_passages",
    kind="compressor",
    summary="the first passages that fit completely into `budget` tokens, as text: the control for compressors at an equal token budget",
    work=free,
)
class WholePassages:
    """Compressor that keeps whole passages in ranking order; it skips a passage that exceeds the budget and tries the next.

    Args:
        config: Options, with the model whose tokenizer counts tokens.
        services: Unused.
    """

    def __init__(self, config: WholePassagesConfig, services: Services) -> None:
        self._tokenizer = load_tokenizer(config.model, config.revision)

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return each ranking's passages that fit the budget; all without a budget, none if each is too long."""
        return [self._context(ranking, corpus, budget) for ranking in rankings]

    def _context(self, ranking: Ranking, corpus: Corpus, budget: int | None) -> Context:
        passages, kept, used = corpus.get(ranking.ids), [], 0
        for passage in passages:
            count = 0 if budget is None else len(self._tokenizer.encode(passage.full_text, add_special_tokens=False))
            if budget is None or used + count <= budget:
                kept.append(passage)
                used += count
        notes = {TRUNCATED: {"unit": "passages", "kept": len(kept), "of": len(passages)}} if len(kept) < len(passages) else {}
        return Context(ranking.query_id, tuple(kept), notes=notes)
