"""Read the papers' published figures from `published/*.csv`, and validate them.

A figure is one printed number, digit by digit as printed, with everything that the paper says about its setting.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.registry import DataReference

COLUMNS = ("paper", "table", "method", "id", "dataset", "setting", "metric", "value", "unit", "note")
OPTIONAL = frozenset({"id", "setting", "note"})
"""Columns that may be empty."""

KEYS = {
    "retrieval": "where passages come from: normal (= corpus), oracle, document, graph, closed_book",
    "retriever": "the retriever of the candidates",
    "n": "candidates per question",
    "corpus": "the corpus of the retriever",
    "split": "split of the dataset",
    "questions": "questions evaluated",
    "k": "passages given to the reader",
    "reader": "the model that answers",
    "judge": "the model that judges",
    "cr": "compression ratio",
    "init": "the start of joint training: pretraining, instruction",
    "backbone": "the model that ranks or compresses",
    "data": "kinds of pretraining data",
    "corpus_size": "documents in pretraining",
    "tuned": "the tuned part: generator, all",
    "alignment": "alignment scores in use",
    "stage": "training stage",
    "seen": "whether pretraining saw the documents: seen, unseen",
    "style": "style of the passages",
    "formal": "share of passages left formal in a mixture",
    "criterion": "criterion of a pairwise judgment",
    "against": "the other method of a pairwise judgment",
    "over": "the reference of a gain or drop",
}
"""Keys of the `setting` column, in their written order."""

_RETRIEVAL = ("normal", "oracle", "document", "graph", "closed_book")
UNITS = frozenset({"percent", "fraction", "points", "ratio", "count", "tokens", "words", "seconds", "ms", "ms/query", "queries/s", "text"})
SCALES = {"percent": 0.01, "fraction": 1.0}
"""Units of values that can be compared with ragmeter's fractions, and their factors."""

_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e-?\d+)?")
METRIC = re.compile(r"(?P<name>[\w.]+)(@(?P<k>\d+))?(\((?P<parameters>[^()]*)\))?(#v\d+(-\w+)?)?")
IDENTITY = re.compile(r"(?P<name>[\w.-]+)(\((?P<options>[^()]*)\))?")
"""Patterns of the columns `metric` (with an optional version) and `id`."""


@dataclass(frozen=True)
class Figure:
    """Number printed in a paper, with the conditions under which it was measured.

    Attributes:
        paper: Name of the paper's CSV file.
        table: Number of the table, or `text SECTION` or `figure N`.
        method: Name of the row in the paper.
        id: Id of the same method in ragmeter, `name` or `name(option=value,…)`; empty if ragmeter lacks it.
        dataset: A data reference, or "average".
        setting: The paper's setting, `key=value;key=value` with the keys of `KEYS` in their order.
        metric: Metric id without version if ragmeter has the metric, else the paper's name.
        value: The number as printed, with trailing zeros.
        unit: One of `UNITS`.
        note: Remark for readers; an error in the paper is described after "misprint:".
    """

    paper: str
    table: str
    method: str
    id: str
    dataset: str
    setting: str
    metric: str
    value: str
    unit: str
    note: str

    @property
    def key(self) -> tuple[str, ...]:
        """Return the tuple of fields that identifies the figure uniquely."""
        return (self.paper, self.table, self.method, self.dataset, self.setting, self.metric)

    @property
    def source(self) -> str:
        """Return the citation of the figure: paper and table."""
        return f"{self.paper}, {'table ' if self.table.isdecimal() else ''}{self.table}"

    @cached_property
    def conditions(self) -> dict[str, str]:
        """Parse the setting `key=value;key=value` into a mapping."""
        return _conditions_of(self.setting)

    @property
    def misprint(self) -> str | None:
        """Return the note on an error in the paper's number, or None."""
        return self.note.partition("misprint: ")[2] or None

    @property
    def number(self) -> float | None:
        """Return the printed value as a number in its own unit; None if it is text."""
        return None if self.unit == "text" else float(self.value.replace(",", ""))

    @property
    def fraction(self) -> float | None:
        """Return the value as a fraction, like ragmeter's scores; None if its unit is neither percent nor fraction."""
        number, scale = self.number, SCALES.get(self.unit)
        return None if number is None or scale is None else number * scale


def read(source: Path | Traversable) -> list[Figure]:
    """Read and validate the published figures of one CSV file.

    Raises:
        UserError: The header, a cell or a setting key is invalid (see `Figure`), or a figure occurs twice.
    """
    results: list[Figure] = []
    lines: dict[tuple[str, ...], int] = {}
    try:
        rows = csv.reader(io.StringIO(source.read_text("utf-8"), newline=""))
    except UnicodeDecodeError as error:
        raise UserError("this is not a text in UTF-8", code="not-utf8", where=f"{source.name}, byte {error.start}") from error
    header = tuple(next(rows, ()))
    if header != COLUMNS:
        raise UserError(
            f"the header is {','.join(header) or 'missing'}",
            code="bad-header",
            where=source.name,
            try_this=f"the first line must be {','.join(COLUMNS)}",
        )
    for cells in rows:
        where = f"{source.name}, line {rows.line_num}"
        if len(cells) != len(COLUMNS):
            raise UserError(f"{len(cells)} cells instead of {len(COLUMNS)}", code="wrong-cell-count", where=where)
        figure = Figure(*cells)
        _check(figure, where)
        if f"{figure.paper}.csv" != source.name:
            raise UserError(
                f"this figure is of {figure.paper!r}", code="figure-of-other-paper", where=where, try_this=f"{figure.paper}.csv"
            )
        if figure.key in lines:
            raise UserError("this figure is listed twice", code="duplicate-figure", where=f"{where} and line {lines[figure.key]}")
        lines[figure.key] = rows.line_num
        results.append(figure)
    return results


