"""`ragmeter judge`, `score` and `annotate` as people call them: what they print, what they refuse, how they exit."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from judges import llm as judge_templates
from judges.judging import JUDGES, Judge
from judges.registry import METRICS, register
from methods.models.openai_server import ChatRequest
from ragmeter import experiment, judging
from ragmeter.cli import main
from ragmeter.commands import running
from ragmeter.testing.world_truth import WorldTruth
from results import judgements, labelling, queries
from results.store import Store

QUESTIONS = 8
EXPERIMENT = f"""\
name: small
reference: bm25
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {QUESTIONS}}}]
methods: [{{id: bm25}}, {{id: random, name: random}}, {{id: gold_answer}}]
metrics: [em]
"""
MORE = ("f1(rules=hotpotqa)", "cover_em", "recall@5", "ndcg@10", "has_answer@3", "rouge(type=rougeL)")


class Done(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answered")
    (folder / "x.yaml").write_text(EXPERIMENT)
    request = running.Request(str(folder / "x.yaml"))
    assert running.run(request, folder / "store", as_json=True, quiet=True, verbose=False) == 0
    return folder


@pytest.fixture
def store(answered: Path, tmp_path: Path) -> Store:
    shutil.copytree(answered / "store", tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture
def ragmeter(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The real command line on the store of this test, in this process."""
    for name, value in {"COLUMNS": "150", "NO_COLOR": "1", "RAGMETER_STORE": str(store.folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ragmeter", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr()
        return Done(int(caught.value.code or 0), said.out, said.err)

    return call


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with WorldTruth.of("worlds/multihop:test").server().running() as found:
        yield found


@pytest.fixture
def scratch() -> Iterator[None]:
    """Metrics that a test registers are gone after it."""
    list(METRICS)
    before = dict(METRICS._entries)
    yield
    METRICS._entries.clear()
    METRICS._entries.update(before)


def at(url: str, **options: object) -> list[str]:
    """Options of a judge at an endpoint, for the command line."""
    every = {"model": "m", "base_url": url, "key_variable": "null", "backoff_s": 0.001, **options}
    return [word for name, value in every.items() for word in ("--set", f"{name}={value}")]


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))


