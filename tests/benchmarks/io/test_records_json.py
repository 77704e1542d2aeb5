import gzip
import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.io import records as json_stream
from benchmarks.io.records import stream_json
from tests.support.errors import raises

RECORDS = [{"id": i, "text": f"Zürich \u2028 {i} \U0001f600 \x00 \x1f " * 3, "nested": [[1, [None, True]]]} for i in range(7)]


def written(tmp_path, content, name="file"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(path, **options):
    items = list(stream_json(path, **options))
    assert all(item.problem is None for item in items), [item.problem for item in items]
    return [item.value for item in items]


def lines(records, end="\n", **options):
    return end.join(json.dumps(record, **options) for record in records) + end


@pytest.mark.parametrize("layout", ["lines", "array", "indented"])
def test_every_file_format_gives_the_same_records(tmp_path, layout):
    for pack, mark, end, ascii_ in product((bytes, gzip.compress), (b"", b"\xef\xbb\xbf"), ("\n", "\r\n"), (True, False)):
        if layout == "lines":
            text = lines(RECORDS, end, ensure_ascii=ascii_)
        else:
            indent = 2 if layout == "indented" else None
            text = json.dumps(RECORDS, indent=indent, ensure_ascii=ascii_).replace("\n", end) + end
        assert values(written(tmp_path, pack(mark + text.encode()))) == RECORDS, (pack, mark, end, ascii_)


@pytest.mark.slow
@given(
    records=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=12) | st.integers() | st.none()), max_size=5),
    piece=st.integers(1, 40),
    indent=st.sampled_from([None, 1]),
    ensure_ascii=st.booleans(),
)
def test_array_read_in_chunks_equals_the_whole_array(tmp_path_factory, records, piece, indent, ensure_ascii):
    path = written(tmp_path_factory.getbasetemp(), json.dumps(records, indent=indent, ensure_ascii=ensure_ascii), "a")
    before, json_stream.PIECE = json_stream.PIECE, piece
    try:
        assert values(path) == records
    finally:
        json_stream.PIECE = before


def test_records_in_an_array_have_the_line_numbers_of_an_editor(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "PIECE", 16)
    text = json.dumps(RECORDS, indent=1)
    first = [number for number, line in enumerate(text.split("\n"), 1) if line == " {"]
    assert [item.line for item in stream_json(written(tmp_path, text))] == first
    assert [item.number for item in stream_json(written(tmp_path, text))] == list(range(1, 8))


def test_raw_control_character_in_a_string_is_kept(tmp_path):
    assert values(written(tmp_path, b'{"a": "x\x00y\tz"}\n')) == [{"a": "x\x00y\tz"}]
    assert values(written(tmp_path, b'[{"a": "x\x00y"}]')) == [{"a": "x\x00y"}]


def test_unicode_line_separator_does_not_split_a_line(tmp_path):
    assert values(written(tmp_path, '{"a": "x\u2028y\u2029z\x85"}\n')) == [{"a": "x\u2028y\u2029z\x85"}]


def test_valid_surrogate_pair_becomes_one_character(tmp_path):
    assert values(written(tmp_path, b'{"a": "\\ud83d\\ude00"}')) == [{"a": "\U0001f600"}]
    assert values(written(tmp_path, b'[{"a": "\\ud83d\\ude00"}]')) == [{"a": "\U0001f600"}]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b'{"a": "caf\xe9"}', "byte 0xe9 is not UTF-8"),
        (b'{"a": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"a": 1,}', "not JSON"),
        (b"", "the line is empty"),
        (b"\x00\x00\x00", "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON"),
    ],
)
def test_bad_line_is_reported_and_the_next_line_is_read(tmp_path, bad, says):
    items = list(stream_json(written(tmp_path, b'{"a": 0}\n' + bad + b'\n{"a": 2}\n')))
    assert [item.line for item in items] == [1, 2, 3]
    assert says in items[1].problem
    assert (items[0].value, items[2].value) == ({"a": 0}, {"a": 2})


