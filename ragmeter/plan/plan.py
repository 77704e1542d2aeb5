"""An experiment's plan: every stage, task and judge with what is left of it, totals, and what must be there first."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from benchmarks import settings
from benchmarks.core.errors import MissingPackage, UserError
from judges.judge import JUDGES
from methods.api import Services
from methods.ark.config import ArkTrainingConfig
from methods.gpr.config import GprTrainingConfig
from methods.models.endpoint import ChatConfig
from methods.models.weights import locate
from methods.pipeline import index_folder
from methods.registry import METHODS, Component, require_extra
from methods.sark.config import SarkTrainingConfig
from methods.training import TrainingConfig
from ragmeter.experiment import BenchmarkPlan, Experiment, MethodPlan, candidate_retriever
from ragmeter.plan.cost import Assumptions, Cost, Index, JudgeRow, Weights, Work, indexes, judge_rows, parts, total
from ragmeter.plan.shapes import Sample, Shape, samples, shape_of
from ragmeter.plan.training import Planner, TrainingRow, references_of, training_rows
from ragmeter.runner.tasks import MINIMUM_FREE_BYTES, Loaded, Task, default_metrics
from ragmeter.sizes import ModelSize, files_of, models_in
from ragmeter.trainings import TrainingPlan
from results import queries
from results.board import base_name
from results.published import IDENTITY, Figure, figures, papers
from results.store import Store

# -- The endpoints that an experiment asks: whether they answer is seen only when it runs --


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """A model at an endpoint.

    Attributes:
        url: Where it is asked.
        model: Its name there.
        needed_by: Who asks it.
    """

    url: str
    model: str
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"url": self.url, "model": self.model, "needed_by": list(self.needed_by)}


def endpoint_rows(experiment: Experiment) -> list[EndpointRow]:
    """Every model at every endpoint, once."""
    results: dict[tuple[str, str], list[str]] = {}
    for who, chat in _chats(experiment):
        askers = results.setdefault((chat.url, chat.model), [])
        if who not in askers:
            askers.append(who)
    return [EndpointRow(url, model, tuple(askers)) for (url, model), askers in results.items()]


def _chats(experiment: Experiment) -> Iterator[tuple[str, ChatConfig]]:
    for plan in experiment.trainings:
        for chat in _of_training(plan.config):
            yield plan.name, chat
    for method in experiment.methods:
        for component in method.components:
            for chat in chats_in(component.config):
                yield method.name, chat
    for judge in experiment.judges:
        for chat in chats_in(judge.judge.config):
            yield str(judge.judge), chat


def _of_training(config: TrainingConfig) -> Iterator[ChatConfig]:
    # What a training's options hold and do not use (another generator) is left out where it says what it asks.
    used = getattr(config, "chats", None)
    yield from chats_in(config) if used is None else used
    if config.wanted_judge is not None:
        name, value = config.wanted_judge
        yield from chats_in(JUDGES.get(name).config.model_validate(value))


def chats_in(config: BaseModel) -> Iterator[ChatConfig]:
    """The options of endpoints that options are or hold."""
    if isinstance(config, ChatConfig):
        yield config
        return
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from chats_in(value)


# -- The local models that an experiment loads: those of its methods, of its settings, and of what its trainings use --


Model = tuple[str, str | None]
"""A folder or hub id, and a revision of it."""


def needed_models(experiment: Experiment, left: list[TrainingPlan], weights: Weights) -> Iterator[tuple[Model, str]]:
    """Every model and who needs it, checkpoints of the experiment's own trainings left out.

    Args:
        experiment: Validated.
        left: Trainings that are still to be carried out.
        weights: Knows which checkpoints these will make.
    """
    for plan in left:
        for model in _models_of_training(plan.config, weights):
            yield from _foreign(model, weights, plan.name)
    for method in experiment.methods:
        for model in models_in(tuple(method.components)):
            yield from _foreign(model, weights, method.name)
    for benchmark in experiment.benchmarks:
        retriever = candidate_retriever(benchmark.setting)
        for model in models_in((retriever,)) if retriever is not None else ():
            yield from _foreign(model, weights, f"setting {benchmark.setting}")


def _foreign(model: Model, weights: Weights, who: str) -> Iterator[tuple[Model, str]]:
    if weights.training(model[0]) is None:
        yield model, who


def _models_of_training(config: TrainingConfig, weights: Weights) -> Iterator[Model]:
    base = weights.base(config)
    if base is not None:
        yield base
    if isinstance(config, ArkTrainingConfig):
        score = config.score
        if score.f.weight or score.b.weight:
            yield score.scorer, score.revision
        if score.v.weight:
            yield config.vector_encoder.model, config.vector_encoder.revision
        if config.augments and config.kg.similarity.enabled:
            yield config.kg.similarity.encoder.model, config.kg.similarity.encoder.revision
    elif isinstance(config, GprTrainingConfig):
        yield config.triple_encoder.model, config.triple_revision or config.revision
    elif isinstance(config, SarkTrainingConfig):
        parts = [config.candidates.component] if config.candidates.source == "retriever" else []
        parts += [config.labels.extra.component] if config.labels.extra is not None else []
        parts += [config.labels.component] if config.labels.by == "reader" else []
        yield from models_in(tuple(parts))


# -- What must be there before an experiment can run and is not: keys, packages, weights, data; each with its remedy --


Kind = Literal["data", "key", "package", "model", "disk", "other"]


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not there.

    Attributes:
        kind: What kind of thing.
        what: What is missing.
        where: Where it was looked for.
        remedy: How to get it.
        needed_by: Who needs it.
    """

    kind: Kind
    what: str
    where: str | None
    remedy: str | None
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"kind": self.kind, "what": self.what, "where": self.where, "try": self.remedy, "needed_by": list(self.needed_by)}


