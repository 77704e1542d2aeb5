"""Boards and battles as text in a terminal: value ± half interval, paired difference to the reference below it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import counted
from ragmeter.show.console import print_table
from results.boards.board import Board, Cell, Row
from results.boards.health import health_text
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, implausible
from results.boards.tables import (
    BRACKETS,
    bracketed,
    could_have_shown,
    family_of_marks,
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
from results.statistics.core import Estimate
from results.statistics.tested import FEWEST_CLUSTERS
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.queries import Cost
from results.store.reuse import reuse_line
from results.store.store import INCOMPLETE

if TYPE_CHECKING:
    from results.judging.battles import BattleBoard, Pairing
    from results.statistics.battles import WinRate
    from results.statistics.bradley_terry import Strength

_NAMED = 2
"""So many methods of which the same must be known are named; more are counted."""


def show_board(board: Board, console: Console, *, verbose: bool = False, began: datetime | None = None) -> None:
    """Print a board.

    Args:
        board: What to print.
        console: Where to.
        verbose: How intervals and tests are computed as well, and the whole ids of the metrics.
        began: When the command began that made some of the runs; None for one that only shows them.
    """
    title = Text(board.dataset, style="bold") + Text(f"  setting {board.setting}  ·  {board.sampled.in_words(board.questions)}")
    if any(board.seeds):
        title += Text(f"  ·  {'seeds' if len(board.seeds) > 1 else 'seed'} {', '.join(map(str, board.seeds))}")
    console.print(title, soft_wrap=True)
    heads = labels(board.metrics)
    _print_scores(board, heads, console)
    for note in _notes(board, heads, verbose, console.width):
        console.print(Text(note, style="dim"))
    for metric, wrong in board.flags.items():
        console.print(Text(f"⚑ {heads.get(metric, metric)} {'; '.join(wrong)}", style="yellow"))
    for line in health_text(board.health):
        console.print(Text(line, style="yellow"))
    for line, names in remarks_of(board.rows).items():
        who = f"{len(names)} methods" if len(names) > _NAMED else ", ".join(names)
        console.print(Text(f"{who}: {line}", style="yellow"))
    if reused := reuse_line({row.run.method: row.reuse for row in board.rows if row.reuse is not None}, began):
        console.print(Text(reused, style="yellow"))
    console.print()


def _notes(board: Board, heads: dict[str, str], verbose: bool, width: int) -> list[str]:
    """Return the notes that explain numbers and marks."""
    how = (f" (over {board.sampled.kind}s)", ", paired (Holm per column, its interval too)") if verbose else ("", "")
    shown = values_shown(cell.scale for row in board.rows for cell in row.cells.values())
    legend = [f"{shown} {interval_words(interval_texts(board))}{how[0]}"]
    if board.reference:
        legend.append(f"below: difference from {board.reference}{how[1]}, * p < .05, ** p < .01")
    if any(bracketed(cell) for row in board.rows for cell in row.cells.values()):
        legend.append(BRACKETS)
    notes = [whole] if len(whole := "; ".join(legend)) <= width else legend
    if any(row.cost is not None and not math.isnan(row.cost.seconds) for row in board.rows):
        notes = [*notes, "s/question: mean, and below it p50–p95"]
    notes = [*notes, *what_marks_hold_for(board), *family_of_marks(board), *insufficient_data_notes(board), *could_have_shown(board)]
    if not verbose:
        return notes
    long = ", ".join(f"{head} = {metric}" for metric, head in heads.items() if head != metric)
    return [*notes, *([long] if long else [])]


def conclusion(board: Board, *, higher_is_better: bool = True) -> str:
    """Summarize the paired tests of a board's first metric in one sentence.

    Args:
        board: With its reference.
        higher_is_better: Of the first metric.
    """
    if board.reference is None:
        return "Nothing was compared: no method here is the experiment's reference."
    cells = {row.run.method: row.cells.get(board.metrics[0]) for row in board.rows} if board.metrics else {}
    differences = {
        name: cell.difference.value if higher_is_better else -cell.difference.value
        for name, cell in cells.items()
        if cell is not None and cell.difference is not None and not math.isnan(cell.difference.value)
    }
    if not differences:
        return f"Nothing was compared with {board.reference}."
    significant = [name for name in differences if (cell := cells[name]) is not None and mark(cell)]
    untested = [
        name
        for name in differences
        if name not in significant
        and (cell := cells[name]) is not None
        and cell.difference is not None
        and (cell.difference.insufficient_data or cell.difference.clusters < FEWEST_CLUSTERS)
    ]
    groups = {
        "significantly ahead of": [name for name in significant if differences[name] > 0],
        "significantly behind": [name for name in significant if differences[name] < 0],
        "not distinguishable from": [name for name in differences if name not in (*significant, *untested)],
        "not tested against": untested,
    }
    on = labels(board.metrics)[board.metrics[0]]
    phrases, against = [], board.reference
    for what, names in groups.items():
        if names:
            *others, last = names
            who = " and ".join(filter(None, [", ".join(others), last])) if len(names) <= _NAMED + 1 else f"{len(names)} methods"
            phrases.append(f"{who} {'is' if len(names) == 1 else 'are'} {what} {against}")
            against = "it"
    return f"On {on}, {'; '.join(phrases)} (paired test, p < .05 after Holm's correction)."


def _print_scores(board: Board, heads: dict[str, str], console: Console) -> None:
    columns = [(heads[metric], [cell_text(row.cells.get(metric)) for row in board.rows]) for metric in board.metrics]
    columns += _cost_columns(board)
    rows = [[_name_row(board, row), *(cells[number] for _, cells in columns)] for number, row in enumerate(board.rows)]
    styles = ["dim" if row.control else "" for row in board.rows]
    print_table(console, [Text("method"), *(Text(head) for head, _ in columns)], rows, keys=1, numbers=True, styles=styles)


def _name_row(board: Board, row: Row) -> Text:
    """A method's name, and what must be known of who it is."""
    name = Text(row.run.method)
    if row.control:
        name += Text(" (control)", style="dim")
    elif row.run.method == board.reference:
        name += Text(" (reference)", style="dim")
    marks = [row.run.origin] * (row.run.origin != "run") + [CONTAMINATED] * bool(row.contaminated)
    marks += [IMPLAUSIBLE] * bool(implausible(row.run)) + [NOT_RESCORED] * bool(not_rescored(row.run, board.metrics))
    marks += [row.run.status] * (row.run.status == INCOMPLETE)
    return name + Text(f" ({', '.join(marks)})", style="dim") if marks else name


