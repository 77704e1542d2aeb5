import json
from collections import Counter

import pytest

from benchmarks import settings
from benchmarks.core.errors import UserError
from benchmarks.registry import load, resolve
from benchmarks.schema import triple_id
from judges.metric import parse as parse_metric
from judges.score import score
from ragmeter.conformance import check_dataset, gold_prediction
from tests.support.errors import raises
from tests.support.paths import paths

SAMPLES = {"rog": "rog_style_webqsp.jsonl", "official": "WebQSP.test.json", "tog": "tog_webqsp.json"}


def answer(name="Euro", identifier="m.02l6h", kind="Entity"):
    return {"AnswerType": kind, "AnswerArgument": identifier, "EntityName": name}


def parse(*answers, **changes):
    return {
        "ParseId": "P0",
        "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good"},
        "Sparql": "SELECT ?x",
        "TopicEntityName": "Spain",
        "TopicEntityMid": "m.06mkj",
        "InferentialChain": ["location.country.currency_used"],
        "Answers": list(answers),
    } | changes


def native(*parses, identifier="WebQTest-1"):
    text = "what money do they use in spain?"
    return {"QuestionId": identifier, "RawQuestion": text, "ProcessedQuestion": text[:-1], "Parses": list(parses)}


@pytest.fixture
def loaded(tmp_path):
    def load_questions(*questions, text=None, **options):
        path = tmp_path / "questions.json"
        whole = {"Version": "1.0", "Questions": list(questions)}
        content = json.dumps(whole, indent=1) if text is None else text
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load("webqsp:test", {"path": str(path), **options})

    return load_questions


def distinct(texts):
    return tuple(dict.fromkeys(texts))


def test_real_rog_rows_have_the_counts_and_graphs_of_the_file(data_folder):
    path = data_folder / "webqsp" / SAMPLES["rog"]
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load("webqsp:test", {"path": str(path)})
    assert len(benchmark.questions) == len(rows) == 149
    assert benchmark.skipped == ()
    nodes = []
    for question, row in zip(benchmark.questions, rows, strict=True):
        triples = [tuple(triple) for triple in row["graph"]]
        nodes.append({name for head, _, tail in triples for name in (head, tail)})
        assert (question.id, question.text) == (row["id"], row["question"])
        assert question.answers == tuple(row["answer"])
        assert set(question.evidence) == set(map(triple_id, paths(triples, question)))
        assert question.topic_entities == distinct(row["q_entity"])
        assert sorted(benchmark.extra["graphs"][question.id]) == sorted(set(triples))
        assert question.candidates == tuple(map(triple_id, benchmark.extra["graphs"][question.id]))
    assert len(benchmark.corpus) == len({tuple(triple) for row in rows for triple in row["graph"]})
    outside = [len(set(row["answer"]) - known) for row, known in zip(rows, nodes, strict=True)]
    assert benchmark.extra["counts"] == {
        "repeated_topics": sum(len(row["q_entity"]) - len(set(row["q_entity"])) for row in rows),
        "repeated_answers": sum(len(row["answer"]) - len(set(row["answer"])) for row in rows),
        "answers_outside": sum(outside),
        "questions_with_answers_outside": sum(map(bool, outside)),
        "questions_without_path": sum(not question.evidence for question in benchmark.questions),
        "questions_with_no_answer_inside": sum(number == len(set(row["answer"])) for number, row in zip(outside, rows, strict=True)),
    }


def test_real_official_file_has_the_answers_of_all_parses(data_folder):
    path = data_folder / "webqsp" / SAMPLES["official"]
    records = json.loads(path.read_text("utf-8-sig"))["Questions"]
    benchmark = load("webqsp:test", {"path": str(path)})
    assert len(benchmark.questions) == len(records) == 150
    for question, record in zip(benchmark.questions, records, strict=True):
        results = [a for item in record["Parses"] for a in item["Answers"]]
        assert (question.id, question.text) == (record["QuestionId"], record["RawQuestion"])
        assert question.wanted == distinct(a["EntityName"] or a["AnswerArgument"] for a in results)
        assert len(question.answers) >= max(len(item["Answers"]) for item in record["Parses"])
        assert question.topic_entities == distinct(item["TopicEntityName"] for item in record["Parses"])
        assert [item["sparql"] for item in question.metadata["parses"]] == [item["Sparql"] for item in record["Parses"]]
        assert question.candidates is None
    assert Counter(q.type for q in benchmark.questions) == Counter(
        f"{len(record['Parses'][0]['InferentialChain'])}hop" for record in records
    )
    without = [r["QuestionId"] for r in records if not any(item["Answers"] for item in r["Parses"])]
    assert [q.id for q in benchmark.questions if not q.answers] == without
    assert benchmark.extra["counts"]["questions_without_gold"] == len(without) == 1
    assert settings.possible_settings(benchmark) == benchmark.card.settings == ("closed_book",)


