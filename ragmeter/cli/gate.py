"""`ragmeter gate`: decide whether a candidate is worse than a baseline; text, JSON, JUnit XML, Markdown, a comment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from rich.text import Text

from benchmarks.core.errors import UserError, unwritable
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, option
from ragmeter.show.console import err, offering_score, out

if TYPE_CHECKING:
    from results.gate.many import ManyGates
    from results.gate.verdicts import Gate
    from results.store.store import Store

app = App(help="Decide whether a candidate is worse than a baseline by more than --margin.")

_COLORS = {"pass": "green", "regressed": "bold red", "inconclusive": "yellow", "not tested": "bold yellow"}
_SIDES = "RUN, EXPERIMENT/METHOD on all its benchmarks, or CHECKPOINT"


@app.command(no_args_is_help=True)
def gate(
    common: Common,
    baseline: Annotated[str | None, option(f"{_SIDES}.", completes=completion.runs_or_checkpoints)] = None,
    candidate: Annotated[str | None, option(f"{_SIDES}.", completes=completion.runs_or_checkpoints)] = None,
    metric: Annotated[list[str] | None, option("Metric to decide on; repeatable.", completes=completion.stored_metrics)] = None,
    margin: Annotated[list[str] | None, option("Tolerated loss, 1.0pp or 0.01; per metric: f1=1.0pp.")] = None,
    file: Annotated[Path | None, option("Gate file (YAML) for several benchmarks and metrics.", metavar="FILE")] = None,
    strict: Annotated[bool, option("Count any significant loss, even within the margin; refuse changed endpoints.", "--strict")] = False,
    allow_partial: Annotated[bool, option("Compare the questions that two unfinished runs both answered.", "--allow-partial")] = False,
    allow_same: Annotated[bool, option("Decide even if baseline and candidate are the same run.", "--allow-same")] = False,
    over_seeds: Annotated[bool, option("Average all training seeds of each method.", "--over-seeds")] = False,
    set_anchor: Annotated[bool, option("Pin --baseline as anchor: later losses are summed from here.", "--set-anchor")] = False,
    need_anchor: Annotated[bool, option("Exit with 2 if --baseline has no anchor in this store.", "--need-anchor")] = False,
    junit: Annotated[Path | None, option("Write a JUnit XML report to this file.")] = None,
    summary: Annotated[
        Path | None, option("Append a Markdown summary to this file.", envvar="GITHUB_STEP_SUMMARY", show_envvar=True)
    ] = None,
    comment: Annotated[Path | None, option("Write a pull-request comment (Markdown) to this file.", metavar="FILE.md")] = None,
    board_url: Annotated[str | None, option("Leaderboard address for links to questions in the comment.", metavar="URL")] = None,
) -> int:
    """Decide whether a candidate is worse than a baseline by more than --margin.

    Exit codes: 0 pass, 100 regressed by more than the margin, 101 inconclusive, 2 nothing was tested.
    """
    from results.gate.history import record
    from results.gate.report import junit_of, summary_of

    store = common.store
    typed = {"--baseline": baseline, "--candidate": candidate, "--metric": metric, "--margin": margin}
    if set_anchor:
        return _set_anchor(common, baseline, file, [name for name, value in typed.items() if value and name != "--baseline"])
    how: dict[str, Any] = {"strict": strict, "allow_partial": allow_partial, "allow_same": allow_same, "over_seeds": over_seeds}
    board = None if board_url is None else _address(board_url)
    if board is not None and comment is None:
        raise UserError(
            "--board-url is only used by --comment", code="board-url-without-comment", where="--board-url", try_this="--comment FILE.md"
        )
    query: dict[str, Any]
    decide: Callable[[], Gate | ManyGates]
    if file is not None:
        if one := next((name for name, value in typed.items() if value), None):
            raise UserError(
                "the gate file already states this value",
                code="duplicate-gate-entry",
                where=one,
                try_this="leave it out, or leave out --file",
            )
        from ragmeter.cli.gate_file import ask_all, load

        plan = load(file)
        baseline, candidate = plan.baseline, plan.candidate
        query = {"asked": {"baseline": baseline, "candidate": candidate, "file": plan.name}}
        decide = partial(ask_all, store, plan, anchored=baseline, **how)
    elif baseline and candidate and metric and margin:
        decide, query = _decide_named(store, baseline, candidate, metric, margin, anchored=baseline, **how)
    else:
        lacking = next(name for name, value in typed.items() if not value)
        raise UserError(
            f"missing option '{lacking}'",
            code="missing-option",
            where="ragmeter gate",
            try_this="ragmeter gate --help, or --file FILE for many",
        )
    with offering_score():
        decided = decide()
        if need_anchor and any(each.anchor is None for each in decided.gates):
            raise UserError(
                f"{baseline} has no anchor in this store",
                code="no-anchor",
                where=str(store.folder),
                try_this="restore the store that holds it; if there never was one: ragmeter gate --baseline NAME --set-anchor",
            )
        # Another process may decide between the decision and its record; then it counts as one more.
        while not record(store, *decided.gates, **query):
            decided = decide()
    if junit is not None:
        _write(junit, junit_of(decided), "--junit")
    if summary is not None:
        _write(summary, summary_of(decided, baseline, candidate), "--summary", append=True)
    if comment is not None:
        from leaderboard.elements.formats import question_address
        from results.gate.comment import comment_of

        address = None if board is None else partial(question_address, board)
        _write(comment, comment_of(store, decided, baseline, candidate, address), "--comment")
    common.emit(decided.to_json() | query, lambda: _show(decided, baseline, candidate, common.quiet))
    return decided.exit_code


def _set_anchor(common: Common, baseline: str | None, file: Path | None, useless: list[str]) -> int:
    """Pin the present runs of the baseline, and print those that are new in the anchor."""
    from ragmeter.cli.gate_file import load, sides_of
    from ragmeter.cli.gate_runs import runs_of
    from results.gate.memory import set_anchors

    if useless or (baseline is None) == (file is None):
        raise UserError(
            "--set-anchor only sets the anchor and makes no comparison",
            code="set-anchor-takes-baseline",
            where=(useless or ["ragmeter gate --set-anchor"])[0],
            try_this="ragmeter gate --baseline main --set-anchor, or --file FILE --set-anchor",
        )
    if file is not None:
        plan = load(file)
        baseline, runs = plan.baseline, sides_of(common.store, plan)
    else:
        assert baseline is not None
        runs = runs_of(common.store, baseline)
    moved = {run.run for run in set_anchors(common.store, baseline, runs)}
    value = {"baseline": baseline, "anchors": [{"run": run.run, "path": run.path, "moved": run.run in moved} for run in runs]}

    def show() -> None:
        for run in runs:
            already = "" if run.run in moved else " already"
            out.print(Text(f"the anchor of {baseline} is{already} {run.path} ({run.short})"))

    common.emit(value, show)
    return 0


def _decide_named(
    store: Store, baseline: str, candidate: str, metric: list[str], margin: list[str], **how: Any
) -> tuple[Callable[[], Gate | ManyGates], dict[str, Any]]:
    """Return the decisions for the options: one gate, or a cell per metric if they have several benchmarks."""
    from ragmeter.cli.gate_runs import pairs_of, side_of
    from results.gate.decision import ask
    from results.gate.many import ask_pairs
    from results.gate.margins import parse_margins
    from results.store.checkpoints import Checkpoint

    common_margin, margins = parse_margins(margin)
    sides = {name: side_of(store, text, how["over_seeds"]) for name, text in (("baseline", baseline), ("candidate", candidate))}
    pairs, notes = pairs_of(store, sides["baseline"], sides["candidate"])
    hashes = {f"{name}_checkpoint": item.sha256 for name, item in sides.items() if isinstance(item, Checkpoint)}
    query = {"asked": {"baseline": baseline, "candidate": candidate}, **hashes}
    chosen: dict[str, Any] = {"metrics": metric, "margin": common_margin, "margins": margins}
    if len(pairs) == 1 and not notes:
        first, second = pairs[0]
        return lambda: ask(store, first, second, **chosen, **how), query
    return partial(ask_pairs, store, pairs, **chosen, notes=notes, **how), query


def _address(text: str) -> str:
    """Return a leaderboard's address without a trailing slash."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        good = False
    # Anything else could end the link in the comment.
    if not good or not text.isascii() or any(not c.isprintable() or c in " <>()[]\"'`\\" for c in text):
        raise UserError(
            f"invalid address {text!r}", code="invalid-address", where="--board-url", try_this="--board-url https://board.example.org"
        )
    return text.rstrip("/")


