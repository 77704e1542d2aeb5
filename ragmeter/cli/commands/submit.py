"""`submit` with `--verify`, `submission template`, `submission bundle`, `trec export`, `trec import`."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from pydantic import ValidationError
from rich.text import Text

from benchmarks import registry as datasets
from benchmarks import settings
from benchmarks.core.errors import UserError, unwritable
from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.schema import Query
from benchmarks.settings import Setting
from judges.metric import Metric
from methods.api import Ranking, Services
from methods.pipeline import index_folder
from methods.registry import Component
from ragmeter.console import emit, err, listing, out, show_board
from ragmeter.runner.provenance import environment
from ragmeter.runner.rewriting import refusal
from ragmeter.runner.tasks import default_metrics
from results import checkpoints, queries, store_folder, trec
from results.board import board
from results.queries import RunRow
from results.statistics.core import Estimate
from results.store import Store
from results.submission import Report, mean
from results.submission import bundle as bundles
from results.submission.bundle import write_template
from results.submission.card import LIMITS, Card, dataset_options, parse_card
from results.submission.leakage import LoadTraining, stored_training, training_loader
from results.submission.rows import jsonl_rows
from results.submission.storing import (
    Stored,
    Verification,
    beside,
    card_of,
    compare,
    find_ours,
    preview,
    promote,
    require_board,
    require_known,
    store_report,
)
from results.submission.storing import to_json as preview_json
from results.submission.validate import Target, validate
from results.tables import plus_minus

STANDARD_INPUT = "-"


def submit(
    predictions: str | None,
    card_file: Path | None,
    dry_run: bool,
    data_path: str | None,
    folder: Path | None,
    as_json: bool,
    quiet: bool,
    *,
    known_boards: bool = False,
    is_trec: bool = False,
) -> int:
    """Check, score and store a submission; returns the exit code."""
    if predictions is None:
        raise UserError("there are no predictions", try_this="ragmeter submit PREDICTIONS.jsonl --card card.yaml")
    store = Store(store_folder(folder))

    def prepared(card: Card) -> Target:
        return _prepare_known(card, store, data_path) if known_boards else prepare(card, store, data_path)

    # A stranger's card may name a thousand datasets: what is not stored is not loaded for it.
    training = stored_training(store) if known_boards else training_loader()
    if predictions.lower().endswith(bundles.SUFFIX) and not is_trec:
        if card_file is not None:
            raise UserError("a bundle brings its own card", where="--card", try_this="leave --card out")
        report, target, notes = _bundled(Path(predictions), prepared, training)
    else:
        report, target, notes = _plain(predictions, card_file, prepared, training, is_trec)
    stored = None
    metrics = default_metrics(target.loaded)
    worth = preview(report, target) if dry_run else {}
    if report.ok and not dry_run:
        stored = store_report(
            store,
            report,
            target,
            metrics,
            environment=environment(),
            provenance={"submitted_as": "TREC run" if is_trec else Path(predictions).suffix.lstrip(".") or "stream"},
        )
    said: dict[str, Any] = {
        "report": report.to_json(),
        "notes": notes,
        "run": stored.run if stored else None,
        "outcome": stored.outcome if stored else "checked" if report.ok else "refused",
    }
    if dry_run:
        said["preview"] = preview_json(worth)

    def show() -> None:
        _show(report, notes, stored, store, quiet)
        if worth and not quiet:
            _show_worth(worth, metrics)

    emit(said, as_json, show)
    return 0 if report.ok else 2


def _plain(
    predictions: str, card_file: Path | None, prepared: Callable[[Card], Target], training: LoadTraining, is_trec: bool
) -> tuple[Report, Target, list[str]]:
    if card_file is None:
        raise UserError("predictions need a card that says what they are", where="--card", try_this="ragmeter submission template")
    card = _card(card_file)
    if is_trec and not card.retrieval_only:
        card = card.model_copy(update={"retrieval_only": True})
    with _opened(predictions) as source:
        target = prepared(card)
        read = trec.run_rows(target.asked.questions) if is_trec else jsonl_rows
        report = validate(card, source, target, file=predictions, metrics=default_metrics(target.loaded), read=read, training=training)
    return report, target, []


def _bundled(path: Path, prepared: Callable[[Card], Target], training: LoadTraining) -> tuple[Report, Target, list[str]]:
    with bundles.open_bundle(path) as bundle:
        target = prepared(bundle.card)
        if target.loaded.fingerprint != bundle.manifest.dataset_fingerprint:
            raise UserError(
                f"the bundle is about other data: it says {bundle.manifest.dataset_fingerprint}, "
                f"{target.loaded.reference} here is {target.loaded.fingerprint}",
                where=f"{path}/{bundles.MANIFEST}",
                try_this="use the release of the data (and of ragmeter) that it was made with",
            )
        with bundle.predictions() as source:
            report = validate(
                bundle.card, source, target, file=f"{path}/{bundles.PREDICTIONS}", metrics=default_metrics(target.loaded), training=training
            )
        if not report.ok:
            return report, target, []
        differ = bundle.differences(report.means)
        common = [metric for metric in bundle.manifest.metrics if metric in report.means]
        return report, target, differ or [f"scored again here: {len(common)} metrics as the bundle states them"]


def prepare(card: Card, store: Store, data_path: str | None = None) -> Target:
    """Load a card's benchmark and put it into the card's setting.

    Args:
        card: Validated.
        store: Keeps the index of a setting's retriever.
        data_path: The authors' file, where it is not found by itself.

    Raises:
        UserError: The data are not here, or the setting is impossible for them.
    """
    options = dataset_options(card)
    if data_path is not None:
        options = options.model_copy(update={"path": data_path})
    return _target(card.benchmark, options, card.limit, card.setting, card.seed, store)


def _prepare_known(card: Card, store: Store, data_path: str | None) -> Target:
    """The same, for cards from strangers: only where the store has the board."""
    require_known(store, card)
    target = prepare(card, store, data_path)
    require_board(store, card, target.loaded.fingerprint)
    return target


def _target(reference: str, options: DatasetConfig, limit: int | None, setting: Setting, seed: int, store: Store) -> Target:
    loaded: Benchmark = datasets.load(reference, options).limited(limit)
    if not loaded.questions:
        raise UserError("this split holds no question", where=reference)

    def retrieve(name: str, asked: Sequence[Query], n: int) -> list[Ranking]:
        services = Services(seed=seed, artefacts=store.artefacts, cache=store.folder / "cache.sqlite")
        component = Component.of(name)
        component.preflight()
        index = component.build(services).index(loaded.corpus, index_folder(component, loaded.corpus, services))
        return list(index.retrieve(asked, n))

    return Target(loaded, settings.apply(setting, loaded, seed, retrieve))


def _card(path: Path) -> Card:
    try:
        with open(path, "rb") as source:
            return parse_card(source.read(LIMITS.card_bytes + 1), str(path))
    except OSError as error:
        raise UserError(
            f"the card cannot be read: {error.strerror}",
            where=str(path),
            try_this="name a card: ragmeter submission template REFERENCE --out FOLDER writes one to fill in",
        ) from error


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(open(name, "rb"))
        except OSError as error:
            raise UserError(f"this file cannot be read: {error.strerror}", where=name) from error
        if stat.S_ISBLK(os.fstat(source.fileno()).st_mode):
            raise UserError("this is a device, not a file", where=name)
        yield source


def _show(report: Report, notes: Sequence[str], stored: Stored | None, store: Store, quiet: bool) -> None:
    styles = {"error": "red", "warning": "yellow", "note": "dim"}
    for line in report.lines():
        out.print(Text(line, style=styles.get(line.partition(":")[0], "")), soft_wrap=True)
    for note in notes:
        out.print(Text(note), soft_wrap=True)
    if stored is None:
        return
    what = {"stored": "stored as submitted", "known": "submitted before, nothing changed"}[stored.outcome]
    out.print(Text(f"{what}: run {stored.run[:8]}"), soft_wrap=True)
    if quiet:
        return
    row = queries.find_run(store, stored.run)
    out.print()
    show_board(board(store, beside(queries.runs(store), row.dataset_fingerprint, row.setting, row.seed)), out)


def _show_worth(worth: Mapping[str, Estimate], metrics: Sequence[Metric]) -> None:
    """What a checked submission would show on its board."""
    scales = {str(metric): 1.0 if metric.entry.unit == "number" else 100.0 for metric in metrics}
    out.print()
    rows = []
    for metric, one in worth.items():
        value = plus_minus(one.value, one.low, one.high, scale=scales[metric]) if one.n else "unscorable"
        rows.append((metric, value, f"{one.n:,}"))
    listing(("metric", "value × 100 ± half its 95 % interval", "questions"), rows, empty="")


def template(
    name: str,
    folder: Path,
    setting: str | None,
    limit: int | None,
    seed: int,
    config: str | None,
    passages: bool,
    data_path: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Write a template folder."""
    reference, entry = datasets.resolve(name)
    given = _json_object(config)
    if "path" in given:
        raise UserError("a card names no file of this machine", where="--config", try_this="--path FILE")
    try:
        options = entry.config.model_validate(given | ({"path": data_path} if data_path is not None else {}))
    except ValidationError as error:
        raise refusal(error, entry.id, entry.config, where="--config") from None
    asked = Setting.parse(setting or entry.card.settings_of(reference.subset)[0], where="--setting")
    target = _target(str(reference), options, limit, asked, seed, Store(store_folder(store)))
    files = write_template(folder, target, asked, seed=seed, limit=limit, config=given, passages=passages)

    def show() -> None:
        for path in files:
            out.print(Text(str(path)), soft_wrap=True)
        out.print(
            Text(
                f"{len(target.asked.questions)} questions, setting {asked}; one row each, then: ragmeter submit "
                f"{folder / 'predictions.jsonl'} --card {folder / 'card.yaml'} --dry-run"
            ),
            soft_wrap=True,
        )

    emit(
        {
            "files": [str(path) for path in files],
            "questions": len(target.asked.questions),
            "setting": str(asked),
            "dataset_fingerprint": target.loaded.fingerprint,
        },
        as_json,
        show,
    )


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"this is not JSON: {error}", where="--config", try_this="""'{"key": "value"}'""") from None
    if not isinstance(value, dict):
        raise UserError("options are a JSON object", where="--config", try_this="""'{"key": "value"}'""")
    return value


