"""Convert triples to text, and merge the graphs of datasets into the graph on which GPR pretrains its retriever.

Questions and answers are not used, which makes the retriever "zero-shot". Graphs of test splits are refused unless explicitly
allowed, because the retriever would see the test triples.
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
from benchmarks.read_questions import note_left_out, recording
from benchmarks.registry import Benchmark
from benchmarks.schema import Triple
from benchmarks.worlds.world import require_training_seed
from methods.training.material import is_test

# The paper's figures show the last part of a dotted relation with its underscores (`Jamaica languages_spoken Jamaican
# English`); that is the default.


RelationText = Literal["last", "full"]
Underscores = Literal["keep", "space"]


class LinearizeConfig(FrozenModel):
    """Format of linearized triples."""

    rel: RelationText = Field(default="last", description="part of a dotted relation to use: its last part (paper), or all of it")
    underscores: Underscores = Field(default="keep", description="underscores in relations: kept (paper), or written as spaces")


def relation_text(relation: str, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """Return a relation's name as text.

    Args:
        relation: Name in the graph, such as `location.country.languages_spoken`.
        rel, underscores: As in `LinearizeConfig`.
    """
    parts = [part for part in relation.split(".") if part.strip()]
    text = parts[-1] if rel == "last" and parts else relation
    return " ".join(text.replace("_", " ").split()) if underscores == "space" else text


def linearize(triple: Triple, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """Convert one triple to text.

    Args:
        triple: Head, relation, tail.
        rel, underscores: As in `LinearizeConfig`.
    """
    head, relation, tail = triple
    return f"{head} {relation_text(relation, rel, underscores)} {tail}"


def linearized(triples: Triples, rows: NDArray[np.integer] | None = None, config: LinearizeConfig | None = None) -> list[str]:
    """Convert many triples to text; each distinct relation is converted once.

    Args:
        triples: All triples.
        rows: Rows to convert, in order; None for all.
        config: Text format.

    Returns:
        One text per row, equal to that of `linearize`.
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


UNNAMED = r"^(?:[mg]\.|/[mg]/)[0-9a-z_]+$"
"""Pattern of Freebase ids, which serve as placeholders for missing names."""


@dataclass(frozen=True)
class PretrainingGraph:
    """Merged graph of distinct triples, with their origin.

    Attributes:
        triples: Triples by row; `triples.entities` and `triples.relations` are the vocabularies.
        heads, relations, tails: Entity and relation numbers, one per triple.
        references: Data references that were loaded.
        fingerprint: Hash of the triples.
        fingerprints: Fingerprints of the source benchmarks (including their questions), for provenance.
        test: References with test graphs, for which results are not zero-shot.
        counts: `triples`, `entities`, `relations`, `unnamed_entities`, `triples_with_unnamed`, `self_loops`, and per reference
            the number of distinct triples.
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
        """Return the entity names, by number."""
        return self.triples.entities

    @cached_property
    def unnamed(self) -> NDArray[np.bool_]:
        """Return which entities have no name. Shape (entities,)."""
        return unnamed(self.names)

    @cached_property
    def nameable(self) -> NDArray[np.bool_]:
        """Return for which triples both ends have a name, so that a question can be generated. Shape (triples,)."""
        return ~(self.unnamed[self.heads] | self.unnamed[self.tails])


def unnamed(names: pa.Array) -> NDArray[np.bool_]:
    """Return which names are Freebase ids of entities without a name (`m.0abc`, `g.11x`, `/m/0abc`)."""
    result = pc.match_substring_regex(names, UNNAMED)
    return np.asarray(result.to_numpy(zero_copy_only=False), bool)


def load_graph(
    references: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None, *, allow_test: bool = False
) -> PretrainingGraph:
    """Load datasets and merge their graphs.

    Args:
        references: Data references whose corpora are triples (`webqsp:train+validation`, `worlds/graph:train`).
        options: Dataset options by name.
        allow_test: Whether to allow test splits, which the result then records. Validation and test worlds are never allowed.

    Raises:
        UserError: A reference has no triples, is a test split, or contains validation or test worlds; or all graphs are empty.
    """
    wanted = list(references)
    if not wanted:
        raise UserError("no data is named to pretrain on", code="no-pretraining-graph", where="graph", try_this="webqsp:train+validation")
    test = check_graphs(wanted, allowed=allow_test)
    value = without_questions(wanted, options or {})
    # Triples are read, not the questions that came with them.
    with recording(None):
        benchmarks = [registry.load(item, value.get(registry.resolve(item)[0].name, {})) for item in wanted]
    note_left_out(record.where for benchmark in benchmarks for record in benchmark.skipped)
    corpora = [_triples_of(benchmark) for benchmark in benchmarks]
    return graph_of(benchmarks, corpora, test)


def check_graphs(references: Iterable[str], *, allowed: bool) -> tuple[str, ...]:
    """Check references to graphs without loading them; return those that name test splits.

    Raises:
        UserError: There is one, and they are not `allowed`; or a reference does not exist.
    """
    test = tuple(item for item in references if is_test(item, "graph"))
    if test and not allowed:
        raise UserError(
            f"{test[0]} contains test graphs, which must not be used for pretraining",
            code="test-graph",
            where="graph",
            try_this="use train and validation splits, or allow_test: true, which every result then states",
        )
    return test


def without_questions(references: Iterable[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return dataset options with question generation turned off, because only the graphs are needed.

    This also allows graphs that are too small for some question types.

    Args:
        references: Data references of the graphs.
        options: Dataset options by name.
    """
    entries = [entry for item in references for _, entry in [registry.resolve(item)]]
    generated = {entry.id: {**options.get(entry.id, {}), "questions": 0} for entry in entries if "questions" in entry.config.model_fields}
    return {**options, **generated}


def graph_of(benchmarks: Sequence[Benchmark], corpora: Sequence[TripleCorpus], test: tuple[str, ...]) -> PretrainingGraph:
    """Merge the triple corpora of benchmarks into one graph.

    Raises:
        UserError: There are no triples.
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


def _triples_of(benchmark: Benchmark) -> TripleCorpus:
    """Return a benchmark's triple corpus, after checking that it may be used for training."""
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
