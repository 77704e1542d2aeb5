"""`styles rewrite`, `quality`, `mix`, `export` and `import`: passages in another style, and how good they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.text import Text

from benchmarks.core.errors import UserError, counted, unknown_name, unwritable
from benchmarks.core.fingerprint import file_sha256
from benchmarks.io import hub
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.schema import Question
from benchmarks.styles import pairs as style_pairs
from benchmarks.styles import rewrite as rewriting
from benchmarks.styles.mix import STYLED, Draw, styled
from benchmarks.styles.pairs import ANY, Fields, StylePairs, import_parallel, load_pairs, write_pairs
from benchmarks.styles.rules import FORMAL
from benchmarks.styles.sark_files import Layout, import_sark, write_sark
from judges.style import StyleQuality, style_quality, texts_of
from methods.api import Services
from methods.models.endpoint import Estimate
from ragmeter.cli.commands.list import options_given
from ragmeter.console import emit, err, listing, out
from ragmeter.experiment import candidate_retriever, in_setting, read_setting
from ragmeter.runner import rewriting as rewriters
from ragmeter.runner.loop import Interrupted
from ragmeter.runner.progress import CountingProgress
from ragmeter.runner.rewriting import settings
from ragmeter.runner.tasks import require_device
from results import store_folder
from results.statistics.intervals import estimates
from results.store import Store
from results.tables import plain

AGAIN = "the same command goes on"


@dataclass(frozen=True)
class Asked:
    """A benchmark, as the command line names it."""

    reference: str
    config: str | None = None
    path: Path | None = None
    setting: str | None = None
    limit: int | None = None
    seed: int = 0
    device: str | None = None

    def load(self, services: Services, talk: bool) -> Benchmark:
        """The benchmark, limited and in its setting; what takes long is said where `talk`.

        Raises:
            UserError: Something of it is not right.
        """
        if not talk:
            hub.be_quiet()
        setting = None if self.setting is None else read_setting(self.setting, "--setting")
        retriever = candidate_retriever(setting) if setting else None
        if retriever is not None:
            retriever.preflight()
        with err.status("loading", spinner="dots") if talk else nullcontext():
            benchmark = load(self.reference, options_given(self.config, self.path)).limited(self.limit)
            if not benchmark.questions:
                raise UserError("this split holds no question", where=self.reference)
            return benchmark if setting is None else in_setting(setting, benchmark, services)

    def services(self, store: Store) -> Services:
        """What a setting and models may use."""
        require_device(self.device)
        return Services(seed=self.seed, artefacts=store.artefacts, device=self.device, cache=store.cache)


# --- rewrite -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rewriting:
    """How passages are to be rewritten, as the command line says it."""

    styles: tuple[str, ...]
    rewriter: str
    options: tuple[str, ...]
    validators: tuple[str, ...]
    retry_failed: bool


def rewrite(asked: Asked, request: Rewriting, file: Path, folder: Path | None, as_json: bool, quiet: bool) -> int:
    """Rewrite the candidates of a benchmark; returns 1 where no text can be used."""
    if file.is_dir():
        raise UserError("this is a folder", where=str(file), try_this="name a file")
    talk = not (quiet or as_json)
    store = Store(store_folder(folder))
    services = asked.services(store)
    split = resolve(asked.reference, where="REF")[0].split
    chosen = rewriters.chosen(request.rewriter, request.options, request.validators, split, services)
    chosen.check(request.styles)
    benchmark = asked.load(services, talk)
    work = rewriting.pending(benchmark, chosen.rewriter, request.styles, file, retry_failed=request.retry_failed)
    wanted, judging = chosen.estimate(work.passages), chosen.judging_calls(work.passages)
    if talk:
        _announce(work, wanted, judging, chosen.tries)
    if work.count:
        chosen.reach(store.cache)
    with CountingProgress("rewriting", quiet=not talk) as progress:
        try:
            summary = rewriting.rewrite_candidates(
                benchmark, chosen.rewriter, request.styles, file, retry_failed=request.retry_failed, progress=progress.reached
            )
        except KeyboardInterrupt:
            raise Interrupted(AGAIN) from None
        except OSError as error:
            raise unwritable(error, file, try_this=AGAIN) from error
    outcomes = _Outcomes(file)
    value = {
        "file": str(file),
        "benchmark": benchmark.name,
        "rewriter": chosen.rewriter.id,
        "asked": summary.asked,
        "pairs": summary.pairs,
        "estimate": None if wanted is None else asdict(wanted) | {"judging_calls": judging},
        "styles": outcomes.to_json(),
        "failed_tries": dict(outcomes.reasons),
    }
    emit(value, as_json, lambda: _show_outcomes(file, summary, outcomes))
    return 0 if summary.pairs else 1


def _announce(work: rewriting.Pending, wanted: Estimate | None, judging: int, tries: int) -> None:
    done = work.total - work.count
    err.print(Text(f"{work.count:,} passages to rewrite" + (f", {done:,} are done" if done else "")))
    if wanted is not None and work.count:
        judges = f", and {judging:,} calls of judges" if judging else ""
        err.print(Text(f"asking once for each: about {wanted}{judges}; what is refused is asked for again, at most {tries} times in all"))


class _Outcomes:
    """What a file of pairs says of how its texts came about; a passage that several questions share counts once.

    Attributes:
        styles: By style, how many texts came at the first try, after more tries, or not at all.
        reasons: Failed tries by what failed.
    """

    def __init__(self, file: Path) -> None:
        latest = {one.key[1:]: one for one in style_pairs.read_pairs(file)}
        self.styles: dict[str, Counter[str]] = {}
        self.reasons: Counter[str] = Counter()
        for one in latest.values():
            kind = "given_up" if one.told is None else "after_more_tries" if one.failed else "at_first_try"
            self.styles.setdefault(one.style, Counter())[kind] += 1
            self.reasons.update(reason.partition(":")[0] for reason in one.failed)

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each style."""
        kinds = ("at_first_try", "after_more_tries", "given_up")
        return [{"style": style, **{kind: found[kind] for kind in kinds}} for style, found in self.styles.items()]


