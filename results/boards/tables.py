"""Boards for papers, READMEs and spreadsheets: LaTeX (booktabs), Markdown, CSV.

LaTeX and Markdown show value × 100 ± half its interval with stars for the difference from the reference, as the terminal
does. CSV is tidy, one row per run and metric, and holds values as they are stored: fractions, or plain numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

from results.boards.board import Board, Cell, Row
from results.boards.health import health_text
from results.boards.markup import latex_text, markdown_text, to_csv, to_html, to_latex, to_markdown
from results.boards.primary import EACH, of_several
from results.boards.systems import (
    CONTAMINATED,
    IMPLAUSIBLE,
    POSITIVE_CONTROL,
    POSITIVE_CONTROL_TIP,
    UNTRAINED_CONTROL,
    accepted,
    implausible,
)
from results.offered import TABLES
from results.statistics.core import Difference
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.queries import OURS, RunRow
from results.store.store import INCOMPLETE

FORMATS = TABLES

STARS = ((0.01, "**"), (0.05, "*"))
"""Marks of differences, by upper bound of the corrected p-value."""

CSV_COLUMNS = (
    "dataset", "dataset_fingerprint", "setting", "seed", "questions", "method", "kind", "origin", "status", "run",
    "metric", "unit", "value", "low", "high", "n", "unscorable", "unscored", "low_if_wrong", "high_if_right", "reference", "difference",
    "difference_low", "difference_high", "difference_n", "wins", "ties", "losses", "p", "p_holm", "mark",
    "seconds_per_question", "seconds_p50", "seconds_p95", "tokens_per_question", "memory_tokens_per_question", "cost_usd",
    "index_seconds", "index_calls", "index_tokens", "index_usd", "notes", "table_notes",
)  # fmt: skip
"""Columns of a board as CSV."""


def mark(cell: Cell) -> str:
    """Return the significance stars of a cell's difference from the reference: `**` below .01, `*` below .05, or nothing."""
    return "" if cell.difference is None or cell.p_holm is None else stars(cell.p_holm)


def stars(p: float) -> str:
    """Return the significance stars for a p-value: `**` below .01, `*` below .05, else nothing; nothing for NaN."""
    return "" if math.isnan(p) else next((value for bar, value in STARS if p < bar), "")


def labels(metrics: Sequence[str]) -> dict[str, str]:
    """Shorten metric ids to column heads: parameters and versions appear only if they distinguish two columns.

    Columns of a judge always name the judge.
    """
    short = {metric: re.sub(r"\((?:model=([^,)]*))?.*\)|#v\d+(?:-\w+)?$", _judged_by, metric) for metric in metrics}
    heads = list(short.values())
    return {metric: head if heads.count(head) == 1 else metric for metric, head in short.items()}


def _judged_by(result: re.Match[str]) -> str:
    return f" ({result[1]})" if result[1] else ""


def minus(text: str) -> str:
    """Write a formatted number with the minus sign of texts for people, other than in an exponent; JSON and CSV keep the hyphen."""
    return re.sub("(?<!e)-", "−", text)


def plus_minus(value: float, low: float, high: float, form: str = "{:.1f}", scale: float = 100.0, *, sides: bool = False) -> str:
    """Format a value with its interval, × 100: `63.4 ± 4.2`, or `99.0 [94.6, 100.0]` if the interval is asymmetric.

    The printed interval includes 0 exactly if the unrounded one does.

    Args:
        value, low, high: Fractions; if low or high is NaN, only the value is returned.
        form: Format string of the value.
        scale: Factor for displaying numbers.
        sides: Write an asymmetric interval as `99.0 −4.4/+1.0`, if other brackets follow.
    """
    if scale == 1 and not ordinary(value, low, high):
        form = form.replace(".1f", ".3g")
        return minus(form.format(value) + ("" if math.isnan(low) else f" [{form.format(low)}, {form.format(high)}]"))
    shown = minus(form.format(settled(scale * value)))
    if math.isnan(low) or math.isnan(high):
        return shown
    if symmetric(value, low, high, scale):
        return f"{shown} ± {_bound(scale * (high - low) / 2)}"
    if sides:
        return f"{shown} −{_bound(scale * (value - low))}/+{_bound(scale * (high - value))}"
    signs = "+" if "+" in form else ""
    return f"{shown} [{_bound(scale * low, signs)}, {_bound(scale * high, signs)}]"