def _write(path: Path, text: str, option: str, *, append: bool = False) -> None:
    try:
        with path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise unwritable(error, f"{option} {path}") from error


def _show(decided: Gate | ManyGates, baseline: str, candidate: str, quiet: bool) -> None:
    from results.gate.many import ManyGates

    if isinstance(decided, ManyGates):
        _show_many(decided, baseline, candidate, quiet)
    else:
        _show_one(decided, baseline, candidate, quiet)
    for line in decided.remarks:
        err.print(Text(line, style="yellow"))
    out.print(Text(decided.outcome, style=_COLORS[decided.outcome]))


def _show_many(decided: ManyGates, baseline: str, candidate: str, quiet: bool) -> None:
    from results.gate.report import interval, margin_of, remembered_text, scales

    if not quiet:
        out.print(Text(f"{candidate} against {baseline}\n"))
    before = ""
    for cell in decided.cells:
        verdict, benchmark = cell.verdict, cell.gate.place
        if benchmark != before:
            out.print(Text(benchmark))
        before = benchmark
        out.print(Text(f"  {verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_COLORS[verdict.outcome]))
        margin, must = margin_of(verdict), "must hold" if cell.must_hold else "may be inconclusive"
        out.print(Text(f"    {interval(verdict)}, margin {margin}, {verdict.decision.difference.n} pairs, {must}"))
        if more := remembered_text(verdict):
            out.print(Text(f"    {more}"))
    if not quiet:
        out.print(
            Text(f"\n{scales(cell.verdict for cell in decided.cells)}; each cell with its own interval; {decided.family}", style="dim")
        )


def _show_one(decided: Gate, baseline: str, candidate: str, quiet: bool) -> None:
    from results.gate.report import interval, margin_of, numbers_of, reach, remembered_text, rule_of, scales

    for side, name, run in (("baseline ", baseline, decided.baseline), ("candidate", candidate, decided.candidate)):
        if not quiet:
            several = decided.several(side.strip())
            out.print(Text(f"{side}  {name}: {run.path} ({run.short}){several and f', {several}'}"))
    if not quiet:
        run = decided.baseline
        out.print(Text(f"on {run.dataset}, setting {run.setting}, {decided.sampled.in_words(decided.questions)}\n"))
    for verdict in decided.verdicts:
        pairs, (before, after, *_) = verdict.decision.difference.n, numbers_of(verdict)
        holds = "" if verdict.generalizes == "new questions" else f"; holds for {verdict.generalizes}"
        better = "" if verdict.higher_is_better else ", lower is better"
        out.print(Text(f"{verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_COLORS[verdict.outcome]))
        out.print(Text(f"  baseline {before}, candidate {after}"))
        out.print(Text(f"  difference {interval(verdict)}, margin {margin_of(verdict)}, {pairs} pairs{better}{holds}"))
        for more in filter(None, (reach(verdict, decided.sampled.kind), remembered_text(verdict))):
            out.print(Text(f"  {more}"))
    if not quiet:
        out.print(Text(f"\n{scales(decided.verdicts)}. {rule_of(decided)}", style="dim"))
