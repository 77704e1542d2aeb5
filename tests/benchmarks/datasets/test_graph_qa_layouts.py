"""Layouts shared by WebQSP and CWQ: hub rows, damaged files, the cache, and graph settings."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import settings
from benchmarks.core.errors import UserError
from benchmarks.datasets import graph_qa
from benchmarks.io import records
from benchmarks.registry import load
from benchmarks.schema import triple_id
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository
from tests.support.worlds_native import rog_rows, write_native

GRAPH = [["Ada", "people.person.children", "m.1"], ["m.1", "people.person.place", "Zoll"], ["Ada", "people.person.place", "Zoll"]]


def row(identifier="q1", **changes):
    return {
        "id": identifier,
        "question": "Where was Ada born?",
        "answer": ["Zoll"],
        "q_entity": ["Ada"],
        "a_entity": ["Zoll"],
        "graph": GRAPH,
        "choices": [],
    } | changes


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


@pytest.fixture
def loaded(tmp_path):
    def load_rows(*rows, reference="webqsp:test", text=None, name="rows.jsonl", **options):
        path = tmp_path / name
        content = "".join(json.dumps(item) + "\n" for item in rows) if text is None else text
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load(reference, {"path": str(path), **options})

    return load_rows


def test_row_becomes_a_question_with_its_graph_as_candidates(loaded):
    benchmark = loaded(row())
    (question,) = benchmark.questions
    ids = tuple(triple_id(tuple(triple)) for triple in GRAPH)
    assert (question.id, question.text, question.answers) == ("q1", "Where was Ada born?", ("Zoll",))
    assert question.answer_set
    assert question.topic_entities == ("Ada",)
    assert set(question.candidates) == set(ids)
    assert sorted(map(list, benchmark.extra["graphs"]["q1"])) == sorted(GRAPH)
    assert {passage.id for passage in benchmark.corpus} == set(ids)
    assert benchmark.corpus.get(ids[:1])[0].text == "Ada people.person.children m.1"
    assert benchmark.extra["layout"] == "rog"
    assert benchmark.extra["counts"] == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"graph": json.dumps(GRAPH)},
        {"graph": [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in GRAPH]},
        {"q_entity": "Ada"},
        {"q_entity": "['Ada']", "a_entity": "Zoll"},
    ],
)
def test_rows_that_other_programs_wrote_have_the_same_graph_and_gold(changes, loaded):
    (question,), (same,) = loaded(row()).questions, loaded(row(**changes)).questions
    assert (same.answers, same.topic_entities, same.candidates) == (question.answers, question.topic_entities, question.candidates)
    assert same.evidence == question.evidence


def test_numbers_in_rows_are_names_and_joined_answers_are_several(loaded):
    """G-Retriever's files join the answers of a question with bars."""
    years = [["Ada", "people.person.born", 1990], ["Ada", "people.person.died", 2001]]
    (question,) = loaded(row(7, answer="1990|2001", graph=years)).questions
    assert (question.id, question.answers) == ("7", ("1990", "2001"))
    assert triple_id(("Ada", "people.person.born", "1990")) in question.candidates
    assert loaded(row(answer=[1990], graph=years)).questions[0].answers == ("1990",)


def test_query_contains_no_gold_of_its_row(loaded):
    (question,) = loaded(row(a_entity=["Secret"], answer=["Secret"])).questions
    assert question.metadata == {"a_entity": ["Secret"]}
    query = question.query()
    assert "Secret" not in repr((query, tuple(query.candidates)))


def test_irregular_graphs_are_kept_and_counted(loaded):
    benchmark = loaded(
        row("empty", graph=[]),
        row("twice", graph=[*GRAPH, GRAPH[0], GRAPH[0]]),
        row("inverse", graph=[["Ada", "r", "Zoll"], ["Zoll", "r", "Ada"], ["Ada", "r", "Ada"]]),
        row("elsewhere", q_entity=["Bea"], answer=["Nowhere", "Zoll"]),
        row("lost", answer=["Nowhere", "Nothing"]),
        row("not_called", q_entity=[]),
    )
    assert [len(graph) for graph in benchmark.extra["graphs"].values()] == [0, 3, 3, 3, 3, 3]
    assert benchmark.questions[0].candidates == ()
    assert benchmark.extra["counts"] == {
        "questions_without_topic": 1,
        "empty_graphs": 1,
        "duplicate_triples": 2,
        "questions_with_topics_outside": 2,
        "answers_outside": 4,
        "questions_with_answers_outside": 3,
        "questions_with_no_answer_inside": 2,
        "questions_without_path": 4,
    }
    assert "2 triples occur twice in one graph; each counts once" in benchmark.extra["notes"]


