"""The matrix on the board page, in Streamlit's test harness: every choice is in the URL, and the URL is validated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard import read, read_boards
from leaderboard.elements.formats import MAIN
from leaderboard.matrix.rows import ALL_SETTINGS, OWN, Filters
from leaderboard.read import Source
from results.boards.systems import key_of
from results.formats.table_files import wide_latex
from results.store import checkpoints, queries
from results.store.store import Store

Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return " ".join(node.texts())


def methods(page: Any) -> list[str]:
    body = next(page.part("matrix").find(tag="tbody"))
    return ["".join(node.texts()) for node in body.find(cls="method")]


def heads(page: Any) -> list[str]:
    return [words(node) for node in next(page.part("matrix").find(tag="thead")).find(tag="th")]


def test_several_benchmarks_open_as_a_matrix_and_one_as_a_board(app: Start, several: Path, filled: Path) -> None:
    page = app(several).open()
    assert not page.test.exception
    assert page.has("matrix")
    assert not page.has("board")
    assert "3 benchmarks" in words(page.part("summary"))
    assert "differences from bm25" in words(page.part("summary"))
    assert page.query == {}
    assert app(filled).open().has("board")


def test_prepared_matrix_is_what_the_start_page_opens_with(
    app: Start, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, built = app(Path(shutil.copytree(several, tmp_path / "store"))), []
    matrix = read_boards.matrix
    monkeypatch.setattr(read_boards, "matrix", lambda *args, **options: built.append(1) or matrix(*args, **options))
    read_boards.prepare()
    assert len(built) == 1
    assert page.open().has("matrix")
    assert len(built) == 1, "the page asks for the same matrix"


def test_view_is_in_the_url_and_column_heads_link_to_boards(app: Start, several: Path) -> None:
    page = app(several).open()
    opener = next(node for node in page.part("matrix").find(tag="button") if words(node) == "open board")
    assert opener.action is not None
    there = app(several).open(**{name: value for name, value in opener.action.items() if value})
    assert not there.test.exception
    assert there.has("board")
    assert "60 questions" in words(there.part("summary"))
    assert app(several).open(view="benchmark").has("board")
    assert app(several).open(view="javascript:alert(1)").has("matrix")


def test_choices_are_written_to_the_url_which_reproduces_the_view(app: Start, several: Path) -> None:
    page = app(several).open()
    page.choose("Metrics", "retrieval").choose("Compared with", "strong")
    assert (page.query["family"], page.query["reference"]) == ("retrieval", "strong")
    assert page.query["view"] == "matrix"
    assert "recall@5" in " ".join(heads(page))
    again = app(several).open(**page.query)
    assert again.part("matrix") == page.part("matrix")


def test_setting_filter_selects_its_benchmarks(app: Start, several: Path) -> None:
    page = app(several).open(setting="oracle", view="matrix")
    assert "1 benchmark" in words(page.part("summary"))
    assert methods(page) == ["strong", "dense", "bm25"]
    assert "Mean" not in " ".join(heads(page))
    everything = app(several).open(setting="*")
    assert "4 benchmarks" in words(everything.part("summary"))
    assert any("oracle" in head for head in heads(everything))


@pytest.mark.parametrize(
    ("requests", "gone"),
    [
        ({"size": "under-1b"}, {"bm25", "sent@1", "strong"}),
        ({"weights": "open"}, {"proven@2", "bm25"}),
        ({"readers": key_of("reader-0")}, {"dense", "sent@1"}),
        ({"kinds": key_of("retriever")}, {"strong", "sent@1"}),
        ({"untrained": key_of("nq")}, {"trained on it"}),
    ],
)
def test_url_filters_select_the_ranked_methods(
    app: Start, several: Path, matrix_store: ModuleType, requests: dict[str, str], gone: set[str]
) -> None:
    page = app(several).open(view="matrix", **requests)
    assert not page.test.exception
    left = set(methods(page))
    assert not left & gone
    assert "gold answer" in left
    assert f"{len(matrix_store.METHODS) - len(left)} filtered out" in words(page.part("summary"))


def test_checkpoint_trained_on_a_benchmark_is_not_ranked_there(app: Start, several: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(several, tmp_path / "store"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("1 2 3")
    checkpoints.describe(folder, method="pipeline", stage="tuned", config={"data": ["hotpotqa:dev"]})
    made = checkpoints.register(store, folder)
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET provenance = ? WHERE method = 'strong'", [json.dumps({"checkpoints": [made.sha256]})])
    page = app(tmp_path / "store").open(view="matrix", setting="distractor")
    body = next(page.part("matrix").find(tag="tbody"))
    line = next(row for row in body.find(tag="tr") if "strong" in words(row))
    first, second = [words(cell) for cell in line.find(cls="number") if "±" in words(cell) or "[" in words(cell)][:2]
    assert "contaminated" in first  # hotpotqa:dev
    assert "contaminated" not in second
    # The benchmark's board and the method's page use the same words.
    why = f"hotpotqa:dev was trained on by checkpoint {made.sha256[:8]} (pipeline, tuned)"
    board = app(tmp_path / "store").open(view="benchmark", setting="distractor").part("board")
    marked = {
        words(row): [mark for mark in row.find(cls="badge") if words(mark) == "contaminated"]
        for row in next(board.find(tag="tbody")).find(tag="tr")
    }
    assert [[mark.tip for mark in marks] for name, marks in marked.items() if "strong" in name] == [[why]]
    lines = [
        row for row in app(tmp_path / "store").open("methods", method="pipeline").part("results").find(tag="tr") if "strong" in words(row)
    ]
    responses = {words(row).partition(" ")[0]: [mark.tip for mark in row.find(cls="badge")] for row in lines}
    assert responses["hotpotqa:dev"] == [why]
    assert responses["musique:dev"] == []
    left = methods(app(tmp_path / "store").open(view="matrix", untrained=key_of("hotpotqa:dev")))
    assert "strong" not in left
    assert {"bm25", "sent@1", "trained on it"} <= set(left)  # hotpotqa:train, nq
    again = methods(app(tmp_path / "store").open(view="matrix", untrained=key_of("hotpotqa:train")))
    assert "strong" in again
    assert "sent@1" not in again


def test_ranks_cover_filtered_methods_and_hiding_changes_no_number(app: Start, several: Path, matrix_store: ModuleType) -> None:
    def rank_of(page: Any, name: str) -> str:
        body = next(page.part("matrix").find(tag="tbody"))
        line = next(row for row in body.find(tag="tr") if name in words(row))
        return words(next(line.find(tag="td")))

    usual = app(several).open()
    key = {row[0]: key_of(row[0]) for row in matrix_store.METHODS}
    hidden = app(several).open(view="matrix", hide=f"{key['strong']},{key['sent@1']},nonsense")
    assert "strong" not in methods(hidden)
    assert "2 hidden" in words(hidden.part("pager"))
    assert rank_of(hidden, "dense") == rank_of(usual, "dense")
    alone = app(several).open(view="matrix", kinds=key_of("retriever"))
    assert "rank 1" in rank_of(alone, "dense")
    assert "rank 1" not in rank_of(usual, "dense")


def test_matrix_supports_sorting_and_searching(app: Start, several: Path) -> None:
    up = methods(app(several).open(view="matrix", sort="method", order="asc"))
    assert up[:-1] == sorted(up[:-1], key=str.casefold)
    assert up[-1] == "gold answer"
    assert methods(app(several).open(view="matrix", find="sent")) == ["sent@1"]
    assert "No method matches" in words(app(several).open(view="matrix", find="zzz").part("message"))


def test_datasets_can_be_chosen(app: Start, several: Path) -> None:
    (run, *_) = [row for row in queries.runs(Store(several)) if row.dataset == "nq:test"]
    key = key_of(run.dataset_fingerprint, run.setting, run.seed)
    page = app(several).open(view="matrix", datasets=key)
    assert "1 benchmark" in words(page.part("summary"))
    assert "nq:test" in " ".join(heads(page))
    assert "strong" not in methods(page)  # it has no run there


def test_costs_are_a_metric_family_without_ranks(app: Start, several: Path) -> None:
    page = app(several).open(view="matrix", family="cost", measure="tokens")
    table = words(page.part("matrix"))
    assert "tokens / question" in table
    assert "rank 1" not in table
    assert methods(page)[0] == "bm25"  # the cheapest first


def test_published_figures_are_shown_in_their_cells_on_request(app: Start, several: Path) -> None:
    recall = {"view": "matrix", "measure": "recall@5#v2"}
    assert not list(app(several).open(**recall).part("matrix").find(cls="printed"))
    assert list(app(several).open(**recall, papers="1").part("matrix").find(cls="printed"))


def test_filter_without_matches_is_reported_and_can_be_cleared(app: Start, several: Path) -> None:
    page = app(several).open(view="matrix", size="over-100b")
    assert "No method competes" in words(page.part("message"))
    (clear,) = page.part("message").find(tag="button")
    assert clear.action is not None
    assert {"size", "weights", "readers"} <= clear.action.keys()
    assert set(clear.action.values()) == {None}


def test_unscored_metric_falls_back_to_a_scored_one(app: Start, several: Path) -> None:
    page = app(several).open(
        view="matrix", family="graph", measure="no such metric", setting="../..", reference="<script>", first="-9", sort="'; DROP TABLE"
    )
    assert not page.test.exception
    assert page.part("matrix") == app(several).open().part("matrix")


def test_page_offers_files_of_the_displayed_table(app: Start, several: Path) -> None:
    for parameters, names in (
        ({}, ["CSV", "Markdown", "LaTeX"]),
        ({"view": "benchmark"}, ["CSV", "Markdown", "LaTeX"]),
        ({"family": "cost"}, ["CSV"]),
    ):
        page = app(several).open(**parameters)
        assert [button.proto.label for button in page.test.get("download_button")] == names


def test_exported_tables_have_the_displayed_values(several: Path, typeset: Callable[[str, Path], int], tmp_path: Path) -> None:
    at, scope = Source(str(several), (0,)), ("several", ALL_SETTINGS, MAIN, OWN)
    columns, _ = read_boards.entrants(at, scope)
    shown, _ = read_boards.matrix_of(at, scope, tuple(column.key for column in columns), Filters(), None)
    boards = read_boards.exported(at, "several", shown.board, shown.board.rows)
    values = {
        (row.run.run, board.metrics): row.cells[board.metrics[0]].estimate.value for board in boards for row in board.rows if row.cells
    }
    cells = {
        (cell.run.run, (column.metric,)): cell.value
        for column in columns
        for (_, key), cell in shown.board.cells.items()
        if key == column.key
    }
    assert len(boards) == len([column for column in columns if column.metric is not None])
    assert values == pytest.approx(cells, nan_ok=True)
    assert typeset(wide_latex(boards, read.definitions(at), "several"), tmp_path) > 1000


def test_exported_tables_have_the_displayed_rows_and_reference(several: Path) -> None:
    at, scope = Source(str(several), (0,)), ("several", ALL_SETTINGS, MAIN, OWN)
    columns, _ = read_boards.entrants(at, scope)
    shown, _ = read_boards.matrix_of(at, scope, tuple(column.key for column in columns), Filters(), "dense")
    kept = [row for row in shown.board.rows if row.name in ("bm25", "dense")]
    for board in read_boards.exported(at, "several", shown.board, kept):
        assert board.reference == "dense"
        assert {row.run.method for row in board.rows} == {"bm25", "dense"}
        (metric,) = board.metrics
        differences = {row.run.method: row.cells[metric].difference for row in board.rows if metric in row.cells}
        assert differences["dense"] is None
        assert differences["bm25"] is not None


def test_stored_text_is_never_rendered_as_markdown(app: Start, several: Path, matrix_store: ModuleType) -> None:
    page = app(several).open(view="matrix", papers="1")
    assert not page.test.markdown
    assert matrix_store.EVIL in methods(page)
    for caption in page.test.caption:
        assert matrix_store.EVIL not in caption.value


def test_store_of_100_methods_is_paginated(app: Start, tmp_path: Path, large: ModuleType) -> None:
    large.fill_large(tmp_path / "large", methods=60, datasets=3, questions=20)
    page = app(tmp_path / "large").open()
    assert len(methods(page)) == 25
    assert "Rows 1–25 of 60" in words(page.part("pager"))
    following = app(tmp_path / "large").open(view="matrix", first="50")
    assert len(methods(following)) == 10
    assert not set(methods(following)) & set(methods(page))


def test_training_seeds_share_a_row_per_experiment_and_are_separate_in_all_runs(app: Start, tmp_path: Path, several: Path) -> None:
    store = Store(shutil.copytree(several, tmp_path / "store"))
    with store.database.writing() as connection:
        for name, seed in (("bm25", 0), ("dense", 1)):
            connection.execute("UPDATE runs SET method = ? WHERE method = ?", [f"tuned #{seed}", name])
            connection.execute("UPDATE experiment_runs SET method = ? WHERE method = ?", [f"tuned #{seed}", name])
        connection.execute("UPDATE experiments SET reference = 'tuned'")
    page = app(tmp_path / "store").open(experiment="several")
    assert not page.test.exception
    assert "tuned (2 seeds)" in methods(page)
    assert not [name for name in methods(page) if "#" in name]
    assert "differences from tuned (2 seeds)" in words(page.part("summary"))
    page = app(tmp_path / "store").open(experiment="*")
    assert not page.test.exception
    assert {"tuned #0", "tuned #1"} <= set(methods(page))
