"""Trainings by several processes together, on this machine and in a Ray cluster."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from methods.gpr.questions import TRIES
from results.store import checkpoints
from results.store.store import Store
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

pytest.importorskip("torch")


class Writer:
    """Model that writes questions; the first attempts of every fourth prompt are refused."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def __call__(self, request: ChatRequest) -> Written:
        text = "".join(message["content"] for message in request.messages)
        self.requests[text] += 1
        if sum(text.encode()) % 4 == 0 and self.requests[text] <= TRIES:
            raise Refused(400, "this prompt is not answered now")
        return Written(f"which one of {sum(text.encode())} things is linked ?", 9, 9)


@pytest.fixture
def writer() -> Iterator[tuple[Writer, str]]:
    model = Writer()
    with OpenAIServer("writer", model).running() as url:
        yield model, url


@pytest.fixture
def words(tmp_path: Path, writer: tuple[Writer, str]) -> list[str]:
    """Return options of a small training of GPR."""
    toy = importlib.import_module("tests.methods.gpr.gpr_toy")
    base = toy.save_base(importlib.import_module("tests.methods.tiny_models"), tmp_path / "base")
    options = toy.options(base).model_dump(mode="json") | {
        "questions": {"generator": "llm", "triples": 40, "llm": {"model": "writer", "base_url": writer[1], "key_variable": None}}
    }
    (tmp_path / "gpr.yaml").write_text(json.dumps(options))
    return ["train", "gpr", "--config", str(tmp_path / "gpr.yaml"), "--device", "cpu", "--json"]


@pytest.mark.soak
def test_prepared_training_sends_no_requests_and_two_processes_use_its_rows(
    words: list[str], writer: tuple[Writer, str], tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMETER_GROUP_TIMEOUT", "60")
    model, _ = writer
    done = call(*words, "--prepare", "--store", str(tmp_path / "two"))
    assert done.code == 0, done.err
    first = json.loads(done.out)
    assert first["stage"] == "towers"
    calls = model.requests.total()
    # Failed calls are repeated as long as no step was taken.
    second = json.loads(call(*words, "--prepare", "--store", str(tmp_path / "two")).out)
    assert model.requests.total() > calls
    assert second["figures"]["questions"] > first["figures"]["questions"]
    calls = model.requests.total()
    done = call(*words, "--processes", "2", "--store", str(tmp_path / "two"))
    assert done.code == 0, done.err
    (manifest,) = (tmp_path / "two" / "artifacts" / "training").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["stages"]["towers"]["figures"]["questions"] == second["figures"]["questions"]
    assert model.requests.total() == calls
    (known,) = checkpoints.checkpoints(Store(tmp_path / "two"))
    assert known.stage == "towers"
