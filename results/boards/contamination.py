"""Find test questions that the compared runs have read before, by name or by content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from results.boards.sides import sides
from results.boards.systems import CONTAMINATED, contaminated_by
from results.boards.tables import READ_UNKNOWN, labels, plus_minus
from results.boards.unread import range_of_metric
from results.boards.untouched import hits, read_before, touched_by_all, without
from results.statistics.intervals import compared_together
from results.store import provenance, score_queries
from results.store.checkpoints import known_checkpoints
from results.store.queries import RunRow
from results.store.store import Store
from results.store.training_data import Checkpoints, read_unknown


def read_lines(
    store: Store,
    runs: Sequence[RunRow],
    metrics: Sequence[str],
    names: Sequence[str] = (),
    members: Mapping[str, Sequence[RunRow]] | None = None,
) -> list[str]:
    """Report which benchmark questions occur in the training data of the runs, with the scores without those questions, one
    sentence each.

    Args:
        store: The store to read.
        runs: The compared runs. For two runs, the recomputed difference is added.
        metrics: Ids of the metrics that are recomputed without those questions.
        names: Names to use for the runs; empty uses the names of their methods.
        members: By run id, the run's repeats and seeds; None if each run is single.
    """
    known, cards, definitions = known_checkpoints(store), provenance.cards(store), score_queries.definitions(store)
    heads, scales = labels(metrics), {metric: score_queries.scale_of(metric, definitions) for metric in metrics}
    lines = []
    for name, run in zip(names or [run.method for run in runs], runs, strict=True):
        columns = score_queries.score_columns(store, run.dataset_fingerprint, [run.run], metrics)
        scores = {metric: columns.values[run.run, metric] for metric in metrics if (run.run, metric) in columns.values}
        read = None if run.kind == "control" else read_before([run], known, columns.questions, scores)
        own = [read.in_words(heads, scales)] if read is not None else []
        counted = () if read is None else (read.touched.in_words(run.questions),)
        own += [f"{CONTAMINATED}: {reason}" for reason in contaminated_by(run, cards, known) if reason not in counted]
        own += [READ_UNKNOWN] * read_unknown(run, known)
        lines += [f"{name}: {line}" for line in own]
    if len(runs) == 2 and runs[0].dataset_fingerprint == runs[1].dataset_fingerprint:
        lines += _differences(store, members or {run.run: [run] for run in runs}, metrics, known)
    return lines


def _differences(store: Store, members: Mapping[str, Sequence[RunRow]], metrics: Sequence[str], known: Checkpoints) -> list[str]:
    """Describe, in one line, the differences over the questions that neither training contained."""
    every = [run for side in members.values() for run in side]
    touched = touched_by_all([run for run in every if run.kind != "control"], known)
    if not touched.questions:
        return []
    first, second = members
    experiments, definitions = {run.experiment for run in every}, score_queries.definitions(store)
    columns = score_queries.score_columns(store, every[0].dataset_fingerprint, [run.run for run in every], metrics, experiments)
    both = sides(store, columns, members, metrics, definitions, known)
    hit = hits(touched, columns.questions)
    texts = []
    for metric, head in labels([metric for metric in metrics if (first, metric) in both and (second, metric) in both]).items():
        if np.all(hit | np.isnan(both[first, metric].mean) | np.isnan(both[second, metric].mean)):
            continue
        definition = definitions.get(metric, {})
        of, judged = range_of_metric(definition), definition.get("judge") is not None
        later, earlier = ([without(both[run, metric], hit)] for run in (second, first))
        (result,) = compared_together(later, earlier, clusters=columns.sampled.labels, metric=of, judged=judged).differences
        if not math.isnan(result.value):
            texts.append(
                f"{head} {plus_minus(result.value, result.low, result.high, '{:+.1f}', score_queries.scale_of(metric, definitions))}"
            )
    left = f"{int((~hit).sum()):,} questions"
    return [f"difference over the other {left}: {', '.join(texts)}" if texts else "each question was read by at least one of the trainings"]
