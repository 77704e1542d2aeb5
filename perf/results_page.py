"""The page docs/results.md, from the records in `perf/measured`: one row per claim, negative results included."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from perf.table import MEASURED, ROOT
from results.boards.markup import markdown_text, to_markdown
from results.boards.tables import plus_minus, stars

PAGE = ROOT / "docs" / "results.md"
SECTIONS = {
    "ark": "ARK",
    "gpr": "GPR",
    "sark": "SARK",
    "clara": "CLaRa",
    "rerankers": "Rerankers",
    "compressors": "Compressors",
    "graph-rag": "Graph RAG",
    "end-to-end": "End-to-end",
    "pocket": "The pocket model",
}
"""Headings by the section that a record names."""
OF_APPROACH = {"ARK": "ark", "GPR": "gpr", "SARK": "sark", "CLaRa": "clara"}
"""Sections of rows of `gains.json`; those of other systems are end-to-end."""
HEADS = ("claim", "metric", "value", "sample", "command")
MARK = "<!-- `python -m perf.table --page` writes the rest of this page. -->\n"
DIGITS = {"points": 1, "times": 1, "clusters": 0, "": 2}
"""Digits of a claim's value, by its unit."""
UNITS = {"clusters": " clusters", "times": "×"}


def page(introduction: str) -> str:
    """Return the page: its text up to the mark, then the tables.

    Raises:
        ValueError: The text has no mark.
    """
    rows: dict[str, list[tuple[str, ...]]] = {section: [] for section in SECTIONS}
    for section, row in (*gains(), *claims()):
        rows[section].append(row)
    parts = []
    for section, title in SECTIONS.items():
        sentences = [f"{sentence}\n" for sentence in real_text(section)]
        parts.append("\n".join((f"## {title}\n", *sentences, to_markdown(HEADS, rows[section], left=len(HEADS)))))
    kept = introduction[: introduction.index(MARK)] + MARK
    return "\n".join([kept, *parts, f"## Statistics\n\n{simulations()}"])


