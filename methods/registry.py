"""Declare and build methods.

`@register` decorates a factory: a class or function called with its validated config and the harness's
`Services`. What it builds plays the role that `kind` names. Other packages register through the entry-point
group `ragmeter.methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from benchmarks.core.code import Code, Identity, code_id, registered
from benchmarks.core.errors import MissingPackage, UserError, unknown_name
from benchmarks.core.fingerprint import fingerprint, without_store
from benchmarks.core.models import FrozenModel
from benchmarks.core.plugins import Registry, config_class
from benchmarks.corpus import Corpus
from benchmarks.schema import Question
from methods.api import Services
from methods.models.llm import AskingConfig
from methods.models.remote_code import check_models
from methods.models.weights import require_weights, weights_hash
from methods.presets import laid_over
from methods.work import Lengths, Needs, Work, needs_of, unknown

Kind = Literal["retriever", "reranker", "compressor", "reader", "method", "control"]


class MethodConfig(FrozenModel):
    """Base class of every method's options: immutable, and unknown keys are errors.

    The description of a field also gives the paper's and the released value if they differ from the default.
    """

    default_extra: ClassVar[str | None] = None
    """pip extra that the method needs by default; `register(extra=…)` overrides it."""

    @property
    def follows_benchmark(self) -> bool:
        """Return whether the method uses the benchmark's official reading instructions (`Services.reading`) with these options."""
        return False

    @property
    def context_tokens(self) -> int:
        """Return the maximum tokens of context that the index writes for the reader besides ranked passages; 0 for most
        methods.
        """
        return 0

    def preflight(self) -> None:
        """Check, without loading anything, that these options can work here: files, keys, packages.

        Raises:
            UserError: Something is missing; the message explains how to get it.
        """

    def reach(self, cache: Path | None) -> None:
        """Check that the endpoint and model of these options respond, with one short call.

        Called once before the first question, if there is one to answer.

        Args:
            cache: File of cached model replies. A model that has replies in it is not called, because a run that replays
                them needs no endpoint.

        Raises:
            Broke: The endpoint does not respond, or refuses the call.
        """


class ModelMethodConfig(MethodConfig):
    """Base class of options with a local model: `model`, and optionally `revision` and `trust_remote_code`."""

    default_extra = "models"

    def checkpoint_hash(self) -> str:
        """Return a hash of the model's weights, for fingerprints."""
        options: Any = self
        return weights_hash(options.model, getattr(options, "revision", None))

    def needed_models(self) -> Needs | None:
        """Return the local model that must be available."""
        return needs_of(self)

    def preflight(self) -> None:
        """Check that the model exists and that its code may be run."""
        check_models(self)


class AskingMethodConfig(AskingConfig, MethodConfig):
    """Base class of options of methods that prompt a language model (`llm`)."""

    default_extra = "llm"

    def needed_models(self) -> Needs | None:
        """Return the language model that `llm` names."""
        return needs_of(self.llm)


PROBES = {"retrieval": "bm25s", "models": "sentence_transformers", "llm": "openai", "grounding": "ragas", "graphs": "graspologic_native"}
"""One importable package per pip extra; if it is missing, ragmeter reports the extra as not installed."""


def require_extra(extra: str | None, who: str) -> None:
    """Check that a pip extra is installed.

    Raises:
        MissingPackage: The extra is not installed; `who` needs it.
    """
    if extra in PROBES and find_spec(PROBES[extra]) is None:
        raise MissingPackage(PROBES[extra], extra, who)


