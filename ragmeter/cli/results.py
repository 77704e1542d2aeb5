"""`ragmeter results`: tables of results, single runs and pairs of runs, papers' figures, tags, exports."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unknown_name, unwritable
from ragmeter.cli import completion, options, results_style
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import SafeConsole, err, listing, offering_score, out, print_table, printable, stdout
from results.offered import PARQUET, POWER, TABLES, TRACKERS, WIDE

if TYPE_CHECKING:
    from results.boards.board import Board
    from results.boards.paper_figures import Figure
    from results.boards.published_table import Compared
    from results.boards.verdict import BoardVerdict
    from results.boards.verdict_text import Headline
    from results.store.store import Store

app = App(default="table", help="Tables; show RUN QUESTION, compare, tag, report, export (TREC).")
app.add_typer(results_style.app, name="style")

FORMATS = ("text", *TABLES, *WIDE, PARQUET, "json")
FILE_WIDTH = 160
"""Width of text tables in a file."""


def _write(path: Path, text: str) -> str:
    """Write a file; returns its path, and whether an existing file was replaced."""
    replaced = " (replaced)" if path.exists() else ""
    try:
        path.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise unwritable(error, path) from None
    return f"{path}{replaced}"


@app.command()
def table(
    common: Common,
    experiment: options.StoredExperiment = None,
    metric: options.MetricOption = None,
    every: Annotated[bool, option("Include every run in the store, of any experiment.", "--all")] = False,
    form: Annotated[
        str,
        option("text, csv, markdown, latex, csv-wide, latex-wide, parquet, json.", "--format", completes=completion.offer_words(*FORMATS)),
    ] = "text",
    output: options.OutputOption = None,
    with_published: Annotated[bool, option("Compare our values with the papers' figures.", "--published")] = False,
    over_seeds: options.OverSeedsOption = False,
    reference: options.ReferenceOption = None,
    questions: Annotated[bool, option("Write one row per question and metric (csv, parquet).", "--questions")] = False,
    wide: options.WideOption = False,
) -> None:
    """Print an experiment's verdict and tables: values with 95 % intervals, and paired differences from the reference."""
    from leaderboard.matrix.exports import still_matrix
    from ragmeter.show.board_text import show_boards
    from results.boards import published_table
    from results.boards.board import boards
    from results.boards.markup import plain
    from results.boards.verdict_of import MANY, verdicts
    from results.boards.verdict_text import headlines
    from results.store import queries

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS, where="--format")
    if common.json and form not in ("text", "json"):
        raise UserError(
            f"--json and --format {form} cannot be combined", code="two-formats", where="--format", try_this="leave one of them out"
        )
    _check_format(form, output, published=with_published, questions=questions)
    store = common.store
    as_json, as_text = common.json or form == "json", form == "text" and output is None
    results: list[Board] = []
    known: list[BoardVerdict] = []
    # One state of the store, so that a query which both need is asked once.
    with store.database.reading() if store.database.exists else nullcontext():
        # A store may contain only submissions, which belong to no experiment.
        every = every or (experiment is None and not (store.database.exists and queries.experiments(store)))
        name = None if every else queries.experiment(store, experiment).name
        if store.database.exists:
            with offering_score():
                results = boards(store, name, metrics=metric or None, over_seeds=over_seeds, reference=reference)
        if results and not questions and (as_json or (form == "text" and not with_published)):
            chosen = [*dict.fromkeys(metric for board in results for metric in board.metrics)] if metric else None
            known = verdicts(store, name, metrics=chosen, reference=reference, most=None if as_json else MANY)
    if form in (*WIDE, PARQUET) or questions:
        _export_tables(store, results, form, output, name, metric if questions else None, questions=questions)
        return
    rows = published_table.compare_boards(results) if with_published else []
    if as_json:
        value: dict[str, Any] = {"experiment": name, "boards": [item.to_json() for item in results]}
        if results:
            value["verdicts"] = [verdict.to_json() for verdict in known]
        if name is not None and len(results) > 1 and (whole := still_matrix(store, name)) is not None:
            value["overall"] = [plain(line.to_json()) for line in whole.board.overall]
        if with_published:
            value["published"] = [row.to_json() for row in rows]
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n"
    elif as_text:
        if experiment is None and not every and results and (count := len(queries.experiments(store))) > 1:
            out.print(Text(f"experiment {name}, the newest of {count} (`ragmeter list experiments`)", style="dim"))
        _show_tables(common, results, rows if with_published else None, name, headlines(known), wide=wide)
        return
    elif with_published:
        text = published_table.render(rows, "markdown" if form == "text" else form)
    elif form == "text":
        sheet = io.StringIO()
        show_boards(
            results, headlines(known), SafeConsole(file=sheet, width=FILE_WIDTH, highlight=False, no_color=True), wide=wide, verbose=True
        )
        text = sheet.getvalue()
    else:
        from results.boards.tables import render

        text = render(results, form)
    if output is None:
        stdout().write(printable(text))
    else:
        _write(output, text)


