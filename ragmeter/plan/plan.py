"""Estimate the cost of an experiment: the work that its parts report, summed per stage, task and judge.

If the store holds a run of the same method on the same data, also of fewer questions, `measured_hours` use the seconds per
question of that run, on the machine that it ran on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from benchmarks import settings
from benchmarks.core.errors import UserError
from benchmarks.registry import MAPPING, resolve
from judges.judge import JUDGES
from methods.api import NO_RETRIEVAL, Services
from methods.pipeline import Composition, index_folder
from methods.spending import NO_LIMITS, Limits
from methods.work import DATA, TOKENS, Lengths, Needs, StageWork, Work, filler, total, unknown
from ragmeter.experiment import BenchmarkPlan, Experiment, JudgePlan, MethodPlan, candidate_retriever
from ragmeter.plan.gpus import COUNTS, GPUS, UTILIZATION, Gpu, Hours, memory, seconds
from ragmeter.plan.shapes import Shape, options, shape_of
from ragmeter.runner.preflight import Missing, all_missing, homes_of, needs_of, to_train, training_of
from ragmeter.runner.sizes import ModelSize, size_of
from ragmeter.runner.tasks import Loaded, Task, default_metrics, require_scoring
from ragmeter.trainings import TrainingPlan
from results.store import cost_queries, queries
from results.store.store import FINISHED, Store


@dataclass(frozen=True)
class PlannedWork:
    """Estimated remaining work of a training stage, a task or a judge.

    Attributes:
        key: Fields that identify it, as in the JSON output.
        parts: Upper bound of the remaining work of each step.
        origin: Source of the text lengths (see `Shape`); the least certain one of several datasets.
        gpu_bytes: Lower bound of the GPU memory in use at once.
        hours: Estimated hours by GPU model and number of GPUs.
        scratch: Temporary disk space, in bytes.
        measured_hours: Hours at the measured speed of an earlier run on its machine; None without one.
    """

    key: Mapping[str, Any]
    parts: Mapping[str, Work]
    origin: str = ""
    gpu_bytes: float = 0.0
    hours: Hours = field(default_factory=dict)
    scratch: float = 0.0
    measured_hours: float | None = None

    @property
    def work(self) -> Work:
        return total(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """Return the estimated work as a JSON object."""
        origin = {"lengths": self.origin, "scratch_bytes": round(self.scratch), "measured_hours": self.measured_hours}
        parts = {name: work_json(work) for name, work in self.parts.items()}
        cost = work_json(self.work) | {"gpu_gb": self.gpu_bytes / 1e9, "hours": hours_json(self.hours)}
        return {**self.key, **origin, "cost": cost, "parts": parts}


def work_json(work: Work) -> dict[str, Any]:
    """Return work as a JSON object."""
    counts = {"calls" if name == "calls" else f"{name}_tokens": round(work.count(name)) for name in TOKENS}
    return {**counts, "disk_bytes": round(work.bytes), "usd": work.usd, "at_least": bool(work.unknown), "unknown": list(work.unknown)}


def hours_json(hours: Hours) -> dict[str, dict[str, float | None]]:
    """Convert hours to JSON, by GPU memory and number of GPUs; null if the models do not fit."""
    return {f"{gpu.gigabytes} GB": {str(n): hours[gpu, n] for n in COUNTS if (gpu, n) in hours} for gpu in GPUS}


@dataclass(frozen=True)
class Plan:
    """Estimated cost of an experiment or of a single training.

    Attributes:
        missing: Missing prerequisites.
        endpoints: URL and name of each model behind an endpoint, and the rows that call it.
        models: The local models, with their sizes.
        samples: Datasets of which a local file contains only a part.
        mappings: How the fields of the user's own files are interpreted, by dataset; of a training also the loaders' options.
        utilization: Assumed share of a GPU's peak performance.
        limits: Spending limits of one execution.
    """

    name: str
    stages: tuple[PlannedWork, ...]
    tasks: tuple[PlannedWork, ...]
    judges: tuple[PlannedWork, ...]
    missing: tuple[Missing, ...]
    endpoints: Mapping[tuple[str, str], tuple[str, ...]]
    models: tuple[ModelSize, ...]
    samples: tuple[Shape, ...]
    mappings: Mapping[str, str]
    utilization: float
    limits: Limits = NO_LIMITS

    @property
    def measured_hours(self) -> float | None:
        """Return the total hours at the measured speed of earlier runs; None if there were none."""
        measured = [row.measured_hours for row in self.tasks if row.measured_hours is not None]
        return sum(measured) if measured else None

    @property
    def rows(self) -> tuple[PlannedWork, ...]:
        return (*self.stages, *self.tasks, *self.judges)

    @property
    def totals(self) -> dict[str, Work]:
        """Return the remaining work of trainings, tasks and judgments, and in total."""
        kinds = {"trainings": self.stages, "tasks": self.tasks, "judges": self.judges, "all": self.rows}
        return {name: total(row.work for row in rows) for name, rows in kinds.items()}

    @property
    def hours(self) -> Hours:
        """Return the total hours of all rows if they run one after another."""
        every = {(gpu, n): [row.hours[gpu, n] for row in self.rows if row.hours] for gpu in GPUS for n in COUNTS}
        return {key: None if None in values else sum(filter(None, values)) for key, values in every.items()}


def _read(made_of: Composition, lengths: Lengths) -> Lengths:
    """Return the reader's input: the passages after the method's own text."""
    number = made_of.context_tokens
    if not number:
        return lengths
    samples = tuple(replace(item, passages=(filler(number), *item.passages)) for item in lengths.samples)
    return replace(lengths, samples=samples, k=None if lengths.k is None else lengths.k + 1)


Rows = Sequence[PlannedWork]
NEW, WAITING = "new", "after training"
ROW, RANKED, ORDERS = 1_200, 45, 2
"""Bytes of a prediction in the store and per ranked passage; displayed orders per item of a pair judge."""
ORIGINS = ("", "counted", "sampled", "stated", "unknown")


def plan_of(experiment: Experiment, store: Store, utilization: float | None = None) -> Plan:
    """Estimate the cost of an experiment; raises `UserError` if a setting or reader is impossible for the available data."""
    return _Planner(experiment.trainings, store, utilization).experiment(experiment)


def plan_training(plan: TrainingPlan, store: Store, utilization: float | None = None) -> Plan:
    """Estimate the cost of a single training."""
    planner = _Planner((plan,), store, utilization)
    made = planner.plan(plan.name, list(planner.stages(plan)), (), (), ())
    return replace(made, mappings={**made.mappings, **dict(_loader_options(plan.config))})


def _loader_options(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the options of each dataset that a training loads, those that a preset states included."""
    for key in ("data", "graph"):
        options = getattr(config, f"{key}_options", None)
        for dataset, values in options.items() if isinstance(options, Mapping) else ():
            yield f"{key}_options.{dataset}", ", ".join(f"{name} {value}" for name, value in values.items())


