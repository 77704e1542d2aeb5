"""Query the store for scores: the metrics of runs, their definitions, and one score per question, with the clusters of the questions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.clusters import QUESTION, Sampled, connected
from benchmarks.core.errors import UserError, unknown_name
from results.store.queries import members
from results.store.store import Store


def metric_ids(store: Store, run_ids: Sequence[str]) -> list[str]:
    """List the metrics that any of these runs was scored on, in the order in which they were first written."""
    rows = store.database.rows(
        "SELECT metric FROM summaries WHERE list_contains(?, run) GROUP BY metric ORDER BY min(rowid)", [list(run_ids)]
    )
    return [row[0] for row in rows]


class NotScored(UserError):
    """Raised if none of the runs was scored on a named metric; `metric` is its name."""

    def __init__(self, what: str, metric: str, *, where: str | None = None, try_this: str | None = None) -> None:
        super().__init__(what, code="not-scored", where=where, try_this=try_this)
        self.metric = metric


def named_metrics(store: Store, run_ids: Sequence[str], wanted: Sequence[str], own: Collection[str] = ()) -> list[str]:
    """Resolve names of metrics to the ids of stored scores; a name may omit version and parameters.

    Args:
        own: The experiment's metrics: a name that fits one of them means no other, for example of a submission.

    Raises:
        NotScored: None of these runs was scored on a metric of this name.
    """
    stored = metric_ids(store, run_ids)
    results: list[str] = []
    for name in wanted:
        meant = [metric for metric in stored if name in (metric, metric.partition("#")[0])]
        meant = meant or [metric for metric in stored if name == re.split(r"[(#]", metric)[0]]
        meant = meant or [metric for metric in stored if name == re.split(r"[@(#]", metric)[0]]
        if not meant:
            error = unknown_name("stored metric", name, stored)
            raise NotScored(error.what, name, where=error.where, try_this=error.try_this)
        results += [metric for metric in meant if metric in own] or meant
    return list(dict.fromkeys(results))


def definitions(store: Store) -> dict[str, dict[str, Any]]:
    """Read the definitions of all metrics by id: definition, low, high, higher_is_better, group, source, judge, unit."""
    names = ("definition", "low", "high", "higher_is_better", "group", "source", "judge", "unit")
    rows = store.database.rows("SELECT id, definition, low, high, higher_is_better, metric_group, source, judge, unit FROM metrics")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def scale_of(metric: str, known: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the factor for displaying a metric's values: 100 for fractions, 1 for counts and similar values.

    Args:
        metric: Id of the metric.
        known: Definitions by id, from `definitions`.
    """
    return 1.0 if known.get(metric, {}).get("unit") == "number" else 100.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Per-question scores of several runs on one dataset, in the same order of questions.

    Attributes:
        questions: Question ids, in the dataset's order.
        sampled: Clusters of the questions and their kind.
        values: Scores by (run, metric), shape (questions,); NaN if unscorable or not scored.
        unscorable: By (run, metric), the number of questions without gold for the metric.
        unscored: By (run, metric), the number of questions that the judge gave no value.
        unread: By (run, metric), a mask of these questions, shape (questions,); only if there are any.
    """

    questions: list[str]
    sampled: Sampled
    values: dict[tuple[str, str], NDArray[np.float64]]
    unscorable: dict[tuple[str, str], int]
    unscored: dict[tuple[str, str], int]
    unread: dict[tuple[str, str], NDArray[np.bool_]] = field(default_factory=dict)


def sampled_by_data(store: Store, runs_by_data: Mapping[str, Sequence[str]], experiments: Collection[str] = ()) -> dict[str, Sampled]:
    """Read the clusters of the questions of several datasets, by fingerprint, of the kind that experiments declare.

    If experiments declare different kinds, clusters that share a question are merged, so that different clusters are
    independent in any case.

    Args:
        store: The store to read.
        runs_by_data: Ids of runs by the fingerprint of their dataset.
        experiments: Experiments whose declarations are used; empty uses all that show the runs.
    """
    kinds: dict[str, list[str]] = {}
    every = sorted({run for same in runs_by_data.values() for run in same})
    with store.database.reading():
        declared = store.database.rows(
            f"""SELECT DISTINCT dataset_fingerprint,
                       coalesce(CASE WHEN m.experiment IS NULL THEN r.cluster ELSE m.cluster END, d.cluster, '{QUESTION}')
                FROM runs r LEFT JOIN datasets d ON d.fingerprint = r.dataset_fingerprint
                LEFT JOIN {members(store)} m ON m.run = r.run AND (len($2) = 0 OR list_contains($2, m.experiment))
                WHERE list_contains($1, r.run) ORDER BY ALL""",
            [every, sorted(experiments)],
        )
    for data, kind in declared:
        kinds.setdefault(data, []).append(kind)
    labels = {
        (data, kind): clusters
        for data, kind, clusters in store.database.rows(
            """SELECT q.dataset_fingerprint, u.kind, list(u.cluster ORDER BY q.position) FROM questions q
               JOIN clusters u USING (dataset_fingerprint, question) WHERE list_contains(?, q.dataset_fingerprint) GROUP BY ALL""",
            [list(kinds)],
        )
    }
    results = {data: Sampled() for data in runs_by_data}
    for data, kind_names in kinds.items():
        if len(kind_names) == 1:
            results[data] = Sampled(kind_names[0], labels.get((data, kind_names[0])))
        elif len(kind_names) > 1:
            pairs = [[(kind, cluster) for cluster in labels[data, kind]] for kind in kind_names if (data, kind) in labels]
            results[data] = Sampled(" or ".join(kind_names), connected(list(zip(*pairs, strict=True))))
    return results


def questions_by_data(store: Store, fingerprints: Iterable[str]) -> dict[str, list[str]]:
    """Read the ids of the questions of datasets, in the dataset's order, by fingerprint."""
    return dict(
        store.database.rows(
            """SELECT dataset_fingerprint, list(question ORDER BY position) FROM questions
               WHERE list_contains(?, dataset_fingerprint) GROUP BY 1""",
            [sorted(set(fingerprints))],
        )
    )


