"""The sentences of a verdict, as parts that a page can style, or as plain text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from benchmarks.core.errors import counted
from benchmarks.core.unseen import printable
from results.boards.board import Board
from results.boards.tables import plus_minus
from results.boards.verdict import Against, BoardVerdict, Place
from results.store.variants import without_options

_LISTED = 6
"""Maximum number of metrics named in a sentence; further ones are counted."""
NAMED = 3
"""Maximum number of methods named in a sentence; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Part:
    """Piece of a verdict's text: a method's name (untrusted, to be escaped), a number, or words."""

    text: str
    kind: Literal["words", "method", "number"] = "words"


@dataclass(frozen=True, slots=True)
class Headline:
    """All verdicts on one benchmark or suite: the one by its main metric, and those by the other metrics."""

    main: BoardVerdict
    others: tuple[BoardVerdict, ...] = ()


def headlines(verdicts: Sequence[BoardVerdict]) -> list[Headline]:
    """Group verdicts by benchmark or suite, keeping their order."""
    groups: dict[object, list[BoardVerdict]] = {}
    for verdict in verdicts:
        groups.setdefault(_about(verdict.place), []).append(verdict)
    return [Headline(main, tuple(others)) for main, *others in groups.values()]


def headline_of(board: Board, known: Sequence[Headline]) -> Headline | None:
    """Find the headline about one board; None if nothing is scored on it."""
    about = ((board.dataset, board.setting),), (board.dataset_fingerprint,), board.seed
    return next((item for item in known if _about(item.main.place) == about), None)


def _about(place: Place) -> object:
    return place.benchmarks, place.fingerprints, place.seed


def text(parts: Iterable[Part]) -> str:
    """Join the pieces of a verdict into plain text."""
    return "".join(part.text for part in parts)


def html(headline: Headline) -> str:
    """Return a headline as a paragraph of HTML, names of methods bold."""
    pieces = []
    for part in headline_parts(headline):
        shown = escape(printable(part.text))
        pieces.append(f"<b>{shown}</b>" if part.kind == "method" else shown)
    return f"<p>{''.join(pieces)}</p>"


def headline_text(known: Sequence[Headline]) -> str:
    """Return the first headline as plain text, with its benchmark's name if there are several; empty without any."""
    return printable(text(headline_parts(known[0], where=place_names(known)[0] if len(known) > 1 else ""))) if known else ""


def place_names(known: Sequence[Headline]) -> list[str]:
    """Return a short name per headline that distinguishes it from the others: dataset and setting, or the number of benchmarks."""
    names = [_place_name(item.main.place) for item in known]
    whole = [_place_name(item.main.place, options=True) for item in known]
    names = [full if names.count(name) > 1 else name for name, full in zip(names, whole, strict=True)]
    prints = [",".join(item[:6] for item in each.main.place.fingerprints) for each in known]
    return [f"{name} ({print_})" if names.count(name) > 1 else name for name, print_ in zip(names, prints, strict=True)]


def _place_name(place: Place, *, options: bool = False) -> str:
    if place.suite:
        return f"Mean over {counted(len(place.benchmarks), 'benchmark')}"
    dataset, setting = place.benchmarks[0]
    return f"{dataset if options else without_options(dataset)}, {setting}"


def headline_parts(headline: Headline, *, where: str = "") -> tuple[Part, ...]:
    """Render a headline: the verdict by the main metric, and one more sentence on the other metrics; arguments as in `verdict_parts`."""
    main = verdict_parts(headline.main, where=where)
    best: dict[str, list[str]] = {}
    undecided: list[str] = []
    for other in headline.others:
        if other.best is not None and other.outcome == "best":
            best.setdefault(other.best.name, []).append(_metric(other.place))
        elif other.outcome in ("tied", "insufficient_data"):
            undecided.append(_metric(other.place))
    phrases = [[Part(name, "method"), Part(f" is best on {_listed(metrics)}")] for name, metrics in best.items()]
    if undecided:
        phrases.append([Part(f"no single best method on {_listed(undecided)}")])
    if not phrases:
        return main
    joined = [part for number, phrase in enumerate(phrases) for part in ([Part("; ")] if number else []) + phrase]
    return (*main, Part(" Other metrics: "), *joined, Part("."))


