"""RQ-RAG without its checkpoint: a chat model rewrites, decomposes and disambiguates the question.

Each wording is searched with, and the rankings are fused by reciprocal rank. A reply that yields no query is replaced
by the question itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Query
from benchmarks.text import normalise
from methods.api import Index, Ranking, Services
from methods.baselines.hybrid import Part, RetrieverPart, fuse
from methods.baselines.hyde import messages, spent
from methods.models.chat import ChatConfig, ChatModel, Reply, reach_model
from methods.pipeline import index_folder
from methods.readers.prompting import Prompt
from methods.registry import MethodConfig, register

PROMPTS: Mapping[str, Prompt] = {
    "rewrite": Prompt(
        "You prepare questions for a search engine.",
        "Rewrite this question as one search query that names what is looked for as plainly as possible. Keep every "
        "name and number. Reply with the query alone.\n\nQuestion: $question\nQuery:",
    ),
    "decompose": Prompt(
        "You prepare questions for a search engine.",
        "Break this question down into the simple questions whose answers together give its answer, in the order in "
        "which they have to be asked. Each must make sense when read alone; one that is simple already stays as it is. "
        "Reply with one question a line and nothing else.\n\nQuestion: $question\nQuestions:",
    ),
    "disambiguate": Prompt(
        "You prepare questions for a search engine.",
        "If a name or word in this question can mean several things, write the question once for each meaning, saying "
        "which is meant; otherwise repeat the question. Reply with one question a line and nothing else.\n\n"
        "Question: $question\nQuestions:",
    ),
}
"""What is asked of the model, by the kind of query that it yields."""
NOTE = "rq_rag"
"""Key in `notes`: what was searched with."""
MOST = 5
"""Queries taken from one reply."""
LONGEST = 400
"""Characters of a query; a longer line is talk."""

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s+")


class RewriterConfig(ChatConfig):
    """Options of the model that writes queries."""

    max_tokens: int = Field(256, ge=1, description="longest reply")


class PromptedConfig(MethodConfig):
    """Options of RQ-RAG by prompts."""

    llm: RewriterConfig = Field(description="the model that writes queries")
    retriever: RetrieverPart = Field(
        Part(id="dense"), description="what to search with; a bare name stands for {id: …}; ARK's parity: Qwen3"
    )
    per_query: int = Field(3, ge=1, description="passages retrieved for each query; RQ-RAG: 3")
    k: float = Field(60, gt=0, description="damps the weight of first ranks in the fusion")

    def preflight(self) -> None:
        """Check the key and the retriever."""
        self.llm.key()
        self.retriever.component.preflight()

    def reach(self, cache: Path | None) -> None:
        """Make one short call to the endpoint, unless replies of its model are kept."""
        reach_model(self.llm, cache)


def _made_of(config: PromptedConfig) -> str:
    prompts = [(name, prompt.system, prompt.user) for name, prompt in PROMPTS.items()]
    return fingerprint(config.retriever.component.fingerprint, prompts)


@register(
    "rq_rag_prompted",
    kind="retriever",
    summary="a chat model rewrites, decomposes and disambiguates the question; the rankings are fused",
    config=PromptedConfig,
    paper="after Chan et al. 2024, RQ-RAG (arXiv:2404.00610), whose own model is rq_rag",
    extra="llm",
    checkpoint_hash=_made_of,
)
class PromptedRqRag:
    """Retriever that has a question reworded.

    Args:
        config: Options.
        services: Handed to the retriever, whose index it shares; of them the cache of replies.
    """

    def __init__(self, config: PromptedConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._retriever = config.retriever.component.build(services)
        self._model = ChatModel(config.llm, role=NOTE, cache=services.cache)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """The index of the retriever underneath."""
        own = index_folder(self.config.retriever.component, corpus, self._services) or folder
        return PromptedIndex(self.config, corpus, self._retriever.index(corpus, own), self._model)


class PromptedIndex:
    """An index that is searched with several wordings of each question."""

    def __init__(self, config: PromptedConfig, corpus: Corpus, index: Index, model: ChatModel) -> None:
        self.config = config
        self._corpus = corpus
        self._index = index
        self._model = model

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Reword, retrieve with each wording, fuse.

        Raises:
            Broke: No further call could succeed (key, model, endpoint).
        """
        asked = [messages(prompt, query.text) for query in queries for prompt in PROMPTS.values()]
        replies = self._model.complete(asked)
        size = len(PROMPTS)
        return [self._ranking(query, replies[size * place : size * (place + 1)], k) for place, query in enumerate(queries)]

    def _ranking(self, query: Query, replies: Sequence[Reply], k: int) -> Ranking:
        said = [text for reply in replies for text in queries_of(reply.text) or [query.text]]
        # Wordings that differ by case or punctuation alone would find the same, and count twice in the fusion.
        different: dict[str, str] = {}
        for text in said:
            different.setdefault(normalise(text) or text, text)
        wordings = list(different.values())
        asked = [replace(query, id=f"{query.id}~{number}", text=text) for number, text in enumerate(wordings)]
        found = self._index.retrieve(asked, self.config.per_query)
        fused = fuse(query, found, k, self._corpus, self.config.k)
        failed = sorted({reply.failed for reply in replies if reply.failed})
        note = {"queries": wordings, **({"failed": failed} if failed else {})}
        return Ranking(fused.query_id, fused.ids, fused.scores, fused.usage + spent(replies), {NOTE: note})


def queries_of(reply: str) -> list[str]:
    """The queries in a reply, one a line, without bullets and numbers; none where it holds no words."""
    lines = [_BULLET.sub("", line).strip().strip('"').strip() for line in reply.splitlines()]
    return [line for line in lines if len(line) <= LONGEST and any(character.isalnum() for character in line)][:MOST]
