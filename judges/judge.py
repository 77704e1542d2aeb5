"""Define judges: a model (or a rule), its prompts, a parser and a policy, all of them part of the judge's id.

A judge works in three separate steps. `ask` makes the calls; `parse` reads one raw reply; `score` (of a
point judge) or `verdicts` (of a pair judge) makes numbers of what was read. The store keeps each call's key in the
cache of replies, so that the last two steps can be done again, with another rule, without a single call.

The first step has one of two forms. What asks a model takes one item (or pair), and says in an attribute `in_flight` how
many at once keep the model busy; rules take many. `methods/flow.py` (`each`, `stream`) serves both.

    async ask_one(item) -> list[JudgeCall]      every repetition of every part; raises Broke where no call could succeed
    ask(items) -> list[list[JudgeCall]]         the same for each item, in order

*Unscored* is a state with a reason (no reply, a refusal, a reply that could not be read): never a number and never a
tie. It is not *unscorable*, which says that the question has no gold to judge by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from benchmarks.core.code import Code, Identity, code_id, registered
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.core.plugins import Registry
from benchmarks.schema import Passage, Question
from judges.metric import definition_of
from methods.api import Prediction, Services
from methods.work import Lengths, Needs, Work, unknown

RULE = "rule"
"""Model name of judges that are rules."""

FIRST, SECOND, TIE, NONE = "first", "second", "tie", "none"
"""Verdicts of a pair judge about the answers in the displayed order; none: both are disqualified."""

AS_GIVEN, SWAPPED = "as given", "swapped"
"""Parts of a pair judge's calls: the order in which the two answers are shown."""

NOTHING_CLAIMED = ("no claim was found in the answer", "the answer states nothing that words could support")
"""Reasons why a judged answer has no value: the reply was parsed, but the answer makes no claim that could be supported."""


@dataclass(frozen=True, slots=True)
class Item:
    """Answer to be judged, with its question and the passages that it was generated from.

    Attributes:
        question: The question with its gold.
        prediction: The predicted answer.
        passages: Passages that the answer was generated from, best first.
        known: Whether the texts of these passages are known; an app may only name them.
    """

    question: Question
    prediction: Prediction
    passages: tuple[Passage, ...] = ()
    known: bool = True


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to the same question, to be compared by a pair judge.

    Attributes:
        question: The question with its gold.
        one, other: The two answers, in the order of the runs' fingerprints.
        passages: Gold passages of the question, for judges that show the gold document.
    """

    question: Question
    one: Prediction
    other: Prediction
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of parsing a judge's reply: either a verdict (`value`) or the reason why there is none (`unscored`)."""

    value: Mapping[str, Any] | None
    unscored: str | None = None


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """Stored call of a judge, or a rule's decision in place of a call.

    Attributes:
        part: Name of the judge's prompt; for pair judges the presentation order, `AS_GIVEN` or `SWAPPED`.
        repetition: Number of the repetition, from 0.
        key: Key of the reply in the cache; None if no model was called (a rule, or a case that needs no model).
        parsed: The parsed reply.
        model: Model name, fingerprint and version as the endpoint reported them; `RULE` for rules, "" if no model was called.
        prompt_tokens, completion_tokens, seconds, cost_usd: Cost of the call.
    """

    part: str
    repetition: int
    key: str | None
    parsed: Parsed
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float = 0.0

    @property
    def read(self) -> bool:
        """Return whether the reply was parsed completely."""
        return self.parsed.value is not None and not self.parsed.value.get("unscored")


LOST = "the reply is not kept any more"
"""Reason of a call whose reply was parsed before and is no longer in the cache."""


def counting(calls: Sequence[JudgeCall]) -> list[JudgeCall]:
    """Choose the call that decides, for each part and repetition: a judge is asked a second time if its reply is unreadable.

    In order of preference: the first call that was parsed completely, the first that was parsed partly, the first whose reply
    was parsed once but is no longer cached, the first call.
    """

    def rank(call: JudgeCall) -> tuple[bool, bool, bool]:
        return call.read, call.parsed.value is not None, call.parsed.unscored == LOST

    best: dict[tuple[str, int], JudgeCall] = {}
    for call in calls:
        known = best.setdefault((call.part, call.repetition), call)
        if rank(call) > rank(known):
            best[call.part, call.repetition] = call
    return list(best.values())


