"""The board as one HTML file that needs no server: its tables can be sorted, its charts are SVG.

No stored string is parsed as HTML: the page is the same for every store but for one block of JSON in which nothing can
begin a tag, and what is in it is built with `createElement` and `textContent`. The policy in its head lets only
this page's own script and style run, and nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from leaderboard import server
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, board_label, families, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, Order, el, line_of_facts
from leaderboard.elements.pictures import framed
from leaderboard.matrix.exports import Export, lines, picture, still_matrix
from leaderboard.matrix.overall import overall
from leaderboard.views import battles, budget, run, style
from leaderboard.views import board as board_table
from leaderboard.views.board import published_table
from leaderboard.views.verdict import first_line
from results.boards.board import Board, boards, positions
from results.boards.budget import Axis, budget_curves, quality_budget, read_in_full
from results.boards.health import health_text
from results.boards.style import style_gaps
from results.boards.tables import plain
from results.boards.verdict import BoardVerdict
from results.boards.verdict_of import verdicts
from results.judging.battles import battle_boards
from results.statistics.places import Band
from results.store import queries
from results.store.queries import UserError
from results.store.store import Store

FORMAT = "ragmeter-board"
VERSION = 2


def board_document(store: Store, experiment: str, now: datetime) -> dict[str, Any]:
    """The boards of an experiment.

    Args:
        store: Where to read.
        experiment: Its name.
        now: When the document is made.

    Returns:
        An object with `format`, `version`, `generated`, `experiment`, `metrics` (definitions by id), `verdicts`, those by the
        main metric first (`results.boards.verdict.verdicts`), `boards` as
        `results.boards.board.Board.to_json` writes them, and `matrix`, all benchmarks by the primary metric or their own: one object a cell
        with value, rank band, comparison, published figure and the reason why it is not comparable, if it is not
        (`leaderboard.matrix.exports.CSV_COLUMNS`), and `overall`, per method its pooled difference from the reference, Borda
        count and means by task (`results.boards.matrix.Overall`). Values are fractions, null stands for "no value".
    """
    result = still_matrix(store, experiment, experiment)
    return document_of(boards(store, experiment), queries.definitions(store), experiment, now, result, verdicts(store, experiment))


def document_of(
    results: list[Board],
    definitions: dict[str, dict[str, Any]],
    experiment: str,
    now: datetime,
    whole: Export | None,
    known: Sequence[BoardVerdict],
) -> dict[str, Any]:
    """The same, of boards that are known already."""
    shown = {metric for board in results for metric in board.metrics}
    return dict(
        plain(
            {
                "format": FORMAT,
                "version": VERSION,
                "generated": now.isoformat(timespec="seconds"),
                "experiment": experiment,
                "metrics": {metric: known for metric, known in definitions.items() if metric in shown},
                "verdicts": [verdict.to_json() for verdict in known],
                "boards": [board.to_json() for board in results],
                "matrix": lines(whole) if whole is not None else [],
                "overall": [line.to_json() for line in whole.shown.board.overall] if whole is not None else [],
            }
        )
    )


def as_json(document: Any, *, indent: int | None = None) -> str:
    """JSON that may stand inside a page's `script` element: no character in it begins a tag or a comment."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


Definitions = Mapping[str, Mapping[str, Any]]


def behind(store: Store, experiment: str, results: Sequence[Board], definitions: Definitions, cards: Mapping[str, Any]) -> Iterator[Node]:
    """Sections, each a heading and a table.

    Args:
        store: Where to read.
        experiment: Its name.
        results: Its boards.
        definitions: Of metrics by id.
        cards: Of datasets by fingerprint.
    """
    yield from _styles(store, experiment, definitions)
    for board in results:
        yield from _compression(board, definitions, cards.get(board.dataset_fingerprint, {}).get("card", {}))
    yield from _battles(store, experiment)


def _styles(store: Store, experiment: str, definitions: Definitions) -> Iterator[Node]:
    try:
        tables = style_gaps(store, experiment)
    except UserError:
        # Nothing is asked both formally and in another style.
        return
    for table in tables:
        better = higher_is_better(table.metric, definitions)
        title = f"What style costs: {formats.metric_label(table.metric)} on {table.base}"
        yield el(
            "div", el("h2", title), style.gaps(table, higher_is_better=better), el("p", style.gaps_note(table), cls="note"), cls="stack"
        )


def _compression(board: Board, definitions: Definitions, card: Mapping[str, Any]) -> Iterator[Node]:
    remembers = any(row.cost is not None and row.cost.memory_tokens > 0 for row in board.rows)
    compresses = remembers or any(row.run.description.get("compressor") for row in board.rows)
    if not board.metrics or not compresses:
        return
    metric = families(board.metrics, definitions, card.get("metrics", ()))[MAIN][0]
    curves, full = budget_curves(board, metric), read_in_full(board)
    if curves:
        table = budget.curve_table(curves, metric, scale_of(metric, definitions), full.run.method if full is not None else None)
        title = f"What compression saves: {board_label([row.run for row in board.rows])}"
        yield el("div", el("h2", title), table, cls="stack")


def _battles(store: Store, experiment: str) -> Iterator[Node]:
    for board in battle_boards(store, queries.runs(store, experiment)):
        criteria = battles.criteria(board)
        if not criteria:
            continue
        first = criteria[0]
        strengths = board.strengths.get(first)
        title = f"Who wins against whom: {board.judge}, {first}, on {board.dataset}, setting {board.setting}"
        placed = battles.controls(board, first)
        yield el(
            "div",
            el("h2", title),
            el("h3", "Where it places the controls") if placed else None,
            placed,
            battles.rates(board, first),
            battles.eyes(board, first),
            el("p", battles.MATRIX_NOTE, cls="note"),
            battles.strengths(strengths, board.controls) if strengths else None,
            el("p", battles.STRENGTHS_NOTE, cls="note") if strengths else None,
            cls="stack",
        )


