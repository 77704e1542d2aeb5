"""Scores of many benchmarks in one reading: what the cells of a method × dataset matrix are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results.stated_costs import unstated
from results.statistics.bootstrap import alike, units_of
from results.statistics.closed_form import Moments, all_differences, means
from results.statistics.core import Clusters, Floats, doubt_about_mean
from results.store import Store

COST = "cost"
"""The family of what answers took; its figures come from usage, not from scores."""
COSTS: dict[str, dict[str, Any]] = {
    name: {
        "definition": text,
        "low": 0.0,
        "high": None,
        "higher_is_better": False,
        "group": COST,
        "source": source,
        "judge": None,
        "unit": "number",
    }
    for name, text, source in (
        ("tokens", "Prompt, completion and memory tokens per question.", "recorded with every answer"),
        ("seconds", "Wall time per question over all stages; machines differ.", "recorded with every answer"),
        ("dollars", "Price of the calls per question; local models cost nothing.", "recorded with every answer"),
    )
}
"""What is known of each cost, as `queries.definitions` knows metrics."""

_FIELD = {"tokens": "prompt_tokens", "seconds": "seconds", "dollars": "cost_usd"}
"""A field of usage that is unknown where the cost is."""
_SPENT = {"tokens": "u.prompt_tokens + u.completion_tokens + u.memory_tokens", "seconds": "u.seconds", "dollars": "u.cost_usd"}
_SCORES = """SELECT w.column_place, w.place, q.position, s.value, s.unscored IS NOT NULL AS unscored
FROM scores s JOIN wanted w ON w.run = s.run AND w.metric = s.metric
JOIN questions q ON q.question = s.question AND q.dataset_fingerprint = w.data"""
_USAGE = """SELECT w.column_place, w.place, q.position, CASE WHEN w.known THEN {value} END AS value, false AS unscored
FROM usage u JOIN wanted w ON w.run = u.run AND w.metric = '{metric}'
JOIN questions q ON q.question = u.question AND q.dataset_fingerprint = w.data"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read of one benchmark.

    Attributes:
        key: The column's.
        dataset_fingerprint: Of its questions.
        runs: Fingerprints.
        metric: Id, or one of `COSTS`.
        series: By run, the runs of all training seeds that it stands for; a question counts with their mean, and has
            none where one of them has none. A run that is not named stands for itself.
    """

    key: str
    dataset_fingerprint: str
    runs: tuple[str, ...]
    metric: str
    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def members(self, run: str) -> tuple[str, ...]:
        """The runs that a run stands for."""
        return self.series.get(run, (run,))

    @property
    def content(self) -> tuple[str, str, tuple[tuple[str, ...], ...]]:
        """What its figures depend on: columns of other tables that are equal in it have the same."""
        return self.dataset_fingerprint, self.metric, tuple(self.members(run) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Figures:
    """What runs are worth on one benchmark; arrays are of shape (runs,), not to be changed.

    Attributes:
        runs: Place of each by its fingerprint.
        means: Their means.
        pairs: Paired differences, shape (runs, runs).
        scored: Questions that have a row, with or without a value.
        unscored: Questions that a judge gave no value.
        doubts: Why an interval may not cover as it says; empty where it does.
        questions: Of the benchmark.
        clustered: Whether units are documents, because questions share them.
        asked: Ids of the questions.
    """

    runs: Mapping[str, int]
    means: Moments
    pairs: Moments
    scored: NDArray[np.int64]
    unscored: NDArray[np.int64]
    doubts: tuple[str, ...]
    questions: int
    clustered: bool
    asked: frozenset[str] = frozenset()


def scored_metrics(store: Store, runs: Iterable[str]) -> dict[str, list[str]]:
    """Ids of the metrics that each run has values of, in the order in which they were written.

    A metric of which every question is unscorable has none; one that a judge gave no value yet may get some.
    """
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT run, list(metric ORDER BY rowid) FROM summaries
               WHERE list_contains(?, run) AND n + coalesce(unscored, 0) > 0 GROUP BY run""",
            [list(runs)],
        ).fetchall()
    return dict(rows)