def test_real_tog_file_has_its_topics_and_answers(data_folder):
    path = data_folder / "webqsp" / SAMPLES["tog"]
    records = json.loads(path.read_text("utf-8"))
    benchmark = load("webqsp:test", {"path": str(path)})
    assert [(q.id, q.answers, q.topic_entities) for q in benchmark.questions] == [
        (r["QuestionId"], tuple(a for a in r["answer"] if a is not None), distinct(r["topic_entity"].values())) for r in records
    ]
    assert benchmark.extra["counts"]["questions_without_gold"] == sum(not any(r["answer"]) for r in records)
    assert benchmark.extra["counts"]["null_answers"] == sum(r["answer"].count(None) for r in records)


@pytest.mark.parametrize("layout", SAMPLES)
def test_gold_predictions_reach_the_official_maximum_on_real_samples(data_folder, layout):
    benchmark = load("webqsp:test", {"path": str(data_folder / "webqsp" / SAMPLES[layout])})
    metrics = [parse_metric(name) for name in benchmark.card.metrics]
    values = score(benchmark.questions, [gold_prediction(q) for q in benchmark.questions], metrics)
    for name, column in values.items():
        scored = [value for value in column if value == value]
        assert len(scored) == sum(bool(q.answers) for q in benchmark.questions), name
        assert min(scored) >= 1, name
        if name.startswith("strict"):
            assert max(scored) == 1


@pytest.mark.parametrize("layout", SAMPLES)
def test_real_samples_pass_the_dataset_checks(data_folder, layout):
    checks = check_dataset("webqsp:test", {"path": str(data_folder / "webqsp" / SAMPLES[layout])})
    assert [check for check in checks if not check.passed] == []


def test_official_and_tog_samples_agree_on_shared_questions(data_folder):
    official, tog = (load("webqsp:test", {"path": str(data_folder / "webqsp" / SAMPLES[n])}) for n in ("official", "tog"))
    texts = {question.id: question.text for question in official.questions}
    shared = [question for question in tog.questions if question.id in texts]
    assert all(texts[question.id] == question.text for question in shared)


def test_byte_order_mark_and_line_ends_of_the_official_release_are_ignored(loaded):
    plain = loaded(native(parse(answer())))
    text = json.dumps({"Questions": [native(parse(answer()))]}, indent=1)
    for content in (b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode(), json.dumps(json.loads(text))):
        assert loaded(text=content).fingerprint == plain.fingerprint
    assert plain.extra["layout"] == "official"
    assert plain.extra["notes"] == ("1 questions were read; in the official JSON the split has 1,639",)


def test_answers_are_the_distinct_answers_of_all_parses(loaded):
    several = native(parse(answer("A", "m.1"), answer("B", "m.2")), parse(answer("B", "m.2"), answer("C", "m.3")))
    (question,) = loaded(several).questions
    assert question.answers == ("A", "B", "C")
    assert [item["answers"] for item in question.metadata["parses"]] == [["A", "B"], ["B", "C"]]
    assert question.answer_set


def test_values_and_unnamed_entities_become_answers(loaded):
    benchmark = loaded(native(parse(answer(None, "1984", "Value"), answer(None, "m.9"), answer("", "m.8"), answer())))
    assert benchmark.questions[0].answers == ("1984", "m.9", "m.8", "Euro")
    assert benchmark.extra["counts"]["unnamed_answers"] == 2


def test_questions_without_usable_parses_are_kept_and_counted(loaded):
    poor = {"ParseQuality": "Partial", "QuestionQuality": "Good"}
    benchmark = loaded(
        native(identifier="WebQTest-1"),
        native(parse(), identifier="WebQTest-2"),
        native(parse(answer(), AnnotatorComment=poor), identifier="WebQTest-3"),
        native(parse(answer(), AnnotatorComment=poor), parse(answer()), identifier="WebQTest-4"),
        {"QuestionId": "WebQTest-5", "RawQuestion": "?"},
    )
    assert [len(question.answers) for question in benchmark.questions] == [0, 0, 1, 1, 0]
    assert [question.metadata["good_parse"] for question in benchmark.questions] == [False, True, False, True, False]
    assert benchmark.extra["counts"] == {
        "questions_without_gold": 3,
        "questions_without_parses": 2,
        "questions_without_good_parse": 1,
        "questions_without_topic": 2,
    }
    assert "3 questions have no gold answer in the file and cannot be scored" in benchmark.extra["notes"]


