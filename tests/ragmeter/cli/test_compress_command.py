"""`ragmeter compress`: a store that a run finds again, said in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from methods.api import Services
from methods.clara.config import ClaraConfig
from methods.clara.model import Clara
from methods.clara.store import MemoryStore
from methods.pipeline import assemble
from methods.registry import Component
from ragmeter.cli import app

WORLD = "worlds/multihop:test"
CONFIG = '{"questions": 4}'


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    clara = Clara.open(ClaraConfig.model_validate({"base": "pocket", "max_length": 64, "rate": 16}), device="cpu")
    folder = tmp_path_factory.mktemp("checkpoint")
    clara.save(folder)
    return str(folder)


def run(*given: str) -> Any:
    return CliRunner().invoke(app, ["compress", *given])


@pytest.mark.slow
def test_a_corpus_is_compressed_once_and_a_run_finds_it(checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "states.svg"
    given = (WORLD, "--config", CONFIG, "--model", checkpoint, "--store", str(tmp_path / "store"), "--device", "cpu")
    first = run(*given, "--json", "--picture", str(picture), "--projection", "pca", "--drawn", "10")
    assert first.exit_code == 0, first.output
    said = json.loads(first.stdout)
    kept = MemoryStore.open(Path(said["folder"]))
    assert said["documents"] == said["compressed_now"] == len(kept) > 20
    assert said["bytes_per_document"] == 2 * 4 * said["hidden_size"]
    assert said["bytes"] == (Path(said["folder"]) / "memory.bin").stat().st_size
    assert said["tokens_per_second"] == pytest.approx(said["tokens"] / said["seconds"])
    assert picture.read_text().count('r="2.5"') == 20
    again = json.loads(run(*given, "--json").stdout)
    assert (again["compressed_now"], again["folder"]) == (0, said["folder"])
    told = run(*given)
    assert "all were there already" in told.output
    assert "KiB a document" in told.output

    from benchmarks import registry

    benchmark = registry.load(WORLD, {"questions": 4})
    method = assemble(
        Component.of("clara", {"model": checkpoint, "max_new_tokens": 2}),
        Services(artefacts=tmp_path / "store" / "artefacts", device="cpu"),
    )
    encode = Clara.encode

    def questions_only(self: Clara, texts: Any, adapter: Any = "compressor", token_budget: Any = None) -> Any:
        assert adapter == "reasoner"
        return encode(self, texts, adapter, token_budget)

    monkeypatch.setattr(Clara, "encode", questions_only)
    method.index(benchmark.corpus)
    assert len(list(method.answer([question.query() for question in benchmark.questions]))) == 4


@pytest.mark.slow
def test_another_folder_and_type_can_be_asked_for(checkpoint: str, tmp_path: Path) -> None:
    given = (WORLD, "--config", CONFIG, "--model", checkpoint, "--store", str(tmp_path / "store"), "--device", "cpu")
    found = run(*given, "--output", str(tmp_path / "here"), "--memory-dtype", "bfloat16", "--json")
    assert found.exit_code == 0, found.output
    kept = MemoryStore.open(tmp_path / "here")
    assert kept.identity.dtype == "bfloat16"
    assert torch.isfinite(kept.memory(range(len(kept)))).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "says"), [(("--memory-dtype", "float8"), "--memory-dtype"), (("--picture", "x.svg", "--projection", "umap"), "projection")]
)
def test_what_cannot_be_is_said_at_once(more: tuple[str, ...], says: str, checkpoint: str, tmp_path: Path) -> None:
    from benchmarks.core.errors import UserError

    found = run(WORLD, "--model", checkpoint, "--store", str(tmp_path), *more)
    assert isinstance(found.exception, UserError)
    assert says in str(found.exception)