def ordinary(*numbers: float) -> bool:
    """Return whether plain numbers are shown with fixed decimals: not if they are all near 0, or above a million."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return largest == 0 or 0.5 <= largest < 1e6


def values_shown(scales: Iterable[float]) -> str:
    """Return the note on how values are displayed: `value × 100`, with an addition if some metrics are shown unscaled."""
    return "value × 100 (plain numbers as they are)" if 1 in set(scales) else "value × 100"


def interval_words(texts: Iterable[str]) -> str:
    """Return the note on how intervals are written in these texts, for example `± half its 95 % interval`."""
    every = list(texts)
    half, ends, sides = (any(sign in text for text in every) for sign in (" ± ", " [", "/+"))
    if not ends and not sides:
        return "± half its 95 % interval" if half else "without intervals"
    forms = " or ".join(filter(None, ["[low, high]" * ends, "−below/+above" * sides]))
    return f"± half its 95 % interval, or {forms} if its sides differ" if half else f"{forms} of its 95 % interval"


def interval_texts(board: Board) -> Iterable[str]:
    """Yield the text of every value and difference of a board, as displayed."""
    for cell in (cell for row in board.rows for cell in row.cells.values()):
        yield _of_cell(cell)
        if cell.difference is not None:
            yield plus_minus(cell.difference.value, cell.difference.low, cell.difference.high, scale=cell.scale)


def symmetric(value: float, low: float, high: float, scale: float = 100.0, decimals: int = 1) -> bool:
    """Return whether `value ± half` represents an interval up to rounding, without changing whether it includes 0."""
    unit = 10.0**-decimals
    if not all(map(math.isfinite, (low, high))) or abs((high - value) - (value - low)) * scale >= unit:
        return False
    middle, half = round(settled(scale * value), decimals), round(settled(scale * (high - low) / 2), decimals)
    return (low <= 0 <= high) == (middle - half <= 1e-9 and middle + half >= -1e-9)


def _bound(number: float, signs: str = "") -> str:
    """Format an end of an interval with one decimal, or with enough decimals to differ from 0."""
    if not math.isfinite(number):
        return "−∞" if number < 0 else "∞"
    number = settled(number)
    text = f"{number:{signs}.1f}"
    return minus(text if float(text) or not number else f"{number:{signs}.1g}")


def settled(number: float) -> float:
    """Round off the last bits of a number, which depend on the order of summation, so that all machines show the same value."""
    return round(number, 9)


def remarks(row: Row) -> list[str]:
    """List the remarks on a row: unfinished run, failed questions, unscored questions."""
    lines = []
    run = row.run
    if run.status != "finished":
        alone = ", and values are over these only" if 0 < run.done < run.questions else ""
        lines.append(f"{run.status}, {run.done - run.failed} of {run.questions} questions answered{_failed(row)}{alone}; not compared")
    elif run.failed:
        answered = f"{run.done - run.failed} of {run.questions} questions answered"
        # Nothing here can ask a submission's system again.
        again = "; `ragmeter run --resume --retry-failed`" if run.origin == OURS else ""
        lines.append(f"{answered}{_failed(row)}{_EITHER_WAY}{again}")
    if row.accepted:
        lines.append(f"{_counted(row.accepted, 'question')} failed because code raised an error; accepted, counted as wrong")
    if run.error:
        # `run` and the run's page print the whole error.
        lines.append(shorten(run.error.partition("\n")[0], _SHORT, placeholder=" …"))
    lines += [f"these scores cannot be right: {what}" for what in row.violations]
    if run.positive_control:
        lines.append(f"{POSITIVE_CONTROL}: {UNTRAINED_CONTROL if row.read_none else POSITIVE_CONTROL_TIP}")
    if row.contaminated:
        lines.append(f"{CONTAMINATED}: {'; '.join(row.contaminated)}; not compared")
    if row.read is not None:
        lines.append(row.read.in_words(labels(list(row.cells)), {metric: cell.scale for metric, cell in row.cells.items()}))
    if row.read_unknown:
        lines.append(READ_UNKNOWN)
    reviewed = "accepted by a maintainer" if accepted(run) else "not ranked until a maintainer accepts it"
    lines += [f"{IMPLAUSIBLE}: {what}; {reviewed}" for what in implausible(run)]
    lines += filter(None, [not_rescored(run, list(row.cells))])
    for metric, cell in row.cells.items():
        number = cell.estimate.n + cell.estimate.unscorable + cell.unscored
        if number < run.done:
            answered = _counted(run.done, "answered question")
            lines.append(f"only {number} of {answered} {'is' if number == 1 else 'are'} scored on {metric}")
    lines += _unscored(row)
    lines += _seeds(row)
    unscorable = [cell.estimate.unscorable for cell in row.cells.values() if cell.estimate.unscorable]
    if unscorable and not row.control:
        are = "question is" if max(unscorable) == 1 else "questions are"
        zero = [f"{head} {cell.over_all * cell.scale:.1f}" for head, cell in _headed(row) if cell.over_all is not None]
        also = f"; over all questions, as the official rules count: {', '.join(zero)}" if zero else ""
        lines.append(f"up to {max(unscorable)} {are} unscorable on some metrics and left out of them{also}")
    return lines


def remarks_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    """List the remarks on all rows; each remark occurs once, with the methods that it concerns."""
    methods: dict[str, list[str]] = {}
    for row in rows:
        for line in remarks(row):
            methods.setdefault(line, []).append(row.run.method)
    return methods


READ_UNKNOWN = "unknown which questions the weights were trained on (no record)"


def _headed(row: Row) -> Iterable[tuple[str, Cell]]:
    """Return the cells of a row with their column headers."""
    return zip(labels(list(row.cells)).values(), row.cells.values(), strict=True)


_SHORT = 120
"""Maximum characters of an error below a table."""

_EITHER_WAY = "; the intervals of differences cover both cases, wrong and right"


def _failed(row: Row) -> str:
    """Describe how many questions failed, by kind, and how they are scored."""
    if not row.run.failed:
        return ""
    kinds = ", ".join(f"{kind} {count}" for kind, count in row.failures.items())
    # A task that stopped for one cause prints it in full as its error.
    reason = "" if row.run.error or not row.reason else f"; most often: {row.reason}"
    return f", {row.run.failed} failed ({kinds}{reason}) and count{'s' if row.run.failed == 1 else ''} as wrong"


def _seeds(row: Row) -> Iterable[str]:
    """Yield the values of a row's seeds, or of its repeats."""
    for what in ("seed", "repeat"):
        values = [(head, getattr(cell, f"by_{what}"), cell.scale) for head, cell in _headed(row)]
        apart = [f"{head} {' '.join(f'{item * scale:.1f}' for item in items)}" for head, items, scale in values if items]
        if apart:
            yield f"by {what}: {', '.join(apart)}"


