"""Dataset verification: faults are found, counted and colored; real samples are green."""

from dataclasses import replace

import pytest

from benchmarks import verify
from benchmarks.corpus import Corpus
from benchmarks.registry import SkippedRecord, load
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.verify import GREEN, NOTE, RED, YELLOW, Finding, against_repository, reported_size
from ragmeter.conformance import check_benchmark, check_settings
from tests.support.errors import raises

SAMPLES = {
    "hotpotqa/hotpot_distractor_train50.json": "hotpotqa:train",
    "hotpotqa/hf_rows_20.json": "hotpotqa:train",
    "2wikimultihopqa/2wiki_dev40.json": "2wikimultihopqa:dev",
    "musique/musique_ans_v1.0_train50.jsonl": "musique:train",
    "nq/NQ-open.dev.300.jsonl": "nq/open:test",
    "nq/nq-dev.qa.300.csv": "nq:dev",
    "nq/nq-open-oracle.200.jsonl.gz": "nq:test",
    "longbench/narrativeqa.jsonl": "longbench/narrativeqa",
    "longbench/qasper.jsonl": "longbench/qasper",
    "longbench/multifieldqa_en.jsonl": "longbench/multifieldqa_en",
    "longbench/hotpotqa.jsonl": "longbench/hotpotqa",
    "longbench/2wikimqa.jsonl": "longbench/2wikimqa",
    "longbench/musique.jsonl": "longbench/musique",
    "ultradomain/mix.jsonl": "ultradomain/mix",
    "ultradomain/mix_query.jsonl": "ultradomain/mix-queries",
    "webqsp/rog_style_webqsp.jsonl": "webqsp:test",
    "webqsp/WebQSP.test.json": "webqsp:test",
    "webqsp/tog_webqsp.json": "webqsp:test",
    "cwq/rog_style_cwq.jsonl": "cwq:test",
    "cwq/rog_style_cwq_full_subgraph_4.jsonl": "cwq:test",
    "cwq/tog_cwq.json": "cwq_tog:test",
    "cwq/nsm/train_simple.json": "cwq:train",
    "clara/pretrain_data.100.jsonl": "clara_stages/pretraining:train",
    "sark_style/bible_genesis.jsonl": "parallel_style/bible",
    "sark_style/sark_sample.json": "sark:train",
    "hf_dummy/kilt_nq/nq-train-kilt.jsonl": "nq/kilt:train",
    "hf_dummy/kilt_nq/nq-dev-kilt.jsonl": "nq/kilt:dev",
    "hf_dummy/kilt_nq/nq-test_without_answers-kilt.jsonl": "nq/kilt:test",
    "hf_dummy/nq_open/NQ-open.train.jsonl": "nq/open:train",
    "hf_dummy/nq_open/NQ-open.dev.jsonl": "nq/open:test",
}


@pytest.fixture(scope="module")
def world():
    return load("worlds/multihop:test", {"questions": 40})


def variant_of(benchmark, *questions, **changes):
    """Return a benchmark with other questions, as if read from a file."""
    card = benchmark.card.model_copy(update={"hub_id": "owner/set", "splits": {"test": changes.pop("size", None)}})
    return replace(benchmark, card=card, questions=list(questions) or benchmark.questions, **changes)


def named(findings, name):
    return next(finding for finding in findings if finding.name.startswith(name))


def test_generated_worlds_verify_green(world):
    findings = verify.examine(world)
    assert verify.color(findings) == GREEN
    assert {finding.status for finding in findings} == {GREEN}


def test_worst_finding_determines_the_color():
    def found(*statuses):
        return verify.color(Finding("x", status) for status in statuses)

    assert [found(), found(GREEN, NOTE), found(NOTE, YELLOW), found(YELLOW, RED, GREEN)] == [GREEN, GREEN, YELLOW, RED]


@pytest.mark.parametrize(
    ("size", "partial", "status"),
    [(40, False, GREEN), (41, False, RED), (41, True, NOTE), (39, False, RED), (39, True, RED), (None, False, NOTE)],
)
def test_missing_questions_are_only_a_note_if_declared_partial(world, size, partial, status):
    assert verify.size(variant_of(world, size=size), partial=partial).status == status


def test_skipped_records_count_toward_the_size_and_are_yellow(world):
    benchmark = variant_of(world, size=41, skipped=(SkippedRecord("f, line 3", "not JSON"),))
    assert verify.size(benchmark, partial=False).status == GREEN
    finding = verify.skipped(benchmark)
    assert (finding.status, finding.examples) == (YELLOW, ("f, line 3: not JSON",))


def test_size_of_the_file_layout_overrides_the_card(world):
    assert verify.size(variant_of(world, size=99, extra={"expected": 40}), partial=False).status == GREEN


def test_duplicate_id_is_red():
    again = [Question("a", "x", ("y",)), Question("b", "z", ("y",)), Question("a", "w", ("y",))]
    finding = verify.unique_ids(again)
    assert (finding.status, finding.examples) == (RED, ("a",))


def test_question_repeated_over_the_same_passages_is_reported():
    first = Question("1", "Who wrote Emma?", ("x",), candidates=("p1", "p2"))
    same = replace(first, id="2", text="who wrote EMMA")
    twin = replace(first, id="3", candidates=("p1", "p3"))
    elsewhere = replace(first, id="4", candidates=None, document_id="d")
    assert verify.repeated([first, same, twin, elsewhere]).examples == ("2",)


