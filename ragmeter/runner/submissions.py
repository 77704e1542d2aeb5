"""A submission's files, or a bundle, checked: the card's benchmark is loaded and put into the card's setting, the rows are scored."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from benchmarks import registry, settings
from benchmarks.availability import absences
from benchmarks.core.errors import UserError
from benchmarks.registry import DataReference, DatasetConfig
from benchmarks.schema import Query
from benchmarks.settings import Setting
from judges.metric import Metric
from judges.metric import parse as parse_metric
from methods.api import FAILED, Ranking, Services
from methods.flow import each
from methods.pipeline import index_folder
from methods.registry import Component
from ragmeter.runner.tasks import default_metrics
from results.formats.outputs import FORMATS
from results.formats.predictions import Format
from results.offered import JSONL, LIMITS
from results.store.queries import RunRow
from results.store.store import FINISHED, Store
from results.submission import NOT_IN_FILE, Finding, Place, Report, bundle
from results.submission.card import Card, dataset_options, parse_card
from results.submission.from_store import Known, known_board, stored_target
from results.submission.leakage import stored_training, training_loader
from results.submission.storing import NOT_STATED, board_metrics, earlier, other_runs
from results.submission.validate import Target, validate

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Checked:
    """Result of checking a submission.

    Attributes:
        report: The report with findings and scores.
        target: The benchmark that it was checked against.
        metrics: The metrics that it is scored on.
        notes: Further remarks.
    """

    report: Report
    target: Target
    metrics: Sequence[Metric]
    notes: list[str] = field(default_factory=list)

    def beside_earlier(self, store: Store) -> Checked:
        """Add what storing it would do if the store has this method and version already: an error if anything differs, else a note."""
        if not self.report.ok:
            return self
        known, changed = earlier(store, self.report)
        if changed is not None:
            finding = Finding(str(changed.code), "error", changed.what, changed.try_this, 1, (Place(None, str(changed.where)),))
            return replace(self, report=replace(self.report, findings=(finding, *self.report.findings)))
        if known is not None and known.status == FINISHED:
            return replace(self, notes=[*self.notes, f"submitted before, nothing changed: run {known.short}"])
        return self


@dataclass(frozen=True)
class Checker:
    """Checks submissions with given settings.

    Attributes:
        store: The store, which also holds the index of a setting's retriever.
        known_boards: Whether only benchmarks in the store are accepted, as a public server requires.
        data_path: The authors' data file, if it is not found automatically.
        strict: Whether problems that an official script tolerates are errors.
    """

    store: Store
    known_boards: bool = False
    data_path: str | None = None
    strict: bool = False

    def target(self, card: Card, *, from_store: bool = True) -> Target:
        """Return the card's benchmark in the card's retrieval setting: loaded if its data are here, else rebuilt from the store.

        Args:
            card: The validated card.
            from_store: Whether the benchmark may be rebuilt from the store.

        Raises:
            UserError: The data are neither here nor in the store, or the setting is impossible for them.
        """
        board = self._board(card) if from_store else None
        if board is not None and (self.known_boards and card.config):
            # An untrusted card does not decide what is generated.
            return stored_target(self.store, board, card.setting)
        options = dataset_options(card)
        if self.data_path is not None:
            options = options.model_copy(update={"path": self.data_path})
        elif board is not None and any(absences(registry.resolve(card.benchmark)[0], options)):
            return stored_target(self.store, board, card.setting)
        try:
            target = target_of(card.benchmark, options, card.limit, card.setting, card.seed, self.store)
        except UserError:
            # Errors in the files of a server are not for visitors.
            if not self.known_boards or board is None:
                raise
            return stored_target(self.store, board, card.setting)
        if self.known_boards and board is not None and target.fingerprint != board.fingerprint:
            return stored_target(self.store, board, card.setting)
        return target

    def _board(self, card: Card) -> Known | None:
        """Return the store's board for a card; None if there is none and data files are read as well."""
        if not self.known_boards and not self.store.database.exists:
            return None
        try:
            return known_board(self.store, card)
        except UserError:
            if self.known_boards:
                raise
            return None

    def check(self, predictions: str, card: Card | Path | None, format: str = JSONL) -> Checked:
        """Check predictions with their card, or a bundle, which contains its card.

        Args:
            predictions: A file, or `STANDARD_INPUT`.
            card: The card, or its file.
            format: Format of the predictions, one of `FORMATS`.

        Raises:
            UserError: A file cannot be read, is not a submission, or belongs to other data.
        """
        layout = FORMATS[format]
        if predictions.lower().endswith(bundle.SUFFIX) and format == JSONL:
            if card is not None:
                raise UserError("a bundle contains its own card", code="card-besides-bundle", where="--card", try_this="leave --card out")
            return self._bundle(Path(predictions))
        if card is None:
            what = "predictions need a card"
            remedy = "ragmeter submit template REFERENCE -o FOLDER writes one to fill in; or --method NAME --benchmark REFERENCE"
            raise UserError(what, code="refused-submission", where="--card", try_this=remedy)
        if isinstance(card, Path):
            card = read_card(card)
        if "answer" not in layout.says and not card.retrieval_only:
            card = card.model_copy(update={"retrieval_only": True})
        with _opened(predictions) as source:
            # Layouts of official scripts name questions and passages in ways that only the data files know.
            target = self.target(card, from_store=format == JSONL)
            return self._validated(card, source, target, predictions, layout)

    def _bundle(self, path: Path) -> Checked:
        with bundle.open_bundle(path) as opened:
            target = self.target(opened.card)
            manifest = opened.manifest
            if manifest is not None and target.fingerprint != manifest.dataset_fingerprint:
                raise UserError(
                    f"the bundle was made for other data: its fingerprint is {manifest.dataset_fingerprint}, "
                    f"and that of {target.loaded.reference} here is {target.fingerprint}",
                    code="bundle-data-mismatch",
                    where=f"{path}/{bundle.MANIFEST}",
                    try_this="use the release of the data (and of ragmeter) that it was made with",
                )
            with opened.predictions() as source:
                checked = self._validated(opened.card, source, target, f"{path}/{bundle.PREDICTIONS}")
            if checked.report.ok and manifest is not None:
                means = checked.report.means
                common = [metric for metric in manifest.metrics if metric in means]
                same = f"scored again here: {len(common)} metrics as the bundle states them"
                checked.notes.extend(opened.differences(means) or [same])
            return checked

    def _metrics(self, card: Card, target: Target) -> list[Metric]:
        """Return the dataset's metrics, and those of the boards that the submission joins; `judge run` scores judges' measures."""
        metrics = {str(metric): metric for metric in default_metrics(target.loaded)}
        for name in board_metrics(self.store, card, target.fingerprint):
            with suppress(UserError):  # a judge's measure, or a metric of another version
                metric = parse_metric(name)
                # Untrusted input does not decide that a server loads a model.
                if not self.known_boards or "model" not in metric.entry.needs:
                    metrics.setdefault(str(metric), metric)
        return list(metrics.values())

    def _validated(self, card: Card, source: BinaryIO, target: Target, file: str, layout: Format = FORMATS[JSONL]) -> Checked:
        metrics = layout.scorable(self._metrics(card, target))
        # A card that is untrusted may name a thousand datasets: what is not stored is not loaded for it.
        training = stored_training(self.store) if self.known_boards else training_loader()
        read = layout.reader(target.loaded)
        runs = other_runs(self.store, card, target.fingerprint)
        report = validate(
            card,
            source,
            target,
            file=file,
            metrics=metrics,
            read=read,
            training=training,
            runs=runs,
            strict=self.strict,
            partial=layout.partial,
            ranked_by_contexts=layout.ranked_by_contexts,
        )
        if report.ok and layout.official is not None:
            lacking = sum(item.notes.get(FAILED) == NOT_IN_FILE for item in report.predictions) if layout.over_lines else 0
            report = replace(report, official=layout.official(target.loaded, report.predictions), left_out=lacking)
        return Checked(report, target, metrics)


