"""The page docs/speed.md: how seconds grow, what 21 million and a billion passages take, and every measured figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from methods.models import static
from perf.corpus import DIMENSION, WIKIPEDIA, fitted_at
from perf.growth import exponent
from perf.table import ROOT, Figure, figures, markdown, number
from results.boards.markup import to_markdown

PAGE = ROOT / "docs" / "speed.md"
SIZES = (WIKIPEDIA, 1_000_000_000)
USD_PER_HOUR = 0.10
"""Assumed price of the machine on which was measured; multiply the dollars for another price."""
_TEXT = """# Speed

This page shows what ragmeter measures about itself: how seconds grow with the data, what large corpora take, and every
figure of every benchmark, also those that miss their target. `python -m perf.table --page` writes it from the records in
`perf/measured`, so no figure is typed by hand. Run the command of a section to measure its figures again.

`make perf` runs the benchmarks that take seconds or minutes, prints the figures next to the stored ones, and exits with 1 if one
is worse by more than its noise. `python -m perf --long` adds those of full sizes, which take hours, and `--minutes 15` begins none
after a quarter of an hour; `--resume` continues. `--quick` takes smaller sizes and changes no records. Ratios, exponents and
memory carry over to other machines; seconds do not. A *times plain* of 2 means twice the seconds of the shortest program that
does the same. *overlap@10* is the share of the first ten passages that both rankings have in common.

## Growth

Exponent b of CPU seconds = a · size^b, fitted to the logarithms; 1 is linear.

{growth}
## What large corpora take

Lines fitted to the sizes of each step under [Corpus](#corpus), at most {measured} passages of 100 words, **extrapolated**: no size in this
table was measured. The rates are of {hardware}.
Hours are CPU seconds / 3600, and dollars are hours × ${price:.2f}, an assumed price for such a machine.
Vectors take passages × {dimension} numbers × 4 bytes (static: {static} numbers). Encoding uses the rate of {encoded}.

{arithmetic}
The bottlenecks are:

{bottlenecks}

While BM25 builds, it needs about twice the disk of its index. The line is a rough estimate of its memory, which grows unevenly with
the size: from {before:,} to {measured} passages, by {slope} MB per million. A query to vectors is for exact search; `hnsw` and
`ivfpq` do not read all vectors.

## Missed targets

{missed}
## Figures by benchmark
{sections}"""


@dataclass(frozen=True)
class Step:
    """Cost of one step at a number of passages: CPU hours, bytes on disk, peak MB; None if not measured."""

    name: str
    command: str
    hours: float
    disk: float | None
    memory: float | None

    def row(self) -> list[str]:
        """Return the step's table cells."""
        disk, memory = (None if value is None else value / 1024 for value in (self.disk, self.memory))
        cells = ["–" if value is None else f"{number(value)} GiB" for value in (disk, memory)]
        return [self.name, f"`{self.command}`", number(self.hours), number(self.hours * USD_PER_HOUR), *cells]


def steps(records: Mapping[str, Any], passages: int) -> Iterator[Step]:
    """Yield the steps of building and encoding a corpus, with their cost."""
    for name, title in (("build", "build the corpus"), ("bm25", "build the BM25 index")):
        part = records["corpus"][name]
        at = fitted_at(passages, _by_size(part))
        yield Step(title, part["command"], at["s of CPU"] / 3600, at["MB on disk"], at["MB"])
    for name, title, numbers in (
        ("torch float32", "encode with MiniLM, float32", DIMENSION),
        ("static", "encode with the static encoder", static.DIMENSION),
    ):
        part = records["backends"][name]
        yield Step(title, part["command"], passages * part["cpu_s"] / _encoded(part) / 3600, passages * numbers * 4 / 2**20, None)


def _encoded(part: Mapping[str, Any]) -> int:
    words = part["command"].split()
    return int(words[words.index("--passages") + 1])


def _by_size(part: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    return {int(size): values for size, values in sorted(part["measured"].items(), key=lambda item: int(item[0]))}


def page(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Render the documentation page on speed.

    Args:
        records: Records from `table.stored`, including `corpus`, `backends` and `growth`.
    """
    corpus = records["corpus"]
    bm25 = _by_size(corpus["bm25"])
    growth = [[name, f"`{part['command']}`", f"{part['value']:.2f}", _sizes(part["seconds"])] for name, part in records["growth"].items()]
    for name, unit in (("build", "s of CPU"), ("bm25", "s of CPU"), ("bm25 query", "ms a query")):
        by_size = {size: values[unit] for size, values in _by_size(corpus[name]).items()}
        growth.append([f"passages: {name}, {unit}", f"`{corpus[name]['command']}`", f"{exponent(by_size):.2f}", _sizes(by_size)])
    rows, bottlenecks = [], []
    for passages in SIZES:
        every = list(steps(records, passages))
        rows += [[f"{passages:,}", *step.row()] for step in every]
        for name in ("bm25 query", "search"):
            part = corpus[name]
            milliseconds = fitted_at(passages, _by_size(part))["ms a query"]
            title = {"bm25 query": "a BM25 query", "search": "a query to vectors (exact)"}[name]
            rows.append([f"{passages:,}", title, f"`{part['command']}`", f"{number(milliseconds / 1000)} s", "–", "–", "–"])
        slowest = max(every, key=lambda step: step.hours)
        largest = max(every, key=lambda step: step.memory or 0.0)
        bottlenecks.append(
            f"{passages:,} passages: the longest step is to {slowest.name} ({number(slowest.hours)} hours), the most memory takes to "
            f"{largest.name} ({number((largest.memory or 0.0) / 1024)} GiB)."
        )
    known = [figure for figure in figures(records).values() if figure.about["command"]]
    missed = [figure for figure in known if figure.missed]
    *_, before, last = sorted(bm25)
    return _TEXT.format(
        growth=to_markdown(("what grows", "command", "exponent", "measured"), growth, left=2),
        measured=f"{last:,}",
        before=before,
        slope=number((bm25[last]["MB"] - bm25[before]["MB"]) / (last - before) * 1e6),
        hardware=corpus["bm25"]["hardware"],
        price=USD_PER_HOUR,
        dimension=DIMENSION,
        static=static.DIMENSION,
        encoded=f"{_encoded(records['backends']['static'])} passages of worlds, the time of 100 questions included",
        arithmetic=to_markdown(("passages", "step", "command", "CPU hours", "dollars", "disk", "memory"), rows, left=3),
        bottlenecks="\n".join(f"- {line}" for line in bottlenecks),
        missed=markdown(missed, command=True) if missed else "None.\n",
        sections="".join(_sections(known)),
    )


def _sections(known: Sequence[Figure]) -> Iterator[str]:
    """Yield a section per record; in it, a table per command."""
    for record, own in groupby(known, key=lambda figure: figure.name.partition(": ")[0]):
        yield f"\n### {record.replace('_', ' ').capitalize()}\n"
        by_command: dict[tuple[str, ...], list[Figure]] = {}
        for figure in own:
            by_command.setdefault(tuple(figure.about[key] for key in ("command", "commit", "date", "hardware")), []).append(figure)
        for (command, commit, date, hardware), group in by_command.items():
            yield f"\n`{command}` ({commit[:8]}, {date}, {hardware})\n\n{markdown(group)}"


def _sizes(by_size: Mapping[Any, float]) -> str:
    return ", ".join(f"{int(size):,}: {number(value)}" for size, value in sorted(by_size.items(), key=lambda item: int(item[0])))
