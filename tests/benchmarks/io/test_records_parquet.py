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
from benchmarks.registry import SkippedRecord
from benchmarks.sources import read_records, records
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


def test_rows_are_dicts_in_order_and_placed_by_number(path):
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
def test_any_table_comes_back_whatever_its_row_groups(tmp_path_factory, table, group):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    pq.write_table(pa.Table.from_pylist(table, schema=schema), path, row_group_size=group)
    assert list(rows(path)) == table


def test_what_a_file_is_is_read_off_its_content(path, tmp_path):
    disguised = tmp_path / "rows.jsonl"
    disguised.write_bytes(path.read_bytes())
    assert is_parquet(disguised)
    assert len(list(records(disguised))) == 1000
    (tmp_path / "lines.parquet").write_text('{"a": 1}\n')
    assert [record.fields for record in records(tmp_path / "lines.parquet")] == [{"a": 1}]


def test_a_member_of_an_archive_may_be_parquet(path, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.write(path, "rows.parquet")
    assert list(rows(tmp_path / "a.zip!rows.parquet")) == ROWS


def test_a_cut_file_is_named(path):
    path.write_bytes(path.read_bytes()[:-100])
    with raises("damaged-parquet") as caught:
        list(records(path))
    assert caught.value.where == str(path)


def test_a_bad_row_is_named_and_can_be_skipped(path):
    skipped: list[SkippedRecord] = []
    texts = list(read_records(path, lambda record: record.text("text"), skip_bad=True, skipped=skipped))
    assert len(texts) == sum(row["text"] is not None for row in ROWS)
    assert skipped[0].where == f"{path}, row 1, field text"


@pytest.mark.slow
def test_rows_are_those_that_datasets_reads(path, tmp_path):
    datasets = pytest.importorskip("datasets")
    read = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"), streaming=True)
    assert list(read) == list(rows(path))


def test_columns_that_datasets_encodes_are_decoded_by_it(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"id": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"]), "meta": datasets.Json()}
    )
    written = [{"id": "1", "label": 1, "meta": {"a": [1, "x"]}}, {"id": "2", "label": 0, "meta": None}]
    datasets.Dataset.from_list(written, features=features).to_parquet(tmp_path / "encoded.parquet")
    assert list(rows(tmp_path / "encoded.parquet")) == written


@pytest.mark.slow
def test_plain_columns_do_not_need_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"a": ["x"]}]).to_parquet(tmp_path / "plain.parquet")
    code = (
        "import sys; from pathlib import Path; from benchmarks.io.records import rows; "
        "print(list(rows(Path(sys.argv[1]))), 'datasets' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "plain.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[{'a': ['x']}] False"


def test_an_empty_table_holds_no_record(tmp_path):
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), sink)
    (tmp_path / "none.parquet").write_bytes(sink.getvalue())
    with raises("no-record-in-file"):
        list(read_records(tmp_path / "none.parquet", lambda record: record, skip_bad=False, skipped=[]))
