"""How fast runs go: the store knows how many questions are answered, not when; whoever looks twice knows both."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from results.live import Running

WINDOW = timedelta(minutes=2)
"""What is older says little of the present pace."""
_LEAST = timedelta(seconds=3)
_ENOUGH = 5
"""Writes come once a second: what was seen in a shorter time, or of fewer answers, is chance."""
_LONG = timedelta(seconds=30)
"""After so long, what was seen counts whatever it was."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A run's progress over time.

    Attributes:
        per_second: Questions a second; None where it cannot be told yet.
        remaining_s: Seconds until the last question at this pace; None where there is no pace.
        quiet_s: Seconds for which no new answer was seen; 0.0 at the first look.
    """

    per_second: float | None
    remaining_s: float | None
    quiet_s: float


@dataclass(slots=True)
class _Seen:
    looks: deque[tuple[datetime, int]] = field(default_factory=deque)
    changed_at: datetime | None = None


class Sightings:
    """What was seen of running runs; shared by all readers of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def look(self, runs: Sequence[Running], now: datetime) -> dict[str, Pace]:
        """Note how far runs are, and tell their pace; runs that are not among them are forgotten.

        Args:
            runs: All that run.
            now: The present moment, UTC without a zone.
        """
        with self._lock:
            self._seen = {run.run: self._seen.get(run.run, _Seen()) for run in runs}
            return {run.run: _pace(run, self._seen[run.run], now) for run in runs}


def _pace(run: Running, seen: _Seen, now: datetime) -> Pace:
    looks = seen.looks
    if looks and run.done < looks[-1][1]:
        # Begun anew, or failed questions are asked again: what was seen before is of another execution.
        looks.clear()
    if not looks or run.done > looks[-1][1]:
        seen.changed_at = now
    looks.append((now, run.done))
    while len(looks) > 2 and now - looks[1][0] > WINDOW:
        looks.popleft()
    rate = _rate(run, looks)
    left = run.questions - run.done
    quiet = (now - seen.changed_at).total_seconds() if seen.changed_at else 0.0
    return Pace(rate, left / rate if rate else None, quiet)


def _rate(run: Running, looks: deque[tuple[datetime, int]]) -> float | None:
    (first, before), (last, done) = looks[0], looks[-1]
    watched, answered = last - first, done - before
    if (answered >= _ENOUGH and watched >= _LEAST) or watched >= _LONG:
        return answered / watched.total_seconds() or None
    spent = (last - run.begun_at).total_seconds()
    # Of a resumed run nobody knows how much of it the present execution answered.
    return done / spent if done and spent > 0 and not run.resumed else None
