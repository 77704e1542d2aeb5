"""The board page's first view: methods against benchmarks, filtered, sorted, compared and exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leaderboard import filters, read, read_boards, state, widgets
from leaderboard.drawing import offer, show, tell, together
from leaderboard.elements.formats import board_key
from leaderboard.elements.nodes import Node, Order, button, el, line_of_facts, note
from leaderboard.matrix import exports
from leaderboard.matrix.exports import Export
from leaderboard.matrix.overall import overall
from leaderboard.matrix.rows import PAGE, VisibleRows, best_first, default_order, sort_columns, visible_rows
from leaderboard.matrix.table import Shown, compared_with, draw_matrix, legend, pager
from leaderboard.read import Source
from leaderboard.views import verdict
from leaderboard.widgets import NO_REFERENCE, bar, experiment_box, refresh_while_running
from results.boards.matrix import Matrix
from results.boards.systems import COSTS

# What clicks in the table may change.
BELOW = ("reference", "find", "sort", "order", "first", "pin", "hide", "papers", *filters.FILTERS)
"""Parameters that change only what is below the first row of widgets."""
ACTS = ("view", "board", "metric", "sort", "order", "first", "pin", "hide", *filters.FILTERS)
METHODS_PAGE, QUESTIONS_PAGE = "method.py", "question.py"
PAGES = {"method": METHODS_PAGE, "runs": QUESTIONS_PAGE}
"""Page that a click opens, by the parameter that it sets."""


@dataclass(frozen=True)
class Request:
    """User's choices of experiment, setting, metric family and metric."""

    at: Source
    experiment: str | None
    setting: str
    family: str
    measure: str

    @property
    def scope(self) -> tuple[Source, str | None, str, str, str]:
        """Return these choices as arguments for the functions of `leaderboard.read`."""
        return self.at, self.experiment, self.setting, self.family, self.measure


def render(at: Source) -> None:
    """Draw the start page: the overview matrix of methods against benchmarks."""
    first = bar("shown", [3, 3, 2, 3])
    with first[0]:
        experiment = experiment_box(at)
    with first[1]:
        setting = filters.choose_setting(read_boards.settings(at, experiment))
    known, definitions = read_boards.setting_of(at, experiment, setting), read.definitions(at)
    if not known.metrics:
        tell(
            "Nothing is scored yet",
            "No run has a finished question. Reload in a moment, or continue them.",
            ("ragmeter list runs", "ragmeter run --resume"),
        )
        return
    with first[3]:
        metrics = widgets.shown_metrics(known.own, known.metrics)
    with first[2]:
        family = filters.choose_family(metrics, definitions)
    with first[3]:
        measure = filters.choose_measure(family, metrics, definitions)
    query = Request(at, experiment, setting, family, measure)
    state.fragment(BELOW, lambda: read.source() != at)(lambda: _below(query))
    refresh_while_running(at, experiment, known.running)


def _below(query: Request) -> None:
    """Draw reference, search, filters, exports, and the table."""
    compared = bar("compared", [4, 4, 2, 2], align="bottom")
    able = [row.name for row in read_boards.entrants(*query.scope).rows if not row.control]
    with compared[0]:
        reference = widgets.choose_reference(able, read.reference_of(query.at, query.experiment, able) or NO_REFERENCE)
    with compared[1]:
        words = state.search("Find", "find", placeholder="method or reader", resets=("first",))
    result, names = read_boards.entrants(*query.scope), read_boards.setting_of(*query.scope[:3]).names
    passing = filters.filters_of_url(result.choices)
    labels = {key: " · ".join(filter(None, name)) for key, name in names.items()}
    datasets = filters.datasets_of_url(labels)
    with compared[2]:
        papers = filters.draw_filters(labels, result.choices, passing.active + (len(datasets) < len(labels)))
    board, verdicts = read_boards.matrix_of(*query.scope, tuple(datasets), passing, reference)
    definitions = {**read.definitions(query.at), **COSTS}
    shown = Shown(board, names, definitions, read_boards.published(*query.scope))
    order = _order(board)
    pinned, hidden = _keys("pin"), _keys("hide")
    state.settle("first", state.read("first"))
    part = visible_rows(board, order, pinned, hidden, words, state.number("first"))
    whole = visible_rows(board, order, pinned, hidden, words, 0, page=len(board.rows) or 1)
    export = Export(shown, whole, order, _title(query.experiment, shown), papers)
    with compared[3]:
        offer(
            "ragmeter-board",
            {"csv": lambda: exports.csv(export), "md": lambda: exports.markdown(export), "tex": lambda: exports.latex(export)},
        )
    with together("content"):
        if (line := verdict.first_line(verdicts)) is not None:
            show(line, "verdict")
        show(_summary(board, len(result.rows) - len(board.rows)), "summary")
        if passing.active and all(row.control for row in board.rows):
            _explain_empty()
        elif not board.cells:
            tell("No result of this kind", "None of these benchmarks was scored on the chosen metrics. Choose others above.")
        else:
            _table(shown, part, order, papers=papers)


