"""The board page: methods against all benchmarks, filtered, sorted, compared and exported, or one benchmark as a sortable
table with every metric, and a chart of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial

import streamlit as st

from leaderboard import read, read_boards, state, widgets
from leaderboard.drawing import draw, offer, permalink, show, tell, together
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN, board_key
from leaderboard.elements.nodes import Node, Order, button, el, line_of_facts, note, section
from leaderboard.elements.pictures import svg_file
from leaderboard.matrix import exports, rows
from leaderboard.matrix.benchmark import intervals
from leaderboard.matrix.exports import Export
from leaderboard.matrix.overall import overall
from leaderboard.matrix.rows import ALL_SETTINGS, ANY, OWN, PAGE, SIZE_NAMES, WEIGHT_NAMES, Choices, Filters, VisibleRows, visible_rows
from leaderboard.matrix.table import Shown, compared_with, draw_matrix, legend, pager
from leaderboard.pages import page
from leaderboard.read import Source
from leaderboard.views import verdict
from leaderboard.widgets import NO_REFERENCE, OF_ROWS, Chosen, as_page, bar, choose, several
from results.boards.matrix import Matrix
from results.boards.systems import COST
from results.boards.tables import render as render_boards

# Parameters that change only what is below the choice of the benchmark.
BELOW = ("columns", "metric", "reference", "papers", "find", *OF_ROWS)
MATRIX, BENCHMARK = "matrix", "benchmark"
VIEWS = {MATRIX: "All benchmarks", BENCHMARK: "One benchmark"}
# Parameters of filters.
FILTERS = ("datasets", "kinds", "readers", "size", "weights", "untrained", "since", "until")
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
        widgets.refresh_while_running(chosen.at, chosen.experiment, chosen.runs)


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
    with family_column:
        names = list(chosen.families)
        family = state.select("Columns", "columns", names, MAIN, show=lambda name: f"{name} metrics")
    with focus_column:
        focus = state.select("Ranked by", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label, resets=("sort", "order"))
    with reference_column:
        able = list(dict.fromkeys(run.method for run in chosen.runs if run.kind != "control"))
        base = widgets.choose_reference(able, read.reference_of(chosen.at, chosen.experiment, able) or NO_REFERENCE)
    with find_column:
        words = state.search("Find", "find", placeholder="method or reader", resets=("first",))
        papers = widgets.choose_papers()
    metrics = chosen.families[family]
    columns = (focus, *(metric for metric in metrics if metric != focus))
    main = tuple(chosen.families[MAIN])
    board, shown, headline = read_boards.benchmark_of(chosen.at, chosen.experiment, chosen.group, base, columns, main)
    part, whole, order = chosen_rows(shown.board, words)
    drawing = intervals(board, focus, (*whole.pinned, *whole.rows, *whole.controls), chosen.definitions)
    with together("content"):
        if headline is not None:
            show(verdict.one_line(headline), "verdict")
        show(summary(shown), "summary")
        show_table(shown, part, order, papers=papers)
        show(section(f"{chosen.label(focus)} with 95 % intervals"), "chart-title")
        draw(drawing, "chart")
    texts: dict[str, Callable[[], str]] = {
        ending: partial(render_boards, [board], form) for ending, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex"))
    }
    if drawing is not None:
        texts["svg"] = partial(svg_file, drawing)
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
    with first[0]:
        experiment = widgets.experiment_box(at)
    with first[1]:
        settings = {name: "All settings" if name == ALL_SETTINGS else name for name in read_boards.settings(at, experiment)}
        setting = state.select("Setting", "setting", settings, resets=("datasets", *_SORTED))
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
        known_families = rows.known_families(metrics, definitions)
        families = {name: f"{name} metrics" if name != COST else "cost per question" for name in known_families}
        family = state.select("Metrics", "family", families, resets=("measure", *_SORTED))
    with first[3]:
        options = rows.metrics_in(family, metrics, definitions)
        own = {} if family == COST else {OWN: "each dataset's own"}
        labels = {item: item if family == COST else formats.metric_label(item, options) for item in options}
        measure = state.select("Metric", "measure", own | labels, resets=_SORTED)
    state.fragment(BELOW_MATRIX, lambda: read.source() != at, lambda: _below_matrix(at, (experiment, setting, family, measure)))
    widgets.refresh_while_running(at, experiment, known.running)


def _below_matrix(at: Source, scope: read_boards.Scope) -> None:
    """Draw reference, search, filters, exports, and the table."""
    experiment, setting, *_ = scope
    compared, result = bar("compared", [4, 4, 2, 2], align="bottom"), read_boards.entrants(at, scope)
    able = [row.name for row in result.rows if not row.control]
    with compared[0]:
        reference = widgets.choose_reference(able, read.reference_of(at, experiment, able) or NO_REFERENCE)
    with compared[1]:
        words = state.search("Find", "find", placeholder="method or reader", resets=("first",))
    passing = filters_of_url(result.choices)
    labels = {key: " · ".join(filter(None, name)) for key, name in read_boards.setting_of(at, experiment, setting).names.items()}
    datasets = [key for key in labels if key in _known("datasets", labels)] or list(labels)
    with compared[2]:
        papers = draw_filters(labels, result.choices, passing.active + (len(datasets) < len(labels)))
    shown, verdicts = read_boards.matrix_of(at, scope, tuple(datasets), passing, reference)
    board = shown.board
    part, whole, order = chosen_rows(board, words)
    settings = dict.fromkeys(column.first.setting for column in board.columns)
    export = Export(shown, whole, order, f"{experiment or 'All runs'}, setting {', '.join(settings)}", papers)
    with compared[3]:
        offer(
            "ragmeter-board",
            {"csv": lambda: exports.csv(export), "md": lambda: exports.markdown(export), "tex": lambda: exports.latex(export)},
        )
    with together("content"):
        if (line := verdict.first_line(verdicts)) is not None:
            show(line, "verdict")
        show(summary(shown, len(result.rows) - len(board.rows)), "summary")
        if passing.active and all(row.control for row in board.rows):
            text = "No method meets all filters. A method of unknown size or weights passes only if you choose *not stated*."
            clear = button("clear the filters", "clear", dict.fromkeys(FILTERS))
            show(el("section", el("h2", "No method competes"), el("p", text), el("p", clear), cls="message"), "message", state.act(ACTS))
        elif not board.cells:
            tell("No result of this kind", "None of these benchmarks was scored on the chosen metrics. Choose others above.")
        else:
            show_table(shown, part, order, papers=papers)
            if (below := overall(shown)) is not None:
                show(below, "overall")


def chosen_rows(board: Matrix, words: str) -> tuple[VisibleRows, VisibleRows, Order]:
    """Return the rows of this page of the table, all that match, and their order, as the URL says."""
    column = state.pick("sort", rows.sort_columns(board), rows.default_order(board).column)
    first = "desc" if rows.best_first(board, column) else "asc"
    order = Order(column, state.pick("order", ("asc", "desc"), first) == "desc")
    # Unknown keys of rows are ignored.
    pinned, hidden = ([key for key in state.settle(name, state.read(name)).split(",") if key] for name in ("pin", "hide"))
    state.settle("first", state.read("first"))
    part = visible_rows(board, order, pinned, hidden, words, state.number("first"))
    return part, visible_rows(board, order, pinned, hidden, words, 0, page=len(board.rows) or 1), order


def show_table(shown: Shown, part: VisibleRows, order: Order, *, papers: bool) -> None:
    """Draw a page of the table with what turns its pages and explains it."""
    if part.pinned or part.rows or part.controls:
        key = "matrix" if shown.of is None else "board"
        show(draw_matrix(shown, part, order, papers=papers), key, _act(shown.board, part))
    else:
        text = f"{len(shown.board.rows):,} methods match the filters, but none with these words in its name is shown."
        tell("No method matches", text)
    turning = pager(part, PAGE)
    if turning is not None:
        show(turning, "pager", state.act(ACTS))
    if papers and not shown.published:
        show(note("The stored papers report none of these metrics for these methods."), "no-papers")
    show(legend(shown), "legend")


def _act(board: Matrix, part: VisibleRows) -> Callable[[Mapping[str, str | None]], None]:
    """Return what a click in the table does; its rows know neither the other pinned and hidden rows nor a run's metric."""
    act, pinned = state.act(ACTS, {"method": page("method"), "runs": page("question")}), [row.key for row in part.pinned]

    def clicked(action: Mapping[str, str | None]) -> None:
        changes = dict(action)
        if key := action.get("pin"):
            changes["pin"] = ",".join([*(name for name in pinned if name != key), *([key] if key not in pinned else [])])
        if key := action.get("hide"):
            changes["hide"] = ",".join([*part.hidden_keys, key])
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
        _day("since"),
        _day("until"),
    )


def _known(name: str, known: Mapping[str, str]) -> frozenset[str]:
    return frozenset(state.read(name).split(",")) & frozenset(known)


def _day(name: str) -> date | None:
    try:
        return date.fromisoformat(state.settle(name, state.read(name)))
    except ValueError:
        state.settle(name, "")
        return None


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
        for place, label, name in zip(st.columns(2), ("Run on or after", "Run on or before"), ("since", "until"), strict=True):
            bound = state.bound(name, _day(name), _ROWS, lambda day: day.isoformat() if day else None)
            place.date_input(label, value=None, format="YYYY-MM-DD", **bound)
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
