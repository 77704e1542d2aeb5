"""Rows with a `grid`: their expansion, and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from ragmeter import experiment

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "experiments.md").read_text("utf-8")
EXAMPLE = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if block.startswith("name: passages-read"))
ONE_BY_ONE = """
name: passages-read
benchmarks: [{id: worlds/multihop, limit: 20}]
methods:
  - {id: bm25, name: "BM25, k=1", k: 1, reader: pocket}
  - {id: bm25, name: "BM25, k=3", k: 3, reader: pocket}
  - {id: bm25, name: "BM25, k=5", k: 5, reader: pocket}
  - {id: bm25, name: "BM25, k=10", k: 10, reader: pocket}
  - {id: dense, name: "dense, k=1", k: 1, reader: pocket}
  - {id: dense, name: "dense, k=3", k: 3, reader: pocket}
  - {id: dense, name: "dense, k=5", k: 5, reader: pocket}
  - {id: dense, name: "dense, k=10", k: 10, reader: pocket}
  - {id: bm25, name: BM25 + bm25_reranker, rerankers: [bm25_reranker], reader: pocket}
  - {id: bm25, name: BM25 + bi_encoder, rerankers: [bi_encoder], reader: pocket}
"""


def file(row: str, more: str = "") -> str:
    return f"name: n\n{more}benchmarks: [{{id: worlds/multihop, limit: 2}}]\nmethods:\n  - {row}\n"


def names(text: str, profile: str | None = None) -> list[str]:
    return [method.name for method in experiment.parse(text, "f", profile=profile).methods]


def test_grid_example_equals_the_file_with_listed_rows() -> None:
    grid, listed = experiment.parse(EXAMPLE, "f"), experiment.parse(ONE_BY_ONE, "f")
    assert [method.name for method in grid.methods] == [method.name for method in listed.methods]
    assert [method.composition.describe() for method in grid.methods] == [method.composition.describe() for method in listed.methods]
    assert grid.reference == "BM25, k=1"


def test_profile_replaces_axes() -> None:
    assert names(EXAMPLE, "short") == ["BM25, k=1", "BM25 + bm25_reranker", "BM25 + bi_encoder"]


def test_first_axis_is_slowest_and_values_keep_their_types() -> None:
    row = "{grid: {k: [1, 2], flag: [true, null]}, id: bm25, name: '$$$k $flag', k: $k, depth: $k}"
    loaded = experiment.parse(file(row), "f")
    assert [method.name for method in loaded.methods] == ["$1 true", "$1 null", "$2 true", "$2 null"]
    assert [method.composition.k for method in loaded.methods] == [1, 1, 2, 2]


def test_benchmarks_trainings_and_judges_have_grids() -> None:
    text = """
name: n
benchmarks: [{grid: {n: [2, 3]}, id: worlds/multihop, limit: $n}]
trainings: [{grid: {name: [a, b]}, id: ark, name: $name, config: {preset: worlds}}]
methods: [{grid: {name: [a, b]}, id: ark, name: $name, config: {model: {checkpoint: $name}}}]
judges: [{grid: {judge: [rule_match, rule_style]}, id: $judge}]
"""
    loaded = experiment.parse(text, "f")
    assert [plan.limit for plan in loaded.benchmarks] == [2, 3]
    assert [plan.name for plan in loaded.trainings] == ["a", "b"]
    assert [plan.needs[0].name for plan in loaded.methods] == ["a", "b"]
    assert [plan.judge.entry.id for plan in loaded.judges] == ["rule_match", "rule_style"]


@pytest.mark.parametrize(
    ("row", "more", "where"),
    [
        ("{grid: {}, id: bm25}", "", "f:4 (methods.0.grid)"),
        ("{grid: 5, id: bm25}", "", "f:4 (methods.0.grid)"),
        ("{grid: [], id: bm25}", "", "f:4 (methods.0.grid)"),
        ("{grid: null, id: bm25}", "", "f:4 (methods.0.grid)"),
        ("{grid: {k: 5}, id: bm25, k: $k}", "", "f:4 (methods.0.grid.k)"),
        ("{grid: {k: []}, id: bm25, k: $k}", "", "f:4 (methods.0.grid.k)"),
        ("{grid: {k-1: [5]}, id: bm25}", "", "f:4 (methods.0.grid.k-1)"),
        ("{grid: {5: [5]}, id: bm25}", "", "f:4 (methods.0.grid.5)"),
        ("{grid: [kk], id: bm25, k: $kk}", "grid: {k: [5]}\n", "f:5 (methods.0.grid.0)"),
        ("{grid: [k], id: bm25, k: $k}", "", "f:4 (methods.0.grid.0)"),
        ("{grid: [{k: 5}], id: bm25, k: $k}", "grid: {k: [5]}\n", "f:5 (methods.0.grid.0)"),
        ("{grid: {k: [5, 6]}, id: bm25, k: 5}", "", "f:4 (methods.0.grid.k)"),
        ("{grid: {k: [5]}, id: bm25, name: $n, k: $k}", "", "f:4 (methods.0.name)"),
        ("{grid: {k: [5]}, id: bm25, name: 5 $ $k}", "", "f:4 (methods.0.name)"),
        ("{grid: {k: [{a: 1}]}, id: bm25, name: 'k $k'}", "", "f:4 (methods.0.name)"),
        ("{grid: {k: [{a: 1}]}, id: bm25, name: '${k.b}'}", "", "f:4 (methods.0.grid.k.0)"),
        ("{id: bm25}", "grid: [k]\n", "f:2 (grid)"),
        ("{id: bm25}", "grid: {k: 5}\n", "f:2 (grid.k)"),
        (
            "{grid: {a: [" + ", ".join(map(str, range(40))) + "], b: [" + ", ".join(map(str, range(40))) + "]}, id: bm25}",
            "",
            "f:4 (methods.0.grid)",
        ),
    ],
)
def test_wrong_grid_names_its_line_and_key(row: str, more: str, where: str) -> None:
    with pytest.raises(UserError) as refused:
        experiment.parse(file(row, more), "f")
    assert (refused.value.where, refused.value.try_this) == (where, refused.value.try_this)
    assert refused.value.try_this


def test_wrong_value_names_the_line_of_the_value_and_the_combination() -> None:
    text = file("grid:\n      k:\n        - 5\n        - many\n    id: bm25\n    name: k $k\n    k: $k")
    with pytest.raises(UserError) as refused:
        experiment.parse(text, "f")
    assert refused.value.where == "f:7 (methods.0[k=many].k)"


def test_equal_names_of_two_combinations_are_refused() -> None:
    with pytest.raises(UserError) as refused:
        names(file("{grid: {k: [5, 6]}, id: bm25, name: same, k: $k}"))
    assert refused.value.where == "f:4 (methods.0[k=6])"


def test_grid_inside_a_row_is_an_unknown_key() -> None:
    with pytest.raises(UserError) as refused:
        names(file("{id: bm25, reader: {id: extractive, grid: {k: [5]}}}"))
    assert refused.value.where == "f:4 (methods.0.reader.grid)"
