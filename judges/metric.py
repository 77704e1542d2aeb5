"""Define metrics: parameterized, versioned objects that score a batch of predictions, one number per question.

A metric is a pure function of (questions, predictions). It returns one float per question; NaN says that the
question is unscorable for this metric (its gold normalizes to nothing, it has no positives, …) and is never used
for a bad answer: a missing or failed answer scores what `missing` declares, 0 unless stated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.code import Code, Identity, registered
from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.plugins import Registry
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, Triple
from methods.api import Prediction


@dataclass(frozen=True)
class QuestionGraphs:
    """Knowledge graphs of a benchmark's questions, for metrics that need them.

    Attributes:
        graphs: Graph of each question, by question id; questions without a graph are missing.
        corpus: Triples by id; None if no question has a graph.
    """

    graphs: Mapping[str, Sequence[Triple]] = field(default_factory=dict)
    corpus: TripleCorpus | None = None

    @classmethod
    def of(cls, benchmark: Benchmark) -> QuestionGraphs:
        """Collect the graphs that a benchmark provides, in any retrieval setting; the result is empty without graphs."""
        graphs = benchmark.extra.get("graphs")
        if not graphs or not isinstance(benchmark.corpus, TripleCorpus):
            return cls()
        return cls(graphs, benchmark.corpus)

    def nodes(self, question_id: str) -> set[str]:
        """Return the nodes (heads and tails) of a question's graph; empty if it has no graph."""
        graph = self.graphs.get(question_id, ())
        return {name for head, _, tail in graph for name in (head, tail)}

    def triples(self, identifiers: Sequence[str]) -> list[Triple]:
        """Look up triples by id, in the given order.

        Raises:
            UserError: A triple is unknown.
        """
        if self.corpus is None:
            return []
        try:
            return self.corpus.triples.take(self.corpus.rows_of(identifiers))
        except KeyError as error:
            raise UserError(
                f"the corpus has no triple {error.args[0]!r}",
                code="unknown-triple",
                where="evidence of a prediction",
                try_this="check that the predictions were made on this corpus",
            ) from None


Scores = NDArray[np.float64]
"""Shape (questions,), NaN if unscorable."""

Missing = float | Literal["empty", "unscorable"]
"""Score of a question without an answer: a number, the score of an empty answer, or none (NaN)."""

NEEDS: Mapping[str, str] = {
    "answer": "the text of the answer",
    "ranking": "the ranked evidence",
    "texts": "the texts of the ranked passages",
    "pages": 'the ranked pages, `notes["pages"]` or the documents of the ranked passages',
    "support": 'claimed passages or sentences, `notes["support"]`',
    "triples": 'claimed reasoning triples, `notes["triples"]`',
    "answerable": 'whether the evidence is said to suffice, `notes["answerable"]`',
    "group": "the predictions for all questions of a group, so it is scored when all are there",
    "graph": "ranked triples, and the graph that they come from",
    "contexts": "the texts that the system showed its model, `contexts`",
    "statements": "parts of the answer with their citations, `statements`",
    "searches": "the searches that the system made, `searches`",
    "confidence": "the system's confidence in the answer, `confidence`",
    "usage": "tokens, calls and seconds",
    "model": "a local model, loaded once per process",
    "verdict": "a judge's verdict",
    "claims": "the claims that a judge finds in a text",
}
"""Inputs that a metric or a judge can declare; registration refuses other names."""

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Questions with their predictions, row by row: the input of every metric. Shared intermediate results are cached (`once`).

    Attributes:
        questions, predictions: One of each per row.
        passage: Looks up a passage (or triple) by id; None if texts are not available.
        memo: The cache of `once`.
        graphs: Graphs of the questions; None if unknown.

    Work that several metrics share, such as normalized texts, is done once per batch (`once`).
    """

    questions: Sequence[Question]
    predictions: Sequence[Prediction]
    passage: Callable[[str], Passage] | None = None
    memo: dict[Any, Any] = field(default_factory=dict)
    graphs: QuestionGraphs | None = None

    def __len__(self) -> int:
        return len(self.questions)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value cached under `key`; call `make` to compute it on first use."""
        if key not in self.memo:
            self.memo[key] = make()
        result: T = self.memo[key]
        return result

    @cached_property
    def answers(self) -> list[str]:
        """Return the predicted answers."""
        return [prediction.answer for prediction in self.predictions]

    @cached_property
    def golds(self) -> list[tuple[str, ...]]:
        """Return the accepted answers of each question."""
        return [question.golds for question in self.questions]

    @cached_property
    def rankings(self) -> list[list[str]]:
        """Return the ranked passage (or triple) ids of each question, without repetitions and without ids that the question excludes."""
        return list(map(_ranking, self.questions, self.predictions))


