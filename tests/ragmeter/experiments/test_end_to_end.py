"""Systems that tune their model: three steps of each, and its row in an experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment


def test_tuned_rows_use_the_checkpoints_of_their_trainings(tmp_path: Path) -> None:
    tuned = experiment.load("end_to_end/tuned", store=tmp_path)
    needs = {method.name: {plan.name for plan in method.needs} for method in tuned.methods if method.needs}
    assert len(needs) == 15
    assert {name.partition(" #")[0]: names for name, names in needs.items()} == {
        "Tuned reader": {"reader"},
        "DPA-RAG": {"dpa_rag"},
        "RAG-DDR": {"rag_ddr"},
        "RetRobust": {"retrobust"},
        "DRO": {"dro"},
    }


@pytest.mark.slow
def test_each_system_trains_three_steps_and_its_result_answers(tmp_path: Path, call: Callable[..., Any]) -> None:
    done = call("run", "end_to_end/tuned", "--profile", "tiny", "--store", str(tmp_path / "store"))
    assert done.code == 0, done
    assert all(row in done.out for row in ("Tuned reader", "DPA-RAG", "RAG-DDR", "RetRobust", "DRO"))