def bundle(run: str, file: Path, card_file: Path | None, folder: Path | None, as_json: bool) -> None:
    """Write a stored run as a bundle."""
    store = Store(store_folder(folder))
    row = checkpoints.find_run(store, run)
    card = _card(card_file) if card_file is not None else card_of(row)
    _check_same(card, row)
    found = queries.score_columns(store, row.dataset_fingerprint, [row.run])
    packages = row.environment.get("packages", {})
    manifest = bundles.write_bundle(
        file,
        card,
        store.predictions(row.run),
        run=row.run,
        origin=row.origin,
        dataset=row.dataset,
        dataset_fingerprint=row.dataset_fingerprint,
        metrics={metric: mean(values) for (_, metric), values in found.values.items()},
        versions={"python": str(row.environment.get("python", "")), **{k: str(v) for k, v in packages.items()}},
    )
    emit(
        manifest.model_dump(mode="json") | {"file": str(file)},
        as_json,
        lambda: out.print(Text(f"{file}: {manifest.questions} predictions of {card.method.label}"), soft_wrap=True),
    )


def _check_same(card: Card, row: RunRow) -> None:
    """A card that was given for a run must be about it."""
    reference, _ = datasets.resolve(card.benchmark)
    pairs = {
        "benchmark": (str(reference), str(DataReference.of_name(row.dataset))),
        "setting": (str(card.setting), row.setting),
        "seed": (card.seed, row.seed),
        "dataset_fingerprint": (card.dataset_fingerprint or row.dataset_fingerprint, row.dataset_fingerprint),
    }
    for name, (said, stored) in pairs.items():
        if said != stored:
            raise UserError(
                f"the card is about another run: its {name} is {said}, the run's is {stored}", where="--card", try_this=f"{name}: {stored}"
            )
    if row.status != "finished":
        raise UserError(f"the run is {row.status}, not finished", where=row.path, try_this="ragmeter resume")


