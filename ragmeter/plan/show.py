"""Show a plan to people, on one screen or in full, and to programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from benchmarks.core.errors import counted
from leaderboard.elements.formats import span
from methods.work import Work
from ragmeter.plan.gpus import BANDWIDTH, COUNTS, GPUS
from ragmeter.plan.plan import WAITING, Plan, PlannedWork, hours_json, work_json
from ragmeter.runner.preflight import Missing
from ragmeter.runner.spending import compared
from ragmeter.show.console import listing, out

LINES, SHOWN = 10, 3
"""Maximum lines of the one-screen summary, and missing requirements among them."""


def plan_json(plan: Plan) -> dict[str, Any]:
    """Serialize a plan as JSON."""
    tasks = [row.to_json() for row in plan.tasks]
    return {
        "experiment": plan.name,
        "stages": [row.to_json() for row in plan.stages],
        "tasks": [row for row in tasks if row["status"] != WAITING],
        "after_training": [row for row in tasks if row["status"] == WAITING],
        "judges": [row.to_json() for row in plan.judges],
        "totals": {name: work_json(work) for name, work in plan.totals.items()},
        "hours": hours_json(plan.hours),
        "models": [{"model": model.model, "parameters": model.parameters, "source": model.source} for model in plan.models],
        "samples": [{"data": str(item.reference), "here": item.questions, "stated": item.whole_number} for item in plan.samples],
        "mappings": dict(plan.mappings),
        "endpoints": [{"url": url, "model": model, "needed_by": list(who)} for (url, model), who in plan.endpoints.items()],
        "limits": plan.limits.model_dump(exclude_none=True),
        "missing": [item.to_json() for item in plan.missing],
        "assumptions": {"utilization": plan.utilization, "bandwidth": BANDWIDTH, "gpus": [gpu.name for gpu in GPUS]},
    }


def show_plan(plan: Plan, store: str, *, verbose: bool = False) -> None:
    """Print a plan in at most ten lines; with `verbose`, also every row, the assumptions and everything missing."""
    if verbose:
        _tables(plan)
    facts, missing = _facts(plan, store, verbose), _missing(plan, verbose)
    room = len(facts) if verbose else LINES - len(missing)
    if len(facts) > room:
        facts, left = facts[:room], len(facts) - room
        facts[-1] = (f"{facts[-1][0]}  ({counted(left, 'more line')}: --verbose)", facts[-1][1])
    for line, style in [*facts, *missing]:
        _print(line, style)


def _facts(plan: Plan, store: str, verbose: bool) -> list[tuple[str, str]]:
    """Return the plan's figures, the most important lines first, each with its style."""
    waiting = sum(row.key["status"] == WAITING for row in plan.tasks)
    questions = sum(row.key["left"] or 0 for row in plan.tasks)
    tasks = (
        f"{counted(len(plan.tasks), 'task')}{f' ({waiting} after training)' if waiting else ''}, {counted(questions, 'question')} to answer"
    )
    stages = sum(not row.key["trained"] for row in plan.stages)
    more = [counted(stages, "stage") + " to train"] if stages else []
    more += [f"at most {sum(row.key['judgments'] for row in plan.judges):,} judgments"] if plan.judges else []
    lines = [(f"{plan.name}: {', '.join([*([tasks] if plan.tasks else []), *more]) or 'nothing to train'}; store: {store}", "")]
    if questions:
        lines.append((_wall_time(plan), ""))
    work = plan.totals["all"]
    if numbers := [f"{name} {form(of(work))}" for name, of, form in COSTS if of(work)]:
        scratch = max((row.scratch for row in plan.stages), default=0.0)
        meanwhile = f" ({size(scratch)} more while it trains)" if scratch > work.bytes else ""
        lines.append((f"{'at least ' if work.unknown else ''}{', '.join(numbers)}{meanwhile}", ""))
    lines += [(line, "" if line.endswith("within the limit") else "yellow") for line in compared(plan.limits, work, plan.measured_hours)]
    if plan.samples:
        few = ", ".join(f"{item.reference} ({item.questions:,} of about {shorten_number(item.whole_number or 0)})" for item in plan.samples)
        lines.append((f"only a sample is here, and the plan treats it as the whole: {few}", "yellow"))
    unknown = list(dict.fromkeys(reason for row in plan.rows for reason in row.work.unknown))
    for reason in unknown if verbose else unknown[:1]:
        lines.append((f"unknown: {reason}" + ("" if verbose or len(unknown) == 1 else f" (and {len(unknown) - 1} more)"), ""))
    if any(row.hours for row in plan.rows):
        lines.append(("hours on one GPU: " + ", ".join(f"{gpu.gigabytes} GB {_hours(plan.hours[gpu, 1])}" for gpu in GPUS), ""))
    if plan.endpoints and not verbose:
        served = ", ".join(f"{model} at {url}" for url, model in plan.endpoints)
        lines.append((f"must answer when it runs: {served}", ""))
    return [*lines, *((f"{name}: {mapping}", "") for name, mapping in plan.mappings.items())]


def _wall_time(plan: Plan) -> str:
    """Return the expected wall time on this machine, based on earlier runs here."""
    left = [row for row in plan.tasks if row.key["left"]]
    known = [row for row in left if row.measured_hours is not None]
    if not known:
        later = "after training, " if any(not row.key["trained"] for row in plan.stages) else ""
        return f"expected wall time here: unknown, because no similar run is stored; {later}a run with --limit 5 measures it"
    seconds = 3600 * sum(row.measured_hours or 0.0 for row in known)
    rest = len(left) - len(known)
    lacking = [f"{counted(rest, 'task')} not measured yet"] if rest else []
    lacking += ["without training"] if any(not row.key["trained"] for row in plan.stages) else []
    lacking += ["without judging"] if any(row.key["judgments"] for row in plan.judges) else []
    return f"expected wall time here: {'at least ' if lacking else ''}{span(seconds)}, at the speed of earlier runs" + "".join(
        f"; {text}" for text in lacking
    )