@dataclass(frozen=True, slots=True)
class Score:
    """Value of a judged measure on one question: a number, or the reason why it is missing, or neither if the question is unscorable."""

    value: float | None
    unscored: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure that a point judge computes per question.

    Attributes:
        name: Name in metric ids, for example `accuracy`.
        definition: Definition in one paragraph.
        low, high: Smallest and largest value.
        higher_is_better: False if lower is better.
        ranks: Whether it measures answer quality, so that controls (gold answer, empty answer) have an expected rank.
    """

    name: str
    definition: str
    low: float | None = 0.0
    high: float | None = 1.0
    higher_is_better: bool = True
    ranks: bool = True


class JudgeConfig(FrozenModel):
    """Base class of judges' options. Instances are frozen; unknown options are errors."""

    policy: ClassVar[frozenset[str]] = frozenset()
    """Options that affect the use of replies but not the prompts, so a replay may change them."""

    alongside: ClassVar[Mapping[str, Any]] = {}
    """Options that are not part of the judge's identity, in the form of `model_dump(exclude=…)`: prices, and names of
    files whose content `identity` hashes.
    """

    @property
    def label(self) -> str:
        """Return the model's name as it appears in metric ids."""
        return RULE

    @property
    def weights(self) -> str:
        """Return the hash of a local model's weights; "" if the judge uses no local weights."""
        return ""

    def deciding(self) -> dict[str, Any]:
        """Return the options that are part of the judge's identity, as a JSON object."""
        return self.model_dump(mode="json", exclude=dict(self.alongside))

    def preflight(self) -> None:
        """Check that the judge can run with these options (packages, keys, files), without calling a model.

        Raises:
            UserError: A requirement is missing; the message explains how to provide it.
        """

    def reach(self, cache: Path | None) -> None:
        """Test the judge's endpoint with one short call; skipped if the cache has replies of its model.

        Raises:
            Broke: The endpoint does not answer; the message explains why.
        """

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Estimate the model calls and tokens of a number of judgments, one call each.

        Args:
            lengths: Typical text lengths of the dataset.
            judgments: Number of judged answers, or of pairs in one presentation order.
            answer: Maximum length of an answer, in tokens.
            shown: Number of answers per prompt.
        """
        return Work() if self.label == RULE else unknown(f"judging by {self.label}: the judge states no work")

    @property
    def needs(self) -> Needs:
        """Return what the judge needs to run, such as its model; None without a model."""
        return Needs()


class PointJudge(Protocol):
    """Interface of judges that score single answers. Implementations also have `ask` (a batch, for rules) or `ask_one` (one
    item, for models).
    """

    def parse(self, part: str, reply: str) -> Parsed:
        """Parse a raw reply to the prompt named `part`."""
        ...

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Compute the score on each of the judge's measures from the calls about an item, averaging repetitions."""
        ...


class PairJudge(Protocol):
    """Interface of judges that compare two answers in both presentation orders. Implementations also have `ask` or `ask_one`."""

    def parse(self, part: str, reply: str) -> Parsed:
        """Parse a raw reply."""
        ...

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        """Return the verdict per criterion in terms of the displayed order: `FIRST`, `SECOND`, `TIE` or `NONE`; None if unscored."""
        ...


JudgeKind = Literal["point", "pair"]


@dataclass(frozen=True)
class JudgeEntry:
    """Registration of a judge.

    Attributes:
        id: Name of the judge in experiment files.
        kind: `point` judges give every answer a number, `pair` judges compare two answers.
        version: Version of parser, scoring rules and arithmetic; prompts are hashed separately.
        summary: Summary in one line.
        definition: Definition in one paragraph: what the judge is asked, how verdicts count, and what is unscored.
        factory: Creates a `PointJudge` or `PairJudge` from options and services.
        config: Class of its options.
        measures: Measures of a point judge, the main one first.
        criteria: Criteria of a pair judge, the main one first.
        needs: Fields of question and answer that it reads.
        source: Paper or library that defines it.
        also: Returns, for given options, further parts of the judge's identity, such as hashes of prompts and versions of
            libraries.
        code: Code identity of a plug-in; None for shipped judges.
    """

    id: str
    kind: JudgeKind
    version: int
    summary: str
    definition: str
    factory: Callable[[Any, Services], Any]
    config: type[JudgeConfig]
    measures: tuple[Measure, ...]
    criteria: tuple[str, ...]
    needs: tuple[str, ...]
    source: str
    also: Callable[[Any], Mapping[str, str]]
    code: Code | None = None