def verdict_parts(verdict: BoardVerdict, *, where: str = "") -> tuple[Part, ...]:
    """Render a verdict as sentences, in pieces that an HTML page can escape and link.

    Args:
        verdict: The verdict to render.
        where: Text to begin with, for example one of `place_names`. A suite always states its number of benchmarks.
    """
    where = where or (_place_name(verdict.place) if verdict.place.suite else "")
    parts = [Part(f"{where}: ")] if where else []
    parts += _claim(verdict)
    parts += _difference(verdict)
    if verdict.best is not None and verdict.outcome != "single":
        parts.append(Part(f" {_sampled(verdict.place)}."))
    if verdict.best is not None and verdict.best.failed:
        failed = counted(verdict.best.failed, "question")
        parts += [Part(" "), Part(verdict.best.name, "method"), Part(f" failed on {failed}, counted as wrong.")]
    return (*parts, *_left_out(verdict.left_out))


def verdict_text(verdict: BoardVerdict, *, where: str = "") -> str:
    """Render a verdict as plain text; arguments as in `verdict_parts`."""
    return text(verdict_parts(verdict, where=where))


def _claim(verdict: BoardVerdict) -> list[Part]:
    """Write the sentence about the best method and those that may be equally good."""
    place, best = verdict.place, verdict.best
    on = _metric(place)
    if best is None:
        return [Part(f"No method is ranked on {on}.")]
    name, value = Part(best.name, "method"), Part(plus_minus(best.value, best.low, best.high, scale=place.scale), "number")
    extreme = "highest" if place.higher_is_better else "lowest"
    if verdict.outcome == "best":
        return [name, Part(f" is best on {on}: "), value, Part(".")]
    if verdict.outcome == "single":
        # The list of methods that are not ranked follows, and names those that are running.
        running = any(why.startswith("running:") for why in verdict.left_out.values())
        then = "." if running else "; add a second method to compare."
        return [
            Part("Only "),
            name,
            Part(f" is ranked on {on} so far: " if running else f" is ranked on {on}: "),
            value,
            Part(f" ({_sampled(place)}){then}"),
        ]
    if verdict.outcome == "tied":
        apart = [name for name in verdict.equal if name not in verdict.level]
        shares = f"share the {extreme} value" if apart or verdict.worse or verdict.untested else "have the same value"
        has = shares if verdict.level else f"has the {extreme} value"
        parts = [Part(f"No single best method on {on}: "), *_names((best.name, *verdict.level)), Part(f" {has}, "), value]
        if apart:
            parts += [Part(f", and not significantly different from it {'are' if len(apart) > 1 else 'is'} "), *_names(apart)]
        parts += [Part("; insufficient data against "), *_names(verdict.untested)] if verdict.untested else []
        return [*parts, Part(".")]
    if verdict.worse:
        parts = [name, Part(f" is best on {on} among the methods tested: "), value]
    else:
        parts = [Part(f"Insufficient data for a best method on {on}: "), name, Part(f" has the {extreme} value, "), value]
    return [*parts, Part("; insufficient data against "), *_names(verdict.untested), Part(".")]