def short_card(method: str, reference: str, setting: str | None) -> Card:
    """Make a minimal card for a predictions file from command-line options; all other fields are unknown.

    Args:
        method: NAME or NAME@VERSION.
        reference: The benchmark.
        setting: Retrieval setting; None uses the dataset's first.

    Raises:
        UserError: A part is missing or unknown.
    """
    resolved, entry = registry.resolve(reference)
    name, _, version = method.partition("@")
    chosen = Setting.parse(setting or entry.card.settings_of(resolved.subset)[0], where="--setting")
    # An untrained method states an empty list; here it is not stated.
    unknown = [{"name": NOT_STATED}]
    part = {"name": name, "version": version or "1"}
    try:
        return Card.model_validate({"method": part, "benchmark": str(resolved), "setting": str(chosen), "training_data": unknown})
    except ValidationError:
        what = f"{method!r} is not a name of a method"
        raise UserError(
            what, code="refused-submission", where="--method", try_this="NAME or NAME@VERSION, of letters, digits and . _ + -"
        ) from None


def on_benchmark(card: Card, reference: str, setting: str | None) -> Card:
    """Change a card to another benchmark: the method's fields stay, those about the data are removed.

    Args:
        card: The card.
        reference: The benchmark.
        setting: Retrieval setting; None uses the dataset's first.

    Raises:
        UserError: The benchmark or setting is unknown.
    """
    resolved, entry = registry.resolve(reference, where="--benchmark")
    chosen = Setting.parse(setting or entry.card.settings_of(resolved.subset)[0], where="--setting")
    own: dict[str, object] = {"limit": None, "config": {}, "dataset_fingerprint": None}
    return card.model_copy(update={"benchmark": str(resolved), "setting_text": str(chosen), **own})