def _ranking(question: Question, prediction: Prediction) -> list[str]:
    ids = dict.fromkeys(item.id for item in prediction.evidence)
    for identifier in question.excluded:
        ids.pop(identifier, None)
    return list(ids)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a metric.

    Attributes:
        name: Name in the metric id; `k` is written `@k`.
        kind: Type: `int`, `float`, `str` or `bool` (written `true` or `false`).
        default: Default value; None makes the parameter required.
        choices: Allowed values; empty allows any.
        help: Its meaning.
        quiet: Whether ids omit the default value. Set it for parameters added later, so that ids in existing stores stay valid.
        check: Returns what is wrong with a value, or None.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[Any, ...] = ()
    help: str = ""
    quiet: bool = False
    check: Callable[[Any], str | None] | None = None


Language = Callable[[Mapping[str, Any]], str | None]
"""Function that returns the language of a metric with given parameters."""


def no_language(values: Mapping[str, Any]) -> str | None:
    """Return None as the language, for metrics that do not split text into words."""
    return None


def english(values: Mapping[str, Any]) -> str | None:
    """Return "en" as the language, for metrics that split text at white space."""
    return "en"


@dataclass(frozen=True)
class MetricEntry:
    """Registration of a metric.

    Attributes:
        id: Name without parameters.
        version: Version in every printed id; a changed definition needs a new version.
        definition: Definition in one paragraph: normalization, aggregation over gold answers, and what is unscorable.
        compute: Computes the scores of a batch with given parameters.
        parameters: Parameters in the order in which ids print them.
        low, high: Smallest and largest value; None if unbounded.
        higher_is_better: False if lower is better.
        needs: Inputs, from `NEEDS`.
        source: Paper, official script or library that defines it.
        group: Group for listings: "answer", "retrieval", "support", …
        missing: Score of a question without a prediction.
        exact: Whether the value is exact (usable for invariants), not a model's estimate.
        unit: `fraction` (shown × 100) or `number` (shown as it is: a count, a perplexity).
        language: Returns, for given parameters, the language that its word splitting assumes; None if it does not split words.
        zero_under: Values of `rules` whose official scripts count unscorable questions as 0.
        code: Code identity of a plug-in; None for shipped metrics.
    """

    id: str
    version: int
    definition: str
    compute: Callable[..., Scores]
    parameters: tuple[Parameter, ...]
    low: float | None
    high: float | None
    higher_is_better: bool
    needs: tuple[str, ...]
    source: str
    group: str
    missing: Missing = 0.0
    exact: bool = True
    unit: Literal["fraction", "number"] = "fraction"
    language: Language = no_language
    zero_under: tuple[str, ...] = ()
    code: Code | None = None

    @property
    def edition(self) -> str:
        """Return the part of ids after `#`: the version and, for a plug-in, the hash of its code (`v1-3fa2c1d0`)."""
        return f"v{self.version}{self.code.suffix if self.code else ''}"


