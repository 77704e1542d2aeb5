"""Systems with a tuned model: which checkpoint each row of an experiment uses."""

from __future__ import annotations

from pathlib import Path

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
