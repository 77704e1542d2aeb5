"""`ragmeter submit`: predictions made elsewhere: a template to begin with, checked, scored, stored, reviewed, verified, bundled."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.unseen import printable
from ragmeter.cli import completion, options
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import err, listing, out
from results.offered import JSONL, PREDICTIONS

if TYPE_CHECKING:
    from ragmeter.runner.submissions import Checked
    from results.statistics.core import Estimate
    from results.store.queries import RunRow
    from results.submission.card import Card
    from results.submission.storing import Stored, Verification

app = App(default="add", help="Predictions made elsewhere: template, check, add, accept, reject, verify.")

Predictions = Annotated[str, argument("Predictions (.jsonl, - for standard input) or a bundle (.zip).", metavar="FILE")]
CardOption = Annotated[Path | None, option("Card of the submission (YAML).", "--card")]
FormatOption = Annotated[
    str,
    option(
        "Format of the predictions: jsonl, or an official evaluator's layout.", "--format", completes=completion.offer_words(*PREDICTIONS)
    ),
]
MethodOption = Annotated[
    str | None, option("Name of the method, in place of a card.", "--method", metavar="NAME[@VERSION]", completes=completion.methods)
]
BenchmarkOption = Annotated[
    str | None, option("Benchmark, in place of the card's.", "--benchmark", metavar="REFERENCE", completes=completion.references)
]
Strict = Annotated[bool, option("Reject faults that the official script tolerates, such as missing questions.", "--strict")]
KnownBoards = Annotated[bool, option("Accept only boards that the store has, as a server does.", "--known-boards")]
Hold = Annotated[bool, option("Keep it off the boards until `ragmeter submit accept RUN`.", "--hold")]
Reason = Annotated[str, option("Why, in one line that visitors read.", "--reason")]
PathSetting = Annotated[
    list[str] | None, option("Data file (default: search RAGMETER_DATA), or an option if no card has it.", "--set", metavar="path=FILE")
]
STEPS = (
    ("ragmeter submit template REFERENCE -o FOLDER", "writes a card, the questions and an empty predictions file: fill in both"),
    ("ragmeter submit check FOLDER/predictions.jsonl --card FOLDER/card.yaml", "says what is wrong with them, and what they would score"),
    ("ragmeter submit FOLDER/predictions.jsonl --card FOLDER/card.yaml", "stores them, on the board of their benchmark"),
)


@app.command(plugin=True)
def add(
    common: Common,
    file: Annotated[str | None, argument("Files as for `check` (default: list submissions and the first steps)")] = None,
    card: CardOption = None,
    format: FormatOption = JSONL,
    method: MethodOption = None,
    benchmark: BenchmarkOption = None,
    setting: options.SettingOption = None,
    strict: Strict = False,
    known_boards: KnownBoards = False,
    hold: Hold = False,
    settings: PathSetting = None,
) -> int:
    """Check and score external predictions, and store them as `submitted`."""
    from results.submission import review

    if file is not None:
        its_card = _card(card, method, benchmark, setting)
        return _submit(file, its_card, format, strict, known_boards, settings, common, keep=True, hold=hold)
    if card is not None or method is not None:
        raise UserError(
            "no predictions were given", code="no-predictions", where="FILE", try_this="ragmeter submit PREDICTIONS.jsonl --card card.yaml"
        )
    sent = review.submissions(common.store)
    value = {"submissions": [item.to_json() for item in sent], "steps": [command for command, _ in STEPS]}

    def show() -> None:
        lines = [
            (item.run.short, item.run.method, f"{item.run.dataset}, {item.run.setting}", item.status, f"{item.decided_at:%Y-%m-%d %H:%M}")
            for item in sent
        ]
        heads = ("run", "method", "benchmark", "status", "since (UTC)")
        listing(heads, lines, empty="nothing has been submitted here yet")
        for item in sent:
            if item.reason:
                out.print(Text(f"{item.run.short} is {item.status}: {printable(item.reason)}", style="dim"), soft_wrap=True)
        for number, (command, what) in enumerate(STEPS, 1):
            out.print(Text(f"{number}. {command}", style="bold") + Text(f"\n   {what}", style="not bold"), soft_wrap=True)

    common.emit(value, show)
    return 0


@app.command(plugin=True)
def check(
    file: Predictions,
    common: Common,
    card: CardOption = None,
    format: FormatOption = JSONL,
    method: MethodOption = None,
    benchmark: BenchmarkOption = None,
    setting: options.SettingOption = None,
    strict: Strict = False,
    known_boards: KnownBoards = False,
    settings: PathSetting = None,
) -> int:
    """Check predictions and show their scores without storing them."""
    return _submit(file, _card(card, method, benchmark, setting), format, strict, known_boards, settings, common, keep=False)


def _card(file: Path | None, method: str | None, benchmark: str | None, setting: str | None) -> Card | Path | None:
    """Return the card's file, or a card made from the options."""
    from ragmeter.runner.submissions import on_benchmark, read_card, short_card

    if method is None and benchmark is None and setting is None:
        return file
    if file is not None and method is None and benchmark is not None:
        return on_benchmark(read_card(file), benchmark, setting)
    if file is not None:
        raise UserError(
            "the card sets method and setting",
            code="card-and-options",
            where="--card",
            try_this="leave the options out, or the card; --benchmark applies a card to another benchmark",
        )
    if method is None or benchmark is None:
        lacks = "--benchmark" if benchmark is None else "--method"
        raise UserError(
            "without a card, both the method and the benchmark are needed",
            code="method-and-benchmark-needed",
            where=lacks,
            try_this=f"{lacks} …",
        )
    return short_card(method, benchmark, setting)