@pytest.mark.parametrize(
    ("answer", "answers"),
    [
        ("Zoll", ("Zoll",)),
        (["Zoll", "Ada", "Zoll"], ("Zoll", "Ada", "Zoll")),
        ('["Zoll", "Ada"]', ("Zoll", "Ada")),
        ("[sic] Zoll", ("[sic] Zoll",)),
        ([None, "Zoll"], ("Zoll",)),
        ([], ()),
        ("", ()),
        (None, ()),
    ],
)
def test_answers_may_be_a_string_a_list_or_a_list_in_a_string(loaded, answer, answers):
    benchmark = loaded(row(answer=answer), row("other"))
    assert benchmark.questions[0].answers == answers
    assert benchmark.extra["counts"].get("questions_without_gold", 0) == (not answers)
    assert benchmark.extra["counts"].get("null_answers", 0) == (answer == [None, "Zoll"])


def test_question_without_an_answer_field_is_kept_and_counted_as_unscorable(loaded):
    benchmark = loaded(without(row(), "answer", "a_entity"), row("other"))
    assert [len(question.answers) for question in benchmark.questions] == [0, 1]
    assert benchmark.extra["counts"]["questions_without_gold"] == 1


def test_unicode_line_separators_stay_in_entity_names(loaded):
    graph = [["A\u2028b", "r", "\x00"], ["\u2029", "r\r", "é"]]
    benchmark = loaded(row(graph=graph, question="Who\u2028?"))
    assert [list(triple) for triple in benchmark.extra["graphs"]["q1"]] == graph
    assert benchmark.questions[0].text == "Who\u2028?"


@pytest.mark.parametrize("wrap", ["bom", "crlf", "gzip", "array", "bare control characters"])
def test_every_file_format_gives_the_same_questions(loaded, wrap):
    rows = [row(), row("q2", answer=["a\x00b"])]
    lines = [json.dumps(item) for item in rows]
    content = {
        "bom": b"\xef\xbb\xbf" + "\n".join(lines).encode(),
        "crlf": "\r\n".join([*lines, ""]).encode(),
        "gzip": gzip.compress("\n".join(lines).encode()),
        "array": json.dumps(rows).encode(),
        "bare control characters": "\n".join(lines).replace("\\u0000", "\x00").encode(),
    }[wrap]
    assert loaded(text=content).fingerprint == loaded(*rows).fingerprint


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (b"\n", "the line is empty"),
        (json.dumps(row("cut")).encode()[:-40], "cut off"),
        (json.dumps(row("caf")).encode().replace(b"Ada", b"caf\xe9", 1), "byte 0xe9 is not UTF-8"),
        (json.dumps(row("x", graph=[["a", "b"]])).encode(), "'graph[0]' is not a triple"),
        (json.dumps(row("x", graph=[["a", "b", "c"], ["a", 7.5, "c"]])).encode(), "'graph[1]' is not a triple"),
        (json.dumps(row("x", graph="a b c")).encode(), "'graph' is a string"),
        (json.dumps(row("x", answer=[1.5])).encode(), "'answer[0]' is a number"),
        (json.dumps(without(row("x"), "graph")).encode(), "'graph' is missing"),
        (json.dumps(without(row("x"), "question")).encode(), "'question' is missing"),
        (b"[1, 2]", "a record must be an object"),
    ],
)
def test_bad_line_is_refused_or_skipped_and_counted(loaded, last, reason):
    text = json.dumps(row()).encode() + b"\n" + last
    with raises("bad-record") as caught:
        loaded(text=text)
    assert reason in str(caught.value)
    benchmark = loaded(text=text, skip_bad=True)
    assert [question.id for question in benchmark.questions] == ["q1"]
    assert [reason in skip.reason for skip in benchmark.skipped] == [True]
    again = loaded(text=text, skip_bad=True)
    assert again.skipped == benchmark.skipped


def test_a_bad_first_line_does_not_hide_the_layout(loaded):
    benchmark = loaded(text="{broken\n" + json.dumps(row()), skip_bad=True)
    assert (len(benchmark.questions), len(benchmark.skipped)) == (1, 1)
    with raises("bad-record"):
        loaded(text="{broken\n", skip_bad=True)


