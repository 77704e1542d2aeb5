import json
import zipfile
from string import Template

import pytest

from benchmarks import settings
from benchmarks.core.errors import UserError
from benchmarks.datasets import longbench
from benchmarks.datasets.long_document import document_text
from benchmarks.datasets.longbench import CLASS, NUMBER, SIZES, set_of
from benchmarks.published_prompts import registry
from benchmarks.registry import DATASETS, load
from methods.api import Reading
from methods.prompts import parse
from ragmeter.conformance import check_benchmark, check_dataset, check_settings
from tests.support.errors import raises
from tests.support.worlds_native import write_native

SAMPLES = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")


def native(identifier="1", **changes):
    return {
        "input": "Where was Ada born?",
        "context": "Ada wrote Quill.\n\nAda was born in Zoll. ",
        "answers": ["Zoll", "the city of Zoll"],
        "length": 8,
        "dataset": "qasper",
        "language": "en",
        "all_classes": None,
        "_id": identifier,
    } | changes


def of_set(subset, identifier="1"):
    """Return a record of any subset."""
    classes = ["Zoll", "Venn"] if set_of(subset).metric == CLASS else None
    question, answers = (
        "" if set_of(subset).task else "Where was Ada born?",
        ["Paragraph 7"] if set_of(subset).metric == NUMBER else ["Zoll"],
    )
    return native(identifier, dataset=subset, all_classes=classes, input=question, answers=answers)


def load_records(folder, *records, reference="longbench/qasper", **options):
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load(reference, {"path": str(path), **options})


@pytest.mark.parametrize("name", SAMPLES)
def test_every_real_sample_has_the_counts_and_texts_of_the_file(data_folder, name):
    path = data_folder / "longbench" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    benchmark = load(f"longbench/{name}", {"path": str(path)})
    assert [(q.id, q.text, list(q.answers)) for q in benchmark.questions] == [(row["_id"], row["input"], row["answers"]) for row in rows]
    assert [q.metadata["length"] for q in benchmark.questions] == [row["length"] for row in rows]
    assert len(benchmark.corpus.by_document) == len({row["context"] for row in rows})
    for question, row in zip(benchmark.questions, rows, strict=True):
        ids = benchmark.corpus.by_document[question.document_id]
        assert document_text(benchmark.corpus.get(ids)) == row["context"]
        assert len(ids) == -(-len(row["context"].split()) // 512)
    assert benchmark.extra["counts"] == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_gold_predictions_reach_the_maximum_on_every_real_sample(data_folder, name):
    checks = check_dataset(f"longbench/{name}", {"path": str(data_folder / "longbench" / f"{name}.jsonl")})
    assert [check for check in checks if not check.passed] == []
    assert any("maximum of f1(" in check.name and "rules=longbench" in check.name for check in checks)


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("longbench/qasper").questions) == 3
    assert len(load("longbench/2wikimqa:test").questions) == 3


def test_files_are_read_from_the_hub_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data/qasper.jsonl", json.dumps(native("1")) + "\n")
        archive.writestr("data/qasper_e.jsonl", json.dumps(native("2", dataset="qasper_e")) + "\n")
    for subset, identifier in (("qasper", "1"), ("qasper_e", "2")):
        for path in (tmp_path, tmp_path / "data.zip"):
            assert [q.id for q in load(f"longbench/{subset}", {"path": str(path)}).questions] == [identifier]


def test_question_refers_to_its_own_document(tmp_path):
    records = [native("1"), native("2", input="Who wrote Quill?", answers=["Ada"]), native("3", context="Other text.")]
    benchmark = load_records(tmp_path, *records, chunk_words=3)
    first, second, third = benchmark.questions
    assert first.document_id == second.document_id != third.document_id
    query = settings.apply("document", benchmark, seed=0)
    assert ["".join(p.text for p in query.corpus.get(q.candidates)) for q in query.questions] == [record["context"] for record in records]
    assert settings.possible_settings(benchmark) == ("corpus", "document", "closed_book")


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["Yes"], "yes_no"),
        (["no.", "No"], "yes_no"),
        (["Unanswerable"], "unanswerable"),
        (["yes", "Zoll"], ""),
        (["unanswerable", "no"], ""),
    ],
)
def test_question_type_distinguishes_yes_no_and_unanswerable(tmp_path, answers, kind):
    (question,) = load_records(tmp_path, native(answers=answers)).questions
    assert question.type == kind
    assert question.answerable


@pytest.mark.parametrize(
    ("answers", "golds"),
    [
        ("Zoll", ("Zoll",)),
        ('["Zoll", "Zollburg"]', ("Zoll", "Zollburg")),
        (["Zoll", "Zoll"], ("Zoll",)),
        ("[citation needed", ("[citation needed",)),
    ],
)
def test_answers_are_read_from_a_string_a_list_or_an_encoded_list(tmp_path, answers, golds):
    (question,) = load_records(tmp_path, native(answers=answers)).questions
    assert question.golds == golds


