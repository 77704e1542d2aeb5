"""Parse an experiment file and check it before anything is run.

An experiment names benchmarks and methods; every pair of them is a task. Unknown keys, wrong types and impossible
combinations are errors that name the file, the line and the nearest valid key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from benchmarks import registry as datasets
from benchmarks import settings
from benchmarks.core.errors import UserError, nearest, refused, unknown_name
from benchmarks.core.models import FrozenModel
from benchmarks.core.plugins import load_file
from benchmarks.registry import Benchmark, DataReference, DatasetConfig, DatasetEntry
from benchmarks.schema import Query
from benchmarks.settings import Setting
from judges.judge import JUDGES, Judge
from judges.metric import Metric
from judges.metric import parse as parse_metric
from methods.api import Ranking, Services, not_stated
from methods.flow import each
from methods.models.revision import DESCRIPTION, Probe, Revision
from methods.pipeline import Composition, index_folder
from methods.registry import METHODS, Component
from methods.spending import NO_LIMITS, Limits
from ragmeter import yaml_source
from ragmeter.endpoints import EndpointSpec, addressed
from ragmeter.experiments import SUFFIX, shipped
from ragmeter.grid import GRID, GRID_DESCRIPTION, expand
from ragmeter.overrides import Override, laid_over
from ragmeter.trainings import TrainingPlan, Trainings, TrainingSpec
from ragmeter.yaml_source import Source
from results import store_folder
from results.boards.names import base_name, repeated_name, seeded_name
from results.boards.unread import MAX_UNSCORED
from results.store.failures import MAX_RATE


def candidate_retriever(setting: Setting) -> Component | None:
    """Return the retriever named in a retrieval setting, an id or `dense[dpr-nq]` with a preset in brackets; None if there is none."""
    name = _retriever_of(setting)
    return _find_component(name) if name else None


def _find_component(name: str, where: str | None = None) -> Component:
    """Return a retriever, with the options of a preset in brackets.

    Raises:
        UserError: There is no such method or preset.
    """
    preset = re.fullmatch(r"(.+)\[(.+)\]", name)
    if preset is None or name in METHODS:
        return Component.of(name, where=where)
    return Component.of(preset[1], {"preset": preset[2]}, where=where)


def _retriever_of(setting: Setting) -> str | None:
    return setting.retriever or (setting.base.retriever if setting.base else None)


def read_setting(text: str, where: str | None) -> Setting:
    """Parse a retrieval setting, and check that its retriever is registered and works without a reader.

    Raises:
        UserError: The setting is unknown, or it names something that is not a retriever.
    """
    setting = Setting.parse(text, where=where)
    name = _retriever_of(setting)
    if name is not None and (entry := _find_component(name, where).entry).kind != "retriever":
        raise UserError(
            f"{name!r} is a {entry.kind}, not a retriever",
            code="not-retriever",
            where=where,
            try_this="`ragmeter list methods --kind retriever` lists what fits",
        )
    return setting


def in_setting(setting: Setting, benchmark: Benchmark, services: Services) -> Benchmark:
    """Put a benchmark into a retrieval setting: choose each question's candidates, with the seed of the services.

    Raises:
        UserError: The setting is impossible for the benchmark.
    """

    def retrieve(name: str, queries: Sequence[Query], n: int) -> list[Ranking]:
        component = _find_component(name)
        folder = index_folder(component, benchmark.corpus, services)
        index = component.build(services).index(benchmark.corpus, folder)
        return list(each(index, "retrieve", queries, n))

    return settings.apply(setting, benchmark, services.seed, retrieve)


MOST_REPEATS = 100


class ComponentSpec(FrozenModel):
    """Reader, reranker or compressor in an experiment file; a bare string means `{id: …}`."""

    id: str = Field(description="its registered name")
    config: dict[str, Any] = Field(default_factory=dict, description="its options")


class BenchmarkSpec(FrozenModel):
    """Benchmark in an experiment file, in one retrieval setting."""

    id: str = Field(description="name[/subset]")
    split: str | None = Field(None, description="default: the dataset's own default; a+b joins two")
    setting: str | None = Field(None, description="default: the first setting of the dataset's card")
    limit: int | None = Field(None, ge=1, description="only the first questions")
    cluster: str | None = Field(
        None,
        description="kind of cluster: question, document, world, conversation, evidence group, or a key of the questions' metadata; "
        "default: the dataset's",
    )
    config: dict[str, Any] = Field(default_factory=dict, description="the dataset's options")
    grid: dict[str, list[Any]] | list[str] | None = Field(default=None, description=GRID_DESCRIPTION)


class MethodSpec(FrozenModel):
    """Method in an experiment file; a retriever becomes a pipeline with a reader (and rerankers, a compressor)."""

    id: str = Field(description="its registered name; `ragmeter list methods` lists them")
    name: str | None = Field(None, description="shown in tables; default: id, with the reader if it is not the default")
    config: dict[str, Any] = Field(default_factory=dict, description="the method's options; may name a `preset`")
    reader: str | ComponentSpec | None = Field(None, description="model that answers; default: the extractive reader")
    rerankers: list[str | ComponentSpec] = Field(default_factory=list, description="one after another")
    compressor: str | ComponentSpec | None = Field(None, description="compressor of the passages that the reader gets")
    k: int | None = Field(None, ge=1, description="passages given to the reader")
    depth: int | None = Field(None, ge=1, description="length of the ranking that is kept and scored")
    budget: int | None = Field(None, ge=1, description="tokens that the compressor may deliver")
    revision: Revision = Field(None, description=DESCRIPTION)
    repeats: int | None = Field(None, ge=1, le=MOST_REPEATS, description="as the experiment's `repeats`, for this method only")
    grid: dict[str, list[Any]] | list[str] | None = Field(default=None, description=GRID_DESCRIPTION)

    @field_validator("revision")
    @classmethod
    def _has_a_place(cls, value: str | Probe | None) -> str | Probe | None:
        if isinstance(value, Probe) and not (value.url or value.command):
            raise ValueError("the probe of a row needs a url")
        return value


class JudgeSpec(ComponentSpec):
    """Judge in an experiment file; a bare string means `{id: …}`."""

    opponents: Literal["reference", "all"] | None = Field(
        default=None, description="pairs that a pair judge compares: every method with the reference (default), or all pairs"
    )
    grid: dict[str, list[Any]] | list[str] | None = Field(default=None, description=GRID_DESCRIPTION)


class PrimarySpec(FrozenModel):
    """Primary outcome declared in an experiment file; results on other metrics and methods are secondary."""

    metric: str = Field(description="one of the experiment's metrics, as `metrics` names it")
    method: str | None = Field(None, description="the row (or its method's id) whose difference decides; default: all methods")


class ExperimentSpec(FrozenModel):
    """Content of an experiment file (YAML)."""

    name: str = Field(pattern=r"^[\w][\w.-]*$", description="the experiment's name in the store")
    description: str = Field("", description="one line for `ragmeter list experiments`")
    plugins: list[str] = Field(
        default_factory=list, description="Python files to load first, relative to this file: [acme.py]; their registrations count"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="source of all randomness")
    benchmarks: list[BenchmarkSpec] = Field(min_length=1, description="what is asked")
    methods: list[MethodSpec] = Field(min_length=1, description="rows of the table; each method answers every benchmark")
    metrics: list[str] | None = Field(None, min_length=1, description="default: the dataset's official ones and retrieval metrics")
    trainings: list[TrainingSpec] = Field(
        default_factory=list, description="trained before methods run; their options name them {checkpoint: NAME}"
    )
    endpoints: dict[str, EndpointSpec] = Field(
        default_factory=dict, description="address and key variable per model, for each `llm` in this file that names the model"
    )
    judges: list[str | JudgeSpec] = Field(default_factory=list, description="`ragmeter list judges` lists them")
    reference: str | None = Field(None, description="method that differences are measured from; default: the first one")
    positive_controls: list[str] = Field(
        default_factory=list, description="rows that are trained on the test questions on purpose: compared with the others, never ranked"
    )
    primary: PrimarySpec | None = Field(None, description="the metric and comparison that decide, declared before the run")
    limit: int | None = Field(None, ge=1, description="only the first questions of every benchmark")
    repeats: int = Field(1, ge=1, le=MOST_REPEATS, description="how often every method answers each question, and is judged")
    limits: Limits = Field(default_factory=Limits, description="limits on the spending of one execution, over all roles")
    max_failure_rate: float = Field(
        MAX_RATE, ge=0, le=1, description="maximum share of failed questions; above it, the run is incomplete (from 20 questions on)"
    )
    max_unscored: float = Field(
        MAX_UNSCORED,
        ge=0,
        le=1,
        description="maximum share of missing verdicts; above it, the judge's value is not shown (from 20 questions)",
    )
    grid: dict[str, list[Any]] | None = Field(None, description="axes that rows name in their own `grid`, with their values")
    profiles: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="named sets of these keys; `--profile` applies one to the file"
    )


@dataclass(frozen=True)
class BenchmarkPlan:
    """Validated benchmark of an experiment."""

    reference: DataReference
    entry: DatasetEntry
    config: DatasetConfig
    setting: Setting
    limit: int | None
    where: str | None = None
    """File and line of the setting, or of the benchmark if it has none."""
    cluster: str | None = None
    cluster_at: str | None = None
    """Cluster field that the file declares, with its line."""


@dataclass(frozen=True)
class MethodPlan:
    """Validated method of an experiment with its parts; `name` is unique within the experiment."""

    name: str
    composition: Composition
    needs: tuple[TrainingPlan, ...] = ()
    """Trainings whose checkpoints it uses."""
    revision: str | Probe | None = None
    """Revision of the deployment that the method calls; None if the experiment declares none."""
    at: tuple[str | int, ...] = ()
    """Its position in the file."""
    repeat: int = 0
    """Number of earlier answers to the same questions."""

    @property
    def kind(self) -> str:
        return self.composition.method.entry.kind

    def can_score(self, metric: Metric) -> bool:
        """Return whether the method's output holds what a metric reads: answers, which need a reader, or rankings."""
        made_of = self.composition
        reader = made_of.answering
        contexts = made_of.method.config.model_dump(include={"contexts"}).get("contexts")
        lacking = not_stated(made_of.method.id, reader.id if reader else None, made_of.compressor is not None, contexts)
        return lacking.isdisjoint(metric.entry.needs)

    @property
    def declared_revision(self) -> dict[str, Any]:
        """Return the declared revision in the form of a run's description; empty if none is declared."""
        if self.revision is None:
            return {}
        return {"revision": self.revision if isinstance(self.revision, str) else self.revision.model_dump(mode="json")}

    @property
    def components(self) -> Iterator[Component]:
        """Yield the method and all of its parts, including the default reader."""
        made_of = self.composition
        yield made_of.method
        yield from made_of.rerankers
        yield from filter(None, (made_of.compressor, made_of.answering))


