"""Measure how much a system loses if documents are rewritten in another style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.core import Clusters, Difference, Estimate
from results.statistics.intervals import differences, differences_together, estimates


@dataclass(frozen=True, slots=True)
class StyleGap:
    """Effect of one writing style on a method's score. Gaps are formal minus style: positive is a loss.

    Attributes:
        gap: Paired difference over the questions scored in both styles.
        p_holm: p-value of `gap`, Holm-corrected over the styles.
        content_lost: Share of questions whose gold answer did not survive rewriting.
        from_content: Part of the gap from questions whose gold answer did not survive rewriting.
        from_style: Part of the gap from the other questions; the two parts sum to the gap.
        gap_where_survived: Paired difference over only the questions whose gold answer survived.
    """

    gap: Difference
    p_holm: float
    content_lost: Estimate
    from_content: Difference
    from_style: Difference
    gap_where_survived: Difference


def style_robustness(
    formal: ArrayLike, styles: Mapping[str, ArrayLike], survived: Mapping[str, ArrayLike], *, clusters: Clusters = None
) -> dict[str, StyleGap]:
    """Compute the paired gap from the formal text to each style, in the order given.

    Args:
        formal: Shape (questions,), scores on the formal text; NaN is unscorable.
        styles: Scores on each style, of the same questions.
        survived: By style, a mask of the questions whose gold answer still occurs in the rewritten evidence, shape
            (questions,).
        clusters: As in `estimates`.

    Raises:
        ValueError: A style has no `survived`, or arrays differ in shape.
    """
    plain = np.asarray(formal, np.float64)
    names = list(styles)
    for name in names:
        if name not in survived:
            raise ValueError(f"style {name}: it is unknown which gold strings survived")
        if np.shape(styles[name]) != plain.shape or np.shape(survived[name]) != plain.shape:
            raise ValueError(f"style {name}: scores and survivals must be of the same questions as the formal ones")
    if not names:
        return {}
    shifted = np.stack([np.asarray(styles[name], np.float64) for name in names])
    alive = np.stack([np.asarray(survived[name], bool) for name in names])
    base = np.broadcast_to(plain, shifted.shape)
    together = differences_together(base, shifted, clusters=clusters)
    gaps, corrected = together.differences, together.p
    living = differences(np.where(alive, base, np.nan), shifted, clusters=clusters)
    kept = np.where(np.isnan(base - shifted), np.nan, alive)
    lost = estimates(1 - kept, clusters=clusters)
    in_content = differences(base * (1 - kept), shifted * (1 - kept), clusters=clusters)
    in_style = differences(base * kept, shifted * kept, clusters=clusters)
    parts = zip(gaps, corrected, lost, in_content, in_style, living, strict=True)
    return {name: StyleGap(*part) for name, part in zip(names, parts, strict=True)}