def _show_outcomes(file: Path, summary: rewriting.Summary, outcomes: _Outcomes) -> None:
    out.print(Text(f"{file}: {summary.pairs:,} pairs; {summary.asked:,} passages rewritten now"), soft_wrap=True)
    columns = ("style", "at the first try", "after more tries", "given up")
    listing(columns, [tuple(row.values()) for row in outcomes.to_json()], empty="nothing was rewritten")
    if outcomes.reasons:
        out.print()
        listing(("refused because of", "tries"), outcomes.reasons.most_common(), empty="")


# --- quality -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measuring:
    """What is to be measured of texts, as the command line says it."""

    strength: str | None
    options: tuple[str, ...]
    bertscore: str | None
    layer: int
    perplexity: str | None
    device: str | None


def quality(file: Path, asked: Asked | None, request: Measuring, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Measure the texts of a file of pairs."""
    require_device(request.device)
    store = Store(store_folder(folder))
    judge = None
    if request.strength is not None:
        judge = rewriters.judge_measuring("informal", request.strength, settings(request.options), "--strength")
    elif request.options:
        raise UserError("options of no judge", where="--set", try_this="--strength style, or rule_style")
    talk = not (quiet or as_json)
    told = load_pairs(file)
    services = Services(cache=store.cache, device=request.device)
    benchmark = None if asked is None else asked.load(services, talk)
    if benchmark is not None:
        _check_questions(told, benchmark, file)
    if judge is not None:
        judge.config.reach(store.cache)
    with err.status("measuring") if talk else nullcontext():
        try:
            report = style_quality(
                texts_of(told, benchmark),
                strength=judge.build(services) if judge else None,
                bertscore=request.bertscore,
                layer=request.layer,
                perplexity=request.perplexity,
                failed=told.failed,
                device=request.device,
            )
        except KeyboardInterrupt:
            raise Interrupted(AGAIN) from None
    rows = [row for one in report for row in _estimated(one, told)]
    value = {"file": str(file), "by": dict(told.by), "styles": [_counted(one) for one in report], "measures": rows}
    emit(value, as_json, lambda: _show_quality(report, rows))


def _check_questions(told: StylePairs, benchmark: Benchmark, file: Path) -> None:
    known = {question.id for question in benchmark.questions}
    named = {one.question for one in told} - {ANY}
    if named and not named & known:
        raise UserError(
            f"none of the pairs is of a question of {benchmark.name}",
            where=f"{file}, --benchmark",
            try_this="the benchmark, split and options that they were made from",
        )


def _counted(one: StyleQuality) -> dict[str, Any]:
    return {"style": one.style, "pairs": one.pairs, "given_up": one.failed}


def _estimated(one: StyleQuality, told: StylePairs) -> list[dict[str, Any]]:
    """Rows of measures with intervals; pairs of one passage stand together, for they are one text."""
    if not one.measures:
        return []
    passages = [pair.formal.id for pair in told if pair.style == one.style]
    found = estimates(np.stack([measured.values for measured in one.measures.values()]), clusters=passages)
    return [
        {
            "style": one.style,
            "measure": name,
            "value": plain(got.value),
            "low": plain(got.low),
            "high": plain(got.high),
            "n": got.n,
            "missing": got.unscorable,
            "passages": got.units,
            "sd": measured.sd,
            "doubt": got.doubt,
        }
        for (name, measured), got in zip(one.measures.items(), found, strict=True)
    ]


def _show_quality(report: Sequence[StyleQuality], rows: Sequence[dict[str, Any]]) -> None:
    for one in report:
        out.print(Text(f"{one.style}: {one.pairs:,} pairs, {one.failed:,} given up"))

    def shown(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    lines = [
        (
            row["style"],
            row["measure"],
            shown(row["value"]) + ("†" if row["doubt"] else ""),
            f"{shown(row['low'])} … {shown(row['high'])}",
            row["n"],
            row["missing"],
        )
        for row in rows
    ]
    listing(("style", "measure", "mean", "95 % interval", "n", "without"), lines, empty="there is no pair to measure")
    if any(row["doubt"] for row in rows):
        out.print(Text("† too few values, or too lopsided, for an interval to cover as stated; --json says why", style="dim"))


# -- `styles mix`, `export` and `import`: files in SARK's layouts, and files of pairs from texts that others paired --


@dataclass(frozen=True)
class Target:
    """A file to write."""

    path: Path
    overwrite: bool

    def check(self) -> Path:
        """Its path.

        Raises:
            UserError: Something is in the way.
        """
        if self.path.is_dir() or (self.path.exists() and not self.overwrite):
            what = "a folder" if self.path.is_dir() else "a file"
            raise UserError(f"{what} is in the way", where=str(self.path), try_this="another --output, or --overwrite")
        if not self.path.parent.is_dir():
            raise UserError("there is no such folder", where=str(self.path.parent), try_this="another --output")
        return self.path


# --- mix -----------------------------------------------------------------------------------------------------


def mix(
    asked: Asked, file: Path, shares: Sequence[str], draw: str, target: Target, layout: str, folder: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write a benchmark of mixed style in a layout of SARK's."""
    wanted = _shares(shares)
    as_drawn: Draw = _one_of(draw, Draw, "draw", "--draw")
    as_written: Layout = _one_of(layout, Layout, "layout", "--layout")
    target.check()
    told = load_pairs(file)
    benchmark = asked.load(asked.services(Store(store_folder(folder))), not (quiet or as_json))
    mixed = styled(benchmark, told, wanted, seed=asked.seed, draw=as_drawn)
    met: Counter[str] = sum((Counter(q.metadata[STYLED]["counts"]) for q in mixed.questions), Counter())
    if mixed.extra["counts"].get("styled_kept_formal") and not met.total() - met[FORMAL]:
        raise UserError(
            f"none of the pairs is of a candidate of {benchmark.name}",
            where=str(file),
            try_this="the reference, --setting and --seed that they were made with",
        )
    written = write_sark(mixed, target.path, as_written, overwrite=target.overwrite)

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} records of {mixed.name}"), soft_wrap=True)
        listing(("style", "candidates"), met.items(), empty="")
        for note in mixed.extra["notes"]:
            err.print(Text(note, style="dim"), soft_wrap=True)

    emit(
        {
            "file": str(target.path),
            "records": written,
            "name": mixed.name,
            "candidates": dict(met),
            "notes": list(mixed.extra["notes"]),
            "styled": mixed.extra[STYLED],
        },
        as_json,
        show,
    )


