"""`ragmeter judge score` and `judge labels`: more metrics on stored answers, and labels by people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judges.metric import METRICS, register
from ragmeter import experiment
from ragmeter.api import run as run_experiment
from results.boards.markup import plain
from results.judging import labels
from results.judging.judge_card import between_people
from results.store import queries
from results.store.store import Store

QUESTIONS = 8
"""Number of questions of the experiment."""
MORE = ("f1(rules=hotpotqa)", "cover_em", "recall@5", "ndcg@10", "has_answer@3", "rouge(type=rougeL)")
Command = Callable[..., Any]


@pytest.fixture
def bm25_only(experiment_text: str, tmp_path: Path) -> str:
    """Write a file of the experiment with only bm25, so that answering again takes a third of the time."""
    file = tmp_path / "alone.yaml"
    file.write_text(experiment_text.replace(", {id: random, name: random}, {id: gold_answer}", ""))
    return str(file)


@pytest.fixture
def scratch() -> Iterator[None]:
    """Unregister metrics after the test."""
    list(METRICS)
    before = dict(METRICS._entries)
    yield
    METRICS._entries.clear()
    METRICS._entries.update(before)


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"))))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_exported_items_exclude_controls_and_never_overwrite_labels(ragmeter: Command, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    done = ragmeter("judge", "labels", "export", "-o", str(file), "--criterion", "accuracy", "--count", "1000")
    assert done.code == 0, done.err
    assert "fill the column `label`" in done.out
    shown = {row["item"].partition("~")[0] for row in read(file)}
    assert shown == {run.run for run in queries.runs(store) if run.kind != "control"}
    assert "bm25" not in file.read_text()
    assert "accuracy" not in done.err
    again = ragmeter("judge", "labels", "export", "-o", str(file), "--criterion", "accuracy")
    assert again.code == 2
    assert "output file already exists" in again.err


@pytest.mark.parametrize(
    ("options", "judges"),
    [
        (["--criterion", "accuracy"], ["match", "rule_match"]),
        (["--criterion", "match"], []),
        (["--criterion", "Accuracy"], []),
        (["--criterion", "accuracy", "--pairs"], []),
        (["--criterion", "overall"], []),
    ],
)
def test_export_by_what_no_judge_measures_says_so(ragmeter: Command, tmp_path: Path, options: list[str], judges: list[str]) -> None:
    done = ragmeter("judge", "labels", "export", "-o", str(tmp_path / "a.csv"), *options, "--count", "2", "--json")
    assert json.loads(done.out)["judges"] == judges
    assert bool(done.err) != bool(judges)


def test_agreement_of_two_annotators_is_computed(ragmeter: Command, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    assert ragmeter("judge", "labels", "export", "-o", str(file), "--criterion", "overall", "--pairs", "--count", "6").code == 0
    rows = read(file)
    for annotator, second in (("ann", "1"), ("bob", "tie")):
        rows_of_one = [{**row, "label": second if n == 0 else "2"} for n, row in enumerate(rows)]
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows_of_one)
        done = ragmeter("judge", "labels", "import", str(file), "--annotator", annotator, "--json")
        assert json.loads(done.out)["labels"] == 6
    agreement = json.loads(done.out)["agreement"]["overall"]
    expected = between_people(store, labels.labels(store))["overall"]
    assert agreement["raw"]["value"] == pytest.approx(5 / 6)
    assert agreement == plain(asdict(expected))
    value = json.loads(ragmeter("judge", "labels", "--json").out)
    assert value["agreement"]["overall"] == agreement
    assert value["labels"] == [{"criterion": "overall", "annotator": name, "labels": 6} for name in ("ann", "bob")]


@pytest.mark.slow
def test_labels_stay_with_their_run(ragmeter: Command, store: Store, bm25_only: str, tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    assert ragmeter("judge", "labels", "export", "bm25", "-o", str(file), "--criterion", "accuracy", "--count", "6").code == 0
    rows = [{**row, "label": "right"} for row in read(file)]
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert ragmeter("judge", "labels", "import", str(file), "--annotator", "ann", "-q").code == 0
    before = labels.labels(store)
    assert len(before) == 6
    done = ragmeter("run", bm25_only, "--fresh", "-q")
    assert (done.code, labels.labels(store)) == (0, before)
    assert len({label.one for label in before} & {row.run for row in queries.runs(store, "alone")}) == 0


def scores(store: Store) -> list[tuple[Any, ...]]:
    with store.database.reading() as connection:
        return connection.execute("SELECT run, question, metric, value FROM scores ORDER BY ALL").fetchall()


@pytest.mark.slow
def test_judge_score_equals_the_run_scores_without_answering_again(
    ragmeter: Command, store: Store, experiment_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(experiment_text.replace("[em]", f"[em, {', '.join(MORE)}]"))
    fresh = Store(tmp_path / "fresh")
    assert not run_experiment(file, store=fresh.folder).failed

    def nothing(*_: object) -> None:
        raise AssertionError("scoring must not load a benchmark")

    monkeypatch.setattr(experiment.datasets, "load", nothing)
    done = ragmeter("judge", "score", *[word for metric in MORE for word in ("--metric", metric)], "--json")
    assert done.code == 0, done.err
    assert scores(store) == scores(fresh)
    assert len(json.loads(done.out)) == 3 * len(MORE)
    shown = json.loads(ragmeter("results", "--json").out)
    (board,) = shown["boards"] if isinstance(shown, dict) else shown
    assert {metric.split("#")[0] for metric in board["metrics"]} >= {"recall@5", "has_answer@3", "f1(rules=hotpotqa)"}
    assert ragmeter("judge", "score", "bm25", "--metric", "recall@5", "-q").code == 0
    assert scores(store) == scores(fresh)


def columns(ragmeter: Command) -> list[str]:
    """Return the columns of the experiment's table, and how many rows have all of them scored on all questions."""
    (board,) = json.loads(ragmeter("results", "--json").out)["boards"]
    scored = [all(cell["n"] == board["questions"] for cell in row["metrics"].values()) for row in board["rows"]]
    assert all(row["metrics"].keys() == set(board["metrics"]) for row in board["rows"])
    assert all(scored)
    return [metric.partition("#")[0] for metric in board["metrics"]]


