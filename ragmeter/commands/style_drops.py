"""`styles drops` and `styles curve`: what style costs the methods of an experiment, and how that depends on the mix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.errors import unknown_name
from ragmeter.commands.showing import metric_list
from ragmeter.console import emit, listing, out
from ragmeter.unscored import offering_score
from results import queries, store_folder
from results.plain import plain
from results.statistics import Difference, Estimate
from results.store import Store
from results.style_curves import CurveTable, style_curves
from results.style_drops import Drop, DropTable, MethodDrops, style_drops
from results.tables import labels, plus_minus, stars

ABSENT = "–"
OVER = ("mix", "k")


def drops(
    experiment: str | None,
    metrics: str | None,
    styles: Sequence[str],
    over_seeds: bool,
    reference: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Print per method what each style costs."""
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    with offering_score():
        found = style_drops(store, name, metric_list(metrics), styles=list(styles) or None, over_seeds=over_seeds, reference=reference)
    if reference is not None and all(table.reference is None for table in found):
        methods = {row.method for table in found for row in table.rows}
        raise unknown_name("method", reference, sorted(methods), where="--reference")
    emit({"experiment": name, "tables": [_drops_json(table) for table in found]}, as_json, lambda: _show_drops(found))


def _show_drops(tables: Sequence[DropTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(f"{heads[table.metric]}", style="bold") + Text(f"  {table.base}, setting {table.setting}"))
        average = [("(mean drop)", name, "", f"{table.scale * value:+.1f}", *[""] * 7) for name, value in table.average.items()]
        listing(
            (
                "method",
                "style",
                "formal",
                "drop",
                "beyond",
                "relative",
                "p",
                "answers kept",
                "content lost",
                "of which content",
                "where it survived",
            ),
            [*(_drop_line(table, row, drop) for row in table.rows for drop in row.drops), *average],
            empty="no method was scored on this metric",
            keys=2,
        )
        out.print()
    notes = [
        "values × 100 ± half their 95 % interval; drop: formal minus style, paired by question; p by sign flips, Holm "
        "over a method's styles",
        "beyond: how much larger that drop is than the reference's, question by question; * p < .05, ** p < .01 (sign "
        "flips, Holm over the methods)",
        "answers kept: passages (%) with a gold string that still have one, a mean over questions; content lost: "
        "questions (%) whose evidence has none left or, where no evidence is known, of which a candidate lost it; "
        "of which content: the part of the drop on these; where it survived: the drop over the others alone",
    ]
    rows = [(row, drop) for table in tables for row in table.rows for drop in row.drops]
    doubts = {drop.found.drop.doubt for _, drop in rows if drop.found.drop.doubt}
    if doubts:
        more = f" (and {len(doubts) - 1} more reasons: --json)" if len(doubts) > 1 else ""
        notes.append(f"† {min(doubts)}{more}")
    if not all(drop.content_known for _, drop in rows):
        notes.append("– under content: these questions were stored before ragmeter kept what retelling lost")
    for note in notes:
        out.print(Text(note, style="dim"))


def _drop_line(table: DropTable, row: MethodDrops, drop: Drop) -> tuple[str, ...]:
    found, scale = drop.found, table.scale
    # Of the questions scored in both, so that formal minus drop is the value in the style.
    content = [ABSENT] * 4
    if drop.content_known:
        kept = drop.answers_kept.value
        content = [
            ABSENT if math.isnan(kept) else f"{100 * kept:.1f}",
            f"{100 * found.content_lost.value:.1f}",
            _signed(found.from_content, scale),
            _signed(found.drop_where_survived, scale),
        ]
    relative = ABSENT if math.isnan(drop.relative) else f"{100 * drop.relative:+.1f} %"
    return (
        row.method + (" (control)" if row.kind == "control" else ""),
        drop.told.name,
        plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=scale),
        _signed(found.drop, scale) + ("†" if found.drop.doubt else ""),
        _beyond(drop, scale),
        relative,
        ABSENT if math.isnan(found.p_holm) else f"{found.p_holm:.3f}",
        *content,
    )


