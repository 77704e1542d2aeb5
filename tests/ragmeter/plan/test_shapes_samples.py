"""Plans of small samples of large datasets name them as samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ragmeter.cli import app
from ragmeter.plan.shapes import Shape, options, shape_of
from ragmeter.show.console import out

SHIPPED = ("clara/table18", "gpr/table1", "sark/table3", "ark/table2")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three questions of LongBench, and 40 rows of CLaRa's pretraining."""
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    for name in ("longbench", "clara"):
        (tmp_path / name).mkdir()
    queries: list[dict[str, Any]] = [
        {
            "_id": f"{n}",
            "input": f"Who is {n}?",
            "context": f"{n} is a painter. " * 50,
            "answers": ["a painter"],
            "length": 50,
            "dataset": "qasper",
            "language": "en",
            "all_classes": None,
        }
        for n in range(3)
    ]
    (tmp_path / "longbench" / "qasper.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    rows = [{"data_type": "qa", "question": [f"Who is {n}?"], "answers": ["a painter"], "docs": [f"{n} is a painter."]} for n in range(40)]
    (tmp_path / "clara" / "pretrain_data.100.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return tmp_path


def shape(name: str, limit: int | None = None, **value: Any) -> Shape:
    return shape_of(*options(name, value), limit=limit)


def test_fewer_questions_than_the_card_are_marked_as_a_sample(data: Path) -> None:
    result = shape("longbench/qasper")
    assert (result.questions, result.whole_number) == (3, 200)


def test_limited_benchmark_is_not_marked_as_a_sample(data: Path) -> None:
    assert shape("longbench/qasper", limit=3).whole_number is None
    assert shape("longbench/qasper", limit=4).whole_number == 200


def test_training_rows_are_compared_with_the_paper(data: Path) -> None:
    result = shape("clara_stages/pretraining:train")
    assert (result.questions, result.whole_number) == (40, 6_000_000)
    assert shape("clara_stages/pretraining:train", first=10).whole_number is None


def test_generated_and_missing_data_are_not_marked_as_a_sample(data: Path) -> None:
    assert shape("worlds/multihop").whole_number is None
    assert shape("longbench/narrativeqa").whole_number is None
    assert shape("longbench/narrativeqa").questions == 200


@pytest.mark.slow
def test_plan_reports_samples_in_text_and_json(data: Path) -> None:
    (data / "x.yaml").write_text("name: x\nbenchmarks: [{id: longbench/qasper}]\nmethods: [{id: bm25}]\n")
    arguments = ["run", str(data / "x.yaml"), "--dry-run", "--store", str(data / "store")]
    response = " ".join(CliRunner().invoke(app, arguments).output.split())
    assert "only a sample is here, and the plan treats it as the whole: longbench/qasper:test (3 of about 200)" in response
    result = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert result["samples"] == [{"data": "longbench/qasper:test", "here": 3, "stated": 200}]
    few = CliRunner().invoke(app, [*arguments, "--limit", "2"]).output
    assert "a sample is here" not in few


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_plan_does_not_break_words_on_a_narrow_terminal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def words(width: int) -> set[str]:
        monkeypatch.setattr(out, "width", width)
        done = CliRunner().invoke(app, ["run", name, "--dry-run", "--verbose", "--store", str(tmp_path / "store")])
        assert done.exit_code in (0, 2)
        tables = done.output.partition("published figures")[0].partition(" tasks, ")[0]
        # Longer names are broken where a column ends.
        return {word for word in tables.split() if len(word) <= 18}

    wide = words(400)
    assert wide
    assert wide <= words(80)


def test_missing_file_is_searched_once_per_name(data: Path) -> None:
    (absent,) = shape("clara_stages/instruction_tuning:train").absent
    names = str(absent.where).partition("looked for ")[2].removesuffix(")").split(", ")
    assert "instruction_tuning.jsonl" in names
    assert len(names) == len(set(names))
