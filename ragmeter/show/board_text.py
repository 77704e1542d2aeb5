"""Boards and battles as text in a terminal: the verdict, then one line per method with value ± half interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import counted
from ragmeter.show.console import GAP, print_table, widest
from results.boards.board import Board, Cell, Row
from results.boards.health import health_text
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, POSITIVE_CONTROL, implausible
from results.boards.tables import (
    BRACKETS,
    bracketed,
    could_have_shown,
    family_of_marks,
    geometric_notes,
    insufficient_data_notes,
    interval_texts,
    interval_words,
    labels,
    mark,
    plus_minus,
    remarks_of,
    values_shown,
    what_marks_hold_for,
)
from results.boards.verdict_text import Headline, headline_of, headline_parts
from results.statistics.core import Estimate
from results.store.cost_queries import Cost
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.reuse import reuse_line
from results.store.store import INCOMPLETE

if TYPE_CHECKING:
    from results.judging.battles import BattleBoard, Pairing
    from results.statistics.battles import WinRate
    from results.statistics.bradley_terry import Strength

NOTES = 3
"""Maximum notes below a table, including the legend; `--verbose` prints all."""
_NAME = 26
"""Minimum columns for a method's name, if it needs them."""
_FURTHER = 2
"""Rank of the first column that is not of the main metric."""
_NAMED = 2
"""Maximum number of methods named in a common note; further ones are counted."""


def show_board(
    board: Board,
    console: Console,
    *,
    headline: Headline | None = None,
    wide: bool = False,
    by_metric: bool = False,
    verbose: bool = False,
    began: datetime | None = None,
) -> None:
    """Print a board in the terminal: its verdict, one line per method (best first), and at most three notes.

    Args:
        board: The board.
        console: The console to print to.
        headline: The verdict on the board; its main metric sorts the methods.
        wide: Print all columns, however wide the table becomes; else those that fit, the main metric first.
        by_metric: Print one line per metric and cost instead of one per method, for a board of one or two runs.
        verbose: Print all notes, how intervals and tests are computed, and the whole ids of the metrics.
        began: Start of the command, if it made some of the runs; None if it only shows them.
    """
    title = Text(board.dataset, style="bold") + Text(f"  setting {board.setting}  ·  {board.sampled.in_words(board.questions)}")
    if any(board.seeds):
        title += Text(f"  ·  {'seeds' if len(board.seeds) > 1 else 'seed'} {', '.join(map(str, board.seeds))}")
    console.print(title, soft_wrap=True)
    if headline is not None:
        show_verdict(headline, console)
    heads, main = labels(board.metrics), _main(board, headline)
    left_out = _print_scores(board, heads, main, console, wide, by_metric)
    warnings = _warnings(board, heads, began)
    notes = [(line, "dim") for line in _notes(board, heads, main, verbose, left_out)]
    notes = [*notes[:1], *((line, "yellow") for line in warnings), *notes[1:]]
    shown = notes if verbose else notes[:NOTES]
    for number, (line, style) in enumerate(shown, 1):
        rest = len(notes) - len(shown) if number == len(shown) else 0
        hidden = len(warnings) - sum(other == "yellow" for _, other in shown)
        kinds = [(hidden, "more warning"), (rest - hidden, "note" if hidden else "more note")]
        what = " and ".join(counted(of, kind) for of, kind in kinds if of)
        more = Text(f"  ({what}: --verbose)", style="yellow" if hidden else "dim") if rest else Text("")
        console.print(Text(line, style=style) + more)
    console.print()


def show_boards(boards: Sequence[Board], known: Sequence[Headline], console: Console, **how: Any) -> None:
    """Print the verdict over all boards, if there is one, and each board with its own; `how` is passed to `show_board`."""
    for line in known:
        if line.main.place.suite:
            show_verdict(line, console)
    for board in boards:
        show_board(board, console, headline=headline_of(board, known), **how)


def show_verdict(headline: Headline, console: Console) -> None:
    """Print a verdict, with the names of methods in bold."""
    styles = {"method": "bold", "number": "cyan", "words": ""}
    console.print(Text("").join(Text(part.text, style=styles[part.kind]) for part in headline_parts(headline)))


