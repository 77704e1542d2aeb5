"""Pairwise verdicts as page elements: who beats whom how often, and the strengths that explain it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, named, plain_table
from leaderboard.elements.pictures import KINDS, METHOD, Picture, Point, forest
from results.boards.board import BEST, WORTHLESS
from results.judging import battles
from results.judging.battles import BattleBoard, Pairing, Placed
from results.statistics.bradley_terry import Strength

MATRIX_NOTE = (
    "A tie counts half, 50 is even; if both answers are disqualified, neither method gets a point. Brackets: 95 % interval of each "
    "pair. ▲ ▼ won significantly more or fewer questions than it lost (tests of all pairs in "
    "the table, Holm-corrected, 5 %)."
)
STRENGTHS_NOTE = (
    "Rank: from one more than the number of significantly stronger methods to the number of methods that are not significantly weaker "
    "(tests of all pairs, Holm-corrected, 5 %). Equal ranges do not mean equal methods, and overlapping intervals say little about "
    "a pair. * Won or lost everything: the prior sets its distance, not the battles."
)
CONTROLS_NOTE = (
    "Based on the tests of all pairs that mark the win rates (Holm-corrected, 5 %). Not distinguishable: neither won significantly "
    "more questions. Either too few were judged, or the judge does not see the difference, or there is none, for "
    "example between an empty answer and a method that never answers."
)
CONTROL_TIP = "Sees the gold; included to check the judge"
_PLACED = (Head("Belongs", "relative to its rivals"), Head("Placed"), Head("Found", wide=True))


def basis_note(board: BattleBoard, criterion: str) -> Node:
    """Explain whose preferences the stars of a table refer to: the judge's or people's."""
    return el("p", f"Marks: {board.basis(criterion)}.", cls="note")


def criteria(board: BattleBoard) -> list[str]:
    """List the criteria by which answers were compared, in the judge's order."""
    return list(dict.fromkeys(pairing.criterion for pairing in board.pairings))


def names(board: BattleBoard, criterion: str) -> list[str]:
    """List the method names, strongest first; methods of unknown strength follow in order of appearance."""
    ranked = [name for name, _ in board.strengths.get(criterion, ())]
    met = [name for pairing in board.pairings if pairing.criterion == criterion for name in (pairing.method, pairing.opponent)]
    return list(dict.fromkeys([*ranked, *met]))


def matrix(board: BattleBoard, criterion: str) -> Node:
    """Build the win-rate matrix: the share of questions that the row's method wins against the column's, a tie as half a win."""
    order = names(board, criterion)
    known = {(pairing.method, pairing.opponent): pairing for pairing in board.pairings if pairing.criterion == criterion}
    heads = [Head("Wins of … against")] + [
        Head(name, "control · × 100" if name in board.controls else "× 100", number=True) for name in order
    ]
    lines = [_line(name, [_pairing(name, other, known) for other in order], board.controls) for name in order]
    return plain_table(f"Win rates by {criterion}", heads, lines, "matrix-scroll")


def rates(board: BattleBoard, criterion: str) -> Node:
    """Build the win rates: a matrix, or a list if all methods were compared only with one."""
    rivals = [{pairing.method, pairing.opponent} for pairing in board.pairings if pairing.criterion == criterion]
    common = set.intersection(*rivals) if len(rivals) > 1 else set()
    return rates_against(board, criterion, common.pop()) if len(common) == 1 else matrix(board, criterion)


def rates_against(board: BattleBoard, criterion: str, rival: str) -> Node:
    """Build the win rates of all methods against one, with wins, ties and losses."""
    known = {(pairing.method, pairing.opponent): pairing for pairing in board.pairings if pairing.criterion == criterion}
    heads = [
        Head(f"Wins against {rival}"),
        Head("Share", "× 100", "Share of judged questions that it won; a tie counts half", number=True),
        Head("Won", "questions", number=True),
        Head("Tied", "questions", number=True),
        Head("Lost", "questions", number=True),
        Head("Neither", "questions", "Both answers were disqualified", number=True),
        Head("p", "Holm-corrected", "Test that both win equally often, corrected over all pairs of the table", number=True),
        Head(
            "Order decides",
            "%",
            "How often the two orders of the answers name different winners, if both name one; such a question is a tie",
            number=True,
        ),
    ]
    lines = []
    for name in names(board, criterion):
        side = _side(name, rival, known)
        if side is None:
            continue
        item, won, lost = side
        flips = f"{100 * item.rate.flips.rate:.0f}" if item.rate.flips.rate == item.rate.flips.rate else formats.NOTHING
        lines.append(
            _line(
                name,
                [
                    _pairing(name, rival, known),
                    f"{won:,}",
                    f"{item.rate.ties:,}",
                    f"{lost:,}",
                    f"{item.rate.none:,}",
                    formats.NOTHING if math.isnan(item.corrected) else formats.p_value(item.corrected),
                    flips,
                ],
                board.controls,
            )
        )
    return plain_table(f"Win rates against {rival} by {criterion}", heads, lines, "matrix-scroll")


