"""Changes to stored rows that the store itself never makes."""

from __future__ import annotations

from collections.abc import Sequence

from methods.api import Prediction
from results.store import Store, storable, summarize


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
    """Put other predictions in the place of a run's, whatever its status; scores stay."""
    with store.database.writing() as connection:
        questions = [prediction.question_id for prediction in predictions]
        for table in ("predictions", "evidence", "usage", "calls"):
            connection.execute(f"DELETE FROM {table} WHERE run = ? AND list_contains(?, question)", [run, questions])
        (status,) = connection.execute("SELECT status FROM runs WHERE run = ?", [run]).fetchone() or ("",)
        connection.execute("UPDATE runs SET status = 'running' WHERE run = ?", [run])
        scores = connection.execute("SELECT * FROM scores WHERE run = ?", [run]).to_arrow_table()
    store.append(run, predictions, {})
    with store.database.writing() as connection:
        connection.execute("DELETE FROM scores WHERE run = ?", [run])
        connection.register("kept", scores)
        connection.execute("INSERT INTO scores BY NAME SELECT * FROM kept")
        summarize(connection, run)
        connection.execute("UPDATE runs SET status = ? WHERE run = ?", [status, run])
