"""Declare, reference and load datasets.

A dataset is one module: a frozen `DatasetCard`, a config, and a function from (source, split) to a `Benchmark`,
registered with `@register`. Everything refers to it by a data reference, `name[/subset][:split]`.
"""

from __future__ import annotations

import gc
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from benchmarks import read_questions
from benchmarks.clusters import Sampled, sampled
from benchmarks.core.code import Code, Identity, code_id, registered
from benchmarks.core.errors import UserError, counted, first_error, in_words, refused, unknown_name
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.core.plugins import Registry
from benchmarks.corpus import Corpus
from benchmarks.graphs import united
from benchmarks.io import hub
from benchmarks.schema import SPANS, Question

IDENTITY, CAVEATS, MAPPING = "identity", "caveats", "mapping"
"""Keys of `Benchmark.extra`: a text that is part of the fingerprint (for example how files were parsed); warnings shown below
every table; and a description of how fields of a file were used.
"""


class DatasetCard(FrozenModel):
    """Metadata of a dataset: source, license, splits, settings, metrics and leakage notes."""

    title: str = Field(description="name as its authors spell it")
    task: str = Field(description="multi-hop QA, open-domain QA, long-document QA, graph QA, …")
    description: str
    hub_id: str | None = Field(description="repository on the hub, or None")
    revision: str | None = Field(description="pinned revision of that repository, None if not pinned yet")
    license: str
    citation: str
    languages: tuple[str, ...]
    splits: Mapping[str, int | None] = Field(description="expected number of questions, or None if unknown")
    metrics: tuple[str, ...] = Field(description="ids of the official metrics, the main metric first")
    settings: tuple[str, ...] = Field(description="settings in which papers evaluate, the default first")
    subset_settings: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="settings of subsets that differ from the dataset's"
    )
    subset_metrics: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="metrics of subsets that differ from the dataset's"
    )
    subset_languages: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="languages of subsets that differ from the dataset's"
    )
    subset_splits: Mapping[str, Mapping[str, int | None]] = Field(
        default_factory=dict, description="splits of subsets that have other sizes or lack a split"
    )
    same_questions: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="splits that share questions with a split of this dataset: maps subset:split (:split without subsets) to "
        "references with subset and split in full. Two splits that map to the same reference share its questions",
    )
    cluster: str | None = Field(
        default=None,
        description="sampling unit, which is one cluster: question, document, world, conversation, evidence group, or a key of "
        "the questions' metadata; None: detected from what the questions share (a document, a gold passage, a world)",
    )
    notes: str = ""

    def settings_of(self, subset: str | None) -> tuple[str, ...]:
        """Return the settings of a subset, the default first."""
        return self.subset_settings.get(subset or "", self.settings)

    def metrics_of(self, subset: str | None) -> tuple[str, ...]:
        """Return the official metrics of a subset, the main metric first."""
        return self.subset_metrics.get(subset or "", self.metrics)

    def languages_of(self, subset: str | None) -> tuple[str, ...]:
        """Return the languages of a subset."""
        return self.subset_languages.get(subset or "", self.languages)

    def splits_of(self, subset: str | None) -> Mapping[str, int | None]:
        """Return the splits of a subset with their expected numbers of questions."""
        return self.subset_splits.get(subset or "", self.splits)


