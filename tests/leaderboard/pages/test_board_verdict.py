"""The verdict on the first line of the board, and the experiment that the board opens with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard.views.verdict import named_for_people
from results.boards.verdict_of import verdicts
from results.boards.verdict_text import verdict_text
from results.store import queries
from results.store.store import Store

Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return "".join(node.texts())


def test_board_starts_with_the_suite_verdict_and_its_facts(app: Start, several: Path) -> None:
    page = app(several).open()
    (line,) = page.part("verdict").find(cls="verdict")
    assert words(line).startswith("Mean over 3 benchmarks: ")
    assert len(list(next(page.part("verdict").find(tag="details")).find(tag="p"))) == 3
    facts = words(page.part("summary"))
    assert "180 questions" in facts
    assert "updated " in facts


def test_single_benchmark_verdict_uses_its_ranking_metric(app: Start, several: Path) -> None:
    of = {
        item.place.metric: item
        for item in verdicts(Store(several), "several")
        if item.place.benchmarks == (("hotpotqa:dev", "distractor"),)
    }
    for metric in ("em#v2", "recall@5#v2"):
        page = app(several).open(view="benchmark", metric=metric)
        assert words(page.part("verdict")).startswith(verdict_text(named_for_people(of[metric])))


def test_board_opens_with_the_largest_experiment(app: Start, several: Path, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(several, folder)
    store = Store(folder)
    store.put_experiment("aaa newer and smaller", "name: aaa", None, None, None, [run.run for run in queries.runs(store, "several")][:2])
    rows = {row.name: row.answered for row in queries.experiments(store)}
    assert rows["several"] > rows["aaa newer and smaller"] == 120
    store.database.close()
    page = app(folder).open()
    assert "3 benchmarks" in words(page.part("summary"))


@pytest.mark.parametrize("made", [False, True])
def test_empty_store_shows_how_to_fill_it(app: Start, tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "store"
    if made:
        Store(folder).put_cards([], [])
    shown = words(app(folder).open().part("message"))
    for command in ("ragmeter demo", "ragmeter init", "ragmeter run", "ragmeter submit"):
        assert command in shown
