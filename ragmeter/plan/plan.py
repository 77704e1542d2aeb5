"""A plan: what parts state, summed for each stage, task and judge; hours and memory of GPUs; and what must be there first.

A forward pass takes 2·N operations a token (N: parameters that it is multiplied with) and, for attention in a text of L
tokens, 4·layers·width·L, half of that where it is causal; learning takes three times a forward pass (Kaplan et al. 2020,
Scaling Laws: 2·N and 6·N). That is done at `utilization` of the peak. Writing a token reads all weights, and the keys and
values of the text before it, once a batch, at 60 % of the memory's bandwidth (Pope et al. 2022, Efficiently Scaling
Transformer Inference). Eight GPUs share texts evenly; what they exchange is not counted. Memory holds weights and, of
replies, keys and values; what learns in full takes 16 bytes a parameter (weights, gradient and two means of AdamW in
float32), what only adapters learn its weights; activations are not counted. A model must fit on one GPU.

Loading, tokenizing and waiting are in none of this, and small models and short texts reach a lower utilization. Where the
store holds a run of the same method on the same data, also of fewer questions, `measured_hours` go by the seconds that a
question took there, on the machine that it ran on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import settings
from benchmarks.core.errors import MissingPackage, UserError
from judges.judge import JUDGES
from methods.api import Services
from methods.models.weights import MissingWeights, missing_weights
from methods.pipeline import index_folder
from methods.registry import require_extra
from methods.work import DATA, TOKENS, Checkpoint, Lengths, Needs, StageWork, Use, Work, total, unknown
from ragmeter.experiment import BenchmarkPlan, Experiment, JudgePlan, MethodPlan, candidate_retriever
from ragmeter.plan.shapes import Shape, options, shape_of
from ragmeter.runner.sizes import ModelSize, size_of
from ragmeter.runner.tasks import MINIMUM_FREE_BYTES, Loaded, Task, default_metrics, require_scoring
from ragmeter.trainings import TrainingPlan
from results.store import queries
from results.store.store import Store

# -- GPUs --


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its maker's data sheet: memory, peak operations a second in 16 bits (dense) and float32, bytes a second."""

    name: str
    gigabytes: int
    half: float
    single: float
    bandwidth: float


GPUS = (Gpu("RTX 4090", 24, 165.2e12, 82.6e12, 1.008e12), Gpu("H100", 80, 989e12, 67e12, 3.35e12), Gpu("H200", 141, 989e12, 67e12, 4.8e12))
COUNTS = (1, 8)
UTILIZATION, BANDWIDTH = 0.4, 0.6
"""Shares of the peak and of the bandwidth: of large models in a tuned loop."""
Sizes = Callable[..., ModelSize]


def operations(size: ModelSize, tokens: float, length: float, *, causal: bool = True) -> float:
    """Of forward passes; of a model whose shape is unknown without attention."""
    attention = (2.0 if causal else 4.0) * (size.layers or 0) * (size.width or 0) * length
    return tokens * (2.0 * size.computing + attention)


def seconds(use: Use, size: ModelSize, gpu: Gpu, utilization: float = UTILIZATION) -> float:
    """Of one GPU, for what a model of known size does."""
    tokens = use.prompt + use.encoded + 3 * use.trained
    peak = gpu.single if use.dtype == "float32" else gpu.half
    read = operations(size, tokens, use.length, causal=use.causal) / (peak * utilization)
    at_once = min(use.batch, use.calls)
    if not at_once:
        return read
    weights = _bytes(use) * ((size.parameters or 0.0) + at_once * _kept(size, use.length + use.completion / use.calls / 2))
    return read + use.completion / at_once * weights / (gpu.bandwidth * BANDWIDTH)


def memory(use: Use, size: ModelSize) -> float:
    """Bytes of a GPU that a model of known size takes."""
    if use.trained and not use.adapted:
        return 16.0 * (size.parameters or 0.0)
    most = use.length + use.completion / use.calls if use.calls else 0.0
    return _bytes(use) * ((size.parameters or 0.0) + min(use.batch, use.calls) * _kept(size, most))


def _kept(size: ModelSize, length: float) -> float:
    """Numbers in keys and values of a text."""
    return 2.0 * (size.layers or 0) * (size.kv_width or 0) * length


