"""The JSON schema of experiments: shipped files are valid and mistakes are not."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragmeter.cli.init_schema import SCHEMA, schema
from ragmeter.experiments import shipped

jsonschema = pytest.importorskip("jsonschema")
EXAMPLES = sorted(path for path in (Path(__file__).parents[3] / "examples").glob("*/*.yaml") if "\nbenchmarks:" in path.read_text())
EXAMPLES = [path for path in EXAMPLES if path.parent.name != "plugin"]  # its names are those of a package that is not installed
VALID: Any = {"name": "x", "benchmarks": [{"id": "worlds/multihop", "split": "test"}], "methods": [{"id": "bm25"}], "metrics": ["recall@5"]}


@pytest.fixture(scope="module")
def validator() -> Any:
    value = json.loads(json.dumps(schema()))
    jsonschema.Draft202012Validator.check_schema(value)
    return jsonschema.Draft202012Validator(value)


@pytest.mark.slow
def test_every_shipped_experiment_is_valid(validator: Any) -> None:
    for name, text in [*shipped().items(), *((str(path), path.read_text("utf-8")) for path in EXAMPLES)]:
        errors = list(validator.iter_errors(yaml.safe_load(text)))
        assert not [f"{error.json_path}: {error.message[:200]}" for error in errors], name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("methods", 0, "id"), "bm26"),
        (("methods", 0, "reader"), "bm25"),
        (("methods", 0, "rerankers"), ["chat"]),
        (("methods", 0, "k"), "five"),
        (("methods", 0, "shade"), "red"),
        (("benchmarks", 0, "id"), "worldz/multihop"),
        (("metrics", 0), "recal@5"),
        (("metrics",), []),
        (("judges",), ["groundin"]),
        (("judges",), [{"id": "groundin"}]),
        (("trainings",), [{"id": "arc"}]),
        (("method",), []),
        (("repeats",), 0),
    ],
)
def test_schema_rejects_invalid_experiments(validator: Any, path: tuple[Any, ...], value: Any) -> None:
    experiment = copy.deepcopy(VALID)
    assert validator.is_valid(experiment)
    *outer, last = path
    target = experiment
    for key in outer:
        target = target[key]
    target[last] = value
    assert not validator.is_valid(experiment)


def test_schema_command_includes_local_plugins_and_overwrites_nothing(tmp_path: Path, call: Callable[..., Any]) -> None:
    (tmp_path / "acme_schema.py").write_text(
        "from methods.apps.function import register_function\n\n\n@register_function('acme_schema', summary='x')\ndef answer(question):\n"
        "    return 'x'\n"
    )
    (tmp_path / "x.yaml").write_text("name: x\nplugins: [acme_schema.py]\nmethods: [{id: acme_schema}]\n")
    (tmp_path / "broken.yaml").write_text("name: [\n")
    path = list(sys.path)
    try:
        done = call("init", str(tmp_path), "--schema", "--json")
    finally:
        sys.path[:] = path
        sys.modules.pop("acme_schema", None)
    assert json.loads(done.out)["written"] == [str(tmp_path / SCHEMA)]
    experiment = {**VALID, "methods": [{"id": "acme_schema"}]}
    assert jsonschema.Draft202012Validator(json.loads((tmp_path / SCHEMA).read_text())).is_valid(experiment)
    again = call("init", str(tmp_path), "--schema", "--json")
    assert (again.code, "--force" in again.err) == (2, True)
