"""The systems of a board: runs of one name are one system, with its stored facts and the reason if a run is not ranked.

The number of parameters and whether weights are open come from a submission's card, or were counted when it ran here.
If neither is known, the value is None and never guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import columns
from benchmarks.clusters import Sampled
from benchmarks.core.errors import counted
from benchmarks.core.fingerprint import fingerprint
from results.boards.sides import Answers
from results.boards.unread import MAX_UNSCORED, Missing, max_unscored_of_runs, missing_values, range_of_metric, together
from results.statistics.core import Floats
from results.statistics.difference import Side, all_pairs, means, p_at_both_ends
from results.statistics.places import Band, bands
from results.statistics.tested import Tested
from results.store.cost_queries import unstated
from results.store.queries import NO_EXPERIMENT, RunRow
from results.store.score_queries import definitions, identities_by_data, questions_by_data, sampled_by_data
from results.store.store import FINISHED, Store
from results.store.training_data import Cards, Checkpoints, contaminating, declared, trained_on

R = TypeVar("R")
_MOST_KNOWN = 100
"""Maximum number of results cached by `Figures.once`."""
COST = "cost"
"""The metric family of costs; its figures come from usage, not from scores."""
COSTS: dict[str, dict[str, Any]] = {
    name: {
        "definition": text,
        "low": 0.0,
        "high": None,
        "higher_is_better": False,
        "group": COST,
        "source": source,
        "judge": None,
        "unit": "number",
    }
    for name, text, source in (
        ("tokens", "Prompt, completion and memory tokens per question.", "recorded with every answer"),
        ("seconds", "Wall time per question over all stages; machines differ.", "recorded with every answer"),
        ("dollars", "Price of the calls per question; local models cost nothing.", "recorded with every answer"),
    )
}
"""Definitions of costs, in the format of `queries.definitions`."""

_FIELD = {"tokens": "prompt_tokens", "seconds": "seconds", "dollars": "cost_usd"}
"""Usage field without which the cost is unknown."""
_SPENT = {"tokens": "u.prompt_tokens + u.completion_tokens + u.memory_tokens", "seconds": "u.seconds", "dollars": "u.cost_usd"}
_SCORES = """SELECT w.column_place, w.member, q.position, s.value, s.unscored IS NOT NULL AS unscored
FROM scores s JOIN wanted w ON w.run = s.run AND w.metric = s.metric
JOIN questions q ON q.question = s.question AND q.dataset_fingerprint = w.data"""
_USAGE = """SELECT w.column_place, w.member, q.position, CASE WHEN w.known THEN {value} END AS value, false AS unscored
FROM usage u JOIN wanted w ON w.run = u.run AND w.metric = '{metric}'
JOIN questions q ON q.question = u.question AND q.dataset_fingerprint = w.data"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Request for the scores of runs on one benchmark and metric (see `figures`).

    Attributes:
        key: Key of the column.
        dataset_fingerprint: Fingerprint of the benchmark's data.
        runs: Ids of the runs.
        metric: Metric id, or one of `COSTS`.
        series: By run, the runs of all its training seeds, which are averaged per question (no value if one lacks it). A run
            that is not a key stands alone.
        experiments: Experiments whose declared clusters are used; empty uses all experiments that show the runs.
    """

    key: str
    dataset_fingerprint: str
    runs: tuple[str, ...]
    metric: str
    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    experiments: frozenset[str] = frozenset()

    def members(self, run: str) -> tuple[str, ...]:
        """Return the runs that are averaged for this run: its training seeds, or the run itself."""
        return self.series.get(run, (run,))

    @property
    def content(self) -> tuple[str, str, frozenset[str], tuple[tuple[str, ...], ...]]:
        """Return the cache key of this request; requests with equal keys have the same result."""
        return self.dataset_fingerprint, self.metric, self.experiments, tuple(self.members(run) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Figures:
    """Scores, means and pairwise tests of runs on one benchmark and metric. Arrays are read-only, shape (runs,) unless stated.

    Attributes:
        runs: Position of each run in the arrays, by run id.
        means: Means with tests and intervals.
        pairs: Paired differences of all pairs, shape (runs, runs).
        sides: Per-question scores of each run, with unknown values marked.
        scored: Number of questions that the metric was computed for, with or without a value.
        unscored: Number of questions that the judge gave no value.
        insufficient_data: Why there is no interval; empty if there is one.
        questions: Number of questions in the benchmark.
        sampled: The clusters of the questions and their kind.
        question_ids: Ids of the questions, in the order of the scores.
        identities: Hashes of the questions, as `identities_by_data`.
        definition: Definition of the metric.
        missing: Counts of missing verdicts of a judge, by run.
        max_unscored: The share of missing verdicts above which a value is not shown.
        p: p-values of `pairs` that hold for all possible unknown values.
        known: Results of `once`.
    """

    runs: Mapping[str, int]
    means: Tested
    pairs: Tested
    sides: tuple[Side, ...]
    scored: NDArray[np.int64]
    unscored: NDArray[np.int64]
    insufficient_data: tuple[str, ...]
    questions: int
    sampled: Sampled
    question_ids: tuple[str, ...] = ()
    identities: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    definition: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, Missing] = field(default_factory=dict)
    max_unscored: float = MAX_UNSCORED
    p: Floats | None = None
    known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, key: Hashable, compute: Callable[[], R]) -> R:
        """Return what depends on these figures and a key only; pages ask for it again and again, and it is computed once."""
        if key not in self.known:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[key] = compute()
        return cast(R, self.known[key])

    def bands(self, positions: NDArray[np.int64], *, higher_is_better: bool) -> list[Band]:
        """Return the ranks of the runs at these positions."""
        return self.once(
            ("bands", positions.tobytes(), higher_is_better),
            lambda: bands(self.pairs, positions=positions, higher_is_better=higher_is_better, p=self.p),
        )


def scored_metrics(store: Store, runs: Iterable[str]) -> dict[str, list[str]]:
    """List the metrics that each run was scored on, by run id, in the order in which they were written.

    A metric whose questions are all unscorable is left out; one without judge values yet is included.
    """
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT run, list(metric ORDER BY rowid) FROM summaries
               WHERE list_contains(?, run) AND n + coalesce(unscored, 0) > 0 GROUP BY run""",
            [list(runs)],
        ).fetchall()
    return dict(rows)


