"""RQ-RAG: refine questions with RQ-RAG's own model (as a retriever or whole system), or by prompting a chat model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from benchmarks.text import normalize
from methods.api import FAILED, Call, Evidence, Index, Prediction, Ranking, Services, Usage, kept
from methods.baselines.hybrid import fuse
from methods.baselines.hyde import INSTRUCTIONS
from methods.composed import Composed
from methods.flow import Batcher, one, together, trace
from methods.graphs.extraction import strings_in
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.models.chat import ChatModel
from methods.models.decoding import Sampling
from methods.models.likelihood import Item, ScoringConfig
from methods.models.llm import LLM, defaults, llm_hash, open_llm
from methods.models.rewriter import refuses
from methods.models.weights import weights_hash
from methods.pipeline import DEPTH, RetrieverChoice, RetrieverPart, index_folder
from methods.prompts import Prompt, Shipped
from methods.registry import AskingMethodConfig, ModelMethodConfig, register
from methods.work import WORDS_PER_TOKEN, Lengths, Needs, Work, all_needs, ask, needs_of

PROMPTS: Mapping[str, Shipped] = {kind: Shipped("methods.baselines", f"rq_rag_{kind}") for kind in ("rewrite", "decompose", "disambiguate")}
"""Prompts for a chat model by kind of query. All queries are searched, and the rankings are fused by reciprocal rank; if a
reply has no query, the question itself is searched.
"""
NOTE = "rq_rag"
"""Key in `notes`: the search queries."""
MOST = 5
"""Maximum number of queries per reply."""
LONGEST = 400
"""Maximum characters of a query; longer lines are ignored."""

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):]|[①-⑳]|\(?[a-e][.)])\s*(?=\s|\D)(?!\*)")
_QUERY_LABEL = re.compile(
    r"(?:(?:re-?written|rephrased|reformulated|refined|improved|search|sub|simple|web|google)[\s-]?)*(?:query|question|search|step|q|rewrite|rewritten)"
    r"\s?\d{0,2}\s?[:：]\s*(?=\S)",
    re.IGNORECASE,
)
_QUERY_TAG = re.compile(r"</?(?:query|question|search)>", re.IGNORECASE)
_QUERY_FIELDS = ("query", "question", "sub_question", "subquestion", "text")
_ASIDE = re.compile(
    r"\s*(?:```|#{1,6}\s|[-=*_|: ]+$|(?:explanation|note|reasoning|rationale)\s*[:：]"
    r"|(?:these|this) (?:queries|questions|query|question|is|will|helps?)\b[^?]*$|i (?:have|will|would|split|changed|rewrote|kept)\b"
    r"|the question is (?:already )?(?:clear|simple|un)|[^\n]*[:：]\W*$)",
    re.IGNORECASE,
)
"""Pattern of a line without a query: a fence, heading or rule, a remark, or a preface that ends with a colon."""
_NOTHING = re.compile(r"\W*(?:none|n/?a|null|not applicable|no (?:change|rewrite|queries)[^?]*)\W*", re.IGNORECASE)
_JSON = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」", "«": "»", "`": "`"}


class PromptedConfig(AskingMethodConfig):
    """Options of prompted RQ-RAG."""

    llm: Annotated[LLM, defaults(max_tokens=256)] = Field(description="model that writes queries")
    retriever: RetrieverPart = Field(
        RetrieverChoice(id="dense"), description="retriever; a bare name stands for {id: …}; equal to ARK's: Qwen3"
    )
    per_query: int = Field(3, ge=1, description="passages retrieved for each query; RQ-RAG: 3")
    k: float = Field(60, gt=0, description="constant k of reciprocal-rank fusion, which lowers the weight of first ranks")
    prompts: str | None = Field(
        None,
        description="a folder with your own templates, named like the shipped ones; missing ones are taken from those",
        exclude_if=lambda value: value is None,
    )

    def templates(self) -> dict[str, Prompt]:
        """Return the templates by kind.

        Raises:
            UserError: A user's template is invalid.
        """
        return {kind: template.load_from(self.prompts) for kind, template in PROMPTS.items()}

    def preflight(self) -> None:
        """Check the model, the retriever and the templates."""
        super().preflight()
        self.templates()
        self.retriever.component.preflight()


def _made_of(config: PromptedConfig) -> str:
    prompts = [(name, prompt.system, prompt.user) for name, prompt in config.templates().items()]
    return fingerprint(config.retriever.component.fingerprint, prompts, llm_hash(config.llm))


def _prompted_work(config: PromptedConfig, lengths: Lengths) -> Work:
    """Estimate the work: one call per prompt and question, and a search per generated query."""
    searches = replace(lengths, questions=lengths.questions * len(PROMPTS) * MOST)
    return config.retriever.component.work(searches) + ask(config.llm, lengths.questions * len(PROMPTS), lengths.question + INSTRUCTIONS)


def _prompted_needs(config: PromptedConfig) -> Needs | None:
    return all_needs((config.retriever.component.needs, needs_of(config.llm)))


@register(
    "rq_rag_prompted",
    kind="retriever",
    summary="a chat model rewrites, decomposes and disambiguates the question; the rankings are fused",
    version=3,
    paper="after Chan et al. 2024, RQ-RAG (arXiv:2404.00610), whose own model is rq_rag",
    checkpoint_hash=_made_of,
    work=_prompted_work,
    needs=_prompted_needs,
)
class PromptedRqRag:
    """Retriever role: searches with generated queries and fuses the rankings.

    Args:
        config: Options.
        services: Services for the retriever, whose index it shares; it uses the cache of replies.
    """

    def __init__(self, config: PromptedConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._retriever = config.retriever.component.build(services)
        self._model = open_llm(config.llm, services, role=NOTE)

    def index(self, corpus: Corpus, folder: Path | None = None) -> PromptedIndex:
        """Return the index of its retriever."""
        own = index_folder(self.config.retriever.component, corpus, self._services) or folder
        return PromptedIndex(self.config, corpus, self._retriever.index(corpus, own), self._model)


class PromptedIndex(Composed):
    """Index that is searched with several generated queries per question."""

    def __init__(self, config: PromptedConfig, corpus: Corpus, index: Index, model: ChatModel) -> None:
        super().__init__(index)
        self.config = config
        self._corpus = corpus
        self._retrieve = one(index, "retrieve")
        self._model = model
        self._prompts = config.templates()
        self.in_flight = model.in_flight

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Generate queries, search with each, and fuse the rankings.

        Raises:
            Broke: All further calls would fail (key, model, endpoint).
        """
        requests = (self._model.ask(prompt.messages(question=query.text), step=kind) for kind, prompt in self._prompts.items())
        replies = await together(*requests)
        rewritten = [text for reply in replies for text in queries_of(reply.text) or [query.text]]
        # Wordings that differ only in case or punctuation would find the same passages, and count twice in the fusion.
        different: dict[str, str] = {}
        for text in rewritten:
            different.setdefault(normalize(text) or text, text)
        wordings = list(different.values())
        queries = [replace(query, id=f"{query.id}~{number}", text=text) for number, text in enumerate(wordings)]
        result = await together(*(self._retrieve(query, self.config.per_query) for query in queries))
        fused = fuse(query, result, k, self._corpus, self.config.k)
        failed = sorted({reply.failed for reply in replies if reply.failed})
        note = {"queries": wordings, **({"failed": failed} if failed else {})}
        usage = sum((reply.usage for reply in replies), fused.usage)
        return Ranking(fused.query_id, fused.ids, fused.scores, usage, {**fused.notes, NOTE: note})


