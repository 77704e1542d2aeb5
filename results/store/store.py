"""The store: every number with its origin.

A run is one execution of a task. Its id is the task's fingerprint, followed by a token for every execution but the
first. It is open until it is finished: executing the task again adds the missing answers. A finished run never changes;
scores and judgments of other metrics and judges can be added. Predictions and their scores are written in one
transaction per batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import columns
from benchmarks.clusters import Sampled
from benchmarks.core.errors import Broke, counted
from benchmarks.registry import CAVEATS, Benchmark
from benchmarks.schema import SCORED, Passage, Question
from benchmarks.styles import STYLED
from judges.metric import Metric, Scores
from methods.api import CAUSE, CODE, FAILED, KEPT_CALLS, MODEL, Call, Evidence, Indexed, Prediction, Usage, kept, reason
from methods.record import read_record
from results.store.database import Database, now
from results.store.variants import style_of_name


def storable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode (half a surrogate pair, from truncated model output) by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def insert(connection: duckdb.DuckDBPyConnection, table: str, values: Mapping[str, Iterable[Any]]) -> None:
    """Insert rows, given as columns, into a table through Arrow; types come from the table, so empty and all-None columns work."""
    names = list(values)
    rows = pa.table({name: _arrow(name, items) for name, items in values.items()})
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(names)} FROM incoming")
    connection.unregister("incoming")


_LISTS = {"answers", "golds", "evidence", "supporting_facts", "sentences", "metrics", "parents", "data", "same_questions"}
_INTEGERS = {"rank", "position", "repetition", "prompt_tokens", "completion_tokens", "memory_tokens", "model_calls", "peak_memory_bytes"}
_INTEGERS |= {"cached_replies"}
_FLOATS = {"score", "value", "seconds", "cost_usd", "confidence"}
_MOMENTS = {"created", "oldest_reply"}


def _arrow(name: str, values: Iterable[Any]) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        return columns.column(values)
    if name in _LISTS:
        return columns.lists(list(values), large=True)
    if name in _INTEGERS:
        return columns.numbers(values, np.int64)
    if name in _FLOATS:
        return columns.numbers(values, np.float64)
    if name in _MOMENTS:
        return columns.moments(list(values))
    return columns.strings(list(values), large=True)


def insert_scores(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    questions: Sequence[str],
    scores: Mapping[str, Scores],
    unscored: Mapping[str, Sequence[str | None]] | None = None,
) -> None:
    """Insert the scores of a run: by metric id, shape (questions,); NaN becomes NULL, with the judge's reason if it gave one."""
    if not scores:
        return
    count = len(questions)
    values = np.concatenate([np.asarray(scores[name], np.float64) for name in scores])
    rows = {
        "question": columns.codes(np.tile(np.arange(count, dtype=np.int32), len(scores)), list(questions)),
        "metric": columns.codes(np.repeat(np.arange(len(scores), dtype=np.int32), count), list(scores)),
        "value": columns.column(values),
    }
    if unscored:
        rows["unscored"] = columns.strings([reason for name in scores for reason in unscored.get(name, [None] * count)], large=True)
    connection.register("incoming", pa.table(rows))
    connection.execute("INSERT INTO scores BY NAME SELECT ? AS run, * FROM incoming", [run])
    connection.unregister("incoming")


def insert_passages(connection: duckdb.DuckDBPyConnection, passages: Sequence[Passage]) -> None:
    """Insert passages that the store does not have yet."""
    unique = list({passage.id: passage for passage in passages}.values())
    if not unique:
        return
    rows = pa.table(
        {
            "id": columns.strings([p.id for p in unique], large=True),
            "title": columns.strings([p.title for p in unique], large=True),
            "text": columns.strings([p.text for p in unique], large=True),
            "sentences": columns.lists([p.sentences for p in unique], large=True),
        }
    )
    connection.register("incoming", rows)
    connection.execute("INSERT INTO passages SELECT * FROM incoming ANTI JOIN passages USING (id)")
    connection.unregister("incoming")


