"""A plan for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.text import Text

from benchmarks.core.errors import counted
from methods.work import Work
from ragmeter.plan.plan import BANDWIDTH, COUNTS, GPUS, WAITING, Plan, Row, hours_json, work_json
from ragmeter.show.console import listing, out


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON object."""
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
        "endpoints": [{"url": url, "model": model, "needed_by": list(who)} for (url, model), who in plan.endpoints.items()],
        "missing": [item.to_json() for item in plan.missing],
        "assumptions": {"utilization": plan.utilization, "bandwidth": BANDWIDTH, "gpus": [gpu.name for gpu in GPUS]},
    }


def show_plan(plan: Plan, store: str) -> None:
    """Print a plan; `store` is the folder that it was made for."""
    columns = _columns(plan.rows)
    if plan.stages:
        heads = ("training", "stage", "rows ≤", "steps ≤", *(name for name, _ in columns), "", "lengths")
        _table(heads, [_stage(row, columns) for row in plan.stages], keys=2)
    for (dataset, variant, setting, origin), group in groupby(plan.tasks, _group):
        what = f"  {variant}" if variant else ""
        out.print(Text(dataset, style="bold") + Text(f"{what}  setting {setting}; lengths {origin}"))
        heads = ("method", "left", "status", *(name for name, _ in columns), "", "measured h")
        _table(heads, [_task(row, columns) for row in group])
    if plan.judges:
        heads = ("judge", "judgments ≤", *(name for name, _ in columns), "")
        _table(heads, [(row.key["judge"], f"{row.key['judgments']:,}", *_cells(row, columns), _open(row.work)) for row in plan.judges])
    _totals(plan)
    waiting = sum(row.key["status"] == WAITING for row in plan.tasks)
    pending = sum(row.key["left"] or 0 for row in plan.tasks)
    later = f", {waiting} of them after training" if waiting else ""
    left = f"{counted(len(plan.tasks), 'task')}{later}, {counted(pending, 'question')} to answer; " if plan.tasks else ""
    out.print(Text(f"{left}store: {store}"))
    _footnotes(plan)
    _missing(plan)


# -- Cells --

Column = tuple[str, Callable[[Row], str]]


def _columns(rows: Sequence[Row]) -> list[Column]:
    """The columns in which anything stands."""
    every: list[tuple[str, Callable[[Work], float], Callable[[float], str]]] = [
        ("calls", lambda work: work.count("calls"), short),
        ("tokens in", lambda work: work.count("prompt") - work.count("memory"), short),
        ("memory", lambda work: work.count("memory"), short),
        ("out ≤", lambda work: work.count("completion"), short),
        ("encoded", lambda work: work.count("encoded") + work.count("trained"), short),
        ("$", lambda work: work.usd, dollars),
        ("disk", lambda work: work.bytes, size),
    ]
    used: list[Column] = [
        (name, lambda row, of=of, form=form: form(of(row.work)) if of(row.work) else "-")  # type: ignore[misc]
        for name, of, form in every
        if any(of(row.work) for row in rows)
    ]
    timed = [(f"h {gpu.gigabytes}GB", lambda row, gpu=gpu: _hours(row.hours.get((gpu, 1), 0.0))) for gpu in GPUS]
    return [*used, *timed] if any(row.hours for row in rows) else used


def _hours(value: float | None) -> str:
    return "too small" if value is None else hours(value) if value else "-"


def _cells(row: Row, columns: Iterable[Column]) -> list[str]:
    return [form(row) for _, form in columns]


def _open(work: Work) -> str:
    return "at least" if work.unknown else ""


def _stage(row: Row, columns: list[Column]) -> tuple[str, ...]:
    key = row.key
    numbers = ("-" if key[name] is None else short(key[name]) for name in ("rows", "steps"))
    state = "trained" if key["trained"] else _open(row.work)
    return (f"{key['training']} #{key['seed']}", key["stage"], *numbers, *_cells(row, columns), state, row.origin)


def _group(row: Row) -> tuple[str, ...]:
    return (row.key["dataset"], row.key["variant"], row.key["setting"], row.origin)


