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
    """The graphs of a benchmark's questions.

    Attributes:
        graphs: Each question's own graph, by question id; a question that is not there has none.
        corpus: Triples by id; None if no question has a graph.
    """

    graphs: Mapping[str, Sequence[Triple]] = field(default_factory=dict)
    corpus: TripleCorpus | None = None

    @classmethod
    def of(cls, benchmark: Benchmark) -> QuestionGraphs:
        """Return those that a benchmark brings, in whatever setting it is asked; without graphs an object without any."""
        graphs = benchmark.extra.get("graphs")
        if not graphs or not isinstance(benchmark.corpus, TripleCorpus):
            return cls()
        return cls(graphs, benchmark.corpus)

    def nodes(self, question_id: str) -> set[str]:
        """Return heads and tails of a question's own graph; none if it has no graph."""
        graph = self.graphs.get(question_id, ())
        return {name for head, _, tail in graph for name in (head, tail)}

    def triples(self, identifiers: Sequence[str]) -> list[Triple]:
        """Return the triples with these ids, in their order.

        Raises:
            UserError: There is no such triple.
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
"""The inputs that a metric or a judge can declare; registration refuses others."""

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Questions with their predictions, row by row: the input of every metric.

    Attributes:
        questions, predictions: One of each a row.
        passage: From the id of a passage (or triple) to it, None if texts are not available.
        memo: The cache of `once`.
        graphs: The questions' graphs, None if it is not known whether they have any.

    Work that several metrics need (which ranks hold positives, normalized texts, a model's reading) is done once per
    batch: see `once`.
    """

    questions: Sequence[Question]
    predictions: Sequence[Prediction]
    passage: Callable[[str], Passage] | None = None
    memo: dict[Any, Any] = field(default_factory=dict)
    graphs: QuestionGraphs | None = None

    def __len__(self) -> int:
        return len(self.questions)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returns, made by the first metric that asks under this key and kept for the others."""
        if key not in self.memo:
            self.memo[key] = make()
        result: T = self.memo[key]
        return result

    @cached_property
    def answers(self) -> list[str]:
        """Return predicted answers."""
        return [prediction.answer for prediction in self.predictions]

    @cached_property
    def golds(self) -> list[tuple[str, ...]]:
        """Return accepted strings per question."""
        return [question.golds for question in self.questions]

    @cached_property
    def rankings(self) -> list[list[str]]:
        """Return ranked passage (or triple) ids per question, the first mention of each, without those that the question excludes."""
        return list(map(_ranking, self.questions, self.predictions))


def _ranking(question: Question, prediction: Prediction) -> list[str]:
    ids = dict.fromkeys(item.id for item in prediction.evidence)
    for identifier in question.excluded:
        ids.pop(identifier, None)
    return list(ids)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a metric.

    Attributes:
        name: As written in the id; `k` is written `@k`.
        kind: `int`, `float`, `str` or `bool`, which is written `true` or `false`.
        default: Used if the id does not state it; None makes it required.
        choices: Allowed values, empty for any.
        help: Its meaning.
        quiet: Whether an id leaves it out where it has its default: for parameters that came later, so that the ids
            in people's stores stay what they are.
        check: From a value to what is wrong with it, None if nothing is.
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
    """Return None, for metrics that do not split text into words."""
    return None


def english(values: Mapping[str, Any]) -> str | None:
    """Return English, for metrics that split text at white space."""
    return "en"


@dataclass(frozen=True)
class MetricEntry:
    """A registered metric: its definition for people and its function for batches.

    Attributes:
        id: The bare name.
        version: Part of every printed id; a changed definition is a new version.
        definition: One paragraph: normalization, aggregation over golds, what is unscorable.
        compute: From a batch and the parameters to scores.
        parameters: In the order in which they print.
        low, high: The declared range; None is unbounded.
        higher_is_better: Direction.
        needs: Its inputs, as named in `NEEDS`.
        source: Paper, official script or library that defines it.
        group: "answer", "retrieval", "support", … for listing.
        missing: Score of a question without prediction.
        exact: Whether the value is exact (fit for invariants) or a model's opinion.
        unit: `fraction` (shown × 100) or `number` (shown as it is: a count, a perplexity).
        language: From the parameters to the language whose words it cuts a text into; None if it knows none.
        zero_under: Values of `rules` whose owners' scripts count as 0 what is unscorable here.
        code: Of a plug-in; None for shipped metrics.
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
        """Return what follows `#` in ids: the version, and of a plug-in the hash of its code (`v1-3fa2c1d0`)."""
        return f"v{self.version}{self.code.suffix if self.code else ''}"


@dataclass(frozen=True)
class Metric:
    """A metric with its parameters: what an id such as `recall@5#v2` denotes."""

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
        """Return whether the script whose rules these are keeps unscorable questions in its mean, as 0."""
        return self.values.get("rules") in self.entry.zero_under

    def compute(self, batch: Batch) -> Scores:
        """Score a batch.

        Returns:
            Shape (len(batch),), NaN if unscorable.

        Raises:
            ValueError: The metric returned something else.
        """
        scores = np.asarray(self.entry.compute(batch, **self.values))
        if scores.dtype.kind not in "biuf":  # None would become NaN, and "0.7" a number
            raise ValueError(f"{self} returned values that are not numbers: {scores.dtype}")
        scores = scores.astype(np.float64, copy=False)
        if scores.shape != (len(batch),):
            raise ValueError(f"{self} returned shape {scores.shape} for {len(batch)} questions")
        return scores


UNSPACED = frozenset(("zh", "ja", "th", "lo", "km", "my"))
"""Languages that put no space between words."""


def require_language(metric: Metric, languages: Collection[str], *, where: str | None = None) -> None:
    """Refuse a metric that splits words by another language's rules, which would turn a clause into one word.

    Args:
        metric: The metric.
        languages: Those of the texts; empty if unknown.
        where: The setting that requests it.

    Raises:
        UserError: It does.
    """
    needed = metric.entry.language(metric.values)
    known = set(languages)
    if needed is None or not known or needed in known or not (known <= UNSPACED or needed in UNSPACED):
        return
    hint = "f1(rules=longbench_zh), longbench_rouge(words=jieba)" if "zh" in known else "leave metrics out: each dataset then has its own"
    raise UserError(
        f"{metric} knows words of {needed}, and the answers are in {', '.join(sorted(known))}",
        code="answer-language-mismatch",
        where=where,
        try_this=hint,
    )


def written(value: Any) -> str:
    """Return a parameter's value as ids write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


METRICS: Registry[MetricEntry] = Registry("metric", "judges", "ragmeter.judges")

F = TypeVar("F", bound=Callable[..., Scores])

_ID = re.compile(r"(?P<name>\w+)(?:@(?P<k>\d+))?(?:\((?P<parameters>[^()]*)\))?(?:#(?P<edition>v(?P<version>\d+)(?:-(?P<code>\w+))?))?")


def definition_of(docstring: str) -> str:
    """Return a docstring on one line, without the verb that docstrings of functions begin with."""
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
    """Declare a metric; decorates its function `(batch, **parameters) -> Scores`, whose docstring is the definition.

    Of a plug-in, `identity` says what its ids depend on: `code` puts the hash of its code into them, so that scores of
    other code are never mistaken for these; `version` puts only the version, which the author raises by hand.

    Raises:
        ValueError: There is no definition, or `needs` is empty or says something that is not in `NEEDS`.
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
    """Return the metric that an id denotes; parameters and version may be left out if they have defaults.

    Raises:
        UserError: The id does not parse, or names a metric, parameter, value or version that does not exist.
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
"""Kinds of parameters that are not read by calling them."""