_LONG_ID = 12
"""Characters from which equal ids of questions are not a coincidence."""


def identities_by_data(store: Store, fingerprints: Iterable[str]) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    """Read hashes by which questions of several datasets are recognized as the same, by fingerprint.

    The id alone is not enough: many datasets number their questions. Ids and texts must agree, or ids, gold answers and evidence
    (questions in another style).

    Returns:
        Hashes of which one in common is enough, and those of numbered questions without evidence: answers such as "yes" agree by
        chance, so most of them must be in common.
    """
    rows = store.database.rows(
        """SELECT dataset_fingerprint, list(hash(question, text)), list(hash(question, answers, evidence)) FILTER (
             len(evidence) > 0 OR (len(answers) > 0 AND length(question) >= $1)), list(hash(question, answers)) FILTER (
             len(evidence) = 0 AND len(answers) > 0 AND length(question) < $1)
           FROM questions WHERE list_contains($2, dataset_fingerprint) GROUP BY 1""",
        [_LONG_ID, sorted(set(fingerprints))],
    )
    return {data: (frozenset(texts) | frozenset(gold or ()), frozenset(likely or ())) for data, texts, gold, likely in rows}


def lacks_answers(store: Store, dataset_fingerprint: str) -> bool:
    """Return whether some questions of a dataset are unanswerable or have no gold answer, which official scripts do not count as 0."""
    rows = store.database.rows(
        """SELECT count(*) FROM questions WHERE dataset_fingerprint = ? AND (len(answers) = 0 OR record ->> '$.answerable' = 'false')""",
        [dataset_fingerprint],
    )
    return bool(rows[0][0])


def score_columns(
    store: Store, dataset_fingerprint: str, run_ids: Sequence[str], metrics: Sequence[str] | None = None, experiments: Collection[str] = ()
) -> Columns:
    """Read per-question scores of runs on one dataset, for the given metrics (None: all); `experiments` as in `sampled_by_data`."""
    return score_columns_by_data(store, {dataset_fingerprint: run_ids}, metrics, experiments)[dataset_fingerprint]


def score_columns_by_data(
    store: Store, runs_by_data: Mapping[str, Sequence[str]], metrics: Sequence[str] | None = None, experiments: Collection[str] = ()
) -> dict[str, Columns]:
    """Read per-question scores of runs on several datasets with one query, by the dataset's fingerprint.

    `metrics` None reads all metrics; `experiments` is as in `sampled_by_data`.
    """
    queries = [(data, run) for data, same in runs_by_data.items() for run in dict.fromkeys(same)]
    with store.database.reading() as connection:
        ids_by_data = questions_by_data(store, runs_by_data)
        clusters = sampled_by_data(store, runs_by_data, experiments)
        table = connection.sql(
            """SELECT w.data, s.run, s.metric,
                      list(struct_pack(place := q.position::BIGINT, score := coalesce(s.value, 'nan'),
                                       unscored := (s.unscored IS NOT NULL)::BIGINT)) AS said
               FROM (SELECT unnest(?) AS data, unnest(?) AS run) w JOIN scores s ON s.run = w.run
               JOIN questions q ON q.question = s.question AND q.dataset_fingerprint = w.data
               WHERE ? IS NULL OR list_contains(?, s.metric) GROUP BY ALL ORDER BY s.run, s.metric""",
            params=[[data for data, _ in queries], [run for _, run in queries], *[None if metrics is None else list(metrics)] * 2],
        ).to_arrow_table()
    results = {data: Columns([], Sampled(), {}, {}, {}) for data in runs_by_data}
    for data, ids in ids_by_data.items():
        results[data] = Columns(ids, clusters[data], {}, {}, {})
    names = zip(*(table[name].to_pylist() for name in ("data", "run", "metric")), strict=True)
    for (data, run, metric), columns in zip(names, table["said"], strict=True):
        positions, scores, unscored = map(_numbers, columns.values.flatten(), (np.int64, np.float64, np.int64))
        of, column = results[data], np.full(len(results[data].questions), np.nan)
        column[positions] = scores
        of.values[run, metric] = column
        of.unscored[run, metric] = int(unscored.sum())
        if of.unscored[run, metric]:
            of.unread[run, metric] = np.zeros(len(column), dtype=np.bool_)
            of.unread[run, metric][positions] = unscored > 0
        of.unscorable[run, metric] = int(np.isnan(scores).sum()) - of.unscored[run, metric]
    return results


def _numbers(column: pa.Array, kind: type[np.generic]) -> NDArray[Any]:
    """Convert a column without nulls to eight-byte numbers; `to_numpy` would import pandas, which takes a third of a second."""
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]
