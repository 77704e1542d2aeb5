"""The printed plan: expected wall time on this machine, and the number of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ragmeter import experiment
from ragmeter.plan.plan import Plan, plan_of
from ragmeter.plan.show import LINES, show_plan
from ragmeter.show.console import out
from results.store.store import Store


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    store = tmp_path_factory.mktemp("plan") / "store"
    return plan_of(experiment.load("first", store=store), Store(store))


def shown(plan: Plan) -> list[str]:
    with out.capture() as text:
        show_plan(plan, "store")
    return text.get().splitlines()


@pytest.mark.parametrize(
    ("hours", "pieces"),
    [
        ((None, None), ["unknown", "--limit 5"]),
        ((0.5, 0.5), ["wall time here: 1 h,"]),
        ((0.5, None), ["at least 30 min", "1 task not measured yet"]),
    ],
)
def test_wall_time_comes_from_earlier_runs_or_is_unknown(plan: Plan, hours: Sequence[float | None], pieces: list[str]) -> None:
    measured = replace(plan, tasks=tuple(replace(row, measured_hours=each) for row, each in zip(plan.tasks, hours, strict=True)))
    (line,) = [line for line in shown(measured) if "wall time" in line]
    assert [piece for piece in pieces if piece not in line] == []


def test_lines_beyond_ten_are_summarized_by_a_count(plan: Plan) -> None:
    many = replace(plan, mappings={f"data{number}": "question: query" for number in range(20)})
    lines = shown(many)
    assert len(lines) == LINES
    assert "--verbose" in lines[-1]
    assert len(shown(plan)) < LINES