def test_anomaly_in_up_to_one_of_twenty_questions_is_a_note_and_beyond_yellow():
    plain = [Question(str(number), f"question {number}", ("Rome",)) for number in range(20)]
    item = [replace(plain[0], answers=("The",)), *plain[1:]]
    two = [*item[:-1], replace(plain[-1], answers=("a", "Rome"))]
    assert verify.empty_golds(plain).status == GREEN
    assert verify.empty_golds(item).status == NOTE
    finding = verify.empty_golds(two)
    assert (finding.status, finding.examples) == (YELLOW, ("0", "19"))
    assert finding.detail.startswith("2 of 20")
    assert "1 have no other" in finding.detail


def test_split_without_golds_is_yellow_unless_rankings_can_be_scored():
    known, hidden = Question("1", "x", ("y",)), Question("2", "z", ())
    assert verify.missing_golds([known, hidden]).status == YELLOW
    assert verify.missing_golds([hidden]).status == YELLOW
    assert verify.missing_golds([replace(hidden, evidence=("p",))]).status == NOTE
    assert verify.missing_golds([known, replace(hidden, answerable=False)]).status == GREEN


def test_questions_with_gold_missing_from_the_corpus_are_counted(world):
    passage = Passage(passage_id("t", "x"), "t", "x")
    held, absent = Question("1", "x", ("y",), evidence=(passage.id,)), Question("2", "y", ("z",), evidence=("pno",))
    benchmark = variant_of(world, held, absent, corpus=Corpus.of([passage]))
    finding = verify.absent_evidence(benchmark)
    assert (finding.status, finding.examples) == (YELLOW, ("2",))
    assert verify.absent_evidence(variant_of(world, replace(held, evidence=()))).status == NOTE


def test_near_duplicates_across_splits_are_counted_per_question_of_the_second(world):
    texts = [f"Where was the director of {name} born?" for name in ("Quibble Hall", "Zanzibar Star", "Oak Manor")]
    first = variant_of(world, *(Question(f"a{n}", text, ("x",)) for n, text in enumerate(texts)))
    second = variant_of(world, Question("b", texts[1].lower(), ("x",)), Question("c", "Something else entirely", ("x",)))
    finding = verify.between(first, second)
    assert finding.status == YELLOW
    assert finding.detail == "1 of 2 are"
    assert finding.examples == ("a1 ~ b (1.00)",)


def test_recorded_files_are_recognized_and_a_changed_file_is_red(world, tmp_path):
    path = tmp_path / "f.json"
    path.write_text("1")
    known = verify.record(world, [path])
    records = tmp_path / "records.json"
    verify.write_records(records, {"a": known})
    verify.write_records(records, {"b": known})
    assert verify.read_records(records) == {"a": known, "b": known}
    assert verify.against_record(known, verify.read_records(records)["a"]).status == GREEN
    path.write_text("2")
    finding = verify.against_record(verify.record(world, [path]), known)
    assert finding.status == RED
    assert "f.json" in finding.detail
    assert known.files["f.json"] in finding.detail
    fewer = verify.record(world.limited(5), [])
    assert "f.json: it is nothing" in verify.against_record(fewer, known).detail
    assert "questions" in verify.against_record(replace(fewer, files=known.files), known).detail
    assert verify.against_record(known, None).status == YELLOW


def test_file_without_a_record_is_an_error(tmp_path):
    path = tmp_path / "records.json"
    for text in ("{", "[]", '{"a": {"x": 1}}'):
        path.write_text(text)
        with raises("not-hash-file"):
            verify.read_records(path)
    with raises("unreadable-file"):
        verify.read_records(tmp_path / "none.json")


@pytest.mark.parametrize("name", SAMPLES)
def test_real_sample_is_green_unless_gold_is_hidden(name, data_folder):
    path = data_folder / name
    if not path.exists():
        pytest.skip(f"the sample {name} is not there")
    benchmark = load(SAMPLES[name], {"path": str(path)})
    findings = verify.examine(benchmark, partial=True)
    hidden = {"questions have gold answers"} if not any(q.golds or q.evidence for q in benchmark.questions) else set()
    assert {finding.name for finding in findings if finding.status in (YELLOW, RED)} == hidden
    assert [check for check in check_benchmark(benchmark) if not check.passed] == []
    assert any(check.passed for check in check_settings(benchmark))


TWO = {"a": {"train": 1}, "b": {"train": 2}}


@pytest.mark.parametrize(
    ("sizes", "files", "name"),
    [
        ({"distractor": {"train": 1, "dev": 2}}, ["distractor/dev-00000-of-00001.parquet"], "distractor/dev"),
        (TWO, ["b/train-00000-of-00002.parquet", "b/train-00001-of-00002.parquet"], "b/train"),
        (TWO, ["b/train/0000.parquet", "b/train/0001.parquet"], "b/train"),
        ({"default": {"test": 3}}, ["data/test-00000-of-00001.parquet"], "default/test"),
        ({"only": {"test": 3, "dev": 4}}, ["dev.jsonl"], "only/dev"),
        ({"default": {"test": 3}, "other": {"test": 5}}, ["data/test-00000.parquet"], "default/test"),
        (TWO, ["data/train-00000-of-00001.parquet"], None),
        ({"a": {"train": 1}}, ["set_train_v1.jsonl"], None),
        ({"a": {"train": 1, "dev": 2}}, ["a/train.jsonl", "a/dev.jsonl"], None),
        ({"a": {"train": 1}}, [], None),
        ({}, ["a/train.jsonl"], None),
    ],
)
def test_declared_size_is_matched_by_unambiguous_file_names(sizes, files, name):
    result = reported_size(sizes, files)
    assert (result and result[0]) == name
    if result:
        config, split = name.split("/")
        assert result[1] == sizes[config][split]


def test_split_from_disk_has_no_declared_repository_size(world):
    assert against_repository(world, partial=False) is None
