"""`ragmeter train`: list of trainings, options from a file and from flags, and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from methods.training import TRAININGS
from ragmeter.cli.config_options import option_rows
from results.store.checkpoints import describe

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def test_train_without_arguments_lists_trainings(call: Command) -> None:
    names = {entry.id for entry in TRAININGS}
    assert {load["id"] for load in json.loads(call("train", "--json").out)} == names
    assert names <= {line.split(" ")[0] for line in call("train").out.splitlines()}


def test_training_options_are_named_with_dots() -> None:
    described = {row["name"]: row for row in option_rows(TRAININGS.get("sark").config, nested=True)}
    assert described["loss.lambda_params"]["default"] == "backbone"
    assert described["train.learning_rate"]["default"] == 1e-6
    assert "loss" not in described


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("srak", "did you mean 'sark'?"),
        ("sark", "training sark needs data"),
        ("sark --base pocket --set train.epoch=1", "did you mean 'train.epochs'?"),
        ("sark --data worlds/style:train --set train.epochs=many", "option train.epochs of sark: a whole number is wanted"),
        ("sark --base pocket --config {file}", "{file}:2"),
        ("sark --base pocket --config none.yaml", "cannot be read"),
        ("sark --stage reranked", "did you mean 'reranker'?"),
        ("gpr --preset dmeo", "did you mean 'demo'?"),
        ("gpr --preset demo --device gpu", "device 'gpu' does not exist"),
    ],
)
def test_invalid_training_is_refused(words: str, message: str, call: Command, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("train:\n  epoch: 1\n")
    values = {"file": tmp_path / "x.yaml"}
    done = call("train", *words.format(**values).split())
    assert (done.code, done.out) == (2, "")
    assert message.format(**values) in done.err.replace("\n", "")


def test_file_in_place_of_a_data_reference_is_refused(call: Command, tmp_path: Path) -> None:
    file = tmp_path / "questions.csv"
    file.write_text("question,answer\nWho?,Ann\n")
    error = json.loads(call("train", "ark", "--preset", "demo", "--data", str(file), "--json").err)["error"]
    assert (error["code"], error["where"]) == ("data-reference-is-file", "--data")
    assert f"data_options.files.path={file}" in error["try"]
    error = json.loads(call("train", "gpr", "--preset", "demo", "--graph", str(file), "--json").err)["error"]
    assert (error["code"], error["where"]) == ("data-reference-is-file", "--graph")


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("ark --preset demo --data worlds/long:test", "worlds/long:test"),
        ("sark --preset demo --data worlds/multihop:test", "worlds/multihop:test"),
        ("sark --preset demo --set validation=[worlds/style:test]", "worlds/style:test"),
        ("clara --preset demo --set data.joint=[worlds/multihop:test]", "worlds/multihop:test"),
        ("clara --preset demo --set validation.scp=[worlds/multihop:test]", "worlds/multihop:test"),
        ("gpr --preset demo --graph worlds/graph:test", "worlds/graph:test"),
        ("skp --preset minilm --graph worlds/graph:test", "worlds/graph:test"),
        ("xrag --preset worlds --data worlds/multihop:test", "worlds/multihop:test"),
    ],
)
def test_plan_lists_test_splits_that_must_not_be_trained_on(words: str, split: str, call: Command) -> None:
    done = call("train", *words.split(), "--dry-run", "--json")
    listed = [item for item in json.loads(done.out)["missing"] if split in item["what"]]
    assert (done.code, [item["kind"] for item in listed]) == (2, ["other"])


def test_checkpoints_are_listed_added_and_checked(call: Command, store: Path, tmp_path: Path) -> None:
    inside, outside = store / "checkpoints" / "epoch-1", tmp_path / "epoch-2"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_text(folder.name)
        describe(folder, method="dense", stage="trained", parents=["ab" * 32])
    assert [(load["name"], load["registered"]) for load in json.loads(call("train", "checkpoints", "--json").out)] == [("epoch-1", False)]
    assert f"ragmeter train checkpoints add {inside}" in call("train", "checkpoints").err.replace("\n", "")
    for folder in (inside, outside):
        added = call("train", "checkpoints", "add", str(folder))
        assert (added.code, "not in this store: abababababab" in added.err) == (0, True)
    assert {load["name"] for load in json.loads(call("train", "checkpoints", "--json").out)} == {"epoch-1", "epoch-2"}
    assert call("train", "checkpoints", "check").code == call("train", "checkpoints", "check", "epoch-2").code == 0
    (outside / "weights.bin").write_text("other")
    assert call("train", "checkpoints", "check").code == 1
    changed = call("train", "checkpoints", "check", "epoch-2")
    assert (changed.code, "weights.bin" in changed.err) == (2, True)


def test_record_for_own_weights_is_written_extended_and_found(call: Command, tmp_path: Path) -> None:
    tested = registry.load("worlds/multihop:test").questions
    model, train = tmp_path / "model", tmp_path / "train.jsonl"
    model.mkdir()
    (model / "weights").write_text("1")
    train.write_text(json.dumps({"prompt": {"text": tested[0].text}}) + "\n")

    def read() -> int | None:
        (item,) = json.loads(call("data", "overlap", str(model), "--eval", "worlds/multihop:test", "--json").out)["checkpoint"]
        return item["read"]

    assert read() is None
    done = json.loads(call("train", "record", str(train), "--into", str(model), "--json").out)
    assert (done["texts"], done["method"], read()) == (1, "model", 1)
    # A record is not part of the hash of the weights, and is added to.
    again = json.loads(call("train", "record", "worlds/multihop:train", "--into", str(model), "--json").out)
    assert again["sha256"] == done["sha256"]
    assert again["texts"] > 100
    assert read() == 1
    assert call("train", "checkpoints", "check").code == 0


@pytest.mark.parametrize(("words", "code"), [("data overlap --eval nq:test", "--train"), ("train record {file} --into {folder}", "empty")])
def test_record_and_overlap_refuse_unreadable_input(words: str, code: str, call: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("{}\n")
    done = call(*words.format(file=tmp_path / "empty.jsonl", folder=tmp_path).split())
    assert done.code == 2
    assert code in done.err
