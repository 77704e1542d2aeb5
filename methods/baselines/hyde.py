"""Retrieve with HyDE: search with hypothetical passages that answer the question.

A chat model writes passages that answer the question; they need not be true. The query vector is

    v = (question + Σ passages) / (1 + N)

with the vectors of the question and of the N passages, which are encoded as documents. Failed passages are left out of
the mean; if all failed, the query vector is the question's, and the prediction's notes record it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services, Usage
from methods.composed import Composed
from methods.flow import Batcher, together
from methods.models.chat import ChatModel
from methods.models.encoder import Encoder
from methods.models.llm import LLM, defaults, llm_hash, open_llm
from methods.models.towers import Vectors
from methods.pipeline import index_folder
from methods.prompts import OURS, Shipped
from methods.registry import AskingMethodConfig, Component, register
from methods.retrieval.dense import DenseIndex
from methods.work import Lengths, Needs, Work, all_needs, ask, encode, longest_reply, needs_of

PROMPT = Shipped("methods.baselines", "hyde", published="hyde")
"""Prompt for a hypothetical passage; the published one is that for web search."""
END = "\n\n\n"
"""End of a passage; text after it is dropped."""
NOTE = "hyde"
"""Key in `notes`: number of hypothetical passages used, and reasons of failed ones."""


class HydeConfig(AskingMethodConfig):
    """Options of HyDE."""

    llm: Annotated[LLM, defaults(temperature=0.7, max_tokens=512, stop=(END,))] = Field(
        description="model that writes passages; a temperature above 0 makes several passages differ"
    )
    dense: dict[str, Any] = Field(
        default_factory=dict,
        description="options of dense retrieval, including its preset; the original: preset contriever; equal to ARK's: preset "
        "qwen3-embedding-0.6b",
    )
    samples: int = Field(8, ge=0, description="passages written per question (the original: 8); 0: plain retrieval")
    prompt: str | None = Field(
        None, description="`published`, `ours` or a template file; null: ours", exclude_if=lambda value: value is None
    )
    instruction: bool = Field(True, description="encode the question as a query, with the query prompt; false: as a passage")

    @field_validator("dense")
    @classmethod
    def _valid(cls, value: dict[str, Any]) -> dict[str, Any]:
        Component.of("dense", value)
        return value

    @property
    def retriever(self) -> Component:
        """Return the dense retriever with its options."""
        return Component.of("dense", self.dense)

    def preflight(self) -> None:
        """Check the model and the encoder."""
        super().preflight()
        self.retriever.preflight()
        PROMPT.load(self.prompt)


INSTRUCTIONS = 60
"""Assumed tokens of the prompt, without the question."""


def _work(config: HydeConfig, lengths: Lengths) -> Work:
    """Estimate the work: generate passages per question, and encode them."""
    number = lengths.questions * config.samples
    written = ask(config.llm, number, lengths.question + INSTRUCTIONS)
    return config.retriever.work(lengths) + written + encode(config.retriever.config, number, longest_reply(config.llm))


def _words(config: HydeConfig) -> str:
    """Return the identity of the prompt for fingerprints."""
    return PROMPT.load().user if config.prompt in (None, OURS) else PROMPT.hash(config.prompt)


def _needs(config: HydeConfig) -> Needs | None:
    return all_needs((config.retriever.needs, needs_of(config.llm)))


@register(
    "hyde",
    kind="retriever",
    summary="dense retrieval with the mean vector of the question and of passages that a chat model writes to answer it",
    paper="Gao et al. 2022, Precise Zero-Shot Dense Retrieval without Relevance Labels (arXiv:2212.10496)",
    checkpoint_hash=lambda config: fingerprint(config.retriever.fingerprint, _words(config), END, llm_hash(config.llm)),
    work=_work,
    needs=_needs,
)
class Hyde:
    """Retriever role: dense retrieval with hypothetical passages.

    Args:
        config: Options.
        services: Services for dense retrieval, whose index it shares; HyDE uses the cache of replies.
    """

    def __init__(self, config: HydeConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._dense = config.retriever.build(services)
        self._writer = open_llm(config.llm, services, role=NOTE)

    def index(self, corpus: Corpus, folder: Path | None = None) -> HydeIndex:
        """Return the index of dense retrieval."""
        own = index_folder(self.config.retriever, corpus, self._services) or folder
        return HydeIndex(self.config, self._dense.index(corpus, own), self._dense.encoder, self._writer)


class HydeIndex(Composed):
    """Dense index that is searched with generated passages.

    Args:
        config: Options.
        index: Index to search.
        encoder: Encoder of its vectors.
        writer: Model that writes passages.
    """

    def __init__(self, config: HydeConfig, index: DenseIndex, encoder: Encoder, writer: ChatModel) -> None:
        super().__init__(index)
        self.config = config
        self._index = index
        self._encoder = encoder
        self._writer = writer
        self._prompt = PROMPT.load(config.prompt)
        self._search = Batcher(self._rank)
        self.in_flight = writer.in_flight

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Generate passages, and rank by inner product with the mean of their vectors and the question's.

        Raises:
            Broke: All further calls would fail (key, model, endpoint).
        """
        request = self._prompt.messages(question=query.text)
        replies = await together(*(self._writer.ask(request, repetition=number) for number in range(self.config.samples)))
        texts = [cut(reply.text) for reply in replies if cut(reply.text)]
        ranking = await self._search((query, texts, k))
        failed = sorted({reply.failed for reply in replies if reply.failed})
        note = {NOTE: {"passages": len(texts), **({"failed": failed} if failed else {})}} if replies else {}
        usage = sum((reply.usage for reply in replies), Usage())
        return Ranking(ranking.query_id, ranking.ids, ranking.scores, usage, note)

    def _rank(self, items: Sequence[tuple[Query, list[str], int]]) -> list[Ranking]:
        """Search for many questions at once, each with its generated passages."""
        queries = [query for query, _, _ in items]
        vectors = self._questions(queries)
        for row, (_, texts, _) in enumerate(items):
            # One by one, because a vector must not depend on other texts in its batch.
            results = [self._encoder.passages([text], cached=False)[0] for text in sorted(texts)]
            if results:
                vectors[row] = np.mean([vectors[row], *results], axis=0, dtype=np.float64)
        longest = max(k for _, _, k in items)
        return [ranking.top(k) for ranking, (_, _, k) in zip(self._index.nearest(queries, vectors, longest), items, strict=True)]

    def _questions(self, queries: Sequence[Query]) -> Vectors:
        texts = [query.text for query in queries]
        if self.config.instruction:
            return self._index.vectors_of(texts)
        rows = [self._encoder.passages([text], cached=False) for text in texts]
        return np.concatenate(rows) if rows else self._encoder.queries([])


def cut(text: str) -> str:
    """Truncate a passage at two blank lines."""
    return text.partition(END)[0].strip()
