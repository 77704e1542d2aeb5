"""`ragmeter results style`: what style costs methods, values against shares and depth, how far rerankers are moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError
from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.styles.mix import STYLED, styled
from benchmarks.styles.pairs import StylePairs, load_pairs
from methods.registry import METHODS, Component
from ragmeter import experiment as experiments
from ragmeter.cli import completion, options
from ragmeter.cli.options import App, Common, MetricOption, OverSeedsOption, ReferenceOption, StoredExperiment, option
from ragmeter.console import err, listing, offering_score, out
from results import queries
from results.statistics.core import Difference, Estimate
from results.style import MEASURES, CurveTable, Gap, GapTable, MethodGaps, NotStyled, sensitivity_estimates, style_curves, style_gaps
from results.tables import labels, plain, plus_minus, stars

app = App(default="gap", help="Style: what it costs methods, and how far it moves rerankers.")

ABSENT = "–"
OVER = {"mix": "formal", "k": "k"}
"""What a curve may be over, as `results.style` calls it."""


@app.command()
def gap(
    common: Common,
    experiment: StoredExperiment = None,
    metric: MetricOption = None,
    styles: Annotated[list[str] | None, option("Only these; may be repeated.", "--style")] = None,
    over_seeds: OverSeedsOption = False,
    reference: ReferenceOption = None,
) -> None:
    """What each style costs each method, paired by question; loss of content apart from loss to style."""
    store = common.store
    name: str | None = None
    results: list[GapTable] = []
    nothing = f"no experiment is stored in {store.folder} yet: ragmeter run FILE"
    if experiment or (store.database.exists and queries.experiments(store)):
        name = queries.experiment(store, experiment).name
        try:
            with offering_score():
                results = style_gaps(store, name, metric, styles=styles or None, over_seeds=over_seeds, reference=reference)
        except NotStyled as error:
            if experiment or metric or styles or reference:
                raise
            nothing = f"{error.what}: {error.try_this}"
    if results and reference is not None and all(table.reference is None for table in results):
        raise unknown_name("method", reference, {row.method for table in results for row in table.rows}, where="--reference")
    value = {"experiment": name, "tables": [table.to_json() for table in results]}
    common.emit(value, lambda: _show_gaps(results) if results else err.print(Text(nothing), soft_wrap=True))


_HEADS = (
    "method", "style", "formal", "gap", "beyond", "relative", "p", "answers kept", "content lost", "of which content",
    "where it survived",
)  # fmt: skip
_NOTES = (
    "values × 100 ± half their 95 % interval; gap: formal minus style, paired by question; p by sign flips, Holm over a method's styles",
    "beyond: how much larger that gap is than the reference's, question by question; * p < .05, ** p < .01 (sign flips, Holm over the "
    "methods)",
    "answers kept: passages (%) with a gold string that still have one, a mean over questions; content lost: questions (%) whose "
    "evidence has none left or, where no evidence is known, of which a candidate lost it; of which content: the part of the gap on "
    "these; where it survived: the gap over the others alone",
)


def _show_gaps(tables: Sequence[GapTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(f"{heads[table.metric]}", style="bold") + Text(f"  {table.base}, setting {table.setting}"))
        average = [("(mean gap)", name, "", f"{table.scale * value:+.1f}", *[""] * 7) for name, value in table.average.items()]
        lines = [_gap_line(table, row, gap) for row in table.rows for gap in row.gaps]
        listing(_HEADS, [*lines, *average], empty="no method was scored on this metric", keys=2)
        out.print()
    notes, gaps = list(_NOTES), [gap for table in tables for row in table.rows for gap in row.gaps]
    doubts = {gap.result.gap.doubt for gap in gaps if gap.result.gap.doubt}
    if doubts:
        more = f" (and {len(doubts) - 1} more reasons: --json)" if len(doubts) > 1 else ""
        notes.append(f"† {min(doubts)}{more}")
    if not all(gap.content_known for gap in gaps):
        notes.append("– under content: these questions were stored before ragmeter kept what restyling lost")
    for note in notes:
        out.print(Text(note, style="dim"))


def _gap_line(table: GapTable, row: MethodGaps, gap: Gap) -> tuple[str, ...]:
    result, scale = gap.result, table.scale
    # Of the questions scored in both, so that formal minus gap is the value in the style.
    content = [ABSENT] * 4
    if gap.content_known:
        content = [
            ABSENT if math.isnan(gap.answers_kept.value) else f"{100 * gap.answers_kept.value:.1f}",
            f"{100 * result.content_lost.value:.1f}",
            _signed(result.from_content, scale),
            _signed(result.gap_where_survived, scale),
        ]
    beyond = ABSENT
    if gap.beyond is not None:
        beyond = _signed(gap.beyond, scale) + stars(gap.beyond_p) + ("†" if gap.beyond.doubt else "")
    return (
        row.method + (" (control)" if row.kind == "control" else ""),
        gap.styled.name,
        plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=scale),
        _signed(result.gap, scale) + ("†" if result.gap.doubt else ""),
        beyond,
        ABSENT if math.isnan(gap.relative) else f"{100 * gap.relative:+.1f} %",
        ABSENT if math.isnan(result.p_holm) else f"{result.p_holm:.3f}",
        *content,
    )


def _signed(item: Estimate | Difference, scale: float) -> str:
    return ABSENT if math.isnan(item.value) else plus_minus(item.value, item.low, item.high, "{:+.1f}", scale)


@app.command()
def curve(
    common: Common,
    experiment: StoredExperiment = None,
    over: Annotated[str, option("mix: the share of formal candidates; k: passages read.", completes=completion.words(*OVER))] = "mix",
    metric: MetricOption = None,
    over_seeds: OverSeedsOption = False,
) -> None:
    """Methods against shares of formal candidates, or against the number of passages that are read."""
    if over not in OVER:
        raise unknown_name("curve", over, OVER, where="--over")
    store = common.store
    name = queries.experiment(store, experiment).name
    with offering_score():
        results = style_curves(store, name, "formal" if over == "mix" else "k", metric, over_seeds=over_seeds)
    common.emit({"experiment": name, "curves": [table.to_json() for table in results]}, lambda: _show_curves(results))


def _show_curves(tables: Sequence[CurveTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(heads[table.metric], style="bold") + Text(f"  {table.title}"))
        lines = []
        for item in table.curves:
            cells = [item.points.get(x) for x in table.positions]
            values = [
                ABSENT if cell is None or math.isnan(cell.value) else plus_minus(cell.value, cell.low, cell.high, scale=table.scale)
                for cell in cells
            ]
            lines.append((item.method, *values, _signed(item.change, table.scale)))
        points = [f"{100 * x:g} % formal" if table.over == "formal" else f"K={x:g}" for x in table.positions]
        listing(("method", *points, "change"), lines, empty="no method was scored on this metric", keys=1)
        out.print()
    note = "values × 100 ± half their 95 % interval; change: the last minus the first of a line, paired by question"
    out.print(Text(note, style="dim"))


@app.command(offline=True)
def sensitivity(
    reference: options.DataReference,
    common: Common,
    rerankers: Annotated[
        list[str] | None, option("A reranker; may be repeated.", "--reranker", metavar="ID", completes=completion.methods)
    ] = None,
    experiment: Annotated[
        str | None, option("Whose methods' rerankers are measured.", metavar="FILE|NAME", completes=completion.experiments)
    ] = None,
    profile: options.ProfileOption = None,
    styles: Annotated[list[str] | None, option("May be repeated. [default: informal]", "--style")] = None,
    pairs: Annotated[
        Path | None, option("A file of style pairs; else the benchmark's own texts, else fixed rules.", metavar="PAIRS")
    ] = None,
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    seed: options.SeedOption = 0,
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, option("An option of the benchmark; reranker.KEY=VALUE: of the one reranker.", "--set", metavar="KEY=VALUE")
    ] = None,
    device: options.DeviceOption = None,
) -> None:
    """How far rerankers are moved when the same candidates stand in another style; no gold is needed."""
    from methods.sark.reranker import in_both_styles
    from methods.sark.reranker import sensitivity as measure
    from ragmeter.runner.progress import CountingProgress

    value = options.given_options(config, settings)
    chosen = _rerankers(rerankers or (), value.pop("reranker", {}), experiment, profile, common.store.folder)
    for component in chosen.values():
        component.preflight()
    services = common.services(device, seed)
    benchmark = common.load(reference, value, limit=limit, setting=setting, services=services)
    own = benchmark.extra.get("pairs")
    source = load_pairs(pairs) if pairs else StylePairs(own) if own else None
    both, made = {}, {}
    for style in styles or ("informal",):
        mixed = styled(benchmark, source, {style: 1.0}, seed=seed)
        both[style] = in_both_styles(mixed, style)
        made[style] = {key: mixed.extra[STYLED][key] for key in ("base", "rewriter", "by", "pairs")}
    rows = []
    for name, component in chosen.items():
        reranker = component.build(services)
        for style, questions in both.items():
            with CountingProgress(f"{name}, {style}", quiet=not common.talk) as progress:
                result = measure(reranker, questions, progress.reached)
            rows.append((name, style, sensitivity_estimates(result, questions)))
    measured = [{"reranker": name, "style": style} | {key: plain(asdict(item)) for key, item in of.items()} for name, style, of in rows]

    def show() -> None:
        for style, how in made.items():
            by = ", ".join(filter(None, how["by"])) or how["rewriter"]
            out.print(Text(f"{benchmark.name}, formal against {style}, written by {by}"))
        lines = [(name, style, *(_shown(of[key]) for key in MEASURES), of["tau"].n) for name, style, of in rows]
        heads = ("reranker", "style", "Kendall's τ", "mean |Δz|", "|Δz| / s", "mean Δz", "questions")
        listing(heads, lines, empty="nothing was measured", keys=2)
        note = "± half the 95 % interval; τ of the orders of the same candidates in both styles: 1, style moves nothing; s: "
        note += "standard deviation of a question's scores, so that rerankers of other units can be compared"
        out.print(Text(note, style="dim"))

    common.emit({"benchmark": benchmark.name, "texts": made, "rerankers": measured}, show)


def _rerankers(names: Sequence[str], value: Any, experiment: str | None, profile: str | None, folder: Path) -> dict[str, Component]:
    """Rerankers by name: those named, and those of an experiment's methods, each once."""
    if value and (len(names) != 1 or not isinstance(value, Mapping)):
        what = "reranker.KEY=VALUE is an option of one reranker"
        raise UserError(what, where="--set", try_this="name one --reranker, or describe them in a file: --experiment FILE")
    results = {name: _reranker(name, value) for name in names}
    if experiment is not None:
        for method in experiments.load(experiment, profile=profile, store=folder).methods:
            for plan in method.needs if method.composition.rerankers else ():
                if plan.stages[-1] not in plan.trained(folder):
                    what = f"{method.name!r} needs the training {plan.name!r}, which is not done"
                    raise UserError(what, where=plan.where, try_this=f"ragmeter run {experiment}")
            for component in method.composition.rerankers[:1]:
                if component.fingerprint not in {other.fingerprint for other in results.values()}:
                    results[method.name] = component
    if not results:
        raise UserError(
            "no reranker is named" if experiment is None else "no method of this experiment reranks",
            where=experiment,
            try_this="--reranker ID, or --experiment NAME: `ragmeter list methods --kind reranker`",
        )
    return results


def _reranker(name: str, settings: Mapping[str, Any]) -> Component:
    entry = METHODS.get(name, where="--reranker")
    if entry.kind != "reranker":
        hint = "`ragmeter list methods --kind reranker` lists what fits"
        raise UserError(f"{name!r} is a {entry.kind}, not a reranker", where="--reranker", try_this=hint)
    try:
        return Component(entry, entry.validate(settings))
    except ValidationError as error:
        from ragmeter.runner.rewriting import refusal

        raise refusal(error, name, entry.config, "reranker.") from None


def _shown(item: Estimate) -> str:
    if math.isnan(item.value):
        return ABSENT
    return f"{item.value:.3f}" + ("" if math.isnan(item.low) else f" ± {(item.high - item.low) / 2:.3f}") + ("†" if item.doubt else "")