def _difference(verdict: BoardVerdict) -> list[Part]:
    """Describe the differences from the next best method and from the reference, and the sample that would show the first."""
    parts: list[Part] = []
    next_, reference = verdict.next, verdict.reference
    if next_ is not None:
        parts += [Part(" Difference from the next, "), Part(next_.name, "method"), Part(": "), *_against(next_, verdict.place)]
        parts.append(Part("."))
        if next_.needed is not None:
            parts.append(Part(f" {_needed(next_, verdict.place)}."))
    lacking = verdict.outcome == "insufficient_data" and reference is not None and bool(reference.insufficient_data)
    if (
        reference is not None
        and not lacking
        and (next_ is None or reference.name != next_.name or reference.significant != next_.significant)
    ):
        parts += [Part(" Difference from the reference, "), Part(reference.name, "method"), Part(": ")]
        parts += [*_against(reference, verdict.place), Part(".")]
    return parts


def _against(against: Against, place: Place) -> list[Part]:
    if math.isnan(against.value):
        return [Part(f"not tested, {against.insufficient_data or 'no question in common'}")]
    shown = plus_minus(against.value, against.low, against.high, "{:+.1f}", place.scale)
    holds = "" if against.generalizes == "new questions" else f" for {against.generalizes}"
    if against.significant:
        mark = f" (significant{holds})"
    elif against.insufficient_data:
        mark = f" (not tested: {against.insufficient_data})"
    else:
        mark = " (not significant: failed answers or missing verdicts could reverse it)" if against.open else " (not significant)"
    cost = (
        [] if against.cost is None else [Part(", at "), Part(f"{_times(against.cost.ratio)}×", "number"), Part(f" its {against.cost.what}")]
    )
    return [Part(shown, "number"), Part(mark), *cost]


def _needed(against: Against, place: Place) -> str:
    """Describe the sample that would show the observed difference."""
    needed = against.needed
    assert needed is not None
    ways = []
    if needed.questions is not None and needed.clusters is not None:
        within = "" if place.kind == "question" else f" in {counted(_rounded(needed.clusters), place.kind)}"
        ways.append(f"about {counted(_rounded(needed.questions), 'question')}{within}")
    if needed.seeds is not None:
        ways.append(counted(needed.seeds, "training seed"))
    if not ways:
        return "No number of questions shows this difference"
    return f"Showing it takes {' or '.join(ways)} (80 % power)"


def _rounded(count: int) -> int:
    """Round a number up to two significant digits, the precision of an estimate from a pilot."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return math.ceil(count / unit) * unit


def _left_out(reasons: Mapping[str, str]) -> list[Part]:
    if not reasons:
        return []
    parts = [Part(" Not ranked: ")]
    if len(reasons) > NAMED:
        kinds: dict[str, int] = {}
        for why in reasons.values():
            kinds[why.partition(":")[0]] = kinds.get(why.partition(":")[0], 0) + 1
        counts = ", ".join(f"{count} {why}" for why, count in kinds.items())
        return [*parts, Part(f"{counted(len(reasons), 'method')} ({counts}).")]
    for number, (name, why) in enumerate(reasons.items()):
        parts += [Part(", ")] * bool(number) + [Part(name, "method"), Part(f" ({why.partition(':')[0]})")]
    return [*parts, Part(".")]


def _names(names: Sequence[str]) -> list[Part]:
    if len(names) > NAMED:
        return [Part(counted(len(names), "method"))]
    parts: list[Part] = []
    for number, name in enumerate(names):
        if number:
            parts.append(Part(" and " if number == len(names) - 1 else ", "))
        parts.append(Part(name, "method"))
    return parts


def _metric(place: Place) -> str:
    return place.name + ("" if place.higher_is_better else " (lower is better)")


def _sampled(place: Place) -> str:
    whole = counted(place.questions, "question")
    return whole if place.kind == "question" else f"{whole} in {counted(place.clusters, place.kind)}"


def _times(ratio: float) -> str:
    """Format a ratio with two significant digits, or as an integer from 10 on."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 0.95 else f"{ratio:.2g}"


def _listed(words: Sequence[str]) -> str:
    if len(words) > _LISTED:
        return counted(len(words), "metric")
    *others, last = words
    return " and ".join(filter(None, [", ".join(others), last]))
