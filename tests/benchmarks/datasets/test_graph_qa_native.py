"""Worlds written in every native format of questions over graphs, and read again with the same truth."""

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from tests.support.errors import raises
from tests.support.worlds_native import COMPOSITIONALITY, write_native

FORMATS = {
    "rog": "webqsp:test",
    "nsm": "cwq:test",
    "webqsp": "webqsp:test",
    "cwq": "cwq:test",
    "tog_webqsp": "webqsp:test",
    "tog_cwq": "cwq_tog:test",
}
LAYOUTS = dict(zip(FORMATS, ("rog", "nsm", "official", "official", "tog", "tog"), strict=True))


@pytest.fixture(scope="module")
def world():
    return load("worlds/graph:test", {"questions": 40, "triples": 1000, "unanswerable": 0.1})


@pytest.mark.parametrize("form", FORMATS)
def test_a_world_loads_through_a_native_format_with_the_same_truth(world, tmp_path, form):
    path = tmp_path / "test_records.json"
    written = write_native(world, form, path)
    benchmark = load(FORMATS[form], {"path": str(path)})
    truth = [question for question in world.questions if question.answerable]
    assert 0 < len(truth) < len(world.questions)
    assert written == tuple(question.id for question in truth)
    assert [(q.id, q.text, q.answers) for q in benchmark.questions] == [(q.id, q.text, q.answers) for q in truth]
    assert benchmark.extra["layout"] == LAYOUTS[form]
    if form == "cwq":
        assert [q.aliases for q in benchmark.questions] == [q.aliases for q in truth]
        assert [q.type for q in benchmark.questions] == [COMPOSITIONALITY[q.type] for q in truth]
        assert any(question.aliases for question in truth)
    else:
        assert [q.topic_entities for q in benchmark.questions] == [q.topic_entities for q in truth]
    if form == "webqsp":
        assert [q.type for q in benchmark.questions] == [f"{q.metadata['hops']}hop" for q in truth]
    if form in ("rog", "nsm"):
        graphs = benchmark.extra["graphs"]
        assert [set(graphs[q.id]) for q in truth] == [set(world.extra["graphs"][q.id]) for q in truth]
        assert [set(q.candidates) for q in benchmark.questions] == [set(q.candidates) for q in truth]
        everything = {triple for q in truth for triple in world.extra["graphs"][q.id]}
        assert set(benchmark.corpus.triples) == everything
        assert benchmark.corpus.get(truth[0].candidates) == world.corpus.get(truth[0].candidates)
    assert not {"repeated_answers", "duplicate_triples", "questions_with_topics_outside"} & set(benchmark.extra["counts"])


def test_only_worlds_with_graphs_are_written_and_no_file_is_overwritten(world, tmp_path):
    with pytest.raises(UserError, match="no questions that rog can express"):
        write_native(load("worlds/multihop:test", {"questions": 4}), "rog", tmp_path / "rows.jsonl")
    with raises("unknown-native-format"):
        write_native(world, "rogg", tmp_path / "rows.jsonl")
    write_native(world, "rog", tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match="in the way"):
        write_native(world, "rog", tmp_path / "rows.jsonl")
