import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import graphs as graph_writer
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.graphs import ROW, Graphs, GraphWriter, TripleCorpus, TripleIds, shortest_paths, triple_passage, united
from benchmarks.schema import Passage, Question, triple_id
from tests.support.errors import raises
from tests.support.paths import hops, paths

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TRIPLES = st.tuples(NAMES, st.sampled_from(["r.s", "r.t", ""]), NAMES)
GRAPHS = st.lists(st.lists(TRIPLES, max_size=12, unique=True), max_size=6)

FAMILY = [("Ada", "person.child", "Byron"), ("Ada", "person.place", "Zoll"), ("Byron", "person.place", "Zoll")]


def written(folder, graphs):
    folder.mkdir(exist_ok=True)
    with GraphWriter(folder) as writer:
        for graph in graphs:
            writer.add(graph)
    corpus = TripleCorpus.mapped(folder)
    return Graphs.open(folder, corpus.triples, [str(number) for number in range(len(graphs))]), corpus


@pytest.fixture
def family(tmp_path):
    return written(tmp_path / "family", [FAMILY, [], FAMILY[1:]])


@pytest.mark.slow
@given(graphs=GRAPHS, chunk=st.sampled_from([1, 3, 1 << 20]))
def test_graphs_round_trip_in_order_and_each_triple_is_stored_once(tmp_path_factory, graphs, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_writer, "CHUNK", chunk)
        patch.setattr(graph_writer, "BATCH", 2)
        opened, corpus = written(tmp_path_factory.mktemp("graphs"), graphs)
    assert [list(graph) for graph in opened.values()] == graphs
    assert [tuple(graph.ids) for graph in opened.values()] == [tuple(map(triple_id, graph)) for graph in graphs]
    distinct = {triple for graph in graphs for triple in graph}
    assert len(corpus) == len(distinct)
    assert set(corpus.triples) == distinct
    assert list(corpus) == [triple_passage(triple) for triple in corpus.triples]
    for row, triple in enumerate(corpus.triples):
        assert corpus.row(triple_id(triple)) == row


def test_candidate_view_equals_the_tuple_of_its_ids(family):
    graphs, corpus = family
    ids = tuple(map(triple_id, FAMILY))
    view = graphs["0"].ids
    assert view == ids
    assert ids == view
    assert view != ids[:2]
    assert hash(view) == hash(ids)
    assert (view[0], view[-1], view[1:], len(view)) == (ids[0], ids[-1], ids[1:], 3)
    assert ids[1] in view
    assert "t0" not in view
    assert graphs["1"].ids == ()
    with pytest.raises(IndexError):
        view[3]
    assert corpus.get(view) == [triple_passage(triple) for triple in FAMILY]
    assert fingerprint(list(view)) == fingerprint(list(ids))


def test_pickled_question_holds_only_its_own_candidates(family):
    graphs, _ = family
    question = Question("q", "Who?", ("Byron",), candidates=graphs["0"].ids)
    sent = pickle.loads(pickle.dumps(question))
    assert sent == question
    assert type(sent.candidates) is tuple
    assert pickle.loads(pickle.dumps(graphs["0"])) == tuple(FAMILY)


def test_candidate_rows_are_equal_for_a_view_and_a_list_of_ids(family):
    graphs, corpus = family
    view = graphs["2"].ids
    assert corpus.rows_of(view) is view.rows
    assert corpus.rows_of(list(view)).tolist() == view.rows.tolist()
    assert corpus.triples.take(view.rows) == FAMILY[1:]
    with pytest.raises(KeyError):
        corpus.rows_of(["t0000000000000000"])


def test_view_of_another_corpus_is_looked_up_by_id(family, tmp_path):
    graphs, _ = family
    _, other = written(tmp_path / "other", [[("x", "r", "y")], FAMILY])
    rows = other.rows_of(graphs["0"].ids)
    assert other.triples.take(rows) == FAMILY


def test_triple_corpus_equals_the_corpus_of_its_passages(family):
    _, corpus = family
    plain = Corpus.of(triple_passage(triple) for triple in corpus.triples)
    assert list(corpus) == list(plain)
    assert corpus.fingerprint == plain.fingerprint
    assert corpus.triples[1:] == list(corpus.triples)[1:]


def test_split_without_triples_has_an_empty_corpus(tmp_path):
    graphs, corpus = written(tmp_path / "empty", [[], []])
    assert [len(graph) for graph in graphs.values()] == [0, 0]
    assert (len(corpus), list(corpus), list(corpus.triples)) == (0, [], [])
    assert "t0000000000000000" not in corpus


