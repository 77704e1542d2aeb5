"""Triples as text, and the graph that a retriever is pretrained on: every triple of some datasets' graphs, each once.

Nothing of the datasets' questions and answers is looked at, which is what makes the retriever "zero-shot"; their graphs
are. Test graphs are refused, since the test triples themselves would be seen, unless they are asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from benchmarks.graphs import TripleCorpus, Triples, united
from benchmarks.read_questions import recording
from benchmarks.registry import Benchmark
from benchmarks.schema import Triple
from benchmarks.worlds.world import require_training_seed

# The paper's figures show the last part of a dotted relation with its underscores (`Jamaica languages_spoken Jamaican
# English`); that is the default.


RelationText = Literal["last", "full"]
Underscores = Literal["keep", "space"]


class LinearizeConfig(FrozenModel):
    """Format of linearized triples."""

    rel: RelationText = Field(default="last", description="part of a dotted relation to use: its last part (paper), or all of it")
    underscores: Underscores = Field(default="keep", description="underscores in relations: kept (paper), or written as spaces")


def relation_text(relation: str, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """Return the name of a relation; one without dots is its own last part.

    Args:
        relation: As the graph names it (`location.country.languages_spoken`).
        rel, underscores: As in `LinearizeConfig`.
    """
    parts = [part for part in relation.split(".") if part.strip()]
    text = parts[-1] if rel == "last" and parts else relation
    return " ".join(text.replace("_", " ").split()) if underscores == "space" else text


def linearize(triple: Triple, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """Return the text of one triple.

    Args:
        triple: Head, relation, tail.
        rel, underscores: As in `LinearizeConfig`.
    """
    head, relation, tail = triple
    return f"{head} {relation_text(relation, rel, underscores)} {tail}"


def linearized(triples: Triples, rows: NDArray[np.integer] | None = None, config: LinearizeConfig | None = None) -> list[str]:
    """Return the texts of many triples at once; every relation is worked out a single time.

    Args:
        triples: Where the rows are.
        rows: Which ones, in which order; None: all.
        config: How they are written.

    Returns:
        One text per row, what `linearize` gives.
    """
    config = config or LinearizeConfig()
    table = triples.table if rows is None else triples.table[rows]
    relations = _renamed(triples.relations.to_pylist(), config)
    columns = ((triples.entities, "head"), (relations, "relation"), (triples.entities, "tail"))
    # Large strings: a million texts may pass the two gigabytes that 32-bit offsets reach.
    parts = [texts.cast(pa.large_string()).take(pa.array(table[name])) for texts, name in columns]
    joined: pa.Array = pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))
    return joined.to_pylist()


def _renamed(relations: Sequence[str], config: LinearizeConfig) -> pa.Array:
    return pa.array([relation_text(relation, config.rel, config.underscores) for relation in relations], pa.string())


UNNAMED = r"^[mg]\.[0-9a-z_]+$"
"""Freebase ids, which stand for entities without a name."""


@dataclass(frozen=True)
class PretrainingGraph:
    """Distinct triples with what they came from.

    Attributes:
        triples: By row; `triples.entities` and `triples.relations` are the names behind the numbers.
        heads, relations, tails: Numbers of entities and relations, one per triple.
        references: The data as it was loaded.
        fingerprint: Of the triples alone.
        fingerprints: Of the benchmarks, for the record; their questions count there.
        test: Those of the references that hold test graphs, in which a result is not zero-shot.
        counts: `triples`, `entities`, `relations`, `unnamed_entities`, `triples_with_unnamed`, `self_loops`, and under
            each reference how many distinct triples it brought.
    """

    triples: Triples
    heads: NDArray[np.int32]
    relations: NDArray[np.int32]
    tails: NDArray[np.int32]
    references: tuple[str, ...]
    fingerprint: str
    fingerprints: tuple[str, ...]
    test: tuple[str, ...]
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def names(self) -> pa.Array:
        """Return names of entities, by number."""
        return self.triples.entities

    @cached_property
    def unnamed(self) -> NDArray[np.bool_]:
        """Return for each entity number whether it has no name."""
        return unnamed(self.names)

    @cached_property
    def nameable(self) -> NDArray[np.bool_]:
        """Return for each triple whether both ends have a name, so that a question can be asked about it."""
        return ~(self.unnamed[self.heads] | self.unnamed[self.tails])


def unnamed(names: pa.Array) -> NDArray[np.bool_]:
    """Return which names are ids of entities without a name (`m.0abc`, `g.11x`)."""
    result = pc.match_substring_regex(names, UNNAMED)
    return np.asarray(result.to_numpy(zero_copy_only=False), bool)


def load_graph(
    references: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None, *, allow_test: bool = False
) -> PretrainingGraph:
    """Return the union of the graphs of datasets.

    Args:
        references: Data references whose corpora are triples (`webqsp:train+validation`, `worlds/graph:train`).
        options: Of datasets, by name.
        allow_test: Also use test splits; the graph then records it. Worlds of validation and test are never taken.

    Raises:
        UserError: A reference has no triples, is a test split, or holds worlds that must not be trained on; or there
            is not a triple in any of them.
    """
    wanted = list(references)
    if not wanted:
        raise UserError("no data is named to pretrain on", code="no-pretraining-graph", where="graph", try_this="webqsp:train+validation")
    test = tuple(item for item in wanted if _is_test(item))
    if test and not allow_test:
        raise UserError(
            f"{test[0]} contains test graphs, which must not be used for pretraining",
            code="test-graph",
            where="graph",
            try_this="use train and validation splits, or allow_test: true, which every result then states",
        )
    value = without_questions(wanted, options or {})
    # Triples are read, not the questions that came with them.
    with recording(None):
        benchmarks = [registry.load(item, value.get(registry.resolve(item)[0].name, {})) for item in wanted]
    corpora = [_triples_of(benchmark) for benchmark in benchmarks]
    return graph_of(benchmarks, corpora, test)


def without_questions(references: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return options of loaders by which those that generate questions make none: a graph is the same without them.

    So a graph may be read that is too small for some type of question.

    Args:
        references: Of the graphs.
        options: Of datasets, by name.
    """
    entries = [entry for item in references for _, entry in [registry.resolve(item)]]
    generated = {entry.id: {**options.get(entry.id, {}), "questions": 0} for entry in entries if "questions" in entry.config.model_fields}
    return {**options, **generated}


