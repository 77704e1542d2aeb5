"""Select the content of a matrix: benchmarks with a metric each, the ranked methods, and the rows in their order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderboard.elements.formats import MAIN, families, group_of, higher_is_better
from results.boards.matrix import Column, Matrix
from results.boards.primary import Primary
from results.boards.systems import COST, COSTS, System, key_of
from results.boards.verdict_of import main_metric
from results.store.queries import RunRow
from results.store.variants import overlap, without_options

ALL_SETTINGS = "*"
"""Key for all settings, each in separate columns."""
OWN = "own"
"""Key for each dataset's own metric of the family."""
Definitions = Mapping[str, Mapping[str, Any]]


def settings_of(groups: Sequence[Sequence[RunRow]]) -> list[str]:
    """List the retrieval settings that can be selected, in order of appearance, those with most benchmarks first, then "all".

    "All" comes first if no setting has two benchmarks, because a matrix needs two columns.
    """
    every = [runs[0].setting for runs in groups]
    distinct = sorted(dict.fromkeys(every), key=lambda setting: -every.count(setting))
    if len(distinct) < 2:
        return distinct or [ALL_SETTINGS]
    return [*distinct, ALL_SETTINGS] if len(distinct) < len(every) else [ALL_SETTINGS, *distinct]


def column_key(run: RunRow) -> str:
    """Return the column key of a run's benchmark for URLs."""
    return key_of(run.dataset_fingerprint, run.setting, run.seed)


def labels(groups: Sequence[Sequence[RunRow]], setting: str) -> dict[str, tuple[str, str]]:
    """Return title and subtitle of each column, by column key; options, seed and version appear only if they distinguish columns."""
    results = {}
    firsts = [runs[0] for runs in groups]
    short = Counter(without_options(dataset) for dataset in {run.dataset for run in firsts})
    for run in firsts:
        same = [other for other in firsts if other.dataset == run.dataset and other.setting == run.setting]
        below = [run.setting] if setting == ALL_SETTINGS else []
        if len({other.seed for other in same}) > 1:
            below.append(f"seed {run.seed}")
        if len({other.dataset_fingerprint for other in same}) > 1:
            below.append(run.dataset_fingerprint[:8])
        name = without_options(run.dataset)
        results[column_key(run)] = (name if short[name] == 1 else run.dataset, " · ".join(below))
    return results


def metrics_of(runs: Sequence[RunRow], scored: Mapping[str, Sequence[str]]) -> list[str]:
    """List the metrics that any of a board's runs was scored on."""
    return list(dict.fromkeys(metric for run in runs for metric in scored.get(run.run, ())))


def own_metrics(runs: Sequence[RunRow], scored: Collection[str]) -> list[str]:
    """List the metrics that the experiment of these runs shows, in its order; all if a run belongs to no experiment."""
    if any(run.metrics is None for run in runs):
        return list(scored)
    return [metric for metric in dict.fromkeys(metric for run in runs for metric in run.metrics or ()) if metric in scored]


def ranked_families(
    runs: Sequence[RunRow], metrics: Sequence[str], definitions: Definitions, card: Mapping[str, Any], primary: Primary | None
) -> dict[str, list[str]]:
    """Group metrics by family; the first metric of the main family (`main_metric`, as in verdicts) determines ranks.

    The experiment's other metrics follow in its order. Without an experiment, the dataset's official metrics follow.
    """
    own = own_metrics(runs, metrics)
    first = main_metric(runs, own or metrics, card, primary)
    official = own if own and all(run.metrics is not None for run in runs) else card.get("metrics", ())
    return families(metrics, definitions, [first, *official] if first is not None else official)


def matrix_families(metrics: Sequence[str], definitions: Definitions) -> dict[str, list[str]]:
    """Group the metrics that a matrix can show, by family: all of the datasets' metrics, each scored group, and costs."""
    groups: dict[str, list[str]] = {}
    for metric in metrics:
        groups.setdefault(group_of(metric, definitions), []).append(metric)
    return {MAIN: list(metrics), **{name: ids for name, ids in groups.items() if name not in (MAIN, COST)}, COST: list(COSTS)}


