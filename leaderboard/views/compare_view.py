"""Tables of the comparison page: values, paired differences, values by question kind, losses by stage."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.nodes import Node, badge, el
from results.attribution import Attribution
from results.comparison import Comparison, Slice
from results.statistics import Difference, Estimate

ALPHA = 0.05
_STAGES = {
    "retrieval": "Gained when the evidence that retrieval missed is put among the candidates",
    "reranking": "Gained further when everything but the evidence is taken away: what distracts or is ranked too low",
    "compression": "Gained further when the evidence is read in full instead of compressed",
    "reading": "What is missing even with the evidence alone",
}


def names(found: Comparison) -> list[str]:
    """What each run is called; runs of one name are told apart by their fingerprint."""
    methods = [run.method for run in found.runs]
    return [f"{run.method} ({run.run[:8]})" if methods.count(run.method) > 1 else run.method for run in found.runs]


def values(found: Comparison, shown: Scale) -> Node:
    """Each run's value with its interval."""
    lines = []
    for run, name, one in zip(found.runs, names(found), found.estimates, strict=True):
        state = (
            None
            if run.status == "finished"
            else badge(f"{run.status} {run.done:,}/{run.questions:,}", run.status if run.status in ("running", "failed") else "")
        )
        notes = [f"{one.unscorable:,} unscorable"] if one.unscorable else []
        lines.append(
            el(
                "tr",
                el("th", el("span", name, cls="method"), state, scope="row", cls="stick"),
                value_cell(one, shown),
                el("td", f"{one.n:,}", *(el("span", note, cls="interval") for note in notes), cls="number"),
            )
        )
    heads = [
        head("Run", cls="stick"),
        head("Value", f"{shown.unit}, 95 % interval", cls="number"),
        head("Questions", "scored", cls="number"),
    ]
    return table("Values of the runs compared", heads, lines, "values")


def pairs(found: Comparison, shown: Scale, *, higher_is_better: bool) -> Node:
    """Every pair with its difference, interval, corrected p-value, and questions won, tied and lost."""
    called = names(found)
    lines = []
    for pair in found.pairs:
        one = pair.difference
        won, lost = (one.wins, one.losses) if higher_is_better else (one.losses, one.wins)
        lines.append(
            el(
                "tr",
                el(
                    "th",
                    el("span", called[pair.first], cls="method"),
                    el("span", f"against {called[pair.second]}", cls="aside"),
                    scope="row",
                    cls="stick",
                ),
                difference_cell(one, shown, pair.p_holm, higher_is_better=higher_is_better),
                el("td", formats.p_value(pair.p_holm), el("span", f"{formats.p_value(one.p)} alone", cls="interval"), cls="number"),
                *(
                    el("td", f"{count:,}", el("span", f"{count / one.n:.0%}", cls="interval"), cls="number")
                    for count in (won, one.ties, lost)
                ),
            )
        )
    heads = [
        head("Pair", cls="stick"),
        head(
            "Difference",
            shown.difference_unit,
            cls="number",
            tip="First minus second on the questions that both have a value on, with its 95 % bootstrap interval",
        ),
        head("p", "Holm-corrected", cls="number", tip="Sign-flip permutation test, corrected over all pairs shown"),
        head("Better", "questions", cls="number", tip="The first scores better"),
        head("Equal", "questions", cls="number"),
        head("Worse", "questions", cls="number", tip="The first scores worse"),
    ]
    return table("Paired differences", heads, lines, "pairs")


def slices(found: Comparison, parts: Sequence[Slice], what: str, shown: Scale, *, zeros: bool) -> Node:
    """Values by question kind, one column a run.

    Args:
        found: The comparison.
        parts: Its slices.
        what: What they are slices by.
        shown: The metric's scale.
        zeros: Whether a zero is a failure, which is then counted.
    """
    lines = []
    for part in parts:
        cells = [
            value_cell(one, shown, f"{zero:,} of {part.questions:,} at zero" if zeros else "")
            for one, zero in zip(part.estimates, part.zeros, strict=True)
        ]
        name = part.name or "no type given"
        lines.append(
            el(
                "tr",
                el("th", el("span", name, cls="method"), scope="row", cls="stick"),
                el("td", f"{part.questions:,}", cls="number"),
                *cells,
            )
        )
    heads = [head(what, cls="stick"), head("Questions", cls="number"), *(head(name, shown.unit, cls="number") for name in names(found))]
    return table(f"Values by {what.lower()}", heads, lines, f"by-{what.lower().replace(' ', '-')}")


def apart(found: Comparison, places: Sequence[int], shown: Scale) -> Node:
    """Questions with each run's score; a click on one asks for its page.

    Args:
        found: The comparison.
        places: Positions of the questions to list.
        shown: The metric's scale.
    """
    lines = []
    for place in places:
        row = found.questions[place]
        opener = el("button", row.text, cls="turn", action={"open": row.question}, key=f"open-{place}")
        gold = " · ".join(row.answers) or "none"
        lines.append(
            el(
                "tr",
                el("th", opener, el("span", f"gold: {gold}", cls="aside"), scope="row", cls="wide"),
                *(el("td", shown.value(float(value)), cls="number") for value in found.values[:, place]),
            )
        )
    heads = [head("Question", "opens its page", cls="wide"), *(head(name, shown.unit, cls="number") for name in names(found))]
    return table("Questions on which the runs differ", heads, lines, "apart", cls="board answers")


