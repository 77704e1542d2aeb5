"""The papers' published figures, read from `published/*.csv` and validated.

A figure is one printed number, digit by digit as printed, with everything that the paper says about its setting.
`results.boards.published` compares ours with them.
"""

from __future__ import annotations

import csv
import importlib.resources
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.registry import DataReference
from benchmarks.settings import Setting
from benchmarks.styles import FORMAL
from results.boards import tables
from results.boards.board import Board
from results.statistics.core import Estimate
from results.store.variants import questions_of, variant_of

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

RETRIEVAL = ("normal", "oracle", "document", "graph", "closed_book")
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
    retrieval = figure.conditions.get("retrieval", RETRIEVAL[0])
    if retrieval not in RETRIEVAL:
        raise unknown_name("retrieval", retrieval, RETRIEVAL, where=where)


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


# Comparison with published results: value, gap, and whether it is reproduced.
# A published figure is compared with ours only if everything that the paper says about its setting holds for ours too;
# otherwise the comparison lists the keys that differ, and decides nothing.


Status = Literal["reproduced", "not reproduced", "other setting", "undecided"]

ALTERING = ("style", "formal", "prompt")
"""Keys that change data or prompts. A paper without them did not use them, so ragmeter's setting differs if it has them."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Setting key on which ragmeter's run differs from the paper; None if one of the two does not state it."""

    key: str
    published: str | None
    ours: str | None

    def __str__(self) -> str:
        return f"{self.key}: {self.published or 'not stated'} there, {self.ours or 'not stated'} here"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Published figure with ragmeter's value on the same method, dataset and metric.

    Attributes:
        figure: The published figure.
        ours: ragmeter's mean with its interval, as a fraction; None if there is no run yet.
        gap: Ours minus the published value, as a fraction; None without ours.
        inside: Whether the published value lies within our interval, in any setting; None without an interval.
        differs: Keys on which the settings differ.
        status: "other setting" if any key differs; else "reproduced" if `inside`, "not reproduced" if not, and
            "undecided" without an interval.
    """

    figure: Figure
    ours: Estimate | None
    gap: float | None
    inside: bool | None
    differs: tuple[Disagreement, ...]
    status: Status

    def as_undecided(self) -> Comparison:
        """Return the comparison with status "undecided", for a value that must not be compared, for example of a contaminated run."""
        return self if self.status == "other setting" else replace(self, status="undecided")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions."""
        return {
            "paper": self.figure.paper,
            "table": self.figure.table,
            "method": self.figure.method,
            "setting": self.figure.setting,
            "published": self.figure.fraction,
            "printed": f"{self.figure.value} {self.figure.unit}",
            "note": self.figure.note,
            "gap": self.gap,
            "inside": self.inside,
            "status": self.status,
            "differs": {differ.key: {"published": differ.published, "ours": differ.ours} for differ in self.differs},
        }


def compare(figure: Figure, ours: Estimate | None, conditions: Mapping[str, str], *, metric: str | None = None) -> Comparison:
    """Compare ragmeter's value with a published one.

    Args:
        figure: The published figure; its unit must be percent or fraction.
        ours: ragmeter's mean as a fraction; None if there is no run.
        conditions: ragmeter's setting, by the keys of `KEYS`. Keys that the paper does not state are ignored, except those in
            `ALTERING`.
        metric: Id of ragmeter's metric; other parameters than the paper's count as a difference.

    Raises:
        ValueError: The figure's unit cannot be compared with a score.
    """
    published = figure.fraction
    if published is None:
        raise ValueError(f"{figure.value} {figure.unit} ({figure.source}) is not a score")
    differs = [
        Disagreement(key, value, conditions.get(key)) for key, value in figure.conditions.items() if not same(value, conditions.get(key))
    ]
    silent = [key for key in ALTERING if key in conditions and key not in figure.conditions]
    differs += [Disagreement(key, None, conditions[key]) for key in silent]
    if metric is not None:
        theirs, own = _parameters(figure.metric), _parameters(metric)
        differs += [
            Disagreement(f"metric {name}", value, own.get(name)) for name, value in theirs.items() if not same(value, own.get(name))
        ]
    gap = inside = None
    if ours is not None:
        gap = None if _missing(ours.value) else ours.value - published
        if not _missing(ours.low, ours.high):
            # A printed value and the end of an interval that are equal must not differ in the last bit.
            inside = ours.low - 1e-12 <= published <= ours.high + 1e-12
    status: Status = "undecided"
    if differs:
        status = "other setting"
    elif inside is not None:
        status = "reproduced" if inside else "not reproduced"
    return Comparison(figure, ours, gap, inside, tuple(differs), status)


