"""What tables and pages ask of the store as a whole: runs, experiments, datasets, metrics, scores, costs; what single
questions hold is in `question_queries`. Each function opens the store for a moment and returns plain values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError, nearest, unknown_name
from results.asked import Told
from results.redaction import shareable, without_secrets
from results.stated_costs import unstated
from results.store import Store


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of `ragmeter runs`. What it holds of stored documents is shared with other lines: not to be changed.

    Attributes:
        run: The fingerprint.
        path: `experiment/method/dataset/setting/seed`; the experiment is "-" for a run of none.
        done, failed: Questions answered, and those among them that failed.
        origin: `run`, `submitted` or `verified`.
        description, provenance, environment, card: As stored.
        metrics: Ids of the metrics that the experiment shows: its file's, then those that people added
            (`results.added_columns`); None for all that were scored.
        told: Whose questions are asked, and how they are told.
    """

    run: str
    experiment: str
    method: str
    method_id: str
    kind: str
    dataset: str
    dataset_fingerprint: str
    setting: str
    seed: int
    questions: int
    done: int
    failed: int
    status: str
    error: str | None
    started_at: datetime
    updated_at: datetime
    origin: str
    description: dict[str, Any]
    provenance: dict[str, Any]
    environment: dict[str, Any]
    card: dict[str, Any] | None
    metrics: tuple[str, ...] | None
    told: Told

    @property
    def path(self) -> str:
        return f"{self.experiment}/{self.method}/{self.dataset}/{self.setting}/{self.seed}"


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """A stored experiment; `source` is the YAML text it was run from."""

    name: str
    source: str
    path: str | None
    profile: str | None
    reference: str | None
    limit: int | None
    updated_at: datetime
    runs: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run's answers cost on average; NaN where the sender of a submission does not say.

    Attributes:
        seconds: Mean seconds per question over all stages.
        prompt_tokens, completion_tokens, memory_tokens, model_calls: Means per question.
        cost_usd: Total.
    """

    seconds: float
    prompt_tokens: float
    completion_tokens: float
    memory_tokens: float
    model_calls: float
    cost_usd: float

    @property
    def tokens(self) -> float:
        """Prompt, completion and memory tokens per question."""
        return self.prompt_tokens + self.completion_tokens + self.memory_tokens

    @property
    def delivered(self) -> float:
        """What a reader is handed per question: prompt tokens, and memory tokens in place of text."""
        return self.prompt_tokens + self.memory_tokens


@dataclass(frozen=True, slots=True)
class IndexCost:
    """What preparing for a run's questions took, in all; no part of `Cost`.

    Attributes:
        seconds: Of building indexes, or of opening those that were there.
        prompt_tokens, completion_tokens, memory_tokens, model_calls, cost_usd: Of models that were asked.
        reused: Whether everything that is kept was there already, so that another run paid for it.
    """

    seconds: float
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
    model_calls: int
    cost_usd: float
    reused: bool

    def in_words(self) -> str:
        """On one line, with what was not needed left out."""
        tokens = self.prompt_tokens + self.completion_tokens + self.memory_tokens
        asked = f", {self.model_calls:,} model calls, {tokens:,} tokens, US$ {self.cost_usd:.2f}" if self.model_calls else ""
        return f"{self.seconds:.2f} s{asked}" + (" to open what an earlier run had made" if self.reused else "")


_RUNS = """
SELECT r.run, coalesce(m.experiment, '-'), coalesce(m.method, r.method),
       r.method_id, r.kind, r.dataset, r.dataset_fingerprint, r.setting,
       r.seed, r.questions, coalesce(d.done, 0), coalesce(d.failed, 0), r.status, r.error, r.started_at, r.updated_at,
       r.origin, r.description, r.provenance, e.description, r.card, CASE WHEN m.metrics IS NOT NULL THEN
       list_concat(m.metrics, list_filter(a.metrics, lambda x: NOT list_contains(m.metrics, x))) END,
       r.base, r.split, r.style, r.same_questions
