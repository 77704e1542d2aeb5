"""Ours beside the published: decided only where the settings are the same, and the keys that differ are named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.registry import load
from methods.pipeline import Composition
from methods.registry import Component
from results.boards.paper_figures import Figure, figures, find
from results.boards.published import compare, conditions_of_ours, on_board, published_for
from results.statistics.core import Estimate
from results.statistics.intervals import estimate

NAN = float("nan")


def part(identifier: str, **config: Any) -> dict[str, Any]:
    return {"id": identifier, "version": 1, "config": config, "weights": None}


def description(method: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"method": method, "rerankers": [], "compressor": None, "reader": None, "k": None, "depth": None, **parts}


MISTRAL = part("causal", model="mistralai/Mistral-7B-Instruct-v0.2")


PUBLISHED = Figure(
    paper="mine",
    table="1",
    method="BM25",
    id="bm25",
    dataset="hotpotqa",
    setting="retrieval=oracle;n=20;split=dev",
    metric="f1(rules=hotpotqa)",
    value="40.00",
    unit="percent",
    note="",
)


def figure(**changed: str) -> Figure:
    return replace(PUBLISHED, **changed)


SAME = {"retrieval": "oracle", "n": "20", "split": "dev"}


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(0.39, 0.41, "reproduced"), (0.40, 0.41, "reproduced"), (0.3, 0.399, "not reproduced"), (NAN, NAN, "undecided")],
)
def test_status_is_whether_the_published_value_lies_in_our_interval(low: float, high: float, status: str) -> None:
    ours = Estimate(0.41, low, high, 200, 0)
    result = compare(figure(), ours, SAME, metric="f1(rules=hotpotqa)#v2")
    assert result.status == status
    assert result.gap == pytest.approx(0.01)
    assert result.differs == ()


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10_000), st.sampled_from(["percent", "fraction"]))
def test_inside_is_the_plain_comparison_in_either_unit(a: float, b: float, hundredths: int, unit: str) -> None:
    low, high = min(a, b), max(a, b)
    value = f"{hundredths / 100:.2f}" if unit == "percent" else f"{hundredths / 10_000:.4f}"
    result = compare(figure(value=value, unit=unit), Estimate(low, low, high, 9, 0), SAME)
    published = hundredths / 10_000
    if min(abs(published - low), abs(published - high)) > 1e-9:
        assert result.inside == (low < published < high)
        assert result.status == ("reproduced" if result.inside else "not reproduced")


def test_another_setting_decides_nothing_and_says_what_differs() -> None:
    ours = Estimate(0.40, 0.39, 0.41, 200, 0)
    result = compare(figure(), ours, {"retrieval": "normal", "n": "20", "k": "5"}, metric="f1(rules=musique)#v2")
    assert result.status == "other setting"
    assert result.inside
    assert [(differ.key, differ.published, differ.ours) for differ in result.differs] == [
        ("retrieval", "oracle", "normal"),
        ("split", "dev", None),
        ("metric rules", "hotpotqa", "musique"),
    ]
    assert result.to_json()["differs"]["split"] == {"published": "dev", "ours": None}


def test_a_style_shift_that_the_paper_does_not_have_is_another_setting() -> None:
    result = compare(figure(), None, {**SAME, "style": "informal"})
    assert [(differ.key, differ.published) for differ in result.differs] == [("style", None)]
    assert compare(figure(setting="style=informal"), None, {"style": "Informal"}).status == "undecided"


def test_numbers_are_the_same_however_they_are_written() -> None:
    theirs = figure(setting="questions=12,576;formal=0.5")
    assert not compare(theirs, None, {"questions": "12576", "formal": "0.50"}).differs


def test_a_value_that_is_no_score_is_refused() -> None:
    with pytest.raises(ValueError, match="not a score"):
        compare(figure(unit="ms"), None, SAME)


def test_a_prompt_in_place_of_the_published_one_is_another_setting() -> None:
    def status(**config: object) -> tuple[str, list[str]]:
        run = description(part("bm25"), k=5) | {"rerankers": [part("rank1", **config)]}
        result = compare(figure(), None, {**conditions_of_ours("hotpotqa:validation", "distractor", run), **SAME})
        return result.status, [str(differ.ours) for differ in result.differs if differ.key == "prompt"]

    assert status(prompt="ours") == ("other setting", ["ours"])
    assert status(prompt="own.txt")[1] == ["own.txt"]
    assert status(prompts="folder")[1] == ["folder"]
    assert status() == status(prompt="published") == ("undecided", [])


def test_our_setting_is_read_off_reference_setting_and_description() -> None:
    run = description(part("dense", model="BAAI/bge-large-en-v1.5"), reader=MISTRAL, k=5)
    assert conditions_of_ours("hotpotqa:dev", "corpus", run) == {
        "split": "dev",
        "retrieval": "normal",
        "retriever": "bge-large-en-v1.5",
        "k": "5",
        "reader": "mistral-7b-instruct-v0.2",
        "cr": "1",
    }
    compressed = {**run, "compressor": part("recomp")}
    assert "cr" not in conditions_of_ours("hotpotqa:dev", "corpus", compressed)
    assert conditions_of_ours("hotpotqa:dev", "corpus", description(part("clara"))).keys() == {"split", "retrieval", "retriever"}
    assert conditions_of_ours("nq", "oracle(base=corpus(retriever=bm25,n=20))") == {"retrieval": "oracle", "retriever": "bm25", "n": "20"}


def test_a_run_that_meets_the_papers_setting_is_judged() -> None:
    run = description(part("dense", model="BAAI/bge-large-en-v1.5"), reader=MISTRAL, k=5)
    stated = {"corpus": "wikipedia-2021", "questions": "7384", "n": "5"}
    for scores, status in ((0.43, "reproduced"), (0.60, "not reproduced")):
        ours = estimate((np.arange(7384) < 7384 * scores).astype(float))
        first = published_for("hotpotqa:dev", "corpus", "cover_em(match=substring)#v1", run, estimate=ours, facts=stated)[0]
        assert (first.figure.value, first.status) == ("42.94", status), list(map(str, first.differs))


def test_options_of_an_id_must_hold() -> None:
    metric = "f1(rules=longbench)#v2"
    known = {"BAAI/bge-m3": {"BGE-M3"}, "Qwen/Qwen3-Embedding-0.6B": {"Qwen3-embedding", "Qwen3", "Original"}}
    for model, methods in known.items():
        results = published_for("longbench/musique", "document", metric, description(part("dense", model=model)))
        assert {item.figure.method for item in results} == methods
    assert not published_for("longbench/musique", "document", metric, description(part("dense", model="minilm")))
    assert published_for("longbench/musique", "document", metric, "dense(model=BAAI/bge-m3)")
    assert not published_for("longbench/musique", "document", metric, "dense")


def test_a_run_that_reranks_is_about_its_reranker() -> None:
    reranker = part("cross_encoder", model="BAAI/bge-reranker-base")
    run = description(part("bm25"), rerankers=[reranker], k=50)
    results = published_for("nq:test", "corpus", "em(rules=strict)#v2", run)
    assert {item.figure.method for item in results} == {"BGE-Base"}
    assert not published_for("hotpotqa", "oracle", "recall@5", run)
    assert {item.figure.method for item in published_for("hotpotqa", "oracle", "recall@5", description(part("bm25")))} == {"BM25"}


def test_descriptions_of_real_compositions_are_understood() -> None:
    dense = Composition(Component.of("dense", {"preset": "bge-m3"}), k=5).describe()
    metric = "f1(rules=longbench)#v2"
    assert {item.figure.method for item in published_for("longbench/musique", "document", metric, dense)} == {"BGE-M3"}
    assert conditions_of_ours("nq", "corpus", dense)["retriever"] == "bge-m3"
    reranker = Component.of("cross_encoder", {"preset": "mgte"})
    reranked = Composition(Component.of("bm25"), rerankers=(reranker,)).describe()
    assert {item.figure.method for item in published_for("nq", "corpus", "em(rules=strict)#v2", reranked)} == {"mGTE"}
    assert conditions_of_ours("nq", "corpus", reranked) == {
        "retrieval": "normal",
        "retriever": "bm25",
        "reader": "extractive",
        "cr": "1",
        "k": "5",
    }


def test_k_of_a_metric_must_be_equal_and_subsets_do_not_mix() -> None:
    assert {item.figure.metric for item in published_for("hotpotqa/distractor:dev", "oracle", "recall@5#v2", "bm25")} == {"recall@5"}
    assert not published_for("hotpotqa", "oracle", "recall@20#v2", "bm25")
    assert not published_for("longbench/qasper", "oracle", "recall@5#v2", "bm25")
    assert not published_for("musique", "document", "f1(rules=longbench)#v2", "ark")


def test_the_closest_setting_comes_first_and_nothing_twice() -> None:
    results = published_for("hotpotqa:dev", "oracle", "f1(rules=clara)#v2", "clara", facts={"cr": "32", "init": "pretraining"})
    differing = [len(item.differs) for item in results]
    assert differing == sorted(differing)
    assert results[0].figure.conditions["cr"] == "32"
    printed = [(item.figure.method, item.figure.setting, item.figure.value) for item in results]
    assert len(set(printed)) == len(printed)
    # Table 3 repeats rows of Table 7; the main table is the one that is shown.
    whole = find(paper="clara", method="clara", dataset="hotpotqa", metric="f1(rules=clara)")
    assert {item.figure.table for item in results} >= {"3", "7"}
    assert len({(f.method, f.setting, f.value) for f in whole}) == len(results)


@dataclass(frozen=True)
class FakeRun:
    run: str
    description: dict[str, Any]
    positive_control: bool = False

    @property
    def method(self) -> str:
        return self.run


@dataclass(frozen=True)
class FakeCell:
    estimate: Estimate
    apart: str = ""


@dataclass(frozen=True)
class FakeRow:
    run: FakeRun
    cells: dict[str, FakeCell]


@dataclass(frozen=True)
class FakeBoard:
    dataset: str
    setting: str
    questions: int
    rows: tuple[FakeRow, ...]


def test_a_board_gets_the_figures_of_the_cells_that_have_any() -> None:
    cells = {name: FakeCell(Estimate(0.5, 0.4, 0.7, 100, 0)) for name in ("recall@5#v2", "ndcg@10(gain=linear)#v2")}
    rows = tuple(FakeRow(FakeRun(name, description(part(name))), cells) for name in ("bm25", "random"))
    result = on_board(FakeBoard("hotpotqa:dev", "oracle", 100, rows))  # type: ignore[arg-type]
    assert list(result) == [("bm25", "recall@5#v2")]
    (comparison,) = result["bm25", "recall@5#v2"]
    assert comparison.figure.value == "62.09"
    assert ("questions", "7384", "100") in [(differ.key, differ.published, differ.ours) for differ in comparison.differs]
    assert comparison.status == "other setting"
    assert comparison.inside


@pytest.mark.parametrize(
    ("dataset", "name", "parts", "metric", "value", "differing"),
    [
        ("inst_eval_nq_no_pos", "PISCO 16x", {"compressor": part("pisco"), "k": 5}, "cover_em", "54.39", set()),
        ("inst_eval_nq_no_pos", "CLaRa-7B-Instruct 16x", {"compressor": part("clara_compressor"), "k": 5}, "cover_em", "55.56", {"reader"}),
        (
            "e2e_eval_nq_with_pos",
            "RankZephyr-7B",
            {"rerankers": [part("rankzephyr")], "reader": part("retrieval_only")},
            "recall@1",
            "16.00",
            set(),
        ),
        ("e2e_eval_nq_no_pos", "ChatQA-1.5 8B", {"reader": part("chatqa")}, "f1", "34.54", {"retriever", "corpus"}),
    ],
)
def test_clara_figures_are_matched_to_the_authors_evaluation_files(
    dataset: str, name: str, parts: dict[str, Any], metric: str, value: str, differing: set[str]
) -> None:
    rows = (FakeRow(FakeRun(name, description(part("full_context"), **parts)), {metric: FakeCell(Estimate(0.5, 0.4, 0.7, 100, 0))}),)
    board = FakeBoard(f"clara_stages/{dataset}:test", "distractor", 6489, rows)
    first = on_board(board)[name, metric][0]  # type: ignore[arg-type]
    assert first.figure.value == value
    assert {differ.key for differ in first.differs if not differ.key.startswith("metric")} == differing
    elsewhere = FakeBoard(f"clara_stages/{dataset}:test", "closed_book", 6489, rows)
    assert all("retrieval" in {differ.key for differ in item.differs} for item in on_board(elsewhere).get((name, metric), []))  # type: ignore[arg-type]


def test_every_figure_that_is_a_score_can_be_met() -> None:
    """A run in exactly the paper's setting is never called another setting."""
    for item in figures():
        if item.fraction is not None:
            ours = Estimate(item.fraction, item.fraction, item.fraction, 10, 0)
            assert compare(item, ours, item.conditions, metric=item.metric).status == "reproduced"


