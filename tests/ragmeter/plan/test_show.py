"""The printed plan: expected wall time on this machine, and the number of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from methods.training import TRAININGS
from ragmeter import experiment
from ragmeter.plan.plan import Plan, PlannedWork, plan_of, plan_training
from ragmeter.plan.show import LINES, show_plan
from ragmeter.show.console import out
from ragmeter.trainings import TrainingPlan
from results.store.store import Store


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    store = tmp_path_factory.mktemp("plan") / "store"
    return plan_of(experiment.load("first", store=store), Store(store))


def shown(plan: Plan) -> list[str]:
    with out.capture() as text:
        show_plan(plan, "store")
    return text.get().splitlines()


def demo_training(name: str) -> TrainingPlan:
    entry = TRAININGS.get(name)
    return TrainingPlan(name, entry, entry.validate({"preset": "demo"}), {"preset": "demo"})


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


def test_plan_of_a_training_gives_no_advice_that_only_runs_can_follow(tmp_path: Path) -> None:
    lines = shown(plan_training(demo_training("clara"), Store(tmp_path / "store")))
    assert "3 stages to train" in lines[0]
    assert [line for line in lines if "--limit" in line] == []


def test_plan_of_a_training_shows_the_loader_options_that_its_preset_keeps(tmp_path: Path) -> None:
    entry = TRAININGS.get("ark")
    supplied = {"preset": "worlds", "data_options": {"worlds": {"worlds": 2}}}
    plan = plan_training(TrainingPlan("ark", entry, entry.validate(supplied), supplied), Store(tmp_path / "store"))
    (options,) = plan.mappings.values()
    assert {"worlds 2", "density 0.4"} <= set(options.split(", "))
    assert [line for line in shown(plan) if options in " ".join(line.split())]


def test_plan_names_endpoints_and_the_disk_needed_meanwhile(plan: Plan) -> None:
    stage = PlannedWork({"training": "t", "seed": 0, "stage": "s", "steps": 1, "trained": False}, {}, scratch=2e12)
    served = replace(plan, stages=(stage,), endpoints={("http://localhost:8000/v1", "qwen"): ("reader",)})
    lines = shown(served)
    assert [line for line in lines if "qwen at http://localhost:8000/v1" in line]
    assert [line for line in lines if "2TB more" in line]
    assert [line for line in lines if "after training" in line and "--limit" in line]
    assert not [line for line in shown(plan) if "must answer" in line or "while it trains" in line]
