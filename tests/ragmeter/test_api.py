"""ragmeter from Python: `run`, `load_results`, `compare`, as in a notebook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ragmeter
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Prediction
from methods.registry import METHODS, MethodConfig, register
from ragmeter import Broke, UserError, experiment
from ragmeter.api import Compared, Results, compare, load_results, run
from ragmeter.runner.loop import execute
from results.boards.board import boards
from results.boards.diff import diff
from results.boards.markup import to_html
from results.boards.tables import board_html
from results.boards.verdict_text import headline_text, headlines, html
from results.statistics.intervals import difference
from results.store import queries
from results.store.store import FAILED_RUN
from tests.support.errors import raises
from tests.support.planted import Planted

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {
    "name": "small",
    "reference": "bm25",
    "benchmarks": [{"id": "worlds/multihop", "split": "test", "limit": 12}],
    "methods": [{"id": "bm25"}, {"id": "random"}, {"id": "gold_answer"}],
    "metrics": ["em", "f1", "recall@5"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(SMALL, store=tmp_path_factory.mktemp("api") / "store")


class Cells(HTMLParser):
    """The texts of a page's cells, row by row, and all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self._inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def test_import_is_fast_and_loads_no_heavy_package() -> None:
    code = (
        "import sys, time; before = set(sys.modules); start = time.process_time(); import ragmeter\n"
        "print(time.process_time() - start, *sorted({n.partition('.')[0] for n in set(sys.modules) - before}))"
    )
    fastest = 9.0
    for _ in range(3):
        seconds, *names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
        assert not {"numpy", "pandas", "pydantic", "duckdb", "yaml", "rich", "typer", "torch"} & set(names)
        fastest = min(fastest, float(seconds))
    assert fastest < 0.3


def test_public_names_exist_and_are_complete() -> None:
    for name in ragmeter.__all__:
        assert getattr(ragmeter, name).__doc__
        assert name in dir(ragmeter)
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        ragmeter.runn  # noqa: B018
    assert issubclass(Broke, UserError)
    # The module of the run loop must not shadow the function's name.
    assert execute.__module__ == "ragmeter.runner.loop"
    assert callable(ragmeter.run)


@pytest.mark.slow
def test_dictionary_file_and_parsed_experiment_give_the_same_run(tmp_path: Path) -> None:
    import yaml

    file = tmp_path / "x.yaml"
    small = SMALL | {"reference": "random", "methods": [{"id": "random"}]}
    file.write_text(yaml.safe_dump(small))
    outcomes = [run(value, store=tmp_path, limit=2) for value in (small, experiment.load(str(file)), file)]
    assert [[item.done for item in again.runs] for again in outcomes] == [[2]] * 3
    assert len({item.run for again in outcomes for item in again.runs}) == 1
    assert queries.experiment(outcomes[0].store).path == str(file)


@pytest.mark.slow
def test_table_equals_the_board_of_the_command_line(results: Results) -> None:
    (board,) = boards(results.store, "small")
    table = results.table()
    assert len(table) == len(board.rows) * len(board.metrics) == 9
    for row in board.rows:
        for metric, cell in row.cells.items():
            line = table[(table.method == row.run.method) & (table.metric == metric)].iloc[0]
            np.testing.assert_equal([line.value, line.low, line.high], [cell.estimate.value, cell.estimate.low, cell.estimate.high])
            assert pd.isna(line.p_holm) == (cell.difference is None or bool(cell.difference.insufficient_data))


def test_score_means_equal_the_table_values(results: Results) -> None:
    scores, table = results.scores(), results.table()
    assert len(scores) == 12 * 3 * 3
    means = scores.groupby(["method", "metric"]).value.mean()
    for line in table.itertuples():
        assert means[line.method, line.metric] == pytest.approx(line.value, abs=1e-12)


def test_answers_are_returned_with_question_and_gold(results: Results) -> None:
    answers = results.answers()
    gold = answers[answers.method == "gold_answer"]
    assert len(answers) == 36
    assert all(set(line.answer.split("\n")) <= set(line.golds) for line in gold.itertuples())
    assert all(text.endswith(("?", ".")) for text in answers.text)
    assert answers.failed.isna().all()


