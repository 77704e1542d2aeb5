import json

import pytest

from benchmarks.core.errors import UserError
from benchmarks.datasets import clara
from benchmarks.datasets.clara import PARAPHRASE, RowsConfig
from benchmarks.registry import DATASETS, load, resolve
from ragmeter.conformance import check_dataset
from tests.support.errors import raises

PRETRAINING = "clara_stages/pretraining:train"
INSTRUCTION = "clara_stages/instruction_tuning:train"
ORACLE = "clara_stages/e2e_training_nq_with_pos:train"
NORMAL = "clara_stages/e2e_eval_nq_no_pos:test"


def pretraining_record(**changes):
    return {
        "data_type": "qa",
        "question": ["Who wrote Quill?", "Where was Ada born?"],
        "answers": ["Ada", "Zoll"],
        "docs": ["This a document about Ada. \n Ada wrote Quill. Ada was born in Zoll."],
    } | changes


def instruction_record(**changes):
    docs = [f"Document {number}." for number in range(5)]
    return {"question": "Who?", "docs": docs, "gold_answer": "Ada", "answer": "It was Ada."} | changes


def joint_record(number=20, **changes):
    docs = [f"Document {position}." for position in range(number)]
    return {"question": "Who?", "docs": docs, "golden_answers": ["Ada", "Ada L."], "pos_index": [0, 1]} | changes


def load_records(folder, reference, *records, **options):
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load(reference, {"path": str(path), **options})


def test_real_sample_has_the_counts_and_texts_of_the_file(data_folder):
    path = data_folder / "clara" / "pretrain_data.100.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load(PRETRAINING, {"path": str(path)})
    assert [(q.text, q.answers) for q in benchmark.questions] == [
        (question, (answer,)) for row in rows for question, answer in zip(row["question"], row["answers"], strict=True)
    ]
    assert len({q.metadata["row"] for q in benchmark.questions}) == len(rows) == 100
    assert [passage.text for passage in benchmark.corpus] == [row["docs"][0] for row in rows]
    assert [benchmark.corpus.get(q.evidence)[0].text for q in benchmark.questions] == [
        row["docs"][0] for row in rows for _ in row["question"]
    ]
    assert benchmark.extra["counts"] == {}


def test_real_sample_passes_the_dataset_checks(data_folder):
    checks = check_dataset(PRETRAINING, {"path": str(data_folder / "clara")})
    assert [check for check in checks if not check.passed] == []
    assert any("maximum of cover_em" in check.name for check in checks)


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("clara_stages").questions) == 761
    assert len(load("clara_stages", {"first": 1}).questions) == 9


def test_streamed_rows_equal_the_rows_read_for_training(data_folder):
    path = data_folder / "clara" / "pretrain_data.100.jsonl"
    reference, _ = resolve(PRETRAINING)
    skipped = []
    rows = clara.read_rows(reference, RowsConfig(path=str(path)), skipped)
    natives = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    for native, row in zip(natives, rows, strict=True):
        assert (row.kind, list(row.docs), row.positives) == (native["data_type"], native["docs"], (0,))
        assert row.pairs == tuple((q, (a,)) for q, a in zip(native["question"], native["answers"], strict=True))
    assert skipped == []


def test_oversized_dataset_error_explains_streaming(tmp_path, monkeypatch):
    monkeypatch.setattr(clara, "MOST_QUESTIONS", 5)
    records = [pretraining_record() for _ in range(3)]
    with raises("too-many-questions") as caught:
        load_records(tmp_path, PRETRAINING, *records)
    assert "first" in caught.value.try_this
    assert len(load_records(tmp_path, PRETRAINING, *records, first=2).questions) == 4


def test_paraphrase_row_ignores_its_own_question_field(tmp_path):
    records = [pretraining_record(data_type="paraphrase", answers=["Quill is by Ada."], question=query) for query in ([], ["?"])]
    for question in load_records(tmp_path, PRETRAINING, *records).questions:
        assert (question.text, question.answers, question.type) == (PARAPHRASE, ("Quill is by Ada.",), "paraphrase")


