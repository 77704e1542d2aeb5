"""Trainings that an experiment needs: declared in its file, carried out before its methods are run.

`{checkpoint: NAME}` is in a part's options where the folder of a checkpoint is wanted; `{checkpoint: NAME/STAGE}`
means an earlier stage of it. Where the folder will lie follows from the options alone, so an experiment can be planned
before anything is trained. A training of several seeds makes one method for each, called `NAME #SEED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import CHECKPOINT_CARD, fingerprint, without_store
from benchmarks.core.models import FrozenModel
from methods.registry import code_of_parts, codes_named
from methods.training import TRAININGS, TrainingConfig, TrainingEntry
from methods.work import Needs
from ragmeter import yaml_source
from ragmeter.grid import GRID_DESCRIPTION
from ragmeter.yaml_source import Source

CHECKPOINT = "checkpoint"
Reference = tuple[str, str | None]
"""A training's name, and a stage of it (None: its last one)."""


class TrainingSpec(FrozenModel):
    """Training in an experiment file, with one seed or several."""

    id: str = Field(description="`ragmeter list trainings` lists them")
    name: str | None = Field(None, description="name that methods refer to it by; default: id")
    seeds: list[int] | None = Field(None, min_length=1, description="default: the experiment's own")
    config: dict[str, Any] = Field(default_factory=dict, description="its options; `preset` sets named defaults")
    grid: dict[str, list[Any]] | list[str] | None = Field(default=None, description=GRID_DESCRIPTION)


@dataclass(frozen=True)
class TrainingPlan:
    """Validated training with one seed.

    Attributes:
        name: Name by which methods refer to it.
        entry, config: The registered training and its options.
        options: The options before validation, for other processes (a dump of `config` lacks the fields that identities leave
            out).
        needs: Trainings whose checkpoints it starts from or uses.
        where: File and line, for errors.
    """

    name: str
    entry: TrainingEntry
    config: TrainingConfig
    options: Mapping[str, Any]
    needs: tuple[TrainingPlan, ...] = ()
    where: str | None = None

    @property
    def name_and_seed(self) -> str:
        """Return the display name with the seed."""
        return f"{self.name}, seed {self.config.seed}"

    @property
    def models(self) -> Needs | None:
        """Return the models that the training needs; None if it does not declare them."""
        return self.entry.needs(self.config) if self.entry.needs else None

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages that end in a checkpoint, in order."""
        return self.config.stages_of(self.entry.stages)

    def folder(self, store: Path) -> Path:
        """Return the folder of the stages' checkpoints."""
        return checkpoint_home(self.entry, self.config, store)

    def trained(self, store: Path) -> tuple[str, ...]:
        """Return the stages whose checkpoints exist."""
        home = self.folder(store)
        return tuple(stage for stage in self.stages if (home / stage / CHECKPOINT_CARD).is_file())


def identity(entry: TrainingEntry, config: TrainingConfig) -> str:
    """Return the identity of a training: its version, its options, and the code of plug-ins."""
    codes = codes_named(config) | ({} if entry.code is None else {entry.id: entry.code})
    return fingerprint(entry.id, entry.version, without_store(config.model_dump(mode="json")), *code_of_parts(codes).values())


def checkpoint_home(entry: TrainingEntry, config: TrainingConfig, store: Path) -> Path:
    """Return the default folder for a training's checkpoints."""
    return store / "checkpoints" / entry.id / identity(entry, config)[:12]


