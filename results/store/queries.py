"""Query the store for tables and pages: runs, experiments, datasets, metrics, scores, costs, single questions.

Each function opens the store for a moment and returns plain values.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from benchmarks.clusters import QUESTION, Sampled, connected
from benchmarks.core.errors import MissingPackage as MissingPackage
from benchmarks.core.errors import UserError, nearest, unknown_name
from benchmarks.core.yaml import LOADER
from benchmarks.schema import Passage, Turn, sentence_of, turns_of
from methods.api import RETRIEVAL_ONLY, SPENDING, WAIT, Call, Prediction, not_stated
from results.store.redaction import redacted, shareable, without_secrets
from results.store.store import FINGERPRINT, FINISHED, RUNNING, Store, fingerprint_of, shortened, stored_record, token_of
from results.store.variants import StyledRun

_RUNNING = """
WITH running AS (SELECT * FROM runs WHERE status = ?),
     answered AS (SELECT run, count(*) AS done, count(failed) AS failed, sum(cost_usd ORDER BY cost_usd) AS dollars
                  FROM predictions LEFT JOIN usage USING (run, question)
                  WHERE run IN (SELECT run FROM running) GROUP BY run),
     named AS (SELECT run, first(experiment ORDER BY experiment) AS experiment,
                      first(method ORDER BY experiment) AS method
               FROM experiment_runs WHERE run IN (SELECT run FROM running) GROUP BY run)
SELECT r.run, coalesce(n.experiment, '-'), coalesce(n.method, r.method), r.dataset, r.setting, r.seed, r.questions,
       coalesce(a.done, 0), coalesce(a.failed, 0), r.started_at, r.updated_at, coalesce(a.dollars, 0)
FROM running r LEFT JOIN answered a USING (run) LEFT JOIN named n USING (run) ORDER BY r.updated_at, r.run
"""
_SAME_MOMENT = timedelta(seconds=1)
"""Tolerance between the two times of a new run."""


@dataclass(frozen=True, slots=True)
class Running:
    """Run that has started and not finished; a run whose process was killed looks the same.

    Attributes:
        run: Id of the run.
        experiment: Name of the experiment, "-" without one.
        method, dataset, setting, seed: Names as in results tables.
        questions: Number of questions to answer.
        done, failed: Number of questions done so far, and how many of them failed.
        started_at: When it was first started, UTC.
        resumed_at: When the present execution started, UTC; later than `started_at` where it was resumed.
        dollars: Cost of the answers so far; NaN if the cost of some call is unknown.
    """

    run: str
    experiment: str
    method: str
    dataset: str
    setting: str
    seed: int
    questions: int
    done: int
    failed: int
    started_at: datetime
    resumed_at: datetime
    dollars: float = 0.0

    @property
    def resumed(self) -> bool:
        """Return whether an earlier execution answered a part of the questions, in which case `done` does not measure this
        execution's speed.
        """
        return self.resumed_at - self.started_at > _SAME_MOMENT


def running(store: Store) -> list[Running]:
    """List the unfinished runs, oldest start first; empty if there is no store yet."""
    rows = store.database.rows(_RUNNING, [RUNNING], lenient=True)
    return [Running(*row) for row in rows]


# Usage that submitters state; usage that they do not state is unknown, not zero. A run made here measures itself, so
# its zeros are zeros. The predictions of a submission are stored with zeros where nothing was said (`usage` is
# optional), and a submission can omit its costs.


NO_EXPERIMENT = "-"
"""Experiment name of runs that no experiment shows."""
OURS = "run"
"""Origin of runs made here; all others are submissions, confirmed or not."""
AS_STATED = "as its sender states"
NOT_STATED = "its sender does not state it"
_TOKENS = ("prompt_tokens", "completion_tokens", "memory_tokens")
_SAYS_NOTHING = " AND ".join(f"{name} = 0" for name in (*_TOKENS, "model_calls", "seconds", "cost_usd"))
_UNSTATED = f"""SELECT run, bool_or(failed IS NULL AND {_SAYS_NOTHING}), sum({" + ".join(_TOKENS)}) = 0,
sum(model_calls) = 0, sum(seconds) = 0, sum(cost_usd) = 0
FROM runs JOIN usage USING (run) JOIN predictions USING (run, question)
WHERE origin <> '{OURS}' AND list_contains(?, run) GROUP BY run"""
_FIELDS = ((*_TOKENS, "cached_tokens"), ("model_calls",), ("seconds", "seconds_p50", "seconds_p95"), ("cost_usd",))


def unstated(connection: DuckDBPyConnection, run_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Find the usage fields that a submission does not report, by run; runs made here are omitted.

    A field is unknown if it is zero for all questions. All fields are unknown if any successful question reports no usage,
    because a mean over the others would be biased.

    Args:
        connection: A connection to the store.
        run_ids: Ids of the runs.
    """
    rows = connection.execute(_UNSTATED, [list(run_ids)]).fetchall()
    return {
        run: frozenset(name for names, nothing in zip(_FIELDS, nothings, strict=True) if silent or nothing for name in names)
        for run, silent, *nothings in rows
    }


