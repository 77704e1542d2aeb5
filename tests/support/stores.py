"""Changes to stored rows that the store itself never makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.read_questions import Recorder, write_record
from judges.metric import Scores
from methods.api import Prediction
from results.store.checkpoints import Checkpoint, describe, register
from results.store.rows import storable, summarize
from results.store.store import Store


def change_score(store: Store, run: str, metric: str, value: float | None) -> None:
    """Set every score of a run by a metric."""
    with store.database.writing() as connection:
        connection.execute("UPDATE scores SET value = ? WHERE run = ? AND metric = ?", [value, run, metric])
        summarize(connection, run)


def change_answer(store: Store, run: str, question: str, answer: str) -> None:
    """Set the answer of a run to a question."""
    with store.database.writing() as connection:
        connection.execute("UPDATE predictions SET answer = ? WHERE run = ? AND question = ?", [storable(answer), run, question])


def answer_again(store: Store, run: str, predictions: Sequence[Prediction]) -> None:
    """Replace predictions of a run, whatever its status; scores and judgments of these questions are deleted."""
    with store.database.writing() as connection:
        (status,) = connection.execute("SELECT status FROM runs WHERE run = ?", [run]).fetchone() or ("",)
        questions = [prediction.question_id for prediction in predictions]
        connection.execute("UPDATE predictions SET failed = 'again' WHERE run = ? AND list_contains(?, question)", [run, questions])
        connection.execute("UPDATE runs SET status = 'running' WHERE run = ?", [run])
    store.append(run, predictions, {})
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = ? WHERE run = ?", [status, run])


def score_again(store: Store, run: str, questions: Sequence[str], scores: Mapping[str, Scores]) -> None:
    """Replace a run's scores by these metrics."""
    with store.database.writing() as connection:
        connection.execute("DELETE FROM scores WHERE run = ? AND list_contains(?, metric)", [run, list(scores)])
    store.put_scores(run, questions, scores)


def reopen(store: Store, run: str) -> None:
    """Mark a run as unfinished, as if it had been interrupted."""
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = 'interrupted' WHERE run = ?", [run])


def hide(store: Store, run: str) -> None:
    """Make a run a submission that was withdrawn."""
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET origin = 'withdrawn' WHERE run = ?", [run])


def checkpoint_that_read(store: Store, folder: Path, texts: Sequence[str], parents: Sequence[str] = ()) -> Checkpoint:
    """Register a checkpoint whose training read these questions; without any, one that has no record."""
    folder.mkdir(parents=True)
    (folder / "weights").write_text(folder.name)
    describe(folder, method="sark", stage="reranker", parents=parents)
    recorder = Recorder()
    recorder.add(texts)
    if (read := recorder.read()) is not None:
        write_record(folder, read)
    return register(store, folder)


def made_with(*checkpoints: Checkpoint) -> dict[str, Any]:
    """Return the description of a run whose reranker has these weights."""
    weights = " ".join(checkpoint.sha256 for checkpoint in checkpoints) or None
    return {"method": {"id": "bm25", "weights": None}, "rerankers": [{"id": "sark", "config": {"model": "x"}, "weights": weights}]}
