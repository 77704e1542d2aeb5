import json
from itertools import chain

import pytest

from benchmarks.core.errors import UserError
from benchmarks.datasets.long_document import document_text
from benchmarks.registry import DATASETS, load, resolve
from ragmeter.conformance import check_dataset
from tests.support.errors import raises
from tests.support.worlds_native import write_native


def native(identifier="1", **changes):
    return {
        "input": "Where was Ada born?",
        "context": "Ada wrote Quill.\n\nAda was born in Zoll. ",
        "answers": ["Zoll"],
        "length": 8,
        "context_id": "c1",
        "_id": identifier,
        "label": "biology",
        "meta": {"title": "Lives", "authors": "A. Nonymous"},
    } | changes


def load_records(folder, *records, reference="ultradomain/biology", **options):
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load(reference, {"path": str(path), **options})


def text_of(benchmark, document):
    return document_text(benchmark.corpus.get(benchmark.corpus.by_document[document]))


def test_real_sample_has_the_counts_and_texts_of_the_file(data_folder):
    path = data_folder / "ultradomain" / "mix.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load("ultradomain/mix", {"path": str(path)})
    assert [(q.id, q.text, list(q.answers)) for q in benchmark.questions] == [(row["_id"], row["input"], row["answers"]) for row in rows]
    assert [dict(q.metadata) for q in benchmark.questions] == [{name: row[name] for name in ("length", "dataset", "label")} for row in rows]
    assert [text_of(benchmark, q.document_id) for q in benchmark.questions] == [row["context"] for row in rows]
    assert len(benchmark.corpus.by_document) == len({row["context"] for row in rows}) < len(rows)


def test_real_lightrag_layout_has_the_counts_and_texts_of_its_files(data_folder):
    folder = data_folder / "ultradomain"
    queries = [json.loads(line)["query"] for line in (folder / "mix_query.jsonl").read_text("utf-8").split("\n") if line]
    contexts = json.loads((folder / "mix_unique_contexts.json").read_text("utf-8"))
    benchmark = load("ultradomain/mix-queries", {"path": str(folder)})
    assert str(benchmark.reference) == "ultradomain/mix-queries:all"
    assert [question.text for question in benchmark.questions] == queries
    assert [text_of(benchmark, document) for document in benchmark.corpus.by_document] == contexts
    assert {question.answers for question in benchmark.questions} == {()}
    assert benchmark.extra["counts"] == {"questions_without_gold": len(queries)}


@pytest.mark.parametrize("subset", ["mix", "mix-queries"])
def test_real_samples_pass_the_dataset_checks(data_folder, subset):
    checks = check_dataset(f"ultradomain/{subset}", {"path": str(data_folder / "ultradomain")})
    assert [check for check in checks if not check.passed] == []
    assert any("maximum of f1(" in check.name and "rules=longbench" in check.name for check in checks)


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("ultradomain/mix:test").questions) == 5


def test_questions_about_the_same_text_share_their_document(tmp_path):
    records = [native("1"), native("2", input="Who?", context_id="c2"), native("3", context="Other.", context_id="c3")]
    first, second, third = load_records(tmp_path, *records).questions
    assert first.document_id == second.document_id != third.document_id
    assert first.query().document_id == first.document_id
    assert [q.metadata["context_id"] for q in (first, second, third)] == ["c1", "c2", "c3"]


def test_two_texts_with_one_context_id_become_two_documents_and_are_counted(tmp_path):
    benchmark = load_records(tmp_path, native("1"), native("2", context="Other."), native("3"))
    assert len(benchmark.corpus.by_document) == 2
    assert benchmark.extra["counts"] == {"documents_of_one_context_id": 1}


def test_only_question_answers_and_context_are_required(tmp_path):
    bare = {name: native()[name] for name in ("input", "answers", "context")}
    item, other = load_records(tmp_path, bare, bare | {"input": "Who wrote Quill?"}).questions
    assert item.answers == ("Zoll",)
    assert item.metadata == {}
    assert item.id != other.id
    assert load_records(tmp_path, bare).questions[0].id == item.id


@pytest.mark.parametrize(
    ("answers", "golds"),
    [
        ("Zoll", ("Zoll",)),
        ('"Zoll"', ("Zoll",)),
        ('["Zoll", "Zollburg"]', ("Zoll", "Zollburg")),
        (json.dumps(json.dumps(["Zoll", "Zollburg"])), ("Zoll", "Zollburg")),
        (['"Zoll"', "Zollburg"], ("Zoll", "Zollburg")),
        (['"Zoll" is not "Zollburg"'], ('"Zoll" is not "Zollburg"',)),
    ],
)
def test_answers_are_read_plain_as_a_list_or_doubly_encoded(tmp_path, answers, golds):
    (question,) = load_records(tmp_path, native(answers=answers)).questions
    assert question.golds == golds


def test_doubly_encoded_string_cells_are_decoded_once(tmp_path):
    plain = native()
    encoded = {name: json.dumps(value) if isinstance(value, str) else value for name, value in plain.items()}
    encoded["meta"] = json.dumps(plain["meta"])
    item, other = (load_records(tmp_path, record) for record in (plain, encoded))
    assert item.fingerprint == other.fingerprint
    assert item.questions[0].metadata == other.questions[0].metadata
    quoted = '"To be" or "not to be"'
    (question,) = load_records(tmp_path, native(input=quoted)).questions
    assert question.text == quoted


