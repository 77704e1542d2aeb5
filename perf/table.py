"""One table of all measured figures, their regressions, and the pages docs/speed.md and docs/results.md.

Figures are read from the records in `perf/measured`. `python -m perf` measures and compares with the committed records;
`python -m perf.table` does the same without measuring and `--page` writes the pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.measuring import say
from results.boards.markup import markdown_text, to_markdown

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "perf" / "measured"
HIGHER, LOWER = 1, -1
UNITS: Mapping[str, tuple[int, bool]] = {
    **dict.fromkeys(("x", "overlap@10", "ratio", "share"), (HIGHER, True)),
    **dict.fromkeys(("1/s", "rows/s", "MB/s", "triples/s", "records_per_s"), (HIGHER, False)),
    **dict.fromkeys(("times plain", "times_plain", "exponent", "MB", "MB on disk", "GiB", "worst_ratio", "limiter"), (LOWER, True)),
    **dict.fromkeys(("s", "ms", "cpu_s", "s of CPU", "ms a query", "us a row by id", "us a passage by id"), (LOWER, False)),
    **dict.fromkeys(("ms to open and find", "slower_s"), (LOWER, False)),
}
"""What is compared: which direction is better, and whether the figure carries over to other hardware."""
ALTERNATIVES = ("plain loop", "line_at_21015324", "seconds")
"""Parts of records that are no figures of ours: the alternatives, extrapolations, and what an exponent is fitted to."""
MARGIN = 0.1
"""Smallest relative change that counts as a regression, besides the spread of repetitions."""


@dataclass(frozen=True)
class Figure:
    """A measured value.

    Attributes:
        name: Names of the record and its parts, and the unit if the parts do not contain it.
        better: `HIGHER` or `LOWER`.
        carries_over: Whether it is comparable across hardware.
        target: Target value; None without one.
        about: The record's command, commit, date, hardware and Python.
    """

    name: str
    value: float
    unit: str
    better: int
    carries_over: bool
    target: float | None
    about: Mapping[str, str]

    @property
    def benchmark(self) -> str:
        """Return the name of the benchmark that measured it; empty if another command did."""
        words = self.about["command"].split()
        return words[2].removeprefix("perf.") if words[:2] == ["python", "-m"] else ""

    @property
    def missed(self) -> bool:
        """Return whether the target is missed."""
        return self.target is not None and self.better * (self.value - self.target) < 0

    def worse_than(self, before: Figure) -> float:
        """Return by which share of the earlier value this one is worse; negative if it is better."""
        return -self.better * (self.value - before.value) / abs(before.value) if before.value else 0.0


def figures(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    """Extract the figures of records, by name.

    Args:
        records: Records by name, as written by `measuring.record`.
    """
    every = (figure for record, parts in records.items() for part, value in parts.items() for figure in _within((record, part), value))
    return {figure.name: figure for figure in every}


def _within(path: tuple[str, ...], part: Mapping[str, Any]) -> Iterator[Figure]:
    about = {key: part.get(key) or "" for key in ("command", "commit", "date", "hardware", "python")}
    if "unit" in part and isinstance(part.get("value"), int | float):
        # A figure of `Bench`: its targets have the names of its arguments.
        unit = str(part["unit"]).partition(" ")[0]
        if unit in UNITS:
            better, carries_over = UNITS[unit]
            target = part.get("at_least" if better == HIGHER else "at_most")
            yield Figure(": ".join(path), part["value"], unit, better, carries_over, target, about)
        return
    targets = {key: value for key, value in part.items() if key.startswith("target") and value is not None}
    for keys, value in _leaves(part):
        known = [key for key in (*path, *keys) if key in UNITS]
        # Wall time follows the load of the machine; where CPU time is recorded too, that one is compared.
        if not known or keys[-1] == "s":
            continue
        unit = known[-1]
        better, carries_over = UNITS[unit]
        seconds = "s" if unit in ("cpu_s", "slower_s") else unit.replace(" ", "_")
        name = f"target_{seconds}"
        target = targets.get(name, targets.get("target") if unit in ("worst_ratio", "limiter") else None)
        yield Figure(": ".join((*path, *keys)), value, unit, better, carries_over, target, about)


def _leaves(part: Mapping[str, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    for key, value in part.items():
        if key in ALTERNATIVES or key.startswith("target") or key == "calls":
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, (*keys, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*keys, key), float(value)


def stored(folder: Path = MEASURED) -> dict[str, dict[str, Any]]:
    """Read the records of a folder, by name."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}