@dataclass(frozen=True)
class JudgePlan:
    """Validated judge of an experiment.

    Attributes:
        judge: The judge.
        everyone: Whether a pair judge compares all pairs of methods, not only each method with the reference.
    """

    judge: Judge
    everyone: bool = False


@dataclass(frozen=True)
class Experiment:
    """A validated experiment."""

    name: str
    description: str
    seed: int
    benchmarks: tuple[BenchmarkPlan, ...]
    methods: tuple[MethodPlan, ...]
    metrics: tuple[Metric, ...] | None
    judges: tuple[JudgePlan, ...]
    trainings: tuple[TrainingPlan, ...]
    reference: str | None
    source: Source
    path: str | None
    profile: str | None
    max_failure_rate: float = MAX_RATE
    limits: Limits = NO_LIMITS


def load(argument: str, *, profile: str | None = None, store: Path | None = None, settings: Sequence[Override] = ()) -> Experiment:
    """Find, read and validate an experiment.

    Args:
        argument: A YAML file, or the name of a shipped experiment.
        profile: Name of one of the file's profiles to apply.
        store: Folder of the store that holds the checkpoints of its trainings; None: the default store.
        settings: Values that override the file's (`ragmeter.overrides`).

    Raises:
        UserError: The experiment is not found or invalid.
    """
    path = Path(argument)
    if path.is_file():
        try:
            text = path.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise UserError(
                "this file is not UTF-8 text",
                code="not-utf8",
                where=argument,
                try_this="name an experiment file (YAML), or save it as UTF-8",
            ) from None
        except OSError as error:
            raise refused(error, argument, what="this file cannot be read", try_this="name a file that you may read") from None
        return parse(text, argument, path=str(path.resolve()), profile=profile, store=store, settings=settings)
    known = shipped()
    if argument in known:
        return parse(known[argument], f"{argument}{SUFFIX} (shipped)", profile=profile, store=store, settings=settings)
    if path.exists():
        what = "this is a folder" if path.is_dir() else "this is not a file"
        raise UserError(
            f"{what}, and an experiment is a YAML file or a shipped name",
            code="unknown-experiment-name",
            where=argument,
            try_this="name the file; `ragmeter list experiments` lists shipped ones",
        )
    if argument.endswith((SUFFIX, ".yml")) or "/" in argument:
        guess = nearest(argument, known)
        hint = f"did you mean the shipped experiment {guess!r}?" if guess else "`ragmeter list experiments` lists shipped ones"
        raise UserError("experiment file does not exist", code="missing-file", where=argument, try_this=hint)
    raise unknown_name("experiment", argument, known)


