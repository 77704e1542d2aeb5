"""Methods against benchmarks: numbers against naive ones, and who is ranked and tested at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from results.boards import systems as column_figures
from results.boards.board import boards, groups
from results.boards.budget import quality_budget
from results.boards.matrix import Cell, Column, Matrix, kin_of, matrix, ranked_cells
from results.boards.published import published_for
from results.boards.systems import COSTS, Figures, Wanted, key_of, systems, why_not_ranked
from results.boards.tables import remarks
from results.statistics.holm import holm
from results.statistics.intervals import estimate
from results.store import cost_queries, invariants, provenance, queries, score_queries
from results.store.store import Store

EM = "em#v2"


@pytest.fixture(scope="module")
def made(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).parents[2] / "leaderboard" / "matrix_store.py")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, made: ModuleType) -> Store:
    return made.fill(tmp_path_factory.mktemp("matrix") / "store")


def columns(store: Store, metric: str = EM, ranked: bool = True) -> list[Column]:
    results = [runs for runs in groups(queries.runs(store, "several")) if runs[0].setting == "distractor"]
    better = metric not in COSTS
    return [Column(key_of(runs[0].dataset), tuple(runs), metric, better, ranked) for runs in results]


def read(store: Store, shown: list[Column]) -> dict[str, Figures]:
    return column_figures.figures(
        store, [Wanted(item.key, item.first.dataset_fingerprint, tuple(run.run for run in item.runs), str(item.metric)) for item in shown]
    )


def built(store: Store, shown: list[Column] | None = None, without: tuple[str, ...] = (), **options: Any) -> Matrix:
    shown = shown or columns(store)
    cards = provenance.cards(store)
    ids = [run.run for column in shown for run in column.runs]
    rows = systems({column.key: column.runs for column in shown}, cards, {})
    rows = [row for row in rows if row.name not in without]
    result = read(store, shown)
    cells = ranked_cells(shown, rows, result, cards=cards, known={}, violations=invariants.violations(store, ids))
    return matrix(shown, rows, result, cells, costs=cost_queries.costs(store, ids), **options)


def cell(board: Matrix, name: str, dataset: str) -> Cell:
    row = next(row for row in board.rows if row.name == name)
    return board.cells[row.key, key_of(dataset)]


@pytest.fixture(scope="module")
def scores(store: Store) -> dict[str, np.ndarray]:
    results = {}
    for runs in groups(queries.runs(store, "several")):
        ids = [run.run for run in runs]
        values = score_queries.score_columns(store, runs[0].dataset_fingerprint, ids, [EM]).values
        results.update({run: column for (run, _), column in values.items()})
    return results


@pytest.mark.slow
def test_values_and_intervals_are_those_of_the_scores(store: Store, scores: dict[str, np.ndarray]) -> None:
    board = built(store)
    for item in board.cells.values():
        column = scores[item.run.run]
        known = column[~np.isnan(column)]
        assert item.value == pytest.approx(known.mean())
        assert item.n == len(known)
        own = estimate(known)
        assert (item.low, item.high) == pytest.approx((own.low, own.high))
    assert cell(board, "bm25", "musique:dev").unscorable == 1
    assert cell(board, "bm25", "nq:test").unscorable == 0


def test_methods_with_a_value_on_every_benchmark_are_pooled_against_the_reference_and_counted(
    store: Store, scores: dict[str, np.ndarray]
) -> None:
    board = built(store, [replace(column, task=column.first.dataset[0]) for column in columns(store)], reference="bm25")
    names = [line.row.name for line in board.overall]
    assert "bm25" in names
    assert {"half way", "gold answer", "cheat@1"}.isdisjoint(names)
    values = np.array([[board.cells[line.row.key, column.key].value for line in board.overall] for column in board.columns])
    for at, line in enumerate(board.overall):
        others = np.delete(values, at, axis=1)
        assert line.borda == (values[:, [at]] > others).sum() + (values[:, [at]] == others).sum() / 2
        assert line.by_task == pytest.approx(dict(zip((c.first.dataset[0] for c in board.columns), values[:, at], strict=True)))
        if line.row.name == "bm25":
            assert line.pooled is None
            continue
        assert line.pooled is not None
        base = next(row for row in board.rows if row.name == "bm25")
        each = [scores[line.row.runs[c.key].run] - scores[base.runs[c.key].run] for c in board.columns]
        assert line.pooled.value == pytest.approx(np.mean([np.nanmean(delta) for delta in each]))
        assert (line.pooled.p_holm <= 0.05) == (line.pooled.low > 0 or line.pooled.high < 0)
    assert [line.borda for line in board.overall] == sorted((line.borda for line in board.overall), reverse=True)
    assert built(store, columns(store)[:1], reference="bm25").overall == ()
    assert all(line.pooled is None for line in built(store).overall)


def test_what_must_not_be_compared_has_its_reason_and_neither_rank_nor_test(store: Store) -> None:
    board = built(store, reference="bm25")
    expected = {
        ("half way", "nq:test"): "running: 30 of 60 questions answered",
        ("gold answer", "nq:test"): "a control: it sees the gold",
        ("proven@2", "musique:dev"): "these scores cannot be right: recall@1 is greater than recall@5",
        ("trained on it", "nq:test"): "contaminated: nq was trained on",
        ("cheat@1", "musique:dev"): "contaminated: training data 1 (musique:dev) covers the evaluated split dev",
        ("cheat@1", "nq:test"): "",
        ("trained on it", "hotpotqa:dev"): "",
        ("dense", "hotpotqa:dev"): "",
    }
    for (name, dataset), reason in expected.items():
        result = cell(board, name, dataset)
        assert result.apart == reason
        assert (result.band is None) == bool(reason)
        assert (result.paired is None) == bool(reason)
    assert cell(board, "cheat@1", "musique:dev").contaminated
    assert not cell(board, "dense", "hotpotqa:dev").contaminated  # trained on another split


def test_ranks_are_dense_among_those_who_compete(store: Store) -> None:
    board = built(store)
    for column in board.columns:
        ranked = sorted((c.band.rank, -c.value) for (_, key), c in board.cells.items() if key == column.key and c.band)
        assert ranked[0][0] == 1
        values = [value for _, value in ranked]
        assert values == sorted(values)
    assert cell(board, "trained on it", "hotpotqa:dev").band.rank == 3  # type: ignore[union-attr]
    without = built(store, without=("cheat@1", "strong"))
    assert cell(without, "trained on it", "hotpotqa:dev").band.rank == 1  # type: ignore[union-attr]


def test_differences_are_exact_sign_tests_corrected_over_their_column(store: Store, scores: dict[str, np.ndarray]) -> None:
    board = built(store, reference="bm25")
    families: dict[str, list[tuple[str, str]]] = {}
    plain = {}
    for (row, column), item in board.cells.items():
        if item.paired is None:
            continue
        base = next(c.run for (r, key), c in board.cells.items() if key == column and c.run.method == "bm25")
        delta = scores[item.run.run] - scores[base.run]
        wins, losses = int((delta > 0).sum()), int((delta < 0).sum())
        plain[row, column] = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        assert item.paired.value == pytest.approx(np.nanmean(delta))
        assert item.paired.p == pytest.approx(plain[row, column])
        assert (item.paired.corrected <= 0.05) == (item.paired.low > 0 or item.paired.high < 0)
        families.setdefault(column, []).append((row, column))
    assert len(families) == 3
    for keys in families.values():
        for key, p in zip(keys, holm([plain[key] for key in keys]), strict=True):
            item = board.cells[key].paired
            assert item is not None
            assert item.corrected == pytest.approx(math.nan if math.isnan(item.p) else p, nan_ok=True)


def test_a_reference_that_may_not_be_compared_compares_with_nobody(store: Store) -> None:
    board = built(store, reference="trained on it")
    assert all(c.paired is None for c in board.cells.values() if c.run.dataset == "nq:test")
    assert any(c.paired is not None for c in board.cells.values() if c.run.dataset == "hotpotqa:dev")
    assert all(c.paired is None for c in built(store, reference="gold answer").cells.values())


def test_where_the_reference_cannot_be_compared_the_reason_is_known(store: Store) -> None:
    board = built(store, reference="trained on it")
    results = board.without_reference()
    assert len(results) == 1
    (key,) = results
    assert next(column for column in board.columns if column.key == key).first.dataset == "nq:test"
    assert "trained on" in results[key]
    gone = replace(board, rows=tuple(row for row in board.rows if row.name != "trained on it"))
    assert set(gone.without_reference().values()) == {"it is filtered out"}
    assert built(store, reference="bm25").without_reference() == {}
    assert built(store, reference=None).without_reference() == {}


def test_a_mean_needs_a_comparable_value_on_every_benchmark_and_one_metric(store: Store) -> None:
    board = built(store)
    by_name = {row.name: board.mean(row) for row in board.rows}
    assert {name for name, mean in by_name.items() if mean is None} == {"strong", "half way", "trained on it", "proven@2", "cheat@1"}
    values = [cell(board, "bm25", column.first.dataset) for column in board.columns]
    assert by_name["bm25"] is not None
    assert by_name["bm25"].value == pytest.approx(np.mean([value.value for value in values]))
    mean = by_name["bm25"]
    assert mean.value - mean.low == pytest.approx(np.sqrt(sum((value.value - value.low) ** 2 for value in values)) / 3)
    assert mean.high - mean.value == pytest.approx(np.sqrt(sum((value.high - value.value) ** 2 for value in values)) / 3)
    mixed = replace(board, columns=(*board.columns[:2], replace(board.columns[2], metric="recall@5#v2")))
    assert all(mixed.mean(row) is None for row in mixed.rows)


def test_columns_of_the_same_questions_err_together_in_the_mean(store: Store) -> None:
    board = built(store)
    row = next(row for row in board.rows if row.name == "bm25")
    cells = [cell(board, "bm25", column.first.dataset) for column in board.columns]
    below = [one.value - one.low for one in cells]
    assert len(set(board.kin.values())) == 3
    first, second, third = (column.key for column in board.columns)
    shared = replace(board, kin={first: 0, second: 0, third: 1})
    result = shared.mean(row)
    assert result is not None
    assert result.value - result.low == pytest.approx(np.hypot(below[0] + below[1], below[2]) / 3)


def test_interval_of_a_mean_stays_within_the_range_of_the_metric(store: Store) -> None:
    board = built(store)
    row = next(row for row in board.rows if row.name == "bm25")
    top = {key: replace(item, value=1.0, low=0.3, high=1.0) for key, item in board.cells.items() if key[0] == row.key}
    result = replace(board, cells={**board.cells, **top}).mean(row)
    assert result is not None
    assert (result.value, result.high) == (1.0, 1.0)
    assert result.low == pytest.approx(1 - 0.7 / np.sqrt(3))


def test_columns_that_share_a_question_are_kin_by_way_of_others_too() -> None:
    columns = [SimpleNamespace(key=key) for key in "abcd"]
    requests = {"a": {1, 2}, "b": {9}, "c": {3}, "d": {2, 3}}
    result = kin_of(columns, {key: SimpleNamespace(identities=(frozenset(ids), frozenset())) for key, ids in requests.items()})  # type: ignore[arg-type, misc]
    assert result["a"] == result["c"] == result["d"] != result["b"]


@pytest.mark.parametrize(
    ("metric", "of"), [("tokens", lambda n: 100 * n + 5), ("seconds", lambda n: 0.01 * (n + 1)), ("dollars", lambda n: 0.001 * n)]
)
def test_costs_are_means_of_usage_and_never_ranked(store: Store, made: ModuleType, metric: str, of: Any) -> None:
    board = built(store, columns(store, metric, ranked=False), reference="bm25")
    numbers = {row[0]: number for number, row in enumerate(made.METHODS)}
    assert board.cells
    for item in board.cells.values():
        assert item.value == pytest.approx(of(numbers[item.run.method]))
        assert item.band is None


def test_what_a_row_takes_is_over_the_benchmarks_shown(store: Store) -> None:
    board = built(store)
    row = next(row for row in board.rows if row.name == "dense")
    cost = board.cost(row)
    assert cost is not None
    assert cost.prompt_tokens == pytest.approx(100)
    assert cost.cost_usd == pytest.approx(3 * 60 * 0.001)


def test_a_run_scored_on_too_few_questions_is_not_ranked(store: Store) -> None:
    run = queries.runs(store, "several")[0]
    assert why_not_ranked(run, (), (), 60) == ""
    assert why_not_ranked(run, (), (), 59) == "scored on 59 of 60 questions"


def test_facts_come_from_cards_or_are_unknown(store: Store) -> None:
    rows: Mapping[str, Any] = {row.name: row for row in built(store).rows}
    assert (rows["sent@1"].parameters, rows["sent@1"].open_weights) == (8_030_000_000, True)
    assert rows["sent@1"].readers == ("sent-8b",)
    assert (rows["bm25"].parameters, rows["bm25"].open_weights) == (None, None)
    assert rows["bm25"].readers == ("reader-0",)
    assert rows["trained on it"].training == ("nq",)
    assert not rows["bm25"].declares
    assert rows["gold answer"].control


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([{"parameters": 25, "weights_here": True}] * 2, (25, True)),
        ([{"parameters": 25, "weights_here": True}, {}], (25, True)),
        ([{"parameters": None, "weights_here": False}] * 2, (None, None)),
        ([{"parameters": 25, "weights_here": True}, {"parameters": None, "weights_here": None}], (None, None)),
        ([{}, {}], (None, None)),
    ],
)
def test_what_was_counted_when_a_method_ran_is_its_size(
    store: Store, models: list[dict[str, object]], expected: tuple[int | None, bool | None]
) -> None:
    item, *_ = queries.runs(store, "several")
    runs = [replace(item, provenance={"models": model} if model else {}) for model in models]
    (result,) = systems({str(number): [run] for number, run in enumerate(runs)}, {}, {})
    assert (result.parameters, result.open_weights) == expected


def test_two_runs_of_one_name_on_one_benchmark_are_two_systems(store: Store) -> None:
    item, other, *_ = queries.runs(store, "several")
    results = systems({"a": [item, replace(other, method=item.method)], "b": [item]}, {}, {})
    assert [sorted(row.runs) for row in results] == [["a", "b"], ["a"]]
    assert results[1].name == f"bm25 · {other.run[:8]}"
    assert len({row.key for row in results}) == 2


def test_shared_run_has_the_clusters_that_each_experiment_states(store: Store) -> None:
    (shown,) = columns(store)[:1]
    names, data = [run.run for run in shown.runs], shown.first.dataset_fingerprint
    with store.database.writing() as connection:
        connection.execute(
            """INSERT INTO clusters SELECT dataset_fingerprint, 'document', question, 'd' || position // 6 FROM questions
               WHERE dataset_fingerprint = ?""",
            [data],
        )
    store.put_experiment("other", "", None, None, None, names, clusters=["document"] * len(names))
    wanted = [Wanted(name, data, tuple(names), str(shown.metric), experiments=frozenset({name})) for name in ("other", "several")]
    try:
        read_by = column_figures.figures(store, wanted)
        kind = score_queries.score_columns(store, data, names).sampled.kind
    finally:
        with store.database.writing() as connection:
            connection.execute("DELETE FROM experiments WHERE name = 'other'")
            connection.execute("DELETE FROM experiment_runs WHERE experiment = 'other'")
            connection.execute("DELETE FROM clusters")
    result, before = read_by["other"], read_by["several"]
    assert (result.sampled.kind, before.sampled.kind, kind) == ("document", "question", "document or question")
    assert set(result.means.clusters) == {5, 10}  # the run in progress has half of them
    assert result.means.value == pytest.approx(before.means.value)


def test_no_published_figure_is_about_a_submission(store: Store) -> None:
    sent = next(run for run in queries.runs(store, "several") if run.origin == "submitted")
    ours = next(run for run in queries.runs(store, "several") if run.method == "bm25")
    assert published_for("hotpotqa:dev", "oracle", "recall@5#v2", sent.description) == []
    assert published_for("hotpotqa:dev", "oracle", "recall@5#v2", ours.description)


def test_seeds_of_a_method_count_with_their_mean_question_by_question(store: Store, scores: dict[str, np.ndarray]) -> None:
    column = columns(store)[0]
    ids = [run.run for run in column.runs]
    first, second, other = ids[:3]
    query = Wanted("c", column.first.dataset_fingerprint, (first, other), EM, {first: (first, second)})
    result = column_figures.figures(store, [query])["c"]
    mean = (scores[first] + scores[second]) / 2
    known = ~np.isnan(mean)
    position = result.runs[first]
    assert result.means.value[position] == pytest.approx(mean[known].mean())
    assert result.means.n[position] == known.sum()
    both = known & ~np.isnan(scores[other])
    difference = result.pairs.value[position, result.runs[other]]
    assert difference == pytest.approx((mean - scores[other])[both].mean())


def test_figures_are_computed_again_only_if_what_they_are_made_of_changed(store: Store) -> None:
    first, second = columns(store)[:2]
    wanted = [Wanted(item.key, item.first.dataset_fingerprint, tuple(run.run for run in item.runs), EM) for item in (first, second)]
    kept: dict[bytes, Figures] = {}
    before = column_figures.figures(store, wanted, kept)
    run, question = first.first.run, before[first.key].question_ids[0]
    change = "UPDATE scores SET value = value + ? WHERE run = ? AND metric = ? AND question = ?"
    with store.database.writing() as connection:
        connection.execute(change, [0.25, run, EM, question])
    try:
        after = column_figures.figures(store, wanted, kept)
    finally:
        with store.database.writing() as connection:
            connection.execute(change, [-0.25, run, EM, question])
    assert after[second.key] is before[second.key]
    position = before[first.key].runs[run]
    difference = after[first.key].means.value[position] - before[first.key].means.value[position]
    assert difference == pytest.approx(0.25 / before[first.key].means.n[position])
    assert column_figures.figures(store, wanted, kept)[first.key] is before[first.key]
    assert len(kept) == 3


@pytest.mark.slow
def test_a_question_that_one_seed_has_not_answered_is_not_scored(tmp_path: Path, made: ModuleType) -> None:
    store = made.fill(tmp_path / "store")
    column = columns(store)[0]
    first, second = [run.run for run in column.runs][:2]
    requests = [Wanted("c", column.first.dataset_fingerprint, (first,), EM, {first: (first, second)})]
    before = column_figures.figures(store, requests)["c"]
    with store.database.writing() as connection:
        connection.execute(
            """DELETE FROM scores WHERE run = ? AND metric = ? AND question IN
               (SELECT question FROM scores WHERE run = ? AND metric = ? AND value IS NOT NULL LIMIT 3)""",
            [second, EM, first, EM],
        )
    after = column_figures.figures(store, requests)["c"]
    assert int(after.scored[0]) == int(before.scored[0]) - 3
    assert int(after.means.n[0]) < int(before.means.n[0])


@pytest.mark.slow
def test_a_benchmarks_own_board_ranks_and_tests_whom_the_matrix_does(store: Store) -> None:
    whole = built(store, reference="bm25")
    results = {board.dataset: board for board in boards(store, "several") if board.setting == "distractor"}
    for column in whole.columns:
        board = results[column.first.dataset]
        for row in board.rows:
            ours, theirs = row.cells[EM], cell(whole, row.run.method, board.dataset)
            assert ours.apart == theirs.apart
            assert bool(row.contaminated) == theirs.contaminated
            assert any("contaminated: " in line for line in remarks(row)) == theirs.contaminated
            assert (ours.difference is None) == (theirs.paired is None)
            if ours.apart and not row.control:
                assert row.run.run not in {item.row.run.run for item in quality_budget(board, EM, "tokens") if item.front}
                assert any(ours.apart in line or row.run.status in line for line in remarks(row))
    leaky = next(row for row in results["nq:test"].rows if row.run.method == "trained on it")
    assert leaky.contaminated == ("nq was trained on",)
    reported = {row["method"]: row["contaminated"] for row in results["nq:test"].to_json()["rows"]}
    assert {name for name, why in reported.items() if why} == {"trained on it"}
    assert reported["trained on it"] == ["nq was trained on"]
    assert not next(row for row in results["hotpotqa:dev"].rows if row.run.method == "trained on it").contaminated
