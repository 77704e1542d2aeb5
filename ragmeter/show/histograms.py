"""Length distributions as pictures: bars in a terminal, or a chart in a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.core.errors import MissingPackage, UserError, unwritable
from benchmarks.verify import Distribution

FORMATS = (".html", ".svg", ".png")
BAR = 40
_TERMINAL_BINS = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def draw(distributions: Mapping[str, Distribution], console: Console) -> None:
    """Draw a histogram of each distribution in a terminal."""
    for name, distribution in distributions.items():
        console.print(Text(name, style="bold"))
        bins = distribution.histogram(_TERMINAL_BINS)
        most = max((count for _, _, count in bins), default=1)
        labels = [_label(low, high) for low, high, _ in bins]
        width = max(map(len, labels), default=0)
        for label, (_, _, count) in zip(labels, bins, strict=True):
            console.print(Text(f"{label:>{width}} ") + Text(_bar(count / most), style="cyan") + Text(f" {count:,}"))


def _label(low: float, high: float) -> str:
    first, last = -int(-low // 1), -int(-high // 1) - 1
    return f"{first:,}" if first >= last else f"{first:,}–{last:,}"


def _bar(share: float) -> str:
    eighths = round(share * BAR * 8)
    # What is there is seen, however little it is.
    eighths = max(eighths, 1) if share else 0
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def check(path: Path) -> None:
    """Check that a chart can be written to a file with this extension.

    Raises:
        UserError: The format is not supported.
        MissingPackage: Altair is not installed, or for SVG and PNG its renderer.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(
            f"a chart is written as {', '.join(FORMATS)}, not as {path.suffix or 'a file without a suffix'}",
            code="unknown-chart-format",
            where=f"--output {path}",
            try_this="--plot draws here",
        )
    if importlib.util.find_spec("altair") is None:
        raise MissingPackage("altair", "leaderboard", f"--output {path}")
    if path.suffix.lower() != ".html" and importlib.util.find_spec("vl_convert") is None:
        raise UserError(
            f"altair needs the package 'vl-convert-python' to write {path.suffix}",
            code="missing-vl-convert",
            where=f"--output {path}",
            try_this=f"--output {path.with_suffix('.html')}, --plot, or pip install vl-convert-python",
        )


def save(distributions: Mapping[str, Distribution], title: str, path: Path) -> None:
    """Write a chart with a histogram of each distribution to a file.

    Raises:
        UserError: The file cannot be written; also the errors of `check`.
    """
    check(path)
    import altair

    charts: list[Any] = []
    for name, distribution in distributions.items():
        values = [{"from": low, "to": high, "count": count} for low, high, count in distribution.histogram()]
        base = altair.Chart(altair.Data(values=values), title=name, width=420, height=110)
        charts.append(
            base.mark_bar().encode(
                x=altair.X("from:Q", bin="binned", title=None),
                x2="to:Q",
                y=altair.Y("count:Q", title=None),
                tooltip=["from:Q", "to:Q", "count:Q"],
            )
        )
    try:
        altair.vconcat(*charts, title=title).save(str(path))
    except OSError as error:
        raise unwritable(error, path, what="the chart") from error