@dataclass(frozen=True, slots=True)
class RunRow:
    """Stored run, as in one line of `ragmeter list runs`. Its JSON documents are shared with other rows and must not be changed.

    Attributes:
        run: Id of the run: the task's fingerprint, with a token for later executions.
        path: `experiment/method/dataset/setting/seed`; the experiment is "-" for a run of none.
        done, failed: Number of questions done, and how many of them failed.
        origin: "run" if made here; for submissions "submitted" or "verified", or one of `HIDDEN` if no board shows it.
        description, provenance, environment, card: JSON documents about configuration, origin, machine, and (for submissions)
            the card.
        metrics: Ids of the metrics that the experiment shows: its file's, then those that people added
            (`results.boards.board`); None for all that were scored.
        styled: Base dataset and styles of the candidates.
        execution: 1 for the first execution of its fingerprint in this store, 2 for the next …
        replies: Which cached replies it may use (`Services.replies`).
        accepted_at: When its failed questions were accepted as wrong answers (UTC); None: they were not.
        not_rescored: Metrics whose imported scores could not be recomputed.
        gate: Outcome of the newest gate decision with this run as candidate; empty without one.
        positive_control: Whether the experiment declares that it is trained on the test questions: compared, but never ranked.
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
    styled: StyledRun
    execution: int = 1
    replies: str = ""
    accepted_at: datetime | None = None
    not_rescored: tuple[str, ...] = ()
    gate: str = ""
    positive_control: bool = False

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the run's task, which all executions of the task share."""
        return fingerprint_of(self.run)

    @property
    def not_stated(self) -> frozenset[str]:
        """Return the inputs of metrics that the run lacks because its method returns rankings without answers by design."""
        reader, card = self.description.get("reader"), self.card or {}
        named = RETRIEVAL_ONLY if card.get("retrieval_only") else reader.get("id") if isinstance(reader, dict) else None
        return not_stated(named, compressed=bool(self.description.get("compressor")))

    @property
    def may_win(self) -> bool:
        """Return whether the run may be ranked; controls and positive controls may not be."""
        return self.kind != "control" and not self.positive_control

    @property
    def short(self) -> str:
        """Return the shortened id that tables show."""
        return shortened(self.run)

    @property
    def exact(self) -> str:
        """Return a RUN argument that names exactly this execution, also after later executions."""
        return self.short if token_of(self.run) else f"{self.short}#{self.execution}"

    @property
    def path(self) -> str:
        return f"{self.experiment}/{self.method}/{self.dataset}/{self.setting}/{self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the configuration documents."""
        names = ("run", "path", "experiment", "method", "kind", "dataset", "dataset_fingerprint", "setting", "seed")
        counts = ("execution", "questions", "done", "failed", "status", "error", "origin", "gate")
        times = {name: getattr(self, name).isoformat() for name in ("started_at", "updated_at")}
        return {name: getattr(self, name) for name in (*names, *counts)} | times


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """Stored experiment; `source` is the text of its YAML file, `finished` the number of its finished runs.

    `answered` is the number of their questions, each counted once per method and benchmark.
    """

    name: str
    source: str
    path: str | None
    profile: str | None
    reference: str | None
    limit: int | None
    updated_at: datetime
    runs: int
    finished: int
    answered: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean cost of a run's answers; NaN if a submission does not report it.

    Attributes:
        seconds: Mean seconds per question over all stages, without waiting for a free slot.
        prompt_tokens, completion_tokens, memory_tokens, model_calls: Means per question.
        cost_usd: Total cost in US dollars; NaN if the cost of some call is unknown.
        cached_tokens: Prompt tokens per question that endpoints read from their own caches.
        seconds_p50, seconds_p95: Percentiles of the seconds per question; averaged if a row combines several runs.
    """

    seconds: float
    prompt_tokens: float
    completion_tokens: float
    memory_tokens: float
    model_calls: float
    cost_usd: float
    seconds_p50: float = math.nan
    seconds_p95: float = math.nan
    cached_tokens: float = 0.0

    @property
    def tokens(self) -> float:
        """Return prompt, completion and memory tokens per question."""
        return self.prompt_tokens + self.completion_tokens + self.memory_tokens

    @property
    def delivered(self) -> float:
        """Return the tokens that the reader receives per question: prompt tokens plus memory tokens (compressed passages)."""
        return self.prompt_tokens + self.memory_tokens


@dataclass(frozen=True, slots=True)
class IndexCost:
    """Total cost of indexing a run's corpus; not part of `Cost`.

    Attributes:
        seconds: Time for building indexes, or for opening existing ones.
        prompt_tokens, completion_tokens, memory_tokens, model_calls, cost_usd: Cost of model calls during indexing.
        reused: Whether all artifacts existed already, so that these costs arose in an earlier run.
    """

    seconds: float
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
    model_calls: int
    cost_usd: float
    reused: bool

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all kinds."""
        return self.prompt_tokens + self.completion_tokens + self.memory_tokens

    def in_words(self) -> str:
        """Describe the cost in one line, without items that are zero."""
        calls = f"{self.model_calls:,} model calls, {self.tokens:,} tokens, US$ {self.cost_usd:.2f}" if self.model_calls else ""
        if self.reused:
            return f"{self.seconds:.2f} s to open the artifacts of an earlier run" + (f" with {calls}" if calls else "")
        return ", ".join(filter(None, (f"{self.seconds:.2f} s", calls)))


