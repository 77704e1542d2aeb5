"""Win rates from pairwise verdicts: two presentation orders, several repetitions, failures counted apart.

A verdict is about the method *named* first, whichever was *shown* first: callers undo the presentation
order. A question's score is the mean over its verdicts that name a winner or a tie, of 1, ½ and 0. Above ½ the
first method won the question, below it lost, at ½ (all ties, or orders that contradict each other) it is a tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import LEVEL, Clusters, Estimate, Floats
from results.statistics.difference import paired
from results.statistics.intervals import estimates

Codes = NDArray[np.int64]
TieRule = Literal["half", "ignore", "loss", "win"]
"""Value of a tied question in `with_ties`: half a win, excluded, a loss, or a win."""
_TIE_VALUE: dict[TieRule, float] = {"half": 0.5, "ignore": math.nan, "loss": 0.0, "win": 1.0}


class Verdict(IntEnum):
    """Verdict of a judge on the method named first.

    `NONE` means that both answers were disqualified, `UNSCORED` that the judge failed.
    """

    LOSS = 0
    TIE = 1
    WIN = 2
    NONE = 3
    UNSCORED = 4


_VALUES = np.array([0.0, 0.5, 1.0, math.nan, math.nan])
_SIGNS = {Verdict.WIN: 1.0, Verdict.TIE: 0.0, Verdict.LOSS: -1.0, Verdict.NONE: 0.0}
_ABSENT = -1


@dataclass(frozen=True, slots=True)
class OrderFlips:
    """Rate at which a judge's verdicts for the two presentation orders contradict each other (position inconsistency).

    Attributes:
        flips: Number of (question, repetition) cells whose two orders name different winners.
        both_decided: Number of cells whose two orders both name a winner: the denominator.
    """

    flips: int
    both_decided: int

    @property
    def rate(self) -> float:
        """Return the share of contradictions; NaN if there is no cell whose two orders both name a winner."""
        return self.flips / self.both_decided if self.both_decided else math.nan


@dataclass(frozen=True, slots=True)
class RepetitionSpread:
    """Spread of a win rate over repetitions of the judgment.

    Attributes:
        repetitions: Number of repetitions.
        decided, with_ties: Mean of each rate over repetitions (ARK's "mean of five runs").
        decided_sd, with_ties_sd: Standard deviations over repetitions; NaN if fewer than two have a rate.
    """

    repetitions: int
    decided: float
    decided_sd: float
    with_ties: float
    with_ties_sd: float


@dataclass(frozen=True, slots=True)
class WinRate:
    """Win rate of one method over another. All counts are numbers of questions.

    Attributes:
        wins, ties, losses: Questions whose mean verdict is above, at and below ½.
        none: Questions whose verdicts are all `NONE` or failures, at least one of them `NONE`: both answers lost.
        unscored: Questions without any verdict; every judgment failed.
        decided: wins / (wins + losses), ARK's formula; NaN if nothing was decided.
        decided_failures_zero: The same with unscored questions in the denominator.
        with_ties: (wins + ties / 2) / n by the tie rule `half`; a question with `none` counts 0 for both methods.
        with_ties_failures_zero: The same with unscored questions in the denominator.
        with_ties_failures_one: The same with unscored questions counted as won.
        with_ties_opponent: `with_ties` of the second method; 1 - `with_ties` only where ties count half and nothing is
            `none`.
        tie_rule: Value of a tied question in the three rates above.
        verdicts: Number of single verdicts of each kind, by name, over all orders and repetitions.
        flips: Contradictions between presentation orders.
        repetitions: Spread over repetitions.
        p: Two-sided p-value of winning as many questions as losing, not corrected for other pairs: at least that of
            the exact sign test if questions are the clusters. Ties and `none` count for neither, whatever the tie rule.
            Unscored questions are counted as lost and as won: it is the larger of the two p-values, and 1 if the two
            disagree about who is ahead. NaN without a verdict and if there is insufficient data.
    """

    wins: int
    ties: int
    losses: int
    none: int
    unscored: int
    decided: Estimate
    decided_failures_zero: Estimate
    with_ties: Estimate
    with_ties_failures_zero: Estimate
    with_ties_failures_one: Estimate
    with_ties_opponent: Estimate
    tie_rule: TieRule
    verdicts: dict[str, int]
    flips: OrderFlips
    repetitions: RepetitionSpread
    p: float

    @property
    def n(self) -> int:
        """Return the number of questions with a verdict: wins, ties, losses and `none`."""
        return self.wins + self.ties + self.losses + self.none


def win_rates(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    ties: TieRule = "half",
    clusters: Clusters = None,
    level: float = LEVEL,
) -> list[WinRate]:
    """Compute the win rates of many pairs of methods from single verdicts; another tie rule only needs a new call, not new judgments.

    Args:
        pair, question, order, repetition, verdict: Shape (verdicts,), row by row: codes from 0 of the pair and of the
            question, the presentation order (0 or 1), the repetition from 0, and a `Verdict` about the method that
            the pair names first.
        ties: Value of a tied question in `with_ties`.
        clusters: One label per question code, as in `estimates`.
        level: As in `estimates`.

    Returns:
        One per pair code, from 0 to the largest.

    Raises:
        ValueError: Arrays differ in length, a code is out of range, a cell was judged twice, or no such tie rule.

    Source: ARK (2025), section on evaluation, for `decided`; the released code's wins / total is `with_ties` by the
        rule `loss`; p as in `difference.paired`.
    """
    if ties not in _TIE_VALUE:
        raise ValueError(f"no tie rule {ties!r}: choose {', '.join(_TIE_VALUE)}")
    pairs_of, questions_of, _, rounds, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    if not len(verdicts):
        return []
    pairs, questions, repetitions = (int(codes.max()) + 1 for codes in (pairs_of, questions_of, rounds))
    states = question_states(pairs_of, questions_of, verdicts, pairs, questions)
    counts = _counts(states)
    values = [
        _decided(states),
        _decided(states, 0.0),
        _with_ties(states, ties),
        _with_ties(states, ties, 0.0),
        _with_ties(states, ties, 1.0),
        _with_ties(_SWAPPED[states], ties),
    ]
    labels = None if clusters is None else _labels(clusters, questions)
    results = estimates(np.concatenate(values), clusters=labels, level=level)
    p = _p_at_both_ends(states, labels)
    # A pair keeps questions that only other pairs were judged on.
    absent = np.tile((states == _ABSENT).sum(axis=1), len(values)).tolist()
    results = [replace(item, unscorable=item.unscorable - gone) for item, gone in zip(results, absent, strict=True)]
    kinds = np.bincount(pairs_of * len(Verdict) + verdicts, minlength=pairs * len(Verdict)).reshape(pairs, -1)
    cells, flipped = order_contradictions(pairs_of, questions_of, rounds, verdicts)
    both, flips = np.bincount(cells[0], minlength=pairs), np.bincount(cells[0][flipped], minlength=pairs)
    apart = question_states(pairs_of * repetitions + rounds, questions_of, verdicts, pairs * repetitions, questions)
    spreads = _spreads(apart.reshape(pairs, repetitions, questions), ties)
    return [
        WinRate(
            wins,
            tied,
            losses,
            none,
            unscored,
            results[row],
            results[pairs + row],
            results[2 * pairs + row],
            results[3 * pairs + row],
            results[4 * pairs + row],
            results[5 * pairs + row],
            ties,
            {kind.name.lower(): int(kinds[row, kind]) for kind in Verdict},
            OrderFlips(int(flips[row]), int(both[row])),
            spreads[row],
            float(p[row]),
        )
        for row, (wins, tied, losses, none, unscored) in enumerate(counts.tolist())
    ]


def _p_at_both_ends(states: NDArray[np.int8], clusters: Clusters) -> Floats:
    """Return p-values of each pair that hold if the first method loses, and if it wins, all unscored questions."""
    ends = []
    for sign in (-1.0, 1.0):
        signs = _valued(states, _SIGNS | {Verdict.UNSCORED: sign})
        ends.append(paired(np.maximum(signs, 0.0), np.maximum(-signs, 0.0), clusters=clusters))
    least, most = ends
    agree = np.sign(least.value) == np.sign(most.value)
    p = np.where(np.isnan(least.p) | np.isnan(most.p), np.nan, np.where(agree, np.maximum(least.p, most.p), 1.0))
    verdicts = ((states != _ABSENT) & (states != Verdict.UNSCORED)).any(axis=1)
    return np.where(verdicts, p, np.nan)


def verdict_values(verdict: Codes) -> Floats:
    """Convert verdicts to scores: 1 for a win, ½ for a tie, 0 for a loss, NaN for the others."""
    return _VALUES[verdict]


def question_scores(pair: Codes, question: Codes, verdict: Codes, pairs: int, questions: int) -> Floats:
    """Average the verdicts (1, ½, 0) on each question; shape (pairs, questions).

    Args:
        pair, question, verdict: Shape (verdicts,).
        pairs, questions: Numbers of codes.

    Returns:
        NaN if no verdict names a winner or a tie.
    """
    value = verdict_values(verdict)
    named = ~np.isnan(value)
    cell, size = (pair * questions + question)[named], pairs * questions
    sums, counts = np.bincount(cell, weights=value[named], minlength=size), np.bincount(cell, minlength=size)
    # Sums of halves are exact, and so is a mean of exactly ½.
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan).reshape(pairs, questions)


def question_states(pair: Codes, question: Codes, verdict: Codes, pairs: int, questions: int) -> NDArray[np.int8]:
    """Return the overall `Verdict` on each question, shape (pairs, questions); -1 if a question was not judged.

    Args:
        pair, question, verdict, pairs, questions: As in `question_scores`.
    """
    score = question_scores(pair, question, verdict, pairs, questions).ravel()
    cell, size = pair * questions + question, pairs * questions
    state = np.full(size, _ABSENT, dtype=np.int8)
    state[cell] = Verdict.UNSCORED
    state[cell[verdict == Verdict.NONE]] = Verdict.NONE
    state[score < 0.5], state[score == 0.5], state[score > 0.5] = Verdict.LOSS, Verdict.TIE, Verdict.WIN
    return state.reshape(pairs, questions)


def order_contradictions(pair: Codes, question: Codes, repetition: Codes, verdict: Codes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find the (pair, question, repetition) cells whose two orders both name a winner, and whether the two winners differ.

    Args:
        pair, question, repetition, verdict: Shape (verdicts,); no order of a cell occurs twice.

    Returns:
        The codes of the cells, shape (3, cells), and a mask of contradictions, shape (cells,).
    """
    decisive = (verdict == Verdict.WIN) | (verdict == Verdict.LOSS)
    keys = np.stack([pair, question, repetition])
    shape = tuple(keys.max(axis=1, initial=0) + 1)
    cell = np.ravel_multi_index(tuple(keys), shape)[decisive]
    times, won = np.bincount(cell), np.bincount(cell, weights=verdict[decisive] == Verdict.WIN)
    both = np.flatnonzero(times == 2)
    return np.stack(np.unravel_index(both, shape)), won[both] == 1


def checked_verdicts(pair: ArrayLike, question: ArrayLike, order: ArrayLike, repetition: ArrayLike, verdict: ArrayLike) -> list[Codes]:
    """Validate the arguments of `win_rates` and return them as integer arrays.

    Raises:
        ValueError: The arguments are invalid for `win_rates`.
    """
    codes = [np.asarray(column) for column in (pair, question, order, repetition, verdict)]
    if len({column.shape for column in codes}) > 1 or codes[0].ndim != 1:
        raise ValueError(f"rows must be of the same verdicts, got shapes {[column.shape for column in codes]}")
    if not codes[0].size:
        return [column.astype(np.int64) for column in codes]
    for column, name, most in zip(
        codes, ("pair", "question", "order", "repetition", "verdict"), (None, None, 1, None, max(Verdict)), strict=True
    ):
        if column.dtype.kind not in "iu" or column.min() < 0 or (most is not None and column.max() > most):
            raise ValueError(f"{name}: codes are whole numbers from 0{'' if most is None else f' to {most}'}")
    results = [column.astype(np.int64) for column in codes]
    cells = np.ravel_multi_index(tuple(results[:4]), tuple(int(column.max()) + 1 for column in results[:4]))
    seen, times = np.unique(cells, return_counts=True)
    if (times > 1).any():
        row = int(np.flatnonzero(cells == seen[times > 1][0])[0])
        where = ", ".join(
            f"{name} {column[row]}" for name, column in zip(("pair", "question", "order", "repetition"), results[:4], strict=True)
        )
        raise ValueError(f"judged twice: {where}")
    return results


def _counts(states: NDArray[np.int8]) -> NDArray[np.int64]:
    """Count questions won, tied, lost, with none and unscored, shape (pairs, 5)."""
    kinds = (Verdict.WIN, Verdict.TIE, Verdict.LOSS, Verdict.NONE, Verdict.UNSCORED)
    return np.stack([(states == kind).sum(axis=-1) for kind in kinds], axis=-1)


def _decided(states: NDArray[np.int8], failure: float = math.nan) -> Floats:
    """Code questions as 1 (won), 0 (lost) or NaN (undecided)."""
    return _valued(states, {Verdict.WIN: 1.0, Verdict.LOSS: 0.0, Verdict.UNSCORED: failure})


def _with_ties(states: NDArray[np.int8], ties: TieRule, failure: float = math.nan) -> Floats:
    """Return the value of each question with a verdict; NaN for the others."""
    value = {Verdict.WIN: 1.0, Verdict.TIE: _TIE_VALUE[ties], Verdict.LOSS: 0.0, Verdict.NONE: 0.0}
    return _valued(states, value | {Verdict.UNSCORED: failure})


def _valued(states: NDArray[np.int8], values: dict[Verdict, float]) -> Floats:
    table = np.full(len(Verdict) + 1, math.nan)  # the last place is that of absent questions, -1
    table[list(values)] = list(values.values())
    return table[states]


_SWAPPED = np.arange(len(Verdict) + 1, dtype=np.int8)
"""Each state from the second method's perspective; the last entry is for absent questions, -1."""
_SWAPPED[[Verdict.WIN, Verdict.LOSS, -1]] = Verdict.LOSS, Verdict.WIN, _ABSENT


def _spreads(states: NDArray[np.int8], ties: TieRule) -> list[RepetitionSpread]:
    """Compute the spread of the rates of states of shape (pairs, repetitions, questions)."""
    decided, with_ties = (_means(table) for table in (_decided(states), _with_ties(states, ties)))
    return [
        RepetitionSpread(int((states[row] != _ABSENT).any(axis=1).sum()), *_mean_sd(item), *_mean_sd(other))
        for row, (item, other) in enumerate(zip(decided, with_ties, strict=True))
    ]


def _means(table: Floats) -> Floats:
    """Average over the last axis without missing values; NaN if there are none."""
    known = ~np.isnan(table)
    count = known.sum(axis=-1)
    return np.where(count > 0, np.where(known, table, 0.0).sum(axis=-1) / np.maximum(count, 1), math.nan)


def _mean_sd(values: Floats) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan, float(known.std(ddof=1)) if len(known) > 1 else math.nan


def _labels(clusters: Clusters, questions: int) -> list[str | None]:
    labels = list(clusters or ())
    if len(labels) < questions:
        raise ValueError(f"{len(labels)} cluster labels for {questions} questions")
    return labels[:questions]