def _main(board: Board, headline: Headline | None) -> str | None:
    """Return the metric that sorts a board: that of its verdict, else the primary one, else the first."""
    if headline is not None and headline.main.place.metric in board.metrics:
        return headline.main.place.metric
    return (board.primary.of(board.metrics) if board.primary else None) or next(iter(board.metrics), None)


def _warnings(board: Board, heads: dict[str, str], began: datetime | None) -> list[str]:
    """Return the warnings about a board's metrics and runs."""
    lines = [f"⚑ {heads.get(metric, metric)} {'; '.join(wrong)}" for metric, wrong in board.flags.items()]
    lines += health_text(board.health)
    for line, names in remarks_of(board.rows).items():
        lines.append(f"{f'{len(names)} methods' if len(names) > _NAMED else ', '.join(names)}: {line}")
    if reused := reuse_line({row.run.method: row.reuse for row in board.rows if row.reuse is not None}, began):
        lines.append(reused)
    return lines


def _notes(board: Board, heads: dict[str, str], main: str | None, verbose: bool, left_out: int) -> list[str]:
    """Return the notes that explain numbers and marks, the legend first."""
    how = (f" (over {board.sampled.kind}s)", ", paired (Holm per column, its interval too)") if verbose else ("", "")
    shown = values_shown(cell.scale for row in board.rows for cell in row.cells.values())
    legend = [f"{shown} {interval_words(interval_texts(board))}{how[0]}"]
    if board.reference:
        legend.append(f"Δ: difference from {board.reference}{how[1]}, * p < .05, ** p < .01{_without_reference(board, heads)}")
        legend += geometric_notes(board)
    if any(bracketed(cell) for row in board.rows for cell in row.cells.values()):
        legend.append(BRACKETS)
    if left_out:
        legend.append(f"{counted(left_out, 'more column')}: --wide")
    notes = ["; ".join(legend), *insufficient_data_notes(board), *could_have_shown(board, main)]
    notes += [*what_marks_hold_for(board), *family_of_marks(board)]
    long = ", ".join(f"{head} = {metric}" for metric, head in heads.items() if head != metric)
    return [*notes, *([long] if verbose and long else [])]


def _without_reference(board: Board, heads: dict[str, str]) -> str:
    """Name the metrics without differences because the reference has no value that others can be compared with."""
    cells = next((row.cells for row in board.rows if row.run.method == board.reference), {})
    ours = [cells.get(metric) for metric in board.metrics]
    lacking = [m for m, cell in zip(board.metrics, ours, strict=True) if cell is None or cell.apart or math.isnan(cell.estimate.value)]
    if not lacking or len(board.rows) < 2:
        return ""
    which = "" if len(lacking) == len(board.metrics) else f" of {', '.join(heads.get(metric, metric) for metric in lacking)}"
    return f"; no Δ{which}: {board.reference} has no comparable value"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column of a table; a smaller `rank` has priority if not all fit."""

    rank: int
    head: str
    cells: list[Text]

    @property
    def width(self) -> int:
        return max(map(widest, (Text(self.head), *self.cells)))


def _print_scores(board: Board, heads: dict[str, str], main: str | None, console: Console, wide: bool, by_metric: bool) -> int:
    """Print one line per method, or one per metric; returns how many columns do not fit."""
    rows = sorted_rows(board, main)
    names = [_name_row(board, row) for row in rows]
    columns = _columns(board, rows, heads, main)
    if by_metric:
        print_table(console, [Text("metric"), *names], [[Text(column.head), *column.cells] for column in columns], keys=1, numbers=True)
        return 0
    kept = columns
    if not wide:
        room = console.width - _names_width(names, columns, console.width)
        kept = []
        for column in sorted(columns, key=lambda column: column.rank):
            if column.width + GAP <= room or not kept:
                kept.append(column)
                room -= column.width + GAP
        kept = [column for column in columns if column in kept]
    lines = [[name, *(column.cells[number] for column in kept)] for number, name in enumerate(names)]
    styles = ["dim" if row.control else "" for row in rows]
    print_table(console, [Text("method"), *(Text(column.head) for column in kept)], lines, keys=1, numbers=True, styles=styles, whole=wide)
    return len(columns) - len(kept)


def _names_width(names: Sequence[Text], columns: Sequence[_Shown], width: int) -> int:
    """Return the width of the first column: that of the longest name if the main metric fits next to it; else names are wrapped."""
    whole = max(map(widest, (Text("method"), *names)))
    main = sum(column.width + GAP for column in columns if column.rank < _FURTHER)
    return whole if whole + main <= width else min(whole, max(_NAME, width // 3))


def sorted_rows(board: Board, main: str | None) -> list[Row]:
    """Sort a board's rows by the main metric, best first; then methods that are not compared, and controls."""
    sign = 1.0 if main in board.lower_is_better else -1.0

    def key(row: Row) -> tuple[bool, bool, float]:
        cell = row.cells.get(main or "")
        lacking = cell is None or math.isnan(cell.estimate.value)
        return row.control, lacking or bool(cell and cell.apart), math.inf if lacking or cell is None else sign * cell.estimate.value

    return sorted(board.rows, key=key)


