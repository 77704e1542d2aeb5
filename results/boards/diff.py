"""Compare two runs: their configurations and their scores.

Settings of any two runs can be compared, but numbers only over the same questions, paired by question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from results.boards.contamination import read_lines
from results.boards.folded import folded_columns
from results.boards.health import run_lines
from results.boards.markup import plain
from results.boards.names import base_name
from results.boards.primary import of_metrics, primary_of
from results.boards.series import side_by_side
from results.boards.sides import sides
from results.boards.tables import labels, primary_comparison, primary_metric
from results.boards.unread import bounds_of_rows, range_of_metric, without_incomplete
from results.statistics.core import Difference, Estimate
from results.statistics.difference import compared
from results.statistics.intervals import described, estimate, family
from results.store import answer_queries, queries, score_queries
from results.store.answer_queries import AnswerRow, QuestionRow
from results.store.checkpoints import known_checkpoints
from results.store.doubts import doubts
from results.store.drift import drift
from results.store.queries import RunRow
from results.store.score_queries import Columns
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Setting:
    """One key whose value differs between the configurations of two runs.

    Attributes:
        key: Path of the key, for example `description.reader.config.model` or `description.rerankers[0].id`.
        first, second: The JSON value in each run; None if the key is missing or null.
        in_first, in_second: Whether the run has the key.
    """

    key: str
    first: Any
    second: Any
    in_first: bool = True
    in_second: bool = True

    @property
    def one_sided(self) -> bool:
        """Return whether the key is missing or null in one of the two runs."""
        return self.first is None or self.second is None


@dataclass(frozen=True, slots=True)
class Number:
    """Scores of two runs on one metric, with the paired difference.

    Attributes:
        metric: Id of the metric.
        first, second: Mean score of each run with its interval; None if the run was not scored on the metric.
        difference: Second minus first, over the questions that both runs scored; None if there are none.
        p_holm: Its p-value, Holm-corrected over the metrics shown.
        higher_is_better: False if lower is better.
        scale: Factor for displaying values.
    """

    metric: str
    first: Estimate | None
    second: Estimate | None
    difference: Difference | None
    p_holm: float | None
    higher_is_better: bool
    scale: float = 100.0

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; a positive difference means that the second run is higher."""
        result = None
        if self.difference is not None:
            named = {"wins": "higher", "ties": "equal", "losses": "lower"}
            result = {named.get(key, key): value for key, value in asdict(self.difference).items()} | {"p_holm": self.p_holm}
        return {
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "first": None if self.first is None else asdict(self.first),
            "second": None if self.second is None else asdict(self.second),
            "difference": result,
        }


@dataclass(frozen=True, slots=True)
class Apart:
    """Question on which two runs score differently, with both answers."""

    question: QuestionRow
    first_value: float
    second_value: float
    first: AnswerRow
    second: AnswerRow

    @property
    def sides(self) -> tuple[tuple[str, float, AnswerRow], ...]:
        """Return the name, score and answer of each run."""
        return ("first", self.first_value, self.first), ("second", self.second_value, self.second)

    def to_json(self) -> dict[str, Any]:
        """Return the question with both answers and scores as a JSON object."""
        answers = {
            side: {"value": value, "answer": row.answer, "failed": row.failed, "evidence": [item.id for item in row.evidence]}
            for side, value, row in self.sides
        }
        return {"question": self.question.question, "text": self.question.text, "golds": list(self.question.golds)} | answers


