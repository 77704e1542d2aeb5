"""`datasets verify` and `datasets contamination`: may these data be trusted, and have they been trained on?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from benchmarks import sources
from benchmarks import verify as verifying
from benchmarks.core.errors import UserError, counted, unwritable
from benchmarks.corpus import Corpus
from benchmarks.io import hub
from benchmarks.io.files import archive_of, recorded
from benchmarks.leakage import PARTS, Overlap, Report, training_files
from benchmarks.leakage import contamination as compare
from benchmarks.registry import DATASETS, Benchmark, DataReference, load
from benchmarks.sources import ABSENT, MADE, OWN, UNCLEAR, Whereabouts
from benchmarks.verify import GREEN, NOTE, RED, YELLOW, Finding, Recorded, against_repository
from ragmeter.cli.commands.list import options_given
from ragmeter.conformance import check_benchmark, check_settings
from ragmeter.console import emit, err, listing, out

_STYLES = {GREEN: "green", NOTE: "dim", YELLOW: "yellow", RED: "bold red"}


@dataclass(frozen=True)
class Request:
    """What `verify` was asked."""

    references: tuple[str, ...]
    every: bool = False
    partial: bool = False
    alike: float = verifying.THRESHOLD
    record: Path | None = None
    against: Path | None = None
    config: str | None = None
    path: Path | None = None


@dataclass
class _Verified:
    """A split that was looked at; what later comparisons need of it is kept, its corpus is not."""

    place: Whereabouts
    findings: list[Finding]
    benchmark: Benchmark | None = None
    recorded: Recorded | None = None
    passages: int = 0
    compared: list[Finding] = field(default_factory=list)

    @property
    def reference(self) -> DataReference:
        return self.place.reference

    @property
    def colour(self) -> str:
        return verifying.colour([*self.findings, *self.compared])


def verify(request: Request, as_json: bool, quiet: bool, verbose: bool) -> int:
    """Verify splits; returns the exit code."""
    options = options_given(request.config, request.path)
    places, skipped = _places(request, options)
    wanted = verifying.read_records(request.against) if request.against else None
    seen = []
    talk = not (quiet or as_json)
    if not talk:
        hub.be_quiet()
    for place in places:
        with err.status(str(place.reference), spinner="dots") if talk else nullcontext():
            seen.append(_verified(place, options, request.partial, wanted, keep=request.record is not None))
        if not as_json:
            _print(seen[-1], (NOTE, YELLOW, RED) if not request.every else (YELLOW, RED), verbose)
    skipped += _compare(seen, request.alike, same_set=request.every)
    if request.record is not None:
        known = {str(one.reference): one.recorded for one in seen if one.recorded is not None}
        verifying.write_records(request.record, known)
    worst = verifying.colour(Finding("", one.colour) for one in seen)

    def print_all() -> None:
        for one in seen:
            for finding in one.compared:
                if finding.status != GREEN:
                    _print_finding(finding)
        out.print()
        rows = [_row(one) for one in seen]
        listing(("split", "is", "questions", "passages", "from", "worst of it"), rows, empty="nothing was verified")
        for reason in skipped:
            out.print(Text(f"skipped: {reason}", style="dim"))
        if request.record is not None:
            out.print(Text(f"recorded in {request.record}"))

    emit({"colour": worst, "splits": [_json(one) for one in seen], "skipped": skipped}, as_json, print_all)
    return 1 if worst == RED else 0


def _places(request: Request, options: Mapping[str, Any]) -> tuple[list[Whereabouts], list[str]]:
    """Which splits are verified, and which are not and why."""
    if request.every == bool(request.references):
        raise UserError(
            "references and --all were both given" if request.every else "nothing to verify was named: neither data references nor --all",
            where="datasets verify",
            try_this="ragmeter datasets verify hotpotqa:dev",
        )
    if request.references:
        parts = [part for reference in request.references for part in sources.parts(reference)]
        return [sources.whereabouts(part, options) for part in dict.fromkeys(parts)], []
    if options:
        raise UserError("--config and --path are of one dataset", where="--all", try_this="name the dataset")
    found = [sources.whereabouts(part) for entry in DATASETS for part in sources.splits(entry)]
    reasons = {
        ABSENT: "not on this machine",
        MADE: "made here and not read (name them to verify them)",
        OWN: "read from files of your own (name each with its --path to verify it)",
    }
    skipped = []
    for state, reason in reasons.items():
        names = sorted({str(DataReference(p.reference.name)) for p in found if p.state == state})
        count = sum(place.state == state for place in found)
        if count:
            skipped.append(f"{counted(count, 'split')} of {', '.join(names)}: {reason}")
    return [place for place in found if place.state not in reasons], skipped


def _verified(
    place: Whereabouts, options: Mapping[str, Any], partial: bool, wanted: Mapping[str, Recorded] | None, *, keep: bool
) -> _Verified:
    if place.state == UNCLEAR and place.said is not None:
        return _Verified(place, [_broken(place.said)])
    try:
        benchmark = load(place.reference, options)
        again = load(place.reference, options).fingerprint
    except UserError as error:
        return _Verified(place, [_broken(error)])
    if place.state == ABSENT:
        # Loading has fetched it.
        place = sources.whereabouts(place.reference, options)
    now = verifying.record(benchmark, place.paths) if keep or wanted is not None else None
    same = benchmark.fingerprint == again
    findings = [
        Finding("it loads, and twice to the same", GREEN if same else RED, "" if same else "the second differs"),
        _source(place, benchmark),
        *filter(None, [against_repository(benchmark, partial=partial)]),
        *([verifying.against(now, wanted.get(str(place.reference)))] if wanted is not None and now else ()),
        *verifying.examine(benchmark, partial=partial),
        *_contract(benchmark),
    ]
    bare = replace(benchmark, corpus=Corpus.of(()), extra={})
    return _Verified(place, findings, bare, now, len(benchmark.corpus))


def _broken(error: UserError) -> Finding:
    where = f" ({error.where})" if error.where else ""
    return Finding("it loads, and twice to the same", RED, error.what + where)


def _source(place: Whereabouts, benchmark: Benchmark) -> Finding:
    """What vouches for the files."""
    name = "files are those that somebody vouches for"
    source = benchmark.extra.get("source")
    if source:
        pinned = f"{source['hub']} at {source['revision']}"
        # The hub's client has compared every file with what the hub states of it.
        return Finding(name, GREEN if source["pinned"] else NOTE, pinned + ("" if source["pinned"] else ", not pinned"))
    if place.state == MADE:
        return Finding(name, GREEN, "generated")
    files = [path if archive_of(path) is None else archive_of(path)[0] for path in place.paths]  # type: ignore[index]
    vouched = bool(files) and all(file.name in recorded(file.parent) for file in files)
    # Files that differ from it are refused when they are found.
    return Finding(name, GREEN, "SHA256SUMS") if vouched else Finding(name, NOTE, "no SHA256SUMS beside them")


def _contract(benchmark: Benchmark) -> Iterator[Finding]:
    """The conformance checks; settings that this file lacks something for are notes, as long as one applies."""
    for check in check_benchmark(benchmark):
        yield Finding(check.name, GREEN if check.passed else RED, check.detail)
    settings = check_settings(benchmark)
    none = not any(check.passed for check in settings)
    for check in settings:
        status = GREEN if check.passed else RED if none else NOTE
        yield Finding(check.name, status, "" if check.passed else check.detail)


def _compare(seen: Sequence[_Verified], alike: float, *, same_set: bool) -> list[str]:
    """Look for near-duplicates between every two splits, or with `same_set` those of one set; returns what is not."""
    skipped = []
    for first, second in combinations(seen, 2):
        if first.benchmark is None or second.benchmark is None:
            continue
        of_one_set = replace(first.reference, split=None) == replace(second.reference, split=None)
        if same_set and not of_one_set:
            continue
        if first.place.paths and first.place.paths == second.place.paths:
            skipped.append(f"near-duplicates of {first.reference} and {second.reference}: both read the same file")
            continue
        second.compared.append(verifying.between(first.benchmark, second.benchmark, alike))
    return skipped


def _print(one: _Verified, wanted: Sequence[str], verbose: bool) -> None:
    out.print(Text(f"{one.colour:<7}", style=_STYLES[one.colour]) + Text(str(one.reference), style="bold"))
    for finding in one.findings:
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


def _row(one: _Verified) -> tuple[str, ...]:
    questions = f"{len(one.benchmark.questions):,}" if one.benchmark else "–"
    worst = next((f for f in (*one.findings, *one.compared) if f.status == one.colour and one.colour != GREEN), None)
    said = f"{worst.name}: {worst.detail}" if worst else ""
    return (str(one.reference), one.colour, questions, f"{one.passages:,}" if one.benchmark else "–", one.place.state, said)


def _json(one: _Verified) -> dict[str, Any]:
    return {
        "reference": str(one.reference),
        "colour": one.colour,
        "state": one.place.state,
        "paths": list(map(str, one.place.paths)),
        "questions": len(one.benchmark.questions) if one.benchmark else None,
        "passages": one.passages if one.benchmark else None,
        "findings": [asdict(finding) for finding in (*one.findings, *one.compared)],
    }


# --- contamination -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contamination:
    """What `contamination` was asked."""

    train: tuple[Path, ...]
    evaluation: tuple[str, ...]
    contexts: bool = False
    output: Path | None = None
    top: int = 10
    skip_bad: bool = False
    config: str | None = None
    path: Path | None = None


_OUTPUTS = (".csv", ".json", ".jsonl")
_COLUMNS = (
    "reference",
    "question_id",
    "question",
    "words",
    "whole",
    "share",
    "first",
    *(f"{part}_{what}" for part in PARTS for what in ("found", "grams")),
)


def contamination(asked: Contamination, as_json: bool, quiet: bool) -> None:
    """Compare training files with evaluation sets."""
    if asked.output is not None and asked.output.suffix not in _OUTPUTS:
        raise UserError(f"overlaps are written as {', '.join(_OUTPUTS)}", where=f"--output {asked.output}", try_this="overlaps.csv")
    files = list(dict.fromkeys(file for given in asked.train for file in training_files(given)))
    options = options_given(asked.config, asked.path)
    if quiet or as_json:
        hub.be_quiet()
    benchmarks = [load(reference, options) for reference in asked.evaluation]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=quiet or as_json) as live:
        task = live.add_task("reading", total=None)

        def told(file: Path, words: int) -> None:
            live.update(task, description=f"{file.name}: {words:,} words")

        report = compare(benchmarks, files, contexts=asked.contexts, skip_bad=asked.skip_bad, progress=told)
    rows = [_overlap_json(one) for one in report.overlaps]
    if asked.output is not None:
        _write(asked.output, rows)
    emit({"summary": _summary(report), "questions": rows}, as_json, lambda: _print_report(report, asked))


def _summary(report: Report) -> dict[str, Any]:
    by_set: dict[str, list[Overlap]] = {}
    for one in report.overlaps:
        by_set.setdefault(one.reference, []).append(one)
    return {
        "files": report.files,
        "words": report.words,
        "seconds": report.seconds,
        "skipped": list(report.skipped),
        "sets": [
            {
                "reference": reference,
                "questions": len(overlaps),
                "touched": sum(one.share > 0 for one in overlaps),
                "question_touched": sum(bool(one.share_of("question")) for one in overlaps),
                "question_half": sum((one.share_of("question") or 0) >= 0.5 for one in overlaps),
                "question_all": sum(one.share_of("question") == 1 for one in overlaps),
                "looked_for_whole": sum(one.whole for one in overlaps),
            }
            for reference, overlaps in by_set.items()
        ],
    }


def _print_report(report: Report, asked: Contamination) -> None:
    summary = _summary(report)
    texts = sum(report.files.values())
    files = counted(len(report.files), "training file")
    out.print(Text(f"{files}, {counted(texts, 'text')}, {counted(report.words, 'word')}"))
    listing(
        ("evaluation set", "questions", "touched", "question touched", "half of it", "all of it", "looked for whole"),
        [tuple(str(value) for value in one.values()) for one in summary["sets"]],
        empty="no question was compared",
    )
    worst = sorted((one for one in report.overlaps if one.share > 0), key=lambda one: -one.share)[: asked.top]
    if worst:
        out.print()
        rows = [(one.question_id, f"{one.share:.0%}", one.first or "", one.text) for one in worst]
        listing(("question", "found", "first at", ""), rows, empty="")
    out.print(
        Text(
            "found: share of a question's 13-grams of normalised words; a question of fewer than 13 words is "
            "looked for whole, a shorter answer not at all",
            style="dim",
        )
    )
    for place in report.skipped[:10]:
        err.print(Text(f"left out: {place}", style="yellow"))
    if len(report.skipped) > 10:
        err.print(Text(f"left out: {counted(len(report.skipped) - 10, 'more record')}", style="yellow"))
    if asked.output is not None:
        out.print(Text(f"every question: {asked.output}"))


def _overlap_json(one: Overlap) -> dict[str, Any]:
    return {
        "reference": one.reference,
        "question_id": one.question_id,
        "question": one.text,
        "words": one.words,
        "whole": one.whole,
        "share": one.share,
        "first": one.first,
        **{f"{part}_{what}": getattr(one, what).get(part, 0) for part in PARTS for what in ("found", "grams")},
    }


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    if path.suffix == ".csv":
        writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif path.suffix == ".jsonl":
        text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        text.write(json.dumps(list(rows), ensure_ascii=False, indent=1) + "\n")
    try:
        path.write_text(text.getvalue(), "utf-8", newline="")
    except OSError as error:
        raise unwritable(error, f"--output {path}") from error