def queries_of(reply: str) -> list[str]:
    """Parse the search queries in a reply: the texts of a JSON list or object, else the lines without bullets, numbers and labels.

    If some lines have bullets or numbers, only these count. Prefaces, headings, remarks, refusals, and overlong and wordless
    lines are skipped.
    """
    texts = _listed(reply)
    if texts is None:
        lines = [line.strip() for line in reply.splitlines() if line.strip() and not _ASIDE.match(line)]
        marked = [line for line in lines if _BULLET.match(line)]
        texts = marked or lines
    queries = [_bare_query(text) for text in texts if not refuses(text)]
    return [query for query in queries if len(query) <= LONGEST and any(map(str.isalnum, query)) and not _NOTHING.fullmatch(query)][:MOST]


def _bare_query(text: str) -> str:
    """Remove bullet, label, bold marks, tags and quotes from a query."""
    text = _BULLET.sub("", text, count=1).strip()
    text = _QUERY_TAG.sub("", text).replace("**", "").strip()
    text = _QUERY_LABEL.sub("", text, count=1).strip()
    return text[1:-1].strip() if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text.strip('"').strip()


def _listed(reply: str) -> list[str] | None:
    """Return the texts of a JSON list or object, also in a code fence; None if the reply has none."""
    start = _JSON.search(reply)
    if start is None:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(reply, start.end())
    except (ValueError, RecursionError):
        return strings_in(reply[start.end() :]) if reply[start.end()] == "[" else None
    for _ in range(2):
        if isinstance(value, dict):
            lists = [item for item in value.values() if isinstance(item, list | dict)]
            value = lists[0] if len(lists) == 1 else list(value.values())
    items = [next(iter(item.values()), "") if isinstance(item, dict) and len(item) == 1 else item for item in value]
    items = [next((item[name] for name in _QUERY_FIELDS if name in item), "") if isinstance(item, dict) else item for item in items]
    return [item for item in items if isinstance(item, str)] or None


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
"""System message of the released model for multi-hop questions, one of several in its training."""


