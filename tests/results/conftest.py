"""Small stores that several tests look into."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.fingerprint import content_hash
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question, passage_id
from judges.metric import METRICS, parse
from judges.score import score
from methods.api import FAILED, Evidence, Prediction, Usage
from results.store import queries
from results.store.queries import RunRow
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

Fill = Callable[..., dict[str, RunRow]]
"""See `filled`."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Fills a new store by a function of a store and arguments: equal ones once for a test run, from then on by a copy."""
    made: dict[str, tuple[Path, Any]] = {}

    def fill(store: Store, *arguments: Any, by: Callable[..., Any], **options: Any) -> Any:
        if store.database.exists:
            return by(store, *arguments, **options)
        key = f"{by.__module__} {by.__name__} {arguments} {options}"
        if key not in made:
            new = Store(tmp_path_factory.mktemp("once"))
            result = by(new, *arguments, **options)
            with new.database.alone() as path:
                made[key] = shutil.copy(path, new.folder.with_suffix(".duckdb")), result
        store.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(made[key][0], store.database.path)
        return made[key][1]

    return fill


@pytest.fixture
def fill(once: Callable[..., Any]) -> Fill:
    def fill(store: Store, *arguments: Any, **options: Any) -> dict[str, RunRow]:
        metrics = [parse(metric).entry.id for metric in options.get("metrics", ())]
        if all(METRICS.source(metric).startswith("judges.") for metric in metrics):
            return once(store, *arguments, by=filled, **options)  # type: ignore[no-any-return]
        return filled(store, *arguments, **options)  # a test's own metric is another one in the next test

    return fill


def filled(
    store: Store,
    responses: Mapping[str, Sequence[str | None]],
    golds: Sequence[str],
    *,
    kinds: Mapping[str, str] | None = None,
    documents: Sequence[str | None] | None = None,
    metrics: Sequence[str] = ("em",),
    reference: str | None = None,
) -> dict[str, RunRow]:
    """A store with one benchmark, on which methods have answered.

    Args:
        store: Where.
        said: By method, the answers; None where it failed.
        golds: Of the questions `q0`, `q1` …; "" is a question without one.
        kinds: Of methods that are no retrievers.
        documents: Of the questions.
        metrics: Scored and shown.
        reference: Of the experiment, which is called `toy`.

    Returns:
        The runs by method.
    """
    passages = [Passage(passage_id("T", f"{n}: {gold}"), "T", f"{n}: {gold}") for n, gold in enumerate(golds)]
    questions = [
        Question(
            f"q{n}", f"what {n}?", (gold,) if gold else (), evidence=(passages[n].id,), document_id=documents[n] if documents else None
        )
        for n, gold in enumerate(golds)
    ]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of(passages))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    wanted = [parse(metric) for metric in metrics]
    store.put_cards([], wanted)
    names = {method: content_hash([method]) for method in responses}
    for method, answers in responses.items():
        kind = (kinds or {}).get(method, "retriever")
        run = Run(names[method], method, method, kind, {"k": 1}, "toy:dev", benchmark.fingerprint, "distractor", 0, len(golds), {})
        store.start(run)
        predictions = [
            Prediction(
                q.id,
                answer or "",
                (Evidence(passages[n].id, 1.0),),
                Usage(10, 2, seconds={"read": 0.5}),
                {FAILED: "timeout"} if answer is None else {},
            )
            for n, (q, answer) in enumerate(zip(questions, answers, strict=True))
        ]
        scores = score(questions, predictions, wanted) if wanted else {}
        store.append(run.run, predictions, {name: np.asarray(column) for name, column in scores.items()}, passages)
        store.end(run.run, FINISHED)
    shown = [[str(metric) for metric in wanted]] * len(responses)
    store.put_experiment("toy", "name: toy", None, None, reference, list(names.values()), names=list(responses), metrics=shown)
    return {row.method: row for row in queries.runs(store, "toy")}
