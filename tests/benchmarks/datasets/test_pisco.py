import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.datasets import pisco
from benchmarks.datasets.clara import RowsConfig
from benchmarks.registry import load, resolve
from ragmeter.conformance import check_dataset
from tests.support.errors import raises


def native(number=0, **changes):
    docs = [f"Document {number}.{position}" for position in range(5)]
    return {"query": f"Who was number {number}?", "docs": docs, "mistral_label": f"It was Ada {number}."} | changes


def load_records(folder, *records, **options):
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load("pisco:train", {"path": str(path), **options})


def test_row_becomes_a_question_with_its_documents_in_order(tmp_path):
    rows = [native(number) for number in range(30)]
    benchmark = load_records(tmp_path, *rows)
    assert [(q.text, q.answers) for q in benchmark.questions] == [(r["query"], (r["mistral_label"],)) for r in rows]
    assert [[p.text for p in benchmark.corpus.get(q.candidates)] for q in benchmark.questions] == [row["docs"] for row in rows]
    assert benchmark.extra["counts"] == {"questions_without_positives": 30}


def test_rows_pass_the_dataset_checks(tmp_path):
    load_records(tmp_path, *map(native, range(30)))
    checks = check_dataset("pisco:train", {"path": str(tmp_path / "records.jsonl")})
    assert [check for check in checks if not check.passed] == []


def test_parquet_shards_are_read_in_order_with_separate_row_numbers(tmp_path):
    for shard in range(2):
        table = pa.Table.from_pylist([native(10 * shard + number) for number in range(3)])
        pq.write_table(table, tmp_path / f"train-{shard:05d}-of-00002.parquet")
    benchmark = load("pisco", {"path": str(tmp_path)})
    assert [question.text for question in benchmark.questions] == [f"Who was number {number}?" for number in (0, 1, 2, 10, 11, 12)]
    assert len({question.id for question in benchmark.questions}) == 6
    assert len(load("pisco", {"path": str(tmp_path), "first": 4}).questions) == 4


def test_streaming_reads_no_further_than_requested(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(native()) + "\n" + "this is not JSON\n")
    rows = pisco.read_rows(resolve("pisco")[0], RowsConfig(path=str(path)), [])
    row = next(rows)
    assert (row.pairs, row.docs) == ((("Who was number 0?", ("It was Ada 0.",)),), tuple(native()["docs"]))
    with raises("bad-record"):
        next(rows)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"query": " "}, "query"),
        ({"mistral_label": ""}, "mistral_label"),
        ({"mistral_label": ["a"]}, "mistral_label"),
        ({"docs": []}, "docs"),
        ({"docs": [None]}, "docs[0]"),
    ],
)
def test_faulty_field_is_reported_and_can_be_skipped(tmp_path, changes, field):
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, native(**changes))
    assert caught.value.where.endswith(f"line 1, field {field}")
    benchmark = load_records(tmp_path, native(**changes), native(1), skip_bad=True)
    assert len(benchmark.questions) == len(benchmark.skipped) == 1


def test_record_of_another_dataset_is_refused_even_with_skip_bad(tmp_path):
    with raises("record-of-other-dataset"):
        load_records(tmp_path, native(), {"input": "?", "context": "text", "all_classes": None}, skip_bad=True)
