"""A small store with several benchmarks and every kind of cell, for tests of the matrix.

Two settings; a control, a run in progress, inconsistent scores, submissions with and without facts on their cards, a
verified one, contaminated training data, and a name that is a formula and markup. Never shown as a result.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Question
from judges.metric import Metric, MetricEntry
from results.store.rows import insert, insert_scores
from results.store.store import FINISHED, RUNNING, Store
from results.store.variants import style_of_name

EXPERIMENT = "several"
REFERENCE = "bm25"
EVIL = "=cmd|' /C calc'!A0 <script>window.pwned=1</script>"
EM, RECALL = "em#v2", "recall@5#v2"
QUESTIONS = 60
DATASETS = ("hotpotqa:dev", "musique:dev", "nq:test")


def _metric(identifier: str, definition: str, group: str) -> Metric:
    class Fixed(Metric):
        def __str__(self) -> str:
            return identifier

    entry = MetricEntry(identifier, 1, definition, lambda batch: np.zeros(len(batch)), (), 0.0, 1.0, True, ("answer",), "made up", group)
    return Fixed(entry, {})


def _card(name: str, parameters: int | None, open_weights: bool | None, trained: str, results: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a submission's card as stored; `found` is the detected contamination, with the dataset in each entry."""
    return {
        "method": {"name": name, "parameters": parameters, "open_weights": open_weights},
        "models": [{"role": "reader", "id": f"{name}-8b"}],
        "training_data": [{"reference": trained, "name": ""}],
        "submission": {"contamination": list(results)},
    }


# name, id, kind, skill, origin, status, card
METHODS: list[tuple[str, str, str, float, str, str, dict[str, Any] | None]] = [
    ("bm25", "bm25", "retriever", 0.50, "run", FINISHED, None),
    ("dense", "dense", "retriever", 0.55, "run", FINISHED, None),
    ("strong", "pipeline", "method", 0.90, "run", FINISHED, None),
    (EVIL, "evil", "method", 0.40, "run", FINISHED, None),
    ("half way", "slow", "method", 0.80, "run", RUNNING, None),
    ("trained on it", "leaky", "method", 0.95, "run", FINISHED, None),
    ("sent@1", "submitted:sent", "method", 0.88, "submitted", FINISHED, _card("sent", 8_030_000_000, True, "hotpotqa:train")),
    ("proven@2", "submitted:proven", "method", 0.60, "verified", FINISHED, _card("proven", 500_000_000, False, "nq:train")),
    (
        "cheat@1",
        "submitted:cheat",
        "method",
        0.99,
        "submitted",
        FINISHED,
        _card("cheat", None, None, "musique:dev", ("training data 1 (musique:dev) covers the evaluated split dev",)),
    ),
    ("gold answer", "gold_answer", "control", 1.0, "run", FINISHED, None),
]


def fill(folder: Path) -> Store:
    """Fill a store with three benchmarks in one setting and one of them in a second; `strong` was not run on the last."""
    store = Store(folder)
    store.put_cards([], [_metric(EM, "Equality.", "answer"), _metric(RECALL, "Share found.", "retrieval")])
    with store.database.writing() as connection:
        connection.execute(
            "INSERT INTO methods VALUES ('leaky', 1, ?), ('dense', 1, ?)",
            [json.dumps({"id": "leaky", "training_data": ["nq"]}), json.dumps({"id": "dense", "training_data": ["hotpotqa:train"]})],
        )
    runs: list[str] = []
    worlds = [_benchmark(name) for name in DATASETS]
    for world in worlds:
        store.put_benchmark(world, world.fingerprint)
    with store.database.writing() as connection:
        for position, world in enumerate(worlds):
            for setting in ("distractor", "oracle") if position == 0 else ("distractor",):
                for number, row in enumerate(METHODS):
                    if not (position == 2 and row[0] == "strong") and not (setting == "oracle" and number > 2):
                        runs.append(_run(connection, world, setting, position, number, *row))
            connection.execute(
                "INSERT INTO violations SELECT run, 'recall@1 is greater than recall@5' FROM runs "
                "WHERE method = 'proven@2' AND dataset = 'musique:dev' AND dataset = ?",
                [str(world.reference)],
            )
        connection.execute("""INSERT INTO summaries BY NAME SELECT run, metric, count(*) AS scored, count(value) AS n,
            avg(value) AS mean, var_samp(value) AS variance, 0 AS unscored FROM scores GROUP BY 1, 2""")
    store.put_experiment(EXPERIMENT, "name: several\n", None, None, REFERENCE, runs)
    return store