def trec_export(run: str, file: Path, qrels: Path | None, passages: bool, folder: Path | None, as_json: bool) -> None:
    """Write a run's rankings, and the positives, as TREC files."""
    store = Store(store_folder(folder))
    row = checkpoints.find_run(store, run)
    ranked = {one.question_id: one.evidence for one in store.predictions(row.run)}
    known = queries.questions(store, row.dataset_fingerprint)
    rankings = [(one.question, ranked.get(one.question, ())) for one in known]
    if passages:
        rankings = [(question, trec.passages_of(evidence)) for question, evidence in rankings]
    with _written(file) as sink:
        lowered = trec.write_run(sink, rankings, row.method)
    without = None
    if qrels is not None:
        with _written(qrels) as sink:
            without = trec.write_qrels(sink, [(one.question, one.evidence) for one in known])
    empty = sum(1 for _, evidence in rankings if not evidence)

    def show() -> None:
        out.print(Text(f"{file}: {len(rankings) - empty} questions with results, {empty} without"), soft_wrap=True)
        if lowered:
            out.print(Text(f"{lowered} tied or rising scores were lowered to keep the order"))
        if qrels is not None:
            out.print(Text(f"{qrels}: {len(known) - (without or 0)} questions with positives"), soft_wrap=True)

    said = {
        "run": row.run,
        "file": str(file),
        "qrels": str(qrels) if qrels else None,
        "questions": len(rankings),
        "without_results": empty,
        "lowered_scores": lowered,
        "without_positives": without,
    }
    emit(said, as_json, show)


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """A new text file; nothing that is there is overwritten."""
    with ExitStack() as stack:
        try:
            sink = stack.enter_context(open(path, "x", encoding="ascii", newline="\n"))
        except FileExistsError:
            raise UserError("this file is there already", where=str(path), try_this="choose another name") from None
        except OSError as error:
            raise unwritable(error, path) from error
        yield sink


