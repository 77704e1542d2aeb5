"""Natural Questions from real samples and worlds, compared with independently computed counts and gold."""

import ast
import csv
import gzip
import json

import pytest

from benchmarks.core.errors import UserError
from benchmarks.datasets.nq import CARD
from benchmarks.registry import load
from benchmarks.settings import possible_settings
from benchmarks.text import em, f1, is_scorable_gold
from benchmarks.text import has_answer as holds_answer
from ragmeter.conformance import check_dataset
from tests.support.errors import raises
from tests.support.worlds_native import NQ_FORMATS, write_dump, write_native


def test_nq_open_equals_the_lines_of_the_file(data_folder):
    path = data_folder / "nq" / "NQ-open.dev.300.jsonl"
    records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load("nq/open:test", {"path": str(path)})
    assert len(benchmark.questions) == 300
    assert [q.text for q in benchmark.questions] == [r["question"] for r in records]
    assert [q.answers for q in benchmark.questions] == [tuple(dict.fromkeys(r["answer"])) for r in records]
    assert benchmark.extra["counts"]["questions_without_ids"] == 300
    assert "test" in " ".join(benchmark.extra["notes"])
    assert possible_settings(benchmark) == ("closed_book",)


def test_dpr_questions_are_what_csv_and_literal_eval_read(data_folder):
    path = data_folder / "nq" / "nq-dev.qa.300.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(question, ast.literal_eval(answers)) for question, answers in csv.reader(file, delimiter="\t")]
    questions = load("nq:dev", {"path": str(path)}).questions
    assert [(q.text, q.answers) for q in questions] == [(text, tuple(dict.fromkeys(a))) for text, a in rows]
    assert len(questions) == 300


def test_flagged_contexts_are_counted_as_in_the_file(data_folder):
    path = data_folder / "nq" / "nq-open-oracle.200.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    benchmark = load("nq:test", {"path": str(path)})
    assert len(benchmark.questions) == len(records) == 200
    assert len(benchmark.corpus) == len({(c["title"], c["text"]) for r in records for c in r["ctxs"]})
    for question, record in zip(benchmark.questions, records, strict=True):
        options = [(p.title, p.text) for p in benchmark.corpus.get(question.candidates)]
        assert options == [(c["title"], c["text"]) for c in record["ctxs"]]
        gold = [(p.title, p.text) for p in benchmark.corpus.get(question.evidence)]
        assert gold == [(c["title"], c["text"]) for c in record["ctxs"] if c["isgold"]]
        assert len(question.metadata["has_answer"]) == sum(c["hasanswer"] for c in record["ctxs"])
    assert {"distractor", "oracle", "closed_book", "corpus"} <= set(possible_settings(benchmark))


@pytest.mark.parametrize(
    ("reference", "name", "answers"),
    [
        ("nq/kilt:dev", "kilt_nq/nq-dev-kilt.jsonl", True),
        ("nq/kilt:train", "kilt_nq/nq-train-kilt.jsonl", True),
        ("nq/kilt:test", "kilt_nq/nq-test_without_answers-kilt.jsonl", False),
        ("nq/open:train", "nq_open/NQ-open.train.jsonl", True),
        ("nq/open:test", "nq_open/NQ-open.dev.jsonl", True),
    ],
)
def test_hub_dummy_files_load_completely(data_folder, reference, name, answers):
    path = data_folder / "hf_dummy" / name
    records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    questions = load(reference, {"path": str(path)}).questions
    assert [q.text for q in questions] == [r.get("question") or r["input"] for r in records]
    assert [bool(q.answers) for q in questions] == [answers] * len(records)
    for question, record in zip(questions, records, strict=True):
        if "kilt" in name:
            assert question.id == record["id"]
            options = [o["answer"] for o in record.get("output", []) if "answer" in o]
            assert question.answers == tuple(dict.fromkeys(options))


def test_answer_that_normalizes_to_nothing_is_accepted_next_to_a_scorable_one(tmp_path):
    path = tmp_path / "NQ-open.dev.jsonl"
    path.write_text('{"question": "which grade", "answer": ["A+", "A plus"]}\n{"question": "how many", "answer": ["---"]}\n')
    assert [check for check in check_dataset("nq/open:test", {"path": str(path)}) if "maximum" in check.name and not check.passed] == []


