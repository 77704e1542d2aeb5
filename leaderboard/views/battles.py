"""Pairwise verdicts as page elements: who beats whom how often, and the strengths that explain it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT
from leaderboard.elements.marks import control_badge, significance
from leaderboard.elements.nodes import Node, badge, el, fold, named, note
from leaderboard.elements.pictures import KINDS, METHOD, Picture, Point, forest
from leaderboard.elements.tables import Cell, Column, NumberColumn, WideColumn, table, value_cell
from results.boards.controls import BEST, WORTHLESS
from results.judging import battles
from results.judging.battles import BattleBoard, Pairing, Placed
from results.statistics.bradley_terry import Strength

_RATES_NOTE = (
    "A tie counts half, 50 is even; if both answers are disqualified, neither method gets a point. Brackets: 95 % interval of each "
    "pair. ▲ ▼ won significantly more or fewer questions than it lost (tests of all pairs in "
    "the table, Holm-corrected, 5 %)."
)
_STRENGTHS_NOTE = (
    "Rank: from one more than the number of significantly stronger methods to the number of methods that are not significantly weaker "
    "(tests of all pairs, Holm-corrected, 5 %). Equal ranges do not mean equal methods, and overlapping intervals say little about "
    "a pair. * Won or lost everything: the prior sets its distance, not the battles. Values with insufficient data have no interval; point "
    "at one for the reason."
)
CONTROLS_NOTE = (
    "Based on the tests of all pairs that mark the win rates (Holm-corrected, 5 %). Not distinguishable: neither won significantly "
    "more questions. Either too few were judged, or the judge does not see the difference, or there is none, for "
    "example between an empty answer and a method that never answers."
)
_Placed = tuple[str, BattleBoard, Placed]
"""Name of a board, the board, and a control on it."""


def criteria(board: BattleBoard) -> list[str]:
    """List the criteria by which answers were compared, in the judge's order."""
    return list(dict.fromkeys(pairing.criterion for pairing in board.pairings))


def names(board: BattleBoard, criterion: str) -> list[str]:
    """List the method names, strongest first; methods of unknown strength follow in order of appearance."""
    ranked = [name for name, _ in board.strengths.get(criterion, ())]
    met = [name for pairing in board.pairings if pairing.criterion == criterion for name in (pairing.method, pairing.opponent)]
    return list(dict.fromkeys([*ranked, *met]))


def win_rates(board: BattleBoard, criterion: str) -> tuple[Node, Node, Node]:
    """Build the win rates with their notes: the share of questions that the row's method wins against the column's.

    A tie counts half. If all methods were compared only with one, that one is the only column.
    """
    order = names(board, criterion)
    known = {(pairing.method, pairing.opponent): pairing for pairing in board.pairings if pairing.criterion == criterion}
    met = [{method, opponent} for method, opponent in known]
    common = set.intersection(*met) if len(met) > 1 else set()
    rivals = order if len(common) != 1 else [*common]
    columns: list[Column[str]] = [
        Column("Wins of … against", partial(_named, board)),
        *(NumberColumn(name, partial(_pairing, name, known), "control · × 100" if name in board.controls else "× 100") for name in rivals),
    ]
    rows = [name for name in order if rivals == order or name not in rivals]
    basis = board.basis(criterion)  # the judge's or people's
    return (
        table(f"Win rates by {criterion}", "matrix-scroll", rows, columns, lambda name: "control" if name in board.controls else ""),
        note(f"Marks{' hold' if basis.startswith('for ') else ':'} {basis}."),
        note(f"{board.questions:,} questions. {_RATES_NOTE}"),
    )


def _named(board: BattleBoard, name: str) -> Node:
    return named(name, control_badge(name in board.controls), *(badge(kind, "failed", why) for kind, why in board.doubts.get(name, ())))


