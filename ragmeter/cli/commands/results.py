"""`table`, `runs`, `show`, `report`: what the store holds, for people, papers and pages; and `serve-model`."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import UserError, told_of, unknown_name, unwritable
from leaderboard.report import as_json as json_text
from leaderboard.report import board_document
from leaderboard.report import report as html_of
from ragmeter.console import WHOLE, emit, err, listing, offering_score, out, show_board
from results import checkpoints, queries, store_folder, tables
from results.board import Board, board, boards
from results.database import FILE
from results.published import Comparison, on_board
from results.queries import AnswerRow, QuestionRow, RunRow
from results.store import Store

# -- `report`: the board as one HTML file, and as JSON for other pages --


def report(experiment: str | None, output: Path, board: Path | None, folder: Path | None, as_json: bool) -> None:
    """Write the report of an experiment.

    Args:
        experiment: Its name; None takes the newest.
        output: The HTML file.
        board: The JSON file, if one is wanted.
        folder: The store.
        as_json: Say as JSON what was written.

    Raises:
        UserError: The store has no such experiment, or a file cannot be written.
    """
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    now = datetime.now(UTC)
    written = [_write(output, html_of(store, name, now))]
    if board is not None:
        written.append(_write(board, json_text(board_document(store, name, now), indent=1) + "\n"))
    lines = [f"{path} (replaced)" if replaced else path for path, replaced in written]
    value = {"experiment": name, "files": [path for path, _ in written]}
    emit(value, as_json, lambda: out.print(Text("\n".join(lines))))


def _write(path: Path, text: str) -> tuple[str, bool]:
    """Write a file; returns its path, and whether another was there."""
    replaced = path.exists()
    try:
        path.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise unwritable(error, path) from None
    return str(path), replaced


# -- `serve-model`: a local language model behind the OpenAI protocol; and what `serve` checks before it starts --


def expect_store(folder: Path, quiet: bool) -> None:
    """Say where no store is yet: one may come to be while it is served.

    Raises:
        UserError: The place is no folder.
    """
    for place in (folder, *folder.parents):
        if place.is_file():
            raise UserError("this is a file, not the folder of a store", where=str(place), try_this="--store FOLDER")
    if not quiet and not (folder / FILE).exists():
        # The terminal wraps what is too long: a path that was broken here could not be copied.
        err.print(Text(f"no store at {folder} yet: pages fill when one is written there"), soft_wrap=True)


def serve_model(
    path: str, options: Mapping[str, Any], name: str | None, host: str, port: int, device: str | None, as_json: bool, quiet: bool
) -> int:
    """Load a model and answer until interrupted; returns the exit code.

    Args:
        path: Folder or hub id.
        options: Further fields of `CausalConfig`.
        name: What clients call the model.
        host: Address to listen on.
        port: 0 takes a free one.
        device: "cpu", "cuda" …; None chooses.
        as_json: Print address and name as JSON.
        quiet: Print nothing but that.

    Raises:
        UserError: The model cannot be loaded, an option is wrong, or the address is taken.
    """
    from methods.models.causal import CausalConfig
    from methods.models.server import LocalServer

    try:
        config = CausalConfig(model=path, **options)
    except ValidationError as error:
        place, what = told_of(error)
        raise UserError(what, where=f"--{place.replace('_', '-')}" if place else None) from None
    local = LocalServer(config, name, device)
    try:
        server = local.server(host, port)
        with server:
            emit({"model": local.name, "base_url": server.url}, as_json, lambda: out.print(Text(server.url)))
            if not quiet and not as_json:
                example = f"chat reader: {{model: {local.name}, base_url: {server.url}, key_variable: null}}"
                err.print(Text(f"{local.name} on {local.model.device}; {example}; Ctrl-C ends it"))
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    finally:
        local.close()
    return 0


# -- `runs`, `show`: what the store holds --


SHOWN_TEXT = 240


def metric_list(text: str | None) -> list[str] | None:
    """The metrics of a `--metrics` value, separated by commas, except those between parentheses; None without one.

    Raises:
        UserError: There is a value, but no metric in it.
    """
    if text is None:
        return None
    found = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    if not found:
        raise UserError("no metric is named", where="--metrics", try_this="--metrics f1,em, or leave it out")
    return found


def runs(experiment: str | None, folder: Path | None, as_json: bool) -> None:
    """List runs."""
    store = Store(store_folder(folder))
    if experiment is not None:
        queries.experiment(store, experiment)
    found = queries.runs(store, experiment)
    emit(
        [_run_json(row) for row in found],
        as_json,
        lambda: listing(
            ("run", "status", "answered", "failed", "started (UTC)", "path"),
            [
                (row.run[:8], row.status, f"{row.done}/{row.questions}", row.failed or "", f"{row.started_at:%Y-%m-%d %H:%M}", row.path)
                for row in found
            ],
            empty="the store holds no run yet: ragmeter demo",
            below=WHOLE,
        ),
    )


def show(run: str, question: str | None, folder: Path | None, as_json: bool) -> None:
    """Show a run, or one of its questions."""
    store = Store(store_folder(folder))
    row = checkpoints.find_run(store, run)
    if question is not None:
        _show_question(store, row, question, as_json)
        return
    found = board(store, [row])
    emit(
        _run_json(row)
        | {
            "provenance": row.provenance,
            "environment": row.environment,
            "description": row.description,
            "card": row.card,
            "board": found.to_json(),
        },
        as_json,
        lambda: _print_run(row, found),
    )


def _print_run(row: RunRow, found: Any) -> None:
    facts = {
        "run": row.run,
        "path": row.path,
        "status": row.status + (f": {row.error}" if row.error else ""),
        "answered": f"{row.done} of {row.questions}" + (f", {row.failed} failed" if row.failed else ""),
        "dataset": f"{row.dataset}  (fingerprint {row.dataset_fingerprint})",
        "setting": f"{row.setting}, seed {row.seed}",
        "started": f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC, last written {row.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "method": json.dumps(row.description, ensure_ascii=False),
    }
    if (cost := found.rows[0].indexing) is not None:
        facts["indexing"] = cost.in_words()
    facts |= {f"env.{key}": json.dumps(value, ensure_ascii=False) for key, value in row.environment.items()}
    facts |= {key: json.dumps(value, ensure_ascii=False) for key, value in row.provenance.items()}
    listing(("", ""), facts.items(), empty="")
    out.print()
    show_board(found, out)


def _show_question(store: Store, row: RunRow, identifier: str, as_json: bool) -> None:
    known = queries.questions(store, row.dataset_fingerprint)
    question = next((one for one in known if one.question == identifier), None)
    if question is None:
        raise unknown_name("question", identifier, [one.question for one in known], where=row.path)
    said = queries.answers(store, question, [row.run])
    if not said:
        raise UserError(f"{row.method} has not answered {identifier!r} yet", where=row.path, try_this="ragmeter resume")
    emit(
        {"question": asdict(question), "answer": asdict(said[0])},
        as_json,
        lambda: _print_question(question, said[0], queries.definitions(store)),
    )


def _print_question(question: QuestionRow, said: AnswerRow, known: Mapping[str, Mapping[str, Any]]) -> None:
    out.print(Text(question.text, style="bold"))
    out.print(Text("gold:   " + " | ".join(question.golds)))
    out.print(Text("answer: " + (said.answer or "(none)")))
    if said.failed:
        out.print(Text("failed: " + said.failed, style="red"))
    out.print()
    for item in said.evidence[:10]:
        text = " ".join(item.text.split())
        short = text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "…"
        mark = Text("gold ", style="green") if item.gold else Text("     ")
        out.print(Text(f"{item.rank:>3} ") + mark + Text(f"{item.title}: ", style="bold") + Text(short))
    out.print()
    listing(
        ("metric", "value"),
        [(metric, _value(value, said.unscored.get(metric), queries.scale_of(metric, known))) for metric, value in said.scores.items()],
        empty="not scored yet",
    )


def _value(value: float | None, unscored: str | None, scale: float) -> str:
    if value is None:
        return f"not scored by the judge: {unscored}" if unscored else "unscorable"
    return f"{scale * value:.1f}"


def _run_json(row: RunRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "path": row.path,
        "experiment": row.experiment,
        "method": row.method,
        "kind": row.kind,
        "dataset": row.dataset,
        "dataset_fingerprint": row.dataset_fingerprint,
        "setting": row.setting,
        "seed": row.seed,
        "questions": row.questions,
        "done": row.done,
        "failed": row.failed,
        "status": row.status,
        "error": row.error,
        "origin": row.origin,
        "started_at": row.started_at.isoformat(),
        "updated_at": row.updated_at.isoformat(),
    }


# -- `table`: an experiment's boards for people, papers and spreadsheets; ours beside the papers' figures --


FORMATS = ("text", *tables.FORMATS, "json")
FILE_WIDTH = 160
"""Width of text tables in a file."""


@dataclass(frozen=True)
class Request:
    """What tables were asked for, and how they are to look."""

    experiment: str | None
    metrics: str | None
    every: bool
    form: str
    output: Path | None
    published: bool
    over_seeds: bool = False
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """One of our values beside one published figure."""

    board: Board
    method: str
    metric: str
    comparison: Comparison


def table(request: Request, folder: Path | None, as_json: bool) -> None:
    """Print the tables of an experiment, or of every run; with `published`, ours beside the papers' figures."""
    form = "json" if as_json else request.form
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS, where="--format")
    if as_json and request.form not in ("text", "json"):
        what = f"--json and --format {request.form} ask for different things"
        raise UserError(what, where="--format", try_this="leave one of them out")
    store = Store(store_folder(folder))
    name = None if request.every else queries.experiment(store, request.experiment).name
    metrics = metric_list(request.metrics)
    with offering_score():
        found = boards(store, name, metrics=metrics, over_seeds=request.over_seeds, reference=request.reference)
    beside = list(_beside(found)) if request.published else []
    if form == "text" and request.output is None:
        _show(found, beside, request.published)
    elif form == "json":
        value: dict[str, Any] = {"experiment": name, "boards": [board.to_json() for board in found]}
        if request.published:
            value["published"] = [_beside_json(one) for one in beside]
        _deliver(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n", request.output)
    elif form == "text":
        text = io.StringIO()
        console = Console(file=text, width=FILE_WIDTH, highlight=False, no_color=True)
        if request.published:
            text.write(_published_text(beside, "markdown"))
        else:
            for board in found:
                show_board(board, console)
        _deliver(text.getvalue(), request.output)
    else:
        text_of = _published_text(beside, form) if request.published else tables.render(found, form)
        _deliver(text_of, request.output)


def _deliver(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(error, f"--output {output}") from error


# -- published figures ---------------------------------------------------------------------------------------------

_HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")
_COLUMNS = (
    "dataset", "setting", "method", "run_metric", "value", "low", "high", "n", "published", "gap", "status", "differs",
    "paper", "table", "published_method", "published_setting", "printed", "unit", "note",
)  # fmt: skip


def _beside(found: Iterable[Board]) -> Iterable[Beside]:
    for table in found:
        names = {row.run.run: row.run.method for row in table.rows}
        for (run, metric), comparisons in on_board(table).items():
            for one in comparisons:
                yield Beside(table, names[run], metric, one)


def _closest(beside: Sequence[Beside]) -> list[Beside]:
    """For each of our cells and each paper the figure whose setting is the closest; they come closest first."""
    first: dict[tuple[str, ...], Beside] = {}
    for one in beside:
        board = one.board
        key = (board.dataset_fingerprint, board.setting, str(board.seed), one.method, one.metric, one.comparison.figure.paper)
        first.setdefault(key, one)
    return list(first.values())


def _show(found: Sequence[Board], beside: Sequence[Beside], published: bool) -> None:
    if not published:
        for board in found:
            show_board(board, out)
        return
    closest = _closest(beside)
    for board in found:
        rows = [one for one in closest if one.board is board]
        out.print(Text(board.dataset, style="bold") + Text(f"  setting {board.setting}"))
        listing(_HEADS, _lines(rows), empty="the four papers print no figure of these methods on this dataset")
        out.print()
    left = len(beside) - len(closest)
    note = "values × 100 ± half their 95 % interval; reproduced: the published value lies within our interval"
    more = f"; {left} further figures of other settings: --format csv or --json" if left else ""
    out.print(Text(note + more, style="dim"))


def show_beside(found: Sequence[Board]) -> None:
    """Below a run's tables: published figures of the same methods, where the papers print some."""
    rows = _closest(list(_beside(found)))
    if not rows:
        return
    out.print(Text("published figures of these methods, the closest setting of each paper", style="bold"))
    heads = tables.labels([one.metric for one in rows])
    lines = []
    for one, line in zip(rows, _lines(rows), strict=True):
        source = one.comparison.figure.source
        ours = line[2].partition(" ")[0]
        # What was not measured here must not be taken for what was.
        theirs = [Text(cell, style="dim") for cell in (*line[3:6], source)]
        lines.append((f"{one.method}, {heads[one.metric]}", one.board.dataset, ours, *theirs))
    listing(("method, metric", "dataset", "ours", "published", "gap", "status", "published in"), lines, empty="")
    out.print(Text("`ragmeter table --published` says what differs, key by key", style="dim"))
    out.print()


def beside_json(found: Sequence[Board]) -> list[dict[str, Any]]:
    """What `show_beside` shows, for programs."""
    return [_beside_json(one) for one in _closest(list(_beside(found)))]


def _lines(rows: Iterable[Beside]) -> list[list[str]]:
    lines = []
    for one in rows:
        compared, ours = one.comparison, one.comparison.ours
        lines.append(
            [
                one.method,
                one.metric,
                tables.plus_minus(ours.value, ours.low, ours.high) if ours and ours.n else "–",
                _printed(compared),
                f"{100 * compared.gap:+.1f}" if compared.gap is not None else "–",
                compared.status,
                "; ".join(map(str, compared.differs)),
                f"{compared.figure.source}: {compared.figure.method}",
            ]
        )
    return lines


def _printed(compared: Comparison) -> str:
    """The published value × 100; digit by digit as printed where the paper prints percent."""
    figure = compared.figure
    return figure.value if figure.unit == "percent" or figure.fraction is None else f"{100 * figure.fraction:.1f}"


def _short_lines(rows: Iterable[Beside]) -> list[list[str]]:
    """Lines for papers: with the dataset, and of what differs the keys alone."""
    rows = list(rows)
    return [
        [one.board.dataset, *line[:6], ", ".join(d.key for d in one.comparison.differs), line[7]]
        for one, line in zip(rows, _lines(rows), strict=True)
    ]


def _published_text(beside: Sequence[Beside], form: str) -> str:
    if form == "csv":
        return tables.to_csv(_COLUMNS, map(_tidy, beside))
    heads, rows = ("dataset", *_HEADS), _short_lines(_closest(beside))
    if form == "markdown":
        return tables.to_markdown(heads, [[tables.markdown_text(cell) for cell in row] for row in rows], left=3)
    return tables.to_latex(
        [tables.latex_text(head) for head in heads],
        [[tables.latex_text(cell) for cell in row] for row in rows],
        caption="Ours beside published figures",
        notes=[r"Values $\times$ 100 $\pm$ half their 95\,\% interval"],
        left=3,
    )


def _tidy(one: Beside) -> list[Any]:
    compared, figure, ours = one.comparison, one.comparison.figure, one.comparison.ours
    return [
        one.board.dataset, one.board.setting, one.method, one.metric, ours.value if ours else None,
        ours.low if ours else None, ours.high if ours else None, ours.n if ours else None, figure.fraction,
        compared.gap, compared.status, "; ".join(map(str, compared.differs)), figure.paper, figure.table, figure.method,
        figure.setting, figure.value, figure.unit, figure.note,
    ]  # fmt: skip


def _beside_json(one: Beside) -> dict[str, Any]:
    ours = one.comparison.ours
    value = None
    if ours is not None:
        value = {"value": _plain(ours.value), "low": _plain(ours.low), "high": _plain(ours.high), "n": ours.n}
    return {
        "dataset": one.board.dataset,
        "our_setting": one.board.setting,
        "our_method": one.method,
        "metric": one.metric,
        "ours": value,
    } | one.comparison.to_json()


def _plain(value: float) -> float | None:
    return None if value != value else float(value)
