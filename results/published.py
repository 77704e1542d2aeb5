"""The papers' published figures, read from `published/*.csv` and validated.

A figure is one printed number, digit by digit as printed, with everything that the paper says of how it came about.
`results.beside` sets ours beside them.
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

from benchmarks.errors import UserError, unknown_name
from benchmarks.registry import DataReference

COLUMNS = ("paper", "table", "method", "id", "dataset", "setting", "metric", "value", "unit", "note")
OPTIONAL = frozenset({"id", "setting", "note"})
"""Columns that may be empty."""

KEYS = {
    "retrieval": "where passages come from: normal (= corpus), oracle, document, graph, closed_book",
    "retriever": "what retrieves the candidates",
    "n": "candidates per question",
    "corpus": "what is retrieved from",
    "split": "split of the dataset",
    "questions": "questions evaluated",
    "k": "passages handed to the reader",
    "reader": "the model that answers",
    "judge": "the model that judges",
    "cr": "compression ratio",
    "init": "what joint training starts from: pretraining, instruction",
    "backbone": "the model that ranks or compresses",
    "data": "kinds of pretraining data",
    "corpus_size": "documents in pretraining",
    "tuned": "what is tuned: generator, all",
    "alignment": "alignment scores in use",
    "stage": "training stage",
    "seen": "whether pretraining saw the documents: seen, unseen",
    "style": "style of the passages",
    "formal": "share of passages left formal in a mixture",
    "criterion": "criterion of a pairwise judgement",
    "against": "the other method of a pairwise judgement",
    "over": "what a gain or drop is taken over",
}
"""Keys of the `setting` column, in the order in which they are written."""

RETRIEVAL = ("normal", "oracle", "document", "graph", "closed_book")
UNITS = frozenset({"percent", "fraction", "points", "ratio", "count", "tokens", "words", "seconds", "ms", "ms/query", "queries/s", "text"})
SCALES = {"percent": 0.01, "fraction": 1.0}
"""Units of values that can stand beside ours, which are fractions, and what they are multiplied by."""

_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e-?\d+)?")
METRIC = re.compile(r"(?P<name>[\w.]+)(@(?P<k>\d+))?(\((?P<parameters>[^()]*)\))?(#v\d+)?")
IDENTITY = re.compile(r"(?P<name>[\w.-]+)(\((?P<options>[^()]*)\))?")
"""The form of the columns `metric` (a version may follow) and `id`."""


@dataclass(frozen=True)
class Figure:
    """One published number.

    Attributes:
        paper: Which paper prints it, by the name of its CSV file.
        table: The table's number, or `text SECTION` or `figure N` for a number that only the text prints.
        method: The row's name in the paper.
        id: Our method that it is about, `name` or `name(option=value,…)`; empty where we have none.
        dataset: A data reference, or "average".
        setting: What the paper says of how it came about, `key=value;key=value` with the keys of `KEYS` in their order.
        metric: A metric id without its version where the paper's column is one of ours, else a plain name.
        value: As printed, trailing digits kept.
        unit: One of `UNITS`.
        note: What a reader must know; a slip of the paper follows the mark "slip:".
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
        """What no two figures share."""
        return (self.paper, self.table, self.method, self.dataset, self.setting, self.metric)

    @property
    def source(self) -> str:
        """Where to find it, for people."""
        return f"{self.paper}, {'table ' if self.table.isdecimal() else ''}{self.table}"

    @cached_property
    def conditions(self) -> dict[str, str]:
        """The setting as a mapping."""
        return _conditions_of(self.setting)

    @property
    def slip(self) -> str | None:
        """What is wrong in the paper about this figure, where we know of something."""
        return self.note.partition("slip: ")[2] or None

    @property
    def number(self) -> float | None:
        """The value as a number, in its own unit; None for words."""
        return None if self.unit == "text" else float(self.value.replace(",", ""))

    @property
    def fraction(self) -> float | None:
        """The value on the scale of our scores; None where its unit is neither percent nor fraction."""
        number, scale = self.number, SCALES.get(self.unit)
        return None if number is None or scale is None else number * scale


