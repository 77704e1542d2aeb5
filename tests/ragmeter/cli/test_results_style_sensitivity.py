"""`ragmeter results style` after a real run: content survival, and sensitivity of rerankers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragmeter.api import run
from results.store import queries
from results.store.store import FINISHED, Store

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an experiment as `x.yaml` and its results in `store`; do not write to it."""
    position = tmp_path_factory.mktemp("ran")
    (position / "x.yaml").write_text("""
name: x
metrics: ["mrr@10", "recall@2"]
benchmarks:
  - {id: styled, split: test, limit: 12, config: {mix: {informal: 0}}}
  - {id: styled, split: test, limit: 12, config: {mix: {informal: 1}}}
methods:
  - {id: full_context, name: given, k: 2, reader: retrieval_only}
  - {id: full_context, name: BM25, rerankers: [bm25_reranker], k: 2, reader: retrieval_only}
""")
    assert not run(position / "x.yaml", store=position / "store").failed
    return position


@pytest.fixture
def store(ran: Path, tmp_path: Path) -> Store:
    """Return a copy of the results, for the commands of this test."""
    return Store(Path(shutil.copytree(ran / "store", tmp_path / "store")))


@pytest.mark.slow
def test_run_records_content_survival_and_given_order_has_no_drop(ragmeter: Command, store: Store) -> None:
    response = json.loads(ragmeter("results", "style", "--json").out)
    assert [table["metric"] for table in response["tables"]] == ["mrr@10#v2", "recall@2#v2"]
    for table in response["tables"]:
        value, reranked = table["methods"]
        assert (value["method"], reranked["method"]) == ("given", "BM25")
        # Candidates keep their ranks in every style.
        assert value["styles"][0]["gap"]["value"] == 0
        assert value["styles"][0]["content_lost"]["n"] == 12
        assert reranked["formal"]["value"] > value["formal"]["value"]
    board = queries.runs(store, "x")
    assert {run.status for run in board} == {FINISHED}


@pytest.mark.slow
def test_sensitivity_accepts_named_rerankers_and_an_experiment(ragmeter: Command, ran: Path) -> None:
    requests = ("results", "style", "sensitivity", "worlds/multihop:test", "--limit", "3")
    done = ragmeter(*requests, "--reranker", "bm25_reranker", "--set", "reranker.b=0", "--style", "informal", "--style", "humor", "--json")
    assert done.code == 0, done.err
    response = json.loads(done.out)
    assert [(row["reranker"], row["style"]) for row in response["rerankers"]] == [("bm25_reranker", "informal"), ("bm25_reranker", "humor")]
    for row in response["rerankers"]:
        assert -1 <= row["tau"]["value"] <= 1
        assert 0 <= row["relative_shift"]["value"] <= 2
        assert row["tau"]["n"] == 3
    assert response["texts"]["informal"]["rewriter"].startswith("rule")
    of_experiment = json.loads(ragmeter(*requests, "--experiment", str(ran / "x.yaml"), "--json").out)
    assert [row["reranker"] for row in of_experiment["rerankers"]] == ["BM25"]
    shown = ragmeter(*requests, "--experiment", str(ran / "x.yaml")).out
    assert f"{of_experiment['rerankers'][0]['tau']['value']:.3f}" in shown


@pytest.mark.slow
def test_sensitivity_on_parallel_passages_counts_a_chapter_as_one_observation(ragmeter: Command, data_folder: Path) -> None:
    file = data_folder / "sark_style" / "bible_genesis.jsonl"
    done = ragmeter("results", "style", "sensitivity", "parallel_style/bible:test", "--set", f"path={file}", "--limit", "34",
                    "--reranker", "bm25_reranker", "--style", "bbe", "--style", "ylt", "--json")  # fmt: skip
    assert done.code == 0, done.err
    response = json.loads(done.out)
    assert response["texts"]["bbe"]["by"] == {"people": response["texts"]["bbe"]["by"]["people"]}
    for row in response["rerankers"]:
        # 31 verses of the first chapter, three of the second.
        assert (row["tau"]["n"], row["tau"]["clusters"]) == (34, 2)
        assert 0 < row["tau"]["value"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no reranker is named"),
        (("--experiment", "sark/worlds"), "ragmeter run sark/worlds"),
        (("--experiment", "demo"), "no method of this experiment reranks"),
        (("--reranker", "bm25"), "is a retriever, not a reranker"),
        (("--reranker", "bm25_reranker", "--set", "reranker.k2=1"), "k1"),
        (("--reranker", "bm25_reranker", "--reranker", "bi_encoder", "--set", "reranker.k1=1"), "one reranker"),
        (("--reranker", "bm25_reranker", "--set", "reranker=1"), "one reranker"),
        (("--reranker", "bm25_reranker", "--style", "sonnet"), "sonnet"),
    ],
)
def test_unmeasurable_sensitivity_is_wrong_usage(ragmeter: Command, arguments: Sequence[str], message: str) -> None:
    done = ragmeter("results", "style", "sensitivity", "worlds/multihop:test", "--limit", "2", *arguments)
    assert done.code == 2, done.err
    assert message in " ".join(done.err.split())
