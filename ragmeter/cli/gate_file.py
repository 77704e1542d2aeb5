"""Read a gate file: benchmarks and metrics with their margins, decided together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError, refused, unknown_name
from benchmarks.core.models import FrozenModel
from ragmeter import yaml_source
from ragmeter.cli.gate_runs import benchmark
from ragmeter.yaml_source import Source
from results.boards.board import groups
from results.gate.decision import ask
from results.gate.many import ManyGates, decide_cells
from results.gate.margins import parse_margin
from results.gate.verdicts import Gate
from results.store import checkpoints, queries, tags
from results.store.checkpoints import Checkpoint
from results.store.queries import NO_EXPERIMENT, RunRow
from results.store.store import FINISHED, Store


class MetricSpec(FrozenModel):
    """Metric of a gate file; a bare string means `{id: …}`."""

    id: str = Field(description="its id, or the beginning of it")
    margin: str | float | None = Field(default=None, description="tolerated loss, 1.0pp or 0.01; default: the file's")
    may_be_inconclusive: bool = Field(default=False, description="whether the gate may pass although this is inconclusive")


class BenchmarkSpec(FrozenModel):
    """Benchmark of a gate file; a bare string means `{id: …}`."""

    id: str = Field(description="dataset/setting/seed, as runs are listed; setting and seed may be left out if they are unique")
    metrics: list[str | MetricSpec] | None = Field(default=None, min_length=1, description="default: the file's")
    may_be_inconclusive: bool = Field(default=False, description="whether the gate may pass although this is inconclusive")


class GateSpec(FrozenModel):
    """Content of a gate file (YAML)."""

    baseline: str = Field(description="experiment/method, a checkpoint, or a tag (of a run: the runs with its description)")
    candidate: str = Field(description="likewise")
    benchmarks: list[str | BenchmarkSpec] = Field(min_length=1, description="benchmarks to compare the two on")
    metrics: list[str | MetricSpec] | None = Field(
        default=None, min_length=1, description="metrics to decide on, for benchmarks that name none"
    )
    margin: str | float | None = Field(default=None, description="tolerated loss, 1.0pp or 0.01, for metrics that name none")


@dataclass(frozen=True)
class CellPlan:
    """Planned gate decision: one metric on one benchmark, from a gate file."""

    benchmark: str
    metric: str
    margin: float
    must_hold: bool
    where: str
    benchmark_at: str


@dataclass(frozen=True)
class GatePlan:
    """The content of a gate file, checked as far as possible without the store."""

    name: str
    baseline: str
    candidate: str
    cells: tuple[CellPlan, ...]
    baseline_at: str
    candidate_at: str


def load(path: Path) -> GatePlan:
    """Read and validate a gate file.

    Raises:
        UserError: The file cannot be read or is invalid; the message names file, line and the nearest valid key.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("this file is not UTF-8 text", code="not-utf8", where=str(path), try_this="name a gate file (YAML)") from None
    except OSError as error:
        raise refused(error, path, what="this gate file cannot be read", try_this="name a gate file (YAML)") from None
    source = yaml_source.read(text, str(path))
    try:
        spec = GateSpec.model_validate(source.value)
    except ValidationError as error:
        raise yaml_source.explain(error, GateSpec, source) from None
    cells = tuple(_cells(spec, source))
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.benchmark, cell.metric) in seen:
            raise UserError(
                f"{cell.metric} on {cell.benchmark} is named twice",
                code="duplicate-name-on-dataset",
                where=cell.where,
                try_this="remove one of them",
            )
        seen.add((cell.benchmark, cell.metric))
    if not any(cell.must_hold for cell in cells):
        raise UserError(
            "every cell may be inconclusive, so the gate requires nothing",
            code="all-cells-may-be-inconclusive",
            where=source.where(("benchmarks",)),
            try_this="leave out may_be_inconclusive for at least one metric on one benchmark",
        )
    return GatePlan(str(path), spec.baseline, spec.candidate, cells, source.where(("baseline",)), source.where(("candidate",)))


def _cells(spec: GateSpec, source: Source) -> Iterator[CellPlan]:
    for index, item in enumerate(spec.benchmarks):
        at: tuple[str | int, ...] = ("benchmarks", index)
        benchmark = BenchmarkSpec(id=item) if isinstance(item, str) else item
        metrics, metrics_at = (benchmark.metrics, (*at, "metrics")) if benchmark.metrics else (spec.metrics, ("metrics",))
        if not metrics:
            raise UserError(
                "this benchmark has no metric for the decision",
                code="no-deciding-metric",
                where=source.where(at),
                try_this="metrics: [f1], here or for the whole file",
            )
        for position, named in enumerate(metrics):
            metric = MetricSpec(id=named) if isinstance(named, str) else named
            where = (*metrics_at, position)
            margin, margin_at = (metric.margin, (*where, "margin")) if metric.margin is not None else (spec.margin, ("margin",))
            if margin is None:
                raise UserError(
                    f"no margin for {metric.id}",
                    code="no-margin",
                    where=source.where(where),
                    try_this="margin: 1.0pp, for all or with the metric",
                )
            try:
                tolerated = parse_margin(str(margin))
            except UserError as error:
                raise UserError(error.what, code=error.code, where=source.where(margin_at), try_this=error.try_this) from None
            must = not (benchmark.may_be_inconclusive or metric.may_be_inconclusive)
            yield CellPlan(benchmark.id, metric.id, tolerated, must, source.where(where), source.where(at))