AGGREGATED = """SELECT run, metric, count(*) AS scored, count(value) AS n, avg(value) AS mean,
    var_samp(value) AS variance, count(unscored) AS unscored FROM scores"""
"""SQL from scores to rows of `summaries`; to be completed with a condition and a grouping."""


def summarize(connection: duckdb.DuckDBPyConnection, run: str) -> None:
    """Recompute a run's summary row per metric from its scores; call it in every transaction that writes or deletes scores."""
    connection.execute("DELETE FROM summaries WHERE run = ?", [run])
    connection.execute(f"INSERT INTO summaries BY NAME {AGGREGATED} WHERE run = ? GROUP BY run, metric ORDER BY min(rowid)", [run])


def record(question: Question) -> str:
    """Serialize the parts of a question's gold that have no column of their own, as JSON."""
    value = {
        "aliases": {answer: list(others) for answer, others in question.aliases.items()},
        "answer_set": question.answer_set,
        "answerable": question.answerable,
        "triples": [list(triple) for triple in question.triples],
        "topic_entities": list(question.topic_entities),
    }
    if scored := {name: question.metadata[name] for name in SCORED if name in question.metadata}:
        value["metadata"] = scored
    if question.group is not None:
        value["group"] = question.group
    if question.grades:
        value["grades"] = dict(question.grades)
    if question.excluded:
        value["excluded"] = list(question.excluded)
    if STYLED in question.metadata:
        value[STYLED] = dict(question.metadata[STYLED])
    return json.dumps(value, ensure_ascii=False)


CACHE = "cache.sqlite"
"""File of the reply cache in a store folder."""
BY_RUN = ("predictions", "evidence", "usage", "indexing", "scores", "summaries", "judge_calls", "violations", "calls")
"""Tables whose rows belong to one run."""
BETWEEN_RUNS = ("battle_calls", "battles")
"""Tables whose rows belong to two runs, `one` and `other`; human labels do not belong to a run (`results.judging.judgments`)."""
RUNNING, FINISHED, INTERRUPTED, FAILED_RUN, INCOMPLETE = "running", "finished", "interrupted", "failed", "incomplete"
TOKEN = 8
"""Number of hex digits that distinguish later executions of a fingerprint from the first."""
FINGERPRINT = "split_part(run, '.', 1)"
"""SQL for the fingerprint of the run in column `run`."""


def fingerprint_of(run: str) -> str:
    """Return the task's fingerprint from a run's id; all executions of a task share it."""
    return run.partition(".")[0]


def token_of(run: str) -> str:
    """Return the token of a later execution from a run's id; "" for the first execution."""
    return run.partition(".")[2]


def execution_id(fingerprint: str, token: str) -> str:
    """Build a run's id from the task's fingerprint and the execution's token; "" stands for the first execution."""
    return f"{fingerprint}.{token}" if token else fingerprint


def shortened(run: str) -> str:
    """Shorten a run's id for tables: eight digits, and four of the token."""
    return execution_id(fingerprint_of(run)[:8], token_of(run)[:4])


@dataclass(frozen=True)
class Run:
    """Identity and description of a run.

    Attributes:
        run: Id of the run: fingerprint of dataset, method, setting and seed, with a token for later executions
            (`execution_id`).
        method: The name shown, unique within an experiment.
        method_id, kind: Id and kind of the registered method; `description` lists its parts and options.
        dataset: Data reference.
        questions: Number of questions of the task.
        provenance: Models, prompts, data revision and command of this run.
        environment: Description of packages, hardware and code, or a function that is called for it if the run is new.
        origin: `run` (made here), `submitted`, `verified` (confirmed by a run made here), or, if no board shows the submission,
            `held`, `rejected` or `withdrawn`.
        card: A submission's card.
        cluster: The kind of cluster, if an experiment states it (`put_benchmark` got it); None: that of the benchmark.
        replies: Which cached replies it may use (`Services.replies`).
    """

    run: str
    method: str
    method_id: str
    kind: str
    description: Mapping[str, Any]
    dataset: str
    dataset_fingerprint: str
    setting: str
    seed: int
    questions: int
    provenance: Mapping[str, Any]
    environment: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = dict
    origin: str = "run"
    card: Mapping[str, Any] | None = None
    cluster: str | None = None
    replies: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """Stored execution of a task, with the fields needed to choose between executions.

    Attributes:
        run: Id of the run.
        status: One of `RUNNING` … `INCOMPLETE`.
        failed: Number of failed questions.
        replies: Which cached replies it may use.
        started_at: Start (UTC).
    """

    run: str
    status: str
    failed: int
    replies: str
    started_at: datetime

    @property
    def finished(self) -> bool:
        """Return whether the execution is finished and can no longer change."""
        return self.status == FINISHED


