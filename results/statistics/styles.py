"""How much a system loses when documents are retold in another style."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Estimate, Method, Ways
from results.statistics.corrections import holm
from results.statistics.intervals import differences, estimates


@dataclass(frozen=True, slots=True)
class StyleDrop:
    """What one style costs. Drops are formal minus style: positive is a loss.

    Attributes:
        drop: Paired drop over the questions scored in both.
        p_holm: Its p-value, Holm-corrected over the styles.
        content_lost: Share of those questions whose gold string did not survive the rewriting.
        from_content: Part of the drop that falls on questions whose gold string did not survive.
        from_style: The rest, on questions that can still be answered; the two parts sum to the drop.
        drop_where_survived: Paired drop over the questions whose gold string survived, by themselves.
    """

    drop: Difference
    p_holm: float
    content_lost: Estimate
    from_content: Estimate
    from_style: Estimate
    drop_where_survived: Difference


@dataclass(frozen=True, slots=True)
class StyleRobustness:
    """Drops by style.

    Attributes:
        drops: By style, in the order given.
        worst: The style with the largest drop, None where no style could be paired.
    """

    drops: dict[str, StyleDrop]
    worst: str | None


def style_robustness(
    formal: ArrayLike,
    styles: Mapping[str, ArrayLike],
    survived: Mapping[str, ArrayLike],
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> StyleRobustness:
    """Paired drops from the formal text to each style, question by question.

    Args:
        formal: Shape (questions,), scores on the formal text; NaN is unscorable.
        styles: Scores on each style, of the same questions.
        survived: By style, shape (questions,), bool: whether a gold string is still found in the rewritten evidence.
        clusters, seed, level, resamples, method: As in `estimates`.

    Raises:
        ValueError: A style has no `survived`, or arrays differ in shape.
    """
    plain = np.asarray(formal, np.float64)
    names = list(styles)
    for name in names:
        if name not in survived:
            raise ValueError(f"style {name}: no word on which gold strings survived")
        if np.shape(styles[name]) != plain.shape or np.shape(survived[name]) != plain.shape:
            raise ValueError(f"style {name}: scores and survivals must be of the same questions as the formal ones")
    if not names:
        return StyleRobustness({}, None)
    shifted = np.stack([np.asarray(styles[name], np.float64) for name in names])
    alive = np.stack([np.asarray(survived[name], bool) for name in names])
    ways = Ways(clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)
    base = np.broadcast_to(plain, shifted.shape)
    drops = differences(base, shifted, **ways)
    living = differences(np.where(alive, base, np.nan), shifted, **ways)
    delta = base - shifted
    gap = np.isnan(delta)
    lost = np.where(gap, np.nan, ~alive)
    in_content = np.where(gap, np.nan, np.where(alive, 0.0, delta))
    in_style = np.where(gap, np.nan, np.where(alive, delta, 0.0))
    parts = estimates(np.concatenate([lost, in_content, in_style]), **ways)
    corrected = holm([drop.p if drop.n else math.nan for drop in drops])
    count = len(names)
    found = {
        name: StyleDrop(drops[row], corrected[row], parts[row], parts[count + row], parts[2 * count + row], living[row])
        for row, name in enumerate(names)
    }
    paired = [name for name in names if found[name].drop.n]
    return StyleRobustness(found, max(paired, key=lambda name: found[name].drop.value, default=None))