def ask_all(store: Store, plan: GatePlan, **how: Any) -> ManyGates:
    """Make the gate decisions of a gate file.

    Args:
        store: The store to read.
        plan: The gate file's content.
        how: `strict`, `allow_partial`, `allow_same` and `anchored` of `results.gate.decision.ask`.

    Raises:
        UserError: A run is missing, or two runs must not be compared; the message names the line of the file.
    """
    every = queries.runs(store)
    gates: list[Gate] = []
    for cell in plan.cells:
        first, second = (
            _side(store, every, text, cell, where)
            for text, where in ((plan.baseline, plan.baseline_at), (plan.candidate, plan.candidate_at))
        )
        try:
            gates.append(ask(store, first, second, metrics=[cell.metric], margin=cell.margin, cells=len(plan.cells), **how))
        except UserError as error:
            error.also_at(cell.where)
            raise
    return decide_cells(gates, [cell.must_hold for cell in plan.cells])


def sides_of(store: Store, plan: GatePlan) -> list[RunRow]:
    """Return the baseline's run on each benchmark of a gate file.

    Raises:
        UserError: A run is missing; the message names the line of the file.
    """
    every = queries.runs(store)
    rows = [_side(store, every, plan.baseline, cell, plan.baseline_at) for cell in plan.cells]
    return list({run.run: run for run in rows}.values())


def _side(store: Store, every: list[RunRow], text: str, cell: CellPlan, where: str) -> RunRow:
    """Return the run of one side on a cell's benchmark; for a checkpoint or a tag, the newest finished one."""
    newest_first = True
    if (meant := _tagged_run(store, text)) is not None:
        rows = [meant, *(run for run in _newest(every) if _same_description(run, meant) and benchmark(run) != benchmark(meant))]
    elif made_with := checkpoints.matching(store, text) or _tagged_checkpoint(store, text):
        rows = [run for run in checkpoints.runs_with(store, made_with[0]) if run.kind != "control" and run.status == FINISHED]
    else:
        rows, newest_first = [run for run in every if f"/{run.experiment}/{run.method}".endswith(f"/{text}")], False
        # Earlier executions, and runs of an earlier text of the experiment, belong to none.
        rows = [run for run in rows if run.experiment != NO_EXPERIMENT] or rows
        # Runs with other seeds of the experiment count with the first of their board.
        firsts = {run.fingerprint for group in groups(rows) for run in group if run.seed == group[0].seed}
        rows = [run for run in rows if run.fingerprint in firsts]
    if not rows:
        methods = {f"{run.experiment}/{run.method}" for run in every}
        raise unknown_name("method, tag or checkpoint", text, methods, where=where)
    here = {run.run: run for run in rows if f"{benchmark(run)}/".startswith(f"{cell.benchmark}/")}
    if not here:
        raise unknown_name(f"benchmark of {text}", cell.benchmark, {benchmark(run) for run in rows}, where=cell.benchmark_at)
    benchmarks = {benchmark(run) for run in here.values()}
    tasks = {run.fingerprint for run in here.values()}
    if len(benchmarks) > 1 or (len(tasks) > 1 and not newest_first):
        listed = ", ".join(sorted(f"{run.short} ({run.path})" for run in here.values())[:5])
        raise UserError(
            f"{cell.benchmark!r} means {len(here)} runs of {text}",
            code="ambiguous-run-path",
            where=cell.benchmark_at,
            try_this=f"name setting and seed, or baseline and candidate with their experiment: {listed}",
        )
    return next(iter(here.values())) if newest_first else queries.newest(list(here.values()))


def _tagged_run(store: Store, text: str) -> RunRow | None:
    meant = tags.resolve(store, text) if tags.tag_named(store, text) else None
    return meant if isinstance(meant, RunRow) else None


def _tagged_checkpoint(store: Store, text: str) -> list[Checkpoint]:
    return [tags.find_checkpoint(store, text)] if tags.tag_named(store, text) else []


def _newest(every: list[RunRow]) -> list[RunRow]:
    """Order runs: finished before others, newer before older."""
    return sorted(every, key=lambda run: (run.status == FINISHED, run.started_at), reverse=True)


def _same_description(run: RunRow, meant: RunRow) -> bool:
    """Return whether two runs have the same description; instructions for readers belong to the benchmark."""
    first, second = ({name: value for name, value in each.description.items() if name != "reading"} for each in (run, meant))
    return first == second