@pytest.mark.slow
def test_failing_method_gives_a_warning_with_its_name(tmp_path: Path, scratch: None) -> None:
    @register("test_api_broken", kind="method", summary="breaks")
    class Broken:
        def __init__(self, config: MethodConfig, services: Any) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
            raise RuntimeError("<b>out of luck</b>")

    methods = [{"id": "test_api_broken"}, {"id": "random"}]
    with pytest.warns(UserWarning, match="test_api_broken on worlds/multihop:test failed: <b>out of luck") as reported:
        outcome = run(SMALL | {"reference": "random", "methods": methods}, store=tmp_path, limit=2)
    assert {item.filename for item in reported} == {__file__}, "a warning names the caller's line"
    assert [item.method for item in outcome.failed] == ["test_api_broken"]
    assert {item.method: item.status for item in outcome.runs} == {"test_api_broken": FAILED_RUN, "random": "finished"}
    # The error is shown, and cannot become a tag.
    assert "&lt;b&gt;out of luck&lt;/b&gt;" in outcome._repr_html_()


@pytest.fixture
def scratch() -> Iterator[None]:
    """Unregister methods after the test."""
    list(METHODS)
    before = dict(METHODS._entries)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


@pytest.mark.parametrize(
    ("value", "options", "response"),
    [
        ({**SMALL, "methods": [{"id": "bm52"}]}, {}, "unknown-method"),
        ({**SMALL, "metric": ["em"]}, {}, "unknown-key"),
        ({**SMALL, "seed": object()}, {}, "bad-experiment-value"),
        ("nowhere.yaml", {}, "missing-file"),
        ("dem", {}, "unknown-experiment"),
        (3, {}, "not-experiment"),
        (SMALL, {"profile": "large"}, "unknown-profile"),
        (SMALL, {"limit": 0}, "number-too-small"),
        (SMALL, {"limit": "5"}, "wrong-type"),
        (SMALL, {"limit": 2.5}, "wrong-type"),
        (SMALL, {"limit": True}, "wrong-type"),
        (SMALL, {"fresh": "no"}, "wrong-type"),
        (SMALL, {"profile": 5}, "wrong-type"),
        (SMALL, {"device": 0}, "wrong-type"),
        (SMALL, {"device": "gpu"}, "no-device"),
    ],
)
def test_invalid_experiment_is_a_user_error_and_creates_no_store(
    value: Any, options: dict[str, Any], response: str, tmp_path: Path
) -> None:
    with raises(response):
        run(value, store=tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_results_are_loaded_again(results: Results) -> None:
    loaded = load_results(results.store.folder, "small")
    pd.testing.assert_frame_equal(loaded.table(), results.table())
    assert loaded.experiment == load_results(results.store.folder).experiment == "small"
    assert len(load_results(results.store.folder, every=True).runs) == 3
    # A single metric need not be a list.
    only, listed = (load_results(results.store.folder, metrics=value, reference="random") for value in ("f1", ["f1"]))
    assert {row.metric.partition("(")[0] for row in only.table().itertuples()} == {"f1"}
    assert only.boards[0].reference == "random"
    pd.testing.assert_frame_equal(only.table(), listed.table())


def test_missing_store_or_experiment_is_an_error(results: Results, tmp_path: Path) -> None:
    with raises("unreadable-store"):
        load_results(tmp_path / "none")
    with raises("unknown-experiment"):
        load_results(results.store.folder, "smal")
    with raises("not-scored"):
        load_results(results.store.folder, metrics=["bleu"])


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ({"store": 5}, "wrong-type"),
        ({"experiment": 5}, "wrong-type"),
        ({"metrics": 5}, "wrong-type"),
        ({"metrics": ["f1", 5]}, "wrong-type"),
        ({"reference": "nobody"}, "unknown-method"),
        ({"every": "no"}, "wrong-type"),
    ],
)
def test_argument_of_the_wrong_type_is_reported(results: Results, options: dict[str, Any], response: str) -> None:
    with raises(response):
        load_results(**{"store": results.store.folder} | options)


