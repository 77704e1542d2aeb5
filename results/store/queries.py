"""Query the store for runs, experiments and datasets.

Scores are in `score_queries`, costs in `cost_queries`, single questions in `answer_queries`. Each function opens the store
for a moment and returns plain values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import yaml

from benchmarks.core.errors import UserError, nearest, unknown_name
from benchmarks.core.yaml import LOADER
from methods.api import RETRIEVAL_ONLY, not_stated
from results.store.redaction import shareable, without_secrets
from results.store.store import FINGERPRINT, FINISHED, RUNNING, Store, fingerprint_of, shortened, token_of
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


NO_EXPERIMENT = "-"
"""Experiment name of runs that no experiment shows."""
OURS = "run"
"""Origin of runs made here; all others are submissions, confirmed or not."""


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
        """Return the inputs of metrics that the run lacks by its method's design: answers, or rankings."""
        reader, card = self.description.get("reader"), self.card or {}
        named = RETRIEVAL_ONLY if card.get("retrieval_only") else reader.get("id") if isinstance(reader, dict) else None
        method = self.description.get("method")
        contexts = method["config"].get("contexts") if isinstance(method, dict) and isinstance(method.get("config"), dict) else None
        return not_stated(self.method_id, named, bool(self.description.get("compressor")), contexts)

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


HIDDEN = ("held", "rejected", "withdrawn")
"""Origins of pending and removed submissions, which no board shows."""
_SUBMITTED = f"origin NOT IN {(OURS, *HIDDEN)}"
_MEMBERS = "experiment_runs"
_MEMBERS_AND_SUBMISSIONS = f"""(SELECT experiment, position, run, method, metrics, cluster FROM experiment_runs UNION ALL
SELECT m.experiment, max(m.position) + 1, s.run, NULL, first(m.metrics ORDER BY m.position), first(m.cluster ORDER BY m.position)
FROM runs s JOIN runs o USING (dataset_fingerprint, setting, seed) JOIN experiment_runs m ON m.run = o.run
WHERE s.{_SUBMITTED} AND s.run NOT IN (SELECT run FROM experiment_runs) GROUP BY m.experiment, s.run)"""
_FILLED = f"""
(SELECT 'submissions' FROM runs WHERE {_SUBMITTED} LIMIT 1) UNION ALL (SELECT 'added_columns' FROM added_columns LIMIT 1)
UNION ALL (SELECT 'imports' FROM imports LIMIT 1) UNION ALL (SELECT 'gates' FROM gates LIMIT 1)
"""


def members(store: Store) -> str:
    """Return SQL for the runs that an experiment shows: its own, and submissions on the same questions in its setting with its seed.

    DuckDB plans each join for milliseconds, so tables without rows are left out.
    """
    return _MEMBERS_AND_SUBMISSIONS if "submissions" in _filled(store) else _MEMBERS


def _filled(store: Store) -> set[str]:
    """Return the names of optional parts of a store that have rows."""
    return {name for (name,) in store.database.rows(_FILLED)}


def _runs_query(store: Store) -> str:
    filled = _filled(store)
    metrics, imported, outcome, joins = "m.metrics", "NULL", "NULL", ""
    if "added_columns" in filled:
        metrics = """CASE WHEN m.metrics IS NOT NULL THEN
            list_concat(m.metrics, list_filter(a.metrics, lambda x: NOT list_contains(m.metrics, x))) END"""
        joins += """LEFT JOIN (SELECT experiment, dataset, setting, list(metric ORDER BY rowid) AS metrics FROM added_columns
            GROUP BY ALL) a ON a.experiment = m.experiment AND a.dataset = r.dataset AND a.setting = r.setting\n"""
    if "imports" in filled:
        imported = "i.metrics"
        joins += "LEFT JOIN (SELECT run, list(metric ORDER BY metric) AS metrics FROM imports GROUP BY run) i USING (run)\n"
    if "gates" in filled:
        outcome = "g.outcome"
        joins += """LEFT JOIN (SELECT candidate AS run, arg_max(coalesce(details ->> 'gate', outcome), decided_at) AS outcome
            FROM gates GROUP BY 1) g USING (run)\n"""
    return f"""
SELECT r.run, coalesce(m.experiment, '-'), coalesce(m.method, r.method),
       r.method_id, r.kind, r.dataset, r.dataset_fingerprint, r.setting,
       r.seed, r.questions, coalesce(d.done, 0), coalesce(d.failed, 0), r.status, r.error, r.started_at, r.updated_at,
       r.origin, r.description, r.provenance, e.description, r.card, {metrics},
       r.base, r.split, r.style, r.same_questions, x.execution, r.replies, r.accepted_at, {imported}, {outcome}
FROM runs r LEFT JOIN environments e USING (environment) LEFT JOIN {members(store)} m USING (run)
JOIN (SELECT run, row_number() OVER (PARTITION BY {FINGERPRINT} ORDER BY started_at, run) AS execution FROM runs) x USING (run)
LEFT JOIN (SELECT run, count(*) AS done, count(failed) AS failed FROM predictions GROUP BY run) d USING (run)
{joins}"""


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
        rows = store.database.rows(_runs_query(store) + where + order, [*queries.values(), *([] if hidden else [list(HIDDEN)])])
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
    # Three subqueries per experiment would take twice as long.
    rows = store.database.rows("""SELECT name, source, path, profile, reference, question_limit, updated_at,
               coalesce(m.runs, 0), coalesce(m.finished, 0), coalesce(m.answered, 0)
               FROM experiments LEFT JOIN (SELECT m.experiment AS name, count(*) AS runs, count(r.run) AS finished,
                                                  CAST(sum(r.questions) AS BIGINT) AS answered
                                           FROM experiment_runs m LEFT JOIN runs r ON r.run = m.run AND r.status = 'finished'
                                           GROUP BY m.experiment) m USING (name) ORDER BY updated_at DESC""")
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


def datasets(store: Store) -> dict[str, dict[str, Any]]:
    """Read all stored datasets by fingerprint: reference, card, number of questions and passages, notes."""
    rows = store.database.rows("SELECT fingerprint, reference, card, questions, passages, notes FROM datasets")
    return {
        row[0]: {"reference": row[1], "card": json.loads(row[2]), "questions": row[3], "passages": row[4], "notes": json.loads(row[5])}
        for row in rows
    }