def test_names_that_look_alike_stay_distinct(tmp_path):
    graph = [("a", "b", "c d"), ("a", "b c", "d"), ("a b", "c", "d"), ("é", "r", "e\u0301"), ("\u2028", "r", "\0")]
    graphs, corpus = written(tmp_path / "alike", [graph])
    assert list(graphs["0"]) == graph
    assert len({passage.id for passage in corpus}) == len(graph)


def test_graph_writer_that_fails_leaves_no_complete_file(tmp_path):
    with pytest.raises(ValueError, match="argument 2"), GraphWriter(tmp_path) as writer:
        writer.add([FAMILY[0], ("no", "triple")])
    assert list(tmp_path.iterdir()) == []


def test_more_names_than_64_bits_can_number_are_refused():
    packing = graph_writer._Packing(1 << 25, 1 << 11)
    numbers = np.array([[(1 << 25) - 1, (1 << 11) - 1, 7], [0, 0, 0]], dtype="<i4")
    table = np.empty(2, ROW)
    packing.unpack(packing.pack(numbers), table)
    assert [tuple(row)[:3] for row in table.tolist()] == [tuple(row) for row in numbers.tolist()]
    with raises("graphs-too-large"):
        graph_writer._Packing(1 << 28, 1 << 12)


def test_graphs_of_several_splits_are_merged_as_mappings(family, tmp_path):
    graphs, _ = family
    more, _ = written(tmp_path / "more", [[("x", "r", "y")]])
    both = {**{f"a{key}": graph for key, graph in graphs.items()}, **more}
    assert list(both["a0"]) == FAMILY
    assert list(both["0"]) == [("x", "r", "y")]
    assert isinstance(replace(Question("q", "?", ()), candidates=both["0"].ids).query().candidates, TripleIds)


def test_triples_in_memory_and_on_disk_give_the_same_corpus(family):
    _, corpus = family
    held = TripleCorpus.of_triples([*corpus.triples, *FAMILY])
    assert list(held) == list(corpus)
    assert list(held.triples) == list(corpus.triples)
    assert held.fingerprint == corpus.fingerprint
    assert held.rows_of(list(corpus.ids)).tolist() == [0, 1, 2]
    assert len(TripleCorpus.of_triples([])) == 0


@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_union_of_two_triple_corpora_is_a_triple_corpus(family, tmp_path, kept, monkeypatch):
    graphs, corpus = family
    _, more = written(tmp_path / "more", [[("x", "r", "y"), FAMILY[0]]])
    if kept == "memory":
        corpus, more = (TripleCorpus.of_triples(part.triples) for part in (corpus, more))
    union = united([corpus, more])
    assert isinstance(union, TripleCorpus)
    assert set(union.triples) == {*FAMILY, ("x", "r", "y")}
    assert list(union) == [triple_passage(triple) for triple in union.triples]
    assert union.triples.take(union.rows_of(graphs["0"].ids)) == FAMILY
    if kept == "disk":
        monkeypatch.setattr(graph_writer, "GraphWriter", lambda _: pytest.fail("the union was made again"))
        assert united([corpus, more]).fingerprint == union.fingerprint


def test_union_with_text_passages_is_a_plain_corpus(family):
    _, corpus = family
    union = united([corpus, Corpus.of([Passage("p0", "Zoll", "A town.")])])
    assert type(union) is Corpus
    assert (len(union), "p0" in union, triple_id(FAMILY[0]) in union) == (4, True, True)


@given(
    st.lists(st.tuples(st.integers(0, 6).map(str), st.sampled_from("rs"), st.integers(0, 6).map(str)), max_size=16, unique=True),
    st.lists(st.integers(0, 7).map(str), max_size=2, unique=True),
    st.lists(st.integers(0, 7).map(str), max_size=2, unique=True),
)
def test_shortest_paths_equal_networkx(graph, topics, answers):
    question = Question("q", "?", tuple(answers), topic_entities=tuple(topics))
    assert shortest_paths(graph, topics, answers) == (paths(graph, question), hops(graph, question))


def test_saved_triple_corpus_opens_with_its_triples_and_ids(tmp_path):
    corpus = TripleCorpus.of_triples([("Ann", "born in", "Xa"), ("Xa", "lies in", "Ya")])
    corpus.save(tmp_path / "graph")
    opened = TripleCorpus.open(tmp_path / "graph")
    assert list(opened.triples) == list(corpus.triples)
    assert opened.ids == corpus.ids
    assert list(opened.get(corpus.ids)) == list(corpus.get(corpus.ids))
    assert opened.fingerprint == corpus.fingerprint
