"""The tree that RQ-RAG's model writes: at each node it rewrites, decomposes or disambiguates, searches, or answers.

A node is a text that ends where the model decides next. From each, all three kinds of query are tried and searched
with, and an answer is written; at the last depth there is only the answer. With depth 2 a question has 1 + 3 + 9
answers. Which of them counts is told by the model's own likelihoods, never by gold.

Source: Chan et al. 2024, RQ-RAG (arXiv:2404.00610); control tokens and turns as its released model was trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Index, Ranking, Usage
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.models.sampling import Sampling
from methods.models.scoring import ScoringConfig

QUERY_TOKENS = ("[S_Rewritten_Query]", "[S_Decomposed_Query]", "[S_Disambiguated_Query]")
ANSWER_TOKEN = "[A_Response]"
END_TOKEN = "[EOS]"
EVIDENCE_TOKENS = ("[R_Evidences]", "[/R_Evidences]")
SYSTEM = (
    "Given a question that requires multi-hop reasoning, you need to decompose the question and answer based on the "
    "given context. Please provide a short and concise response."
)
"""What the released model was trained to be told about multi-hop questions; one of several."""


class TreeConfig(CausalConfig):
    """Options of the tree and of the model that writes it."""

    model: str = Field("zorowin123/rq_rag_llama2_7B", description="a causal language model with RQ-RAG's control tokens")
    max_new_tokens: int = Field(100, ge=1, description="longest query or answer")
    system: str = Field(SYSTEM, description="what the model is told; the released one knows several such sentences")
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
        found: Passages found on the way, in the order of the searches, each once.
    """

    text: str
    queries: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


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
        places, prompts = self._prompts(levels, (ANSWER_TOKEN,))
        written = self._model.generate(prompts)
        weighed = self._weighed(prompts, written)
        for (owner, node, _), generation, (confidence, perplexity) in zip(places, written, weighed, strict=True):
            usage[owner] += _cost(generation)
            leaves[owner].append(Leaf(node, generation.text.strip(), confidence, perplexity))

    def _searches(self, queries: Sequence[Query], levels: list[list[Node]], usage: list[Usage]) -> list[list[Node]]:
        places, prompts = self._prompts(levels, QUERY_TOKENS)
        written = self._model.generate(prompts, sampling=self._sampling)
        below: list[list[Node]] = [[] for _ in queries]
        asked, texts = [], []
        for number, ((owner, _, _), generation) in enumerate(zip(places, written, strict=True)):
            usage[owner] += _cost(generation)
            # A query that does not end, or says nothing, is replaced by the question.
            text = generation.text.strip() if generation.ended else ""
            texts.append(text or queries[owner].text)
            asked.append(replace(queries[owner], id=f"{queries[owner].id}~{number}", text=texts[-1]))
        rankings = self._index.retrieve(asked, self.config.per_query) if asked else []
        for (owner, node, _), prompt, text, ranking in zip(places, prompts, texts, rankings, strict=True):
            usage[owner] += ranking.usage
            below[owner].append(self._below(node, prompt, text, ranking))
        return below

    def _below(self, node: Node, prompt: str, query: str, ranking: Ranking) -> Node:
        evidence = "".join(map(self._shown, self._corpus.get(ranking.ids)))
        text = f"{prompt} {query}{END_TOKEN}{EVIDENCE_TOKENS[0]}{evidence}{EVIDENCE_TOKENS[1]}"
        return Node(text, (*node.queries, query), tuple(dict.fromkeys((*node.found, *ranking.ids))))

    def _shown(self, passage: Passage) -> str:
        words = passage.text.split()
        return f"Title: {passage.title}\nText: {' '.join(words[: self.config.evidence_words])}\n"

    def _prompts(self, levels: list[list[Node]], tokens: Sequence[str]) -> tuple[list[tuple[int, Node, str]], list[str]]:
        """Every node with every token behind it, where that leaves room to write; whose and which, and the prompts."""
        places = [
            (owner, node, token)
            for owner, nodes in enumerate(levels)
            for node in nodes
            for token in tokens
            if len(self._model.encode(node.text + token)) <= self._model.room
        ]
        return places, [node.text + token for _, node, token in places]

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