@dataclass(frozen=True)
class MethodEntry:
    """Registry entry of a method: metadata for users and the leaderboard, and the factory."""

    id: str
    kind: Kind
    version: int
    summary: str
    factory: Callable[[Any, Services], Any]
    config: type[MethodConfig]
    paper: str | None
    presets: Mapping[str, Mapping[str, Any]]
    training_data: tuple[str, ...]
    extra: str | None
    checkpoint_hash: Callable[[Any], str] | None
    work: Callable[[Any, Lengths], Work] | None = None
    needs: Callable[[Any], Needs | None] | None = None
    code: Code | None = None
    """Source code of a plug-in's method, for fingerprints; None for shipped methods."""

    @property
    def whole(self) -> bool:
        """Return whether the method answers questions without a separate reader: true for kind `method`, and for controls whose
        class has `answer`.
        """
        return self.kind == "method" or (self.kind == "control" and hasattr(self.factory, "answer"))

    @property
    def reads_all(self) -> bool:
        """Return whether the reader receives all retrieved passages by default, instead of the first k."""
        return bool(getattr(self.factory, "reads_all", False))

    @property
    def memory(self) -> str | None:
        """Return the kind of soft memory that a compressor produces; None if it produces text."""
        return getattr(self.factory, "memory", None) if self.kind == "compressor" else None

    @property
    def reads_memory(self) -> tuple[str, ...]:
        """Return the kinds of soft memory that a reader accepts besides text passages."""
        return tuple(getattr(self.factory, "reads_memory", ()))

    @property
    def over_triples(self) -> bool:
        """Return whether the method ranks triples of a knowledge graph instead of passages."""
        return bool(getattr(self.factory, "over_triples", False))

    def validate(self, config: Mapping[str, Any] | None) -> MethodConfig:
        """Validate options and fill in defaults; a `preset` supplies values for options that are not given.

        Raises:
            pydantic.ValidationError: An option is unknown or of the wrong type.
            UserError: The preset does not exist.
        """
        options = dict(config or {})
        preset = options.pop("preset", None)
        if preset is not None:
            if preset not in self.presets:
                raise unknown_name(f"preset of {self.id}", str(preset), self.presets)
            options = laid_over(self.presets[preset], options)
        return self.config.model_validate(options)

    def card(self) -> dict[str, Any]:
        """Return the method's metadata as JSON for the leaderboard."""
        return {
            "id": self.id,
            "kind": self.kind,
            "version": self.version,
            "summary": self.summary,
            "paper": self.paper,
            "training_data": list(self.training_data),
            "presets": {name: dict(values) for name, values in self.presets.items()},
        }


METHODS: Registry[MethodEntry] = Registry("method", "methods", "ragmeter.methods")

F = TypeVar("F", bound=Callable[..., Any])


def register(
    identifier: str,
    *,
    kind: Kind,
    summary: str,
    version: int = 1,
    config: type[MethodConfig] | None = None,
    paper: str | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    training_data: Sequence[str] = (),
    extra: str | None = None,
    checkpoint_hash: Callable[[Any], str] | None = None,
    work: Callable[[Any, Lengths], Work] | None = None,
    needs: Callable[[Any], Needs | None] | None = None,
    identity: Identity = "code",
) -> Callable[[F], F]:
    """Declare a method; decorates its factory `(config, services) -> role`.

    Args:
        identifier: The name in experiment files.
        kind: The role of the factory's product.
        summary: One-line summary for `ragmeter list methods`.
        version: The code version; bump it when numbers may change.
        config: The class of its options; default: the annotation of the factory's `config`.
        paper: The publication that it implements.
        presets: Named sets of options (`paper`, `released`).
        training_data: Data references that it was trained on, for the contamination column.
        extra: The extra of the distribution that must be installed; default: that of its options.
        checkpoint_hash: Function from a config to the hash of its weights; default: the options' own, if they have one.
        work: Function from a config and the data's lengths to the estimated work; None: unknown.
        needs: Function from a config to the required models; default: the options' `needed_models`. If they have none,
            nothing is required if `work` is set; otherwise unknown.
        identity: For a plug-in: `code` recomputes results when its code changes (`benchmarks.core.code`), `version` only when
            its author raises the version. Shipped methods always use the version.
    """

    def decorate(factory: F) -> F:
        options = config or config_class(factory, MethodConfig)
        hashed, needed = checkpoint_hash or getattr(options, "checkpoint_hash", None), needs or getattr(options, "needed_models", None)
        known = (paper, presets or {}, tuple(training_data), extra or options.default_extra, hashed, work, needed)
        entry = MethodEntry(identifier, kind, version, summary, factory, options, *known, registered(identity, factory, options))
        METHODS.add(entry, factory.__module__)
        return factory

    return decorate


