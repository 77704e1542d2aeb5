"""Format numbers and names on pages: × 100 with one decimal, a true minus sign, "–" for no value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from results.boards.published import Comparison
from results.boards.tables import minus, settled, symmetric
from results.store.cost_queries import Cost
from results.store.queries import NO_EXPERIMENT, RunRow

NOTHING = "–"
_NAMES = {"em": "EM", "f1": "F1", "mrr": "MRR", "map": "MAP", "ndcg": "nDCG", "cover_em": "cover EM"}
_DETAILS = (re.compile(r"#.*"), re.compile(r",as=\w+(?=[,)])"))
"""Details of a metric id that are left out if possible: its version, and the hash of a judge's options."""
_ID = re.compile(r"(?P<name>[^@(#]*)(?P<k>@\d+)?(?:\((?P<parameters>[^()]*)\))?(?:#v(?P<version>\d+)(?:-(?P<code>\w+))?)?")


@dataclass(frozen=True, slots=True)
class Scale:
    """Number format of a metric's values.

    Attributes:
        factor: Factor from a stored value to the displayed one, for example 100.
        decimals: Number of digits after the decimal point.
        difference_unit: Unit of a difference of two values, for example "pp".
    """

    factor: float
    decimals: int
    unit: str
    difference_unit: str

    def value(self, number: float | None) -> str:
        """Format a value, e.g. `61.2`."""
        if number is None or math.isnan(number):
            return NOTHING
        return _minus(f"{number:.3g}" if self._odd(number) else f"{settled(number * self.factor):.{self.decimals}f}")

    def interval(self, low: float | None, high: float | None) -> str:
        """Format an interval, e.g. `[57.1, 65.4]`."""
        if missing(low) or missing(high):
            return NOTHING
        return f"[{self.value(low)}, {self.value(high)}]"

    def around(self, value: float | None, low: float | None, high: float | None, *, signed: bool = False) -> str:
        """Format the interval around a value, e.g. `±4.1`, or `[94.6, 100.0]` if it is asymmetric; empty without an interval.

        Args:
            signed: Whether the value is a difference, so that both ends have a sign.
        """
        if value is None or low is None or high is None or missing(value) or missing(low) or missing(high):
            return ""
        if symmetric(value, low, high, self.factor, self.decimals):
            return f"±{self.value((high - low) / 2)}"
        return self.differences(low, high) if signed else self.interval(low, high)

    def difference(self, number: float | None) -> str:
        """Format a difference with its sign, e.g. `+3.1`."""
        if number is None or math.isnan(number):
            return NOTHING
        text = f"{number:+.3g}" if self._odd(number) else f"{settled(number * self.factor):+.{self.decimals}f}"
        return text[1:] if float(text) == 0 else _minus(text)

    def _odd(self, number: float) -> bool:
        """Return whether fixed decimals would round a plain number to zero or show too many digits."""
        return self.factor == 1 and number != 0 and not 0.05 <= abs(number) < 1e6

    def differences(self, low: float | None, high: float | None) -> str:
        """Format an interval of differences, e.g. `[+0.4, +5.8]`."""
        if missing(low) or missing(high):
            return NOTHING
        return f"[{self.difference(low)}, {self.difference(high)}]"


PERCENT = Scale(100.0, 1, "× 100", "points × 100")
PLAIN = Scale(1.0, 2, "as is", "as is")


def missing(number: float | None) -> bool:
    """Return whether a number is None or NaN."""
    return number is None or math.isnan(number)


def unscored(count: int, query: int) -> str:
    """Format the share of questions that a judge gave no value, e.g. `2 % unscored`; empty if there is none.

    Args:
        count: Number of questions without a value because a verdict is missing.
        query: Number of all questions, including those.
    """
    if not count:
        return ""
    share = 100 * count / query
    shown = "under 1" if share < 1 else "over 99" if 99 < share < 100 else f"{share:.0f}"
    return f"{shown} % unscored"


