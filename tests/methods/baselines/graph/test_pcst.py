"""G-Retriever's retrieval: hand-computed prizes, trees against an exhaustive search, and graphs of all kinds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import load
from benchmarks.schema import Passage, Query, Triple, passage_id, triple_id
from methods.api import Services
from methods.baselines.graph.g_retriever import NOTE, GRetriever, GRetrieverConfig, GRetrieverIndex
from methods.baselines.graph.pcst import Tree, best_tree, edge_cost, edge_prizes, node_prizes
from methods.baselines.graph.question_graph import EncodedNames, Names, QuestionGraph
from methods.registry import Component
from tests.support.errors import raises
from tests.support.letters import Letters, ids

FAMILY: list[Triple] = [
    ("Ada", "people.person.parents", "Bo"),
    ("Bo", "people.person.place_of_birth", "Cove"),
    ("Ada", "people.person.profession", "Weaver"),
    ("Cove", "location.location.contains", "Mill"),
    ("Dan", "people.person.place_of_birth", "Eyot"),
    ("ADA", "people.person.parents", "Gus"),
]


@dataclass(frozen=True)
class Drawn:
    """A graph with prizes."""

    graph: QuestionGraph
    nodes: np.ndarray
    edges: np.ndarray
    cost: float


def graph_of(pairs: list[tuple[int, int]], size: int) -> QuestionGraph:
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return QuestionGraph(ends[:, 0], ends[:, 1], np.arange(size), np.arange(len(ends)))


@st.composite
def drawn_graphs(draw: st.DrawFn) -> Drawn:
    size = draw(st.integers(1, 8))
    ends = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges = edge_prizes(rng.choice(rng.uniform(-1, 1, 4), len(pairs)), draw(st.integers(0, 5)))
    nodes = node_prizes(rng.uniform(-1, 1, size), draw(st.integers(0, 3)))
    return Drawn(graph_of(pairs, size), nodes, edges, edge_cost(edges, draw(st.sampled_from([0.1, 0.5, 1.5]))))


def connected(graph: QuestionGraph, tree: Tree) -> bool:
    """Return whether the chosen edges connect the chosen nodes."""
    if not len(tree.nodes):
        return not len(tree.edges)
    reached, frontier = {int(tree.nodes[0])}, [int(tree.nodes[0])]
    while frontier:
        node = frontier.pop()
        for edge in tree.edges:
            ends = {int(graph.heads[edge]), int(graph.tails[edge])}
            if node in ends:
                frontier += ends - reached
                reached |= ends
    return reached == set(tree.nodes.tolist())


def worth(drawn: Drawn, nodes: Any, edges: Any) -> float:
    return float(drawn.nodes[list(nodes)].sum() + (drawn.edges[list(edges)] - drawn.cost).sum())


def best_worth(drawn: Drawn) -> float:
    """Return the maximum worth of a connected subgraph, over all single nodes and connected sets of edges."""
    best = float(drawn.nodes.max(initial=0.0))
    for number in range(1, len(drawn.graph) + 1):
        for edges in itertools.combinations(range(len(drawn.graph)), number):
            ends = np.unique([drawn.graph.heads[list(edges)], drawn.graph.tails[list(edges)]])
            if connected(drawn.graph, Tree(ends, np.array(edges))):
                best = max(best, worth(drawn, ends, edges))
    return best


def solved(drawn: Drawn) -> Tree:
    return best_tree(drawn.graph, drawn.nodes, drawn.edges, drawn.cost)


@given(drawn_graphs())
def test_tree_is_a_connected_subgraph(drawn: Drawn) -> None:
    tree = solved(drawn)
    assert tree.nodes.tolist() == sorted(set(tree.nodes.tolist()))
    assert tree.edges.tolist() == sorted(set(tree.edges.tolist()))
    assert set(tree.nodes.tolist()) <= set(range(len(drawn.graph.nodes)))
    assert set(tree.edges.tolist()) <= set(range(len(drawn.graph)))
    assert connected(drawn.graph, tree)
    if drawn.nodes.any() or drawn.edges.any():
        assert len(tree.nodes)


@pytest.mark.slow
@given(drawn_graphs())
def test_edge_costs_plus_missed_prizes_are_at_most_twice_the_optimum(drawn: Drawn) -> None:
    tree = solved(drawn)
    # An edge that pays for itself is a prize to be missed; a free way leads over it.
    total = drawn.nodes.sum() + np.maximum(drawn.edges - drawn.cost, 0).sum()
    assert total - worth(drawn, tree.nodes, tree.edges) <= 2 * (total - best_worth(drawn)) + 1e-9


def test_only_the_nodes_closest_to_the_question_get_prizes() -> None:
    assert node_prizes(np.array([0.1, 0.9, -0.5, 0.9, 0.3]), 3).tolist() == [0, 3, 0, 2, 1]
    assert node_prizes(np.array([-0.2, -0.1]), 3).tolist() == [1, 2]
    assert node_prizes(np.array([0.5]), 0).tolist() == [0]
    assert node_prizes(np.array([]), 3).tolist() == []


def test_edges_with_equal_similarity_share_a_prize_that_decreases_with_rank() -> None:
    # Ranks by hand: .9 twice → 3/2 = 1.5; .5 once → min(2, 1.485) = 1.485; .1 thrice → min(1/3, …).
    result = edge_prizes(np.array([0.5, 0.9, 0.1, 0.9, 0.1, 0.1, -0.3]), 3)
    assert result == pytest.approx([1.485, 1.5, 1 / 3, 1.5, 1 / 3, 1 / 3, 0])
    # Fewer values than prizes: the best of two gets 2.
    assert edge_prizes(np.array([0.2, 0.4]), 5) == pytest.approx([1, 2])
    assert edge_prizes(np.array([0.2, 0.4]), 0).tolist() == [0, 0]


@given(st.lists(st.sampled_from([-0.5, 0.0, 0.1, 0.2, 0.7]), min_size=1, max_size=30), st.integers(1, 6))
def test_more_similar_edges_get_larger_prizes_and_one_exceeds_its_cost(cosines: list[float], number: int) -> None:
    prizes = edge_prizes(np.array(cosines), number)
    for item, other in itertools.combinations(range(len(cosines)), 2):
        if cosines[item] == cosines[other]:
            assert prizes[item] == prizes[other]
        elif prizes[item] or prizes[other]:
            assert (cosines[item] > cosines[other]) == (prizes[item] > prizes[other])
    assert prizes.max() > edge_cost(prizes, 0.5)
    assert edge_cost(prizes, 0.5) <= 0.5


def test_parallel_edges_and_loops_are_chosen_only_if_their_prize_exceeds_the_cost() -> None:
    graph = graph_of([(0, 1), (0, 1), (1, 1), (1, 1), (1, 0)], 2)
    tree = best_tree(graph, np.array([3.0, 0.0]), np.array([2.0, 0.1, 1.0, 0.2, 1.5]), 0.5)
    assert tree.edges.tolist() == [0, 2, 4]
    assert tree.nodes.tolist() == [0, 1]


def test_tree_reaches_a_prize_only_if_the_path_costs_less() -> None:
    graph = graph_of([(0, 1), (1, 2), (2, 3), (3, 4)], 5)
    prizes = np.array([3.0, 0, 0, 0, 1.0])
    assert best_tree(graph, prizes, np.zeros(4), 0.2).edges.tolist() == [0, 1, 2, 3]
    assert best_tree(graph, prizes, np.zeros(4), 0.5).edges.tolist() == []
    assert best_tree(graph, prizes, np.zeros(4), 0.5).nodes.tolist() == [0]


def test_entities_are_numbered_in_order_of_first_mention() -> None:
    corpus = TripleCorpus.of_triples(FAMILY)
    names = Names(corpus.triples)
    graph = names.graph(np.array([5, 4, 0]))
    assert names.nodes.take(graph.nodes).to_pylist() == ["ada", "gus", "dan", "eyot", "bo"]
    assert (graph.heads.tolist(), graph.tails.tolist()) == ([0, 2, 0], [1, 3, 4])
    assert names.relations.take(graph.relations).to_pylist() == [FAMILY[row][1] for row in (5, 4, 0)]
    empty = names.graph(np.array([], np.int64))
    assert (len(empty), len(empty.nodes)) == (0, 0)


def index_of(triples: list[Triple], folder: Path | None = None, **options: Any) -> GRetrieverIndex:
    corpus, encoder = TripleCorpus.of_triples(triples), Letters()
    config = GRetrieverConfig.model_validate({"model": "minilm", **options})
    return GRetrieverIndex(config, encoder, corpus, EncodedNames.of(corpus, encoder, folder))  # type: ignore[arg-type]


def test_triples_keep_the_graph_order_and_notes_count_them() -> None:
    index = index_of(FAMILY)
    for order in (FAMILY, FAMILY[::-1]):
        (ranking,) = index.retrieve([Query("q", "parents of ada", candidates=ids(order))], 100)
        positions = [ids(order).index(identifier) for identifier in ranking.ids]
        assert positions == sorted(positions)
        assert {triple_id(FAMILY[0]), triple_id(FAMILY[5])} <= set(ranking.ids)
        assert ranking.notes[NOTE]["triples"] == len(ranking.ids)
        assert ranking.notes[NOTE]["of"] == [6, 8]
        assert list(ranking.scores) == sorted(ranking.scores, reverse=True)


def test_cosine_order_puts_triples_of_the_closest_relations_first() -> None:
    query = Query("q", "people person parents", candidates=ids(FAMILY[::-1]))
    in_order, by_cosine = (index_of(FAMILY, order=order).retrieve([query], 100)[0] for order in ("graph", "cosine"))
    assert set(in_order.ids) == set(by_cosine.ids)
    assert by_cosine.ids[:2] == ids([FAMILY[5], FAMILY[0]])
    (cut,) = index_of(FAMILY, order="cosine").retrieve([query], 2)
    assert (cut.ids, cut.notes) == (by_cosine.ids[:2], by_cosine.notes)


def test_query_without_candidates_uses_the_whole_corpus_as_graph() -> None:
    index = index_of(FAMILY)
    everywhere, named = index.retrieve([Query("q", "Bo", candidates=None), Query("q", "Bo", candidates=ids(FAMILY))], 9)
    assert everywhere == named
    assert everywhere.ids


def test_graphs_and_corpora_without_triples_give_empty_rankings() -> None:
    assert index_of(FAMILY).retrieve([Query("q", "Bo", candidates=())], 5)[0].ids == ()
    assert index_of([]).retrieve([Query("q", "Bo")], 5)[0].ids == ()
    assert index_of(FAMILY).retrieve([], 5) == []


@pytest.mark.parametrize(
    "triples", [[("m.01", "r", "m.01")], [("a", "r", "b"), ("b", "r", "a")], [("", "", "")], [("a", "r", "b"), ("c", "r", "d")]]
)
def test_self_loops_inverses_unnamed_entities_and_disconnected_graphs_are_ranked(triples: list[Triple]) -> None:
    for options in ({}, {"nodes": 0}, {"edges": 0}, {"nodes": 0, "edges": 0}):
        (ranking,) = index_of(triples, **options).retrieve([Query("q", "a r b", candidates=ids(triples))], 5)
        assert set(ranking.ids) <= set(ids(triples))


def test_index_on_disk_ranks_like_one_in_memory_and_is_not_rebuilt(tmp_path: Path) -> None:
    queries = [Query("q", text, candidates=ids(FAMILY)) for text in ("Ada's parents", "where was Bo born")]
    in_memory = index_of(FAMILY).retrieve(queries, 10)
    assert index_of(FAMILY, tmp_path / "index").retrieve(queries, 10) == in_memory

    class UsageCost(Letters):
        def passages(self, texts: Any) -> np.ndarray:
            raise AssertionError("encoded a second time")

        queries = Letters.passages

    corpus, encoder = TripleCorpus.of_triples(FAMILY), UsageCost()
    names = EncodedNames.of(corpus, encoder, tmp_path / "index")  # type: ignore[arg-type]
    again = GRetrieverIndex(GRetrieverConfig(model="minilm"), encoder, corpus, names)  # type: ignore[arg-type]
    assert again.retrieve(queries, 10) == in_memory


def test_corpus_of_passages_is_refused() -> None:
    retriever = Component.of("g_retriever", {"preset": "minilm"}).build(Services(device="cpu"))
    with raises("triples-over-passages"):
        retriever.index(Corpus.of([Passage(passage_id("", "x"), "", "x")]))


def test_reader_gets_all_triples_by_default() -> None:
    assert Component.of("g_retriever", {}).entry.reads_all
    assert GRetriever.reads_all
    assert Component.of("g_retriever", {}).config.model == "distilbert-base-uncased"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "path", "largest"),
    [("webqsp:test", "webqsp/rog_style_webqsp.jsonl", 15), ("cwq:test", "cwq/rog_style_cwq_full_subgraph_4.jsonl", 1200)],
)
def test_real_graphs_are_reduced_to_a_small_connected_subgraph(
    dataset: str, path: str, largest: int, data_folder: Path, tmp_path: Path
) -> None:
    benchmark = load(dataset, {"path": str(data_folder / path)})
    questions = [question for question in benchmark.questions if len(question.candidates or ()) <= largest]
    graphs = [benchmark.extra["graphs"][question.id] for question in questions]
    corpus = TripleCorpus.of_triples(triple for graph in graphs for triple in graph)
    retriever = Component.of("g_retriever", {"preset": "minilm"}).build(Services(device="cpu", artifacts=tmp_path))
    index = retriever.index(corpus, tmp_path / "index")
    queries = [question.query() for question in questions]
    assert queries
    for graph, ranking in zip(graphs, index.retrieve(queries, len(corpus)), strict=True):
        chosen = [triple for triple in graph if triple_id(triple) in set(ranking.ids)]
        assert ids(chosen) == ranking.ids
        whole = Names(TripleCorpus.of_triples(chosen).triples).graph(np.arange(len(chosen)))
        assert connected(whole, Tree(np.arange(len(whole.nodes)), np.arange(len(whole))))
    assert any(ranking.ids for ranking in index.retrieve(queries, 5))
