"""Names that shipped modules register cannot be taken by others, loaded or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.errors import raises

REGISTRY = """from types import SimpleNamespace

from benchmarks.core.plugins import Registry

THINGS = Registry("thing", "acme_ours", "acme_ours.things")


def register(name):
    def decorate(function):
        THINGS.add(SimpleNamespace(id=name), function.__module__)
        return function

    return decorate
"""
MODULE = """from acme_ours.registry import register


@register("shipped")
def shipped(): ...
"""


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the registry of a package whose only entry, `shipped`, is not loaded yet."""
    package = tmp_path / "acme_ours"
    package.mkdir()
    for name, text in {"__init__": "", "registry": REGISTRY, "first": MODULE}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("acme_ours.registry").THINGS
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_ours"]:
        del sys.modules[name]


def test_plugin_cannot_take_the_name_of_an_entry_that_is_not_loaded(things: Any) -> None:
    with raises("duplicate-name"):
        things.add(SimpleNamespace(id="shipped"), "my_file")
    things.add(SimpleNamespace(id="mine"), "my_file")
    assert [(entry.id, things.source(entry.id)) for entry in things] == [("mine", "my_file"), ("shipped", "acme_ours.first")]