@dataclass(frozen=True)
class Metric:
    """Metric with parameter values, as an id such as `recall@5#v2` denotes it."""

    entry: MetricEntry
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the canonical id: `name[@k][(param=value,…)]#edition`, parameters in their declared order."""
        at = f"@{self.values['k']}" if "k" in self.values else ""
        shown = [
            f"{parameter.name}={written(self.values[parameter.name])}"
            for parameter in self.entry.parameters
            if parameter.name != "k" and not (parameter.quiet and self.values[parameter.name] == parameter.default)
        ]
        return f"{self.entry.id}{at}{'(' + ','.join(shown) + ')' if shown else ''}#{self.entry.edition}"

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def zero_elsewhere(self) -> bool:
        """Return whether the official script with these rules counts unscorable questions as 0 in its mean."""
        return self.values.get("rules") in self.entry.zero_under

    def compute(self, batch: Batch) -> Scores:
        """Compute the scores of a batch.

        Returns:
            Shape (len(batch),), NaN if unscorable.

        Raises:
            ValueError: The metric returned an array of another shape or type, or an infinite value.
        """
        scores = np.asarray(self.entry.compute(batch, **self.values))
        if scores.dtype.kind not in "biuf":  # None would become NaN, and "0.7" a number
            raise ValueError(f"{self} returned values that are not numbers: {scores.dtype}")
        scores = scores.astype(np.float64, copy=False)
        if scores.shape != (len(batch),):
            raise ValueError(f"{self} returned shape {scores.shape} for {len(batch)} questions")
        if (infinite := np.flatnonzero(np.isinf(scores))).size:
            raise ValueError(f"{self} returned {scores[infinite[0]]} for question {batch.questions[infinite[0]].id!r}")
        return scores


UNSPACED = frozenset(("zh", "ja", "th", "lo", "km", "my"))
"""Languages without spaces between words."""


def require_language(metric: Metric, languages: Collection[str], *, where: str | None = None) -> None:
    """Refuse a metric whose word splitting does not fit the language of the texts (a sentence would be one word).

    Args:
        metric: The metric.
        languages: Languages of the texts; empty if unknown.
        where: Place that requests the metric, for the error.

    Raises:
        UserError: The languages do not fit.
    """
    needed = metric.entry.language(metric.values)
    known = set(languages)
    if needed is None or not known or needed in known or not (known <= UNSPACED or needed in UNSPACED):
        return
    hint = "f1(rules=longbench_zh), longbench_rouge(words=jieba)" if "zh" in known else "leave metrics out: each dataset then has its own"
    raise UserError(
        f"{metric} has word lists for {needed}, but the answers are in {', '.join(sorted(known))}",
        code="answer-language-mismatch",
        where=where,
        try_this=hint,
    )


def written(value: Any) -> str:
    """Format a parameter value as metric ids write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


METRICS: Registry[MetricEntry] = Registry("metric", "judges", "ragmeter.judges")

F = TypeVar("F", bound=Callable[..., Scores])

_ID = re.compile(r"(?P<name>\w+)(?:@(?P<k>\d+))?(?:\((?P<parameters>[^()]*)\))?(?:#(?P<edition>v(?P<version>\d+)(?:-(?P<code>\w+))?))?")


def definition_of(docstring: str) -> str:
    """Turn a docstring into a definition: one line, without the verb at its beginning."""
    text = re.sub(r"^(?:Return|Compute) ", "", " ".join(docstring.split()))
    return text[:1].upper() + text[1:]


def register(
    identifier: str,
    *,
    source: str,
    group: str,
    needs: Sequence[str],
    version: int = 1,
    parameters: Sequence[Parameter] = (),
    low: float | None = 0.0,
    high: float | None = 1.0,
    higher_is_better: bool = True,
    missing: Missing = 0.0,
    exact: bool = True,
    unit: Literal["fraction", "number"] = "fraction",
    language: Language = no_language,
    zero_under: Sequence[str] = (),
    identity: Identity = "code",
) -> Callable[[F], F]:
    """Register a metric: a decorator for its function `(batch, **parameters) -> Scores`, whose docstring becomes the definition.

    For a plug-in, `identity` sets what its ids contain: "code" adds a hash of its code, so that scores of other code are never
    mixed up; "version" only the version, which its author raises.

    Raises:
        ValueError: The docstring is missing, or `needs` is empty or not a subset of `NEEDS`.
    """
    unknown = [need for need in needs if need not in NEEDS]
    if unknown or not needs:
        problem = f"needs {unknown[0]!r}, which is not available" if unknown else "does not declare its inputs"
        raise ValueError(f"metric {identifier!r} {problem}; known: {', '.join(NEEDS)}")

    def decorate(compute: F) -> F:
        definition = definition_of(compute.__doc__ or "")
        if not definition:
            raise ValueError(f"metric {identifier!r} has no definition: write its docstring")
        entry = MetricEntry(
            identifier,
            version,
            definition,
            compute,
            tuple(parameters),
            low,
            high,
            higher_is_better,
            tuple(needs),
            source,
            group,
            missing,
            exact,
            unit,
            language,
            tuple(zero_under),
            registered(identity, compute),
        )
        METRICS.add(entry, compute.__module__)
        return compute

    return decorate