HIDDEN = ("held", "rejected", "withdrawn")
"""Origins of pending and removed submissions, which no board shows."""
_MEMBERS = f"""(SELECT experiment, position, run, method, metrics, cluster FROM experiment_runs UNION ALL
SELECT m.experiment, max(m.position) + 1, s.run, NULL, first(m.metrics ORDER BY m.position), first(m.cluster ORDER BY m.position)
FROM runs s JOIN runs o USING (dataset_fingerprint, setting, seed) JOIN experiment_runs m ON m.run = o.run
WHERE s.origin NOT IN ('{OURS}', {", ".join(f"'{name}'" for name in HIDDEN)})
  AND s.run NOT IN (SELECT run FROM experiment_runs) GROUP BY m.experiment, s.run)"""
"""SQL for the runs that an experiment shows: its own, and submissions on the same questions in its setting with its seed."""
_RUNS = f"""
SELECT r.run, coalesce(m.experiment, '-'), coalesce(m.method, r.method),
       r.method_id, r.kind, r.dataset, r.dataset_fingerprint, r.setting,
       r.seed, r.questions, coalesce(d.done, 0), coalesce(d.failed, 0), r.status, r.error, r.started_at, r.updated_at,
       r.origin, r.description, r.provenance, e.description, r.card, CASE WHEN m.metrics IS NOT NULL THEN
       list_concat(m.metrics, list_filter(a.metrics, lambda x: NOT list_contains(m.metrics, x))) END,
       r.base, r.split, r.style, r.same_questions, x.execution, r.replies, r.accepted_at, i.metrics, g.outcome
FROM runs r LEFT JOIN environments e USING (environment) LEFT JOIN {_MEMBERS} m USING (run)
JOIN (SELECT run, row_number() OVER (PARTITION BY {FINGERPRINT} ORDER BY started_at, run) AS execution FROM runs) x USING (run)
LEFT JOIN (SELECT experiment, dataset, setting, list(metric ORDER BY rowid) AS metrics FROM added_columns
           GROUP BY ALL) a ON a.experiment = m.experiment AND a.dataset = r.dataset AND a.setting = r.setting
LEFT JOIN (SELECT run, list(metric ORDER BY metric) AS metrics FROM imports GROUP BY run) i USING (run)
LEFT JOIN (SELECT run, count(*) AS done, count(failed) AS failed FROM predictions GROUP BY run) d USING (run)
LEFT JOIN (SELECT candidate AS run, arg_max(coalesce(details ->> 'gate', outcome), decided_at) AS outcome
           FROM gates GROUP BY 1) g USING (run)
"""


