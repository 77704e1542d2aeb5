"""The board page: methods against all benchmarks, filtered, sorted, compared and exported, or one benchmark as a sortable
table with every metric, and a chart of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from leaderboard import read, read_boards, state, widgets
from leaderboard.drawing import offer, permalink, show_all, tell
from leaderboard.elements import formats, nodes
from leaderboard.elements.formats import MAIN, board_key
from leaderboard.elements.nodes import Node, button, el, line_of_facts, note, section
from leaderboard.matrix import exports, rows
from leaderboard.matrix.benchmark import intervals
from leaderboard.matrix.overall import overall
from leaderboard.matrix.rows import (
    ALL_SETTINGS,
    ANY,
    OWN,
    PAGE,
    SIZE_NAMES,
    WEIGHT_NAMES,
    Choices,
    Filters,
    Order,
    VisibleRows,
    visible_rows,
)
from leaderboard.matrix.table import Shown, compared_with, draw_matrix, legend, pager
from leaderboard.pages import page
from leaderboard.read import Source
from leaderboard.views import verdict
from leaderboard.widgets import OF_ROWS, Chosen, as_page, bar, choose, several
from results.boards.matrix import Matrix
from results.boards.systems import COST
from results.boards.tables import render as render_boards
from results.formats.table_files import wide_latex

# Parameters that change only what is below the choice of the benchmark.
BELOW = ("columns", "metric", "reference", "papers", "find", *OF_ROWS)
MATRIX, BENCHMARK = "matrix", "benchmark"
VIEWS = {MATRIX: "All benchmarks", BENCHMARK: "One benchmark"}
# Parameters of filters.
FILTERS = ("datasets", "kinds", "readers", "size", "weights", "untrained")
_ROWS, _SORTED = ("first",), ("first", "sort", "order")
_MOST = 50
# Parameters that change only what is below the first row of widgets.
BELOW_MATRIX = ("reference", "find", "papers", *OF_ROWS, *FILTERS)
# What clicks in the table may change.
ACTS = ("view", "board", "metric", *OF_ROWS, *FILTERS)


@as_page("board", "Leaderboard")
def render(at: Source) -> None:
    """Draw the page `board`: all benchmarks, or the results table of one with intervals and exports."""
    if _view(at) == MATRIX:
        _matrix(at)
    elif (chosen := choose(at)) is not None:
        state.fragment(BELOW, lambda: read.source() != chosen.at, lambda: _below(chosen))
        widgets.show_running(chosen.at, chosen.experiment, chosen.runs)


def _view(at: Source) -> str:
    """Return the view in the URL; with one benchmark, or without content, there is no choice."""
    groups = read.run_groups(at, widgets.experiment_of(at))
    if not groups:
        return BENCHMARK
    usual = BENCHMARK if len(groups) == 1 or state.read("board") else MATRIX
    value = state.pick("view", list(VIEWS), usual, VIEWS.__getitem__)
    # A second click on what is chosen asks for nothing; it stays chosen.
    bound = state.bound("view", value, ("board", "sort", "order"), lambda chosen: chosen or value)
    with bar("view", 1)[0]:
        st.segmented_control("View", list(VIEWS), format_func=VIEWS.__getitem__, label_visibility="collapsed", **bound)
    return value


def _below(chosen: Chosen) -> None:
    """Draw what depends on metrics, reference and order: the table and the chart."""
    focus_column, family_column, reference_column, find_column = bar("shown", 4)
    label = "{} metrics".format
    family = state.select("Columns", "columns", list(chosen.families), MAIN, show=label, within=family_column)
    first = chosen.families[MAIN][0]
    focus = state.select("Ranked by", "metric", chosen.metrics, first, show=chosen.label, resets=("sort", "order"), within=focus_column)
    able = list(dict.fromkeys(run.method for run in chosen.runs if run.kind != "control"))
    base = widgets.choose_reference(chosen.at, chosen.experiment, able, reference_column)
    words = state.search("Find", "find", placeholder="method or reader", resets=("first",), within=find_column)
    papers = widgets.choose_papers(find_column)
    columns = (focus, *(metric for metric in chosen.families[family] if metric != focus))
    main = tuple(chosen.families[MAIN])
    board, shown, headline = read_boards.benchmark_of(chosen.at, chosen.experiment, chosen.group, base, columns, main)
    part, order = chosen_rows(shown.board, words)
    line = None if headline is None else verdict.one_line(headline)
    chart = section(f"{chosen.label(focus)} with 95 % intervals", intervals(board, focus, part.matching, chosen.definitions))
    _show_table(shown, part, order, papers=papers, verdict=line, below={"chart": chart})
    texts: dict[str, Callable[[], str]] = {
        ending: partial(render_boards, [board], form) for ending, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex"))
    }
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    with right:
        offer("ragmeter-benchmark", texts)
    shared = {name: value for name, value in state.view().items() if name in ("experiment", "board", "metric")}
    with left:
        st.page_link(page("question"), label="Look at single questions", icon=":material/quiz:", query_params=shared)
        permalink()


def _matrix(at: Source) -> None:
    """Draw the start page: the overview matrix of methods against benchmarks."""
    first = bar("shown", [3, 3, 2, 3])
    experiment = widgets.experiment_box(at, first[0])
    settings = {name: "All settings" if name == ALL_SETTINGS else name for name in rows.settings_of(read.run_groups(at, experiment))}
    setting = state.select("Setting", "setting", settings, resets=("datasets", *_SORTED), within=first[1])
    known, definitions = read_boards.setting_of(at, experiment, setting), read.definitions(at)
    if not known.metrics:
        tell(
            "Nothing is scored yet",
            "No run has a finished question. Reload in a moment, or continue them.",
            ("ragmeter list runs", "ragmeter run --resume"),
        )
        return
    metrics = widgets.shown_metrics(known.own, known.metrics, first[3])
    families = rows.matrix_families(metrics, definitions)
    titles = {name: f"{name} metrics" if name != COST else "cost per question" for name in families}
    family = state.select("Metrics", "family", titles, resets=("measure", *_SORTED), within=first[2])
    options = families[family]
    own = {} if family == COST else {OWN: "each dataset's own"}
    labels = {item: item if family == COST else formats.metric_label(item, options) for item in options}
    measure = state.select("Metric", "measure", own | labels, resets=_SORTED, within=first[3])
    state.fragment(BELOW_MATRIX, lambda: read.source() != at, lambda: _below_matrix(at, (experiment, setting, family, measure)))
    widgets.show_running(at, experiment, known.running)


def _below_matrix(at: Source, scope: read_boards.Scope) -> None:
    """Draw reference, search, filters, exports, and the table."""
    experiment, setting, family, _ = scope
    compared, (_, entered) = bar("compared", [4, 4, 2, 2], align="bottom"), read_boards.entrants(at, scope)
    able, choices = [row.name for row in entered if not row.control], rows.choices(entered)
    reference = widgets.choose_reference(at, experiment, able, compared[0])
    words = state.search("Find", "find", placeholder="method or reader", resets=("first",), within=compared[1])
    passing = filters_of_url(choices)
    labels = {key: " · ".join(filter(None, name)) for key, name in read_boards.setting_of(at, experiment, setting).names.items()}
    datasets = [key for key in labels if key in _known("datasets", labels)] or list(labels)
    with compared[2]:
        papers = draw_filters(labels, choices, passing.active + (len(datasets) < len(labels)))
    shown, verdicts = read_boards.matrix_of(at, scope, tuple(datasets), passing, reference)
    board = shown.board
    part, order = chosen_rows(board, words)
    texts = {"csv": lambda: exports.csv(shown, part.matching)}
    if experiment is not None and family != COST:
        boards = partial(read_boards.exported, at, experiment, board, part.matching)
        texts["md"] = lambda: render_boards(boards(), "markdown")
        texts["tex"] = lambda: wide_latex(boards(), read.definitions(at), experiment)
    with compared[3]:
        offer("ragmeter-board", texts)
    message = None
    if passing.active and all(row.control for row in board.rows):
        text = "No method meets all filters. A method of unknown size or weights passes only if you choose *not stated*."
        clear = button("clear the filters", "clear", dict.fromkeys(FILTERS))
        message = el("section", el("h2", "No method competes"), el("p", text), el("p", clear), cls="message")
    elif not board.cells:
        message = nodes.message("No result of this kind", "None of these benchmarks was scored on the chosen metrics. Choose others above.")
    _show_table(
        shown,
        part,
        order,
        papers=papers,
        verdict=verdict.first_line(verdicts),
        message=message,
        left_out=len(entered) - len(board.rows),
        below={"overall": overall(shown)},
    )


def chosen_rows(board: Matrix, words: str) -> tuple[VisibleRows, Order]:
    """Return the rows of this page of the table and their order, as the URL says."""
    column = state.pick("sort", rows.sort_columns(board), rows.default_order(board).column)
    first = "desc" if rows.best_first(board, column) else "asc"
    order = Order(column, state.pick("order", ("asc", "desc"), first) == "desc")
    # Unknown keys of rows are ignored.
    hidden = state.settle("hide", state.read("hide")).split(",")
    state.settle("first", state.read("first"))
    return visible_rows(board, order, hidden, words, state.number("first")), order


def _show_table(
    shown: Shown,
    part: VisibleRows,
    order: Order,
    *,
    papers: bool,
    verdict: Node | None,
    below: Mapping[str, Node | None],
    message: Node | None = None,
    left_out: int = 0,
) -> None:
    """Draw a page of the table, or a message instead, with the verdict, what turns its pages, and what explains it."""
    first = {"verdict": verdict, "summary": summary(shown, left_out)}
    if message is not None:
        show_all("content", {**first, "message": message}, {"message": state.act(ACTS)})
        return
    name = "matrix" if shown.of is None else "board"
    text = f"{len(shown.board.rows):,} methods match the filters, but none with these words in its name is shown."
    unknown = papers and not shown.published
    parts = {
        name: draw_matrix(shown, part.rows, order, papers=papers) if part.rows else None,
        "message": None if part.rows else nodes.message("No method matches", text),
        "pager": pager(part, PAGE),
        "no-papers": note("The stored papers report none of these metrics for these methods.") if unknown else None,
        "legend": legend(shown),
    }
    show_all("content", {**first, **parts, **below}, {name: _act(shown.board, part), "pager": state.act(ACTS)})


def _act(board: Matrix, part: VisibleRows) -> Callable[[Mapping[str, str | None]], None]:
    """Return what a click in the table does; its rows know neither the other hidden rows nor a run's metric."""
    act = state.act(ACTS, {"method": page("method"), "runs": page("question")})

    def clicked(action: Mapping[str, str | None]) -> None:
        changes = dict(action)
        if key := action.get("hide"):
            changes["hide"] = ",".join([*part.hidden, key])
        run = action.get("runs")
        if run and "metric" not in action:
            columns = {column.key: column.metric for column in board.columns}
            cells = ((cell.run, columns[key]) for (_, key), cell in board.cells.items() if cell.run.run == run)
            changes |= {name: value for row, metric in cells for name, value in (("board", board_key(row)), ("metric", metric))}
        act(changes)

    return clicked