def _submit(
    file: str,
    card: Card | Path | None,
    format: str,
    strict: bool,
    known_boards: bool,
    settings: list[str] | None,
    common: Common,
    *,
    keep: bool,
    hold: bool = False,
) -> int:
    from benchmarks import registry
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner.provenance import environment
    from ragmeter.runner.rewriting import options_of
    from ragmeter.runner.submissions import Checker
    from results.submission import storing
    from results.submission.card import Card

    if format not in PREDICTIONS:
        raise unknown_name("format", format, PREDICTIONS, where="--format")
    supplied = given_options(None, settings)
    path = supplied.pop("path", None)
    if supplied and not isinstance(card, Card):
        raise UserError(
            "the card sets options of the data",
            code="card-and-data-options",
            where=f"--set {next(iter(supplied))}",
            try_this="write it below config: in the card; without a card, --method and --benchmark take --set",
        )
    if isinstance(card, Card) and supplied:
        entry = registry.resolve(card.benchmark)[1]
        with options_of(entry.id, entry.config):
            entry.config.model_validate(supplied)
        card = card.model_copy(update={"config": supplied})
    store = common.store
    checked = Checker(store, known_boards, None if path is None else str(path), strict).check(file, card, format)
    if not keep:
        checked = checked.beside_earlier(store)
    report = checked.report
    worth = {} if keep else storing.preview(report, checked.target)
    stored = None
    if report.ok and keep:
        made_from = (Path(file).suffix.lstrip(".") or "stream") if format == JSONL else {"trec": "TREC run"}.get(format, format)
        stored = storing.store_report(
            store, report, checked.target, checked.metrics, environment=environment(), provenance={"submitted_as": made_from}, hold=hold
        )
    value: dict[str, Any] = {
        "report": report.to_json(),
        "notes": checked.notes,
        "run": stored.run if stored else None,
        "outcome": stored.outcome if stored else "checked" if report.ok else "refused",
    }
    if not keep:
        value["preview"] = storing.to_json(worth)
    common.emit(value, lambda: _show(checked, stored, worth, common))
    return 0 if report.ok else 2


