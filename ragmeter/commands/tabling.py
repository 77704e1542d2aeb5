"""`table`: an experiment's boards for people, papers and spreadsheets; ours beside the papers' figures."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.errors import UserError, unknown_name, unwritable
from ragmeter.commands.showing import metric_list
from ragmeter.console import listing, out
from ragmeter.render import show_board
from ragmeter.unscored import offering_score
from results import queries, store_folder, tables
from results.beside import Comparison, on_board
from results.board import Board, boards
from results.store import Store

FORMATS = ("text", *tables.FORMATS, "json")
FILE_WIDTH = 160
"""Width of text tables in a file."""


@dataclass(frozen=True)
class Request:
    """What tables were asked for, and how they are to look."""

    experiment: str | None
    metrics: str | None
    every: bool
    form: str
    output: Path | None
    published: bool
    over_seeds: bool = False
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """One of our values beside one published figure."""

    board: Board
    method: str
    metric: str
    comparison: Comparison


def table(request: Request, folder: Path | None, as_json: bool) -> None:
    """Print the tables of an experiment, or of every run; with `published`, ours beside the papers' figures."""
    form = "json" if as_json else request.form
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS, where="--format")
    if as_json and request.form not in ("text", "json"):
        what = f"--json and --format {request.form} ask for different things"
        raise UserError(what, where="--format", try_this="leave one of them out")
    store = Store(store_folder(folder))
    name = None if request.every else queries.experiment(store, request.experiment).name
    metrics = metric_list(request.metrics)
    with offering_score():
        found = boards(store, name, metrics=metrics, over_seeds=request.over_seeds, reference=request.reference)
    beside = list(_beside(found)) if request.published else []
    if form == "text" and request.output is None:
        _show(found, beside, request.published)
    elif form == "json":
        value: dict[str, Any] = {"experiment": name, "boards": [board.to_json() for board in found]}
        if request.published:
            value["published"] = [_beside_json(one) for one in beside]
        _deliver(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n", request.output)
    elif form == "text":
        text = io.StringIO()
        console = Console(file=text, width=FILE_WIDTH, highlight=False, no_color=True)
        if request.published:
            text.write(_published_text(beside, "markdown"))
        else:
            for board in found:
                show_board(board, console)
        _deliver(text.getvalue(), request.output)
    else:
        text_of = _published_text(beside, form) if request.published else tables.render(found, form)
        _deliver(text_of, request.output)


def _deliver(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(error, f"--output {output}") from error


# -- published figures ---------------------------------------------------------------------------------------------

_HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")
_COLUMNS = (
    "dataset", "setting", "method", "run_metric", "value", "low", "high", "n", "published", "gap", "status", "differs",
    "paper", "table", "published_method", "published_setting", "printed", "unit", "note",
)  # fmt: skip


def _beside(found: Iterable[Board]) -> Iterable[Beside]:
    for board in found:
        names = {row.run.run: row.run.method for row in board.rows}
        for (run, metric), comparisons in on_board(board).items():
            for one in comparisons:
                yield Beside(board, names[run], metric, one)


def _closest(beside: Sequence[Beside]) -> list[Beside]:
    """For each of our cells and each paper the figure whose setting is the closest; they come closest first."""
    first: dict[tuple[str, ...], Beside] = {}
    for one in beside:
        board = one.board
        key = (board.dataset_fingerprint, board.setting, str(board.seed), one.method, one.metric, one.comparison.figure.paper)
        first.setdefault(key, one)
    return list(first.values())


def _show(found: Sequence[Board], beside: Sequence[Beside], published: bool) -> None:
    if not published:
        for board in found:
            show_board(board, out)
        return
    closest = _closest(beside)
    for board in found:
        rows = [one for one in closest if one.board is board]
        out.print(Text(board.dataset, style="bold") + Text(f"  setting {board.setting}"))
        listing(_HEADS, _lines(rows), empty="the four papers print no figure of these methods on this dataset")
        out.print()
    left = len(beside) - len(closest)
    note = "values × 100 ± half their 95 % interval; reproduced: the published value lies within our interval"
    more = f"; {left} further figures of other settings: --format csv or --json" if left else ""
    out.print(Text(note + more, style="dim"))


def show_beside(found: Sequence[Board]) -> None:
    """Below a run's tables: published figures of the same methods, where the papers print some."""
    rows = _closest(list(_beside(found)))
    if not rows:
        return
    out.print(Text("published figures of these methods, the closest setting of each paper", style="bold"))
    heads = tables.labels([one.metric for one in rows])
    lines = []
    for one, line in zip(rows, _lines(rows), strict=True):
        source = one.comparison.figure.source
        ours = line[2].partition(" ")[0]
        # What was not measured here must not be taken for what was.
        theirs = [Text(cell, style="dim") for cell in (*line[3:6], source)]
        lines.append((f"{one.method}, {heads[one.metric]}", one.board.dataset, ours, *theirs))
    listing(("method, metric", "dataset", "ours", "published", "gap", "status", "published in"), lines, empty="")
    out.print(Text("`ragmeter table --published` says what differs, key by key", style="dim"))
    out.print()


def beside_json(found: Sequence[Board]) -> list[dict[str, Any]]:
    """What `show_beside` shows, for programs."""
    return [_beside_json(one) for one in _closest(list(_beside(found)))]


def _lines(rows: Iterable[Beside]) -> list[list[str]]:
    lines = []
    for one in rows:
        compared, ours = one.comparison, one.comparison.ours
        lines.append(
            [
                one.method,
                one.metric,
                tables.plus_minus(ours.value, ours.low, ours.high) if ours and ours.n else "–",
                _printed(compared),
                f"{100 * compared.gap:+.1f}" if compared.gap is not None else "–",
                compared.status,
                "; ".join(map(str, compared.differs)),
                f"{compared.figure.source}: {compared.figure.method}",
            ]
        )
    return lines


def _printed(compared: Comparison) -> str:
    """The published value × 100; digit by digit as printed where the paper prints percent."""
    figure = compared.figure
    return figure.value if figure.unit == "percent" or figure.fraction is None else f"{100 * figure.fraction:.1f}"


def _short_lines(rows: Iterable[Beside]) -> list[list[str]]:
    """Lines for papers: with the dataset, and of what differs the keys alone."""
    rows = list(rows)
    return [
        [one.board.dataset, *line[:6], ", ".join(d.key for d in one.comparison.differs), line[7]]
        for one, line in zip(rows, _lines(rows), strict=True)
    ]


def _published_text(beside: Sequence[Beside], form: str) -> str:
    if form == "csv":
        return tables.to_csv(_COLUMNS, map(_tidy, beside))
    heads, rows = ("dataset", *_HEADS), _short_lines(_closest(beside))
    if form == "markdown":
        return tables.to_markdown(heads, [[tables.markdown_text(cell) for cell in row] for row in rows], left=3)
    return tables.to_latex(
        [tables.latex_text(head) for head in heads],
        [[tables.latex_text(cell) for cell in row] for row in rows],
        caption="Ours beside published figures",
        notes=[r"Values $\times$ 100 $\pm$ half their 95\,\% interval"],
        left=3,
    )


def _tidy(one: Beside) -> list[Any]:
    compared, figure, ours = one.comparison, one.comparison.figure, one.comparison.ours
    return [
        one.board.dataset, one.board.setting, one.method, one.metric, ours.value if ours else None,
        ours.low if ours else None, ours.high if ours else None, ours.n if ours else None, figure.fraction,
        compared.gap, compared.status, "; ".join(map(str, compared.differs)), figure.paper, figure.table, figure.method,
        figure.setting, figure.value, figure.unit, figure.note,
    ]  # fmt: skip


def _beside_json(one: Beside) -> dict[str, Any]:
    ours = one.comparison.ours
    value = None
    if ours is not None:
        value = {"value": _plain(ours.value), "low": _plain(ours.low), "high": _plain(ours.high), "n": ours.n}
    return {
        "dataset": one.board.dataset,
        "our_setting": one.board.setting,
        "our_method": one.method,
        "metric": one.metric,
        "ours": value,
    } | one.comparison.to_json()


def _plain(value: float) -> float | None:
    return None if value != value else float(value)