@dataclass(frozen=True, slots=True)
class Diff:
    """Comparison of two runs: configuration, metrics, and the questions on which they differ most.

    Attributes:
        first, second: The two runs; differences are second minus first.
        settings: Keys on which the configurations differ.
        unpaired: Why the runs cannot be compared question by question; None if they can.
        numbers: Results by metric; metrics that both runs have come first.
        by: The metric that `questions` are sorted by; None if the runs are not paired.
        questions: Questions with the largest differences, largest first.
        apart: Number of questions on which the scores differ, on that metric.
        drift: Endpoints whose model version differs between the runs.
        doubts: Warnings about code of unknown version (equal settings need not mean equal code), and how the answers came about.
        read: Sentences about test questions in either side's training data with the scores without them, or that this is
            unknown.
        first_runs, second_runs: Paths of all runs on each side: repeats, and seeds if requested.
        primary: Lines about the declared primary metric and comparison, or about the error probability of stars on several
            metrics.
    """

    first: RunRow
    second: RunRow
    settings: tuple[Setting, ...]
    unpaired: str | None
    numbers: tuple[Number, ...]
    by: str | None
    questions: tuple[Apart, ...]
    apart: int
    drift: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    first_runs: tuple[str, ...] = ()
    second_runs: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions; None means "no value"."""
        settings = [
            {
                "key": setting.key,
                **({"first": setting.first} if setting.in_first else {}),
                **({"second": setting.second} if setting.in_second else {}),
            }
            for setting in self.settings
        ]
        return {
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "settings": settings,
            "drift": list(self.drift),
            "doubts": list(self.doubts),
            "questions_read": list(self.read),
            "first_runs": list(self.first_runs),
            "second_runs": list(self.second_runs),
            "primary": list(self.primary),
            "paired": self.unpaired is None,
            "unpaired_because": self.unpaired,
            "metrics": [plain(number.to_json()) for number in self.numbers],
            "by": self.by,
            "questions_apart": self.apart,
            "questions": [question.to_json() for question in self.questions],
        }


def diff(
    store: Store, first: RunRow, second: RunRow, *, metrics: Sequence[str] | None = None, questions: int = 5, over_seeds: bool = False
) -> Diff:
    """Compare two runs: their configurations, their scores, and the questions on which they differ most.

    Args:
        store: The store to read.
        first, second: The two runs; other repeats of each in the same experiment are included.
        metrics: Ids to show, or their beginnings; None shows all metrics that either run was scored on.
        questions: Number of questions with the largest differences to show.
        over_seeds: Whether the other trainings of each method in its experiment count, too.

    Raises:
        UserError: Neither run was scored on one of the metrics.
    """
    runs = [first.run, second.run]
    shown = score_queries.named_metrics(store, runs, metrics) if metrics else score_queries.metric_ids(store, runs)
    reason = why_unpaired(first, second)
    members = side_by_side(store, list({run.run: run for run in (first, second)}.values()), over_seeds)
    numbers, by, deltas = _numbers(store, (first, second), members, shown, paired=reason is None)
    most: list[Apart] = []
    if by is not None and questions:
        most = _most_apart(store, first, second, by, deltas, questions)
    return Diff(
        first,
        second,
        tuple(settings_of(first, second)),
        reason,
        tuple(numbers),
        by,
        tuple(most),
        sum(1 for a, b in deltas.values() if a != b),
        tuple(drift(store, first, second)),
        (*doubts(first, second), *run_lines(store, {"first": first, "second": second})),
        tuple(read_lines(store, [first, second], shown, ("first", "second"), members)),
        first_runs=tuple(run.path for run in members[first.run]),
        second_runs=tuple(run.path for run in members[second.run]),
        primary=tuple(_primary(store, first, second, numbers)),
    )


def _primary(store: Store, first: RunRow, second: RunRow, numbers: Sequence[Number]) -> list[str]:
    """Return the primary metric and comparison of the runs' experiment, or the error probability of marks on several metrics.

    An earlier execution is in no experiment: then that of the other run counts. Two executions of one method are compared on its primary
    metric, as a gate does.
    """
    tested = {number.metric: number for number in numbers if number.difference is not None}
    named = sorted({first.experiment, second.experiment} - {queries.NO_EXPERIMENT})
    stored = queries.experiment(store, named[0]) if len(named) == 1 else None
    declared = primary_of(stored) if stored else None
    metric = declared.of(tuple(number.metric for number in numbers)) if declared else None
    if declared is None or stored is None or metric is None:
        starred = sum(number.p_holm is not None and number.p_holm <= 0.05 for number in tested.values())
        return [of_metrics(starred, len(tested))] if starred > 1 else []
    lines = [primary_metric(labels([number.metric for number in numbers])[metric])]
    names = [base_name(run.method) for run in (first, second)]
    if metric in tested and (difference := tested[metric].difference) is not None:
        pair = {names[0]} if first.experiment != second.experiment else set()
        if stored.reference is not None and names[0] != names[1]:
            method = declared.row(queries.runs(store, named[0])) or next(name for name in names if name != base_name(stored.reference))
            pair = {base_name(method), base_name(stored.reference)}
        if pair == set(names):
            lines.append(primary_comparison(f"second minus first on {metric}", difference, tested[metric].scale))
    return lines


def why_unpaired(first: RunRow, second: RunRow) -> str | None:
    """Explain why two runs cannot be compared question by question; None if they have the same questions."""
    if first.dataset_fingerprint == second.dataset_fingerprint:
        return None
    if first.dataset != second.dataset:
        return f"the runs used different data, {first.dataset} and {second.dataset}"
    if first.questions != second.questions:
        return f"the runs are about different questions of {first.dataset}, {first.questions} and {second.questions}"
    return f"the content of {first.dataset} is not the same for both (another version, file or option)"


def settings_of(first: RunRow, second: RunRow) -> list[Setting]:
    """List the differences in benchmark, method, provenance and environment of two runs; keys that only one run has come last."""
    return sorted(differing(_made(first), _made(second)), key=lambda setting: setting.one_sided)


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Setting]:
    """Return the differences between two JSON objects by nested key, in the first one's order."""
    return list(_differing(first, second, ""))