def parse(
    text: str,
    name: str,
    *,
    path: str | None = None,
    profile: str | None = None,
    store: Path | None = None,
    settings: Sequence[Override] = (),
) -> Experiment:
    """Validate the YAML text of an experiment.

    Args:
        text: The YAML text.
        name: Name of the file for errors.
        path: Path of the file, stored for `--resume`.
        profile: Name of one of the file's profiles to apply.
        store, settings: As in `load`.

    Raises:
        UserError: The text is invalid; the message names file, line and key.
    """
    source = yaml_source.read(text, name)
    if not isinstance(source.value, Mapping):
        raise UserError(
            "an experiment file is a mapping of keys",
            code="experiment-not-mapping",
            where=f"{name}:1",
            try_this="begin with `name: …`, `benchmarks: […]` and `methods: […]`; the documentation's page “Experiments” has every key",
        )
    source = laid_over(source, settings, profile)
    spec, expanded = _validated(source)
    if profile is not None:
        if profile not in spec.profiles:
            raise unknown_name("profile", profile, spec.profiles, where=source.where(("profiles",)))
        # Lines of overlaid keys are those of the profile, where an error in them has to be mended.
        overlay = {path[2:]: line for path, line in source.lines.items() if path[:2] == ("profiles", profile)}
        merged = {**source.value, **spec.profiles[profile]}
        replaced = {key: line for key, line in source.lines.items() if not key or key[0] not in spec.profiles[profile]}
        source = Source(name, merged, {**replaced, **{key: line for key, line in overlay.items() if key}}, source.text)
        spec, expanded = _validated(source)
    return _resolve(spec, expanded, path, profile, store_folder(store))


