"""Unwritable paths, damaged stores, tags, and invalid values: messages and exit codes."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.core.errors import Broke, UserError, described, in_words, make_folder, require_writable, unwritable
from methods.sark.config import LabelsConfig
from methods.training import Silent
from ragmeter.cli import doctor, errors
from ragmeter.runner.training_jobs import TrainingJob
from results.store.store import Store
from tests.support.errors import raises

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOTDIR, UserError), (errno.EACCES, UserError), (errno.ENOSPC, Broke)])
def test_wrong_path_is_wrong_input_and_a_full_disk_a_system_error(number: int, kind: type[UserError]) -> None:
    response = unwritable(OSError(number, "no", "x/y"), try_this="another")
    assert type(response) is kind
    assert (response.where, response.try_this) == ("x/y", "another")
    assert response.what == "this file cannot be written: no"


@pytest.mark.parametrize(
    "line",
    [
        "results report --output {file}/b.html",
        "results --format markdown --output {file}/t.md",
        "results export bm25 -o {file}/run.trec",
        "judge labels export -o {file}/i.csv --criterion accuracy --count 2",
        "data restyle worlds/multihop:test -o {file}/p.jsonl --style informal --rewriter rule --limit 1",
        "data pretraining-rows worlds/multihop:train -o {file}/rows.jsonl --by worlds --count 2",
        "method index clara_compressor worlds/multihop:test --set model=clara-pocket --output {file}/x",
        "store export -o {file}/out",
        "store export -o {file}",
        "data build-corpus {dump} -o {file}/built",
        "data build-corpus {dump} -o {file}",
        "data pretraining-rows worlds/multihop:train -o {file}/rows.jsonl --set llm.model=x --set llm.base_url=http://127.0.0.1:9/v1",
    ],
)
def test_path_below_a_file_is_refused_by_every_command(line: str, ragmeter: Command, tmp_path: Path) -> None:
    file, dump = tmp_path / "file.yaml", tmp_path / "dump.tsv"
    file.write_text("kept")
    dump.write_text("id\ttext\ttitle\n1\tIt is a text.\tOne\n")
    code, _, response = ragmeter(*line.format(file=file, dump=dump).split())
    assert code == 2, response
    assert str(file) in response
    assert "fault" not in response
    assert file.read_text() == "kept"


def test_output_is_created_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.training import TRAININGS

    entry = TRAININGS.get("gpr")
    (tmp_path / "file").write_text("")
    config = entry.validate({"preset": "demo", "graph": ["worlds/multihop:train"]})
    job = TrainingJob(entry, config, Store(tmp_path / "store"), output=tmp_path / "file" / "out")
    monkeypatch.setattr(TrainingJob, "carry_out", lambda *_: pytest.fail("it was trained"))
    with raises("system-not-a-directory"):
        job.run(Silent())


def test_work_that_cannot_be_stored_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.gpr import questions
    from methods.training.journal import Journal

    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "kept.jsonl", tmp_path):
        with pytest.raises(UserError, match="the file of earlier work cannot be written") as caught:
            Journal(path)
        assert (caught.value.exit_code, caught.value.where) == (2, str(path))
        monkeypatch.setattr(questions, "_asked", lambda *_: pytest.fail("it was begun"))
        query: Any = None
        with pytest.raises(UserError, match="the file of questions cannot be written") as caught:
            questions.questions_of(query, query, query, path)
        assert (caught.value.exit_code, caught.value.where) == (2, str(path))
    journal = Journal(tmp_path / "new" / "kept.jsonl")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises("system-no-space-left-on-device"), journal:
        journal.add("a", "x", 1)


def test_read_only_file_is_distinguished_from_a_writable_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_writable(tmp_path / "a" / "new.jsonl")
    assert list((tmp_path / "a").iterdir()) == []
    kept = tmp_path / "kept.jsonl"
    kept.write_text("")
    require_writable(kept)
    # The user who runs the tests may have all permissions.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != kept)
    with raises("system-permission-denied") as caught:
        require_writable(kept, what="the export")
    assert caught.value.where == str(kept)


def test_existing_folder_is_accepted(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_operating_system_error_is_not_reported_as_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ragmeter", "--json"])

    def run_command(error: Exception) -> int:
        def command(**_: Any) -> None:
            raise error

        return errors.run_command(command)

    assert run_command(NotADirectoryError(errno.ENOTDIR, "Not a directory", "a.yaml/x")) == 2
    response = json.loads(capsys.readouterr().err)["error"]
    assert response["where"] == "a.yaml/x"
    assert "Not a directory" in response["what"]
    # An error without a path is an ordinary fault.
    assert run_command(OSError("odd")) == 1
    assert "ragmeter broke" in capsys.readouterr().err


@pytest.mark.slow
def test_tag_is_accepted_for_every_run_argument(ragmeter: Command, tmp_path: Path) -> None:
    assert ragmeter("results", "tag", "main", "bm25")[0] == 0
    assert ragmeter("results", "export", "main", "-o", str(tmp_path / "run.trec"))[0] == 0
    assert ragmeter("store", "export", "main", "-o", str(tmp_path / "out"))[0] == 0
    assert ragmeter("submit", "bundle", "main", "-o", str(tmp_path / "b.zip"))[0] == 0
    code, out, _ = ragmeter("store", "prune", "main", "--json")
    assert code == 0
    assert len(json.loads(out)["runs"]) == 1
    for line in (("submit", "verify", "main"), ("store", "replies", "export", "-o", str(tmp_path / "t.jsonl"), "--run", "main")):
        code, _, response = ragmeter(*line)
        assert code == 2
        assert "unknown" not in response, "these refuse the run for what it is, and not its name"


@pytest.mark.parametrize("damage", ["trash", "cut"])
def test_doctor_reports_a_damaged_store(damage: str, store: Store) -> None:
    path = store.database.path
    raw = path.read_bytes()
    path.write_bytes(b"not a database" * 100 if damage == "trash" else raw[:20_000])
    results = [item for item in doctor._store(store.folder) if item.what == "store"]
    assert [item.state for item in results] == ["problem"]
    assert str(path) in results[0].detail
    assert results[0].remedy


def test_plan_without_gpu_hours_does_not_mention_gpus(tmp_path: Path, call: Command, experiment_text: str) -> None:
    (tmp_path / "x.yaml").write_text(experiment_text.replace("{id: random, name: random}, {id: gold_answer}", ""))
    code, out, _ = call("run", str(tmp_path / "x.yaml"), "--dry-run", "--store", str(tmp_path / "store"))
    assert code == 0
    assert "1 task, 8 questions to answer" in out
    assert "GPU" not in out
    assert "utilization" not in out


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid")

    inner: Inner = Inner(name="a")
    several: Annotated[list[str], Field(min_length=1)] = ["a"]
    count: Annotated[int, Field(ge=1, le=9)] = 1
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    on: bool = True
    kind: Literal["a", "b"] = "a"
    code: Annotated[str, Field(pattern="^x")] = "x"
    name: Annotated[str, Field(pattern=r"^[\w][\w.-]*$")] = "x"


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ({"inner": 3}, "inner: a mapping of keys is wanted"),
        ({"inner": {}}, "inner.name: is missing"),
        ({"inner": {"nmae": "x"}}, "inner.nmae: is not a known key"),
        ({"several": "a"}, "several: a list is wanted"),
        ({"several": []}, "several: its length must be at least 1, and is 0"),
        ({"several": [1]}, "several.0: a text is wanted"),
        ({"count": "many"}, "count: a whole number is wanted"),
        ({"count": 1.5}, "count: a whole number is wanted"),
        ({"count": 0}, "count: must be at least 1"),
        ({"count": 10}, "count: must be at most 9"),
        ({"share": 0}, "share: must be more than 0.0"),
        ({"share": 1}, "share: must be less than 1.0"),
        ({"share": "x"}, "share: a number is wanted"),
        ({"on": "perhaps"}, "on: true or false is wanted"),
        ({"kind": "c"}, "kind: must be one of 'a' or 'b'"),
        ({"code": "y"}, "code: must be of the form ^x"),
        ({"name": "two words"}, "name: must be letters, digits and _ . - (first a letter or digit)"),
    ],
)
def test_invalid_option_values_are_refused_in_plain_words(options: dict[str, object], response: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate(options)
    assert ": ".join(described(caught.value)) == response


def test_unknown_validation_error_keeps_its_message() -> None:
    assert in_words({"type": "date_type", "msg": "Input should be a valid date"}) == "must be a valid date"


@pytest.mark.parametrize(
    ("labels", "response"),
    [
        ({"extra": {"n": 5, "options": {"k1": "much"}}}, "option 'k1' of bm25: a number is wanted"),
        ({"extra": {"n": 5, "options": {"kk": 1}}}, "option 'kk' of bm25: is not a known key"),
        (
            {"by": "reader", "reader": "pocket", "reader_options": {"max_new_tokens": "x"}},
            "option 'max_new_tokens' of pocket: a whole number is wanted",
        ),
    ],
)
def test_invalid_options_of_sark_rows_are_refused_in_plain_words(labels: dict[str, Any], response: str) -> None:
    config = LabelsConfig.model_validate(labels)
    with pytest.raises(UserError) as caught:
        _ = (config.extra or config).component
    assert caught.value.what == response
    assert "Input should" not in caught.value.what
    assert caught.value.try_this == f"ragmeter list methods {response.split(' of ')[1].partition(':')[0]}"