def _check_format(form: str, output: Path | None, *, published: bool, questions: bool) -> None:
    """Refuse options that do not fit a format.

    Raises:
        UserError: They do not.
    """
    if published and (questions or form in (*WIDE, PARQUET)):
        what = "--questions" if questions else f"--format {form}"
        raise UserError(f"{what} has no published figures", code="format-without-published", where=what, try_this="leave --published out")
    if questions and form not in ("csv", PARQUET):
        raise UserError(
            f"--questions writes csv or parquet, not {form}", code="questions-format", where="--format", try_this="--format csv"
        )
    if form == PARQUET and output is None:
        raise UserError("parquet is a binary format and needs a file", code="parquet-without-file", where="--format", try_this="-o FILE")


def _export_tables(
    store: Store,
    results: Sequence[Board],
    form: str,
    output: Path | None,
    name: str | None,
    metrics: Sequence[str] | None,
    *,
    questions: bool,
) -> None:
    """Export tables or question scores in a format of `results.formats.table_files`."""
    from results.boards.markup import to_csv
    from results.boards.tables import CSV_COLUMNS, tidy
    from results.formats import table_files
    from results.store import score_queries

    columns: Sequence[str] = table_files.QUESTION_COLUMNS if questions else CSV_COLUMNS
    lines = table_files.question_scores(store, name, metrics) if questions else [line for board in results for line in tidy(board)]
    if form == PARQUET and output is not None:
        replaced = " (replaced)" if output.exists() else ""
        table_files.write_parquet(output, columns, lines)
        out.print(Text(f"{output}{replaced}: {counted(len(lines), 'row')}"), soft_wrap=True)
        return
    if form == "csv":
        text = to_csv(columns, lines)
    elif form == "csv-wide":
        text = table_files.wide_csv(results)
    else:
        text = table_files.wide_latex(results, score_queries.definitions(store), name or "all runs")
    if output is None:
        stdout().write(printable(text))
    else:
        _write(output, text)


def _show_overall(store: Store, experiment: str) -> None:
    """Print the methods' results over all benchmarks below the tables of several benchmarks."""
    from leaderboard.matrix import overall
    from leaderboard.matrix.exports import still_matrix

    whole = still_matrix(store, experiment)
    if whole is None or not (heads := overall.heads(whole)):
        return
    metrics = list(dict.fromkeys(map(whole.metric, whole.board.columns)))
    out.print(Text(f"over all benchmarks, each by {metrics[0] if len(metrics) == 1 else 'its own metric'}", style="bold"))
    lines = [[Text(cell) for cell in row] for row in overall.rows(whole)]
    print_table(out, [Text(head) for head in heads], lines, keys=1, numbers=True)
    for note in overall.notes(whole):
        out.print(Text(note, style="dim"))