def runs(
    store: Store, experiment: str | None = None, *, method: str | None = None, dataset_fingerprint: str | None = None, hidden: bool = False
) -> list[RunRow]:
    """List stored runs in the order of their experiment's table; experiments are sorted by name, runs without one come last.

    A submission belongs to every experiment with runs on the same questions, in the same setting, with the same seed.

    Args:
        store: The store to read.
        experiment, method, dataset_fingerprint: Return only runs of this experiment, method id or dataset; None does not
            filter.
        hidden: Whether to include submissions that no board shows (`HIDDEN`).
    """
    options = {"m.experiment": experiment, "r.method_id": method, "r.dataset_fingerprint": dataset_fingerprint}
    queries = {column: value for column, value in options.items() if value is not None}
    conditions = [f"{column} = ?" for column in queries]
    conditions += [] if hidden else ["NOT list_contains(?, r.origin)"]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = " ORDER BY m.experiment NULLS LAST, m.position, r.started_at"
    with store.database.reading():
        rows = store.database.rows(_RUNS + where + order, [*queries.values(), *([] if hidden else [list(HIDDEN)])])
        declaring = store.database.rows("SELECT name, source, profile FROM experiments WHERE contains(source, ?)", [POSITIVE_CONTROLS])
    declared = {name: with_profile(source, profile).get(POSITIVE_CONTROLS) or () for name, source, profile in declaring}
    results = [_run_row(row) for row in rows]
    if not declared:
        return results
    return [replace(run, positive_control=True) if _is_of(run.method, declared.get(run.experiment, ())) else run for run in results]


def _is_of(method: str, names: Collection[str]) -> bool:
    """Return whether a name is one of these, or of a seed or repeat of one, as in `results.boards.names`."""
    return any(method == name or method.startswith((f"{name} #", f"{name} ~")) for name in names)


POSITIVE_CONTROLS = "positive_controls"
"""Key for positive controls in an experiment's file."""


@lru_cache(maxsize=64)
def with_profile(source: str, profile: str | None) -> Mapping[str, Any]:
    """Parse the stored YAML of an experiment, with the keys of its profile applied."""
    try:
        value = yaml.load(source, LOADER)
    except yaml.YAMLError:
        return {}
    return value | ((value.get("profiles") or {}).get(profile) or {}) if isinstance(value, dict) else {}


def has_runs(store: Store) -> bool:
    """Return whether the store contains any run."""
    with store.database.reading() as connection:
        return connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None


def _run_row(row: Sequence[Any]) -> RunRow:
    *fields, description, provenance, environment, card, metrics, base, split, style, same, execution, replies, accepted, theirs, gate = row
    texts: list[Any] = [_shareable(text) for text in (description, provenance, environment)]
    result = RunRow(
        *[
            *fields,
            *texts,
            _shareable(card) if card else None,
            None if metrics is None else tuple(metrics),
            _styled(base, split, style, tuple(same)),
            execution,
            replies,
            accepted,
            tuple(theirs or ()),
            gate or "",
        ]
    )
    # Services repeat keys in their error messages.
    return replace(result, error=without_secrets(result.error)) if result.error else result