def missing(
    experiment: Experiment, shapes: Iterable[Shape], taught: Iterable[Shape], weights: Weights, store: Path, needed_disk: float
) -> list[Missing]:
    """All that an experiment lacks here, each thing once.

    Args:
        experiment: Validated.
        shapes: Of its benchmarks.
        taught: Of the data of trainings that are still to be carried out.
        weights: Knows which checkpoints its own trainings will make.
        store: Where results and checkpoints will lie.
        needed_disk: Bytes that the plan comes to, at most.
    """
    left = [plan for plan in experiment.trainings if plan.trained(store) != plan.stages]
    models = [item for model, who in needed_models(experiment, left, weights) for item in _of_model(*model, who)]
    results = [
        *_of_data(shapes, "benchmarks"),
        *_of_data(taught, "trainings"),
        *_of_trainings(left),
        *_of_methods(experiment, weights, store),
        *_of_judges(experiment),
        *models,
        *_of_disk(store, needed_disk),
    ]
    merged: dict[tuple[str, str, str | None], Missing] = {}
    for item in results:
        key = (item.kind, item.what, item.remedy)
        known = merged.get(key)
        who = tuple(dict.fromkeys((*known.needed_by, *item.needed_by))) if known else item.needed_by
        merged[key] = Missing(item.kind, item.what, item.where, item.remedy, who)
    return list(merged.values())


def checked(check: Callable[[], object], who: str) -> Iterator[Missing]:
    """What a check finds missing."""
    try:
        check()
    except UserError as error:
        yield _of_error(error, who)


def _of_error(error: UserError, who: str) -> Missing:
    kind: Kind = "other"
    if isinstance(error, MissingPackage):
        kind = "package"
    elif error.where == "key_variable":
        kind = "key"
    return Missing(kind, error.what, error.where, error.try_this, (who,))


