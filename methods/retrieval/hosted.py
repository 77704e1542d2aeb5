"""Dense retrieval and reranking with models behind an endpoint (`methods.retrieval.hosted_model`).

Vectors of passages and questions are cached under the model's identity, so that each text is only paid for once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from benchmarks.core.errors import Broke
from benchmarks.core.files import whole
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import ENDPOINT_READ, FAILED, Ranking, Services, Usage, reason
from methods.flow import Batcher, in_worker
from methods.models.checks import missing_prompts
from methods.models.embeddings import EmbeddingCache, ExactSearch, read_array, write_vectors
from methods.models.endpoint import Fault
from methods.registry import register
from methods.retrieval.dense import CHUNK, DenseIndex
from methods.retrieval.hosted_config import TASKS, HostedConfig, Side, of_side
from methods.retrieval.hosted_model import HostedModel, Vectors
from methods.retrieval.ranking import PointwiseConfig, built_once, reordered
from methods.work import CHARACTERS, Lengths, Needs, Work, index, vectors

_USAGE, _READ = "usage.json", "read.json"
_PROBE = "dimension"
"""Text whose vector shows the dimension, and whether the endpoint still serves the model of the stored vectors."""
_KEPT_PROBE = f"\0{_PROBE}"
"""Name of the probe in the cache, where a passage may have the same text but a prefix."""
CHANGED = 0.15
"""Distance of the probe's vectors, relative to their length, from which they are those of two models (cosine 0.99)."""
READ_SHARE = 0.5
"""Share of the estimated tokens below which an endpoint has probably cut texts."""
_LONG = 1_000
"""Minimum mean characters of a request's texts; every encoder reads shorter ones."""
_LEAST = 10
"""Minimum tokens per text; an endpoint that reports fewer reports a placeholder."""


class HostedDenseConfig(HostedConfig):
    """Options of dense retrieval with a hosted embedding model."""

    dimensions: int | None = Field(None, ge=1, description="length of vectors, for models that offer several; null: the model's default")
    encoding: Literal["float", "base64"] = Field("float", description="encoding of numbers (dialect openai)", exclude=True)
    query_prompt: str = Field("", description="prefix of each question, for models that need it (dialects openai, tei)")
    passage_prompt: str = Field("", description="prefix of each passage")
    normalize: bool = Field(True, description="scale vectors to length 1, so that scores are cosines")

    @model_validator(mode="after")
    def _fits(self) -> HostedDenseConfig:
        if self.dialect == "openai" and self.truncate:
            raise ValueError("dialect openai cannot cut texts: it refuses those that are too long")
        if self.dialect == "tei" and self.dimensions:
            raise ValueError("dialect tei has no dimensions: the server decides")
        if self.encoding == "base64" and self.dialect != "openai":
            raise ValueError("encoding base64 needs dialect openai")
        for name, value in self.parameters.items():
            try:
                of_side(value, "query")
            except ValueError as error:
                raise ValueError(f"parameters.{name} {error}") from None
        return self


