"""Rows on their way into the store: Python values and arrays to Arrow, Arrow to DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.schema import Passage, Question
from benchmarks.styles.mix import STYLED
from judges.api import Scores


def storable(text: str) -> str:
    """The text with what UTF-8 cannot say (half a surrogate pair, from a model's cut output) replaced by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def insert(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Iterable[Any]]) -> None:
    """Insert columns by Arrow; typed by the table, so that empty and all-None columns go in too."""
    names = list(columns)
    rows = pa.table({name: _arrow(table, name, values) for name, values in columns.items()})
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(names)} FROM incoming")
    connection.unregister("incoming")


_LISTS = {"answers", "golds", "evidence", "supporting_facts", "sentences", "metrics", "parents", "data"}
_INTEGERS = {"rank", "position", "repetition", "prompt_tokens", "completion_tokens", "memory_tokens", "model_calls", "peak_memory_bytes"}
_FLOATS = {"score", "value", "seconds", "cost_usd"}


def _arrow(table: str, name: str, values: Iterable[Any]) -> pa.Array:
    if isinstance(values, np.ndarray):
        return pa.array(values, from_pandas=True)
    if name in _LISTS:
        kind: pa.DataType = pa.list_(pa.string())
    elif name in _INTEGERS:
        kind = pa.int64()
    elif name in _FLOATS:
        kind = pa.float64()
    else:
        kind = pa.string()
    return pa.array(list(values), kind)


def insert_scores(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    questions: Sequence[str],
    scores: Mapping[str, Scores],
    unscored: Mapping[str, Sequence[str | None]] | None = None,
) -> None:
    """Insert scores: by metric id, shape (questions,); NaN becomes NULL, with a judge's reason where it gives one."""
    if not scores:
        return
    count = len(questions)
    dictionary = pa.array(list(scores), pa.string())
    metric = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(scores), dtype=np.int32), count), dictionary)
    question = pa.DictionaryArray.from_arrays(
        np.tile(np.arange(count, dtype=np.int32), len(scores)), pa.array(list(questions), pa.string())
    )
    values = np.concatenate([np.asarray(scores[name], np.float64) for name in scores])
    columns = {"question": question, "metric": metric, "value": pa.array(values, from_pandas=True)}
    if unscored:
        reasons = [reason for name in scores for reason in unscored.get(name, [None] * count)]
        columns["unscored"] = pa.array(reasons, pa.string())
    connection.register("incoming", pa.table(columns))
    connection.execute("INSERT INTO scores BY NAME SELECT ? AS run, * FROM incoming", [run])
    connection.unregister("incoming")


def insert_passages(connection: duckdb.DuckDBPyConnection, passages: Sequence[Passage]) -> None:
    """Insert those passages that the store does not hold yet."""
    unique = list({passage.id: passage for passage in passages}.values())
    if not unique:
        return
    rows = pa.table(
        {
            "id": pa.array([p.id for p in unique], pa.string()),
            "title": pa.array([p.title for p in unique], pa.string()),
            "text": pa.array([p.text for p in unique], pa.string()),
            "sentences": pa.array([list(p.sentences) for p in unique], pa.list_(pa.string())),
        }
    )
    connection.register("incoming", rows)
    connection.execute("INSERT INTO passages SELECT * FROM incoming ANTI JOIN passages USING (id)")
    connection.unregister("incoming")


AGGREGATED = """SELECT run, metric, count(*) AS scored, count(value) AS n, avg(value) AS mean,
    var_samp(value) AS variance, count(unscored) AS unscored FROM scores"""
"""From scores to rows of `summaries`; wants a condition and a grouping."""


def summarise(connection: duckdb.DuckDBPyConnection, run: str) -> None:
    """Rewrite a run's row per metric from its scores; part of every transaction that writes or deletes scores."""
    connection.execute("DELETE FROM summaries WHERE run = ?", [run])
    connection.execute(f"INSERT INTO summaries BY NAME {AGGREGATED} WHERE run = ? GROUP BY run, metric ORDER BY min(rowid)", [run])


def record(question: Question) -> str:
    """What of a question's gold has no column of its own, as JSON."""
    value = {
        "aliases": {answer: list(others) for answer, others in question.aliases.items()},
        "answer_set": question.answer_set,
        "answerable": question.answerable,
        "triples": [list(triple) for triple in question.triples],
        "topic_entities": list(question.topic_entities),
    }
    if STYLED in question.metadata:
        value[STYLED] = dict(question.metadata[STYLED])
    return json.dumps(value, ensure_ascii=False)


def complete_gold(connection: duckdb.DuckDBPyConnection, fingerprint: str, questions: Sequence[Question]) -> None:
    """Add to questions that an earlier ragmeter stored what it did not keep of their gold."""
    lacking = connection.execute(
        "SELECT 1 FROM questions WHERE dataset_fingerprint = ? AND record IS NULL LIMIT 1", [fingerprint]
    ).fetchall()  # all of it: a result that is not read to its end keeps the connection busy
    if lacking:
        rows = pa.table({"question": [q.id for q in questions], "record": [record(q) for q in questions]})
        connection.register("incoming", rows)
        connection.execute(
            """UPDATE questions SET record = incoming.record FROM incoming
               WHERE questions.dataset_fingerprint = ? AND questions.question = incoming.question""",
            [fingerprint],
        )
        connection.unregister("incoming")
