"""`ragmeter data check` and `overlap`: may these data be trusted, and have they been trained on?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from benchmarks import leakage, sources, verify
from benchmarks.core.errors import UserError, counted
from benchmarks.corpus import Corpus
from benchmarks.io import hub
from benchmarks.registry import DATASETS, Benchmark, load
from benchmarks.sources import ABSENT, MADE, OWN, UNCLEAR, Availability
from benchmarks.verify import GREEN, NOTE, RED, YELLOW, Finding, Recorded
from ragmeter.cli import options
from ragmeter.cli.options import App, Common, given_options
from ragmeter.console import err, listing, out

app = App()

_STYLES = {GREEN: "green", NOTE: "dim", YELLOW: "yellow", RED: "bold red"}
_LOADS = "it loads, and twice to the same"


@dataclass
class _Checked:
    """A split that was looked at; what later comparisons need of it is kept, its corpus is not."""

    position: Availability
    findings: list[Finding]
    benchmark: Benchmark | None = None
    recorded: Recorded | None = None
    passages: int = 0
    compared: list[Finding] = field(default_factory=list)

    @property
    def color(self) -> str:
        return verify.color([*self.findings, *self.compared])

    def to_json(self) -> dict[str, Any]:
        questions, passages = (len(self.benchmark.questions), self.passages) if self.benchmark else (None, None)
        paths, findings = list(map(str, self.position.paths)), [asdict(finding) for finding in (*self.findings, *self.compared)]
        whole = {"reference": str(self.position.reference), "color": self.color, "state": self.position.state, "paths": paths}
        return {**whole, "questions": questions, "passages": passages, "findings": findings}


@app.command(offline=True)
def check(
    common: Common,
    references: Annotated[
        list[str] | None, typer.Argument(metavar="REF...", help="Data references.", autocompletion=options.references)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every split whose files are on this machine.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="The files are cuts: fewer questions than the card says are no fault.")
    ] = False,
    alike: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="From which similarity questions of two splits are near-duplicates.")
    ] = verify.THRESHOLD,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Record files' SHA-256 and fingerprints in this file.")] = None,
    against: Annotated[Path | None, typer.Option(help="Compare with what was recorded in this file.")] = None,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> int:
    """Check splits against their cards and the contract, and name what is odd; exit code 1 where one is red."""
    value = given_options(config, settings)
    positions, skipped = _positions(references or [], every, value)
    known = verify.read_records(against) if against else None
    if not common.talk:
        hub.be_quiet()
    checked = []
    for position in positions:
        with common.status(str(position.reference)):
            checked.append(_checked(position, value, partial, known, keep=output is not None))
        if not common.json:
            _print(checked[-1], (NOTE, YELLOW, RED) if not every else (YELLOW, RED), common.verbose)
    skipped += _compare(checked, alike, same_set=every)
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
    """Which splits are checked, and which are not and why."""
    if every == bool(references):
        what = "references and --all exclude each other" if every else "nothing to check was named: neither data references nor --all"
        raise UserError(what, where="data check", try_this="ragmeter data check hotpotqa:dev")
    if references:
        parts = [part for reference in references for part in sources.parts(reference)]
        return [sources.availability(part, settings) for part in dict.fromkeys(parts)], []
    if settings:
        raise UserError("--set and --config are of one dataset", where="--all", try_this="name the dataset")
    positions = [sources.availability(part) for entry in DATASETS for part in sources.splits(entry)]
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


def _checked(
    position: Availability, settings: Mapping[str, Any], partial: bool, known: Mapping[str, Recorded] | None, *, keep: bool
) -> _Checked:
    try:
        if position.state == UNCLEAR and position.problem is not None:
            raise position.problem
        benchmark = load(position.reference, settings)
        same = load(position.reference, settings).fingerprint == benchmark.fingerprint
    except UserError as error:
        return _Checked(position, [Finding(_LOADS, RED, error.what + (f" ({error.where})" if error.where else ""))])
    if position.state == ABSENT:
        # Loading has fetched it.
        position = sources.availability(position.reference, settings)
    now = verify.record(benchmark, position.paths) if keep or known is not None else None
    findings = [
        Finding(_LOADS, GREEN if same else RED, "" if same else "the second differs"),
        verify.vouched(benchmark, position),
        *filter(None, [verify.against_repository(benchmark, partial=partial)]),
        *([verify.against(now, known.get(str(position.reference)))] if known is not None and now else ()),
        *verify.examine(benchmark, partial=partial),
        *_contract(benchmark, generated=position.state == MADE),
    ]
    return _Checked(position, findings, replace(benchmark, corpus=Corpus.of(()), extra={}), now, len(benchmark.corpus))


def _contract(benchmark: Benchmark, *, generated: bool) -> Iterator[Finding]:
    """The conformance checks; settings that a file lacks something for are notes, as long as one applies."""
    from ragmeter.conformance import check_benchmark, check_settings

    for item in check_benchmark(benchmark):
        yield Finding(item.name, GREEN if item.passed else RED, item.detail)
    settings = check_settings(benchmark)
    wrong = RED if generated or not any(setting.passed for setting in settings) else NOTE
    for item in settings:
        yield Finding(item.name, GREEN if item.passed else wrong, "" if item.passed else item.detail)


def _compare(checked: Sequence[_Checked], alike: float, *, same_set: bool) -> list[str]:
    """Look for near-duplicates between every two splits, or with `same_set` those of one set; returns what is not."""
    skipped = []
    for first, second in combinations(checked, 2):
        item, other = first.position, second.position
        if first.benchmark is None or second.benchmark is None:
            continue
        if same_set and replace(item.reference, split=None) != replace(other.reference, split=None):
            continue
        if item.paths and item.paths == other.paths:
            skipped.append(f"near-duplicates of {item.reference} and {other.reference}: both read the same file")
            continue
        second.compared.append(verify.between(first.benchmark, second.benchmark, alike))
    return skipped


def _print(item: _Checked, wanted: Sequence[str], verbose: bool) -> None:
    out.print(Text(f"{item.color:<7}", style=_STYLES[item.color]) + Text(str(item.position.reference), style="bold"))
    for finding in item.findings:
        if verbose or finding.status in wanted:
            _print_finding(finding)


def _print_finding(finding: Finding) -> None:
    line = Text(f"  {finding.status:<7}", style=_STYLES[finding.status]) + Text(finding.name)
    if finding.detail:
        line += Text(f": {finding.detail}", style=_STYLES[finding.status] if finding.status != GREEN else "dim")
    out.print(line)
    if finding.status in (YELLOW, RED):
        for example in finding.examples:
            out.print(Text(f"           {example}", style="dim"))


def _row(item: _Checked) -> tuple[str, ...]:
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


# -- Has an evaluation set been trained on? --


@app.command(offline=True)
def overlap(
    train: Annotated[list[Path], typer.Option(help="A training file, or a folder of them; may be repeated.")],
    evaluation: Annotated[
        list[str], typer.Option("--eval", metavar="REF", help="An evaluation set; may be repeated.", autocompletion=options.references)
    ],
    common: Common,
    contexts: Annotated[bool, typer.Option("--contexts", help="Look for passages too.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write every question's overlap to this file: .csv, .json or .jsonl.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="How many of the most overlapping questions to show.")] = 10,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out training records that cannot be read; they are counted.")] = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> None:
    """Look for evaluation questions in training files: 13-gram overlap, question by question."""
    if output is not None and output.suffix not in leakage.FORMATS:
        raise UserError(f"overlaps are written as {', '.join(leakage.FORMATS)}", where=f"--output {output}", try_this="overlaps.csv")
    files = list(dict.fromkeys(file for path in train for file in leakage.training_files(path)))
    value = given_options(config, settings)
    benchmarks = [common.load(reference, value) for reference in evaluation]
    with common.status("reading") as status:

        def progress(file: Path, words: int) -> None:
            status.update(Text(f"{file.name}: {words:,} words"))

        report = leakage.contamination(benchmarks, files, contexts=contexts, skip_bad=skip_bad, progress=progress)
    if output is not None:
        report.write(output)
    summary = report.summary()

    def show() -> None:
        texts = counted(sum(report.files.values()), "text")
        out.print(Text(f"{counted(len(report.files), 'training file')}, {texts}, {counted(report.words, 'word')}"))
        heads = ("evaluation set", "questions", "touched", "question touched", "half of it", "all of it", "looked for whole")
        listing(heads, [tuple(item.values()) for item in summary["sets"]], empty="no question was compared")
        worst = sorted((item for item in report.overlaps if item.share > 0), key=lambda item: -item.share)[:count]
        if worst:
            out.print()
            rows = [(item.question_id, f"{item.share:.0%}", item.first or "", item.text) for item in worst]
            listing(("question", "found", "first at", ""), rows, empty="")
        note = (
            "found: share of a question's 13-grams of normalized words; a question of fewer than 13 words is looked for "
            "whole, a shorter answer not at all"
        )
        out.print(Text(note, style="dim"))
        for position in report.skipped[:10]:
            err.print(Text(f"left out: {position}", style="yellow"))
        if len(report.skipped) > 10:
            err.print(Text(f"left out: {counted(len(report.skipped) - 10, 'more record')}", style="yellow"))
        if output is not None:
            out.print(Text(f"every question: {output}"))

    common.emit({"summary": summary, "questions": [item.to_json() for item in report.overlaps]}, show)
