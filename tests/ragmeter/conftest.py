"""A small experiment that was run, and the command line on a copy of its store."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from ragmeter.api import run as ragmeter_run
from ragmeter.cli import main
from results.store.store import Store


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def experiment_text() -> str:
    """Return the experiment to run; a test file may override it."""
    return """\
name: small
reference: bm25
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 8}]
methods: [{id: bm25}, {id: random, name: random}, {id: gold_answer}]
metrics: [em]
"""


@pytest.fixture(scope="session")
def _answered_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run an experiment once; test files with the same one share its results."""

    @cache
    def answer(text: str) -> Path:
        folder = tmp_path_factory.mktemp("answered")
        (folder / "x.yaml").write_text(text)
        assert not ragmeter_run(folder / "x.yaml", store=folder / "store").failed
        # Close the store before its folder is copied.
        Store(folder / "store").database.close()
        return folder

    return answer


@pytest.fixture(scope="module")
def answered(experiment_text: str, _answered_once: Callable[[str], Path]) -> Path:
    """Return a folder with the experiment as `x.yaml` and its results in `store`; do not write to it."""
    return _answered_once(experiment_text)


@pytest.fixture
def store(answered: Path, tmp_path: Path) -> Store:
    """Return a copy of the results for writing."""
    shutil.copytree(answered / "store", tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Return a function that runs the real command line in this process."""

    def called(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ragmeter", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        response = capsys.readouterr()
        return Done(int(caught.value.code or 0), response.out, response.err)

    return called


@pytest.fixture
def ragmeter(store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Done]) -> Callable[..., Done]:
    """Return a function that runs the real command line on the store of this test, in this process."""
    for name, value in {"COLUMNS": "150", "NO_COLOR": "1", "RAGMETER_STORE": str(store.folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return call
