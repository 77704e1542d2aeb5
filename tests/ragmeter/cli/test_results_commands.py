"""`ragmeter results` for people and programs: tables, comparisons of two runs, published figures."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from methods.api import Evidence, Prediction
from ragmeter.api import run
from ragmeter.cli import results
from ragmeter.show import console
from results.boards.board import boards
from results.boards.diff import diff, differing
from results.boards.paper_figures import figures, papers
from results.statistics.intervals import differences_together
from results.store import queries, score_queries
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

EXPERIMENT = """
name: small
reference: bm25
benchmarks:
  - {id: worlds/multihop, split: test, limit: 30}
  - {id: worlds/long, split: test, setting: document, limit: 6}
methods:
  - {id: bm25}
  - {id: bm25, name: flat, config: {b: 0.0, k1: 0.4}}
  - {id: random}
metrics: [em, f1, recall@5]
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text("xyz", min_size=1, max_size=2), JSON, max_size=4)


Command = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    position = tmp_path_factory.mktemp("diff")
    (position / "x.yaml").write_text(EXPERIMENT)
    assert not run(position / "x.yaml", store=position / "s").failed
    return str(position / "s")


@pytest.fixture
def ragmeter(folder: str, call: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command on that store, in this process."""
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1", "RAGMETER_STORE": folder}.items():
        monkeypatch.setenv(name, value)
    return call


def path(method: str, dataset: str = "worlds/multihop:test/distractor") -> str:
    return f"small/{method}/{dataset}/0"


@pytest.mark.slow
def test_differing_settings_are_named_by_nested_keys(ragmeter: Command) -> None:
    done = ragmeter("results", "compare", path("bm25"), path("flat"), "--json")
    assert done.code == 0, done.err
    response = json.loads(done.out)
    assert response["settings"] == [
        {"key": "description.method.config.k1", "first": 1.5, "second": 0.4},
        {"key": "description.method.config.b", "first": 0.75, "second": 0.0},
    ]


@pytest.mark.slow
def test_differing_scores_equal_the_paired_statistics(folder: str) -> None:
    store = Store(Path(folder))
    item, two = (queries.find_run(store, path(name)) for name in ("bm25", "random"))
    result = diff(store, item, two)
    assert [number.metric for number in result.numbers] == ["em(rules=squad)#v2", "f1(rules=squad)#v2", "recall@5#v2"]
    columns = score_queries.score_columns(store, item.dataset_fingerprint, [item.run, two.run]).values
    values = [np.array([columns[run, number.metric] for number in result.numbers]) for run in (two.run, item.run)]
    questions = score_queries.score_columns(store, item.dataset_fingerprint, [item.run, two.run]).questions
    seeds = [question.split("-")[1] for question in questions]
    together = differences_together(*values, clusters=seeds)
    for number, expected, p in zip(result.numbers, together.differences, together.p, strict=True):
        np.testing.assert_equal(asdict(number.difference), asdict(expected))
        np.testing.assert_equal(number.p_holm, p)


def test_comparison_shows_the_most_different_questions_with_both_answers(folder: str, ragmeter: Command) -> None:
    done = ragmeter("results", "compare", path("bm25"), path("random"), "--metric", "recall@5", "--count", "4", "--json")
    response = json.loads(done.out)
    store = Store(Path(folder))
    runs = [response["first"]["run"], response["second"]["run"]]
    columns = score_queries.score_columns(store, response["first"]["dataset_fingerprint"], runs, ["recall@5#v2"])
    apart = np.abs(columns.values[runs[0], "recall@5#v2"] - columns.values[runs[1], "recall@5#v2"])
    order = sorted(range(len(apart)), key=lambda position: -apart[position])[:4]
    assert [item["question"] for item in response["questions"]] == [columns.questions[position] for position in order]
    assert response["questions_apart"] == int((apart > 0).sum())
    for item in response["questions"]:
        assert {"value", "answer", "failed", "evidence"} <= item["first"].keys()
        assert item["golds"]


def test_runs_on_different_data_are_compared_only_in_settings(ragmeter: Command) -> None:
    done = ragmeter("results", "compare", path("bm25"), path("bm25", "worlds/long:test/document"), "--json")
    assert done.code == 0, done.err
    response = json.loads(done.out)
    assert response["paired"] is False
    assert "different data, worlds/multihop:test and worlds/long:test" in response["unpaired_because"]
    assert {"dataset", "dataset_fingerprint", "questions", "setting"} <= {item["key"] for item in response["settings"]}
    assert all(item["difference"] is None for item in response["metrics"])
    assert all(item["first"] and item["second"] for item in response["metrics"])
    assert response["questions"] == []
    shown = ragmeter("results", "compare", path("bm25"), path("bm25", "worlds/long:test/document"))
    assert "numbers are not paired: the runs used different data" in " ".join(shown.out.split())


@pytest.mark.slow
def test_settings_of_only_one_run_come_last_and_are_hidden_unless_verbose(ragmeter: Command) -> None:
    words = ("results", "compare", path("bm25"), path("random"))
    settings = json.loads(ragmeter(*words, "--json").out)["settings"]
    one_sided = [item.get("first") is None or item.get("second") is None for item in settings]
    assert one_sided == sorted(one_sided)
    assert len(set(one_sided)) == 2
    folded, whole = ragmeter(*words).out, ragmeter(*words, "-v").out
    assert "description.method.config.k1" not in folded
    assert "k1" in folded
    assert "description.method.config.k1" in whole
    assert "description.method.id" in folded


def test_run_does_not_differ_from_itself(ragmeter: Command) -> None:
    done = ragmeter("results", "compare", path("bm25"), path("bm25"))
    assert done.code == 0, done.err
    assert "the settings are equal" in done.err
    assert "+0.0" in done.out


@pytest.mark.slow
@given(OBJECT)
def test_equal_objects_have_no_differences(item: dict[str, object]) -> None:
    assert differing(item, json.loads(json.dumps(item))) == []


@pytest.mark.slow
@given(OBJECT, OBJECT)
def test_object_differences_are_symmetric_and_exact(item: dict[str, object], two: dict[str, object]) -> None:
    forth, back = differing(item, two), differing(two, item)
    assert {(d.key, repr(d.first), repr(d.second)) for d in forth} == {(d.key, repr(d.second), repr(d.first)) for d in back}
    assert bool(forth) == (json.dumps(item, sort_keys=True) != json.dumps(two, sort_keys=True))


def test_nested_keys_are_written_as_lookup_paths() -> None:
    item = {"reader": {"config": {"model": "a"}}, "rerankers": [{"id": "x"}, {"id": "y"}], "only": None}
    two = {"reader": {"config": {"model": "b"}}, "rerankers": [{"id": "z"}]}
    assert [(d.key, d.first, d.second, d.in_second) for d in differing(item, two)] == [
        ("reader.config.model", "a", "b", True),
        ("rerankers[0].id", "x", "z", True),
        ("rerankers[1]", {"id": "y"}, None, False),
        ("only", None, None, False),
    ]


@pytest.mark.parametrize("form", ["csv", "text", "json"])
def test_tables_are_written_in_every_format(ragmeter: Command, form: str, tmp_path: Path) -> None:
    file = tmp_path / "table"
    done = ragmeter("results", "--format", form, "--output", str(file))
    assert done.code == 0, done.err
    assert done.out == ""
    text = file.read_text("utf-8")
    assert "worlds/long:test" in text
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(rows) == 2 * 3 * 3
        assert {row["dataset"] for row in rows} == {"worlds/multihop:test", "worlds/long:test"}
    if form == "json":
        assert len(json.loads(text)["boards"]) == 2


@pytest.mark.slow
def test_unknown_format_or_unwritable_path_is_wrong_usage(ragmeter: Command, tmp_path: Path) -> None:
    done = ragmeter("results", "--format", "latx")
    assert done.code == 2
    assert "did you mean 'latex'?" in done.err
    assert ragmeter("results", "--format", "csv", "--output", str(tmp_path)).code == 2
    done = ragmeter("results", "--format", "csv", "--json")
    assert (done.code, done.out) == (2, "")
    assert "--format csv" in done.err
    assert ragmeter("results", "--format", "json", "--json").code == 0


@pytest.mark.parametrize("line", ["results --metric=", "results compare RUN RUN --metric="])
def test_empty_metric_name_is_refused(ragmeter: Command, line: str) -> None:
    done = ragmeter(*line.replace("RUN", path("bm25")).split())
    assert (done.code, done.out) == (2, "")
    assert "unknown stored metric ''" in done.err


def test_empty_store_is_accepted_but_an_unknown_experiment_refused(ragmeter: Command, tmp_path: Path) -> None:
    for group, value in (("results", {"experiment": None, "boards": []}), ("results style", {"experiment": None, "tables": []})):
        done = ragmeter(*group.split(), "--store", str(tmp_path / "none"))
        assert (done.code, done.out) == (0, "")
        assert "ragmeter run FILE" in done.err
        assert json.loads(ragmeter(*group.split(), "--store", str(tmp_path / "none"), "--json").out) == value
        assert ragmeter(*group.split(), "nowhere", "--store", str(tmp_path / "none")).code == 2
        assert ragmeter(*group.split(), "nowhere").code == 2
    assert not (tmp_path / "none").exists()
    done = ragmeter("results", "style")
    assert (done.code, done.out) == (0, "")
    assert "both formal and restyled passages" in done.err


@pytest.mark.slow
def test_results_show_a_run_and_one_of_its_questions(ragmeter: Command) -> None:
    whole = json.loads(ragmeter("results", "show", path("bm25"), "--json").out)
    assert (whole["path"], whole["done"], whole["status"]) == (path("bm25"), 30, FINISHED)
    assert whole["description"]["method"]["id"] == "bm25"
    assert len(whole["board"]["rows"]) == 1
    assert whole["run"] in ragmeter("results", "show", path("bm25")).out
    compared = json.loads(
        ragmeter("results", "compare", path("bm25"), path("random"), "--metric", "recall@5", "--count", "1", "--json").out
    )
    (apart,) = compared["questions"]
    entry = json.loads(ragmeter("results", "show", path("bm25"), apart["question"], "--json").out)
    assert entry["answer"]["answer"] == apart["first"]["answer"]
    assert [item["id"] for item in entry["answer"]["evidence"]][:5] == apart["first"]["evidence"]
    assert apart["text"] in " ".join(ragmeter("results", "show", path("bm25"), apart["question"]).out.split())
    wrong = ragmeter("results", "show", path("bm25"), apart["question"] + "x")
    assert (wrong.code, f"did you mean '{apart['question']}'" in wrong.err) == (2, True)


@pytest.mark.slow
def test_missing_published_figures_are_reported(ragmeter: Command) -> None:
    done = ragmeter("results", "--published")
    assert done.code == 0, done.err
    assert "print no figure of these methods" in done.err
    assert json.loads(ragmeter("results", "--published", "--json").out)["published"] == []


def with_a_published_figure(folder: Path) -> Store:
    """Create a store with one run, `mine` of experiment `p`, whose method and metric have a published figure."""
    figure = next(
        figure for figure in figures() if figure.id == "no_retrieval" and figure.dataset == "hotpotqa" and figure.unit == "percent"
    )
    requests = [Question(f"q{number}", "what?", ("a",)) for number in range(50)]
    benchmark = Benchmark(DataReference.parse("hotpotqa:validation"), 1, CARD, requests, Corpus.of([]))
    store = Store(folder)
    store.put_benchmark(benchmark, benchmark.fingerprint)
    described = {"method": {"id": figure.id, "config": {}}, "rerankers": [], "reader": None, "compressor": None}
    run = Run("r1", "mine", figure.id, "retriever", described, "hotpotqa:validation", benchmark.fingerprint, "closed_book", 0, 50, {})
    store.start(run)
    metric = f"{figure.metric}#v1"
    store.append(run.run, [Prediction(q.id, "x") for q in requests], {metric: np.arange(50) % 2 * 1.0})
    store.end(run.run, FINISHED)
    store.put_experiment("p", "name: p", None, None, None, ["r1"])
    return store


@pytest.mark.slow
def test_own_results_are_compared_with_published_figures(ragmeter: Command, tmp_path: Path) -> None:
    with_a_published_figure(tmp_path / "s")
    for form in ("text", "csv", "markdown", "latex", "json"):
        response = ragmeter("results", "p", "--published", "--format", form, "--store", str(tmp_path / "s")).out
        if form == "json":
            first = json.loads(response)["published"][0]
            assert first["gap"] == pytest.approx(0.5 - first["published"])
            assert first["status"] == "other setting"
        elif form == "csv":
            first = next(csv.DictReader(io.StringIO(response)))
            assert float(first["gap"]) == pytest.approx(0.5 - float(first["published"]))
            assert "reader" in first["differs"]
        else:
            assert "50.0" in response, form
            assert "mine" in response, form
            assert "clara" in response, form


def test_run_tables_end_with_marked_published_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = boards(with_a_published_figure(tmp_path / "s"), "p")
    terminal = Console(file=io.StringIO(), width=150, force_terminal=True, color_system="standard", highlight=False)
    for module in (results, console):
        monkeypatch.setattr(module, "out", terminal)
    results.show_comparison(result)
    assert isinstance(terminal.file, io.StringIO)
    response = terminal.file.getvalue()
    (reported, *_) = results.comparison_json(result)
    assert "published figures of these methods" in response
    assert "published in" in response
    dim = re.findall(r"\x1b\[2m(.*?)\x1b", response)
    assert float(dim[0]) == pytest.approx(100 * reported["published"])
    assert reported["status"] in [cell.strip() for cell in dim]
    (ours,) = {line.partition("hotpotqa:validation")[2].split()[0] for line in response.splitlines() if "mine," in line}
    assert ours == "50.0"  # measured here: not dim
    assert reported["gap"] == pytest.approx(0.5 - reported["published"])


def test_every_paper_is_listed_with_its_tables(call: Command) -> None:
    listed = json.loads(call("results", "paper", "--json").out)
    assert set(listed) == set(papers())
    assert {"2", "3", "4", "7"} <= set(listed["ark"])
    numbers = [int(table) for table in listed["clara"] if table.isdigit()]
    assert numbers == sorted(numbers)
    assert listed["clara"][: len(numbers)] == list(map(str, numbers)), "tables stand before what the text says"


@pytest.mark.slow
def test_printed_paper_figures_equal_the_stored_file(call: Command) -> None:
    printed = json.loads(call("results", "paper", "ark", "--table", "4", "--json").out)
    assert [item["value"] for item in printed] == [figure.value for figure in figures("ark") if figure.table == "4"]
    assert printed[0]["value"] in call("results", "paper", "ark", "--table", "4").out
    wrong = json.loads(call("results", "paper", "ark", "--misprints", "--json").out)
    assert 0 < len(wrong) == sum(figure.misprint is not None for figure in figures("ark"))
    assert all("misprint: " in item["note"] for item in wrong)


@pytest.mark.parametrize("words", [("arc",), ("ark", "--table", "99"), ("ark", "--method", "nobody")])
def test_unknown_paper_or_table_is_refused(call: Command, words: tuple[str, ...]) -> None:
    done = call("results", "paper", *words)
    assert (done.code, done.out) == (2, "")


def test_export_counts_grades_that_trec_eval_cuts_and_writes_repeated_documents_once(tmp_path: Path, call: Command) -> None:
    question = Question("q", "?", (), evidence=("a", "b"), grades={"a": 0.5, "b": 2.0, "c": 0.0})
    benchmark = Benchmark(DataReference.parse("hotpotqa:validation"), 1, CARD, [question], Corpus.of([]))
    store = Store(tmp_path / "s")
    store.put_benchmark(benchmark, benchmark.fingerprint)
    item = Run("run1", "m", "bm25", "retriever", {}, "hotpotqa:validation", benchmark.fingerprint, "corpus", 0, 1, {})
    store.start(item)
    ranked = tuple(Evidence(name, 1.0 - at / 10) for at, name in enumerate("aba"))
    store.append("run1", [Prediction("q", "", ranked)], {})
    store.end("run1", FINISHED)
    out, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    done = call("results", "export", "run1", "-o", str(out), "--qrels", str(qrels), "--store", str(tmp_path / "s"), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["grades_not_whole"] == 1
    assert [line.split()[2] for line in out.read_text().splitlines()] == ["a", "b"]