def _shares(texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        style, _, share = text.partition("=")
        try:
            value = float(share)
        except ValueError:
            raise UserError(f"{text!r} is no share of a style", where="--mix", try_this="--mix informal=0.5") from None
        if style in found:
            raise UserError(f"{style} has two shares", where="--mix", try_this="one share each")
        found[style] = value
    return found


def _one_of(text: str, kinds: Any, noun: str, where: str) -> Any:
    if text not in get_args(kinds):
        raise unknown_name(noun, text, get_args(kinds), where=where)
    return text


# --- export --------------------------------------------------------------------------------------------------


def export(asked: Asked, target: Target, passages: int | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Write a benchmark's questions with their candidates in SARK's layout of ranked lists."""
    target.check()
    benchmark = asked.load(asked.services(Store(store_folder(folder))), not (quiet or as_json))
    if all(question.candidates is None for question in benchmark.questions):
        raise UserError(
            f"{benchmark.reference} gives its questions no list of candidates",
            where="REF",
            try_this='--setting "corpus(retriever=bm25,n=50)", or a layout with candidates',
        )
    chosen, notes = _readable(benchmark, passages)
    if not chosen.questions:
        raise UserError("no question is left to write", where=asked.reference, try_this="; ".join(notes))
    written = write_sark(chosen, target.path, overwrite=target.overwrite)
    count = sum(len(question.candidates or ()) for question in chosen.questions)

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} records of {benchmark.name}, {count:,} candidates"), soft_wrap=True)
        for note in notes:
            err.print(Text(note, style="dim"), soft_wrap=True)

    value = {"file": str(target.path), "records": written, "name": benchmark.name, "candidates": count}
    emit(value | {"notes": notes}, as_json, show)


def _readable(benchmark: Benchmark, passages: int | None) -> tuple[Benchmark, list[str]]:
    """The questions that `sark` can read again, with so many candidates, and what is said of the others.

    In the layout a question's text is its id, and a list must not be empty.
    """
    kept: dict[str, Question] = {}
    repeated = empty = 0
    for question in benchmark.questions:
        if not question.candidates:
            empty += 1
        elif question.text in kept:
            repeated += 1
        else:
            # A slice of None is all.
            kept[question.text] = replace(question, candidates=tuple(question.candidates[:passages]))
    notes = []
    if repeated:
        notes.append(f"left out, with the text of an earlier one: {counted(repeated, 'question')}")
    if empty:
        notes.append(f"left out, without a candidate: {counted(empty, 'question')}")
    if short := sum(len(one.candidates or ()) < (passages or 0) for one in kept.values()):
        notes.append(f"fewer than {passages} candidates: {counted(short, 'question')}")
    return replace(benchmark, questions=list(kept.values())), notes


# --- import --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """Names of the fields of parallel texts, as the command line gives them."""

    fields: tuple[str, ...]
    id: str | None
    title: str | None
    question: str | None

    def read(self) -> Fields:
        """The fields.

        Raises:
            UserError: They are not right.
        """
        found = {}
        for text in self.fields:
            style, mark, field = text.partition("=")
            if not (mark and style and field):
                raise UserError(f"{text!r} names no field of a style", where="--field", try_this="--field formal=text")
            found[style] = field
        try:
            return Fields(found, self.id, self.title, self.question)
        except UserError as error:
            raise UserError(error.what, where="--field", try_this="--field formal=… --field informal=…") from None


def import_pairs(files: Sequence[Path], target: Target, named: Named, style: str | None, by: str, as_json: bool) -> None:
    """Write a file of pairs from texts that others paired."""
    if (style is None) == (not named.fields):
        raise UserError(
            "parallel texts need --field, SARK's layouts --style, and not both",
            where="--field, --style",
            try_this="--field formal=… --field informal=…; or two files and --style informal",
        )
    target.check()
    if style is None:
        found = list(import_parallel(list(files), named.read(), by=by))
    elif len(files) == 2:
        found = list(import_sark(files[0], files[1], style, by=by))
    else:
        raise UserError(f"{len(files)} files were named", where="FILE...", try_this="two: the formal texts, then the same rows told")
    if not found:
        raise UserError("these files hold no pair of texts", where=", ".join(map(str, files)))
    made_from = ", ".join(f"{file.name} {file_sha256(file)[:16]}" for file in files)
    written = write_pairs(target.path, found, rewriter=f"import by {by}", made_from=made_from, overwrite=target.overwrite)
    met = Counter(one.style for one in found)
    value = {"file": str(target.path), "pairs": written, "styles": dict(met)}

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} pairs"), soft_wrap=True)
        listing(("style", "pairs"), met.items(), empty="")

    emit(value, as_json, show)