def _unscored(row: Row) -> Iterable[str]:
    """Describe, in one line per number of unscored questions, the bounds of all measures with that number."""
    groups: dict[tuple[str, int, str], list[tuple[str, str]]] = {}
    for metric, cell in row.cells.items():
        if cell.unscored:
            name = re.split(r"[(#]", metric)[0]
            groups.setdefault((metric.removeprefix(name), cell.unscored, cell.incomplete), []).append((name, bounds_text(cell)))
    for (judge, unscored, incomplete), ((name, span), *others) in groups.items():
        more = f" ({', '.join(' '.join(other) for other in others)})" if others else ""
        what = incomplete or f"the judge gave {_counted(unscored, 'question')} no value"
        yield f"{name}{judge}: {what}; counted as wrong or right, it is between {span}{more}"


def bounds_text(cell: Cell) -> str:
    """Format bounds as `26.3 and 100.0`: the score with missing verdicts counted as wrong, and as right; `unknown` without bounds."""
    if cell.bounds is None or math.isnan(cell.bounds.low):
        return "unknown"
    return f"{settled(cell.scale * cell.bounds.low):.1f} and {settled(cell.scale * cell.bounds.high):.1f}"


BRACKETS = "in brackets: with missing verdicts counted as wrong, and as right"


def bracketed(cell: Cell) -> str:
    """Format bounds as `[26.3, 100.0]`, to stand after a score; empty if no verdict is missing."""
    if not cell.unscored or cell.bounds is None or math.isnan(cell.bounds.low):
        return ""
    return f"[{bounds_text(cell).replace(' and ', ', ')}]"


