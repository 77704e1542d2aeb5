"""Pairwise verdicts as page elements: who beats whom how often, and the strengths that explain it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaderboard.elements import formats
from leaderboard.elements.chart_rows import data_of
from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import Node, el
from leaderboard.elements.plain_table import Cell, Head, Line, plain_table
from results.battle_board import BattleBoard, Pairing
from results.statistics import Strength

if TYPE_CHECKING:
    import altair

MATRIX_NOTE = (
    "A tie counts half, 50 is even; where both answers are disqualified neither gets anything. Brackets: 95 % "
    "bootstrap interval of the pair alone. ▲ ▼ surely won more or fewer questions than it lost (tests of all pairs in "
    "the table, Holm-corrected, 5 %)."
)
STRENGTHS_NOTE = (
    "Rank: one more than the methods that are surely stronger, to the number that are not surely weaker (tests of all "
    "pairs, Holm-corrected, 5 %). Equal ranges do not make two methods equal, and whether two intervals overlap says "
    "little about the pair. * Won or lost everything: its distance is the prior's word, not the battles'."
)
_ROW_PIXELS = 32


def criteria(board: BattleBoard) -> list[str]:
    """What its answers were compared by, in the judge's order."""
    return list(dict.fromkeys(one.criterion for one in board.pairings))


def names(board: BattleBoard, criterion: str) -> list[str]:
    """Methods, strongest first; where strengths are not known, in the order met."""
    ranked = [name for name, _ in board.strengths.get(criterion, ())]
    met = [name for one in board.pairings if one.criterion == criterion for name in (one.method, one.opponent)]
    return list(dict.fromkeys([*ranked, *met]))


def matrix(board: BattleBoard, criterion: str) -> Node:
    """Share of the questions that the row's method wins against the column's, a tie counting half."""
    order = names(board, criterion)
    known = {(one.method, one.opponent): one for one in board.pairings if one.criterion == criterion}
    heads = [Head("Wins of … against")] + [Head(name, "× 100", number=True) for name in order]
    lines = [Line(el("span", name, cls="method"), [_pairing(name, other, known) for other in order]) for name in order]
    return plain_table(f"Win rates by {criterion}", heads, lines, "matrix-scroll")


def rates(board: BattleBoard, criterion: str) -> Node:
    """Win rates as a matrix; where all have met one method alone, as a list of the others against it."""
    rivals = [{one.method, one.opponent} for one in board.pairings if one.criterion == criterion]
    common = set.intersection(*rivals) if len(rivals) > 1 else set()
    return against(board, criterion, common.pop()) if len(common) == 1 else matrix(board, criterion)


def against(board: BattleBoard, criterion: str, rival: str) -> Node:
    """Share of the questions that each method wins against one, a tie counting half, with what it consists of."""
    known = {(one.method, one.opponent): one for one in board.pairings if one.criterion == criterion}
    heads = [
        Head(f"Wins against {rival}"),
        Head("Share", "× 100", "Questions won, a tie counting half, of all that were judged", number=True),
        Head("Won", "questions", number=True), Head("Tied", "questions", number=True),
        Head("Lost", "questions", number=True),
        Head("Neither", "questions", "Both answers were disqualified", number=True),
        Head("p", "Holm-corrected", "That both win equally often, corrected for all pairs of the table", number=True),
        Head("Order decides", "%", "Where both orders of two answers named a winner, how often they named different "
             "ones; such a question is a tie", number=True),
    ]  # fmt: skip
    lines = []
    for name in names(board, criterion):
        side = _side(name, rival, known)
        if side is None:
            continue
        one, won, lost = side
        flips = f"{100 * one.rate.flips.rate:.0f}" if one.rate.flips.rate == one.rate.flips.rate else formats.NOTHING
        lines.append(Line(el("span", name, cls="method"), [
            _pairing(name, rival, known), f"{won:,}", f"{one.rate.ties:,}", f"{lost:,}", f"{one.rate.none:,}",
            formats.NOTHING if math.isnan(one.corrected) else formats.p_value(one.corrected), flips,
        ]))  # fmt: skip
    return plain_table(f"Win rates against {rival} by {criterion}", heads, lines, "matrix-scroll")


def _side(name: str, other: str, known: Mapping[tuple[str, str], Pairing]) -> tuple[Pairing, int, int] | None:
    """What two methods' verdicts are, and how many questions the first one won and lost; None if they never met."""
    one = known.get((name, other))
    if one is not None:
        return one, one.rate.wins, one.rate.losses
    one = known.get((other, name))
    return None if one is None else (one, one.rate.losses, one.rate.wins)