def _made(run: RunRow) -> dict[str, Any]:
    return {
        "dataset": run.dataset,
        "dataset_fingerprint": run.dataset_fingerprint,
        "questions": run.questions,
        "setting": run.setting,
        "seed": run.seed,
        "kind": run.kind,
        "origin": run.origin,
        "status": run.status,
        "description": run.description,
        "provenance": run.provenance,
        "environment": run.environment,
        "card": run.card or {},
    }


def _differing(first: Any, second: Any, key: str) -> Iterator[Setting]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys((*first, *second)):
            inner = f"{key}.{name}" if key else str(name)
            if name in first and name in second:
                yield from _differing(first[name], second[name], inner)
            else:
                yield Setting(inner, first.get(name), second.get(name), name in first, name in second)
    elif isinstance(first, list) and isinstance(second, list) and _nested(first, second):
        for position in range(max(len(first), len(second))):
            inner = f"{key}[{position}]"
            if position < len(first) and position < len(second):
                yield from _differing(first[position], second[position], inner)
            elif position < len(first):
                yield Setting(inner, first[position], None, in_second=False)
            else:
                yield Setting(inner, None, second[position], in_first=False)
    elif first != second or isinstance(first, bool) != isinstance(second, bool):
        yield Setting(key, first, second)


def _nested(first: list[Any], second: list[Any]) -> bool:
    """Return whether lists contain objects, which are compared element by element; plain lists are shown whole."""
    return any(isinstance(item, Mapping | list) for item in (*first, *second))