def target_of(reference: str, options: DatasetConfig, limit: int | None, setting: Setting, seed: int, store: Store) -> Target:
    """Load a benchmark and put it into a retrieval setting, for checking submissions.

    Raises:
        UserError: The data are not here, or the setting is impossible for them.
    """
    loaded = registry.load(reference, options).limited(limit)
    if not loaded.questions:
        raise UserError("this split holds no question", code="empty-split", where=reference)

    def retrieve(name: str, queries: Sequence[Query], n: int) -> list[Ranking]:
        services = Services(seed=seed, artifacts=store.artifacts, cache=store.folder / "cache.sqlite")
        component = Component.of(name)
        component.preflight()
        index = component.build(services).index(loaded.corpus, index_folder(component, loaded.corpus, services))
        return list(each(index, "retrieve", queries, n))

    return Target(loaded, settings.apply(setting, loaded, seed, retrieve))


def read_card(path: Path) -> Card:
    """Read a card from a file.

    Raises:
        UserError: The file cannot be read, or is not a card.
    """
    try:
        with open(path, "rb") as source:
            return parse_card(source.read(LIMITS.card_bytes + 1), str(path))
    except OSError as error:
        remedy = "name a card: ragmeter submit template REFERENCE -o FOLDER writes one to fill in"
        raise UserError(f"the card cannot be read: {error.strerror}", code="unreadable-card", where=str(path), try_this=remedy) from error


def require_same(card: Card, row: RunRow) -> None:
    """Check that a card describes a run, and that the run is finished.

    Raises:
        UserError: The card describes another run, or the run is not finished.
    """
    reference, _ = registry.resolve(card.benchmark)
    pairs = {
        "benchmark": (str(reference), str(DataReference.of_name(row.dataset))),
        "setting": (str(card.setting), row.setting),
        "seed": (card.seed, row.seed),
        "dataset_fingerprint": (card.dataset_fingerprint or row.dataset_fingerprint, row.dataset_fingerprint),
    }
    for name, (of_card, of_run) in pairs.items():
        if of_card != of_run:
            what = f"the card is about another run: its {name} is {of_card}, the run's is {of_run}"
            raise UserError(what, code="refused-submission", where="--card", try_this=f"{name}: {of_run}")
    if row.status != "finished":
        raise UserError(f"the run is {row.status}, not finished", code="run-not-finished", where=row.path, try_this="ragmeter run --resume")


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(open(name, "rb"))
        except OSError as error:
            raise UserError(f"this file cannot be read: {error.strerror}", code="unreadable-file", where=name) from error
        if stat.S_ISBLK(os.fstat(source.fileno()).st_mode):
            raise UserError("this is a device, not a file", code="not-a-regular-file", where=name)
        yield source