def cell_text(cell: Cell | None) -> Text:
    """Return a cell: `63.4 ± 4.2`, below it `[61.7, 65.0]` if verdicts are missing, and `+2.1 ± 3.0 *` if it was compared."""
    if cell is None or math.isnan(cell.estimate.value):
        return Text("–", style="dim")
    span = bracketed(cell)
    text = Text(plus_minus(cell.estimate.value, cell.estimate.low, cell.estimate.high, scale=cell.scale, sides=bool(span)))
    if span:
        text += Text("\n" + span)
    if cell.difference is not None and not math.isnan(cell.difference.value):
        result = cell.difference
        stars = mark(cell)
        style = "dim" if not stars else "green" if result.value > 0 else "red"
        text += Text("\n" + plus_minus(result.value, result.low, result.high, "{:+.1f}", cell.scale) + stars, style=style)
    return text


def _seconds(cost: Cost | None) -> str:
    """A question's mean seconds, and below it `p50–p95`."""
    if cost is None or math.isnan(cost.seconds):
        return "–"
    low, high = (f"{value:.{4 if value < 1 else 2}f}" for value in (cost.seconds_p50, cost.seconds_p95))
    return f"{cost.seconds:.4f}\n{low}–{high}"


def _cost_columns(board: Board) -> list[tuple[str, list[Text]]]:
    """Return the cost of an answer by column name; columns that are unknown for all methods are left out."""
    costs, built_ones = [row.cost for row in board.rows], [row.indexing for row in board.rows]
    every = {
        "s/question": [_seconds(cost) for cost in costs],
        "tokens": ["–" if cost is None or not cost.tokens > 0 else f"{cost.tokens:.0f}" for cost in costs],
        "memory": ["–" if cost is None or not cost.memory_tokens > 0 else f"{cost.memory_tokens:.0f}" for cost in costs],
        # Of models that were asked while an index was built: once, whatever the number of questions.
        "index tokens": ["–" if built is None or not built.tokens else f"{built.tokens:,}" for built in built_ones],
    }
    return [(name, [Text(cell) for cell in cells]) for name, cells in every.items() if set(cells) != {"–"}]


