"""The style page: drops and curves equal the results, in the metric's direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.registry import load
from benchmarks.styles.mix import styled
from judges.metric import parse
from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import TAGS
from leaderboard.elements.pictures import Point, plot
from leaderboard.report import styles
from leaderboard.views import style
from methods.api import Prediction
from results.boards.style import GapTable, style_curves, style_gaps
from results.store import score_queries
from results.store.store import FINISHED, Run, Store

Start = Callable[[Path], Any]
METRIC = "em(rules=squad)"
SHARES = (0.0, 0.5, 1.0)
N = 60
HOSTILE = "</script><img src=x onerror=alert(1)>"


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def styles_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with two methods and a control over one base in three styles; the second method at two depths."""
    folder = tmp_path_factory.mktemp("styles") / "store"
    store, base = Store(folder), load("worlds/multihop:test", {"questions": N})
    metric = parse(METRIC)
    store.put_cards([], [metric])
    draw = np.random.default_rng(5)
    runs, names = [], []
    for position, share in enumerate(SHARES):
        benchmark = styled(base, mix={"informal": share})
        store.put_benchmark(benchmark, benchmark.fingerprint)
        for number, (name, k) in enumerate([(HOSTILE, 5), ("steady, k = 2", 2), ("steady, k = 8", 8), ("gold", 5)]):
            values = (draw.random(N) < 0.9 - (0.8 * share if name == HOSTILE else 0)) * 1.0
            described = {"method": {"id": "m"}, "rerankers": [{"id": name.partition(",")[0]}], "k": k, "depth": None}
            kind = "control" if name == "gold" else "retriever"
            run = Run(
                f"run{position}{number:04d}", name, "m", kind, described, benchmark.name, benchmark.fingerprint, "distractor", 0, N, {}
            )
            store.start(run)
            requests = [question.id for question in benchmark.questions]
            store.append(run.run, [Prediction(item, "x") for item in requests], {str(metric): values})
            store.end(run.run, FINISHED)
            runs.append(run.run)
            names.append(name)
    store.put_experiment("restyled", "name: restyled", None, None, None, runs, names=names)
    return folder


@pytest.fixture(scope="module")
def table(styles_store: Path) -> GapTable:
    (result,) = style_gaps(Store(styles_store), "restyled")
    return result


def row_of(node: Any, *responses: str) -> list[str]:
    row = next(row for row in node.find(tag="tr") if all(item in list(row.texts()) for item in responses))
    return [words(cell) for cell in row.find(tag="td")]


@pytest.mark.slow
def test_style_table_equals_the_statistics(table: GapTable) -> None:
    node = style.gaps(table)
    for row in table.rows:
        for gap in row.gaps:
            result = gap.result.gap
            name, formal, shown, _, moved, *_ = row_of(node, row.method, gap.styled.name)
            assert name == gap.styled.name
            assert formal.startswith(f"{100 * row.formal.value:.1f}")
            assert f"{100 * result.value:+.1f}".replace("-", "−").replace("+0.0", "0.0") in shown
            assert moved == f"{result.wins} · {result.losses}"
            kept, lost = row_of(node, row.method, gap.styled.name)[-4:-2]
            assert kept == f"{100 * gap.answers_kept.value:.1f}"
            assert lost == f"{100 * gap.result.content_lost.value:.1f}"


def test_significant_loss_is_marked_and_reversed_for_lower_is_better(table: GapTable) -> None:
    shown = row_of(style.gaps(table), HOSTILE, "informal")[2]
    assert shown.startswith("▼ +")
    turned = row_of(style.gaps(table, higher_is_better=False), HOSTILE, "informal")
    assert turned[2].startswith("▲ +")
    gap = next(gap for gap in table.rows[0].gaps if gap.styled.name == "informal").result.gap
    assert turned[4] == f"{gap.losses} · {gap.wins}"


def test_controls_have_a_badge_and_are_excluded_from_the_mean(table: GapTable) -> None:
    node = style.gaps(table)
    assert len([row for row in node.find(cls="control") if row.tag == "tr"]) == 2
    ranked = [d.result.gap.value for row in table.rows[:3] for d in row.gaps if d.styled.name == "informal"]
    assert f"informal {100 * np.mean(ranked):+.1f}" in words(style.gap_section(table, higher_is_better=True))


