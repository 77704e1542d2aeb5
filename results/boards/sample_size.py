"""Estimate from two pilot runs how many questions and trainings detect a difference between their methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.core.errors import UserError
from results.boards.diff import why_unpaired
from results.boards.markup import plain
from results.boards.series import side_by_side
from results.boards.sides import sides
from results.boards.unread import range_of_metric
from results.statistics.core import Difference
from results.statistics.difference import AtBothEnds, compared
from results.statistics.gate import clusters_needed
from results.statistics.intervals import differences_of
from results.statistics.planning import Needed, needed, seeds_needed
from results.statistics.tested import POWER
from results.store import score_queries
from results.store.checkpoints import known_checkpoints
from results.store.queries import RunRow
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Planned:
    """Sample size that detects a difference on one metric, estimated from a pilot's variances.

    Attributes:
        metric: Id of the metric.
        effect: The true difference to detect.
        power: Probability of detecting it.
        kind: Kind of cluster, for example "document".
        pilot: Observed difference of the two pilot runs.
        clusters: Number of clusters needed with the pilots' seeds and repeats; None if no number suffices or the
            pilots' variance is unknown.
        scale: Factor for displaying values.
        others: The sample size with other numbers of seeds and repeats; empty if the pilots have one of each.
        seeds: Number of trainings of each trained method needed on the pilot's questions; None if no number suffices,
            or no method was trained several times.
    """

    metric: str
    effect: float
    power: float
    kind: str
    pilot: Difference
    clusters: int | None
    scale: float = 100.0
    others: tuple[Needed, ...] = ()
    seeds: int | None = None

    def questions_of(self, clusters: int | None) -> int | None:
        """Return how many questions this number of clusters contains, at the pilot's questions per cluster; None for None."""
        return None if clusters is None else math.ceil(clusters * self.pilot.n / self.pilot.clusters)

    @property
    def questions(self) -> int | None:
        """Return the number of questions in the needed clusters; None if no number suffices."""
        return self.questions_of(self.clusters)

    def to_json(self) -> dict[str, Any]:
        """Return the sample-size estimate as a JSON object."""
        return {name: getattr(self, name) for name in ("metric", "effect", "power", "kind", "clusters", "questions", "seeds")} | {
            "pilot": plain(asdict(self.pilot)),
            "others": [asdict(item) | {"questions": self.questions_of(item.clusters)} for item in self.others],
        }


def planned(
    store: Store, first: RunRow, second: RunRow, metrics: Sequence[str], effect: float, *, power: float = POWER, over_seeds: bool = False
) -> list[Planned]:
    """Estimate how many clusters are needed to detect a difference between two methods, from a pilot run of each (power
    analysis).

    Args:
        store: The store to read.
        first, second: The pilot runs, on the same questions; other repeats of each in its experiment are included.
        metrics: Ids, or their beginnings; empty: all metrics that both were scored on.
        effect: The true difference to detect, a fraction.
        power: Probability of detecting it.
        over_seeds: Whether the other trainings of each method in its experiment count, too.

    Raises:
        UserError: The runs used different data, or not both scored on a metric.
    """
    if (reason := why_unpaired(first, second)) is not None:
        raise UserError(reason, code="bad-power-plan", where=f"{first.path}, {second.path}", try_this="two runs of one benchmark")
    members = side_by_side(store, [first, second], over_seeds)
    runs = [run.run for rows in members.values() for run in rows]
    shown = score_queries.named_metrics(store, runs, metrics) if metrics else score_queries.metric_ids(store, runs)
    columns = score_queries.score_columns(store, first.dataset_fingerprint, runs, shown, {first.experiment, second.experiment})
    both = [metric for metric in shown if all((run, metric) in columns.values for run in runs)]
    if not both:
        raise UserError(
            "the two runs were not scored on a common metric",
            code="no-common-scored-metric",
            where=", ".join(shown) or None,
            try_this="ragmeter judge score",
        )
    known = score_queries.definitions(store)
    of = sides(store, columns, members, both, known, known_checkpoints(store))
    results = []
    for metric in both:
        pair = of[second.run, metric], of[first.run, metric]
        tested = compared([pair[0]], [pair[1]], clusters=columns.sampled.labels, metric=range_of_metric(known.get(metric, {})))
        (pilot,) = differences_of(tested)
        one = tested.plain if isinstance(tested, AtBothEnds) else tested
        # A variance of zero, or from too few clusters, does not predict other samples.
        able = not pilot.insufficient_data and not math.isnan(pilot.detectable) and pilot.clusters >= 2
        clusters = clusters_needed(one, effect, power=power) if able else None
        scale = score_queries.scale_of(metric, known)
        others = tuple(needed(one, pair, effect, power=power)) if able else ()
        seeds = seeds_needed(one, pair, effect, power=power) if able else None
        results.append(Planned(metric, effect, power, columns.sampled.kind, pilot, clusters, scale, others, seeds))
    return results