def test_duplicate_id_error_names_both_positions(loaded):
    with raises("duplicate-question") as caught:
        loaded(row(), row("q2"), row())
    assert "line 1" in caught.value.where
    assert "line 3" in caught.value.where


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize(
    ("reference", "foreign", "message"),
    [
        ("webqsp:test", row("WebQTrn-7"), "id-of-other-split"),
        ("webqsp:train", row("WebQTest-7"), "id-of-other-split"),
        ("webqsp:test", row("WebQTest-7_" + "0a" * 16), "id-of-cwq"),
        ("cwq:test", row("WebQTest-7"), "id-of-webqsp"),
        ("webqsp:test", {"_id": "h", "question": "?", "context": [], "supporting_facts": []}, "record-of-other-dataset"),
        ("webqsp:test", {"ID": "c", "question": "?", "compositionality_type": "conjunction"}, "record-of-other-dataset"),
    ],
)
def test_record_of_another_split_or_dataset_stops_the_load_even_with_skip_bad(loaded, reference, foreign, message, skip_bad):
    with raises(message):
        loaded(row("good"), foreign, reference=reference, skip_bad=skip_bad)


def test_file_in_an_unknown_layout_is_refused_with_its_fields(loaded):
    with raises("unknown-record-layout"):
        loaded({"prompt": "?", "reply": "!"})
    with raises("record-of-other-dataset"):
        loaded({"_id": "h", "question": "?", "context": [], "supporting_facts": []})


def test_layout_can_be_forced_and_missing_fields_are_then_reported(loaded):
    assert loaded(row(), layout="rog").fingerprint == loaded(row()).fingerprint
    with raises("bad-record"):
        loaded({"QuestionId": "t", "RawQuestion": "?", "topic_entity": {}, "id": "t", "question": "?"}, layout="rog")
    with raises("unknown-layout"):
        loaded(row(), layout="nsn")


def parquet(rows, path, group=2):
    texts = pa.list_(pa.string())
    fields = {
        "id": pa.string(),
        "question": pa.string(),
        "answer": texts,
        "q_entity": texts,
        "a_entity": texts,
        "graph": pa.list_(texts),
        "choices": pa.list_(pa.null()),
    }
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), path, row_group_size=group)


def test_hub_parquet_shards_are_read_in_order_from_any_folder(tmp_path, loaded):
    rows = [row(f"q{i}", graph=[*GRAPH, ["Ada", "r", f"{i}"]]) for i in range(7)]
    folder = tmp_path / "webqsp" / "data"
    folder.mkdir(parents=True)
    parquet(rows[:4], folder / "test-00000-of-00002-9ee8d68f7d951e1f.parquet")
    parquet(rows[4:], folder / "test-00001-of-00002-773a7b8213e159f5.parquet")
    benchmark = load("webqsp:test", {"path": str(tmp_path / "webqsp")})
    flat = load("webqsp:test", {"path": str(folder)})
    assert [question.id for question in benchmark.questions] == [f"q{i}" for i in range(7)]
    assert benchmark.fingerprint == flat.fingerprint == loaded(*rows).fingerprint
    (folder / "test-00001-of-00002-773a7b8213e159f5.parquet").unlink()
    with raises("missing-shards"):
        load("webqsp:test", {"path": str(folder)})


def test_large_rows_are_converted_in_small_batches(tmp_path, loaded, monkeypatch):
    rows = [row(f"q{i}") for i in range(9)]
    parquet(rows, tmp_path / "test-00000-of-00001.parquet", group=5)
    metadata = pq.read_metadata(tmp_path / "test-00000-of-00001.parquet")
    assert records._batch_rows(metadata) == records.BATCH_ROWS
    monkeypatch.setattr(records, "BATCH_BYTES", 1)
    assert records._batch_rows(metadata) == 1
    benchmark = load("webqsp:test", {"path": str(tmp_path / "test-00000-of-00001.parquet")})
    assert benchmark.fingerprint == loaded(*rows).fingerprint