def _missing(plan: Plan, verbose: bool) -> list[tuple[str, str]]:
    """Return the missing requirements of a plan, each with its remedy."""
    if not plan.missing:
        return []
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(item.kind for item in plan.missing).items())
    hint = "" if verbose or len(plan.missing) <= SHOWN else "; --verbose shows all"
    lines = [(f"before it can run ({kinds}{hint}):", "bold")]
    for item in plan.missing if verbose else _first_of_each_kind(plan.missing):
        where = f" ({item.where})" if verbose and item.where and item.kind != "key" else ""
        who = ", ".join(item.needed_by[:3]) + (" …" if len(item.needed_by) > 3 else "")
        lines.append((f"- {item.what}{where}; for {who}" + (f"; try: {item.remedy}" if item.remedy else ""), ""))
    return lines


def _print(text: str, style: str = "") -> None:
    # The terminal wraps long lines: a remedy that was broken here could not be copied.
    out.print(Text(text, style=style), soft_wrap=True)


def _first_of_each_kind(missing: Sequence[Missing]) -> list[Missing]:
    """Return the first of each kind, then others, up to the number to show."""
    first = list({item.kind: item for item in reversed(missing)}.values())[::-1]
    return [*first, *(item for item in missing if item not in first)][:SHOWN]


def shorten_number(number: float) -> str:
    """Format a count: 950, 12.3k, 4.56M."""
    scales = zip((1e12, 1e9, 1e6, 1e3), "TGMk", strict=True)
    return next((f"{number / scale:.3g}{unit}" for scale, unit in scales if number >= scale), f"{number:,.0f}")


def dollars(number: float) -> str:
    """Format an amount of US dollars."""
    return "<0.01" if 0 < number < 0.01 else f"{number:,.2f}"


def size(number: float) -> str:
    """Format a number of bytes."""
    return f"{shorten_number(number)}B"


def _hours(value: float | None) -> str:
    return "too small" if value is None else "-" if not value else dollars(value) if value < 10 else f"{value:,.0f}"


COSTS: Sequence[tuple[str, Callable[[Work], float], Callable[[float], str]]] = (
    ("calls", lambda work: work.count("calls"), shorten_number),
    ("tokens in", lambda work: work.count("prompt") - work.count("memory"), shorten_number),
    ("memory", lambda work: work.count("memory"), shorten_number),
    ("out ≤", lambda work: work.count("completion"), shorten_number),
    ("encoded", lambda work: work.count("encoded") + work.count("trained"), shorten_number),
    ("$", lambda work: work.usd, dollars),
    ("disk ≤", lambda work: work.bytes, size),
)


def _tables(plan: Plan) -> None:
    """Print every row, and the assumptions of the figures."""
    timed = [f"h {gpu.gigabytes}GB" for gpu in GPUS] if any(row.hours for row in plan.rows) else []
    costs = [cost for cost in COSTS if any(cost[1](row.work) for row in plan.rows)]
    heads = [*(name for name, _, _ in costs), *timed, ""]

    def cells(row: PlannedWork) -> list[str]:
        numbers = [form(of(row.work)) if of(row.work) else "-" for _, of, form in costs]
        return [*numbers, *(_hours(row.hours.get((gpu, 1), 0.0)) for gpu in GPUS if timed), "at least" if row.work.unknown else ""]

    rows: list[tuple[str, ...]] = []
    for row in plan.stages:
        key = row.key
        what, steps = f"{key['training']} #{key['seed']}", "-" if key["steps"] is None else f"{shorten_number(key['steps'])} steps"
        rows.append((what, key["stage"], steps, "trained" if key["trained"] else "", *cells(row), row.origin, ""))
    for row in plan.tasks:
        key, where = row.key, " ".join(filter(None, (row.key["dataset"], row.key["variant"], row.key["setting"])))
        left = "?" if key["left"] is None else f"{key['left']:,} of {key['questions']:,}"
        measured = "" if row.measured_hours is None else _hours(row.measured_hours)
        rows.append((key["method"], where, left, key["status"], *cells(row), row.origin, measured))
    rows += [(row.key["judge"], "", f"{row.key['judgments']:,}", "", *cells(row), "", "") for row in plan.judges]
    listing(("what", "of", "left ≤", "status", *heads, "lengths", "measured h"), rows, empty="", keys=2)
    if timed:
        out.print()
        needed = size(max(row.gpu_bytes for row in plan.rows))
        gpus = [(f"{gpu.gigabytes} GB ({gpu.name})", *(_hours(plan.hours[gpu, n]) for n in COUNTS), needed) for gpu in GPUS]
        listing(("hours on GPUs of", "one", "eight", "memory needed, and activations"), gpus, empty="")
    out.print()
    for url, model in plan.endpoints:
        _print(f"when it runs, {url} must answer as {model}")
    for model_size in plan.models:
        if model_size.source in ("name", "unknown"):
            _print(str(model_size))
    if scratch := max((row.scratch for row in plan.stages), default=0.0):
        _print(f"while it trains, up to {size(scratch)} of additional disk")
    share = f"{plan.utilization:.0%} of peak compute for prefill and training (--utilization), {BANDWIDTH:.0%} of bandwidth for decoding"
    if timed:
        _print(f"hours: {share}; without loading and waiting; an endpoint without a key counts as your GPU", "dim")
    _print("tokens out, rows, steps and disk are upper bounds; without a tokenizer, tokens are characters / 4", "dim")
    _print("lengths: counted on the data; sampled: on a few questions; stated: by the card and typical lengths", "dim")
