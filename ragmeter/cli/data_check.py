"""`ragmeter data check`: may these data be trusted?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted
from ragmeter.cli import completion, options
from ragmeter.cli.config_options import given_options, named_data
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import listing, out

if TYPE_CHECKING:
    from benchmarks.availability import Availability
    from benchmarks.verify import Finding
    from ragmeter.cli.split_check import CheckedSplit

app = App()

_STYLES = {"green": "green", "note": "dim", "yellow": "yellow", "red": "bold red"}
"""Text style of a finding by its status (see `benchmarks.verify`)."""


@app.command(offline=True, plugin=True)
def check(
    common: Common,
    references: Annotated[list[str] | None, argument("Data references.", completion.references, metavar="REF...")] = None,
    every: Annotated[bool, option("Check every split whose files are on this machine.", "--all")] = False,
    partial: Annotated[bool, option("Accept cut files: fewer questions than the card states are not a fault.", "--partial")] = False,
    alike: Annotated[float | None, option("Minimum similarity of near-duplicates between splits (default: 0.8)", min=0.01, max=1.0)] = None,
    output: Annotated[Path | None, option("Record SHA-256 and fingerprints of the files in this file.", "--output", "-o")] = None,
    against: Annotated[Path | None, option("Compare with the record in this file.")] = None,
    skip_bad: options.SkipBadOption = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> int:
    """Check splits against their cards and the contract; exit with 1 on a failure."""
    from benchmarks import verify
    from benchmarks.io import hub
    from benchmarks.verify import GREEN, NOTE, RED, YELLOW, Finding
    from ragmeter.cli.split_check import check_split, compare_splits

    value = given_options(config, settings)
    names = []
    for reference in references or ():
        name, value = named_data(reference, value, skip_bad=skip_bad)
        names.append(name)
    positions, skipped = _positions(names, every, value)
    known = verify.read_records(against) if against else None
    if not common.talk:
        hub.be_quiet()
    checked = []
    for position in positions:
        with common.status(str(position.reference)):
            checked.append(check_split(position, value, partial, known, keep=output is not None))
        if not common.json:
            _print(checked[-1], (NOTE, YELLOW, RED) if not every else (YELLOW, RED), common.verbose)
    skipped += compare_splits(checked, verify.THRESHOLD if alike is None else alike, same_set=every)
    if output is not None:
        verify.write_records(output, {str(item.position.reference): item.recorded for item in checked if item.recorded is not None})
    worst = verify.color(Finding("", item.color) for item in checked)

    def show() -> None:
        for item in checked:
            for finding in item.compared:
                if finding.status != GREEN:
                    _print_finding(finding)
        out.print()
        listing(("split", "is", "questions", "passages", "from", "worst of it"), map(_row, checked), empty="nothing was checked")
        for reason in skipped:
            out.print(Text(f"skipped: {reason}", style="dim"))
        if output is not None:
            out.print(Text(f"recorded in {output}"))

    common.emit({"color": worst, "splits": [item.to_json() for item in checked], "skipped": skipped}, show)
    return 1 if worst == RED else 0


def _positions(references: Sequence[str], every: bool, settings: Mapping[str, Any]) -> tuple[list[Availability], list[str]]:
    """Return the splits to check, and the skipped ones with the reason."""
    from benchmarks.availability import ABSENT, MADE, OWN, availability, parts, splits
    from benchmarks.registry import DATASETS

    if every == bool(references):
        what = "references and --all exclude each other" if every else "nothing to check was named: neither data references nor --all"
        raise UserError(what, code="bad-sample", where="data check", try_this="ragmeter data check hotpotqa:dev")
    if references:
        wanted = [part for reference in references for part in parts(reference)]
        return [availability(part, settings) for part in dict.fromkeys(wanted)], []
    if settings:
        raise UserError(
            "--set and --config apply to one dataset, not to all", code="set-and-config", where="--all", try_this="name the dataset"
        )
    positions = [availability(part) for entry in DATASETS for part in splits(entry)]
    reasons = {
        ABSENT: "not on this machine",
        MADE: "made here and not read (name them to check them)",
        OWN: "read from files of your own (name each with --set path=FILE to check it)",
    }
    skipped = []
    for state, reason in reasons.items():
        left_out = [position.reference.name for position in positions if position.state == state]
        if left_out:
            skipped.append(f"{counted(len(left_out), 'split')} of {', '.join(sorted(set(left_out)))}: {reason}")
    return [position for position in positions if position.state not in reasons], skipped


def _print(item: CheckedSplit, wanted: Sequence[str], verbose: bool) -> None:
    out.print(Text(f"{item.color:<7}", style=_STYLES[item.color]) + Text(str(item.position.reference), style="bold"))
    for finding in item.findings:
        if verbose or finding.status in wanted:
            _print_finding(finding)


def _print_finding(finding: Finding) -> None:
    from benchmarks.verify import GREEN, RED, YELLOW

    line = Text(f"  {finding.status:<7}", style=_STYLES[finding.status]) + Text(finding.name)
    if finding.detail:
        line += Text(f": {finding.detail}", style=_STYLES[finding.status] if finding.status != GREEN else "dim")
    out.print(line)
    if finding.status in (YELLOW, RED):
        for example in finding.examples:
            out.print(Text(f"           {example}", style="dim"))


def _row(item: CheckedSplit) -> tuple[str, ...]:
    from benchmarks.verify import GREEN

    questions, passages = (f"{len(item.benchmark.questions):,}", f"{item.passages:,}") if item.benchmark else ("–", "–")
    worst = next((f for f in (*item.findings, *item.compared) if f.status == item.color and item.color != GREEN), None)
    return (
        str(item.position.reference),
        item.color,
        questions,
        passages,
        item.position.state,
        f"{worst.name}: {worst.detail}" if worst else "",
    )
