"""A training on test questions under another dataset's name is detected on the board, in the gate and in comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from benchmarks.core.fingerprint import folder_sha256
from benchmarks.corpus import Corpus
from benchmarks.read_questions import FILE
from benchmarks.registry import load
from methods.api import Index, Services
from methods.baselines.bm25 import BM25, BM25Config
from methods.registry import METHODS, MethodConfig, register
from methods.training import TRAININGS, TrainedStage, TrainingContext, register_training
from methods.training.contrast import HeldOutConfig
from methods.training.material import load_data
from results.store.checkpoints import known_checkpoints
from results.store.store import Store

pytestmark = pytest.mark.slow

Command = Callable[..., Any]
N = 50


class CountingTraining:
    """Training that reads its data like shipped trainings, and counts the questions."""

    def __init__(self, config: HeldOutConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        folder = context.checkpoints / "counted"
        fresh = not folder.exists()
        benchmarks = load_data(self.config.data, self.config.data_options)
        benchmarks += load_data(self.config.validation, self.config.validation_options, train=False)
        if fresh:
            folder.mkdir(parents=True)
            (folder / "count.json").write_text(json.dumps(sum(len(item.questions) for item in benchmarks)), "utf-8")
        yield TrainedStage("counted", folder, data=[item.fingerprint for item in benchmarks], fresh=fresh)


class CountedConfig(MethodConfig):
    model: str = Field(description="folder")


class CountedRetriever:
    def __init__(self, config: CountedConfig, services: Services) -> None:
        self.inner = BM25(BM25Config(), services)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        return self.inner.index(corpus, folder)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Register the retriever and its training only for these tests."""
    list(METHODS), list(TRAININGS)
    before = dict(METHODS._entries), dict(TRAININGS._entries)
    register(
        "counted_test", kind="retriever", summary="BM25", config=CountedConfig, checkpoint_hash=lambda c: folder_sha256(Path(c.model))
    )(CountedRetriever)
    register_training("counting_test", summary="counts", stages=("counted",), config=HeldOutConfig, extra=None)(CountingTraining)
    yield
    for registry, entries in zip((METHODS, TRAININGS), before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)


def experiment(folder: Path, questions: Sequence[str], option: str) -> Path:
    """Write a file of questions in the format of NQ-open, and an experiment that reads it as training or validation data."""
    (folder / "mine.jsonl").write_text("".join(json.dumps({"question": text, "answer": ["x"]}) + "\n" for text in questions), "utf-8")
    other = {"data": "worlds/multihop:train", "validation": "worlds/multihop:validation"}
    named = {**other, option: "nq/open:train"}
    options = {"worlds": {"worlds": 1}, "nq": {"path": str(folder / "mine.jsonl")}}
    config = {"data": [named["data"]], "validation": [named["validation"]], "data_options": options, "validation_options": options}
    path = folder / "x.yaml"
    path.write_text(
        f"""\
name: counted
reference: plain
benchmarks: [{{id: worlds/multihop, split: test, limit: {N}}}]
trainings: [{{id: counting_test, name: tuned, config: {json.dumps(config)}}}]
methods:
  - {{id: bm25, name: plain, reader: retrieval_only}}
  - {{id: counted_test, name: tuned, reader: retrieval_only, config: {{model: {{checkpoint: tuned}}}}}}
metrics: [recall@5]
""",
        "utf-8",
    )
    return path


@pytest.mark.parametrize("option", ["data", "validation"])
def test_training_on_renamed_test_questions_is_marked_everywhere(
    option: str, tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    tested = load("worlds/multihop:test").questions[:N]
    done = call("run", str(experiment(tmp_path, [question.text for question in tested], option)), "--json")
    assert done.code == 0, done.err
    rows = {row["method"]: row for row in json.loads(done.out)["boards"][0]["rows"]}
    assert rows["plain"]["questions_read"] is None
    assert (rows["tuned"]["questions_read"]["questions"], rows["tuned"]["questions_read"]["of"]) == (N, N)
    assert rows["tuned"]["contaminated"]
    cell = next(iter(rows["tuned"]["metrics"].values()))
    assert "difference" not in cell
    assert "not_comparable" in cell
    assert "contaminated" in call("results", "counted").out

    gate = call("gate", "--baseline", "counted/plain", "--candidate", "counted/tuned", "--metric", "recall@5", "--margin", "0.05", "--json")
    assert gate.code == 101
    assert any(f"{N} of {N} questions" in line for line in json.loads(gate.out)["remarks"])
    compared = json.loads(call("results", "compare", "counted/plain", "counted/tuned", "--json").out)
    assert any(line.startswith(f"second: {N} of {N} questions") for line in compared["questions_read"])

    (checkpoint,) = known_checkpoints(Store(tmp_path / "store")).values()
    assert (checkpoint.path / FILE).is_file()
    overlap = json.loads(call("data", "overlap", str(checkpoint.path), "--eval", "worlds/multihop:test", "--json").out)
    (response,) = overlap["checkpoint"]
    assert response["ids"] == [question.id for question in tested]
    assert "paraphrases" not in overlap


def test_training_on_other_questions_is_not_marked(tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    done = call("run", str(experiment(tmp_path, ["Who founded Korv?", "How deep is Telir?"], "data")), "--json")
    row = next(row for row in json.loads(done.out)["boards"][0]["rows"] if row["method"] == "tuned")
    assert (row["questions_read"], row["contaminated"]) == (None, [])


def test_finished_training_on_an_edited_file_is_not_used(tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    run = ("run", str(experiment(tmp_path, ["Who founded Korv?", "How deep is Telir?"], "data")), "--json")
    assert [call(*run).code for _ in range(2)] == [0, 0]
    file = tmp_path / "mine.jsonl"
    before = file.read_text("utf-8")
    file.write_text(before.replace("Korv", "Arlis"), "utf-8")
    changed = call(*run)
    assert (changed.code, json.loads(changed.err)["error"]["code"]) == (2, "training-data-changed")
    file.unlink()
    assert call(*run).code == 0
    file.write_text(before, "utf-8")
    assert call(*run).code == 0