def _of_data(shapes: Iterable[Shape], who: str) -> Iterator[Missing]:
    for shape in shapes:
        for error in shape.absent:
            yield Missing("data", error.what, error.where, error.try_this, (who,))


def _of_trainings(plans: Iterable[TrainingPlan]) -> Iterator[Missing]:
    for plan in plans:
        yield from checked(lambda plan=plan: require_extra(plan.entry.extra, f"training {plan.name}"), plan.name)  # type: ignore[misc]
        yield from _chats_of(plan.config, plan.name)
        # What a checkpoint of another training must say cannot be checked before it is there.
        if not plan.needs:
            yield from checked(plan.config.preflight, plan.name)


def _chats_of(config: TrainingConfig, who: str) -> Iterator[Missing]:
    """Every key, not only the first one that a preflight would stop at."""
    for chat in getattr(config, "chats", ()):
        yield from checked(chat.key, who)


def _of_methods(experiment: Experiment, weights: Weights, store: Path) -> Iterator[Missing]:
    for method in experiment.methods:
        waits = any(plan.trained(store) != plan.stages for plan in method.needs)
        for component in method.components:
            if waits and weights.training(str(getattr(component.config, "model", ""))) is not None:
                extra = component.entry.extra
                yield from checked(lambda extra=extra, c=component: require_extra(extra, c.id), method.name)  # type: ignore[misc]
                continue
            yield from checked(component.preflight, method.name)
    for plan in experiment.benchmarks:
        retriever = candidate_retriever(plan.setting)
        if retriever is not None:
            yield from checked(retriever.preflight, f"setting {plan.setting}")


def _of_judges(experiment: Experiment) -> Iterator[Missing]:
    for plan in experiment.judges:
        yield from checked(plan.judge.config.preflight, f"judge {plan.judge}")


def _of_model(model: str, revision: str | None, who: str) -> Iterator[Missing]:
    """Weights that are neither in a folder nor in the hub's cache."""
    try:
        located = Path(locate(model))
    except UserError as error:
        yield Missing("model", error.what, error.where, error.try_this, (who,))
        return
    if not located.is_dir() and files_of(model, revision) is None:
        at = f" --revision {revision}" if revision else ""
        yield Missing(
            "model", f"the weights of {model} are not here", None, f"hf download {model}{at}, or let `run` fetch them from the hub", (who,)
        )


def _of_disk(store: Path, needed: float) -> Iterator[Missing]:
    folder = store.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    wanted = max(float(MINIMUM_FREE_BYTES), needed)
    if free < wanted:
        yield Missing(
            "disk",
            f"{wanted / 1e9:,.1f} GB may be needed on the store's disk, and {free / 1e9:,.1f} GB are free",
            str(store),
            "free some space, or choose another disk with --store FOLDER",
            ("the whole",),
        )


# -- Rows of a paper's table whose methods do not exist here: they stand beside ours as published figures alone --


_NAME = re.compile(r"(?P<paper>[a-z]+)-(?P<what>table|figure)(?P<number>\d+)")
_STATED = re.compile(r"published figures alone|not built")
"""How an experiment's description says that it leaves rows of its table to the paper."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A method that is there by its published figures alone.

    Attributes:
        method: Its name in the paper.
        paper, table: Where they are printed.
        figures: How many.
    """

    method: str
    paper: str
    table: str
    figures: int

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def published_rows(experiment: Experiment) -> list[PublishedRow]:
    """What an experiment leaves to the paper, of the table that its name says it is of (`ark-table2`)."""
    match = _NAME.fullmatch(experiment.name)
    if match is None or match["paper"] not in papers() or not _STATED.search(experiment.description):
        return []
    table = match["number"] if match["what"] == "table" else f"figure {match['number']}"
    ours = [_plain(base_name(method.name)) for method in experiment.methods]
    results = [figure for figure in figures(match["paper"]) if figure.table == table and "over" not in figure.conditions]
    counted = Counter(name for figure in results for name in _named(figure) if not any(_plain(name) in our for our in ours))
    return [PublishedRow(name, match["paper"], table, number) for name, number in counted.items()]


