"""A user's search function from the first try to a board."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import load
from benchmarks.text_index import outside
from results.boards.health import health
from results.store import answer_queries, queries
from results.store.store import Store

QUESTIONS = 6
ELSEWHERE = "A text about quite another place, which no passage of this corpus says in any form at all."
MODULE = f"""from tests.support.app import find


def search(question, k, passages):
    return find(question, k, passages)


def texts(question, k, passages):
    by_id = {{passage.id: passage for passage in passages}}
    return [by_id[name].text for name, _ in find(question, k, passages)]


def cut(question, k, passages):
    return [" ".join(text.split()[:-1]) for text in texts(question, k, passages)]


def other(question, k, passages):
    return [{ELSEWHERE!r}, *texts(question, k, passages)]


def own_index(question, k):
    return [{{"text": {ELSEWHERE!r}}}, {{"text": "Nothing"}}]
"""


@pytest.fixture
def ragmeter(tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "acme_find.py").write_text(MODULE)
    yield call
    sys.modules.pop("acme_find", None)


def test_retriever_try_shows_the_passages_that_results_mean(ragmeter: Callable[..., Any], tmp_path: Path) -> None:
    command = ("method", "try", "function_retriever", "Who led the siege?", "--plugin", str(tmp_path / "acme_find.py"))
    passages = ("--benchmark", "worlds/multihop:test")
    printed = ragmeter(*command, "--set", "call=acme_find:search", *passages, "--json")
    assert printed.code == 0, printed.err
    evidence = json.loads(printed.out)["evidence"]
    corpus = load("worlds/multihop:test").corpus
    assert len(evidence) == 100
    assert " led the " in corpus.get([evidence[0]["id"]])[0].text
    shown = ragmeter(*command, "--set", "call=acme_find:own_index", *passages)
    assert (shown.code, shown.out.count("not in the corpus")) == (0, 2)
    failed = ragmeter(*command, "--set", "call=acme_find:find", *passages)
    assert (failed.code, failed.out.count("not in the corpus")) == (0, 0)


@pytest.mark.parametrize(
    "command",
    [("bm25", "Where?"), ("extractive", "Where?"), ("http", "Where?", "--set", "url=http://localhost/ask", "--benchmark", "worlds")],
)
def test_try_needs_passages_for_retrievers_only(command: tuple[str, ...], ragmeter: Callable[..., Any]) -> None:
    assert ragmeter("method", "try", *command).code == 2


def test_check_loads_a_plugin(ragmeter: Callable[..., Any], tmp_path: Path) -> None:
    command = ("method", "check", "function_retriever", "--plugin", str(tmp_path / "acme_find.py"))
    passed = ragmeter(*command, "--set", "call=acme_find:search", "--json")
    assert (passed.code, json.loads(passed.out)["passed"]) == (0, True)
    own = ragmeter(*command, "--set", "call=acme_find:own_index")
    assert (own.code, "ragmeter method try" in " ".join(own.err.split())) == (2, True)


def test_board_has_equal_values_by_id_and_text_and_counts_other_texts(ragmeter: Callable[..., Any], tmp_path: Path) -> None:
    names = ("search", "texts", "cut", "other")
    methods = [
        f"  - {{id: function_retriever, name: {name}, reader: retrieval_only, config: {{call: 'acme_find:{name}'}}}}\n" for name in names
    ]
    (tmp_path / "x.yaml").write_text(
        f"name: x\nplugins: [acme_find.py]\nmetrics: [recall@1, mrr@10]\n"
        f"benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {QUESTIONS}}}]\nmethods:\n{''.join(methods)}"
    )
    done = ragmeter("run", str(tmp_path / "x.yaml"), "-q")
    assert done.code == 0, done.err
    store = Store(tmp_path / "store")
    rows = {row.method: row for row in queries.runs(store, "x")}
    means = {
        (name, metric.partition("#")[0]): mean
        for name, row in rows.items()
        for metric, mean in store.database.rows("SELECT metric, mean FROM summaries WHERE run = ?", [row.run])
    }
    for metric in ("recall@1", "mrr@10"):
        assert means["search", metric] == means["texts", metric] == means["cut", metric] > 0
    assert means["other", "recall@1"] == 0
    assert 0 < means["other", "mrr@10"] < means["search", "mrr@10"]
    lines = {(line.code, line.method): line.values for line in health(store, list(rows.values())) if line.code.endswith("_results")}
    assert set(lines) == {("partial_results", "cut"), ("unmatched_results", "other")}
    assert lines["unmatched_results", "other"]["unmatched"] == QUESTIONS
    assert lines["partial_results", "cut"]["partial"] == lines["partial_results", "cut"]["results"] > QUESTIONS
    (passage,) = answer_queries.passages(store, [outside(ELSEWHERE).id]).values()
    assert passage.text == ELSEWHERE
    shown = ragmeter("results", "show", "x/other", load("worlds/multihop:test").questions[0].id)
    assert shown.out.count("not in the corpus") == 1
