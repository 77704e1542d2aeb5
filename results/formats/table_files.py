"""Tables for papers and for programs: all benchmarks side by side (LaTeX, CSV), and long tables as Parquet.

Every export has the intervals, marks and notes of the tables on the screen. Long tables have the columns `notes` (of a value)
and `table_notes` (of its benchmark); wide ones have them below the table or in the last column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.errors import unwritable
from benchmarks.core.files import whole
from methods.api import FAILED
from results.boards.board import Board, Cell, Row, groups
from results.boards.markup import latex_row, latex_text, plain, to_csv
from results.boards.tables import badge, board_notes, bracketed, labels, mark, notes_of, plus_minus, settled, source_of, title_of
from results.store import queries, score_queries
from results.store.store import Store

QUESTION_COLUMNS = (
    "dataset", "dataset_fingerprint", "setting", "seed", "method", "kind", "source", "status", "run", "metric", "unit",
    "question", "cluster", "repeat", "value", "state", "reason", "failed",
)  # fmt: skip
"""Columns of question scores.

`state` is scored, unscored (by a judge, for a `reason`) or unscorable; `failed` is the reason of a failed answer.
"""


def question_scores(store: Store, experiment: str | None, metrics: Sequence[str] | None = None) -> list[list[Any]]:
    """Read per-question scores: one row per run, metric and question, with the columns of `QUESTION_COLUMNS`.

    Args:
        store: The store to read.
        experiment: Name of the experiment; None reads all runs.
        metrics: Names of metrics; None uses the experiment's.
    """
    lines: list[list[Any]] = []
    known = score_queries.definitions(store)
    for runs in groups(queries.runs(store, experiment)):
        ids = [run.run for run in runs]
        shown = score_queries.metric_ids(store, ids) if metrics is None else score_queries.named_metrics(store, ids, list(metrics))
        columns = score_queries.score_columns(store, runs[0].dataset_fingerprint, ids, shown, {run.experiment for run in runs})
        labels_of = columns.sampled.labels if columns.sampled.labels is not None else columns.questions
        clusters = dict(zip(columns.questions, labels_of, strict=True))
        for run in runs:
            own = [metric for metric in shown if run.metrics is None or metrics is not None or metric in run.metrics]
            failed = {item.question_id: str(item.notes[FAILED]) for item in store.predictions(run.run) if FAILED in item.notes}
            rows = store.database.rows(
                "SELECT metric, question, value, unscored, repeat FROM scores WHERE run = ? AND list_contains(?, metric) "
                "ORDER BY metric, question, repeat",
                [run.run, own],
            )
            first = [run.dataset, run.dataset_fingerprint, run.setting, run.seed, run.method, run.kind]
            for metric, question, value, unscored, repeat in rows:
                state = "scored" if value is not None else "unscored" if unscored else "unscorable"
                unit = "number" if score_queries.scale_of(metric, known) == 1 else "fraction"
                about = [source_of(run, metric), run.status, run.run, metric, unit, question, str(clusters.get(question, ""))]
                lines.append([*first, *about, repeat, value, state, unscored, failed.get(question)])
    return lines


def write_parquet(path: Path, columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Write rows as a Parquet file; NaN becomes null.

    Raises:
        UserError: The file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    values = zip(*lines, strict=True) if lines else ([] for _ in columns)
    arrays = [pa.array(plain(list(column))) for column in values]
    # A column without any value has no type of its own.
    arrays = [array.cast(pa.float64()) if pa.types.is_null(array.type) else array for array in arrays]
    table = pa.table(dict(zip(columns, arrays, strict=True)))
    try:
        whole(path, lambda partial: parquet.write_table(table, partial))
    except OSError as error:
        raise unwritable(error, path) from None


def wide_csv(boards: Sequence[Board]) -> str:
    """Render boards as a wide CSV: one row per method, and for each benchmark and metric the columns value, low, high, n and mark."""
    heads = ["method"]
    lines: list[list[Any]] = [[name] for name in _methods(boards)]
    notes: dict[str, list[str]] = {line[0]: [] for line in lines}
    for board, title in zip(boards, _titles(boards), strict=True):
        rows = {row.run.method: row for row in board.rows}
        for metric in board.metrics:
            name = f"{title} {metric}"
            heads += [name, *(f"{name} {part}" for part in ("low", "high", "n", "mark"))]
            for line in lines:
                cell = rows[line[0]].cells.get(metric) if line[0] in rows else None
                line += [None] * 5 if cell is None else [*_numbers(cell), mark(cell)]
                if cell is not None:
                    notes[line[0]] += (f"{title}: {note}" for note in notes_of(board, rows[line[0]], cell))
    below = "\n".join(_below(boards))
    rows_with_notes = [[*line, "\n".join(dict.fromkeys(notes[line[0]])), below] for line in lines]
    return to_csv([*heads, "notes", "table_notes"], rows_with_notes)


def _numbers(cell: Cell) -> list[Any]:
    value = cell.estimate
    return [value.value, value.low, value.high, value.n]


def wide_latex(boards: Sequence[Board], definitions: Mapping[str, Mapping[str, Any]], name: str) -> str:
    r"""Render boards as one wide LaTeX table (`table*`, package `booktabs`) with a group of columns per benchmark.

    The best value of the comparable methods is bold, also if tied. Raised stars mark values significantly higher than the
    reference, lowered stars significantly lower ones, † values that are not comparable.

    Args:
        boards: One group of columns per board.
        definitions: Definitions of metrics by id (`queries.definitions`).
        name: Name of the experiment, for the caption and `\label`.
    """
    first, second, rules, at = [""], ["method"], [], 2
    for board, title in zip(boards, _titles(boards), strict=True):
        heads, width = labels(board.metrics), len(board.metrics)
        first.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(title)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        second += [latex_text(heads[metric]) for metric in board.metrics]
        at += width
    best = [{metric: _best(board, metric, definitions) for metric in board.metrics} for board in boards]
    body = []
    for method in _methods(boards):
        cells = [latex_text(method + _badges(boards, method))]
        for board, top in zip(boards, best, strict=True):
            row = next((row for row in board.rows if row.run.method == method), None)
            cells += [_latex(row, row.cells.get(metric) if row else None, top[metric]) for metric in board.metrics]
        body.append(latex_row(cells))
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "results"
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table*}",
        r"\centering\small",
        rf"\caption{{Results of {latex_text(name)}.}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{l{'r' * (at - 2)}}}",
        r"\toprule",
        " & ".join(first) + r" \\",
        " ".join(rules),
        " & ".join(second) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {latex_text(note)}." for note in ["bold: best value of a column", *_below(boards)]),
    ]
    if any(r"\dagger" in line for line in body):
        lines.append(r"\par\smallskip\footnotesize $\dagger$: not comparable, for the reasons above.")
    return "\n".join([*lines, r"\end{table*}", ""])


def _titles(boards: Sequence[Board]) -> list[str]:
    """Return a distinct title per board; boards on different data of one name have the beginning of the data's fingerprint."""
    titles = [title_of(board) for board in boards]
    return [
        f"{title}, data {board.dataset_fingerprint[:8]}" if titles.count(title) > 1 else title
        for board, title in zip(boards, titles, strict=True)
    ]