class TreeConfig(CausalConfig):
    """Options of RQ-RAG's decoding tree and its model."""

    model: str = Field("zorowin123/rq_rag_llama2_7B", description="a causal language model with RQ-RAG's control tokens")
    max_new_tokens: int = Field(100, ge=1, description="longest query or answer")
    system: str = Field(SYSTEM, description="the system message; the released model was trained with several")
    depth: int = Field(2, ge=0, description="number of consecutive searches (HotpotQA: 2; 2WikiMultihopQA: up to 4)")
    per_query: int = Field(3, ge=1, description="passages retrieved for each query; RQ-RAG: 3")
    temperature: float = Field(1.0, gt=0, description="temperature at which queries are sampled; answers are greedy")
    evidence_words: int | None = Field(
        100, ge=1, description="words of a passage shown in the tree; RQ-RAG's passages have about 100; null: all"
    )
    select: Literal["confidence", "perplexity"] = Field(
        "confidence",
        description="which answer is used: confidence, the one whose tokens are most probable on average, or perplexity, the one "
        "at the end of the most likely path",
    )
    searches: int = Field(1, ge=0, description="use only answers after at least this many searches, if there is one; RQ-RAG: 0")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the decoding tree.

    Attributes:
        text: All text up to this node.
        queries: Search queries on the path.
        result: Distinct passages found on the path, in order of the searches.
    """

    text: str
    queries: tuple[str, ...] = ()
    result: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the decoding tree, with an answer.

    Attributes:
        node: The node of the answer.
        answer: The answer's text.
        confidence: Mean probability of its tokens.
        perplexity: Perplexity of the whole path.
    """

    node: Node
    answer: str
    confidence: float
    perplexity: float


