"""Plan how large an experiment must be: numbers of questions, repeated answers and trainings that detect a difference, from a pilot.

A pilot's variance over questions has a part that comes from its answers, which vary from one repeat to the next, and a
part that more repeats do not reduce. With r repeats of a question in each of s trainings, answers whose variance is w
add w / (s r) to the variance of that question. More trainings reduce the variance of their mean, and the uncertainty of
its estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from results.statistics.core import LEVEL
from results.statistics.difference import FEWEST_TRAININGS, Side
from results.statistics.gate import clusters_needed
from results.statistics.pooled import Added
from results.statistics.tested import POWER, Seeds, Tested

REPEATS = (1, 3, 10)
SEEDS = (3, 5, 10)
"""Numbers of training seeds in plans, besides the pilot's own number."""
MOST_SEEDS = 100
"""Largest number of trainings to search."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Sample size that detects a difference, for one choice of trainings and repeats.

    Attributes:
        seeds: Number of trainings per side; None if no side was trained several times.
        repeats: Number of answers per question and side; None if no side answered several times.
        clusters: Number of clusters needed; None if no number suffices, because trainings vary too much.
    """

    seeds: int | None
    repeats: int | None
    clusters: int | None


def needed(pilot: Tested, sides: tuple[Side, Side], effect: float, *, power: float = POWER, level: float = LEVEL) -> Iterator[Needed]:
    """Yield the number of clusters needed to detect a difference, for other numbers of trainings and repeats than the pilot's.

    Yield nothing if neither side has several trainings or repeats, because their variance is then unknown.

    Args:
        pilot: The paired difference of the two sides, shape (1,).
        sides: Candidate and reference.
        effect, power, level: As in `clusters_needed`.
    """
    trained = [side.seeds for side in sides if side.seeds > 1]
    repeated = [_repeats(side) for side in sides if _repeats(side) > 1]
    if not trained and not repeated:
        return
    for seeds in sorted({*SEEDS, *trained}) if trained else (None,):
        for repeats in sorted({*REPEATS, *repeated}) if repeated else (None,):
            other = pilot if seeds is None else replace(pilot, seeds=_spread(pilot.seeds, sides, seeds))
            ratio = 1.0 if repeats is None else _ratio(pilot, sides, repeats)
            yield Needed(seeds, repeats, clusters_needed(other, effect, power=power, level=level, ratio=ratio))


def seeds_needed(
    pilot: Tested | Added, sides: tuple[Side, Side], effect: float, *, power: float = POWER, level: float = LEVEL
) -> int | None:
    """Return the number of trainings per trained side needed to detect a difference on the pilot's questions.

    Args:
        pilot: The difference of a single pair, on one benchmark or on several with equally many trainings.
        sides, effect, power, level: As in `needed`.

    Returns:
        The number; None if no side has several trainings, or if even `MOST_SEEDS` trainings do not suffice.
    """
    if all(side.seeds < 2 for side in sides):
        return None
    for seeds in range(FEWEST_TRAININGS, MOST_SEEDS + 1):
        parts = [replace(part, seeds=_spread(part.seeds, sides, seeds)) for part in (pilot.known if isinstance(pilot, Added) else (pilot,))]
        whole = replace(pilot, each=tuple(parts)) if isinstance(pilot, Added) else parts[0]
        if float(whole.detectable(power, level)[0]) <= abs(effect):
            return seeds
    return None


def answer_variance(side: Side) -> float:
    """Return the variance of a side's repeated answers to the same question, averaged over questions; NaN with one answer each."""
    names = side.trainings or ("",) * len(side.scores)
    groups = [side.scores[[other == name for other in names]] for name in dict.fromkeys(names)]
    each = [group.var(axis=0, ddof=1) for group in groups if len(group) > 1]
    kept = np.concatenate(each) if each else np.empty(0)
    kept = kept[~np.isnan(kept)]
    return float(kept.mean()) if len(kept) else np.nan


def _repeats(side: Side) -> int:
    """Return the number of repeats per question of a side; the minimum if trainings differ."""
    names = side.trainings or ("",) * len(side.scores)
    return min(names.count(name) for name in set(names))


def _ratio(pilot: Tested, sides: tuple[Side, Side], repeats: int) -> float:
    """Return the variance from questions with another number of repeats, relative to the pilot's."""
    before = after = 0.0
    for side in sides:
        if (count := _repeats(side)) > 1:
            noise = answer_variance(side) / max(side.seeds, 1) / float(pilot.n[0])
            before, after = before + noise / count, after + noise / repeats
    whole = float(pilot.variance[0])
    return (max(whole - before, 0.0) + after) / whole if whole else 1.0


def _spread(pilot: Seeds, sides: tuple[Side, Side], seeds: int) -> Seeds:
    """Return the variance due to training with other numbers of trainings, for sides with several."""
    factor = np.array([side.seeds / seeds if side.seeds > 1 else 1.0 for side in sides])[:, None]
    several = np.array([side.seeds > 1 for side in sides])[:, None]
    # The part that the questions already contain is subtracted, rather too little of it than too much.
    return Seeds(pilot.spread * factor, np.where(several, seeds - 1.0, pilot.freedom), pilot.shared * factor.min())
