"""Retrieve with both versions of HippoRAG: personalized PageRank over phrases that triples and similarity connect.

Version 1 restarts at the phrases most similar to the question's names, weighted by node specificity 1 / (passages with
it); a passage's score is the sum of its facts' phrases. Version 2 also has passages as nodes: it restarts at the phrases of
the facts that are most similar to the question and that a model kept, and a little at every passage by its dense score.

Sources: Gutiérrez et al. 2024 (arXiv:2405.14831) and 2025 (arXiv:2502.14802); the released code, branch `legacy` and
`main` (c617143f). In version 2 a name keeps only ASCII letters, digits and spaces in lower case, a similarity link replaces
the weight of a fact in its direction, and both directions of facts and similarities add up, so that an edge of facts weighs
twice an edge of a passage. Ours: a name without an ASCII letter or digit stays unchanged; in version 1, phrases that differ
only in case are merged; without a model, the names of a question are found by rules, and no fact is filtered.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from benchmarks.schema import Passage, Query
from methods.api import Ranking, Usage
from methods.baselines.graph_rag.common import SHORT, GraphConfig, Group, SystemIndex, minmax, reading_work, register
from methods.graphs.extraction import OpenIE, strings_in
from methods.graphs.index import ChunkRead, GraphIndex, incidence
from methods.graphs.knowledge_graph import clean_name, similar_pairs
from methods.graphs.noun_phrases import NounPhrases
from methods.graphs.pagerank import Walk, iterate, walk_over
from methods.models.chat import ChatModel
from methods.models.structured import parse as parse_json
from methods.prompts import PUBLISHED, Prompt, published
from methods.retrieval.ranking import best_rows
from methods.work import Lengths, Work, ask

PASSAGE_WEIGHT = 0.05
"""Weight of a passage's dense score (scaled to [0, 1]) in the restart distribution."""
TELEPORT = 0.5
EPS = 1e-8
LINKS = 100
"""Maximum similarity links per phrase; version 2 allows one more, as in the released code."""
_SECTION = re.compile(r"^[ \t]*\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
"""Section headings in a reply to HippoRAG 2's published filter."""
_OTHER = re.compile(r"[^a-z0-9 ]")
FACT_TOKENS = 1500
"""Assumed tokens of facts in the native context: 75 facts."""
INSTRUCTIONS = 250
"""Assumed tokens of a prompt about a question, without the question."""


class HippoConfig(GraphConfig):
    """Options of HippoRAG 1, extended by those of version 2."""

    published: ClassVar[Mapping[str, str]] = {"names": "hipporag_names", "triples": "hipporag_triples", "question": "hipporag_question"}

    threshold: float = Field(0.8, ge=-1, le=1, description="minimum cosine at which two phrases are joined")
    teleport: float = Field(TELEPORT, gt=0, lt=1, description="PageRank's share of mass that restarts; released: damping 0.5")

    @property
    def context_tokens(self) -> int:
        return FACT_TOKENS if self.context == "native" else 0

    def reading_by(self, model: ChatModel) -> OpenIE:
        """Build the extractor of names and triples."""
        return OpenIE(model, prompts={name: self.template(name) for name in ("names", "triples")})

    def question_prompt(self) -> Prompt:
        """Return the prompt for extracting names from a question; by default the same as for passages."""
        return published(self.published["question"]) if self.prompts == PUBLISHED else self.template("names")

    def templates(self) -> list[Prompt]:
        own = [self.template(name) for name in ("names", "triples", "facts")]
        return [*own, self.question_prompt()] if self.prompts == PUBLISHED and "question" in self.published else own


class Hippo2Config(HippoConfig):
    """Options of HippoRAG 2."""

    published: ClassVar[Mapping[str, str]] = {"names": "hipporag2_names", "triples": "hipporag2_triples", "facts": "hipporag2_facts"}

    facts: int = Field(5, ge=1, description="facts most similar to the question that are considered")
    entities: int = Field(5, ge=1, description="maximum phrases of these facts at which PageRank restarts")
    fact_instruction: str = Field(
        "Given a question, retrieve relevant triplet facts that matches this question.",
        description="replaces {instruction} in the encoder's query_prompt when facts are searched",
    )
    passage_instruction: str = Field(
        "Given a question, retrieve relevant documents that best answer the question.",
        description="replaces {instruction} in the encoder's query_prompt when passages are searched",
    )
    filter: bool = Field(True, description="let the model drop facts that do not help; without a model all are kept")


@dataclass(frozen=True)
class Facts:
    """Triples of a group as arrays.

    Attributes:
        phrases: Distinct names.
        texts: Texts of the facts for models and readers.
        printed: Texts of the facts for the encoder.
        ends: Phrases of each fact, shape (facts, 2).
        mentions: Number of times that each fact is mentioned, shape (facts,).
        fact_chunks, phrase_chunks: Incidence of facts and phrases in chunks, as sparse 0/1 matrices.
    """

    phrases: list[str]
    texts: list[str]
    printed: list[str]
    ends: NDArray[np.int64]
    mentions: NDArray[np.float64]
    fact_chunks: Any
    phrase_chunks: Any

    @classmethod
    def of(cls, reads: Sequence[ChunkRead], version: int = 1) -> Facts:
        """Collect the distinct facts of chunks."""
        chunks: dict[tuple[str, str, str], list[int]] = {}
        texts: dict[tuple[str, str, str], str] = {}
        for number, read in enumerate(reads):
            for relation in read.relations:
                text = relation.description or f"{relation.source} {relation.target}"
                fact = relation.source, relation.target, text
                if version == 2:
                    subject, *predicate, target = map(plain_name, relation.triple or fact[:2])
                    fact = subject, target, str((subject, *predicate, target)) if predicate else text
                if fact[0] != fact[1]:
                    chunks.setdefault(fact, []).append(number)
                    texts.setdefault(fact, text)
        phrases = sorted({name for source, target, _ in chunks for name in (source, target)})
        rows = {name: place for place, name in enumerate(phrases)}
        ends = np.array([(rows[source], rows[target]) for source, target, _ in chunks], np.int64).reshape(-1, 2)
        fact_chunks = incidence([sorted(set(numbers)) for numbers in chunks.values()], len(reads))
        facts = np.arange(len(chunks))
        phrase_facts = incidence_of(np.tile(facts, 2), ends.T.ravel(), (len(chunks), len(phrases)))
        phrase_chunks = (phrase_facts.T @ fact_chunks).tocsr()
        phrase_chunks.data[:] = 1.0
        mentions = np.array([len(numbers) for numbers in chunks.values()], np.float64)
        return cls(phrases, list(texts.values()), [printed for _, _, printed in chunks], ends, mentions, fact_chunks, phrase_chunks)


def incidence_of(rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]) -> Any:
    """Build a sparse matrix that counts how often each (row, column) pair occurs."""
    from scipy.sparse import coo_array

    matrix = coo_array((np.ones(len(rows)), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    return matrix


def plain_name(name: str) -> str:
    """Reduce a name to lower-case ASCII letters, digits and spaces, as HippoRAG 2 does; names without any are kept."""
    lower = name.lower()
    return _OTHER.sub(" ", lower).strip() or lower


def phrases_and_passages(facts: Facts, links: Mapping[tuple[int, int], float]) -> Any:
    """Build the weighted graph of version 2: CSR, symmetric, shape (phrases + passages, phrases + passages).

    Args:
        facts: Facts; each adds 1 in both directions per passage that states it, and an edge between phrase and passage has
            weight 1.
        links: Cosine by directed pair (from, to), which replaces the weight of facts in that direction.
    """
    from scipy.sparse import block_array, coo_array

    size = len(facts.phrases)
    counts: Counter[tuple[int, int]] = Counter()
    for (one, other), mentions in zip(facts.ends.tolist(), facts.mentions.tolist(), strict=True):
        counts[one, other] += mentions
        counts[other, one] += mentions
    weights = {**counts, **links}
    rows, columns = np.array(list(weights), np.int64).reshape(-1, 2).T
    directed = coo_array((np.fromiter(weights.values(), np.float64, len(weights)), (rows, columns)), shape=(size, size)).tocsr()
    return block_array([[directed + directed.T, facts.phrase_chunks], [facts.phrase_chunks.T, None]]).tocsr()


def links(phrases: Sequence[str], vectors: NDArray[np.float32], threshold: float) -> dict[tuple[int, int], float]:
    """Find the similarity links of version 2: the nearest phrases of each phrase with more than two letters or digits.

    Args:
        phrases: Names.
        vectors: Shape (phrases, dimension).
        threshold: Minimum cosine of a link.

    Returns:
        Cosine by (from, to); at most `LINKS` + 1 from each phrase.
    """
    nearby: dict[int, list[tuple[float, int]]] = {}
    for one, other, cosine in similar_pairs(vectors, threshold, inclusive=True) if len(phrases) else ():
        nearby.setdefault(one, []).append((-cosine, other))
        nearby.setdefault(other, []).append((-cosine, one))
    able = (place for place in sorted(nearby) if sum(map(str.isalnum, phrases[place])) > 2)
    return {(one, other): -minus for one in able for minus, other in sorted(nearby[one])[: LINKS + 1]}


def adjacency(facts: Facts, similar: Sequence[tuple[int, int, float]]) -> Any:
    """Build the weighted graph of version 1: CSR, symmetric, shape (phrases, phrases).

    A fact edge is weighted by the number of its statements, a similarity edge by its cosine.
    """
    from scipy.sparse import coo_array

    size = len(facts.phrases)
    pairs = np.array([pair[:2] for pair in similar], np.int64).reshape(-1, 2)
    ends = np.concatenate([facts.ends, pairs])
    data = np.concatenate([facts.mentions, [pair[2] for pair in similar]])
    rows, columns = np.concatenate([ends, ends[:, ::-1]]).T
    return coo_array((np.tile(data, 2), (rows, columns)), shape=(size, size)).tocsr()


def _work(config: Any, lengths: Lengths) -> Work:
    per_question = ask(config.llm, lengths.questions, INSTRUCTIONS + lengths.question, SHORT)
    return reading_work(config, lengths, calls=2) + per_question


@register(
    "hipporag",
    summary="HippoRAG: PageRank over a graph of phrases, started at the names in the question; passages score by their phrases",
    config=HippoConfig,
    paper="Gutiérrez et al. 2024, HippoRAG (arXiv:2405.14831)",
    work=_work,
)
class HippoIndex(SystemIndex):
    """Index with phrases, facts and passages, and a prepared random walk per group."""

    version = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._names = self.config.question_prompt() if self.version == 1 else None

    def facts(self, group: Group) -> Facts:
        """Return a group's facts, computed once."""
        return group.index.once("facts", lambda: Facts.of(group.index.reads, self.version))

    def phrases(self, index: GraphIndex, facts: Facts) -> NDArray[np.float32]:
        """Encode the phrases."""
        return index.once("phrases", lambda: index.vectors([name.lower() for name in facts.phrases]))

    def walk(self, group: Group) -> Walk:
        """Return the prepared random walk over a group's graph, computed once."""

        def make() -> Walk:
            facts = self.facts(group)
            return walk_over(self.edges(facts, self.phrases(group.index, facts)), 1 - self.config.teleport, weighted=True, dtype=np.float64)

        return group.index.once("walk", make)

    def edges(self, facts: Facts, vectors: NDArray[np.float32]) -> Any:
        """Build the sparse graph of the walk from facts and phrase vectors."""
        return adjacency(facts, similar_phrases(facts.phrases, vectors, self.config.threshold))

    async def names_in(self, query: Query) -> tuple[list[str], Usage]:
        """Extract the names in a question, and return the cost."""
        if self.model is None:
            return list(NounPhrases(pipeline=self.config.pipeline).names(query.text)), Usage()
        assert self._names is not None
        reply = await self.model.ask(self._names.messages(text=query.text), step="names")
        names = (clean_name(name) for name in strings_in(reply.text) or ())
        return list(dict.fromkeys(name for name in names if name)), reply.usage

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by their phrases' PageRank from the question's names; without names, by dense score."""
        names, usage = await self.names_in(query)
        return await self.compute(lambda: self._ranked(query, names, k, usage))

    def _ranked(self, query: Query, names: Sequence[str], k: int, usage: Usage) -> Ranking:
        group = self.group(query)
        restart, linked = self.restart(group, names)
        if not restart.any():
            scores = self.dense(group, self.query_vector(query.text))
            return self.by_score(query, group, scores, k, {"fallback": "dense", "names": list(names)}, usage)
        ranks = np.asarray(iterate(self.walk(group), restart[:, None], tolerance=EPS).scores[:, 0], np.float64)
        scores = self.passage_scores(group, ranks)
        return self.by_score(query, group, scores, k, {"names": list(names), "phrases": linked}, usage)

    def restart(self, group: Group, names: Sequence[str]) -> tuple[NDArray[np.float64], list[str]]:
        """Return the restart distribution over phrases (nearest phrase of each name, weighted by node specificity), and these
        phrases.
        """
        facts = self.facts(group)
        chi = np.zeros(len(facts.phrases))
        if not names or not facts.phrases:
            return chi, []
        vectors = self.phrases(group.index, facts)
        rows = [int(np.argmax(vectors @ self.query_vector(name.lower()))) for name in names]
        passage_counts = np.diff(facts.phrase_chunks.indptr)[rows]
        chi[rows] = 1 / np.maximum(passage_counts, 1)
        return chi, [facts.phrases[place] for place in rows]

    def passage_scores(self, group: Group, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the PageRank of the phrases in each passage's facts: shape (chunks,)."""
        facts = self.facts(group)
        return np.asarray(facts.fact_chunks.T @ ranks[facts.ends].sum(axis=1))

    def native(self, group: Group, query: Query, ranking: Ranking) -> list[Passage]:
        """Return the facts about the restart phrases as passages."""
        facts = self.facts(group)
        seeds = set(ranking.notes.get(self.note, {}).get("phrases", ()))
        chosen = [n for n, ends in enumerate(facts.ends.tolist()) if seeds & {facts.phrases[end] for end in ends}]
        return [Passage(f"fact {n}", "", facts.texts[n]) for n in chosen]


def similar_phrases(phrases: Sequence[str], vectors: NDArray[np.float32], threshold: float) -> list[tuple[int, int, float]]:
    """Return pairs of phrases whose cosine reaches a threshold, at most the `LINKS` most similar per phrase."""
    able = [place for place, name in enumerate(phrases) if sum(map(str.isalnum, name)) > 2]
    nearby = list(similar_pairs(vectors[able], threshold, inclusive=True)) if able else []
    taken: Counter[int] = Counter()
    kept = []
    for one, other, cosine in sorted(nearby, key=lambda pair: (-pair[2], pair[0], pair[1])):
        if taken[one] < LINKS and taken[other] < LINKS:
            taken.update((one, other))
            kept.append((able[one], able[other], cosine))
    return kept


class _Kept(BaseModel):
    facts: list[str]


class _KeptTriples(BaseModel):
    fact: list[list[str]]


def _kept_texts(reply: str) -> list[str] | None:
    read = parse_json(reply, _Kept).value
    return None if read is None else read.facts


def as_triple(printed: str) -> tuple[str, ...]:
    """Parse a printed fact back to a tuple; a fact without a predicate is a tuple of its text."""
    try:
        value = ast.literal_eval(printed)
    except (ValueError, SyntaxError):
        return (printed,)
    return tuple(map(str, value)) if isinstance(value, tuple) else (printed,)


def kept_triples(reply: str) -> list[str] | None:
    """Parse the facts in the last section `fact_after_filter` of a reply (else in the whole reply); None if it has no JSON.

    As in the released code, Python list notation is accepted, too.
    """
    sections = _SECTION.split(reply)
    named = [text for name, text in zip(sections[1::2], sections[2::2], strict=True) if name == "fact_after_filter"]
    text = (named or [sections[0]])[-1].strip()
    read = parse_json(text, _KeptTriples).value
    if read is None:
        try:
            read = _KeptTriples.model_validate(ast.literal_eval(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(tuple(fact)) for fact in read.fact]


@dataclass(frozen=True)
class _Found:
    """Matches of a query within a group: facts by similarity, and the dense score of every passage."""

    group: Group
    facts: list[int]
    scores: NDArray[np.float64]
    dense: NDArray[np.float64]
    note: dict[str, Any] = field(default_factory=dict)


@register(
    "hipporag2",
    summary="HippoRAG 2: PageRank over phrases and passages, started at the facts most similar to the question, which a model filters",
    config=Hippo2Config,
    paper="Gutiérrez et al. 2025, From RAG to Memory (arXiv:2502.14802)",
    work=_work,
    version=2,
)
class Hippo2Index(HippoIndex):
    """Index of HippoRAG 2, whose graph also has passages as nodes."""

    version = 2

    def edges(self, facts: Facts, vectors: NDArray[np.float32]) -> Any:
        return phrases_and_passages(facts, links(facts.phrases, vectors, self.config.threshold))

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Rank passages by their PageRank; if the filter keeps no fact, by dense score."""
        nearby: _Found = await self.compute(lambda: self._found(query))
        kept, usage = nearby.facts, Usage()
        if self.model is not None and self.config.filter and nearby.facts:
            kept, usage = await self._filtered(query, nearby)
        return await self.compute(lambda: self._walked(query, nearby, kept, k, usage))

    def _found(self, query: Query) -> _Found:
        group = self.group(query)
        facts = self.facts(group)
        vectors = group.index.once("facts' vectors", lambda: group.index.vectors(facts.printed))
        to_facts, to_passages = (
            np.asarray(self.encoder.queries([query.text], instruction)[0])
            for instruction in (self.config.fact_instruction, self.config.passage_instruction)
        )
        scores = minmax((vectors @ to_facts).astype(np.float64)) if len(facts.printed) else np.empty(0)
        return _Found(group, best_rows(scores, self.config.facts).tolist(), scores, self.dense(group, to_passages))

    async def _filtered(self, query: Query, nearby: _Found) -> tuple[list[int], Usage]:
        """Return the facts most similar to those that the model keeps; [] if its reply cannot be parsed, as released."""
        facts, theirs = self.facts(nearby.group), self.config.prompts == PUBLISHED
        shown: list[Any] = [as_triple(facts.printed[fact]) if theirs else facts.texts[fact] for fact in nearby.facts]
        texts = list(map(str, shown))
        listed = json.dumps({"fact": [list(fact) for fact in shown]}) if theirs else json.dumps(shown, ensure_ascii=False, indent=1)
        messages = self.config.template("facts").messages(question=query.text, facts=listed)
        assert self.model is not None
        reply = await self.model.ask(messages, shape=None if theirs else _Kept, step="facts")
        chosen = kept_triples(reply.text) if theirs else _kept_texts(reply.text)
        if chosen is None:
            nearby.note["fallback"] = reply.failed or "facts that are not JSON: none is kept"
            return [], reply.usage
        if invented := sum(text not in texts for text in chosen):
            nearby.note["facts that the model changed"] = invented
        kept = {texts.index(get_close_matches(text, texts, 1, 0.0)[0]) for text in chosen}
        return [nearby.facts[place] for place in sorted(kept)], reply.usage

    def _walked(self, query: Query, nearby: _Found, kept: Sequence[int], k: int, usage: Usage) -> Ranking:
        facts = self.facts(nearby.group)
        note = {**nearby.note, "facts": [facts.texts[fact] for fact in kept]}
        scores = nearby.dense
        chi, linked = self.restarts(facts, kept, nearby)
        if kept and chi.any():
            note["phrases"] = linked
            ranks = iterate(self.walk(nearby.group), chi[:, None], tolerance=EPS).scores[:, 0]
            scores = np.asarray(ranks[len(facts.phrases) :], np.float64)
        else:
            note.setdefault("fallback", "dense")
        return self.by_score(query, nearby.group, scores, k, note, usage)

    def restarts(self, facts: Facts, kept: Sequence[int], nearby: _Found) -> tuple[NDArray[np.float64], list[str]]:
        """Return the restart distribution over phrases and passages, and the phrases with nonzero mass."""
        passage_counts = np.maximum(np.diff(facts.phrase_chunks.indptr), 1)
        shares: dict[int, list[float]] = {}
        for fact in kept:
            for place in facts.ends[fact].tolist():
                shares.setdefault(place, []).append(nearby.scores[fact] / passage_counts[place])
        weights = {place: float(np.mean(values)) for place, values in shares.items()}
        linked = sorted(weights, key=lambda place: (-weights[place], place))[: self.config.entities]
        chi = np.zeros(len(facts.phrases) + len(nearby.dense))
        chi[linked] = [weights[place] for place in linked]
        chi[len(facts.phrases) :] = PASSAGE_WEIGHT * minmax(nearby.dense)
        return chi, [facts.phrases[place] for place in linked]
