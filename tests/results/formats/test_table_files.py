"""Tables side by side and as Parquet: every number, interval, mark and note of the boards is in them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

from ragmeter.api import run
from results.boards.board import Board, boards
from results.boards.markup import latex_text
from results.boards.tables import CSV_COLUMNS, board_notes, tidy
from results.formats.table_files import QUESTION_COLUMNS, question_scores, wide_csv, wide_latex, write_parquet
from results.store import score_queries
from results.store.store import Store

EXPERIMENT = """
name: two
reference: random
benchmarks:
  - {id: "worlds/multihop:test", limit: 40}
  - {id: "worlds/multihop:test", limit: 40, setting: gold_only}
methods: [{id: bm25, name: "[bm_25] 50%"}, {id: random}]
metrics: [recall@5, mrr@5]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "x.yaml").write_text(EXPERIMENT)
    assert not run(folder / "x.yaml", store=folder / "s").failed
    return Store(folder / "s")


@pytest.fixture(scope="module")
def two(store: Store) -> list[Board]:
    return boards(store, None)


def test_wide_latex_groups_metrics_under_benchmarks_and_keeps_every_note(store: Store, two: list[Board]) -> None:
    text = wide_latex(two, score_queries.definitions(store), "two & more_benchmarks")
    assert r"\label{tab:two-more-benchmarks}" in text
    assert r"\caption{Results of two \& more\_benchmarks.}" in text
    assert len(re.findall(r"\\multicolumn\{2\}\{c\}", text)) == len(two) == 2
    lines = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert [line.count("&") for line in lines] == [4, 4]
    assert lines[0].startswith(r"{}[bm\_25] 50\%")  # a bracket behind \\ would be its argument
    assert all(latex_text(note) in text for board in two for note in board_notes(board, differences=False))


def test_wide_latex_prints_the_best_value_bold_with_its_interval(store: Store, two: list[Board]) -> None:
    text = wide_latex(two, score_queries.definitions(store), "x")
    for board in two:
        top = max((row for row in board.rows if not row.control), key=lambda row: row.cells[board.metrics[0]].estimate.value)
        assert rf"\mathbf{{{100 * top.cells[board.metrics[0]].estimate.value:.1f}}}" in text
    assert text.count(r"\pm") + text.count(r"\,[") >= 4


def test_wide_latex_compiles(store: Store, two: list[Board], typeset: Callable[[str, Path], int], tmp_path: Path) -> None:
    assert typeset(wide_latex(two, score_queries.definitions(store), "x"), tmp_path) > 1000


def test_wide_csv_has_one_row_per_method_with_bounds_and_notes(two: list[Board]) -> None:
    lines = list(csv.DictReader(io.StringIO(wide_csv(two))))
    assert {line["method"] for line in lines} == {"[bm_25] 50%", "random"}
    for board in two:
        for row in board.rows:
            line = next(line for line in lines if line["method"] == row.run.method)
            for metric, cell in row.cells.items():
                name = f"{board.dataset}, setting {board.setting} {metric}"
                assert float(line[name]) == cell.estimate.value
                assert line[f"{name} low"] == ("" if cell.estimate.low != cell.estimate.low else str(cell.estimate.low))
        assert all(note.splitlines()[0] in lines[0]["table_notes"] for note in board_notes(board, differences=False))


def test_parquet_of_a_table_equals_its_lines(two: list[Board], tmp_path: Path) -> None:
    lines = [line for board in two for line in tidy(board)]
    write_parquet(tmp_path / "t.parquet", CSV_COLUMNS, lines)
    rows = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["value"] for row in rows] == [line[CSV_COLUMNS.index("value")] for line in lines]
    assert {row["table_notes"] for row in rows} == {"\n".join(board_notes(board)) for board in two}


def test_question_scores_average_to_the_values_of_the_table(store: Store, two: list[Board]) -> None:
    rows = [dict(zip(QUESTION_COLUMNS, line, strict=True)) for line in question_scores(store, None)]
    for board in two:
        for row in board.rows:
            for metric, cell in row.cells.items():
                own = [item for item in rows if item["run"] == row.run.run and item["metric"] == metric]
                values = [item["value"] for item in own if item["state"] == "scored"]
                assert len(own) == board.questions
                assert sum(values) / len(values) == pytest.approx(cell.estimate.value)
                assert all(item["cluster"] for item in own)


def test_pipelines_with_one_name_and_data_of_one_name_stay_apart_over_all_experiments(tmp_path: Path) -> None:
    mine = Store(tmp_path / "s")
    texts = [{"id": name, "title": name, "text": f"{name} is a color."} for name in ("red", "blue", "green")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    for name, k1, gold in (("one", 0.9, "red"), ("two", 1.7, "red"), ("three", 1.7, "blue")):
        questions = [{"id": f"q{number}", "question": "Which color?", "answers": [gold]} for number in range(2)]
        (tmp_path / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
        data = f"config: {{path: {tmp_path}/q.jsonl, documents: {tmp_path}/corpus.jsonl}}"
        methods = f"methods: [{{id: bm25, name: tuned, config: {{k1: {k1}}}}}]"
        text = f"name: {name}\nbenchmarks: [{{id: files, split: dev, {data}}}]\n{methods}\nmetrics: [em]\n"
        (tmp_path / "x.yaml").write_text(text)
        assert not run(tmp_path / "x.yaml", store=mine.folder).failed
    every = boards(mine)
    names = sorted(row.run.method for board in every for row in board.rows)
    assert names == ["tuned · one", "tuned · two", "tuned · two"]
    assert [[line.code for line in board.health].count("other_data") for board in every] == [1, 1]
    rows = list(csv.reader(io.StringIO(wide_csv(every))))
    assert {row[0] for row in rows[1:]} == set(names)
    assert len(rows[0]) == len(set(rows[0]))