def test_split_from_the_hub_has_its_provenance(tmp_path, loaded, monkeypatch):
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    rows = [row(f"WebQTrn-{i}", graph=[*GRAPH, ["Ada", "r", f"{i}"]]) for i in range(5)]
    files = {}
    for number, part in enumerate((rows[:3], rows[3:])):
        parquet(part, tmp_path / "part.parquet")
        files[f"data/train-0000{number}-of-00002-{number:016x}.parquet"] = (tmp_path / "part.parquet").read_bytes()
    with HubServer({"rmanluo/RoG-webqsp": Repository(files)}).as_hub(tmp_path / "hub"):
        benchmark = load("webqsp:train", {"revision": "main"})
        assert benchmark.extra["source"]["hub"] == "rmanluo/RoG-webqsp"
        assert set(benchmark.extra["source"]["files"]) == set(files)
        with raises("unknown-repository-file"):
            load("webqsp:test", {"revision": "main"})
        with raises("revision-without-hub"):
            load("webqsp:train", {"revision": "main", "layout": "official"})
    local = loaded(*rows, reference="webqsp:train")
    assert (benchmark.fingerprint, benchmark.extra["layout"]) == (local.fingerprint, "rog")


def test_bad_parquet_row_is_reported_with_its_number(tmp_path):
    path = tmp_path / "test-00000-of-00001.parquet"
    parquet([row("q1"), row("q2"), row("q3", graph=[["a", "b"]])], path)
    with raises("bad-record"):
        load("webqsp:test", {"path": str(path)})
    assert len(load("webqsp:test", {"path": str(path), "skip_bad": True}).questions) == 2


@pytest.fixture(scope="module")
def world():
    return load("worlds/graph:test", {"questions": 40, "triples": 1000, "unanswerable": 0.1})


@pytest.mark.slow
def test_hub_layout_of_a_world_equals_its_rows(world, tmp_path):
    questions = [question for question in world.questions if question.answerable]
    parquet(list(rog_rows(world, questions)), tmp_path / "test-00000-of-00001.parquet", group=7)
    write_native(world, "rog", tmp_path / "rows.jsonl")
    hub, rows = (load("webqsp:test", {"path": str(tmp_path / name)}) for name in ("test-00000-of-00001.parquet", "rows.jsonl"))
    assert hub.fingerprint == rows.fingerprint


def test_graphs_are_built_once_and_then_read_from_the_cache(loaded, monkeypatch):
    first = loaded(row(graph=[["made", "once", "only"]]))
    monkeypatch.setattr(graph_qa, "_fill", lambda *_: pytest.fail("the graphs were made again"))
    again = loaded(row(graph=[["made", "once", "only"]]), name="renamed.jsonl")
    assert again.fingerprint == first.fingerprint
    assert again.extra["counts"] == first.extra["counts"]
    with pytest.raises(pytest.fail.Exception, match="made again"):
        loaded(row(graph=[["made", "once", "more"]]))


def test_interrupted_load_leaves_no_cache_that_looks_complete(loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError):
        loaded(row(), {"id": "q2"})
    assert list((tmp_path / "cache" / "graphs").iterdir()) == []
    loaded(row())
    assert len(list((tmp_path / "cache" / "graphs").iterdir())) == 1


def test_cache_path_that_is_a_file_is_refused_with_the_variable_to_set(loaded, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    with raises("unwritable-graphs") as caught:
        loaded(row())
    assert "RAGMETER_CACHE" in caught.value.try_this


def test_graph_setting_provides_the_question_graph_or_the_whole_split(loaded):
    benchmark = loaded(row("q1"), row("q2", graph=[["x", "r", "y"]]), row("q3", graph=[]))
    own = settings.apply("graph(scope=question)", benchmark, 0).questions
    assert [question.query().candidates for question in own] == [q.candidates for q in benchmark.questions]
    assert [len(question.query().candidates) for question in own] == [3, 1, 0]
    assert {question.topic_entities for question in own} == {("Ada",)}
    split = settings.apply("graph(scope=split)", benchmark, 0)
    assert [question.candidates for question in split.questions] == [None] * 3
    assert len(split.corpus) == 4
    assert [q.topic_entities for q in settings.apply("closed_book", benchmark, 0).questions] == [()] * 3


def test_joined_splits_keep_the_graphs_of_both(tmp_path):
    for split, name in (("train", "WebQTrn-1"), ("validation", "WebQTrn-2")):
        graph = [*GRAPH, ["only", "in", split]]
        (tmp_path / f"RoG-webqsp_{split}.jsonl").write_text(json.dumps(row(name, graph=graph)))
    both = load("webqsp:train+validation", {"path": str(tmp_path)})
    assert set(both.extra["graphs"]) == {"WebQTrn-1", "WebQTrn-2"}
    assert len(both.corpus) == 5
    assert set(both.corpus.triples) == {triple for graph in both.extra["graphs"].values() for triple in graph}
    assert all(key in both.corpus for question in both.questions for key in question.candidates)
