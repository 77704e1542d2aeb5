"""Worlds written in every native graph QA format and loaded again with the same gold."""

import json

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from tests.support.errors import raises
from tests.support.paths import hops
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
def test_world_in_a_native_format_loads_with_the_same_gold(world, tmp_path, form):
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


def ids_in(benchmark):
    return [question.id for question in benchmark.questions]


@pytest.fixture
def rows(world, tmp_path):
    """Return a file in RoG's layout and the ids of its questions."""
    return {"path": str(tmp_path / "rows.jsonl")}, write_native(world, "rog", tmp_path / "rows.jsonl")


def test_question_type_is_the_hop_count_and_option_hops_filters_by_it(rows):
    config, _ = rows
    whole = load("webqsp:test", config)
    graphs = whole.extra["graphs"]
    steps = [hops(graphs[question.id], question) for question in whole.questions]
    assert {1, 2} <= set(steps)
    assert [question.type for question in whole.questions] == [f"{number}hop" if number else "" for number in steps]
    some = load("webqsp:test", {**config, "hops": 2})
    assert ids_in(some) == [question.id for question in whole.questions if question.type == "2hop"]
    assert some.name == "webqsp:test(hops=2)"
    assert some.corpus.fingerprint == whole.corpus.fingerprint
    with raises("no-such-hops", where="hops: 9"):
        load("webqsp:test", {**config, "hops": 9})


def test_option_hops_requires_graphs(world, tmp_path):
    write_native(world, "tog_webqsp", tmp_path / "rows.json")
    with raises("hops-without-graphs", where="hops: 1"):
        load("webqsp:test", {"path": str(tmp_path / "rows.json"), "hops": 1})


@pytest.mark.parametrize(
    ("name", "form"), [("ids.txt", "\n".join), ("ids.json", json.dumps), ("ids.json#a", lambda ids: json.dumps({"a": ids}))]
)
def test_option_ids_selects_questions_with_their_graphs(rows, tmp_path, name, form):
    config, ids = rows
    whole = load("webqsp:test", config)
    (tmp_path / name.partition("#")[0]).write_text(form([ids[3], ids[1]]), "utf-8")
    some = load("webqsp:test", {**config, "ids": str(tmp_path / name)})
    assert ids_in(some) == [ids[1], ids[3]]
    assert some.name == f"webqsp:test(ids={'a' if '#' in name else 'ids'})"
    assert set(some.corpus.triples) == {triple for item in (ids[1], ids[3]) for triple in whole.extra["graphs"][item]}


@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        (None, "ids.txt", "unreadable-ids"),
        ("{", "ids.json", "unreadable-ids"),
        ('{"a": ["x"]}', "ids.json#b", "unknown-ids-key"),
        ('["x"]', "ids.json#b", "unknown-ids-key"),
        ('{"a": ["x"]}', "ids.json", "no-ids"),
        ("[1]", "ids.json", "no-ids"),
        ("", "ids.txt", "no-ids"),
        ("x", "ids.txt", "ids-not-in-data"),
    ],
)
def test_invalid_ids_are_refused(rows, tmp_path, text, name, code):
    config, _ = rows
    if text is not None:
        (tmp_path / name.partition("#")[0]).write_text(text, "utf-8")
    named = str(tmp_path / name)
    with raises(code, where=f"ids: {named}"):
        load("webqsp:test", {**config, "ids": named})


def test_relative_path_is_resolved_in_the_data_folder(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    assert ids_in(load("webqsp:test", {"path": "rows.jsonl"})) == list(rows[1])


def test_only_worlds_with_graphs_are_written_and_no_file_is_overwritten(world, tmp_path):
    with pytest.raises(UserError, match="no questions that rog can express"):
        write_native(load("worlds/multihop:test", {"questions": 4}), "rog", tmp_path / "rows.jsonl")
    with raises("unknown-native-format"):
        write_native(world, "rogg", tmp_path / "rows.jsonl")
    write_native(world, "rog", tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match="in the way"):
        write_native(world, "rog", tmp_path / "rows.jsonl")
