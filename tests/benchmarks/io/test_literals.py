"""Lists written as text: JSON and Python lists are read, NumPy output is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.io.literals import listed, printed_by_numpy
from benchmarks.registry import load
from tests.support.errors import raises

ARRAYS = (
    ["Ann", "Bo"],
    ["it's", 'a "b"'],
    [f"word{number}" for number in range(40)],
    ["x"] * 2000,
    [1914, 1918],
    [0.5, -2.0],
    [["a", "b"]],
)


@pytest.mark.parametrize("items", ARRAYS, ids=range(len(ARRAYS)))
def test_lists_are_read_from_json_and_python_but_not_numpy(items: list[object]) -> None:
    assert listed(json.dumps(items)) == listed(f" {items} ") == items
    for array in (np.array(items), np.array(items, dtype=object)):
        assert printed_by_numpy(str(array))
        assert printed_by_numpy(repr(array))
    assert printed_by_numpy(repr([np.array(items)]))


@pytest.mark.parametrize("text", ["['a' 'b', 'c']", "['a''b']", "[np.str_('a'), np.str_('b')]"])
def test_adjacent_string_literals_are_refused(text: str) -> None:
    assert printed_by_numpy(text)


@pytest.mark.parametrize("text", ["[sic]", "[12 Angry Men]", "[it's]", "Lyon", "array", "[", "{1: 2}", "(1, 2)", "[x] and [y]", "'a' 'b'"])
def test_other_text_is_not_parsed_as_a_list(text: str) -> None:
    assert listed(text) is None


@pytest.mark.parametrize(
    "text",
    ["['Ann' 'Bo']", "array(['Ann', 'Bo'], dtype=object)", '["Ann"', "['Ann', 'Bo", "('Ann', 'Bo')", "{'Ann', 'Bo'}", '{"text": ["Ann"]}'],
)
def test_loaders_refuse_answers_in_an_unreadable_list(text: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    for reference, field in (("nq/open:test", "answer"), ("flashrag:test", "golden_answers")):
        path.write_text(json.dumps({"id": "1", "question": "who", field: text}))
        with raises("bad-record", where="line 1"):
            load(reference, {"path": str(path)})
    (tmp_path / "data.csv").write_text(f"who\t{text}\n")
    with raises("bad-record", where="line 1"):
        load("nq/dpr:test", {"path": str(tmp_path / "data.csv")})