def skipping_bad(experiment: Experiment) -> Experiment:
    """Return the experiment with the option `skip_bad` set for every benchmark."""
    benchmarks = tuple(replace(b, config=b.config.model_copy(update={"skip_bad": True})) for b in experiment.benchmarks)
    return replace(experiment, benchmarks=benchmarks)


def place_of_data(experiment: Experiment, index: int) -> str:
    """Return the file and line at which an experiment names the data of a benchmark.

    Args:
        experiment: The experiment.
        index: Position of the benchmark in the experiment's list.
    """
    at = ("benchmarks", index)
    named = (*at, "config", "path")
    return experiment.source.where(named if named in experiment.source.lines else at)


def _validated(source: Source) -> tuple[ExperimentSpec, Source]:
    """Return the validated content of a file, and the file with its grids expanded."""
    source = addressed(expand(source) if GRID in source.text else source)
    try:
        return ExperimentSpec.model_validate(source.value), source
    except ValidationError as error:
        raise yaml_source.explain(error, ExperimentSpec, source) from None


def _resolve(spec: ExperimentSpec, source: Source, path: str | None, profile: str | None, store: Path) -> Experiment:
    for index, file in enumerate(spec.plugins):
        load_file(Path(path).parent / file if path else Path(file), where=source.where(("plugins", index)))
    trainings = Trainings(spec.trainings, source, spec.seed, store)
    methods = tuple(
        replace(plan, name=repeated_name(plan.name, repeat), repeat=repeat)
        for index, item in enumerate(spec.methods)
        for plan in _methods(item, index, source, trainings)
        for repeat in range(item.repeats or spec.repeats)
    )
    names = [method.name for method in methods]
    for index, name in enumerate(names):
        if name in names[:index]:
            first, second = (methods[position].revision for position in (names.index(name), index))
            what = "" if first == second else ", with different revisions"
            raise UserError(
                f"two methods are called {name!r}{what}",
                code="duplicate-method-name",
                where=source.where(methods[index].at),
                try_this="give one a `name`",
            )
    reference = _row(spec.reference, methods, source.where(("reference",)))
    _check_positive_controls(spec, methods, source, reference)
    if spec.primary is not None:
        _row(spec.primary.method, methods, source.where(("primary", "method")))
    if spec.primary is not None and spec.metrics is not None and spec.primary.metric not in spec.metrics:
        raise unknown_name("metric of this experiment", spec.primary.metric, spec.metrics, where=source.where(("primary", "metric")))
    positive = spec.positive_controls
    rankable = [method.name for method in methods if method.kind != "control" and base_name(method.name) not in positive]
    metrics = None
    if spec.metrics is not None:
        metrics = tuple(parse_metric(text, where=source.where(("metrics", index))) for index, text in enumerate(spec.metrics))
        for index, metric in enumerate(metrics):
            if metric in metrics[:index]:
                raise UserError(
                    f"the metric {metric} is named twice",
                    code="duplicate-metric",
                    where=source.where(("metrics", index)),
                    try_this="remove one of them",
                )
        primary = metrics[spec.metrics.index(spec.primary.metric)] if spec.primary is not None else None
        if primary is not None and not any(method.can_score(primary) for method in methods):
            raise UserError(
                f"no method of this experiment returns what the primary metric {primary} reads",
                code="no-answers-to-score",
                where=source.where(("primary", "metric")),
                try_this="use metrics of rankings (recall@5) for the reader retrieval_only, of answers (f1) for the retriever no_retrieval",
            )
    return Experiment(
        spec.name,
        spec.description,
        spec.seed,
        tuple(_benchmark(item, index, source, spec.limit) for index, item in enumerate(spec.benchmarks)),
        methods,
        metrics,
        tuple(_judge(item, index, source) for index, item in enumerate(spec.judges)),
        tuple(trainings),
        reference or (rankable[0] if rankable else None),
        source,
        path,
        profile,
        spec.max_failure_rate,
        spec.limits,
    )


