"""The board as one HTML file that needs no server: its tables can be sorted, its charts are SVG.

No stored string is parsed as HTML: the page is the same for every store but for one block of JSON in which nothing can
begin a tag, and what is in it is built with `createElement` and `textContent`. The policy in its head lets only
this page's own script and style run, and nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from leaderboard import theme
from leaderboard.elements import charts, formats
from leaderboard.elements.columns import MAIN, board_label, families, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, el
from leaderboard.embedding import as_json, document_of
from leaderboard.matrix.picture import picture
from leaderboard.matrix.still import still_matrix
from leaderboard.report_tables import behind
from leaderboard.views import board_table, drawings, run_view
from leaderboard.views.board_table import Order
from leaderboard.views.published_table import published_table
from results import queries
from results.board import Board, boards
from results.budgets import Axis, quality_budget
from results.places import places
from results.statistics.closed_form import Band
from results.store import Store

_EXPORT = "export default function (component)"
_AXES: dict[Axis, str] = {"tokens": "tokens", "seconds": "time", "cost": "money"}
Definitions = Mapping[str, Mapping[str, Any]]


def report(store: Store, experiment: str, now: datetime) -> str:
    """The report of an experiment: methods against benchmarks; for each board the table, the intervals, and quality
    against what it costs; then what style costs, what compression saves, and who wins against whom.

    Args:
        store: Where to read.
        experiment: Its name.
        now: When the report is made.

    Returns:
        HTML, for a file in UTF-8.
    """
    definitions, cards = queries.definitions(store), queries.datasets(store)
    found = boards(store, experiment)
    whole = still_matrix(store, experiment, "Methods against benchmarks, each by its own metric")
    sections = [_section(store, board, definitions, cards.get(board.dataset_fingerprint, {}).get("card", {})) for board in found]
    data = {
        "title": f"{experiment} · ragmeter",
        "head": _head(experiment, found, now).to_json(),
        "matrix": picture(whole) if whole is not None else None,
        "sections": [section for section in sections if section is not None],
        "behind": [node.to_json() for node in behind(store, experiment, found, definitions, cards)],
        "board": document_of(found, definitions, experiment, now, whole),
    }
    return page(data)


def page(data: Mapping[str, Any]) -> str:
    """The file around the data."""
    assets = importlib.resources.files("leaderboard").joinpath("assets")
    view = assets.joinpath("view.js").read_text("utf-8")
    if _EXPORT not in view:
        raise RuntimeError("view.js no longer begins its component as the report expects")
    script = view.replace(_EXPORT, "function view(component)") + assets.joinpath("report.js").read_text("utf-8")
    style = "\n".join([theme.custom_properties(), *(assets.joinpath(name).read_text("utf-8") for name in ("view.css", "report.css"))])
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>ragmeter report</title>
<style>{style}</style>
</head>
<body>
<main id="page"></main>
<noscript>This report is drawn by the script that it contains; please let it run. It loads nothing.</noscript>
<script type="application/json" id="report">{as_json(data)}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(experiment: str, found: Sequence[Board], now: datetime) -> Node:
    runs = sum(len(board.rows) for board in found)
    parts = [f"{len(found):,} board{'s' * (len(found) != 1)}", f"{runs:,} run{'s' * (runs != 1)}", f"made {now:%Y-%m-%d %H:%M} UTC"]
    return el("div", el("h1", experiment, cls="page"), el("p", *(el("span", part, cls="fact") for part in parts), cls="facts"), cls="stack")


def _section(store: Store, board: Board, definitions: Definitions, card: Mapping[str, Any]) -> dict[str, Any] | None:
    if not board.metrics:
        return None
    focus = families(board.metrics, definitions, card.get("metrics", ()))[MAIN][0]
    first = Order("rank", False)
    rows = board_table.ordered(board, focus, first, definitions)
    scale = scale_of(focus, definitions)
    bands = places(store, board, focus, higher_is_better=higher_is_better(focus, definitions))
    charts_of = [
        (
            f"{formats.metric_label(focus)} with 95 % intervals",
            charts.key(board, rows, focus),
            drawings.intervals(board, rows, focus, definitions),
        )
    ]
    for axis, cost in _AXES.items():
        points = quality_budget(board, focus, axis, higher_is_better=higher_is_better(focus, definitions))
        if len({one.x for one in points if one.x == one.x}) > 1:
            note = el("p", "▲ on the Pareto front: no finished method is at least as good and as cheap", cls="note")
            charts_of.append((f"Quality against {cost}", note, drawings.pareto(points, axis, focus, scale)))
    published = published_table(board)
    return {
        "head": _section_head(board).to_json(),
        "table": sortable(board, focus, definitions, bands),
        "charts": [
            {"head": el("div", el("h3", title), key).to_json(), "drawing": drawing}
            for title, key, drawing in charts_of
            if drawing is not None
        ],
        "published": None if published is None else el("div", el("h3", "Published figures beside ours"), published, cls="stack").to_json(),
        "sources": run_view.sources([row.run for row in board.rows]).to_json(),
    }


def _section_head(board: Board) -> Node:
    units = "documents, because questions share them" if board.clustered else "questions"
    text = f"{board.questions:,} questions. Brackets: 95 % bootstrap interval over {units}."
    if board.reference is not None:
        text += f" ▲ ▼ significantly better or worse than {board.reference} (Holm-corrected, 5 %)."
    flags = [
        f"⚑ {formats.metric_label(metric)} {'; '.join(wrong)}: it measures something else than right answers."
        for metric, wrong in board.flags.items()
    ]
    title = board_label([row.run for row in board.rows])
    lines = (board_table.PLACES, text, *flags)
    return el("div", el("h2", title), *(el("p", line, cls="note") for line in lines))


def sortable(board: Board, focus: str, definitions: Definitions, bands: Mapping[str, Band] | None = None) -> dict[str, Any]:
    """The board's table with what changes when it is sorted: for each column and direction, head and order of rows.

    Returns:
        `tree` in the first order, `rows` (all of its body), and `orders` by `column|direction`, each with `head` and
        `rows`, the places of the rows.
    """
    tree = board_table.table(board, focus, Order("rank", False), definitions, bands).to_json()
    rows = _table(tree)[2][6]
    place = {as_json(row): number for number, row in enumerate(rows)}
    orders = {}
    for column in board_table.sort_columns(board):
        for direction in ("asc", "desc"):
            order = Order(column, direction == "desc")
            sorted_ = _table(board_table.table(board, focus, order, definitions, bands).to_json())
            orders[f"{column}|{direction}"] = {"head": sorted_[1], "rows": [place[as_json(row)] for row in sorted_[2][6]]}
    return {"tree": tree, "rows": rows, "orders": orders}


def _table(tree: list[Any]) -> list[Any]:
    """Caption, head and body of the table in a tree."""
    children: list[Any] = tree[6][0][6]
    return children
