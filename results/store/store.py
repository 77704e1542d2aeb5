"""Write runs, experiments and datasets to the store, and read runs back to resume them. `rows` builds the rows.

A run is one execution of a task. Its id is the task's fingerprint, followed by a token for every execution but the
first. It is open until it is finished: executing the task again adds the missing answers. A finished run never changes;
scores and judgments of other metrics and judges can be added. Predictions and their scores are written in one
transaction per batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import columns
from benchmarks.clusters import Sampled
from benchmarks.core.errors import Broke, counted
from benchmarks.registry import CAVEATS, Benchmark
from benchmarks.schema import Passage
from judges.metric import Metric, Scores
from methods.api import CODE, Evidence, Indexed, Prediction, Usage
from results.store.database import Database
from results.store.rows import (
    insert,
    insert_calls,
    insert_passages,
    insert_predictions,
    insert_questions,
    insert_scores,
    stored_record,
    summarize,
)
from results.store.schema import after_all, now
from results.store.variants import style_of_name

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
            insert_questions(connection, fingerprint, benchmark.questions)
            positives = dict.fromkeys(e for q in benchmark.questions for e in q.evidence if e in benchmark.corpus)
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
            # The newest execution is the one that gates and experiments use.
            started = after_all(connection, "runs", "started_at", f"{FINGERPRINT} = split_part(?, '.', 1)", [run.run])
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
                "started_at": started,
                "updated_at": started,
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
            connection.register("fresh", pa.table({"question": columns.strings(questions)}))
            for table in ("predictions", "evidence", "usage", "calls", "scores", "judge_calls"):
                connection.execute(f"DELETE FROM {table} WHERE run = ? AND question IN (SELECT question FROM fresh)", [run])
            for table in ("battle_calls", "battles"):
                connection.execute(
                    f"DELETE FROM {table} WHERE (one = ? OR other = ?) AND question IN (SELECT question FROM fresh)", [run, run]
                )
            insert_predictions(connection, run, predictions)
            if self.calls:
                insert_calls(connection, run, predictions)
            insert_scores(connection, run, questions, scores)
            summarize(connection, run)
            insert_passages(connection, list(passages))

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
