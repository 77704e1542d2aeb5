"""Tables written by spreadsheets and programs: delimiters, quotes, line breaks in cells, and unreadable lines."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from benchmarks.io.encodings import encoding_of, read_text
from benchmarks.io.tables import open_table
from tests.support.errors import raises


def table(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(("name", "head"), [("t.xlsx", b"PK\x03\x04"), ("t.ODS", b"PK\x03\x04"), ("t.xls", b"\xd0\xcf\x11\xe0")])
def test_spreadsheet_is_refused_but_not_a_table_with_its_suffix(name: str, head: bytes, tmp_path: Path) -> None:
    with raises("spreadsheet"):
        open_table(table(tmp_path, head + bytes(600), name))
    assert open_table(table(tmp_path, "a\tb\n1\t2\n", name)).names == ("a", "b")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_files_written_by_the_csv_module_round_trip(delimiter: str, tmp_path: Path) -> None:
    rows = [{"a b": 'say "x"', "c": "one\ntwo", "d": delimiter}, {"a b": "", "c": "1,5;2|3", "d": "ü"}]
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    items = list(open_table(table(tmp_path, sink.getvalue())).items())
    assert [item.value for item in items] == rows
    assert [item.line for item in items] == [2, 4]


def test_decimal_commas_are_not_taken_for_the_delimiter(tmp_path: Path) -> None:
    opened = open_table(table(tmp_path, "name;price\na, b;1,5\nc;2,5\n"))
    assert (opened.delimiter, [item.value for item in opened.items()]) == (
        ";",
        [{"name": "a, b", "price": "1,5"}, {"name": "c", "price": "2,5"}],
    )


def test_texts_with_commas_are_one_column_if_the_header_has_no_comma(tmp_path: Path) -> None:
    assert [item.value for item in open_table(table(tmp_path, "question\nWho?\nWhen?\n")).items()] == [
        {"question": "Who?"},
        {"question": "When?"},
    ]


def test_trailing_empty_columns_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    items = list(open_table(table(tmp_path, "a,b,,\n1,2,,\n\n3,4\n")).items())
    assert [item.value for item in items] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_reading_continues_after_an_unreadable_line(tmp_path: Path) -> None:
    items = list(open_table(table(tmp_path, 'a,b\n1\n"x"y,2\n1,2,3\n4,5\n')).items())
    assert [(item.line, item.problem is None) for item in items] == [(2, False), (3, False), (4, False), (5, True)]


def test_tables_with_tabs_may_be_without_quoting(tmp_path: Path) -> None:
    for first, last in (('"Hi" was sung by?', 'a 5" pipe'), ('"Hello', 'an inch is 1"'), ('it is "so"', "x")):
        items = list(open_table(table(tmp_path, f"a\tb\n{first}\tc\nd\te\n{last}\tf\n")).items())
        assert [item.value for item in items] == [{"a": first, "b": "c"}, {"a": "d", "b": "e"}, {"a": last, "b": "f"}]
    items = list(open_table(table(tmp_path, 'a\tb\n"one\ntwo"\tc\n"say ""x"""\td\n')).items())
    assert [item.value for item in items] == [{"a": "one\ntwo", "b": "c"}, {"a": 'say "x"', "b": "d"}]


def test_quotes_may_follow_a_delimiter_and_a_space(tmp_path: Path) -> None:
    items = list(open_table(table(tmp_path, 'a, "b, c"\n"Who, then?", "one, ""two"""\nx, y\n')).items())
    assert [item.value for item in items] == [{"a": "Who, then?", "b, c": 'one, "two"'}, {"a": "x", "b, c": "y"}]


def test_field_of_several_megabytes_is_read(tmp_path: Path) -> None:
    (item,) = open_table(table(tmp_path, f'a,b\n"{"x" * 3_000_000}",1\n')).items()
    assert len(item.value["a"]) == 3_000_000


def test_encodings_are_detected_from_content(tmp_path: Path) -> None:
    text = "Preis: 3 €, Köln\n"
    for encoding, name in (
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("utf-32", "utf-32"),
        ("cp1252", "cp1252"),
    ):
        read, encoded = read_text(table(tmp_path, text.encode(encoding)))
        assert (read, encoded.name, bool(encoded.notice)) == (text, name, not name.startswith("utf-8"))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Отпуск составляет 28 дней", "cp1251"),
        ("Отпуск составляет 28 дней", "koi8-r"),
        ("Η άδεια είναι 28 ημέρες", "cp1253"),
        ("员工每年有二十八天的假期", "gbk"),
        ("직원은 휴가가 있습니다", "cp949"),
        ("員工每年有假期", "big5"),
    ],
)
def test_text_in_other_alphabets_is_not_taken_for_western(text: str, encoding: str, tmp_path: Path) -> None:
    with raises("unknown-encoding", "line 2"):
        encoding_of(table(tmp_path, b"id,question\n1," + text.encode(encoding)))


def test_runs_of_western_signs_are_accepted(tmp_path: Path) -> None:
    text = "Köln ······ 5\nÉtés – «…» ———— “été”\nUmlaute: äöüß in Größe, Käse, für, über, schön, Übung, Öl, Füße, Grüße\n"
    assert encoding_of(table(tmp_path, text.encode("cp1252"))).name == "cp1252"


def test_lines_in_two_encodings_are_reported(tmp_path: Path) -> None:
    path = table(tmp_path, "Köln\n".encode() + b"plain\n" + "Müller\n".encode("cp1252"))
    assert encoding_of(path).mixed == (3,)
    with raises("mixed-encodings", "line 3"):
        read_text(path)


def test_byte_in_no_known_encoding_is_reported(tmp_path: Path) -> None:
    with raises("unknown-encoding", "line 2"):
        encoding_of(table(tmp_path, b"a\nb\x81\n"))


def test_utf_16_that_is_cut_is_named_in_the_header_or_in_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("id,question\n1,x\n".encode("utf-16")[:-1])
    with raises("unreadable-file"):
        open_table(path)
    path.write_bytes(("id,question\n" + "1,x\n" * 20_000).encode("utf-16")[:-1])
    *rows, last = open_table(path).items()
    assert (len(rows), {row.problem for row in rows}, last.value) == (19_999, {None}, None)
    assert last.problem is not None