def _line(name: str, cells: Sequence[Cell | Node | str], controls: Collection[str]) -> Line:
    return Line(_name_method(name, controls), cells, "control" if name in controls else "")


def _name_method(name: str, controls: Collection[str]) -> Node:
    return named(name, badge("control", "control", CONTROL_TIP) if name in controls else None)


def _side(name: str, other: str, known: Mapping[tuple[str, str], Pairing]) -> tuple[Pairing, int, int] | None:
    """Return the verdicts about two methods, and how many questions the first one won and lost; None if there are none."""
    item = known.get((name, other))
    if item is not None:
        return item, item.rate.wins, item.rate.losses
    item = known.get((other, name))
    return None if item is None else (item, item.rate.losses, item.rate.wins)


def _pairing(name: str, other: str, known: Mapping[tuple[str, str], Pairing]) -> Cell:
    if name == other:
        return Cell("·")
    side = _side(name, other, known)
    if side is None or math.isnan(side[0].rate.with_ties.value):
        return Cell(formats.NOTHING, tip="They were not compared")
    if side[0].incomplete:
        return Cell(formats.NOTHING, tip=side[0].incomplete)
    item, wins, losses = side
    rate, swapped = item.rate, item.method != name
    # If both answers are disqualified, neither wins: then the two shares do not sum to 1.
    share = rate.with_ties_opponent if swapped else rate.with_ties
    value, low, high = share.value, share.low, share.high
    if item.corrected_by_people:
        value, low, high = item.share.value, item.share.low, item.share.high
        value, low, high = (1 - value, 1 - high, 1 - low) if swapped else (value, low, high)
    decided = "" if item.won is None else "won" if item.won is not swapped else "lost"
    counts = [f"{wins:,} won, {rate.ties:,} tied, {losses:,} lost of {rate.n:,} questions"]
    counts += [f"corrected by {item.share.n:,} labels; the judge says {PERCENT.value(share.value)}"] if item.corrected_by_people else []
    counts += [f"{rate.none:,} with both disqualified"] if rate.none else []
    counts += [f"{rate.unscored:,} the judge failed on"] if rate.unscored else []
    counts += [f"{item.unscorable:,} that cannot be judged"] if item.unscorable else []
    counts += [f"{item.pending:,} not judged yet"] if item.pending else []
    counts += [f"orders contradict each other on {100 * rate.flips.rate:.0f} %"] if rate.flips.flips else []
    counts += [f"{formats.p_value(item.corrected)} after correction"] if not math.isnan(item.corrected) else []
    counts += [share.insufficient_data] if share.insufficient_data else []
    mark = {"won": "▲ ", "lost": "▼ ", "": ""}[decided] + PERCENT.value(value)
    return Cell(mark, PERCENT.interval(low, high), "; ".join(counts), decided)


def controls(board: BattleBoard, criterion: str) -> Node | None:
    """Build the table that checks the judge with the board's controls; None if no control was judged."""
    results = battles.placed(board, criterion)
    others = battles.not_placed(board, criterion)
    if not results and not others:
        return None
    heads = [Head("Control"), *_PLACED]
    lines = [Line(_name_method(item.control, board.controls), _placed(item), "control") for item in results]
    return el(
        "div",
        *_against_the_judge(board, criterion),
        plain_table(f"Controls by {criterion}", heads, lines, "controls-scroll") if results else None,
        el("p", f"Not checked, because their expected place here is unknown: {', '.join(others)}.", cls="note") if others else None,
        cls="stack",
    )


def controls_on_other_boards(boards: Sequence[tuple[str, BattleBoard]], criterion: str) -> Node | None:
    """Build the folded control checks of the judge's other boards; None if no control was judged there.

    Args:
        boards: (Name, board) pairs.
        criterion: The criterion of the comparison.
    """
    results = [(name, board, item) for name, board in boards for item in battles.placed(board, criterion)]
    if not results:
        return None
    number = len({name for name, _, _ in results})
    wrong = sum(bool(item.wrong) for _, _, item in results)
    lines = [Line(name, [_name_method(item.control, board.controls), *_placed(item)], "control") for name, board, item in results]
    return el(
        "div",
        *(warning for name, board in boards for warning in _against_the_judge(board, criterion, name)),
        el(
            "details",
            el(
                "summary",
                el("span", f"Controls on {number:,} other board{'s' * (number != 1)}", cls="name"),
                el("span", f"{wrong:,} of {len(results):,} placed wrongly", cls="aside"),
            ),
            plain_table(f"Controls on other boards by {criterion}", [Head("Board"), Head("Control"), *_PLACED], lines, "others-scroll"),
            cls="evidence",
            key="other-boards",
        ),
        cls="stack",
    )


