"""`styles drops`, `curve` and `sensitivity`: what style costs methods, and how far rerankers are moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import content_hash
from benchmarks.registry import Benchmark
from benchmarks.styles.mix import STYLED, styled
from benchmarks.styles.pairs import StylePairs, load_pairs
from methods.registry import METHODS, Component
from methods.sark.reranker import Sensitivity, ToldTwice, sensitivity, told_twice
from ragmeter import experiment
from ragmeter.cli.commands.results import metric_list
from ragmeter.cli.commands.styles import Asked
from ragmeter.console import emit, listing, offering_score, out
from ragmeter.experiment import MethodPlan
from ragmeter.runner.progress import CountingProgress
from ragmeter.runner.rewriting import refusal, settings
from results import queries, store_folder
from results.statistics.core import Difference, Estimate
from results.statistics.intervals import estimates
from results.store import Store
from results.style import CurveTable, Drop, DropTable, MethodDrops, style_curves, style_drops
from results.tables import labels, plain, plus_minus, stars

ABSENT = "–"
OVER = ("mix", "k")


def drops(
    experiment: str | None,
    metrics: str | None,
    styles: Sequence[str],
    over_seeds: bool,
    reference: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Print per method what each style costs."""
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    with offering_score():
        found = style_drops(store, name, metric_list(metrics), styles=list(styles) or None, over_seeds=over_seeds, reference=reference)
    if reference is not None and all(table.reference is None for table in found):
        methods = {row.method for table in found for row in table.rows}
        raise unknown_name("method", reference, sorted(methods), where="--reference")
    emit({"experiment": name, "tables": [_drops_json(table) for table in found]}, as_json, lambda: _show_drops(found))


def _show_drops(tables: Sequence[DropTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(f"{heads[table.metric]}", style="bold") + Text(f"  {table.base}, setting {table.setting}"))
        average = [("(mean drop)", name, "", f"{table.scale * value:+.1f}", *[""] * 7) for name, value in table.average.items()]
        listing(
            (
                "method",
                "style",
                "formal",
                "drop",
                "beyond",
                "relative",
                "p",
                "answers kept",
                "content lost",
                "of which content",
                "where it survived",
            ),
            [*(_drop_line(table, row, drop) for row in table.rows for drop in row.drops), *average],
            empty="no method was scored on this metric",
            keys=2,
        )
        out.print()
    notes = [
        "values × 100 ± half their 95 % interval; drop: formal minus style, paired by question; p by sign flips, Holm "
        "over a method's styles",
        "beyond: how much larger that drop is than the reference's, question by question; * p < .05, ** p < .01 (sign "
        "flips, Holm over the methods)",
        "answers kept: passages (%) with a gold string that still have one, a mean over questions; content lost: "
        "questions (%) whose evidence has none left or, where no evidence is known, of which a candidate lost it; "
        "of which content: the part of the drop on these; where it survived: the drop over the others alone",
    ]
    rows = [(row, drop) for table in tables for row in table.rows for drop in row.drops]
    doubts = {drop.found.drop.doubt for _, drop in rows if drop.found.drop.doubt}
    if doubts:
        more = f" (and {len(doubts) - 1} more reasons: --json)" if len(doubts) > 1 else ""
        notes.append(f"† {min(doubts)}{more}")
    if not all(drop.content_known for _, drop in rows):
        notes.append("– under content: these questions were stored before ragmeter kept what retelling lost")
    for note in notes:
        out.print(Text(note, style="dim"))


def _drop_line(table: DropTable, row: MethodDrops, drop: Drop) -> tuple[str, ...]:
    found, scale = drop.found, table.scale
    # Of the questions scored in both, so that formal minus drop is the value in the style.
    content = [ABSENT] * 4
    if drop.content_known:
        kept = drop.answers_kept.value
        content = [
            ABSENT if math.isnan(kept) else f"{100 * kept:.1f}",
            f"{100 * found.content_lost.value:.1f}",
            _signed(found.from_content, scale),
            _signed(found.drop_where_survived, scale),
        ]
    relative = ABSENT if math.isnan(drop.relative) else f"{100 * drop.relative:+.1f} %"
    return (
        row.method + (" (control)" if row.kind == "control" else ""),
        drop.told.name,
        plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=scale),
        _signed(found.drop, scale) + ("†" if found.drop.doubt else ""),
        _beyond(drop, scale),
        relative,
        ABSENT if math.isnan(found.p_holm) else f"{found.p_holm:.3f}",
        *content,
    )


def _beyond(drop: Drop, scale: float) -> str:
    """How much larger a drop is than the reference's, with the stars of tables."""
    if drop.beyond is None:
        return ABSENT
    return _signed(drop.beyond, scale) + stars(drop.beyond_p) + ("†" if drop.beyond.doubt else "")


