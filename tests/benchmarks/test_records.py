import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.records import BadRecord, Record, looks_like, read_records, refuse_other_dataset
from tests.support.errors import raises

MEASURE = """
import resource, sys
from pathlib import Path
from benchmarks.records import records
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(1 for _ in records(Path(sys.argv[1])))
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def record(**fields):
    return Record(fields, Path("file.json"), "line 4")


def read_all(path, skip_bad=False, skipped=None):
    result = [] if skipped is None else skipped
    return list(read_records(path, lambda r: r.text("a"), skip_bad=skip_bad, skipped=result))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda r: r.text("none"), "bad-record"),
        (lambda r: r.text("null"), "bad-record"),
        (lambda r: r.text("number"), "bad-record"),
        (lambda r: r.field("true", int), "bad-record"),
        (lambda r: r.texts("list"), "bad-record"),
        (lambda r: r.texts("number"), "bad-record"),
        (lambda r: r.answers("number"), "bad-record"),
        (lambda r: r.answers("none"), "bad-record"),
        (lambda r: r.answers("list"), "bad-record"),
    ],
)
def test_faulty_field_error_names_file_line_field_and_type(call, says):
    with raises(says) as caught:
        call(record(number=1, null=None, true=True, list=["a", 1]))
    assert "file.json, line 4, field" in caught.value.where


def test_missing_or_null_field_uses_its_default_and_a_wrong_type_is_refused():
    fields = record(null=None, number=1)
    assert fields.text("none", "") == fields.text("null", "") == ""
    assert fields.texts("none", ()) == ()
    with pytest.raises(BadRecord):
        fields.text("number", "")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Paris", ("Paris",)),
        (["Paris", "Lutetia", "Paris"], ("Paris", "Lutetia", "Paris")),
        ('["Paris", "Lutetia"]', ("Paris", "Lutetia")),
        ("[sic] Paris", ("[sic] Paris",)),
    ],
)
def test_answers_may_be_a_string_a_list_or_an_encoded_list(written, read):
    assert record(answer=written).answers("answer") == read


def test_bad_records_stop_the_reading_or_are_counted(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"a": "0"}\n{"a": 1}\n\n7\n{"a": "caf\xe9"}\n{"a": "5"}\n{"a": "6')
    with raises("bad-record"):
        read_all(path)
    skipped = []
    assert read_all(path, True, skipped) == ["0", "5"]
    assert [(skip.where, skip.reason.split(";")[0]) for skip in skipped] == [
        (f"{path}, line 2, field a", "field 'a' is an integer"),
        (f"{path}, line 3", "the line is empty"),
        (f"{path}, line 4", "a record must be an object, not an integer"),
        (f"{path}, line 5, column 11", "byte 0xe9 is not UTF-8"),
        (
            f"{path}, line 7, column 7",
            "this is not JSON: Unterminated string starting at (it is the last line and ends without a line break: cut off?)",
        ),
    ]


def test_array_errors_name_the_record_and_a_truncated_end_can_be_skipped(tmp_path):
    path = tmp_path / "f.json.gz"
    path.write_bytes(gzip.compress(b'[{"a": "0"}, {"b": 1}, {"a": "2"}, {"a": "3'))
    skipped = []
    assert read_all(path, True, skipped) == ["0", "2"]
    assert [skip.where.split(", ", 1)[1] for skip in skipped] == ["line 1, record 2, field a", "line 1, column 42, record 4"]


@pytest.mark.parametrize("content", ["[]", '{"b": 1}\n', "nonsense\n"])
def test_file_without_any_valid_record_is_an_error_even_with_skip_bad(tmp_path, content):
    path = tmp_path / "f"
    path.write_text(content)
    with raises("no-record-in-file"):
        read_all(path, True)


def test_dataset_is_detected_from_real_records(data_folder):
    hotpot = json.loads((data_folder / "hotpotqa" / "hotpot_distractor_train50.json").read_text())
    wiki = json.loads((data_folder / "2wikimultihopqa" / "2wiki_dev40.json").read_text())
    musique = (data_folder / "musique" / "musique_ans_v1.0_train50.jsonl").read_text().splitlines()
    longbench = next((data_folder / "longbench").glob("*.jsonl")).read_text().splitlines()
    assert {looks_like(fields) for fields in hotpot} == {"hotpotqa"}
    assert {looks_like(fields) for fields in wiki} == {"2wikimultihopqa"}
    assert {looks_like(json.loads(line)) for line in musique} == {"musique"}
    assert {looks_like(json.loads(line)) for line in longbench} == {"longbench"}


def test_ambiguous_record_is_accepted_and_record_of_another_dataset_refused():
    refuse_other_dataset(record(_id="1", question="?", context=[]), "hotpotqa")
    with raises("record-of-other-dataset") as caught:
        refuse_other_dataset(record(question="?", paragraphs=[]), "hotpotqa")
    assert not isinstance(caught.value, BadRecord)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["lines", "array", "zip", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, layout):
    rows = [{"id": str(i), "text": f"{i} " * 20_000} for i in range(800)]
    path = tmp_path / "big"
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50, compression="NONE", use_dictionary=False)
    else:
        text = json.dumps(rows) if layout == "array" else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text)
    assert path.stat().st_size > 60e6
    if layout == "zip":
        with zipfile.ZipFile(tmp_path / "big.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.write(path, "big")
        path = tmp_path / "big.zip!big"
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    count, grown = map(int, done.stdout.split())
    assert count == 800
    assert grown < 40


def test_shards_are_read_in_order_and_empty_shards_refused(tmp_path):
    paths = [tmp_path / f"{i}.jsonl" for i in range(2)]
    for i, path in enumerate(paths):
        path.write_text(f'{{"a": "{i}"}}\n')
    assert list(read_records(paths, lambda r: r.text("a"), skip_bad=False, skipped=[])) == ["0", "1"]
    paths[1].write_text("[]")
    with raises("no-record-in-file") as caught:
        list(read_records(paths, lambda r: r.text("a"), skip_bad=False, skipped=[]))
    assert caught.value.where == str(paths[1])
