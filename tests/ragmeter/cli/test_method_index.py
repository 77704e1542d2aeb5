"""`ragmeter method index`: an index that a run reuses, and the reported numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from methods.api import Services
from methods.clara.config import ClaraConfig
from methods.clara.model import Clara
from methods.clara.store import MemoryStore
from methods.pipeline import assemble
from methods.registry import Component
from ragmeter.cli import app

WORLD = "worlds/multihop:test"
METHOD = "clara_compressor"
FEW = ("--set", "data.questions=4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    clara = Clara.open(ClaraConfig.model_validate({"base": "pocket", "max_length": 64, "rate": 16}), device="cpu")
    folder = tmp_path_factory.mktemp("checkpoint")
    clara.save(folder)
    return str(folder)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["method", "index", *words])


@pytest.mark.slow
def test_corpus_is_indexed_once_and_reused_by_a_run(checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "states.svg"
    words = (METHOD, WORLD, *FEW, "--set", f"model={checkpoint}", "--store", str(tmp_path / "store"), "--device", "cpu")
    first = run(*words, "--json", "--picture", str(picture), "--projection", "pca", "--count", "10")
    assert first.exit_code == 0, first.output
    value = json.loads(first.stdout)
    memory = MemoryStore.open(Path(value["folder"]))
    assert value["documents"] == value["compressed_now"] == len(memory) > 20
    assert value["bytes_per_document"] == 2 * 4 * value["hidden_size"]
    assert value["bytes"] == (Path(value["folder"]) / "memory.bin").stat().st_size
    assert value["tokens_per_second"] == pytest.approx(value["tokens"] / value["seconds"])
    assert picture.read_text().count('r="2.5"') == 20
    again = json.loads(run(*words, "--json").stdout)
    assert (again["compressed_now"], again["folder"]) == (0, value["folder"])
    printed = run(*words).output
    assert "all were there already" in printed
    assert "KiB a document" in printed

    from benchmarks import registry

    benchmark = registry.load(WORLD, {"questions": 4})
    method = assemble(
        Component.of("clara", {"model": checkpoint, "max_new_tokens": 2}),
        Services(artifacts=tmp_path / "store" / "artifacts", device="cpu"),
    )
    encode = Clara.encode

    def questions_only(self: Clara, texts: Any, adapter: Any = "compressor", token_budget: Any = None) -> Any:
        assert adapter == "reasoner"
        return encode(self, texts, adapter, token_budget)

    monkeypatch.setattr(Clara, "encode", questions_only)
    method.index(benchmark.corpus)
    assert len(list(method.answer([question.query() for question in benchmark.questions]))) == 4


@pytest.mark.slow
def test_index_folder_and_type_are_configurable(checkpoint: str, tmp_path: Path) -> None:
    options = tmp_path / "options.yaml"
    options.write_text(f"model: {checkpoint}\nmemory_dtype: bfloat16\ndata: {{questions: 4}}\n")
    store = ("--store", str(tmp_path / "store"), "--device", "cpu", "--json")
    done = run(METHOD, WORLD, "--config", str(options), "--output", str(tmp_path / "here"), *store)
    assert done.exit_code == 0, done.output
    memory = MemoryStore.open(tmp_path / "here")
    assert memory.identity.dtype == "bfloat16"
    assert torch.isfinite(memory.memory(range(len(memory)))).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((METHOD, WORLD, "--set", "memory_dtype=float8", "--set", "model=clara-pocket"), "unknown value of memory_dtype"),
        ((METHOD, WORLD, "--set", "model=clara-pocket", "--set", "data.question=4"), "unknown option of worlds"),
        ((METHOD, WORLD, "--set", "data=4"), "the dataset's options are data.KEY=VALUE"),
        ((METHOD, WORLD, "--picture", "x.svg", "--projection", "umap"), "projection"),
        ((METHOD, WORLD), "clara_compressor needs model"),
        (("bm25", WORLD), "try:   clara_compressor"),
        (("bm52", WORLD), "did you mean 'bm25'"),
    ],
)
def test_invalid_index_options_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run(*words, "--store", str(tmp_path))
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
