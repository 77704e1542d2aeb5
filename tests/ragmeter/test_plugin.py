"""The plug-in under `examples/plugin`: a package that ragmeter finds only by its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin"
GROUPS = {"ragmeter.methods": ["title_overlap", "two_looks"], "ragmeter.benchmarks": ["rivers"], "ragmeter.judges": ["brief"]}


def start(command: list[str], folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with these folders and this tree on the path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)


def ragmeter(folder: Path, path: Path, *lines: str) -> list[Any]:
    """Return the JSON of commands run in one process, with the plug-in at `path`."""
    code = (
        "import sys; from ragmeter.cli import main\n"
        f"for words in {[line.split() for line in lines]!r}:\n"
        "    sys.argv = ['ragmeter', *words, '--json']\n"
        "    try: main()\n"
        "    except SystemExit as end: print(f'\\n--- {end.code}')"
    )
    done = start(["-c", code], folder, path)
    *responses, rest = done.stdout.split("\n--- 0")
    assert not rest.strip(), done.stdout + done.stderr
    return [json.loads(response) for response in responses]


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """Return a folder with the package as installed: its modules, and its entry points as metadata."""
    site = tmp_path / "site"
    info = site / "ragmeter_example-1.0.0.dist-info"
    info.mkdir(parents=True)
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {module}" for name, module in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (site / "ragmeter_example").symlink_to(PLUGIN / "ragmeter_example")
    return site


def test_each_entry_point_group_has_one_module_with_one_registration() -> None:
    points = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert {group: list(names) for group, names in points.items()} == GROUPS
    for group, name in ((group, name) for group, names in GROUPS.items() for name in names):
        module = PLUGIN / (points[group][name].replace(".", "/") + ".py")
        assert module.read_text("utf-8").count("\n@register") == 1


@pytest.mark.slow
def test_plugin_components_are_found_checked_and_run(declared: Path, tmp_path: Path) -> None:
    code = """
import json, sys
from benchmarks.registry import DATASETS
from judges.metric import METRICS
from methods.registry import METHODS, Component
from ragmeter import run
from ragmeter.conformance import check_dataset, check_method
results = run(sys.argv[1], store="store")
knows = {"scripted": "worlds/multihop:validation", "options": {"questions": 12}}
three_steps = Component.of("two_looks", {"retriever": "bm25", "llm": knows})
checks = [*check_method(Component.of("title_overlap", {})), *check_method(three_steps), *check_dataset("rivers", {})]
table = results.table()
print(json.dumps({
    "broken": list(METHODS.broken | DATASETS.broken | METRICS.broken),
    "failed": [check.name for check in checks if not check.passed],
    "checks": len(checks),
    "values": {f"{line.method} {line.metric}": line.value for line in table.itertuples()},
}))
"""
    done = start(["-c", code, str(PLUGIN / "experiment.yaml")], tmp_path, declared)
    assert done.returncode == 0, done.stderr
    response = json.loads(done.stdout)
    assert response["broken"] == []
    assert response["failed"] == []
    assert response["checks"] > 5
    values = response["values"]
    # Every question names its river, which is the title of the one passage that answers it.
    assert values["title alone recall@5#v2"] == values["title_overlap recall@5#v2"] == 1.0
    assert values["gold_answer em(rules=squad)#v2"] == 1.0
    # All twelve answers have at most five words; five of them ("Cairo", "Rome", …) have one.
    short = {name.partition("#")[0]: value for name, value in values.items()}
    assert short["gold_answer brief(words=5)"] == 1.0
    assert short["gold_answer brief(words=1)"] == pytest.approx(5 / 12)


@pytest.mark.slow
def test_plugin_without_entry_points_is_unknown(tmp_path: Path) -> None:
    done = start(["-m", "ragmeter.cli", "run", str(PLUGIN / "experiment.yaml")], tmp_path, PLUGIN)
    assert done.returncode == 2
    assert "unknown method 'title_overlap'" in done.stderr


@pytest.mark.slow
def test_generated_plugin_package_passes_its_tests(tmp_path: Path) -> None:
    done = start(["-m", "ragmeter.cli", "init", "rag", "--plugin", "Acme-Rag"], tmp_path)
    assert done.returncode == 0, done.stderr
    package = tmp_path / "rag"
    points = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    assert points["name"] == "acme-rag"
    assert points["entry-points"]["ragmeter.benchmarks"] == {"acme_rag_rivers": "acme_rag.acme_rag_rivers"}
    text = "".join(path.read_text("utf-8") for path in package.rglob("*") if path.is_file())
    assert not {"ragmeter_example", "ragmeter-example", "title_overlap"} & set(text.replace('"', " ").split())
    tested = start(["-m", "pytest", "-q", "-p", "no:cacheprovider"], package, package)
    assert tested.returncode == 0, tested.stdout
    assert "4 passed" in tested.stdout


@pytest.mark.slow
def test_broken_plugin_is_reported_without_breaking_others(declared: Path, tmp_path: Path) -> None:
    points = declared / "ragmeter_example-1.0.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "lost = ragmeter_example.nowhere\n")
    code = "from judges.metric import METRICS; print(sorted(m.id for m in METRICS if m.id in ('em', 'brief')));print(METRICS.broken)"
    done = start(["-c", code], tmp_path, declared)
    result, broken = done.stdout.splitlines()
    assert result == "['brief', 'em']"
    assert "No module named 'ragmeter_example.nowhere'" in broken


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_installed_plugin_runs_the_commands_of_its_readme(tmp_path: Path) -> None:
    target = tmp_path / "target"
    command = ["-m", "pip", "install", "--target", str(target), "--no-deps", "--no-index", "--no-build-isolation", str(PLUGIN)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The data file is in the wheel, and installing leaves nothing in the tree.
    assert (target / "ragmeter_example" / "rivers.jsonl").exists()
    assert {path.name for path in PLUGIN.iterdir()} == {"README.md", "experiment.yaml", "pyproject.toml", "ragmeter_example", "tests"}
    lines = (
        "list methods title_overlap", "method check title_overlap", "data check rivers", "list metrics brief",
        f"run {PLUGIN / 'experiment.yaml'}",
    )  # fmt: skip
    method, checked, data, metric, run = ragmeter(tmp_path, target, *lines)
    assert method["kind"] == "retriever"
    assert checked["passed"]
    assert data["color"] == "green"
    assert "at most `words` words" in json.dumps(metric)
    (board,) = run["boards"]
    methods = {row["method"]: row["metrics"] for row in board["rows"]}
    assert methods["title_overlap"]["recall@5#v2"]["value"] == 1.0
    assert methods["gold_answer"]["em(rules=squad)#v2"]["value"] == 1.0
