import json
from collections import Counter

import pytest

from benchmarks import settings
from benchmarks.registry import load, resolve
from benchmarks.schema import triple_id
from judges.metric import parse as parse_metric
from judges.score import score
from ragmeter.conformance import check_dataset, gold_prediction
from tests.support.errors import raises
from tests.support.paths import paths

SAMPLES = {
    "rog_style_cwq.jsonl": "rog",
    "rog_style_cwq_full_subgraph_4.jsonl": "rog",
    "nsm/train_simple.json": "nsm",
    "tog_cwq.json": "tog",
}


def native(identifier="WebQTest-1_" + "0a" * 16, **changes):
    return {
        "ID": identifier,
        "answers": [{"answer_id": "m.1", "answer": "Zoll", "aliases": ["City of Zoll"]}],
        "compositionality_type": "conjunction",
        "created": "2018-02-13T02:46:21",
        "machine_question": "what place is ada of",
        "question": "Where was Ada born?",
        "sparql": "SELECT ?x",
        "webqsp_ID": "WebQTest-1",
        "webqsp_question": "where was ada born",
    } | changes


@pytest.fixture
def loaded(tmp_path):
    def load_records(*records, text=None, **options):
        path = tmp_path / "records.json"
        path.write_text(json.dumps(records) if text is None else text)
        return load("cwq:test", {"path": str(path), **options})

    return load_records


def sample(data_folder, name):
    return load(reference(name), {"path": str(data_folder / "cwq" / name)})


def reference(name):
    return {"nsm": "cwq:train", "tog": "cwq_tog:test"}.get(SAMPLES[name], "cwq:test")


def rows(data_folder, name):
    text = (data_folder / "cwq" / name).read_text("utf-8")
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.split("\n") if line]


@pytest.mark.parametrize("name", [name for name, layout in SAMPLES.items() if layout == "rog"])
def test_real_rog_rows_have_the_counts_and_graphs_of_the_file(data_folder, name):
    benchmark, native_rows = sample(data_folder, name), rows(data_folder, name)
    assert len(benchmark.questions) == len(native_rows) == (4 if "full" in name else 150)
    counts = Counter()
    for question, row in zip(benchmark.questions, native_rows, strict=True):
        triples = [tuple(triple) for triple in row["graph"]]
        once = list(dict.fromkeys(triples))
        nodes = {name for head, _, tail in triples for name in (head, tail)}
        outside = len(set(row["answer"]) - nodes)
        assert (question.id, question.text) == (row["id"], row["question"])
        assert question.answers == tuple(row["answer"])
        assert set(question.evidence) == set(map(triple_id, paths(once, question)))
        assert question.topic_entities == tuple(row["q_entity"])
        assert sorted(benchmark.extra["graphs"][question.id]) == sorted(once)
        assert question.candidates == tuple(map(triple_id, benchmark.extra["graphs"][question.id]))
        counts += Counter(
            repeated_answers=len(row["answer"]) - len(set(row["answer"])),
            empty_graphs=not triples,
            duplicate_triples=len(triples) - len(once),
            questions_with_topics_outside=any(topic not in nodes for topic in row["q_entity"]),
            answers_outside=outside,
            questions_with_answers_outside=outside > 0,
            questions_with_no_answer_inside=0 < outside == len(set(row["answer"])),
            questions_without_path=not question.evidence,
        )
    assert benchmark.extra["counts"] == dict(counts)
    assert len(benchmark.corpus) == len({tuple(triple) for row in native_rows for triple in row["graph"]})
    if "full" in name:
        assert [len(graph) for graph in benchmark.extra["graphs"].values()] == [
            len({tuple(triple) for triple in row["graph"]}) for row in native_rows
        ]
        assert max(map(len, benchmark.extra["graphs"].values())) > 9000


def test_real_nsm_files_give_the_same_graphs_as_rog_rows(data_folder):
    nsm, rog = sample(data_folder, "nsm/train_simple.json"), sample(data_folder, "rog_style_cwq_full_subgraph_4.jsonl")
    assert nsm.extra["layout"] == "nsm"
    for item, other in zip(nsm.questions, rog.questions, strict=True):
        assert (item.id, item.text, item.answers, item.topic_entities) == (other.id, other.text, other.answers, other.topic_entities)
        assert item.candidates == other.candidates
        assert list(nsm.extra["graphs"][item.id]) == list(rog.extra["graphs"][item.id])
    assert set(nsm.corpus.ids) == set(rog.corpus.ids)


def test_real_tog_file_has_single_answers_types_and_topics(data_folder):
    benchmark, records = sample(data_folder, "tog_cwq.json"), rows(data_folder, "tog_cwq.json")
    assert len(benchmark.questions) == len(records) == 150
    for question, record in zip(benchmark.questions, records, strict=True):
        assert (question.id, question.text, question.answers) == (record["ID"], record["question"], (record["answer"],))
        assert question.topic_entities == tuple(dict.fromkeys(record["topic_entity"].values()))
        assert question.metadata["sparql"] == record["sparql"]
    assert Counter(q.type for q in benchmark.questions) == Counter(r["compositionality_type"] for r in records)
    assert benchmark.extra["layout"] == "tog"
    assert settings.possible_settings(benchmark) == ("closed_book",)
    # Its scores use other gold answers, so it must not be confused with the complete dataset.
    with raises("file-keeps-one-answer") as caught:
        load("cwq:test", {"path": str(data_folder / "cwq" / "tog_cwq.json")})
    assert "cwq_tog" in caught.value.try_this