def gains(records: Mapping[str, Any] | None = None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield rows of what approaches gain over their base and over the strongest baseline, with their sections."""
    for name, part in (read("gains") if records is None else records).items():
        for row in part["rows"]:
            section = section_of(name, row)
            state = "not recomputed" if row["beats"] is None else "beats its base" if row["beats"] else ""
            common = (row["metric"], row["asked"], part)
            yield section, line(row["approach"], row["value"], row["scale"], *common, state)
            sides = {"base": row["base"], "strongest baseline": row["strongest"]}
            if row["strongest"] and row["strongest"]["method"] == row["base"]["method"]:
                sides = {"base and strongest baseline": row["base"]}
            for name, other in sides.items():
                if other and other.get("value") is not None:
                    yield section, line(f"{row['approach']} minus its {name}, {other['method']}", other, row["scale"], *common, "")


def section_of(name: str, row: Mapping[str, Any]) -> str:
    """Return the section of a row: that of its experiment's folder, else that of its approach."""
    folder = name.partition("/")[0]
    return folder if folder in SECTIONS else OF_APPROACH.get(row["approach"], "end-to-end")


def real_text(section: str, records: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield a sentence per comparison of an experiment that names its positive control, on what it showed."""
    parts = read("gains") if records is None else records
    # A profile may measure a better control for the same questions and metric.
    controls: dict[tuple[str, ...], dict[str, Any]] = {}
    for name, part in parts.items():
        for row in part["rows"] if "control" in part else ():
            key = _compared(name, row)
            if row["approach"] == part["control"] and (key not in controls or _better(row)):
                controls[key] = {**row, "command": part["command"]}
    for name, part in parts.items():
        for row in part["rows"] if "control" in part else ():
            if row["approach"] == part["control"] or section_of(name, row) != section or row["base"]["value"] is None:
                continue
            base, control = row["base"], controls.get(_compared(name, row))
            effect = "Significant difference" if _significant(base) else "No effect shown"
            shown = interval(base, row["scale"], signed=True, digits=1 if row["scale"] > 1 else 2)
            least = base.get("detectable")
            reach = "" if least is None else f"; minimum detectable difference {least * row['scale']:.1f} (80 % power)"
            text = f"{row['approach']} minus {base['method']}, {row['asked']}: {shown}{reach}. {_detected(control)}"
            other = "" if control is None or control["command"] == part["command"] else f" Command of the control: `{control['command']}`."
            yield f"{effect} in `{row['metric']}` (`{part['command']}`). {markdown_text(text)}{other}"


def _significant(difference: Mapping[str, Any]) -> bool:
    return difference["p_holm"] is not None and bool(stars(difference["p_holm"]))


def _better(row: Mapping[str, Any]) -> bool:
    """Return whether a row is significantly better than its base."""
    value = row["base"]["value"]
    return value is not None and _significant(row["base"]) and (value < 0 if row.get("lower_is_better") else value > 0)


def _compared(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key that a comparison shares with its control: experiment, questions and metric."""
    return name.partition(" ")[0], row["asked"], row["metric"]


def _detected(control: Mapping[str, Any] | None) -> str:
    """Return whether an experiment found the gain of its positive control."""
    if control is None or control["base"]["value"] is None:
        return "No positive control was measured; the result is no evidence against an effect."
    shown = interval(control["base"], control["scale"], signed=True)
    if _better(control):
        return f"The positive control is detected: {shown}."
    return f"The positive control is not detected ({shown}); the result is no evidence against an effect."


def line(
    claim: str, value: Mapping[str, Any], scale: float, metric: str, sample: str, part: Mapping[str, Any], state: str
) -> tuple[str, ...]:
    """Return a row of a table."""
    mark = stars(value["p_holm"]) if value.get("p_holm") is not None else ""
    shown = " ".join(filter(None, (interval(value, scale, signed="minus" in claim, digits=1 if scale > 1 else 2), markdown_text(mark))))
    return (markdown_text(claim), f"`{metric}`", shown, markdown_text(", ".join(filter(None, (sample, state)))), f"`{part['command']}`")


def claims() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield rows of other claims, with their sections."""
    for part in read("claims").values():
        for claim in part["claims"]:
            unit = UNITS.get(claim["unit"], "")
            value = interval(claim, 1.0, signed=" minus " in claim["claim"], digits=DIGITS[claim["unit"]])
            sizes = (("n", "questions"), ("clusters", "clusters"), ("seeds", "training seeds"))
            parts = [f"{claim[key]:,} {name if claim[key] != 1 else name[:-1]}" for key, name in sizes if claim[key]]
            sample = ", ".join(parts) + (f". {part['note']}" if part["note"] else "")
            shown = " ".join(filter(None, (value + unit, markdown_text(claim["mark"]))))
            texts = (markdown_text(claim["claim"]), f"`{claim['metric']}`", shown, sample)
            yield part["section"], (*texts, f"`{part['command']}`")


def simulations() -> str:
    """Return the table of the statistics' simulated error rates."""
    rows = []
    for name, part in (read("verdicts") | read("coverage")).items():
        for row in part["situations"]:
            rates = {key: value for key, value in row.items() if isinstance(value, float)}
            texts = (f"{key.replace('_', ' ')} {100 * value:.1f} %" for key, value in sorted(rates.items()))
            rows.append((name, markdown_text(row["situation"]), ", ".join(texts), f"`{part['command']}`"))
    return to_markdown(("simulation", "situation", "share of samples", "command"), rows, left=4)


def interval(value: Mapping[str, Any], scale: float, *, signed: bool, digits: int = 1) -> str:
    """Return a value with its interval."""
    middle, low, high = (math.nan if value[key] is None else value[key] for key in ("value", "low", "high"))
    return plus_minus(middle, low, high, f"{{:{'+' if signed else ''}.{digits}f}}", scale)


def read(name: str) -> dict[str, Any]:
    """Return a record."""
    return dict(json.loads((MEASURED / f"{name}.json").read_text("utf-8")))
