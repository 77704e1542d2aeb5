"""Compare results with the papers' published figures: value, gap, and whether it is reproduced.

A published figure is compared with ours only if everything that the paper says about its setting holds for ours too;
otherwise the comparison lists the keys that differ, and decides nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from benchmarks.registry import DataReference
from benchmarks.settings import Setting
from benchmarks.styles import FORMAL
from results.boards.board import Board
from results.boards.matrix import Matrix
from results.boards.paper_figures import IDENTITY, METRIC, Figure, figures, options_of, same
from results.statistics.core import Estimate
from results.store.variants import questions_of, variant_of

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
    about = [
        figure
        for figure in _about(reference.name, _bare(metric))
        if DataReference.parse(figure.dataset).subset in (None, reference.subset) and figure.fraction is not None and _is(figure.id, method)
    ]
    if not about:
        return []
    conditions = {**conditions_of_ours(dataset, setting, description), **conditions, **(facts or {})}
    results = [compare(figure, estimate, conditions, metric=metric) for figure in about]
    once: dict[tuple[str, ...], Comparison] = {}
    for item in results:  # main tables are printed again, with more rows, in the appendices
        once.setdefault((item.figure.paper, item.figure.method, item.figure.setting, item.figure.value), item)
    return sorted(once.values(), key=lambda item: len(item.differs))


_POOLS = re.compile(r"(?P<kind>inst|e2e)_eval_(?P<data>\w+?)_(?P<pool>no_pos|with_pos)")
"""Subsets of `clara_stages`: the files that CLaRa's tables were computed from."""
_OF_CLARA = {"2wiki": "2wikimultihopqa"}
_NAMED = re.compile(r"\b(?P<cr>\d+)x\b(?: (?P<init>pretraining|instruction)\b)?")
"""Pattern of a row's name with a compression ratio."""
_POOLED = {"no_pos": "normal", "with_pos": "oracle"}
_DOCUMENTS = {"inst": "5", "e2e": "20"}


def _asked(dataset: str, setting: str) -> tuple[DataReference, dict[str, str]]:
    """Return the dataset of the questions, by the papers' name, and facts about its candidates, by the keys of `KEYS`."""
    reference = questions_of(dataset)
    match = _POOLS.fullmatch(reference.subset or "") if reference.name == "clara_stages" else None
    if match is None or setting != "distractor":
        return reference, {}
    known = {
        "retrieval": _POOLED[match["pool"]],
        "n": _DOCUMENTS[match["kind"]],
        "retriever": "bge-large-en-v1.5",
        "corpus": "wikipedia-2021",
    }
    return DataReference(_OF_CLARA.get(match["data"], match["data"]), None, "dev"), {**known, "split": "dev"}


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


def closest(board: Matrix) -> dict[tuple[str, str], Comparison]:
    """Look up the published figure with the closest setting for every cell of a matrix, by (column key, run id)."""
    results = {}
    for column in board.columns:
        first = column.first
        if column.metric is None or not _about(_asked(first.dataset, first.setting)[0].name, _bare(column.metric)):
            continue
        for row in board.rows:
            cell = board.cells.get((row.key, column.key))
            if cell is None or math.isnan(cell.value):
                continue
            run, ours = cell.run, Estimate(cell.value, cell.low, cell.high, cell.n, 0)
            facts = _named(run.method, run.description) | {"questions": str(board.questions[column.key])}
            figures = published_for(run.dataset, run.setting, column.metric, run.description, estimate=ours, facts=facts)
            if figures:
                results[column.key, run.run] = figures[0].as_undecided() if cell.apart or run.positive_control else figures[0]
    return results


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
    match = _NAMED.search(name)
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
    assert match  # `paper_figures.read` saw to it
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
