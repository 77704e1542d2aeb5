"""Compute the neighborhood of a question's answer in its document's graph: seed entities, PageRank scores, and two cuts (ARK)."""

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
"""Value of `Seeds.found` if seeds were found by word overlap (Jaccard), because no node has the name."""
NEAREST = 5
"""Number of nodes used as seeds for names that match no node."""
_WORD = re.compile(r"\w+(?:[.'’-]\w+)*")


class SeedConfig(RetiredOptions, MayAskConfig):
    """Options for finding the seed entities in a question's answer; names that match no node are replaced by the nodes with the
    highest word overlap.
    """

    retired = MappingProxyType({"source": "answer", "fallback": "jaccard5"})

    choice: ClassVar[str] = "namer"

    namer: Literal["graph", "llm"] = Field(
        "graph", description="how names are found in a text: llm, by a language model; graph, by matching nodes"
    )
    llm: Annotated[LLM, defaults(max_tokens=512)] | None = Field(None, description="the model of namer llm")
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seed entities of one question.

    Attributes:
        names: Names of the seed nodes; empty if the question is skipped.
        found: How they were found: `name` or `jaccard5`; "" if the question is skipped.
        wanted: Entity names found in the answer.
        failed: Reason if the call for entity names failed.
    """

    names: tuple[str, ...]
    match: str
    wanted: tuple[str, ...]
    failed: str | None = None


class Namer(Protocol):
    """Protocol of entity finders: return the normalized entity names in each text, or the reason of a failed call.

    An implementation has `names(texts, graph)`, or the asynchronous `names_one(text, graph)` if it calls a model.
    """

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the results."""
        ...


class GraphNamer:
    """Entity finder without a model: a text's entities are the text itself and every node name in it that is not part of a
    longer one.
    """

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
    """Entity finder that asks a language model which entities a text names.

    Args:
        model: The model.
        prompt: A user's template file.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = PROMPTS["names"].load(prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.identity(), self._prompt.hash)

    async def names_one(self, text: str, graph: KnowledgeGraph) -> tuple[str, ...] | str:
        reply = await self._model.ask(self._prompt.messages(text=text), step="names")
        names = (clean_name(name) for name in strings_in(reply.text) or ())
        return reply.failed or tuple(dict.fromkeys(name for name in names if name))


Named = Sequence[tuple[str, ...] | str]
"""Entities found in each of a question's texts, or the reason of failure."""


def seeds_of(graph: KnowledgeGraph, named: Sequence[Named]) -> list[Seeds]:
    """Determine the seed entities of questions about one document.

    Args:
        graph: The document's graph.
        named: For each question, the entities found in its `texts_of`.
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
    """Return the texts in which seed entities are searched: the question's first answer."""
    return list(question.answers[:1])


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.upper())


def _overlap(item: frozenset[str], other: frozenset[str]) -> float:
    return len(item & other) / len(item | other) if item or other else 0.0


SIGNIFICANT = 12
"""Significant digits of a score; symmetric nodes differ in the last digits only by rounding."""


class CutConfig(RetiredOptions):
    """Range of ranks (`min_k` to `max_k`) in which the ranking is cut at the largest drop of scores."""

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
    """Result of cutting a ranking.

    Attributes:
        size: Number of nodes kept.
        considered: Number of nodes considered (|V'|).
        fall: Relative drop after the last node kept, as a difference of logarithms; None if the ranking was too short to cut.
    """

    size: int
    considered: int
    fall: float | None


def ranked(scores: NDArray[Any], names: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Rank the nodes with a positive score, best first, ties by name.

    Returns:
        Node indices, and scores rounded to `SIGNIFICANT` digits.
    """
    results = np.flatnonzero(scores > 0)
    values = rounded(np.asarray(scores, np.float64)[results])
    alphabetical = np.argsort(np.array([names[position] for position in results.tolist()] or [""]), kind="stable")[: len(results)]
    order = alphabetical[np.argsort(-values[alphabetical], kind="stable")]
    return results[order], values[order]


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round positive numbers to `SIGNIFICANT` digits."""
    return np.array([float(f"{value:.{SIGNIFICANT - 1}e}") for value in values.tolist()], np.float64)


def cut(scores: NDArray[np.float64], config: CutConfig, eps: float) -> Cut:
    """Cut a ranking just before its largest relative drop.

    With s_i = −log score_i and d_i = s_i − s_{i−1}, the number kept is the first i that maximizes d_i over min_k ≤ i <
    min(max_k, |V'|); `released` also allows i = max_k. If there are fewer than min_k nodes, all are kept; if the range is
    empty, the first max_k. If all scores are equal, the first i of the range is used.

    Args:
        scores: Positive scores in descending order.
        config: Range of ranks.
        eps: Scores below it are ignored, unless `released`.

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
"""Minimum number of entities listed in a neighborhood, including those after the cuts, if there are as many."""


class NeighborhoodConfig(RetiredOptions):
    """Options of the whole computation: seeds, PageRank and cuts."""

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
"""Settings of the paper and the released code that differ from the defaults; the paper does not give the small cut's range."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A neighborhood after one of the two cuts.

    Attributes:
        entities: Names, best first.
        cut: Number of entities kept.
        considered: Number of entities considered (|V'|).
        fall: Relative drop at the cut, as a difference of logarithms; None if the ranking was too short to cut.
    """

    entities: tuple[str, ...]
    cut: int
    considered: int
    fall: float | None

    def nodes(self, graph: KnowledgeGraph) -> list[Node]:
        """Return the entities as nodes of the graph, best first."""
        return [graph.nodes[graph.positions[name]] for name in self.entities]


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Neighborhood of a question's answer in the graph.

    Attributes:
        question_id: Id of the question.
        seeds: Seed entities; without seeds, the question is skipped.
        entities: Entities, best first; `SHOWN`, or as many as the large cut considered if that is more.
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
        """Return whether the question is skipped because it has no seeds."""
        return not self.small.entities

    def size(self, name: str) -> Subgraph:
        """Return the `large` or `small` subgraph."""
        return {"large": self.large, "small": self.small}[name]


def neighborhoods(
    graph: KnowledgeGraph, questions: Sequence[Question], config: NeighborhoodConfig, named: Sequence[Named] | None = None
) -> list[Neighborhood]:
    """Compute the neighborhoods of all questions about one document in one batch.

    Args:
        graph: The document's graph.
        questions: Questions with gold.
        config: Options.
        named: As in `seeds_of`; None searches the answers for node names.

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