FEW_PAIRINGS = 12
LEGEND = (
    "questions by their mean over orders and repetitions: above ½ won, at ½ tied; uns.: no verdict; decided = won / "
    "(won + lost); ties counted half in with ties; × 100 ± half the 95 % interval of the pair alone; ▲ ▼ significantly won "
    "more or fewer than lost (tests of all pairs, Holm-corrected, 5 %); flips: orders at odds; sd: over repetitions; "
    "none: both answers disqualified, neither wins and neither gets half, so that the shares of a pair need not sum "
    "to 100, and 50 is even only without such questions"
)
RANKS = "rank: what tests of all pairs leave open (Holm-corrected, 5 %); whether two intervals overlap says little"


def show_battles(board: BattleBoard, console: Console, controls: Collection[str] = ()) -> None:
    """Print what a pair judge says: win rates by criterion, and strengths where several methods have met.

    Where many pairs have met, only the main criterion is printed; of criteria with the same numbers the first.

    Args:
        board: What to print.
        console: Where to.
        controls: Names of methods that are controls, which are marked.
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
    for note in dict.fromkeys(note for pairing in board.pairings for note in _lacking(pairing)):
        console.print(Text(note, style="yellow"))
    notes = [LEGEND, *([RANKS] if board.strengths else ()), *_eyes(board, criteria[:1] if many else criteria)]
    notes += [f"by {', '.join(criteria[1:])}: `ragmeter judge win-rates --json`"] if many else []
    for note in notes:
        console.print(Text(note, style="dim"))
    console.print()


def _eyes(board: BattleBoard, criteria: Sequence[str]) -> list[str]:
    """Return whose marks those of a board are, and the shares that people would give."""
    from results.judging.battles import IN_ITS_EYES

    notes = []
    for eyes in dict.fromkeys(map(board.eyes, criteria)):
        by = ", ".join(criterion for criterion in criteria if board.eyes(criterion) == eyes)
        more = ": label pairs by `ragmeter judge labels export --pairs`" if eyes == IN_ITS_EYES else ""
        notes.append(f"marks by {by} hold {eyes}{more}" if eyes == IN_ITS_EYES else f"marks by {by}: {eyes}")
    for item in board.pairings:
        if item.people is not None and item.criterion in criteria:
            known = item.people.corrected
            why = f" ({known.insufficient_data})" if known.insufficient_data else ""
            judged = f"the judge says {100 * item.people.judged:.1f}, people {100 * known.value:.1f} ({counted(known.n, 'label')})"
            notes.append(
                f"{item.method} against {item.opponent} by {item.criterion}, share of wins with ties and none as half: {judged}{why}"
            )
    notes += [f"strengths by {name}: corrected by people's labels" for name in criteria if name in board.corrected]
    return notes


def _lacking(item: Pairing) -> list[str]:
    """Return notes on a pairing's verdicts: pending, missing, or with nothing to judge by."""
    notes = []
    if item.pending:
        verb = "is" if item.pending == 1 else "are"
        notes.append(f"{counted(item.pending, 'answer')} of both {verb} not judged yet: the same judging goes on")
    if item.incomplete:
        notes.append(item.incomplete)
    if item.bounds is not None:
        low, high = (f"{100 * value:.1f}" for value in item.bounds)
        notes.append(f"by {item.criterion}, with missing verdicts counted as lost or won, 'with ties' is between {low} and {high}")
    if item.unscorable:
        notes.append(f"left out, with nothing to judge by: {counted(item.unscorable, 'question')}")
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
    return ", ".join(
        f"{name} {strength.elo[0]:.0f} ({strength.elo[1]:.0f}–{strength.elo[2]:.0f})"
        + ("‡" if strength.separated else "")
        + f" rank {strength.positions}"
        for name, strength in strengths
    ) + (
        "; ‡ won or lost everything: how far away it stands cannot be known" if any(strength.separated for _, strength in strengths) else ""
    )


def _sure(item: Pairing) -> str:
    return "" if item.won is None else "▲ " if item.won else "▼ "


def shown_share(estimate: Estimate) -> str:
    """A share × 100 with half its interval; – without a value."""
    if math.isnan(estimate.value):
        return "–"
    return plus_minus(estimate.value, estimate.low, estimate.high)


def _spread(rate: WinRate) -> str:
    spread = rate.repetitions.with_ties_sd
    return "–" if math.isnan(spread) else f"{100 * spread:.1f}"