@pytest.mark.slow
def test_added_columns_persist_over_reruns_until_removed(ragmeter: Command, answered: Path) -> None:
    file = str(answered / "x.yaml")
    assert ragmeter("judge", "score", "--metric", "f1", "--metric", "rouge(type=rougeL)", "-q").code == 0
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0
    added = columns(ragmeter)
    assert [name.partition("(")[0] for name in added[:3]] == ["em", "f1", "rouge"]
    assert added[3].startswith("accuracy")
    assert ragmeter("run", file, "-q").code == 0
    assert columns(ragmeter) == added
    done = ragmeter("judge", "score", "--remove", "rouge", "--json")
    assert [load["metric"].partition("(")[0] for load in json.loads(done.out)] == ["rouge"]
    assert ragmeter("judge", "score", *[word for name in added[3:] for word in ("--remove", name)], "-q").code == 0
    assert ragmeter("run", file, "-q").code == 0
    assert columns(ragmeter) == added[:2]


@pytest.mark.slow
def test_new_answers_are_scored_on_added_columns(ragmeter: Command, bm25_only: str) -> None:
    """Restarted, or with other questions and therefore other runs, the table has no missing values."""
    assert ragmeter("judge", "score", "--metric", "f1", "-q").code == 0
    for options in (["--fresh"], ["--limit", str(QUESTIONS // 2)]):
        assert ragmeter("run", bm25_only, "-q", *options).code == 0
        assert [name.partition("(")[0] for name in columns(ragmeter)] == ["em", "f1"]


def test_removing_a_column_that_was_not_added_is_refused(ragmeter: Command) -> None:
    done = ragmeter("judge", "score", "--remove", "em")
    assert (done.code, "'em' was not added" in flat(done.err)) == (2, True)
    done = ragmeter("judge", "score", "--remove", "em", "--metric", "f1")
    assert (done.code, "one after the other" in flat(done.err)) == (2, True)


def test_implausible_scores_are_reported_immediately(ragmeter: Command, scratch: None) -> None:
    @register("test_share", source="a test", group="answer", needs=("answer",), identity="version")
    def share(batch):  # type: ignore[no-untyped-def]
        """Metric that claims to be a share and gives every answer two."""
        return np.full(len(batch), 2.0)

    done = ragmeter("judge", "score", "bm25", "--metric", "test_share", "-q")
    assert "these scores cannot be right: test_share#v1 is above its highest value 1" in flat(done.err)
    assert "these scores cannot be right" in flat(ragmeter("results").out)


@pytest.mark.parametrize("values", ["[float('inf')] * len(batch)", "[0.5]", "[None] * len(batch)", "1 / 0"])
def test_own_metric_that_breaks_is_named_and_the_others_are_scored(values: str, ragmeter: Command, scratch: None) -> None:
    @register("test_broken", source="a test", group="answer", needs=("answer",), identity="version")
    def broken(batch):  # type: ignore[no-untyped-def]
        """Breaks."""
        return eval(values)

    done = ragmeter("judge", "score", "bm25", "--metric", "test_broken", "--metric", "cover_em", "--json")
    error = json.loads(done.err)["error"]
    assert (done.code, error["code"]) == (3, "metric-raised")
    assert "test_broken#v1" in error["where"]
    assert [row["metric"].partition("(")[0] for row in json.loads(done.out)] == ["cover_em"]


@pytest.mark.slow
def test_misranked_control_is_flagged_on_the_printed_board(ragmeter: Command, scratch: None) -> None:
    @register("test_length", source="a test", group="answer", needs=("answer",), low=None, high=None, identity="version")
    def length(batch):  # type: ignore[no-untyped-def]
        """Metric of minus the answer's length, doubled for controls, so that a method can beat the gold."""
        return -(np.array([len(answer) for answer in batch.answers], dtype=float) ** 2)

    assert ragmeter("judge", "score", "--metric", "test_length", "-q").code == 0
    values = {row["method"]: row["metrics"]["test_length#v1"]["value"] for row in board_rows(ragmeter)}
    better = sorted(name for name in ("bm25", "random") if values[name] > values["gold_answer"])
    shown = flat(ragmeter("results").out)
    assert all(f"ranks {name} above the gold answer" in shown for name in better)
    assert ("⚑" in shown) == bool(better)


def board_rows(ragmeter: Command) -> list[dict[str, Any]]:
    shown = json.loads(ragmeter("results", "--json").out)
    (board,) = shown["boards"] if isinstance(shown, dict) else shown
    rows: list[dict[str, Any]] = board["rows"]
    return rows