BGE = description(part("full_context"), rerankers=[part("cross_encoder", model="BAAI/bge-reranker-base")], k=5)


def table_2(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row.figure.paper == "sark" and row.figure.table == "2"]


@pytest.mark.parametrize("base", ["nq", "sark"])
def test_figures_of_a_mix_are_found_under_the_questions_that_it_asks(base: str) -> None:
    dataset = f"styled:test({base},informal=0.5,by=llm,seed=0)"
    (item,) = table_2(published_for(dataset, "distractor", "em(rules=strict)", BGE))
    assert item.figure.dataset == "nq"
    differing = {each.key for each in item.differs}
    assert not differing & {"style", "formal", "split", "k"}
    assert "retrieval" in differing


@pytest.mark.parametrize(
    ("shares", "style", "formal"),
    [
        ("informal=0.5", "informal", "0.5"),
        ("informal=0.25", "informal", "0.75"),
        ("informal=1", "informal", None),
        ("humor=1", "humor", None),
        ("formal=1", "formal", None),
        ("formal=0.5,humor=0.2,informal=0.3", "humor+informal", "0.5"),
    ],
)
def test_a_mix_says_its_style_and_what_stays_formal(shares: str, style: str, formal: str | None) -> None:
    reported = conditions_of_ours(f"styled:test(nq,{shares},seed=3,draw=coin)", "distractor")
    assert (reported["style"], reported.get("formal"), reported["split"]) == (style, formal, "test")


def test_another_mix_is_another_setting() -> None:
    (item,) = table_2(published_for("styled:test(nq,informal=0.25,seed=0)", "distractor", "em(rules=strict)", BGE))
    assert {each.key: (each.published, each.ours) for each in item.differs}["formal"] == ("0.5", "0.75")


def test_the_name_that_the_benchmark_gives_itself_is_understood() -> None:
    name = load("styled:test", {"base": "worlds/multihop", "mix": {"informal": 0.5}}).name
    reported = conditions_of_ours(name, "distractor")
    assert (reported["style"], reported["formal"]) == ("informal", "0.5")


def test_a_dataset_without_styles_says_none() -> None:
    assert "style" not in conditions_of_ours("nq:test", "corpus")