def test_gold_predictions_reach_the_maximum_on_every_scorable_question(data_folder):
    samples = {"NQ-open.dev.300.jsonl": "nq:test", "nq-dev.qa.300.csv": "nq:dev", "nq-open-oracle.200.jsonl.gz": "nq:test"}
    unscorable = []
    for name, reference in samples.items():
        for question in load(reference, {"path": str(data_folder / "nq" / name)}).questions:
            if not any(map(is_scorable_gold, question.golds)):
                unscorable.append((name, question.text, question.answers))
                continue
            for answer in filter(is_scorable_gold, question.answers):
                assert em(answer, question.golds) == f1(answer, question.golds) == 1.0
    assert unscorable == [
        ("NQ-open.dev.300.jsonl", "how many breeds of pigs are there in the uk", ("---",)),
        ("nq-dev.qa.300.csv", "how many episodes in the itv series girlfriends", ("(",)),
    ]


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("nq:dev").questions) == 300
    assert load("nq:dev").extra["layout"] == "csv"
    # As split test, NQ-open's dev file is found in both subsets.
    assert len(load("nq:test").questions) == len(load("nq/open:test").questions) == 300


def test_nq_open_dev_file_is_refused_as_split_dev(data_folder):
    with raises("file-name-mismatch"):
        load("nq:dev", {"path": str(data_folder / "nq" / "NQ-open.dev.300.jsonl")})


def test_other_kilt_task_is_refused(data_folder):
    path = data_folder / "hf_dummy" / "kilt_hotpotqa" / "hotpotqa-dev-kilt.jsonl"
    with raises("not-kilt-id"):
        load("nq/kilt:dev", {"path": str(path), "skip_bad": True})


def test_card_counts_equal_the_published_counts():
    assert CARD.splits_of("dpr") == {"train": 79168, "dev": 8757, "test": 3610}
    assert CARD.splits_of("open")["train"] == CARD.splits["train"] + CARD.splits["dev"]
    for text in ("3,610", "6,489", "21,015,324"):
        assert text in CARD.notes


@pytest.fixture(scope="module")
def world():
    return load("worlds/multihop:test")


@pytest.mark.parametrize("form", NQ_FORMATS)
def test_world_in_every_layout_loads_with_the_same_gold(world, tmp_path, form):
    written = write_native(world, form, tmp_path / "records")
    truths = {question.id: question for question in world.questions}
    reference = "nq/kilt:test" if form == "nq_kilt" else "nq:test"
    benchmark = load(reference, {"path": str(tmp_path / "records")})
    assert benchmark.extra["layout"] == form.removeprefix("nq_")
    assert len(benchmark.questions) == len(written) == 170
    for identifier, question in zip(written, benchmark.questions, strict=True):
        truth = truths[identifier]
        assert (question.text, question.answers) == (truth.text, truth.golds)
        if form in ("nq_reader", "nq_contexts"):
            assert set(question.evidence) == set(truth.evidence)
            assert set(question.candidates) == set(truth.candidates)
        if form == "nq_contexts":
            assert question.candidates == truth.candidates
            texts = {candidate: world.corpus.get([candidate])[0].text for candidate in truth.candidates}
            assert question.metadata.get("has_answer", ()) == tuple(
                candidate for candidate in truth.candidates if holds_answer(texts[candidate], truth.golds)
            )
    if form == "nq_contexts":
        for passage in benchmark.corpus:
            (original,) = world.corpus.get([passage.id])
            assert (passage.title, passage.text) == (original.title, original.text)


def test_dump_of_a_world_equals_its_corpus_and_matches_the_positives(world, tmp_path):
    write_dump(world.corpus, tmp_path / "psgs_w100.tsv")
    write_native(world, "nq_reader", tmp_path / "records")
    benchmark = load("nq:test", {"path": str(tmp_path / "records"), "corpus": str(tmp_path / "psgs_w100.tsv")})
    assert [(p.id, p.title, p.text) for p in benchmark.corpus] == [(p.id, p.title, p.text) for p in world.corpus]
    assert all(set(q.evidence) <= set(benchmark.corpus.ids) for q in benchmark.questions)
    assert "positives_absent" not in benchmark.extra["counts"]
    assert {q.candidates for q in benchmark.questions} == {None}
    assert {"corpus", "oracle", "closed_book"} <= set(possible_settings(benchmark))


def test_unsupported_native_export_is_refused(world, tmp_path):
    with raises("unknown-native-format"):
        write_native(world, "nq_opne", tmp_path / "records")
    write_native(world, "nq_open", tmp_path / "records")
    with pytest.raises(UserError, match="in the way"):
        write_native(world, "nq_open", tmp_path / "records")
    with pytest.raises(UserError, match="has no questions that"):
        write_native(load("nq:test", {"path": str(tmp_path / "records")}), "nq_open", tmp_path / "more")
