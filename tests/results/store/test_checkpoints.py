from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import folder_sha256
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from methods.models.weights import checkpoints_named, weights_hash
from methods.pipeline import Composition
from methods.registry import Component
from ragmeter.runner.provenance import provenance
from results.formats import pruning
from results.store import checkpoints, tags
from results.store.checkpoints import CARD, describe, register, verify
from results.store.store import FINISHED, INTERRUPTED, Run, Store
from tests.support.checkpoints import model, run_with
from tests.support.errors import raises
from tests.support.toy import CARD as TOY


def test_the_hash_of_a_folder_is_what_sha256sum_says(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "a b.txt").write_text("é")
    (folder / "é.txt").write_text("x")
    (folder / CARD).write_text("not hashed")
    command = "find * -type f ! -path ragmeter.json -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    response = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert folder_sha256(folder) == response.split()[0]


def test_the_hash_does_not_depend_on_when_or_where(tmp_path: Path) -> None:
    item, two = model(tmp_path / "one"), model(tmp_path / "two")
    os.utime(two / "model.safetensors", (1, 1))
    assert folder_sha256(item) == folder_sha256(two)


@pytest.mark.parametrize("change", ["content", "name", "more", "less"])
def test_any_change_of_the_files_changes_the_hash(tmp_path: Path, change: str) -> None:
    folder = model(tmp_path / "m")
    before = folder_sha256(folder)
    if change == "content":
        (folder / "model.safetensors").write_bytes(b"weightS")
    elif change == "name":
        (folder / "model.safetensors").rename(folder / "model2.safetensors")
    elif change == "more":
        (folder / "question" / CARD).write_text("the card of a checkpoint within is content")
    else:
        (folder / "question" / "config.json").unlink()
    assert folder_sha256(folder) != before


def test_a_described_folder_verifies_and_holds_what_it_was_described_with(tmp_path: Path) -> None:
    parent = describe(model(tmp_path / "p", b"p"), method="ark", stage="warmup")
    made = describe(
        model(tmp_path / "m"), method="ark", stage="curriculum", version=2, config={"lr": 1e-5}, parents=[parent], data=["2135ff775c01f188"]
    )
    assert verify(tmp_path / "m") == made
    card = json.loads((tmp_path / "m" / CARD).read_text())
    assert card == {
        "method": "ark",
        "version": 2,
        "stage": "curriculum",
        "config": {"lr": 1e-5},
        "parents": [parent.sha256],
        "data": ["2135ff775c01f188"],
        "sha256": folder_sha256(tmp_path / "m"),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "p"]


def test_a_tampered_folder_is_named_with_the_file(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    describe(folder, method="ark", stage="s")
    (folder / "model.safetensors").write_bytes(b"other")
    os.utime(folder / "model.safetensors", ns=(2**62, 2**62))
    with raises("files-differ-from-card"):
        verify(folder)


@pytest.mark.parametrize(
    ("key", "value", "response"),
    [
        ("sha256", "abc", "bad-checkpoint-card"),
        ("version", True, "bad-checkpoint-card"),
        ("parents", ["abc"], "bad-checkpoint-card"),
        ("config", [], "bad-checkpoint-card"),
        ("data", "x", "bad-checkpoint-card"),
        ("method", "", "bad-checkpoint-card"),
        ("methode", "x", "unknown-key"),
    ],
)
def test_a_broken_card_is_refused_with_its_place(tmp_path: Path, key: str, value: Any, response: str) -> None:
    folder = model(tmp_path / "m")
    describe(folder, method="ark", stage="s")
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | {key: value}))
    with raises(response) as caught:
        verify(folder)
    assert str(folder / CARD) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"method": "ark"}', "\x00"])
def test_a_card_that_is_no_card_is_an_error_and_no_traceback(tmp_path: Path, text: str) -> None:
    folder = model(tmp_path / "m")
    (folder / CARD).write_text(text)
    with pytest.raises(UserError):
        verify(folder)


def test_a_folder_without_card_or_files_is_refused(tmp_path: Path) -> None:
    with raises("folder-not-checkpoint"):
        verify(model(tmp_path / "m"))
    (tmp_path / "empty").mkdir()
    with raises("empty-folder"):
        describe(tmp_path / "empty", method="ark", stage="s")
    with raises("missing-folder"):
        describe(tmp_path / "none", method="ark", stage="s")
    with raises("description-not-json"):
        describe(tmp_path / "m", method="ark", stage="s", config={"x": float("nan")})


