"""Boards in a terminal: what stands behind a method's name."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from rich.console import Console

from ragmeter.console import show_board
from results.board import boards


def test_names_say_who_was_sent_in_and_who_learnt_what_is_asked(tmp_path: Path, module_at: Callable[[Path], ModuleType]) -> None:
    made = module_at(Path(__file__).parents[2] / "leaderboard" / "matrix_store.py")
    store = made.fill(tmp_path / "store")
    printed = {}
    for board in boards(store, "several"):
        out = io.StringIO()
        show_board(board, Console(file=out, width=200))
        printed[board.dataset, board.setting] = out.getvalue()
    asked_nq = printed["nq:test", "distractor"]
    # Long names are folded.
    assert re.search(r"^trained on it .*\n\(contaminated\) ", asked_nq, re.MULTILINE)
    assert "trained on it: contaminated: nq was trained on; not compared" in asked_nq
    cheated = printed["musique:dev", "distractor"]
    assert re.search(r"^cheat@1 \(submitted, .*\ncontaminated\) ", cheated, re.MULTILINE)
    other = " ".join(printed["hotpotqa:dev", "distractor"].split())
    assert "cheat@1 (submitted) " in other
    assert "contaminated" not in other
