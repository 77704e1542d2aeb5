"""The runs page: progress and speed, the list of runs, provenance, and differences between two runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.elements import formats
from leaderboard.pages import run as screen
from leaderboard.views import run as diff_view
from leaderboard.views.run import Sightings
from results.boards.diff import diff
from results.boards.systems import IMPLAUSIBLE
from results.errors import UserError
from results.store import queries
from results.store.queries import Running, RunRow, running
from results.store.store import FINISHED, RUNNING, Store

Start = Callable[[Path], Any]
BEGAN = datetime(2026, 1, 1, 12)
F1 = "f1(rules=hotpotqa)#v2"


def words(node: Any) -> str:
    return " ".join(node.texts())


def running_run(done: int, **changes: Any) -> Running:
    run = Running("ab" * 8, "e", "m", "toy:dev", "distractor", 0, 1000, done, 0, BEGAN, BEGAN)
    return replace(run, **changes)


def seconds(number: float) -> datetime:
    return BEGAN + timedelta(seconds=number)


def test_list_of_runs_marks_an_implausible_submission(filled: Path, synthetic: ModuleType) -> None:
    run = queries.runs(Store(filled), synthetic.EXPERIMENT)[0]
    theirs = replace(run, origin="submitted", card={"submission": {IMPLAUSIBLE: ["why"]}})
    assert words(diff_view.listing([theirs], "")).count(IMPLAUSIBLE) == 1
    assert IMPLAUSIBLE not in words(diff_view.listing([run], ""))


def test_first_poll_reports_the_mean_speed_since_the_start() -> None:
    (pace,) = Sightings().look([running_run(100)], seconds(50)).values()
    assert (pace.per_second, pace.remaining_s, pace.quiet_s) == (2.0, 450.0, 0.0)


def test_resumed_run_has_a_speed_only_from_the_second_poll() -> None:
    sightings = Sightings()
    resumed = {"started_at": BEGAN - timedelta(days=1)}
    (first,) = sightings.look([running_run(500, **resumed)], seconds(50)).values()
    assert first.per_second is first.remaining_s is None
    (second,) = sightings.look([running_run(520, **resumed)], seconds(60)).values()
    assert (second.per_second, second.remaining_s) == (2.0, 240.0)


def test_speed_is_measured_over_the_last_two_minutes() -> None:
    sightings = Sightings()
    for at in range(0, 600, 2):
        # Ten questions a second at first, one a second from the fifth minute on.
        done = min(at, 300) * 10 + max(0, at - 300)
        (pace,) = sightings.look([running_run(done, questions=10_000)], seconds(at)).values()
    assert pace.per_second == pytest.approx(1.0)
    assert pace.remaining_s == pytest.approx(10_000 - done)


def test_stalled_run_has_no_speed_and_shows_its_idle_time() -> None:
    sightings = Sightings()
    for at in (0, 10, 100, 200):
        (pace,) = sightings.look([running_run(5)], seconds(at)).values()
    assert (pace.per_second, pace.remaining_s, pace.quiet_s) == (None, None, 200.0)
    assert "nothing new for 3 min 20 s" in words(diff_view.live([running_run(5)], {"ab" * 8: pace}))


def test_known_cost_of_a_running_run_is_shown() -> None:
    pace = {"ab" * 8: Sightings().look([running_run(5)], seconds(10))["ab" * 8]}
    assert "0.25" in words(diff_view.live([running_run(5, dollars=0.25)], pace))
    assert "nan" not in words(diff_view.live([running_run(5, dollars=float("nan"))], pace))


def test_restarted_run_has_no_negative_speed() -> None:
    sightings = Sightings()
    sightings.look([running_run(500)], seconds(0))
    (pace,) = sightings.look([running_run(3, resumed_at=seconds(10), started_at=BEGAN)], seconds(40)).values()
    assert pace.per_second is None


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-50, 200)), max_size=20))
def test_speed_is_positive_and_finite_for_any_sightings(looks: list[tuple[int, int]]) -> None:
    sightings, at, done = Sightings(), 0, 0
    for wait, more in looks:
        at, done = at + wait, min(1000, max(0, done + more))
        (pace,) = sightings.look([running_run(done)], seconds(at)).values()
        assert pace.per_second is None or 0 < pace.per_second < 1e7
        assert pace.remaining_s is None or 0 <= pace.remaining_s < 1e9
        assert pace.quiet_s >= 0


@pytest.mark.parametrize(
    ("left", "response"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
        (100_800, "1 d 4 h"),
        (8_640_000, "100 d"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(left: float, response: str) -> None:
    assert formats.span(left) == response


def runs_of(store: Store, experiment: str | None = None) -> dict[str, RunRow]:
    return {run.method: run for run in queries.runs(store, experiment)}


def prepared(store: Store, world: Any, synthetic: ModuleType, run: str, status: str = FINISHED) -> str:
    """Store a run without answers."""
    count = len(world.questions)
    store.put_benchmark(world, world.fingerprint)
    store.start(synthetic.Run(run, "m", "m", "method", {}, "madeup:test", world.fingerprint, "distractor", 0, count, {}))
    store.end(run, status)
    return run


def test_running_run_shows_progress_and_refreshes_automatically(app: Start, filled: Path) -> None:
    page = app(filled).open("runs")
    assert not page.test.exception
    (run,) = running(Store(filled))
    response = words(page.part("live"))
    assert run.method in response
    assert f"{run.done} of {run.questions}" in response
    (bar,) = page.part("live").find(cls="whisker")
    assert bar.numbers["high"] == run.done / run.questions
    assert bar.attributes["label"] == "32% answered"


def test_page_reports_that_no_run_is_active(app: Start, tmp_path: Path, synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.read.REST_S", 0.0)
    store = Store(tmp_path / "s")
    run = prepared(store, synthetic.benchmark(3), synthetic, "ab" * 8, RUNNING)
    page = app(store.folder).open("runs")
    assert page.has("live")
    store.end(run, FINISHED)
    page.test.run()
    assert not page.has("live")
    assert "Nothing is running" in words(page.part("live-none"))
    assert "running" not in words(page.part("list"))
    prepared(store, synthetic.benchmark(3), synthetic, "cd" * 8, RUNNING)
    page.test.run()
    assert page.has("live")
    assert not page.has("live-none")


def test_read_error_during_automatic_refresh_is_shown(app: Start, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = app(filled).open("runs")

    def busy(_: Store) -> list[Any]:
        raise UserError("another program has the file open")

    monkeypatch.setattr("leaderboard.widgets.running", busy)
    page.test.run()
    assert not page.test.exception
    assert "another program has the file open" in words(page.part("live-none"))
    assert page.has("list")


def test_runs_are_listed_once_and_filtered(app: Start, filled: Path) -> None:
    every = {run.run: run for run in queries.runs(Store(filled))}

    def listed(page: Any) -> list[str]:
        return [node.action["run"] for node in page.part("list").find(tag="button")]

    page = app(filled).open("runs", experiment="*")
    assert sorted(listed(page)) == sorted(every)
    assert listed(page.choose("State", "running")) == [run for run in every if every[run].status == RUNNING]
    page.choose("Experiment", "open corpus")
    assert "No run matches" in words(page.part("message"))
    page.choose("State", "any")
    assert sorted(listed(page)) == sorted(r.run for r in queries.runs(Store(filled), "open corpus"))


def test_run_in_the_url_shows_its_provenance(app: Start, filled: Path, synthetic: ModuleType) -> None:
    run = runs_of(Store(filled), synthetic.EXPERIMENT)["hybrid"]
    page = app(filled).open("runs", run=run.run)
    response = words(page.part("made"))
    for part in (run.run, run.dataset, run.dataset_fingerprint, run.setting, "40 of 40 questions", "Run here"):
        assert part in response
    assert "machine none" in words(page.part("made"))


def test_run_list_opens_at_the_page_of_the_url_run(app: Start, tmp_path: Path, synthetic: ModuleType) -> None:
    store = Store(tmp_path / "s")
    ids = [f"{number:016x}" for number in range(60)]
    prepared(store, synthetic.benchmark(2), synthetic, "f" * 16)
    with store.database.writing() as connection:
        connection.execute(
            """INSERT INTO runs SELECT runs.* REPLACE (printf('%016x', i) AS run, 'm' || i AS method,
               started_at - INTERVAL 1 DAY + i * INTERVAL 1 SECOND AS started_at) FROM runs, range(60) AS numbers(i)"""
        )
        connection.execute("DELETE FROM runs WHERE run = ?", ["f" * 16])
    page = app(store.folder).open("runs", run=ids[5])
    assert "51–60 of 60" in words(page.part("place"))
    assert "m5 " in words(page.part("list"))
    page.test.button(key="newer").click().run()
    assert "26–50 of 60" in words(page.part("place"))
    assert page.query["run"] == ids[5]
    page.test.button(key="newer").click().run()
    assert page.test.button(key="newer").disabled
    assert "1–25 of 60" in words(app(store.folder).open("runs", **{"from": "-1"}).part("place"))


@pytest.mark.parametrize(
    "requests", [{"run": "../../etc/passwd", "with": "x"}, {"from": "9" * 400, "state": "<script>"}, {"experiment": "'; DROP"}]
)
def test_url_with_unknown_names_falls_back_to_defaults(app: Start, filled: Path, requests: dict[str, str]) -> None:
    page = app(filled).open("runs", **requests)
    assert not page.test.exception
    usual = app(filled).open("runs", experiment="*")
    assert page.part("made") == usual.part("made")


def test_differing_settings_equal_the_command_output(app: Start, filled: Path, synthetic: ModuleType) -> None:
    store = Store(filled)
    runs = runs_of(store, synthetic.EXPERIMENT)
    first, second = runs["bm25"], runs["hybrid"]
    result = diff(store, first, second, questions=0)
    page = app(filled).open("runs", run=first.run, **{"with": second.run})
    assert not page.test.exception
    body = next(page.part("settings").find(tag="tbody"))
    assert [setting.key for setting in result.settings] == ["".join(head.texts()) for head in body.find(tag="th")]
    links = [item.proto for item in page.test.get("page_link")]
    assert any(f"{first.run}%2C{second.run}" in item.query_string for item in links), "their questions are on the page Compare"
    assert f"ragmeter results compare {first.run[:8]} {second.run[:8]}" in words(page.part("diff-command"))


def test_nearest_runs_are_offered_and_any_run_opens_by_url(
    app: Start, filled: Path, synthetic: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (runs_of(Store(filled), synthetic.EXPERIMENT)[name].run for name in ("bm25", "hybrid"))
    monkeypatch.setattr(screen, "NEAREST", 1)

    def offered(**address: str) -> list[str]:
        page = app(filled).open("runs", run=first, **address)
        return next(box for box in page.test.selectbox if box.label == "Other run").options

    assert len(offered()) == 2
    far = offered(**{"with": second})
    assert len(far) in (2, 3)
    assert any("hybrid" in name for name in far)


def test_runs_on_different_data_have_no_link_to_compare(app: Start, tmp_path: Path, synthetic: ModuleType) -> None:
    store = Store(tmp_path / "s")
    first = prepared(store, synthetic.benchmark(4, seed=9), synthetic, "ab" * 8)
    second = prepared(store, synthetic.benchmark(6), synthetic, "cd" * 8)
    page = app(store.folder).open("runs", run=first, **{"with": second})
    assert page.has("settings")
    assert not page.test.get("page_link")


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_store_without_runs_shows_the_next_step(app: Start, tmp_path: Path, kind: str) -> None:
    if kind == "empty":
        Store(tmp_path / "s").put_cards([], [])
    page = app(tmp_path / "s").open("runs")
    assert not page.test.exception
    assert "ragmeter demo" in words(page.part("message"))
