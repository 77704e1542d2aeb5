"""`judge card` and `annotate export|import`: how far a judge can be trusted, in the eyes of people too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.errors import UserError, unwritable
from benchmarks.plurals import counted
from ragmeter.commands.judges import named_runs, stored_judge
from ragmeter.console import emit, err, listing, out
from ragmeter.render import shown_share
from results import labelling, queries, store_folder
from results.judge_cards import Corrected, JudgeCard, judge_card
from results.plain import plain
from results.statistics import Agreement
from results.store import Store


def card(name: str, folder: Path | None, as_json: bool) -> None:
    """Print a judge's card."""
    store = Store(store_folder(folder))
    found = judge_card(store, stored_judge(store, name)["id"])
    methods = {run.run: f"{run.method} on {run.dataset}" for run in queries.runs(store)}
    emit(found.to_json(), as_json, lambda: _show(found, methods))
    if (resting := labelling.standing(store)[1]) and not as_json:
        err.print(Text(f"{resting} labels in this store rest: the answers that they are about are not given now"))


def _show(found: JudgeCard, methods: dict[str, str]) -> None:
    card, work = found.card, found.work
    out.print(Text(str(card["id"]), style="bold") + Text("  " + ("rules, no model" if card["rule"] else card["model"])))
    out.print(Text(str(card["definition"])))
    failed = sum(work.unscored.values())
    facts = {"calls": "none: nothing was asked of a model"}
    if work.calls:
        facts = {
            "calls": f"{work.calls:,}",
            "unusable": f"{failed:,} ({100 * work.failure_rate:.1f} %)",
            "price": f"${work.cost_usd:.4f}" if work.cost_usd else "no price configured",
            "per call": f"{work.seconds:.2f} s, {work.prompt_tokens:.0f} + {work.completion_tokens:.0f} tokens",
            "models": ", ".join(f"{model} ({number:,})" for model, number in work.models.items() if model) or "–",
        }
    listing(("", ""), facts.items(), empty="")
    if work.unscored:
        out.print()
        listing(("calls", "not scored because"), [(f"{n:,}", reason) for reason, n in work.unscored.items()], empty="")
    out.print()
    listing(("habit", "by", "× 100", "n", ""), list(_habits(found)), empty="nothing was asked twice")
    out.print()
    listing(
        ("by", "agreement", "equal", "kappa", "items"),
        list(_agreements(found)),
        empty="no other judge and no person has judged the same: ragmeter annotate export",
    )
    if found.corrected:
        out.print()
        rows = [_corrected(one, methods) for one in found.corrected]
        listing(("run", "measure", "judged", "corrected by people", "people alone", "labels", "worth"), rows, empty="")
        out.print(
            Text(
                "corrected: prediction-powered mean; right only if the labelled items were drawn at random, as "
                "`annotate export` draws them",
                style="dim",
            )
        )


def _habits(found: JudgeCard) -> Iterable[tuple[str, ...]]:
    for by, one in found.repetitions.items():
        if one.pairs:
            yield "differs when asked again", by, shown_share(one.differing), f"{one.pairs:,}", ""
    for by, flips in found.flips.items():
        if flips.n:
            yield "the two orders disagree", by, shown_share(flips), f"{flips.n:,}", ""
    for by, first in found.first_shown.items():
        if first.n:
            yield "first shown wins (fair: 50)", by, shown_share(first), f"{first.n:,}", ""
    for by, longer in found.longer.items():
        if longer.decided:
            doubling = f"{longer.per_doubling.value:+.2f} log-odds per doubling"
            yield "the longer answer wins", by, shown_share(longer.longer_wins), f"{longer.decided:,}", doubling


def _agreements(found: JudgeCard) -> Iterable[tuple[str, ...]]:
    for by, judges in found.with_judges.items():
        yield from (_agreement(f"with {name}", by, one) for name, one in judges.items())
    for by, people in found.with_people.items():
        yield from (_agreement(f"with {name} (person)", by, one) for name, one in people.items())
    yield from (_agreement("between people (alpha)", by, one) for by, one in found.between_people.items())


def _agreement(who: str, by: str, one: Agreement) -> tuple[str, ...]:
    return by, who, shown_share(one.raw), shown_share(one.corrected), str(one.raw.n)


def _corrected(one: Corrected, methods: dict[str, str]) -> tuple[str, ...]:
    mean = one.mean
    worth = "–" if math.isinf(mean.worth) else f"{mean.worth:.0f}"
    return (
        methods.get(one.run, one.run[:8]),
        one.measure,
        f"{100 * mean.judged:.1f}",
        shown_share(mean.corrected),
        shown_share(mean.labelled),
        str(mean.corrected.n),
        worth,
    )


def export_items(
    file: Path,
    criterion: str,
    names: Sequence[str],
    experiment: str | None,
    number: int,
    pairs: bool,
    seed: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Write items to label."""
    store = Store(store_folder(folder))
    runs, _ = named_runs(store, names, experiment)
    if not names:
        runs = [run for run in runs if run.kind != "control"]  # people's time is dear
    if file.exists():
        raise UserError("this file is there already", where=str(file), try_this="name another: labels may be in it")
    text = labelling.export_items(store, runs, criterion, number, pairs=pairs, seed=seed)
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(error, file) from None
    words = labelling.PAIR_LABELS if pairs else (*labelling.VALUES, "a number from 0 to 1")
    emit(
        {"file": str(file), "criterion": criterion, "labels": list(words)},
        as_json,
        lambda: out.print(Text(f"{file}: fill the column `label` with {', '.join(words)}")),
    )


def import_labels(file: Path, annotator: str, folder: Path | None, as_json: bool) -> None:
    """Take labels in."""
    store = Store(store_folder(folder))
    done = labelling.import_labels(store, file, annotator)
    agreement = labelling.between_annotators(labelling.labels(store))
    value: dict[str, Any] = asdict(done) | {"agreement": {by: asdict(one) for by, one in agreement.items()}}

    def show() -> None:
        again = f", {done.replaced} of them in place of earlier ones" if done.replaced else ""
        blank = f"{counted(done.blank, 'row')} without one"
        out.print(Text(f"{counted(done.labels, 'label')} by {annotator}{again}; {blank}"))
        if done.resting:
            err.print(
                Text(
                    f"{done.resting} of them are about answers that the runs do not give now; they are kept, and count as soon as one does",
                    style="yellow",
                )
            )
        rows = [_agreement("between people (alpha)", by, one) for by, one in agreement.items()]
        if rows:
            listing(("by", "agreement", "equal", "alpha", "items"), rows, empty="")
        else:
            err.print("agreement is told once two people have labelled the same items")

    emit(plain(value), as_json, show)
