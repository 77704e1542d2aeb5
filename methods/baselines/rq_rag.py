"""RQ-RAG: with its own model, as a retriever for any reader and whole; or by prompts to a chat model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from benchmarks.text import normalize
from methods.api import FAILED, Evidence, Index, Prediction, Ranking, Services, Usage
from methods.baselines.hybrid import Part, RetrieverPart, fuse
from methods.baselines.hyde import INSTRUCTIONS, messages, spent
from methods.models.causal import CausalConfig, CausalModel, Generation, Sampling
from methods.models.chat import ChatModel, Reply, reach_model
from methods.models.endpoint import ChatConfig
from methods.models.likelihood import ScoringConfig
from methods.models.weights import locate, weights_hash
from methods.pipeline import DEPTH, index_folder
from methods.readers.prompts import Prompt
from methods.registry import MethodConfig, register
from methods.work import WORDS_PER_TOKEN, Lengths, Needs, Work, all_needs, ask, needs_of

# -- RQ-RAG without its checkpoint: a chat model rewrites, decomposes and disambiguates the question --
# Each wording is searched with, and the rankings are fused by reciprocal rank. A reply that yields no query is replaced
# by the question itself.


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


def _prompted_work(config: PromptedConfig, lengths: Lengths) -> Work:
    """A question is asked about in every way, and each reply searched with line by line."""
    searches = replace(lengths, questions=lengths.questions * len(PROMPTS) * MOST)
    return config.retriever.component.work(searches) + ask(config.llm, lengths.questions * len(PROMPTS), lengths.question + INSTRUCTIONS)


def _prompted_needs(config: PromptedConfig) -> Needs | None:
    return all_needs((config.retriever.component.needs, needs_of(config.llm)))


@register(
    "rq_rag_prompted",
    kind="retriever",
    summary="a chat model rewrites, decomposes and disambiguates the question; the rankings are fused",
    config=PromptedConfig,
    paper="after Chan et al. 2024, RQ-RAG (arXiv:2404.00610), whose own model is rq_rag",
    extra="llm",
    checkpoint_hash=_made_of,
    work=_prompted_work,
    needs=_prompted_needs,
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
        requests = [messages(prompt, query.text) for query in queries for prompt in PROMPTS.values()]
        replies = self._model.complete(requests)
        size = len(PROMPTS)
        return [self._ranking(query, replies[size * position : size * (position + 1)], k) for position, query in enumerate(queries)]

    def _ranking(self, query: Query, replies: Sequence[Reply], k: int) -> Ranking:
        rewritten = [text for reply in replies for text in queries_of(reply.text) or [query.text]]
        # Wordings that differ by case or punctuation alone would find the same, and count twice in the fusion.
        different: dict[str, str] = {}
        for text in rewritten:
            different.setdefault(normalize(text) or text, text)
        wordings = list(different.values())
        queries = [replace(query, id=f"{query.id}~{number}", text=text) for number, text in enumerate(wordings)]
        result = self._index.retrieve(queries, self.config.per_query)
        fused = fuse(query, result, k, self._corpus, self.config.k)
        failed = sorted({reply.failed for reply in replies if reply.failed})
        note = {"queries": wordings, **({"failed": failed} if failed else {})}
        return Ranking(fused.query_id, fused.ids, fused.scores, fused.usage + spent(replies), {NOTE: note})


def queries_of(reply: str) -> list[str]:
    """The queries in a reply, one a line, without bullets and numbers; none where it holds no words."""
    lines = [_BULLET.sub("", line).strip().strip('"').strip() for line in reply.splitlines()]
    return [line for line in lines if len(line) <= LONGEST and any(character.isalnum() for character in line)][:MOST]


# -- The tree that RQ-RAG's model writes: at each node it rewrites, decomposes or disambiguates, searches, or answers --
# A node is a text that ends where the model decides next. From each, all three kinds of query are tried and searched
# with, and an answer is written; at the last depth there is only the answer. With depth 2 a question has 1 + 3 + 9
# answers. Which of them counts is decided by the model's own likelihoods, never by gold.
#
# Source: Chan et al. 2024, RQ-RAG (arXiv:2404.00610); control tokens and turns as its released model was trained.


QUERY_TOKENS = ("[S_Rewritten_Query]", "[S_Decomposed_Query]", "[S_Disambiguated_Query]")
ANSWER_TOKEN = "[A_Response]"
END_TOKEN = "[EOS]"
EVIDENCE_TOKENS = ("[R_Evidences]", "[/R_Evidences]")
SYSTEM = (
    "Given a question that requires multi-hop reasoning, you need to decompose the question and answer based on the "
    "given context. Please provide a short and concise response."
)
"""The system message for multi-hop questions that the released model was trained with; one of several."""


class TreeConfig(CausalConfig):
    """Options of the tree and of the model that writes it."""

    model: str = Field("zorowin123/rq_rag_llama2_7B", description="a causal language model with RQ-RAG's control tokens")
    max_new_tokens: int = Field(100, ge=1, description="longest query or answer")
    system: str = Field(SYSTEM, description="the system message; the released model was trained with several")
    depth: int = Field(2, ge=0, description="searches one after another (HotpotQA: 2; 2WikiMultihopQA: up to 4)")
    per_query: int = Field(3, ge=1, description="passages retrieved for each query; RQ-RAG: 3")
    temperature: float = Field(1.0, gt=0, description="at which queries are drawn; answers are greedy")
    evidence_words: int | None = Field(
        100, ge=1, description="words of a passage that the tree shows; RQ-RAG's passages have about 100; null: all"
    )
    select: Literal["confidence", "perplexity"] = Field(
        "confidence",
        description="which answer counts: the one whose tokens are most probable on average, or the one at the end of the likeliest path",
    )
    searches: int = Field(1, ge=0, description="an answer counts only behind at least so many searches, where there is one; RQ-RAG: 0")


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the tree.

    Attributes:
        text: Everything up to here.
        queries: What was searched with on the way.
        result: Passages found on the way, in the order of the searches, each once.
    """

    text: str
    queries: tuple[str, ...] = ()
    result: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """An answer.

    Attributes:
        node: Where it was given.
        answer: What it says.
        confidence: Mean probability of its tokens.
        perplexity: Of the whole path.
    """

    node: Node
    answer: str
    confidence: float
    perplexity: float


