"""`ragmeter data` with users' own files: the field mapping, skipped rows, and generated questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from ragmeter import experiment
from ragmeter.cli import config_options
from ragmeter.plan.plan import plan_of
from ragmeter.runner.experiment import How, run_experiment
from results.boards.board import boards
from results.boards.tables import footnotes
from results.store.store import Store
from tests.support.server import ChatRequest, OpenAIServer, Written

DOCS = {
    "fees.md": "# Fees\n\n## Members\n\nA membership of the makers costs 24 euros per month, and students pay only half of that.\n",
    "hours.md": "# Hours\n\n## Days\n\nThe makers open on Tuesday at ten, and on Mondays the doors stay closed all day long.\n",
}
ROWS = "question,answer,source\nWhat does it cost?,24 euros,fees\nWhen,do,they,open\nWhen do they open?,Tuesday,hours\n"


@pytest.fixture(scope="session")
def command(module_at: Any) -> Any:
    return module_at(Path(__file__).with_name("data_command.py"))


@pytest.fixture
def place(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    command.isolated(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    (tmp_path / "docs").mkdir()
    for name, text in DOCS.items():
        (tmp_path / "docs" / name).write_text(text)
    (tmp_path / "q.csv").write_text(ROWS)
    return tmp_path


def test_question_file_is_accepted_as_a_benchmark(command: Any, place: Path) -> None:
    named = ("q.csv", "--set", "documents=docs", "--skip-bad")
    shown = command.shown("sample", *named)
    assert [question["answers"] for question in shown["questions"]] == [["24 euros"], ["Tuesday"]]
    assert "answers: answer" in shown["notes"][0]
    assert command.shown("check", *named)["splits"][0]["questions"] == 2
    assert command.shown("stats", *named)["counts"]["skipped records"] == 1
    assert command.refused("sample", "q.csv", "--set", "documents=docs").code == "bad-record"
    assert config_options.named_data("hotpotqa:dev", {}) == ("hotpotqa:dev", {})
    for folder in ("saved", "beir"):
        (place / folder).mkdir()
    assert config_options.named_data("saved", {}) == ("files", {"path": "saved"})
    assert config_options.named_data("beir", {}) == ("beir", {})


def test_plan_shows_the_mapping_and_tables_show_skipped_rows(place: Path) -> None:
    (place / "e.yaml").write_text(
        "name: e\nmetrics: [mrr@10]\nbenchmarks:\n  - {id: files, config: {path: q.csv, documents: docs}}\nmethods: [{id: random}]\n"
    )
    chosen = experiment.skipping_bad(experiment.load("e.yaml"))
    store = Store(place / "store")
    (mapping,) = plan_of(chosen, store).mappings.values()
    assert "question: question" in mapping
    run_experiment(chosen, store, How(), talk=False)
    (board,) = boards(store, "e")
    assert [line.text for line in board.health if line.code == "data"] == ["1 record that could not be read was skipped"]
    assert "1 record that could not be read was skipped" in footnotes(board)


def test_rule_generated_questions_are_read_back_as_synthetic(command: Any, place: Path) -> None:
    value = command.shown("questions", "docs", "-o", "made.csv", "--held-out", "0.5")
    assert value["files"] == {"made.csv": 2, "made-dev.csv": 2}
    parts = [command.shown("sample", name, "--set", "documents=docs") for name in value["files"]]
    documents = [{passage["document_id"] for question in part["questions"] for passage in question["passages"]} for part in parts]
    assert sorted(map(len, documents)) == [1, 1]
    assert documents[0].isdisjoint(documents[1])
    assert any(note.startswith("synthetic questions: 2 of 2") for note in parts[0]["notes"])


def test_model_generated_questions_are_filtered_and_each_filter_is_counted(command: Any, place: Path) -> None:
    def reply(request: ChatRequest) -> Written:
        text = request.prompt
        if request.messages[0]["content"].startswith("You write"):
            fee = {"question": "What does a membership cost?", "answer": "24 euros", "quotes": ["membership of the makers costs 24 euros"]}
            day = {"question": "When is it open?", "answer": "Tuesday", "quotes": ["open on Friday"]}
            return Written(json.dumps(fee if "24 euros" in text else day))
        return Written(json.dumps({"answer": "24 euros" if "<passages>" in text else "not in the passages"}))

    with OpenAIServer("m", reply).running() as url:
        model = ("--model", "m", "--base-url", url, "--set", "llm.key_variable=null", "--kind", "single")
        planned = command.shown("questions", "docs", "-o", "made.csv", *model, "--dry-run")
        assert (planned["questions"], planned["at_most"]["calls"]) == (2, 6)
        assert not (place / "made.csv").exists()
        value = command.shown("questions", "docs", "-o", "made.csv", *model)
    assert value["kinds"] == {"single": {"kept": 1, "quotes": 1}}
    states = [json.loads(line)["value"] for line in (place / "made.states.jsonl").read_text().splitlines()]
    assert {call["step"] for state in states for call in state["calls"]} == {"single", "answer", "guess"}
    (place / "made.csv").write_text("corrected")
    assert command.refused("questions", "docs", "-o", "made.csv", *model).code == "output-exists"
    again = command.shown("questions", "docs", "-o", "made.csv", *model, "--overwrite")  # the endpoint is gone, and no request is sent
    assert again == value


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nowhere", "-o", "q2.csv"), "missing-file"),
        (("docs", "-o", "q2.json"), "not-csv"),
        (("docs", "-o", "q2.csv", "--kind", "single"), "kind-needs-model"),
        (("docs", "-o", "q2.csv", "--kind", "sinlge"), "unknown-kind"),
        (("docs", "-o", "q2.csv", "--set", "tries=2"), "unknown-model-options"),
        (("docs", "-o", "q2.csv", "--set", "data.chunk_sizes=2"), "unknown-option"),
    ],
)
def test_unwritable_question_output_is_refused(arguments: tuple[str, ...], code: str, command: Any, place: Path) -> None:
    error = command.refused("questions", *arguments)
    assert isinstance(error, UserError)
    assert error.code == code