def _bytes(use: Use) -> int:
    return 4 if use.dtype == "float32" else 2


# -- Rows --


@dataclass(frozen=True)
class Row:
    """A stage, task or judge, as planned.

    Attributes:
        key: What it is: names and numbers, as in JSON.
        parts: What is left of each step, at most.
        origin: Where lengths are from, see `Shape`; of several data the least sure.
        gpu_bytes: Memory of a GPU at once, at least.
        hours: By GPU and number of them; None: it does not fit.
        scratch: Bytes on disk while it runs.
        measured_hours: Of the machine that gave the answers in the store.
    """

    key: Mapping[str, Any]
    parts: Mapping[str, Work]
    origin: str = ""
    gpu_bytes: float = 0.0
    hours: Mapping[tuple[Gpu, int], float | None] = field(default_factory=dict)
    scratch: float = 0.0
    measured_hours: float | None = None

    @property
    def work(self) -> Work:
        """Of all steps."""
        return total(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        origin = {"lengths": self.origin, "scratch_bytes": round(self.scratch), "measured_hours": self.measured_hours}
        parts = {name: work_json(work) for name, work in self.parts.items()}
        cost = work_json(self.work) | {"gpu_gb": self.gpu_bytes / 1e9, "hours": hours_json(self.hours)}
        return {**self.key, **origin, "cost": cost, "parts": parts}


def work_json(work: Work) -> dict[str, Any]:
    """Work as a JSON object."""
    counts = {"calls" if name == "calls" else f"{name}_tokens": round(work.count(name)) for name in TOKENS}
    return {**counts, "disk_bytes": round(work.bytes), "usd": work.usd, "at_least": bool(work.unknown), "unknown": list(work.unknown)}


def hours_json(hours: Mapping[tuple[Gpu, int], float | None]) -> dict[str, dict[str, float | None]]:
    """Hours by memory of a GPU and number of GPUs; null: it does not fit."""
    return {f"{gpu.gigabytes} GB": {str(n): hours[gpu, n] for n in COUNTS if (gpu, n) in hours} for gpu in GPUS}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that must be there and is not; `kind`: data, key, package, model, disk or other."""

    kind: str
    what: str
    where: str | None
    remedy: str | None
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"kind": self.kind, "what": self.what, "where": self.where, "try": self.remedy, "needed_by": list(self.needed_by)}


@dataclass(frozen=True)
class Plan:
    """What an experiment, or a training alone, would take.

    Attributes:
        name: Of it.
        stages, tasks, judges: Their rows.
        missing: What must be there first.
        endpoints: URL and name of each model that is asked at a distance, and who asks it.
        models: The local models, with their sizes.
        samples: Data of which a local file holds only a part.
        utilization: Share of the peak that hours are computed with.
    """

    name: str
    stages: tuple[Row, ...]
    tasks: tuple[Row, ...]
    judges: tuple[Row, ...]
    missing: tuple[Missing, ...]
    endpoints: Mapping[tuple[str, str], tuple[str, ...]]
    models: tuple[ModelSize, ...]
    samples: tuple[Shape, ...]
    utilization: float

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        return (*self.stages, *self.tasks, *self.judges)

    @property
    def totals(self) -> dict[str, Work]:
        """What is left of trainings, tasks and judgments, and all together."""
        kinds = {"trainings": self.stages, "tasks": self.tasks, "judges": self.judges, "all": self.rows}
        return {name: total(row.work for row in rows) for name, rows in kinds.items()}

    @property
    def hours(self) -> dict[tuple[Gpu, int], float | None]:
        """Of all rows, one after another."""
        every = {(gpu, n): [row.hours[gpu, n] for row in self.rows if row.hours] for gpu in GPUS for n in COUNTS}
        return {key: None if None in values else sum(filter(None, values)) for key, values in every.items()}


NEW, WAITING = "new", "after training"
ROW, RANKED = 1_200, 45
"""Bytes of a prediction in the store, and of each ranked passage with it."""
ORDERS = 2
"""In which a pair judge is shown two answers."""
ORIGINS = ("", "counted", "sampled", "stated", "unknown")


def plan_of(experiment: Experiment, store: Store, utilization: float | None = None) -> Plan:
    """Plan an experiment.

    Raises:
        UserError: A setting, or a reading, is impossible on data that are here, or the utilization is no share.
    """
    return _Planner(experiment.trainings, store, utilization).experiment(experiment)


def plan_training(plan: TrainingPlan, store: Store, utilization: float | None = None) -> Plan:
    """Plan a training alone."""
    planner = _Planner((plan,), store, utilization)
    return planner.plan(plan.name, planner.stages(), (), (), ())


class _Planner:
    """One plan in the making."""

    def __init__(self, trainings: Sequence[TrainingPlan], store: Store, utilization: float | None) -> None:
        if utilization is not None and not 0 < utilization <= 1:
            raise UserError(f"{utilization:g} is no share of a peak", where="--utilization", try_this="a number above 0, at most 1")
        self.trainings, self.store, self.utilization = trainings, store, utilization or UTILIZATION
        self._homes = {plan.folder(store.folder).absolute(): plan for plan in trainings}
        self._left = {(plan.name, plan.config.seed): plan.trained(store.folder) != plan.stages for plan in trainings}
        self._done: set[str] = set()
        self.taught: dict[str, Shape] = {}
        self.runs: list[queries.RunRow] = []
        self.size: Sizes = cache(self._size)

    # -- models --

    def training(self, model: str) -> TrainingPlan | None:
        """The training whose checkpoint a folder is, or will be: a stage's folder, or a tower's in it."""
        path = Path(model).expanduser().absolute()
        return next(filter(None, map(self._homes.get, (path, *path.parents[:2]))), None)

    def _size(self, model: str, revision: str | None = None) -> ModelSize:
        plan = self.training(model)
        needs = plan.models if plan is not None else None
        if needs is None or not needs.checkpoints:
            return size_of(model, revision)
        return self.size(needs.checkpoints[0].model, needs.checkpoints[0].revision)

    def lengths(self, shape: Shape, questions: float | None = None, **further: Any) -> Lengths:
        """What parts know of data."""

        def of(model: str) -> Any:
            plan = self.training(model)
            return None if plan is None else plan.config

        def judging(judge: tuple[str, Mapping[str, Any]], number: float, answer: float) -> Work:
            return JUDGES.get(judge[0]).config.model_validate(judge[1]).work(shape.lengths(), number, answer)

        return shape.lengths(questions, size=self.size, training=of, judging=judging, **further)

    # -- rows --

    def settled(self, work: Work) -> Work:
        """Work with what is done once, where nothing before has done it and the store does not hold it."""
        results = [replace(work, once=())]
        for item in work.once:
            if item.key not in self._done:
                self._done.add(item.key)
                results.append(self.settled(item.work))
        return total(results)

    def row(self, key: Mapping[str, Any], parts: Mapping[str, Work], stated: float = 0.0, **further: Any) -> Row:
        """A row with its hours, and memory `stated` in GB where that is more than its models' sizes say."""
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
        # What is loaded here is loaded together; behind an endpoint each has a GPU of its own.
        here = max(sum(size for own, size in every.values() if own), stated * 1e9)
        most = max([here, *(size for own, size in every.values() if not own)])
        fitting = {key: None if most > key[0].gigabytes * 1e9 else value for key, value in hours.items()}
        shown = {name: work for name, work in named.items() if work != Work()}
        return Row(key, shown, gpu_bytes=most, hours=fitting if every else {}, **further)

    def stages(self) -> list[Row]:
        """Of all trainings, in order."""
        return [row for plan in self.trainings for row in self._stages(plan)]

    def _stages(self, plan: TrainingPlan) -> Iterator[Row]:
        data: dict[str, Shape] = {}

        def lengths(reference: str, chosen: Mapping[str, Mapping[str, Any]]) -> Lengths:
            key = f"{reference} {chosen}"
            if key not in self.taught:
                self.taught[key] = shape_of(*options(reference, options_in(reference, chosen)))
            data[key] = self.taught[key]
            return self.lengths(self.taught[key])

        done = set(plan.trained(self.store.folder))
        if plan.entry.work is None:
            nothing = unknown(f"training {plan.name}: {plan.entry.id} states no work")
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
            stated = (needs and needs.train_gpu_gb) or 0.0
            yield self.row(key, parts, stated, origin=origin, scratch=0.0 if trained else item.scratch)

    def experiment(self, experiment: Experiment) -> Plan:
        """The whole."""
        self.runs = queries.runs(self.store) if self.store.database.exists else []
        known = {row.dataset.partition("(")[0] for row in self.runs}
        benchmarks = experiment.benchmarks
        # Runs are known by all of their data: it is read in full where there may be some.
        shapes = [shape_of(b.reference, b.config, b.setting, b.limit, full=str(b.reference) in known) for b in benchmarks]
        for benchmark, shape in zip(benchmarks, shapes, strict=True):
            if shape.benchmark is not None:
                settings.check(benchmark.setting, shape.benchmark, where=benchmark.where)
        stages = self.stages()
        tasked = zip(benchmarks, shapes, variants(benchmarks), strict=True)
        tasks = [self._task(experiment, method, *of) for of in tasked for method in experiment.methods]
        longest = max((row.work.count("completion") / (row.work.count("calls") or 1) for row in tasks), default=0.0)
        judges = [self._judge(judge, experiment, shapes, longest) for judge in experiment.judges if not judge.judge.rule]
        return self.plan(experiment.name, stages, tasks, judges, shapes, experiment)

    def _task(self, experiment: Experiment, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape, variant: str) -> Row:
        waits = any(self._left[plan.name, plan.config.seed] for plan in method.needs)
        run = None if waits else self._run(experiment, method, benchmark, shape)
        done = 0 if run is None else len(self.store.finished_questions(run))
        status = WAITING if waits else (self.store.status(run) if run is not None else None) or NEW
        left = None if shape.questions is None else shape.questions - done
        key = {"method": method.name, "dataset": str(shape.reference), "setting": str(benchmark.setting), "seed": experiment.seed}
        key |= {"variant": variant, "questions": shape.questions, "done": done, "left": left, "status": status, "run": run}
        parts = {"unclear": unknown(shape.unclear)} if shape.unclear else self._parts(method, benchmark, shape, left) if left else {}
        stated = sum((part.needs or Needs()).gpu_gb or 0.0 for part in method.components)
        each = None if waits or not left else self._measured(method, benchmark, shape)
        return self.row(key, parts, stated, origin=shape.origin, measured_hours=None if each is None else each * (left or 0) / 3600)

    def _measured(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape) -> float | None:
        """Seconds of a question in the newest run of a method on the same data; None: there is none."""
        names = (str(shape.reference), str(benchmark.setting))
        runs = [row for row in self.runs if row.origin == "run" and row.done and (row.dataset.partition("(")[0], row.setting) == names]
        if not runs:
            return None
        described = json.loads(json.dumps(method.composition.describe(shape.reading)))
        alike = [row.run for row in sorted(runs, key=lambda row: row.updated_at) if row.description == described]
        return queries.costs(self.store, alike[-1:])[alike[-1]].seconds if alike else None

    def _run(self, experiment: Experiment, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape) -> str | None:
        """The fingerprint of a task, where all that decides it is here."""
        if shape.benchmark is None:
            return None
        metrics = experiment.metrics or default_metrics(shape.benchmark)
        loaded = Loaded(benchmark, shape.benchmark, metrics)
        task = Task(experiment.name, loaded, method, experiment.seed)
        # No reading where one is followed, and no gold for any metric, are mistakes of the file and not something missing.
        _ = task.reading
        if shape.origin == "counted":
            require_scoring(experiment, loaded)
        try:
            return task.run.run if shape.origin == "counted" else None
        except UserError:
            # Weights in a folder that is not there: listed as missing.
            return None

    def _parts(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape, left: float) -> dict[str, Work]:
        """What each step takes for the questions that are left."""
        made_of = method.composition
        lengths = self.lengths(shape, left, k=made_of.handed_on, depth=made_of.kept, compressed=made_of.compressor is not None)
        works: dict[str, Work] = {}
        prescribed = candidate_retriever(benchmark.setting)
        if prescribed is not None:
            works["candidates"] = prescribed.work(replace(lengths, depth=None))
        if getattr(made_of.method.entry.factory, "finds_nothing", False):
            lengths = replace(lengths, samples=tuple(replace(item, passages=(), candidates=0) for item in lengths.samples), whole=False)
        works["answer" if made_of.method.entry.whole else "retrieve"] = made_of.method.work(lengths)
        works["rerank"] = total(part.work(lengths) for part in made_of.rerankers)
        works["compress"] = made_of.compressor.work(lengths) if made_of.compressor else Work()
        works["read"] = made_of.answering.work(lengths) if made_of.answering else Work()
        once = [item for work in works.values() for item in work.once if not self._built(item.part, shape)]
        results = {"index": self.settled(Work(once=tuple(once)))}
        results |= {name: replace(work, once=()) for name, work in works.items()}
        return {**results, "store": Work(bytes=left * (ROW + RANKED * lengths.ranked()))}

    def _built(self, part: Any, shape: Shape) -> bool:
        """Whether the store holds a part's index."""
        if part is None or shape.indexed is None or shape.origin != "counted":
            return False
        try:
            folder = index_folder(part, shape.indexed, Services(artifacts=self.store.artifacts))
        except UserError:
            return False
        return folder is not None and folder.exists()

    def _judge(self, plan: JudgePlan, experiment: Experiment, shapes: Sequence[Shape], longest: float) -> Row:
        """Judgments at most: what is judged already, or needs no opinion, is not taken off."""
        methods, point = len(experiment.methods), plan.judge.entry.kind == "point"
        pairs = methods * (methods - 1) // 2 if plan.everyone else methods - 1
        each = (methods if point else ORDERS * pairs) * int(getattr(plan.judge.config, "repetitions", 1))
        works = [plan.judge.config.work(self.lengths(s), each * (s.questions or 0), longest, 1 if point else 2) for s in shapes]
        judgments = each * sum(shape.questions or 0 for shape in shapes)
        return self.row({"judge": str(plan.judge), "judgments": judgments}, {"judge": total(works)})

    # -- what must be there --

    def plan(
        self,
        name: str,
        stages: Sequence[Row],
        tasks: Sequence[Row],
        judges: Sequence[Row],
        shapes: Sequence[Shape],
        experiment: Experiment | None = None,
    ) -> Plan:
        """The rows with what they need."""
        needs = list(self._needs(experiment))
        endpoints: dict[tuple[str, str], tuple[str, ...]] = {}
        for who, need in needs:
            for chat in need.endpoints:
                endpoints[chat.url, chat.model] = tuple(dict.fromkeys((*endpoints.get((chat.url, chat.model), ()), who)))
        local = [(who, item) for who, need in needs for item in need.checkpoints if self.training(item.model) is None]
        models = tuple(dict.fromkeys(self.size(item.model, item.revision) for _, item in local if not item.adapter))
        samples = {str(shape.reference): shape for shape in (*shapes, *self.taught.values()) if shape.whole_number is not None}
        plan = Plan(name, tuple(stages), tuple(tasks), tuple(judges), (), endpoints, models, tuple(samples.values()), self.utilization)
        disk = plan.totals["all"].bytes + max((row.scratch for row in stages), default=0.0)
        lacking = [*self._lacking_data(shapes), *self._checks(experiment, needs), *self._lacking_models(local), *self._lacking_disk(disk)]
        merged: dict[tuple[str, str, str | None], Missing] = {}
        for item in lacking:
            at = (item.kind, item.what, item.remedy)
            before = merged[at].needed_by if at in merged else ()
            merged[at] = replace(item, needed_by=tuple(dict.fromkeys((*before, *item.needed_by))))
        return replace(plan, missing=tuple(merged.values()))

    def _needs(self, experiment: Experiment | None) -> Iterator[tuple[str, Needs]]:
        """What trainings that are left, methods, settings and judges need."""
        for plan in self._to_train:
            yield plan.name, plan.models or Needs()
            if plan.config.wanted_judge is not None:
                name, value = plan.config.wanted_judge
                yield plan.name, JUDGES.get(name).config.model_validate(value).needs
        if experiment is None:
            return
        for method in experiment.methods:
            yield from ((method.name, part.needs or Needs()) for part in method.components)
        for benchmark in experiment.benchmarks:
            if (part := candidate_retriever(benchmark.setting)) is not None:
                yield f"setting {benchmark.setting}", part.needs or Needs()
        yield from ((str(judge.judge), judge.judge.config.needs) for judge in experiment.judges)

    @property
    def _to_train(self) -> list[TrainingPlan]:
        return [plan for plan in self.trainings if self._left[plan.name, plan.config.seed]]

    def _lacking_data(self, shapes: Iterable[Shape]) -> Iterator[Missing]:
        for who, several in (("benchmarks", shapes), ("trainings", self.taught.values() if self._to_train else ())):
            yield from (Missing("data", e.what, e.where, e.try_this, (who,)) for shape in several for e in shape.absent)

    def _lacking_models(self, local: Iterable[tuple[str, Checkpoint]]) -> Iterator[Missing]:
        for who, checkpoint in local:
            if (error := missing_weights(checkpoint)) is not None:
                yield Missing("model", error.what, error.where, error.try_this, (who,))

    def _lacking_disk(self, needed: float) -> Iterator[Missing]:
        folder = self.store.folder.absolute()
        while not folder.exists():
            folder = folder.parent
        free, wanted = shutil.disk_usage(folder).free, max(float(MINIMUM_FREE_BYTES), needed)
        if free < wanted:
            what = f"{wanted / 1e9:,.1f} GB may be needed on the store's disk, and {free / 1e9:,.1f} GB are free"
            remedy = "free some space, or choose another disk with --store FOLDER"
            yield Missing("disk", what, str(self.store.folder), remedy, ("the whole",))

    def _checks(self, experiment: Experiment | None, needs: Iterable[tuple[str, Needs]]) -> Iterator[Missing]:
        """What packages, keys and options lack: all of it, not only the first that a run would stop at."""
        for who, need in needs:
            for chat in need.endpoints:
                yield from _lacking(chat.key, who)
        for plan in self._to_train:
            yield from _lacking(lambda plan=plan: require_extra(plan.entry.extra, f"training {plan.name}"), plan.name)  # type: ignore[misc]
            # What a checkpoint of another training must say cannot be checked before it is there.
            if not plan.needs:
                yield from _lacking(plan.config.preflight, plan.name)
        for method in experiment.methods if experiment else ():
            waits = any(self._left[plan.name, plan.config.seed] for plan in method.needs)
            for part in method.components:
                later = waits and (part.needs is None or any(self.training(item.model) for item in part.needs.checkpoints))
                check = (lambda part=part: require_extra(part.entry.extra, part.id)) if later else part.preflight  # type: ignore[misc]
                yield from _lacking(check, method.name)
        for benchmark in experiment.benchmarks if experiment else ():
            if (retriever := candidate_retriever(benchmark.setting)) is not None:
                yield from _lacking(retriever.preflight, f"setting {benchmark.setting}")
        for judge in experiment.judges if experiment else ():
            yield from _lacking(judge.judge.config.preflight, f"judge {judge.judge}")


def _lacking(check: Callable[[], object], who: str) -> Iterator[Missing]:
    """What a check finds missing; weights are listed apart."""
    try:
        check()
    except MissingWeights:
        return
    except UserError as error:
        kind = "package" if isinstance(error, MissingPackage) else "key" if error.where == "key_variable" else "other"
        yield Missing(kind, error.what, error.where, error.try_this, (who,))


def options_in(reference: str, chosen: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of options by dataset id, or by id/subset, those of a reference."""
    from benchmarks.registry import resolve

    return resolve(reference)[0].options_in(chosen)


def variants(plans: Sequence[BenchmarkPlan]) -> list[str]:
    """For each benchmark the options, `key=value`, in which it is not like the others of its name; "" for one alone."""
    values = [_flat(plan.config.model_dump(mode="json", exclude_unset=True)) for plan in plans]
    for plan, flat in zip(plans, values, strict=True):
        flat.update({} if plan.limit is None else {"limit": str(plan.limit)})
    names = [(str(plan.reference), str(plan.setting)) for plan in plans]
    results = []
    for name, flat in zip(names, values, strict=True):
        alike = [other for other, its in zip(values, names, strict=True) if its == name]
        differing = {key for other in alike for key in other if any(item.get(key) != other[key] for item in alike)}
        results.append(", ".join(f"{key}={flat[key]}" for key in flat if key in differing))
    return results


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, inner in value.items():
        flat.update(_flat(inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else {f"{prefix}{key}": str(inner)})
    return flat
