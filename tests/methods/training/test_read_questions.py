"""The questions that loaders of trainings record: those for training or model selection, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.read_questions import Recorder, recording
from benchmarks.registry import load
from methods.clara.data import joint_rows, scp_rows
from methods.graphs.triples import load_graph
from methods.sark.data import load_material
from methods.training import TRAININGS

SMALL = {"worlds": {"worlds": 1}}


def sark() -> Any:
    options = {"data": ["worlds/style:train"], "validation": ["worlds/style:validation"], "base": "minilm"}
    return load_material(TRAININGS.get("sark").validate({**options, "data_options": SMALL, "validation_options": SMALL}))


def ark() -> Any:
    from methods.ark.data import load_material as load_ark

    options = {"data": ["worlds/long:train"], "validation": ["worlds/long:validation"], "evaluation": ["worlds/long:test"]}
    return load_ark(TRAININGS.get("ark").validate({**options, "data_options": SMALL, "validation_options": SMALL}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "expected", "others"),
    [
        (lambda: joint_rows("worlds/multihop:train", None, {"worlds": 1}), "worlds/multihop:train", ()),
        (lambda: scp_rows("worlds/long:train", None, {"worlds": 1}), None, ()),
        (sark, "worlds/style:train", ()),
        (lambda: load_graph(["worlds/graph:train"], SMALL), None, ("worlds/graph:train",)),
        (ark, "worlds/long:train", ("worlds/long:validation", "worlds/long:test")),
    ],
)
def test_loader_records_the_questions_that_are_trained_on(read: Callable[[], Any], expected: str | None, others: tuple[str, ...]) -> None:
    recorder = Recorder()
    with recording(recorder):
        result = read()
    record = recorder.read()

    def share(reference: str) -> float:
        questions = load(reference, SMALL["worlds"]).questions
        return 0.0 if record is None else float(record.touched([q.text for q in questions], [q.golds for q in questions]).mean())

    if expected is not None:
        assert share(expected) == 1.0
    elif not others:
        assert record is not None
        assert record.touched([text for row in result for text in row.questions], [[""] for row in result for _ in row.questions]).all()
    assert all(share(other) < 0.05 for other in others)
