"""Read the verdicts of an experiment, or of two runs, from a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from results.boards.board import groups
from results.boards.folded import Folded
from results.boards.matrix import Column, matrix, ranked_cells, wanted_of
from results.boards.names import is_called
from results.boards.primary import Primary, primary_of
from results.boards.systems import Wanted, figures, scored_metrics, systems
from results.boards.tables import labels
from results.boards.verdict import BoardVerdict, Entrant, Place, decide, matrix_verdicts
from results.store import cost_queries, queries, score_queries
from results.store.checkpoints import known_checkpoints
from results.store.invariants import violations
from results.store.provenance import cards
from results.store.queries import RunRow
from results.store.store import Store

MANY = 60
"""Maximum number of metrics over all benchmarks for which a terminal prints each verdict, because all pairs of methods are tested."""


def verdicts(
    store: Store, experiment: str | None, *, metrics: Collection[str] | None = None, reference: str | None = None, most: int | None = None
) -> list[BoardVerdict]:
    """Compute the verdicts of an experiment on every metric that it shows; all seeds of a method count as one.

    Of all runs in the store together, there is none over several benchmarks, and seeds are separate entrants.
    First come those by the main metric of each benchmark (`main_metric`), the suite before its benchmarks; then those by
    each other metric, in the experiment's order.

    Args:
        store: The store to read.
        experiment: Name of the experiment; None uses all runs in the store.
        metrics: Metric ids to consider; None uses the experiment's metrics.
        reference: Name of the reference method; None uses the experiment's.
        most: If there are more metrics than this, only the main metric of each benchmark is used; None uses all.
    """
    stored = queries.experiment(store, experiment) if experiment is not None else None
    definitions, data, declared = score_queries.definitions(store), queries.datasets(store), primary_of(stored) if stored else None
    every = groups(queries.runs(store, experiment))
    ids = [run.run for runs in every for run in runs]
    scored = scored_metrics(store, ids)
    folded = Folded.of(every, cost_queries.costs(store, ids), violations(store, ids), over_seeds=stored is not None)
    shown_on = [_shown(runs, scored, metrics) for runs in folded.groups]
    mains = [
        main_metric(runs, shown, data.get(runs[0].dataset_fingerprint, {}).get("card", {}), declared)
        for runs, shown in zip(folded.groups, shown_on, strict=True)
    ]
    tables = [list(enumerate(mains))]
    every_metric = dict.fromkeys(metric for shown in shown_on for metric in shown)
    for metric in every_metric if most is None or sum(map(len, shown_on)) <= most else ():
        tables.append([(at, metric) for at, shown in enumerate(shown_on) if metric in shown and metric != mains[at]])
    sets = [
        [
            Column(f"{at} {metric}", tuple(folded.groups[at]), metric, bool(definitions.get(metric, {}).get("higher_is_better", True)))
            for at, metric in table
            if metric is not None
        ]
        for table in tables
    ]
    wanted = wanted_of([column for columns in sets for column in columns], folded.series)
    known, learned = figures(store, wanted), (cards(store), known_checkpoints(store))
    results, base = [], reference or (stored.reference if stored else None)
    names = labels(list(every_metric))
    for columns in filter(None, sets):
        rows = systems({column.key: column.runs for column in columns}, *learned)
        cells = ranked_cells(columns, rows, known, cards=learned[0], known=learned[1], violations=folded.violations)
        other = next((row.name for row in rows if not row.control and base and is_called(row.name, base)), None)
        whole = matrix(columns, rows, known, cells, costs=folded.costs, reference=other)
        results += [
            item
            for item in matrix_verdicts(whole, known, definitions, names)
            if not item.place.suite or (stored is not None and len(columns) == len(folded.groups))
        ]
    return results + [_unscored(runs) for runs, metric in zip(folded.groups, mains, strict=True) if metric is None]


def _unscored(runs: Sequence[RunRow]) -> BoardVerdict:
    """Return the verdict on a benchmark without any scored question."""
    first = runs[0]
    named = next((labels([metric])[metric] for run in runs for metric in run.metrics or ()), "any metric")
    place = Place(((first.dataset, first.setting),), None, named, fingerprints=(first.dataset_fingerprint,), seed=first.seed)
    return BoardVerdict(place, left_out={run.method: "no question could be scored" for run in runs if run.kind != "control"})


def _shown(runs: Sequence[RunRow], scored: Mapping[str, Sequence[str]], metrics: Collection[str] | None) -> list[str]:
    """Return the chosen metrics, or those that an experiment shows, if any of them has values."""
    there = dict.fromkeys(metric for run in runs for metric in scored.get(run.run, ()))
    named = dict.fromkeys(metrics) if metrics is not None else dict.fromkeys(metric for run in runs for metric in run.metrics or there)
    return [metric for metric in named if metric in there]


def main_metric(runs: Sequence[RunRow], metrics: Sequence[str], card: Mapping[str, Any], primary: Primary | None) -> str | None:
    """Choose the deciding metric, of verdicts and of boards: the primary one, else the experiment's first, else the dataset's official one.

    Args:
        runs: Runs of one benchmark; if one belongs to no experiment, the official metric comes before the order of `metrics`.
        metrics: Ids of the metrics to choose from, in the experiment's order.
        card: The dataset's card, with its official metrics without versions, the main one first.
        primary: The experiment's declaration.

    Returns:
        Id of the metric; None without metrics.
    """
    declared = None if primary is None else primary.of(tuple(metrics))
    official = next(iter(card.get("metrics", ())), None) if any(run.metrics is None for run in runs) else None
    own = (metric for metric in metrics if official in (metric, metric.partition("#")[0]))
    return declared or next(own, None) or next(iter(metrics), None)


def runs_verdict(store: Store, named: Mapping[str, Sequence[RunRow]], metric: str) -> BoardVerdict:
    """Compute the verdict on a few methods of one benchmark by one metric, for example the two sides of a gate.

    Args:
        store: The store to read.
        named: Runs by method name: the first run represents the method, the others are its seeds and repeats.
        metric: Id of the metric.
    """
    first = next(iter(named.values()))[0]
    series = {runs[0].run: tuple(run.run for run in runs) for runs in named.values()}
    experiments = frozenset(run.experiment for runs in named.values() for run in runs)
    wanted = Wanted("runs", first.dataset_fingerprint, tuple(series), metric, series, experiments)
    known, definitions = figures(store, [wanted])[wanted.key], score_queries.definitions(store)
    costs, (low, high) = cost_queries.costs(store, list(series)), known.means.interval()
    entrants = []
    for name, runs in named.items():
        at, cost = known.runs[runs[0].run], costs.get(runs[0].run)
        numbers = float(known.means.value[at]), float(low[at]), float(high[at]), int(known.means.n[at])
        entrants.append(Entrant(name, *numbers, failed=sum(run.failed for run in runs), cost=cost, position=at))
    place = Place(
        ((first.dataset, first.setting),),
        metric,
        labels([metric])[metric],
        bool(definitions.get(metric, {}).get("higher_is_better", True)),
        score_queries.scale_of(metric, definitions),
        known.questions,
        known.sampled.count(known.questions),
        known.sampled.kind,
        (first.dataset_fingerprint,),
    )
    return decide(place, entrants, known)
