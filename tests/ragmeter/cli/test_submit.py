"""`ragmeter submit`: from a template through a method's predictions to the table, and export."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry, settings
from methods.api import Services
from methods.baselines.controls import gold_text
from methods.pipeline import Composition
from methods.registry import Component
from ragmeter.api import run as run_experiment
from ragmeter.cli import main
from results.boards.board import boards
from results.store import queries
from results.store.store import Store
from results.submission.bundle import open_bundle


@dataclass
class Done:
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Ragmeter = Callable[..., Done]


def command(store: Path) -> Ragmeter:
    """Run the command on a store in this process, because starting a process takes longer than most tests."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("RAGMETER_STORE", str(store))
            patch.setattr(sys, "argv", ["ragmeter", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            for key, value in environment.items():
                patch.setenv(key, value)
            try:
                main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, out.getvalue(), " ".join(err.getvalue().split()))

    return run


@pytest.fixture
def ragmeter(tmp_path: Path) -> Ragmeter:
    return command(tmp_path / "store")


def fine(done: Done) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout.lstrip().startswith(("{", "[")) else done.stdout


def fill(folder: Path, method: str, reference: str, limit: int, setting: str) -> None:
    """Write predictions of one of our methods, using only the files of the template."""
    benchmark = settings.apply(setting, registry.load(reference).limited(limit), 0)
    requests = [json.loads(line)["id"] for line in (folder / "questions.jsonl").read_text("utf-8").splitlines()]
    built = Composition(Component.of(method)).build(Services())
    built.index(benchmark.corpus)
    responses = {item.question_id: item for item in built.answer(question.query() for question in benchmark.questions)}
    lines = [json.dumps(responses[identifier].to_json(), ensure_ascii=False) + "\n" for identifier in requests]
    (folder / "predictions.jsonl").write_text("".join(lines), "utf-8")
    card = (folder / "card.yaml").read_text("utf-8")
    (folder / "card.yaml").write_text(card.replace("# training_data: []", "training_data: []"), "utf-8")


def name(folder: Path, method: str, version: str = "1") -> None:
    card = (folder / "card.yaml").read_text("utf-8")
    card = card.replace("name: my-method", f"name: {method}").replace('version: "1"', f'version: "{version}"')
    (folder / "card.yaml").write_text(card, "utf-8")


def test_stored_submission_opens_with_the_verdict_of_results(ragmeter: Ragmeter, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    fine(ragmeter("submit", "template", "worlds/multihop:validation", "--limit", 15, "-o", mine))
    fill(mine, "bm25", "worlds/multihop:validation", 15, "distractor")
    shown: list[str] = []
    blank = (mine / "card.yaml").read_text("utf-8")
    for method in ("mine", "other"):
        (mine / "card.yaml").write_text(blank.replace("name: my-method", f"name: {method}"), "utf-8")
        shown = fine(ragmeter("submit", mine / "predictions.jsonl", "--card", mine / "card.yaml")).splitlines()
    title, verdict, *_ = fine(ragmeter("results", "--all")).splitlines()
    assert shown[shown.index(title) + 1] == verdict
    assert "mine@1" in verdict
    assert "other@1" in verdict


EXPERIMENT = """\
name: ours
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 15}]
methods: [{id: bm25}, {id: random}]
"""


@pytest.fixture(scope="module")
def _submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a store with our runs and a submission, and the submitted files; do not write to it."""
    position = tmp_path_factory.mktemp("submitted")
    ragmeter = command(position / "store")
    (position / "ours.yaml").write_text(EXPERIMENT)
    assert not run_experiment(position / "ours.yaml", store=position / "store").failed
    folder = position / "mine"
    fine(ragmeter("submit", "template", "worlds/multihop:validation", "--limit", 15, "-o", folder))
    fill(folder, "bm25", "worlds/multihop:validation", 15, "distractor")
    name(folder, "bm25")
    fine(ragmeter("submit", folder / "predictions.jsonl", "--card", folder / "card.yaml"))
    return position


@pytest.fixture
def submitted(_submitted: Path, tmp_path: Path) -> Path:
    """Return a template folder, filled by bm25 and submitted next to our runs; store and folder belong to this test."""
    # A thread of the process that wrote the store removes the note when it closes the file.
    for name in ("store", "mine"):
        shutil.copytree(_submitted / name, tmp_path / name, ignore=shutil.ignore_patterns("store.owner.json"))
    return tmp_path / "mine"


@pytest.mark.slow
def test_submission_goes_from_template_to_table(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    (board,) = boards(Store(tmp_path / "store"))
    values = {row.run.method: {metric: cell.estimate.value for metric, cell in row.cells.items()} for row in board.rows}
    assert set(values) == {"bm25", "random", "bm25@1"}
    # The same answers, scored by the same code: equal to the last digit.
    assert values["bm25@1"] == values["bm25"]
    assert "bm25@1" in fine(ragmeter("results", "--all"))
    rows = {row["method"]: row["origin"] for row in fine(ragmeter("list", "runs", "--json"))}
    assert rows["bm25@1"] == "submitted"


def test_template_of_own_files_prints_a_command_that_finds_them(ragmeter: Ragmeter, tmp_path: Path) -> None:
    file, folder = tmp_path / "my questions.jsonl", tmp_path / "t"
    file.write_text('{"question": "Where?", "answer": "Lyon", "contexts": [{"text": "In Lyon.", "is_gold": true}]}\n', "utf-8")
    shown = fine(ragmeter("submit", "template", "files:test", "--set", f"path={file}", "--setting", "distractor", "-o", folder))
    (identifier,) = [json.loads(line)["id"] for line in (folder / "questions.jsonl").read_text("utf-8").splitlines()]
    (folder / "predictions.jsonl").write_text(json.dumps({"question_id": identifier, "answer": "Lyon", "contexts": [{"text": "In Lyon."}]}))
    card = folder / "card.yaml"
    card.write_text(card.read_text("utf-8").replace("# training_data: []", "training_data: []"), "utf-8")
    assert file.name not in card.read_text("utf-8")
    command = shlex.split(shown.partition("then: ragmeter ")[2])
    assert fine(ragmeter(*command, "--json"))["report"]["scores"]["em(rules=squad)#v2"] == 1


def test_submit_without_arguments_lists_submissions_and_first_steps(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    value = fine(ragmeter("submit", "--json"))
    assert [(item["method"], item["origin"]) for item in value["submissions"]] == [("bm25@1", "submitted")]
    assert len(value["steps"]) == 3
    shown = fine(ragmeter("submit"))
    assert "bm25@1" in shown
    (sent,) = value["submissions"]
    assert sent["decided_at"][:16].replace("T", " ") in shown, "the time fits next to the other columns"
    assert all(step in shown for step in value["steps"])
    nothing = ragmeter("submit", RAGMETER_STORE=str(tmp_path / "empty"))
    assert "nothing has been submitted" in nothing.stderr
    assert value["steps"][0] in fine(nothing)


@pytest.mark.slow
def test_resubmission_is_idempotent_and_a_change_requires_a_new_version(submitted: Path, ragmeter: Ragmeter) -> None:
    predictions, card = submitted / "predictions.jsonl", submitted / "card.yaml"
    assert fine(ragmeter("submit", predictions, "--card", card, "--json"))["outcome"] == "known"
    first, *rest = predictions.read_text("utf-8").splitlines(keepends=True)
    predictions.write_text(json.dumps(json.loads(first) | {"answer": "another"}) + "\n" + "".join(rest), "utf-8")
    done = ragmeter("submit", predictions, "--card", card, "--json")
    assert done.returncode == 2
    assert "new `version`" in json.loads(done.stderr)["error"]["try"]
    # `submit check` refuses it too, and shows its scores.
    done = ragmeter("submit", "check", predictions, "--card", card, "--json")
    response = json.loads(done.stdout)
    assert (done.returncode, response["report"]["findings"][0]["code"]) == (2, "resubmission-differs")
    assert response["preview"]
    name(submitted, "bm25", "2")
    assert fine(ragmeter("submit", predictions, "--card", card, "--json"))["outcome"] == "stored"


def test_submission_without_a_card_requires_method_and_benchmark(ragmeter: Ragmeter, tmp_path: Path) -> None:
    questions = registry.load("worlds/multihop:validation").questions
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({question.id: gold_text(question) for question in questions}), "utf-8")
    named = ("--method", "theirs@2", "--benchmark", "worlds/multihop:validation")
    response = fine(ragmeter("submit", path, "--format", "squad", *named, "--json"))
    assert (response["outcome"], response["report"]["method"], response["report"]["version"]) == ("stored", "theirs", "2")
    assert response["report"]["scores"]["em(rules=squad)#v2"] == 1
    assert not [name for name in response["report"]["scores"] if "@" in name or name.startswith(("sp_", "joint_", "evidence_"))]
    for more in (named[:2], named[2:], (*named, "--card", path), ("--method", "no name", *named[2:])):
        assert ragmeter("submit", path, "--format", "squad", *more).returncode == 2


def test_check_stores_nothing(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    arguments = ("submit", "check", submitted / "predictions.jsonl", "--card", submitted / "card.yaml", "--json")
    response = fine(ragmeter(*arguments, RAGMETER_STORE=str(elsewhere)))
    assert (response["outcome"], response["run"], response["report"]["ok"]) == ("checked", None, True)
    assert response["report"]["scores"]["recall@5#v2"] > 0
    assert not elsewhere.exists()


@pytest.mark.slow
def test_check_lists_metrics_to_score_and_a_server_uses_its_own_boards(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    arguments = ("submit", "check", submitted / "predictions.jsonl", "--card", submitted / "card.yaml")
    seen = fine(ragmeter(*arguments, "--json", "--known-boards"))["preview"]
    (board,) = boards(Store(tmp_path / "store"))
    (row,) = [row for row in board.rows if row.run.method == "bm25@1"]
    for metric, cell in row.cells.items():
        assert seen[metric]["value"] == cell.estimate.value
        assert seen[metric]["low"] == (None if cell.estimate.insufficient_data else cell.estimate.low)
    value = row.cells["recall@5#v2"].estimate.value
    assert f" {100 * value:.1f} " in fine(ragmeter(*arguments))
    elsewhere = tmp_path / "elsewhere"
    Store(elsewhere).put_cards([], [])
    done = ragmeter(*arguments, "--known-boards", RAGMETER_STORE=str(elsewhere))
    assert done.returncode == 2
    assert "this store has no board for worlds/multihop:validation" in done.stderr


@pytest.mark.slow
def test_submission_is_scored_with_the_metrics_of_the_experiment_that_it_joins(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(EXPERIMENT + "metrics: [hit@3, em]\n")
    assert not run_experiment(file, store=tmp_path / "store").failed
    check = ("submit", "check", submitted / "predictions.jsonl", "--card", submitted / "card.yaml", "--json")
    (metric,) = (name for name in fine(ragmeter(*check))["preview"] if name.startswith("hit@3"))
    (board,) = boards(Store(tmp_path / "store"), "ours")
    assert metric in board.metrics


@pytest.mark.slow
def test_untrusted_card_loads_no_training_data(submitted: Path, ragmeter: Ragmeter, monkeypatch: pytest.MonkeyPatch) -> None:
    card = submitted / "card.yaml"
    named = ", ".join(f"{{reference: '{name}'}}" for name in ["hotpotqa:train", "musique:train", "nq:test"] * 300)
    name(submitted, "bm25", "2")
    card.write_text(card.read_text("utf-8").replace("training_data: []", f"training_data: [{named}]"), "utf-8")
    real, loaded = registry.load, []

    def load(reference: Any, *options: Any) -> Any:
        loaded.append(str(reference))
        return real(reference, *options)

    monkeypatch.setattr(registry, "load", load)
    arguments = ("submit", "check", submitted / "predictions.jsonl", "--card", card, "--json", "--known-boards")
    report = fine(ragmeter(*arguments))["report"]
    assert set(loaded) == {"worlds/multihop:validation"}
    (note,) = [item for item in report["findings"] if item["code"] == "training_data_not_compared"]
    assert note["count"] == 900


def test_refused_submission_names_the_lines_and_exits_with_2(submitted: Path, ragmeter: Ragmeter) -> None:
    bad = submitted / "bad.jsonl"
    lines = (submitted / "predictions.jsonl").read_text("utf-8").splitlines(keepends=True)
    bad.write_text("".join(lines[:4]) + '{"question_id": "x", "anwser": 1}\n' + "".join(lines[5:]), "utf-8")
    done = ragmeter("submit", bad, "--card", submitted / "card.yaml")
    assert done.returncode == 2
    assert f"{bad}:5: 'anwser' in a row: did you mean 'answer'?" in done.stdout
    assert "a question has no row" not in done.stdout  # its row is the one that is refused
    assert "cannot be stored" in done.stdout
    response = ragmeter("submit", bad, "--card", submitted / "card.yaml", "--json")
    assert response.returncode == 2
    assert json.loads(response.stdout)["outcome"] == "refused"


def test_predictions_are_read_from_a_pipe(submitted: Path, ragmeter: Ragmeter) -> None:
    text = (submitted / "predictions.jsonl").read_text("utf-8")
    assert fine(ragmeter("submit", "-", "--card", submitted / "card.yaml", "--json", stdin=text))["outcome"] == "known"


@pytest.mark.slow
def test_bundle_transfers_a_submission_to_another_store(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    bundle = tmp_path / "b.zip"
    fine(ragmeter("submit", "bundle", "bm25@1", "-o", bundle))
    there = str(tmp_path / "there")
    response = fine(ragmeter("submit", bundle, "--json", RAGMETER_STORE=there))
    assert response["outcome"] == "stored"
    assert response["notes"] == ["scored again here: 7 metrics as the bundle states them"]
    here, other = Store(tmp_path / "store"), Store(Path(there))
    run = response["run"]
    assert other.predictions(run) == here.predictions(run)
    assert fine(ragmeter("submit", bundle, "--json"))["outcome"] == "known"
    assert ragmeter("submit", "bundle", "bm25@1", "-o", bundle).returncode == 2


@pytest.mark.slow
def test_own_run_is_bundled_with_a_card(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    name(submitted, "random")
    card = submitted / "card.yaml"
    card.write_text(card.read_text("utf-8").replace("name: bm25", "name: random"), "utf-8")
    fine(ragmeter("submit", "bundle", "ours/random", "-o", tmp_path / "r.zip", "--card", card))
    response = fine(ragmeter("submit", tmp_path / "r.zip", "--json"))
    assert response["report"]["method"] == "random"
    card.write_text(card.read_text("utf-8").replace("setting: distractor", "setting: corpus"), "utf-8")
    done = ragmeter("submit", "bundle", "ours/random", "-o", tmp_path / "s.zip", "--card", card)
    assert done.returncode == 2
    assert "its setting is corpus, the run's is distractor" in done.stderr


@pytest.mark.slow
def test_maintainer_run_verifies_a_submission(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    done = ragmeter("submit", "verify", "bm25@1", "--against", "ours/random", "--tolerance", "1pp")
    assert done.returncode == 1
    assert "not confirmed, stays submitted (tolerance 1 points" in done.stdout
    response = fine(ragmeter("submit", "verify", "bm25@1", "--json"))
    assert (response["agrees"], response["origin"], response["same_answers"]) == (True, "verified", 15)
    (row,) = [row for row in queries.runs(Store(tmp_path / "store")) if row.method == "bm25@1"]
    assert row.origin == "verified"
    for wrong in ("5%", "-1pp", "nan", "200pp"):
        done = ragmeter("submit", "verify", "bm25@1", f"--tolerance={wrong}")
        assert done.returncode == 2
        assert "--tolerance" in done.stderr
    assert ragmeter("submit", "verify", "ours/bm25").returncode == 2


@pytest.mark.slow
def test_trec_files_round_trip(submitted: Path, ragmeter: Ragmeter, tmp_path: Path) -> None:
    run, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    response = fine(ragmeter("results", "export", "ours/bm25", "-o", run, "--format", "trec", "--qrels", qrels, "--json"))
    assert response["questions"] == 15
    assert {len(line.split()) for line in run.read_text("ascii").splitlines()} == {6}
    assert {len(line.split()) for line in qrels.read_text("ascii").splitlines()} == {4}
    name(submitted, "bm25")
    card = submitted / "card.yaml"
    card.write_text(card.read_text("utf-8").replace("name: bm25", "name: bm25-trec"), "utf-8")
    response = fine(ragmeter("submit", run, "--format", "trec", "--card", card, "--json"))
    (board,) = boards(Store(tmp_path / "store"))
    values = {row.run.method: {metric: cell.estimate.value for metric, cell in row.cells.items()} for row in board.rows}
    ours, theirs = values["bm25"], values["bm25-trec@1"]
    assert theirs == {metric: ours[metric] for metric in theirs}
    assert set(ours) - set(theirs) == {"em(rules=squad)#v2", "f1(rules=hotpotqa)#v2", "sp_f1#v2"}
    assert ragmeter("results", "export", "ours/bm25", "-o", run, "--format", "trec").returncode == 2


def test_exported_retriever_candidates_equal_those_of_a_run(ragmeter: Ragmeter, tmp_path: Path) -> None:
    folder, setting = tmp_path / "t", "corpus(retriever=bm25,n=4)"
    arguments = ("worlds/multihop:validation", "--setting", setting, "--limit", 5, "-o", folder, "--passages")
    fine(ragmeter("submit", "template", *arguments))
    card = folder / "card.yaml"
    card.write_text(card.read_text("utf-8").replace("# training_data", "training_data"), "utf-8")
    candidates = [json.loads(line) for line in (folder / "candidates.jsonl").read_text("utf-8").splitlines()]
    assert {len(candidate["candidates"]) for candidate in candidates} <= {1, 2, 3, 4}
    rows = [
        {"question_id": candidate["id"], "answer": "a", "evidence": [{"id": i} for i in candidate["candidates"]]}
        for candidate in candidates
    ]
    corpus = {json.loads(line)["id"] for line in (folder / "passages.jsonl").read_text("utf-8").splitlines()}
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    submit = ("submit", "check", folder / "predictions.jsonl", "--card", folder / "card.yaml", "--json")
    assert fine(ragmeter(*submit))["report"]["ok"]
    other = next(iter(corpus - set(candidates[0]["candidates"])))
    rows[0]["evidence"] = [{"id": other}]
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    findings = json.loads(ragmeter(*submit).stdout)["report"]["findings"]
    assert [finding["code"] for finding in findings] == ["not_a_candidate"]


@pytest.mark.parametrize(
    "reference",
    ["hotpotqa:train", pytest.param("musique:train", marks=pytest.mark.slow), pytest.param("2wikimultihopqa:dev", marks=pytest.mark.slow)],
)
def test_real_dataset_submission_goes_from_template_to_table(
    reference: str, data_folder: Path, ragmeter: Ragmeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    folder = tmp_path / "t"
    fine(ragmeter("submit", "template", reference, "--setting", "distractor", "--limit", 8, "-o", folder))
    assert not any(q.id in (folder / "questions.jsonl").read_text() for q in registry.load(reference).questions[:8])
    fill(folder, "bm25", reference, 8, "distractor")
    card = folder / "card.yaml"
    card.write_text(card.read_text("utf-8").replace("training_data: []", f"training_data: [{{reference: {reference}}}]"))
    response = fine(ragmeter("submit", folder / "predictions.jsonl", "--card", card, "--json"))
    assert response["outcome"] == "stored"
    assert "covers the evaluated split" in response["report"]["contamination"][0]
    assert response["report"]["scores"]["recall@5#v2"] > 0


def test_without_a_card_options_of_the_data_are_given_by_set(ragmeter: Ragmeter, tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": 1, "text": "Works 1 is in Lyon."}\n{"id": 2, "text": "Works 2 is in Nice."}\n')
    (tmp_path / "q.csv").write_text("id,question,gold,source\n7,Where is Works 1?,Lyon,1\n")
    (tmp_path / "run.txt").write_text("7 Q0 2 1 2.0 t\n7 Q0 1 2 1.0 t\n")
    named = ("submit", "check", tmp_path / "run.txt", "--format", "trec", "--method", "theirs", "--benchmark", "files:test")
    data = ("--set", f"path={tmp_path / 'q.csv'}", "--set", f"documents={tmp_path / 'docs.jsonl'}")
    response = fine(ragmeter(*named, *data, "--json", RAGMETER_STORE=str(tmp_path / "s")))
    assert response["report"]["scores"]["mrr@10#v2"] == 0.5
    done = ragmeter(*named, *data, "--set", "docments=x", RAGMETER_STORE=str(tmp_path / "s"))
    assert (done.returncode, "documents" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (("submit", "--card", "x.yaml"), "no predictions were given"),
        (("submit", "nowhere.jsonl"), "need a card"),
        (("submit", "check", "nowhere.jsonl"), "need a card"),
        (("submit", "nowhere.jsonl", "--card", "nowhere.yaml"), "the card cannot be read"),
        (("submit", "bundle.zip"), "cannot be read"),
        (("submit", "nowhere.zip", "--card", "x.yaml"), "contains its own card"),
        (("submit", "nowhere.jsonl", "--set", "questions=4"), "the card sets options of the data"),
        (("submit", "nowhere.jsonl", "--format", "trek"), "unknown format 'trek'"),
        (("submit", "nowhere.txt", "--format", "trec"), "need a card"),
        (("submit", "template", "worlds/multihop", "-o", "t", "--config", "none.yaml"), "cannot be read"),
        (("submit", "template", "worlds/multihop", "-o", "t", "--set", "question=1"), "did you mean 'questions'?"),
        (("submit", "template", "worlds/multihop", "-o", "t", "--setting", "graph"), "does not support the setting"),
        (("submit", "template", "nothing", "-o", "t"), "unknown dataset"),
    ],
)
def test_wrong_usage_is_explained_without_a_traceback(
    arguments: tuple[str, ...], response: str, ragmeter: Ragmeter, tmp_path: Path
) -> None:
    done = ragmeter(*arguments, RAGMETER_STORE=str(tmp_path / "s"))
    assert done.returncode == 2
    assert response in done.stderr
    assert "Traceback" not in done.stderr


def test_untrusted_text_reaches_the_terminal_without_control_characters(submitted: Path, ragmeter: Ragmeter) -> None:
    bad = submitted / "bad.jsonl"
    bad.write_text(json.dumps({"question_id": "\x1b[31m[bold]x[/bold]\u202e", "answer": "a"}) + "\n", "utf-8")
    done = ragmeter("submit", bad, "--card", submitted / "card.yaml")
    assert done.returncode == 2
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "[bold]x[/bold]" in done.stdout


@pytest.mark.slow
def test_bundle_of_a_local_run_declares_only_recorded_facts(ragmeter: Ragmeter, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(EXPERIMENT)
    assert not run_experiment(file, store=tmp_path / "store").failed
    bundle = tmp_path / "sent.zip"
    fine(ragmeter("submit", "bundle", "ours/bm25", "-o", bundle))
    with open_bundle(bundle) as opened:
        card = opened.card
    assert (card.method.name, card.limit, card.models) == ("bm25", 15, ())
    assert [item.name for item in card.training_data] == ["not stated"]
    assert card.settings["method"]["config"]["k1"] == "1.5"
    response = fine(ragmeter("submit", bundle, "--store", tmp_path / "other", "--json"))
    assert response["outcome"] == "stored"


def test_one_card_covers_several_benchmarks(submitted: Path, ragmeter: Ragmeter) -> None:
    other = submitted.parent / "other"
    fine(ragmeter("submit", "template", "worlds/multihop:test", "--limit", 15, "-o", other))
    fill(other, "bm25", "worlds/multihop:test", 15, "distractor")
    options = ("--card", submitted / "card.yaml", "--benchmark", "worlds/multihop:test", "--setting", "distractor", "--json")
    report = json.loads(ragmeter("submit", "check", other / "predictions.jsonl", *options).stdout)["report"]
    assert (report["method"], report["dataset"]) == ("bm25", "worlds/multihop:test")
    assert report["rows"] == 15
    refused = ragmeter("submit", "check", other / "predictions.jsonl", *options, "--method", "x")
    assert refused.returncode == 2