def papers() -> tuple[str, ...]:
    """List the names of the papers whose figures ragmeter stores."""
    return tuple(sorted(item.name.removesuffix(".csv") for item in _folder().iterdir() if item.name.endswith(".csv")))


def figures(paper: str | None = None) -> list[Figure]:
    """Return the published figures of one paper, or of all papers, in the order of the paper.

    Raises:
        UserError: There is no such paper.
    """
    if paper is None:
        return [figure for name in papers() for figure in _of(name)]
    if paper not in papers():
        raise unknown_name("paper", paper, papers())
    return list(_of(paper))


def find(
    *,
    paper: str | None = None,
    table: str | None = None,
    method: str | None = None,
    dataset: str | None = None,
    setting: str | None = None,
    metric: str | None = None,
) -> list[Figure]:
    """Find published figures that match all given conditions; None matches everything.

    Args:
        paper, table, dataset, metric: Exact values of the fields of `Figure`.
        method: The paper's name of the method, or ragmeter's id; upper and lower case are equal.
        setting: Conditions that must hold, e.g. `retrieval=oracle;cr=4`; keys not listed may have any value.

    Raises:
        UserError: There is no such paper, or the setting does not parse.
    """
    wanted = _conditions_of(setting or "")
    for key in wanted:
        if key not in KEYS:
            raise unknown_name("key of a setting", key, KEYS)
    if wanted.get("retrieval") == "corpus":
        wanted["retrieval"] = "normal"
    return [
        figure
        for figure in figures(paper)
        if (table is None or figure.table == table)
        and (dataset is None or figure.dataset == dataset)
        and (metric is None or figure.metric == metric)
        and (method is None or method.casefold() in (figure.method.casefold(), figure.id.casefold()))
        and all(same(value, figure.conditions.get(key)) for key, value in wanted.items())
    ]


def tables_of(paper: str) -> list[str]:
    """List the tables of a paper that have stored figures: numbered tables first, then figures and text sections."""
    parts = {figure.table: re.split(r"(\d+)", figure.table) for figure in figures(paper)}
    return sorted(parts, key=lambda table: [int(part) if part.isdigit() else part for part in parts[table]])


def _folder() -> Traversable:
    return importlib.resources.files("results").joinpath("published")


@cache
def _of(paper: str) -> tuple[Figure, ...]:
    return tuple(read(_folder().joinpath(f"{paper}.csv")))


def _check(figure: Figure, where: str) -> None:
    for column in COLUMNS:
        cell = getattr(figure, column)
        if cell != cell.strip() or (not cell and column not in OPTIONAL):
            raise UserError(f"{column} is {cell!r}", code="bad-figure", where=where, try_this="a text without white space around it")
    if figure.unit not in UNITS:
        raise unknown_name("unit", figure.unit, UNITS, where=where)
    if figure.unit != "text" and not _NUMBER.fullmatch(figure.value):
        raise UserError(f"value {figure.value!r} is not a number", code="not-number", where=where, try_this="unit text, if it is a word")
    if not METRIC.fullmatch(figure.metric) or figure.metric != figure.metric.lower() or "#" in figure.metric:
        raise UserError(
            f"{figure.metric!r} names no metric", code="unknown-metric-name", where=where, try_this="recall@5, f1(rules=squad) or a word"
        )
    if figure.id and not IDENTITY.fullmatch(figure.id):
        raise UserError(f"{figure.id!r} names no method", code="unknown-method-name", where=where, try_this="name, or name(option=value)")
    try:
        DataReference.parse(figure.dataset)
    except UserError as error:
        raise UserError(error.what, code=error.code, where=where, try_this=error.try_this) from error
    _check_setting(figure, where)


def _check_setting(figure: Figure, where: str) -> None:
    order = list(KEYS)
    parts = [part.partition("=") for part in figure.setting.split(";")] if figure.setting else []
    for key, _, value in parts:
        if key not in KEYS:
            raise unknown_name("key of a setting", key, KEYS, where=where)
        if not value:
            raise UserError(f"{key} lacks its value", code="option-without-value", where=where, try_this=f"{key}=…")
    for (item, *_), (other, *_) in pairwise(parts):
        if order.index(item) >= order.index(other):
            raise UserError(
                f"{other} is listed after {item}", code="training-out-of-order", where=where, try_this=f"each once, in the order {order}"
            )
    retrieval = figure.conditions.get("retrieval", _RETRIEVAL[0])
    if retrieval not in _RETRIEVAL:
        raise unknown_name("retrieval", retrieval, _RETRIEVAL, where=where)


def _conditions_of(setting: str) -> dict[str, str]:
    results = {}
    for part in filter(None, setting.split(";")):
        key, separator, value = part.partition("=")
        if not separator:
            raise UserError(f"{part!r} is not key=value", code="not-key-value", try_this="e.g. retrieval=oracle;cr=4")
        results[key] = value
    return results


def same(published: str, ours: str | None) -> bool:
    """Return whether a value equals the published one: numerically if both are numbers, else ignoring case; None equals
    nothing.
    """
    if ours is None:
        return False
    if _NUMBER.fullmatch(published) and _NUMBER.fullmatch(ours):
        return float(published.replace(",", "")) == float(ours.replace(",", ""))
    return published.casefold() == ours.casefold()


def options_of(text: str) -> dict[str, str]:
    """Parse `a=1,b=2` into a mapping."""
    parts = (part.partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in parts}
