"""LongBench v2: parsed and refused records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load

V2 = {
    "_id": "66f36490821e116aacb2cc22",
    "domain": "Single-Document QA",
    "sub_domain": "Literary",
    "difficulty": "hard",
    "length": "short",
    "question": "Where is the works?",
    **{f"choice_{letter}": name for letter, name in zip("ABCD", ("Lyon", "Nice", "Metz", "Lille"), strict=True)},
    "answer": "C",
    "context": "The works is in Metz. " * 700,
}


def loaded(reference: str, folder: Path, *rows: dict[str, Any], array: bool = False) -> Benchmark:
    path = folder / "data.json"
    path.write_text(json.dumps(list(rows)) if array else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    return load(reference, {"path": str(path)})


@pytest.mark.parametrize("array", [True, False])
def test_longbench_v2_includes_choices_and_keeps_the_fields_of_its_table(array: bool, tmp_path: Path) -> None:
    benchmark = loaded("longbench_v2", tmp_path, V2, array=array)
    (question,) = benchmark.questions
    assert question.text == "Where is the works?\n(A) Lyon\n(B) Nice\n(C) Metz\n(D) Lille"
    assert (question.answers, question.golds) == (("C",), ("C", "Metz"))
    assert (question.metadata["difficulty"], question.metadata["length"], question.type) == ("hard", "short", "Single-Document QA")
    assert len(benchmark.corpus) > 1


@pytest.mark.parametrize(
    ("reference", "row", "field"),
    [
        ("longbench_v2", V2 | {"answer": "E"}, "answer"),
        ("longbench_v2", V2 | {"length": 12}, "length"),
        ("longbench_v2", {name: value for name, value in V2.items() if name != "choice_D"}, "choice_D"),
        ("longbench/qasper:test", V2, "longbench_v2"),
    ],
)
def test_faulty_record_is_refused_with_its_field(reference: str, row: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=field) as caught:
        loaded(reference, tmp_path, row)
    assert "line 1" in str(caught.value.where)
