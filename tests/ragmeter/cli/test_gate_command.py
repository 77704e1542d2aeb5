"""The gate as CI meets it: exit codes, reports and messages of the real command on a real run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter.api import run
from results.gate import history
from results.store import Store

EXPERIMENT = """
name: small
benchmarks: [{id: worlds/multihop, split: test, limit: 60}]
methods:
  - {id: bm25}
  - {id: random}
  - {id: gold_answer}
metrics: [f1, recall@5, recall@20]
"""
OTHER = """
name: other
reference: random
benchmarks: [{id: worlds/multihop, split: test, limit: 8}]
methods: [{id: random}]
metrics: [f1]
"""


Command = Callable[..., Any]


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as CI starts it."""
    command = [sys.executable, "-m", "ragmeter.cli", *arguments]
    env = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    env |= {"COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gate")
    for name, text in (("small", EXPERIMENT), ("other", OTHER)):
        (folder / f"{name}.yaml").write_text(text)
        assert not run(folder / f"{name}.yaml", store=folder / "s").failed
    return str(folder / "s")


@pytest.fixture
def ragmeter(store: str, call: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command on that store, in this process."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "RAGMETER_STORE": store}.items():
        monkeypatch.setenv(name, value)
    return call


@pytest.fixture
def gate(ragmeter: Command) -> Command:
    return lambda baseline, candidate, *more: ragmeter("gate", "--baseline", baseline, "--candidate", candidate, *more)


def path(method: str, experiment: str = "small") -> str:
    return f"{experiment}/{method}/worlds/multihop:test/distractor/0"


@pytest.mark.slow
def test_worse_ends_with_100_better_with_0_and_too_few_with_101(store: str, gate: Command) -> None:
    worse = started(
        "gate", "--baseline", path("bm25"), "--candidate", path("random"), "--metric", "recall@5", "--margin", "1.0pp", "--store", store
    )
    assert worse.returncode == 100, worse.stderr
    assert "regressed" in worse.stdout
    better = gate(path("random"), path("bm25"), "--metric", "recall@5", "--margin", "0.01")
    assert better.code == 0, better.err
    assert better.out.rstrip().endswith("pass")
    few = gate(path("bm25"), path("random"), "--metric", "f1", "--margin", "1.0pp")
    assert few.code == 101, few.err
    assert "not decided" in few.err


def test_the_json_holds_the_numbers_that_decide(gate: Command) -> None:
    done = gate(
        path("bm25"), path("random"), "--metric", "f1", "--metric", "recall@5", "--margin", "recall@5=2pp", "--margin", "1pp", "--json"
    )
    response = json.loads(done.out)
    assert (done.code, response["exit_code"], response["outcome"]) == (100, 100, "regressed")
    f1, recall = response["metrics"]
    assert (f1["margin"], recall["margin"]) == (0.01, 0.02)
    assert (f1["outcome"], recall["outcome"]) == ("inconclusive", "regressed")
    assert f1["units_needed"] > 60
    assert f1["minimum_detectable"] > 0.01
    assert recall["n"] == recall["wins"] + recall["ties"] + recall["losses"] == 60
    assert recall["p"] <= recall["p_holm"]
    assert response["questions"] == 60


def test_a_run_against_itself_never_regresses(gate: Command) -> None:
    done = gate(path("bm25"), path("bm25"), "--metric", "recall@5", "--margin", "1pp", "--strict")
    assert done.code in (0, 101)
    assert "the same run" in done.err


def test_junit_and_summary_say_the_same_as_the_exit_code(gate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = gate(
        path("bm25"),
        path("random"),
        "--metric",
        "f1",
        "--metric",
        "recall@5",
        "--metric",
        "recall@20",
        "--margin",
        "1pp",
        "--junit",
        str(report),
    )
    assert done.code == 100
    root = ET.parse(report).getroot()
    (suite,) = root.findall("testsuite")
    for element in (root, suite):
        assert {name: element.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
            "tests": "3",
            "failures": "1",
            "errors": "1",
            "skipped": "0",
        }
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["recall@5#v2"].find("failure") is not None
    assert cases["f1(rules=squad)#v1"].find("error").get("type") == "inconclusive"  # type: ignore[union-attr]
    assert [child.tag for child in cases["recall@20#v2"]] == ["system-out"]
    text = summary.read_text()
    assert text.startswith("# before\n")
    assert "ragmeter gate: ❌ regressed" in text
    assert text.count("\n| ") == 5


@pytest.mark.slow
def test_a_tagged_baseline_is_a_name_that_moves(ragmeter: Command, gate: Command) -> None:
    assert ragmeter("results", "tag", "main", path("bm25"), "--note", "first").code == 0
    done = gate("main", path("random"), "--metric", "recall@5", "--margin", "1pp")
    assert done.code == 100, done.err
    moved = json.loads(ragmeter("results", "tag", "main", path("random"), "--json").out)
    assert moved["before"] != moved["run"]
    assert gate("main", path("bm25"), "--metric", "recall@5", "--margin", "1pp").code == 0
    listed = json.loads(ragmeter("results", "tag", "--json").out)
    assert [(item["name"], item["run"]) for item in listed] == [("main", moved["run"])]
    assert ragmeter("results", "tag", "main", "--remove").code == 0
    assert gate("main", path("bm25"), "--metric", "recall@5", "--margin", "1pp").code == 2


GATE = """\
baseline: small/bm25
candidate: small/random
margin: 1.0pp
metrics:
  - {id: f1, may_be_inconclusive: true}
  - recall@20
benchmarks: [worlds/multihop:test]
"""


@pytest.mark.parametrize(
    ("change", "outcome", "code"),
    [(("", ""), "pass", 0), ((", may_be_inconclusive: true", ""), "inconclusive", 101), (("recall@20", "recall@5"), "regressed", 100)],
)
def test_a_gate_file_is_one_verdict(ragmeter: Command, tmp_path: Path, change: tuple[str, str], outcome: str, code: int) -> None:
    file, report = tmp_path / "gate.yaml", tmp_path / "gate.xml"
    file.write_text(GATE.replace(*change))
    done = ragmeter("gate", "--file", str(file), "--json", "--junit", str(report))
    response = json.loads(done.out)
    assert (done.code, response["exit_code"], response["outcome"]) == (code, code, outcome), done.err
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert [case.get("name") for case in cases] == [cell["metrics"][0]["metric"] for cell in response["cells"]]
    kinds = {"pass": "system-out", "regressed": "failure", "inconclusive": "error"}
    assert [case[0].tag for case in cases] == [kinds[cell["outcome"]] for cell in response["cells"]]
    assert all(cell["p_family"] >= cell["metrics"][0]["p"] for cell in response["cells"])


@pytest.mark.parametrize(
    ("change", "line", "response"),
    [
        (("margin:", "margn:"), 3, "did you mean 'margin'?"),
        (("{id: f1,", "{id: f1, margni: 1pp,"), 5, "did you mean 'margin'?"),
        (("recall@20", "recal@20"), 6, "did you mean 'recall@20#v2'?"),
        (("multihop:test", "multihop:tset"), 7, "worlds/multihop:test/distractor/0"),
        (("small/random", "small/randm"), 2, "did you mean 'small/random'?"),
        (("1.0pp", "1%"), 3, "is no margin"),
        (("- recall@20", "- {id: recall@20, may_be_inconclusive: true}"), 7, "nothing has to hold"),
        (("- recall@20", "- f1"), 6, "is named twice"),
        (("baseline: small/bm25", "baseline: bm25"), 1, ""),
    ],
)
def test_a_gate_file_that_is_wrong_is_answered_with_its_line(
    ragmeter: Command, tmp_path: Path, change: tuple[str, str], line: int, response: str
) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(GATE.replace(*change))
    done = ragmeter("gate", "--file", str(file), "-q")
    message = " ".join(done.err.split())
    if not response:  # a method's name alone is enough
        assert done.code == 0, message
        return
    assert done.code == 2
    assert f"gate.yaml:{line} " in message
    assert response in message


def test_every_decision_is_kept(store: str, gate: Command) -> None:
    before = len(history(Store(Path(store))))
    gate(path("bm25"), path("random"), "--metric", "f1", "--metric", "recall@5", "--margin", "1pp")
    kept = history(Store(Path(store)))
    assert len(kept) == before + 2
    assert {item.outcome for item in kept[:2]} == {"regressed", "inconclusive"}
    assert kept[0].details["asked"] == {"baseline": path("bm25"), "candidate": path("random")}


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (("bm25/worlds/multihop:test", "random", "f1", "1pp"), "means 2 runs"),
        ((path("bm25"), path("random", "other"), "f1", "1pp"), "must not be compared"),
        ((path("bm25"), path("gold_answer"), "f1", "1pp"), "is a control"),
        ((path("bm25"), path("random"), "rouge", "1pp"), "was not scored on 'rouge'"),
        ((path("bm25"), path("random"), "recall", "1pp"), "means 2 metrics"),
        ((path("bm25"), path("random"), "f1", "1%"), "is no margin"),
        ((path("bm25"), path("random"), "f1", "1"), "1pp, if percentage points are meant"),
        (("nothing", path("random"), "f1", "1pp"), "unknown run, checkpoint or tag"),
    ],
)
def test_wrong_usage_ends_with_two_and_a_remedy(gate: Command, arguments: tuple[str, ...], response: str) -> None:
    baseline, candidate, metric, margin = arguments
    done = gate(baseline, candidate, "--metric", metric, "--margin", margin)
    assert done.code == 2, done.out
    assert response in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_report_that_cannot_be_written_is_named(gate: Command, tmp_path: Path) -> None:
    done = gate(path("bm25"), path("random"), "--metric", "f1", "--margin", "1pp", "--junit", str(tmp_path / "no" / "x.xml"))
    assert done.code == 2
    assert "--junit" in done.err