def committed() -> dict[str, dict[str, Any]]:
    """Read the records of the checked-out commit; without a git checkout, those of the folder."""
    git = ["git", "-C", str(ROOT)]
    tree = subprocess.run([*git, "ls-tree", "--name-only", "HEAD", "perf/measured/"], capture_output=True, text=True, check=False)
    if tree.returncode:
        return stored()
    results = {}
    for path in tree.stdout.split():
        shown = subprocess.run([*git, "show", f"HEAD:{path}"], capture_output=True, check=True)
        results[Path(path).stem] = json.loads(shown.stdout)
    return results


def regressed(before: Mapping[str, Figure], rounds: Sequence[Mapping[str, Figure]]) -> dict[str, str]:
    """Find the figures that are worse than before by more than their noise, with a description of the change.

    The median of the rounds is compared. Noise is their spread as a share of the earlier value, at least `MARGIN`. A
    figure is compared with one of the same command only, and one that depends on the machine with the same hardware and Python.

    Args:
        before: Figures to compare with.
        rounds: Figures of each repetition, at least one.
    """
    results = {}
    for name, old in before.items():
        values = sorted((part[name] for part in rounds if name in part), key=lambda figure: figure.value)
        if not values or not old.value or values[0].about["command"] != old.about["command"]:
            continue
        if not (old.carries_over or _machine(old) == _machine(values[0])):
            continue
        worse = values[len(values) // 2].worse_than(old)
        noise = max(MARGIN, (values[-1].value - values[0].value) / abs(old.value))
        if worse > noise:
            results[name] = f"{worse:.0%} worse, noise {noise:.0%}"
    return results


def _machine(figure: Figure) -> tuple[str, str]:
    return figure.about["hardware"], figure.about["python"]


def table(now: Iterable[Figure], before: Mapping[str, Figure], flags: Mapping[str, str]) -> str:
    """Render the table of figures with targets, earlier values and regressions."""
    rows = []
    for figure in now:
        old = before.get(figure.name)
        notes = [*(["MISSED"] if figure.missed else []), *([f"REGRESSED: {flags[figure.name]}"] if figure.name in flags else [])]
        earlier = "–" if old is None else number(old.value)
        rows.append((figure.name, number(figure.value), figure.unit, target_text(figure), earlier, "; ".join(notes)))
    heads = ("figure", "measured", "unit", "target", "stored", "")
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows))
    return "\n".join(lines)


def number(value: float) -> str:
    """Format a value with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def target_text(figure: Figure) -> str:
    """Format a figure's target with its direction."""
    return "–" if figure.target is None else f"{'≥' if figure.better == HIGHER else '≤'} {figure.target:g}"


def markdown(shown: Iterable[Figure], *, command: bool = False) -> str:
    """Render figures as a Markdown table; with `command`, including record and command."""
    rows = [
        (
            markdown_text(figure.name if command else figure.name.partition(": ")[2]),
            *([f"`{figure.about['command']}`"] if command else []),
            number(figure.value) + (" **missed**" if figure.missed else ""),
            markdown_text(figure.unit),
            target_text(figure),
        )
        for figure in shown
    ]
    return to_markdown(("figure", *(["command"] if command else []), "measured", "unit", "target"), rows, left=1 + command)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of stored figures, or write the pages; exit code 1 if a figure regressed."""
    from perf import page, results_page

    parser = argparse.ArgumentParser(prog="python -m perf.table", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/speed.md and docs/results.md from the stored figures")
    if parser.parse_args(argv).page:
        page.PAGE.write_text(page.page(stored()), "utf-8")
        results_page.PAGE.write_text(results_page.page(results_page.PAGE.read_text("utf-8")), "utf-8")
        return 0
    before, now = figures(committed()), figures(stored())
    flags = regressed(before, [now])
    say(table(now.values(), before, flags))
    return int(bool(flags))


if __name__ == "__main__":
    sys.exit(main())
