"""MemoRAG: a memory of the whole text generates clues for a question, which are used as search queries.

The memory is a model with beacons that was trained for it (`beacons`), a long language model that reads the text itself
(`long_llm`), or summaries of its pieces (`lite`). It generates text spans that may contain the answer, and simpler questions;
with `draft`, also an answer. Each line with more than three words retrieves three passages, as does the question. Passages are
ranked by their best score, and the reader gets them in text order. Only the native context shows the draft.

Source: Qian et al. 2024 (arXiv:2409.05591) and its released code. Ours: the union is cut to `k` passages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage, Query
from methods.api import Context, Ranking, Usage
from methods.baselines.graph_rag.beacons import BeaconConfig, BeaconMemory, BeaconModel, check_beacons, open_beacons
from methods.baselines.graph_rag.common import SHORT, Group, SystemConfig, SystemIndex, indexed_passages, reading_work, register
from methods.flow import in_worker, together
from methods.graphs.chunking import ChunkConfig, chunk
from methods.models.causal import Generation
from methods.models.loaded import SHARE, memory_of
from methods.models.remote_code import check_models
from methods.models.weights import weights_hash
from methods.prompts import Prompt, shipped
from methods.retrieval.ranking import best_rows
from methods.work import WORDS_PER_TOKEN, Lengths, Work, ask, encode, index

PIECE_TOKENS = 4096
"""Tokens per piece that is summarized."""
PER_LINE = 3
"""Passages retrieved per line."""
GIST = 512
WORDS = 3
"""Lines with at most this many words are ignored."""
ASKED = ("clues", "surrogates", "draft")
INSTRUCTIONS = 120
MEMORIZE = "memorag_memorize"
BEACONS = {"clues": "memorag_recall", "surrogates": "memorag_rewrite", "draft": "memorag_draft"}
"""Published prompts of the memory model, by purpose."""
PROMPTS = shipped("methods.baselines.graph_rag", MEMORIZE, *BEACONS.values(), released={MEMORIZE, *BEACONS.values()})


class MemoConfig(SystemConfig):
    """Options of MemoRAG."""

    needs_llm = True

    memory: Literal["beacons", "long_llm", "lite"] = Field(
        "long_llm",
        description="memory of the text: beacons, in a model trained for it (memory_model); or, for llm, the text itself "
        "(long_llm) or summaries of its pieces (lite)",
    )
    memory_model: BeaconConfig | None = Field(None, description="memory: beacons", exclude_if=lambda value: value is None)
    prompt: Literal["published", "ours"] | None = Field(
        None, description="prompts for memory_model; null: published", exclude_if=lambda value: value is None
    )
    memory_tokens: int = Field(
        120_000, ge=100, description="maximum tokens of the memory that are read; the middle of a longer memory is dropped"
    )
    draft: bool = Field(False, description="also search with a drafted answer, and add it to the native context; LongBench's script: yes")

    @model_validator(mode="before")
    @classmethod
    def _one_choice(cls, value: Any) -> Any:
        """Validate `prompt` and `prompts`: published prompts are the default of `beacons`, and other memories have none."""
        return value

    @model_validator(mode="after")
    def _has_its_memory(self) -> MemoConfig:
        if (self.memory == "beacons") != (self.memory_model is not None):
            raise ValueError("memory: beacons needs memory_model: {model: …}; other memories have none")
        if self.memory == "beacons" and self.llm is not None:
            raise ValueError("memory: beacons only uses memory_model: remove llm")
        if self.prompt is not None and self.memory != "beacons":
            raise ValueError("prompt needs memory: beacons; for other memories set prompts to a folder")
        return self

    @property
    def asks_llm(self) -> bool:
        return self.memory != "beacons"

    @property
    def own_models(self) -> tuple[Any, ...]:
        return (self.memory_model,) if self.memory_model is not None else ()

    @property
    def context_tokens(self) -> int:
        return SHORT if self.draft and self.context == "native" else 0

    @property
    def written_tokens(self) -> int:
        return GIST if self.memory == "lite" else 0

    def templates(self) -> list[Prompt]:
        names = (*ASKED, "gist") if self.asks_llm else (MEMORIZE, *ASKED)
        return [self.template(name) for name in names]

    def template(self, name: str) -> Prompt:
        if self.asks_llm:
            return super().template(name)
        return PROMPTS[BEACONS.get(name, name)].load_from(self.prompts, self.prompt)

    def preflight(self) -> None:
        super().preflight()
        if self.memory_model is not None:
            check_models(self.memory_model)
            check_beacons(self.memory_model)

    def made_of(self) -> str:
        if self.memory_model is None:
            return super().made_of()
        weights = self.encoder.checkpoint_hash(), weights_hash(self.memory_model.model, self.memory_model.revision)
        return fingerprint(*weights, [prompt.hash_from(self.prompts, self.prompt) for prompt in PROMPTS.values()])


def _work(config: MemoConfig, lengths: Lengths) -> Work:
    memory = min(lengths.document, config.memory_tokens)
    calls = lengths.questions * (3 if config.draft else 2)
    if (model := config.memory_model) is not None:
        texts = indexed_passages(config, lengths) * lengths.passage / max(1, lengths.document)
        built = index(encode(model, texts, memory * (1 + 1 / model.ratio), causal=True))
        soft = memory / model.ratio
        clues = ask(model, calls, INSTRUCTIONS + soft + lengths.question, model.max_new_tokens, memory=soft)
        return reading_work(config, lengths) + built + clues
    assert config.llm is not None
    built = Work()
    if config.memory == "lite":
        pieces = indexed_passages(config, lengths) * lengths.passage / PIECE_TOKENS
        built = index(ask(config.llm, pieces, INSTRUCTIONS + PIECE_TOKENS, GIST))
        memory = min(memory, lengths.document / PIECE_TOKENS * GIST)
    return reading_work(config, lengths) + built + ask(config.llm, calls, INSTRUCTIONS + memory + lengths.question, SHORT)


@register(
    "memorag",
    summary="MemoRAG: a memory of the whole text (beacons, the text itself, or summaries of it) gives clues to search with",
    config=MemoConfig,
    paper="Qian et al. 2024, MemoRAG (arXiv:2409.05591); its trained memory with memory: beacons",
    work=_work,
)
class MemoIndex(SystemIndex):
    """Index that is searched with clues from a memory of the corpus."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        model = self.config.memory_model
        self._beacons: BeaconModel | None = open_beacons(model, self.encoder.device) if model is not None else None
        self._memories: OrderedDict[bytes, BeaconMemory] = OrderedDict()

    @property
    def prepares(self) -> bool:
        return super().prepares or self._beacons is not None

    async def prepare(self, group: Group) -> tuple[Any, Usage]:
        """Build the memory of a group (its text, summaries, or a memory model's state); the cost counts once per group."""
        text = "\n\n".join(group.index.texts)
        if (beacons := self._beacons) is not None:
            return await in_worker(lambda: self._to_read(beacons, text), beacons.device)
        usage = Usage()
        if self.writer is not None:
            size = max(1, round(PIECE_TOKENS * WORDS_PER_TOKEN))
            pieces = chunk(text, ChunkConfig(unit="word", size=size, overlap=0, tokenizer="minilm"))
            written = await together(*(self.writer(self.config.template("gist"), "gist", piece.text) for piece in pieces))
            text = "\n\n".join(gist for gist, _, _ in written if gist)
            usage = sum((cost for _, cost, _ in written), usage)
        most = self.config.memory_tokens * 4
        return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-(most // 2) :]}", usage

    def _to_read(self, beacons: BeaconModel, text: str) -> tuple[tuple[list[int], int], Usage]:
        kept, lost = beacons.shortened(text, self.config.memory_tokens)
        ids = beacons.encode(self.config.template(MEMORIZE).messages(text=kept))
        return (ids, lost), Usage(prompt_tokens=len(ids), model_calls=1)

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by their best score over question, clues and draft."""
        group = await self.compute(lambda: self.group(query))
        memory = await self.prepared(group)
        wanted = [name for name in ASKED if name != "draft" or self.config.draft]
        note: dict[str, Any] = {}
        if (beacons := self._beacons) is not None:
            ids, lost = memory
            written, size = await in_worker(lambda: self._recalled(beacons, group, ids, wanted, query.text), beacons.device)
            texts = [item.text for item in written]
            usage = sum((Usage(item.prompt_tokens, item.completion_tokens, size, 1) for item in written), Usage())
            lines = [line for text, name in zip(texts, wanted, strict=True) if name != "draft" for line in text.split("\n")]
            lines = [line for line in lines if len(line.split()) > WORDS]
            note |= {"left_out": lost, "fallbacks": {"text longer than the memory": 1}} if lost else {}
        else:
            messages = [self.config.template(name).messages(memory=memory, question=query.text) for name in wanted]
            assert self.model is not None
            replies = await together(*(self.model.ask(one, step=name) for one, name in zip(messages, wanted, strict=True)))
            texts = [reply.text for reply in replies]
            usage = sum((reply.usage for reply in replies), Usage())
            lines = lines_of(text for text, name in zip(texts, wanted, strict=True) if name != "draft")
            if failed := sorted({reply.failed for reply in replies if reply.failed}):
                note["failed"] = failed
        draft = texts[-1].strip() if self.config.draft else ""
        note = {"clues": lines, **({"draft": draft} if draft else {}), **note}
        if not lines and not draft:
            note["fallback"] = "the question alone"
        return await self.compute(lambda: self._ranked(query, group, [query.text, *lines, *([draft] if draft else [])], k, note, usage))

    def _recalled(
        self, beacons: BeaconModel, group: Group, ids: Sequence[int], wanted: Sequence[str], question: str
    ) -> tuple[list[Generation], int]:
        """Generate clues from a group's memory, and return its size; runs in the device's worker thread."""
        memory = self._memory(beacons, group, ids)
        messages = [self.config.template(name).messages(question=question) for name in wanted]
        return beacons.write(memory, messages), memory.size

    def _memory(self, beacons: BeaconModel, group: Group, ids: Sequence[int]) -> BeaconMemory:
        """Return a group's memory; recently used ones are cached in main memory."""
        key = group.rows.tobytes()
        if key not in self._memories:
            self._memories[key] = beacons.read(ids).to("cpu")
        self._memories.move_to_end(key)
        most = SHARE * memory_of("cpu")[1]
        while len(self._memories) > 1 and sum(memory.bytes for memory in self._memories.values()) > most:
            self._memories.popitem(last=False)
        return self._memories[key]

    def _ranked(self, query: Query, group: Group, lines: Sequence[str], k: int, note: dict[str, Any], usage: Usage) -> Ranking:
        best = np.full(len(group.rows), -np.inf)
        for line in lines:
            scores = self.dense(group, self.query_vector(line))
            best_of_line = best_rows(scores, PER_LINE)
            best[best_of_line] = np.maximum(best[best_of_line], scores[best_of_line])
        order = best_rows(best, len(best), above=-np.inf)
        return self.ranking(query, group, order.tolist(), k, {**note, "found": len(order)}, usage)

    async def contexts_one(self, query: Query, ranking: Ranking) -> Context:
        """Return the passages in text order, preceded by the draft in the native context."""
        place = {self.corpus.ids[row]: number for number, row in enumerate(self.rows_for(query).tolist())}
        passages = self.corpus.get(sorted(ranking.ids, key=place.__getitem__))
        draft = ranking.notes.get(self.note, {}).get("draft")
        if self.config.context == "native" and draft and self._beacons is not None:
            passages = [*passages, Passage("draft", "", f"The answer might be {draft}.")]
        elif self.config.context == "native" and draft:
            passages = [*passages, Passage("draft", "A first idea, which may be wrong", str(draft))]
        return Context(query.id, tuple(passages))


def lines_of(replies: Any) -> list[str]:
    """Split a reply into distinct lines with more than three words, without bullets and numbers."""
    lines = [line.strip().lstrip("-*•0123456789.) ").strip().strip('"') for reply in replies for line in reply.splitlines()]
    return list(dict.fromkeys(line for line in lines if len(line.split()) > WORDS))
