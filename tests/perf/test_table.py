"""The table of measured figures: which figures are read, and which changes count as regressions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from perf import __main__ as command
from perf import measuring, results_page
from perf.__main__ import LONG, QUICK, _runs, benchmarks
from perf.corpus import fitted_at
from perf.growth import exponent
from perf.page import PAGE, SIZES, page, steps
from perf.table import MEASURED, figures, regressed, stored

ABOUT = {"command": "python -m perf.x", "commit": "c", "date": "d", "hardware": "h", "python": "p"}


def record(value: float, unit: str = "x", **more: Any) -> dict[str, Any]:
    return {"x": {"part": {**ABOUT, "value": value, "unit": unit, **more}}}


def flagged(before: dict[str, Any], *rounds: dict[str, Any]) -> bool:
    return bool(regressed(figures(before), [figures(now) for now in rounds]))


def test_figures_have_targets_and_skip_alternatives_and_wall_time() -> None:
    part = {**ABOUT, "target_MB": 10, "plain loop": {"MB": 99.0}, "first load": {"MB": 11.0, "s": 1.0, "s of CPU": 2.0}}
    results = figures({"x": {"part": part}})
    assert {name: (figure.value, figure.missed) for name, figure in results.items()} == {
        "x: part: first load: MB": (11.0, True),
        "x: part: first load: s of CPU": (2.0, False),
    }
    assert figures(record(4.0, at_least=5.0))["x: part"].missed
    assert not figures(record(4.0, "ms", at_most=5.0))["x: part"].missed


@pytest.mark.parametrize(("unit", "worse", "better"), [("x", 5.0, 20.0), ("s", 20.0, 5.0)])
def test_regression_depends_on_the_direction_of_the_figure(unit: str, worse: float, better: float) -> None:
    assert flagged(record(10.0, unit), record(worse, unit))
    assert not flagged(record(10.0, unit), record(better, unit))


def test_change_within_margin_or_spread_is_not_a_regression() -> None:
    assert not flagged(record(10.0), record(9.5))
    assert not flagged(record(10.0), record(5.0), record(8.0), record(11.0))
    assert flagged(record(10.0), record(7.0), record(7.2), record(7.4))


def test_seconds_of_other_hardware_are_not_compared_but_ratios_are() -> None:
    assert not flagged(record(10.0, "s"), record(20.0, "s", hardware="other"))
    assert flagged(record(10.0), record(5.0, hardware="other"))


def test_figures_of_commands_with_other_options_are_not_compared() -> None:
    assert not flagged(record(10.0), record(5.0, command="python -m perf.x --quick"))


def test_benchmark_that_fails_or_exceeds_its_limit_counts_as_failed() -> None:
    assert _runs("nothing", [], 60) == "exit code 1"
    assert _runs("table", [], 0.01) == "over 0.01 s"


@pytest.mark.parametrize(("options", "kept"), [(["--quick"], True), ([], False)])
def test_quick_run_changes_neither_records_nor_page(
    options: list[str], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(name: str, *_: Any) -> str:
        folder = Path(os.environ.get(measuring.MEASURED) or tmp_path / "measured")
        measuring.record(name, {"part": {"value": 2.0, "unit": "x"}}, folder)
        return ""

    shutil.copytree(MEASURED, tmp_path / "measured", ignore=shutil.ignore_patterns("overhead.json"))
    paths = {"MEASURED": tmp_path / "measured", "PAGE": tmp_path / "speed.md", "STATE": tmp_path / ".ended"}
    for name, path in paths.items():
        monkeypatch.setattr(command, name, path)
    monkeypatch.setattr(command, "_runs", measure)
    assert command.main([*options, "overhead"]) == 0
    assert ("overhead" not in stored(tmp_path / "measured")) == kept
    assert (not paths["PAGE"].exists()) == kept
    assert not paths["STATE"].exists()
    assert measuring.MEASURED not in os.environ


def test_fits_recover_the_exponents_and_lines_of_known_curves() -> None:
    assert exponent({10: 3 * 10**1.5, 20: 3 * 20**1.5, 40: 3 * 40**1.5}) == pytest.approx(1.5)
    assert fitted_at(1000, {1: {"MB": 5.0}, 2: {"MB": 7.0}, 3: {"MB": 9.0}}) == pytest.approx({"MB": 2003.0})


def test_benchmark_list_contains_only_measuring_modules() -> None:
    names = benchmarks()
    assert {"growth", "rerun", "startup", "scoring"} <= set(names)
    assert not {"measuring", "page", "table", "gpu_real", "clara_models"} & set(names)
    assert {*QUICK, *LONG} <= set(names)


def test_page_of_results_equals_the_records() -> None:
    text = results_page.PAGE.read_text("utf-8")
    assert results_page.page(text) == text


def test_page_equals_the_stored_figures() -> None:
    records = stored()
    assert PAGE.read_text("utf-8") == page(records)
    for passages in SIZES:
        by_name = {step.name: step for step in steps(records, passages)}
        assert by_name["encode with MiniLM, float32"].disk == pytest.approx(passages * 384 * 4 / 2**20)
