import json
from collections import Counter

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from tests.support.errors import raises


def native(identifier="2hop__1_2", **changes):
    return {
        "id": identifier,
        "paragraphs": [
            {"idx": 0, "title": "Noise", "paragraph_text": "Nothing.", "is_supporting": False},
            {"idx": 1, "title": "Ada", "paragraph_text": "Ada wrote Quill.", "is_supporting": True},
            {"idx": 2, "title": "Ada", "paragraph_text": "Ada was born in Zoll.", "is_supporting": True},
        ],
        "question": "Where was the author of Quill born?",
        "question_decomposition": [
            {"id": 1, "question": "Who wrote Quill?", "answer": "Ada", "paragraph_support_idx": 1},
            {"id": 2, "question": "Where was #1 born?", "answer": "Zoll", "paragraph_support_idx": 2},
        ],
        "answer": "Zoll",
        "answer_aliases": ["Zollburg"],
        "answerable": True,
    } | changes


def unanswerable(identifier="2hop__1_2"):
    record = native(identifier, answerable=False)
    record["paragraphs"] = record["paragraphs"][:2]
    record["question_decomposition"][1]["paragraph_support_idx"] = None
    return record


def unlabeled(record):
    return {
        "id": record["id"],
        "question": record["question"],
        "paragraphs": [{n: v for n, v in p.items() if n != "is_supporting"} for p in record["paragraphs"]],
    }


def load_records(folder, *records, reference="musique:dev", **options):
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return load(reference, {"path": str(folder / "records.jsonl"), **options})


def test_real_sample_has_the_counts_and_texts_of_the_file(data_folder):
    path = data_folder / "musique" / "musique_ans_v1.0_train50.jsonl"
    records = [json.loads(line) for line in path.read_text().split("\n") if line]
    benchmark = load("musique:train", {"path": str(path)})
    assert str(benchmark.reference) == "musique/ans:train"
    assert [q.id for q in benchmark.questions] == [r["id"] for r in records]
    assert [q.golds for q in benchmark.questions] == [tuple(dict.fromkeys([r["answer"], *r["answer_aliases"]])) for r in records]
    assert Counter(q.type for q in benchmark.questions) == Counter(f"{len(r['question_decomposition'])}hop" for r in records)
    assert [list(q.metadata["decomposition"]) for q in benchmark.questions] == [r["question_decomposition"] for r in records]
    everything = {(p["title"], p["paragraph_text"]) for r in records for p in r["paragraphs"]}
    assert len(benchmark.corpus) == len(everything)
    for question, record in zip(benchmark.questions, records, strict=True):
        assert [(p.title, p.text) for p in benchmark.corpus.get(question.candidates)] == [
            (p["title"], p["paragraph_text"]) for p in record["paragraphs"]
        ]
        assert [(p.title, p.text) for p in benchmark.corpus.get(question.evidence)] == [
            (p["title"], p["paragraph_text"]) for p in record["paragraphs"] if p["is_supporting"]
        ]


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("musique:train").questions) == 50
    with raises("not-in-cache") as caught:
        load("musique/full:train")
    assert "musique/ans:train" in caught.value.try_this


@pytest.mark.parametrize(
    ("identifier", "steps", "kind", "shape"),
    [
        ("2hop__1_2", 2, "2hop", "2hop"),
        ("3hop1__1_2_3", 3, "3hop", "3hop1"),
        ("4hop3__1_2_3_4", 4, "4hop", "4hop3"),
        ("other", 2, "2hop", None),
        ("other", 0, "", None),
    ],
)
def test_question_type_is_the_hop_count(tmp_path, identifier, steps, kind, shape):
    decomposition = [{"id": i, "question": "?", "answer": "!", "paragraph_support_idx": 1} for i in range(steps)]
    (question,) = load_records(tmp_path, native(identifier, question_decomposition=decomposition)).questions
    assert question.type == kind
    assert question.metadata.get("shape") == shape


def test_twin_questions_get_distinct_ids_in_any_order(tmp_path):
    for records in ([native(), unanswerable()], [unanswerable(), native()]):
        benchmark = load_records(tmp_path, *records, reference="musique/full:dev")
        by_id = {question.id: question for question in benchmark.questions}
        assert set(by_id) == {"2hop__1_2", "2hop__1_2~unanswerable"}
        assert by_id["2hop__1_2"].answerable
        twin = by_id["2hop__1_2~unanswerable"]
        assert not twin.answerable
        assert twin.metadata["native_id"] == "2hop__1_2"
        assert twin.query().id != by_id["2hop__1_2"].query().id