class _Planner:
    """Builder of one plan."""

    def __init__(self, trainings: Sequence[TrainingPlan], store: Store, utilization: float | None) -> None:
        if utilization is not None and not 0 < utilization <= 1:
            raise UserError(
                f"{utilization:g} is not a share of the peak (0 to 1)",
                code="bad-peak-share",
                where="--utilization",
                try_this="a number above 0, at most 1",
            )
        self.trainings, self.store, self.utilization = trainings, store, utilization or UTILIZATION
        self._to_train, self._homes = to_train(trainings, store), homes_of(trainings, store)
        self._done: set[str] = set()
        self.taught: dict[str, Shape] = {}
        self.runs: list[queries.RunRow] = []
        self.size: Callable[..., ModelSize] = cache(self._size)

    def training(self, model: str) -> TrainingPlan | None:
        return training_of(model, self._homes)

    def _config(self, model: str) -> Any:
        return getattr(self.training(model), "config", None)

    def _size(self, model: str, revision: str | None = None) -> ModelSize:
        plan = self.training(model)
        needs = (plan.models if plan is not None else None) or Needs()
        first = next(iter(needs.checkpoints), None)
        return size_of(model, revision) if first is None else self.size(first.model, first.revision)

    def lengths(self, shape: Shape, questions: float | None = None, **further: Any) -> Lengths:
        """Return the known statistics of data."""

        def judging(judge: tuple[str, Mapping[str, Any]], number: float, answer: float) -> Work:
            return JUDGES.get(judge[0]).config.model_validate(judge[1]).work(shape.lengths(), number, answer)

        return shape.lengths(questions, size=self.size, training=self._config, judging=judging, **further)

    def settled(self, work: Work) -> Work:
        """Return work without what an earlier row already does once."""
        results = [replace(work, once=())]
        for item in work.once:
            if item.key not in self._done:
                self._done.add(item.key)
                results.append(self.settled(item.work))
        return total(results)

    def row(self, key: Mapping[str, Any], parts: Mapping[str, Work], least_gb: float = 0.0, **further: Any) -> PlannedWork:
        """Return a row with its hours, and with `least_gb` GB of memory if its models' sizes give less."""
        every: dict[str, tuple[bool, float]] = {}
        hours: dict[tuple[Gpu, int], float] = {(gpu, n): 0.0 for gpu in GPUS for n in COUNTS}
        named: dict[str, Work] = {}
        for name, work in parts.items():
            for use in work.uses:
                size = self.size(use.model, use.revision)
                if use.where == "away" or not size.known:
                    work += Work() if use.where == "away" else unknown(f"GPU hours of {use.model}: its size is unknown")
                    continue
                at = (use.where == "here", max(memory(use, size), every.get(size.model, (True, 0.0))[1]))
                every[size.model] = at
                for gpu, number in hours:
                    hours[gpu, number] += seconds(use * (1 / number), size, gpu, self.utilization) / 3600
            named[name] = work
        # Local models are loaded together; behind an endpoint each has its own GPU.
        here = max(sum(size for own, size in every.values() if own), least_gb * 1e9)
        most = max([here, *(size for own, size in every.values() if not own)])
        fitting = {key: None if most > key[0].gigabytes * 1e9 else value for key, value in hours.items()}
        shown = {name: work for name, work in named.items() if work != Work()}
        return PlannedWork(key, shown, gpu_bytes=most, hours=fitting if every else {}, **further)

    def stages(self, plan: TrainingPlan) -> Iterator[PlannedWork]:
        data: dict[str, Shape] = {}

        def lengths(reference: str, chosen: Mapping[str, Mapping[str, Any]]) -> Lengths:
            key = f"{reference} {chosen}"
            if key not in self.taught:
                self.taught[key] = shape_of(*options(reference, resolve(reference)[0].options_in(chosen)))
            data[key] = self.taught[key]
            return self.lengths(self.taught[key])

        done = set(plan.trained(self.store.folder))
        if plan.entry.work is None:
            nothing = unknown(f"training {plan.name}: {plan.entry.id} has no work estimate")
            works: Sequence[StageWork] = [StageWork(stage, nothing) for stage in plan.stages]
        else:
            works = plan.entry.work(plan.config, lengths)
        unclear = total(unknown(f"training {plan.name}: {shape.unclear}") for shape in data.values() if shape.unclear)
        origin = max((shape.origin for shape in data.values()), key=ORIGINS.index, default="unknown")
        needs = plan.models
        for item in works:
            # Data are made before the first stage; where all are trained, nothing of them is needed.
            trained = item.stage in done or (item.stage == DATA and done >= set(plan.stages))
            key = {"training": plan.name, "id": plan.entry.id, "seed": plan.config.seed, "stage": item.stage, "trained": trained}
            key |= {"rows": item.rows and round(item.rows), "steps": item.steps and round(item.steps)}
            parts = {} if trained else {item.stage: self.settled(item.work) + unclear}
            least_gb = (needs and needs.train_gpu_gb) or 0.0
            yield self.row(key, parts, least_gb, origin=origin, scratch=0.0 if trained else item.scratch)

    def experiment(self, experiment: Experiment) -> Plan:
        """Plan an experiment."""
        self.runs = queries.runs(self.store) if self.store.database.exists else []
        known = {row.dataset.partition("(")[0] for row in self.runs}
        benchmarks = experiment.benchmarks
        # Runs are known by all of their data: it is read in full where there may be some.
        shapes = [shape_of(b.reference, b.config, b.setting, b.limit, full=str(b.reference) in known) for b in benchmarks]
        for benchmark, shape in zip(benchmarks, shapes, strict=True):
            if shape.benchmark is not None:
                settings.check(benchmark.setting, shape.benchmark, where=benchmark.where)
        stages = [row for plan in self.trainings for row in self.stages(plan)]
        tasked = zip(benchmarks, shapes, variants(benchmarks), strict=True)
        tasks = [self._task(experiment, method, *of) for of in tasked for method in experiment.methods]
        longest = max((row.work.count("completion") / (row.work.count("calls") or 1) for row in tasks), default=0.0)
        judges = [self._judge(judge, experiment, shapes, longest) for judge in experiment.judges if not judge.judge.rule]
        return self.plan(experiment.name, stages, tasks, judges, shapes, experiment)

    def _task(self, experiment: Experiment, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape, variant: str) -> PlannedWork:
        waits = any(plan in self._to_train for plan in method.needs)
        run = None if waits else self._run(experiment, method, benchmark, shape)
        done = 0 if run is None else len(self.store.finished_questions(run))
        status = WAITING if waits else (self.store.status(run) if run is not None else None) or NEW
        left = None if shape.questions is None else shape.questions - done
        key = {"method": method.name, "dataset": str(shape.reference), "setting": str(benchmark.setting), "seed": experiment.seed}
        key |= {"variant": variant, "questions": shape.questions, "done": done, "left": left, "status": status, "run": run}
        parts = {"unclear": unknown(shape.unclear)} if shape.unclear else self._parts(method, benchmark, shape, left) if left else {}
        least_gb = sum((part.needs or Needs()).gpu_gb or 0.0 for part in method.components)
        each = None if waits or not left else self._measured(method, benchmark, shape)
        return self.row(key, parts, least_gb, origin=shape.origin, measured_hours=None if each is None else each * (left or 0) / 3600)

    def _measured(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape) -> float | None:
        """Return the seconds per question of the newest run of a method on the same data.

        Questions that were answered at the same time share their wall time.
        """
        names = (str(shape.reference), str(benchmark.setting))
        runs = [row for row in self.runs if row.origin == "run" and row.done and (row.dataset.partition("(")[0], row.setting) == names]
        if not runs:
            return None
        described = json.loads(json.dumps(method.composition.describe(shape.reading)))
        latest = max((row for row in runs if row.description == described), key=lambda row: row.updated_at, default=None)
        if latest is None:
            return None
        own = cost_queries.costs(self.store, [latest.run])[latest.run].seconds
        wall = (latest.updated_at - latest.started_at).total_seconds() / latest.done
        # Not above 0 if the clock was set back meanwhile.
        return min(own, wall) if latest.status == FINISHED and wall > 0 else own

    def _run(self, experiment: Experiment, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape) -> str | None:
        """Return the fingerprint of a task, if all of its inputs are available."""
        if shape.benchmark is None:
            return None
        metrics = experiment.metrics or default_metrics(shape.benchmark)
        loaded = Loaded(benchmark, shape.benchmark, metrics)
        task = Task(experiment.name, loaded, method, experiment.seed)
        # Missing reading instructions, and no gold for any metric, are errors of the file, not missing prerequisites.
        _ = task.reading
        if shape.origin == "counted":
            require_scoring(experiment, loaded)
        with suppress(UserError):  # weights in a folder that is not there: listed as missing
            return task.run.run if shape.origin == "counted" else None
        return None

    def _parts(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape, left: float) -> dict[str, Work]:
        """Return the work of each step for the remaining questions."""
        made_of = method.composition
        lengths = self.lengths(shape, left, k=made_of.handed_on, depth=made_of.kept, compressed=made_of.compressor is not None)
        works: dict[str, Work] = {}
        prescribed = candidate_retriever(benchmark.setting)
        if prescribed is not None:
            works["candidates"] = prescribed.work(replace(lengths, depth=None))
        if made_of.method.id == NO_RETRIEVAL:
            lengths = replace(lengths, samples=tuple(replace(item, passages=(), candidates=0) for item in lengths.samples), whole=False)
        works["answer" if made_of.method.entry.whole else "retrieve"] = made_of.method.work(lengths)
        works["rerank"] = total(part.work(lengths) for part in made_of.rerankers)
        works["compress"] = made_of.compressor.work(lengths) if made_of.compressor else Work()
        works["read"] = made_of.answering.work(_read(made_of, lengths)) if made_of.answering else Work()
        once = [item for work in works.values() for item in work.once if not self._built(item.part, shape)]
        results = {"index": self.settled(Work(once=tuple(once)))}
        results |= {name: replace(work, once=()) for name, work in works.items()}
        return {**results, "store": Work(bytes=left * (ROW + RANKED * lengths.ranked()))}

    def _built(self, part: Any, shape: Shape) -> bool:
        """Return whether the store has a part's index."""
        if part is None or shape.indexed is None or shape.origin != "counted":
            return False
        with suppress(UserError):
            folder = index_folder(part, shape.indexed, Services(artifacts=self.store.artifacts))
            return folder is not None and folder.exists()
        return False

    def _judge(self, plan: JudgePlan, experiment: Experiment, shapes: Sequence[Shape], longest: float) -> PlannedWork:
        """Return an upper bound of judgments, including stored ones and those that need no call."""
        methods, point = len(experiment.methods), plan.judge.entry.kind == "point"
        pairs = methods * (methods - 1) // 2 if plan.everyone else methods - 1
        each = (methods if point else ORDERS * pairs) * int(getattr(plan.judge.config, "repetitions", 1))
        works = [plan.judge.config.work(self.lengths(s), each * (s.questions or 0), longest, 1 if point else 2) for s in shapes]
        judgments = each * sum(shape.questions or 0 for shape in shapes)
        return self.row({"judge": str(plan.judge), "judgments": judgments}, {"judge": total(works)})

    def plan(
        self, name: str, stages: Rows, tasks: Rows, judges: Rows, shapes: Sequence[Shape], experiment: Experiment | None = None
    ) -> Plan:
        """Return the rows with their requirements."""
        needs = list(needs_of(experiment, self._to_train))
        endpoints: dict[tuple[str, str], tuple[str, ...]] = {}
        for who, need in needs:
            for chat in need.endpoints:
                endpoints[chat.url, chat.model] = tuple(dict.fromkeys((*endpoints.get((chat.url, chat.model), ()), who)))
        local = [(who, item) for who, need in needs for item in need.checkpoints if self.training(item.model) is None]
        models = tuple(dict.fromkeys(self.size(item.model, item.revision) for _, item in local if item.own))
        samples = {str(shape.reference): shape for shape in (*shapes, *self.taught.values()) if shape.whole_number is not None}
        read = [shape.benchmark for shape in shapes if shape.benchmark is not None and MAPPING in shape.benchmark.extra]
        mappings = {item.name: item.extra[MAPPING] for item in read}
        rows = (tuple(stages), tuple(tasks), tuple(judges))
        limits = experiment.limits if experiment is not None else NO_LIMITS
        plan = Plan(name, *rows, (), endpoints, models, tuple(samples.values()), mappings, self.utilization, limits)
        disk = plan.totals["all"].bytes + max((row.scratch for row in stages), default=0.0)
        absent = {"benchmarks": [error for shape in shapes for error in shape.absent]}
        absent["trainings"] = [error for shape in self.taught.values() if self._to_train for error in shape.absent]
        return replace(plan, missing=all_missing(experiment, self.trainings, self.store, absent, disk))


def variants(plans: Sequence[BenchmarkPlan]) -> list[str]:
    """Return, for each benchmark, the options `key=value` that distinguish it from others of the same name; "" if none are needed."""
    names = [(str(plan.reference), str(plan.setting)) for plan in plans]
    limits = [{} if plan.limit is None else {"limit": plan.limit} for plan in plans]
    options = [plan.config.model_dump(mode="json", exclude_unset=True) for plan in plans]
    flat = [dict(_flat(values | limit)) for values, limit in zip(options, limits, strict=True)]
    same_name = [[other for other, its in zip(flat, names, strict=True) if its == name] for name in names]
    differing = [[key for key in own if any(o.get(key) != own[key] for o in others)] for own, others in zip(flat, same_name, strict=True)]
    return [", ".join(f"{key}={own[key]}" for key in keys) for own, keys in zip(flat, differing, strict=True)]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        yield from _flat(inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else [(f"{prefix}{key}", inner)]
