"""`published`: what the papers print."""

from __future__ import annotations

import re
from dataclasses import asdict

from rich.text import Text

from benchmarks.errors import UserError
from ragmeter.console import WHOLE, emit, listing, out
from results.published import Figure, figures, find


def papers(as_json: bool) -> None:
    """List the papers, with their tables."""
    tables: dict[str, list[str]] = {}
    for figure in figures():
        known = tables.setdefault(figure.paper, [])
        if figure.table not in known:
            known.append(figure.table)
    tables = {paper: sorted(of, key=_in_order) for paper, of in tables.items()}
    rows = [(paper, len(figures(paper)), ", ".join(of)) for paper, of in tables.items()]
    emit(tables, as_json, lambda: listing(("paper", "figures", "tables"), rows, empty="none"))


def published(paper: str, table: str | None, method: str | None, dataset: str | None, slips: bool, as_json: bool) -> None:
    """List a paper's figures.

    Raises:
        UserError: There is no such paper, or it prints nothing of the kind.
    """
    found = find(paper=paper, table=table, method=method, dataset=dataset)
    found = [figure for figure in found if figure.slip] if slips else found
    if not found:
        known = ", ".join(sorted({figure.table for figure in figures(paper)}, key=_in_order))
        raise UserError(f"{paper} prints no such figure", try_this=f"`ragmeter published {paper}`; its tables: {known}")

    def show() -> None:
        rows = [_row(figure) for figure in found]
        listing(("table", "method", "dataset", "metric", "value", "setting"), rows, empty="none", below=WHOLE)
        notes = dict.fromkeys((f"{figure.source}, {figure.method}: {figure.note}") for figure in found if figure.note)
        for note in notes:
            out.print(Text(note, style="dim"))

    emit([asdict(figure) for figure in found], as_json, show)


def _in_order(table: str) -> list[str | int]:
    """What tables are sorted by: 9 before 10, and numbers before `figure 4` and `text 3.2`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", table)]


def _row(figure: Figure) -> tuple[str, ...]:
    unit = "" if figure.unit in ("text", "number", "count") else f" {figure.unit}"
    return figure.table, figure.method, figure.dataset, figure.metric, figure.value + unit, figure.setting