def test_unanswerable_twin_is_excluded_from_answer_and_support_scores(tmp_path):
    benchmark = load_records(tmp_path, native(), unanswerable(), reference="musique/full:dev")
    twin = benchmark.questions[1]
    assert (twin.answers, twin.golds, twin.evidence) == ((), (), ())
    assert twin.metadata["answers"] == ("Zoll",)
    assert len(twin.metadata["partial_evidence"]) == 1
    assert benchmark.extra["counts"] == {"unanswerable": 1}


def test_two_records_of_one_kind_with_equal_ids_are_duplicates(tmp_path):
    with raises("duplicate-question") as caught:
        load_records(tmp_path, native(), unanswerable(), native(), reference="musique/full:dev")
    assert "line 1 and line 3" in caught.value.where
    with raises("duplicate-question"):
        load_records(tmp_path, native(), native())


def test_unanswerable_record_is_refused_in_subset_ans(tmp_path):
    with raises("musique-full") as caught:
        load_records(tmp_path, native("2hop__3_4"), unanswerable(), skip_bad=True)
    assert "musique/full:dev" in caught.value.try_this


def test_test_files_load_without_gold_and_number_twins_by_order(tmp_path):
    benchmark = load_records(tmp_path, unlabeled(native()), reference="musique:test")
    assert (benchmark.questions[0].answers, benchmark.questions[0].evidence) == ((), ())
    assert benchmark.extra["counts"]["questions_without_gold"] == 1
    pair = unlabeled(native()), unlabeled(unanswerable())
    benchmark = load_records(tmp_path, *pair, reference="musique/full:test")
    assert [q.id for q in benchmark.questions] == ["2hop__1_2", "2hop__1_2~2"]
    with raises("duplicate-question"):
        load_records(tmp_path, *pair, pair[0], reference="musique/full:test")


def test_answerable_flag_is_optional_in_ans_and_required_in_full(tmp_path):
    record = {n: v for n, v in native().items() if n not in ("answer_aliases", "answerable", "question_decomposition")}
    (question,) = load_records(tmp_path, record).questions
    assert question.golds == ("Zoll",)
    with raises("bad-record"):
        load_records(tmp_path, record, reference="musique/full:dev")


def test_repeated_paragraph_becomes_one_candidate_and_is_counted(tmp_path):
    record = native()
    record["paragraphs"] = [*record["paragraphs"], {**record["paragraphs"][1], "idx": 3}]
    benchmark = load_records(tmp_path, record)
    assert len(benchmark.questions[0].candidates) == 3
    assert len(benchmark.questions[0].evidence) == 2
    assert benchmark.extra["counts"]["repeated_passages"] == 1


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"paragraphs": [7]}, "line 1, field paragraphs[0]"),
        ({"paragraphs": [{"title": "A"}]}, "line 1, paragraph 0, field paragraph_text"),
        ({"paragraphs": [{"title": "A", "paragraph_text": "B"}]}, "line 1, paragraph 0, field is_supporting"),
        ({"answer_aliases": "Zoll"}, "line 1, field answer_aliases"),
        ({"answerable": "yes"}, "line 1, field answerable"),
        ({"question_decomposition": ["step"]}, "line 1, field question_decomposition[0]"),
        ({"answer": ""}, "line 1, field answer"),
    ],
)
def test_faulty_field_is_reported(tmp_path, changes, where):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, native() | changes)
    assert caught.value.where.endswith(where)


def test_hotpotqa_record_is_refused(tmp_path):
    record = {"_id": "1", "question": "?", "answer": "!", "context": [], "supporting_facts": [], "level": "easy"}
    with raises("record-of-other-dataset"):
        load_records(tmp_path, record, skip_bad=True)


def test_pooled_corpus_matches_positives_by_content_only(tmp_path):
    pool = tmp_path / "pool.json"
    pool.write_text(json.dumps([{"title": "Ada", "text": "Ada wrote Quill."}, {"title": "Noise", "text": "Other."}]))
    benchmark = load_records(tmp_path, native(), corpus=str(pool))
    assert [e in benchmark.corpus for e in benchmark.questions[0].evidence] == [True, False]
    assert benchmark.extra["counts"]["positives_absent"] == 1