def _check_positive_controls(spec: ExperimentSpec, methods: Sequence[MethodPlan], source: Source, reference: str | None) -> None:
    """Refuse positive controls that are not rows, that see the gold, or that are the reference."""
    rows = {base_name(method.name): method for method in methods}
    for index, name in enumerate(spec.positive_controls):
        where = source.where(("positive_controls", index))
        if name not in rows:
            raise unknown_name("row", name, rows, where=where)
        if rows[name].kind == "control" or name == reference:
            what = "the reference" if name == reference else "a control that sees the gold"
            raise UserError(
                f"{name!r} is {what}, and cannot be a positive control",
                code="bad-positive-control",
                where=where,
                try_this="name a row that a training on the asked questions tuned",
            )


def _row(name: str | None, methods: Sequence[MethodPlan], where: str) -> str | None:
    """Return the row with this name, else the only one of the method with this id.

    Raises:
        UserError: There is no such row, or several rows are of this method.
    """
    names = [method.name for method in methods]
    if name is None or name in {*names, *map(base_name, names)}:
        return name
    rows = list(dict.fromkeys(base_name(method.name) for method in methods if method.composition.method.id == name))
    if len(rows) > 1:
        what = f"{len(rows)} rows are of the method {name!r}: {', '.join(rows)}"
        raise UserError(what, code="ambiguous-row", where=where, try_this="name one of the rows")
    if not rows:
        raise unknown_name("method", name, names, where=where)
    return rows[0]


