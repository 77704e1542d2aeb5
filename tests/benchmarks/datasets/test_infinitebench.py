"""∞Bench: parsed and refused records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load

CHOICE = {"id": 3, "context": "Ada left.", "input": "Who left?", "answer": ["Ada"], "options": ["Zoe", "Ada", "Bob", "Cai"]}


def loaded(reference: str, folder: Path, *rows: dict[str, Any]) -> Benchmark:
    path = folder / "data.json"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return load(reference, {"path": str(path)})


def test_infinitebench_choice_accepts_its_letter_as_an_alias(tmp_path: Path) -> None:
    (question,) = loaded("infinitebench/longbook_choice_eng:test", tmp_path, CHOICE).questions
    assert (question.id, question.answers, question.golds) == ("3", ("Ada",), ("Ada", "B"))


def test_infinitebench_free_form_answers_keep_their_order(tmp_path: Path) -> None:
    row = {"id": 0, "context": "甲走了。", "input": "谁走了？", "answer": ["甲", "甲"], "options": []}
    assert loaded("infinitebench/longbook_qa_chn:test", tmp_path, row).questions[0].answers == ("甲", "甲")
    script = {"id": 1, "context": "$$MASK$$: Hello.", "input": "", "answer": ["ADA", "ADA LOVE"], "options": []}
    assert "$$MASK$$" in loaded("infinitebench/longdialogue_qa_eng:test", tmp_path, script).questions[0].text


@pytest.mark.parametrize(
    ("reference", "row", "field"),
    [
        ("infinitebench/longbook_choice_eng:test", CHOICE | {"answer": ["Eve"]}, "answer"),
        ("infinitebench/longbook_choice_eng:test", CHOICE | {"options": ["Ada"]}, "options"),
        ("infinitebench/longbook_qa_eng:test", CHOICE | {"id": None}, "id"),
    ],
)
def test_faulty_record_is_refused_with_its_field(reference: str, row: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=field) as caught:
        loaded(reference, tmp_path, row)
    assert "line 1" in str(caught.value.where)