def _dense_work(config: HostedDenseConfig, lengths: Lengths) -> Work:
    built = config.work(lengths.corpus, lengths.passage, -(-lengths.corpus // config.batch)) if lengths.corpus else Work()
    if config.dimensions:
        built += vectors(SimpleNamespace(dimension=config.dimensions, model=config.model), lengths, 2 * lengths.corpus)
    return index(built) + config.work(lengths.questions, lengths.question, lengths.questions)


_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "openai-3-small": {"model": "text-embedding-3-small", "usd_per_million_tokens": 0.02},
    "openai-3-large": {"model": "text-embedding-3-large", "usd_per_million_tokens": 0.13},
    "cohere-v4": {"model": "embed-v4.0", "dialect": "cohere"},
    "jina-v3-hosted": {"model": "jina-embeddings-v3", "dialect": "jina"},
    "voyage-3.5": {"model": "voyage-3.5", "dialect": "voyage"},
}


@register(
    "hosted_dense",
    kind="retriever",
    summary="dense retrieval with an embedding model behind an endpoint: OpenAI, Cohere, Jina, Voyage or TEI",
    presets=_PRESETS,
    work=_dense_work,
    needs=lambda config: Needs(),
)
class HostedDense:
    """Retriever role: compares vectors of a hosted embedding model.

    Args:
        config: Options.
        services: Services; the embedding cache is used.
    """

    def __init__(self, config: HostedDenseConfig, services: Services) -> None:
        self.config = config
        self.model = HostedModel(config)
        self._identity = config.checkpoint_hash()
        self._folder = services.folder("embeddings")
        self._checking = asyncio.Lock()
        self._checked = False

    def index(self, corpus: Corpus, folder: Path | None = None) -> HostedIndex:
        """Embed the corpus, or memory-map the vectors in `folder`; an interrupted build resumes.

        Raises:
            Broke: The endpoint fails, or serves another model than the one of stored vectors.
        """
        usage, read = Usage(), Usage()

        def paid(spent: Usage, texts: Sequence[str]) -> None:
            nonlocal usage, read
            # Written after each request, so that the usage of an interrupted build is counted, too.
            usage = usage + spent if folder is None else _paid(folder / _USAGE, spent)
            if texts and spent.prompt_tokens >= _LEAST * len(texts) and sum(map(len, texts)) >= _LONG * len(texts):
                # The estimate is stored as the tokens of a memory, which an index does not have.
                compared = Usage(prompt_tokens=spent.prompt_tokens, memory_tokens=sum(map(len, texts)) // CHARACTERS)
                read = read + compared if folder is None else _paid(folder / _READ, compared)

        def encode(start: int) -> Vectors:
            texts = [passage.full_text for passage in corpus[start : start + CHUNK]]
            kept = self.kept("passage", dimension)

            def ask(positions: Sequence[int]) -> Vectors:
                wanted = [self.text(texts[at], "passage") for at in positions]
                made, spent = self.model.embed_now(wanted, "passage", *self._request)
                paid(spent, wanted)
                return self.scaled(made)

            return ask(range(len(texts))) if kept is None else kept.vectors(texts, ask)

        starts = range(0, len(corpus), CHUNK)
        if folder is not None and (folder / "vectors.npy").exists():
            built = read_array(folder / "vectors.npy", mapped=True)
            dimension = built.shape[1]
        else:
            dimension = self.config.dimensions or 0
            if not dimension or self._folder is not None:
                probe, spent = self.model.embed_now([_PROBE], "passage", *self._request)
                dimension = probe.shape[1]
                paid(spent, ())
                self._require_unchanged(probe, self.kept("passage", dimension))
        if folder is None:
            chunks = [encode(start) for start in starts]
            built = np.concatenate(chunks) if chunks else np.empty((0, dimension), dtype=np.float32)
        else:
            built_once(folder, len(corpus), lambda target: write_vectors(target / "vectors.npy", starts, encode, dimension))
            built = read_array(folder / "vectors.npy", mapped=True)
            usage, read = _paid(folder / _USAGE, Usage()), _paid(folder / _READ, Usage())
        made = HostedIndex(self, corpus, built, usage)
        reported, estimated = read.prompt_tokens, read.memory_tokens
        if reported < READ_SHARE * estimated:
            made.notes = {ENDPOINT_READ: {"reported": reported, "estimated": estimated}}
        config = self.config
        by_task = any(dialect == config.dialect for dialect, _ in TASKS) or config.fields("query") != config.fields("passage")
        if not by_task and (lacking := missing_prompts(config.model, config.model_fields_set)):
            made.notes = {**made.notes, "preset": {"name": lacking[0], "options": lacking[1], "model": config.model, "served": True}}
        return made

    @property
    def _request(self) -> tuple[int | None, str]:
        return self.config.dimensions, self.config.encoding

    def kept(self, side: Side, dimension: int) -> EmbeddingCache | None:
        """Return the cache of passage or question vectors; None if vectors are not cached."""
        if self._folder is None:
            return None
        own = self.config.model_dump_json(include=set(HostedDenseConfig.model_fields))
        return EmbeddingCache(self._folder, fingerprint("hosted", self._identity, own, side), dimension)

    def _require_unchanged(self, probe: Vectors, kept: EmbeddingCache | None) -> None:
        """Compare the probe's vector with the stored one, which the first probe becomes.

        Raises:
            Broke: They are vectors of two models.
        """
        if kept is None:
            return
        made = self.scaled(probe)
        changed = made.shape[1] != kept.dimension
        if not changed:
            known, stored = kept.get([_KEPT_PROBE])
            changed = bool(known[0]) and bool(np.linalg.norm(made - stored) > CHANGED * np.linalg.norm(stored))
            if not known[0]:
                kept.put([_KEPT_PROBE], made)
        if changed:
            raise Broke(
                "the endpoint gives other vectors than those that are stored: another model answers now",
                code="hosted-model-changed",
                where=self.config.served,
                try_this="serve the former model, or set `revision`, so that the vectors of the new one are requested",
            )
        self._checked = True

    async def _require_same_model(self, dimension: int) -> None:
        """Check, before the first question is sent, that the model is the one of stored passages."""
        async with self._checking:
            kept = self.kept("passage", dimension)
            if self._checked or kept is None:
                return
            probe, _ = await self.model.embed([_PROBE], "passage", *self._request)
            await in_worker(lambda: self._require_unchanged(probe, kept))

    def text(self, text: str, side: Side) -> str:
        """Return a text as sent to the endpoint, with the side's prefix."""
        return (self.config.query_prompt if side == "query" else self.config.passage_prompt) + text

    def scaled(self, made: Vectors) -> Vectors:
        """Scale vectors to length 1 if the options require it."""
        return made / np.linalg.norm(made, axis=1, keepdims=True) if self.config.normalize else made

    async def question(self, text: str, kept: EmbeddingCache | None, dimension: int) -> tuple[Vectors, Usage]:
        """Return a question's vector, shape (1, dimension), and its cost.

        Raises:
            Fault: The endpoint returned no vector.
            Broke: No request can succeed, or another model answers than the one of stored passages.
        """
        if kept is not None:
            known, results = await in_worker(lambda: kept.get([text]))
            if known[0]:
                return results, Usage()
        await self._require_same_model(dimension)
        made, usage = await self.model.embed([self.text(text, "query")], "query", *self._request)
        made = self.scaled(made)
        # If two equal questions are in flight, the first result is used for both.
        return (made if kept is None else await in_worker(lambda: kept.vectors([text], lambda positions: made))), usage


def _paid(path: Path, usage: Usage) -> Usage:
    """Add to the recorded cost of an index, and return the total."""
    with suppress(OSError, ValueError, TypeError):
        usage += Usage(**json.loads(path.read_text("utf-8")))
    text = json.dumps(usage.to_json())
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        whole(path, lambda partial: partial.write_text(text, "utf-8"))
    return usage


class HostedIndex:
    """Index of a corpus's vectors from a hosted model.

    Args:
        owner: Retriever that embeds questions.
        corpus: The passages.
        built: Vectors of the passages, shape (passages, dimension).
        usage: Cost of the vectors.

    Attributes:
        notes: Notes for the provenance: `ENDPOINT_READ`, and `preset`, the preset of its family, if the options lack prompts of it.
    """

    notes: Mapping[str, Any] = {}

    def __init__(self, owner: HostedDense, corpus: Corpus, built: Vectors, usage: Usage) -> None:
        self.usage = usage
        self.in_flight = owner.config.concurrency
        self._owner = owner
        self._dimension = built.shape[1]
        self._kept = owner.kept("query", self._dimension)
        device: Any = SimpleNamespace(device="cpu")
        self._index = DenseIndex(device, corpus, built, ExactSearch(built))
        self._search: Batcher[tuple[Query, Vectors, int], Ranking] = Batcher(self._rank)

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Embed a question and rank passages by inner product.

        Raises:
            Broke: No request can succeed, or another model answers than the one of stored passages.
        """
        try:
            vector, usage = await self._owner.question(query.text, self._kept, self._dimension)
            if vector.shape[1] != self._dimension:
                raise Fault(f"the question's vector has {vector.shape[1]} components, those of passages {self._dimension}", "fail")
        except Fault as fault:
            return Ranking(query.id, (), (), notes={FAILED: reason(fault.reason)})
        ranking = await self._search((query, vector, k))
        return Ranking(query.id, ranking.ids, ranking.scores, usage)

    def _rank(self, items: Sequence[tuple[Query, Vectors, int]]) -> list[Ranking]:
        longest = max(k for _, _, k in items)
        rankings = self._index.nearest([query for query, _, _ in items], np.concatenate([vector for _, vector, _ in items]), longest)
        return [ranking.top(k) for ranking, (_, _, k) in zip(rankings, items, strict=True)]


class HostedRerankerConfig(HostedConfig, PointwiseConfig):
    """Options of a hosted reranker, and the number of candidates to rerank."""

    @model_validator(mode="after")
    def _fits(self) -> HostedRerankerConfig:
        if self.dialect == "openai":
            raise ValueError("dialect openai has no reranking: use cohere, jina, voyage or tei")
        if self.truncate and self.dialect in ("cohere", "jina"):
            raise ValueError(f"truncate has no effect on rerankers of dialect {self.dialect}: they always cut long passages")
        return self


def _rerank_work(config: HostedRerankerConfig, lengths: Lengths) -> Work:
    candidates = lengths.ranked(config.depth)
    calls = lengths.questions * -(-candidates // config.batch)
    return config.work(lengths.questions * candidates, lengths.question + lengths.passage, calls)


@register(
    "hosted_reranker",
    kind="reranker",
    summary="a reranking model behind an endpoint: Cohere, Jina, Voyage or TEI",
    presets={
        "cohere-v3.5": {"model": "rerank-v3.5", "dialect": "cohere", "usd_per_call": 0.002},
        "jina-v2-hosted": {"model": "jina-reranker-v2-base-multilingual", "dialect": "jina"},
        "voyage-2.5": {"model": "rerank-2.5", "dialect": "voyage"},
    },
    work=_rerank_work,
    needs=lambda config: Needs(),
)
class HostedReranker:
    """Reranker role: calls an endpoint once per question.

    Args:
        config: Options.
        services: Unused.
    """

    def __init__(self, config: HostedRerankerConfig, services: Services) -> None:
        self.config = config
        self.model = HostedModel(config)
        self.in_flight = config.concurrency

    async def rerank_one(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        """Sort candidates by the model's scores; ties keep their order.

        Raises:
            Broke: No request can succeed.
        """
        wanted = [passage.full_text for passage in corpus.get(ranking.ids[: self.config.depth])]
        if not wanted:
            return ranking
        # Each text once, in an order that does not depend on the candidates'.
        texts = sorted(set(wanted))
        try:
            scores, usage = await self.model.score(query.text, texts)
        except Fault as fault:
            return Ranking(query.id, ranking.ids, ranking.scores, notes={FAILED: reason(fault.reason)})
        known = dict(zip(texts, scores.tolist(), strict=True))
        made = reordered(query, ranking, np.array([known[text] for text in wanted]))
        return Ranking(query.id, made.ids, made.scores, usage)