def summary(shown: Shown, left_out: int = 0) -> Node:
    """Build the line of facts about the table; `left_out`: number of methods that filters exclude."""
    board, noun = shown.board, "benchmark" if shown.of is None else "metric"
    controls = sum(row.control for row in board.rows)
    apart = sum(bool(cell.apart) and cell.run.kind != "control" for cell in board.cells.values())
    parts = [
        f"{len(board.columns):,} {noun}{'s' * (len(board.columns) != 1)}",
        f"{len(board.rows) - controls:,} method{'s' * (len(board.rows) - controls != 1)}",
        f"{controls:,} control{'s' * (controls != 1)}" if controls else "",
        f"{left_out:,} filtered out" if left_out else "",
        f"{apart:,} result{'s' * (apart != 1)} not comparable" if apart else "",
        compared_with(board),
        *verdict.facts(board),
    ]
    return line_of_facts(parts)


def filters_of_url(result: Choices) -> Filters:
    """Read the filters from the URL, without drawing; unknown values are ignored."""
    return Filters(
        _known("kinds", result.kinds),
        _known("readers", result.readers),
        state.pick("size", list(SIZE_NAMES), ANY),
        state.pick("weights", list(WEIGHT_NAMES), ANY),
        frozenset(result.training[key] for key in _known("untrained", result.training)),
    )