def _columns(board: Board, rows: Sequence[Row], heads: dict[str, str], main: str | None) -> list[_Shown]:
    """Return all columns in the order of the table: the main metric, the other metrics, costs."""
    columns = []
    for number, metric in enumerate(sorted(board.metrics, key=lambda metric: metric != main)):
        cells = [row.cells.get(metric) for row in rows]
        head = heads[metric]
        arrow = "↓" if metric in board.lower_is_better else "↑"
        columns.append(_Shown(_FURTHER * bool(number) + number, f"{head} {arrow}", [cell_text(cell) for cell in cells]))
        if any(cell is not None and cell.difference is not None for cell in cells):
            worse = metric in board.lower_is_better
            texts = [difference_text(cell, lower_is_better=worse) for cell in cells]
            columns.append(_Shown(1 if not number else 2000 + number, f"Δ {head}", texts))
    return [*columns, *(_Shown(1000 + number, name, cells) for number, (name, cells) in enumerate(_cost_columns(rows)))]


def _name_row(board: Board, row: Row) -> Text:
    """Return a method's name with its remarks."""
    name = Text(row.run.method)
    if row.control:
        name += Text(" (control)", style="dim")
    elif row.run.method == board.reference:
        name += Text(" (reference)", style="dim")
    marks = [row.run.origin] * (row.run.origin != "run") + [CONTAMINATED] * bool(row.contaminated)
    marks += [POSITIVE_CONTROL] * row.run.positive_control
    marks += [IMPLAUSIBLE] * bool(implausible(row.run)) + [NOT_RESCORED] * bool(not_rescored(row.run, board.metrics))
    marks += [row.run.status] * (row.run.status == INCOMPLETE)
    return name + Text(f" ({', '.join(marks)})", style="dim") if marks else name


def cell_text(cell: Cell | None) -> Text:
    """Format a cell: `63.4 ± 4.2`, followed by `[61.7, 65.0]` if verdicts are missing."""
    if cell is None or math.isnan(cell.estimate.value):
        return Text("–", style="dim")
    span = bracketed(cell)
    value = plus_minus(cell.estimate.value, cell.estimate.low, cell.estimate.high, scale=cell.scale, sides=bool(span))
    return Text(" ".join(filter(None, (value, span))))


def difference_text(cell: Cell | None, *, lower_is_better: bool = False) -> Text:
    """Format a cell's difference from the reference with its stars: `+2.1 ± 3.0 *`; empty if it was not compared."""
    if cell is None or cell.difference is None or math.isnan(cell.difference.value):
        return Text("")
    result, stars = cell.difference, mark(cell)
    better = (result.value > 0) != lower_is_better
    # Stars have a place of their own, so that the numbers of a column stay below each other.
    shown = plus_minus(result.value, result.low, result.high, "{:+.1f}", cell.scale)
    return Text(f"{shown} {stars:<2}", style="dim" if not stars else "green" if better else "red")


