"""Changes to stored rows that the store itself never makes."""

from __future__ import annotations

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