def _benchmark(name: str) -> Benchmark:
    queries = [Question(f"{name}-{n}", f"what {n}?", ("a",)) for n in range(QUESTIONS)]
    card = DatasetCard(
        title=name,
        task="QA",
        description="made up",
        hub_id=None,
        revision=None,
        license="CC0",
        citation="none",
        languages=("en",),
        splits={name.partition(":")[2]: QUESTIONS},
        metrics=("em",),
        settings=("distractor",),
    )
    return Benchmark(DataReference.parse(name), 1, card, queries, Corpus.of([]))


def _run(
    connection: duckdb.DuckDBPyConnection,
    world: Benchmark,
    setting: str,
    position: int,
    number: int,
    name: str,
    method_id: str,
    kind: str,
    skill: float,
    origin: str,
    status: str,
    card: dict[str, Any] | None,
) -> str:
    """Write a run like the store does, but all runs in one transaction, which takes a tenth of the time."""
    run = f"{number:02x}{position:02x}{setting[:2].encode().hex()}".ljust(16, "0")
    model = {"id": "pocket", "config": {"model": f"reader-{number % 2}"}}
    described = {"submission": name} if card else {"method": {"id": method_id, "config": {}}, "reader": model}
    if card:
        kept = [item for item in card["submission"]["contamination"] if str(world.reference) in item]
        card = card | {"submission": {"contamination": kept}}
    day = datetime(2026, 3, 1 + number)
    insert(connection, "runs", {
        "run": [run], "method": [name], "method_id": [method_id], "kind": [kind],
        "description": [json.dumps(described)], "dataset": [str(world.reference)],
        "dataset_fingerprint": [world.fingerprint],
        "setting": [setting], "seed": np.array([0]), "questions": np.array([QUESTIONS]), "status": [status],
        "started_at": [day.isoformat()], "updated_at": [day.isoformat()], "provenance": ["{}"], "origin": [origin],
        "card": [json.dumps(card) if card else None],
        **{name: [value] for name, value in style_of_name(str(world.reference)).row().items()},
    })  # fmt: skip
    done = QUESTIONS // 2 if status == RUNNING else QUESTIONS
    difficulty = np.random.default_rng(position).random(QUESTIONS)
    rng = np.random.default_rng(100 * position + number)
    right = (0.7 * difficulty + 0.3 * rng.random(QUESTIONS) < skill).astype(float)
    right[3] = np.nan if position == 1 else right[3]
    result = np.minimum(right + 0.1 * rng.random(QUESTIONS), 1.0)
    queries = [question.id for question in world.questions[:done]]
    each = {"run": [run] * done, "question": queries}
    insert(connection, "predictions", each | {"answer": ["x"] * done, "notes": ["{}"] * done})
    insert(
        connection,
        "usage",
        each
        | {
            "prompt_tokens": [100 * number] * done,
            "completion_tokens": [5] * done,
            "memory_tokens": [0] * done,
            "model_calls": [1] * done,
            "seconds": [0.01 * (number + 1)] * done,
            "stages": ["{}"] * done,
            "peak_memory_bytes": [0] * done,
            "cost_usd": [0.001 * number] * done,
        },
    )
    insert_scores(connection, run, queries, {EM: right[:done], RECALL: result[:done]})
    return run


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