def _task(row: Row, columns: list[Column]) -> tuple[str, ...]:
    left, questions = row.key["left"], row.key["questions"]
    number = "?" if left is None else f"{left:,} of {questions:,}" if row.key["done"] else f"{left:,}"
    measured = "" if row.measured_hours is None else hours(row.measured_hours)
    return (row.key["method"], number, row.key["status"], *_cells(row, columns), _open(row.work), measured)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> None:
    listing(heads, list(rows), empty="", keys=keys)
    out.print()


def _totals(plan: Plan) -> None:
    rows = [(name, Row({}, {name: work})) for name, work in plan.totals.items() if name == "all" or work != Work()]
    rows = rows[-1:] if len(rows) == 2 else rows
    columns = _columns([row for _, row in rows])
    _table(("what is left", *(name for name, _ in columns), ""), [(name, *_cells(row, columns), _open(row.work)) for name, row in rows])
    if not any(row.hours for row in plan.rows):
        return
    lines = []
    for gpu in GPUS:
        small = [row for row in plan.rows if row.gpu_bytes > gpu.gigabytes * 1e9]
        needed = size(max(row.gpu_bytes for row in plan.rows))
        fit = f"too small for {counted(len(small), 'row')}: up to {needed}" if small else f"fits: {needed}, and activations"
        lines.append((f"{gpu.gigabytes} GB ({gpu.name})", *(_hours(plan.hours[gpu, n]) for n in COUNTS), fit))
    _table(("hours on GPUs of", *("one" if n == 1 else f"{n}" for n in COUNTS), "memory"), lines)


# -- What stands below --


def _footnotes(plan: Plan) -> None:
    """What the numbers rest on."""
    if plan.samples:
        few = ", ".join(f"{item.reference} ({item.questions:,} of about {short(item.whole_number or 0)})" for item in plan.samples)
        out.print(Text(f"a sample is here, and planned as if it were all: {few}", style="yellow"))
    for reason in dict.fromkeys(reason for row in plan.rows for reason in row.work.unknown):
        out.print(Text(f"unknown, so that the numbers are at least what it takes: {reason}"))
    for url, model in plan.endpoints:
        out.print(Text(f"when it runs, {url} must answer as {model}"))
    for model_size in plan.models:
        if model_size.source in ("name", "unknown"):
            out.print(Text(str(model_size)))
    scratch = max((row.scratch for row in plan.stages), default=0.0)
    if scratch:
        out.print(Text(f"while it trains, up to {size(scratch)} of disk more"))
    notes = [
        "tokens out, rows, steps and disk are at most; tokens are characters / 4 where no tokenizer is here",
        "lengths: counted on the data; sampled: on a few questions made for it; stated: by the data's card and typical lengths",
    ]
    if any(row.hours for row in plan.rows):
        share = f"{plan.utilization:.0%} of the peak in reading and learning (--utilization), {BANDWIDTH:.0%} of the bandwidth in writing"
        notes.insert(0, f"hours: {share}; without loading and waiting; an endpoint that wants no key counts as a GPU of yours")
    for note in notes:
        out.print(Text(note, style="dim"))


def _missing(plan: Plan) -> None:
    if not plan.missing:
        return
    out.print()
    out.print(Text(f"before it can run ({len(plan.missing)}):", style="bold"))
    for item in plan.missing:
        needed = ", ".join(item.needed_by[:3]) + (" …" if len(item.needed_by) > 3 else "")
        where = f" ({item.where})" if item.where and item.kind != "key" else ""
        out.print(Text(f"- {item.what}{where}; for {needed}"))
        if item.remedy:
            out.print(Text(f"  try: {item.remedy}", style="dim"))


def short(number: float) -> str:
    """A count for people: 950, 12.3k, 4.56M."""
    return next(
        (f"{number / scale:.3g}{unit}" for scale, unit in zip((1e12, 1e9, 1e6, 1e3), "TGMk", strict=True) if number >= scale),
        f"{number:,.0f}",
    )


def dollars(number: float) -> str:
    """Dollars for people."""
    return "<0.01" if 0 < number < 0.01 else f"{number:,.2f}"


def hours(number: float) -> str:
    """Hours for people."""
    return "<0.01" if 0 < number < 0.01 else f"{number:,.2f}" if number < 10 else f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes for people."""
    return (
        (short(number).replace("G", "GB").replace("k", "kB").replace("M", "MB").replace("T", "TB")) if number >= 1e3 else f"{number:.0f}B"
    )