class Tree:
    """Grows the trees of many questions at once, level by level.

    Args:
        config: Options.
        model: Writes and weighs.
        index: What is searched.
        corpus: Where its passages are found.
        seed: Of the queries that are drawn.

    Raises:
        UserError: The model lacks RQ-RAG's control tokens.
    """

    def __init__(self, config: TreeConfig, model: CausalModel, index: Index, corpus: Corpus, seed: int) -> None:
        self.config = config
        self._model = model
        self._index = index
        self._corpus = corpus
        self._sampling = Sampling(config.temperature, seed=seed)
        # Turns are written out below; a chat template would put others around them.
        model.tokenizer.chat_template = None
        model.end_at(END_TOKEN)

    def grow(self, queries: Sequence[Query]) -> list[tuple[list[Leaf], Usage]]:
        """The answers to each query, those of few searches first, and what they cost."""
        levels = [[Node(self._beginning(query.text))] for query in queries]
        leaves: list[list[Leaf]] = [[] for _ in queries]
        usage = [Usage() for _ in queries]
        for depth in range(self.config.depth + 1):
            self._answers(levels, leaves, usage)
            if depth < self.config.depth:
                levels = self._searches(queries, levels, usage)
        return list(zip(leaves, usage, strict=True))

    def chosen(self, leaves: Sequence[Leaf]) -> Leaf | None:
        """The answer that counts; the first of equals, None where there is none."""
        far = [leaf for leaf in leaves if len(leaf.node.queries) >= self.config.searches]
        candidates = far or leaves
        if self.config.select == "confidence":
            return max(candidates, key=lambda leaf: leaf.confidence, default=None)
        return min(candidates, key=lambda leaf: leaf.perplexity, default=None)

    def _beginning(self, question: str) -> str:
        end = self._model.tokenizer.eos_token or ""
        return f"<|system|>\n{self.config.system}{end}\n<|user|>\n{question}{end}\n<|assistant|>\n"

    def _answers(self, levels: list[list[Node]], leaves: list[list[Leaf]], usage: list[Usage]) -> None:
        positions, prompts = self._prompts(levels, (ANSWER_TOKEN,))
        written = self._model.generate(prompts)
        weighed = self._weighed(prompts, written)
        for (owner, node, _), generation, (confidence, perplexity) in zip(positions, written, weighed, strict=True):
            usage[owner] += _cost(generation)
            leaves[owner].append(Leaf(node, generation.text.strip(), confidence, perplexity))

    def _searches(self, queries: Sequence[Query], levels: list[list[Node]], usage: list[Usage]) -> list[list[Node]]:
        positions, prompts = self._prompts(levels, QUERY_TOKENS)
        written = self._model.generate(prompts, sampling=self._sampling)
        below: list[list[Node]] = [[] for _ in queries]
        query, texts = [], []
        for number, ((owner, _, _), generation) in enumerate(zip(positions, written, strict=True)):
            usage[owner] += _cost(generation)
            # A query that does not end, or says nothing, is replaced by the question.
            text = generation.text.strip() if generation.ended else ""
            texts.append(text or queries[owner].text)
            query.append(replace(queries[owner], id=f"{queries[owner].id}~{number}", text=texts[-1]))
        rankings = self._index.retrieve(query, self.config.per_query) if query else []
        for (owner, node, _), prompt, text, ranking in zip(positions, prompts, texts, rankings, strict=True):
            usage[owner] += ranking.usage
            below[owner].append(self._below(node, prompt, text, ranking))
        return below

    def _below(self, node: Node, prompt: str, query: str, ranking: Ranking) -> Node:
        evidence = "".join(map(self._shown, self._corpus.get(ranking.ids)))
        text = f"{prompt} {query}{END_TOKEN}{EVIDENCE_TOKENS[0]}{evidence}{EVIDENCE_TOKENS[1]}"
        return Node(text, (*node.queries, query), tuple(dict.fromkeys((*node.result, *ranking.ids))))

    def _shown(self, passage: Passage) -> str:
        words = passage.text.split()
        return f"Title: {passage.title}\nText: {' '.join(words[: self.config.evidence_words])}\n"

    def _prompts(self, levels: list[list[Node]], tokens: Sequence[str]) -> tuple[list[tuple[int, Node, str]], list[str]]:
        """Every node with every token behind it, where that leaves room to write; whose and which, and the prompts."""
        positions = [
            (owner, node, token)
            for owner, nodes in enumerate(levels)
            for node in nodes
            for token in tokens
            if len(self._model.encode(node.text + token)) <= self._model.room
        ]
        return positions, [node.text + token for _, node, token in positions]

    def _weighed(self, prompts: Sequence[str], written: Sequence[Generation]) -> Iterator[tuple[float, float]]:
        """Of each answer the mean probability of its tokens, and the perplexity of the path that it ends."""
        items = []
        sizes = []
        for prompt, generation in zip(prompts, written, strict=True):
            before = self._model.encode(prompt)
            answer = self._model.text_encoder.target(generation.text) if generation.text else []
            ids = [*before, *answer]
            items.append((ids[:1], ids[1:]))
            sizes.append(len(answer))
        for logprobs, size in zip(self._model.logprobs(items, ScoringConfig()), sizes, strict=True):
            confidence = math.fsum(map(math.exp, logprobs[-size:])) / size if size else 0.0
            yield confidence, math.exp(-math.fsum(logprobs) / len(logprobs))