def read(source: Path | Traversable) -> list[Figure]:
    """The figures of one CSV file, validated.

    Raises:
        UserError: The header, a cell or a key is not as `Figure` says, or a figure stands there twice.
    """
    found: list[Figure] = []
    lines: dict[tuple[str, ...], int] = {}
    try:
        rows = csv.reader(io.StringIO(source.read_text("utf-8"), newline=""))
    except UnicodeDecodeError as error:
        raise UserError("this is not a text in UTF-8", where=f"{source.name}, byte {error.start}") from error
    header = tuple(next(rows, ()))
    if header != COLUMNS:
        raise UserError(
            f"the header is {','.join(header) or 'missing'}", where=source.name, try_this=f"the first line must be {','.join(COLUMNS)}"
        )
    for cells in rows:
        where = f"{source.name}, line {rows.line_num}"
        if len(cells) != len(COLUMNS):
            raise UserError(f"{len(cells)} cells instead of {len(COLUMNS)}", where=where)
        figure = Figure(*cells)
        _check(figure, where)
        if f"{figure.paper}.csv" != source.name:
            raise UserError(f"a figure of {figure.paper!r}", where=where, try_this=f"{figure.paper}.csv")
        if figure.key in lines:
            raise UserError("this figure stands here twice", where=f"{where} and line {lines[figure.key]}")
        lines[figure.key] = rows.line_num
        found.append(figure)
    return found


def papers() -> tuple[str, ...]:
    """Names of the papers that figures are kept of."""
    return tuple(sorted(item.name.removesuffix(".csv") for item in _folder().iterdir() if item.name.endswith(".csv")))


def figures(paper: str | None = None) -> list[Figure]:
    """All figures, or those of one paper, in the paper's order.

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
    """Figures that meet every condition given.

    Args:
        paper, table, dataset, metric: As in the columns.
        method: The paper's name of it, or our id; lower or upper case.
        setting: Keys that must hold, e.g. `retrieval=oracle;cr=4`; others may have any value.

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


def _folder() -> Traversable:
    return importlib.resources.files("results").joinpath("published")


@cache
def _of(paper: str) -> tuple[Figure, ...]:
    return tuple(read(_folder().joinpath(f"{paper}.csv")))


def _check(figure: Figure, where: str) -> None:
    for column in COLUMNS:
        cell = getattr(figure, column)
        if cell != cell.strip() or (not cell and column not in OPTIONAL):
            raise UserError(f"{column} is {cell!r}", where=where, try_this="a text without white space around it")
    if figure.unit not in UNITS:
        raise unknown_name("unit", figure.unit, UNITS, where=where)
    if figure.unit != "text" and not _NUMBER.fullmatch(figure.value):
        raise UserError(f"value {figure.value!r} is not a number", where=where, try_this="unit text, if it is a word")
    if not METRIC.fullmatch(figure.metric) or figure.metric != figure.metric.lower() or "#" in figure.metric:
        raise UserError(f"{figure.metric!r} names no metric", where=where, try_this="recall@5, f1(rules=squad) or a word")
    if figure.id and not IDENTITY.fullmatch(figure.id):
        raise UserError(f"{figure.id!r} names no method", where=where, try_this="name, or name(option=value)")
    try:
        DataReference.parse(figure.dataset)
    except UserError as error:
        raise UserError(error.what, where=where, try_this=error.try_this) from error
    _check_setting(figure, where)


def _check_setting(figure: Figure, where: str) -> None:
    order = list(KEYS)
    parts = [part.partition("=") for part in figure.setting.split(";")] if figure.setting else []
    for key, _, value in parts:
        if key not in KEYS:
            raise unknown_name("key of a setting", key, KEYS, where=where)
        if not value:
            raise UserError(f"{key} lacks its value", where=where, try_this=f"{key}=…")
    for (one, *_), (other, *_) in pairwise(parts):
        if order.index(one) >= order.index(other):
            raise UserError(f"{other} stands after {one}", where=where, try_this=f"each once, in the order {order}")
    retrieval = figure.conditions.get("retrieval", RETRIEVAL[0])
    if retrieval not in RETRIEVAL:
        raise unknown_name("retrieval", retrieval, RETRIEVAL, where=where)


def _conditions_of(setting: str) -> dict[str, str]:
    found = {}
    for part in filter(None, setting.split(";")):
        key, separator, value = part.partition("=")
        if not separator:
            raise UserError(f"{part!r} is not key=value", try_this="e.g. retrieval=oracle;cr=4")
        found[key] = value
    return found


def same(published: str, ours: str | None) -> bool:
    """Whether a value is the published one: as numbers where both are, else in any case; None is never the same."""
    if ours is None:
        return False
    if _NUMBER.fullmatch(published) and _NUMBER.fullmatch(ours):
        return float(published.replace(",", "")) == float(ours.replace(",", ""))
    return published.casefold() == ours.casefold()


def options_of(text: str) -> dict[str, str]:
    """`a=1,b=2` as a mapping."""
    parts = (part.partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in parts}