@pytest.mark.parametrize(("bad", "says"), [(b'{"a": "caf\xe9"}', "byte 0xe9 is not UTF-8"), (b'{"a": "\\ud83d"}', "half of a surrogate")])
def test_bad_string_in_an_array_affects_only_its_record(tmp_path, bad, says):
    items = list(stream_json(written(tmp_path, b'[{"a": 0},\n' + bad + b',\n{"a": 2}]')))
    assert [(item.line, item.number) for item in items] == [(1, 1), (2, 2), (3, 3)]
    assert says in items[1].problem
    assert items[2].value == {"a": 2}


def test_truncated_last_line_is_reported_with_its_number(tmp_path):
    *good, last = stream_json(written(tmp_path, lines(RECORDS)[:-20]))
    assert len(good) == 6
    assert last.line == 7
    assert "cut off" in last.problem


def test_truncated_array_loses_only_its_last_record(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "PIECE", 64)
    records = [{"t": ["a", ["b.", "c."]], "n": True}] * 3
    text = json.dumps(records)
    for length in range(1, len(text)):
        items = list(stream_json(written(tmp_path, text[:length])))
        whole = text[:length].count("}")
        assert [item.value for item in items[:-1]] == records[:whole], text[:length]
        assert "cut off" in items[-1].problem
        assert items[-1].number == whole + 1


def test_fault_in_an_array_is_reported_with_line_column_and_record(tmp_path):
    text = '[\n{"a": 1},\n{"a": x},\n' + '{"a": 3},\n' * 20 + '{"a": 4}]'
    with pytest.raises(UserError) as caught:
        list(stream_json(written(tmp_path, text)))
    assert "line 3, column 7, record 2" in caught.value.where


@pytest.mark.parametrize("text", ['[{"a": 1},]', '[{"a": 1} {"a": 2}]', '[{"a": 1}] x', "[]]"])
def test_malformed_array_is_refused(tmp_path, text):
    with pytest.raises(UserError):
        list(stream_json(written(tmp_path, text)))


def test_empty_array_has_no_records(tmp_path):
    assert values(written(tmp_path, " [ ] \n")) == []


@pytest.mark.parametrize("content", [b"", b"\n\r\n  ", b"\xef\xbb\xbf"])
def test_empty_file_is_reported_by_path(tmp_path, content):
    with raises("empty-file") as caught:
        list(stream_json(written(tmp_path, content)))
    assert "file" in caught.value.where


@pytest.mark.parametrize("name", ["UTF-16", "UTF-32"])
def test_other_unicode_encoding_is_reported(tmp_path, name):
    with pytest.raises(UserError, match=name):
        list(stream_json(written(tmp_path, lines(RECORDS).encode(name))))


@pytest.mark.slow
def test_truncated_or_damaged_gzip_file_is_an_error(tmp_path):
    packed = gzip.compress(lines(RECORDS * 2000).encode())
    with pytest.raises(UserError, match="compressed file"):
        list(stream_json(written(tmp_path, packed[: len(packed) // 2])))
    damaged = packed[:200] + bytes([packed[200] ^ 0xFF]) + packed[201:]
    with pytest.raises(UserError, match="compressed file"):
        list(stream_json(written(tmp_path, damaged)))


def test_missing_file_and_folder_are_errors(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with raises("unreadable-file"):
            list(stream_json(path))


def test_single_object_file_is_accepted_if_allowed(tmp_path):
    content = {"Title": ["a", "b"], "Other": []}
    path = written(tmp_path, json.dumps(content, indent=1))
    assert values(path, whole=True) == [content]
    assert any(item.problem for item in stream_json(path))
    assert values(written(tmp_path, lines(RECORDS)), whole=True) == RECORDS
    (broken,) = stream_json(written(tmp_path, '{"Title": [\n"a"\n"b"]}'), whole=True)
    assert (broken.line, broken.column) == (3, 1)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    import tracemalloc

    record = json.dumps({"text": "word " * 2000})
    for text in ((record + "\n") * 2000, "[" + ",".join([record] * 2000) + "]"):
        path = written(tmp_path, text)
        tracemalloc.start()
        assert sum(1 for _ in stream_json(path)) == 2000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * 2**20 < path.stat().st_size
