"""Insert rows into the tables of the store: values become columns, and one Arrow table per statement is inserted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import columns
from benchmarks.schema import SCORED, Passage, Question
from benchmarks.styles import STYLED
from judges.metric import Scores
from methods.api import CAUSE, CODE, FAILED, KEPT_CALLS, MODEL, Call, Prediction, kept, reason
from methods.record import read_record


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
_INTEGERS = {
    "rank", "position", "repetition", "prompt_tokens", "completion_tokens", "memory_tokens", "model_calls", "peak_memory_bytes",
    "cached_replies",
}  # fmt: skip
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


def _gold_record(question: Question) -> str:
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


def insert_questions(connection: duckdb.DuckDBPyConnection, fingerprint: str, questions: Sequence[Question]) -> None:
    """Insert the questions of a dataset with their gold."""
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
            "record": [_gold_record(q) for q in questions],
            "turns": [_json([asdict(turn) for turn in q.turns]) if q.turns else None for q in questions],
        },
    )


def insert_predictions(connection: duckdb.DuckDBPyConnection, run: str, predictions: Sequence[Prediction]) -> None:
    """Insert the answers of a run with their evidence and usage."""
    questions = [prediction.question_id for prediction in predictions]
    runs = [run] * len(predictions)
    answers = [storable(p.answer) for p in predictions]
    reasons = [reason(str(p.notes[FAILED])) if p.notes.get(FAILED) else None for p in predictions]
    notes = [{**p.notes, **({} if why is None else {FAILED: why})} for p, why in zip(predictions, reasons, strict=True)]
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


def insert_calls(connection: duckdb.DuckDBPyConnection, run: str, predictions: Sequence[Prediction]) -> None:
    """Insert the model calls of a run's answers, the first `KEPT_CALLS` of each."""
    made = [(p.question_id, position, call) for p in predictions for position, call in enumerate(p.calls[:KEPT_CALLS], 1)]
    if not made:
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