def _named(figure: Figure) -> Iterator[str]:
    """The methods of a figure that we have not: its own, and whom that was compared with."""
    match = IDENTITY.fullmatch(figure.id)
    if match is None or match["name"] not in METHODS:
        yield figure.method
    if "against" in figure.conditions:
        yield figure.conditions["against"]


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


# -- What tells benchmarks of an experiment apart that have the same name and setting --


Flat = dict[str, str]


def variants(plans: Sequence[BenchmarkPlan]) -> list[str]:
    """For each benchmark the options, `key=value`, in which it is not like the others of its name; "" for one alone."""
    options = [_flat(plan.config.model_dump(mode="json", exclude_unset=True)) for plan in plans]
    for plan, supplied in zip(plans, options, strict=True):
        supplied.update({} if plan.limit is None else {"limit": str(plan.limit)})
    names = [(str(plan.reference), str(plan.setting)) for plan in plans]
    results = []
    for name, supplied in zip(names, options, strict=True):
        alike = [other for other, its in zip(options, names, strict=True) if its == name]
        differing = {key for other in alike for key in other if any(item.get(key) != other[key] for item in alike)}
        results.append(", ".join(f"{key}={supplied[key]}" for key in supplied if key in differing))
    return results


def _flat(value: Mapping[str, Any], prefix: str = "") -> Flat:
    flat: Flat = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat.update(_flat(inner, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = str(inner)
    return flat


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
        """What is left of trainings, tasks and judgments, and all together."""
        results = {
            "trainings": total(row.cost for row in self.stages),
            "tasks": total(row.cost for row in self.tasks),
            "judges": total(row.cost for row in self.judges),
        }
        return {**results, "all": total(results.values())}

    @property
    def scratch(self) -> float:
        """Bytes that the greediest stage takes while it runs."""
        return max((row.scratch for row in self.stages), default=0.0)


def plan_of(experiment: Experiment, store: Store, assume: Assumptions | None = None) -> Plan:
    """Plan an experiment.

    Args:
        experiment: Validated.
        store: What is done already.
        assume: Device and utilization.

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
        self.room = Planner(assume, self.weights)
        self._built: set[tuple[str, str]] = set()
        known = {row.dataset.partition("(")[0] for row in queries.runs(store)} if store.database.exists else set()
        # Runs are known by all of their data: it is read in full where there may be some.
        self.shapes = [
            shape_of(benchmark.reference, benchmark.config, benchmark.setting, benchmark.limit, full=str(benchmark.reference) in known)
            for benchmark in experiment.benchmarks
        ]
        for item, shape in zip(experiment.benchmarks, self.shapes, strict=True):
            if shape.benchmark is not None:
                settings.check(item.setting, shape.benchmark, where=item.where)

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
        return [self.room.shape(item, value) for plan in left for item, value in references_of(plan)]

    def _models(self) -> list[ModelSize]:
        named = (model for model, _ in needed_models(self.experiment, list(self.experiment.trainings), self.weights))
        return [self.weights.size(*fromkey) for fromkey in dict.fromkeys(named)]

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
            index = total(index.cost for index in self._indexes(method, benchmark, work))
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
        results = []
        for component in wanted:
            for index in indexes(component, work):
                key = (f"{index.component.id} {index.component.config.model_dump_json()}", where)
                if key not in self._built and not self._kept(index.component, work.shape):
                    results.append(index)
                self._built.add(key)
        return results

    def _kept(self, component: Component, shape: Shape) -> bool:
        if shape.benchmark is None or shape.origin != "counted":
            return False
        try:
            folder = index_folder(component, shape.benchmark.corpus, Services(artifacts=self.store.artifacts))
        except UserError:
            return False
        return folder is not None and folder.exists()