_styled = lru_cache(maxsize=4096)(StyledRun.of_row)


@lru_cache(maxsize=4096)
def _shareable(document: str | None) -> Any:
    """Return a stored document without secrets; runs with an equal document share the result, which must not be modified."""
    return shareable(document)


def experiments(store: Store) -> list[ExperimentRow]:
    """List stored experiments, newest first."""
    rows = store.database.rows("""SELECT name, source, path, profile, reference, question_limit, updated_at,
               (SELECT count(*) FROM experiment_runs m WHERE m.experiment = e.name),
               (SELECT count(*) FROM experiment_runs m JOIN runs r USING (run) WHERE m.experiment = e.name AND r.status = 'finished'),
               (SELECT CAST(coalesce(sum(r.questions), 0) AS BIGINT) FROM experiment_runs m JOIN runs r USING (run)
                WHERE m.experiment = e.name AND r.status = 'finished')
               FROM experiments e ORDER BY updated_at DESC""")
    return [ExperimentRow(*row) for row in rows]


def experiment(store: Store, name: str | None = None) -> ExperimentRow:
    """Find the stored experiment with this name; None finds the newest.

    Raises:
        UserError: There is no such experiment.
    """
    known = experiments(store)
    if not known:
        raise UserError("the store holds no experiment yet", code="empty-store", where=str(store.folder), try_this="ragmeter run FILE")
    if name is None:
        return known[0]
    for row in known:
        if row.name == name:
            return row
    raise unknown_name("experiment", name, [row.name for row in known], where=str(store.folder))


def find_run(store: Store, text: str) -> RunRow:
    """Find the run that a RUN argument names.

    Args:
        store: The store to read.
        text: The beginning of a fingerprint (four digits or more) or a path, whose leading parts may be omitted; this finds the
            newest finished execution. `3f2a91c0.5b7e` names exactly one execution by its token, and `3f2a91c0#1` the first one.

    Raises:
        UserError: The text matches no run, or runs of several tasks.
    """
    every = runs(store, hidden=True)
    named, _, number = text.partition("#")
    beginning, token = fingerprint_of(named), token_of(named)
    hashed = [row for row in every if row.fingerprint.startswith(beginning) and token_of(row.run).startswith(token) and len(beginning) >= 4]
    hashed = [row for row in hashed if number in ("", str(row.execution))]
    results = hashed or [row for row in every if row.path == text]
    results = results or [row for row in every if row.path.endswith("/" + text) or f"/{text}/" in f"/{row.path}/"]
    if not hashed and any(row.experiment != NO_EXPERIMENT for row in results):
        # Earlier executions, and runs of an earlier text of the experiment, are named by their id.
        results = [row for row in results if row.experiment != NO_EXPERIMENT]
    if len({row.fingerprint for row in results}) == 1:
        return newest(results)
    if not results:
        # Hashes are suggested only for texts that look like one, else names.
        hashes = re.fullmatch("[0-9a-f]{4,}", text) and nearest(text, [row.run for row in every])
        raise unknown_run(store, "run", text, [row.run if hashes else row.path for row in every], every)
    distinct = {row.run: row for row in results}
    listed = ", ".join(f"{row.short} ({row.path})" for row in list(distinct.values())[:5])
    raise UserError(f"{text!r} means {len(distinct)} runs", code="ambiguous-run-path", try_this=f"name one: {listed}")


def newest(executions: Sequence[RunRow]) -> RunRow:
    """Return the newest finished execution, or the newest one if none is finished."""
    return max(executions, key=lambda row: (row.status == FINISHED, row.execution))


_OFFERED = 12