def test_a_linked_folder_is_refused_because_its_content_lies_elsewhere(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "linked").symlink_to(tmp_path)
    with raises("link-to-folder"):
        folder_sha256(folder)


def test_the_registry_keeps_what_the_card_says_and_moves_with_the_folder(store: Store, tmp_path: Path) -> None:
    assert checkpoints.checkpoints(store) == []
    made = describe(model(tmp_path / "m"), method="ark", stage="s", config={"lr": 0.1}, data=["x"])
    register(store, tmp_path / "m")
    (tmp_path / "m").rename(tmp_path / "moved")
    register(store, tmp_path / "moved")
    (kept,) = checkpoints.checkpoints(store)
    assert (kept.sha256, kept.config, kept.data, kept.name) == (made.sha256, {"lr": 0.1}, ("x",), "moved")


def test_a_run_is_found_by_the_checkpoint_it_was_made_with(store: Store, tmp_path: Path) -> None:
    made = describe(model(tmp_path / "m"), method="ark", stage="s")
    register(store, tmp_path / "m")
    # What runs record of a folder of weights is the checkpoint's own hash.
    weights = weights_hash(str(tmp_path / "m"))
    assert weights == made.sha256
    run_with(store, "older", f"{weights}-prompt")
    newest = run_with(store, "newest", weights)
    run_with(store, "unfinished", weights, status=INTERRUPTED)
    run_with(store, "other", "0" * 64)
    checkpoint = tags.find_checkpoint(store, "m")
    assert [run.method for run in checkpoints.runs_with(store, checkpoint)] == ["unfinished", "newest", "older"]
    assert tags.find_run(store, "m").run == newest


def nested(model: Path) -> list[tuple[str, dict[str, Any]]]:
    """Methods that stand on a checkpoint, by name and options; what they load is not asked here."""
    inner = {"id": "dense", "config": {"model": str(model)}}
    return [
        ("hybrid", {"retrievers": ["bm25", inner]}),
        ("hybrid", {"retrievers": ["bm25", {"id": "hybrid", "config": {"retrievers": [inner]}}]}),
        ("dense", {"model": str(model / "question")}),
        ("dense", {"model": str(model), "query_model": str(model / "question")}),
        ("dense", {"model": "minilm", "query_model": str(model)}),
    ]


@pytest.mark.slow
def test_a_run_is_found_by_a_checkpoint_within_one_of_its_parts(store: Store, tmp_path: Path) -> None:
    describe(model(tmp_path / "m"), method="ark", stage="s")
    made = register(store, tmp_path / "m")
    unrelated = describe(model(tmp_path / "other", b"other"), method="ark", stage="s")
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, TOY, [], Corpus.of([]))
    for number, (method, options) in enumerate(nested(tmp_path / "m")):
        component = Component.of(method, options)
        about = Composition(component, reader=Component.of("extractive")).describe()
        run = Run(
            f"f00d{number}", "mine", method, "retriever", about, "toy:dev", "d", "corpus", 0, 3, provenance(benchmark, [], [component])
        )
        store.start(run)
        store.end(run.run, FINISHED)
        assert [run.run for run in checkpoints.runs_with(store, made)] == [run.run], method
        assert checkpoints.runs_with(store, unrelated) == []
        assert tags.find_run(store, "m").run == run.run
        pruning.prune(store, [run.run])


def test_options_name_checkpoints_at_any_depth_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = describe(model(tmp_path / "one"), method="ark", stage="s").sha256
    two = describe(model(tmp_path / "both" / "two", b"2"), method="ark", stage="s").sha256
    model(tmp_path / "plain")
    monkeypatch.chdir(tmp_path)
    assert checkpoints_named({"a": [{"b": ["one"]}], "c": ("both",)}).keys() == {item, two}
    assert checkpoints_named([str(tmp_path / "one"), "one/question", "./one/../one"]).keys() == {item}
    for nothing in ("plain", "nowhere", "", "bm25", 3, None, {"id": "one"}, "x" * 5000, "~nobody/x", "a\x00b"):
        assert checkpoints_named([nothing]) == {}