def test_field_meta_provides_title_and_authors_and_must_be_an_object(tmp_path):
    (question,) = load_records(tmp_path, native()).questions
    assert (question.metadata["title"], question.metadata["authors"]) == ("Lives", "A. Nonymous")
    for meta in ("{broken", ["a"], "Lives"):
        with pytest.raises(UserError) as caught:
            load_records(tmp_path, native(meta=meta))
        assert caught.value.where.endswith("line 1, field meta")


def test_questions_without_gold_load_and_are_counted(tmp_path):
    benchmark = load_records(tmp_path, native("1", answers=[]), native("2", answers='""'), native("3"))
    assert [question.answers for question in benchmark.questions] == [(), (), ("Zoll",)]
    assert benchmark.extra["counts"] == {"questions_without_gold": 2}


def test_training_split_is_the_first_200_records_of_two_domains(tmp_path):
    records = [native(str(number), label="fin") for number in range(230)]
    everything = load_records(tmp_path, *records, reference="ultradomain/fin:all")
    training = load_records(tmp_path, *records, reference="ultradomain/fin:train")
    assert len(everything.questions) == 230
    assert [question.id for question in training.questions] == [str(number) for number in range(200)]


def test_training_and_test_domains_are_disjoint():
    entry = DATASETS.get("ultradomain")
    splits = {subset: set(entry.card.splits_of(subset)) for subset in entry.subsets}
    assert sum("-queries" not in subset for subset in entry.subsets) == 20
    assert {subset for subset in splits if "train" in splits[subset]} == {"fin", "legal"}
    assert not any({"train", "test"} <= names for names in splits.values())
    assert {"biology", "fiction", "music", "technology", "philosophy"} <= {s for s in splits if "test" in splits[s]}
    for text in ("ultradomain/fin:test", "ultradomain/biology:train", "ultradomain/mix-queries:test"):
        with pytest.raises(UserError, match="unknown split of ultradomain/"):
            resolve(text)
    assert str(resolve("ultradomain/fin")[0]) == "ultradomain/fin:all"


def test_longbench_record_is_refused_even_with_skip_bad(tmp_path):
    record = native(all_classes=None)
    del record["context_id"]
    with raises("record-of-other-dataset"):
        load_records(tmp_path, native("2"), record, skip_bad=True)


def test_record_of_another_domain_is_refused_even_with_skip_bad(tmp_path):
    with raises("record-of-other-subset") as caught:
        load_records(tmp_path, native("1"), native("2", label="art"), skip_bad=True)
    assert caught.value.where.endswith("line 2, field label")
    assert load_records(tmp_path, native("1", label="some book")).questions
    assert load_records(tmp_path, native("1", label="art"), reference="ultradomain/mix").questions


def test_duplicate_id_error_names_both_positions(tmp_path):
    with raises("duplicate-question") as caught:
        load_records(tmp_path, native("1"), native("1"), skip_bad=True)
    assert caught.value.where.endswith("line 2")


def test_equal_records_without_ids_are_duplicates(tmp_path):
    bare = {name: native()[name] for name in ("input", "answers", "context")}
    with raises("duplicate-question"):
        load_records(tmp_path, bare, bare)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"input": ""}, "input"),
        ({"context": " \n"}, "context"),
        ({"context": ["text"]}, "context"),
        ({"answers": None}, "answers"),
        ({"answers": {"a": 1}}, "answers"),
        ({"_id": 7.5}, "_id"),
    ],
)
def test_faulty_field_is_reported_and_can_be_skipped(tmp_path, changes, field):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, native("2", **changes))
    assert caught.value.where.endswith(f"line 1, field {field}")
    benchmark = load_records(tmp_path, native("2", **changes), native("1"), skip_bad=True)
    assert [question.id for question in benchmark.questions] == ["1"]
    assert len(benchmark.skipped) == 1


def test_queries_without_their_contexts_are_refused(tmp_path):
    path = tmp_path / "mix_query.jsonl"
    path.write_text(json.dumps({"query": "Why?"}) + "\n")
    with raises("missing-contexts") as caught:
        load("ultradomain/mix-queries", {"path": str(path)})
    assert caught.value.where.endswith("mix_unique_contexts.json")
    (tmp_path / "mix_unique_contexts.json").write_text(json.dumps(["text", 7]))
    with raises("bad-record") as caught:
        load("ultradomain/mix-queries", {"path": str(path)})
    assert caught.value.where.endswith("line 1, record 2")


def test_world_in_the_native_format_loads_with_the_same_gold(tmp_path):
    world = load("worlds/long:test", {"questions": 40})
    path = tmp_path / "records.jsonl"
    written = write_native(world, "ultradomain", path)
    benchmark = load("ultradomain/biology", {"path": str(path)})
    truth = {question.id: question for question in world.questions}
    assert [question.id for question in benchmark.questions] == list(written)
    assert len(written) == sum(q.answerable and len(q.answers) == 1 for q in world.questions)
    documents = {}
    for question in benchmark.questions:
        known = truth[question.id]
        assert (question.text, question.golds) == (known.text, known.golds)
        documents.setdefault(known.document_id, set()).add(question.document_id)
        chunks = world.corpus.get(world.corpus.by_document[known.document_id])
        assert question.metadata["title"] == chunks[0].title
        assert text_of(benchmark, question.document_id).split() == " ".join(c.text for c in chunks).split()
    # One document here per document there, so clusters of questions are unchanged.
    assert [len(document) for document in documents.values()] == [1] * len(world.corpus.by_document)
    assert len(set(chain(*documents.values()))) == len(world.corpus.by_document)
