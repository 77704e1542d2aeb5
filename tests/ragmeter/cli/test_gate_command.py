"""The gate in CI: exit codes, reports and messages of the real command on a real run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ragmeter.api import run
from ragmeter.cli.gate_runs import Rows, pairs_of, side_of
from results.gate.history import history
from results.gate.many import ask_pairs
from results.gate.memory import has_anchor
from results.store.store import Store
from tests.support.errors import raises

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
SEVERAL = """
name: several
benchmarks:
  - {id: worlds/multihop, split: test, limit: 60}
  - {id: worlds/multihop, split: validation, limit: 30}
methods: [{id: bm25}, {id: random, name: drawn}]
metrics: [recall@5, recall@20]
profiles:
  more: {benchmarks: [{id: worlds/multihop, split: validation, limit: 30}]}
"""


Command = Callable[..., Any]


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in another process, as CI does."""
    command = [sys.executable, "-m", "ragmeter.cli", *arguments]
    env = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    env |= {"COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gate")
    for name, text in (("small", EXPERIMENT), ("other", OTHER), ("several", SEVERAL)):
        (folder / f"{name}.yaml").write_text(text)
        assert not run(folder / f"{name}.yaml", store=folder / "s").failed
    return str(folder / "s")


@pytest.fixture
def ragmeter(store: str, call: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command on that store, in this process."""
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
def test_gate_exits_with_100_if_worse_0_if_better_and_101_if_inconclusive(store: str, gate: Command) -> None:
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
    # There are enough data, so the interval decides.
    assert few.out.rstrip().endswith("inconclusive")
    assert "detect" in few.out
    assert "inconclusive: " not in few.err


def test_gate_json_contains_the_deciding_numbers(gate: Command) -> None:
    done = gate(
        path("bm25"), path("random"), "--metric", "f1", "--metric", "recall@5", "--margin", "recall@5=2pp", "--margin", "1pp", "--json"
    )
    response = json.loads(done.out)
    assert (done.code, response["exit_code"], response["outcome"]) == (100, 100, "regressed")
    f1, recall = response["metrics"]
    assert (f1["margin"], recall["margin"]) == (0.01, 0.02)
    assert (f1["outcome"], recall["outcome"]) == ("inconclusive", "regressed")
    assert f1["clusters_needed"] > 60
    assert f1["minimum_detectable"] > 0.01
    assert recall["n"] == recall["wins"] + recall["ties"] + recall["losses"] == 60
    assert recall["p"] <= recall["p_holm"]
    assert response["questions"] == 60


def test_gate_of_a_run_against_itself_exits_with_2_without_a_pass(store: str, gate: Command, tmp_path: Path) -> None:
    files = {name: tmp_path / f"gate.{name}" for name in ("junit", "summary", "comment")}
    before = len(history(Store(Path(store))))
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    done = gate(path("bm25"), path("bm25"), "--metric", "recall@5", "--metric", "f1", "--margin", "20pp", *options)
    assert (done.code, done.out.split()[-2:]) == (2, ["not", "tested"])
    assert "nothing was tested" in done.err
    root = ET.parse(files["junit"]).getroot()
    assert [(element.get("failures"), element.get("errors")) for element in (root, root[0])] == [("0", "2")] * 2
    assert [case[0].get("type") for case in root.iter("testcase")] == ["not tested"] * 2
    assert all("nothing was tested" in (case[0].get("message") or "") for case in root.iter("testcase"))
    for name in ("summary", "comment"):
        text = files[name].read_text()
        assert "nothing was tested" in text
        assert "pass" not in text.replace("Pass: the lower bound", "")
    value = json.loads(gate(path("bm25"), path("bm25"), "--metric", "f1", "--margin", "20pp", "--json").out)
    assert (value["outcome"], value["exit_code"]) == ("not tested", 2)
    assert len(history(Store(Path(store)))) == before
    allowed = gate(path("bm25"), path("bm25"), "--metric", "recall@5", "--margin", "20pp", "--allow-same")
    assert allowed.code == 0
    assert "the same run" in allowed.err


@pytest.mark.slow
def test_another_execution_of_the_same_task_is_gated(store: str, ragmeter: Command, gate: Command) -> None:
    assert ragmeter("results", "tag", "first", path("random", "other")).code == 0
    assert ragmeter("run", str(Path(store).with_name("other.yaml")), "-q").code == 0
    options = ("--metric", "f1", "--margin", "90pp", "--json")
    assert gate("first", path("random", "other"), *options).code == 2, "nothing was new"
    assert ragmeter("run", str(Path(store).with_name("other.yaml")), "--fresh", "-q").code == 0
    done = gate("first", path("random", "other"), *options)
    response = json.loads(done.out)
    assert (done.code, response["outcome"]) == (101, "inconclusive"), done.err
    assert response["candidate"]["run"].startswith(f"{response['baseline']['run']}.")
    assert any("same description" in line for line in response["remarks"])
    assert any("rankings are equal" in line for line in response["remarks"])
    assert ragmeter("results", "tag", "first", "--remove").code == 0


def test_gate_warnings_are_in_every_report(gate: Command, tmp_path: Path) -> None:
    files = {name: tmp_path / f"gate.{name}" for name in ("junit", "summary", "comment")}
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    done = gate(path("random"), path("bm25"), "--metric", "recall@5", "--margin", "1pp", *options, "--json")
    warning = "the candidate is older than the baseline"
    assert (done.code, json.loads(done.out)["outcome"]) == (0, "pass")
    assert warning in json.loads(done.out)["remarks"][0]
    assert all(warning in file.read_text() for file in files.values())
    assert warning in " ".join(gate(path("random"), path("bm25"), "--metric", "recall@5", "--margin", "1pp").err.split())


@pytest.mark.slow
def test_method_is_gated_on_all_benchmarks_of_its_experiment(ragmeter: Command, gate: Command, tmp_path: Path) -> None:
    options = ("--metric", "recall@5", "--metric", "recall@20", "--margin", "5pp", "--margin", "recall@5=2pp", "--json")
    done = gate("several/bm25", "several/drawn", *options, "--comment", str(tmp_path / "gate.md"))
    response = json.loads(done.out)
    assert (done.code, response["outcome"]) == (100, "regressed"), done.err
    cells = [(cell["dataset"], cell["metrics"][0]["metric"], cell["metrics"][0]["margin"], cell["seed"]) for cell in response["cells"]]
    tests = [
        (f"worlds/multihop:{split}", metric, margin, 0)
        for split in ("test", "validation")
        for metric, margin in (("recall@5#v2", 0.02), ("recall@20#v2", 0.05))
    ]
    assert cells == tests
    assert all(cell["p_family"] >= (cell["metrics"][0]["p"] or 0) for cell in response["cells"])
    assert all(cell["baseline"]["path"].startswith("several/bm25/") for cell in response["cells"])
    text = (tmp_path / "gate.md").read_text()
    assert all(f"worlds/multihop:{split}/distractor/0" in text for split in ("test", "validation"))
    # A run on one side selects the benchmark.
    one = gate(path("bm25"), "several/drawn", "--metric", "recall@5", "--margin", "1pp", "--json")
    assert (one.code, json.loads(one.out)["candidate"]["path"]) == (100, path("drawn", "several"))


def test_missing_benchmark_of_the_candidate_is_refused_and_of_the_baseline_reported(store: str) -> None:
    opened = Store(Path(store))
    first, second = side_of(opened, "several/bm25"), side_of(opened, "several/drawn")
    assert isinstance(first, Rows)
    assert isinstance(second, Rows)
    fewer = replace(second, runs=second.runs[:1])
    with raises("ambiguous-run"):
        pairs_of(opened, first, fewer)
    pairs, notes = pairs_of(opened, fewer, first)
    assert [(one.method, two.method, one.dataset == two.dataset) for one, two in pairs] == [("drawn", "bm25", True)]
    (note,) = notes
    assert "worlds/multihop:validation/distractor/0" in note
    assert note in ask_pairs(opened, pairs, metrics=["recall@5"], margin=0.01, notes=notes).remarks


def test_junit_and_summary_agree_with_the_exit_code(gate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert cases["f1(rules=squad)#v2"].find("error").get("type") == "inconclusive"  # type: ignore[union-attr]
    assert [child.tag for child in cases["recall@20#v2"]] == ["system-out"]
    text = summary.read_text()
    assert text.startswith("# before\n")
    assert "ragmeter gate: ❌ regressed" in text
    assert text.count("\n| ") == 5


@pytest.mark.slow
def test_tagged_baseline_follows_its_tag(ragmeter: Command, gate: Command) -> None:
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
def test_gate_file_gives_one_overall_outcome(ragmeter: Command, tmp_path: Path, change: tuple[str, str], outcome: str, code: int) -> None:
    file, report = tmp_path / "gate.yaml", tmp_path / "gate.xml"
    file.write_text(GATE.replace(*change))
    done = ragmeter("gate", "--file", str(file), "--json", "--junit", str(report))
    assert done.code == code, done.err
    response = json.loads(done.out)
    assert (response["exit_code"], response["outcome"]) == (code, outcome)
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
        (("1.0pp", "1%"), 3, "invalid margin"),
        (("- recall@20", "- {id: recall@20, may_be_inconclusive: true}"), 7, "the gate requires nothing"),
        (("- recall@20", "- f1"), 6, "is named twice"),
        (("baseline: small/bm25", "baseline: bm25"), 1, ""),
    ],
)
def test_invalid_gate_file_error_names_its_line(
    ragmeter: Command, tmp_path: Path, change: tuple[str, str], line: int, response: str
) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(GATE.replace(*change))
    done = ragmeter("gate", "--file", str(file), "-q")
    message = " ".join(done.err.split())
    if not response:  # only a method's name is enough
        assert done.code == 0, message
        return
    assert done.code == 2
    assert f"gate.yaml:{line} " in message
    assert response in message


def test_gate_file_cell_with_equal_runs_exits_with_2(ragmeter: Command, tmp_path: Path) -> None:
    file, report, comment = (tmp_path / name for name in ("gate.yaml", "gate.xml", "gate.md"))
    file.write_text(GATE.replace("small/random", "small/bm25").replace("1.0pp", "20pp"))
    done = ragmeter("gate", "--file", str(file), "--json", "--junit", str(report), "--comment", str(comment))
    response = json.loads(done.out)
    assert (done.code, response["outcome"], response["exit_code"]) == (2, "not tested", 2)
    assert "nothing was tested" in response["remarks"][0]
    assert "nothing was tested" in comment.read_text()
    root = ET.parse(report).getroot()
    assert (root.get("failures"), root.get("errors")) == ("0", "2")
    assert ragmeter("gate", "--file", str(file), "--allow-same").code == 0


def test_tagged_run_in_a_gate_file_selects_matching_runs_on_other_benchmarks(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(
        "baseline: base\ncandidate: several/drawn\nmargin: 1pp\nmetrics: [recall@5]\n"
        "benchmarks: [worlds/multihop:test, worlds/multihop:validation]\n"
    )
    assert ragmeter("results", "tag", "base", path("bm25", "several")).code == 0
    done = ragmeter("gate", "--file", str(file), "--json")
    assert (done.code, [cell["baseline"]["path"].split("/")[1] for cell in json.loads(done.out)["cells"]]) == (100, ["bm25", "bm25"])
    assert ragmeter("results", "tag", "base", "--remove").code == 0


def test_comment_links_regressed_questions_or_shows_their_command(gate: Command, tmp_path: Path) -> None:
    comment = tmp_path / "gate.md"
    options = ("--metric", "recall@5", "--margin", "1pp", "--comment", str(comment))
    assert gate(path("bm25"), path("random"), *options).code == 100
    commands = re.findall(r"`(ragmeter results show [^`]+)`", comment.read_text())
    assert len(commands) == 10
    done = gate(path("bm25"), path("random"), *options, "--board-url", "https://board.example.org/r/")
    assert done.code == 100, done.err
    links = re.findall(r"\((https://board[^)]+)\)", comment.read_text())
    parts = [urlsplit(link) for link in links]
    assert {(part.netloc, part.path) for part in parts} == {("board.example.org", "/r/questions")}
    views = [parse_qs(part.query) for part in parts]
    assert {(view["experiment"][0], view["metric"][0]) for view in views} == {("small", "recall@5#v2")}
    assert [view["question"][0] for view in views] == [command.split()[-1] for command in commands]
    for wrong in ("board.example.org", "https://x y", "https://a)b", "javascript:alert(1)", "https://a?b=c"):
        assert gate(path("bm25"), path("random"), *options, "--board-url", wrong).code == 2
    assert gate(path("bm25"), path("random"), *options[:4], "--board-url", "https://a").code == 2


def test_commands_in_the_comment_work(ragmeter: Command, gate: Command, tmp_path: Path) -> None:
    comment = tmp_path / "gate.md"
    gate(path("bm25"), path("random"), "--metric", "recall@5", "--margin", "1pp", "--comment", str(comment))
    command = re.findall(r"`ragmeter (results show [^`]+)`", comment.read_text())[0]
    assert ragmeter(*shlex.split(command)).code == 0


def test_every_gate_decision_is_stored(store: str, gate: Command) -> None:
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
        ((path("bm25"), path("random"), "f1", "1%"), "invalid margin"),
        ((path("bm25"), path("random"), "f1", "1"), "1pp if you mean percentage points"),
        (("nothing", path("random"), "f1", "1pp"), "unknown run, checkpoint or tag"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_remedy(gate: Command, arguments: tuple[str, ...], response: str) -> None:
    baseline, candidate, metric, margin = arguments
    done = gate(baseline, candidate, "--metric", metric, "--margin", margin)
    assert done.code == 2, done.out
    assert response in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_unwritable_report_is_reported(gate: Command, tmp_path: Path) -> None:
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
    """Save an untrained encoder as a checkpoint, as a training would."""
    import torch
    from transformers import BertModel

    from results.store.checkpoints import describe

    tiny = tiny_models()
    torch.manual_seed(seed)
    size = len(tiny.tokenizer("bert"))
    tiny.save(folder, "bert", tiny.scaled(BertModel(tiny.config("Bert", size))))
    describe(folder, method="dense", stage="untrained", config={"seed": seed})
    return folder


@pytest.mark.slow
def test_documented_checkpoint_workflow_detects_a_regression(tmp_path: Path, call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a model folder to the gate's outcome, using only documented commands."""

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


@pytest.mark.slow
def test_every_gate_report_includes_the_loss_since_the_anchor(ragmeter: Command, gate: Command, tmp_path: Path) -> None:
    assert ragmeter("results", "tag", "pinned", path("random")).code == 0
    options = ("--metric", "recall@5", "--margin", "1.0pp")
    assert gate("pinned", path("bm25"), *options, "--need-anchor").code == 2
    pinned = ragmeter("gate", "--baseline", "pinned", "--set-anchor")
    assert (pinned.code, " is already " in pinned.out) == (0, False)
    assert " is already " in ragmeter("gate", "--baseline", "pinned", "--set-anchor").out
    files = {name: tmp_path / f"gate.{name}" for name in ("junit", "summary", "comment")}
    reports = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    done = gate("pinned", path("bm25"), *options, "--need-anchor", *reports)
    assert done.code == 0, done.err
    for text in (done.out, *(file.read_text() for file in files.values())):
        assert "decision 1" in text
    (metric,) = json.loads(gate("pinned", path("bm25"), *options, "--json").out)["metrics"]
    assert (metric["attempt"], metric["anchor"]["decision"], metric["anchor"]["outcome"]) == (1, 1, "pass")
    assert metric["anchor"]["difference"]["value"] == metric["difference"]["value"]


@pytest.mark.parametrize("more", [("--candidate", "x"), ("--file", "gate.yaml"), ("--margin", "1.0pp")])
def test_setting_an_anchor_accepts_only_a_baseline(store: str, ragmeter: Command, more: tuple[str, str]) -> None:
    assert ragmeter("gate", "--baseline", path("bm25"), "--set-anchor", *more).code == 2
    assert not has_anchor(Store(Path(store)), path("bm25"))
