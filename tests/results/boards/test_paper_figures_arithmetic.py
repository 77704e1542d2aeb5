"""What the papers say of their figures follows from the figures; where it does not, the misprint is a known one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from results.boards.paper_figures import Figure, figures, find

ACC, F1, EM = "cover_em(match=substring)", "f1(rules=clara)", "em(rules=clara)"
FOUR = ("nq", "hotpotqa", "musique", "2wikimultihopqa")
FIVE = (*FOUR, "average")
LAST = 0.0051
"""Half a unit of the last digit of a percentage, and a hair."""

WRONG_AVERAGES = {("18", "54.69"), ("18", "41.13")}
WRONG_GAINS = {("2", "SCP-Phi4-mini", "average", "-1.42")}


def one(**wanted: Any) -> Figure:
    results = find(**wanted)
    assert len(results) == 1, (wanted, results)
    return results[0]


def number(**wanted: Any) -> float:
    value = one(**wanted).number
    assert value is not None
    return value


def without(figure: Figure, *keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in figure.conditions.items() if key not in keys)


def averaged() -> Iterator[tuple[dict[str, float], Figure]]:
    rows: dict[tuple[Any, ...], dict[str, Figure]] = defaultdict(dict)
    for figure in figures("clara"):
        if figure.table.isdecimal() and not figure.metric.endswith("_gain"):
            rows[figure.table, figure.method, without(figure, "questions"), figure.metric][figure.dataset] = figure
    for row in rows.values():
        if set(row) == set(FIVE):
            yield {name: float(row[name].value) for name in FOUR}, row["average"]


def test_average_columns_are_the_means_of_their_cells() -> None:
    checked = 0
    for cells, average in averaged():
        checked += 1
        off = abs(sum(cells.values()) / 4 - float(average.value))
        # Cells and averages were each rounded once.
        assert (off > 2 * LAST) == ((average.table, average.value) in WRONG_AVERAGES), (average, off)
    # Tables 2, 4, 5, 6, 12, 13, 20, 21 have one average a row, 3 (rows * 2) and 18 (rows * 2) have two.
    assert checked == 30 + 10 + 4 + 42 + 12 + 16 + 10 + 4 + 2 * 21 + 2 * 48


def test_gains_are_differences_of_the_cells_they_name() -> None:
    cells = {
        (f.table, f.method, f.dataset, f.conditions.get("retrieval"), *(f.conditions.get(k) for k in ("cr", "data"))): f
        for f in figures("clara")
        if f.metric == ACC
    }
    checked = 0
    for gain in (f for f in figures("clara") if f.table.isdecimal() and f.metric == "cover_em_gain"):
        where = gain.conditions
        own = cells[gain.table, gain.method, gain.dataset, where["retrieval"], where["cr"], where.get("data")]
        if where["over"] == "No-pretrain":
            base = cells[gain.table, gain.method, gain.dataset, where["retrieval"], where["cr"], "No-pretrain"]
        else:
            ratio = "1" if "w/ BGE" in where["over"] else where["cr"]
            base = cells[gain.table, where["over"], gain.dataset, where["retrieval"], ratio, None]
        wrong = (gain.table, gain.method, gain.dataset, gain.value) in WRONG_GAINS
        assert (abs(float(own.value) - float(base.value) - float(gain.value)) > 1e-6) == wrong, gain
        checked += 1
    assert checked == 60 + 40 + 10 + 120 + 40 + 10


def test_ark_gains_are_relative_to_the_base_model() -> None:
    values: dict[str, list[float]] = {"printed": [], "true": [], "ark": [], "base": []}
    for gain in find(paper="ark", table="2", metric="f1_gain"):
        column = {"paper": "ark", "table": "2", "dataset": gain.dataset, "metric": "f1(rules=longbench)"}
        ark, base = number(**column, method="ark"), number(**column, method="Qwen3-embedding")
        true = 100 * (ark - base) / base
        assert (abs(true - float(gain.value)) > 0.051) == bool(gain.misprint), gain
        for name, value in zip(values, (float(gain.value), true, ark, base), strict=True):
            values[name].append(value)
    assert round(sum(values["printed"]) / 10, 1) == number(table="text abstract", paper="ark")
    assert round(sum(values["true"]) / 10, 2) == 13.25
    assert round(100 * (sum(values["ark"]) / sum(values["base"]) - 1), 1) == 11.7


def test_ark_is_best_on_as_many_datasets_as_it_says_and_its_stages_end_there() -> None:
    best = 0
    for name in {figure.dataset for figure in find(paper="ark", table="2", metric="f1_gain")}:
        column = find(paper="ark", table="2", dataset=name, metric="f1(rules=longbench)")
        best += max(column, key=lambda f: float(f.value)).id == "ark"
    assert best == number(paper="ark", metric="best_datasets")
    for stage, method in (("3", "ark"), ("original", "Qwen3-embedding")):
        ends = find(paper="ark", table="3", setting=f"stage={stage}")
        assert len(ends) == 4
        for end in ends:
            column = find(paper="ark", table="2", method=method, dataset=end.dataset, metric=end.metric)
            assert [end.value] == [figure.value for figure in column]


def test_gpr_is_best_in_every_block_but_the_two_known_cells() -> None:
    columns: dict[tuple[str, ...], list[Figure]] = defaultdict(list)
    for figure in find(paper="gpr", table="1"):
        columns[figure.conditions["reader"], figure.dataset, figure.metric].append(figure)
    assert {len(column) for column in columns.values()} == {7}
    for column in columns.values():
        best = max(column, key=lambda f: float(f.value))
        gpr = next(f for f in column if f.id == "gpr")
        assert (best is not gpr) == bool(gpr.misprint), gpr


def test_gpr_accuracy_is_recall_in_the_four_noted_rows_only() -> None:
    rows: dict[tuple[str, ...], dict[str, Figure]] = defaultdict(dict)
    for figure in find(paper="gpr", table="1"):
        rows[figure.method, figure.dataset, figure.setting][figure.metric] = figure
    assert len(rows) == 42
    for row in rows.values():
        accuracy, recall = row["graph_accuracy"], row["graph_recall"]
        assert (accuracy.value == recall.value) == ("another evaluator" in accuracy.note)
        assert float(accuracy.value) >= float(recall.value)
    assert sum("another evaluator" in row["graph_accuracy"].note for row in rows.values()) == 4


def test_gpr_f1_above_the_harmonic_mean_of_its_columns_is_noted() -> None:
    rows: dict[tuple[str, ...], dict[str, Figure]] = defaultdict(dict)
    for figure in find(paper="gpr", table="1"):
        rows[figure.method, figure.dataset, figure.setting][figure.metric] = figure
    for row in rows.values():
        precision, recall = float(row["graph_precision"].value), float(row["graph_recall"].value)
        excess = float(row["graph_f1"].value) - 2 * precision * recall / (precision + recall)
        assert (excess > 0.011) == ("above the harmonic mean" in row["graph_f1"].note), row["graph_f1"]
        assert excess < 0.075


def test_sark_drops_average_to_what_is_printed_and_said() -> None:
    for metric in ("accuracy_drop", "bertscore_drop"):
        column = [f for f in find(paper="sark", table="1", metric=metric) if f.method != "Avg. Drop"]
        average = number(paper="sark", table="1", metric=metric, method="avg. drop")
        assert abs(sum(float(f.value) for f in column) / 6 - average) < LAST
        assert number(paper="sark", table="text 3.2", metric=metric) == average
    assert max(float(f.value) for f in find(paper="sark", table="1", metric="accuracy_drop")) == 5.64


@pytest.mark.parametrize(
    ("table", "method", "other", "metric", "gain"),
    [
        ("2", "SARK", "RankLlama", "accuracy", ("text 5.2", "accuracy_gain")),
        ("2", "SARK", "RankLlama", "rouge_l", ("text 5.2", "rouge_l_gain")),
        ("3", "Qwen3 4B-Instruct with SARK", "Qwen3 4B-Instruct", "accuracy", ("text 5.5", "accuracy_gain")),
        ("3", "Qwen2.5 7B-Instruct + SARK", "Qwen2.5 7B-Instruct", "accuracy", ("text 5.5", "accuracy_gain")),
        ("3", "Llama3.1 8B-Instruct with SARK", "Llama3.1 8B-Instruct", "em(rules=strict)", ("text 5.5", "em_gain")),
        ("3", "Gemma3 12b-it + SARK", "Gemma3 12b-it", "bertscore", ("text 5.5", "bertscore_gain")),
    ],
)
def test_sark_gains_are_absolute_points(table: str, method: str, other: str, metric: str, gain: tuple[str, str]) -> None:
    own, base = (
        next(float(f.value) for f in find(paper="sark", table=table, metric=metric) if f.method == name) for name in (method, other)
    )
    stated = next(f for f in find(paper="sark", table=gain[0], metric=gain[1]) if f.method == method)
    assert abs(100 * (own - base) - float(stated.value)) < (0.05 if "nearly" in stated.note else 1e-6)


def test_sark_gains_under_romance_are_absolute_points() -> None:
    column = {f.method: float(f.value) for f in find(paper="sark", table="6", setting="style=romance", metric="accuracy")}
    stated = find(paper="sark", table="text C.3", metric="accuracy_gain")
    assert [f.conditions["over"] for f in stated] == ["mGTE", "RankLlama"]
    for gain in stated:
        assert 100 * (column["SARK"] - column[gain.conditions["over"]]) == pytest.approx(float(gain.value))


def test_sark_sample_shares_latency_and_bold_follow_from_its_numbers() -> None:
    sizes = {f.conditions["split"]: float(f.value) for f in find(paper="sark", table="4", metric="samples")}
    for split, size in sizes.items():
        share = number(paper="sark", table="4", metric="samples_share", setting=f"split={split}")
        assert abs(100 * size / sum(sizes.values()) - share) < LAST
    speed = {f.metric: float(f.value) for f in find(paper="sark", table="figure 6", method="SARK")}
    assert abs(1000 / speed["latency"] - speed["throughput"]) < LAST
    assert number(paper="sark", metric="latency", method="RankLlama") / speed["latency"] > speed["speedup"]
    for metric in ("accuracy", "em(rules=strict)", "bertscore", "rouge_l"):
        best = max(find(paper="sark", table="2", metric=metric), key=lambda f: float(f.value))
        assert best.method == "SARK"


def test_main_tables_repeat_the_full_ones() -> None:
    for main, full in (("2", "6"), ("3", "7")):
        whole = {(f.method, f.dataset, f.setting, f.metric): f.value for f in find(paper="clara", table=full)}
        shared = [f for f in find(paper="clara", table=main) if f.unit == "percent"]
        shared = [f for f in shared if main == "2" or f.dataset != "average"]
        assert len(shared) == {"2": 150, "3": 168}[main]
        assert all(whole[f.method, f.dataset, f.setting, f.metric] == f.value for f in shared)


@pytest.mark.parametrize("retrieval", ["normal", "oracle"])
@pytest.mark.parametrize(("scp", "short"), [("SCP-Mistral-7B", "Mistral"), ("SCP-Phi4-mini", "Phi")])
def test_ablations_end_at_the_row_of_the_full_model(retrieval: str, scp: str, short: str) -> None:
    name = scp.removeprefix("SCP-")
    for dataset in FIVE:
        common: dict[str, Any] = {"paper": "clara", "dataset": dataset, "metric": ACC}
        at = f"retrieval={retrieval};cr=32"
        full = one(**common, table="6", method=scp, setting=at).value
        data = "20" if retrieval == "normal" else "4"
        assert one(**common, table=data, method=name, setting=f"{at};data=SimpleQA+ComplexQA+Para").value == full
        assert one(**common, table="12", method=name, setting=f"{at};corpus_size=2M").value == full
        assert one(**common, table="13", method=short, setting=f"{at};tuned=all").value == full
        if short == "Mistral":
            mse = "21" if retrieval == "normal" else "5"
            assert one(**common, table=mse, method="Mistral-7B w/ mse", setting=at).value == full


@pytest.mark.parametrize("setting", [f"retrieval={r};cr={c}" for r in ("normal", "oracle") for c in (32, 128)])
def test_joint_ablations_end_at_the_row_of_the_full_model(setting: str) -> None:
    for dataset, metric in itertools.product(("hotpotqa", "2wikimultihopqa"), (F1, EM)):
        common: dict[str, Any] = {"paper": "clara", "dataset": dataset, "metric": metric}
        for method, short in (("CLaRa-Mistral-7B", "Mistral"), ("CLaRa-Phi4-mini", "Phi4")):
            full = one(**common, table="7", method=method, setting=f"{setting};init=pretraining").value
            assert one(**common, table="14", method=short, setting=f"{setting};tuned=all").value == full
            if short == "Mistral":
                assert one(**common, table="15", method="Mistral-7B w/ Compressor Init.", setting=setting).value == full


def test_numbers_in_the_text_are_those_of_the_tables() -> None:
    for stated in figures("clara"):
        repeated = stated.metric in (ACC, F1, "recall@5", "faithfulness", "factual_correctness")
        if stated.table.startswith("text") and repeated and not stated.misprint:
            there = find(paper="clara", method=stated.method, dataset=stated.dataset, metric=stated.metric)
            assert stated.value in {f.value for f in there if f.table.isdecimal()}, stated
    for over, cr in (("pisco", "16"), ("llmlingua-2", "4")):
        for retrieval in ("normal", "oracle"):
            where = f"retrieval={retrieval};cr={cr};over={over}"
            printed = find(paper="clara", metric="cover_em_gain", dataset="average", setting=where)
            values = {abs(float(f.value)) for f in printed if f.method == "SCP-Mistral-7B"}
            assert len(values) == 1, printed
    assert number(paper="clara", table="text 4.4", metric="recall_gain") == pytest.approx(96.21 - 85.93)


def test_impossible_orders_are_the_noted_ones_only() -> None:
    rows: dict[tuple[Any, ...], dict[str, Figure]] = defaultdict(dict)
    for figure in figures("clara"):
        rows[figure.table, figure.method, figure.dataset, figure.setting][figure.metric] = figure
    for row in rows.values():
        if F1 in row and EM in row:
            assert (float(row[EM].value) > float(row[F1].value)) == ("F1 below EM" in row[F1].note), row
        if "recall@1" in row and "recall@3" in row:
            assert float(row["recall@1"].value) <= float(row["recall@3"].value) <= float(row["recall@5"].value)
        if "rouge1" in row:
            assert float(row["rouge_l"].value) <= float(row["rouge1"].value)