def figures(store: Store, wanted: Sequence[Wanted], kept: MutableMapping[bytes, Figures] | None = None) -> dict[str, Figures]:
    """Read the scores of all requested columns with one query, and test them; the result is keyed by column.

    Args:
        store: The store to read.
        wanted: The requested columns.
        kept: Figures of earlier calls, by a digest of their inputs. A column with equal inputs reuses them. Scores are read
            in any case.
    """
    kept = {} if kept is None else kept
    if not wanted:
        return {}
    with store.database.reading() as connection:
        ids_of = questions_by_data(store, (column.dataset_fingerprint for column in wanted))
        identities = identities_by_data(store, ids_of)
        runs_by_experiments: dict[frozenset[str], dict[str, list[str]]] = {}
        for column in wanted:
            same = runs_by_experiments.setdefault(column.experiments, {}).setdefault(column.dataset_fingerprint, [])
            same.extend(member for run in column.runs for member in column.members(run))
        clusters = {experiments: sampled_by_data(store, runs, experiments) for experiments, runs in runs_by_experiments.items()}
        costly = [column for column in wanted if column.metric in _SPENT]
        members = [member for column in costly for run in column.runs for member in column.members(run)]
        connection.register("wanted", _wanted_table(wanted, unstated(connection, members) if members else {}))
        spent = [metric for metric in _SPENT if any(column.metric == metric for column in wanted)]
        queries = [_USAGE.format(value=_SPENT[metric], metric=metric) for metric in spent]
        table = connection.execute(" UNION ALL ".join([_SCORES, *queries])).fetchnumpy()
        every = [member for column in wanted for run in column.runs for member in column.members(run)]
        gaps = missing_values(connection, every, list({column.metric for column in wanted})) if np.any(table["unscored"]) else {}
        lacking = [column for column in wanted if any((member, column.metric) in gaps for member in every)]
        most = {column.key: max_unscored_of_runs(connection, column.runs) for column in lacking}
    order = np.argsort(table["column_place"], kind="stable")
    rows = {name: np.ma.filled(np.ma.asarray(values), np.nan if name == "value" else 0)[order] for name, values in table.items()}
    ends = np.searchsorted(rows["column_place"], np.arange(len(wanted) + 1))
    results = {}
    known = {**definitions(store), **COSTS}
    answers = Answers.read(store, every)
    for position, column in enumerate(wanted):
        part = {name: values[ends[position] : ends[position + 1]] for name, values in rows.items()}
        data = column.dataset_fingerprint
        made_of = _MadeFrom.of(column, clusters[column.experiments][data], ids_of.get(data, []), part, known.get(column.metric, {}))
        missing: dict[str, Missing] = {}
        if made_of.lacking.any():
            missing = {
                run: together([gaps[m, column.metric] for m in column.members(run) if (m, column.metric) in gaps]) for run in column.runs
            }
        most_unscored = most.get(column.key, MAX_UNSCORED)
        digest = made_of.digest(answers, repr((missing, most_unscored)))
        result = kept.pop(digest, None) or replace(
            _figures(made_of, answers),
            missing=missing,
            max_unscored=most_unscored,
            identities=identities.get(data, (frozenset(), frozenset())),
        )
        results[column.key] = kept[digest] = result
    return results