def _cost(generation: Generation) -> Usage:
    return Usage(generation.prompt_tokens, generation.completion_tokens, model_calls=1)


# -- RQ-RAG with its own model: as a retriever, whose passages any reader reads, and whole, answering by itself --


BATCH = 8
"""Questions whose trees are grown at once."""
TOO_LONG = "the question alone is longer than the model's context"
PAPER = "Chan et al. 2024, RQ-RAG: Learning to Refine Queries for Retrieval Augmented Generation (arXiv:2404.00610)"


class RqRagConfig(TreeConfig, MethodConfig):
    """Options of RQ-RAG: those of its tree, and what it searches with."""

    retriever: RetrieverPart = Field(
        Part(id="dense"), description="what to search with; a bare name stands for {id: …}; ARK's parity: Qwen3"
    )

    def preflight(self) -> None:
        """Check the model's folder and the retriever."""
        locate(self.model)
        self.retriever.component.preflight()


def _weights(config: RqRagConfig) -> str:
    return fingerprint(weights_hash(config.model, config.revision), config.retriever.component.fingerprint)


def _tree_work(config: RqRagConfig, lengths: Lengths) -> Work:
    """Every node of the tree has an answer, and above the last level a child for each way of asking; evidence adds up."""
    ways = len(QUERY_TOKENS)
    shown = config.per_query * min(lengths.passage, (config.evidence_words or lengths.passage) / WORDS_PER_TOKEN)
    searches = sum(ways ** (level + 1) for level in range(config.depth))
    work = config.retriever.component.work(replace(lengths, questions=lengths.questions * searches))
    for level in range(config.depth + 1):
        written = ways**level * (1 + (ways if level < config.depth else 0))
        prompt = INSTRUCTIONS + lengths.question + level * (shown + config.max_new_tokens)
        work += ask(config, lengths.questions * written, prompt)
    return work


