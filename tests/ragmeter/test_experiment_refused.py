"""Invalid experiment files are refused with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from ragmeter import experiment
from tests.support.errors import raises

GOOD = "name: x\nbenchmarks: [{id: worlds/multihop, limit: 5}]\nmethods: [{id: bm25, k: 3}]\nmetrics: [f1, em]\n"
TRAINED = GOOD.replace("{id: bm25, k: 3}", "{id: dense, config: {model: {checkpoint: ark}}}")


def refused(text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        experiment.parse(text, "x.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("limit: 5", "limit: 0", "limit: 1 or more (only the first questions), or leave limit out"),
        ("limit: 5", "limit: -5", "limit: 1 or more"),
        ("k: 3", "k: yes", "k: …"),
        ("limit: 5", "limit: on", "limit: …"),
        ("k: 3", "k: 0", "k: 1 or more (passages given to the reader), or leave k out"),
        ("metrics: [f1, em]", "metrics: []", "name at least 1"),
        ("metrics: [f1, em]", "metrics: f1", "metrics: [f1], or leave metrics out"),
        ("[{id: bm25, k: 3}]", "[bm25]", "{id: bm25}"),
        ("[{id: bm25, k: 3}]", "bm25", "methods: [{id: bm25}]"),
        ("[{id: bm25, k: 3}]", "{id: bm25}", "methods: [{…}]"),
        ("[{id: bm25, k: 3}]", "[]", "name at least 1 (rows of the table"),
        ("k: 3", "config: much", "config: {key: value, …}, or leave config out"),
        ("k: 3", "reader: [extractive]", "reader: NAME, or reader: {id: NAME, config: {…}}"),
        ("metrics:", "judges: [{id: match, opponents: everybody}]\nmetrics:", "leave opponents out"),
        ("metrics:", "judges: [{id: pairwise, opponents: al}]\nmetrics:", "did you mean 'all'?"),
        ("[f1, em]", "[f1, em, f1]", "remove one of them"),
        ("[f1, em]", "[f1, f1(rules=squad)]", "remove one of them"),
        ("[f1, em]", "[f1, em", "check the indentation"),
        ("name: x", "name: x\x00", "name a text file"),
    ],
)
def test_remedy_names_what_to_write(old: str, new: str, hint: str) -> None:
    error = refused(GOOD.replace(old, new, 1))
    assert hint in str(error.try_this)
    assert "x.yaml" in str(error.where)


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ("reference: bm25\npositive_controls: [bm25]", "bad-positive-control"),
        ("positive_controls: [oracle_evidence]", "bad-positive-control"),
        ("positive_controls: [dens]", "unknown-row"),
    ],
)
def test_invalid_positive_control_is_refused(declared: str, code: str) -> None:
    methods = "[{id: bm25}, {id: random}, {id: oracle_evidence}]"
    with raises(code, where="x.yaml"):
        experiment.parse(GOOD.replace("[{id: bm25, k: 3}]", methods) + declared, "x.yaml")


def test_first_row_that_is_not_the_positive_control_is_the_reference() -> None:
    text = GOOD.replace("[{id: bm25, k: 3}]", "[{id: bm25}, {id: random}]") + "positive_controls: [bm25]"
    assert experiment.parse(text, "x.yaml").reference == "random"


def test_error_in_a_component_mapping_names_its_nested_key() -> None:
    error = refused(GOOD.replace("k: 3", "reader: {id: extractive, config: 3}"))
    assert error.what.startswith("methods.0.reader.config: a mapping of keys is wanted, got 3")


def test_misplaced_api_key_is_not_in_the_remedy() -> None:
    key = "sk-" + "a1B2" * 10
    assert key not in str(refused(GOOD.replace("[f1, em]", key)))


def test_missing_checkpoint_error_explains_how_to_get_it() -> None:
    error = refused(TRAINED)
    assert "add trainings: [{id: ark, config: {…}}]" in str(error.try_this)
    named = refused(TRAINED.replace("checkpoint: ark", "checkpoint: mine"))
    assert "[{id: …, name: mine, config: {…}}]" in str(named.try_this)
    other = refused(TRAINED.replace("checkpoint: ark", "checkpoint: arc") + "trainings: [{id: ark, config: {preset: worlds}}]\n")
    assert "did you mean 'ark'" in str(other.try_this)
    late = "trainings:\n  - {id: ark, config: {train: {model: {checkpoint: later}}}}\n  - {id: ark, name: later}\n"
    assert "before" in str(refused(GOOD + late).try_this)


@pytest.mark.parametrize(("position", "what"), [("", "unknown-experiment-name"), ("/dev/null", "unknown-experiment-name")])
def test_folder_or_special_file_is_refused_as_an_experiment(position: str, what: str, tmp_path: Path) -> None:
    with raises(what) as caught:
        experiment.load(position or str(tmp_path))
    assert caught.value.try_this


def test_folder_with_a_shipped_name_does_not_hide_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert experiment.load("demo").path is None


def test_file_with_invalid_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"name: \xff\xfe\n")
    with raises("not-utf8") as caught:
        experiment.load(str(tmp_path / "x.yaml"))
    assert "UTF-8" in str(caught.value.try_this)


def test_missing_card_error_suggests_the_template_command(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("{}\n")
    done = call("submit", str(tmp_path / "p.jsonl"), "--card", str(tmp_path / "none.yaml"))
    assert done.code == 2
    assert "ragmeter submit template" in done.err
