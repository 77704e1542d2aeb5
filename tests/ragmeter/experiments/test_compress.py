"""Experiments with the compressors that CLaRa is compared with: their rows, also on random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.plan.gpus import GPUS
from ragmeter.plan.plan import plan_of
from results.store.store import Store
from tools.tiny_checkpoints import GOLDEN, make, published, replace_by

OTHERS = {"AutoCompressor", "xRAG 128x", "COCOM 16x", "PCC 16x", "LLMLingua-2 4x", "PISCO 16x"}
SYSTEMS = {"pisco", "cocom", "xrag", "pcc", "autocompressor"}


@pytest.mark.parametrize(("name", "cut"), [("compress/worlds", 30), ("compress/worlds-long", 24)])
def test_every_compressor_is_compared_with_full_truncated_tuned_and_no_text(name: str, cut: int) -> None:
    loaded = experiment.load(name)
    assert {plan.entry.id for plan in loaded.trainings} >= SYSTEMS
    used = {plan.name for method in loaded.methods for plan in method.needs}
    assert used == {plan.name for plan in loaded.trainings}
    names = {method.name for method in loaded.methods}
    assert {"Full text", "Tuned text", "No text", f"Beginning of the text, {cut} tokens", "Beginning of the text, 1 token"} <= names
    for plan in loaded.trainings:
        if plan.entry.id in SYSTEMS:
            assert plan.config.system.config.base == "pocket"  # type: ignore[attr-defined]
    for method in loaded.methods:
        compressor, reader = method.composition.compressor, method.composition.reader
        if compressor is not None and compressor.entry.memory:
            assert compressor.config.model == reader.config.model  # type: ignore[attr-defined, union-attr]
    (benchmark,) = loaded.benchmarks
    assert benchmark.reference.split == "test"
    assert benchmark.config.worlds == 30  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["clara/table2", "clara/table6"])
def test_clara_tables_have_other_compressors_as_rows_and_on_random_checkpoints(name: str) -> None:
    whole, tiny = experiment.load(name), experiment.load(name, profile="tiny")
    ids = {m.name: m.composition.compressor.id for m in whole.methods if m.name in OTHERS}  # type: ignore[union-attr]
    assert set(ids) == OTHERS == {method.name for method in tiny.methods}
    assert ids == {m.name: m.composition.compressor.id for m in tiny.methods}  # type: ignore[union-attr]


RELEASED = ("clara/released", "compress/released", "rerank/released", "end_to_end/released")
RIVALS = {
    "clara/released": {"80", "320"},
    "clara/table2": {"80", "320"},
    "clara/table6": {"80", "320"},
    "clara/worlds": {"150"},
    "clara/worlds passages": {"192", "48"},
    "clara/worlds-long": {"150", "45"},
    "compress/released": {"40", "250"},
    "compress/worlds": {"90"},
    "demo-compression": {"150"},
    "compress/worlds-long": {"72", "252"},
}


@pytest.mark.parametrize("name", RIVALS)
def test_compressor_tables_have_top_passages_at_an_equal_token_budget(name: str) -> None:
    file, _, profile = name.partition(" ")
    rows: list[Any] = [method.composition for method in experiment.load(file, profile=profile or None).methods]
    rivals = [row for row in rows if row.compressor is not None and row.compressor.id == "whole_passages"]
    assert {str(row.budget) for row in rivals} == RIVALS[name]
    assert all(row.rerankers or row.method.id == "dense" for row in rivals)
    readers = {row.reader.config.model for row in rows if row.reader is not None and row.reader.id == "clara_text"}
    assert {row.compressor.config.model for row in rivals} <= readers


@pytest.mark.parametrize("name", RELEASED)
def test_released_experiments_train_nothing_and_take_hours_on_one_gpu(name: str, tmp_path: Path) -> None:
    loaded, tiny = experiment.load(name, store=tmp_path), experiment.load(name, profile="tiny", store=tmp_path)
    assert {plan.entry.id for plan in (*loaded.trainings, *tiny.trainings)} <= {"clara_released", "compressor_released"}
    assert {plan.name for method in loaded.methods for plan in method.needs} == {plan.name for plan in loaded.trainings}
    further = {"clara/released": "end_to_end", "rerank/released": "rank1"}.get(name)
    others = {method.name for method in experiment.load(name, profile=further).methods} if further else set()
    assert {row.name for row in tiny.methods} - {"Whole passages"} <= {row.name for row in loaded.methods} | others
    plan = plan_of(loaded, Store(tmp_path))
    assert not plan.samples
    hours = plan.hours[next(gpu for gpu in GPUS if gpu.gigabytes == 80), 1]
    assert hours is not None
    assert 0.1 < hours < 5
    assert all(reason.startswith("disk of the model") for reason in plan.totals["all"].unknown)


def test_published_profiles_have_the_tiny_rows_with_published_prompts() -> None:
    for name in RELEASED[:3]:
        tiny, theirs = (experiment.load(name, profile=profile) for profile in ("tiny", "tiny_published"))
        assert [row.name for row in tiny.methods] == [row.name for row in theirs.methods]
        chosen = {name: {*prompts_of(loaded)} for name, loaded in (("ours", tiny), ("published", theirs))}
        assert chosen == {"ours": {"ours"}, "published": {"published"}}


def prompts_of(loaded: Any) -> Iterator[str]:
    """Yield the values of option `prompt`."""
    for method in loaded.methods:
        parts = [method.composition.method, method.composition.reader, *method.composition.rerankers]
        yield from (part.config.prompt for part in parts if part is not None and getattr(part.config, "prompt", None))


@pytest.fixture(scope="module")
def authors(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tiny checkpoints that the authors' classes saved."""
    golden = data_folder / "golden" / "released"
    if not (data_folder / "prompts").is_dir() or not golden.is_dir():
        pytest.skip(f"published prompts or checkpoints not found in {data_folder}")
    folder = tmp_path_factory.mktemp("authors") / "tiny"
    make(folder)
    published(folder / "published")
    assert set(replace_by(folder, golden)) == set(GOLDEN)
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("name", RELEASED)
def test_released_experiments_run_with_published_prompts_and_original_classes(
    name: str, authors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any], data_folder: Path
) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    monkeypatch.chdir(tmp_path)
    Path("tiny").symlink_to(authors)
    profile = "tiny" if name == "end_to_end/released" else "tiny_published"  # its prompts are built in
    done = call("run", name, "--profile", profile, "--limit", "1", "--store", "store")
    assert done.code == 0, done


@pytest.mark.slow
def test_converted_checkpoint_is_listed_and_usable_for_indexing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    published(Path("tiny/published"))
    store = ("--store", "store")
    convert = ("train", "checkpoints", "convert", "tiny/published/pisco", "--as", "pisco-tiny", *store)
    assert call(*convert).code == 0
    assert "pisco-tiny" in call("train", "checkpoints", "list", *store).out
    assert call(*convert).code == 2  # it is there already
    index: tuple[str, ...] = (
        "method",
        "index",
        "pisco",
        "worlds/multihop:validation",
        "--set",
        "model=store/checkpoints/converted/pisco-tiny",
    )
    index = (*index, "--set", "data.questions=1", "--set", "data.worlds=1", "--json", *store)
    first, again = (json.loads(call(*index).out) for _ in range(2))
    assert (first["indexed_now"], again["indexed_now"]) == (first["documents"], 0)
    assert first["bytes"] == 2 * first["vectors"] * first["width"] > 0
