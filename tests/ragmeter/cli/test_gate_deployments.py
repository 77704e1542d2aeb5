"""The gate on systems that change behind their name: a model at an endpoint, and the code of a plug-in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import load
from tests.support.plugin import Plugin
from tests.support.server import ChatRequest, OpenAIServer, Written

pytest.importorskip("openai")

QUESTIONS = 40


class Replaced(OpenAIServer):
    """Model that answers a benchmark's questions correctly until it is replaced by one that answers none."""

    def __init__(self) -> None:
        super().__init__("m", self.reply)
        self.golds = {question.text: question.answers[0] for question in load("worlds/multihop:test").limited(QUESTIONS).questions}
        self.good = True

    def reply(self, request: ChatRequest) -> Written:
        gold = next((answer for text, answer in self.golds.items() if text in request.prompt), "ready")
        return Written(gold if self.good else "no idea", 3, 1)


@pytest.fixture
def server() -> Iterator[Replaced]:
    server = Replaced()
    with server.running():
        yield server


@pytest.fixture
def ragmeter(tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr("methods.models.deployments.PAUSE_S", 0.0)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    return call


@pytest.fixture
def gate(ragmeter: Callable[..., Any]) -> Callable[..., tuple[int, str, str]]:
    """Gate the experiment's run against the tag `main`; return exit code, outcome and remarks."""

    def decide(metric: str = "cover_em") -> tuple[int, str, str]:
        done = ragmeter("gate", "--baseline", "main", "--candidate", "x/app", "--metric", metric, "--margin", "30pp", "--json")
        response = json.loads(done.out)
        assert done.code == response["exit_code"], done.err
        return done.code, response["outcome"], " ".join(response["remarks"])

    return decide


def write(folder: Path, server: Replaced, revision: str = "") -> Path:
    llm = f"{{model: m, base_url: '{server.url}', key_variable: null{revision}}}"
    file = folder / "x.yaml"
    file.write_text(
        f"name: x\nbenchmarks: [{{id: worlds/multihop, split: test, limit: {QUESTIONS}}}]\nmetrics: [cover_em]\n"
        f"methods: [{{id: bm25, name: app, k: 2, reader: {{id: chat, config: {{llm: {llm}}}}}}}]\n"
    )
    return file


@pytest.mark.slow
def test_gate_never_passes_a_replaced_model(
    tmp_path: Path, server: Replaced, ragmeter: Callable[..., Any], gate: Callable[..., Any]
) -> None:
    file = str(write(tmp_path, server))
    assert ragmeter("run", file, "-q").code == 0
    assert ragmeter("results", "tag", "main", "x/app").code == 0
    server.good = False
    assert ragmeter("run", file, "-q").code == 0
    code, outcome, remarks = gate()
    assert (code, outcome, "the same run" in remarks) == (2, "not tested", True)
    assert ragmeter("run", file, "-q", "--fresh", "--reuse-replies").code == 0
    code, outcome, remarks = gate()
    assert (code, outcome, f"all {QUESTIONS} replies from the cache" in remarks) == (2, "not tested", True)
    assert ragmeter("run", file, "-q", "--fresh").code == 0
    code, outcome, remarks = gate()
    assert (code, outcome, "the revision of a model is unknown" in remarks) == (100, "regressed", True)


@pytest.mark.slow
def test_changed_revision_is_queried_again_and_an_unchanged_one_passes(
    tmp_path: Path, server: Replaced, ragmeter: Callable[..., Any], gate: Callable[..., Any]
) -> None:
    file = str(write(tmp_path, server, ", revision: one"))
    assert ragmeter("run", file, "-q").code == 0
    assert ragmeter("results", "tag", "main", "x/app").code == 0
    assert ragmeter("run", file, "-q", "--fresh").code == 0
    code, outcome, remarks = gate()
    assert (code, outcome, "is unknown" in remarks) == (0, "pass", False)
    server.good = False
    write(tmp_path, server, ", revision: two")
    assert ragmeter("run", file, "-q").code == 0
    comment = tmp_path / "gate.md"
    assert gate()[:2] == (100, "regressed")
    ragmeter("gate", "--baseline", "main", "--candidate", "x/app", "--metric", "cover_em", "--margin", "30pp", "--comment", str(comment))
    assert "one → two" in comment.read_text()


@pytest.mark.slow
def test_edited_plugin_code_is_run_again_and_regresses(
    tmp_path: Path, plugin: Plugin, ragmeter: Callable[..., Any], gate: Callable[..., Any]
) -> None:
    file, comment = tmp_path / "x.yaml", tmp_path / "gate.md"
    file.write_text(
        f"name: x\nbenchmarks: [{{id: worlds/multihop, split: test, limit: {QUESTIONS}}}]\nmetrics: [recall@20]\n"
        "methods: [{id: acme, name: app}]\n"
    )
    plugin.edit("acme/app.py", "import Prediction", "import Evidence, Prediction")
    plugin.edit("acme/app.py", "self.words)", "self.words, tuple(Evidence(name, 1.0) for name in query.candidates))")
    plugin.load()
    assert ragmeter("run", str(file), "-q").code == 0
    assert ragmeter("results", "tag", "main", "x/app").code == 0
    plugin.edit("acme/app.py", "in query.candidates", "in ()")
    plugin.load()
    assert ragmeter("run", str(file), "-q").code == 0
    assert gate("recall@20")[:2] == (100, "regressed")
    ragmeter("gate", "--baseline", "main", "--candidate", "x/app", "--metric", "recall@20", "--margin", "30pp", "--comment", str(comment))
    assert "- `acme` changed \\(1 file: app.py\\)" in comment.read_text()