def test_questions_without_gold_load_and_are_counted(tmp_path):
    records = [native("1", answers=[]), native("2", answers=["", " "]), native("3", answers=["", "Zoll"])]
    benchmark = load_records(tmp_path, *records)
    assert [question.answers for question in benchmark.questions] == [(), (), ("Zoll",)]
    assert benchmark.extra["counts"] == {"questions_without_gold": 2, "blank_answers": 1}
    assert "cannot be scored" in benchmark.extra["notes"][0]


def test_answers_that_normalize_to_nothing_are_counted(tmp_path):
    benchmark = load_records(tmp_path, native(answers=["The", "..."]))
    assert benchmark.extra["counts"] == {"questions_with_empty_normal_form": 1}


@pytest.mark.slow
@pytest.mark.parametrize("subset", SIZES)
def test_every_subset_uses_the_prompt_and_limits_of_its_authors(tmp_path, subset):
    a_set, record = set_of(subset), of_set(subset)
    benchmark = load_records(tmp_path, record, reference=f"longbench/{subset}")
    (question,), reading = benchmark.questions, Reading(**benchmark.extra["reading"])
    assert question.text == (a_set.task or record["input"])
    assert (reading.max_new_tokens, reading.truncation) == (a_set.max_new_tokens, "middle")
    assert reading.chat == (subset.removesuffix("_e") not in ("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"))
    _, prompt = parse(reading.prompt, subset).pair(question="Who?", passages="Ada wrote Quill.")
    # Every set's prompt has the document once, and what is asked behind it, or the task before it again or alone (lcc).
    assert prompt.count("Ada wrote Quill.") == 1
    assert prompt.rindex("Who?") > prompt.index("Ada wrote Quill.") or subset.startswith(("lcc", "vcsum", "passage_count"))
    assert benchmark.card.languages_of(subset) == (a_set.language,)
    assert all(check.passed for check in (*check_benchmark(benchmark), *check_settings(benchmark)))


def test_whole_context_tasks_have_one_passage_and_one_setting(tmp_path):
    context = "  def f(x):\n    return x\n" * 900
    record = of_set("lcc") | {"context": context}
    benchmark = load_records(tmp_path, record, reference="longbench/lcc")
    query = settings.apply("document", benchmark, seed=0)
    assert [p.text for p in query.corpus.get(query.questions[0].candidates)] == [context]
    for setting in ("corpus", "closed_book", "corpus(retriever=bm25,n=5)"):
        with raises("setting-not-supported") as caught:
            settings.apply(setting, benchmark, seed=0)
        assert caught.value.try_this == "one of: document"
    with raises("context-not-cut"):
        load_records(tmp_path, record, reference="longbench/lcc", chunk_words=100)


def test_fingerprint_includes_the_classes(tmp_path):
    first = load_records(tmp_path, of_set("trec"), reference="longbench/trec").fingerprint
    assert load_records(tmp_path, of_set("trec") | {"all_classes": ["Zoll"]}, reference="longbench/trec").fingerprint != first
    with raises("bad-record"):
        load_records(tmp_path, of_set("trec") | {"all_classes": None}, reference="longbench/trec")


def test_chinese_is_split_after_sentences_without_overlap(tmp_path, data_folder):
    path = data_folder / "longbench" / "multifieldqa_zh.jsonl"
    benchmark = load("longbench/multifieldqa_zh", {"path": str(path)})
    lengths = []
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        ids = next(ids for ids in benchmark.corpus.by_document.values() if document_text(benchmark.corpus.get(ids)) == row["context"])
        assert len(ids) >= len(row["context"]) // 600
        lengths += [len("".join(passage.text.split())) for passage in benchmark.corpus.get(ids)]
    assert max(lengths) <= 512
    with raises("overlap-in-chinese"):
        load("longbench/multifieldqa_zh", {"path": str(path), "chunk_overlap": 12})


def test_card_has_the_size_of_every_subset():
    card = DATASETS.get("longbench").card
    assert {subset: card.splits_of(subset) for subset in DATASETS.get("longbench").subsets} == {
        subset: {"test": size} for subset, size in SIZES.items()
    }


def test_variant_accepts_plain_subset_records_but_not_the_reverse(tmp_path):
    assert load_records(tmp_path, native(), reference="longbench/qasper_e").questions
    with raises("record-of-other-subset") as caught:
        load_records(tmp_path, native(dataset="qasper_e"), skip_bad=True)
    assert "longbench/qasper_e:test" in caught.value.try_this
    assert caught.value.where.endswith("line 1, field dataset")