FROM runs r LEFT JOIN environments e USING (environment) LEFT JOIN experiment_runs m USING (run)
LEFT JOIN (SELECT experiment, dataset, setting, list(metric ORDER BY rowid) AS metrics FROM added_columns
           GROUP BY ALL) a ON a.experiment = m.experiment AND a.dataset = r.dataset AND a.setting = r.setting
LEFT JOIN (SELECT run, count(*) AS done, count(failed) AS failed FROM predictions GROUP BY run) d USING (run)
"""


def runs(store: Store, experiment: str | None = None, *, method: str | None = None, dataset_fingerprint: str | None = None) -> list[RunRow]:
    """Runs in the order of their experiment's table, experiments by name, runs of none last.

    Args:
        store: Where to read.
        experiment, method, dataset_fingerprint: Only those of this experiment, method id, data; None for all.
    """
    given = {"m.experiment": experiment, "r.method_id": method, "r.dataset_fingerprint": dataset_fingerprint}
    asked = {column: value for column, value in given.items() if value is not None}
    where = f"WHERE {' AND '.join(f'{column} = ?' for column in asked)}" if asked else ""
    order = " ORDER BY m.experiment NULLS LAST, m.position, r.started_at"
    with store.database.reading() as connection:
        rows = connection.execute(_RUNS + where + order, list(asked.values())).fetchall()
    return [_run_row(row) for row in rows]


def has_runs(store: Store) -> bool:
    """Whether anything has started here."""
    with store.database.reading() as connection:
        return connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None


def _run_row(row: Sequence[Any]) -> RunRow:
    *fields, description, provenance, environment, card, metrics, base, split, style, same = row
    texts: list[Any] = [_told(text) for text in (description, provenance, environment)]
    found = RunRow(
        *[
            *fields,
            *texts,
            _told(card) if card else None,
            None if metrics is None else tuple(metrics),
            _asked(base, split, style, tuple(same)),
        ]
    )
    # Services repeat keys in what they say of errors.
    return replace(found, error=without_secrets(found.error)) if found.error else found


_asked = lru_cache(maxsize=4096)(Told.of_row)


@lru_cache(maxsize=4096)
def _told(document: str | None) -> Any:
    """A stored document without secrets, shared by all runs that have the very same; not to be changed."""
    return shareable(document)


def experiments(store: Store) -> list[ExperimentRow]:
    """Stored experiments, newest first."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT name, source, path, profile, reference, question_limit, updated_at,
               (SELECT count(*) FROM experiment_runs m WHERE m.experiment = e.name)
               FROM experiments e ORDER BY updated_at DESC"""
        ).fetchall()
    return [ExperimentRow(*row) for row in rows]


def experiment(store: Store, name: str | None = None) -> ExperimentRow:
    """The stored experiment with this name, or the newest.

    Raises:
        UserError: There is none.
    """
    known = experiments(store)
    if not known:
        raise UserError("the store holds no experiment yet", where=str(store.folder), try_this="ragmeter run FILE")
    if name is None:
        return known[0]
    for row in known:
        if row.name == name:
            return row
    raise unknown_name("experiment", name, [row.name for row in known], where=str(store.folder))


def find_run(store: Store, text: str) -> RunRow:
    """The run that a RUN argument means: a fingerprint prefix or a path, which may leave out leading parts.

    Raises:
        UserError: No run, or more than one, is meant.
    """
    every = runs(store)
    found = [row for row in every if row.run.startswith(text) and len(text) >= 4]
    found = found or [row for row in every if row.path == text]
    found = found or [row for row in every if row.path.endswith("/" + text) or f"/{text}/" in f"/{row.path}/"]
    distinct = {row.run: row for row in found}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        # A hash is offered for what looks like one; anybody else wants names.
        hashes = re.fullmatch("[0-9a-f]{4,}", text) and nearest(text, [row.run for row in every])
        raise unknown_run(store, "run", text, [row.run if hashes else row.path for row in every], every)
    listed = ", ".join(f"{row.run[:8]} ({row.path})" for row in list(distinct.values())[:5])
    raise UserError(f"{text!r} means {len(distinct)} runs", try_this=f"name one: {listed}")


_OFFERED = 12


def unknown_run(store: Store, noun: str, text: str, names: Sequence[str], every: Sequence[RunRow], others: Sequence[str] = ()) -> UserError:
    """The error for a text that means no run: runs whose method has it in its name, else the nearest of all names.

    Args:
        store: Where experiments are read: the newest one's runs are named first.
        noun: What was looked for.
        text: What was given.
        names: Of everything that could have been meant.
        every: All runs.
        others: Names of other things that could have been meant; those that have the text in them go first.
    """
    word = text.casefold().strip()
    age = {row.name: number for number, row in enumerate(experiments(store))}
    newest = sorted(every, key=lambda row: age.get(row.experiment, len(age)))
    alike: dict[str, RunRow] = {}
    for row in newest:
        if word and word in row.method.casefold():
            alike.setdefault(row.run, row)
    found = [name for name in others if word and word in name.casefold()]
    found += [f"{row.run[:8]} ({row.path})" for row in alike.values()]
    if not found:
        error = unknown_name(noun, text, names)
        hint = f"{error.try_this}{' ' if nearest(text, names) else '; '}`ragmeter runs` lists all"
        return UserError(error.what, try_this=hint) if every else error
    more = f", … ({len(found)} in all)" if len(found) > _OFFERED else ""
    hint = f"name one: {', '.join(found[:_OFFERED])}{more}; `ragmeter runs` lists all"
    return UserError(f"unknown {noun} {text!r}", try_this=hint)


def metric_ids(store: Store, run_ids: Sequence[str]) -> list[str]:
    """Metrics that any of these runs was scored on, in the order in which they were first written."""
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT metric FROM summaries WHERE list_contains(?, run) GROUP BY metric ORDER BY min(rowid)", [list(run_ids)]
        ).fetchall()
    return [row[0] for row in rows]


class NotScored(UserError):
    """A metric was named that no run here was scored on; `metric` is what it was called."""

    def __init__(self, what: str, metric: str, *, where: str | None = None, try_this: str | None = None) -> None:
        super().__init__(what, where=where, try_this=try_this)
        self.metric = metric


def named_metrics(store: Store, run_ids: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The ids of stored scores that names mean: a whole id, or one without its version or parameters.

    Raises:
        NotScored: None of these runs was scored on a metric of this name.
    """
    stored = metric_ids(store, run_ids)
    found: list[str] = []
    for name in wanted:
        meant = [metric for metric in stored if name in (metric, metric.partition("#")[0])]
        meant = meant or [metric for metric in stored if name == re.split(r"[(#]", metric)[0]]
        meant = meant or [metric for metric in stored if name == re.split(r"[@(#]", metric)[0]]
        if not meant:
            error = unknown_name("stored metric", name, stored)
            raise NotScored(error.what, name, where=error.where, try_this=error.try_this)
        found += meant
    return list(dict.fromkeys(found))