def insufficient_data_notes(board: Board) -> list[str]:
    """Return the table note on why differences with insufficient data have no stars: the three most frequent reasons."""
    cells = [cell for row in board.rows if not row.control for cell in row.cells.values() if not cell.incomplete]
    results = [cell.estimate.insufficient_data for cell in cells]
    results += [cell.difference.insufficient_data for cell in cells if cell.difference is not None]
    kinds: dict[str, list[str]] = {}
    for reason in filter(None, results):
        # Reasons that differ only in their numbers are one kind.
        kinds.setdefault(re.sub(r"\d[\d,.]*", "…", reason), []).append(reason)
    most = sorted(kinds.values(), key=len, reverse=True)[:3]
    reasons = [f"{_in_clusters(kind[0], board)} ({_counted(len(kind), 'value')})" for kind in most]
    return [f"insufficient data for a mark: {'; '.join(reasons)}"] if reasons else []


def geometric_note(compared: Iterable[tuple[str, Difference | None]]) -> str:
    """Name the metrics that are compared by geometric means, in one note; return "" without such a metric.

    Args:
        compared: Name of the metric and difference, of each cell.
    """
    names = dict.fromkeys(name for name, difference in compared if difference is not None and difference.geometric)
    return f"differences in {', '.join(names)} are those of geometric means" if names else ""