JUDGES: Registry[JudgeEntry] = Registry("judge", "judges", "ragmeter.judges")

F = TypeVar("F", bound=Callable[..., Any])


def register_judge(
    identifier: str,
    *,
    kind: JudgeKind,
    summary: str,
    source: str,
    needs: Sequence[str],
    config: type[JudgeConfig],
    measures: Sequence[Measure] = (),
    criteria: Sequence[str] = (),
    version: int = 1,
    identity: Identity = "code",
    also: Callable[[Any], Mapping[str, str]] = lambda config: {},
) -> Callable[[F], F]:
    """Register a judge: a decorator for its factory `(config, services)`, whose docstring becomes the judge's definition.

    For a plug-in, `identity` sets what its id depends on: "code" (a hash of its code) or "version" (a number that its author
    raises).
    """

    def decorate(factory: F) -> F:
        definition = definition_of((factory.__doc__ or "").split("Args:")[0])
        if not definition:
            raise ValueError(f"judge {identifier!r} has no definition: write its docstring")
        entry = JudgeEntry(
            identifier,
            kind,
            version,
            summary,
            definition,
            factory,
            config,
            tuple(measures),
            tuple(criteria),
            tuple(needs),
            source,
            also,
            registered(identity, factory, config),
        )
        JUDGES.add(entry, factory.__module__)
        return factory

    return decorate


@dataclass(frozen=True)
class Judge:
    """Registered judge with its options; it can be described, identified and built."""

    entry: JudgeEntry
    config: JudgeConfig
    _made: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, identifier: str, config: Mapping[str, Any] | None = None, *, where: str | None = None) -> Judge:
        """Look up a judge by id and validate its options.

        Raises:
            UserError: The judge is unknown.
            pydantic.ValidationError: An option is unknown or of the wrong type.
        """
        entry = JUDGES.get(identifier, where=where)
        return cls(entry, entry.config.model_validate(dict(config or {})))

    @property
    def rule(self) -> bool:
        """Return whether the judge is rule-based, without a model."""
        return self.config.label == RULE

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return everything that determines the judge's verdicts, as a JSON object."""
        weights = {"weights": self.config.weights} if self.config.weights else {}
        return {
            "judge": self.entry.id,
            "version": self.entry.version,
            "config": self.config.deciding(),
            "also": {**self.entry.also(self.config), **weights},
            **({"code": code} if (code := code_id(self.entry.code)) else {}),
        }

    @property
    def short(self) -> str:
        """Return the first eight hex digits of the identity's hash, which distinguish judges with the same model."""
        if "short" not in self._made:
            self._made["short"] = fingerprint(self.identity)[:8]
        return self._made["short"]

    def _named(self, name: str) -> str:
        model = re.sub(r"[(),=#\s]", "_", self.config.label)
        return f"{name}(model={model},as={self.short})#v{self.entry.version}"

    def __str__(self) -> str:
        """Return the id: `match(model=gpt-4.1,as=3fa9c1d2)#v1`."""
        return self._named(self.entry.id)

    def __hash__(self) -> int:
        return hash(str(self))

    def metric(self, measure: str) -> str:
        """Return the metric id of one of the judge's measures, for example `accuracy(model=gpt-4.1,as=3fa9c1d2)#v1`."""
        return self._named(measure)

    @property
    def metrics(self) -> dict[str, str]:
        """Return the metric ids of all measures, by measure name."""
        return {measure.name: self.metric(measure.name) for measure in self.entry.measures}

    def build(self, services: Services) -> Any:
        """Create the judge object that makes calls."""
        return self.entry.factory(self.config, services)

    def describe(self) -> dict[str, Any]:
        """Return the judge's card for the store, as a JSON object."""
        entry = self.entry
        return {
            **self.identity,
            "config": self.config.model_dump(mode="json"),
            "id": str(self),
            "kind": entry.kind,
            "model": self.config.label,
            "rule": self.rule,
            **({"plugin": entry.code.to_json()} if entry.code is not None else {}),
            "summary": entry.summary,
            "definition": entry.definition,
            "source": entry.source,
            "needs": list(entry.needs),
            "criteria": list(entry.criteria),
            "measures": [
                {
                    "metric": self.metric(m.name),
                    "name": m.name,
                    "definition": m.definition,
                    "low": m.low,
                    "high": m.high,
                    "higher_is_better": m.higher_is_better,
                    "group": "judge" if m.ranks else "judge share",
                }
                for m in entry.measures
            ],
        }
