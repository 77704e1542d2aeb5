"""A run in a terminal: scores come first, and its configuration only on request."""

from __future__ import annotations

import pytest

from ragmeter.show.console import out
from ragmeter.show.run_text import show_run
from results.boards.board import board
from results.store import queries
from results.store.store import Store


@pytest.mark.parametrize("verbose", [False, True])
def test_run_text_starts_with_scores_and_shows_json_only_with_verbose(store: Store, verbose: bool) -> None:
    run = next(row for row in queries.runs(store, "small") if row.method == "bm25")
    with out.capture() as text:
        show_run(run, board(store, [run]), {}, {}, verbose=verbose)
    lines = text.get().splitlines()
    assert lines[1].split() == ["metric", "bm25"]
    assert lines[2].split()[:2] == ["em", "↑"]
    assert any(line.split()[:2] == ["run", run.run] for line in lines)
    assert any("{" in line for line in lines) == verbose
    assert (len(lines) < 20) != verbose