def _beyond(drop: Drop, scale: float) -> str:
    """How much larger a drop is than the reference's, with the stars of tables."""
    if drop.beyond is None:
        return ABSENT
    return _signed(drop.beyond, scale) + stars(drop.beyond_p) + ("†" if drop.beyond.doubt else "")


def _signed(one: Estimate | Difference, scale: float) -> str:
    return ABSENT if math.isnan(one.value) else plus_minus(one.value, one.low, one.high, "{:+.1f}", scale)


def _drops_json(table: DropTable) -> dict[str, Any]:
    return {
        "base": table.base,
        "setting": table.setting,
        "seed": table.seed,
        "metric": table.metric,
        "mean_drop": table.average,
        "reference": table.reference,
        "methods": [
            {"method": row.method, "kind": row.kind, "formal": _number(row.formal), "styles": [_drop_json(drop) for drop in row.drops]}
            for row in table.rows
        ],
    }


def _drop_json(drop: Drop) -> dict[str, Any]:
    found = drop.found
    parts = {
        "answers_kept": _number(drop.answers_kept),
        "content_lost": _number(found.content_lost),
        "from_content": _number(found.from_content),
        "from_style": _number(found.from_style),
        "drop_where_survived": _number(found.drop_where_survived),
    }
    return {
        "style": drop.told.name,
        "formal_share": drop.told.formal,
        "drawn": drop.told.drawn,
        "value": _number(drop.value),
        "drop": _number(found.drop) | {"p_holm": plain(found.p_holm)},
        "relative_drop": plain(drop.relative),
        "beyond_reference": None if drop.beyond is None else _number(drop.beyond) | {"p_holm": plain(drop.beyond_p)},
        **(parts if drop.content_known else dict.fromkeys(parts)),
    }


def _number(one: Estimate | Difference) -> dict[str, Any]:
    value = {"value": plain(one.value), "low": plain(one.low), "high": plain(one.high), "n": one.n, "doubt": one.doubt}
    if isinstance(one, Difference):
        value |= {"p": plain(one.p), "wins": one.wins, "ties": one.ties, "losses": one.losses}
    return value


# -- curves --------------------------------------------------------------------------------------------------------


def curve(experiment: str | None, over: str, metrics: str | None, over_seeds: bool, folder: Path | None, as_json: bool) -> None:
    """Print methods against shares of formal candidates, or against k."""
    if over not in OVER:
        raise unknown_name("curve", over, OVER, where="--over")
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    found = style_curves(store, name, "formal" if over == "mix" else "k", metric_list(metrics), over_seeds=over_seeds)
    emit({"experiment": name, "curves": [_curve_json(table) for table in found]}, as_json, lambda: _show_curves(found))


def _show_curves(tables: Sequence[CurveTable]) -> None:
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(heads[table.metric], style="bold") + Text(f"  {table.title}"))
        places = [f"{100 * x:g} % formal" if table.over == "formal" else f"K={x:g}" for x in table.places]
        lines = []
        for one in table.curves:
            cells = [one.points.get(x) for x in table.places]
            values = [
                ABSENT if cell is None or math.isnan(cell.value) else plus_minus(cell.value, cell.low, cell.high, scale=table.scale)
                for cell in cells
            ]
            lines.append((one.method, *values, _signed(one.change, table.scale)))
        listing(("method", *places, "change"), lines, empty="no method was scored on this metric", keys=1)
        out.print()
    note = "values × 100 ± half their 95 % interval; change: the last minus the first of a line, paired by question"
    out.print(Text(note, style="dim"))


def _curve_json(table: CurveTable) -> dict[str, Any]:
    return {
        "over": table.over,
        "title": table.title,
        "metric": table.metric,
        "methods": [
            {"method": one.method, "points": [{"x": x, **_number(value)} for x, value in one.points.items()], "change": _number(one.change)}
            for one in table.curves
        ],
    }
