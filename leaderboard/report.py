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
from itertools import product
from typing import Any

from leaderboard import server
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, board_label, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, Part, el, line_of_facts, section
from leaderboard.elements.tables import Definitions
from leaderboard.matrix.benchmark import intervals, of_metrics
from leaderboard.matrix.exports import CSV_COLUMNS, still_matrix, tidy
from leaderboard.matrix.overall import overall
from leaderboard.matrix.rows import Order, default_order, ordered, ranked_families, sort_columns
from leaderboard.matrix.table import Shown, draw_matrix, legend
from leaderboard.views import battles, budget, question, run, style
from leaderboard.views.verdict import first_line
from results.boards.board import Board, boards, positions
from results.boards.budget import Axis, budget_curves, cost_intervals, quality_budget, read_in_full
from results.boards.compare import compare
from results.boards.markup import plain
from results.boards.style import style_gaps
from results.boards.systems import System
from results.boards.verdict import BoardVerdict
from results.boards.verdict_of import verdicts
from results.errors import UserError, counted
from results.judging.battles import battle_boards
from results.store import answer_queries, checkpoints, provenance, queries, score_queries
from results.store.queries import RunRow
from results.store.store import Store
from results.store.training_data import Cards, Checkpoints

FORMAT = "ragmeter-board"
VERSION = 2
MOST_APART = 5
"""Questions per board."""
_Results = tuple[list[Board], dict[str, dict[str, Any]], Shown | None, list[BoardVerdict]]
"""Boards, definitions of metrics, matrix and verdicts of an experiment, which a report and its JSON document show."""


def board_document(store: Store, experiment: str, now: datetime) -> dict[str, Any]:
    """Build the JSON document of an experiment's results, for other programs.

    Returns:
        An object with `format`, `version`, `generated`, `experiment`, `metrics` (definitions by id), `verdicts`, those by the
        main metric first (`results.boards.verdict.verdicts`), `boards` as
        `results.boards.board.Board.to_json` writes them, and `matrix`, all benchmarks by the primary metric or their own: one object a cell
        with value, rank band, comparison, published figure and the reason why it is not comparable, if it is not
        (`leaderboard.matrix.exports.CSV_COLUMNS`), and `overall`, per method its pooled difference from the reference, Borda
        count and means by task (`results.boards.matrix.Overall`). Values are fractions, null stands for "no value".
    """
    return _document(experiment, _read(store, experiment), now)


def _read(store: Store, experiment: str) -> _Results:
    whole = still_matrix(store, experiment)
    return boards(store, experiment), score_queries.definitions(store), whole, verdicts(store, experiment)


def _document(experiment: str, results: _Results, now: datetime) -> dict[str, Any]:
    every, definitions, whole, known = results
    shown = {metric for board in every for metric in board.metrics}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "generated": now.isoformat(timespec="seconds"),
        "experiment": experiment,
        "metrics": {metric: known for metric, known in definitions.items() if metric in shown},
        "verdicts": [verdict.to_json() for verdict in known],
        "boards": [board.to_json() for board in every],
        "matrix": [dict(zip(CSV_COLUMNS, row, strict=True)) for row in tidy(whole, _rows(whole))] if whole is not None else [],
        "overall": [line.to_json() for line in whole.board.overall] if whole is not None else [],
    }
    return dict(plain(document))