def _cost_columns(rows: Sequence[Row]) -> list[tuple[str, list[Text]]]:
    """Return the cost of an answer by column name; columns that are unknown for all methods are omitted."""
    costs, built_ones = [row.cost for row in rows], [row.indexing for row in rows]
    timed = [cost if cost is not None and not math.isnan(cost.seconds) else None for cost in costs]
    every = {
        "tokens": ["–" if cost is None or not cost.tokens > 0 else f"{cost.tokens:.0f}" for cost in costs],
        "s/question": ["–" if cost is None else f"{cost.seconds:.4f}" for cost in timed],
        "US$ in all": ["–" if cost is None or not cost.cost_usd > 0 else f"{cost.cost_usd:.4g}" for cost in costs],
        "memory": ["–" if cost is None or not cost.memory_tokens > 0 else f"{cost.memory_tokens:.0f}" for cost in costs],
        # Calls while an index was built: once, regardless of the number of questions.
        "index tokens": ["–" if built is None or not built.tokens else f"{built.tokens:,}" for built in built_ones],
        "p50–p95 s": ["–" if cost is None else _quantiles(cost) for cost in timed],
    }
    return [(name, [Text(cell) for cell in cells]) for name, cells in every.items() if set(cells) != {"–"}]


def _quantiles(cost: Cost) -> str:
    return "–".join(f"{value:.{4 if value < 1 else 2}f}" for value in (cost.seconds_p50, cost.seconds_p95))


FEW_PAIRINGS = 12
LEGEND = (
    "questions by their mean over orders and repetitions: above ½ won, at ½ tied; uns.: no verdict; decided = won / (won + lost); "
    "with ties: a tie counts half; × 100 ± half the 95 % interval of each pair; ▲ ▼ significantly more won than "
    "lost, or fewer (tests of all pairs, Holm-corrected, 5 %); flips: the two orders disagree; sd: over "
    "repetitions; none: both answers disqualified, neither method gets a point; the shares of a pair then sum to less than "
    "100, and 50 is not even"
)
RANKS = "rank: the ranks that tests of all pairs leave open (Holm-corrected, 5 %); overlapping intervals say little about a pair"


def show_battles(board: BattleBoard, console: Console, controls: Collection[str] = ()) -> None:
    """Print a pair judge's results: win rates by criterion, and strengths if several methods were compared.

    With many pairs, only the main criterion is printed; of criteria with equal numbers, only the first.

    Args:
        board: The judge's results.
        console: The console to print to.
        controls: Names of controls, which are marked.
    """
    judged = Text("  by rules, not by a model", style="yellow") if board.rule else Text("")
    console.print(Text(board.dataset, style="bold") + Text(f"  setting {board.setting}  ·  {board.judge}") + judged)
    criteria = list(dict.fromkeys(pairing.criterion for pairing in board.pairings))
    many = len(board.pairings) > FEW_PAIRINGS * len(criteria)
    printed: dict[str, list[list[str]]] = {}
    for criterion in criteria[:1] if many else criteria:
        chosen = [pairing for pairing in board.pairings if pairing.criterion == criterion]
        cells = [[item.method, item.opponent, *_numbers(item), _spread(item.rate)] for item in chosen]
        cells.append([_ranked(board.strengths.get(criterion, ()))])
        twin = next((name for name, known in printed.items() if known == cells), None)
        if twin is not None:
            console.print(Text(f"{criterion}: the same numbers as {twin}"))
            continue
        printed[criterion] = cells
        total = sum(sum(item.rate.verdicts.values()) for item in chosen)
        lost = sum(item.rate.verdicts["unscored"] for item in chosen)
        console.print(Text(f"{criterion}: {total:,} verdicts, {lost:,} of them unscored"))
        _print_battles(chosen, controls, console)
        if criterion in board.strengths:
            console.print(Text("strength (Bradley–Terry, Elo scale): ") + Text(_ranked(board.strengths[criterion])))
    for note in dict.fromkeys(note for pairing in board.pairings for note in _missing_notes(pairing)):
        console.print(Text(note, style="yellow"))
    notes = [LEGEND, *([RANKS] if board.strengths else ()), *_basis_notes(board, criteria[:1] if many else criteria)]
    notes += [f"by {', '.join(criteria[1:])}: `ragmeter judge win-rates --json`"] if many else []
    for name, why in board.doubts.items():
        console.print(Text(f"{name}: {'; '.join(map(': '.join, why))}", style="yellow"))
    for note in notes:
        console.print(Text(note, style="dim"))
    console.print()