def tiny_models() -> Any:
    file = Path(__file__).parents[2] / "methods" / "tiny_models.py"
    spec = importlib.util.spec_from_file_location("tiny_models", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encoder(folder: Path, seed: int) -> Path:
    """A checkpoint folder with an untrained encoder, as a training would leave it."""
    import torch
    from transformers import BertModel

    from results.checkpoints import describe

    tiny = tiny_models()
    torch.manual_seed(seed)
    size = len(tiny.tokenizer("bert"))
    tiny.save(folder, "bert", tiny.scaled(BertModel(tiny.config("Bert", size))))
    describe(folder, method="dense", stage="untrained", config={"seed": seed})
    return folder


@pytest.mark.slow
def test_did_my_checkpoint_regress(tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a model folder to the gate's answer, with nothing but the commands of the docs."""

    def gate(candidate: str, *more: str) -> Any:
        return call("gate", "--baseline", "main", "--candidate", candidate, "--metric", "recall@2", "--margin", "1pp", *more)

    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "s"))
    folder = encoder(tmp_path / "epoch-1", 1)
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: nightly\nbenchmarks: [{id: worlds/multihop, split: test, limit: 40}]\n"
        f"methods: [{{id: bm25}}, {{id: dense, name: mine, config: {{model: {folder}}}}}]\nmetrics: [recall@2]\n"
    )
    ran = call("run", str(file), "-q")
    assert ran.code == 0, ran.err
    assert call("results", "tag", "main", path("bm25", "nightly")).code == 0
    unknown = gate(str(folder))
    assert unknown.code == 2
    assert "checkpoints add" in unknown.err
    added = json.loads(call("train", "checkpoints", "add", str(folder), "--json").out)
    done = gate("epoch-1", "--json")
    assert done.code == 100, done.err
    response = json.loads(done.out)
    assert response["candidate_checkpoint"] == added["sha256"]
    assert response["candidate"]["path"].split("/")[1] == "mine"
    listed = json.loads(call("train", "checkpoints", "--json").out)
    assert [(item["name"], item["registered"]) for item in listed] == [("epoch-1", True)]
    assert call("train", "checkpoints", "check").code == 0
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert call("train", "checkpoints", "check").code == 1
    tampered = call("train", "checkpoints", "check", "epoch-1")
    assert tampered.code == 2
    assert "config.json" in tampered.err
