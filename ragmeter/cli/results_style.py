"""`ragmeter results style`: what style costs methods, values against shares and depth, how far rerankers are moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from ragmeter.cli import completion, options
from ragmeter.cli.options import App, Common, MetricOption, OverSeedsOption, ReferenceOption, StoredExperiment, option
from ragmeter.show.console import err, listing, offering_score, out

if TYPE_CHECKING:
    from methods.registry import Component
    from results.boards.style import GapTable
    from results.statistics.core import Estimate

app = App(default="gap", help="Style: its cost for methods, and its effect on rerankers.")

OVER = {"mix": "formal", "k": "k"}
"""Possible x-axes of a curve, with their names in `results.boards.style`."""


@app.command()
def gap(
    common: Common,
    experiment: StoredExperiment = None,
    metric: MetricOption = None,
    styles: Annotated[list[str] | None, option("Methods to show; repeatable.", "--style")] = None,
    over_seeds: OverSeedsOption = False,
    reference: ReferenceOption = None,
) -> None:
    """Show the cost of each style per method, paired by question; content loss is separated from style loss."""
    from ragmeter.show.style_text import show_gaps
    from results.boards.style import NotStyled, style_gaps
    from results.store import queries

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
    common.emit(value, lambda: show_gaps(results) if results else err.print(Text(nothing), soft_wrap=True))


@app.command()
def curve(
    common: Common,
    experiment: StoredExperiment = None,
    over: Annotated[str, option("mix: share of formal candidates; k: passages read.", completes=completion.offer_words(*OVER))] = "mix",
    metric: MetricOption = None,
    over_seeds: OverSeedsOption = False,
) -> None:
    """Show methods by the share of formal candidates, or by the number of passages read."""
    from ragmeter.show.style_text import show_curves
    from results.boards.style import style_curves
    from results.store import queries

    if over not in OVER:
        raise unknown_name("curve", over, OVER, where="--over")
    store = common.store
    name = queries.experiment(store, experiment).name
    with offering_score():
        results = style_curves(store, name, "formal" if over == "mix" else "k", metric, over_seeds=over_seeds)
    common.emit({"experiment": name, "curves": [table.to_json() for table in results]}, lambda: show_curves(results))


@app.command(offline=True)
def sensitivity(
    reference: options.DataReference,
    common: Common,
    rerankers: Annotated[
        list[str] | None, option("Reranker; repeatable.", "--reranker", metavar="ID", completes=completion.methods)
    ] = None,
    experiment: Annotated[
        str | None, option("Experiment whose rerankers are measured.", metavar="FILE|NAME", completes=completion.experiments)
    ] = None,
    profile: options.ProfileOption = None,
    styles: Annotated[list[str] | None, option("Style; repeatable. [default: informal]", "--style")] = None,
    pairs: Annotated[
        Path | None, option("File of style pairs (default: the benchmark's texts, else fixed rules).", metavar="PAIRS")
    ] = None,
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    seed: options.SeedOption = 0,
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, option("Benchmark option; for a single reranker: reranker.KEY=VALUE", "--set", metavar="KEY=VALUE")
    ] = None,
    device: options.DeviceOption = None,
) -> None:
    """Show how much rerankers' scores change if the same candidates are in another style; needs no gold."""
    from benchmarks.styles import STYLED
    from benchmarks.styles.mix import styled
    from benchmarks.styles.pairs import StylePairs, load_pairs
    from methods.sark.reranker import in_both_styles
    from methods.sark.reranker import sensitivity as measure
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner.progress import CountingProgress
    from results.boards.markup import plain
    from results.boards.style import MEASURES, sensitivity_estimates

    value = given_options(config, settings)
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
            measures = {measure: getattr(result, measure) for measure in MEASURES}
            candidates = [[passage.id for passage in question.formal] for question in questions]
            rows.append((name, style, sensitivity_estimates(measures, candidates)))
    measured = [{"reranker": name, "style": style} | {key: plain(asdict(item)) for key, item in of.items()} for name, style, of in rows]

    def show() -> None:
        for style, how in made.items():
            by = ", ".join(filter(None, how["by"])) or how["rewriter"]
            out.print(Text(f"{benchmark.name}, formal against {style}, written by {by}"))
        lines = [(name, style, *(_show_estimate(of[key]) for key in MEASURES), of["tau"].n) for name, style, of in rows]
        heads = ("reranker", "style", "Kendall's τ", "mean |Δz|", "|Δz| / s", "mean Δz", "questions")
        listing(heads, lines, empty="nothing was measured", keys=2)
        note = (
            "± half the 95 % interval, or [low, high]; τ of the orders of the same candidates in both styles: 1, style moves nothing; s: "
        )
        note += "standard deviation of a question's scores, so that rerankers of other units can be compared"
        out.print(Text(note, style="dim"))

    common.emit({"benchmark": benchmark.name, "texts": made, "rerankers": measured}, show)


def _rerankers(names: Sequence[str], value: Any, experiment: str | None, profile: str | None, folder: Path) -> dict[str, Component]:
    """Return rerankers by name: the named ones, and those of an experiment's methods, each once."""
    from ragmeter import experiment as experiments

    if value and (len(names) != 1 or not isinstance(value, Mapping)):
        what = "reranker.KEY=VALUE is an option of one reranker"
        raise UserError(
            what,
            code="unsuitable-style-reranker",
            where="--set",
            try_this="name one --reranker, or describe them in a file: --experiment FILE",
        )
    results = {name: _reranker(name, value) for name in names}
    if experiment is not None:
        for method in experiments.load(experiment, profile=profile, store=folder).methods:
            for plan in method.needs if method.composition.rerankers else ():
                if plan.stages[-1] not in plan.trained(folder):
                    what = f"{method.name!r} needs the training {plan.name!r}, which is not done"
                    raise UserError(what, code="unsuitable-style-reranker", where=plan.where, try_this=f"ragmeter run {experiment}")
            for component in method.composition.rerankers[:1]:
                if component.fingerprint not in {other.fingerprint for other in results.values()}:
                    results[method.name] = component
    if not results:
        raise UserError(
            "no reranker is named" if experiment is None else "no method of this experiment reranks",
            code="no-reranker",
            where=experiment,
            try_this="--reranker ID, or --experiment NAME: `ragmeter list methods --kind reranker`",
        )
    return results


def _reranker(name: str, settings: Mapping[str, Any]) -> Component:
    from methods.registry import METHODS, Component
    from ragmeter.runner.rewriting import options_of

    entry = METHODS.get(name, where="--reranker")
    if entry.kind != "reranker":
        hint = "`ragmeter list methods --kind reranker` lists what fits"
        raise UserError(f"{name!r} is a {entry.kind}, not a reranker", code="not-reranker", where="--reranker", try_this=hint)
    with options_of(name, entry.config, "reranker."):
        return Component(entry, entry.validate(settings))


def _show_estimate(item: Estimate) -> str:
    from ragmeter.show.style_text import ABSENT

    if math.isnan(item.value):
        return ABSENT
    return f"{item.value:.3f}" + ("" if math.isnan(item.low) else f" ± {(item.high - item.low) / 2:.3f}")
