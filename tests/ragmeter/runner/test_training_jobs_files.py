"""A finished training is used only with the files that it read; a killed one leaves no checkpoint without its record."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import load
from methods.clara.data import instruction_rows, scp_rows
from methods.graphs.triples import load_graph
from methods.training import TRAININGS, Silent, TrainingConfig, TrainingContext, register_training
from methods.training.stages import OneStageTraining, PreparedRun, write_json
from ragmeter.runner.training_jobs import TrainingJob, register_finished, require_same_files
from ragmeter.trainings import TrainingPlan
from results.store.checkpoints import known_checkpoints
from results.store.store import Store
from tests.support.errors import raises

pytest.importorskip("accelerate")

ROWS = '{"question": "who?", "docs": ["a", "b"], "gold_answer": "a", "answer": "It is a."}\n'
PAIRS = '{"data_type": "qa", "question": ["who?"], "answers": ["a"], "docs": ["a"]}\n'
GRAPH = '{"id": "q", "question": "who?", "answer": ["a"], "q_entity": ["b"], "a_entity": ["a"], "graph": [["b", "x.of", "a"]]}\n'
QUESTIONS = '{"question": "who?", "answers": ["a"], "contexts": ["a"]}\n'


class FilesConfig(TrainingConfig):
    path: str
    reads: str
    base: str
    precision: str = "no"


READS: Mapping[str, Callable[[str], Any]] = {
    "instruction": lambda path: instruction_rows("clara_stages/instruction_tuning:train", None, {"path": path}),
    "pretraining": lambda path: scp_rows("clara_stages/pretraining:train", None, {"path": path}),
    "graph": lambda path: load_graph(["webqsp:train"], {"webqsp": {"path": path}}).fingerprint,
    "questions": lambda path: load("files:train", {"path": path}).fingerprint,
    "documents": lambda path: load("files:train", {"path": path, "documents": str(Path(path).parent / "texts")}).fingerprint,
}


class Loop:
    def run(self) -> Mapping[str, float]:
        return {}

    def forget(self) -> None:
        pass


class FilesTraining(OneStageTraining):
    stage = "only"

    def load(self) -> tuple[Any, Sequence[str]]:
        return None, (str(len(str(READS[self.config.reads](self.config.path)))),)

    def begin(self, data: Any, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        return PreparedRun(Loop(), lambda folder, figures: write_json(folder / "weights.json", {}), {"rows": 1.0})


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    list(TRAININGS)
    before = dict(TRAININGS._entries)
    register_training("files_test", summary="reads", stages=("only",), config=FilesConfig, extra=None)(FilesTraining)
    yield
    TRAININGS._entries.clear()
    TRAININGS._entries.update(before)


def job_of(folder: Path, reads: str, text: str) -> tuple[TrainingJob, TrainingPlan]:
    file, base, texts = folder / "data.jsonl", folder / "base", folder / "texts"
    file.write_text(text, "utf-8")
    base.mkdir()
    texts.mkdir()
    (texts / "one.md").write_text("a")
    (base / "config.json").write_text("{}")
    (base / "model.safetensors").write_bytes(b"0123")
    entry = TRAININGS.get("files_test")
    options = {"path": str(file), "reads": reads, "base": str(base)}
    plan = TrainingPlan("own", entry, entry.validate(options), options)
    return TrainingJob(entry, plan.config, Store(folder / "store"), device="cpu"), plan


@pytest.mark.parametrize(
    ("reads", "text"), [("instruction", ROWS), ("pretraining", PAIRS), ("graph", GRAPH), ("questions", QUESTIONS), ("documents", QUESTIONS)]
)
def test_finished_training_is_refused_if_a_file_that_it_read_was_edited(tmp_path: Path, reads: str, text: str) -> None:
    job, plan = job_of(tmp_path, reads, text)
    job.run(Silent())
    require_same_files([plan], job.store)
    file = tmp_path / "data.jsonl"
    file.write_text(text.replace('"who?"', '"how?"'), "utf-8")
    with raises("training-data-changed"):
        require_same_files([plan], job.store)
    file.write_text(text, "utf-8")
    os.utime(file, ns=(1, 1))
    require_same_files([plan], job.store)


def test_finished_training_is_refused_if_a_document_was_added(tmp_path: Path) -> None:
    job, plan = job_of(tmp_path, "documents", QUESTIONS)
    job.run(Silent())
    (tmp_path / "texts" / "two.md").write_text("b")
    with raises("training-data-changed"):
        require_same_files([plan], job.store)


def test_finished_training_is_refused_if_its_base_was_replaced(tmp_path: Path) -> None:
    job, plan = job_of(tmp_path, "questions", QUESTIONS)
    job.run(Silent())
    weights = tmp_path / "base" / "model.safetensors"
    weights.write_bytes(b"9876")
    os.utime(weights, ns=(1, 1))
    with raises("training-data-changed"):
        require_same_files([plan], job.store)
    weights.unlink()
    require_same_files([plan], job.store)  # what does not exist any more is not checked


@pytest.mark.parametrize("moved", ["renamed", "copied"])
def test_training_of_files_in_a_data_folder_is_compared_with_the_folder_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    monkeypatch.setenv("RAGMETER_DATA", str(before))
    job, plan = job_of(before, "documents", QUESTIONS)
    job = replace(job, store=Store(tmp_path / "store"))
    job.run(Silent())
    require_same_files([plan], job.store)
    (before.rename if moved == "renamed" else partial(shutil.copytree, before))(after)
    monkeypatch.setenv("RAGMETER_DATA", str(after))
    require_same_files([plan], job.store)
    (after / "texts" / "one.md").write_text("b")
    with raises("training-data-changed", where=str(after)):
        require_same_files([plan], job.store)
    monkeypatch.delenv("RAGMETER_DATA")
    require_same_files([plan], job.store)  # nowhere to look


def test_touched_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, plan = job_of(tmp_path, "questions", QUESTIONS)
    job.run(Silent())
    for path in (tmp_path / "base").iterdir():
        os.utime(path, ns=(1, 1))
    require_same_files([plan], job.store)
    monkeypatch.setattr("ragmeter.runner.training_jobs.file_hash", None)
    require_same_files([plan], job.store)


def test_file_edited_while_it_was_trained_on_counts_as_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, plan = job_of(tmp_path, "questions", QUESTIONS)
    monkeypatch.setattr(Loop, "run", lambda self: (tmp_path / "data.jsonl").write_text(QUESTIONS * 2) and {})
    job.run(Silent())
    with raises("training-data-changed"):
        require_same_files([plan], job.store)


@pytest.mark.parametrize("step", ["_record_files", "_described"])
def test_killed_process_leaves_no_checkpoint_without_its_training_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    job, plan = job_of(tmp_path, "questions", QUESTIONS)

    def killed(*arguments: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(TrainingJob, step, killed)
        with pytest.raises(SystemExit):
            job.run(Silent())
    assert plan.trained(job.store.folder) == ()
    job.run(Silent())
    (known,) = known_checkpoints(job.store).values()
    assert known.read is not None
    require_same_files([plan], job.store)
    (tmp_path / "data.jsonl").write_text(json.dumps({"question": "how?", "answers": ["a"], "contexts": ["a"]}) + "\n")
    with raises("training-data-changed"):
        require_same_files([plan], job.store)


def test_finished_checkpoint_that_no_process_registered_is_registered(tmp_path: Path) -> None:
    job, plan = job_of(tmp_path, "questions", QUESTIONS)
    with_card = TrainingJob.carry_out(job, Silent(), None, registers=False)
    assert known_checkpoints(job.store) == {}
    register_finished([plan], job.store)
    assert list(known_checkpoints(job.store)) == [with_card[0][1].sha256]
