"""An experiment's plan: every stage, task and judge with what is left of it, totals, and what must be there first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import settings
from benchmarks.errors import UserError
from methods.api import Services
from methods.pipeline import index_folder
from methods.registry import Component
from ragmeter.candidates import candidate_retriever
from ragmeter.experiment import BenchmarkPlan, Experiment, MethodPlan
from ragmeter.planning.answering import parts
from ragmeter.planning.cost import Cost, total
from ragmeter.planning.endpoints import EndpointRow, endpoint_rows
from ragmeter.planning.hardware import Assumptions
from ragmeter.planning.judging import JudgeRow, judge_rows
from ragmeter.planning.lessons import Classroom
from ragmeter.planning.missing import Missing, missing
from ragmeter.planning.needed_models import needed_models
from ragmeter.planning.parts import Index, Work, indexes
from ragmeter.planning.published_rows import PublishedRow, published_rows
from ragmeter.planning.samples import Sample, samples
from ragmeter.planning.shape import Shape
from ragmeter.planning.shapes import shape_of
from ragmeter.planning.trainings import TrainingRow, references_of, training_rows
from ragmeter.planning.variants import variants
from ragmeter.planning.weights import Weights
from ragmeter.sizing.sizes import ModelSize
from ragmeter.tasks import Loaded, Task, default_metrics
from results import queries
from results.store import Store

NEW, WAITING = "new", "after training"


@dataclass(frozen=True)
class TaskRow:
    """A method on a benchmark, as planned.

    Attributes:
        method, dataset, setting, seed: The task.
        variant: Options in which the benchmark differs from others of its name in the experiment.
        questions: All of them; None: unknown.
        done: Of them those that the store holds.
        status: `new`, `after training`, or as the store has it.
        run: Fingerprint of its run, where the data and weights that it covers are here and were read.
        origin: Where numbers and lengths are from: see `Shape`.
        parts: What is left of each step, at most.
    """

    method: str
    dataset: str
    setting: str
    seed: int
    variant: str
    questions: int | None
    done: int
    status: str
    run: str | None
    origin: str
    parts: Mapping[str, Cost]

    @property
    def cost(self) -> Cost:
        """Of all steps."""
        return total(self.parts.values())

    @property
    def left(self) -> int | None:
        """Questions that are still to be answered."""
        return None if self.questions is None else self.questions - self.done

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "method": self.method,
            "dataset": self.dataset,
            "setting": self.setting,
            "seed": self.seed,
            "variant": self.variant,
            "questions": self.questions,
            "done": self.done,
            "left": self.left,
            "status": self.status,
            "run": self.run,
            "lengths": self.origin,
            "cost": self.cost.to_json(),
            "parts": {name: cost.to_json() for name, cost in self.parts.items()},
        }


@dataclass(frozen=True)
class Plan:
    """What an experiment would take.

    Attributes:
        experiment: Its name.
        stages: Of its trainings.
        tasks: Methods on benchmarks.
        judges: Those that ask a model.
        published: Rows that are published figures alone.
        missing: What must be there first.
        endpoints: Models that are asked at a distance.
        models: The local models, with their sizes.
        samples: Data of which a local file holds only a part.
        assumptions: What hours were computed with.
    """

    experiment: str
    stages: tuple[TrainingRow, ...]
    tasks: tuple[TaskRow, ...]
    judges: tuple[JudgeRow, ...]
    published: tuple[PublishedRow, ...]
    missing: tuple[Missing, ...]
    endpoints: tuple[EndpointRow, ...]
    models: tuple[ModelSize, ...]
    samples: tuple[Sample, ...]
    assumptions: Assumptions

    @property
    def totals(self) -> dict[str, Cost]:
        """What is left of trainings, tasks and judgements, and all together."""
        found = {
            "trainings": total(row.cost for row in self.stages),
            "tasks": total(row.cost for row in self.tasks),
            "judges": total(row.cost for row in self.judges),
        }
        return {**found, "all": total(found.values())}

    @property
    def scratch(self) -> float:
        """Bytes that the greediest stage takes while it runs."""
        return max((row.scratch for row in self.stages), default=0.0)


def plan_of(experiment: Experiment, store: Store, assume: Assumptions | None = None) -> Plan:
    """Plan an experiment.

    Args:
        experiment: Validated.
        store: What is done already.
        assume: Device and utilisation.

    Raises:
        UserError: A setting, or a reading, is impossible on data that are here.
    """
    return _Planner(experiment, store, assume or Assumptions()).plan()


class _Planner:
    """One plan in the making."""

    def __init__(self, experiment: Experiment, store: Store, assume: Assumptions) -> None:
        self.experiment, self.store, self.assume = experiment, store, assume
        self.weights = Weights(experiment.trainings, store.folder)
        self._left = {(plan.name, plan.config.seed): plan.trained(store.folder) != plan.stages for plan in experiment.trainings}
        self.room = Classroom(assume, self.weights)
        self._built: set[tuple[str, str]] = set()
        known = {row.dataset.partition("(")[0] for row in queries.runs(store)} if store.database.exists else set()
        # Runs are known by all of their data: it is read in full where there may be some.
        self.shapes = [
            shape_of(one.reference, one.config, one.setting, one.limit, full=str(one.reference) in known) for one in experiment.benchmarks
        ]
        for one, shape in zip(experiment.benchmarks, self.shapes, strict=True):
            if shape.benchmark is not None:
                settings.check(one.setting, shape.benchmark, where=one.where)

    def plan(self) -> Plan:
        experiment, store = self.experiment, self.store
        stages = training_rows(experiment.trainings, self.room, store.folder)
        tasks = self._tasks()
        longest = max((row.cost.completion_tokens / (row.cost.calls or 1) for row in tasks), default=0.0)
        judges = judge_rows(experiment, self.shapes, longest, self.assume)
        taught = self._taught()
        planned = Plan(
            experiment.name,
            tuple(stages),
            tuple(tasks),
            tuple(judges),
            tuple(published_rows(experiment)),
            (),
            tuple(endpoint_rows(experiment)),
            tuple(self._models()),
            tuple(samples((*self.shapes, *taught))),
            self.assume,
        )
        disk = planned.totals["all"].disk + planned.scratch
        lacking = missing(experiment, self.shapes, taught, self.weights, store.folder, disk)
        return replace(planned, missing=tuple(lacking))

    def _taught(self) -> list[Shape]:
        left = [plan for plan in self.experiment.trainings if self._left[plan.name, plan.config.seed]]
        return [self.room.shape(one, given) for plan in left for one, given in references_of(plan)]

    def _models(self) -> list[ModelSize]:
        named = (model for model, _ in needed_models(self.experiment, list(self.experiment.trainings), self.weights))
        return [self.weights.size(*one) for one in dict.fromkeys(named)]

    # -- tasks --

    def _tasks(self) -> list[TaskRow]:
        plans = self.experiment.benchmarks
        return [
            self._task(method, benchmark, shape, variant)
            for benchmark, shape, variant in zip(plans, self.shapes, variants(plans), strict=True)
            for method in self.experiment.methods
        ]

    def _task(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape, variant: str) -> TaskRow:
        experiment = self.experiment
        waits = any(self._left[plan.name, plan.config.seed] for plan in method.needs)
        task = None if waits else self._known(method, benchmark, shape)
        run = None if task is None else task.run.run
        done = 0 if run is None else len(self.store.finished_questions(run))
        status = WAITING if waits else (self.store.status(run) if run is not None else None) or NEW
        left = 0 if shape.questions is None else shape.questions - done
        work = Work(shape, left, self.assume, self.weights)
        shares: dict[str, Cost] = {}
        if left or shape.questions is None:
            index = total(one.cost for one in self._indexes(method, benchmark, work))
            shares = {**({"index": index} if index != Cost() else {}), **parts(method, benchmark, work)}
        if shape.questions is None:
            shares["questions"] = Cost(unknown=(f"how many questions {shape.reference} has",))
        return TaskRow(
            method.name,
            str(shape.reference),
            str(benchmark.setting),
            experiment.seed,
            variant,
            shape.questions,
            done,
            status,
            run,
            shape.origin,
            shares,
        )

    def _known(self, method: MethodPlan, benchmark: BenchmarkPlan, shape: Shape) -> Task | None:
        """The task, where all that decides its fingerprint is here."""
        if shape.benchmark is None:
            return None
        metrics = self.experiment.metrics or default_metrics(shape.benchmark)
        task = Task(self.experiment.name, Loaded(benchmark, shape.benchmark, metrics), method, self.experiment.seed)
        # That a benchmark brings no reading where one is followed is a mistake of the file, not something missing.
        _ = task.reading
        if shape.origin != "counted":
            return None
        try:
            _ = task.run
        except UserError:
            # Weights in a folder that is not there: listed as missing.
            return None
        return task

    def _indexes(self, method: MethodPlan, benchmark: BenchmarkPlan, work: Work) -> Sequence[Index]:
        """Indexes that are neither built already nor by an earlier task of the plan."""
        prescribed = candidate_retriever(benchmark.setting)
        wanted = [method.composition.method, *([prescribed] if prescribed is not None else [])]
        where = f"{benchmark.reference} {benchmark.config.model_dump_json()}"
        found = []
        for component in wanted:
            for index in indexes(component, work):
                key = (f"{index.component.id} {index.component.config.model_dump_json()}", where)
                if key not in self._built and not self._kept(index.component, work.shape):
                    found.append(index)
                self._built.add(key)
        return found

    def _kept(self, component: Component, shape: Shape) -> bool:
        if shape.benchmark is None or shape.origin != "counted":
            return False
        try:
            folder = index_folder(component, shape.benchmark.corpus, Services(artefacts=self.store.artefacts))
        except UserError:
            return False
        return folder is not None and folder.exists()