@dataclass(frozen=True)
class Component:
    """A registered method with validated options. It can be built, described and fingerprinted."""

    entry: MethodEntry
    config: MethodConfig

    @classmethod
    def of(cls, identifier: str, config: Mapping[str, Any] | None = None, *, where: str | None = None) -> Component:
        """Look up a method and validate its options."""
        entry = METHODS.get(identifier, where=where)
        return cls(entry, entry.validate(config))

    @property
    def id(self) -> str:
        return self.entry.id

    def preflight(self) -> None:
        """Check that this component can be built on this machine.

        Raises:
            UserError: A package, file or key is missing.
        """
        extra = self.entry.extra
        require_extra(extra, self.id)
        self.config.preflight()
        require_weights(self.needs)

    @property
    def needs(self) -> Needs | None:
        """Return the required models; None if unknown."""
        if self.entry.needs is None:
            return None if self.entry.work is None else Needs()
        return self.entry.needs(self.config)

    def work(self, lengths: Lengths) -> Work:
        """Return the estimated work for all questions; marked unknown if the method declares no estimate."""
        if self.entry.work is None:
            return unknown(f"what {self.id} takes: it states no work")
        return self.entry.work(self.config, lengths).keyed_by(f"{self.id} {self.config.model_dump_json()} {lengths.data}", self)

    def build(self, services: Services) -> Any:
        """Call the factory and return the role."""
        return self.entry.factory(self.config, services)

    def describe(self) -> dict[str, Any]:
        """Return id, version, options, weights and the code of plug-ins; the fingerprint is a hash of this."""
        weights = self.entry.checkpoint_hash(self.config) if self.entry.checkpoint_hash else None
        config = without_store(self.config.model_dump(mode="json"))
        described = {"id": self.id, "version": self.entry.version, "config": config, "weights": weights}
        return described | code_of_parts(self.codes)

    @property
    def codes(self) -> dict[str, Code]:
        """Return the source code of all plug-ins involved, by id: the component's own and those named in its options."""
        own = {} if self.entry.code is None else {self.id: self.entry.code}
        return own | codes_named(self.config)

    @property
    def fingerprint(self) -> str:
        """Return a hash of `describe()`: equal code version, options and weights give equal hashes."""
        return fingerprint(self.describe())


def codes_named(options: Any) -> dict[str, Code]:
    """Return the source code of plug-ins that options refer to, by id. Nested options refer to one through a property
    `component`.
    """
    if isinstance(options, BaseModel):
        part = None
        with suppress(UserError, ValidationError):  # an option that is not in use may name nothing that exists
            part = getattr(options, "component", None)
        own = part.codes if isinstance(part, Component) else {}
        if isinstance(code := getattr(options, "code", None), Code):
            own = {**own, str(getattr(options, "call", code.module)): code}
        return own | codes_named([getattr(options, name) for name in type(options).model_fields])
    if isinstance(options, Mapping):
        return codes_named(list(options.values()))
    if isinstance(options, list | tuple | set | frozenset):
        return {name: code for item in options for name, code in codes_named(item).items()}
    return {}


def code_of_parts(codes: Mapping[str, Code]) -> dict[str, str]:
    """Return `{"code": HASH}` for the plug-ins' code, to be merged into a description; empty if no plug-in is identified by
    code.
    """
    counting = {name: hashed for name, code in sorted(codes.items()) if (hashed := code_id(code)) is not None}
    if not counting:
        return {}
    return {"code": next(iter(counting.values())) if len(counting) == 1 else fingerprint(counting)}


@dataclass(frozen=True, slots=True)
class Table:
    """Table of an explanation: heading, columns, rows of texts and numbers, and a `note` on how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Step-by-step account of how a method processed one question, for `ragmeter explain`.

    Attributes:
        summary: A few sentences.
        tables: Tables in reading order.
        picture: An SVG, or None. Names in it are escaped because they are untrusted text.
    """

    summary: str
    tables: tuple[Table, ...]
    picture: str | None = None


class Explainer(Protocol):
    """Function that explains a method on one question, given the question with gold, corpus, options and services."""

    def __call__(self, question: Question, corpus: Corpus, config: Any, services: Services) -> Explanation: ...


@dataclass(frozen=True)
class ExplainerEntry:
    """A registered explainer, with the id of its method."""

    id: str
    summary: str
    explain: Explainer
    config: type[MethodConfig]


EXPLAINERS: Registry[ExplainerEntry] = Registry("explainer", "methods", "ragmeter.methods")

E = TypeVar("E", bound=Callable[..., Explanation])


def register_explainer(identifier: str, *, summary: str) -> Callable[[E], E]:
    """Register an explainer; decorates a function whose `config` parameter is annotated with the method's option class."""

    def decorate(explain: E) -> E:
        EXPLAINERS.add(ExplainerEntry(identifier, summary, explain, config_class(explain, MethodConfig)), explain.__module__)
        return explain

    return decorate


def shortened(text: str, length: int = 160) -> str:
    """Collapse a text to one line of at most `length` characters, cut with an ellipsis."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def numbers(values: Sequence[float]) -> tuple[str, ...]:
    """Format numbers for the cells of an explanation's table."""
    return tuple(f"{value:.4f}" for value in values)