def _benchmark(spec: BenchmarkSpec, index: int, source: Source, limit: int | None) -> BenchmarkPlan:
    at = ("benchmarks", index)
    name = f"{spec.id}:{spec.split}" if spec.split else spec.id
    try:
        reference, entry = datasets.resolve(name, where=source.where((*at, "id")))
    except UserError as error:
        raise (
            error if error.where else UserError(error.what, code=error.code, where=source.where((*at, "id")), try_this=error.try_this)
        ) from None
    try:
        config = entry.config.model_validate(spec.config)
    except ValidationError as error:
        raise yaml_source.explain(error, entry.config, source, (*at, "config")) from None
    text = spec.setting or entry.card.settings_of(reference.subset)[0]
    where = source.where((*at, "setting") if spec.setting else at)
    setting = read_setting(text, where)
    limits = [number for number in (spec.limit, limit) if number is not None]
    cluster_at = source.where((*at, "cluster")) if spec.cluster else None
    return BenchmarkPlan(reference, entry, config, setting, min(limits) if limits else None, where, spec.cluster, cluster_at)


def _methods(spec: MethodSpec, index: int, source: Source, trainings: Trainings) -> Iterator[MethodPlan]:
    """Yield the method, or one per seed if the trainings that it uses have several."""
    at = ("methods", index)
    # A dump of a probe lacks its request headers.
    options = spec.model_dump(exclude={"revision", "repeats"})
    seeds = trainings.seeds(options, at)
    for seed in seeds or (0,):
        filled, needs = trainings.filled(options, seed, at)
        plan = _method(MethodSpec.model_validate(filled), at, source)
        name = seeded_name(plan.name, seed) if len(seeds) > 1 else plan.name
        yield replace(plan, name=name, needs=needs, revision=spec.revision, at=at)


def _method(spec: MethodSpec, at: tuple[str | int, ...], source: Source) -> MethodPlan:
    method = _component(ComponentSpec(id=spec.id, config=spec.config), at, source)
    rerankers = [_part(item, "reranker", (*at, "rerankers", i), source) for i, item in enumerate(spec.rerankers)]
    compressor = _part(spec.compressor, "compressor", (*at, "compressor"), source) if spec.compressor else None
    reader = _part(spec.reader, "reader", (*at, "reader"), source) if spec.reader else None
    try:
        composition = Composition(method, reader, tuple(rerankers), compressor, k=spec.k, depth=spec.depth, budget=spec.budget)
    except UserError as error:
        raise UserError(error.what, code=error.code, where=source.where(at), try_this=error.try_this) from None
    parts = [method, *rerankers, *filter(None, (compressor, reader))]
    return MethodPlan(spec.name or " + ".join(part.id for part in parts), composition)


def _judge(spec: str | JudgeSpec, index: int, source: Source) -> JudgePlan:
    at = ("judges", index)
    spec = JudgeSpec(id=spec) if isinstance(spec, str) else spec
    entry = JUDGES.get(spec.id, where=source.where(at))
    try:
        config = entry.config.model_validate(spec.config)
    except ValidationError as error:
        raise yaml_source.explain(error, entry.config, source, (*at, "config")) from None
    if spec.opponents is not None and entry.kind != "pair":
        raise UserError(
            f"{spec.id!r} judges single answers, it does not compare answers",
            code="not-pair-judge",
            where=source.where((*at, "opponents")),
            try_this="remove `opponents`",
        )
    return JudgePlan(Judge(entry, config), spec.opponents == "all")


def _part(spec: str | ComponentSpec, kind: str, at: tuple[str | int, ...], source: Source) -> Component:
    component = _component(ComponentSpec(id=spec) if isinstance(spec, str) else spec, at, source)
    if component.entry.kind != kind:
        raise UserError(
            f"{component.id!r} is a {component.entry.kind}, not a {kind}",
            code="wrong-kind",
            where=source.where(at),
            try_this=f"`ragmeter list methods --kind {kind}` lists what fits",
        )
    return component


def _component(spec: ComponentSpec, at: tuple[str | int, ...], source: Source) -> Component:
    entry = METHODS.get(spec.id, where=source.where((*at, "id")))
    try:
        return Component(entry, entry.validate(spec.config))
    except ValidationError as error:
        raise yaml_source.explain(error, entry.config, source, (*at, "config")) from None
    except UserError as error:
        raise UserError(error.what, code=error.code, where=source.where((*at, "config")), try_this=error.try_this) from None
