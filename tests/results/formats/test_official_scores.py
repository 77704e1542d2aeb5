"""Official prediction files: the scripts, restated independently, and ragmeter take the same files and give the same numbers.

`recorded_evaluators.json` holds what the official scripts printed for the first cases of each kind (None: the script stopped), with
Python's `json` in the place of `ujson`. `python -m tests.support.evaluator_files FOLDER 12` writes the cases.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ragmeter.runner.submissions import Checked, Checker, short_card
from results.formats import official_scores
from results.formats.predictions import FORMATS
from results.store.store import Store
from tests.support.evaluator_files import CASES, Case, write
from tests.support.evaluators import Refused, Result

RECORDED = json.loads((Path(__file__).parent / "recorded_evaluators.json").read_text())
TABLES = {
    "hotpotqa": official_scores.hotpotqa_table,
    "2wiki": official_scores.two_wiki_table,
    "musique": official_scores.musique_table,
    "longbench": official_scores.longbench_table,
    "rog": official_scores.rog_table,
    "squad": official_scores.squad_table,
}


def case_of(name: str, seed: int) -> Case:
    return CASES[name][1](random.Random(f"{name} {seed}"))


def checked(name: str, case: Case, folder: Path, *, strict: bool = False) -> Checked:
    data, predictions = write(case, folder / "case")
    checker = Checker(Store(folder / "store"), data_path=str(data), strict=strict)
    return checker.check(str(predictions), short_card("theirs@1", case.reference, None), CASES[name][0])


def restated(case: Case) -> Result | None:
    try:
        return case.script(case.predictions)
    except Refused:
        return None


LAST_DIGIT = {"2wiki": 0.01, "musique": 0.001, "musique full": 0.001, "longbench": 0.01}
"""What the scripts round to: a mean on the edge may fall to either side if two values differ in their sixteenth digit."""


def close(left: float | None, right: float | None, slack: float = 0.0) -> bool:
    if left is None or right is None or math.isnan(left) or math.isnan(right):
        return all(value is None or math.isnan(value) for value in (left, right))
    return abs(left - right) < slack + 1e-9


def require_printed(result: Checked, printed: Mapping[str, float | None], slack: float = 0.0) -> None:
    values: dict[str, Any] = dict(result.report.official)
    if "all" in printed:
        values = dict(zip(printed, values.values(), strict=True))
    assert values.keys() == printed.keys()
    assert {name: (values[name], value) for name, value in printed.items() if not close(values[name], value, slack)} == {}


def require_same(name: str, seed: int, folder: Path) -> None:
    """Compare acceptance, the value of every question and the printed aggregate with the restated script.

    A file without a row for any question is refused; the scripts give 0 for every question.
    """
    case = case_of(name, seed)
    result, theirs = checked(name, case, folder), restated(case)
    if theirs is not None and [item.code for item in result.report.findings if item.severity == "error"] == ["nothing_matches"]:
        assert not any(value > 0 for values in theirs.questions.values() for value in values)
        return
    assert result.report.ok == (theirs is not None), (seed, result.report.lines())
    if theirs is None:
        return
    table = TABLES[CASES[name][0]](result.target.loaded, result.report.predictions)
    for column, values in zip(table.values(), (theirs.questions[key if key in theirs.questions else "all"] for key in table), strict=True):
        assert all(map(close, column.tolist(), values)), (seed, values, column)
    require_printed(result, theirs.printed, LAST_DIGIT.get(name, 0.0))


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in RECORDED for seed in range(len(RECORDED[name]))])
def test_official_scores_equal_the_output_of_the_official_script(name: str, seed: int, tmp_path: Path) -> None:
    result, printed = checked(name, case_of(name, seed), tmp_path), RECORDED[name][seed]
    assert result.report.ok == (printed is not None)
    if printed is not None:
        require_printed(result, printed)


@pytest.mark.parametrize("name", CASES)
def test_generated_files_score_as_the_restated_script_scores_them(name: str, tmp_path: Path) -> None:
    for seed in range(100, 106):
        require_same(name, seed, tmp_path)


def test_squad_v2_has_no_official_scores_if_a_prediction_is_missing(tmp_path: Path) -> None:
    case = case_of("squad v2", 3)
    predictions = json.loads(case.predictions)
    assert checked("squad v2", case, tmp_path / "whole").report.official
    del predictions[case.rows[-1]["id"]]
    case.predictions = json.dumps(predictions)
    assert (checked("squad v2", case, tmp_path / "cut").report.official, len(predictions) > 0) == ({}, True)


def fuzz(name: str, folder: Path, seconds: float, first: int) -> None:
    end, seed = time.monotonic() + seconds, first
    while time.monotonic() < end:
        require_same(name, seed, folder)
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_fuzzed_files_score_as_the_restated_script_scores_them(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, 3.5, 1_000)


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_fuzzed_files_score_equally_for_minutes(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, 120, random.SystemRandom().randrange(10**9))


def test_every_official_output_is_tried_here() -> None:
    assert (
        {name for name, layout in FORMATS.items() if layout.official is not None} == {form for form, _ in CASES.values()} == TABLES.keys()
    )
