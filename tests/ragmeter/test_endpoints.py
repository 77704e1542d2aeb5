"""The table of endpoints of an experiment: which models get a URL."""

from __future__ import annotations

from typing import Any

import pytest

from ragmeter import experiment
from tests.support.errors import raises

TABLE = """
name: x
benchmarks: [{id: worlds/multihop, split: test, limit: 2}]
metrics: [em]
endpoints:
  gemini-x: {base_url: "http://localhost:1/v1", key_variable: OTHER_KEY}
  pocket: {base_url: "http://localhost:2/v1"}
trainings: [{id: gpr, config: {graph: ["worlds/graph:train"], base: minilm, questions: {generator: llm, llm: {model: pocket}}}}]
methods:
  - {id: bm25, name: named, reader: {id: chat, config: {llm: {model: gemini-x, max_tokens: 9}}}}
  - {id: bm25, name: own, reader: {id: chat, config: {llm: {model: gemini-x, base_url: "http://localhost:3/v1", key_variable: null}}}}
  - {id: bm25, name: other, reader: {id: chat, config: {llm: {model: gpt-x}}}}
  - {id: bm25, name: local, reader: {id: clara_text, config: {model: pocket}}}
judges: [{id: pairwise, config: {llm: {model: gemini-x}}}]
profiles: {moved: {endpoints: {gemini-x: {base_url: "http://localhost:4/v1"}}}}
"""


def address(config: Any) -> tuple[str | None, str | None]:
    return config.llm.base_url, config.llm.key_variable


def test_endpoint_table_sets_the_url_of_models_without_one() -> None:
    loaded = experiment.parse(TABLE, "x.yaml")
    readers = [method.composition.reader.config for method in loaded.methods]  # type: ignore[union-attr]
    assert [address(config) for config in readers[:3]] == [
        ("http://localhost:1/v1", "OTHER_KEY"),
        ("http://localhost:3/v1", None),
        (None, "OPENAI_API_KEY"),
    ]
    assert not hasattr(readers[3], "llm")  # a local model of the same name
    assert address(loaded.judges[0].judge.config) == ("http://localhost:1/v1", "OTHER_KEY")
    # Another process validates these options again, so they must hold the address.
    assert loaded.trainings[0].options["questions"]["llm"] == {"key_variable": None, "base_url": "http://localhost:2/v1", "model": "pocket"}
    moved = experiment.parse(TABLE, "x.yaml", profile="moved").methods[0].composition.reader
    assert address(moved.config) == ("http://localhost:4/v1", None)  # type: ignore[union-attr]


@pytest.mark.parametrize(("wrong", "code"), [("{gemini-x: {base_ur: x}}", "unknown-key"), ("{gemini-x: 3}", "not-yaml"), ("3", "not-yaml")])
def test_invalid_endpoint_table_is_refused_with_its_line(wrong: str, code: str) -> None:
    head, _, tail = TABLE.partition("endpoints:")
    text = f"{head}endpoints: {wrong}\ntrainings:{tail.partition('trainings:')[2]}"
    with raises(code, where="x.yaml:5"):
        experiment.parse(text, "x.yaml")
