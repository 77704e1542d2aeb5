"""A user's app from the first try to a board: over HTTP, and as a function in a file next to the experiment."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import Benchmark, load
from benchmarks.schema import Turn
from methods.api import TURNS_UNREAD
from methods.baselines.controls import gold_text
from methods.registry import Component
from ragmeter import experiment
from ragmeter.runner.provenance import provenance
from results.boards.health import health
from results.store import queries, records
from results.store.store import Run, Store
from tests.support.app import Asked, app

QUESTIONS = 3


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return load("worlds/multihop:test").limited(QUESTIONS)


@pytest.fixture
def ragmeter(tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield call
    sys.modules.pop("acme_shop", None)


def test_app_try_shows_the_parsed_reply_and_fails_if_empty(ragmeter: Callable[..., Any]) -> None:
    reply = {"answer": "Lyon", "docs": [{"text": "Lyon is big.", "id": "d1"}]}
    with app(lambda request: reply) as (url, requests):
        command = ("method", "try", "http", "Where?", "--set", f"url={url}")
        shown = ragmeter(*command, "--set", "contexts=docs[]")
        printed = ragmeter(*command, "--set", "contexts=docs[]", "--json")
        failed = ragmeter(*command, "--set", "answer=data.text")
    assert (shown.code, "answer: Lyon" in shown.out, "context 1: d1" in shown.out) == (0, True, True)
    assert json.loads(printed.out)["contexts"] == [{"text": "Lyon is big.", "id": "d1"}]
    assert (failed.code, "an object with the keys answer, docs" in " ".join(failed.out.split())) == (1, True)
    assert requests[0].json == {"question": "Where?"}
    assert ragmeter("method", "try", "bm25", "Where?").code == 2


@pytest.mark.slow
def test_app_and_function_share_a_board_and_keep_their_contexts(
    world: Benchmark, tmp_path: Path, ragmeter: Callable[..., Any], store_at: Callable[[], Store]
) -> None:
    by_text = {question.text: question for question in world.questions}

    def reply(request: Asked) -> Any:
        question = by_text[request.json["question"]]
        texts = [passage.text for passage in world.corpus.get(question.evidence)]
        return {"answer": gold_text(question), "docs": [{"text": text} for text in ["Nothing of this corpus at all.", *texts]]}

    (tmp_path / "acme_shop.py").write_text("def answer(question):\n    return 'nothing', []\n")
    file = tmp_path / "x.yaml"
    with app(reply) as (url, _):
        file.write_text(
            f"name: x\nplugins: [acme_shop.py]\nbenchmarks: [{{id: worlds/multihop, split: test, limit: {QUESTIONS}}}]\n"
            f"metrics: [em, recall@5, mrr@10]\nmethods:\n"
            f"  - {{id: http, name: app, config: {{url: '{url}', contexts: 'docs[].text'}}}}\n"
            f"  - {{id: http, name: known, revision: v1, config: {{url: '{url}', contexts: 'docs[].text'}}}}\n"
            f"  - {{id: function, config: {{call: 'acme_shop:answer'}}}}\n"
        )
        done = ragmeter("run", str(file), "-q")
    assert done.code == 0, done.err
    store = store_at()
    rows = {row.method: row for row in queries.runs(store, "x")}
    means = {(name, metric.partition("#")[0]): value for name, row in rows.items() for metric, value in means_of(store, row.run).items()}
    assert means["app", "em(rules=squad)"] == means["app", "recall@5"] == 1.0
    assert means["app", "mrr@10"] == 0.5
    assert means["function", "recall@5"] == 0.0
    unknown = {name: list(row.provenance.get("revisions", {}).values()) for name, row in rows.items()}
    assert unknown == {"app": ["unknown"], "known": ["v1"], "function": []}
    items = records.items(store, rows["app"])
    assert all(item.passages[0].text == "Nothing of this corpus at all." for item in items)
    assert len({line.values["unmatched"] for line in health(store, list(rows.values())) if line.code == "unmatched_contexts"}) == 1
    shown = ragmeter("results", "show", "x/app", items[0].question.id)
    assert "not in the corpus" in shown.out
    assert (ragmeter("results", "export", "x/app", "-o", str(tmp_path / "run.txt"))).code == 0


def test_app_that_only_names_its_sources_is_scored_by_them_and_not_by_texts(
    tmp_path: Path, ragmeter: Callable[..., Any], store_at: Callable[[], Store]
) -> None:
    docs, rows = tmp_path / "docs", ["question,answer,source"]
    docs.mkdir()
    for number in range(4):
        (docs / f"room {number}.md").write_text(f"Room {number} was painted in {1900 + number}. " + f"It has {number} more doors. " * 3)
        rows.append(f"When was room {number} painted?,{1900 + number},room {number}")
    (tmp_path / "q.csv").write_text("\n".join(rows) + "\n")

    def reply(request: Asked) -> Any:
        number = int(re.search(r"room (\d)", request.json["question"])[1])  # type: ignore[index]
        source = {0: "room 0", 1: "https://example.com/docs/room 1.md?v=2", 2: "elsewhere", 3: "room 2.md"}[number]
        return {"answer": str(1900 + number), "sources": ["elsewhere", source]}

    file = tmp_path / "x.yaml"
    with app(reply) as (url, _):
        file.write_text(
            f"name: x\nbenchmarks: [{{id: files, config: {{path: '{tmp_path}/q.csv', documents: '{docs}', chunk_size: 6}}}}]\n"
            "metrics: [em, recall@5(level=documents), 'mrr@5(level=documents)', recall@5, has_answer@5]\njudges: [rule_grounding]\n"
            f"methods: [{{id: bm25}}, {{id: http, name: app, config: {{url: '{url}', contexts: {{id: 'sources[]'}}}}}}]\n"
        )
        done = ragmeter("run", str(file), "-q")
    assert done.code == 0, done.err
    store = store_at()
    runs = {row.method: row for row in queries.runs(store, "x")}
    means = {metric.partition("#")[0].partition("(model")[0]: value for metric, value in means_of(store, runs["app"].run).items()}
    assert (means["em(rules=squad)"], means["recall@5(level=documents)"], means["mrr@5(level=documents)"]) == (1.0, 0.5, 0.25)
    assert means["recall@5"] == 0.0
    assert "has_answer@5" not in means
    assert means["faithfulness"] is None or math.isnan(means["faithfulness"])
    assert means["factual_correctness"] == 1.0
    lines = {line.code for line in health(store, list(runs.values())) if line.run == runs["app"].run}
    assert {"contexts_without_texts", "unmatched_contexts"} <= lines


def test_methods_that_do_not_read_earlier_turns_are_marked(world: Benchmark, tmp_path: Path) -> None:
    conversation = replace(world, questions=[replace(question, turns=(Turn("user", "Hi"),)) for question in world.questions])
    marked = {
        name: provenance(data, [], [Component.of(name, options)]).get(TURNS_UNREAD)
        for data in (world, conversation)
        for name, options in (("bm25", {}), ("http", {"url": "http://localhost/ask"}))
    }
    assert marked == {"bm25": True, "http": None}
    assert provenance(world, [], [Component.of("bm25")]).get(TURNS_UNREAD) is None
    store = Store(tmp_path / "marked")
    store.start(Run("abcd", "bm25", "bm25", "retriever", {}, "toy:dev", "d", "corpus", 0, 1, {TURNS_UNREAD: True}))
    assert [line.code for line in health(store, queries.runs(store))] == ["turns_unread"]


def means_of(store: Store, run: str) -> dict[str, float]:
    return dict(store.database.rows("SELECT metric, mean FROM summaries WHERE run = ?", [run]))


@pytest.fixture
def store_at(tmp_path: Path) -> Callable[[], Store]:
    return lambda: Store(tmp_path / "store")


def test_files_and_commands_on_the_page_work(tmp_path: Path, ragmeter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "own-method.md").read_text("utf-8")
    blocks = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', page, re.DOTALL))
    for name in ("experiment.yaml", "my_app.py", "function.yaml"):
        (tmp_path / name).write_text(blocks[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_SHA", "abc1234")
    (command,) = re.findall(r"^ragmeter (method try function .*)$", page, re.MULTILINE)
    done = ragmeter(*shlex.split(command))
    assert (done.code, "answer: Lyon" in done.out, "context 1: doc-7" in done.out) == (0, True, True), done.err
    assert [plan.name for name in ("experiment.yaml", "function.yaml") for plan in experiment.load(name).methods][::2] == [
        "my app",
        "function",
    ]
    sys.modules.pop("my_app", None)