def _tree_needs(config: RqRagConfig) -> Needs | None:
    return all_needs((needs_of(config), config.retriever.component.needs))


@register(
    "rq_rag",
    kind="retriever",
    summary="RQ-RAG's own model refines the question in a tree of searches; the passages of its best path",
    config=RqRagConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=_weights,
    work=_tree_work,
    needs=_tree_needs,
)
class RqRag:
    """Retriever by RQ-RAG's tree.

    Args:
        config: Options.
        services: Provides device and seed; handed to the retriever underneath, whose index it shares.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._retriever = config.retriever.component.build(services)
        self._model = CausalModel(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> RqRagIndex:
        """The index of the retriever underneath."""
        own = index_folder(self.config.retriever.component, corpus, self._services) or folder
        index = self._retriever.index(corpus, own)
        return RqRagIndex(Tree(self.config, self._model, index, corpus, self._services.seed))


class RqRagIndex:
    """An index that a tree searches.

    Args:
        tree: Grown for each query.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The passages along the path that counts, in the order in which they were found.

        Its queries and its answer stand in the notes under `rq_rag`; where no prompt left room for an answer, there
        are no passages, and the notes say why.
        """
        grown = []
        for start in range(0, len(queries), BATCH):
            grown += self._tree.grow(queries[start : start + BATCH])
        return [self._ranking(query, self._tree.chosen(leaves), k, usage) for query, (leaves, usage) in zip(queries, grown, strict=True)]

    @staticmethod
    def _ranking(query: Query, leaf: Leaf | None, k: int, usage: Any) -> Ranking:
        if leaf is None:
            return Ranking(query.id, (), (), usage, {NOTE: {"failed": [TOO_LONG]}})
        ids = leaf.node.result[:k]
        note: dict[str, Any] = {NOTE: {"queries": list(leaf.node.queries), "answer": leaf.answer}}
        return Ranking(query.id, ids, tuple(1 / rank for rank in range(1, len(ids) + 1)), usage, note)


@register(
    "rq_rag_native",
    kind="method",
    summary="RQ-RAG answering by itself: the answer at the end of its best path",
    config=RqRagConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=_weights,
    work=_tree_work,
    needs=_tree_needs,
)
class NativeRqRag:
    """RQ-RAG as a whole system.

    Args:
        config: Options.
        services: As of `RqRag`.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        self._retriever = RqRag(config, services)
        self._index: Index | None = None

    def index(self, corpus: Corpus) -> None:
        """Build the index of the retriever underneath, or reopen it."""
        self._index = self._retriever.index(corpus) if len(corpus) else None

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield the answer at the end of each query's best path.

        Raises:
            RuntimeError: `index` was not called, or the corpus is empty.
        """
        if self._index is None:
            raise RuntimeError("call index(corpus) with a corpus before answer(queries)")
        remaining = iter(queries)
        while batch := list(islice(remaining, BATCH)):
            for ranking in self._index.retrieve(batch, DEPTH):
                yield _answered(ranking)


def _answered(ranking: Ranking) -> Prediction:
    note = ranking.notes[NOTE]
    evidence = tuple(map(Evidence, ranking.ids, ranking.scores))
    notes = {**ranking.notes, **({FAILED: note["failed"][0]} if "failed" in note else {})}
    return Prediction(ranking.query_id, note.get("answer", ""), evidence, ranking.usage, notes)