class Tree:
    """Builder of decoding trees, level by level; trees of many questions grow concurrently.

    Args:
        config: Options.
        model: Model that writes texts and scores them.
        index: Index to search.
        corpus: Corpus with its passages.
        seed: Random seed of the sampled queries.

    Raises:
        UserError: The model lacks RQ-RAG's control tokens.
    """

    def __init__(self, config: TreeConfig, model: CausalModel, index: Index, corpus: Corpus, seed: int) -> None:
        self.config = config
        self.index = index
        self._model = model
        self._corpus = corpus
        # Turns are written out below; a chat template would add others.
        model.tokenizer.chat_template = None
        model.end_at(END_TOKEN)
        drawn = Sampling(config.temperature, seed=seed)
        size = 4 * config.batch_size
        self._retrieve = one(index, "retrieve")
        self._answers: Batcher[str, Generation] = Batcher(model.generate, size, device=model.device, length=len)
        self._queries: Batcher[str, Generation] = Batcher(
            lambda prompts: model.generate(prompts, sampling=drawn), size, device=model.device, length=len
        )
        self._logprobs: Batcher[Item, list[float]] = Batcher(
            lambda items: model.logprobs(items, ScoringConfig()), size, device=model.device
        )

    async def grow(self, query: Query) -> tuple[list[Leaf], Usage]:
        """Grow the tree of a query; returns its answers, those with fewer searches first, and the cost."""
        level = [Node(self._beginning(query.text))]
        leaves: list[Leaf] = []
        usage = Usage()
        for depth in range(self.config.depth + 1):
            answered = await together(*(self._answer(node) for node in level if self._fits(node, ANSWER_TOKEN)))
            leaves += [leaf for leaf, _ in answered]
            branches = [(node, token) for node in level for token in QUERY_TOKENS if self._fits(node, token)]
            searched = await together(
                *(self._search(query, number, *branch) for number, branch in enumerate(branches if depth < self.config.depth else ()))
            )
            level = [node for node, _ in searched]
            usage = sum((cost for _, cost in (*answered, *searched)), usage)
        return leaves, usage

    def chosen(self, leaves: Sequence[Leaf]) -> Leaf | None:
        """Select an answer by the configured criterion; ties go to the first. None if there is none."""
        far = [leaf for leaf in leaves if len(leaf.node.queries) >= self.config.searches]
        candidates = far or leaves
        if self.config.select == "confidence":
            return max(candidates, key=lambda leaf: leaf.confidence, default=None)
        return min(candidates, key=lambda leaf: leaf.perplexity, default=None)

    def _beginning(self, question: str) -> str:
        end = self._model.tokenizer.eos_token or ""
        return f"<|system|>\n{self.config.system}{end}\n<|user|>\n{question}{end}\n<|assistant|>\n"

    def _fits(self, node: Node, token: str) -> bool:
        """Return whether a node with one more token leaves room for generation."""
        return len(self._model.encode(node.text + token)) <= self._model.room

    async def _answer(self, node: Node) -> tuple[Leaf, Usage]:
        """Generate the answer at a node, with its confidence and perplexity."""
        prompt = node.text + ANSWER_TOKEN
        generation = await self._answers(prompt)
        target = self._model.text_encoder.target(generation.text) if generation.text else []
        ids = [*self._model.encode(prompt), *target]
        logprobs = await self._logprobs((ids[:1], ids[1:]))
        confidence = math.fsum(map(math.exp, logprobs[-len(target) :])) / len(target) if target else 0.0
        perplexity = math.exp(-math.fsum(logprobs) / len(logprobs))
        return Leaf(node, generation.text.strip(), confidence, perplexity), _cost(generation, prompt, "answer")

    async def _search(self, query: Query, number: int, node: Node, token: str) -> tuple[Node, Usage]:
        """Generate a query of the kind that the token names, search with it, and return the child node."""
        prompt = node.text + token
        generation = await self._queries(prompt)
        # An unfinished or empty query is replaced by the question.
        text = (generation.text.strip() if generation.ended else "") or query.text
        ranking = await self._retrieve(replace(query, id=f"{query.id}~{number}", text=text), self.config.per_query)
        return self._below(node, prompt, text, ranking), _cost(generation, prompt, token) + ranking.usage

    def _below(self, node: Node, prompt: str, query: str, ranking: Ranking) -> Node:
        evidence = "".join(map(self._show_passage, self._corpus.get(ranking.ids)))
        text = f"{prompt} {query}{END_TOKEN}{EVIDENCE_TOKENS[0]}{evidence}{EVIDENCE_TOKENS[1]}"
        return Node(text, (*node.queries, query), tuple(dict.fromkeys((*node.result, *ranking.ids))))

    def _show_passage(self, passage: Passage) -> str:
        words = passage.text.split()
        return f"Title: {passage.title}\nText: {' '.join(words[: self.config.evidence_words])}\n"


def _cost(generation: Generation, prompt: str, step: str) -> Usage:
    """Return the cost of a generation, and record it as a call of the question."""
    prompt_tokens, completion_tokens = generation.prompt_tokens, generation.completion_tokens
    trace().calls.append(Call(NOTE, step, kept(prompt), kept(generation.text), prompt_tokens, completion_tokens, generation.seconds))
    return Usage(prompt_tokens, completion_tokens, model_calls=1)