def _show_tables(
    common: Common, results: Sequence[Board], rows: Sequence[Compared] | None, name: str | None, lines: Sequence[Headline], *, wide: bool
) -> None:
    from ragmeter.show.board_text import show_boards
    from results.boards import published_table

    store = common.store
    if not results:
        err.print(Text(f"no run is stored in {store.folder} yet: `ragmeter demo` or `ragmeter run FILE` makes some"), soft_wrap=True)
        return
    closest = published_table.closest(rows or ())
    if rows is None:
        show_boards(results, lines, out, wide=wide, verbose=common.verbose)
    for item in results if rows is not None else ():
        out.print(Text(item.dataset, style="bold") + Text(f"  setting {item.setting}"))
        table = [row.cells for row in closest if row.board is item]
        listing(published_table.HEADS, table, empty="the four papers print no figure of these methods on this dataset")
        out.print()
    if rows is None and name is not None and len(results) > 1:
        _show_overall(store, name)
    if rows is not None:
        left = len(rows) - len(closest)
        more = f"; {left} further figures of other settings: --format csv or --json" if left else ""
        note = "values × 100 ± half their 95 % interval, or [low, high]; reproduced: the published value lies within our interval"
        out.print(Text(note + more, style="dim"))


def show_comparison(results: Sequence[Board]) -> None:
    """Print, below a run's tables, the published figures of the same methods, if there are any."""
    from results.boards import published_table
    from results.boards.tables import labels

    rows = published_table.closest(published_table.compare_boards(results))
    if not rows:
        return
    out.print(Text("published figures of these methods, the closest setting of each paper", style="bold"))
    heads = labels([row.metric for row in rows])
    lines = []
    for row in rows:
        _, _, ours, *theirs, _, _ = row.cells
        # Results that were not measured here must be marked.
        dim = [Text(cell, style="dim") for cell in (*theirs, row.comparison.figure.source)]
        lines.append((f"{row.method}, {heads[row.metric]}", row.board.dataset, ours.partition(" ")[0], *dim))
    listing(("method, metric", "dataset", "ours", "published", "gap", "status", "published in"), lines, empty="")
    out.print(Text("`ragmeter results --published` says what differs, key by key", style="dim"))
    out.print()


def comparison_json(results: Sequence[Board]) -> list[dict[str, Any]]:
    """Return the comparison with published figures as JSON (`show_comparison` prints it)."""
    from results.boards import published_table

    return [row.to_json() for row in published_table.closest(published_table.compare_boards(results))]


@app.command()
def paper(
    common: Common,
    name: Annotated[
        str | None,
        argument("ark, clara, gpr or sark (default: list them)", completion.offer_words("ark", "clara", "gpr", "sark"), metavar="[PAPER]"),
    ] = None,
    table: Annotated[str | None, option("Table number of the paper.")] = None,
    method: Annotated[str | None, option("Method: the paper's name or our id.", completes=completion.methods)] = None,
    dataset: Annotated[str | None, option("Dataset of the figures.", completes=completion.datasets)] = None,
    misprints: Annotated[bool, option("Show only figures that are misprinted.", "--misprints")] = False,
) -> None:
    """List the figures printed in a paper; `ragmeter results --published` compares ours with them."""
    from results.boards import paper_figures

    if name is None:
        known = {item: paper_figures.tables_of(item) for item in paper_figures.papers()}
        rows = [(item, len(paper_figures.figures(item)), ", ".join(of)) for item, of in known.items()]
        common.emit(known, lambda: listing(("paper", "figures", "tables"), rows, empty="none"))
        return
    results = paper_figures.find(paper=name, table=table, method=method, dataset=dataset)
    results = [figure for figure in results if figure.misprint] if misprints else results
    if not results:
        hint = f"`ragmeter results paper {name}`; its tables: {', '.join(paper_figures.tables_of(name))}"
        raise UserError(f"{name} prints no such figure", code="unknown-figure", try_this=hint)
    common.emit([asdict(figure) for figure in results], lambda: _show_figures(results))


def _show_figures(results: Sequence[Figure]) -> None:
    rows = []
    for item in results:
        unit = "" if item.unit in ("text", "number", "count") else f" {item.unit}"
        rows.append((item.table, item.method, item.dataset, item.metric, item.value + unit, item.setting))
    listing(("table", "method", "dataset", "metric", "value", "setting"), rows, empty="none", whole=True)
    for note in dict.fromkeys(f"{item.source}, {item.method}: {item.note}" for item in results if item.note):
        out.print(Text(note, style="dim"))


