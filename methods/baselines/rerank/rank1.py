"""Rank1: a model reasons about one passage, and how much likelier true is than false behind its reasoning is the score.

The reasoning is written greedily, without a chat template. One that does not end is cut behind its last whole sentence,
ended, and counted (`unfinished`). Scores are log-odds; the published share, p(true) / (p(true) + p(false)), is their sigmoid.

Source: Weller et al. 2025, Rank1 (arXiv:2502.18418).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services, Usage
from methods.baselines.rerank.log_odds import LogOddsConfig, LogOddsReranker, made_of
from methods.models.causal import CausalConfig, CausalModel
from methods.registry import register
from methods.retrieval.ranking import reordered
from methods.work import Lengths, Work, ask

NAME, END = "rank1", "</think>"
BASES = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "llama3-8b", "mistral-2501-24b")


class Rank1Config(LogOddsConfig):
    """Options of Rank1."""

    template = NAME
    yes, no = " true", " false"
    model: str = Field("jhu-clsp/rank1-7b", description="a folder or hub id")
    max_length: int = Field(7808, ge=64, description="longest prompt in tokens; with the reasoning 16,000, as published")
    max_new_tokens: int = Field(8192, ge=1, description="longest reasoning")
    batch_size: int = Field(16, ge=1, description="passages of a query that are reasoned about at once")


def _work(config: Rank1Config, lengths: Lengths) -> Work:
    """A call for every question with each of its candidates."""
    prompt = min(config.max_length, 40 + lengths.question + lengths.passage)
    return ask(config, lengths.questions * lengths.ranked(config.depth), prompt)


@register(
    "rank1",
    kind="reranker",
    summary="a model reasons about each passage, and says how much likelier true is than false behind it",
    paper="Weller et al. 2025, Rank1 (arXiv:2502.18418)",
    presets={base: {"model": f"jhu-clsp/rank1-{base}"} for base in BASES},
    training_data=("msmarco",),
    checkpoint_hash=made_of,
    work=_work,
)
class Rank1(LogOddsReranker):
    """Reranker of a Rank1 checkpoint.

    Args:
        config: Options.
        services: Provides the device.
    """

    batch_size = 1  # a query's passages fill the batches; none waits for the reasoning about another query's

    def __init__(self, config: Rank1Config, services: Services) -> None:
        options = {name: getattr(config, name) for name in ("model", "revision", "dtype", "max_new_tokens", "batch_size")}
        self._writer = CausalModel(CausalConfig.model_validate(options), services.device)
        super().__init__(config, services, (self._writer.tokenizer, self._writer.model))

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Order candidates by score; of none or one nothing is asked."""
        return [self._reranked(query, ranking, corpus) for query, ranking in zip(queries, rankings, strict=True)]

    def _reranked(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        ids = ranking.ids[: self.depth]
        rows = [tuple(row) for row in self.encoded(query.text, [p.full_text for p in corpus.get(ids)] if len(ids) > 1 else [])]
        distinct = sorted(set(rows))
        judged: dict[tuple[int, ...], tuple[int, ...]] = {}
        usage, unfinished = Usage(), 0
        for row, written in zip(distinct, self._writer.generate(distinct), strict=True):
            thought, ended, _ = written.text.partition(END)
            judged[row] = (*row, *self.tokens([f"{thought}{END}" if ended else f"{whole_sentences(thought)}\n{END}"])[0])
            usage += Usage(written.prompt_tokens, written.completion_tokens, model_calls=1)
            unfinished += not ended
        scores = self.scored(list(judged.values()))
        result = reordered(query, ranking, np.array([scores[judged[row]] for row in rows], dtype=np.float64))
        note = {"calls": len(distinct), **({"fallbacks": {"unfinished": unfinished}} if unfinished else {})}
        return replace(result, usage=usage, notes={NAME: note})


def whole_sentences(text: str) -> str:
    """A text up to the end of its last sentence; all of it where none ends."""
    end = max(text.rfind(mark) for mark in ".!?\n") + 1
    return text[:end].rstrip() if end else text