def geometric_notes(board: Board, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the table note on differences of geometric means; `names` as in `family_of_marks`."""
    heads = names or labels(board.metrics)
    note = geometric_note((heads[metric], row.cells[metric].difference) for row in board.rows for metric in heads if metric in row.cells)
    return [note] if note else []


def what_marks_hold_for(board: Board) -> list[str]:
    """Return the table note on what significant differences generalize to (new questions, new trainings); empty without any."""
    kinds: dict[str, list[str]] = {}
    for row in board.rows:
        for cell in row.cells.values():
            if mark(cell) and cell.difference is not None:
                kinds.setdefault(cell.difference.generalizes, []).append(row.run.method)
    if not kinds:
        return []
    usual = max(kinds, key=lambda kind: len(kinds[kind]))
    others = [f"{', '.join(dict.fromkeys(names))}: {kind}" for kind, names in kinds.items() if kind != usual]
    return [f"marks hold for {'; '.join([usual, *others])}"]


def family_of_marks(board: Board, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the table notes on the error probability of marks on several metrics and on the primary comparison.

    Args:
        board: The board.
        names: Display names of its metrics by id; None: those of `labels`.
    """
    starred = [metric for metric in board.metrics if any(mark(row.cells[metric]) for row in board.rows if metric in row.cells)]
    metric = board.primary.of(board.metrics) if board.primary else None
    if board.primary is None or metric is None:
        return [of_several(len(starred), len(board.metrics))] if len(starred) > 1 else []
    head = (names or labels(board.metrics))[metric]
    lines = [primary_metric(head)]
    method = board.primary.row(row.run for row in board.rows)
    for row in board.rows:
        cell = row.cells.get(metric)
        if row.run.method == method and cell is not None and cell.difference is not None and cell.difference.p == cell.difference.p:
            lines.append(primary_comparison(f"{row.run.method} against {board.reference} on {head}", cell.difference, cell.scale))
    return lines


def primary_metric(head: str) -> str:
    """Return the table note on the error probability of marks on the experiment's primary metric."""
    return f"primary metric: {head}; the probability of a false mark is at most {EACH} %; marks of other metrics are secondary"


def primary_comparison(what: str, difference: Difference, scale: float = 100.0) -> str:
    """Return the table note on the pre-declared comparison: a single test, so its interval and p-value are uncorrected."""
    shown = plus_minus(difference.value, *difference.alone, "{:+.1f}", scale)
    return f"primary comparison: {what}: {shown}, p = {difference.p:.2g} (95 % interval of one test, not corrected)"


def _in_clusters(reason: str, board: Board) -> str:
    return reason.replace("clusters", f"{board.sampled.kind}s")


def could_have_shown(board: Board, main: str | None = None, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the table note on the minimum detectable difference from the reference, for the main metric or the first that has one.

    Args:
        board: The board.
        main: Id of the main metric; None: the first one.
        names: As in `family_of_marks`.
    """
    for metric, head in sorted((names or labels(board.metrics)).items(), key=lambda item: item[0] != main):
        cells = [row.cells[metric] for row in board.rows if metric in row.cells]
        known = [
            cell.scale * cell.difference.detectable
            for cell in cells
            if cell.difference is not None and not cell.difference.insufficient_data
        ]
        known = [value for value in known if not math.isnan(value)]
        if known:
            low, high = (f"{value:.1f}" for value in (min(known), max(known)))
            if math.isinf(min(known)):
                return [f"no difference in {head} can be detected with these {board.sampled.kind}s"]
            none = "none for some methods" if math.isinf(max(known)) else f"{high}, depending on the method"
            return [f"minimum detectable difference in {head}: {low if low == high else f'{low} to {none}'} (80 % power)"]
    return []


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def source_of(run: RunRow, metric: str) -> str:
    """Return the origin of a score: run, submitted, verified, or imported without rescoring."""
    return NOT_RESCORED if metric in run.not_rescored else run.origin


def badge(board: Board, row: Row) -> str:
    """Return the suffix of a method's name in tables: ` (control)`, ` (reference)`, ` (positive control)`, ` (submitted)` or nothing."""
    theirs = [NOT_RESCORED] * bool(not_rescored(row.run, board.metrics))
    if row.control:
        return f" ({', '.join(['control', *theirs])})"
    marks = ["reference"] * (row.run.method == board.reference) or [row.run.origin] * (row.run.origin != "run")
    marks += [POSITIVE_CONTROL] * row.run.positive_control
    marks += [*theirs, *[INCOMPLETE] * (row.run.status == INCOMPLETE)]
    return f" ({', '.join(marks)})" if marks else ""


def footnotes(board: Board, *, differences: bool = True) -> list[str]:
    """Return the notes below a table that explain its numbers and stars.

    Args:
        board: The board.
        differences: Whether its table shows differences in parentheses, not only stars.
    """
    scales = (cell.scale for row in board.rows for cell in row.cells.values())
    notes = [f"{values_shown(scales)} {interval_words(interval_texts(board))}; {board.sampled.in_words(board.questions)}"]
    if board.reference:
        notes.append(
            f"{'in parentheses' if differences else 'stars above or below: higher or lower by'} the paired difference from "
            f"{board.reference}; * p < .05, ** p < .01 (over "
            f"{board.sampled.kind}s, Holm-corrected over the methods of a column); intervals of differences are corrected, too"
        )
        notes += [*geometric_notes(board), *what_marks_hold_for(board), *family_of_marks(board)]
    if any(bracketed(cell) for row in board.rows for cell in row.cells.values()):
        notes.append(BRACKETS)
    notes += [*insufficient_data_notes(board), *could_have_shown(board)]
    if any(row.control for row in board.rows):
        notes.append("controls check the metrics; they are neither ranked nor tested")
    heads = labels(board.metrics)
    if long := [f"{head} = {metric}" for metric, head in heads.items() if head != metric]:
        notes.append(", ".join(long))
    return [*notes, *health_text(board.health), *(f"{', '.join(names)}: {line}" for line, names in remarks_of(board.rows).items())]


def board_notes(board: Board, *, differences: bool = True) -> list[str]:
    """Return all notes below a table: the explanations, and warnings about metrics that rank a control wrongly."""
    heads = labels(board.metrics)
    wrong = [f"{heads.get(metric, metric)} {'; '.join(flags)}" for metric, flags in board.flags.items()]
    return [*footnotes(board, differences=differences), *wrong]


def notes_of(board: Board, row: Row, cell: Cell) -> list[str]:
    """List the remarks on one cell: the row's suffix and remarks, and why the cell is not compared or has no star."""
    apart = f"not comparable: {cell.apart}" if cell.apart and not row.control else ""
    why = [apart, cell.incomplete, cell.estimate.insufficient_data]
    why += [cell.difference.insufficient_data] if cell.difference is not None else []
    return list(dict.fromkeys(filter(None, [badge(board, row).strip(" ()"), *remarks(row), *why])))


def render(boards: Sequence[Board], form: str) -> str:
    """Render boards as one text in a table format.

    Args:
        boards: In the order of output.
        form: One of `FORMATS`.
    """
    if form == "csv":
        return to_csv(CSV_COLUMNS, (line for board in boards for line in tidy(board)))
    write = {"markdown": _markdown_board, "latex": _latex_board}[form]
    return "\n".join(write(board) for board in boards)


def tidy(board: Board) -> Iterable[list[Any]]:
    """Yield one CSV line per run and metric, in the order of `CSV_COLUMNS`; scores are fractions, None if missing."""
    shared = [board.dataset, board.dataset_fingerprint, board.setting, board.seed, board.questions]
    below = "\n".join(board_notes(board))
    for row in board.rows:
        run, cost = row.run, row.cost
        spent: list[Any] = (
            [None] * 6
            if cost is None
            else [cost.seconds, cost.seconds_p50, cost.seconds_p95, cost.tokens, cost.memory_tokens, cost.cost_usd]
        )
        built = row.indexing
        once: list[Any] = [None] * 4 if built is None else [built.seconds, built.model_calls, built.tokens, built.cost_usd]
        for metric in board.metrics:
            cell = row.cells.get(metric)
            if cell is None:
                continue
            value, result = cell.estimate, cell.difference
            open_to: list[Any] = [None, None] if cell.bounds is None else [cell.bounds.if_wrong, cell.bounds.if_right]
            compared: list[Any] = [None] * 9
            if result is not None:
                compared = [result.value, result.low, result.high, result.n, result.wins, result.ties, result.losses, result.p, cell.p_holm]
            yield [
                *shared, run.method, run.kind, source_of(run, metric), run.status, run.run, metric,
                "number" if cell.scale == 1 else "fraction", value.value, value.low, value.high,
                value.n, value.unscorable, cell.unscored, *open_to, board.reference if result else None, *compared, mark(cell),
                *spent, *once, "\n".join(notes_of(board, row, cell)), below,
            ]  # fmt: skip


def _markdown_board(board: Board) -> str:
    heads = labels(board.metrics)
    rows = [
        [markdown_text(row.run.method + badge(board, row))] + [markdown_text(_cell(row.cells.get(metric))) for metric in board.metrics]
        for row in board.rows
    ]
    title = f"**{markdown_text(title_of(board))}**\n\n"
    table = to_markdown(["method", *(markdown_text(heads[metric]) for metric in board.metrics)], rows)
    return title + table + "\n" + "".join(f"- {markdown_text(note)}\n" for note in footnotes(board))


def title_of(board: Board) -> str:
    """Return a board's one-line title: dataset, setting, and the seed if it is not 0."""
    return f"{board.dataset}, setting {board.setting}" + (f", seed {board.seed}" if board.seed else "")


def _of_cell(cell: Cell) -> str:
    value = cell.estimate
    return plus_minus(value.value, value.low, value.high, scale=cell.scale, sides=bool(bracketed(cell)))


def _cell(cell: Cell | None, between: str = " ") -> str:
    if cell is None or math.isnan(cell.estimate.value):
        return "–"
    result = cell.difference
    text = " ".join(filter(None, (_of_cell(cell), bracketed(cell))))
    if result is None or math.isnan(result.value):
        return text
    below = plus_minus(result.value, result.low, result.high, "{:+.1f}", cell.scale)
    return f"{text}{between}({below}{mark(cell)})"


def _latex_board(board: Board) -> str:
    heads = labels(board.metrics)
    rows = [
        [latex_text(row.run.method + badge(board, row))] + [_latex_cell(row.cells.get(metric)) for metric in board.metrics]
        for row in board.rows
    ]
    return to_latex(
        ["method", *(latex_text(heads[metric]) for metric in board.metrics)],
        rows,
        caption=latex_text(title_of(board)),
        notes=[latex_text(note) for note in footnotes(board)],
    )


def _latex_cell(cell: Cell | None) -> str:
    if cell is not None and cell.incomplete:
        return ""
    if cell is None or math.isnan(cell.estimate.value):
        return "--"
    result = cell.difference
    text = _of_cell(cell).replace(" ± ", r" \pm ").replace(" [", r"\;[").replace("−", "-").replace("∞", r"\infty")
    text += rf"\;{bracketed(cell)}" if bracketed(cell) else ""
    if result is not None and not math.isnan(result.value):
        supplied = mark(cell)
        raised = f"^{{{supplied}}}" if supplied else ""
        text += rf"\;({cell.scale * result.value:+.1f}{raised})"
    return f"${text}$"


def board_html(board: Board) -> str:
    """Render a board as HTML: score × 100 ± half its interval, below it the paired difference from the reference, then the notes."""
    heads = labels(board.metrics)
    rows = [[row.run.method + badge(board, row), *(_cell(row.cells.get(metric), "\n") for metric in board.metrics)] for row in board.rows]
    return to_html(["method", *(heads[metric] for metric in board.metrics)], rows, caption=title_of(board), notes=board_notes(board))