def _known(name: str, known: Mapping[str, str]) -> frozenset[str]:
    return frozenset(state.read(name).split(",")) & frozenset(known)


def draw_filters(labels: Mapping[str, str], result: Choices, active: int) -> bool:
    """Draw the filters of the matrix; return whether cells show published figures."""
    with st.popover(f"Filters ({active})" if active else "Filters", icon=":material/filter_list:", width="stretch"):
        several("Datasets", "datasets", list(labels), (), least=0, most=_MOST, show=lambda key: labels[key], resets=_SORTED)
        _several("Kind of method", "kinds", result.kinds)
        _several("Reader", "readers", result.readers)
        state.select("Size", "size", SIZE_NAMES, ANY, resets=_ROWS)
        state.select("Weights", "weights", WEIGHT_NAMES, ANY, resets=_ROWS)
        if not (result.sizes_known and result.weights_known):
            st.caption(
                "Sizes and weights are counted for models that ran here and taken from the card for submissions. They are unknown "
                "for models behind an endpoint."
            )
        if result.training:
            _several("Not trained on", "untrained", result.training)
        else:
            st.caption("No method here declares training data.")
        papers = widgets.choose_papers()
        st.button(
            "Clear filters",
            key="clear-filters",
            disabled=not active,
            width="stretch",
            on_click=lambda: state.write(**dict.fromkeys((*FILTERS, "first"))),
        )
    return papers


def _several(label: str, name: str, known: Mapping[str, str]) -> None:
    several(label, name, list(known), (), least=0, most=_MOST, show=lambda key: known[key], resets=_ROWS)