def _pairing(other: str, known: Mapping[tuple[str, str], Pairing], name: str) -> Cell:
    if name == other:
        return Cell("·")
    item = known.get((name, other)) or known.get((other, name))
    if item is None or math.isnan(item.rate.with_ties.value):
        return Cell(formats.NOTHING, tip="They were not compared")
    if item.incomplete:
        return Cell(formats.NOTHING, tip=item.incomplete)
    rate, swapped = item.rate, item.method != name
    wins, losses = (rate.losses, rate.wins) if swapped else (rate.wins, rate.losses)
    # If both answers are disqualified, neither wins: then the two shares do not sum to 1.
    share = rate.with_ties_opponent if swapped else rate.with_ties
    value, low, high = share.value, share.low, share.high
    if item.corrected_by_people:
        value, low, high = item.share.value, item.share.low, item.share.high
        value, low, high = (1 - value, 1 - high, 1 - low) if swapped else (value, low, high)
    better = None if item.won is None else item.won is not swapped
    counts = [f"{wins:,} won, {rate.ties:,} tied, {losses:,} lost of {rate.n:,} questions"]
    counts += [f"corrected by {item.share.n:,} labels; the judge says {PERCENT.value(share.value)}"] if item.corrected_by_people else []
    counts += [f"{rate.none:,} with both disqualified"] if rate.none else []
    counts += [f"{rate.unscored:,} the judge failed on"] if rate.unscored else []
    counts += [f"{item.unscorable:,} that cannot be judged"] if item.unscorable else []
    counts += [f"{item.pending:,} not judged yet"] if item.pending else []
    counts += [f"orders contradict each other on {100 * rate.flips.rate:.0f} %"] if rate.flips.both_decided else []
    counts += [f"{formats.p_value(item.corrected)} after correction"] if not math.isnan(item.corrected) else []
    counts += [share.insufficient_data] if share.insufficient_data else []
    cls = "" if better is None else "won" if better else "lost"
    return Cell(PERCENT.value(value), PERCENT.interval(low, high), "; ".join(counts), cls, mark=significance(better))


def controls(board: BattleBoard, criterion: str) -> Node | None:
    """Build the table that checks the judge with the board's controls; None if no control was judged."""
    results = [("", board, item) for item in battles.placed(board, criterion)]
    others = battles.not_placed(board, criterion)
    if not results and not others:
        return None
    return el(
        "div",
        *_against_the_judge(board, criterion),
        table(f"Controls by {criterion}", "controls-scroll", results, _placed_columns(), lambda _: "control") if results else None,
        note(f"Not checked, because their expected place here is unknown: {', '.join(others)}.") if others else None,
        cls="stack",
    )


def controls_on_other_boards(boards: Sequence[tuple[str, BattleBoard]], criterion: str) -> Node | None:
    """Build the folded control checks of the judge's other boards; None if no control was judged there."""
    results = [(name, board, item) for name, board in boards for item in battles.placed(board, criterion)]
    if not results:
        return None
    number = len({name for name, _, _ in results})
    wrong = f"{sum(bool(item.wrong) for _, _, item in results):,} of {len(results):,} placed wrongly"
    name: Column[_Placed] = Column("Board", lambda row: row[0])
    listed = table(f"Controls on other boards by {criterion}", "others-scroll", results, [name, *_placed_columns()], lambda _: "control")
    warnings = [warning for name, board in boards for warning in _against_the_judge(board, criterion, name)]
    title = f"Controls on {number:,} other board{'s' * (number != 1)}"
    return el("div", *warnings, fold(title, wrong, listed, key="other-boards"), cls="stack")


def _placed_columns() -> list[Column[_Placed]]:
    return [
        Column("Control", lambda row: named(row[2].control, control_badge(row[2].control in row[1].controls))),
        Column("Belongs", lambda row: "above" if row[2].above else "below", "relative to its rivals"),
        Column("Placed", lambda row: _verdict(row[2])),
        WideColumn("Found", lambda row: Cell(_found(row[2]), "compared with this rival only" if row[2].rivals == 1 else "")),
    ]


