"""`styles sensitivity`: how far rerankers are moved when the same candidates are told in another style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from rich.text import Text

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_hash
from benchmarks.registry import Benchmark
from benchmarks.styles.mix import STYLED, styled
from benchmarks.styles.pairs import StylePairs, load_pairs
from methods.registry import METHODS, Component
from methods.sark.sensitivity import Sensitivity, ToldTwice, sensitivity, told_twice
from ragmeter import experiment
from ragmeter.commands.styles import Asked
from ragmeter.console import emit, listing, out
from ragmeter.experiment import MethodPlan
from ragmeter.given_options import refusal, settings
from ragmeter.progress import CountingProgress
from results import store_folder
from results.plain import plain
from results.statistics import Estimate, estimates
from results.store import Store

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
