"""Facts about one method and about each dataset, and the losses of each stage of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage
from benchmarks.settings import Setting
from methods.api import WAIT
from results.statistics.core import Estimate
from results.statistics.intervals import estimates
from results.statistics.stages import StageLosses, stage_losses
from results.store import answer_queries, cost_queries, queries, score_queries
from results.store.answer_queries import QuestionRow
from results.store.cost_queries import Cost
from results.store.queries import RunRow
from results.store.redaction import shareable
from results.store.store import FINISHED, Store


@dataclass(frozen=True, slots=True)
class Attribution:
    """A run's lost score, split by pipeline stage (retrieval, reranking, compression, reading).

    Attributes:
        run: The run.
        losses: The losses; None if a needed run is missing.
        questions: Number of questions that all runs were scored on.
        missing: Settings in which the same pipeline has no finished run yet.
        obstacle: Why these runs cannot be made; empty if they can.
    """

    run: RunRow
    losses: StageLosses | None
    questions: int = 0
    missing: tuple[str, ...] = ()
    obstacle: str = ""


def attribution(store: Store, run: RunRow, metric: str, *, ceiling: float = 1.0, among: Sequence[RunRow] | None = None) -> Attribution:
    """Split a run's lost score into the losses of retrieval, reranking, compression and reading.

    This needs further runs of the same pipeline, data and seed: with gold evidence added, with only gold evidence, and without
    passages.

    Args:
        store: The store to read.
        run: The run to explain.
        metric: Id of a metric where higher is better.
        ceiling: Maximum score of a question.
        among: All runs on the same data, if the caller already has them; None reads them.
    """
    try:
        wanted = _wanted(run)
    except UserError as error:
        return Attribution(run, None, obstacle=error.what)
    same = queries.runs(store, dataset_fingerprint=run.dataset_fingerprint) if among is None else among
    every = {row.run: row for row in same if row.seed == run.seed and row.status == FINISHED}.values()
    results = {name: _first(every, setting, run.description) for name, setting in wanted.items()}
    missing = tuple(str(wanted[name]) for name, row in results.items() if row is None)
    if missing:
        return Attribution(run, None, missing=missing)
    chosen = {name: row.run for name, row in results.items() if row is not None}
    if run.description.get("compressor"):
        plain = {**run.description, "compressor": None, "budget": None}
        full = _first(every, wanted["gold_only"], plain)
        if full is not None:
            chosen["gold_uncompressed"] = full.run
    columns = score_queries.score_columns(store, run.dataset_fingerprint, [run.run, *chosen.values()], [metric], {run.experiment})
    nothing = np.full(len(columns.questions), np.nan)
    scores = {name: columns.values.get((item, metric), nothing) for name, item in {"normal": run.run, **chosen}.items()}
    common = int((~np.isnan(np.stack(list(scores.values()))).any(axis=0)).sum())
    if not common:
        return Attribution(run, None, obstacle="no question was scored in all of these settings")
    losses = stage_losses(
        scores["normal"],
        gold_in_noise=scores["gold_in_noise"],
        gold_only=scores["gold_only"],
        closed_book=scores["closed_book"],
        gold_uncompressed=scores.get("gold_uncompressed"),
        clusters=columns.sampled.labels,
        ceiling=ceiling,
    )
    return Attribution(run, losses, common)


def _wanted(run: RunRow) -> dict[str, Setting]:
    """Return, by parameter of `stage_losses`, the setting that the same pipeline must have run in.

    Raises:
        UserError: The run's setting has no candidates to which the evidence could be added.
    """
    usual = Setting.parse(run.setting)
    if usual.name not in ("corpus", "distractor") or (usual.name == "corpus" and usual.retriever is None):
        raise UserError(
            f"the setting {usual} lists no candidates to which missing evidence could be added; distractor and "
            "corpus(retriever=bm25,n=20) do",
            code="setting-without-candidates",
        )
    return {
        "gold_in_noise": Setting.parse(f"oracle(base={usual})"),
        "gold_only": Setting("gold_only"),
        "closed_book": Setting("closed_book"),
    }


def _first(runs: Iterable[RunRow], setting: Setting, description: Mapping[str, Any]) -> RunRow | None:
    """Return the first run of a pipeline in a setting."""
    return next((row for row in runs if row.setting == str(setting) and row.description == description), None)


@dataclass(frozen=True, slots=True)
class Contaminated:
    """Submission whose declared training data cover the test questions.

    Attributes:
        run: Fingerprint of the submission's run.
        method: Name of the submission's method.
        reasons: One sentence per item of training data.
    """

    run: str
    method: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Facts about a stored dataset, for its page.

    Attributes:
        fingerprint: Fingerprint of its content.
        name: Name as in runs; mixes of styles include their shares.
        card: The registered dataset card.
        notes: Remarks of the loader, for example on skipped records.
        questions, passages: Number of each.
        types: Number of questions by type, most frequent first; "" for questions without a type.
        without_gold: Number of questions without a gold answer.
        with_evidence: Number of questions with gold passages.
        documents: Number of documents that several questions share; 0 if each question has its own.
        words: Mean number of words per question, split at spaces.
        runs, methods: Number of runs on it, and of their methods.
        contaminated: Submissions that declare it as training data.
    """

    fingerprint: str
    name: str
    card: Mapping[str, Any]
    notes: tuple[str, ...]
    questions: int
    passages: int
    types: dict[str, int]
    without_gold: int
    with_evidence: int
    documents: int
    words: float
    runs: int
    methods: int
    contaminated: tuple[Contaminated, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Question with its gold passages that are in the store, by passage id."""

    question: QuestionRow
    passages: Mapping[str, Passage]


def dataset_facts(store: Store) -> list[DatasetFacts]:
    """Summarize every stored dataset, sorted by name."""
    cards = queries.datasets(store)
    with store.database.reading() as connection:
        counted = connection.execute(
            """SELECT dataset_fingerprint, count_if(array_to_string(answers, '') = ''),
               count_if(len(evidence) > 0), count(DISTINCT document_id),
               avg(len(string_split(trim(text), ' '))) FROM questions GROUP BY 1"""
        ).fetchall()
        typed = connection.execute("SELECT dataset_fingerprint, type, count(*) FROM questions GROUP BY 1, 2 ORDER BY 3 DESC, 2").fetchall()
        requests = connection.execute(
            """SELECT dataset_fingerprint, min(dataset), count(*), count(DISTINCT method) FROM runs
               WHERE NOT list_contains(?, origin) GROUP BY 1""",
            [list(queries.HIDDEN)],
        ).fetchall()
        sent = connection.execute(
            """SELECT dataset_fingerprint, run, method, card FROM runs
               WHERE card IS NOT NULL AND NOT list_contains(?, origin) ORDER BY method, run""",
            [list(queries.HIDDEN)],
        ).fetchall()
    counts = {row[0]: row[1:] for row in counted}
    use = {row[0]: row[1:] for row in requests}
    results = []
    for fingerprint, stored in cards.items():
        without_gold, with_evidence, documents, words = counts.get(fingerprint, (0, 0, 0, float("nan")))
        name, runs, methods = use.get(fingerprint, (stored["reference"], 0, 0))
        results.append(
            DatasetFacts(
                fingerprint,
                name,
                stored["card"],
                _notes(stored["notes"]),
                stored["questions"],
                stored["passages"],
                {kind: number for owner, kind, number in typed if owner == fingerprint},
                without_gold,
                with_evidence,
                documents,
                words,
                runs,
                methods,
                _contaminated(fingerprint, sent),
            )
        )
    return sorted(results, key=lambda facts: (facts.name, facts.fingerprint))


def _notes(stored: Any) -> tuple[str, ...]:
    """Return notes as sentences, from a list or a mapping."""
    if isinstance(stored, Mapping):
        return tuple(f"{name}: {value}" for name, value in stored.items())
    return tuple(str(note) for note in stored or ())


def _contaminated(fingerprint: str, sent: Sequence[tuple[Any, ...]]) -> tuple[Contaminated, ...]:
    results = []
    for owner, run, method, card in sent:
        reasons = (json.loads(card).get("submission") or {}).get("contamination") if owner == fingerprint else None
        if reasons:
            listed = [reasons] if isinstance(reasons, str) else reasons
            results.append(Contaminated(run, method, tuple(str(reason) for reason in listed)))
    return tuple(results)


def samples(store: Store, fingerprint: str, number: int = 5, start: int = 0) -> list[Sample]:
    """Draw questions evenly spaced over a dataset, with their gold.

    Args:
        store: The store to read.
        fingerprint: Fingerprint of the dataset.
        number: Number of questions.
        start: Offset of the sample; equal offsets give equal samples.
    """
    requests = answer_queries.questions(store, fingerprint)
    if not requests:
        return []
    positions = np.linspace(0, len(requests), min(number, len(requests)), endpoint=False).astype(int)
    chosen = [requests[(position + start) % len(requests)] for position in positions]
    owned = answer_queries.passages(store, list(dict.fromkeys(item for row in chosen for item in row.evidence)))
    return [Sample(row, {item: owned[item] for item in row.evidence if item in owned}) for row in chosen]


@dataclass(frozen=True, slots=True)
class Result:
    """Scores and cost of one run, for a method's page.

    Attributes:
        run: The run, under the method name that its experiment uses.
        values: Mean scores by metric id, in the requested order; missing metrics are left out.
        cost: None if nothing was measured.
        stages: Mean seconds per question by stage, without waiting for a free slot (`waited_s`).
        peak_memory_bytes: Maximum memory over all questions; 0 if it was not measured.
    """

    run: RunRow
    values: dict[str, Estimate]
    cost: Cost | None
    stages: dict[str, float]
    peak_memory_bytes: int
    waited_s: float = 0.0


def cards(store: Store) -> dict[str, dict[str, Any]]:
    """Read the cards of all methods and their parts, by id; the newest version of each."""
    rows = store.database.rows("SELECT id, card FROM methods ORDER BY id, version")
    return {name: shareable(card) for name, card in rows}


def method_ids(store: Store) -> list[str]:
    """List the ids of methods that have runs or registered checkpoints, alphabetically."""
    query = "SELECT method_id FROM runs WHERE NOT list_contains(?, origin) UNION SELECT method FROM checkpoints ORDER BY 1"
    rows = store.database.rows(query, [list(queries.HIDDEN)])
    return [row[0] for row in rows]


def runs_of(store: Store, method: str) -> list[RunRow]:
    """List a method's runs, each once, sorted by dataset, setting and seed."""
    made: dict[str, RunRow] = {}
    for run in queries.runs(store, method=method):
        made.setdefault(run.run, run)
    return sorted(made.values(), key=lambda run: (run.dataset, run.setting, run.seed, run.method))


def results_of(store: Store, runs: Sequence[RunRow], metrics: Sequence[str]) -> list[Result]:
    """Read the scores and costs of runs, in their order.

    Args:
        store: The store to read.
        runs: The runs; they may be on different data.
        metrics: Metric ids.
    """
    ids = [run.run for run in runs]
    by_data: dict[str, list[str]] = {}
    for run in runs:
        by_data.setdefault(run.dataset_fingerprint, []).append(run.run)
    with store.database.reading():
        read = list(score_queries.score_columns_by_data(store, by_data, metrics, {run.experiment for run in runs}).values())
        costs, stages, peaks = cost_queries.costs(store, ids), stage_seconds(store, ids), _peaks(store, ids)
    values: dict[str, dict[str, Estimate]] = {run: {} for run in ids}
    for result in read:
        if not result.values:
            continue
        whole = estimates(np.stack(list(result.values.values())), clusters=result.sampled.labels)
        for (name, metric), item in zip(result.values, whole, strict=True):
            values[name][metric] = replace(item, unscorable=result.unscorable[name, metric])
    ordered = {name: {metric: had[metric] for metric in metrics if metric in had} for name, had in values.items()}
    return [
        Result(run, ordered[run.run], costs.get(run.run), own := stages.get(run.run, {}), peaks.get(run.run, 0), own.pop(WAIT, 0.0))
        for run in runs
    ]


def stage_seconds(store: Store, runs: Sequence[str]) -> dict[str, dict[str, float]]:
    """Read the mean seconds per question by run and stage, longest stage first; a skipped stage counts as 0 seconds."""
    rows = store.database.rows(
        """WITH mine AS (SELECT run, stages FROM usage WHERE list_contains(?, run)),
                    counts AS (SELECT run, count(*) AS n FROM mine GROUP BY run),
                    parts AS (SELECT run, unnest(map_entries(from_json(stages, '"MAP(VARCHAR, DOUBLE)"'))) AS part
                              FROM mine)
               SELECT run, part.key, sum(part.value ORDER BY part.value) / any_value(n) AS mean FROM parts JOIN counts USING (run)
               GROUP BY run, part.key ORDER BY run, mean DESC, part.key""",
        [list(runs)],
    )
    results: dict[str, dict[str, float]] = {}
    for run, stage, mean in rows:
        results.setdefault(run, {})[stage] = mean
    return results


def _peaks(store: Store, runs: Sequence[str]) -> dict[str, int]:
    rows = store.database.rows("SELECT run, max(peak_memory_bytes) FROM usage WHERE list_contains(?, run) GROUP BY run", [list(runs)])
    return dict(rows)