# -- `submit --verify`: a stored submission against a run made here --


def verify(run: str, against: str | None, tolerance: str, predictions: str | None, folder: Path | None, as_json: bool) -> int:
    """Compare a submission with a run made here, and promote it where they agree; returns the exit code."""
    if predictions is not None:
        raise UserError(
            "--verify takes a stored submission and no predictions",
            where=predictions,
            try_this="ragmeter submit FILE …, then ragmeter submit --verify RUN",
        )
    store = Store(store_folder(folder))
    submitted = checkpoints.find_run(store, run)
    card_of(submitted)
    ours = checkpoints.find_run(store, against) if against else find_ours(store, submitted)
    found = compare(store, submitted, ours, _fraction(tolerance))
    origin = promote(store, submitted, found)
    emit(found.to_json() | {"origin": origin}, as_json, lambda: _show_verification(found, submitted, ours, origin))
    return 0 if found.agrees else 1


def _fraction(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(pp)?", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value <= 1:
        raise UserError(f"{text!r} is no tolerance", where="--tolerance", try_this="0.5pp or 0.005")
    return value


def _show_verification(found: Verification, submitted: RunRow, ours: RunRow, origin: str) -> None:
    out.print(Text(f"{submitted.path} ({submitted.run[:8]}) against {ours.path} ({ours.run[:8]})"), soft_wrap=True)
    out.print(f"same answer to {found.same_answers} of {found.questions} questions, same ranking for {found.same_evidence}")
    listing(
        ("metric", "submitted", "ours", "difference", "questions that differ", ""),
        [
            (
                one.metric,
                _hundred(one.submitted),
                _hundred(one.ours),
                _hundred(one.difference, "+"),
                f"{one.differing} of {found.questions}",
                "" if one.agrees else "beyond the tolerance",
            )
            for one in found.metrics
        ],
        empty="no metric in common",
    )
    for one in found.metrics:
        if not one.agrees:
            for question, theirs, mine in one.first:
                values = f"submitted {_hundred(theirs)}, ours {_hundred(mine)}"
                out.print(Text(f"  {one.metric} of question {question!r}: {values}"), soft_wrap=True)
    if found.not_compared:
        err.print(Text("not compared, ours was not scored on them: " + ", ".join(found.not_compared)), soft_wrap=True)
    allowed = f"tolerance {100 * found.tolerance:g} points on every mean"
    verdict = "verified" if found.agrees else f"not confirmed, stays {origin}"
    out.print(Text(f"{verdict} ({allowed})", style="green" if found.agrees else "red"))


def _hundred(value: float | None, sign: str = "") -> str:
    return "unscorable" if value is None else f"{100 * value:{sign}.2f}"