def flat(text: str) -> str:
    return " ".join(text.split())


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what", "where", "remedy"),
    [
        ("judge run mtch", "unknown judge 'mtch'", "JUDGE", "did you mean 'match'?"),
        ("judge list mtch", "unknown judge 'mtch'", "NAME", "did you mean 'match'?"),
        ("judge run match", "match needs model", "--set", "--set model=…"),
        ("judge run match --set model=m --set partal=drop", "unknown option of match 'partal'", "--set", "'partial'"),
        ("judge run match --set model=m --set partial=dorp", "unknown value of partial 'dorp'", "--set", "'drop'"),
        ("judge run match --set model=m --set temperature=hot", "valid number", "--set", None),
        ("judge run match --set model=m --set repetitions=0", "greater than or equal to 1", "--set", None),
        ("judge run match --set model", "'model' sets nothing", "--set", "--set key=value"),
        ("judge run match --set model=m", "OPENAI_API_KEY is not set", "key_variable", "export OPENAI_API_KEY"),
        ("judge run match --set model=m --set key_variable=null --set prompt=x.txt", "cannot be read", "x.txt", None),
        ("judge run rule_match --experiment smal", "unknown experiment 'smal'", "store", "did you mean 'small'?"),
        ("judge run rule_match bm25 --experiment small", "runs and an experiment", "--experiment", "one of the two"),
        ("judge run rule_match bm52", "blessed name 'bm52'", None, "small/bm25"),
        ("judge run rule_pairwise bm25", "compares two runs", "RUNS", "two or more"),
        ("judge table --ties halb", "unknown tie rule 'halb'", "--ties", "did you mean 'half'?"),
        ("judge table smal", "unknown experiment 'smal'", "store", "did you mean 'small'?"),
        ("judge card rule", "unknown judge in this store 'rule'", "store", None),
        ("judge replay rule", "unknown judge in this store 'rule'", "store", None),
        ("score bm25", "no metric was named", "score", "--add METRIC"),
        ("score bm25 --add f11", "unknown metric 'f11'", "--add", "did you mean 'f1'?"),
        ("score bm25 --add recall", "recall needs k", "--add", "recall@5"),
        ("annotate import none.csv --annotator ann", "cannot be read", "none.csv", None),
        ("annotate export x.csv --criterion overall --run bm25 --pairs", "two answers to one question", "store", None),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_place_and_the_nearest_name(
    ragmeter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, what: str, where: str | None,
    remedy: str | None,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = ragmeter(*arguments.split())
    assert done.code == 2, done.err
    assert what in flat(done.err)
    assert where is None or f"where: {where}" in flat(done.err).replace(str(tmp_path) + "/", "")
    assert remedy is None or remedy in flat(done.err)
    assert "Traceback" not in done.err


def test_the_same_as_json(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "mtch", "--json")
    assert done.code == 2
    assert json.loads(done.out or done.err)


def test_plan_says_how_often_a_model_is_to_be_asked(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(
        """
name: planned
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 5}]
methods: [{id: bm25}, {id: no_retrieval}, {id: random}]
judges:
  - rule_match
  - {id: match, config: {model: m, key_variable: null, repetitions: 2}}
  - {id: pairwise, config: {model: m, key_variable: null, repetitions: 3}}
  - {id: pairwise, opponents: all, config: {model: other, key_variable: null, repetitions: 1}}
"""
    )
    asked = json.loads(ragmeter("plan", str(file), "--json").out)["judgements"]
    # Three answers a question, asked twice; two pairs with the reference, and three of all, in both orders.
    assert list(asked.values()) == [3 * 5 * 2, 2 * 5 * 2 * 3, 3 * 5 * 2 * 1]


def test_an_endpoint_that_does_not_answer_broke(ragmeter: Command, store: Store) -> None:
    done = ragmeter("judge", "run", "match", *at("http://127.0.0.1:9/v1", attempts=1))
    assert done.code == 1
    assert "nothing answers" in done.err
    assert judgements.judges(store) == {}


def test_an_interrupted_judging_says_that_it_goes_on(ragmeter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "execute", stop)
    done = ragmeter("judge", "run", "rule_match")
    assert done.code == 130
    assert "interrupted; everything finished is kept" in done.err


@pytest.mark.parametrize(
    ("judges", "what", "line"),
    [
        ("  - rule_mtch", "unknown judge 'rule_mtch'", 7),
        ("  - rule_match\n  - {id: match, config: {model: m, modle: m}}", "modle", 8),
        ("  - {id: rule_match, opponents: all}", "compares nobody", 7),
        ("  - {id: rule_pairwise, opponents: none}", "opponents", 7),
        ("  - {id: match, config: {partial: drop}}", "model", 7),
    ],
)
def test_an_experiment_file_with_a_wrong_judge_names_the_line(
    ragmeter: Command, tmp_path: Path, judges: str, what: str, line: int
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{EXPERIMENT}judges:\n{judges}\n")
    done = ragmeter("plan", str(file))
    assert done.code == 2
    assert what in done.err
    assert f"x.yaml:{line}" in "".join(done.err.split())


# -- judging -------------------------------------------------------------------------------------------------------


def test_judges_are_listed_with_what_they_are_and_those_of_the_store(ragmeter: Command) -> None:
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0
    done = ragmeter("judge", "list")
    assert {line.split()[0] for line in done.out.splitlines()} >= {
        "match",
        "pairwise",
        "grounding",
        "style",
        "rule_match",
    }
    value = json.loads(ragmeter("judge", "list", "--json").out)
    assert [card["rule"] for card in value["stored"]] == [True]
    shown = ragmeter("judge", "list", "match").out
    for word in ("accuracy", "partial", "repetitions", "SARK"):
        assert word in shown


def test_rules_judge_offline_and_are_called_rules_everywhere(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "rule_match", "-q")
    assert done.code == 0, done.err
    assert "accuracy (rule)" in done.out
    assert "accuracy (rule)" in ragmeter("table").out
    assert "rule" in ragmeter("judge", "list").out
    assert "rules, no model" in ragmeter("judge", "card", "rule_match").out
    assert "by rules, not by a model" in ragmeter("judge", "run", "rule_pairwise", "-q").out
    for board in json.loads(ragmeter("judge", "table", "--json").out):
        assert board["rule"] is True
        assert "model=rule" in board["judge"]


def test_a_judge_at_an_endpoint_and_its_numbers_as_json(ragmeter: Command, store: Store, url: str) -> None:
    done = ragmeter("judge", "run", "match", *at(url), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    gold = next(row for row in found if row["method"] == "gold_answer" and row["metric"].startswith("accuracy"))
    assert (gold["value"], gold["value_with_failures_as_zero"], gold["unscored"]) == (1.0, 1.0, 0)
    assert gold["n"] + gold["unscorable"] == QUESTIONS
    assert "accuracy (m)" in ragmeter("table").out


def test_unscored_answers_show_both_values(ragmeter: Command, tmp_path: Path) -> None:
    truth = WorldTruth.of("worlds/multihop:test", corruption=0.5)
    with truth.server().running() as url:
        done = ragmeter("judge", "run", "match", "random", *at(url, exact="none"), "--json")
    (row,) = [row for row in json.loads(done.out) if row["metric"].startswith("accuracy")]
    assert row["unscored"] > 0
    expected = row["value"] * row["n"] / (row["n"] + row["unscored"])
    assert row["value_with_failures_as_zero"] == pytest.approx(expected)
    assert f"the judge gave {row['unscored']} questions no value" in flat(ragmeter("table").out)


def test_pairs_of_named_runs_and_all_pairs(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "rule_pairwise", "bm25", "random", "--json")
    assert {(one["method"], one["opponent"]) for board in json.loads(done.out) for one in board["pairings"]} == {
        ("bm25", "random")
    }
    done = ragmeter("judge", "run", "rule_pairwise", "--all-pairs", "--json")
    (board,) = json.loads(done.out)
    assert len(board["pairings"]) == 3 * 3
    assert set(board["strengths"]) == {"overall", "faithfulness", "conciseness"}
    shown = ragmeter("judge", "table")
    assert "strength (Bradley–Terry, Elo scale)" in shown.out
    assert {one["opponent"] for one in board["pairings"]} == {"bm25", "gold_answer"}
    for ties in ("ignore", "loss", "win"):
        assert ragmeter("judge", "table", "--ties", ties, "--length").code == 0


def test_a_replay_reads_again_without_server_or_key(ragmeter: Command, store: Store) -> None:
    server = WorldTruth.of("worlds/multihop:test", corruption=0.2).server()
    with server.running() as url:
        assert ragmeter("judge", "run", "match", *at(url, exact="none"), "-q").code == 0
        assert ragmeter("judge", "run", "pairwise", *at(url, repetitions=1), "-q").code == 0
        asked = server.calls
    before = ragmeter("judge", "table", "--json").out, ragmeter("table", "--json").out
    for name in ("match", "pairwise"):
        value = json.loads(ragmeter("judge", "replay", name, "--json").out)
        assert value["from"] == value["to"]
        assert value["calls_made"] == 0
        assert [(one["changed"], one["lost"]) for one in value["replayed"]] == [(0, 0)] * len(value["replayed"])
    assert (ragmeter("judge", "table", "--json").out, ragmeter("table", "--json").out) == before
    # Nor does it take the server to find that everything is judged.
    assert ragmeter("judge", "run", "match", *at(url, exact="none"), "-q").code == 0
    assert server.calls == asked
    assert "no call was made" in ragmeter("judge", "replay", "match", "--set", "partial=drop").out
    assert len([card for card in judgements.judges(store).values() if card["judge"] == "match"]) == 2
    judged = [metric for metric in board_rows(ragmeter)[0]["metrics"] if metric.startswith("accuracy")]
    assert len(judged) == 2  # what was replayed by another policy has its own column
    done = ragmeter("judge", "replay", "match")
    assert done.code == 2
    assert "means 2 judges" in done.err


@pytest.mark.parametrize("setting", ["model=other", "repetitions=2", "exact=none", "golds=first", "temperature=1.0"])
def test_a_replay_cannot_change_what_was_asked(ragmeter: Command, url: str, setting: str) -> None:
    assert ragmeter("judge", "run", "match", "bm25", *at(url), "-q").code == 0
    done = ragmeter("judge", "replay", "match", "--set", setting)
    assert done.code == 2
    assert f"{setting.partition('=')[0]} decides what match asks" in done.err
    assert "a replay can change partial" in flat(done.err)


def test_a_replay_may_change_prices_and_the_name_of_an_equal_prompt(
    ragmeter: Command, url: str, tmp_path: Path
) -> None:
    shipped = Path(judge_templates.__file__).parent / "templates" / "match.txt"
    text = shipped.read_text("utf-8")
    for name, written in (("equal", text), ("other", text.replace("You", "You, yes you,", 1) + "\nBe fair.")):
        (tmp_path / f"{name}.txt").write_text(written)
    assert ragmeter("judge", "run", "match", "bm25", *at(url), "-q").code == 0
    for setting in ("usd_per_million_prompt_tokens=3.0", f"prompt={tmp_path / 'equal.txt'}"):
        done = ragmeter("judge", "replay", "match", "--set", setting, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["from"] == json.loads(done.out)["to"]
    done = ragmeter("judge", "replay", "match", "--set", f"prompt={tmp_path / 'other.txt'}")
    assert (done.code, "prompt decides what match asks" in flat(done.err)) == (2, True)


@pytest.mark.slow
def test_a_card_says_how_far_to_trust_a_judge(ragmeter: Command, url: str, tmp_path: Path) -> None:
    assert ragmeter("judge", "run", "match", *at(url, exact="none", usd_per_million_prompt_tokens=1.0), "-q").code == 0
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0
    file = tmp_path / "labels.csv"
    assert ragmeter("annotate", "export", str(file), "--criterion", "accuracy", "--n", "8").code == 0
    rows = read(file)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(
            {**row, "label": "right" if row["answer_1"] == row["gold"].split(" | ")[0] else "wrong"} for row in rows
        )
    done = ragmeter("annotate", "import", str(file), "--annotator", "ann")
    assert done.code == 0, done.err
    assert "8 labels by ann" in done.out
    shown = flat(ragmeter("judge", "card", "match").out)
    for words in ("calls", "price $", "with ann (person)", "corrected: prediction-powered mean"):
        assert words in shown
    agreement = json.loads(ragmeter("judge", "card", "match", "--json").out)["with_judges"]["accuracy"]
    assert [name.partition("(")[0] for name in agreement] == ["rule_match"]
    card = json.loads(ragmeter("judge", "card", "match", "--json").out)
    assert card["failure_rate"] == 0.0
    assert card["work"]["cost_usd"] > 0
    assert {one["measure"] for one in card["corrected"]} == {"accuracy"}


# -- people --------------------------------------------------------------------------------------------------------


def test_items_to_label_leave_controls_out_and_never_overwrite_labels(
    ragmeter: Command, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "labels.csv"
    done = ragmeter("annotate", "export", str(file), "--criterion", "accuracy", "--n", "1000")
    assert done.code == 0, done.err
    assert "fill the column `label`" in done.out
    shown = {row["item"].partition("~")[0] for row in read(file)}
    assert shown == {run.run for run in queries.runs(store) if run.kind != "control"}
    assert "bm25" not in file.read_text()
    again = ragmeter("annotate", "export", str(file), "--criterion", "accuracy")
    assert again.code == 2
    assert "this file is there already" in again.err


def test_two_people_agree_as_far_as_they_do(ragmeter: Command, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    assert ragmeter("annotate", "export", str(file), "--criterion", "overall", "--pairs", "--n", "6").code == 0
    rows = read(file)
    for annotator, second in (("ann", "1"), ("bob", "tie")):
        said = [{**row, "label": second if n == 0 else "2"} for n, row in enumerate(rows)]
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(said)
        done = ragmeter("annotate", "import", str(file), "--annotator", annotator, "--json")
        assert json.loads(done.out)["labels"] == 6
    agreement = json.loads(done.out)["agreement"]["overall"]
    expected = labelling.between_annotators(labelling.labels(store))["overall"]
    assert agreement["raw"]["value"] == pytest.approx(5 / 6)
    assert agreement["corrected"]["value"] == pytest.approx(expected.corrected.value)


def test_labels_outlive_a_fresh_run_and_are_counted_where_answers_changed(
    ragmeter: Command, store: Store, answered: Path, tmp_path: Path
) -> None:
    file = tmp_path / "items.csv"
    assert ragmeter("annotate", "export", str(file), "--criterion", "accuracy", "--n", "6", "-q").code == 0
    rows = [{**row, "label": "right"} for row in read(file)]
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert ragmeter("annotate", "import", str(file), "--annotator", "ann", "-q").code == 0
    before = labelling.labels(store)
    assert len(before) == 6
    done = ragmeter("run", str(answered / "x.yaml"), "--fresh", "-q")
    assert (done.code, labelling.labels(store)) == (0, before)
    assert "labels" not in done.err
    with store.database.writing() as connection:
        # As if the method had said something else when it was labelled.
        connection.execute("UPDATE annotations SET labelled = 'beef' WHERE question = ?", [before[0].question])
    done = ragmeter("run", str(answered / "x.yaml"), "--fresh", "-q")
    rest = sum(label.question == before[0].question for label in before)
    assert f"{rest} of 6 labels by people do not count" in flat(done.err)
    assert len(labelling.labels(store)) == 6 - rest


# -- further metrics -----------------------------------------------------------------------------------------------


def scores(store: Store) -> list[tuple[Any, ...]]:
    with store.database.reading() as connection:
        return connection.execute("SELECT run, question, metric, value FROM scores ORDER BY ALL").fetchall()


def test_score_gives_what_the_run_would_have_given_without_answering(
    ragmeter: Command, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(EXPERIMENT.replace("[em]", f"[em, {', '.join(MORE)}]"))
    fresh = Store(tmp_path / "fresh")
    assert running.run(running.Request(str(file)), fresh.folder, as_json=True, quiet=True, verbose=False) == 0

    def nothing(*_: object) -> None:
        raise AssertionError("scoring must not load a benchmark")

    monkeypatch.setattr(experiment.datasets, "load", nothing)
    done = ragmeter("score", *[word for metric in MORE for word in ("--add", metric)], "--json")
    assert done.code == 0, done.err
    assert scores(store) == scores(fresh)
    assert len(json.loads(done.out)) == 3 * len(MORE)
    shown = json.loads(ragmeter("table", "--json").out)
    (board,) = shown["boards"] if isinstance(shown, dict) else shown
    assert {metric.split("#")[0] for metric in board["metrics"]} >= {"recall@5", "has_answer@3", "f1(rules=hotpotqa)"}
    assert ragmeter("score", "bm25", "--add", "recall@5", "-q").code == 0
    assert scores(store) == scores(fresh)


def columns(ragmeter: Command) -> list[str]:
    """What stands over the columns of the experiment's table, and how many rows have all of them scored on all."""
    (board,) = json.loads(ragmeter("table", "--json").out)["boards"]
    scored = [all(cell["n"] == board["questions"] for cell in row["metrics"].values()) for row in board["rows"]]
    assert all(row["metrics"].keys() == set(board["metrics"]) for row in board["rows"])
    assert all(scored)
    return [metric.partition("#")[0] for metric in board["metrics"]]


def test_added_columns_stay_when_the_file_is_run_again_until_they_are_removed(
    ragmeter: Command, answered: Path
) -> None:
    file = str(answered / "x.yaml")
    assert ragmeter("score", "--add", "f1", "--add", "rouge(type=rougeL)", "-q").code == 0
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0
    added = columns(ragmeter)
    assert [name.partition("(")[0] for name in added[:3]] == ["em", "f1", "rouge"]
    assert added[3].startswith("accuracy")
    assert ragmeter("run", file, "-q").code == 0
    assert columns(ragmeter) == added
    done = ragmeter("score", "--remove", "rouge", "--json")
    assert [one["metric"].partition("(")[0] for one in json.loads(done.out)] == ["rouge"]
    assert ragmeter("score", *[word for name in added[3:] for word in ("--remove", name)], "-q").code == 0
    assert ragmeter("run", file, "-q").code == 0
    assert columns(ragmeter) == added[:2]


def test_what_is_answered_anew_is_scored_on_added_columns_too(ragmeter: Command, answered: Path) -> None:
    """Begun again, or with other questions and so other runs: the table has no holes."""
    assert ragmeter("score", "--add", "f1", "-q").code == 0
    for options in (["--fresh"], ["--limit", str(QUESTIONS // 2)]):
        assert ragmeter("run", str(answered / "x.yaml"), "-q", *options).code == 0
        assert [name.partition("(")[0] for name in columns(ragmeter)] == ["em", "f1"]


def test_removing_says_what_cannot_be_removed(ragmeter: Command) -> None:
    done = ragmeter("score", "--remove", "em")
    assert (done.code, "'em' was not added" in flat(done.err)) == (2, True)
    done = ragmeter("score", "--remove", "em", "--add", "f1")
    assert (done.code, "one after the other" in flat(done.err)) == (2, True)


def test_a_store_without_all_of_the_gold_is_completed_by_running_again(
    ragmeter: Command, store: Store, answered: Path
) -> None:
    with store.database.writing() as connection:
        connection.execute("UPDATE questions SET record = NULL")
    done = ragmeter("score", "bm25", "--add", "f1")
    assert done.code == 2
    assert "run the experiment again" in done.err
    assert ragmeter("run", str(answered / "x.yaml"), "-q").code == 0
    assert ragmeter("score", "bm25", "--add", "f1", "-q").code == 0
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0


def test_scores_that_cannot_be_right_are_said_at_once(ragmeter: Command, scratch: None) -> None:
    @register("test_share", source="a test", group="answer", needs=("answer",))
    def share(batch):  # type: ignore[no-untyped-def]
        """Says that it is a share, and gives every answer two."""
        return np.full(len(batch), 2.0)

    done = ragmeter("score", "bm25", "--add", "test_share", "-q")
    assert "these scores cannot be right: test_share#v1 is above its highest value 1" in flat(done.err)
    assert "these scores cannot be right" in flat(ragmeter("table").out)


def test_a_control_that_a_metric_ranks_wrongly_is_flagged_on_the_printed_board(
    ragmeter: Command, scratch: None
) -> None:
    @register("test_length", source="a test", group="answer", needs=("answer",), low=None, high=None)
    def length(batch):  # type: ignore[no-untyped-def]
        """Minus the length of the answer, doubled for what is no method's answer: the gold can be beaten."""
        return -(np.array([len(answer) for answer in batch.answers], dtype=float) ** 2)

    assert ragmeter("score", "--add", "test_length", "-q").code == 0
    values = {row["method"]: row["metrics"]["test_length#v1"]["value"] for row in board_rows(ragmeter)}
    better = sorted(name for name in ("bm25", "random") if values[name] > values["gold_answer"])
    shown = flat(ragmeter("table").out)
    assert all(f"ranks {name} above the gold answer" in shown for name in better)
    assert ("⚑" in shown) == bool(better)


def board_rows(ragmeter: Command) -> list[dict[str, Any]]:
    shown = json.loads(ragmeter("table", "--json").out)
    (board,) = shown["boards"] if isinstance(shown, dict) else shown
    rows: list[dict[str, Any]] = board["rows"]
    return rows


def test_every_judge_says_what_it_needs() -> None:
    for name in ("match", "pairwise", "grounding", "style", "content", "rule_match", "rule_pairwise"):
        config = {} if name.startswith("rule") else {"model": "m"}
        assert Judge.of(name, config).describe()["needs"]


# -- the page that explains it -------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "judges.md"
ADDRESS = "http://localhost:8000/v1"


def blocks(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
def test_every_command_of_the_page_works(
    ragmeter: Command, store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = next(text for text in blocks("yaml") if text.startswith("name: judged"))
    (tmp_path / "judged.yaml").write_text(file.replace(ADDRESS, url).replace("limit: 60", f"limit: {QUESTIONS}"))
    assert ragmeter("run", "judged.yaml", "-q").code == 0
    lines = [line for text in blocks("bash") for line in text.splitlines() if line.startswith("ragmeter ")]
    asked = [line for line in lines if "gpt-4.1" not in line and "polite" not in line]
    assert len(asked) > 12
    for line in asked:
        # The store of this test holds another experiment with the same runs: a run is named with its own.
        words = [f"judged/{word}" if word in ("bm25", "hybrid") else word for word in shlex.split(line, comments=True)]
        done = ragmeter(*[word.replace(ADDRESS, url) for word in words[1:]], "-q")
        assert done.code == 0, f"{line}: {done.err}"


def test_the_judge_of_the_page_works(
    ragmeter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    before = dict(JUDGES._entries) if list(JUDGES) else {}
    (code,), (prompt,) = (
        [text for text in blocks(name) if word in text] for name, word in (("python", "Polite"), ("text", "Polite"))
    )
    module = types.ModuleType("polite_of_the_page")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    (tmp_path / "polite.txt").write_text(prompt)
    monkeypatch.chdir(tmp_path)
    truth = WorldTruth.of("worlds/multihop:test")

    @truth.handle
    def manners(_: WorldTruth, request: ChatRequest) -> str | None:
        return "Polite" if "You judge manners" in str(request.messages) else None

    (line,) = [line for text in blocks("bash") for line in text.splitlines() if "polite" in line]
    try:
        with truth.server().running() as url:
            done = ragmeter(*[word.replace(ADDRESS, url) for word in shlex.split(line)[1:]], "--json")
    finally:
        JUDGES._entries.clear()
        JUDGES._entries.update(before)
    assert done.code == 0, done.err
    assert {row["metric"].partition("(")[0] for row in json.loads(done.out)} == {"polite"}
    assert {row["value"] for row in json.loads(done.out)} == {1.0}
    assert truth.unrecognised == 0