def _against_the_judge(board: BattleBoard, criterion: str, name: str = "") -> list[Node]:
    """Return a line for each method that ranks above one that must rank above it; `name` is that of the board, if it is another one."""
    on = f", on {name}" if name else ""
    results = []
    for winner, losers in battles.misplaced(board, criterion).items():
        beaten = ", ".join(_called(loser, board) for loser in losers)
        warning = f"⚑ {criterion} ranks {_called(winner, board)} significantly above {beaten}{on}"
        results.append(el("p", el("span", warning), badge("evidence against the judge", "failed")))
    return results


def _verdict(item: Placed) -> Node | str:
    if item.wrong:
        return badge("wrongly", "failed")
    return "not distinguishable" if item.level else badge("where it belongs", "verified")


def _found(item: Placed) -> str:
    right, wrong = ("significantly above", "significantly below") if item.above else ("significantly below", "significantly above")
    parts = ((wrong, item.wrong), ("not distinguishable from", item.level), (right, item.right))
    counted = ((result, f"{len(rivals):,}: " if len(rivals) > 1 else "", rivals) for result, rivals in parts if rivals)
    return "; ".join(f"{result} {number}{', '.join(rivals)}" for result, number, rivals in counted)


def _called(name: str, board: BattleBoard) -> str:
    kind = board.controls.get(name)
    if kind == BEST:
        return f"{name} (the gold answer)"
    return f"{name} (says nothing or the wrong thing)" if kind in WORTHLESS else name


def strengths(board: BattleBoard, rows: Sequence[tuple[str, Strength]]) -> tuple[Picture | None, Node, Node]:
    """Build a chart, the table and the note of Bradley–Terry strengths, strongest first, with the ranks that the tests leave open."""
    points = "400 points are odds of 10 to 1; 1500 is the mean of the methods that have met"
    ranks = (
        "From one more than the number of significantly stronger methods to the number of methods that are not significantly "
        "weaker: tests of all pairs, Holm-corrected, 5 %"
    )
    fitted = "Bradley–Terry strength, fitted to all battles at once"

    def elo(row: tuple[str, Strength]) -> Cell:
        (value, low, high), why = row[1].elo, row[1].logit.insufficient_data
        if math.isnan(value):
            return Cell(formats.NOTHING, tip=why)
        return Cell(f"{value:,.0f}" + ("*" if row[1].separated else ""), _bounds(low, high) or formats.NOTHING, why)

    columns: list[Column[tuple[str, Strength]]] = [
        Column("Method", lambda row: _named(board, row[0])),
        NumberColumn("Elo", elo, "[95 %]", points),
        NumberColumn("Log-odds", lambda row: value_cell(row[1].logit, formats.PLAIN), "[95 %]", fitted),
        NumberColumn("Rank", lambda row: row[1].positions, "possible", ranks),
        NumberColumn("Battles", lambda row: row[1].battles, "scored"),
        NumberColumn("Questions", lambda row: row[1].logit.n),
    ]
    listed = table("Bradley–Terry strengths", "strengths-scroll", rows, columns, lambda row: "control" if row[0] in board.controls else "")
    return _strength_chart(rows), listed, note(_STRENGTHS_NOTE)


def _bounds(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{low:,.0f}, {high:,.0f}]"


def _strength_chart(rows: Sequence[tuple[str, Strength]]) -> Picture | None:
    lines = []
    for name, item in rows:
        value, low, high = item.elo
        shown = f"{value:,.0f} {_bounds(low, high)}".strip()
        lines.append((name, [Point(METHOD, math.nan, value, low, high, name, shown)]))
    label = "Elo of each method with its 95 % interval; the numbers are in the table"
    return forest(lines, "Elo (1500: the mean)", label, reference=1500.0, looks=KINDS)