def _wanted_table(wanted: Sequence[Wanted], unknown: Mapping[str, frozenset[str]]) -> pa.Table:
    """Return one row per run and metric, numbered by column and by position in it; unknown costs are marked."""
    rows = []
    for number, column in enumerate(wanted):
        members = [member for run in column.runs for member in column.members(run)]
        for position, member in enumerate(members):
            able = _FIELD.get(column.metric) not in unknown.get(member, ())
            rows.append((number, position, member, column.metric, column.dataset_fingerprint, able))
    numbers, positions, runs, metrics, data, known = list(zip(*rows, strict=True)) or [()] * 6
    return pa.table(
        {
            "column_place": columns.numbers(numbers, np.int32),
            "member": columns.numbers(positions, np.int32),
            "run": columns.strings(runs),
            "metric": columns.strings(metrics),
            "data": columns.strings(data),
            "known": columns.column(np.array(known, np.bool_)),
        }
    )


@dataclass(frozen=True, slots=True)
class _MadeFrom:
    """Inputs of the figures of a column; arrays of shape (members of its runs, questions).

    Attributes:
        column: The column.
        sampled, questions, definition: As in `Figures`.
        there: Which questions have exactly one score; what lacks a row, or holds a NaN, is not a score.
        values: The scores, NaN without one.
        lacking: Which have no value from the judge.
    """

    column: Wanted
    sampled: Sampled
    questions: Sequence[str]
    definition: Mapping[str, Any]
    there: NDArray[np.bool_]
    values: Floats
    lacking: NDArray[np.bool_]

    @classmethod
    def of(
        cls, column: Wanted, sampled: Sampled, questions: Sequence[str], rows: Mapping[str, NDArray[Any]], definition: Mapping[str, Any]
    ) -> _MadeFrom:
        """Arrange the rows of scores."""
        shape = (sum(len(column.members(run)) for run in column.runs), len(questions))
        cells = np.ravel_multi_index((rows["member"].astype(np.int64), rows["position"].astype(np.int64)), shape)
        there = _count(cells, shape) == 1
        values = np.where(there, _count(cells, shape, rows["value"]), np.nan)
        lacking = there & (_count(cells, shape, rows["unscored"].astype(np.float64)) > 0)
        return cls(column, sampled, questions, definition, there, values, lacking)

    def digest(self, answers: Answers, more: str) -> bytes:
        """Return bytes that are equal for equal figures."""
        members = [member for run in self.column.runs for member in self.column.members(run)]
        facts = (self.column.content, self.column.runs, self.sampled, self.questions, self.definition, more)
        made = hashlib.blake2b(repr((facts, answers.facts(members, self.column.metric))).encode())
        for array in (self.there, self.values, self.lacking):
            made.update(array.tobytes())
        return made.digest()