def published_for(
    dataset: str,
    setting: str,
    metric: str,
    method: str | Mapping[str, Any],
    *,
    estimate: Estimate | None = None,
    facts: Mapping[str, str] | None = None,
) -> list[Comparison]:
    """Compare a run with every published figure of the same method, dataset and metric; the figure with the closest setting
    comes first.

    Args:
        dataset: Data reference or name of the benchmark.
        setting: Retrieval setting of the run.
        metric: Id of the metric.
        method: Id of the method, with options as in `Figure.id`, or a run's description; then reader and k are compared, too. A
            pipeline is identified by its compressor, else by its last reranker.
        estimate: The run's mean with its interval; None only lists the figures.
        facts: Further facts about the run's setting, by the keys of `KEYS`; they override the other arguments.
    """
    description = method if isinstance(method, Mapping) else None
    if description is not None and "method" not in description:
        return []  # a submission's: its parts are not ours, so no figure is about it
    reference, conditions = _asked(dataset, setting)
    about = _about(reference.name, _bare(metric))
    if not about:
        return []
    conditions = {**conditions_of_ours(dataset, setting, description), **conditions, **(facts or {})}
    results = [
        compare(figure, estimate, conditions, metric=metric)
        for figure in about
        if DataReference.parse(figure.dataset).subset in (None, reference.subset) and figure.fraction is not None and _is(figure.id, method)
    ]
    once: dict[tuple[str, ...], Comparison] = {}
    for item in results:  # main tables are printed again, with more rows, in the appendices
        once.setdefault((item.figure.paper, item.figure.method, item.figure.setting, item.figure.value), item)
    return sorted(once.values(), key=lambda item: len(item.differs))


POOLS = re.compile(r"(?P<kind>inst|e2e)_eval_(?P<data>\w+?)_(?P<pool>no_pos|with_pos)")
"""Subsets of `clara_stages`: the files that CLaRa's tables were computed from."""
_OF_CLARA = {"2wiki": "2wikimultihopqa"}
NAMED = re.compile(r"\b(?P<cr>\d+)x\b(?: (?P<init>pretraining|instruction)\b)?")
"""Pattern of a row's name with a compression ratio."""
_POOLED = {"no_pos": "normal", "with_pos": "oracle"}
_DOCUMENTS = {"inst": "5", "e2e": "20"}


def _asked(dataset: str, setting: str) -> tuple[DataReference, dict[str, str]]:
    """Return the dataset of the questions, by the papers' name, and facts about its candidates, by the keys of `KEYS`."""
    reference = questions_of(dataset)
    match = POOLS.fullmatch(reference.subset or "") if reference.name == "clara_stages" else None
    if match is None or setting != "distractor":
        return reference, {}
    known = {
        "retrieval": _POOLED[match["pool"]],
        "n": _DOCUMENTS[match["kind"]],
        "retriever": "bge-large-en-v1.5",
        "corpus": "wikipedia-2021",
    }
    return DataReference(_OF_CLARA.get(match["data"], match["data"]), None, "dev"), {**known, "split": "dev"}


@cache
def printed(dataset: str, setting: str, metric: str) -> tuple[Figure, ...]:
    """List the figures that papers print for any method on this dataset and metric.

    Figures with the same retrieval setting are preferred; without any, all are returned. Retrieval from a corpus and from
    distractors count as the same setting.

    Args:
        dataset: Data reference or name of the benchmark.
        setting: Retrieval setting of the board.
        metric: Id of the metric.
    """
    reference, known = _asked(dataset, setting)
    name = known.get("retrieval") or Setting.parse(setting).name
    results: dict[tuple[str, ...], Figure] = {}
    for figure in figures():
        there = DataReference.parse(figure.dataset)
        if (
            there.name == reference.name
            and there.subset in (None, reference.subset)
            and _bare(figure.metric) == _bare(metric)
            and figure.fraction is not None
        ):
            results.setdefault((figure.paper, figure.method, figure.setting, figure.value), figure)
    retrieval = name if name in RETRIEVAL else RETRIEVAL[0]
    with_retrieval = [item for item in results.values() if item.conditions.get("retrieval", RETRIEVAL[0]) == retrieval]
    return tuple(with_retrieval or results.values())


