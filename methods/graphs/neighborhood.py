"""Compute the neighborhood of a question's answer in its document's graph: entities, scores, and the two cuts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import RetiredOptions
from benchmarks.schema import Question
from methods.graphs.extraction import PROMPTS, strings_in
from methods.graphs.knowledge_graph import KnowledgeGraph, Node, clean_name
from methods.graphs.pagerank import Floats, PageRankConfig, scores_from_seeds
from methods.models.chat import ChatModel
from methods.models.llm import LLM, MayAskConfig, defaults

FALLBACK = "jaccard5"
"""Method of finding seeds whose names match no node: by shared words (Jaccard)."""
NEAREST = 5
"""Nodes that take the place of names which no node has."""
_WORD = re.compile(r"\w+(?:[.'’-]\w+)*")


class SeedConfig(RetiredOptions, MayAskConfig):
    """Options for finding start entities in a question's answer; if no node has a name, the nodes that share most words are used."""

    retired = MappingProxyType({"source": "answer", "fallback": "jaccard5"})

    choice: ClassVar[str] = "namer"

    namer: Literal["graph", "llm"] = Field(
        "graph", description="how names are found in a text: llm, by a language model; graph, by matching nodes"
    )
    llm: Annotated[LLM, defaults(max_tokens=512)] | None = Field(None, description="the model of namer llm")
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")


@dataclass(frozen=True, slots=True)
class Seeds:
    """Start entities of one question.

    Attributes:
        names: Nodes, by name; empty where the question is left out.
        found: How: `name`, `jaccard5`, or "" where it is left out.
        wanted: The names that were looked for.
        failed: Why the names could not be had, where a call failed.
    """

    names: tuple[str, ...]
    match: str
    wanted: tuple[str, ...]
    failed: str | None = None


class Namer(Protocol):
    """Finds the entities that texts name: for each its names, cleaned, or why there are none (a failed call).

    It has `names(texts, graph)`, or `names_one(text, graph)`, where it asks (`methods.flow`).
    """

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines its results."""
        ...


class GraphNamer:
    """A text is a name itself, and names every node that occurs in it, unless within the name of another."""

    batch_size = 10_000

    @property
    def fingerprint(self) -> str:
        return "graph"

    def names(self, texts: Sequence[str], graph: KnowledgeGraph) -> list[tuple[str, ...] | str]:
        by_words = {tuple(_split_words(node.name)): node.name for node in reversed(graph.nodes)}
        by_words.pop((), None)
        longest = max(map(len, by_words), default=0)
        return [self._entities_named(text, by_words, longest) for text in texts]

    @staticmethod
    def _entities_named(text: str, by_words: dict[tuple[str, ...], str], longest: int) -> tuple[str, ...]:
        words = _split_words(text)
        results = [clean_name(text)]
        start = 0
        while start < len(words):
            for length in range(min(longest, len(words) - start), 0, -1):
                name = by_words.get(tuple(words[start : start + length]))
                if name is not None:
                    results.append(name)
                    start += length - 1
                    break
            start += 1
        return tuple(dict.fromkeys(name for name in results if name))


class LLMNamer:
    """Asks a model which entities a text names.

    Args:
        model: The model.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = PROMPTS["names"].load(prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash)

    async def names_one(self, text: str, graph: KnowledgeGraph) -> tuple[str, ...] | str:
        reply = await self._model.ask(self._prompt.messages(text=text), step="names")
        names = (clean_name(name) for name in strings_in(reply.text) or ())
        return reply.failed or tuple(dict.fromkeys(name for name in names if name))


Named = Sequence[tuple[str, ...] | str]
"""Entities found in each of a question's texts."""


def seeds_of(graph: KnowledgeGraph, named: Sequence[Named]) -> list[Seeds]:
    """Return the seeds of questions about one document.

    Args:
        graph: The document's graph.
        named: For each question what was found in its `texts_of`.
    """
    finder = _Finder(graph)
    return [finder.seeds(names) for names in named]


