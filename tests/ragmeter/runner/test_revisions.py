"""Deployments replaced behind one address: queried again if a revision distinguishes them, otherwise reported."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import Broke, UserError
from judges.judge import Judge
from ragmeter import api, experiment
from ragmeter.experiment import JudgePlan
from ragmeter.runner import revisions
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.runner.tasks import tasks_of
from results.boards.board import boards
from results.store import queries
from results.store.drift import within
from results.store.reuse import reuse, reuse_line
from results.store.store import Store
from tests.support.deployment import Deployment
from tests.support.errors import raises

pytestmark = pytest.mark.slow

pytest.importorskip("openai")


@pytest.fixture
def server() -> Iterator[Deployment]:
    server = Deployment()
    with server.running():
        yield server


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.models.deployments.PAUSE_S", 0.0)


def file_for(server: Deployment, *, model: str = "", row: str = "", rows: str = "", judge: bool = False) -> str:
    llm = f"{{model: m, base_url: '{server.url}', key_variable: null{model}}}"
    judges = f"judges: [{{id: match, config: {{llm: {llm}}}}}]\n" if judge else ""
    return (
        "name: asked\nbenchmarks: [{id: worlds/multihop, split: test, limit: 2}]\nmethods:\n"
        f"  - {{id: bm25, name: app, k: 2, reader: {{id: chat, config: {{llm: {llm}}}}}{row}}}\n{rows}metrics: [em]\n{judges}"
    )


def asked(text: str, store: Store, stated: dict[str, str] | None = None) -> int:
    """Run an experiment; return how many questions were answered."""
    chosen = revisions.with_revisions(experiment.parse(text, "x.yaml"), stated or {})
    outcomes = run_experiment(chosen, store, How(), talk=False)
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return sum(outcome.answered for outcome in outcomes)


def answers(store: Store) -> list[set[str]]:
    """Return what each run of the experiment answered, in the newest table."""
    return [{prediction.answer for prediction in store.predictions(run.run)} for run in queries.runs(store, "asked")]


PROBE = "{url: 'ROOT/version', json: build.commit}"


@pytest.mark.parametrize("where", ["model", "row"])
def test_probe_detects_that_another_system_answers(server: Deployment, tmp_path: Path, where: str) -> None:
    store, probe = Store(tmp_path), PROBE.replace("ROOT", server.url.removesuffix("/v1"))
    text = file_for(server, **{where: f", revision: {probe}"})
    server.documents["/version"] = (200, {"build": {"commit": "one"}}, {})
    assert [asked(text, store), asked(text, store)] == [2, 0]
    server.answer_text = "Bob"
    server.documents["/version"] = (200, {"build": {"commit": "two"}}, {})
    assert [asked(text, store), asked(text, store)] == [2, 0]
    assert answers(store) == [{"Bob"}]
    (run,) = queries.runs(store, "asked")
    assert run.provenance["revisions"] == {f"m at {server.url}": "two"}
    assert run.description["reader"]["config"]["llm"]["revision"] == "two"
    assert run.description.get("revision") == ("two" if where == "row" else None)
    assert server.asked.count("/version") == 4, "once per command"


def test_command_line_revision_applies_to_its_row(server: Deployment, tmp_path: Path) -> None:
    store, text = Store(tmp_path), file_for(server, rows="  - {id: bm25}\n")
    assert asked(text, store, {"app": "one"}) == 4
    assert asked(text, store, {"app": "one"}) == 0
    server.answer_text = "Bob"
    assert asked(text, store, {"app": "two"}) == 2
    assert answers(store)[0] == {"Bob"}
    assert revisions.begun_with(store, experiment.parse(text, "x.yaml")) == {"app": "two"}


def test_revisions_can_be_passed_from_python(server: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(file_for(server))
    (run,) = api.run(file, store=tmp_path / "s", revisions={"app": "one"}).runs
    assert run.description["revision"] == "one"
    for wrong in ({"revisions": {"ap": "one"}}, {"revisions": "app=one"}, {"reuse_replies": True}):
        with pytest.raises(UserError) as caught:
            api.run(file, store=tmp_path / "s", **wrong)  # type: ignore[arg-type]
        assert caught.value.where == next(iter(wrong))


def test_wrong_revisions_on_the_command_line_are_refused(server: Deployment) -> None:
    chosen = experiment.parse(file_for(server), "x.yaml")
    for options, problem in (
        (["ap=one"], "did you mean 'app'"),
        (["app"], "ROW=TEXT"),
        (["app=a", "app=b"], "two revisions"),
        (["app=a\nb"], "line break"),
        (["app="], "empty"),
    ):
        with pytest.raises(UserError, match=problem):
            revisions.with_revisions(chosen, revisions.read_revisions(options))


def test_failing_probe_names_its_line_and_loses_no_answer(server: Deployment, tmp_path: Path) -> None:
    store, text, root = Store(tmp_path), file_for(server), server.url.removesuffix("/v1")
    assert asked(text, store) == 2
    server.documents["/slow"], server.delay = (200, {"a": "b"}, {}), 0.05
    for where, revision, problem in (
        ("row", f"{{url: '{root}/none', json: a}}", "HTTP 404"),
        ("model", f"{{url: '{root}/none', json: a}}", "HTTP 404"),
        ("row", "{command: 'exit 4'}", "exit code 4"),
        ("row", f"{{url: '{root}/slow', json: a, timeout_s: 0.01}}", "timed out"),
    ):
        with pytest.raises(Broke, match=problem) as caught:
            asked(file_for(server, **{where: f", revision: {revision}"}), store)
        assert "x.yaml:4" in str(caught.value.where)
        assert "revision" in str(caught.value.where)
    server.delay = 0.0
    assert asked(text, store) == 0
    assert answers(store) == [{"Ann"}]


@pytest.mark.parametrize("revision", ['"a\\nb"', "''", "1.10", "${NO_SUCH_VARIABLE}", "{json: a}", "{header: a}"])
def test_invalid_revision_error_names_its_line(server: Deployment, revision: str) -> None:
    with pytest.raises(UserError) as caught:
        revisions.resolve(experiment.parse(file_for(server, row=f", revision: {revision}"), "x.yaml"), Store(Path("none")), entering=False)
    assert "x.yaml:4" in str(caught.value.where)


def test_rows_with_one_name_and_different_revisions_are_refused(server: Deployment) -> None:
    with raises("duplicate-method-name") as caught:
        experiment.parse(file_for(server, row=", revision: a", rows="  - {id: bm25, name: app, revision: b}\n"), "x.yaml")
    assert "x.yaml:5" in str(caught.value.where)


def test_rows_of_two_revisions_are_two_runs(server: Deployment) -> None:
    chosen = experiment.parse(
        file_for(server, row=", revision: a", rows="  - {id: bm25}\n  - {id: bm25, name: b, revision: b}\n"), "x.yaml"
    )
    app, plain, other = (task.run for task in tasks_of(chosen))
    assert len({app.run, plain.run, other.run}) == 3
    assert (app.description["revision"], other.description["revision"]) == ("a", "b")
    assert "revision" not in plain.description
    assert "revisions" not in plain.provenance


def test_created_field_of_the_model_list_is_the_revision_also_for_judges(server: Deployment, tmp_path: Path) -> None:
    store, text = Store(tmp_path), file_for(server, judge=True)
    server.created = lambda: 1_700_000_000
    assert [asked(text, store), asked(text, store)] == [2, 0]
    calls = server.calls
    server.answer_text, server.created = "Bob", lambda: 1_700_000_500
    assert asked(text, store) == 2
    assert answers(store) == [{"Bob"}]
    assert server.calls >= calls + 4, "the judge is another one, too"
    (run,) = queries.runs(store, "asked")
    assert run.provenance["revisions"] == {f"m at {server.url}": "created:1700000500"}


def test_revision_of_a_model_within_a_composed_retriever_counts(server: Deployment, tmp_path: Path) -> None:
    llm = {"model": "m", "base_url": server.url, "key_variable": None}
    rewriting = {"id": "rq_rag_prompted", "config": {"llm": llm, "retriever": "bm25"}}
    row = {"id": "hybrid", "name": "fused", "reader": "extractive", "config": {"retrievers": ["bm25", rewriting]}}
    text = json.dumps(
        {"name": "asked", "benchmarks": [{"id": "worlds/multihop", "split": "test", "limit": 2}], "metrics": ["em"], "methods": [row]}
    )
    store = Store(tmp_path)
    server.created = lambda: 1_700_000_000
    assert [asked(text, store), asked(text, store)] == [2, 0]
    server.created = lambda: 1_700_000_500
    assert [asked(text, store), asked(text, store)] == [2, 0]
    run = queries.runs(store, "asked")[0]
    assert run.provenance["revisions"] == {f"m at {server.url}": "created:1700000500"}


def test_judge_of_stored_answers_is_identified_by_its_deployment(server: Deployment, tmp_path: Path) -> None:
    server.documents["/version"] = (200, {"commit": "one"}, {})
    url = f"{server.url.removesuffix('/v1')}/version"

    def judge(path: str) -> JudgePlan:
        llm = {"model": "m", "base_url": server.url, "key_variable": None, "revision": {"url": url, "json": path}}
        return revisions.resolve_judges([JudgePlan(Judge.of("match", {"llm": llm}))], Store(tmp_path))[0]

    first, again = judge("commit"), judge("commit")
    server.documents["/version"] = (200, {"commit": "two"}, {})
    other = judge("commit")
    assert str(first.judge) == str(again.judge) != str(other.judge)
    assert other.judge.describe()["config"]["llm"]["revision"] == "two"
    with raises("unreadable-revision") as caught:
        judge("sha")
    assert caught.value.where == "judge match"


def test_finished_experiment_replays_without_its_endpoint(tmp_path: Path) -> None:
    store, server = Store(tmp_path), Deployment()
    server.created = lambda: 1_700_000_000
    with server.running():
        text = file_for(server)
        assert asked(text, store) == 2
    assert asked(text, store) == 0
    assert answers(store) == [{"Ann"}]


def test_unknown_deployment_keeps_its_runs_and_the_table_shows_their_age(server: Deployment, tmp_path: Path) -> None:
    store, text, ticks = Store(tmp_path), file_for(server), itertools.count(int(time.time()))
    assert "revision" not in tasks_of(experiment.parse(text, "x.yaml"))[0].run.description["reader"]["config"]["llm"]
    server.created = lambda: next(ticks)
    assert asked(text, store) == 2
    server.answer_text = "Bob"
    assert asked(text, store) == 0
    (board,) = boards(store, "asked")
    (row,) = board.rows
    assert row.reuse is not None
    assert (row.reuse.replies, row.reuse.unknown, row.reuse.uncertain) == (0, (f"m at {server.url}",), False)
    line = reuse_line({"app": row.reuse})
    assert line is not None
    assert f"{row.run.started_at:%Y-%m-%d}" in line
    assert reuse_line({"app": row.reuse}, began=row.run.started_at) is None, "the command made them itself"
    # Another row with the same prompts is answered from the cache.
    further = text.replace("name: app", "name: app, depth: 50").replace("name: asked", "name: further")
    assert asked(further, store) == 2
    (run,) = queries.runs(store, "further")
    known = reuse(store, [run])[run.run]
    assert (known.replies, known.uncertain) == (2, True)
    assert known.oldest is not None
    assert row.run.started_at <= known.oldest <= run.started_at
    assert known.to_json()["oldest_reply"] in json.dumps(boards(store, "further")[0].to_json())


def test_model_change_within_a_run_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = itertools.chain(["fp_1"] * 3, itertools.repeat("fp_2"))  # the first call only checks the endpoint

    class Changing(Deployment):
        system = property(lambda self: next(systems), lambda self, value: None)  # type: ignore[assignment]

    store, server = Store(tmp_path), Changing()
    with server.running():
        asked(file_for(server, model=", concurrency: 1").replace("limit: 2", "limit: 6"), store)
    assert capsys.readouterr().err.count("the endpoint changed for m") == 1
    (run,) = queries.runs(store, "asked")
    (line,) = within(store, run)
    assert "fp_1" in line
    assert "fp_2" in line


@pytest.mark.slow
def test_command_accepts_revisions_and_shows_the_age_of_answers(server: Deployment, tmp_path: Path, call: Callable[..., Any]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(file_for(server))

    def ragmeter(*words: str) -> Any:
        return call("run", *words, "--store", str(tmp_path / "s"))

    assert ragmeter(str(file)).code == 0
    again = ragmeter(str(file))
    assert f"revision unknown: m at {server.url}" in " ".join(again.out.split())
    server.answer_text = "Bob"
    done = ragmeter(str(file), "--revision", "app=two", "--json")
    assert done.code == 0
    assert json.loads(done.out)["boards"][0]["rows"][0]["reuse"] is None
    assert answers(Store(tmp_path / "s")) == [{"Bob"}]
    calls = server.calls
    assert ragmeter("--resume").code == 0
    assert server.calls == calls, "it continues with the revision that it was begun with"
    assert ragmeter(str(file), "--reuse-replies").code == 2
    assert ragmeter(str(file), "--revision", "other=two").code == 2