def metric_name(identifier: str, among: Collection[str] = ()) -> tuple[str, str]:
    """Split a metric id into display name and parameters: `f1(rules=hotpotqa)#v1` becomes `F1` and `rules=hotpotqa`.

    Args:
        among: Ids of the metrics shown; version and hash of options are left out if they distinguish none of them. Empty: they are
            never left out.
    """
    others = [other for other in among if other != identifier]
    for detail in _DETAILS if among else ():
        short, shorter = detail.sub("", identifier), [detail.sub("", other) for other in others]
        if short not in shorter:
            identifier, others = short, shorter
    match = _ID.fullmatch(identifier)
    if not match:
        return identifier, ""
    name = match["name"].rstrip()
    version = f"version {match['version']}" if match["version"] not in (None, "1") else ""
    code = f"code {match['code']}" if match["code"] else ""
    details = ", ".join(part for part in ((match["parameters"] or "").replace(",", ", "), version, code) if part)
    return _NAMES.get(name, name.replace("_", " ")) + (match["k"] or ""), details


def metric_label(identifier: str, among: Collection[str] = ()) -> str:
    """Format a metric id as one label, e.g. `F1 (rules=hotpotqa)`; `among` is as for `metric_name`."""
    name, details = metric_name(identifier, among)
    return f"{name} ({details})" if details else name


def p_value(p: float | None) -> str:
    """Format a p-value, e.g. `p = .012` or `p < .001`."""
    if missing(p):
        return NOTHING
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)  # type: ignore[operator]


def count(number: float | None) -> str:
    """Format a mean count: whole numbers from 10 on, one decimal below, with thousands separators."""
    if missing(number):
        return NOTHING
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"  # type: ignore[operator,arg-type]


def seconds(number: float | None, *, milliseconds: bool = False) -> str:
    """Format a time as seconds with three significant digits, or as milliseconds with one decimal."""
    if missing(number):
        return NOTHING
    if milliseconds:
        return f"{number * 1000:,.1f}"  # type: ignore[operator]
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"  # type: ignore[operator]


def dollars(number: float | None) -> str:
    """Format US dollars, with more digits for amounts below one cent."""
    if missing(number):
        return NOTHING
    return "0" if number == 0 else f"{number:,.2f}" if number >= 0.1 else f"{number:.4f}"  # type: ignore[operator]


def duration(seconds_spent: float) -> str:
    """Format a short time with its unit, e.g. `0.4 ms`, `12 ms`, `3.4 s`."""
    if seconds_spent < 1:
        return f"{seconds_spent * 1000:.{0 if seconds_spent >= 0.01 else 1}f} ms"
    return f"{seconds_spent:.3g} s"


def waited(seconds_spent: float) -> str:
    """Format a time that totals do not include, to append it to a list of times; empty if there is none."""
    return f"; not counted: {duration(seconds_spent)} of waiting" if seconds_spent else ""


def percentiles(cost: Cost | None, write: Callable[[float], str] = duration) -> str:
    """Format the 50th and 95th percentiles of the seconds per question as `p50–p95 0.2–1.4`; empty if unknown."""
    if cost is None or missing(cost.seconds_p50):
        return ""
    return f"p50–p95 {write(cost.seconds_p50)}–{write(cost.seconds_p95)}"


def span(seconds_left: float) -> str:
    """Format a duration from seconds to days in its two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `1 d 4 h`."""
    left = max(0, round(seconds_left))
    for size, unit, below, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if left >= size:
            rest = left % size // below
            return f"{left // size:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


def _minus(text: str) -> str:
    if "-" not in text:
        return text
    return minus(text) if float(text) != 0 else text.replace("-", "")


def parameters(number: int | None) -> str:
    """Format a number of model parameters, e.g. `7.2 B` or `110 M`."""
    if number is None:
        return NOTHING
    if number == 0:
        return "no model"
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,}"


def weights(are_open: bool | None, number: int | None) -> str:
    """Say whether a method's weights are open; empty if that is unknown or it has none."""
    return "" if are_open is None or number == 0 else "open weights" if are_open else "closed weights"


