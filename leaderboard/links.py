"""Addresses of the leaderboard's pages, for links from elsewhere."""

from __future__ import annotations

from urllib.parse import urlencode

from leaderboard.elements.formats import ALL_RUNS, board_key
from results.store.queries import NO_EXPERIMENT, RunRow


def question_address(prefix: str, baseline: RunRow, candidate: RunRow, metric: str, question: str) -> str:
    """Return the URL of a question's page below `prefix` (without a slash at its end), comparing baseline and candidate."""
    experiment = candidate.experiment if candidate.experiment == baseline.experiment != NO_EXPERIMENT else ALL_RUNS
    pair = ",".join(dict.fromkeys((baseline.run, candidate.run)))
    view = {"experiment": experiment, "board": board_key(candidate), "metric": metric, "question": question, "runs": pair}
    return f"{prefix}/questions?{urlencode(view)}"