@pytest.mark.parametrize(
    ("changes", "looks"),
    [
        ({"dataset": "musique"}, "record-of-other-subset"),
        ({"label": "longbench"}, "record-of-other-subset"),
        ({"context_id": "c"}, "record-of-other-dataset"),
    ],
)
def test_record_of_another_subset_is_refused_even_with_skip_bad(tmp_path, changes, looks):
    with raises(looks):
        load_records(tmp_path, native("1"), native("2", **changes), skip_bad=True)


def test_file_of_another_subset_is_refused_by_its_name(tmp_path):
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(native(dataset="hotpotqa")) + "\n")
    with raises("file-name-mismatch"):
        load("longbench/qasper", {"path": str(tmp_path / "hotpotqa.jsonl")})


def test_duplicate_id_error_names_both_positions(tmp_path):
    with raises("duplicate-question") as caught:
        load_records(tmp_path, native("1"), native("2"), native("1"), skip_bad=True)
    assert "line 1 and " in caught.value.where
    assert caught.value.where.endswith("line 3")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"input": " "}, "input"),
        ({"input": 7}, "input"),
        ({"context": "\n"}, "context"),
        ({"context": None}, "context"),
        ({"answers": 7}, "answers"),
        ({"answers": [7]}, "answers[0]"),
        ({"answers": None}, "answers"),
        ({"_id": None}, "_id"),
        ({"dataset": None}, "dataset"),
    ],
)
def test_faulty_field_is_reported_and_can_be_skipped(tmp_path, changes, field):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, native("2", **changes))
    assert caught.value.where.endswith(f"line 1, field {field}")
    benchmark = load_records(tmp_path, native("2", **changes), native("1"), skip_bad=True)
    assert [question.id for question in benchmark.questions] == ["1"]
    assert benchmark.skipped[0].where.endswith(f"line 1, field {field}")


def test_world_in_the_native_format_loads_with_the_same_gold(tmp_path):
    world = load("worlds/long:test", {"questions": 40})
    path = tmp_path / "records.jsonl"
    written = write_native(world, "longbench", path)
    benchmark = load("longbench/multifieldqa_en", {"path": str(path)})
    truth = {question.id: question for question in world.questions}
    assert [question.id for question in benchmark.questions] == list(written)
    assert len(written) == sum(q.answerable and len(q.answers) == 1 for q in world.questions)
    assert len(benchmark.corpus.by_document) == len(world.corpus.by_document)
    for question in benchmark.questions:
        known = truth[question.id]
        assert (question.text, question.golds) == (known.text, known.golds)
        words = document_text(benchmark.corpus.get(benchmark.corpus.by_document[question.document_id])).split()
        chunks = world.corpus.get(world.corpus.by_document[known.document_id])
        assert words == " ".join(chunk.text for chunk in chunks).split()


def test_only_document_worlds_can_be_written(tmp_path):
    with pytest.raises(UserError, match="no questions that longbench can express"):
        write_native(load("worlds/multihop:test", {"questions": 10}), "longbench", tmp_path / "records.jsonl")


def test_published_prompts_require_the_unchanged_published_file(tmp_path, monkeypatch, data_folder):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    ours = longbench.reading("qasper", None)
    assert ours == longbench.reading("qasper", "ours")
    with raises("published-prompt-missing"):
        longbench.reading("qasper", "published")
    local = registry()["longbench"].local
    source = data_folder / "prompts" / local
    if not source.is_file():
        pytest.skip("the published prompts are not here")
    prompts = json.loads(source.read_text())
    path = tmp_path / "prompts" / local
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(prompts))
    for subset, a_set in longbench.SETS.items():
        text = longbench.reading(subset, None)["prompt"]
        if "{input}" in prompts[subset]:
            filled = Template(text).substitute(passages="TEXT $x {y}", question="WHY?")
            assert filled == prompts[subset].format(context="TEXT $x {y}", input="WHY?")
        else:
            assert text == a_set.prompt
    with pytest.raises(UserError, match="contains its own question"):
        longbench.reading("gov_report", "published")
    path.write_text(json.dumps({**prompts, "qasper": "Other {context} {input}"}))
    with raises("missing-prompt"):
        longbench.reading("qasper", None)


def test_length_balanced_subsets_group_questions_by_length(tmp_path):
    rows = [row | {"_id": str(length), "length": length} for row in [native()] for length in (0, 3999, 4000, 7999, 8000)]
    (tmp_path / "qasper_e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions = load("longbench/qasper_e:test", {"path": str(tmp_path / "qasper_e.jsonl")}).questions
    assert [question.type for question in questions] == ["0-4k", "0-4k", "4-8k", "4-8k", "8k+"]