def _table(shown: Shown, part: VisibleRows, order: Order, *, papers: bool) -> None:
    if part.pinned or part.rows or part.controls:
        show(draw_matrix(shown, part, order, papers=papers), "matrix", _act(shown.board, part))
    else:
        text = f"{len(shown.board.rows):,} methods match the filters, but none with these words in its name is shown."
        tell("No method matches", text)
    turning = pager(part, PAGE)
    if turning is not None:
        show(turning, "pager", state.act(ACTS))
    if papers and not shown.published:
        show(note("The stored papers report none of these metrics for these methods."), "no-papers")
    show(legend(shown), "legend")
    if (below := overall(shown)) is not None:
        show(below, "overall")


def _act(board: Matrix, part: VisibleRows) -> Callable[[Mapping[str, str | None]], None]:
    """Return what a click in the table does; its rows know neither the other pinned and hidden rows nor a run's metric."""
    act, pinned = state.act(ACTS, PAGES), [row.key for row in part.pinned]

    def clicked(action: Mapping[str, str | None]) -> None:
        changes = dict(action)
        if key := action.get("pin"):
            changes["pin"] = ",".join([*(name for name in pinned if name != key), *([key] if key not in pinned else [])])
        if key := action.get("hide"):
            changes["hide"] = ",".join([*part.hidden_keys, key])
        if run := action.get("runs"):
            columns = {column.key: column.metric for column in board.columns}
            cells = ((cell.run, columns[key]) for (_, key), cell in board.cells.items() if cell.run.run == run)
            changes |= {name: value for row, metric in cells for name, value in (("board", board_key(row)), ("metric", metric))}
        act(changes)

    return clicked


def _order(board: Matrix) -> Order:
    usual = default_order(board)
    column = state.pick("sort", sort_columns(board), usual.column)
    first = "desc" if best_first(board, column) else "asc"
    return Order(column, state.pick("order", ("asc", "desc"), first) == "desc")


def _keys(name: str) -> list[str]:
    """Return the row keys in the URL; unknown ones are ignored."""
    return [key for key in state.settle(name, state.read(name)).split(",") if key]


def _title(experiment: str | None, shown: Shown) -> str:
    settings = dict.fromkeys(column.first.setting for column in shown.board.columns)
    return f"{experiment or 'All runs'}, setting {', '.join(settings)}"


def _summary(board: Matrix, left_out: int) -> Node:
    controls = sum(row.control for row in board.rows)
    apart = sum(bool(cell.apart) and cell.run.kind != "control" for cell in board.cells.values())
    parts = [
        f"{len(board.columns):,} benchmark{'s' * (len(board.columns) != 1)}",
        f"{len(board.rows) - controls:,} method{'s' * (len(board.rows) - controls != 1)}",
        f"{controls:,} control{'s' * (controls != 1)}" if controls else "",
        f"{left_out:,} filtered out" if left_out else "",
        f"{apart:,} result{'s' * (apart != 1)} not comparable" if apart else "",
        compared_with(board),
        *verdict.facts(board),
    ]
    return line_of_facts(parts)


def _explain_empty() -> None:
    """Explain that the filters exclude all methods, and offer to clear them."""
    text = "No method meets all filters. A method of unknown size or weights passes only if you choose *not stated*."
    clear = button("clear the filters", "clear", dict.fromkeys(filters.FILTERS))
    show(el("section", el("h2", "No method competes"), el("p", text), el("p", clear), cls="message"), "message", state.act(ACTS))
