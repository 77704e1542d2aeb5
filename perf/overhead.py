"""What the harness itself costs per question: everything but the method, from query to durable, scored row.

The method answers at once with twenty passages, so whatever a run takes beyond waiting for it is ours: handing out
queries, checking, scoring on the dataset's metrics, writing to DuckDB. Target: under 1 ms per question.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Evidence, Prediction, Services, Usage
from methods.registry import MethodConfig, register
from perf.measuring import Bench
from ragmeter import experiment
from ragmeter.runner.loop import execute
from ragmeter.runner.tasks import Task, states, tasks_of
from results.store.store import Store

TARGET_MS = 1.0
QUESTIONS = 4000


@register("perf_instant", kind="method", summary="answers at once")
class Instant:
    def __init__(self, config: MethodConfig, services: Services) -> None:
        self.ids: Sequence[str] = ()

    def index(self, corpus: Corpus) -> None:
        self.ids = corpus.ids

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        for query in queries:
            ids = (query.candidates or self.ids)[:20]
            evidence = tuple(Evidence(identifier, float(-rank)) for rank, identifier in enumerate(ids))
            yield Prediction(query.id, query.text[:20], evidence, Usage(seconds={"read": 0.0}))


class Quiet:
    def begin(self, task: Task, done: int) -> None: ...
    def stage(self, task: Task, name: str) -> None: ...
    def advance(self, task: Task, questions: int, *, failed: int = 0, dollars: float = 0.0) -> None: ...
    def end(self, task: Task, status: str, message: str | None) -> None: ...


def seconds(questions: int, clock: Callable[[], float] = time.perf_counter) -> tuple[float, int, int]:
    """Measure answering and scoring; return the seconds, the number of answered questions and the number of metrics."""
    text = f"""
name: overhead
benchmarks:
  - id: worlds/multihop
    split: test
    setting: distractor
    config: {{questions: {questions}, worlds: {max(1, questions // 100)}}}
methods: [{{id: perf_instant}}]
"""
    tasks = tasks_of(experiment.parse(text, "overhead"))
    for task in tasks:
        # Fingerprints are of the data, not of a question; they are taken once, before the clock starts.
        task.run  # noqa: B018
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        started = clock()
        (outcome,) = execute(states(tasks, store), store, Services(), Quiet())
        spent = clock() - started
    if outcome.error:
        raise outcome.error
    return spent, outcome.answered, len(tasks[0].loaded.metrics)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 0 if the target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    wall, answered, metrics = seconds(parser.parse_args(argv).questions)
    bench = Bench("overhead")
    remark = f" ({answered} questions, {metrics} metrics, durable)"
    bench.figure("a question", 1000 * wall / answered, "ms", at_most=TARGET_MS, remark=remark)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
