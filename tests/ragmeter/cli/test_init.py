"""`ragmeter init`: from a folder with documents, questions and an app to a table, faithfulness and a gate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragmeter import experiment
from tests.support.app import Asked, app

pytestmark = pytest.mark.slow

CITIES = ["Lyon", "Nantes", "Lille", "Nice", "Metz", "Brest", "Dijon", "Tours", "Reims", "Rouen", "Caen", "Nancy"]
Init = Callable[..., Any]


def fact(number: int) -> str:
    return f"The museum of {CITIES[number]} opened in {1900 + number} beside the old harbor and shows {number + 20} paintings."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a working directory with a folder of documents and a table of questions."""
    pytest.importorskip("bm25s")
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "RAGMETER_STORE"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "museums"
    (work / "docs").mkdir(parents=True)
    for number, city in enumerate(CITIES):
        (work / "docs" / f"{city}.md").write_text(f"# {city}\n\n{fact(number)}\n")
    rows = [f"When did the museum of {city} open?,{1900 + number},{city}" for number, city in enumerate(CITIES)]
    (work / "questions.csv").write_text("question,answer,source\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(work)
    return work


def answering(request: Asked, *, wrong: bool = False) -> Any:
    number = next(number for number, city in enumerate(CITIES) if city in request.json["query"])
    answer = f"It opened in {2000 if wrong else 1900 + number}."
    return {"data": {"answer": answer}, "docs": [{"content": fact(number), "id": CITIES[number]}], "usage": {"input_tokens": 9}}


def reply(request: Asked) -> Any:
    return answering(request) if "query" in request.json else (422, {"detail": "query is missing"}, {})


def test_init_with_documents_questions_and_app_gives_table_faithfulness_and_gate(folder: Path, call: Init) -> None:
    with app(reply) as (url, requests):
        begun = json.loads(call("init", "--app", url, "--json").out)
        written = yaml.safe_load((folder / "experiment.yaml").read_text())
        assert begun["written"] == ["experiment.yaml", ".gitignore", ".github/workflows/gate.yml"]
        assert begun["fields"] == {"question": "question", "answers": "answer", "evidence": "source"}
        assert written["methods"][1]["config"]["contexts"] == {"text": "docs[].content", "id": "docs[].id?"}
        assert len(requests) == 2
        ran = call(*begun["next"][0].split()[1:], "--json")
    assert ran.code == 0, ran.err
    (board,) = json.loads(ran.out)["boards"]
    rows = {row["method"]: row["metrics"] for row in board["rows"]}
    cells = {name.partition("(")[0].partition("#")[0]: cell for name, cell in rows["app"].items()}
    assert cells["cover_em"]["value"] == 1.0
    assert 0 < cells["cover_em"]["low"] < 1.0
    (faithfulness,) = (cell for name, cell in rows["app"].items() if "faithfulness" in name)
    assert faithfulness["value"] == 1.0
    env = yaml.safe_load((folder / ".github/workflows/gate.yml").read_text())["env"]
    path = f"{env['METHOD']}/{env['BENCHMARK']}"
    assert call("results", "tag", "main", path).code == 0
    assert call("gate", "--baseline", "main", "--candidate", path, *env["METRICS"].split()).code == 2  # a run compared with itself
    with app(lambda request: answering(request, wrong=True)) as (other, _):
        text = (folder / "experiment.yaml").read_text()
        (folder / "experiment.yaml").write_text(text.replace(url, other))
        assert call("run", "experiment.yaml", "--revision", "app=v2", "-q").code == 0
    assert call("gate", "--baseline", "main", "--candidate", path, *env["METRICS"].split()).code == 100


def test_init_with_only_documents_generates_questions_by_rule(folder: Path, call: Init) -> None:
    (folder / "questions.csv").unlink()
    begun = call("init", "--json")
    assert "--model NAME" in " ".join(json.loads(begun.out)["notes"])
    assert (folder / "questions.csv").read_text("utf-8-sig").count("rule: ") >= len(CITIES)
    ran = call("run", "experiment.yaml", "-q")
    assert (ran.code, "span_recall@5" in ran.out, "synthetic questions" in ran.out + ran.err) == (0, True, True), ran.err


def test_existing_files_are_kept_unless_forced(folder: Path, call: Init) -> None:
    (folder / ".gitignore").write_text("mine\n.env\n")
    assert call("init").code == 0
    assert (folder / ".gitignore").read_text() == "mine\n.env\n"
    (folder / "experiment.yaml").write_text("mine")
    assert (call("init").code, (folder / "experiment.yaml").read_text()) == (2, "mine")
    forced = json.loads(call("init", "--force", "--json").out)
    assert (len(forced["written"]), (folder / ".gitignore").read_text().splitlines()[:2]) == (3, ["mine", ".env"])
    assert {"ragmeter-store/", ".env"} <= set((folder / ".gitignore").read_text().split())


@pytest.mark.parametrize("local", [True, False])
def test_model_reads_passages_and_judges_faithfulness(folder: Path, call: Init, local: bool) -> None:
    options = ("--base-url", "http://localhost:1/v1") if local else ()
    (folder / "experiment.schema.json").write_text("{}")
    done = call("init", "--model", "org/model:latest", *options)
    assert (done.code, "OPENAI_API_KEY" in done.err) == (0, not local), done.err
    text = (folder / "experiment.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=experiment.schema.json\n")
    loaded = experiment.load("experiment.yaml")
    assert [plan.name for plan in loaded.methods] == ["bm25", "bm25-org-model-latest"]
    llm = loaded.judges[0].judge.config.llm
    assert (llm.model, llm.key_variable) == ("org/model:latest", None if local else "OPENAI_API_KEY")
    workflow = yaml.safe_load((folder / ".github/workflows/gate.yml").read_text())["env"]
    assert ("OPENAI_API_KEY" in workflow) == (not local)


@pytest.mark.parametrize("status", [200, 401])
def test_app_without_an_answer_becomes_a_comment_with_the_reason(folder: Path, call: Init, status: int) -> None:
    page = (status, b"<html>Sign in</html>", {"content-type": "text/html"})
    with app(lambda request: page) as (url, _):
        done = call("init", "--app", url)
    assert done.code == 0
    text = (folder / "experiment.yaml").read_text()
    assert [plan.name for plan in experiment.load("experiment.yaml").methods] == ["bm25", "random"]
    before, marked = text.split("  # - id: http\n")
    enabled = f"{before}  - id: http\n" + re.sub(r"^  # (?=  )", "  ", marked, flags=re.MULTILINE)
    assert url in text
    assert yaml.safe_load(enabled)["methods"][-1]["id"] == "http"


@pytest.mark.parametrize(
    ("options", "code", "where"),
    [
        (("--app", "localhost:8000"), "bad-app-url", "--app"),
        (("--app", "http://u:pw@localhost/ask"), "bad-app-url", "--app"),
        (("--questions", "lost.csv"), "missing-file", "lost.csv"),
        (("--base-url", "http://localhost/v1"), "model-missing", "--base-url"),
        (("--plugin", "acme", "--schema"), "options-exclude-each-other", "--schema"),
        (("--plugin", "ragmeter"), "plugin-name-taken", "--plugin"),
        (("--plugin", "../x"), "bad-plugin-name", "--plugin"),
        (("questions.csv",), "not-a-folder", "questions.csv"),
        (("nowhere",), "nothing-to-begin-with", "nowhere"),
    ],
)
def test_invalid_init_is_refused_without_writing(folder: Path, call: Init, options: tuple[str, ...], code: str, where: str) -> None:
    before = sorted(folder.rglob("*"))
    done = call("init", *options, "--json")
    error = json.loads(done.err)["error"]
    assert (done.code, where in str(error)) == (2, True), error
    assert sorted(folder.rglob("*")) == before


def test_bad_rows_stop_init_with_their_line_or_are_skipped(folder: Path, call: Init) -> None:
    with open(folder / "questions.csv", "a") as sink:
        sink.write("a row with one field\n")
    done = call("init")
    assert (done.code, "line 14" in done.err, (folder / "experiment.yaml").exists()) == (2, True, False), done.err
    assert call("init", "--skip-bad").code == 0
    assert yaml.safe_load((folder / "experiment.yaml").read_text())["benchmarks"][0]["config"]["skip_bad"] is True


def test_file_that_cannot_be_read_as_questions_is_named(folder: Path, call: Init) -> None:
    header, *rows = (folder / "questions.csv").read_text().splitlines()
    (folder / "questions.csv").write_text("\n".join([f"{header},reference", *(f"{row},else" for row in rows)]))
    done = call("init", "--json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (2, "two-answer-fields")
    assert not (folder / "experiment.yaml").exists()
    (folder / "docs" / "broken.csv").write_text('"a"b,question\n')
    done = call("init", "docs", "--json")
    assert done.code == 0, done.err
    assert "broken.csv" in str(json.loads(done.out)["notes"])


def test_questions_of_the_folder_itself_are_read_before_those_of_its_folders(folder: Path, call: Init) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "questions.csv").write_text("question,answer,source\nWho was it?,Ann,Bonn\n")
    done = call("init", "--json")
    assert done.code == 0, done.err
    (benchmark,) = yaml.safe_load((folder / "experiment.yaml").read_text())["benchmarks"]
    assert benchmark["config"]["path"] == "questions.csv"
    assert "old/questions.csv" in str(json.loads(done.out)["notes"])


def test_column_that_only_looks_like_gold_is_ignored(folder: Path, call: Init) -> None:
    header, *rows = (folder / "questions.csv").read_text().splitlines()
    rows = [re.sub(r",(\w+)$", r",https://a.example/\1.html", row) for row in rows]
    (folder / "questions.csv").write_text("\n".join([header.replace("source", "document"), *rows]).replace("html", "page"))
    done = call("init")
    assert done.code == 0, done.err
    assert yaml.safe_load((folder / "experiment.yaml").read_text())["benchmarks"][0]["config"]["fields"]["evidence"] is None
    assert call("run", "experiment.yaml", "-q").code == 0
