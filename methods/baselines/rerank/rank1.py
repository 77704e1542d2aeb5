"""Rank1: a model reasons about each passage; the score is the log-odds of true over false after the reasoning.

The reasoning is generated greedily, without a chat template, until its end and a verdict. Reasoning without a verdict is cut
after its last complete sentence, closed, and counted (`unfinished`). Scores are log-odds; the published score p(true) /
(p(true) + p(false)) is their sigmoid.

An endpoint only returns the most likely tokens. If true or false is not among them, only a bound of the score is known.
If such bounds do not determine the order, the question fails.

Source: Weller et al. 2025, Rank1 (arXiv:2502.18418).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import FAILED, Ranking, Services, Usage
from methods.baselines.rerank.log_odds import LogOddsConfig, LogOddsReranker, made_of
from methods.flow import together
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.prompts import whole_ids
from methods.registry import register
from methods.retrieval.ranking import reordered
from methods.served import TOP, ServedConfig, ServedModel
from methods.work import Lengths, Work, ask

NAME, END, QUERY_MARK = "rank1", "</think>", "FILL_QUERY_HERE"
BASES = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "llama3-8b", "mistral-2501-24b")


class Rank1Config(ServedConfig, LogOddsConfig):
    """Options of Rank1."""

    template = NAME
    yes, no = " true", " false"
    families = ("qwen2", "llama", "mistral", "mistral3")
    instruction: str | None = Field(
        None,
        description=f"a text with {QUERY_MARK} in the place of the query, for example the authors' text for a data set; null: "
        "only the query",
    )
    model: str = Field("jhu-clsp/rank1-7b", description="a folder or hub id")
    max_length: int = Field(7808, ge=64, description="longest prompt in tokens; with the reasoning 16,000, as published")
    max_new_tokens: int = Field(8192, ge=1, description="longest reasoning")
    batch_size: int = Field(16, ge=1, description="passages of a query that the model reasons about at once")

    @property
    def shown(self) -> frozenset[str]:
        """Return the names of placeholders that have values; the instruction is part of the query."""
        return frozenset()

    def text_of(self, passage: Passage) -> str:
        """Format a passage for the prompt; as in the released code, surrounding white space is kept."""
        return f"{passage.title} {passage.text}" if self.is_published and passage.title else passage.full_text

    @field_validator("instruction")
    @classmethod
    def _holds_the_query(cls, value: str | None) -> str | None:
        if value is not None and QUERY_MARK not in value:
            raise ValueError(f"the instruction of Rank1 must contain {QUERY_MARK}, which the question replaces")
        return value


def _work(config: Rank1Config, lengths: Lengths) -> Work:
    """Estimate the work: one call per question and candidate."""
    prompt = min(config.max_length, 40 + lengths.question + lengths.passage)
    return ask(config.served or config, lengths.questions * lengths.ranked(config.depth), prompt)


class _Pairs(LogOddsReranker):
    """Base class with Rank1's prompts."""

    def rows(self, query: str, passages: Sequence[str]) -> list[dict[str, str]]:
        """Return the placeholder values of each passage's prompt."""
        shown = query if self.config.instruction is None else self.config.instruction.replace(QUERY_MARK, query)
        return [{"query": shown, "passage": passage} for passage in passages]

    @property
    def stop(self) -> list[str]:
        """Return the texts that end the reasoning with its verdict."""
        return [f"{END}{word}" for word in (self.config.yes, self.config.no)]

    def decided(self, written: Generation) -> bool:
        """Return whether a verdict follows the end of the reasoning."""
        return written.tokens[-1:] in ((self._yes,), (self._no,)) and written.ended

    def ended(self, row: tuple[int, ...], thought: str) -> tuple[int, ...]:
        """Append the end of the reasoning to a prompt with unfinished reasoning."""
        prompt = str(self.tokenizer.decode(row))
        return tuple(whole_ids(self.tokenizer, [f"{prompt}\n{whole_sentences(thought)}\n{END}"]))

    def bounds(self, top: Mapping[int, float]) -> tuple[float, float]:
        """Return lower and upper bounds of the log-odds from the most likely tokens; equal if both tokens are among them."""
        yes, no, rest = top.get(self._yes), top.get(self._no), min(top.values(), default=math.inf)
        low = -math.inf if yes is None else yes - (rest if no is None else no)
        high = math.inf if no is None else (rest if yes is None else yes) - no
        return low, high


@register(
    "rank1",
    kind="reranker",
    summary="a model reasons about each passage; the score is the log-odds of true over false after the reasoning",
    version=3,
    paper="Weller et al. 2025, Rank1 (arXiv:2502.18418)",
    presets={base: {"model": f"jhu-clsp/rank1-{base}"} for base in BASES},
    training_data=("msmarco",),
    checkpoint_hash=made_of,
    work=_work,
)
def rank1(config: Rank1Config, services: Services) -> Rank1 | ServedRank1:
    """Build the reranker, with a local model or an endpoint."""
    return Rank1(config, services) if config.endpoint is None else ServedRank1(config, services)


