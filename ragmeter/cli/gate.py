"""`ragmeter gate`: may a candidate take the baseline's place? The answer as text, JSON, JUnit XML and Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from benchmarks.core.errors import UserError, unwritable
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, option
from ragmeter.console import err, offering_score, out

if TYPE_CHECKING:
    from results.gate import Gate
    from results.gate_many import ManyGates

app = App(help="Is a candidate worse than a baseline by more than --margin? Exit code.")

_COLORS = {"pass": "green", "regressed": "bold red", "inconclusive": "yellow"}


@app.command(no_args_is_help=True)
def gate(
    common: Common,
    baseline: Annotated[str | None, option("RUN to compare with: a tag, prefix or path.", completes=completion.runs)] = None,
    candidate: Annotated[
        str | None, option("RUN, or CHECKPOINT: its newest run on the baseline's benchmark.", completes=completion.runs_or_checkpoints)
    ] = None,
    metric: Annotated[list[str] | None, option("Decide on this metric; may be repeated.", completes=completion.stored_metrics)] = None,
    margin: Annotated[list[str] | None, option("Tolerated loss, 1.0pp or 0.01; for one metric of several: f1=1.0pp.")] = None,
    file: Annotated[Path | None, option("Gate file (YAML): one verdict over many benchmarks and metrics.", metavar="FILE")] = None,
    strict: Annotated[
        bool, option("Count any significant loss, even within the margin; refuse runs whose endpoint changed.", "--strict")
    ] = False,
    allow_partial: Annotated[bool, option("Decide on what two unfinished runs have both answered.", "--allow-partial")] = False,
    junit: Annotated[Path | None, option("Write a JUnit XML report here.")] = None,
    summary: Annotated[
        Path | None, option("Append a Markdown summary to this file.", envvar="GITHUB_STEP_SUMMARY", show_envvar=True)
    ] = None,
) -> int:
    """Is a candidate worse than a baseline by more than --margin? Exit code.

    0: it is not, by more than the margin; 100: it is; 101: that cannot be known.
    """
    from results import checkpoints
    from results.checkpoints import Checkpoint
    from results.gate import ask, parse_margins, record
    from results.gate_report import junit_of, summary_of
    from results.queries import RunRow

    store = common.store
    typed = {"--baseline": baseline, "--candidate": candidate, "--metric": metric, "--margin": margin}
    if file is not None:
        if one := next((name for name, value in typed.items() if value), None):
            raise UserError("a gate file says this itself", where=one, try_this="leave it out, or leave out --file")
        return _gate_file(file, common, strict, allow_partial, junit, summary)
    if baseline is None or candidate is None or not metric or not margin:
        lacking = next(name for name, value in typed.items() if not value)
        raise UserError(f"missing option '{lacking}'", where="ragmeter gate", try_this="ragmeter gate --help, or --file FILE for many")
    common_margin, margins = parse_margins(margin)
    first, second = checkpoints.resolve(store, baseline), checkpoints.resolve(store, candidate)
    if isinstance(first, Checkpoint) and isinstance(second, RunRow):
        # A checkpoint's run is sought on the other side's benchmark.
        runs = checkpoints.run_of(store, first, second), second
    else:
        run = checkpoints.run_of(store, first)
        runs = run, checkpoints.run_of(store, second, run)
    with offering_score():
        decided = ask(store, *runs, metrics=metric, margin=common_margin, margins=margins, strict=strict, allow_partial=allow_partial)
    targets = {"baseline_checkpoint": first, "candidate_checkpoint": second}
    hashes = {name: item.sha256 for name, item in targets.items() if isinstance(item, Checkpoint)}
    queries = {"asked": {"baseline": baseline, "candidate": candidate}, **hashes}
    record(store, decided, **queries)
    if junit is not None:
        _write(junit, junit_of(decided), "--junit", append=False)
    if summary is not None:
        _write(summary, summary_of(decided, baseline, candidate), "--summary", append=True)
    common.emit(decided.to_json() | queries, lambda: _show(decided, baseline, candidate, common.quiet))
    return decided.exit_code


def _gate_file(file: Path, common: Common, strict: bool, allow_partial: bool, junit: Path | None, summary: Path | None) -> int:
    """One verdict over the cells of a gate file."""
    from ragmeter.gate_file import ask_all, load
    from results.gate import record
    from results.gate_report import junit_of, summary_of_many

    plan = load(file)
    with offering_score():
        decided = ask_all(common.store, plan, strict=strict, allow_partial=allow_partial)
    query = {"asked": {"baseline": plan.baseline, "candidate": plan.candidate, "file": plan.name}}
    for cell in decided.cells:
        record(common.store, cell.gate, **query)
    if junit is not None:
        _write(junit, junit_of(*(cell.gate for cell in decided.cells)), "--junit", append=False)
    if summary is not None:
        _write(summary, summary_of_many(decided, plan.baseline, plan.candidate), "--summary", append=True)
    common.emit(decided.to_json() | query, lambda: _show_many(decided, plan.baseline, plan.candidate, common.quiet))
    return decided.exit_code


def _show_many(decided: ManyGates, baseline: str, candidate: str, quiet: bool) -> None:
    from results.gate_report import cell_remarks, interval, place, points

    if not quiet:
        out.print(Text(f"{candidate} against {baseline}\n"))
    before = ""
    for cell in decided.cells:
        verdict, benchmark = cell.verdict, place(cell.gate)
        if benchmark != before:
            out.print(Text(benchmark))
        before = benchmark
        out.print(Text(f"  {verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_COLORS[verdict.outcome]))
        margin, must = points(verdict.decision.margin), "must hold" if cell.must_hold else "may be inconclusive"
        out.print(Text(f"    {interval(verdict)}, margin {margin}pp, {verdict.decision.difference.n} pairs, {must}"))
    if not quiet:
        out.print(Text(f"\n× 100, with 95 % intervals of each cell alone; {decided.family}", style="dim"))
    for line in cell_remarks(decided):
        err.print(Text(line, style="yellow"))
    out.print(Text(decided.outcome, style=_COLORS[decided.outcome]))


def _write(path: Path, text: str, option: str, *, append: bool) -> None:
    try:
        with path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise unwritable(error, f"{option} {path}") from error


def _show(decided: Gate, baseline: str, candidate: str, quiet: bool) -> None:
    from results.gate_report import interval, points, reach

    for side, name, run in (("baseline ", baseline, decided.baseline), ("candidate", candidate, decided.candidate)):
        if not quiet:
            out.print(Text(f"{side}  {name}: {run.path} ({run.run[:8]})"))
    if not quiet:
        run = decided.baseline
        out.print(Text(f"on {run.dataset}, setting {run.setting}, {decided.sampled.in_words(decided.questions)}\n"))
    for verdict in decided.verdicts:
        pairs, margin = verdict.decision.difference.n, points(verdict.decision.margin)
        better = "" if verdict.higher_is_better else ", less is better"
        out.print(Text(f"{verdict.metric}  ", style="bold") + Text(verdict.outcome, style=_COLORS[verdict.outcome]))
        out.print(Text(f"  baseline {points(verdict.baseline)}, candidate {points(verdict.candidate)}"))
        out.print(Text(f"  difference {interval(verdict)}, margin {margin}pp, {pairs} pairs{better}"))
        if more := reach(verdict, decided.sampled.kind):
            out.print(Text(f"  {more}"))
    if not quiet:
        bar = "0" if decided.strict else "minus the margin"
        rule = f"regressed: the interval lies below {bar}; pass: above minus the margin"
        out.print(Text(f"\n× 100, with 95 % intervals ({decided.sampled.kind}s as units); {rule}", style="dim"))
    for line in decided.remarks:
        err.print(Text(line, style="yellow"))
    out.print(Text(decided.outcome, style=_COLORS[decided.outcome]))