def _methods(boards: Sequence[Board]) -> list[str]:
    """Return names of rows, controls last."""
    rows = [row for board in boards for row in board.rows]
    return list(dict.fromkeys(row.run.method for row in sorted(rows, key=lambda row: row.control)))


def _badges(boards: Sequence[Board], method: str) -> str:
    rows = [(board, row) for board in boards for row in board.rows if row.run.method == method]
    named = dict.fromkeys(part for board, row in rows for part in _parts(board, row))
    return f" ({', '.join(named)})" if named else ""


def _parts(board: Board, row: Row) -> Iterator[str]:
    yield from filter(None, badge(board, row).strip(" ()").split(", "))


def _best(board: Board, metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> float | None:
    cells = [row.cells[metric] for row in board.rows if metric in row.cells and row.run.may_win]
    values = [settled(cell.estimate.value) for cell in cells if not cell.apart and not cell.incomplete and cell.estimate.n]
    choose = max if definitions.get(metric, {}).get("higher_is_better", True) else min
    return choose(values, default=None)


def _latex(row: Row | None, cell: Cell | None, best: float | None) -> str:
    if row is None or cell is None:
        return "--"
    if cell.incomplete:
        return r"$\dagger$"
    value = cell.estimate
    if math.isnan(value.value):
        return "--"
    number, _, around = plus_minus(value.value, value.low, value.high, scale=cell.scale, sides=bool(bracketed(cell))).partition(" ")
    may_win = row.run.may_win and not cell.apart
    text = rf"\mathbf{{{number}}}" if may_win and settled(value.value) == best else number
    if stars := mark(cell):
        higher = cell.difference is not None and cell.difference.value > 0
        text += f"^{{{stars}}}" if higher else f"_{{{stars}}}"
    text += r"^{\dagger}" if cell.apart and not row.control else ""
    around = around.replace("±", r"\pm").replace("∞", r"\infty")
    return "$" + r"\,".join(filter(None, (text, around, bracketed(cell)))).replace("−", "-") + "$"


def _below(boards: Sequence[Board]) -> list[str]:
    """Return notes of all benchmarks: common ones once, others after the benchmark's name."""
    notes: dict[str, list[str]] = {}
    for board, title in zip(boards, _titles(boards), strict=True):
        for note in board_notes(board, differences=False):
            notes.setdefault(note, []).append(title)
    return [note if len(names) == len(boards) else f"{'; '.join(names)}: {note}" for note, names in notes.items()]