def _pairing(name: str, other: str, known: Mapping[tuple[str, str], Pairing]) -> Cell:
    if name == other:
        return Cell("·")
    side = _side(name, other, known)
    if side is None or math.isnan(side[0].rate.with_ties.value):
        return Cell(formats.NOTHING, tip="They were not compared")
    one, wins, losses = side
    rate, swapped = one.rate, one.method != name
    # Where both answers are disqualified neither wins: then the two shares do not sum to 1.
    share = rate.with_ties_opponent if swapped else rate.with_ties
    value, low, high = share.value, share.low, share.high
    sure = "" if one.won is None else "won" if one.won is not swapped else "lost"
    counts = [f"{wins:,} won, {rate.ties:,} tied, {losses:,} lost of {rate.n:,} questions"]
    counts += [f"{rate.none:,} with both disqualified"] if rate.none else []
    counts += [f"{rate.unscored:,} the judge failed on"] if rate.unscored else []
    counts += [f"{one.unscorable:,} that cannot be judged"] if one.unscorable else []
    counts += [f"{one.pending:,} not judged yet"] if one.pending else []
    counts += [f"orders contradict each other on {100 * rate.flips.rate:.0f} %"] if rate.flips.flips else []
    counts += [f"{formats.p_value(one.corrected)} after correction"] if not math.isnan(one.corrected) else []
    counts += [f"† {share.doubt}"] if share.doubt else []
    mark = {"won": "▲ ", "lost": "▼ ", "": ""}[sure] + PERCENT.value(value) + ("†" if share.doubt else "")
    return Cell(mark, PERCENT.interval(low, high), "; ".join(counts), sure)


def strengths(rows: Sequence[tuple[str, Strength]]) -> Node:
    """Bradley-Terry strengths, strongest first, with the ranks that the tests of all pairs leave open."""
    heads = [
        Head("Method"),
        Head("Elo", "[95 %]", "400 points are odds of 10 to 1; 1500 is the mean of the methods that have met",
             number=True),
        Head("Log-odds", "[95 %]", "Bradley–Terry strength, fitted to all battles at once", number=True),
        Head("Rank", "possible", "One more than the methods that are surely stronger, to the number that are not "
             "surely weaker: tests of all pairs, Holm-corrected, 5 %", number=True),
        Head("Battles", "scored", number=True),
        Head("Questions", number=True),
    ]  # fmt: skip
    lines = [
        Line(
            el("span", name, cls="method"),
            [
                _elo(one), Cell(formats.PLAIN.value(one.logit.value) + ("†" if one.logit.doubt else ""),
                                formats.PLAIN.interval(one.logit.low, one.logit.high),
                                f"† {one.logit.doubt}" if one.logit.doubt else ""),
                one.places, f"{one.battles:,}", f"{one.logit.n:,}",
            ],
        )
        for name, one in rows
    ]  # fmt: skip
    return plain_table("Bradley–Terry strengths", heads, lines, "strengths-scroll")


def _elo(one: Strength) -> Cell:
    value, low, high = one.elo
    bounds = formats.NOTHING if math.isnan(low) else f"[{low:,.0f}, {high:,.0f}]"
    tip = "It won or lost everything that links it to the rest: how far away it stands is the prior's word" \
        if one.separated else ""  # fmt: skip
    return Cell(f"{value:,.0f}" + ("*" if one.separated else ""), bounds, tip)


def strength_chart(rows: Sequence[tuple[str, Strength]]) -> altair.LayerChart:
    """Elo with its interval per method, strongest on top; a dashed line at the mean."""
    import altair as alt

    data = [
        {"method": name, "line": f"{number}\x1f{name}", "value": value, "low": low, "high": high,
         "shown": f"{value:,.0f} [{low:,.0f}, {high:,.0f}]"}
        for number, (name, one) in enumerate(rows)
        for value, low, high in [one.elo]
        if not math.isnan(value)
    ]  # fmt: skip
    axis = alt.Axis(title=None, labelLimit=150, labelExpr=r"split(datum.label, '\u001f')[1]", ticks=False,
                    domain=False, labelPadding=8)  # fmt: skip
    base = alt.Chart().encode(
        y=alt.Y("line:N", sort=None, axis=axis),
        tooltip=[alt.Tooltip("method:N", title="Method"), alt.Tooltip("shown:N", title="Elo")],
    )
    scale = alt.Scale(zero=False, nice=True)
    x_axis = alt.Axis(title="Elo (1500: the mean)", tickCount=6, domain=False)
    rule = base.mark_rule(strokeWidth=2.5, opacity=0.75, color="#2a87c8").encode(
        x=alt.X("low:Q", scale=scale, axis=x_axis), x2=alt.X2("high:Q")
    )
    dots = base.mark_point(filled=True, size=90, opacity=1, color="#2a87c8").encode(
        x=alt.X("value:Q", scale=scale, axis=x_axis)
    )
    mean = alt.Chart(data_of([{"value": 1500}])).mark_rule(strokeDash=[4, 4], color="#8a8f98")
    layers = alt.layer(mean.encode(x=alt.X("value:Q")), rule, dots, data=data_of(data))
    return layers.properties(height=max(2, len(data)) * _ROW_PIXELS).configure_view(strokeWidth=0)