def test_repeated_question_in_a_row_becomes_two_questions(tmp_path):
    record = pretraining_record(question=["Who?", "Who?"], answers=["Ada", "She"])
    item, other = load_records(tmp_path, PRETRAINING, record).questions
    assert (item.answers, other.answers) == (("Ada",), ("She",))
    assert item.id != other.id


def test_instruction_tuning_scores_the_short_answer_and_trains_on_the_long_one(tmp_path):
    (question,) = load_records(tmp_path, INSTRUCTION, instruction_record()).questions
    assert question.answers == ("Ada",)
    assert question.metadata["target"] == "It was Ada."
    assert len(question.candidates) == 5
    assert question.evidence == ()


@pytest.mark.parametrize(
    ("fields", "golds", "target"),
    [
        ({"golden_answers": ["Ada", "Ada L."]}, ("Ada", "Ada L."), None),
        ({"answer": "Ada"}, ("Ada",), None),
        ({"answers": ["Ada", "Ada L."]}, ("Ada", "Ada L."), None),
        ({"gold_answer": "Ada"}, ("Ada",), None),
        ({"golden_answers": ["Ada"], "answer": "It was Ada."}, ("Ada",), "It was Ada."),
        ({"golden_answers": '["Ada", "Ada L."]'}, ("Ada", "Ada L."), None),
        ({"golden_answers": ["Ada"], "answer": ""}, ("Ada",), None),
        ({"golden_answers": ["Ada"], "answer": ["It was Ada.", "Ada"]}, ("Ada",), "It was Ada."),
    ],
)
def test_joint_rows_accept_several_answer_fields(tmp_path, fields, golds, target):
    record = {name: value for name, value in joint_record().items() if name != "golden_answers"} | fields
    (question,) = load_records(tmp_path, ORACLE, record).questions
    assert question.golds == golds
    assert question.metadata.get("target") == target


@pytest.mark.parametrize("name", ["context", "content"])
def test_alternative_names_of_the_document_field_are_accepted(tmp_path, name):
    record = joint_record()
    record[name] = record.pop("docs")
    (question,) = load_records(tmp_path, ORACLE, record).questions
    assert len(question.candidates) == 20


def test_positives_are_not_always_first_among_the_candidates(tmp_path):
    records = [joint_record(pos_index=[0]) for _ in range(200)]
    benchmark = load_records(tmp_path, ORACLE, *records)
    positions = [question.candidates.index(question.evidence[0]) for question in benchmark.questions]
    assert {benchmark.corpus.get(question.evidence)[0].text for question in benchmark.questions} == {"Document 0."}
    assert 6 < sum(positions) / len(positions) < 13
    assert load_records(tmp_path, ORACLE, *records).fingerprint == benchmark.fingerprint
    as_given = load_records(tmp_path, ORACLE, *records, shuffle=False)
    assert {question.candidates.index(question.evidence[0]) for question in as_given.questions} == {0}


def test_retrieved_candidates_keep_the_order_of_their_ranks(tmp_path):
    benchmark = load_records(tmp_path, NORMAL, joint_record(pos_index=[]))
    texts = [passage.text for passage in benchmark.corpus.get(benchmark.questions[0].candidates)]
    assert texts == joint_record()["docs"]
    assert benchmark.extra["counts"] == {"questions_without_positives": 1}


@pytest.mark.parametrize(
    ("positions", "held", "absent"), [([3], 1, 0), (3, 1, 0), ([0, 25], 1, 1), ([-1], 0, 1), ([2, 2], 1, 0), (None, 0, 0)]
)
def test_positives_outside_the_row_stay_in_the_gold_and_are_counted(tmp_path, positions, held, absent):
    benchmark = load_records(tmp_path, ORACLE, joint_record(pos_index=positions))
    evidence = benchmark.questions[0].evidence
    assert sum(identifier in benchmark.corpus for identifier in evidence) == held
    assert len(evidence) == held + absent
    assert benchmark.extra["counts"].get("positives_absent", 0) == absent


