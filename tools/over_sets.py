"""Test methods over several experiments that each train on all datasets but the one that they ask about.

Each experiment trains its own checkpoints under the same names, so the questions of all of them are asked to models that were not
trained on their dataset. Every benchmark is a stratum of the pooled test (`results.statistics.pooled`) with equal weight; a question
that two benchmarks ask in different styles counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from results.boards.board import groups
from results.boards.folded import Folded
from results.boards.matrix import Column, kin_of, size_of, wanted_of
from results.boards.names import is_called
from results.boards.systems import Figures, figures
from results.boards.tables import labels, stars
from results.boards.unread import range_of_metric
from results.errors import counted
from results.statistics.difference import CLAIM_CLUSTERS
from results.statistics.holm import holm_levels
from results.statistics.pooled import Stratum, pilot, pooled
from results.store import queries
from results.store.queries import RunRow
from results.store.store import Store
from results.store.variants import style_of_name

CLAIM_SEEDS = 3


def rows_over(store: Store, experiments: Sequence[str], heads: Sequence[str], base: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the pooled difference of each method from a base, per metric, as rows of gains; values are fractions.

    Every side counts with as many trainings as the experiment with the fewest has, the first ones.

    Args:
        store: The store with the experiments' scores.
        experiments: Names of the experiments.
        heads: Names of metrics in tables.
        base: Name of the row that others are compared with.
        names: Names of the rows that are compared; their p-values are Holm-corrected together.

    Raises:
        ValueError: An experiment lacks one of the rows or metrics.
    """
    folded = Folded.of([runs for name in experiments for runs in groups(queries.runs(store, name))], {}, {})
    chosen = [[_named(runs, name) for name in (base, *names)] for runs in folded.groups]
    seeds = min(len(folded.series[run.run]) for runs in chosen for run in runs)
    series = {run.run: folded.series[run.run][:seeds] for runs in chosen for run in runs}
    for head in heads:
        columns = [Column(str(at), tuple(runs), _metric(runs, head)) for at, runs in enumerate(chosen)]
        known = figures(store, wanted_of(columns, series))
        kin = kin_of(columns, known)
        strata = [_stratum(known[column.key], [run.run for run in column.runs], kin[column.key]) for column in columns]
        questions, clusters = size_of(columns, known, kin)
        results = pooled(strata)
        levels = holm_levels(np.array([result.p for result in results]))
        for row, (name, result, level) in enumerate(zip(names, results, levels, strict=True)):
            alone = pilot([Stratum([s.candidates[row]], [s.references[row]], s.questions, s.clusters, s.kin, s.metric) for s in strata])
            significant = bool(stars(result.p_holm))
            least = float(alone.detectable(level=level)[0])
            against = {"method": f"{base} ({counted(seeds, 'seed')})", "value": result.value, "low": result.low, "high": result.high}
            mean = float(np.mean([np.nanmean(part.candidates[row].mean) for part in strata]))
            yield {
                "approach": name,
                "asked": f"{_asked(columns)}, {counted(questions, 'question')} in {counted(clusters, 'cluster')}",
                "metric": head,
                "scale": 100.0,
                "value": {"value": mean, "low": None, "high": None, "n": questions},
                "base": {**against, "n": questions, "clusters": clusters, "p_holm": result.p_holm, "detectable": least},
                "strongest": None,
                "beats": significant and result.value > 0 and clusters >= CLAIM_CLUSTERS and seeds >= CLAIM_SEEDS,
                "why": "" if significant else f"the interval includes 0; minimum detectable difference {100 * least:.1f} (80 % power)",
            }


def _named(runs: Sequence[RunRow], name: str) -> RunRow:
    for run in runs:
        if is_called(run.method, name):
            return run
    raise ValueError(f"{runs[0].experiment} has no row {name!r}")


def _metric(runs: Sequence[RunRow], head: str) -> str:
    for metric, shown in labels(runs[0].metrics or ()).items():
        if shown == head:
            return metric
    raise ValueError(f"{runs[0].experiment} has no metric {head!r}")


def _stratum(known: Figures, runs: Sequence[str], kin: int) -> Stratum:
    base, *others = (known.sides[known.runs[run]] for run in runs)
    return Stratum(others, [base] * len(others), known.question_ids, known.sampled.labels, kin, range_of_metric(known.definition))


def _asked(columns: Sequence[Column]) -> str:
    """Name the datasets, and once the styles that all are in: `a:dev, b:dev, informal evidence and informal distractors`."""
    known = [style_of_name(column.first.dataset) for column in columns]
    bases = ", ".join(dict.fromkeys(how.base.partition("(")[0] for how in known))
    styles = " and ".join(dict.fromkeys(how.name for how in known))
    return ", ".join(filter(None, (bases, styles)))