def graph_of(benchmarks: Sequence[Benchmark], corpora: Sequence[TripleCorpus], test: tuple[str, ...]) -> PretrainingGraph:
    """Return the union of corpora of triples.

    Raises:
        UserError: They have no triples.
    """
    whole = corpora[0] if len(corpora) == 1 else united(corpora)
    assert isinstance(whole, TripleCorpus)
    references = tuple(str(benchmark.reference) for benchmark in benchmarks)
    if not len(whole):
        raise UserError(f"the graphs of {', '.join(references)} have no triples", code="empty-graphs", where="graph", try_this="other data")
    triples = whole.triples
    heads, relations, tails = (np.ascontiguousarray(triples.table[name]) for name in ("head", "relation", "tail"))
    nameless = unnamed(triples.entities)
    counts = {
        "triples": len(heads),
        "entities": len(triples.entities),
        "relations": len(triples.relations),
        "unnamed_entities": int(nameless.sum()),
        "triples_with_unnamed": int((nameless[heads] | nameless[tails]).sum()),
        "self_loops": int((heads == tails).sum()),
        **{reference: len(corpus) for reference, corpus in zip(references, corpora, strict=True)},
    }
    fingerprints = tuple(benchmark.fingerprint for benchmark in benchmarks)
    return PretrainingGraph(triples, heads, relations, tails, references, whole.fingerprint, fingerprints, test, counts)


def _is_test(reference: str) -> bool:
    split = registry.resolve(reference)[0].split or ""
    return "test" in split.split("+")


def _triples_of(benchmark: Benchmark) -> TripleCorpus:
    """Return the corpus of a benchmark, if it is of triples that may be trained on."""
    reference = str(benchmark.reference)
    if not isinstance(benchmark.corpus, TripleCorpus):
        raise UserError(
            f"{reference} has no graphs",
            code="no-graphs",
            where="graph",
            try_this="data of graph QA with its graphs: webqsp, cwq (layout rog), worlds/graph",
        )
    if benchmark.reference.name == "worlds":
        for seed in benchmark.extra["seeds"]:
            require_training_seed(seed)
    return benchmark.corpus