def as_json(document: Any, *, indent: int | None = None) -> str:
    """Serialize JSON so that it is safe inside an HTML `script` element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def styles(store: Store, experiment: str, definitions: Definitions) -> Iterator[Node]:
    """Yield a section for each table of style gaps; none if nothing is asked both formally and in another style."""
    try:
        tables = style_gaps(store, experiment)
    except UserError:
        return
    for table in tables:
        yield style.gap_section(table, higher_is_better=higher_is_better(table.metric, definitions))


def compression(board: Board, metric: str, definitions: Definitions) -> Node | None:
    """Build the section on what compression saves on a board; None if nothing there compresses."""
    remembers = any(row.cost is not None and row.cost.memory_tokens > 0 for row in board.rows)
    curves, full = budget_curves(board, metric), read_in_full(board)
    if not curves or not (remembers or any(row.run.description.get("compressor") for row in board.rows)):
        return None
    table = budget.curve_table(curves, metric, scale_of(metric, definitions), full.run.method if full is not None else None)
    return section(f"What compression saves: {board_label([row.run for row in board.rows])}", table)


def win_rates(store: Store, experiment: str) -> Iterator[Node]:
    """Yield a section for each board of a pairwise judge."""
    for board in battle_boards(store, queries.runs(store, experiment)):
        criteria = battles.criteria(board)
        if not criteria:
            continue
        first = criteria[0]
        strengths, placed = board.strengths.get(first), battles.controls(board, first)
        yield section(
            f"Who wins against whom: {board.judge}, {first}, on {board.dataset}, setting {board.setting}",
            el("h3", "Where it places the controls") if placed else None,
            placed,
            *battles.win_rates(board, first),
            *(battles.strengths(board, strengths) if strengths else ()),
        )


_EXPORT = "export default function (component)"
_AXES: dict[Axis, str] = {"tokens": "tokens", "seconds": "latency", "cost": "cost", "parameters": "parameters"}


def report(store: Store, experiment: str, now: datetime) -> str:
    """Render an experiment's results as one self-contained HTML page, to be written as UTF-8, with data to download.

    It shows methods against benchmarks; for each board the table, the intervals, and quality against cost; then style gaps,
    compression curves and win rates.
    """
    results, cards = _read(store, experiment), queries.datasets(store)
    every, definitions, whole, known = results
    counts = [counted(len(every), "board"), counted(sum(len(board.rows) for board in every), "run"), f"made {now:%Y-%m-%d %H:%M} UTC"]
    head = el("div", el("h1", experiment, cls="page"), line_of_facts(counts), cls="stack")
    parts: list[Part | dict[str, Any] | None] = [head, first_line(known)]
    if whole is not None and len(whole.board.columns) > 1:
        parts += [el("h2", "Methods against benchmarks"), sortable(whole), legend(whole), overall(whole)]
    learned = provenance.cards(store), checkpoints.known_checkpoints(store)
    ranked: list[tuple[Board, str]] = []
    for board in every:
        card = cards.get(board.dataset_fingerprint, {}).get("card", {})
        if board.metrics:
            families = ranked_families([row.run for row in board.rows], board.metrics, definitions, card, board.primary)
            ranked.append((board, families[MAIN][0]))
            parts += _section(store, *ranked[-1], definitions, learned)
    parts += styles(store, experiment, definitions)
    parts += [compression(board, focus, definitions) for board, focus in ranked]
    parts += win_rates(store, experiment)
    data = {
        "title": f"{experiment} · ragmeter",
        "parts": [part if isinstance(part, dict) else part.to_json() for part in parts if part is not None],
        "board": _document(experiment, results, now),
    }
    return page(data)


def page(data: Mapping[str, Any]) -> str:
    """Render the HTML file around the report's data."""
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
<noscript>This report needs JavaScript: please enable it. The script is part of this file and loads nothing.</noscript>
<script type="application/json" id="report">{as_json(data)}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _section(
    store: Store, board: Board, focus: str, definitions: Definitions, learned: tuple[Cards, Checkpoints]
) -> Iterator[Part | dict[str, Any]]:
    """Yield the parts of a board: trees like those of pages, and one sortable table."""
    better = higher_is_better(focus, definitions)
    bands = {focus: positions(store, board, focus, higher_is_better=better)}
    shown = of_metrics(board, focus, definitions, learned, bands)
    rows = _rows(shown)
    yield el("div", el("h2", board_label([row.run for row in board.rows])), legend(shown))
    yield sortable(shown)
    if (chart := intervals(board, focus, rows, definitions)) is not None:
        yield el("div", el("h3", f"{formats.metric_label(focus, board.metrics)} with 95 % intervals"), chart)
    for axis, cost in _AXES.items():
        points = quality_budget(board, focus, axis, higher_is_better=better, intervals=cost_intervals(store, board, axis))
        chart = budget.pareto_chart(points, axis, focus, scale_of(focus, definitions))
        if chart is not None and len({point.x for point in points if point.x == point.x}) > 1:
            yield el("div", el("h3", f"Quality against {cost}"), chart)
    yield from _informative(store, board, focus, [row.any_run for row in rows], definitions)
    yield run.sources([row.run for row in board.rows])


def _informative(store: Store, board: Board, focus: str, runs: Sequence[RunRow], definitions: Definitions) -> Iterator[Node]:
    """Yield the questions with the largest difference between the best method and the reference, or the next best; `runs` are sorted."""
    scored = {row.run.run for row in board.rows if focus in row.cells and not row.cells[focus].apart and not row.control}
    able = [run for run in runs if run.run in scored]
    if len(able) < 2:
        return
    pair = [able[0], next((run for run in able[1:] if run.method == board.reference), able[1])]
    result = compare(store, pair, focus)
    positions = result.apart()
    if not positions:
        return
    both = f"{pair[0].method} and {pair[1].method}"
    yield el("h3", f"{min(MOST_APART, len(positions))} most informative of {len(positions):,} questions on which {both} differ")
    for position in positions[:MOST_APART]:
        row = result.questions[position]
        answers = answer_queries.answers(store, row, [item.run for item in pair], depth=question.DEPTH)
        passages = answer_queries.passages(store, row.evidence)
        evidence = (
            question.evidence(row, answer, passages, question.cutoffs(item, focus), opened=False)
            for item in pair
            for answer in answers
            if answer.run == item.run and answer.evidence
        )
        table = question.answer_table(row, passages, answers, pair, [focus], definitions)
        yield el("details", el("summary", row.text), question.question(row), table, *evidence, cls="evidence informative")


def _rows(shown: Shown) -> list[System]:
    return ordered(shown.board, default_order(shown.board))


def sortable(shown: Shown) -> dict[str, Any]:
    """Serialize a table with its other sort orders, so that readers can sort it without a server.

    Returns:
        An object with `tree`, `rows` (the table's body) and `orders`, which has positions of the rows by `column|direction`. The
        divider row stays between methods and controls.
    """
    board, listed = shown.board, _rows(shown)
    drawn = draw_matrix(shown, listed, default_order(board), live=False, papers=True).to_json()
    rows = drawn[2][0][2][2][2]  # of the body, which follows caption and head
    divided = [number for number, row in enumerate(rows) if row[1] == "divider"]
    position = dict(zip((row.key for row in listed), (number for number in range(len(rows)) if number not in divided), strict=True))
    orders = {}
    for column, direction in product(sort_columns(board), ("asc", "desc")):
        turned = [position[row.key] for row in ordered(board, Order(column, direction == "desc"))]
        for number in divided:
            turned.insert(number, number)
        orders[f"{column}|{direction}"] = turned
    return {"tree": drawn, "rows": rows, "orders": orders}
