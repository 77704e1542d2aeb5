"""GRAG's retrieval: ego graphs against a naive walk, and the method on graphs of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import load
from benchmarks.schema import Passage, Query, Triple, passage_id
from methods.api import Services
from methods.baselines.graph import grag
from methods.baselines.graph.grag import NOTE, EgoGraphs, GragConfig, GragIndex, unrepeated
from methods.baselines.graph.question_graph import EncodedNames, QuestionGraph
from methods.registry import Component
from tests.support.errors import raises
from tests.support.letters import Letters, ids

FAMILY: list[Triple] = [
    ("Ada", "people.person.parents", "Bo"),
    ("Bo", "people.person.place_of_birth", "Cove"),
    ("Ada", "people.person.profession", "Weaver"),
    ("Cove", "location.location.contains", "Mill"),
    ("Dan", "people.person.place_of_birth", "Eyot"),
    ("Bo", "people.person.children", "Ada"),
]


def graph_of(triples: list[tuple[int, int, int]], size: int) -> QuestionGraph:
    table = np.array(triples, np.int64).reshape(-1, 3)
    return QuestionGraph(table[:, 0], table[:, 2], np.arange(size), table[:, 1])


def walked(graph: QuestionGraph, center: int, hops: int, directed: bool) -> tuple[list[int], list[int]]:
    """Return the nodes within reach, hop by hop, and the edges between them."""
    inside = {center}
    for _ in range(hops):
        reached = {int(head) for head, tail in zip(graph.heads, graph.tails, strict=True) if tail in inside}
        if not directed:
            reached |= {int(tail) for head, tail in zip(graph.heads, graph.tails, strict=True) if head in inside}
        inside |= reached
    ends = zip(graph.heads, graph.tails, strict=True)
    edges = [edge for edge, (head, tail) in enumerate(ends) if hops and head in inside and tail in inside]
    return sorted(inside), edges


@st.composite
def graphs(draw: st.DrawFn) -> QuestionGraph:
    size = draw(st.integers(1, 9))
    ends = st.integers(0, size - 1)
    return graph_of(draw(st.lists(st.tuples(ends, st.integers(0, 3), ends), max_size=14)), size)


@pytest.mark.slow
@given(graphs(), st.integers(0, 3), st.booleans(), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([1, 40, 1 << 21]))
def test_ego_graph_vector_is_the_mean_over_its_nodes_and_edges(
    graph: QuestionGraph, hops: int, directed: bool, dense: float, cells: int
) -> None:
    rng = np.random.default_rng(0)
    nodes = rng.standard_normal((len(graph.nodes), 5), dtype=np.float32)
    relations, positions = np.unique(graph.relations, return_inverse=True)
    vectors = rng.standard_normal((len(relations), 5), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        # However blocks are cut, and whether they are plain or sparse.
        patch.setattr(grag, "DENSE", dense)
        patch.setattr(grag, "CELLS", cells)
        egos = EgoGraphs(graph, hops, directed=directed)
        result = egos.vectors(nodes, vectors, positions)
    for center in range(len(graph.nodes)):
        its_nodes, its_edges = walked(graph, center, hops, directed)
        members = egos.members(center)
        assert [members[0].tolist(), members[1].tolist()] == [its_nodes, its_edges]
        mean = np.concatenate([nodes[its_nodes], vectors[positions[its_edges]]]).mean(axis=0)
        assert result[center] == pytest.approx(mean, abs=1e-6)


def test_ego_graph_mean_equals_a_hand_computation() -> None:
    graph = graph_of([(0, 0, 1), (1, 1, 2), (1, 1, 2)], 4)
    nodes = np.array([[1, 0], [3, 0], [5, 0], [7, 0]], np.float32)
    relations = np.array([[0, 1], [0, 2]], np.float32)
    one_hop = EgoGraphs(graph, 1).vectors(nodes, relations, graph.relations)
    # Node 0: nodes 0 and 1 and an edge; node 1: three nodes and three edges; node 3 has no edge.
    assert one_hop == pytest.approx(np.array([[4 / 3, 1 / 3], [9 / 6, 5 / 6], [8 / 4, 4 / 4], [7, 0]]))
    against = EgoGraphs(graph, 1, directed=True).vectors(nodes, relations, graph.relations)
    # Nothing reaches node 0; what reaches node 2 is node 1.
    assert against == pytest.approx(np.array([[1, 0], [4 / 3, 1 / 3], [8 / 4, 4 / 4], [7, 0]]))


def test_ego_graph_without_hops_is_its_node_without_self_loops() -> None:
    graph = graph_of([(0, 0, 0), (0, 0, 1)], 2)
    nodes = np.array([[1, 2], [3, 4]], np.float32)
    egos = EgoGraphs(graph, 0)
    assert np.array_equal(egos.vectors(nodes, nodes[:1], graph.relations), nodes)
    assert [part.tolist() for part in egos.members(0)] == [[0], []]


@given(graphs())
def test_unrepeated_drops_all_edges_of_a_repeated_pair(graph: QuestionGraph) -> None:
    pairs = list(zip(graph.heads.tolist(), graph.tails.tolist(), strict=True))
    assert unrepeated(graph).tolist() == [edge for edge, pair in enumerate(pairs) if pairs.count(pair) == 1]


def index_of(triples: list[Triple], folder: Path | None = None, **options: Any) -> GragIndex:
    corpus, encoder = TripleCorpus.of_triples(triples), Letters()
    config = GragConfig.model_validate({"model": "minilm", **options})
    return GragIndex(config, encoder, corpus, EncodedNames.of(corpus, encoder, folder))  # type: ignore[arg-type]


def cosine(item: str, other: str) -> float:
    first, second = Letters().passages([item, other]).astype(float)
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second) or 1))


def naive(triples: list[Triple], question: str, hops: int, egos: int, edges: int) -> list[Triple]:
    """Return the triples that GRAG keeps, computed node by node."""
    entities = list(dict.fromkeys(name.lower() for head, _, tail in triples for name in (head, tail)))
    numbered = [(entities.index(h.lower()), 0, entities.index(t.lower())) for h, _, t in triples]
    graph = graph_of(numbered, len(entities))
    texts = [
        [*(entities[n] for n in nodes), *(triples[e][1] for e in its_edges)]
        for nodes, its_edges in (walked(graph, c, hops, False) for c in range(len(entities)))
    ]
    means = [Letters().passages(text).astype(float).mean(axis=0) for text in texts]
    query = Letters().passages([question])[0].astype(float)
    by_mean = [round(float(query @ m / (np.linalg.norm(query) * np.linalg.norm(m) or 1)), 6) for m in means]
    kept: list[Triple] = []
    for center in sorted(range(len(entities)), key=lambda c: (-by_mean[c], c))[:egos]:
        its_edges = walked(graph, center, hops, False)[1]
        kept += [triples[e] for e in sorted(its_edges, key=lambda e: (-cosine(question, triples[e][1]), e))[:edges]]
    return list(dict.fromkeys(kept))


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefg"), st.sampled_from(["xa.yb", "zc", "de_f"]), st.sampled_from("abcdefg")),
        min_size=1,
        max_size=12,
        unique=True,
    ),
    st.integers(0, 2),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_ranking_equals_a_naive_walk_from_node_to_node(triples: list[Triple], hops: int, egos: int, edges: int) -> None:
    index = index_of(triples, hops=hops, ego_graphs=egos, edges=edges)
    (ranking,) = index.retrieve([Query("q", "face bxyz add", candidates=ids(triples))], 100)
    assert ranking.ids == ids(naive(triples, "face bxyz add", hops, egos, edges))
    assert ranking.notes[NOTE]["triples"] == len(ranking.ids)


def test_triples_are_ordered_by_ego_graph_and_notes_count_all_despite_k() -> None:
    index = index_of(FAMILY, ego_graphs=2, edges=2, hops=1)
    query = Query("q", "Ada's parents", candidates=ids(FAMILY))
    (whole,), (cut,) = index.retrieve([query], 100), index.retrieve([query], 1)
    assert len(whole.ids) > 1
    assert (cut.ids, cut.notes) == (whole.ids[:1], whole.notes)
    assert whole.notes[NOTE] == {
        "triples": len(whole.ids),
        "ego_graphs": 2,
        "of": 6,
        "entities_without_triple": whole.notes[NOTE]["entities_without_triple"],
    }
    assert list(whole.scores) == sorted(whole.scores, reverse=True)


def test_entities_without_a_kept_triple_are_counted() -> None:
    star = [("hub", f"r{number}", f"leaf{number}") for number in range(6)]
    (ranking,) = index_of(star, ego_graphs=1, edges=1, nodes=7).retrieve([Query("q", "hub leaf", candidates=ids(star))], 9)
    assert len(ranking.ids) == 1
    assert ranking.notes[NOTE]["entities_without_triple"] == 5


def test_official_preset_drops_repeated_pairs_and_walks_against_edge_direction() -> None:
    twice = [("a", "r one", "b"), ("a", "r two", "b"), ("b", "s", "c"), ("c", "s", "b")]
    query = Query("q", "a r s", candidates=ids(twice))
    (ours,), (official,) = (index_of(twice, **o).retrieve([query], 9) for o in ({}, {"repeated_pairs": "drop"}))
    assert set(ours.ids) == set(ids(twice))
    assert set(official.ids) == set(ids(twice[2:]))
    # Of a chain, one hop: what reaches a center, so the first node's ego graph has no triple.
    chain = [("a", "r", "b"), ("b", "r", "c")]
    request = Query("q", "a", candidates=ids(chain))
    options: dict[str, Any] = {"hops": 1, "ego_graphs": 1}
    assert index_of(chain, **options, hop_direction="against_edges").retrieve([request], 9)[0].ids == ()
    assert index_of(chain, **options).retrieve([request], 9)[0].ids == ids(chain[:1])
    config = Component.of("grag", {"preset": "official"}).config
    assert (config.hop_direction, config.repeated_pairs) == ("against_edges", "drop")


def test_query_without_candidates_uses_the_whole_corpus_as_graph() -> None:
    everywhere, named = index_of(FAMILY).retrieve([Query("q", "Bo", candidates=None), Query("q", "Bo", candidates=ids(FAMILY))], 9)
    assert everywhere == named
    assert everywhere.ids


def test_graphs_and_corpora_without_triples_give_empty_rankings() -> None:
    assert index_of(FAMILY).retrieve([Query("q", "Bo", candidates=())], 5)[0].ids == ()
    assert index_of([]).retrieve([Query("q", "Bo")], 5)[0].ids == ()
    assert index_of(FAMILY).retrieve([], 5) == []


@pytest.mark.parametrize(
    "triples", [[("m.01", "r", "m.01")], [("a", "r", "b"), ("b", "r", "a")], [("", "", "")], [("a", "r", "b"), ("c", "r", "d")]]
)
@pytest.mark.parametrize("preset", ["minilm", "official"])
def test_self_loops_inverses_unnamed_entities_and_disconnected_graphs_are_ranked(triples: list[Triple], preset: str) -> None:
    official = {"hop_direction": "against_edges", "repeated_pairs": "drop"} if preset == "official" else {}
    (ranking,) = index_of(triples, **official).retrieve([Query("q", "a r b", candidates=ids(triples))], 5)
    assert set(ranking.ids) == set(ids(triples))


def test_index_on_disk_ranks_like_one_in_memory(tmp_path: Path) -> None:
    queries = [Query("q", text, candidates=ids(FAMILY)) for text in ("Ada's parents", "where was Bo born")]
    in_memory = index_of(FAMILY).retrieve(queries, 10)
    for _ in range(2):
        assert index_of(FAMILY, tmp_path / "index").retrieve(queries, 10) == in_memory


def test_corpus_of_passages_is_refused() -> None:
    retriever = Component.of("grag", {"preset": "minilm"}).build(Services(device="cpu"))
    with raises("triples-over-passages"):
        retriever.index(Corpus.of([Passage(passage_id("", "x"), "", "x")]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "path", "largest"),
    [("webqsp:test", "webqsp/rog_style_webqsp.jsonl", 15), ("cwq:test", "cwq/rog_style_cwq_full_subgraph_4.jsonl", 1200)],
)
def test_real_graphs_are_reduced_to_ego_graphs(dataset: str, path: str, largest: int, data_folder: Path, tmp_path: Path) -> None:
    benchmark = load(dataset, {"path": str(data_folder / path)})
    questions = [question for question in benchmark.questions if len(question.candidates or ()) <= largest]
    graphs = [benchmark.extra["graphs"][question.id] for question in questions]
    corpus = TripleCorpus.of_triples(triple for graph in graphs for triple in graph)
    retriever = Component.of("grag", {"preset": "minilm"}).build(Services(device="cpu", artifacts=tmp_path))
    index = retriever.index(corpus, tmp_path / "index")
    queries = [question.query() for question in questions]
    assert queries
    for graph, ranking in zip(graphs, index.retrieve(queries, len(corpus)), strict=True):
        assert set(ranking.ids) <= set(graph.ids)
        assert 0 < len(ranking.ids) == ranking.notes[NOTE]["triples"] <= min(len(graph), 20 * 10)