def test_unknown_content_loss_is_reported(table: GapTable) -> None:
    forgotten = replace(
        table, rows=tuple(replace(row, gaps=tuple(replace(d, content_known=False) for d in row.gaps)) for row in table.rows)
    )
    assert row_of(style.gaps(forgotten), HOSTILE, "informal")[-4:] == ["–"] * 4
    assert "unknown which answers restyling lost" in style.gaps_note(forgotten)
    assert "unknown which answers restyling lost" not in style.gaps_note(table)


def test_drop_chart_shows_each_drop_once(table: GapTable) -> None:
    drawing = style.gap_chart(table)
    titles = [part[2][0][2][0] for part in drawing[2] if part[2] and part[2][0][0] == "title"]
    expected = [f"{row.method}: {PERCENT.difference(gap.result.gap.value)} " for row in table.rows for gap in row.gaps]
    assert len(titles) == len(expected)
    assert all(title.startswith(start) for title, start in zip(titles, expected, strict=True))


def test_curves_pass_through_the_values(styles_store: Path) -> None:
    (curves,) = style_curves(Store(styles_store), "restyled", "formal")
    points = style.curve_points(curves)
    hostile = [point for point in points if point.series == HOSTILE]
    assert [point.x for point in hostile] == [0, 50, 100]
    assert [point.value for point in hostile] == pytest.approx([100 * item.value for _, item in sorted(curves.curves[0].points.items())])
    shown = row_of(style.curve_table(curves), HOSTILE)
    assert [cell.split()[0].strip("†") for cell in shown[:3]] == [f"{point.value:.1f}" for point in hostile]


def test_points_without_a_value_are_not_drawn() -> None:
    nan = float("nan")
    points = [Point("a", 1, 2.0, nan, nan, "a", "2"), Point("a", 2, nan, nan, nan, "a", "–")]
    drawing = plot(points, "x", "y", "label")
    (mark,) = [part for part in drawing[2] if part[1].get("class", "").startswith("mark")]
    assert [part[0] for part in mark[2]] == ["title", "path"]
    assert plot(points[1:], "x", "y", "label") is None


def test_curves_differ_in_shape_and_color() -> None:
    points = [Point(f"m{number}", 1.0, 2.0, 1.0, 3.0, "", "") for number in range(14)]
    marks = [part for part in plot(points, "x", "y", "label")[2] if part[2] and part[2][0][0] == "title"]
    assert len({(mark[1]["class"], mark[2][-1][1]["d"]) for mark in marks}) == 14


def test_page_shows_drops_and_both_kinds_of_curves(app: Start, styles_store: Path) -> None:
    page = app(styles_store).open("styles")
    assert not page.test.exception
    assert HOSTILE in words(page.part("gaps-0"))
    assert page.has("curves-formal")
    assert page.has("curves-k")
    assert {node.tag for node in page.part("gaps-0").find()} <= TAGS


def test_store_without_styles_shows_the_command_to_run(app: Start, filled: Path) -> None:
    page = app(filled).open("styles")
    assert not page.test.exception
    assert "ragmeter list experiments" in words(page.part("message"))


def test_experiment_without_formal_candidates_explains_what_to_run(app: Start, tmp_path: Path) -> None:
    store, metric = Store(tmp_path / "store"), parse(METRIC)
    benchmark = styled(load("worlds/multihop:test", {"questions": 2}), mix={"informal": 1.0})
    store.put_cards([], [metric])
    store.put_benchmark(benchmark, benchmark.fingerprint)
    run = Run("run", "steady", "m", "retriever", {}, benchmark.name, benchmark.fingerprint, "distractor", 0, 2, {})
    store.start(run)
    store.append(run.run, [Prediction(question.id, "x") for question in benchmark.questions], {str(metric): np.zeros(2)})
    store.end(run.run, FINISHED)
    store.put_experiment("only informal", "name: only informal", None, None, None, [run.run])
    page = app(store.folder).open("styles", experiment="only informal")
    assert not page.test.exception
    assert page.has("message")


@pytest.mark.slow
def test_report_contains_the_style_section(styles_store: Path, table: GapTable) -> None:
    store = Store(styles_store)
    (node,) = styles(store, "restyled", score_queries.definitions(store))
    assert "Style gaps in EM" in words(node)
    drawn = next(node.find(tag="table"))
    assert words(drawn) == words(next(style.gaps(table).find(tag="table")))


def test_one_style_in_two_settings_is_not_a_style_gap(app: Start, several: Path) -> None:
    page = app(several).open("styles")
    assert not page.test.exception
    assert "No experiment compares styles" in words(page.part("message"))
