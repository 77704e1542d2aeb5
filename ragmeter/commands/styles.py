"""`styles rewrite` and `styles quality`: passages told in another style, and how good the texts are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from benchmarks import hub
from benchmarks.errors import UserError, unwritable
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.styles import pairs as style_pairs
from benchmarks.styles import rewriting
from benchmarks.styles.pairs import ANY, StylePairs, load_pairs
from judges.style_quality import StyleQuality, style_quality, texts_of
from methods.api import Services
from methods.models.tokens import Estimate
from ragmeter import rewriters
from ragmeter.candidates import candidate_retriever, in_setting, read_setting
from ragmeter.commands.checking import options_given
from ragmeter.console import emit, err, listing, out
from ragmeter.given_options import settings
from ragmeter.progress import CountingProgress
from ragmeter.run_loop import Interrupted
from ragmeter.tasks import require_device
from results import store_folder
from results.plain import plain
from results.statistics import estimates
from results.store import Store

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