class Rank1(_Pairs):
    """Reranker role with a local Rank1 checkpoint.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    batch_size = 1  # a query's passages fill the batches; none waits for the reasoning about another query's

    def __init__(self, config: Rank1Config, services: Services) -> None:
        options = {name: getattr(config, name) for name in ("model", "revision", "dtype", "max_new_tokens", "batch_size")}
        self._writer = CausalModel(CausalConfig.model_validate(options), services.device)
        super().__init__(config, services, (self._writer.tokenizer, self._writer.model))

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Sort candidates by score; a single candidate needs no call."""
        return [self._reranked(query, ranking, corpus) for query, ranking in zip(queries, rankings, strict=True)]

    def _reranked(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        ids = ranking.ids[: self.depth]
        texts = [self.config.text_of(passage) for passage in corpus.get(ids)] if len(ids) > 1 else []
        rows = [tuple(row) for row in self.encoded(query.text, texts)]
        distinct = sorted(set(rows))
        judged: dict[tuple[int, ...], tuple[int, ...]] = {}
        usage, unfinished = Usage(), 0
        for row, written in zip(distinct, self._writer.generate(distinct, stop=self.stop), strict=True):
            ended = self.decided(written)
            judged[row] = (*row, *written.tokens[:-1]) if ended else self.ended(row, written.text)
            usage += Usage(written.prompt_tokens, written.completion_tokens, model_calls=1)
            unfinished += not ended
        scores = self.scored(list(judged.values()))
        result = reordered(query, ranking, np.array([scores[judged[row]] for row in rows], dtype=np.float64))
        note = {"calls": len(distinct), **({"fallbacks": {"unfinished": unfinished}} if unfinished else {})}
        return replace(result, usage=usage, notes={NAME: note})


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Result of an endpoint's replies about a pair: score bounds or a failure reason, and the cost."""

    bounds: tuple[float, float]
    usage: Usage
    unfinished: bool = False
    failed: str | None = None

    @property
    def score(self) -> float:
        """Return the score, or its known bound."""
        low, high = self.bounds
        return low if math.isfinite(low) else high


class ServedRank1:
    """Reranker role with a Rank1 checkpoint behind an endpoint.

    Args:
        config: Options.
        services: Services; the reply cache is used.
    """

    def __init__(self, config: Rank1Config, services: Services) -> None:
        self.config = config
        self._model = ServedModel(config, services, NAME)
        self._pairs = _Pairs(config, services, (self._model.tokenizer, None))
        self.in_flight = self._model.in_flight

    async def rerank_one(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        """Sort candidates by score; a single candidate needs no call.

        Raises:
            Broke: All further calls would fail (key, model, endpoint).
        """
        ids = ranking.ids[: self.config.depth]
        texts = [self.config.text_of(passage) for passage in corpus.get(ids)] if len(ids) > 1 else []
        rows = [tuple(row) for row in self._pairs.encoded(query.text, texts)]
        distinct = sorted(set(rows))
        judged = dict(zip(distinct, await together(*map(self._judged, distinct)), strict=True))
        usage = sum((verdict.usage for verdict in judged.values()), Usage())
        unfinished = sum(verdict.unfinished for verdict in judged.values())
        note: dict[str, Any] = {NAME: {"calls": usage.model_calls, **({"fallbacks": {"unfinished": unfinished}} if unfinished else {})}}
        failed = next((verdict.failed for verdict in judged.values() if verdict.failed), None)
        if failed is None and not settled([verdict.bounds for verdict in judged.values()]):
            failed = f"true or false is not among the {TOP} likeliest tokens that the endpoint returned, so the order is not known"
        if failed is not None:
            return replace(ranking, usage=usage, notes={**note, FAILED: f"{NAME}: {failed}"})
        result = reordered(query, ranking, np.array([judged[row].score for row in rows], dtype=np.float64))
        return replace(result, usage=usage, notes=note)

    async def _judged(self, row: tuple[int, ...]) -> _Verdict:
        written = await self._model.write(row, stop=self._pairs.stop, top=TOP, step="reasoning")
        usage, decided = written.usage, self._pairs.decided(written.generation)
        if written.failed is None and not decided:
            forced = self._pairs.ended(row, written.generation.text)
            written = await self._model.write(forced, top=TOP, most=1, step="verdict")
            usage += written.usage
        return _Verdict(self._pairs.bounds(written.last), usage, not decided, written.failed)


def settled(bounds: Sequence[tuple[float, float]]) -> bool:
    """Return whether score bounds (lower, upper) determine the order."""
    known = [low for low, high in bounds if low == high]
    above = [low for low, high in bounds if low < high == math.inf]
    below = [high for low, high in bounds if -math.inf == low < high]
    if len(above) > 1 or len(below) > 1 or any(math.isinf(bound) for bound in (*above, *below)):
        return False
    top, bottom = max(known, default=-math.inf), min(known, default=math.inf)
    return all(bound > top for bound in above) and all(bound < bottom for bound in below) and (not above or not below or above > below)


def whole_sentences(text: str) -> str:
    """Truncate a text after its last complete sentence; unchanged if there is none."""
    text = text.rstrip()
    end = max(text.rfind(mark) for mark in ".!?") + 1
    return (text[:end] if end and not text.endswith((".", "!", "?")) else text).strip()