def published(item: Comparison, scale: Scale) -> str:
    """Format a published figure next to ours, e.g. `GPR 57.1, gap −2.0, other setting`."""
    gap = "" if item.gap is None else f", gap {scale.difference(item.gap)}"
    return f"{item.figure.paper.upper()} {item.figure.value}{gap}, {item.status}"


def published_tip(item: Comparison) -> str:
    """Return hover text for a published figure: paper, table, and how its setting differs from ours."""
    differs = f" What differs: {'; '.join(map(str, item.differs))}." if item.differs else ""
    return f"Published: {item.figure.source} prints {item.figure.value} {item.figure.unit}; {item.status}.{differs}"


ALL_RUNS = "*"
"""Choice of all runs in the store, where experiments can be chosen."""
MAIN = "main"
_MOST = 5
"""Maximum columns of the main family."""
_FALLBACK = ("f1", "em", "recall@5", "ndcg@10")


def board_key(run: RunRow) -> str:
    """Return a board's key in URLs: readable, and unique by the beginning of the fingerprint."""
    return f"{run.dataset}~{run.setting}~{run.seed}~{run.dataset_fingerprint[:8]}"


def board_label(runs: Sequence[RunRow]) -> str:
    """Return a board's display name: dataset, setting and seed."""
    first = runs[0]
    return f"{first.dataset} · {first.setting} · seed {first.seed}"


def question_address(prefix: str, baseline: RunRow, candidate: RunRow, metric: str, question: str) -> str:
    """Return the URL of a question's page below `prefix` (without a slash at its end), comparing baseline and candidate."""
    experiment = candidate.experiment if candidate.experiment == baseline.experiment != NO_EXPERIMENT else ALL_RUNS
    pair = ",".join(dict.fromkeys((baseline.run, candidate.run)))
    view = {"experiment": experiment, "board": board_key(candidate), "metric": metric, "question": question, "runs": pair}
    return f"{prefix}/questions?{urlencode(view)}"


def families(metrics: Sequence[str], definitions: Mapping[str, Mapping[str, Any]], official: Sequence[str]) -> dict[str, list[str]]:
    """Group metrics by family for a selector: the main metrics first, then each registered group, then all.

    Args:
        official: The dataset's official metrics, the main one first. If the board lacks the main one, the experiment's order is
            used.
    """
    if official and not any(_same(metric, official[0]) for metric in metrics):
        official = metrics
    main = [metric for wanted in official for metric in metrics if _same(metric, wanted)]
    main += [metric for wanted in _FALLBACK for metric in metrics if _same(metric, wanted, loosely=True)]
    groups: dict[str, list[str]] = {}
    for metric in metrics:
        groups.setdefault(group_of(metric, definitions), []).append(metric)
    chosen = list(dict.fromkeys(main or metrics))[:_MOST]
    return {MAIN: chosen, **{name: ids for name, ids in groups.items() if name not in (MAIN, "all")}, "all": [*metrics]}


def group_of(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the name of a metric's group."""
    return str(definitions.get(metric, {}).get("group") or "other")


def scale_of(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Scale:
    """Return the number format of a metric's values."""
    return PLAIN if definitions.get(metric, {}).get("unit") == "number" else PERCENT


def higher_is_better(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a larger value of a metric is better."""
    return bool(definitions.get(metric, {}).get("higher_is_better", True))


def explanation(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a metric's full id and definition, as hover text."""
    known = definitions.get(metric)
    if not known:
        return metric
    direction = "Higher is better." if known["higher_is_better"] else "Lower is better."
    return f"{metric} — {known['definition']} {direction} Source: {known['source']}"


def _same(metric: str, wanted: str, *, loosely: bool = False) -> bool:
    """Return whether an id matches the wanted one, which may omit the version (loosely: also parameters)."""
    short = metric.partition("#")[0]
    return wanted in (metric, short) or (loosely and short.partition("(")[0] == wanted)
