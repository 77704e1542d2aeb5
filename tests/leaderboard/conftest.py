"""A made-up store, the app on it, and the two helper scripts of this folder as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.nodes import Node, from_json

APP = Path(__file__).parents[2] / "leaderboard" / "app.py"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"leaderboard_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    return _module("synthetic")


@pytest.fixture(scope="session")
def large() -> ModuleType:
    return _module("large")


@pytest.fixture(scope="session")
def matrix_store() -> ModuleType:
    return _module("matrix_store")


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory, matrix_store: ModuleType) -> Path:
    """The folder of a store with several benchmarks; not to be written to."""
    folder = tmp_path_factory.mktemp("several") / "store"
    matrix_store.fill(folder)
    return folder


@pytest.fixture(scope="session")
def screenshots() -> ModuleType:
    return _module("screenshots")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, synthetic: ModuleType) -> Path:
    """The folder of a store with made-up results; not to be written to."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    synthetic.fill(folder)
    return folder


class App:
    """The app as a reader sees it, without a browser."""

    def __init__(self, test: Any) -> None:
        self.test = test

    def open(self, page: str = "", **parameters: str) -> App:
        self.test.query_params.clear()
        for name, value in parameters.items():
            self.test.query_params[name] = value
        if page:
            self.test.run()
            self.test.switch_page(f"scripts/{page}.py")
            for name, value in parameters.items():
                self.test.query_params[name] = value
        self.test.run()
        return self

    def part(self, key: str) -> Node:
        """The tree that was drawn under a key."""
        found = [e.proto for e in self.test.get("bidi_component") if e.proto.id.endswith(f"-{key}")]
        assert len(found) == 1, f"{key}: {[e.proto.id for e in self.test.get('bidi_component')]}"
        return from_json(found[0].json)

    def has(self, key: str) -> bool:
        return any(e.proto.id.endswith(f"-{key}") for e in self.test.get("bidi_component"))

    def choose(self, label: str, value: str) -> App:
        next(box for box in self.test.selectbox if box.label == label).set_value(value).run()
        return self

    @property
    def query(self) -> dict[str, str]:
        return {
            name: values[0] if isinstance(values, list) else values for name, values in self.test.query_params.items()
        }


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], App]:
    """From a store's folder to the app."""
    testing = pytest.importorskip("streamlit.testing.v1")

    def start(folder: Path) -> App:
        monkeypatch.setenv("RAGMETER_STORE", str(folder))
        return App(testing.AppTest.from_file(str(APP), default_timeout=60))

    return start


def text(node: Node) -> str:
    return " ".join(node.texts())