def figures(store: Store, wanted: Sequence[Wanted]) -> dict[str, Figures]:
    """What every wanted column holds, by its key; one query for all of them."""
    if not wanted:
        return {}
    with store.database.reading() as connection:
        asked = connection.execute(
            """SELECT dataset_fingerprint, list(document_id ORDER BY position), list(question) FROM questions
               WHERE list_contains(?, dataset_fingerprint) GROUP BY 1""",
            [[column.dataset_fingerprint for column in wanted]],
        ).fetchall()
        documents = {data: (list(labels), frozenset(ids)) for data, labels, ids in asked}
        costly = [column for column in wanted if column.metric in _SPENT]
        members = [member for column in costly for run in column.runs for member in column.members(run)]
        connection.register("wanted", _request(wanted, unstated(connection, members) if members else {}))
        spent = [metric for metric in _SPENT if any(column.metric == metric for column in wanted)]
        queries = [_USAGE.format(value=_SPENT[metric], metric=metric) for metric in spent]
        table = connection.execute(" UNION ALL ".join([_SCORES, *queries])).fetchnumpy()
    order = np.argsort(table["column_place"], kind="stable")
    rows = {name: np.ma.filled(np.ma.asarray(values), np.nan if name == "value" else 0)[order] for name, values in table.items()}
    ends = np.searchsorted(rows["column_place"], np.arange(len(wanted) + 1))
    found = {}
    for place, column in enumerate(wanted):
        part = {name: values[ends[place] : ends[place + 1]] for name, values in rows.items()}
        found[column.key] = _figures(column, *documents.get(column.dataset_fingerprint, ([], frozenset())), part)
    return found


def _request(wanted: Sequence[Wanted], unknown: Mapping[str, frozenset[str]]) -> pa.Table:
    """One row a run and metric, numbered by column and by place within it; costs that are not known marked."""
    rows = [
        (number, place, member, column.metric, column.dataset_fingerprint, _FIELD.get(column.metric) not in unknown.get(member, ()))
        for number, column in enumerate(wanted)
        for place, run in enumerate(column.runs)
        for member in column.members(run)
    ]
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [[], [], [], [], [], []]
    types = (pa.int32(), pa.int32(), pa.string(), pa.string(), pa.string(), pa.bool_())
    names = ("column_place", "place", "run", "metric", "data", "known")
    return pa.table({name: pa.array(values, kind) for name, values, kind in zip(names, columns, types, strict=True)})


def _figures(column: Wanted, labels: Sequence[str | None], asked: frozenset[str], rows: Mapping[str, NDArray[Any]]) -> Figures:
    runs = {run: place for place, run in enumerate(column.runs)}
    shape = (len(runs), len(labels))
    cells = np.ravel_multi_index((rows["place"].astype(np.int64), rows["position"].astype(np.int64)), shape)
    seeds = np.array([len(column.members(run)) for run in column.runs], dtype=np.int64)[:, None]
    # A sum that lacks a seed, or holds a NaN, is no score.
    whole = _count(cells, shape) == seeds
    scores = np.where(whole, _count(cells, shape, rows["value"]) / seeds, np.nan)
    clusters: Clusters = labels if any(labels) else None
    return Figures(
        runs,
        means(scores, clusters=clusters),
        all_differences(scores, clusters=clusters),
        whole.sum(axis=1),
        (whole & (_count(cells, shape, rows["unscored"].astype(np.float64)) > 0)).sum(axis=1),
        _doubts(scores, clusters),
        len(labels),
        clusters is not None,
        asked,
    )


def _count(cells: NDArray[np.int64], shape: tuple[int, int], weights: Floats | None = None) -> NDArray[Any]:
    return np.bincount(cells, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)


def _doubts(scores: Floats, clusters: Clusters) -> tuple[str, ...]:
    found = [""] * len(scores)
    missing = np.isnan(scores)
    for rows in alike(missing):
        kept = ~missing[rows[0]]
        present = scores[np.ix_(rows, kept)]
        units = units_of(present, clusters, kept)
        support, skew = units.support, units.skew
        for place, row in enumerate(rows):
            if support.n:
                found[row] = doubt_about_mean(present[place], support, float(skew[place]))
    return tuple(found)