def unknown_run(store: Store, noun: str, text: str, names: Sequence[str], every: Sequence[RunRow], others: Sequence[str] = ()) -> UserError:
    """Make the error for a text that matches no run; it suggests similar names.

    Args:
        store: The store; runs of its newest experiment are suggested first.
        noun: The kind of object that was looked for, for the message.
        text: The user's text.
        names: All valid names.
        every: All runs.
        others: Names of other objects that could be meant, for example tags.
    """
    word = text.casefold().strip()
    age = {row.name: number for number, row in enumerate(experiments(store))}
    newest = sorted(every, key=lambda row: age.get(row.experiment, len(age)))
    similar: dict[str, RunRow] = {}
    for row in newest:
        if word and word in row.method.casefold():
            similar.setdefault(row.run, row)
    results = [name for name in others if word and word in name.casefold()]
    results += [f"{row.short} ({row.path})" for row in similar.values()]
    if not results:
        error = unknown_name(noun, text, names)
        hint = f"{error.try_this}{' ' if nearest(text, names) else '; '}`ragmeter list runs` lists all"
        return UserError(error.what, code=error.code, try_this=hint) if every else error
    more = f", … ({len(results)} in all)" if len(results) > _OFFERED else ""
    hint = f"name one: {', '.join(results[:_OFFERED])}{more}; `ragmeter list runs` lists all"
    return UserError(f"unknown {noun} {text!r}", code="unknown", try_this=hint)


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