@pytest.mark.parametrize("name", SAMPLES)
def test_gold_predictions_reach_the_official_maximum_on_real_samples(data_folder, name):
    benchmark = sample(data_folder, name)
    metrics = [parse_metric(metric) for metric in benchmark.card.metrics]
    values = score(benchmark.questions, [gold_prediction(q) for q in benchmark.questions], metrics)
    for metric, column in values.items():
        scored = [value for value in column if value == value]
        assert len(scored) == len(benchmark.questions), metric
        assert min(scored) >= 1, metric


@pytest.mark.parametrize("name", SAMPLES)
def test_real_samples_pass_the_dataset_checks(data_folder, name):
    checks = check_dataset(reference(name), {"path": str(data_folder / "cwq" / name)})
    assert [check for check in checks if not check.passed] == []


def test_official_record_has_answers_with_aliases_and_a_type(loaded):
    benchmark = loaded(native())
    (question,) = benchmark.questions
    assert benchmark.extra["layout"] == "official"
    assert (question.answers, question.aliases) == (("Zoll",), {"Zoll": ("City of Zoll",)})
    assert question.golds == ("Zoll", "City of Zoll")
    assert (question.type, question.answer_set) == ("conjunction", True)
    assert question.metadata == {
        "answer_ids": ["m.1"],
        "sparql": "SELECT ?x",
        "machine_question": "what place is ada of",
        "webqsp_id": "WebQTest-1",
    }
    assert benchmark.extra["counts"] == {"questions_without_topic": 1}


@pytest.mark.parametrize(
    ("answer", "answers"), [('["Zoll", "Ada"]', ("Zoll", "Ada")), (["Zoll", "Zoll"], ("Zoll", "Zoll")), (None, ()), ("", ())]
)
def test_copies_with_a_plain_list_of_answers_are_read(loaded, answer, answers):
    record = {name: value for name, value in native(answer=answer).items() if name != "answers"}
    benchmark = loaded(record)
    assert benchmark.questions[0].answers == answers
    assert benchmark.extra["counts"].get("questions_without_gold", 0) == (not answers)


def test_missing_aliases_null_names_and_repeated_answers_are_handled(loaded):
    answers = [
        {"answer_id": "m.1", "answer": "Zoll", "aliases": ["Z"]},
        {"answer_id": "m.2", "answer": "Zoll", "aliases": ["Zoll", "ZL"]},
        {"answer_id": "m.3", "answer": None, "aliases": ["Ada", "A."]},
        {"answer_id": "m.4", "answer": None, "aliases": []},
        {"answer": "Bea", "aliases": None},
        {"answer": "Cy"},
    ]
    benchmark = loaded(native(answers=answers))
    (question,) = benchmark.questions
    assert question.answers == ("Zoll", "Zoll", "Ada", "m.4", "Bea", "Cy")
    assert question.aliases == {"Zoll": ("Z", "ZL"), "Ada": ("A.",)}
    assert benchmark.extra["counts"] == {"questions_without_topic": 1, "repeated_answers": 1, "unnamed_answers": 1}


def test_questions_without_answers_are_kept_counted_and_named(loaded):
    blind = {name: value for name, value in native("b").items() if name != "answers"}
    benchmark = loaded(native("a", answers=[]), blind, native("c", answers=None), native("d"))
    assert [len(question.answers) for question in benchmark.questions] == [0, 0, 0, 1]
    assert benchmark.extra["counts"]["questions_without_gold"] == 3
    assert "3 questions have no gold answer in the file and cannot be scored" in benchmark.extra["notes"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": [{"answer": None, "aliases": []}]}, "neither a name nor an id"),
        ({"answers": ["Zoll"]}, "'answers[0]' is a string"),
        ({"answers": [{"answer": "Zoll", "aliases": "Z"}]}, "'aliases' is a string"),
        ({"ID": None}, "'ID' is null"),
        ({"topic_entity": ["m.1"]}, "'topic_entity' is a list"),
        ({"topic_entity": {"m.1": None}}, "'topic_entity.m.1' is null"),
    ],
)
def test_bad_record_is_reported_with_its_position_or_skipped(loaded, changes, message):
    with raises("bad-record") as caught:
        loaded(native("good"), native("bad", **changes))
    assert message in caught.value.what
    assert len(loaded(native("good"), native("bad", **changes), skip_bad=True).skipped) == 1


def test_truncated_array_keeps_complete_records_with_skip_bad(loaded):
    text = json.dumps([native("a"), native("b")])[:-40]
    with raises("bad-record"):
        loaded(text=text)
    benchmark = loaded(text=text, skip_bad=True)
    assert [question.id for question in benchmark.questions] == ["a"]
    assert len(benchmark.skipped) == 1


def test_webqsp_ids_stop_the_load(loaded):
    with raises("id-of-webqsp"):
        loaded(native(), native("WebQTest-5"), skip_bad=True)


def test_files_are_found_by_their_published_names(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    folder = tmp_path / "cwq"
    folder.mkdir()
    (folder / "ComplexWebQuestions_dev.json").write_text(json.dumps([native()]))
    assert load("cwq:validation").extra["layout"] == "official"
    with raises("data-file-not-found"):
        load("cwq:train", {"path": str(folder)})
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert load("cwq:train").extra["layout"] == "nsm"
    assert load("cwq:test").extra["layout"] == "rog"
    assert load("cwq_tog").extra["layout"] == "tog"


def test_card_is_complete():
    reference, entry = resolve("cwq")
    assert str(reference) == "cwq:test"
    assert entry.card.splits == {"train": 27639, "validation": 3519, "test": 3531}
    assert len(entry.card.revision) == 40