class Trainings:
    """An experiment's trainings by name and seed.

    Args:
        specs: The file's trainings.
        source: The file.
        seed: Seed of trainings without one.
        store: Folder of the store that holds checkpoints.

    Raises:
        UserError: A training is unknown, has an invalid option, or refers to one that is not declared before it.
    """

    def __init__(self, specs: Sequence[TrainingSpec], source: Source, seed: int, store: Path) -> None:
        self._source, self._store = source, store
        self._names = [spec.name or spec.id for spec in specs]
        self._plans: dict[str, dict[int, TrainingPlan]] = {}
        for index, spec in enumerate(specs):
            at = ("trainings", index)
            name = spec.name or spec.id
            if name in self._plans or "/" in name:
                raise UserError(
                    f"a training cannot be called {name!r}" + (" twice" if name in self._plans else ""),
                    code="bad-training-name",
                    where=source.where(at),
                    try_this="give it a `name` of its own, without /",
                )
            seeds = [seed] if spec.seeds is None else list(dict.fromkeys(spec.seeds))
            self._plans[name] = {seed: self._plan(spec, name, seed, at) for seed in seeds}

    def __iter__(self) -> Iterator[TrainingPlan]:
        for plans in self._plans.values():
            yield from plans.values()

    def _plan(self, spec: TrainingSpec, name: str, seed: int, at: tuple[str | int, ...]) -> TrainingPlan:
        where = self._source.where
        entry = TRAININGS.get(spec.id, where=where((*at, "id")))
        if "seed" in spec.config:
            raise UserError(
                "the seed of a training is not one of its options",
                code="training-seed-in-options",
                where=where((*at, "config", "seed")),
                try_this="seeds: [0]",
            )
        value, needs = self.filled(spec.config, seed, (*at, "config"))
        options = {**value, "seed": seed}
        try:
            config = entry.validate(options)
        except ValidationError as error:
            raise yaml_source.explain(error, entry.config, self._source, (*at, "config")) from None
        except UserError as error:
            raise UserError(error.what, code=error.code, where=where((*at, "config")), try_this=error.try_this) from None
        return TrainingPlan(name, entry, config, options, needs, where(at))

    def seeds(self, options: Any, at: tuple[str | int, ...]) -> tuple[int, ...]:
        """Return the seeds of the trainings that options refer to; empty if they refer to none.

        Raises:
            UserError: The options refer to an unknown training, or to trainings with different seeds.
        """
        results = {name: tuple(self._known(name, at)) for name, _ in references(options)}
        several = [seeds for seeds in results.values() if len(seeds) > 1]
        if len(set(several)) > 1:
            raise UserError(
                f"the trainings {' and '.join(results)} have different seeds",
                code="training-seeds-differ",
                where=self._source.where(at),
                try_this="the same `seeds` for both",
            )
        return several[0] if several else next(iter(results.values()), ())

    def filled(self, options: Any, seed: int, at: tuple[str | int, ...]) -> tuple[Any, tuple[TrainingPlan, ...]]:
        """Replace references to trainings in options by checkpoint folders; return the options and the trainings.

        Args:
            options: Any YAML value.
            seed: Seed to use of a training with several seeds.
            at: Position of the options in the file.
        """
        needed: dict[str, TrainingPlan] = {}

        def fill(value: Any) -> Any:
            reference = _reference(value)
            if reference is not None:
                plan = self._of(reference, seed, at)
                needed[plan.name] = plan
                return str(plan.folder(self._store) / (reference[1] or plan.stages[-1]))
            if isinstance(value, Mapping):
                return {key: fill(item) for key, item in value.items()}
            return [fill(item) for item in value] if isinstance(value, list) else value

        return fill(options), tuple(needed.values())

    def _known(self, name: str, at: tuple[str | int, ...]) -> dict[int, TrainingPlan]:
        if name in self._names and name not in self._plans:
            raise UserError(
                f"the training {name!r} is used before it is declared",
                code="training-used-before-declared",
                where=self._source.where(at),
                try_this="put it before that one",
            )
        if not self._names:
            sample = f"{{id: {name}, config: {{…}}}}" if name in TRAININGS else f"{{id: …, name: {name}, config: {{…}}}}"
            raise UserError(
                f"training {name!r} is not declared: this file has no `trainings`",
                code="training-not-declared",
                where=self._source.where(at),
                try_this=f"add trainings: [{sample}] (`ragmeter list trainings` lists what there is), or name the folder of a "
                "checkpoint that is trained",
            )
        if name not in self._plans:
            raise unknown_name("training", name, self._plans, where=self._source.where(at))
        return self._plans[name]

    def _of(self, reference: Reference, seed: int, at: tuple[str | int, ...]) -> TrainingPlan:
        name, stage = reference
        plans = self._known(name, at)
        plan = next(iter(plans.values())) if len(plans) == 1 else plans.get(seed)
        if plan is None:
            raise UserError(
                f"the training {name!r} has no seed {seed}",
                code="unknown-training-seed",
                where=self._source.where(at),
                try_this="the same `seeds` for both",
            )
        if stage is not None and stage not in plan.stages:
            raise unknown_name(f"stage of {name}", stage, plan.stages, where=self._source.where(at))
        return plan


def references(options: Any) -> list[Reference]:
    """List the trained checkpoints that options refer to."""
    result = _reference(options)
    if result is not None:
        return [result]
    inner = options.values() if isinstance(options, Mapping) else options if isinstance(options, list) else ()
    return [reference for value in inner for reference in references(value)]


def _reference(value: Any) -> Reference | None:
    if isinstance(value, Mapping) and set(value) == {CHECKPOINT} and isinstance(value[CHECKPOINT], str):
        name, _, stage = value[CHECKPOINT].partition("/")
        return name, stage or None
    return None