@app.command()
def show(
    run: options.RunArgument,
    common: Common,
    question: Annotated[str | None, argument("Question to show: gold, answer, evidence, model calls.")] = None,
) -> None:
    """Show a run: scores, configuration and provenance; or one of its questions."""
    from ragmeter.show.run_text import show_question, show_run
    from results.boards.board import board
    from results.boards.primary import primary_of
    from results.store import answer_queries, queries, tags
    from results.store.drift import reported_versions

    store = common.store
    row = tags.find_run(store, run)
    if question is None:
        scores = board(store, [row])
        if row.experiment != queries.NO_EXPERIMENT:
            scores = replace(scores, primary=primary_of(queries.experiment(store, row.experiment)))
        documents = {name: getattr(row, name) for name in ("provenance", "environment", "description", "card")}
        endpoints = reported_versions(store, row.run)
        fallbacks = answer_queries.fallbacks(store, row.run)
        value = row.to_json() | documents | {"endpoints": endpoints, "fallbacks": fallbacks, "board": scores.to_json()}
        common.emit(value, lambda: show_run(row, scores, endpoints, fallbacks, verbose=common.verbose))
        return
    known = {question.question: question for question in answer_queries.questions(store, row.dataset_fingerprint)}
    if question not in known:
        raise unknown_name("question", question, known, where=row.path)
    answers = answer_queries.answers(store, known[question], [row.run])
    if not answers:
        raise UserError(
            f"{row.method} has not answered {question!r} yet", code="run-unanswered", where=row.path, try_this="ragmeter run --resume"
        )
    calls = answer_queries.calls(store, row.run, question)
    value = {"question": asdict(known[question]), "answer": asdict(answers[0]), "calls": list(map(asdict, calls))}
    common.emit(value, lambda: show_question(store, known[question], answers[0], calls, verbose=common.verbose))


@app.command("compare")
def compare_runs(
    first: options.RunArgument,
    second: options.RunArgument,
    common: Common,
    metric: options.MetricOption = None,
    count: Annotated[int, option("Number of questions to show, by difference.", min=0)] = 5,
    strict: Annotated[bool, option("Refuse runs whose endpoint changed in between.", "--strict")] = False,
    over_seeds: options.OverSeedsOption = False,
) -> None:
    """Compare two runs: settings, scores, and the questions on which they differ."""
    from ragmeter.show.run_text import show_compared
    from results.boards import diff
    from results.store import tags
    from results.store.drift import refuse_drift

    store = common.store
    item, two = (tags.find_run(store, text) for text in (first, second))
    with offering_score():
        result = diff.diff(store, item, two, metrics=metric, questions=count, over_seeds=over_seeds)
    if strict:
        refuse_drift(result.drift)
    common.emit(result.to_json(), lambda: show_compared(result, common.quiet, verbose=common.verbose))


