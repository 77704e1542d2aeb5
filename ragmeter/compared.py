"""Two runs on one metric, question by question: is the second better than the first, and surely so?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.errors import UserError
from benchmarks.plurals import counted
from ragmeter import arguments
from ragmeter.frames import frame
from results import blessed, queries, question_queries, store_folder
from results.diff import Number, Setting, diff
from results.html_tables import to_html
from results.queries import RunRow
from results.statistics import Difference, Estimate
from results.store import Store
from results.tables import plus_minus

if TYPE_CHECKING:
    from pandas import DataFrame

QUESTION_COLUMNS = ("question", "text", "first", "second", "difference")


@dataclass(frozen=True)
class Compared:
    """A paired comparison; values and differences are fractions, as the store has them.

    Attributes:
        store: Where it was read.
        a, b: The runs; differences are b minus a.
        metric: The metric's id.
        higher_is_better: Its direction.
        first, second: Value of a and of b, each with its 95 % interval, over the questions it has a value on.
        paired: b minus a over the questions that both have a value on, with interval, p-value and counts.
        settings: What differs in how the two were made.
        scale: What values are multiplied by where they are shown.
    """

    store: Store
    a: RunRow
    b: RunRow
    metric: str
    higher_is_better: bool
    first: Estimate
    second: Estimate
    paired: Difference
    settings: tuple[Setting, ...]
    scale: float = 100.0

    @property
    def difference(self) -> float:
        """Mean of b minus a, question by question."""
        return self.paired.value

    @property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the difference; whole documents are resampled where questions share them."""
        return self.paired.low, self.paired.high

    @property
    def p(self) -> float:
        """Two-sided p-value of the difference by random sign flips; of this one metric, not corrected for others."""
        return self.paired.p

    @property
    def n(self) -> int:
        """Questions that both have a value on."""
        return self.paired.n

    @property
    def wins(self) -> int:
        """Questions on which b is better than a, in the metric's own direction."""
        return self.paired.wins if self.higher_is_better else self.paired.losses

    @property
    def ties(self) -> int:
        """Questions on which both score the same."""
        return self.paired.ties

    @property
    def losses(self) -> int:
        """Questions on which b is worse than a."""
        return self.paired.losses if self.higher_is_better else self.paired.wins

    def questions(self) -> DataFrame:
        """One row per question that both have a value on: question, text, first, second, difference (second - first).

        Raises:
            MissingPackage: pandas is not installed.
        """
        runs = [self.a.run, self.b.run]
        found = queries.score_columns(self.store, self.a.dataset_fingerprint, runs, [self.metric])
        texts = [row.text for row in question_queries.questions(self.store, self.a.dataset_fingerprint)]
        first, second = (found.values[run, self.metric] for run in runs)
        columns = (found.questions, texts, first, second, second - first)
        rows = frame(QUESTION_COLUMNS, dict(zip(QUESTION_COLUMNS, columns, strict=True)))
        return rows.dropna(subset=["difference"], ignore_index=True)

    def __repr__(self) -> str:
        return f"<{self._sentence()}>"

    def __str__(self) -> str:
        return self._sentence()

    def _repr_html_(self) -> str:
        """What a notebook shows; names are escaped."""
        rows = [
            (self.a.path, plus_minus(self.first.value, self.first.low, self.first.high, scale=self.scale)),
            (self.b.path, plus_minus(self.second.value, self.second.low, self.second.high, scale=self.scale)),
            ("difference", plus_minus(self.difference, *self.interval, "{:+.1f}", self.scale)),
            ("p", f"{self.p:.4f}"),
            ("wins / ties / losses", f"{self.wins} / {self.ties} / {self.losses}"),
        ]
        direction = "" if self.higher_is_better else "; less is better"
        notes = [f"difference: second minus first, paired over {counted(self.n, 'question')}{direction}"]
        notes += [f"† {self.paired.doubt}"] if self.paired.doubt else []
        return to_html(("", self.metric), rows, notes=notes)

    def _sentence(self) -> str:
        shown = plus_minus(self.difference, *self.interval, "{:+.1f}", self.scale)
        return (
            f"{self.metric}: {self.b.path} minus {self.a.path} = {shown}, p = {self.p:.4f}, "
            f"{counted(self.wins, 'win')}, {counted(self.ties, 'tie')}, {counted(self.losses, 'loss', 'losses')} of "
            f"{counted(self.n, 'question')}"
        )


@arguments.speaking_python
def compare(a: str | RunRow, b: str | RunRow, *, metric: str | None = None, store: str | os.PathLike[str] | None = None) -> Compared:
    """Is run b better than run a? The paired difference on one metric (as `ragmeter diff A B`).

    Args:
        a, b: Runs: a blessed name, the beginning of a fingerprint, a path (`experiment/method/dataset/setting/seed`, or
            a part of it that only one run has), or one of `Results.runs`.
        metric: Its id or the beginning of it (`f1`); None: the first that both were scored on.
        store: Folder of the store; None: RAGMETER_STORE, or ./ragmeter-store.

    Raises:
        UserError: There is no such run or metric, the two are about different questions, or share no scored one.
    """
    opened = Store(store_folder(arguments.folder(store, "store")))
    for name, given in (("a", a), ("b", b)):
        if not isinstance(given, str | RunRow):
            raise UserError(f"{given!r} is no run", where=name, try_this="a text that names one, or one of `runs`")
    metric = arguments.text(metric, "metric")
    first, second = (one if isinstance(one, RunRow) else blessed.find_run(opened, one) for one in (a, b))
    found = diff(opened, first, second, metrics=[metric] if metric else None, questions=0)
    if found.unpaired:
        raise UserError(found.unpaired, where=f"{first.path} and {second.path}", try_this="compare runs of one board")
    where = f"{first.path} and {second.path}"
    number = _chosen(found.numbers, metric, where)
    if number.first is None or number.second is None or number.difference is None:
        raise UserError(
            f"the two have no question with a value on {number.metric} in common",
            where=where,
            try_this="ragmeter resume, or another metric",
        )
    return Compared(
        opened,
        first,
        second,
        number.metric,
        number.higher_is_better,
        number.first,
        number.second,
        number.difference,
        found.settings,
        number.scale,
    )


def _chosen(numbers: tuple[Number, ...], metric: str | None, where: str) -> Number:
    """The number that was asked for; without a name, the first that both runs have."""
    if not numbers:
        raise UserError("neither run has been scored yet", where=where, try_this="ragmeter resume")
    if metric is not None and len(numbers) > 1:
        ids = ", ".join(one.metric for one in numbers)
        raise UserError(f"{metric!r} means {len(numbers)} metrics", where="metric", try_this=f"name one: {ids}")
    return numbers[0]
