"""Stores with chosen scores, so that the right content of a board is known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import Metric, MetricEntry
from methods.api import FAILED, Prediction, Usage
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

Row = ArrayLike | Mapping[str, ArrayLike]
"""Scores of one metric, `em`, or of several by name; NaN is unscorable."""


@dataclass
class Planted:
    """A store with methods of chosen scores.

    Attributes:
        folder: Folder of the store.
        better: Direction, range and unit by metric; other metrics are fractions.
        kinds: Kind by method, such as `control`; others are methods.
        origins, descriptions: Origin and description of runs by method; by default, run here and described by name.
        failing: Methods that fail on every question.
        positive: Methods that are declared positive controls.
    """

    folder: Path
    better: Mapping[str, tuple[bool, float | None, float | None, str]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failing: Sequence[str] = ()
    positive: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.store = Store(self.folder)
        self._numbers = itertools.count()

    def experiment(self, name: str, scores: Mapping[str, Mapping[str, Row]], reference: str | None = None, seed: int = 0) -> None:
        """Store an experiment: scores by dataset and method."""
        runs: dict[str, str] = {}
        columns: list[str] = []
        for dataset, methods in scores.items():
            tables = {method: row if isinstance(row, Mapping) else {"em": row} for method, row in methods.items()}
            columns += [metric for row in tables.values() for metric in row if metric not in columns]
            self.store.put_cards([], [self._metric(metric) for metric in columns])
            count = max((len(np.atleast_1d(row)) for table in tables.values() for row in table.values()), default=0)
            questions = [Question(f"{dataset}-{n}", f"what {n}?", ("a",)) for n in range(count)]
            world = Benchmark(DataReference(dataset, None, "dev"), 1, CARD, questions, Corpus.of([]))
            self.store.put_benchmark(world, world.fingerprint)
            for method, table in tables.items():
                run = self._run(world, dataset, method, table, seed)
                runs[run] = method
        metrics = [[f"{metric}#v1" for metric in columns]] * len(runs)
        source = f"name: {name}" + (f"\npositive_controls: [{', '.join(self.positive)}]" if self.positive else "")
        self.store.put_experiment(name, source, None, None, reference, list(runs), names=list(runs.values()), metrics=metrics)

    def _run(self, world: Benchmark, dataset: str, method: str, table: Mapping[str, ArrayLike], seed: int) -> str:
        run = f"{next(self._numbers):02x}".ljust(16, "0")
        description = self.descriptions.get(method, {"method": {"id": method, "config": {}}})
        kind, where = self.kinds.get(method, "method"), (f"{dataset}:dev", world.fingerprint, "distractor", seed)
        origin, questions = self.origins.get(method, "run"), world.questions
        self.store.start(Run(run, method, f"id {method}"[:60], kind, description, *where, len(questions), {}, origin=origin))
        notes = {FAILED: "RuntimeError: none"} if method in self.failing else {}
        answers = [
            Prediction(q.id, "" if notes else f"{method} {q.id}", (), Usage(100, 5, seconds={"read": 0.1}), notes) for q in questions
        ]
        self.store.append(run, answers, {f"{name}#v1": np.asarray(row, np.float64) for name, row in table.items()})
        self.store.end(run, FINISHED)
        return run

    def _metric(self, name: str) -> Metric:
        class Fixed(Metric):
            def __str__(self) -> str:
                return f"{name}#v1"

        higher, low, high, unit = self.better.get(name, (True, 0.0, 1.0, "fraction"))
        none = lambda batch: np.zeros(len(batch))  # noqa: E731
        return Fixed(MetricEntry(name, 1, "Planted.", none, (), low, high, higher, ("answer",), "made up", "answer", unit=unit), {})
