"""MemoRAG: a memory of the whole text gives clues, and passages are searched with these.

The memory is a long language model that reads the text itself (`long_llm`), or the gists of its pieces (`lite`). Of it are
asked text spans that the answer may stand in, and simpler questions; with `draft`, an answer, too. Each line of more than
three words finds three passages, as does the question; a passage counts by its best score, and a reader gets them in the
order of the text. The reader gets the draft in the native context alone.

Source: Qian et al. 2024 (arXiv:2409.05591) and its released code. Ours: the trained memory (beacons) is not here; the
union is cut at what the pipeline hands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from benchmarks.schema import Passage, Query
from methods.api import Context, Ranking, Usage
from methods.baselines.graph_rag.common import SHORT, Group, SystemConfig, SystemIndex, indexed_passages, reading_work, register
from methods.flow import together
from methods.graphs.chunking import ChunkConfig, chunk
from methods.prompts import Prompt
from methods.retrieval.ranking import best_rows
from methods.work import WORDS_PER_TOKEN, Lengths, Work, ask, index

PIECE_TOKENS = 4096
"""Tokens of a piece that becomes a gist."""
PER_LINE = 3
"""Passages that each line finds."""
GIST = 512
WORDS = 3
"""Words that a line must have more than."""
ASKED = ("clues", "surrogates", "draft")
INSTRUCTIONS = 120


class MemoConfig(SystemConfig):
    """Options of MemoRAG."""

    needs_llm = True

    memory: Literal["long_llm", "lite"] = Field("long_llm", description="the text itself, or the gists of its pieces; beacon is not here")
    memory_tokens: int = Field(120_000, ge=100, description="of the memory that are read; what is more loses its middle")
    draft: bool = Field(False, description="also search with a drafted answer, and tell it in the native context; LongBench's script: yes")

    @property
    def context_tokens(self) -> int:
        return SHORT if self.draft and self.context == "native" else 0

    @property
    def written_tokens(self) -> int:
        return GIST if self.memory == "lite" else 0

    def templates(self) -> list[Prompt]:
        return [self.template(name) for name in (*ASKED, "gist")]


def _work(config: MemoConfig, lengths: Lengths) -> Work:
    assert config.llm is not None
    memory = min(lengths.document, config.memory_tokens)
    built = Work()
    if config.memory == "lite":
        pieces = indexed_passages(config, lengths) * lengths.passage / PIECE_TOKENS
        built = index(ask(config.llm, pieces, INSTRUCTIONS + PIECE_TOKENS, GIST))
        memory = min(memory, lengths.document / PIECE_TOKENS * GIST)
    calls = lengths.questions * (3 if config.draft else 2)
    return reading_work(config, lengths) + built + ask(config.llm, calls, INSTRUCTIONS + memory + lengths.question, SHORT)


@register(
    "memorag",
    summary="MemoRAG: a memory of the whole text (itself, or gists of it) gives clues to search with",
    config=MemoConfig,
    paper="Qian et al. 2024, MemoRAG (arXiv:2409.05591), without its trained memory",
    work=_work,
)
class MemoIndex(SystemIndex):
    """A corpus that is searched with what a memory of it says."""

    async def prepare(self, group: Group) -> tuple[str, Usage]:
        """The text that stands for a group."""
        text = "\n\n".join(group.index.texts)
        usage = Usage()
        if self.writer is not None:
            size = max(1, round(PIECE_TOKENS * WORDS_PER_TOKEN))
            pieces = chunk(text, ChunkConfig(unit="word", size=size, overlap=0, tokenizer="minilm"))
            written = await together(*(self.writer(self.config.template("gist"), "gist", piece.text) for piece in pieces))
            text = "\n\n".join(gist for gist, _, _ in written if gist)
            usage = sum((cost for _, cost, _ in written), usage)
        most = self.config.memory_tokens * 4
        return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-(most // 2) :]}", usage

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Passages by their best score over the question, the clues and the draft."""
        group = await self.compute(lambda: self.group(query))
        memory = await self.prepared(group)
        wanted = [name for name in ASKED if name != "draft" or self.config.draft]
        messages = [self.config.template(name).messages(memory=memory, question=query.text) for name in wanted]
        assert self.model is not None
        replies = await together(*(self.model.ask(one, step=name) for one, name in zip(messages, wanted, strict=True)))
        usage = sum((reply.usage for reply in replies), Usage())
        lines = lines_of(reply.text for reply, name in zip(replies, wanted, strict=True) if name != "draft")
        draft = replies[-1].text.strip() if self.config.draft else ""
        note: dict[str, Any] = {"clues": lines, **({"draft": draft} if draft else {})}
        if failed := sorted({reply.failed for reply in replies if reply.failed}):
            note["failed"] = failed
        if not lines and not draft:
            note["fallback"] = "the question alone"
        return await self.compute(lambda: self._ranked(query, group, [query.text, *lines, *([draft] if draft else [])], k, note, usage))

    def _ranked(self, query: Query, group: Group, lines: Sequence[str], k: int, note: dict[str, Any], usage: Usage) -> Ranking:
        best = np.full(len(group.rows), -np.inf)
        for line in lines:
            scores = self.dense(group, self.query_vector(line))
            best_of_line = best_rows(scores, PER_LINE)
            best[best_of_line] = np.maximum(best[best_of_line], scores[best_of_line])
        order = best_rows(best, len(best), above=-np.inf)
        return self.ranking(query, group, order.tolist(), k, {**note, "found": len(order)}, usage)

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """The passages in the order of the text; in the native context behind the draft."""
        place = {self.corpus.ids[row]: number for number, row in enumerate(self.rows_for(query).tolist())}
        passages = self.corpus.get(sorted(ranking.ids, key=place.__getitem__))
        draft = ranking.notes.get(self.note, {}).get("draft")
        if self.config.context == "native" and draft:
            passages = [*passages, Passage("draft", "A first idea, which may be wrong", str(draft))]
        return Context(query.id, tuple(passages))


def lines_of(replies: Any) -> list[str]:
    """Lines of more than three words, without bullets and numbers, each once."""
    lines = [line.strip().lstrip("-*•0123456789.) ").strip().strip('"') for reply in replies for line in reply.splitlines()]
    return list(dict.fromkeys(line for line in lines if len(line.split()) > WORDS))