def definitions(store: Store) -> dict[str, dict[str, Any]]:
    """Metric definitions by id: definition, low, high, higher_is_better, group, source, judge, unit."""
    names = ("definition", "low", "high", "higher_is_better", "group", "source", "judge", "unit")
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT id, definition, low, high, higher_is_better, metric_group, source, judge, unit FROM metrics"
        ).fetchall()
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def scale_of(metric: str, known: Mapping[str, Mapping[str, Any]]) -> float:
    """What a metric's values are multiplied by where they are shown: 100, or 1 for counts and the like.

    Args:
        metric: Its id.
        known: Definitions, as `definitions` gives them.
    """
    return 1.0 if known.get(metric, {}).get("unit") == "number" else 100.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Per-question scores of runs on one dataset, aligned.

    Attributes:
        questions: Ids, in the dataset's order.
        documents: Per question; None where it has its own.
        values: By (run, metric), shape (questions,), NaN where unscorable or not scored.
        unscorable: By (run, metric): questions that were scored and cannot have a value.
        unscored: By (run, metric): questions that a judge gave no value.
    """

    questions: list[str]
    documents: list[str | None]
    values: dict[tuple[str, str], NDArray[np.float64]]
    unscorable: dict[tuple[str, str], int]
    unscored: dict[tuple[str, str], int]


def score_columns(store: Store, dataset_fingerprint: str, run_ids: Sequence[str], metrics: Sequence[str] | None = None) -> Columns:
    """Per-question scores of runs on one dataset; of all metrics, or of the given ones."""
    return score_columns_by_data(store, {dataset_fingerprint: run_ids}, metrics)[dataset_fingerprint]


def score_columns_by_data(
    store: Store, runs_by_data: Mapping[str, Sequence[str]], metrics: Sequence[str] | None = None
) -> dict[str, Columns]:
    """Per-question scores of runs on several datasets, by the dataset's fingerprint; one reading for all of them."""
    asked = [(data, run) for data, same in runs_by_data.items() for run in dict.fromkeys(same)]
    with store.database.reading() as connection:
        questions = connection.execute(
            """SELECT dataset_fingerprint, list(question ORDER BY position), list(document_id ORDER BY position)
               FROM questions WHERE list_contains(?, dataset_fingerprint) GROUP BY 1""",
            [list(runs_by_data)],
        ).fetchall()
        table = connection.sql(
            """SELECT w.data, s.run, s.metric,
                      list(struct_pack(place := q.position, score := s.value,
                                       unscored := s.unscored IS NOT NULL)) AS said
               FROM (SELECT unnest(?) AS data, unnest(?) AS run) w JOIN scores s ON s.run = w.run
               JOIN questions q ON q.question = s.question AND q.dataset_fingerprint = w.data
               WHERE ? IS NULL OR list_contains(?, s.metric) GROUP BY ALL ORDER BY s.run, s.metric""",
            params=[[data for data, _ in asked], [run for _, run in asked], *[None if metrics is None else list(metrics)] * 2],
        ).to_arrow_table()
    found = {data: Columns([], [], {}, {}, {}) for data in runs_by_data}
    for data, ids, documents in questions:
        found[data] = Columns(ids, documents, {}, {}, {})
    names = zip(*(table[name].to_pylist() for name in ("data", "run", "metric")), strict=True)
    for (data, run, metric), said in zip(names, table["said"], strict=True):
        places, scores, unscored = (part.to_numpy(zero_copy_only=False) for part in said.values.flatten())
        of, column = found[data], np.full(len(found[data].questions), np.nan)
        column[places] = scores
        of.values[run, metric] = column
        of.unscored[run, metric] = int(unscored.sum())
        of.unscorable[run, metric] = int(np.isnan(scores).sum()) - of.unscored[run, metric]
    return found


