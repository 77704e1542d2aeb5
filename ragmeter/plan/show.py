"""A plan for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.text import Text

from benchmarks.core.errors import counted
from ragmeter.console import fitted, folded, listing, out, widest
from ragmeter.experiment import Experiment
from ragmeter.plan.cost import Cost
from ragmeter.plan.plan import WAITING, Plan, TaskRow
from ragmeter.plan.training import TrainingRow
from results.store import Store


def plan_json(planned: Plan, experiment: Experiment, store: Store) -> dict[str, Any]:
    """A plan as a JSON object."""
    trainings = [
        {
            "name": plan.name,
            "id": plan.entry.id,
            "seed": plan.config.seed,
            "stages": list(plan.stages),
            "trained": list(plan.trained(store.folder)),
            "folder": str(plan.folder(store.folder)),
        }
        for plan in experiment.trainings
    ]
    return {
        "experiment": planned.experiment,
        "trainings": trainings,
        "stages": [row.to_json() for row in planned.stages],
        "tasks": [row.to_json() for row in planned.tasks if row.status != WAITING],
        "after_training": [row.to_json() for row in planned.tasks if row.status == WAITING],
        "judgments": {row.judge: row.judgments for row in planned.judges},
        "judges": [row.to_json() for row in planned.judges],
        "published": [row.to_json() for row in planned.published],
        "totals": {name: cost.to_json() for name, cost in planned.totals.items()},
        "scratch_bytes": round(planned.scratch),
        "models": [{"model": model.model, "parameters": model.parameters, "source": model.source} for model in planned.models],
        "samples": [sample.to_json() for sample in planned.samples],
        "endpoints": [endpoint.to_json() for endpoint in planned.endpoints],
        "missing": [item.to_json() for item in planned.missing],
        "assumptions": planned.assumptions.to_json(),
    }


# -- for people -----------------------------------------------------------------------------------------------------

Column = tuple[str, Callable[[Cost], str]]


def show_plan(planned: Plan, store: Store, name: str) -> None:
    """Print a plan.

    Args:
        planned: What to print.
        store: For which it was made.
        name: The argument of `ragmeter run`.
    """
    _trainings(planned.stages)
    _tasks(planned.tasks)
    _judges(planned)
    _totals(planned, _columns(_costs(planned)))
    _published(planned)
    waiting = sum(row.status == WAITING for row in planned.tasks)
    pending = sum(row.left or 0 for row in planned.tasks)
    later = f", {waiting} of them after training" if waiting else ""
    left = f"{counted(len(planned.tasks), 'task')}{later}, {counted(pending, 'question')} to answer"
    out.print(Text(f"{left}; store: {store.folder}"))
    _footnotes(planned, name)
    _missing(planned)


def _costs(planned: Plan) -> list[Cost]:
    """What every row costs."""
    return [row.cost for kind in (planned.stages, planned.tasks, planned.judges) for row in kind]


def _columns(costs: Sequence[Cost]) -> list[Column]:
    """The columns in which anything stands."""
    every: list[tuple[str, Callable[[Cost], float], Callable[[float], str]]] = [
        ("calls", lambda cost: cost.calls, short),
        ("tokens in", lambda cost: cost.prompt_tokens, short),
        ("out ≤", lambda cost: cost.completion_tokens, short),
        ("memory", lambda cost: cost.memory_tokens, short),
        ("GPU h", lambda cost: cost.gpu_hours, hours),
        ("served h", lambda cost: cost.served_hours, hours),
        ("$", lambda cost: cost.usd, dollars),
        ("disk", lambda cost: cost.disk, size),
    ]
    return [
        (name, lambda cost, of=of, form=form: form(of(cost)) if of(cost) else "-")  # type: ignore[misc]
        for name, of, form in every
        if any(of(cost) for cost in costs)
    ]


def _cells(cost: Cost, columns: Iterable[Column]) -> list[str]:
    return [form(cost) for _, form in columns]


def _open(cost: Cost) -> str:
    return "+\N{NO-BREAK SPACE}?" if cost.unknown else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> None:
    """A table whose cells are broken behind words or separators, or that is printed in parts where that will not do."""
    cells = [[Text(cell) for cell in row] for row in rows]
    used = [position for position, head in enumerate(heads) if head or any(row[position].plain for row in cells)]
    heads, cells = [heads[position] for position in used], [[row[position] for position in used] for row in cells]
    widths = fitted(heads, cells, out.width)
    fits = all(
        widest(folded(cell, width)) <= width
        for row in ([Text(head) for head in heads], *cells)
        for cell, width in zip(row, widths, strict=True)
    )
    listing(heads, cells, empty="", keys=0 if fits else keys)


def _trainings(rows: Sequence[TrainingRow]) -> None:
    if not rows:
        return
    columns = _columns([row.cost for row in rows])
    seeded = len({row.seed for row in rows}) > 1
    heads = ("training", "stage", "rows ≤", "steps ≤", *(name for name, _ in columns), "", "lengths")
    _table(
        heads,
        [
            (
                f"{row.name} #{row.seed}" if seeded else row.name,
                row.stage,
                "-" if row.rows is None else short(row.rows),
                "-" if row.steps is None else short(row.steps),
                *_cells(row.cost, columns),
                "trained" if row.trained else _open(row.cost),
                row.origin,
            )
            for row in rows
        ],
        keys=2,
    )
    out.print()


def _tasks(rows: Sequence[TaskRow]) -> None:
    """A table for each benchmark, and above it what all its rows share."""
    columns = _columns([row.cost for row in rows])
    heads = ("method", "left", "status", *(name for name, _ in columns), "")
    for (dataset, variant, setting, origin), group in groupby(rows, lambda row: (row.dataset, row.variant, row.setting, row.origin)):
        what = f"  {variant}" if variant else ""
        out.print(Text(dataset, style="bold") + Text(f"{what}  setting {setting}; lengths {origin}"))
        _table(heads, [(row.method, _left(row), row.status, *_cells(row.cost, columns), _open(row.cost)) for row in group])
        out.print()


def _left(row: TaskRow) -> str:
    if row.left is None:
        return "?"
    return f"{row.left:,} of {row.questions:,}" if row.done else f"{row.left:,}"


def _judges(planned: Plan) -> None:
    if not planned.judges:
        return
    columns = _columns([row.cost for row in planned.judges])
    _table(
        ("judge", "judgments ≤", *(name for name, _ in columns), ""),
        [(row.judge, f"{row.judgments:,}", *_cells(row.cost, columns), _open(row.cost)) for row in planned.judges],
    )
    out.print()


def _totals(planned: Plan, columns: list[Column]) -> None:
    totals = planned.totals
    shown = {name: cost for name, cost in totals.items() if name == "all" or cost != Cost()}
    if len(shown) == 2:
        shown = {"all": totals["all"]}
    _table(
        ("what is left", *(name for name, _ in columns), ""), [(name, *_cells(cost, columns), _open(cost)) for name, cost in shown.items()]
    )
    out.print()


def _published(planned: Plan) -> None:
    if not planned.published:
        return
    names = ", ".join(row.method for row in planned.published)
    paper = planned.published[0].paper
    out.print(Text(f"published figures alone (ragmeter results paper {paper}): {names}"))


def _footnotes(planned: Plan, name: str) -> None:
    """What the numbers rest on."""
    if planned.samples:
        few = ", ".join(f"{sample.reference} ({sample.here:,} of about {short(sample.stated)})" for sample in planned.samples)
        out.print(Text(f"a sample is here, and planned as if it were all: {few}", style="yellow"))
    for reason in planned.totals["all"].unknown:
        out.print(Text(f"not in these numbers: {reason}"))
    for endpoint in planned.endpoints:
        out.print(Text(f"when it runs, {endpoint.url} must answer as {endpoint.model}"))
    unsure = [model for model in planned.models if model.source in ("name", "unknown")]
    for model in unsure:
        out.print(Text(str(model)))
    if planned.scratch:
        out.print(Text(f"while it trains, up to {size(planned.scratch)} of disk more"))
    timed = any(cost.gpu_hours or cost.served_hours for cost in _costs(planned))
    if timed:
        assume = planned.assumptions
        out.print(Text(f"GPU hours: {assume}", style="dim"))
        half, twice = assume.utilization / 2, min(1.0, assume.utilization * 1.5)
        out.print(
            Text(
                f"at {half:.0%} of the peak the hours of reading and training double, at {twice:.0%} they are "
                f"{assume.utilization / twice:.0%}",
                style="dim",
            )
        )
    out.print(
        Text(
            "in and out are of language models (those of encoders: --json); tokens written, rows and disk are at most; "
            "tokens are characters / 4 where no tokenizer is here",
            style="dim",
        )
    )
    if any(row.origin != "counted" for row in planned.tasks):
        out.print(
            Text(
                "lengths: counted on the data; sampled: on a few questions made for it; stated: by the data's card and typical lengths",
                style="dim",
            )
        )
    if timed:
        out.print(
            Text(
                f"to calibrate: ragmeter run {name} --limit 20 --store FOLDER, then compare its seconds and tokens with "
                "those of --dry-run at the same limit, and set --utilization",
                style="dim",
            )
        )


def _missing(planned: Plan) -> None:
    if not planned.missing:
        return
    out.print()
    out.print(Text(f"before it can run ({len(planned.missing)}):", style="bold"))
    for item in planned.missing:
        needed = ", ".join(item.needed_by[:3]) + (" …" if len(item.needed_by) > 3 else "")
        where = f" ({item.where})" if item.where and item.kind not in ("key",) else ""
        out.print(Text(f"- {item.what}{where}; for {needed}"))
        if item.remedy:
            out.print(Text(f"  try: {item.remedy}", style="dim"))


def short(number: float) -> str:
    """A count for people: 950, 12.3k, 4.56M."""
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:,.0f}"


def dollars(number: float) -> str:
    """Dollars for people."""
    return "<0.01" if 0 < number < 0.01 else f"{number:,.2f}"


def hours(number: float) -> str:
    """Hours for people."""
    return "<0.01" if 0 < number < 0.01 else f"{number:,.2f}" if number < 10 else f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes for people."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.0f}B"