def _figures(made_of: _MadeFrom, answers: Answers) -> Figures:
    column, sampled, questions, definition = made_of.column, made_of.sampled, made_of.questions, made_of.definition
    there, lacking = made_of.there, made_of.lacking
    sides, whole, unread, start = [], [], [], 0
    for names in map(column.members, column.runs):
        at = slice(start, start + len(names))
        sides.append(answers.side(names, made_of.values[at], lacking[at], questions, column.metric, definition))
        whole.append(there[at].all(axis=0))
        unread.append(whole[-1] & lacking[at].any(axis=0))
        start = at.stop
    metric, labels = range_of_metric(definition), sampled.labels
    of_runs = means(np.stack([side.mean for side in sides]), clusters=labels, metric=metric)
    pairs = all_pairs(sides, clusters=labels, metric=metric)
    return Figures(
        {run: position for position, run in enumerate(column.runs)},
        of_runs,
        pairs,
        tuple(sides),
        np.sum(whole, axis=1),
        np.sum(unread, axis=1),
        tuple(of_runs.insufficient_data(sampled.kind + "s")),
        len(questions),
        sampled,
        tuple(questions),
        definition=definition,
        p=p_at_both_ends(sides, pairs, clusters=labels, metric=metric),
    )


def _count(cells: NDArray[np.int64], shape: tuple[int, int], weights: Floats | None = None) -> NDArray[Any]:
    return np.bincount(cells, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)


def implausible(run: RunRow) -> tuple[str, ...]:
    """List the signs that a submission is implausible (`results.submission.plausible`), one sentence each.

    A submission without any answer, which the check refuses, has such a sign too: stores of earlier versions hold some.
    """
    record = (run.card or {}).get("submission")
    if not isinstance(record, Mapping):
        return ()
    sentences, findings = record.get(IMPLAUSIBLE), record.get("findings")
    signs = tuple(map(str, sentences)) if isinstance(sentences, list) else ()
    # Without this finding, the file only lacks answers by design, as files of supporting facts do.
    marked = isinstance(findings, list) and any(isinstance(item, Mapping) and item.get("code") == "failed" for item in findings)
    return (*signs, f"all {counted(run.done, 'question')} failed") if marked and run.failed == run.done else signs


def accepted(run: RunRow) -> bool:
    """Return whether a maintainer accepted a submission; one that a board shows without approval has not been reviewed."""
    record = (run.card or {}).get("submission")
    decisions = record.get("review") if isinstance(record, Mapping) else None
    return isinstance(decisions, list) and decisions[-1:] != [] and decisions[-1]["status"] == "accepted"