def _show(checked: Checked, stored: Stored | None, worth: Mapping[str, Estimate], common: Common) -> None:
    from ragmeter.show.board_text import show_board
    from results.boards.board import board
    from results.boards.systems import accepted, implausible
    from results.boards.tables import plus_minus
    from results.boards.verdict_of import MANY, verdicts
    from results.boards.verdict_text import headline_of, headlines
    from results.store import queries
    from results.store.store import shortened
    from results.submission import storing
    from results.submission.review import UNRANKED

    styles = {"error": "red", "warning": "yellow", "note": "dim"}
    for line in checked.report.lines():
        out.print(Text(line, style=styles.get(line.partition(":")[0], "")), soft_wrap=True)
    for note in checked.notes:
        out.print(Text(note), soft_wrap=True)
    if stored is not None:
        row = queries.find_run(common.store, stored.run)
        what = {"stored": f"stored as {row.origin}", "known": f"submitted before, nothing changed: {row.origin}"}[stored.outcome]
        out.print(Text(f"{what}: run {shortened(stored.run)}"), soft_wrap=True)
        if row.origin in queries.HIDDEN:
            out.print(Text(f"no board shows it until: ragmeter submit accept {row.short}"), soft_wrap=True)
            return
        if implausible(row) and not accepted(row):
            out.print(Text(f"implausible: {UNRANKED} (ragmeter submit accept {row.short})"), soft_wrap=True)
    if common.quiet or not (stored or worth):
        return
    out.print()
    if stored is not None:
        alike = storing.board_runs(queries.runs(common.store), row.dataset_fingerprint, row.setting, row.seed)
        joined = board(common.store, alike)
        # The verdict over all runs of the store, as `results --all` prints it.
        known = headlines(verdicts(common.store, None, metrics=joined.metrics, most=MANY))
        show_board(joined, out, headline=headline_of(joined, known))
    else:
        scales = {str(metric): 1.0 if metric.entry.unit == "number" else 100.0 for metric in checked.metrics}
        rows = []
        for metric, item in worth.items():
            shown = plus_minus(item.value, item.low, item.high, scale=scales[metric]) if item.n else "unscorable"
            rows.append((metric, shown, f"{item.n:,}"))
        listing(("metric", "value × 100 and its 95 % interval", "questions"), rows, empty="")


@app.command(plugin=True)
def template(
    reference: options.DataReference,
    output: Annotated[Path, option("Folder to write.", "--output", "-o")],
    common: Common,
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    seed: options.SeedOption = 0,
    config: options.ConfigOption = None,
    settings: options.SetOption = None,
    passages: Annotated[bool, option("Write the passages and the candidates of each question too.", "--passages")] = False,
) -> None:
    """Write a commented card, the questions (ids and texts) and an empty predictions file."""
    from benchmarks import registry
    from benchmarks.settings import Setting
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner.rewriting import options_of
    from ragmeter.runner.submissions import target_of
    from results.submission.bundle import write_template

    resolved, entry = registry.resolve(reference)
    supplied = given_options(config, settings)
    with options_of(entry.id, entry.config):
        data = entry.config.model_validate(supplied)
    # A card names no file of this machine.
    file = supplied.pop("path", None)
    parsed = Setting.parse(setting or entry.card.settings_of(resolved.subset)[0], where="--setting")
    target = target_of(str(resolved), data, limit, parsed, seed, common.store)
    files = write_template(output, target, parsed, seed=seed, limit=limit, config=supplied, passages=passages)
    questions = len(target.in_setting.questions)

    def show() -> None:
        for path in files:
            out.print(Text(str(path)), soft_wrap=True)
        then = f"ragmeter submit check {output / 'predictions.jsonl'} --card {output / 'card.yaml'}"
        then += f" --set {shlex.quote(f'path={file}')}" if file is not None else ""
        out.print(Text(f"{questions} questions, setting {parsed}; one row each, then: {then}"), soft_wrap=True)

    fingerprint = target.loaded.fingerprint
    value = {"files": [str(path) for path in files], "questions": questions, "setting": str(parsed), "dataset_fingerprint": fingerprint}
    common.emit(value, show)


@app.command()
def accept(run: options.RunArgument, common: Common, reason: Reason = "") -> None:
    """Show a submission on the boards."""
    _decide("accept", run, reason, common)


@app.command()
def hold(run: options.RunArgument, common: Common, reason: Reason = "") -> None:
    """Take a submission off the boards until it is accepted; needs --reason."""
    _decide("hold", run, reason, common)


@app.command()
def reject(run: options.RunArgument, common: Common, reason: Reason = "") -> None:
    """Refuse a submission: no board shows it, visitors read the reason; needs --reason."""
    _decide("reject", run, reason, common)


@app.command()
def withdraw(run: options.RunArgument, common: Common, reason: Reason = "") -> None:
    """Take a submission off the boards because its sender asks for it; needs --reason."""
    _decide("withdraw", run, reason, common)


def _decide(action: str, run: str, reason: str, common: Common) -> None:
    from results.store import tags
    from results.submission import review

    done = review.decide(common.store, tags.find_run(common.store, run), action, reason)
    why = f" ({done.reason})" if done.reason else ""
    common.emit(done.to_json(), lambda: out.print(Text(f"{done.run.method} is {done.status}{why}: run {done.run.short}"), soft_wrap=True))


