"""Line numbers of keys and items in YAML documents."""

from __future__ import annotations

import pytest
import yaml

from benchmarks.core.yaml import line_numbers
from ragmeter import yaml_source
from results.submission import card
from tests.support.errors import raises

TEXT = "a: 1\nb:\n  - c: 2\n    d: [x, y]\n  - e\nf: {g: h}\n"


def test_keys_and_items_have_their_line_numbers() -> None:
    expected = {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 0, "c"): 3,
        ("b", 0, "d"): 4,
        ("b", 0, "d", 0): 4,
        ("b", 0, "d", 1): 4,
        ("b", 1): 5,
        ("f",): 6,
        ("f", "g"): 6,
    }
    assert line_numbers(yaml.compose(TEXT, Loader=yaml.SafeLoader), "f") == expected
    assert yaml_source.read(TEXT, "f").lines == card.read(TEXT.encode(), "f").lines == expected
    assert line_numbers(None, "f") == yaml_source.read("", "f").lines == card.read(b"", "f").lines == {}


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x:\n  - {a: 1,\n     a: 2}\n"])
def test_duplicate_key_is_refused_by_every_yaml_reader(text: str) -> None:
    responses = []
    for read in (yaml_source.read, lambda text, name: card.read(text.encode(), name)):
        with raises("duplicate-key") as caught:
            read(text, "f")
        responses.append(caught.value.lines())
        assert caught.value.where == "f:3"
    assert responses[0] == responses[1]


def test_non_string_keys_and_expanding_aliases_are_refused_immediately() -> None:
    with raises("key-not-text", "x:1"):
        line_numbers(yaml.compose("name: {{name}}"), "x")
    doubling = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9) if level else 'x'}]\n" for level in range(20))
    for text in (doubling, "a: &a [*a]"):
        with raises("file-too-deep"):
            line_numbers(yaml.compose(text), "x")


@pytest.mark.parametrize("text", ["k: 010", "k: [1, -007]", "t: 1:30", "t: 190:20:30.15"])
def test_number_in_base_8_or_60_is_refused_with_its_line(text: str) -> None:
    with raises("other-number-base", where="f:2"):
        yaml_source.read(f"name: x\n{text}\n", "f")


def test_text_and_numbers_in_other_notations_are_read() -> None:
    value = yaml_source.read("a: '010'\nb: 0\nc: 0.5\nd: 1_000\ne: 0x10\nf: '1:30'\ng: 10:x\n", "f").value
    assert value == {"a": "010", "b": 0, "c": 0.5, "d": 1000, "e": 16, "f": "1:30", "g": "10:x"}