def parse(text: str, *, where: str | None = None) -> Metric:
    """Parse a metric id; parameters and version may be omitted if they have defaults.

    Raises:
        UserError: The id is malformed, or names an unknown metric, parameter, value or version.
    """
    match = _ID.fullmatch(text.strip())
    if not match:
        raise UserError(
            f"{text!r} is not a metric id",
            code="not-metric-id",
            where=where,
            try_this="write name[@k][(param=value,…)][#v1], e.g. recall@5 or f1(rules=hotpotqa)",
        )
    entry = METRICS.get(match["name"], where=where)
    if match["version"] and int(match["version"]) != entry.version:
        raise UserError(
            f"{entry.id} is at version {entry.version}, not {match['version']}",
            code="version-mismatch",
            where=where,
            try_this=f"{entry.id}#{entry.edition}, or the ragmeter release that had version {match['version']}",
        )
    if match["code"] and match["edition"] != entry.edition:
        raise UserError(
            f"the code of {entry.id} is not {match['code']}: it changed, or is identified by its version",
            code="code-changed",
            where=where,
            try_this=f"{entry.id}#{entry.edition}, or restore the code that was {match['code']}",
        )
    options: dict[str, str] = {"k": match["k"]} if match["k"] else {}
    for part in filter(None, (match["parameters"] or "").split(",")):
        name, separator, value = map(str.strip, part.partition("="))
        if not separator:
            raise UserError(f"{part!r} in {text!r} lacks its value", code="option-without-value", where=where, try_this="write param=value")
        if name in options:
            raise UserError(f"{text!r} gives {name} twice", code="duplicate-entry", where=where, try_this="write each parameter once")
        options[name] = value
    known = {parameter.name: parameter for parameter in entry.parameters}
    for name in options:
        if name not in known:
            raise unknown_name(f"parameter of {entry.id}", name, known, where=where)
    return Metric(entry, {p.name: _value(entry, p, options.get(p.name), where) for p in entry.parameters})


def _value(entry: MetricEntry, parameter: Parameter, raw: str | None, where: str | None) -> Any:
    if raw is None:
        if parameter.default is None:
            example = f"{entry.id}@5" if parameter.name == "k" else f"{entry.id}({parameter.name}=…)"
            raise UserError(f"{entry.id} needs {parameter.name}", code="missing-parameter", where=where, try_this=f"write {example}")
        return parameter.default
    try:
        value = _READ.get(parameter.kind, parameter.kind)(raw)
    except ValueError:
        expected = parameter.kind.__name__
        raise UserError(f"{parameter.name}={raw!r} of {entry.id} is not of type {expected}", code="not-type", where=where) from None
    if parameter.choices and value not in parameter.choices:
        raise unknown_name(f"{parameter.name} of {entry.id}", str(value), map(str, parameter.choices), where=where)
    if parameter.name == "k" and value < 1:
        raise UserError(f"k of {entry.id} must be at least 1", code="k-too-small", where=where)
    wrong = parameter.check(value) if parameter.check else None
    if wrong:
        raise UserError(f"{parameter.name}={raw!r} of {entry.id} {wrong}", code="bad-option", where=where)
    return value


def _truth(raw: str) -> bool:
    if raw not in ("true", "false"):
        raise ValueError(raw)
    return raw == "true"


_READ: dict[type, Callable[[str], Any]] = {bool: _truth}
"""Kinds of parameters that are parsed without calling them."""
