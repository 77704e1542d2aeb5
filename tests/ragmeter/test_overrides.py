"""Overrides of an experiment file, and their storage with the experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.cli.config_options import path_settings
from results.store import queries
from results.store.store import Store
from tests.support.errors import raises

FILE = """\
name: x
benchmarks:
  - {id: worlds/multihop, split: test, limit: 4}
methods:
  - {id: bm25, reader: retrieval_only}
  - {id: bm25, name: Other, reader: retrieval_only, config: {k1: 0.5}}
metrics: [recall@5]
profiles:
  small:
    benchmarks: [{id: worlds/long, split: test, limit: 9}]
"""


def parsed(*settings: str, profile: str | None = None, text: str = FILE) -> experiment.Experiment:
    return experiment.parse(text, "x.yaml", profile=profile, settings=path_settings(settings))


def k1(method: Any) -> float:
    return float(method.composition.method.config.k1)


def test_override_selects_list_items_by_name_id_or_position() -> None:
    result = parsed(
        "methods.bm25.config.k1=2", "methods.1.config.b=0.25", "methods.Other.k=7", "seed=3", "benchmarks.worlds/multihop.limit=2"
    )
    first, second = result.methods
    assert (k1(first), k1(second), second.composition.method.config.b) == (2.0, 0.5, 0.25)  # type: ignore[attr-defined]
    assert (result.seed, result.benchmarks[0].limit) == (3, 2)


def test_override_finds_names_that_contain_dots() -> None:
    model = "Qwen/Qwen2.5-14B-Instruct"
    settings = [f"endpoints.{model}.base_url=http://localhost:7/v1", "methods.of 2.5.k=9"]
    result = experiment.load("sark/figure8", settings=path_settings(settings[:1]))
    assert {method.composition.reader.config.llm.base_url for method in result.methods} == {"http://localhost:7/v1"}  # type: ignore[union-attr]
    named = parsed(settings[1], text=FILE.replace("name: Other", "name: of 2.5"))
    assert [method.composition.k for method in named.methods] == [parsed().methods[0].composition.k, 9]


def test_override_applies_after_the_profile_and_is_stored() -> None:
    settings = ("benchmarks.0.limit=3", "methods.bm25.config.k1=2")
    for profile, dataset in ((None, "worlds/multihop"), ("small", "worlds/long")):
        result = parsed(*settings, profile=profile)
        again = parsed(profile=profile, text=result.source.text)
        for chosen in (result, again):
            assert str(chosen.benchmarks[0].reference).startswith(dataset)
            assert (chosen.benchmarks[0].limit, k1(chosen.methods[0])) == (3, 2.0)
    assert parsed().source.text == FILE


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("methods.bm52.config.k1=2", "unknown-item"),
        ("methods.7.k=2", "unknown-item"),
        ("methods.bm25.config.k2=2", "unknown-key"),
        ("metrix=[f1]", "unknown-key"),
        ("seed", "option-sets-nothing"),
        ("positive_controls=[nosuch]", "unknown-row"),
        ("positive_controls=[gold_answer]", "unknown-row"),
    ],
)
def test_invalid_override_path_is_refused(setting: str, code: str) -> None:
    with raises(code):
        parsed(setting)


@pytest.mark.slow
def test_run_resumes_with_its_original_overrides(tmp_path: Path, call: Callable[..., Any]) -> None:
    (tmp_path / "x.yaml").write_text(FILE)
    store = ("--store", str(tmp_path / "store"))
    assert call("run", str(tmp_path / "x.yaml"), "--set", "methods.Other.config.k1=2", *store).code == 0
    runs = {row.run for row in queries.runs(Store(tmp_path / "store"), "x")}
    (tmp_path / "x.yaml").unlink()
    assert call("run", "--resume", "x", *store).code == 0
    assert {row.run for row in queries.runs(Store(tmp_path / "store"), "x")} == runs
    refused = call("run", "--resume", "x", "--set", "seed=2", *store)
    assert refused.code == 2