@app.command()
def power(
    first: options.RunArgument,
    second: options.RunArgument,
    effect: Annotated[str, option("True difference to detect, 2pp or 0.02.")],
    common: Common,
    metric: options.MetricOption = None,
    probability: Annotated[float, option("Power, between 0 and 1.", "--power")] = POWER,
    over_seeds: options.OverSeedsOption = False,
) -> None:
    """Estimate how many questions, seeds and repeats show a difference, from two pilot runs."""
    from results.boards import sample_size
    from results.boards.tables import plus_minus
    from results.gate.margins import parse_margin
    from results.store import tags

    if not 0 < probability < 1:
        raise UserError(f"a power of {probability:g} is not a probability", code="bad-power", where="--power", try_this="--power 0.8")
    store = common.store
    runs = [tags.find_run(store, name) for name in (first, second)]
    margin = parse_margin(effect, "--effect")
    plans = sample_size.planned(store, runs[0], runs[1], metric or (), margin, power=probability, over_seeds=over_seeds)

    def show() -> None:
        for plan in plans:
            pilot, scale = plan.pilot, plan.scale
            seen = plus_minus(pilot.value, pilot.low, pilot.high, "{:+.1f}", scale)
            need = "cannot be known" if plan.clusters is None else f"{counted(plan.clusters, plan.kind)}"
            if plan.clusters is not None and plan.kind != "question":
                need += f" ({counted(plan.questions or 0, 'question')})"
            out.print(Text(f"{plan.metric}  ", style="bold") + Text(need))
            here = "no difference" if math.isinf(pilot.detectable) else f"{scale * pilot.detectable:.1f}"
            rest = pilot.insufficient_data or ("nothing varies" if math.isnan(pilot.detectable) else f"minimum detectable: {here}")
            for item in plan.others:
                counts = [(item.seeds, "seed"), (item.repeats, "repeat")]
                how = ", ".join(counted(count, noun) for count, noun in counts if count is not None)
                questions = plan.questions_of(item.clusters)
                out.print(Text(f"  with {how}: {'no number suffices' if questions is None else counted(questions, 'question')}"))
            if plan.seeds is not None:
                out.print(Text(f"  with the {counted(pilot.n, 'question')} of the pilot: {plan.seeds} seeds"))
            out.print(Text(f"  pilot {seen} on {counted(pilot.clusters, plan.kind)}; {rest}", style="dim"))
        rule = f"needed to detect a true difference of {effect} ({100 * probability:g} % power, two-sided, 5 %, before correction)"
        out.print(Text(rule, style="dim"))

    common.emit({"plans": [plan.to_json() for plan in plans]}, show)


@app.command()
def tag(
    common: Common,
    name: Annotated[str | None, argument("Tag (default: list the tags)", completion.tagged)] = None,
    target: Annotated[str | None, argument("Target of the tag.", completion.runs_or_checkpoints, metavar="[RUN|CHECKPOINT]")] = None,
    note: Annotated[str | None, option("Reason for this target.")] = None,
    remove: Annotated[bool, option("Remove the tag.", "--remove")] = False,
) -> None:
    """Tag a run or checkpoint, for example as the baseline of a gate; an existing tag moves."""
    from results.store import tags
    from results.store.queries import RunRow

    store = common.store
    if name is None:
        rows, value = list[tuple[str, ...]](), list[dict[str, Any]]()
        for tag_named in tags.all_tags(store):
            kind, identity = ("run", tag_named.run) if tag_named.run else ("checkpoint", tag_named.checkpoint)
            rows.append((tag_named.name, kind, (identity or "")[:12], f"{tag_named.tagged_at:%Y-%m-%d %H:%M}", tag_named.note or ""))
            value.append(asdict(tag_named) | {"tagged_at": tag_named.tagged_at.isoformat()})
        empty = "there is no tag yet: ragmeter results tag NAME RUN-or-CHECKPOINT"
        common.emit(value, lambda: listing(("tag", "is", "", "since (UTC)", "note"), rows, empty=empty))
        return
    if remove:
        if target is not None or note is not None:
            raise UserError("--remove needs the tag only", code="remove-with-target", try_this=f"ragmeter results tag {name} --remove")
        gone = tags.untag(store, name)
        common.emit({"name": name, "removed": gone.run or gone.checkpoint}, lambda: out.print(Text(f"{name} is not a tag any more")))
        return
    if target is None:
        raise UserError(
            f"the tag {name!r} needs a run or checkpoint",
            code="tag-without-target",
            try_this=f"ragmeter results tag {name} RUN-or-CHECKPOINT",
        )
    meant = tags.resolve(store, target)
    before = tags.tag_run(store, name, meant, note)
    old = (before.run or before.checkpoint) if before else None
    kind, identity = ("run", meant.run) if isinstance(meant, RunRow) else ("checkpoint", meant.sha256)

    def show() -> None:
        out.print(Text(f"{name} is {kind} {identity[:12]} ({meant.path})"))
        if old and not common.quiet:
            err.print(Text(f"before it was {old[:12]}"))

    common.emit({"name": name, kind: identity, "note": note, "before": old}, show)