def columns_of(
    groups: Sequence[Sequence[RunRow]],
    scored: Mapping[str, Sequence[str]],
    definitions: Definitions,
    cards: Mapping[str, Mapping[str, Any]],
    family: str,
    measure: str,
    primary: Primary | None = None,
) -> list[Column]:
    """Make one matrix column per board; `measure`: a metric id, or `OWN` for each dataset's own metric."""
    results = []
    for runs in groups:
        every = metrics_of(runs, scored)
        card = cards.get(runs[0].dataset_fingerprint, {}).get("card", {})
        if measure != OWN:
            metric = measure if measure in matrix_families(every, definitions).get(family, ()) else None
        else:
            metrics = matrix_families(own_metrics(runs, every) or every, definitions).get(family, [])
            metric = ranked_families(runs, metrics, definitions, card, primary)[MAIN][0] if metrics else None
        better = metric is None or higher_is_better(metric, {**definitions, **COSTS})
        results.append(Column(column_key(runs[0]), tuple(runs), metric, better, family != COST, card.get("task", "")))
    return results


ANY = "any"
UNSTATED = "unstated"
SIZES: dict[str, tuple[float, float]] = {
    "under-1b": (0, 1e9),
    "1b-10b": (1e9, 1e10),
    "10b-100b": (1e10, 1e11),
    "over-100b": (1e11, float("inf")),
}
SIZE_NAMES = {
    ANY: "Any size",
    "under-1b": "Under 1 B parameters",
    "1b-10b": "1 to 10 B",
    "10b-100b": "10 to 100 B",
    "over-100b": "100 B and more",
    UNSTATED: "Not stated",
}
WEIGHT_NAMES = {ANY: "Any weights", "open": "Open weights", "closed": "Closed weights", UNSTATED: "Not stated"}
ANY_DATA = "any data at all"
"""Key for any training data."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters on the rows of the matrix; empty and None do not filter.

    Attributes:
        kinds, readers: Allowed kinds and readers, by key.
        size, weights: Allowed size and availability of weights, from `SIZE_NAMES` and `WEIGHT_NAMES`.
        untrained: Training data that a method must not have used.
    """

    kinds: frozenset[str] = field(default_factory=frozenset)
    readers: frozenset[str] = field(default_factory=frozenset)
    size: str = ANY
    weights: str = ANY
    untrained: frozenset[str] = field(default_factory=frozenset)

    @property
    def active(self) -> int:
        """Return the number of active filters."""
        return sum(map(bool, (self.kinds, self.readers, self.size != ANY, self.weights != ANY, self.untrained)))

    def admits(self, row: System) -> bool:
        """Return whether a system passes all filters; controls always do."""
        if row.control:
            return True
        return (
            (not self.kinds or any(key_of(kind) in self.kinds for kind in row.kinds))
            and (not self.readers or any(key_of(reader) in self.readers for reader in row.readers))
            and _size_is(row.parameters, self.size)
            and self.weights in (ANY, {None: UNSTATED, True: "open", False: "closed"}[row.open_weights])
            and not _trained(row, self.untrained)
        )


def _size_is(parameters: int | None, size: str) -> bool:
    if size == ANY or parameters is None:
        return size in (ANY, UNSTATED)
    return size != UNSTATED and SIZES[size][0] <= parameters < SIZES[size][1]


def _trained(row: System, untrained: frozenset[str]) -> bool:
    """Return whether a row was trained on any of the data, or its training data is unknown.

    Data have several names: mixed styles contain the questions of their base, a reference without a split contains all splits.
    """
    if ANY_DATA in untrained and (row.training or not row.declares):
        return True
    return any(overlap(item, other) for item in row.training for other in untrained)


@dataclass(frozen=True, slots=True)
class Choices:
    """Available values of each filter, as names by key."""

    kinds: dict[str, str]
    readers: dict[str, str]
    training: dict[str, str]
    sizes_known: bool
    weights_known: bool


def choices(rows: Sequence[System]) -> Choices:
    """Collect the values that filters can select among these systems; properties that all share are left out."""
    able = [row for row in rows if not row.control]
    training = _list_choices(able, lambda row: row.training)
    return Choices(
        _list_choices(able, lambda row: row.kinds),
        _list_choices(able, lambda row: row.readers),
        {key_of(ANY_DATA): ANY_DATA, **training} if training else {},
        any(row.parameters is not None for row in able),
        any(row.open_weights is not None for row in able),
    )