@app.command()
def bundle(
    run: options.RunArgument,
    output: Annotated[Path, option(".zip file to write.", "--output", "-o")],
    common: Common,
    card: CardOption = None,
) -> None:
    """Write a stored run as one file for `ragmeter submit` elsewhere; without --card, create a card from the run."""
    from ragmeter.runner.submissions import read_card, require_same
    from results.store import score_queries, tags
    from results.submission import bundle as bundles
    from results.submission import mean
    from results.submission.storing import card_of, card_of_run

    store = common.store
    row = tags.find_run(store, run)
    its_card = read_card(card) if card is not None else card_of_run(row) if row.card is None else card_of(row)
    require_same(its_card, row)
    scores = score_queries.score_columns(store, row.dataset_fingerprint, [row.run]).values
    packages = row.environment.get("packages", {})
    manifest = bundles.write_bundle(
        output,
        its_card,
        store.predictions(row.run),
        run=row.run,
        origin=row.origin,
        dataset=row.dataset,
        dataset_fingerprint=row.dataset_fingerprint,
        metrics={metric: mean(values) for (_, metric), values in scores.items()},
        versions={"python": str(row.environment.get("python", "")), **{name: str(version) for name, version in packages.items()}},
    )
    line = f"{output}: {manifest.questions} predictions of {its_card.method.label}"
    common.emit(manifest.model_dump(mode="json") | {"file": str(output)}, lambda: out.print(Text(line), soft_wrap=True))


@app.command(plugin=True)
def verify(
    run: options.RunArgument,
    common: Common,
    against: Annotated[str | None, option("Our run to compare with (default: the one of the method)", completes=completion.runs)] = None,
    tolerance: Annotated[str, option("Maximum difference of a metric's mean, 0.5pp or 0.005.")] = "0.5pp",
) -> int:
    """Compare a submission with our own run and mark it as verified if they agree; exit with 1 if not."""
    from results.store import tags
    from results.submission import storing
    from results.submission.storing import card_of

    store = common.store
    submitted = tags.find_run(store, run)
    card_of(submitted)
    ours = tags.find_run(store, against) if against else storing.find_ours(store, submitted)
    result = storing.compare(store, submitted, ours, _fraction(tolerance))
    origin = storing.promote(store, submitted, result)
    common.emit(result.to_json() | {"origin": origin}, lambda: _show_verification(result, submitted, ours, origin))
    return int(not result.agrees)


def _fraction(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(pp)?", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value <= 1:
        raise UserError(f"{text!r} is not a tolerance", code="bad-tolerance", where="--tolerance", try_this="0.5pp or 0.005")
    return value


def _show_verification(result: Verification, submitted: RunRow, ours: RunRow, origin: str) -> None:
    out.print(Text(f"{submitted.path} ({submitted.short}) against {ours.path} ({ours.short})"), soft_wrap=True)
    out.print(f"same answer to {result.same_answers} of {result.questions} questions, same ranking for {result.same_evidence}")
    rows = [
        (
            *(metric.metric, _hundred(metric.submitted), _hundred(metric.ours), _hundred(metric.difference, "+")),
            f"{metric.differing} of {result.questions}",
            "" if metric.agrees else "beyond the tolerance",
        )
        for metric in result.metrics
    ]
    listing(("metric", "submitted", "ours", "difference", "questions that differ", ""), rows, empty="no metric in common")
    for metric in result.metrics:
        if not metric.agrees:
            for question, theirs, mine in metric.first:
                values = f"submitted {_hundred(theirs)}, ours {_hundred(mine)}"
                out.print(Text(f"  {metric.metric} of question {question!r}: {values}"), soft_wrap=True)
    if result.not_compared:
        err.print(Text("not compared, ours was not scored on them: " + ", ".join(result.not_compared)), soft_wrap=True)
    verdict = "verified" if result.agrees else f"not confirmed, stays {origin}"
    allowed = f"tolerance {100 * result.tolerance:g} points on every mean"
    out.print(Text(f"{verdict} ({allowed})", style="green" if result.agrees else "red"))


def _hundred(value: float | None, sign: str = "") -> str:
    return "unscorable" if value is None else f"{100 * value:{sign}.2f}"