TREES = 16
"""Maximum number of trees growing concurrently."""
TOO_LONG = "the question alone is longer than the model's context"
PAPER = "Chan et al. 2024, RQ-RAG: Learning to Refine Queries for Retrieval Augmented Generation (arXiv:2404.00610)"


class RqRagConfig(TreeConfig, ModelMethodConfig):
    """Options of RQ-RAG: tree, model and retriever."""

    retriever: RetrieverPart = Field(
        RetrieverChoice(id="dense"), description="retriever; a bare name stands for {id: …}; equal to ARK's: Qwen3"
    )

    def preflight(self) -> None:
        """Check the model and the retriever."""
        super().preflight()
        self.retriever.component.preflight()


def _weights(config: RqRagConfig) -> str:
    return fingerprint(weights_hash(config.model, config.revision), config.retriever.component.fingerprint)


def _tree_work(config: RqRagConfig, lengths: Lengths) -> Work:
    """Estimate the work: an answer per node, and a child per kind of query above the last level."""
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


_register = partial(register, config=RqRagConfig, paper=PAPER, checkpoint_hash=_weights, work=_tree_work, needs=_tree_needs)


@_register(
    "rq_rag",
    kind="retriever",
    summary="RQ-RAG's own model refines the question in a tree of searches; returns the passages of its best path",
)
class RqRag:
    """Retriever role: returns the passages on the selected path of RQ-RAG's tree.

    Args:
        config: Options.
        services: Services for the retriever, whose index it shares; it uses device and seed.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._retriever = config.retriever.component.build(services)
        self._model = CausalModel(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> RqRagIndex:
        """Return the index of its retriever."""
        own = index_folder(self.config.retriever.component, corpus, self._services) or folder
        index = self._retriever.index(corpus, own)
        return RqRagIndex(Tree(self.config, self._model, index, corpus, self._services.seed))


class RqRagIndex(Composed):
    """Index that is searched by RQ-RAG's tree.

    Args:
        tree: Builder of decoding trees.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.index)
        self._tree = tree

    in_flight = TREES

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Return the passages on the selected path, in order of the searches.

        Its queries and its answer are in the notes under `rq_rag`. If no prompt left room for an answer, there are no
        passages, and the notes give the reason.
        """
        leaves, usage = await self._tree.grow(query)
        return self._ranking(query, self._tree.chosen(leaves), k, usage)

    @staticmethod
    def _ranking(query: Query, leaf: Leaf | None, k: int, usage: Any) -> Ranking:
        if leaf is None:
            return Ranking(query.id, (), (), usage, {NOTE: {"failed": [TOO_LONG]}})
        ids = leaf.node.result[:k]
        note: dict[str, Any] = {NOTE: {"queries": list(leaf.node.queries), "answer": leaf.answer}}
        return Ranking(query.id, ids, tuple(1 / rank for rank in range(1, len(ids) + 1)), usage, note)


@_register("rq_rag_native", kind="method", summary="RQ-RAG with its own answer, the one at the end of its best path")
class NativeRqRag(Composed):
    """Whole method: RQ-RAG with its own answers.

    Args:
        config: Options.
        services: As in `RqRag`.
    """

    def __init__(self, config: RqRagConfig, services: Services) -> None:
        super().__init__()
        self._retriever = RqRag(config, services)
        self.in_flight = TREES
        self._index: RqRagIndex | None = None

    def index(self, corpus: Corpus) -> None:
        """Build the index of its retriever, or reopen it."""
        self._index = self._retriever.index(corpus) if len(corpus) else None
        self._indexes = () if self._index is None else (self._index,)

    async def answer_one(self, query: Query) -> Prediction:
        """Return the answer at the end of the query's best path.

        Raises:
            RuntimeError: `index` was not called, or the corpus is empty.
        """
        if self._index is None:
            raise RuntimeError("call index(corpus) with a corpus before a question is answered")
        return _answered(await self._index.retrieve_one(query, DEPTH))


def _answered(ranking: Ranking) -> Prediction:
    note = ranking.notes[NOTE]
    evidence = tuple(map(Evidence, ranking.ids, ranking.scores))
    notes = {**ranking.notes, **({FAILED: note["failed"][0]} if "failed" in note else {})}
    return Prediction(ranking.query_id, note.get("answer", ""), evidence, ranking.usage, notes)