_EXPORT = "export default function (component)"
_AXES: dict[Axis, str] = {"tokens": "tokens", "seconds": "time", "cost": "money"}


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
    results = boards(store, experiment)
    whole = still_matrix(store, experiment, "Methods against benchmarks")
    known = verdicts(store, experiment)
    parts = [_head(experiment, results, now).to_json()]
    parts += [] if (line := first_line(known)) is None else [line.to_json()]
    parts += [] if whole is None else [framed(picture(whole), "chart whole")]
    parts += [] if whole is None or (table := overall(whole.shown)) is None else [table.to_json()]
    for board in results:
        parts += _section(store, board, definitions, cards.get(board.dataset_fingerprint, {}).get("card", {}))
    parts += [node.to_json() for node in behind(store, experiment, results, definitions, cards)]
    data = {"title": f"{experiment} · ragmeter", "parts": parts, "board": document_of(results, definitions, experiment, now, whole, known)}
    return page(data)


def page(data: Mapping[str, Any]) -> str:
    """The file around the data."""
    assets = importlib.resources.files("leaderboard").joinpath("assets")
    view = assets.joinpath("view.js").read_text("utf-8")
    if _EXPORT not in view:
        raise RuntimeError("view.js no longer begins its component as the report expects")
    script = view.replace(_EXPORT, "function view(component)") + assets.joinpath("report.js").read_text("utf-8")
    style = "\n".join([server.custom_properties(), *(assets.joinpath(name).read_text("utf-8") for name in ("view.css", "report.css"))])
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>ragmeter results report</title>
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


def _head(experiment: str, results: Sequence[Board], now: datetime) -> Node:
    runs = sum(len(board.rows) for board in results)
    parts = [f"{len(results):,} board{'s' * (len(results) != 1)}", f"{runs:,} run{'s' * (runs != 1)}", f"made {now:%Y-%m-%d %H:%M} UTC"]
    return el("div", el("h1", experiment, cls="page"), line_of_facts(parts), cls="stack")


def _section(store: Store, board: Board, definitions: Definitions, card: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the parts of a board: trees that a page draws too, and one sortable table."""
    if not board.metrics:
        return
    focus = families(board.metrics, definitions, card.get("metrics", ()))[MAIN][0]
    rows = board_table.ordered(board, focus, Order("rank", False), definitions)
    better = higher_is_better(focus, definitions)
    yield _section_head(board).to_json()
    yield sortable(board, focus, definitions, positions(store, board, focus, higher_is_better=better))
    if (drawing := board_table.intervals(board, rows, focus, definitions)) is not None:
        yield el("h3", f"{formats.metric_label(focus)} with 95 % intervals").to_json()
        yield framed(drawing)
    for axis, cost in _AXES.items():
        points = quality_budget(board, focus, axis, higher_is_better=better)
        drawing = budget.pareto_chart(points, axis, focus, scale_of(focus, definitions))
        if drawing is not None and len({point.x for point in points if point.x == point.x}) > 1:
            note = el("p", "▲ on the Pareto front: no finished method is at least as good and as cheap", cls="note")
            yield el("div", el("h3", f"Quality against {cost}"), note).to_json()
            yield framed(drawing)
    published = published_table(board)
    if published is not None:
        yield el("div", el("h3", "Published figures beside ours"), published, cls="stack").to_json()
    yield run.sources([row.run for row in board.rows]).to_json()


def _section_head(board: Board) -> Node:
    text = f"{board.sampled.in_words(board.questions)}. Brackets: 95 % interval over {board.sampled.kind}s."
    if board.reference is not None:
        text += f" ▲ ▼ significantly better or worse than {board.reference} (Holm-corrected, 5 %)."
    flags = [
        f"⚑ {formats.metric_label(metric)} {'; '.join(wrong)}: it measures something else than right answers."
        for metric, wrong in board.flags.items()
    ]
    title = board_label([row.run for row in board.rows])
    lines = (board_table.PLACES, text, *flags, *health_text(board.health))
    return el("div", el("h2", title), *(el("p", line, cls="note") for line in lines))


def sortable(board: Board, focus: str, definitions: Definitions, bands: Mapping[str, Band] | None = None) -> dict[str, Any]:
    """The board's table with what changes when it is sorted: for each column and direction, head and order of rows.

    Returns:
        `tree` in the first order, `rows` (all of its body), and `orders` by `column|direction`, each with `head` and
        `rows`, the positions of the rows.
    """
    tree = board_table.draw_board(board, focus, Order("rank", False), definitions, bands).to_json()
    rows = _find_table(tree)[2][6]
    position = {as_json(row): number for number, row in enumerate(rows)}
    orders = {}
    for column in board_table.sort_columns(board):
        for direction in ("asc", "desc"):
            order = Order(column, direction == "desc")
            sorted_ = _find_table(board_table.draw_board(board, focus, order, definitions, bands).to_json())
            orders[f"{column}|{direction}"] = {"head": sorted_[1], "rows": [position[as_json(row)] for row in sorted_[2][6]]}
    return {"tree": tree, "rows": rows, "orders": orders}


def _find_table(tree: list[Any]) -> list[Any]:
    """Caption, head and body of the table in a tree."""
    children: list[Any] = tree[6][0][6]
    return children