def _basis_notes(board: BattleBoard, criteria: Sequence[str]) -> list[str]:
    """Return notes on the source of a board's marks, and the win shares according to people."""
    from results.judging.battles import THIS_JUDGE_ONLY

    notes = []
    for basis in dict.fromkeys(map(board.basis, criteria)):
        by = ", ".join(criterion for criterion in criteria if board.basis(criterion) == basis)
        more = ": label pairs by `ragmeter judge labels export --pairs`" if basis == THIS_JUDGE_ONLY else ""
        notes.append(f"marks by {by}{' hold' if basis.startswith('for ') else ':'} {basis}{more}")
    for item in board.pairings:
        if item.people is not None and item.criterion in criteria:
            known = item.people.corrected
            why = f" ({known.insufficient_data})" if known.insufficient_data else ""
            judged = f"the judge says {100 * item.people.judged:.1f}, people {100 * known.value:.1f} ({counted(known.n, 'label')})"
            notes.append(
                f"{item.method} against {item.opponent} by {item.criterion}, share of wins with ties and none as half: {judged}{why}"
            )
    notes += [f"strengths by {name}: corrected with human labels" for name in criteria if name in board.corrected]
    return notes


def _missing_notes(item: Pairing) -> list[str]:
    """Return notes on a pairing's pending or missing verdicts, and on items without anything to judge."""
    notes = []
    if item.pending:
        verb = "is" if item.pending == 1 else "are"
        notes.append(f"{counted(item.pending, 'answer')} of both {verb} not judged yet: run the same command again")
    if item.incomplete:
        notes.append(item.incomplete)
    if item.bounds is not None:
        low, high = (f"{100 * value:.1f}" for value in item.bounds)
        notes.append(f"by {item.criterion}, with missing verdicts counted as lost or won, 'with ties' is between {low} and {high}")
    if item.unscorable:
        notes.append(f"left out, without the fields that the judge needs: {counted(item.unscorable, 'question')}")
    return [f"{item.method} against {item.opponent}: {note}" for note in notes]


def _numbers(item: Pairing) -> list[str]:
    rate = item.shown
    return [
        f"{rate.wins}/{rate.ties}/{rate.losses}",
        str(rate.none),
        str(rate.unscored),
        shown_share(rate.decided),
        _sure(item) + shown_share(item.share),
        f"{rate.flips.flips}/{rate.flips.both_decided}",
    ]


def _print_battles(pairings: Sequence[Pairing], controls: Collection[str], console: Console) -> None:
    """Print the numbers of pairs."""
    heads = ["won/tied/lost", "none", "uns.", "decided", "with ties", "flips"]
    lines = [_numbers(pairing) for pairing in pairings]
    if any(pairing.rate.repetitions.repetitions > 1 for pairing in pairings):
        heads.append("sd")
        lines = [[*line, _spread(item.rate)] for line, item in zip(lines, pairings, strict=True)]
    # What never occurs takes no column.
    kept = [position for position, head in enumerate(heads) if head not in ("none", "uns.") or any(line[position] != "0" for line in lines)]
    rows = [[_pair_name(item, controls), *(Text(line[n]) for n in kept)] for item, line in zip(pairings, lines, strict=True)]
    print_table(console, [Text("method"), *(Text(heads[position]) for position in kept)], rows, keys=1, numbers=True)


def _pair_name(item: Pairing, controls: Collection[str]) -> Text:
    name = Text(item.method)
    name += Text(" (control)" if item.method in controls else "", style="dim")
    return name + Text(f"\n against {item.opponent}" + (" (control)" if item.opponent in controls else ""), style="dim")


def _ranked(strengths: Sequence[tuple[str, Strength]]) -> str:
    shown = [f"{name} {_elo(strength)}{'‡' if strength.separated else ''} rank {strength.positions}" for name, strength in strengths]
    apart = any(strength.separated for _, strength in strengths)
    return ", ".join(shown) + ("; ‡ won or lost everything: its distance cannot be estimated" if apart else "")


def _elo(strength: Strength) -> str:
    value, low, high = strength.elo
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if math.isnan(low) else f"{value:.0f} ({low:.0f}–{high:.0f})"


def _sure(item: Pairing) -> str:
    return "" if item.won is None else "▲ " if item.won else "▼ "


def shown_share(estimate: Estimate) -> str:
    """Format a share × 100 with half its interval; – without a value."""
    if math.isnan(estimate.value):
        return "–"
    return plus_minus(estimate.value, estimate.low, estimate.high)


def _spread(rate: WinRate) -> str:
    spread = rate.repetitions.with_ties_sd
    return "–" if math.isnan(spread) else f"{100 * spread:.1f}"