def _signed(one: Estimate | Difference, scale: float) -> str:
    return ABSENT if math.isnan(one.value) else plus_minus(one.value, one.low, one.high, "{:+.1f}", scale)


def _drops_json(table: DropTable) -> dict[str, Any]:
    return {
        "base": table.base,
        "setting": table.setting,
        "seed": table.seed,
        "metric": table.metric,
        "mean_drop": table.average,
        "reference": table.reference,
        "methods": [
            {"method": row.method, "kind": row.kind, "formal": _number(row.formal), "styles": [_drop_json(drop) for drop in row.drops]}
            for row in table.rows
        ],
    }


def _drop_json(drop: Drop) -> dict[str, Any]:
    found = drop.found
    parts = {
        "answers_kept": _number(drop.answers_kept),
        "content_lost": _number(found.content_lost),
        "from_content": _number(found.from_content),
        "from_style": _number(found.from_style),
        "drop_where_survived": _number(found.drop_where_survived),
    }
    return {
        "style": drop.told.name,
        "formal_share": drop.told.formal,
        "drawn": drop.told.drawn,
        "value": _number(drop.value),
        "drop": _number(found.drop) | {"p_holm": plain(found.p_holm)},
        "relative_drop": plain(drop.relative),
        "beyond_reference": None if drop.beyond is None else _number(drop.beyond) | {"p_holm": plain(drop.beyond_p)},
        **(parts if drop.content_known else dict.fromkeys(parts)),
    }


def _number(one: Estimate | Difference) -> dict[str, Any]:
    value = {"value": plain(one.value), "low": plain(one.low), "high": plain(one.high), "n": one.n, "doubt": one.doubt}
    if isinstance(one, Difference):
        value |= {"p": plain(one.p), "wins": one.wins, "ties": one.ties, "losses": one.losses}
    return value


# -- curves --------------------------------------------------------------------------------------------------------


def curve(experiment: str | None, over: str, metrics: str | None, over_seeds: bool, folder: Path | None, as_json: bool) -> None:
    """Print methods against shares of formal candidates, or against k."""
    if over not in OVER:
        raise unknown_name("curve", over, OVER, where="--over")
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    found = style_curves(store, name, "formal" if over == "mix" else "k", metric_list(metrics), over_seeds=over_seeds)
    emit({"experiment": name, "curves": [_curve_json(table) for table in found]}, as_json, lambda: _show_curves(found))


