import json
from collections import Counter

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from benchmarks.schema import sentence_of
from tests.support.errors import raises


def native(identifier="w1", **changes):
    return {
        "_id": identifier,
        "type": "compositional",
        "question": "Where was the director of Quill born?",
        "context": [["Quill", ["Quill is a film.", "Ada directed it."]], ["Ada", ["Ada was born in Zoll."]]],
        "entity_ids": "Q1_Q2",
        "supporting_facts": [["Quill", 1], ["Ada", 0]],
        "evidences": [["Quill", "director", "Ada"], ["Ada", "place of birth", "Zoll"]],
        "evidences_id": [["Q1", "director", "Q2"], ["Q2", "place of birth", "Q3"]],
        "answer": "Zoll",
        "answer_id": "Q3",
    } | changes


def load_records(folder, *records, split="dev", **options):
    (folder / "records.json").write_text(json.dumps(records))
    return load(f"2wikimultihopqa:{split}", {"path": str(folder / "records.json"), **options})


def test_real_sample_has_the_counts_and_texts_of_the_file(data_folder):
    path = data_folder / "2wikimultihopqa" / "2wiki_dev40.json"
    records = json.loads(path.read_text())
    benchmark = load("2wikimultihopqa:dev", {"path": str(path)})
    assert [q.id for q in benchmark.questions] == [r["_id"] for r in records]
    assert [q.answers for q in benchmark.questions] == [(r["answer"],) for r in records]
    assert Counter(q.type for q in benchmark.questions) == Counter(r["type"] for r in records)
    assert [[list(t) for t in q.triples] for q in benchmark.questions] == [r["evidences"] for r in records]
    assert len(benchmark.corpus) == len({(t, " ".join(s)) for r in records for t, s in r["context"]})
    twice = sum(len({t for t, _ in r["context"]}) < len(r["context"]) for r in records)
    assert twice == 3
    assert benchmark.extra["counts"] == {"repeated_titles": twice, "repeated_passages": twice}
    for question, record in zip(benchmark.questions, records, strict=True):
        passages = benchmark.corpus.get(question.candidates)
        distinct = list(dict.fromkeys((t, tuple(s)) for t, s in record["context"]))
        assert [(p.title, p.sentences) for p in passages] == distinct
        titles = {p.id: p.title for p in passages}
        assert [[titles[p], i] for p, i in map(sentence_of, question.supporting_facts)] == record["supporting_facts"]
        for name in ("entity_ids", "answer_id"):
            assert question.metadata.get(name) == record[name]
        assert [list(t) for t in question.metadata.get("evidences_id", ())] == record["evidences_id"]


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("2wikimultihopqa").questions) == 40


def test_sentences_are_joined_by_a_space(tmp_path):
    benchmark = load_records(tmp_path, native())
    assert benchmark.corpus[0].text == "Quill is a film. Ada directed it."
    assert benchmark.corpus[0].sentences == ("Quill is a film.", "Ada directed it.")


def test_alias_file_next_to_the_data_adds_accepted_answers(tmp_path):
    rows = [
        {"Q_id": "Q3", "aliases": ["Zollburg", "Zol"], "demonyms": ["Zoller", "Zol"]},
        {"Q_id": "Q1", "aliases": ["The Quill"], "demonyms": []},
    ]
    (tmp_path / "id_aliases.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (question,) = load_records(tmp_path, native()).questions
    assert question.answers == ("Zoll",)
    assert question.golds == ("Zoll", "Zollburg", "Zol", "Zoller")
    assert question.metadata["triple_aliases"] == ((("The Quill",), ()), ((), ("Zollburg", "Zol", "Zoller")))


def test_without_aliases_only_the_answer_is_accepted(tmp_path):
    (question,) = load_records(tmp_path, native()).questions
    assert question.golds == ("Zoll",)
    assert "triple_aliases" not in question.metadata


def test_empty_alias_file_adds_no_aliases(tmp_path):
    (tmp_path / "id_aliases.json").touch()
    assert load_records(tmp_path, native()).questions[0].golds == ("Zoll",)


def test_faulty_alias_file_is_reported_by_path(tmp_path):
    (tmp_path / "id_aliases.json").write_text('{"Q_id": "Q3", "aliases": "Zol"}\n')
    with raises("bad-record") as caught:
        load_records(tmp_path, native())
    assert "id_aliases.json, line 1" in caught.value.where


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"evidences": [["a", "b"]]}, "evidences[0]"),
        ({"evidences": [["a", "b", 3]]}, "evidences[0]"),
        ({"evidences": None}, "evidences"),
        ({"evidences_id": [["Q1", "director", "Q2"]]}, "evidences_id"),
        ({"entity_ids": 5}, "entity_ids"),
    ],
)
def test_faulty_field_is_reported(tmp_path, changes, field):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, native() | changes)
    assert caught.value.where.endswith(f"record 1, field {field}")


def test_test_split_loads_without_gold(tmp_path):
    blank = native(answer="", evidences=[], evidences_id=[], supporting_facts=[])
    bare = {name: native("w2")[name] for name in ("_id", "question", "context", "type")}
    benchmark = load_records(tmp_path, blank, bare, split="test")
    assert [(q.answers, q.evidence, q.triples) for q in benchmark.questions] == [((), (), ())] * 2
    assert benchmark.extra["counts"]["questions_without_gold"] == 2
    with raises("bad-record"):
        load_records(tmp_path, blank)


def test_hotpotqa_record_is_refused(tmp_path):
    record = {n: v for n, v in native().items() if n not in ("evidences", "evidences_id", "entity_ids", "answer_id")}
    with raises("record-of-other-dataset"):
        load_records(tmp_path, record | {"level": "hard"}, skip_bad=True)


def test_duplicate_triples_are_kept(tmp_path):
    twice = native()["evidences"][:1] * 2
    (question,) = load_records(tmp_path, native(evidences=twice, evidences_id=[])).questions
    assert question.triples == (("Quill", "director", "Ada"),) * 2