@app.command()
def report(
    common: Common,
    experiment: options.StoredExperiment = None,
    output: Annotated[Path, option("HTML file to write.", "--output", "-o")] = Path("report.html"),
    board: Annotated[Path | None, option("Write the boards as JSON too, for embedding.", "--board", metavar="FILE")] = None,
) -> None:
    """Write the leaderboard of an experiment as one HTML file."""
    from leaderboard import report as page
    from results.store import queries

    store, now = common.store, datetime.now(UTC)
    name = queries.experiment(store, experiment).name
    lines = [_write(output, page.report(store, name, now))]
    if board is not None:
        lines.append(_write(board, page.as_json(page.board_document(store, name, now), indent=1) + "\n"))
    value = {"experiment": name, "files": [str(output), *([str(board)] if board else [])]}
    common.emit(value, lambda: out.print(Text("\n".join(lines))))


@app.command()
def log(
    common: Common,
    experiment: options.StoredExperiment = None,
    to: Annotated[str, option("wandb or mlflow.", "--to", completes=completion.offer_words(*TRACKERS))] = "mlflow",
    project: Annotated[str | None, option("Project or MLflow experiment (default: the experiment).")] = None,
    metric: options.MetricOption = None,
) -> None:
    """Log results to Weights & Biases or MLflow: one run per method and benchmark."""
    from ragmeter import tracking
    from results.boards.board import boards
    from results.store import queries

    if to not in TRACKERS:
        raise unknown_name("tracker", to, TRACKERS, where="--to")
    store = common.store
    name = queries.experiment(store, experiment).name
    logged = tracking.log(store, boards(store, name, metrics=metric or None), to, project or name)
    value = {"experiment": name, "to": to, "runs": logged}
    common.emit(value, lambda: out.print(Text(f"{counted(len(logged), 'run')} logged to {to}, project {project or name}")))


@app.command()
def export(
    run: options.RunArgument,
    output: Annotated[Path, option("Run file to write.", "--output", "-o")],
    common: Common,
    form: Annotated[str, option("Format: trec.", "--format", completes=completion.offer_words("trec"))] = "trec",
    qrels: Annotated[Path | None, option("Write the qrels too.", metavar="FILE")] = None,
) -> None:
    """Export a run's rankings as a TREC run file, with the positives as qrels."""
    from results.formats import trec
    from results.store import records, tags

    if form != "trec":
        raise unknown_name("format", form, ("trec",), where="--format")
    store = common.store
    row = tags.find_run(store, run)
    ranked = {prediction.question_id: prediction.evidence for prediction in store.predictions(row.run)}
    known = list(records.gold_questions(store, row.dataset_fingerprint).values())
    rankings = [(item.id, [each for each in ranked.get(item.id, ()) if each.id not in item.excluded]) for item in known]
    without = None
    with ExitStack() as files:
        lowered = trec.write_run(files.enter_context(_new(output)), rankings, row.method)
        if qrels is not None:
            without = trec.write_qrels(files.enter_context(_new(qrels)), known)
    empty = sum(not evidence for _, evidence in rankings)
    cut = sum(grade != int(grade) for item in known for grade in item.grades.values()) if qrels is not None else None
    value = {
        "run": row.run,
        "file": str(output),
        "qrels": str(qrels) if qrels else None,
        "questions": len(rankings),
        "without_results": empty,
        "lowered_scores": lowered,
        "without_positives": without,
        "grades_not_whole": cut,
    }

    def show() -> None:
        out.print(Text(f"{output}: {len(rankings) - empty} questions with results, {empty} without"), soft_wrap=True)
        if lowered:
            out.print(Text(f"{lowered} tied or rising scores were lowered to keep the order"))
        if qrels is not None:
            out.print(Text(f"{qrels}: {len(known) - (without or 0)} questions with positives"), soft_wrap=True)
        if cut:
            out.print(Text(f"{counted(cut, 'grade')} not whole; trec_eval reads the whole part only, so its figures differ"))

    common.emit(value, show)


def _new(path: Path) -> TextIO:
    """Open a new text file; an existing one is never overwritten."""
    try:
        return open(path, "x", encoding="ascii", newline="\n")
    except FileExistsError:
        raise UserError("output file already exists", code="output-exists", where=str(path), try_this="choose another name") from None
    except OSError as error:
        raise unwritable(error, path) from error