def _show_curves(tables: Sequence[CurveTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(heads[table.metric], style="bold") + Text(f"  {table.title}"))
        places = [f"{100 * x:g} % formal" if table.over == "formal" else f"K={x:g}" for x in table.places]
        lines = []
        for one in table.curves:
            cells = [one.points.get(x) for x in table.places]
            values = [
                ABSENT if cell is None or math.isnan(cell.value) else plus_minus(cell.value, cell.low, cell.high, scale=table.scale)
                for cell in cells
            ]
            lines.append((one.method, *values, _signed(one.change, table.scale)))
        listing(("method", *places, "change"), lines, empty="no method was scored on this metric", keys=1)
        out.print()
    note = "values × 100 ± half their 95 % interval; change: the last minus the first of a line, paired by question"
    out.print(Text(note, style="dim"))


def _curve_json(table: CurveTable) -> dict[str, Any]:
    return {
        "over": table.over,
        "title": table.title,
        "metric": table.metric,
        "methods": [
            {"method": one.method, "points": [{"x": x, **_number(value)} for x, value in one.points.items()], "change": _number(one.change)}
            for one in table.curves
        ],
    }


# -- `styles sensitivity`: how far rerankers are moved when the same candidates are told in another style --


MEASURES = ("tau", "shift", "relative_shift", "signed_shift")
"""What is measured, as `Sensitivity` names it."""


@dataclass(frozen=True)
class Named:
    """Which rerankers are meant, as the command line says it."""

    rerankers: tuple[str, ...]
    options: tuple[str, ...]
    experiment: str | None
    profile: str | None


@dataclass(frozen=True)
class Row:
    """One reranker in one style: by measure, the mean over questions."""

    reranker: str
    style: str
    measures: dict[str, Estimate]


def show_sensitivity(
    asked: Asked, named: Named, styles: Sequence[str], pairs: Path | None, folder: Path | None, as_json: bool, quiet: bool
) -> None:
    """Print Kendall's τ and the shift of scores for each reranker and style."""
    store = Store(store_folder(folder))
    rerankers = _rerankers(named, store_folder(folder))
    for component in rerankers.values():
        component.preflight()
    talk = not (quiet or as_json)
    services = asked.services(store)
    benchmark = asked.load(services, talk)
    source = _source(benchmark, pairs)
    twice = {}
    for style in styles:
        mixed = styled(benchmark, source, {style: 1.0}, seed=asked.seed)
        twice[style] = told_twice(mixed, style), mixed.extra[STYLED]
    rows = []
    for name, component in rerankers.items():
        reranker = component.build(services)
        for style, (questions, _) in twice.items():
            with CountingProgress(f"{name}, {style}", quiet=not talk) as progress:
                found = sensitivity(reranker, questions, progress.reached)
            rows.append(Row(name, style, _measured(found, questions)))
    made = {style: {key: how[key] for key in ("base", "rewriter", "by", "pairs")} for style, (_, how) in twice.items()}
    value = {"benchmark": benchmark.name, "texts": made, "rerankers": [_json(row) for row in rows]}
    emit(value, as_json, lambda: _show(benchmark, made, rows))


def _source(benchmark: Benchmark, pairs: Path | None) -> StylePairs | None:
    """Pairs of a file, else parallel texts that the benchmark brings, else None: fixed rules."""
    if pairs is not None:
        return load_pairs(pairs)
    own = benchmark.extra.get("pairs")
    return StylePairs(own) if own else None


def _rerankers(named: Named, store: Path) -> dict[str, Component]:
    """Rerankers by name: those named, and those of an experiment's methods, each once.

    Raises:
        UserError: None is named, one is unknown, or an option is not right.
    """
    found: dict[str, Component] = {}
    if named.options and len(named.rerankers) != 1:
        raise UserError("--set is an option of one reranker", where="--set", try_this="name one --reranker, or a file")
    for identifier in named.rerankers:
        found[identifier] = _component(identifier, settings(named.options))
    if named.experiment is not None:
        for method in experiment.load(named.experiment, profile=named.profile, store=store).methods:
            if method.composition.rerankers:
                _require_trained(method, named.experiment, store)
                component = method.composition.rerankers[0]
                if component.fingerprint not in {other.fingerprint for other in found.values()}:
                    found[method.name] = component
    if not found:
        raise UserError(
            "no reranker is named" if named.experiment is None else "no method of this experiment reranks",
            where=named.experiment,
            try_this="--reranker ID, or --experiment NAME: `ragmeter methods --kind reranker`",
        )
    return found


def _require_trained(method: MethodPlan, name: str, store: Path) -> None:
    for plan in method.needs:
        if plan.stages[-1] not in plan.trained(store):
            raise UserError(
                f"{method.name!r} needs the training {plan.name!r}, which is not done", where=plan.where, try_this=f"ragmeter run {name}"
            )


def _component(identifier: str, options: dict[str, Any]) -> Component:
    entry = METHODS.get(identifier, where="--reranker")
    if entry.kind != "reranker":
        raise UserError(
            f"{identifier!r} is a {entry.kind}, not a reranker",
            where="--reranker",
            try_this="`ragmeter methods --kind reranker` lists what fits",
        )
    try:
        return Component(entry, entry.validate(options))
    except ValidationError as error:
        raise refusal(error, identifier, entry.config) from None


def _measured(found: Sensitivity, asked: Sequence[ToldTwice]) -> dict[str, Estimate]:
    # Questions over the same candidates (verses of one chapter) are one observation of style, not many.
    shared = [content_hash(passage.id for passage in one.formal) for one in asked]
    clusters = shared if len(set(shared)) < len(shared) else None
    columns = np.stack([getattr(found, measure) for measure in MEASURES])
    return dict(zip(MEASURES, estimates(columns, clusters=clusters), strict=True))


def _json(row: Row) -> dict[str, Any]:
    return {
        "reranker": row.reranker,
        "style": row.style,
        **{
            measure: {
                "value": plain(one.value),
                "low": plain(one.low),
                "high": plain(one.high),
                "n": one.n,
                "units": one.units,
                "doubt": one.doubt,
            }
            for measure, one in row.measures.items()
        },
    }


def _show(benchmark: Benchmark, made: dict[str, Any], rows: Sequence[Row]) -> None:
    for style, how in made.items():
        by = ", ".join(filter(None, how["by"])) or how["rewriter"]
        out.print(Text(f"{benchmark.name}, formal against {style}, told by {by}"))
    heads = ("reranker", "style", "Kendall's τ", "mean |Δz|", "|Δz| / s", "mean Δz", "questions")
    lines = [(row.reranker, row.style, *(_shown(row.measures[measure]) for measure in MEASURES), row.measures["tau"].n) for row in rows]
    listing(heads, lines, empty="nothing was measured", keys=2)
    note = "± half the 95 % interval; τ of the orders of the same candidates in both styles: 1, style moves nothing; s: "
    note += "standard deviation of a question's scores, so that rerankers of other units can be compared"
    out.print(Text(note, style="dim"))


def _shown(one: Estimate) -> str:
    if np.isnan(one.value):
        return "–"
    doubt = "†" if one.doubt else ""
    return f"{one.value:.3f}" + ("" if np.isnan(one.low) else f" ± {(one.high - one.low) / 2:.3f}") + doubt