def named_metrics(store: Store, run_ids: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Resolve names of metrics to the ids of stored scores; a name may omit version and parameters.

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
        results += meant
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
    for data, kind in store.database.rows(
        f"""SELECT DISTINCT dataset_fingerprint,
                   coalesce(CASE WHEN m.experiment IS NULL THEN r.cluster ELSE m.cluster END, d.cluster, '{QUESTION}')
            FROM runs r LEFT JOIN datasets d ON d.fingerprint = r.dataset_fingerprint
            LEFT JOIN {_MEMBERS} m ON m.run = r.run AND (len($2) = 0 OR list_contains($2, m.experiment))
            WHERE list_contains($1, r.run) ORDER BY ALL""",
        [every, sorted(experiments)],
    ):
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


def costs(store: Store, run_ids: Sequence[str]) -> dict[str, Cost]:
    """Read the mean cost per question of runs, by run id; NaN for unknown values, for example if a submission does not report them."""
    with store.database.reading() as connection:
        noted = spendings(connection, run_ids)
        cached, unpriced = {run: tokens for run, _, tokens, _ in noted}, {run for run, calls, _, _ in noted if calls}
        rows = store.database.rows(
            # Sums of floating-point numbers depend on their order, which threads of DuckDB vary.
            """SELECT run, avg(seconds ORDER BY seconds), avg(prompt_tokens), avg(completion_tokens), avg(memory_tokens),
               avg(model_calls), sum(cost_usd ORDER BY cost_usd), quantile_cont(seconds, 0.5), quantile_cont(seconds, 0.95)
               FROM usage WHERE list_contains(?, run) GROUP BY run""",
            [sorted(run_ids)],
        )
        unknown = unstated(connection, run_ids)
    missing = {row[0]: {*unknown.get(row[0], ()), *(("cost_usd",) if row[0] in unpriced else ())} for row in rows}
    return {
        row[0]: replace(Cost(*row[1:]), **{"cached_tokens": cached.get(row[0], 0.0), **dict.fromkeys(missing[row[0]], math.nan)})
        for row in rows
    }


def spendings(connection: DuckDBPyConnection, run_ids: Sequence[str]) -> list[tuple[str, int, float, int]]:
    """Read the stored spending notes of runs as rows (run id, calls of unknown cost, cached tokens per question, all calls)."""
    # Reading JSON is slow: only of runs that have such a note at all.
    noted = connection.execute(
        f"""SELECT DISTINCT run FROM predictions WHERE list_contains(?, run) AND contains(CAST(notes AS VARCHAR), '"{SPENDING}"')""",
        [list(run_ids)],
    ).fetchall()
    if not noted:
        return []
    return connection.execute(
        f"""SELECT run, sum(coalesce(CAST(notes -> '$.{SPENDING}.unpriced' AS BIGINT), 0))::BIGINT,
            avg(coalesce(CAST(notes -> '$.{SPENDING}.cached_tokens' AS BIGINT), 0)), sum(model_calls)::BIGINT
            FROM predictions JOIN usage USING (run, question) WHERE list_contains(?, run) GROUP BY run""",
        [[run for (run,) in noted]],
    ).fetchall()


def index_costs(store: Store, run_ids: Sequence[str]) -> dict[str, IndexCost]:
    """Read the cost of indexing the corpus by run id; runs without it, such as submissions, are omitted."""
    rows = store.database.rows(
        """SELECT run, sum(seconds ORDER BY seconds), sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT,
               sum(memory_tokens)::BIGINT, sum(model_calls)::BIGINT, sum(cost_usd ORDER BY cost_usd), bool_and(reused)
               FROM indexing WHERE list_contains(?, run) GROUP BY run""",
        [list(run_ids)],
    )
    return {row[0]: IndexCost(*row[1:]) for row in rows}


def datasets(store: Store) -> dict[str, dict[str, Any]]:
    """Read all stored datasets by fingerprint: reference, card, number of questions and passages, notes."""
    rows = store.database.rows("SELECT fingerprint, reference, card, questions, passages, notes FROM datasets")
    return {
        row[0]: {"reference": row[1], "card": json.loads(row[2]), "questions": row[3], "passages": row[4], "notes": json.loads(row[5])}
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """Ranked evidence item with its passage, and whether it is a gold passage."""

    rank: int
    id: str
    score: float
    title: str
    text: str
    sentences: tuple[str, ...]
    gold: bool


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """Stored question with its gold."""

    question: str
    text: str
    answers: tuple[str, ...]
    golds: tuple[str, ...]
    evidence: tuple[str, ...]
    supporting_facts: tuple[str, ...]
    type: str
    document_id: str | None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """Stored answer of one run to one question.

    `unscored` has the reasons of judges that gave no value. `stages` has the seconds per stage, and `waited_s` the time spent
    waiting for a free slot. `calls_kept` is the number of stored calls. `record` has the contexts, statements, searches and
    confidence that the system returned.
    """

    run: str
    method: str
    answer: str
    failed: str | None
    notes: dict[str, Any]
    evidence: tuple[EvidenceRow, ...]
    scores: dict[str, float | None]
    unscored: dict[str, str]
    stages: dict[str, float]
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
    model_calls: int
    cost_usd: float
    calls_kept: int = 0
    waited_s: float = 0.0
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spending(self) -> Mapping[str, int]:
        """Return the note on tokens that endpoints read from their caches, and on calls of unknown cost."""
        noted = self.notes.get(SPENDING)
        return noted if isinstance(noted, dict) else {}


def questions(store: Store, dataset_fingerprint: str) -> list[QuestionRow]:
    """Read the questions of a dataset with their gold, in the dataset's order."""
    rows = store.database.rows(
        """SELECT question, text, answers, golds, evidence, supporting_facts, type, document_id, turns FROM questions
               WHERE dataset_fingerprint = ? ORDER BY position""",
        [dataset_fingerprint],
    )
    return [
        QuestionRow(q, text, tuple(a), tuple(g), tuple(e), tuple(s), t, d, turns_of(json.loads(turns or "[]")))
        for q, text, a, g, e, s, t, d, turns in rows
    ]


def passages(store: Store, identifiers: Sequence[str]) -> dict[str, Passage]:
    """Read passages by id, in the requested order; ids that the store lacks are omitted."""
    rows = store.database.rows("SELECT id, title, text, sentences FROM passages WHERE id IN (SELECT unnest(?))", [list(identifiers)])
    results = {row[0]: Passage(row[0], row[1], row[2], tuple(row[3])) for row in rows}
    return {identifier: results[identifier] for identifier in identifiers if identifier in results}


def gold_sentences(question: QuestionRow, passage: str) -> set[int]:
    """Return the indices of a passage's sentences that are gold support for a question."""
    return {index for owner, index in map(sentence_of, question.supporting_facts) if owner == passage and index >= 0}


def answers(store: Store, question: QuestionRow, run_ids: Sequence[str], *, depth: int = 20) -> list[AnswerRow]:
    """Read the answers of runs to one question, with at most `depth` evidence items each, in the order of `run_ids`."""
    wanted = list(run_ids)
    with store.database.reading() as connection:
        responses = connection.execute(
            """SELECT p.run, r.method, p.answer, p.failed, p.notes, u.stages, u.prompt_tokens, u.completion_tokens,
               u.memory_tokens, u.model_calls, u.cost_usd,
               (SELECT count(*) FROM calls c WHERE c.run = p.run AND c.question = p.question),
               p.contexts, p.statements, p.searches, p.confidence
               FROM predictions p JOIN runs r USING (run) JOIN usage u USING (run, question)
               WHERE question = ? AND list_contains(?, p.run)""",
            [question.question, wanted],
        ).fetchall()
        ranked = connection.execute(
            """SELECT e.run, e.rank, e.id, e.score, coalesce(p.title, ''), coalesce(p.text, ''),
               coalesce(p.sentences, []) FROM evidence e LEFT JOIN passages p ON p.id = e.id
               WHERE e.question = ? AND list_contains(?, e.run) AND e.rank <= ? ORDER BY e.run, e.rank""",
            [question.question, wanted, depth],
        ).fetchall()
        scored = connection.execute(
            """SELECT run, metric, value, unscored FROM scores WHERE question = ? AND list_contains(?, run)
               ORDER BY rowid""",
            [question.question, wanted],
        ).fetchall()
    gold = set(question.evidence)
    evidence: dict[str, list[EvidenceRow]] = {}
    for run, rank, identifier, score, title, text, sentences in ranked:
        row = EvidenceRow(rank, identifier, score, title, text, tuple(sentences), identifier in gold)
        evidence.setdefault(run, []).append(row)
    scores: dict[str, dict[str, float | None]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for run, metric, value, reason in scored:
        scores.setdefault(run, {})[metric] = value
        if reason is not None:
            reasons.setdefault(run, {})[metric] = without_secrets(reason)
    rows = [
        AnswerRow(
            run,
            method,
            answer,
            failed and without_secrets(failed),
            shareable(notes),
            tuple(evidence.get(run, ())),
            scores.get(run, {}),
            reasons.get(run, {}),
            timed := json.loads(stages),
            *(*used[:-4], timed.pop(WAIT, 0.0), redacted(Prediction("", "", **stored_record(used[-4:])).record())),
        )
        for run, method, answer, failed, notes, stages, *used in responses
    ]
    return sorted(rows, key=lambda row: wanted.index(row.run))


def fallbacks(store: Store, run: str) -> dict[str, dict[str, int]]:
    """Count failed steps of a run's questions by system and reason, and how its questions ended (`ended`)."""
    rows = store.database.rows("SELECT notes FROM predictions WHERE run = ?", [run])
    counts: dict[str, Counter[str]] = {}
    for system, note in (item for (text,) in rows for item in json.loads(text).items()):
        if isinstance(note, dict):
            own = Counter(note.get("fallbacks") or {}) + Counter([f"ended {note['ended']}"] if note.get("ended") else [])
            counts[system] = counts.get(system, Counter()) + own
    return {system: dict(sorted(own.items())) for system, own in sorted(counts.items()) if own}


def calls(store: Store, run: str, question: str) -> list[Call]:
    """Read the stored calls of generating models that a run made for a question, in order."""
    names = ", ".join("epoch(created)" if name == "created" else name for name in Call.__slots__)
    rows = store.database.rows(f"SELECT {names} FROM calls WHERE run = ? AND question = ? ORDER BY position", [run, question])
    return [Call(role, step, without_secrets(prompt), without_secrets(reply), *used) for role, step, prompt, reply, *used in rows]


def answer_lengths(store: Store, run_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return the length of every answer in characters, by (run, question)."""
    rows = store.database.rows("SELECT run, question, length(answer) FROM predictions WHERE list_contains(?, run)", [list(run_ids)])
    return {(run, question): length for run, question, length in rows}