def test_unnamed_topic_entities_are_identified_by_their_id(loaded):
    (question,) = loaded(native(parse(answer(), TopicEntityName=None), parse(answer(), TopicEntityMid=None))).questions
    assert question.topic_entities == ("m.06mkj",)


@pytest.mark.parametrize(
    ("broken", "message", "position"),
    [
        (native(parse({"AnswerType": "Entity"})), "'AnswerArgument' is missing", "Questions[1], Parses[0], Answers[0]"),
        (native(parse(InferentialChain="a.b")), "'InferentialChain' is a string", "Questions[1], Parses[0]"),
        (native("parse"), "'Parses[0]' is a string", "Questions[1]"),
        ({"RawQuestion": "?", "Parses": []}, "'QuestionId' is missing", "Questions[1]"),
        (7, "'Questions[1]' is an integer", "line 1"),
    ],
)
def test_bad_question_is_reported_with_its_position_or_skipped(loaded, broken, message, position):
    good = native(parse(answer()), identifier="WebQTest-9")
    with pytest.raises(UserError) as caught:
        loaded(good, broken)
    assert message in caught.value.what
    assert position in caught.value.where
    benchmark = loaded(good, broken, skip_bad=True)
    assert (len(benchmark.questions), len(benchmark.skipped)) == (1, 1)
    assert position in benchmark.skipped[0].where


def test_truncated_file_and_file_without_questions_are_errors(loaded):
    text = json.dumps({"Version": "1.0", "Questions": [native(parse(answer()))]}, indent=1)
    with raises("bad-record"):
        loaded(text=text[:-30])
    with raises("no-question-in-file"):
        loaded()
    with raises("no-question-in-file"):
        loaded({"RawQuestion": "?"}, skip_bad=True)


def test_ids_of_the_other_split_or_of_cwq_stop_the_load(loaded):
    for identifier in ("WebQTrn-5", "WebQTest-5_" + "a1" * 16):
        with pytest.raises(UserError, match="the id"):
            loaded(native(parse(answer()), identifier=identifier), skip_bad=True)


def test_repeated_question_error_names_both_positions(loaded):
    with raises("duplicate-question") as caught:
        loaded(native(parse(answer())), native(parse(answer())))
    assert "Questions[0] and" in caught.value.where


def test_official_copy_with_linked_topics_is_read_like_the_tog_file(tmp_path):
    path = tmp_path / "WebQSP.json"
    path.write_text(json.dumps([native(parse(answer())) | {"topic_entity": {"m.1": "Madrid"}}]))
    benchmark = load("webqsp:test", {"path": str(path)})
    assert benchmark.extra["layout"] == "tog"
    assert benchmark.questions[0].topic_entities == ("Madrid",)
    assert benchmark.questions[0].answers == ("Euro",)


def test_files_are_found_by_published_names_with_rog_preferred(tmp_path, monkeypatch):
    folder = tmp_path / "WebQSP"
    folder.mkdir()
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    (folder / "WebQSP.test.json").write_text(json.dumps({"Questions": [native(parse(answer()))]}))
    assert load("webqsp:test").extra["layout"] == "official"
    row = {"id": "WebQTest-1", "question": "?", "answer": ["a"], "q_entity": [], "graph": []}
    (folder / "RoG-webqsp_test.jsonl").write_text(json.dumps(row))
    assert load("webqsp:test").extra["layout"] == "rog"
    assert load("webqsp:test", {"layout": "official"}).extra["layout"] == "official"
    with raises("file-name-mismatch"):
        load("webqsp:train", {"path": str(folder / "WebQSP.test.json")})


def test_card_is_complete():
    reference, entry = resolve("webqsp")
    assert str(reference) == "webqsp:test"
    assert entry.card.splits == {"train": 2826, "validation": 246, "test": 1628}
    assert len(entry.card.revision) == 40
    assert {parse_metric(name).entry.group for name in entry.card.metrics} == {"graph"}