WHOLE = "answers by itself"
"""Placeholder for the reader of a method without one."""
UNKNOWN_READER = "not stated"
CONTAMINATED = "contaminated"
POSITIVE_CONTROL = "positive control"
POSITIVE_CONTROL_TIP = "declared by its experiment as trained on these questions: compared with others, but not ranked or called the best"
"""Prefix of the reason that names a positive control."""
UNTRAINED_CONTROL = "its training read none of these questions, so whether its gain is found says nothing about other gains"
"""Reason shown for a positive control whose checkpoints were trained on other questions."""
IMPLAUSIBLE = "implausible"
"""Marks a submission with implausible findings; key of their sentences in its record."""
RUN = "run"
"""Origin of runs made by this installation."""
_SENT = "sent in"
_NONE: Checkpoints = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class System:
    """Row of the overview matrix: all runs of one method (same name, same pipeline), at most one per column.

    Attributes:
        key: Short id, safe in a URL; derived from the name, and from more if several systems share the name.
        name: As in the experiment or submission; if other systems have the same name, with a distinguishing addition.
        runs: Runs by column key.
        readers: Names of the answering models.
        parameters: Number of parameters, summed over its models; None if unknown.
        open_weights: Whether all of its models' weights were on this machine (not behind an API); None if unknown.
        first, last: Earliest and latest time at which its runs were last written.
        training: Data references that it or its parts were trained on, from cards and checkpoints; empty if none are declared.
        declares: Whether `training` is complete: it comes from a submission's card, or the training data of every part are
            known.
        control: Whether it is a control, which sees the gold answers; computed once, because pages ask for it again and again.
    """

    key: str
    name: str
    runs: Mapping[str, RunRow]
    readers: tuple[str, ...]
    parameters: int | None
    open_weights: bool | None
    first: datetime
    last: datetime
    training: tuple[str, ...]
    declares: bool
    control: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "control", any(run.kind == "control" for run in self.runs.values()))

    @property
    def any_run(self) -> RunRow:
        """Return one of its runs, to read what all share: kind, method id and origin."""
        return next(iter(self.runs.values()))

    @property
    def positive_control(self) -> bool:
        """Return whether an experiment declares that it was deliberately trained on the test questions."""
        return any(run.positive_control for run in self.runs.values())

    @property
    def may_win(self) -> bool:
        """Return whether it may be ranked; controls and positive controls may not be."""
        return all(run.may_win for run in self.runs.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return its kinds: retriever, reranker, method, …"""
        return tuple(dict.fromkeys(run.kind for run in self.runs.values()))

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the origins of its scores: run (made here), submitted, verified."""
        return tuple(dict.fromkeys(run.origin for run in self.runs.values()))


def key_of(*parts: str | int) -> str:
    """Hash parts of a name into a short key that is safe in a URL and equal on every machine."""
    return fingerprint(*parts)[:8]


def systems(columns: Mapping[str, Sequence[RunRow]], cards: Cards, known: Checkpoints) -> list[System]:
    """Group runs of several benchmarks into rows (`System`), one per name and pipeline, in order of appearance.

    In one experiment a name means one pipeline, for any training seed. Runs of different experiments, or of none, are
    one system if they have the same name and the same parts; submissions where they have the same name and version, and
    never together with runs made here. If a name is ambiguous, the method's id, the experiment or the run is appended.
    If one pipeline occurs twice in one column, the further runs are separate systems, named with their run.

    Args:
        columns: Runs by column key.
        cards: Cards of methods and their parts by id.
        known: Registered checkpoints by their hash.
    """
    groups: dict[tuple[str, str], dict[str, RunRow]] = {}
    further: dict[str, dict[str, RunRow]] = {}
    made_of = _MadeOf()
    for column, runs in columns.items():
        for run in runs:
            group = groups.setdefault((run.method, made_of(run)), {})
            if column in group:
                further.setdefault(f"{run.method} · {run.short}", {})[column] = run
            else:
                group[column] = run
    results = [_system(name, key, runs, cards, known) for name, key, runs in _called_apart(groups)]
    return results + [_system(name, key_of(name), runs, cards, known) for name, runs in further.items()]


class _MadeOf:
    """Describe the parts of a run in a short text, which is equal for runs that may be one system."""

    def __init__(self) -> None:
        self._described: dict[int, str] = {}
        self._in_experiments: dict[tuple[str, str], str] = {}

    def __call__(self, run: RunRow) -> str:
        if run.origin != RUN:
            return _SENT
        # Descriptions are shared between runs, and reading one takes longer than everything else here.
        own = self._described.get(id(run.description)) or fingerprint(_bare(run.description))
        self._described[id(run.description)] = own
        if run.experiment == NO_EXPERIMENT:
            return own
        return self._in_experiments.setdefault((run.experiment, run.method), own)


def _bare(description: Any) -> Any:
    """Return a description without seeds and benchmark instructions, which differ within one pipeline."""
    if isinstance(description, Mapping):
        return {key: _bare(value) for key, value in description.items() if key not in ("seed", "reading")}
    return [_bare(item) for item in description] if isinstance(description, list) else description


def _called_apart(groups: Mapping[tuple[str, str], Mapping[str, RunRow]]) -> Iterator[tuple[str, str, Mapping[str, RunRow]]]:
    """Yield distinct name, key and runs of each system; submissions keep their names."""
    names: dict[str, list[str]] = {}
    for name, made in groups:
        names.setdefault(name, []).append(made)
    distinct: dict[tuple[str, str], str] = {}
    for name, kinds in names.items():
        if len(kinds) > 1:
            own = [made for made in kinds if made != _SENT]
            firsts = [next(iter(groups[name, made].values())) for made in own]
            distinct |= {(name, made): text for made, text in zip(own, _distinguished(name, firsts, names), strict=True)}
    for (name, made), runs in groups.items():
        text = distinct.get((name, made))
        yield (name, key_of(name), runs) if text is None else (text, key_of(name, made), runs)


def _distinguished(name: str, runs: Sequence[RunRow], taken: Collection[str]) -> list[str]:
    """Distinguish pipelines with equal names by the method's id, else the experiment, else the run."""
    by_method = [run.method_id for run in runs]
    by_experiment = [run.experiment for run in runs]
    for labels in (by_method, by_experiment):
        results = [f"{name} · {label}" for label in labels]
        if len(set(results)) == len(results) and not set(results) & set(taken) and NO_EXPERIMENT not in labels:
            return results
    return [f"{name} · {run.short}" for run in runs]


def why_not_ranked(run: RunRow, contaminated: Sequence[str], violations: Sequence[str], scored: int) -> str:
    """Explain why a run's score must not be compared with others; empty if it may be.

    The reasons are: a control, an unfinished run, contradictory scores, contamination, an implausible submission that no
    maintainer has accepted, and missing scores.

    Args:
        run: The run.
        contaminated: Result of `contaminated_by`.
        violations: Broken invariants between its metrics.
        scored: Number of questions that the metric was computed for, with or without a value.
    """
    if run.kind == "control":
        return "a control: it sees the gold"
    if run.status != FINISHED:
        return f"{run.status}: {run.done:,} of {run.questions:,} questions answered"
    if violations:
        return f"these scores cannot be right: {'; '.join(violations)}"
    if contaminated:
        return f"{CONTAMINATED}: {'; '.join(contaminated)}"
    if (signs := implausible(run)) and not accepted(run):
        return f"{IMPLAUSIBLE}: {'; '.join(signs)}"
    if scored < run.questions:
        return f"scored on {scored:,} of {run.questions:,} questions"
    return ""


def contaminated_by(run: RunRow, cards: Cards, known: Checkpoints = _NONE) -> tuple[str, ...]:
    """List the training data of a run that cover the evaluated questions, one sentence each.

    For runs made here, references and fingerprints are compared; for submissions, these are the findings of the check
    at submission, which also compares questions. Controls see the gold anyway, and positive controls are declared as
    trained on the test questions: both have none.

    Args:
        run: The run.
        cards: Cards of methods and their parts by id.
        known: Registered checkpoints by their hash.
    """
    if not run.may_win:
        return ()
    kept = ((run.card or {}).get("submission") or {}).get("contamination") or ()
    sent = (kept,) if isinstance(kept, str) else tuple(str(item) for item in kept)
    return (*sent, *contaminating(run, cards, known))


def _system(name: str, key: str, runs: Mapping[str, RunRow], cards: Cards, known: Checkpoints) -> System:
    responses = [(run.card or {}).get("method") or {} for run in runs.values()]
    every = list(runs.values())
    trained = dict.fromkeys(item for run in every for item in (*trained_on(run, cards, known), *_declared(run)))
    return System(
        key,
        name,
        runs,
        tuple(dict.fromkeys(_reader(run) for run in every)),
        parameters_of(every),
        next((part["open_weights"] for part in responses if part.get("open_weights") is not None), _here(every)),
        min(run.updated_at for run in every),
        max(run.updated_at for run in every),
        tuple(trained),
        all(declared(run, cards, known) for run in every),
    )


def parameters_of(runs: Sequence[RunRow]) -> int | None:
    """Return the number of parameters over all models of a method: from a submission's card, else as counted here; None if unknown."""
    declared = (((run.card or {}).get("method") or {}).get("parameters") for run in runs)
    return next((number for number in declared if number is not None), _most(runs))


def _counted(runs: Sequence[RunRow]) -> list[Mapping[str, Any]]:
    """Return the provenance of the models of local runs."""
    return [models for run in runs if isinstance(models := run.provenance.get("models"), Mapping)]


def _most(runs: Sequence[RunRow]) -> int | None:
    """Return the parameters of the largest method of these runs; a method has equal numbers for all seeds and benchmarks."""
    results = [models.get("parameters") for models in _counted(runs)]
    known = [number for number in results if isinstance(number, int)]
    return max(known) if known and len(known) == len(results) else None


def _here(runs: Sequence[RunRow]) -> bool | None:
    results = {models.get("weights_here") for models in _counted(runs)}
    return True if results == {True} else None


def _declared(run: RunRow) -> list[str]:
    """Return the training data declared on a submission's card."""
    listed = (run.card or {}).get("training_data") or ()
    return [str(item.get("reference") or item.get("name")) for item in listed if isinstance(item, Mapping)]


def _reader(run: RunRow) -> str:
    if run.card is not None:
        models = (run.card.get("models") or ()) if isinstance(run.card, Mapping) else ()
        return next((str(model["id"]) for model in models if model.get("role") == "reader"), UNKNOWN_READER)
    reader = run.description.get("reader")
    if not isinstance(reader, Mapping) or "id" not in reader:
        return WHOLE
    return str((reader.get("config") or {}).get("model") or reader["id"])