def stages(found: Sequence[Attribution], called: Sequence[str], shown: Scale) -> Node | None:
    """What each stage loses, one line a run; None where no run has all that it takes."""
    known = [(name, one, one.losses) for name, one in zip(called, found, strict=True) if one.losses is not None]
    if not known:
        return None
    compressed = any(losses.compression for _, _, losses in known)
    columns = [stage for stage in _STAGES if stage != "compression" or compressed]
    lines = []
    for name, one, losses in known:
        shares = losses.shares
        cells = [value_cell(losses.normal, shown)]
        for stage in columns:
            part = getattr(losses, stage)
            share = shares.get(stage)
            note = "" if formats.missing(share) else f"{share:.0%} of the loss"
            cells.append(loss_cell(part, shown, note))
        cells += [loss_cell(losses.evidence_gain, shown, ""), el("td", f"{one.questions:,}", cls="number")]
        lines.append(el("tr", el("th", el("span", name, cls="method"), scope="row", cls="stick"), *cells))
    heads = [
        head("Run", cls="stick"),
        head("As it is", shown.unit, cls="number"),
        *(head(f"Lost in {stage}", shown.difference_unit, cls="number", tip=_STAGES[stage]) for stage in columns),
        head("Gained by evidence", shown.difference_unit, cls="number", tip="The run as it is minus closed book"),
        head("Questions", cls="number", tip="Scored in all of the settings"),
    ]
    return table("Losses by stage", heads, lines, "stages")


def unattributed(found: Sequence[Attribution], called: Sequence[str]) -> Node | None:
    """What is missing for the runs whose losses cannot be split; None where nothing is."""
    lines = []
    for name, one in zip(called, found, strict=True):
        if one.obstacle:
            lines.append(el("li", el("span", f"{name}: ", cls="method"), one.obstacle))
        elif one.missing:
            needed = [el("span", setting, cls="command") for setting in one.missing]
            lines.append(el("li", el("span", f"{name} ", cls="method"), "still needs a run of the same pipeline in ", *needed))
    if not lines:
        return None
    text = "Add these settings to those of the experiment and run it again; finished runs are not repeated."
    steps = el("p", text, cls="note") if any(one.missing for one in found) else None
    return el("section", el("ul", *lines), steps, cls="note")


def outcomes() -> Node:
    """What the colours of the bars mean, which also stand in this order."""
    kinds = (("method", "left: the first is better"), ("unfinished", "middle: equal"), ("control", "right: the first is worse"))
    parts = (el("span", el("span", "■", cls=f"key-{kind}"), f" {text}", cls="fact") for kind, text in kinds)
    return el("p", *parts, cls="facts note")


# -- parts ---------------------------------------------------------------------------------------------------------


def head(name: str, unit: str = "", *, cls: str = "", tip: str = "") -> Node:
    """A column's head with its unit beneath."""
    return el("th", el("span", name, cls="name", tip=tip), el("span", unit, cls="unit") if unit else None, scope="col", cls=cls)


def table(caption: str, heads: Sequence[Node], lines: Sequence[Node], key: str, cls: str = "board") -> Node:
    """A table that scrolls sideways by itself, with a caption for those who cannot see it."""
    inner = el("table", el("caption", caption, cls="unseen"), el("thead", el("tr", *heads)), el("tbody", *lines), cls=cls)
    return el("div", inner, cls="scroll", key=f"{key}-scroll", role="region", label=caption)


def value_cell(one: Estimate, shown: Scale, note: str = "") -> Node:
    """A value with its interval beneath, and † where the interval deserves doubt."""
    if formats.missing(one.value):
        return el("td", formats.NOTHING, cls="number")
    bracket = el("span", shown.interval(one.low, one.high), "†" if one.doubt else None, cls="interval")
    return el(
        "td",
        el("span", shown.value(one.value), cls="value"),
        bracket,
        el("span", note, cls="interval") if note else None,
        cls="number",
        tip=one.doubt,
    )


def loss_cell(one: Difference | Estimate | None, shown: Scale, note: str) -> Node:
    """A loss, signed: a stage that does harm when it is made perfect is negative."""
    if one is None or formats.missing(one.value):
        return el("td", formats.NOTHING, cls="number")
    return el(
        "td",
        el("span", shown.difference(one.value), cls="value"),
        el("span", shown.differences(one.low, one.high), "†" if one.doubt else None, cls="interval"),
        el("span", note, cls="interval") if note else None,
        cls="number",
        tip=one.doubt,
    )


def difference_cell(one: Difference, shown: Scale, p_holm: float, *, higher_is_better: bool) -> Node:
    """A difference with its interval, ▲ or ▼ where the corrected test rejects."""
    mark = None
    if not formats.missing(p_holm) and p_holm < ALPHA:
        better = (one.value > 0) == higher_is_better
        mark = el(
            "span",
            "▲" if better else "▼",
            cls="mark-better" if better else "mark-worse",
            role="img",
            label=f"significantly {'better' if better else 'worse'}",
        )
    return el(
        "td",
        el("span", mark, el("span", shown.difference(one.value), cls="value"), cls="top"),
        el("span", shown.differences(one.low, one.high), "†" if one.doubt else None, cls="interval"),
        cls="number",
        tip=one.doubt,
    )