def costs(store: Store, run_ids: Sequence[str]) -> dict[str, Cost]:
    """Mean cost per question by run; NaN what the sender of a submission does not say."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT run, avg(seconds), avg(prompt_tokens), avg(completion_tokens), avg(memory_tokens),
               avg(model_calls), sum(cost_usd) FROM usage WHERE list_contains(?, run) GROUP BY run""",
            [list(run_ids)],
        ).fetchall()
        unknown = unstated(connection, run_ids)
    return {row[0]: replace(Cost(*row[1:]), **dict.fromkeys(unknown.get(row[0], ()), math.nan)) for row in rows}


def index_costs(store: Store, run_ids: Sequence[str]) -> dict[str, IndexCost]:
    """What preparing for the questions took by run; without runs of which nothing is known, as of submissions."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT run, sum(seconds), sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT, sum(memory_tokens)::BIGINT,
               sum(model_calls)::BIGINT, sum(cost_usd), bool_and(reused) FROM indexing WHERE list_contains(?, run) GROUP BY run""",
            [list(run_ids)],
        ).fetchall()
    return {row[0]: IndexCost(*row[1:]) for row in rows}


def datasets(store: Store) -> dict[str, dict[str, Any]]:
    """Stored datasets by fingerprint: reference, card, questions, passages, notes."""
    with store.database.reading() as connection:
        rows = connection.execute("SELECT fingerprint, reference, card, questions, passages, notes FROM datasets").fetchall()
    return {
        row[0]: {"reference": row[1], "card": json.loads(row[2]), "questions": row[3], "passages": row[4], "notes": json.loads(row[5])}
        for row in rows
    }