def _against_the_judge(board: BattleBoard, criterion: str, name: str = "") -> list[Node]:
    """Return a line for each method that ranks above one that must rank above it; `name` is that of the board, if it is another one."""
    on = f", on {name}" if name else ""
    results = []
    for winner, losers in battles.misplaced(board, criterion).items():
        beaten = ", ".join(_called(loser, board) for loser in losers)
        warning = f"⚑ {criterion} ranks {_called(winner, board)} significantly above {beaten}{on}"
        results.append(el("p", el("span", warning), badge("evidence against the judge", "failed")))
    return results


def _placed(item: Placed) -> list[Cell | Node | str]:
    alone = "compared with this rival only" if item.rivals == 1 else ""
    return ["above" if item.above else "below", _verdict(item), Cell(_found(item), alone)]


def _verdict(item: Placed) -> Node | str:
    if item.wrong:
        return badge("wrongly", "failed")
    return "not distinguishable" if item.level else badge("where it belongs", "verified")


def _found(item: Placed) -> str:
    right, wrong = ("significantly above", "significantly below") if item.above else ("significantly below", "significantly above")
    parts = ((wrong, item.wrong), ("not distinguishable from", item.level), (right, item.right))
    return "; ".join(f"{result} {_listed(rivals)}" for result, rivals in parts if rivals)


def _listed(rivals: Sequence[str]) -> str:
    return rivals[0] if len(rivals) == 1 else f"{len(rivals):,}: {', '.join(rivals)}"


def _called(name: str, board: BattleBoard) -> str:
    kind = board.controls.get(name)
    if kind == BEST:
        return f"{name} (the gold answer)"
    return f"{name} (says nothing or the wrong thing)" if kind in WORTHLESS else name


def strengths(rows: Sequence[tuple[str, Strength]], controls: Collection[str] = ()) -> Node:
    """Build the table of Bradley–Terry strengths, strongest first, with the range of ranks that the tests leave open.

    Args:
        rows: (Method, strength) pairs.
        controls: Names of controls, which are marked.
    """
    heads = [
        Head("Method"),
        Head("Elo", "[95 %]", "400 points are odds of 10 to 1; 1500 is the mean of the methods that have met", number=True),
        Head("Log-odds", "[95 %]", "Bradley–Terry strength, fitted to all battles at once", number=True),
        Head(
            "Rank",
            "possible",
            "From one more than the number of significantly stronger methods to the number of methods that are not significantly "
            "weaker: tests of all pairs, Holm-corrected, 5 %",
            number=True,
        ),
        Head("Battles", "scored", number=True),
        Head("Questions", number=True),
    ]
    lines = [
        _line(
            name,
            [
                _elo(item),
                Cell(
                    formats.PLAIN.value(item.logit.value),
                    formats.PLAIN.interval(item.logit.low, item.logit.high),
                    item.logit.insufficient_data,
                ),
                item.positions,
                f"{item.battles:,}",
                f"{item.logit.n:,}",
            ],
            controls,
        )
        for name, item in rows
    ]
    return plain_table("Bradley–Terry strengths", heads, lines, "strengths-scroll")


def _elo(item: Strength) -> Cell:
    value, low, high = item.elo
    bounds = formats.NOTHING if math.isnan(low) else f"[{low:,.0f}, {high:,.0f}]"
    tip = "It won or lost every battle that links it to the rest, so the prior sets its distance" if item.separated else ""
    return Cell(f"{value:,.0f}" + ("*" if item.separated else ""), bounds, tip)


def strength_chart(rows: Sequence[tuple[str, Strength]]) -> Picture | None:
    """Draw a forest plot of Elo ratings with intervals, strongest on top; a dashed line at the mean."""
    lines = []
    for name, item in rows:
        value, low, high = item.elo
        shown = f"{value:,.0f}" + ("" if math.isnan(low) else f" [{low:,.0f}, {high:,.0f}]")
        lines.append((name, [Point(METHOD, math.nan, value, low, high, name, shown)]))
    label = "Elo of each method with its 95 % interval; the numbers are in the table"
    return forest(lines, "Elo (1500: the mean)", label, reference=1500.0, looks=KINDS)