class Store:
    """The result store: reads and writes runs, scores and datasets in a folder.

    Args:
        folder: The folder of `store.duckdb`, `artifacts/` and `checkpoints/`; created when first needed.
        calls: Whether `append` stores the model calls of predictions.
    """

    def __init__(self, folder: Path, *, calls: bool = True) -> None:
        self.folder = folder
        self.calls = calls
        self.database = Database(folder)

    @property
    def artifacts(self) -> Path:
        """Return the folder of indexes, graphs and embeddings, keyed by fingerprint."""
        return self.folder / "artifacts"

    @property
    def cache(self) -> Path:
        """Return the path of the cache of model replies."""
        return self.folder / CACHE

    def put_experiment(
        self,
        name: str,
        source: str,
        path: str | None,
        profile: str | None,
        reference: str | None,
        runs: Sequence[str],
        limit: int | None = None,
        names: Sequence[str] | None = None,
        metrics: Sequence[Sequence[str]] | None = None,
        clusters: Sequence[str | None] | None = None,
    ) -> None:
        """Store an experiment's YAML and the list of its runs, in table order.

        Args:
            name, source, path, profile, reference, limit: The experiment's name, YAML text, file, profile, reference method and
                question limit.
            runs: Ids of its runs.
            names: Method name of each run in this experiment.
            metrics: For each run, the metric ids that the experiment shows; None shows all that were scored.
            clusters: For each run, the kind of cluster that the experiment declares; None uses the benchmark's.
        """
        with self.database.writing() as connection:
            connection.execute("DELETE FROM experiments WHERE name = ?", [name])
            connection.execute("DELETE FROM experiment_runs WHERE experiment = ?", [name])
            connection.execute(
                "INSERT INTO experiments VALUES (?, ?, ?, ?, ?, ?, ?)", [name, source, path, profile, reference, limit, now()]
            )
            shown: list[str | None] = [*names] if names else [None] * len(runs)
            members: dict[str, Iterable[Any]] = {
                "experiment": [name] * len(runs),
                "position": range(len(runs)),
                "run": list(runs),
                "method": shown,
                "metrics": list(metrics) if metrics is not None else [None] * len(runs),
                "cluster": list(clusters) if clusters is not None else [None] * len(runs),
            }
            insert(connection, "experiment_runs", members)

    def put_benchmark(self, benchmark: Benchmark, fingerprint: str, declared: Sampled | None = None) -> None:
        """Store a benchmark's card, its questions with gold and clusters, and its gold passages; known data are not written again.


        Args:
            benchmark: The benchmark.
            fingerprint: Fingerprint of the benchmark.
            declared: Clusters that an experiment declares, stored in addition to the benchmark's own.
        """
        own = benchmark.sampled()
        kinds = {cluster.kind for cluster in (own, declared) if cluster is not None and cluster.labels is not None}
        stored = self.database.rows(
            """SELECT kind FROM datasets LEFT JOIN (SELECT DISTINCT dataset_fingerprint AS fingerprint, kind FROM clusters)
               USING (fingerprint) WHERE fingerprint = ?""",
            [fingerprint],
            lenient=True,
        )
        if stored and kinds <= {kind for (kind,) in stored}:
            return
        with self.database.writing() as connection:
            known = "SELECT 1 FROM clusters WHERE dataset_fingerprint = ? AND kind = ?"
            for cluster in filter(None, (own, declared)):
                if cluster.labels is not None and not connection.execute(known, [fingerprint, cluster.kind]).fetchone():
                    ids, count = [q.id for q in benchmark.questions], len(cluster.labels)
                    same = {"dataset_fingerprint": [fingerprint] * count, "kind": [cluster.kind] * count}
                    insert(connection, "clusters", {**same, "question": ids, "cluster": list(cluster.labels)})
            if connection.execute("SELECT 1 FROM datasets WHERE fingerprint = ?", [fingerprint]).fetchone():
                return
            card = benchmark.card.model_dump_json()
            notes = json.dumps(benchmark.extra.get("notes", {}), ensure_ascii=False)
            size = (len(benchmark.questions), len(benchmark.corpus))
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [fingerprint, str(benchmark.reference), card, *size, notes, own.kind, list(benchmark.extra.get(CAVEATS, ()))],
            )
            questions = benchmark.questions
            insert(
                connection,
                "questions",
                {
                    "dataset_fingerprint": [fingerprint] * len(questions),
                    "question": [q.id for q in questions],
                    "position": range(len(questions)),
                    "text": [q.text for q in questions],
                    "answers": [list(q.answers) for q in questions],
                    "golds": [list(q.golds) for q in questions],
                    "evidence": [list(q.evidence) for q in questions],
                    "supporting_facts": [list(q.supporting_facts) for q in questions],
                    "type": [q.type for q in questions],
                    "document_id": [q.document_id for q in questions],
                    "record": [record(q) for q in questions],
                    "turns": [_json([asdict(turn) for turn in q.turns]) if q.turns else None for q in questions],
                },
            )
            positives = dict.fromkeys(e for q in questions for e in q.evidence if e in benchmark.corpus)
            insert_passages(connection, benchmark.corpus.get(positives))

    def put_cards(self, methods: Iterable[Mapping[str, Any]], metrics: Iterable[Metric]) -> None:
        """Store method cards and metric definitions; the newest of each replaces older ones."""
        cards = {(card["id"], card["version"], json.dumps(card, ensure_ascii=False)) for card in methods}
        cards -= {*self.database.rows("SELECT id, version, CAST(card AS VARCHAR) FROM methods", lenient=True)}
        entries = {str(metric): metric.entry for metric in metrics}
        defined = {(id_, e.definition, e.low, e.high, e.higher_is_better, e.group, e.source, e.unit) for id_, e in entries.items()}
        fields = "id, definition, low, high, higher_is_better, metric_group, source, unit"
        defined -= {*self.database.rows(f"SELECT {fields} FROM metrics", lenient=True)}
        if self.database.exists and not cards and not defined:
            return
        with self.database.writing() as connection:
            for card in cards:
                connection.execute("DELETE FROM methods WHERE id = ? AND version = ?", card[:2])
                connection.execute("INSERT INTO methods VALUES (?, ?, ?)", card)
            for row in defined:
                connection.execute("DELETE FROM metrics WHERE id = ?", row[:1])
                connection.execute(f"INSERT INTO metrics ({fields}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def start(self, run: Run) -> None:
        """Mark a run as running, and insert it if it is new; a finished run is not changed."""
        with self.database.writing() as connection:
            if connection.execute("SELECT 1 FROM runs WHERE run = ?", [run.run]).fetchone():
                connection.execute(
                    "UPDATE runs SET status = ?, error = NULL, updated_at = ? WHERE run = ? AND status <> ?",
                    [RUNNING, now(), run.run, FINISHED],
                )
                return
            described = json.dumps(run.environment() if callable(run.environment) else run.environment, sort_keys=True)
            environment = hashlib.md5(described.encode(), usedforsecurity=False).hexdigest()
            connection.execute(
                """INSERT INTO environments SELECT ?, ?
                   WHERE NOT EXISTS (FROM environments WHERE environment = ?)""",
                [environment, described, environment],
            )
            row = {
                "run": run.run,
                "method": run.method,
                "method_id": run.method_id,
                "kind": run.kind,
                "description": json.dumps(run.description),
                "dataset": run.dataset,
                "dataset_fingerprint": run.dataset_fingerprint,
                "setting": run.setting,
                "seed": run.seed,
                "questions": run.questions,
                "status": RUNNING,
                "started_at": now(),
                "updated_at": now(),
                "provenance": json.dumps(run.provenance),
                "origin": run.origin,
                "card": None if run.card is None else json.dumps(run.card),
                "environment": environment,
                "cluster": run.cluster,
                "replies": run.replies,
                **style_of_name(run.dataset).row(),
            }
            connection.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()])

    def end(self, run: str, status: str, error: str | None = None) -> None:
        """Record how a run ended (`FINISHED`, `INTERRUPTED`, `FAILED_RUN` or `INCOMPLETE`); a finished run is not changed."""
        with self.database.writing() as connection:
            connection.execute(
                "UPDATE runs SET status = ?, error = ?, updated_at = ? WHERE run = ? AND status <> ?", [status, error, now(), run, FINISHED]
            )

    def promise(self, runs: Iterable[Run]) -> None:
        """Insert planned runs before they start, so that a later command can resume those that an interruption left unstarted."""
        for run in runs:
            self.start(run)
            self.end(run.run, INTERRUPTED, "not started yet")

    def append(self, run: str, predictions: Sequence[Prediction], scores: Mapping[str, Scores], passages: Iterable[Passage] = ()) -> None:
        """Write answered questions with their scores in one transaction.

        Existing answers are kept, for example if two processes execute one task; only failed ones are replaced. A finished run
        is not changed.

        Args:
            run: Id of the run.
            predictions: The answers, with the dataset's own question ids.
            scores: Scores by metric id, shape (len(predictions),); NaN is unscorable.
            passages: Passages that the evidence refers to; known ones are not written again.
        """
        with self.database.writing() as connection:
            status = connection.execute("SELECT status FROM runs WHERE run = ?", [run]).fetchone()
            if status is None:
                raise Broke(
                    f"run {run} is not in the store: the store was removed or replaced while the run was going on",
                    code="store-vanished",
                    where=str(self.folder),
                    try_this="put the folder back, or run the same command again: it starts a new store",
                )
            if status == (FINISHED,):
                return
            known = {
                question
                for (question,) in connection.execute(
                    "SELECT question FROM predictions WHERE run = ? AND failed IS NULL AND list_contains(?, question)",
                    [run, [p.question_id for p in predictions]],
                ).fetchall()
            }
            if known:
                wanted = [position for position, p in enumerate(predictions) if p.question_id not in known]
                predictions = [predictions[position] for position in wanted]
                scores = {metric: np.asarray(values)[wanted] for metric, values in scores.items()}
            questions = [prediction.question_id for prediction in predictions]
            runs = [run] * len(predictions)
            answers = [storable(p.answer) for p in predictions]
            reasons = [reason(str(p.notes[FAILED])) if p.notes.get(FAILED) else None for p in predictions]
            notes = [{**p.notes, **({} if why is None else {FAILED: why})} for p, why in zip(predictions, reasons, strict=True)]
            connection.register("fresh", pa.table({"question": columns.strings(questions)}))
            for table in ("predictions", "evidence", "usage", "calls", "scores", "judge_calls"):
                connection.execute(f"DELETE FROM {table} WHERE run = ? AND question IN (SELECT question FROM fresh)", [run])
            for table in ("battle_calls", "battles"):
                connection.execute(
                    f"DELETE FROM {table} WHERE (one = ? OR other = ?) AND question IN (SELECT question FROM fresh)", [run, run]
                )
            insert(
                connection,
                "predictions",
                {
                    "run": runs,
                    "question": questions,
                    "answer": answers,
                    "failed": [None if why is None else storable(why) for why in reasons],
                    "cause": [(CODE if p.notes.get(CAUSE) == CODE else MODEL) if p.notes.get(FAILED) else None for p in predictions],
                    "notes": [storable(json.dumps(kept_notes, ensure_ascii=False)) for kept_notes in notes],
                    "raw": [storable(kept(p.raw)) if p.raw else None for p in predictions],
                    **_record(predictions),
                    # A copy of an equal call in flight is new.
                    "cached_replies": [sum(call.cached and call.created is not None for call in p.calls) for p in predictions],
                    "oldest_reply": [_oldest(p.calls) for p in predictions],
                },
            )
            ranked = [(q, rank, e) for q, p in zip(questions, predictions, strict=True) for rank, e in enumerate(p.evidence, 1)]
            insert(
                connection,
                "evidence",
                {
                    "run": [run] * len(ranked),
                    "question": [question for question, _, _ in ranked],
                    "rank": [rank for _, rank, _ in ranked],
                    "id": [item.id for _, _, item in ranked],
                    "score": [item.score for _, _, item in ranked],
                },
            )
            usage = [p.usage for p in predictions]
            insert(
                connection,
                "usage",
                {
                    "run": runs,
                    "question": questions,
                    "prompt_tokens": [u.prompt_tokens for u in usage],
                    "completion_tokens": [u.completion_tokens for u in usage],
                    "memory_tokens": [u.memory_tokens for u in usage],
                    "model_calls": [u.model_calls for u in usage],
                    "seconds": [u.own_s for u in usage],
                    "stages": [json.dumps(dict(u.seconds)) for u in usage],
                    "peak_memory_bytes": [u.peak_memory_bytes for u in usage],
                    "cost_usd": [float(u.cost_usd) for u in usage],
                },
            )
            self._insert_calls(connection, run, predictions)
            insert_scores(connection, run, questions, scores)
            summarize(connection, run)
            insert_passages(connection, list(passages))

    def _insert_calls(self, connection: duckdb.DuckDBPyConnection, run: str, predictions: Sequence[Prediction]) -> None:
        made = [(p.question_id, position, call) for p in predictions for position, call in enumerate(p.calls[:KEPT_CALLS], 1)]
        if not made or not self.calls:
            return
        rows: dict[str, Iterable[Any]] = {
            "run": [run] * len(made),
            "question": [question for question, _, _ in made],
            "position": [position for _, position, _ in made],
            "prompt_tokens": [call.prompt_tokens for _, _, call in made],
            "completion_tokens": [call.completion_tokens for _, _, call in made],
            "seconds": [float(call.seconds) for _, _, call in made],
            "created": [_moment(call.created) for _, _, call in made],
        }
        rows |= {name: [storable(getattr(call, name)) for _, _, call in made] for name in ("role", "step", "finish_reason", "model")}
        rows |= {
            name: [storable(kept(getattr(call, name))) for _, _, call in made] for name in ("prompt", "reply", "thought", "raw", "refusal")
        }
        rows |= {name: np.array([getattr(call, name) for _, _, call in made], bool) for name in ("cached", "failed")}
        insert(connection, "calls", rows)

    def put_indexing(self, run: str, indexed: Indexed) -> None:
        """Store the cost of indexing for a run; if the run has used the artifact before, the first cost is kept."""
        usage = indexed.usage
        row = {
            "run": run,
            "artifact": indexed.artifact,
            "reused": indexed.reused,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "memory_tokens": usage.memory_tokens,
            "model_calls": usage.model_calls,
            "seconds": float(sum(usage.seconds.values())),
            "peak_memory_bytes": usage.peak_memory_bytes,
            "cost_usd": float(usage.cost_usd),
            "notes": json.dumps(dict(indexed.notes), default=str) if indexed.notes else None,
        }
        with self.database.writing() as connection:
            known = "FROM indexing WHERE run = ? AND artifact = ?"
            connection.execute(
                f"INSERT INTO indexing ({', '.join(row)}) SELECT {', '.join('?' * len(row))} WHERE NOT EXISTS ({known})",
                [*row.values(), run, indexed.artifact],
            )

    def put_scores(self, run: str, questions: Sequence[str], scores: Mapping[str, Scores]) -> None:
        """Add scores of stored predictions; existing scores of a question on these metrics are kept."""
        with self.database.writing() as connection:
            for metric, values in scores.items():
                known = {
                    question
                    for (question,) in connection.execute(
                        "SELECT question FROM scores WHERE run = ? AND metric = ?", [run, metric]
                    ).fetchall()
                }
                wanted = [position for position, question in enumerate(questions) if question not in known]
                if wanted:
                    insert_scores(connection, run, [questions[position] for position in wanted], {metric: np.asarray(values)[wanted]})
            summarize(connection, run)

    def begin_as(self, run: Run, earlier: str) -> None:
        """Insert a run that reuses the successful answers of an earlier execution, with their scores and judgments.

        Args:
            run: The new run.
            earlier: Id of the earlier execution of the same task.
        """
        self.start(run)
        with self.database.writing() as connection:
            answered = "SELECT question FROM predictions WHERE run = ? AND failed IS NULL"
            for table in ("evidence", "usage", "calls", "scores", "judge_calls", "predictions"):
                connection.execute(
                    f"INSERT INTO {table} SELECT * REPLACE (? AS run) FROM {table} WHERE run = ? AND question IN ({answered})",
                    [run.run, earlier, earlier],
                )
            connection.execute("INSERT INTO indexing SELECT * REPLACE (? AS run) FROM indexing WHERE run = ?", [run.run, earlier])
            summarize(connection, run.run)

    def forget(self, run: str) -> None:
        """Delete the data of an unfinished run; a finished run is not changed.

        Human labels of its answers are kept, and apply again if the run later gives the same answers.
        """
        if self.status(run) == FINISHED:
            return
        with self.database.writing() as connection:
            for table in (*BY_RUN, "imports", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run = ?", [run])
            for table in BETWEEN_RUNS:
                connection.execute(f"DELETE FROM {table} WHERE one = ? OR other = ?", [run, run])

    def finished_questions(self, run: str, *, retry_failed: bool = False) -> set[str]:
        """Return the ids of the questions that a resumed run does not ask again.

        Failures in ragmeter's or a plug-in's code are asked again unless the user accepted them; with `retry_failed`, all
        failures are.
        """
        accepted = "run IN (SELECT run FROM runs WHERE accepted_at IS NOT NULL)"
        condition = " AND failed IS NULL" if retry_failed else f" AND (cause IS DISTINCT FROM '{CODE}' OR {accepted})"
        rows = self.database.rows(f"SELECT question FROM predictions WHERE run = ?{condition}", [run], lenient=True)
        return {row[0] for row in rows}

    def accept(self, run: str, accepted: bool) -> None:
        """Record whether the user accepts failures in ragmeter's or a plug-in's code as wrong answers; a finished run is not changed."""
        with self.database.writing() as connection:
            connection.execute(
                "UPDATE runs SET accepted_at = ? WHERE run = ? AND status <> ?", [now() if accepted else None, run, FINISHED]
            )

    def status(self, run: str) -> str | None:
        """Return the status of a run; None if it was never started."""
        return next((status for (status,) in self.database.rows("SELECT status FROM runs WHERE run = ?", [run], lenient=True)), None)

    def executions(self, fingerprints: Collection[str]) -> dict[str, list[Execution]]:
        """List the stored executions of tasks by fingerprint, in order of their start."""
        if not self.database.exists or not fingerprints:
            return {}
        rows = self.database.rows(
            f"""SELECT r.run, status, (SELECT count(failed) FROM predictions p WHERE p.run = r.run), replies, started_at FROM runs r
                    WHERE list_contains(?, {FINGERPRINT}) ORDER BY started_at, run""",
            [list(fingerprints)],
        )
        results: dict[str, list[Execution]] = {}
        for row in rows:
            results.setdefault(fingerprint_of(row[0]), []).append(Execution(*row))
        return results

    def runs_of(self, experiment: str) -> list[str]:
        """Return the ids of the runs that an experiment shows; empty if the experiment is not stored."""
        rows = self.database.rows("SELECT run FROM experiment_runs WHERE experiment = ? ORDER BY position", [experiment], lenient=True)
        return [run for (run,) in rows]

    def scored(self, run: str) -> dict[str, int]:
        """Return the number of questions of a run that were scored, by metric id."""
        rows = self.database.rows("SELECT metric, count(*) FROM scores WHERE run = ? GROUP BY 1", [run], lenient=True)
        return dict(rows)

    def predictions(self, run: str) -> list[Prediction]:
        """Read a run's predictions, sorted by question id."""
        with self.database.reading() as connection:
            responses = connection.execute(
                """SELECT question, answer, notes, prompt_tokens, completion_tokens, memory_tokens, model_calls, stages,
                   peak_memory_bytes, cost_usd,
                   contexts, statements, searches, confidence FROM predictions JOIN usage USING (run, question) WHERE run = ?
                   ORDER BY question""",
                [run],
            ).fetchall()
            ranked = connection.execute("SELECT question, id, score FROM evidence WHERE run = ? ORDER BY question, rank", [run]).fetchall()
        evidence: dict[str, list[Evidence]] = {}
        for question, identifier, score in ranked:
            evidence.setdefault(question, []).append(Evidence(identifier, score))
        return [
            Prediction(
                question,
                answer,
                tuple(evidence.get(question, ())),
                Usage(prompt, completion, memory, calls, json.loads(stages), peak, cost),
                json.loads(notes),
                **stored_record(kept_record),
            )
            for question, answer, notes, prompt, completion, memory, calls, stages, peak, cost, *kept_record in responses
        ]


def _json(value: Any) -> str:
    return storable(json.dumps(value, ensure_ascii=False))


def _record(predictions: Sequence[Prediction]) -> dict[str, list[Any]]:
    """Return the columns of `methods.record.RECORD`, NULL if the system returned none."""
    records = [prediction.record() for prediction in predictions]
    texts = {name: [_json(row[name]) if name in row else None for row in records] for name in ("contexts", "statements", "searches")}
    return {**texts, "confidence": [row.get("confidence") for row in records]}


def stored_record(cells: Sequence[Any]) -> dict[str, Any]:
    """Convert the columns `contexts`, `statements`, `searches` and `confidence` of a row to arguments of `Prediction`."""
    *texts, confidence = cells
    parsed = {name: json.loads(text) for name, text in zip(("contexts", "statements", "searches"), texts, strict=True) if text}
    return read_record({**parsed, "confidence": confidence})


def _moment(seconds: float | None) -> datetime | None:
    """Convert a time in seconds since 1970 to the store's format, UTC without a zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _oldest(calls: Sequence[Call]) -> datetime | None:
    """Return the time of the oldest cached reply among calls."""
    return _moment(min((call.created for call in calls if call.cached and call.created is not None), default=None))


def left_behind(store: Store, name: str, source: str, path: str | None, runs: Collection[str]) -> str | None:
    """Return a warning if replacing a stored experiment of the same name would leave some of its runs without an experiment; else None.

    Args:
        store: The store, before the replacement.
        name, source, path: Name, YAML text and file of the new experiment.
        runs: Ids of the new experiment's runs.

    Returns:
        None if every stored run stays in some experiment, or has a newer execution in this one.
    """
    if not store.database.exists:
        return None
    with store.database.reading() as connection:
        before = connection.execute("SELECT source, path FROM experiments WHERE name = ?", [name]).fetchone()
        alone = connection.execute(
            """SELECT DISTINCT run FROM experiment_runs SEMI JOIN runs USING (run) WHERE experiment = ?
               AND run NOT IN (SELECT run FROM experiment_runs WHERE experiment <> ?)""",
            [name, name],
        ).fetchall()
    again = {fingerprint_of(run) for run in runs}
    number = len({run for (run,) in alone if fingerprint_of(run) not in again})
    if before is None or not number:
        return None
    if before == (source, path):
        was = f"{name} was run with other options, versions or data until now"
    elif before[1] == path:
        was = f"{name} had another text until now"
    else:
        was = f"{name} was another file until now" + (f", {before[1]}" if before[1] else "")
    stay = "stays" if number == 1 else "stay"
    return f"{was}; {counted(number, 'run')} of it {stay} in the store, in no experiment (-/… in `ragmeter list runs`)"