def test_repeated_document_becomes_one_candidate_and_is_counted(tmp_path):
    benchmark = load_records(tmp_path, ORACLE, joint_record(docs=["A.", "B.", "A."], pos_index=[2]))
    (question,) = benchmark.questions
    assert len(question.candidates) == 2
    assert benchmark.corpus.get(question.evidence)[0].text == "A."
    assert benchmark.extra["counts"]["repeated_passages"] == 1


def test_every_published_subset_is_registered_with_its_split():
    entry = DATASETS.get("clara_stages")
    assert len(entry.subsets) == 2 + 3 * 4 * 2
    assert str(resolve("clara_stages/e2e_eval_2wiki_with_pos")[0]).endswith(":test")
    assert entry.card.splits_of("e2e_training_musique_no_pos") == {"train": 168745}
    with raises("unknown-split"):
        resolve("clara_stages/pretraining:test")


def test_skipping_a_row_does_not_change_the_ids_of_later_rows(tmp_path):
    broken = instruction_record(docs=[])
    whole = load_records(tmp_path, INSTRUCTION, instruction_record(), instruction_record(), instruction_record())
    holed = load_records(tmp_path, INSTRUCTION, instruction_record(), broken, instruction_record(), skip_bad=True)
    assert [question.id for question in holed.questions] == [whole.questions[0].id, whole.questions[2].id]
    assert [skip.where.split(", ", 1)[1] for skip in holed.skipped] == ["line 2, field docs"]


@pytest.mark.parametrize(
    ("reference", "record", "field"),
    [
        (PRETRAINING, pretraining_record(answers=["Ada"]), "answers"),
        (PRETRAINING, pretraining_record(question=[], answers=[]), "answers"),
        (PRETRAINING, pretraining_record(data_type="summary"), "data_type"),
        (PRETRAINING, pretraining_record(data_type=None), "data_type"),
        (PRETRAINING, pretraining_record(docs=["a", "b"]), "docs"),
        (PRETRAINING, pretraining_record(docs="a"), "docs"),
        (PRETRAINING, pretraining_record(answers=["Ada", " "]), "answers[1]"),
        (PRETRAINING, pretraining_record(question=["", "Where?"]), "question[0]"),
        (PRETRAINING, pretraining_record(data_type="paraphrase", answers=["one", "two"]), "answers"),
        (INSTRUCTION, instruction_record(docs=[7]), "docs[0]"),
        (INSTRUCTION, instruction_record(question=""), "question"),
        (INSTRUCTION, instruction_record(gold_answer="", answer=""), "answer"),
        (INSTRUCTION, instruction_record(gold_answer=[" "]), "gold_answer"),
        (INSTRUCTION, instruction_record(answer=7), "answer"),
        (ORACLE, joint_record(pos_index=["0"]), "pos_index[0]"),
        (ORACLE, joint_record(pos_index=[True]), "pos_index[0]"),
    ],
)
def test_faulty_field_is_reported(tmp_path, reference, record, field):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, reference, record)
    assert caught.value.where.endswith(f"line 1, field {field}")


def test_rows_of_another_stage_or_dataset_are_refused_with_skip_bad(tmp_path):
    with raises("row-of-pretraining"):
        load_records(tmp_path, INSTRUCTION, instruction_record(), pretraining_record(), skip_bad=True)
    hotpot = {"_id": "1", "question": "?", "answer": "!", "context": [], "supporting_facts": [], "level": "easy"}
    with raises("record-of-other-dataset"):
        load_records(tmp_path, ORACLE, joint_record(), hotpot, skip_bad=True)