def test_python_errors_name_arguments_and_not_command_line_options(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_results(tmp_path / "none")
    assert caught.value.try_this == "ragmeter run EXPERIMENT makes one; for another store, store=…"
    assert str(caught.value).endswith("store=…")
    # Inside a folder's name it is not an option.
    with pytest.raises(UserError) as caught:
        load_results(tmp_path / "--store-of-mine")
    assert caught.value.where == str(tmp_path / "--store-of-mine")


def test_store_of_the_environment_is_the_default(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_STORE", str(results.store.folder))
    assert load_results().experiment == "small"
    assert compare("random", "bm25", metric="em").n == 12


@pytest.fixture(scope="module")
def compared(results: Results) -> Compared:
    return compare("random", "bm25", metric="recall@5", store=results.store.folder)


@pytest.mark.slow
def test_comparison_equals_the_paired_statistics_of_the_scores(results: Results, compared: Compared) -> None:
    wide = results.scores().pivot_table(index="question", columns=["metric", "method"], values="value")[compared.metric]
    direct = difference(wide["bm25"].to_numpy(), wide["random"].to_numpy())
    assert compared.difference == pytest.approx(direct.value)
    assert (compared.wins, compared.ties, compared.losses) == (direct.wins, direct.ties, direct.losses)
    assert compared.wins + compared.ties + compared.losses == compared.n == 12
    low, high = compared.interval
    assert low < compared.difference < high
    assert compared.p == diff(results.store, compared.a, compared.b, metrics=[compared.metric]).numbers[0].difference.p  # type: ignore[union-attr]
    questions = compared.questions()
    assert questions.difference.mean() == pytest.approx(compared.difference)
    assert (questions.difference > 0).sum() == compared.wins


def test_swapped_comparison_is_mirrored(results: Results, compared: Compared) -> None:
    other = compare("bm25", "random", metric="recall@5", store=results.store.folder)
    assert compared.difference == pytest.approx(-other.difference)
    assert (compared.wins, compared.ties, compared.losses) == (other.losses, other.ties, other.wins)


def test_wins_follow_the_metric_direction(compared: Compared) -> None:
    assert compared.wins > compared.losses
    as_cost = replace(compared, higher_is_better=False)
    assert (as_cost.wins, as_cost.losses) == (compared.losses, compared.wins)
    assert "lower is better" in as_cost._repr_html_()


def test_compare_accepts_run_names_or_results(results: Results) -> None:
    bm25, random, _ = results.runs
    by_row = compare(random, bm25, store=results.store.folder)
    by_path = compare(random.path, bm25.run[:8], metric=by_row.metric, store=results.store.folder)
    assert by_row.difference == by_path.difference
    assert by_row.metric.startswith("em")


@pytest.mark.parametrize(
    ("a", "b", "metric", "response"),
    [
        ("nobody", "bm25", "f1", "unknown-run,-checkpoint-or-tag"),
        ("small", "bm25", "f1", "ambiguous-run-path"),
        ("random", "bm25", "bleu", "not-scored"),
    ],
)
def test_comparison_of_an_unknown_run_is_an_error(results: Results, a: str, b: str, metric: str, response: str) -> None:
    with raises(response):
        compare(a, b, metric=metric, store=results.store.folder)


@pytest.mark.parametrize(
    ("a", "b", "metric", "response"),
    [(5, "bm25", None, "not-run"), ("bm25", None, None, "not-run"), ("random", "bm25", ["f1"], "wrong-type")],
)
def test_comparison_with_an_invalid_argument_names_it(results: Results, a: Any, b: Any, metric: Any, response: str) -> None:
    with raises(response):
        compare(a, b, metric=metric, store=results.store.folder)


@pytest.mark.slow
def test_limit_uses_the_first_questions_and_different_questions_are_not_compared(results: Results, tmp_path: Path) -> None:
    results.store.database.close()
    shutil.copytree(results.store.folder, tmp_path / "store")
    few = run(SMALL | {"name": "fewer", "methods": [{"id": "bm25"}]}, store=tmp_path / "store", limit=5)
    assert [item.questions for item in few.runs] == [5]
    assert queries.experiment(few.store).limit == 5
    with raises("unpaired-runs"):
        compare("small/random", "fewer/bm25", metric="f1", store=tmp_path / "store")


def test_notebook_table_shows_every_method_with_value_and_difference(results: Results) -> None:
    shown = Cells(results._repr_html_())
    assert shown.rows[0] == ["method", "em", "f1", "recall@5"]
    assert [row[0] for row in shown.rows[1:]] == ["bm25 (reference)", "random", "gold_answer (control)"]
    assert re.fullmatch(r"\d+\.\d (± \d+\.\d|\[[\d.]+, [\d.]+\])\(−\d+\.\d (± \d+\.\d|\[[+−.\d]+, [+−.\d]+\])\**\)", shown.rows[2][3])
    assert shown.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li", "br", "p", "b"}
    first, *_ = headlines(results.verdicts)
    assert results._repr_html_().startswith(html(first))


def test_untrusted_text_is_escaped() -> None:
    bad = '<img src=x onerror="alert(1)"> & "quotes"'
    page = to_html([bad, bad], [[bad, bad]], caption=bad, notes=[bad])
    assert "<img" not in page
    cells = Cells(page)
    assert cells.rows == [[bad, bad], [bad, bad]]
    assert "img" not in cells.tags


def test_hostile_method_name_cannot_become_a_tag(results: Results) -> None:
    (board,) = results.boards
    evil = "<script>alert(1)</script>"
    rows = tuple(replace(row, run=replace(row.run, method=evil, error=evil)) for row in board.rows)
    page = board_html(replace(board, rows=rows, dataset=evil))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5
    compared = compare(*results.runs[:2], metric="em", store=results.store.folder)
    assert "<script" not in replace(compared, a=replace(compared.a, method=evil))._repr_html_()


@pytest.mark.parametrize("order", ["fbadec", "cabfed"])
def test_verdict_is_about_the_first_of_the_chosen_metrics(tmp_path: Path, call: Callable[..., Any], order: str) -> None:
    planted = Planted(tmp_path)
    scores = {method: dict.fromkeys("abcdef", [value] * 40) for method, value in (("high", 0.9), ("low", 0.1))}
    planted.experiment("e", {"d": scores})
    shown = load_results(tmp_path, "e", metrics=list(order))
    assert [item.place.name for item in shown.verdicts] == list(order)
    options = [option for name in order for option in ("--metric", name)]
    printed = json.loads(call("results", "table", "e", *options, "--store", str(tmp_path), "--json").out)
    assert [item["name"] for item in printed["verdicts"]] == list(order)


def test_print_output_equals_the_terminal_output(results: Results) -> None:
    text = str(results)
    assert "bm25 (reference)" in text
    assert "value × 100 ± half its 95 % interval" in text
    assert "\x1b" not in text
    verdict, object_ = repr(results).splitlines()
    assert verdict == headline_text(headlines(results.verdicts))
    assert verdict in " ".join(text.split())
    assert object_.startswith("<Results of experiment 'small': 3 runs on 1 board")
    everything = load_results(results.store.folder, every=True)
    assert [(item.outcome, item.place.metric) for item in everything.verdicts] == [
        (item.outcome, item.place.metric) for item in results.verdicts
    ]


def test_unscored_value_is_nan(results: Results) -> None:
    assert not np.isnan(results.scores().value).any()
    empty = Results(results.store, None, ())
    assert len(empty.table()) == len(empty.scores()) == len(empty.answers()) == 0
    assert empty._repr_html_() == "<p>no run yet</p>"


@pytest.mark.slow
def test_examples_on_the_page_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "experiments.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/experiments.md", "exec"), names)
    assert names["comparison"].n == names["results"].runs[0].questions
