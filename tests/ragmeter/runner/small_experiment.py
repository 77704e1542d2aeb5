"""Runs of a small experiment: find them by name, judge them, and read them from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judges.judge import Judge
from methods.api import Services
from methods.models.chat_config import ChatConfig
from ragmeter.experiment import JudgePlan
from ragmeter.runner.judging import execute, judgings
from results.store import queries
from results.store.queries import RunRow
from results.store.store import Store

REFERENCE = "worlds/multihop:test"
QUESTIONS = 10
EXPERIMENT = f"""\
name: small
reference: bm25
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {QUESTIONS}, config: {{worlds: 1}}}}]
methods: [{{id: bm25}}, {{id: random, reader: extractive}}, {{id: gold_answer}}]
metrics: [em]
"""


class Silent:
    """Progress that records its calls, and may be interrupted after some questions."""

    def __init__(self, interrupted_after: int | None = None) -> None:
        self.prepared: list[tuple[str, int, int]] = []
        self.done = 0
        self.interrupted_after = interrupted_after

    def begin(self, name: str, total: int, done: int) -> None:
        self.prepared.append((name, total, done))

    def advance(self, questions: int) -> None:
        self.done += questions
        if self.done == self.interrupted_after:
            raise KeyboardInterrupt


def runs(store: Store, *names: str) -> list[RunRow]:
    results = {row.method: row for row in queries.runs(store, "small")}
    return [results[name] for name in names] if names else list(results.values())


def llm(name: str, url: str, **options: Any) -> Judge:
    """Build a judge; options of the endpoint are among the options."""
    endpoint = {option: options.pop(option) for option in ChatConfig.model_fields if option in options}
    model = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, "timeout_s": 30.0, **endpoint}
    return Judge.of(name, {"llm": model, **options})


def judge(
    store: Store, judge: Judge, chosen: Sequence[RunRow], *, retry: bool = False, everyone: bool = False, progress: Silent | None = None
) -> Silent:
    progress = progress or Silent()
    work = judgings([JudgePlan(judge, everyone)], chosen, "bm25")
    execute(work, store, Services(cache=store.cache), progress, retry_unscored=retry)
    return progress


def rows(store: Store, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    with store.database.reading() as connection:
        return {table: connection.execute(f"FROM {table} ORDER BY ALL").fetchall() for table in tables}