def _numbers(
    store: Store, both_runs: tuple[RunRow, RunRow], members: Mapping[str, list[RunRow]], metrics: Sequence[str], *, paired: bool
) -> tuple[list[Number], str | None, dict[str, tuple[float, float]]]:
    """Return numbers by metric, the metric that sorts the questions, and both values of each question on it."""
    definitions = score_queries.definitions(store)
    shown_of: list[dict[str, Estimate]] = []
    columns: list[dict[str, Any]] = []
    clusters, names = None, []
    first, second = both_runs
    for run in both_runs:
        every = members[run.run]
        result = score_queries.score_columns(store, run.dataset_fingerprint, [one.run for one in every], metrics, {run.experiment})
        if len(every) > 1:
            result = _as_one(folded_columns(result, every, metrics)[0], every[0].run, run.run)
        names, clusters = result.questions, result.sampled.labels
        own = [metric for metric in metrics if (run.run, metric) in result.values]
        ranges = [range_of_metric(definitions.get(metric, {})) for metric in own]
        values = [estimate(result.values[run.run, metric], clusters=clusters, metric=of) for metric, of in zip(own, ranges, strict=True)]
        # Questions without a row (not answered yet, or not scored on this metric) are not unscorable.
        bounds = bounds_of_rows(store, result, {run.run: every}, definitions)
        hidden = {metric for (_, metric), item in bounds.items() if item.incomplete}
        shown = ((m, without_incomplete(v, bounds.get((run.run, m)))) for m, v in zip(own, values, strict=True))
        shown_of.append({m: replace(v, unscorable=result.unscorable[run.run, m]) for m, v in shown})
        columns.append({metric: result.values[run.run, metric] for metric in own if metric not in hidden})
    item, two = columns
    both = [metric for metric in metrics if metric in item and metric in two] if paired else []
    differences: dict[str, Difference] = {}
    corrected: dict[str, float] = {}
    if both:
        # If the runs state different clusters, these are known only from both together.
        ids, shared = [run.run for side in members.values() for run in side], {first.experiment, second.experiment}
        result = score_queries.score_columns(store, first.dataset_fingerprint, ids, both, shared)
        of_runs = sides(store, result, members, both, definitions, known_checkpoints(store))
        tests, rows = [], []
        for metric in both:
            known = definitions.get(metric, {})
            one, other = [of_runs[second.run, metric]], [of_runs[first.run, metric]]
            tests.append(compared(one, other, clusters=result.sampled.labels, metric=range_of_metric(known)))
            rows += described(tests[-1], one, other, judged=known.get("judge") is not None)
        together = family(tests, rows)
        corrected_rows = list(zip(both, together.differences, together.p, strict=True))
        differences = {metric: item for metric, item, _ in corrected_rows if item.n}
        corrected = {metric: p for metric, item, p in corrected_rows if item.n}
    order = sorted(metrics, key=lambda metric: not (metric in item and metric in two))
    numbers = [
        Number(
            metric,
            shown_of[0].get(metric),
            shown_of[1].get(metric),
            differences.get(metric),
            corrected.get(metric),
            definitions.get(metric, {}).get("higher_is_better", True),
            score_queries.scale_of(metric, definitions),
        )
        for metric in order
    ]
    by = next((metric for metric in order if metric in differences), None)
    if by is None:
        return numbers, None, {}
    pairs = zip(names, item[by].tolist(), two[by].tolist(), strict=True)
    return numbers, by, {name: (a, b) for name, a, b in pairs if not (math.isnan(a) or math.isnan(b))}


def _as_one(columns: Columns, first: str, named: str) -> Columns:
    """Return the columns of a row under the run with the requested name."""
    values = {(named, m): scores for (run, m), scores in columns.values.items() if run == first}
    unscorable = {(named, m): count for (run, m), count in columns.unscorable.items() if run == first}
    return replace(columns, values=values, unscorable=unscorable, unread={(named, m): mask for (_, m), mask in columns.unread.items()})


def _most_apart(
    store: Store, first: RunRow, second: RunRow, metric: str, values: Mapping[str, tuple[float, float]], count: int
) -> list[Apart]:
    """Return the questions with the largest differences; ties keep the dataset's order."""
    chosen = [name for name, (a, b) in values.items() if a != b]
    chosen = sorted(chosen, key=lambda name: -abs(values[name][1] - values[name][0]))[:count]
    known = {question.question: question for question in answer_queries.questions(store, first.dataset_fingerprint)}
    results = []
    for name in chosen:
        responses = {row.run: row for row in answer_queries.answers(store, known[name], [first.run, second.run], depth=5)}
        if len(responses) == len({first.run, second.run}):
            results.append(Apart(known[name], *values[name], responses[first.run], responses[second.run]))
    return results