def _list_choices(rows: Sequence[System], of: Callable[[System], Sequence[str]]) -> dict[str, str]:
    return {key_of(name): name for name in sorted({name for row in rows for name in of(row)})}


def matches(row: System, words: str) -> bool:
    """Return whether every search word occurs in the system's name, method id or reader."""
    text = " ".join((row.name, row.any_run.method_id, *row.readers)).casefold()
    return all(word in text for word in words.casefold().split())


PAGE = 25
"""Rows per page; a browser lays out a hundred methods × twenty datasets too slowly."""
FIXED = ("method", "mean", "tokens", "seconds", "cost", "parameters")


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """Rows of the matrix on the current page.

    Attributes:
        rows: Rows of the page, methods before controls.
        matching: Rows of all pages.
        first: Position of the page's first row among the matching methods.
        total: Number of matching methods, without controls.
        hidden: Keys of rows that the user has hidden.
    """

    rows: tuple[System, ...]
    matching: tuple[System, ...]
    first: int
    total: int
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """Sort order of a table."""

    column: str
    descending: bool


def sort_columns(board: Matrix) -> list[str]:
    """List the columns that a matrix can be sorted by."""
    return [*FIXED, *(column.key for column in board.columns)]


def default_order(board: Matrix) -> Order:
    """Return the default sort order: by the mean if rows have one, else by the first column with values; best first."""
    if any(board.mean(row) is not None for row in board.rows):
        return Order("mean", best_first(board, "mean"))
    first = next((column.key for column in board.columns if any((row.key, column.key) in board.cells for row in board.rows)), "method")
    return Order(first, best_first(board, first))


def best_first(board: Matrix, column: str) -> bool:
    """Return whether descending order puts the best values of a column first."""
    if column == "mean":
        return bool(board.columns) and board.columns[0].higher_is_better
    return any(item.key == column and item.higher_is_better for item in board.columns)


def ordered(board: Matrix, order: Order) -> list[System]:
    """Sort all rows: methods before controls, rows without a value last in both directions, unranked ones after ranked ones."""
    key = _key(board, order.column)
    rows = []
    for control in (False, True):
        part = [(key(row), row) for row in board.rows if row.control is control]
        known = [(value, row) for value, row in part if value is not None and value == value]
        known.sort(key=lambda pair: pair[0], reverse=order.descending)
        known.sort(key=lambda pair: (cell := board.cells.get((pair[1].key, order.column))) is not None and bool(cell.apart))
        rows += [row for _, row in known] + [row for value, row in part if value is None or value != value]
    return rows


def _key(board: Matrix, column: str) -> Callable[[System], str | float | None]:
    if column == "method":
        return lambda row: row.name.casefold()
    if column == "mean":
        return lambda row: result.value if (result := board.mean(row)) else None
    if column == "parameters":
        return lambda row: row.parameters
    if column in FIXED:
        return lambda row: cost_of(board, row, column)
    return lambda row: cell.value if (cell := board.cells.get((row.key, column))) else None


def cost_of(board: Matrix, row: System, column: str) -> float | None:
    """Return a row's cost in a column: tokens or seconds per question, or total US dollars; None if unknown."""
    cost = board.cost(row)
    if cost is None:
        return None
    result = {"tokens": cost.tokens, "seconds": cost.seconds, "cost": cost.cost_usd}[column]
    return None if math.isnan(result) else result


def visible_rows(board: Matrix, order: Order, hidden: Collection[str], words: str, first: int, page: int = PAGE) -> VisibleRows:
    """Select the visible rows of a matrix; values and ranks do not change; `first`: position of the first row; rounded to a page."""
    rows = ordered(board, order)
    out = tuple(row.key for row in rows if row.key in hidden)
    left = [row for row in rows if row.key not in hidden and matches(row, words)]
    able, controls = ([row for row in left if row.control is control] for control in (False, True))
    start = min(max(first, 0), max(len(able) - 1, 0)) // page * page
    return VisibleRows((*able[start : start + page], *controls), tuple(left), start, len(able), out)
