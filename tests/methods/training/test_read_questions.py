"""What loaders of trainings record: questions for training or model selection, and records that could not be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.read_questions import Recorder, left_out_counts, recording
from benchmarks.registry import load
from methods.api import Services
from methods.clara.data import instruction_rows, joint_rows, scp_rows
from methods.graphs.triples import load_graph
from methods.sark.data import load_material
from methods.training import TRAININGS, Prepared, TrainingContext
from methods.training.stages import OneStageTraining, PreparedRun

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


def rog(path: Path, *rows: str) -> dict[str, dict[str, Any]]:
    good = {"id": "q", "question": "who?", "answer": ["a"], "q_entity": ["b"], "a_entity": ["a"], "graph": [["b", "x.y.of", "a"]]}
    path.write_text("".join(f"{row}\n" for row in (json.dumps(good), *rows)))
    return {"webqsp": {"path": str(path), "skip_bad": True}}


def test_records_that_graphs_leave_out_are_counted_once(tmp_path: Path) -> None:
    options = rog(tmp_path / "graphs.jsonl", "{}", "[]")
    with recording(Recorder()):
        for _ in range(2):
            load_graph(["webqsp:train"], options)
        assert left_out_counts() == {"records_skipped": 2}
    assert left_out_counts() == {}


def test_records_that_questions_and_rows_leave_out_are_counted(tmp_path: Path) -> None:
    questions, rows = tmp_path / "questions.jsonl", tmp_path / "rows.jsonl"
    questions.write_text('{"question": "who?", "answers": ["a"]}\n{"answers": ["b"]}\n')
    rows.write_text('{"question": "who?", "docs": ["a"], "gold_answer": "a", "answer": "a"}\n{"docs": ["b"]}\n')
    with recording(Recorder()):
        load("files:train", {"path": str(questions), "skip_bad": True})
        assert left_out_counts() == {"records_skipped": 1}
        instruction_rows("clara_stages/instruction_tuning:train", None, {"path": str(rows), "skip_bad": True})
        assert left_out_counts() == {"records_skipped": 2}


def test_stage_says_how_many_records_were_left_out(tmp_path: Path) -> None:
    class Training(OneStageTraining):
        stage = "only"

        def load(self) -> tuple[Any, tuple[str, ...]]:
            load("files:train", {"path": str(tmp_path / "questions.jsonl"), "skip_bad": True})
            return None, ("data",)

        def begin(self, data: Any, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
            return PreparedRun(None, lambda folder, figures: None, {"rows": 1.0})  # type: ignore[arg-type]

    (tmp_path / "questions.jsonl").write_text('{"question": "who?", "answers": ["a"]}\n{"answers": ["b"]}\n')
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    config = TRAININGS.get("gpr").validate({"graph": ["webqsp:train"], "base": str(tmp_path / "base")})
    context = TrainingContext(tmp_path / "work", tmp_path / "out", Services(device="cpu"), prepares=True)
    with recording(Recorder()), pytest.raises(Prepared) as prepared:
        list(Training(config).run(context))
    assert prepared.value.figures == {"rows": 1, "records_skipped": 1}