def subsets_by_value(by_subset: Mapping[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Group subsets by their value; returns each distinct value with the names of its subsets."""
    return [(value, [name for name, own in by_subset.items() if own == value]) for value in dict.fromkeys(by_subset.values())]


class DatasetConfig(FrozenModel):
    """Options that every loader has; a dataset with more options extends this class."""

    path: str | None = Field(default=None, description="the file, or its folder; null: looked for in RAGMETER_DATA, then on the hub")
    revision: str | None = Field(
        default=None,
        description="commit, tag or branch of the hub's repository, instead of the one that the card pins; RAGMETER_DATA is then not used",
    )
    skip_bad: bool = Field(default=False, description="skip records that cannot be read; the output counts and names them")

    def excess(self) -> tuple[str, str] | None:
        """Return an option that exceeds the limit for untrusted submission cards, and the limit; None if all are within limits.

        Data that are only read always give None, because options do not change their size.
        """
        return None


@dataclass(frozen=True, slots=True)
class DataReference:
    """A parsed data reference `name[/subset][:split]`; `split` may join several with `+`."""

    name: str
    subset: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        subset = f"/{self.subset}" if self.subset else ""
        return f"{self.name}{subset}" + (f":{self.split}" if self.split else "")

    @classmethod
    def parse(cls, text: str) -> DataReference:
        """Parse a data reference.

        Raises:
            UserError: The text does not have the form `name[/subset][:split]`.
        """
        match = re.fullmatch(r"([\w.-]+)(?:/([\w.-]+))?(?::([\w.-]+(?:\+[\w.-]+)*))?", text)
        if not match:
            raise UserError(
                f"{text!r} is not a data reference",
                code="not-data-reference",
                try_this="write name[/subset][:split], e.g. hotpotqa:dev or worlds/long:test",
            )
        return cls(*match.groups())

    def options_in(self, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Select this reference's options from a mapping: those under `name`, overridden by those under `name/subset`."""
        subset = options.get(f"{self.name}/{self.subset}", {}) if self.subset else {}
        return {**options.get(self.name, {}), **subset}

    @classmethod
    def of_name(cls, name: str) -> DataReference:
        """Parse the data reference at the beginning of `Benchmark.name`.

        Raises:
            UserError: The name does not start with a reference.
        """
        return cls.parse(name.partition("(")[0])


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A bad record that was skipped because of `skip_bad`."""

    where: str
    reason: str


@dataclass(frozen=True)
class Benchmark:
    """Loaded questions with their corpus.

    Attributes:
        reference: The reference that was loaded, including the split.
        version: The loader's code version; part of the fingerprint.
        card: The dataset's card.
        questions: Questions in the dataset's order, with unique ids.
        corpus: All passages of the questions' records, or the dataset's own corpus.
        skipped: Records left out by `skip_bad`.
        extra: Further results of the loader, by documented key. `counts`: peculiarities of the data that affect scores,
            as name to number. `notes`: the same in sentences. `graphs`: the questions' graphs.
            `expected`: the number of questions that a split has in the layout of its file, if it differs from the card.
            `settings`: the only allowed settings, if fewer than the data would allow.
            `source`: the hub's repository, commit and files with their hashes, if the data came from the hub.
            `variant`: a text for people that distinguishes it from others with the same reference. `identity`, `caveats`, `mapping`: see
            `IDENTITY`.
        code: Code hash of a loader that is a plug-in; `load` sets it.
    """

    reference: DataReference
    version: int
    card: DatasetCard
    questions: Sequence[Question]
    corpus: Corpus
    skipped: tuple[SkippedRecord, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    code: Code | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Return the name used in runs and tables: the reference, followed by the variant in parentheses if there is one."""
        variant = self.extra.get("variant")
        return str(self.reference) if variant is None else f"{self.reference}({variant})"

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of questions, gold data, corpus, loader version and plug-in code."""
        more = filter(None, (code_id(self.code), self.extra.get(IDENTITY)))
        questions = content_hash(_canonical(question) for question in self.questions)
        return fingerprint(str(self.reference), self.version, questions, self.corpus.fingerprint, *more)

    def sampled(self, cluster: str | None = None, *, where: str | None = None) -> Sampled:
        """Return the clusters of the questions: as declared by the loader, else by the card, else as detected.

        Args:
            cluster: Cluster for `benchmarks.clusters.sampled`; None: the card's.
            where: Place that set it, for messages.

        Raises:
            UserError: A question lacks the field of the stated cluster.
        """
        if cluster is not None:
            return sampled(self.questions, cluster, where=where)
        with suppress(UserError):
            return sampled(self.questions, self.card.cluster)
        return sampled(self.questions)

    def limited(self, limit: int | None) -> Benchmark:
        """Return a benchmark with only the first `limit` questions and the same corpus; None keeps all."""
        if limit is None or limit >= len(self.questions):
            return self
        return replace(self, questions=self.questions[:limit])


def _canonical(question: Question) -> str:
    # Metadata is for analyses and does not change questions or scores, except for the classes to choose from.
    return fingerprint(
        question.id,
        question.text,
        question.answers,
        dict(question.aliases),
        question.answer_set,
        question.evidence,
        question.supporting_facts,
        question.triples,
        question.type,
        question.answerable,
        question.document_id,
        None if question.candidates is None else list(question.candidates),
        question.topic_entities,
        *filter(None, (question.metadata.get("all_classes"),)),
        *filter(None, (question.metadata.get(SPANS),)),
        *((question.group,) if question.group is not None else ()),
        *((dict(question.grades), question.excluded) if question.grades or question.excluded else ()),
        *(([[turn.role, turn.text] for turn in question.turns],) if question.turns else ()),
    )


Loader = Callable[[DataReference, Any], Benchmark]
"""A loader: function from a reference (with split) and the dataset's options to a `Benchmark`."""


@dataclass(frozen=True)
class DatasetEntry:
    """Registry entry of a dataset: card, options, subsets and loader."""

    id: str
    version: int
    card: DatasetCard
    load: Loader
    config: type[DatasetConfig]
    subsets: tuple[str, ...]
    default_split: str
    code: Code | None = None
    """Source code of a plug-in's dataset, for fingerprints; None for shipped datasets."""

    def of_subset(self, subset: str) -> DatasetEntry:
        """Return a copy restricted to one subset, whose splits, settings, metrics and languages become the card's."""
        names = ("splits", "settings", "metrics", "languages")
        alone = {name: getattr(self.card, f"{name}_of")(subset) for name in names}
        card = self.card.model_copy(update={**alone, **{f"subset_{name}": {} for name in names}})
        return replace(self, card=card, subsets=(subset,))


DATASETS: Registry[DatasetEntry] = Registry("dataset", "benchmarks", "ragmeter.benchmarks")


def register(
    identifier: str,
    *,
    card: DatasetCard,
    version: int = 1,
    config: type[DatasetConfig] = DatasetConfig,
    subsets: Iterable[str] = (),
    default_split: str = "dev",
    identity: Identity = "code",
) -> Callable[[Loader], Loader]:
    """Declare a dataset; decorates its loader.

    Args:
        identifier: The name in data references.
        card: The complete card.
        version: The loader's code version; bump it when its results may change.
        config: The class of its options.
        subsets: Names accepted after the slash; the first is the default. Empty: no subsets.
        default_split: The split to load when a reference names none; if a subset lacks it, that subset's first split.
        identity: For a plug-in: with `code`, changed code is a new dataset (`benchmarks.core.code`); with `version`, only a
            new version is, which the author raises by hand.
    """

    def decorate(load: Loader) -> Loader:
        entry = DatasetEntry(identifier, version, card, load, config, tuple(subsets), default_split, registered(identity, load, config))
        DATASETS.add(entry, load.__module__)
        return load

    return decorate


_DEVELOPMENT = frozenset({"dev", "val", "valid", "validation"})
"""Synonyms of the development split."""


def resolve(reference: str | DataReference, *, where: str | None = None) -> tuple[DataReference, DatasetEntry]:
    """Fill in the default subset and split of a reference, and find its dataset.

    Raises:
        UserError: The dataset, subset or split does not exist.
    """
    ref = DataReference.parse(reference) if isinstance(reference, str) else reference
    entry = DATASETS.get(ref.name, where=where)
    subset = ref.subset or (entry.subsets[0] if entry.subsets else None)
    if subset is not None and subset not in entry.subsets:
        raise unknown_name(f"subset of {ref.name}", subset, entry.subsets, where=where)
    splits = entry.card.splits_of(subset)
    split = ref.split or (entry.default_split if entry.default_split in splits else next(iter(splits)))
    for part in split.split("+"):
        if part not in splits:
            error = unknown_name(f"split of {DataReference(ref.name, subset)}", part, splits, where=where)
            if part in _DEVELOPMENT and (same := _DEVELOPMENT & splits.keys()):
                error.try_this = f"did you mean {min(same)!r}?"
            raise error
    return DataReference(ref.name, subset, split), entry


def load(reference: str | DataReference, config: DatasetConfig | Mapping[str, Any] | None = None) -> Benchmark:
    """Load a dataset.

    Args:
        reference: `name[/subset][:split]`; splits joined by `+` are concatenated.
        config: The dataset's options.

    Raises:
        UserError: The reference, the options or the data are invalid, including any exception of the loader.
    """
    ref, entry = resolve(reference)
    options = config if isinstance(config, DatasetConfig) else options_of(entry, config or {})
    with hub.recording() as fetched, _uncollected():
        parts = [_loaded(entry, replace(ref, split=split), options) for split in (ref.split or "").split("+")]
    benchmark = parts[0] if len(parts) == 1 else _concatenate(ref, parts)
    if notes := _check_questions(benchmark):
        benchmark = replace(benchmark, extra={**benchmark.extra, "notes": (*benchmark.extra.get("notes", ()), *notes)})
    read_questions.note(question.text for question in benchmark.questions)
    read_questions.note_left_out(record.where for record in benchmark.skipped)
    if number := len(benchmark.skipped):
        skipped = f"{counted(number, 'record')} that could not be read {'was' if number == 1 else 'were'} skipped"
        benchmark = replace(benchmark, extra={**benchmark.extra, CAVEATS: (skipped, *benchmark.extra.get(CAVEATS, ()))})
    return _sourced(benchmark, fetched) if fetched else benchmark


@contextmanager
def _uncollected() -> Iterator[None]:
    """Context manager that pauses the garbage collector, which takes up to a third of the time of loading graphs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _loaded(entry: DatasetEntry, reference: DataReference, config: DatasetConfig) -> Benchmark:
    """Run a loader, and report unexpected exceptions as errors of the loader."""
    try:
        benchmark = entry.load(reference, config)
        return benchmark if entry.code is None else replace(benchmark, code=entry.code)
    except (UserError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            hint = f"correct the option path of {entry.id} (what is not absolute is relative to {Path.cwd()})"
            raise refused(error, what=f"the data of {reference} cannot be read", try_this=hint) from error
        source = DATASETS.source(entry.id)
        whose = "" if source.startswith("benchmarks.") else f", which is not ragmeter's (module {source})"
        raise UserError(
            f"{reference} cannot be loaded: {type(error).__name__}: {error}",
            code="load-failed",
            where=", ".join(filter(None, (config.path, _line_in(source, error)))) or None,
            try_this=f"check what the file says; if the file is correct, report a bug in the loader{whose}",
        ) from error


def _line_in(module: str, error: Exception) -> str | None:
    """Return the last file and line of a module in an error's traceback."""
    passed = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    return passed[-1] if passed else None


def _sourced(benchmark: Benchmark, fetched: Sequence[hub.Fetched]) -> Benchmark:
    notes = (*benchmark.extra.get("notes", ()), *hub.notes(fetched))
    return replace(benchmark, extra={**benchmark.extra, "notes": notes, "source": hub.source(fetched)})


def options_of(entry: DatasetEntry, options: Mapping[str, Any]) -> DatasetConfig:
    """Validate a dataset's options.

    Raises:
        UserError: An option does not exist, or its value is invalid.
    """
    for name in options:
        if name not in entry.config.model_fields:
            raise unknown_name(f"option of {entry.id}", name, entry.config.model_fields)
    try:
        return entry.config.model_validate(dict(options))
    except ValidationError as error:
        first = first_error(error)
        option = ".".join(map(str, first["loc"]))
        raise UserError(
            f"option {option} of {entry.id}: {in_words(first)}", code="bad-option", where=f"{option}: {first['input']!r}"
        ) from error


def _concatenate(reference: DataReference, parts: Sequence[Benchmark]) -> Benchmark:
    # Splits that share one corpus keep it, because it may be a whole Wikipedia on disk.
    shared = len({part.corpus.fingerprint for part in parts}) == 1
    return replace(
        parts[0],
        reference=reference,
        questions=[question for part in parts for question in part.questions],
        corpus=parts[0].corpus if shared else united([part.corpus for part in parts]),
        skipped=tuple(skip for part in parts for skip in part.skipped),
        extra=_merged([part.extra for part in parts]),
    )


def _merged(extras: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the extras of several splits: add counts, join lists and unite mappings."""
    merged: dict[str, Any] = {}
    for extra in extras:
        for key, value in extra.items():
            if key not in merged:
                merged[key] = value
            elif key == IDENTITY:
                merged[key] += value
            elif key == "counts":
                merged[key] = dict(Counter(merged[key]) + Counter(value))
            elif isinstance(value, Mapping):
                merged[key] = {**merged[key], **value}
            elif isinstance(value, tuple | list):
                merged[key] = (*merged[key], *value)
    return merged


def _check_questions(benchmark: Benchmark) -> list[str]:
    """Return warnings about the questions.

    Raises:
        UserError: A question has no text or a duplicate id, or questions and answers are swapped.
    """
    seen: set[str] = set()
    with_nul, swapped = 0, True
    for question in benchmark.questions:
        if not question.text.strip():
            raise UserError(
                f"question {question.id!r} has no text",
                code="question-without-text",
                where=str(benchmark.reference),
                try_this="correct or remove the record",
            )
        if question.id in seen:
            raise UserError(
                f"question id {question.id!r} occurs twice",
                code="duplicate-question",
                where=str(benchmark.reference),
                try_this="remove one of the records: scores are kept per question id",
            )
        seen.add(question.id)
        with_nul += "\0" in question.text or "\0" in question.id or "\0" in "".join(question.answers)
        swapped = swapped and not question.text.rstrip().endswith("?") and "".join(question.answers[:1]).rstrip().endswith("?")
    if swapped and len(seen) >= 3:
        raise UserError(
            "every answer ends with a question mark and no question does: the two fields are swapped",
            code="question-and-answer-swapped",
            where=str(benchmark.reference),
            try_this="swap the two columns",
        )
    return [f"{with_nul} questions have a NUL character in id, question or answer"] if with_nul else []


# Subsets may differ in passages alone (HotpotQA's distractor and fullwiki), one split may lie within another
# (UltraDomain's whole files), and a dataset may ask another's questions (CLaRa's rows).


def included_splits(reference: DataReference, other: DataReference | None = None) -> frozenset[str]:
    """Return all splits (as references) whose questions a reference includes: its own, and splits that the card declares to
    share questions.

    Args:
        reference: A missing split means all splits; a missing subset means the default subset and that of `other`.
        other: The reference to compare with.
    """
    if reference.name not in DATASETS:
        return frozenset()
    entry = DATASETS.get(reference.name)
    named = () if reference.split is None else reference.split.split("+")
    results: set[str] = set()
    for subset in _subsets(entry, reference, other or reference):
        for split in entry.card.splits_of(subset):
            if not named or split in named:
                results.add(str(DataReference(entry.id, subset, split)))
                results.update(entry.card.same_questions.get(f"{subset or ''}:{split}", ()))
    return frozenset(results)


def _subsets(entry: DatasetEntry, reference: DataReference, other: DataReference) -> set[str | None]:
    if reference.subset is not None or not entry.subsets:
        return {reference.subset}
    # A reference without a subset may mean the subset of the other reference.
    meant = other.subset if other.name == reference.name and other.subset in entry.subsets else None
    return {entry.subsets[0], meant or entry.subsets[0]}