class _Finder:
    """Finds nodes for names."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        self._split_words = [frozenset(_split_words(node.name)) for node in graph.nodes]

    def seeds(self, named: Sequence[tuple[str, ...] | str]) -> Seeds:
        failed = next((why for why in named if isinstance(why, str)), None)
        queries = tuple(dict.fromkeys(name for names in named if not isinstance(names, str) for name in names))
        exact = tuple(name for name in queries if name in self._graph.positions)
        if exact or not queries or not self._graph.nodes:
            return Seeds(exact, "name" if exact else "", queries, failed)
        near = self._nearest(queries)
        return Seeds(near, FALLBACK if near else "", queries, failed)

    def _nearest(self, queries: Sequence[str]) -> tuple[str, ...]:
        wanted = [frozenset(_split_words(name)) for name in queries]
        scores = np.array([max(_overlap(words, item) for item in wanted) for words in self._split_words])
        # Nodes are in the order of their names, so that a stable sort breaks ties by name.
        best = np.argsort(-scores, kind="stable")[:NEAREST]
        return tuple(self._graph.nodes[position].name for position in best if scores[position] > 0)


def texts_of(question: Question) -> list[str]:
    """Return the texts that name where a question starts: its first answer."""
    return list(question.answers[:1])


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.upper())


def _overlap(item: frozenset[str], other: frozenset[str]) -> float:
    return len(item & other) / len(item | other) if item or other else 0.0


SIGNIFICANT = 12
"""Digits of a score that count: nodes in equal positions differ in the last ones by rounding, not by rank."""


class CutConfig(RetiredOptions):
    """Range for the largest drop of the scores: between positions `min_k` and `max_k` of the ranking."""

    retired = MappingProxyType({"inclusive_k": False, "apply_eps": True})

    min_k: int = Field(ge=1, description="minimum number of entities, if available")
    max_k: int = Field(ge=1, description="maximum number of entities (k)")
    released: bool = Field(
        False,
        description="as in the released code: also consider the drop right after position max_k, and drop only zeros, not all "
        "scores below eps",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_k < self.min_k:
            raise ValueError("max_k must not be less than min_k")
        return self


LARGE = CutConfig.model_validate({"min_k": 20, "max_k": 50})
SMALL = CutConfig.model_validate({"min_k": 3, "max_k": 10})


@dataclass(frozen=True, slots=True)
class Cut:
    """Position at which a ranking is cut.

    Attributes:
        size: So many nodes are kept.
        considered: Nodes of the prefix that entered (|V'|).
        fall: The relative drop behind the last node kept, as the difference of logarithms; None where all are kept
            for want of a place to cut.
    """

    size: int
    considered: int
    fall: float | None


def ranked(scores: NDArray[Any], names: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return nodes with a positive score, best first, ties by name.

    Returns:
        Their indices, and their scores to `SIGNIFICANT` digits.
    """
    results = np.flatnonzero(scores > 0)
    values = rounded(np.asarray(scores, np.float64)[results])
    alphabetical = np.argsort(np.array([names[position] for position in results.tolist()] or [""]), kind="stable")[: len(results)]
    order = alphabetical[np.argsort(-values[alphabetical], kind="stable")]
    return results[order], values[order]


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positive numbers to `SIGNIFICANT` digits."""
    return np.array([float(f"{value:.{SIGNIFICANT - 1}e}") for value in values.tolist()], np.float64)


def cut(scores: NDArray[np.float64], config: CutConfig, eps: float) -> Cut:
    """Cut a ranking just before its largest relative drop.

    With s_i = −log score_i and d_i = s_i − s_{i−1}, the first i that makes d_i largest among min_k ≤ i < min(max_k,
    |V'|) is how many are kept; `released` admits i = max_k. With fewer than min_k nodes all are kept, and where no
    i lies in between the first max_k. Where all scores are equal the first admissible i is taken.

    Args:
        scores: Positive, not increasing.
        config: Where to look.
        eps: Scores below it are left out, unless `released`.

    Source:
        Algorithm 1 of ARK; min_k is the released code's.
    """
    considered = len(scores) if config.released else int(np.count_nonzero(scores >= eps))
    last = min(config.max_k, considered - 1) if config.released else min(config.max_k, considered) - 1
    if last < config.min_k:
        return Cut(min(config.max_k, considered), considered, None)
    # The quotient has its maximum where the difference of the logarithms has, and scaling by 2 leaves it untouched.
    falls = scores[config.min_k - 1 : last] / scores[config.min_k : last + 1]
    steepest = int(np.argmax(falls))
    return Cut(config.min_k + steepest, considered, float(np.log(falls[steepest])))


SIZES = ("large", "small")
SHOWN = 60
"""Entities that a neighborhood lists at least, those behind the cuts included, where there are as many."""


class NeighborhoodConfig(RetiredOptions):
    """Options from seeds to cuts."""

    retired = MappingProxyType({"force_seeds": False})

    seeds: SeedConfig = SeedConfig.model_validate({})
    ppr: PageRankConfig = PageRankConfig.model_validate({})
    large: CutConfig = LARGE
    small: CutConfig = SMALL


PRESETS = {
    "paper": {"ppr": {"teleport": 0.85, "dangling": "drop"}, "large": {"min_k": 1, "max_k": 200}, "small": {"min_k": 1, "max_k": 10}},
    "released": {
        "ppr": {"teleport": 0.15, "released_exact": True},
        "large": {"min_k": 20, "max_k": 50, "released": True},
        "small": {"min_k": 3, "max_k": 10, "released": True},
    },
}
"""Settings of paper and released code that differ from the defaults; the paper leaves the sizes of the small cut open."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A neighborhood cut to one size.

    Attributes:
        entities: Names, best first.
        cut: How many of the ranking were kept.
        considered: Entities that entered the cut (|V'|).
        fall: The relative drop at the cut, as a difference of logarithms; None where there was no place to cut.
    """

    entities: tuple[str, ...]
    cut: int
    considered: int
    fall: float | None

    def nodes(self, graph: KnowledgeGraph) -> list[Node]:
        """Return its nodes, in order."""
        return [graph.nodes[graph.positions[name]] for name in self.entities]


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Neighborhood of a question's answer.

    Attributes:
        question_id: The question.
        seeds: Where the search began, and how these were found; without names the question is left out.
        entities: Best first, `SHOWN` of them or as many as the large cut looked at.
        scores: One per entity.
        large, small: The two cuts; the small one is contained in the large.
    """

    question_id: str
    seeds: Seeds
    entities: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    large: Subgraph = Subgraph((), 0, 0, None)
    small: Subgraph = Subgraph((), 0, 0, None)

    @property
    def skipped(self) -> bool:
        """Return whether the question is skipped."""
        return not self.small.entities

    def size(self, name: str) -> Subgraph:
        """Return `large` or `small`."""
        return {"large": self.large, "small": self.small}[name]


def neighborhoods(
    graph: KnowledgeGraph, questions: Sequence[Question], config: NeighborhoodConfig, named: Sequence[Named] | None = None
) -> list[Neighborhood]:
    """Return the neighborhoods of questions about one document, all scored together.

    Args:
        graph: The document's graph.
        questions: With their gold.
        config: Options.
        named: As in `seeds_of`; None looks for the graph's nodes.

    Returns:
        One per question, in order; those without a seed are `skipped`.
    """
    if named is None:
        named = [GraphNamer().names(texts_of(question), graph) for question in questions]
    seeds = seeds_of(graph, named)
    started = [number for number, item in enumerate(seeds) if item.names]
    results = [Neighborhood(question.id, item) for question, item in zip(questions, seeds, strict=True)]
    if started:
        scores = scores_from_seeds(graph, [seeds[number].names for number in started], config.ppr)
        for column, number in enumerate(started):
            results[number] = _neighborhood(questions[number].id, graph, seeds[number], scores[:, column], config)
    return results


def _neighborhood(question_id: str, graph: KnowledgeGraph, seeds: Seeds, scores: Floats, config: NeighborhoodConfig) -> Neighborhood:
    order, values = ranked(scores, [node.name for node in graph.nodes])
    names = tuple(graph.nodes[position].name for position in order)
    large, small = (_subgraph(names, cut(values, rule, config.ppr.eps)) for rule in (config.large, config.small))
    # Both are beginnings of one ranking; only a small cut that falls behind the large one's could break this.
    if large.cut < small.cut:
        small = _subgraph(names, Cut(large.cut, small.considered, large.fall))
    assert set(small.entities) <= set(large.entities)
    shown = max(SHOWN, config.large.max_k + 1, len(large.entities))
    return Neighborhood(question_id, seeds, names[:shown], tuple(values[:shown].tolist()), large, small)


def _subgraph(names: Sequence[str], result: Cut) -> Subgraph:
    return Subgraph(tuple(names[: result.size]), result.size, result.considered, result.fall)
