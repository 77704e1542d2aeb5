import io
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.io.records import is_parquet, rows
from benchmarks.records import read_records, records
from benchmarks.registry import SkippedRecord
from tests.support.errors import raises

ROWS = [
    {
        "id": i,
        "text": f"Zürich {i}" if i % 3 else None,
        "graph": [["a", "r", str(j)] for j in range(i % 4)],
        "context": {"title": [f"t{j}" for j in range(2)], "sentences": [["x", "y"], []]},
    }
    for i in range(1000)
]


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=300)
    return tmp_path / "rows.parquet"


def test_rows_are_ordered_dicts_with_row_numbers(path):
    results = list(records(path))
    assert [record.fields for record in results] == ROWS
    assert results[16].where == f"{path}, row 17"


@given(
    table=st.lists(
        st.fixed_dictionaries({"a": st.none() | st.text(max_size=4), "b": st.lists(st.integers(-9, 9), max_size=3)}),
        min_size=1,
        max_size=20,
    ),
    group=st.integers(1, 7),
)
def test_tables_round_trip_for_every_row_group_size(tmp_path_factory, table, group):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    pq.write_table(pa.Table.from_pylist(table, schema=schema), path, row_group_size=group)
    assert list(rows(path)) == table


def test_file_type_is_detected_from_content(path, tmp_path):
    disguised = tmp_path / "rows.jsonl"
    disguised.write_bytes(path.read_bytes())
    assert is_parquet(disguised)
    assert len(list(records(disguised))) == 1000
    (tmp_path / "lines.parquet").write_text('{"a": 1}\n')
    assert [record.fields for record in records(tmp_path / "lines.parquet")] == [{"a": 1}]


def test_archive_member_may_be_parquet(path, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.write(path, "rows.parquet")
    assert list(rows(tmp_path / "a.zip!rows.parquet")) == ROWS


def test_truncated_file_is_reported_by_path(path):
    path.write_bytes(path.read_bytes()[:-100])
    with raises("damaged-parquet") as caught:
        list(records(path))
    assert caught.value.where == str(path)


def test_bad_row_is_reported_and_can_be_skipped(path):
    skipped: list[SkippedRecord] = []
    texts = list(read_records(path, lambda record: record.text("text"), skip_bad=True, skipped=skipped))
    assert len(texts) == sum(row["text"] is not None for row in ROWS)
    assert skipped[0].where == f"{path}, row 1, field text"


@pytest.mark.slow
def test_rows_equal_the_rows_read_by_datasets(path, tmp_path):
    datasets = pytest.importorskip("datasets")
    read = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"), streaming=True)
    assert list(read) == list(rows(path))


def test_columns_encoded_by_datasets_are_decoded_with_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"id": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"]), "meta": datasets.Json()}
    )
    written = [{"id": "1", "label": 1, "meta": {"a": [1, "x"]}}, {"id": "2", "label": 0, "meta": None}]
    datasets.Dataset.from_list(written, features=features).to_parquet(tmp_path / "encoded.parquet")
    assert list(rows(tmp_path / "encoded.parquet")) == written


@pytest.mark.slow
def test_plain_columns_are_read_without_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"a": ["x"]}]).to_parquet(tmp_path / "plain.parquet")
    code = (
        "import sys; from pathlib import Path; from benchmarks.io.records import rows; "
        "print(list(rows(Path(sys.argv[1]))), 'datasets' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "plain.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[{'a': ['x']}] False"


def test_empty_table_has_no_records(tmp_path):
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), sink)
    (tmp_path / "none.parquet").write_bytes(sink.getvalue())
    with raises("no-record-in-file"):
        list(read_records(tmp_path / "none.parquet", lambda record: record, skip_bad=False, skipped=[]))
