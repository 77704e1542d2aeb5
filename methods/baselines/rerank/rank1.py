"""Rank1: a model reasons about one passage, and how much likelier true is than false behind its reasoning is the score.

The reasoning is written greedily, without a chat template, until a verdict stands behind its end. One that has none is cut
behind its last whole sentence, ended, and counted (`unfinished`). Scores are log-odds; the published share,
p(true) / (p(true) + p(false)), is their sigmoid.

Source: Weller et al. 2025, Rank1 (arXiv:2502.18418).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field, field_validator

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services, Usage
from methods.baselines.rerank.log_odds import LogOddsConfig, LogOddsReranker, made_of
from methods.models.causal import CausalConfig, CausalModel
from methods.prompts import whole_ids
from methods.registry import register
from methods.retrieval.ranking import reordered
from methods.work import Lengths, Work, ask

NAME, END, QUERY_MARK = "rank1", "</think>", "FILL_QUERY_HERE"
BASES = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "llama3-8b", "mistral-2501-24b")


class Rank1Config(LogOddsConfig):
    """Options of Rank1."""

    template = NAME
    yes, no = " true", " false"
    families = ("qwen2", "llama", "mistral", "mistral3")
    instruction: str | None = Field(
        None, description=f"a text with {QUERY_MARK} in the place of the query, as the authors have one per data set; null: the query"
    )
    model: str = Field("jhu-clsp/rank1-7b", description="a folder or hub id")
    max_length: int = Field(7808, ge=64, description="longest prompt in tokens; with the reasoning 16,000, as published")
    max_new_tokens: int = Field(8192, ge=1, description="longest reasoning")
    batch_size: int = Field(16, ge=1, description="passages of a query that are reasoned about at once")

    @property
    def shown(self) -> frozenset[str]:
        """Placeholders that have a value of their own: the instruction is part of the query."""
        return frozenset()

    @field_validator("instruction")
    @classmethod
    def _holds_the_query(cls, value: str | None) -> str | None:
        if value is not None and QUERY_MARK not in value:
            raise ValueError(f"the instruction of Rank1 must hold {QUERY_MARK}, in whose place the question is put")
        return value


def _work(config: Rank1Config, lengths: Lengths) -> Work:
    """A call for every question with each of its candidates."""
    prompt = min(config.max_length, 40 + lengths.question + lengths.passage)
    return ask(config, lengths.questions * lengths.ranked(config.depth), prompt)


@register(
    "rank1",
    kind="reranker",
    summary="a model reasons about each passage, and says how much likelier true is than false behind it",
    version=2,
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

    def rows(self, query: str, passages: Sequence[str]) -> list[dict[str, str]]:
        """Return what is put into the prompt, for each passage."""
        shown = query if self.config.instruction is None else self.config.instruction.replace(QUERY_MARK, query)
        return [{"query": shown, "passage": passage} for passage in passages]

    def _reranked(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        ids = ranking.ids[: self.depth]
        texts = [passage.full_text for passage in corpus.get(ids)] if len(ids) > 1 else []
        rows = [tuple(row) for row in self.encoded(query.text, texts)]
        distinct = sorted(set(rows))
        judged: dict[tuple[int, ...], tuple[int, ...]] = {}
        usage, unfinished = Usage(), 0
        stop = [f"{END}{word}" for word in (self.config.yes, self.config.no)]
        for row, written in zip(distinct, self._writer.generate(distinct, stop=stop), strict=True):
            ended = written.tokens[-1:] in ((self._yes,), (self._no,)) and written.ended
            judged[row] = (*row, *written.tokens[:-1]) if ended else self._ended(row, written.text)
            usage += Usage(written.prompt_tokens, written.completion_tokens, model_calls=1)
            unfinished += not ended
        scores = self.scored(list(judged.values()))
        result = reordered(query, ranking, np.array([scores[judged[row]] for row in rows], dtype=np.float64))
        note = {"calls": len(distinct), **({"fallbacks": {"unfinished": unfinished}} if unfinished else {})}
        return replace(result, usage=usage, notes={NAME: note})

    def _ended(self, row: tuple[int, ...], thought: str) -> tuple[int, ...]:
        """Return a prompt and a reasoning that is ended by hand, as one text."""
        prompt = str(self.tokenizer.decode(row))
        return tuple(whole_ids(self.tokenizer, [f"{prompt}\n{whole_sentences(thought)}\n{END}"]))


def whole_sentences(text: str) -> str:
    """Return a text up to the end of its last sentence, all of it if none ends."""
    text = text.rstrip()
    end = max(text.rfind(mark) for mark in ".!?") + 1
    return (text[:end] if end and not text.endswith((".", "!", "?")) else text).strip()