def on_board(board: Board, *, facts: Mapping[str, str] | None = None) -> dict[tuple[str, str], list[Comparison]]:
    """Look up the published figures for every cell of a board.

    Args:
        board: The board.
        facts: Further facts about the setting of all its runs, e.g. `{"corpus": "wikipedia-2021"}`.

    Returns:
        Comparisons by (run id, metric id), the closest setting first.
    """
    known = {"questions": str(board.questions), **(facts or {})}
    results = {
        (row.run.run, metric): published_for(
            board.dataset, board.setting, metric, row.run.description, estimate=cell.estimate, facts=conditions
        )
        for row in board.rows
        for conditions in [_named(row.run.method, row.run.description) | known]
        for metric, cell in row.cells.items()
    }
    apart = {(row.run.run, metric) for row in board.rows for metric, cell in row.cells.items() if cell.apart or row.run.positive_control}
    return {
        key: [comparison.as_undecided() for comparison in comparisons] if key in apart else comparisons
        for key, comparisons in results.items()
        if comparisons
    }


def conditions_of_ours(dataset: str, setting: str, description: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Derive the setting, by the keys of `KEYS`, from a dataset reference, a retrieval setting and a run's description.

    Unknown keys are left out; they count as different if a paper states them.
    """
    chosen = Setting.parse(setting)
    base = chosen.base or chosen
    results: dict[str, Any] = {
        "split": DataReference.of_name(dataset).split,
        **_styles_of(dataset),
        "retrieval": {"corpus": "normal"}.get(chosen.name, chosen.name),
        "n": chosen.n or base.n,
        "retriever": base.retriever,
    }
    if description is not None:
        parts = [description["method"], *description.get("rerankers", ()), description.get("compressor"), description.get("reader")]
        options = [part.get("config") or {} for part in parts if part]
        prompts = {config.get(name) for config in options for name in ("prompt", "closed_book_prompt", "prompts")} - {None, "published"}
        results["prompt"] = ", ".join(sorted(map(str, prompts))) or None
        if base.name == "corpus" and base.retriever is None:
            results["retriever"] = _shown(description["method"])
        results["k"] = description.get("k")
        if description.get("reader"):
            results["reader"] = _shown(description["reader"])
            # A whole system has no reader and may compress inside; a pipeline without a compressor does not.
            results["cr"] = None if description.get("compressor") else "1"
    return {key: str(value) for key, value in results.items() if value is not None}


def _named(name: str, description: Mapping[str, Any]) -> dict[str, str]:
    """Parse the compression from a row's name: `PISCO 16x`, `CLaRa-Mistral-7B 16x instruction`; empty for text."""
    match = NAMED.search(name)
    if match is None or (description.get("reader") and not description.get("compressor")):
        return {}
    return {key: value for key, value in match.groupdict().items() if value}


def _styles_of(dataset: str) -> dict[str, str]:
    """Return the style that is mixed with the formal one, and the share of formal passages, if any."""
    options = dict(part.split("=", 1) for part in variant_of(dataset)[1:])
    shares = {style: float(share) for style, share in options.items() if style not in ("by", "seed", "draw")}
    others = {style: share for style, share in shares.items() if style != FORMAL}
    if not others:
        return {"style": FORMAL} if shares else {}
    formal = 1 - sum(others.values())
    return {"style": "+".join(sorted(others)), **({"formal": f"{formal:.4g}"} if formal > 1e-9 else {})}


@cache
def _index() -> dict[tuple[str, str], list[Figure]]:
    """Index figures of methods that exist in ragmeter, by dataset name and bare metric."""
    results: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures():
        if figure.id:
            results.setdefault((DataReference.parse(figure.dataset).name, _bare(figure.metric)), []).append(figure)
    return results


def _about(dataset: str, metric: str) -> list[Figure]:
    return _index().get((dataset, metric), [])


def _bare(metric: str) -> str:
    """Return a metric's name with its k, without other parameters, which must be equal for any comparison."""
    match = METRIC.fullmatch(metric)
    return metric if match is None else match["name"] + (f"@{match['k']}" if match["k"] else "")


def _parameters(metric: str) -> dict[str, str]:
    match = METRIC.fullmatch(metric)
    return options_of((match["parameters"] if match else None) or "")


def _is(identity: str, method: str | Mapping[str, Any]) -> bool:
    """Return whether a method of ragmeter is the one with a figure's id."""
    match = IDENTITY.fullmatch(identity)
    assert match  # `_check` saw to it
    options = options_of(match["options"] or "")
    if isinstance(method, str):
        own = IDENTITY.fullmatch(method)
        return own is not None and own["name"] == match["name"] and options_of(own["options"] or "") == options
    return any(
        part["id"] == match["name"] and all(same(value, str((part.get("config") or {}).get(name))) for name, value in options.items())
        for part in _subjects(method)
    )


def _subjects(description: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts that a figure about the run may describe: its compressor, else its last reranker, else the method and its reader."""
    parts = [part for part in (description.get("compressor"), *reversed(description.get("rerankers") or ())) if part]
    return parts[:1] or [part for part in (description["method"], description.get("reader")) if part]


def _shown(part: Mapping[str, Any]) -> str:
    """Name a part by its model, else by its id."""
    model = (part.get("config") or {}).get("model")
    return str(model or part["id"]).rstrip("/").rpartition("/")[2].lower()


def _missing(*values: float) -> bool:
    return any(value != value for value in values)


HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")
CSV_COLUMNS = (
    "dataset", "setting", "method", "run_metric", "value", "low", "high", "n", "published", "gap", "status", "differs",
    "paper", "table", "published_method", "published_setting", "printed", "unit", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """Row of the comparison table: one cell of a board with one published figure."""

    board: Board
    method: str
    metric: str
    comparison: Comparison

    @property
    def cells(self) -> list[str]:
        """Return the row's table cells, in the order of `HEADS`; numbers have as many digits as the printed one."""
        result, figure, ours = self.comparison, self.comparison.figure, self.comparison.ours
        printed = figure.value if figure.unit == "percent" or figure.fraction is None else f"{100 * figure.fraction:.1f}"
        return [
            self.method,
            self.metric,
            tables.plus_minus(ours.value, ours.low, ours.high) if ours and ours.n else "–",
            printed,
            "–" if result.gap is None else tables.minus(f"{100 * result.gap:+.1f}"),
            result.status,
            "; ".join(map(str, result.differs)),
            f"{figure.source}: {figure.method}",
        ]

    def tidy(self) -> list[Any]:
        """Return the row as CSV values, in the order of `CSV_COLUMNS`; scores are fractions."""
        result, figure, ours = self.comparison, self.comparison.figure, self.comparison.ours
        return [
            self.board.dataset, self.board.setting, self.method, self.metric,
            *((ours.value, ours.low, ours.high, ours.n) if ours else (None,) * 4),
            figure.fraction, result.gap, result.status, "; ".join(map(str, result.differs)), figure.paper, figure.table,
            figure.method, figure.setting, figure.value, figure.unit, figure.note,
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions."""
        ours = self.comparison.ours
        return {
            "dataset": self.board.dataset,
            "our_setting": self.board.setting,
            "our_method": self.method,
            "metric": self.metric,
            "ours": tables.plain({name: getattr(ours, name) for name in ("value", "low", "high", "n")}) if ours else None,
        } | self.comparison.to_json()


def compare_boards(boards: Iterable[Board]) -> list[Compared]:
    """List every board cell with every published figure of the same method, dataset and metric; the closest setting comes
    first.
    """
    return [
        Compared(board, names[run], metric, comparison)
        for board in boards
        for names in [{row.run.run: row.run.method for row in board.rows}]
        for (run, metric), comparisons in on_board(board).items()
        for comparison in comparisons
    ]


def closest(rows: Iterable[Compared]) -> list[Compared]:
    """Keep, for each board cell and paper, only the figure with the closest setting."""
    first: dict[tuple[Any, ...], Compared] = {}
    for row in rows:
        board = row.board
        key = (board.dataset_fingerprint, board.setting, board.seed, row.method, row.metric, row.comparison.figure.paper)
        first.setdefault(key, row)
    return list(first.values())


def render(rows: Sequence[Compared], form: str) -> str:
    """Render the comparison as one text.

    Args:
        rows: The result of `compare_boards`. LaTeX and Markdown tables show only the closest figure and the keys that differ.
        form: One of `offered.TABLES`.
    """
    if form == "csv":
        return tables.to_csv(CSV_COLUMNS, (row.tidy() for row in rows))
    heads = ("dataset", *HEADS)
    lines = [
        [row.board.dataset, *row.cells[:6], ", ".join(differ.key for differ in row.comparison.differs), row.cells[7]]
        for row in closest(rows)
    ]
    if form == "markdown":
        return tables.to_markdown(heads, [[tables.markdown_text(cell) for cell in line] for line in lines], left=3)
    return tables.to_latex(
        [tables.latex_text(head) for head in heads],
        [[tables.latex_text(cell) for cell in line] for line in lines],
        caption="Comparison with published results",
        notes=[r"Values $\times$ 100 $\pm$ half their 95\,\% interval"],
        left=3,
    )
