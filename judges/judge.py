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
"""Stands for the model's name in judges that are rules."""

FIRST, SECOND, TIE, NONE = "first", "second", "tie", "none"
"""Verdicts of a pair judge, about the answers in the order in which they were shown; none: both are disqualified."""

AS_GIVEN, SWAPPED = "as given", "swapped"
"""Parts of a pair judge's calls: which of the two answers was shown first."""

NOTHING_CLAIMED = ("no claim was found in the answer", "the answer states nothing that words could support")
"""Reasons why a judged answer has no value: the judge was read, but the answer claims nothing that could be supported."""


@dataclass(frozen=True, slots=True)
class Item:
    """An answer to be judged.

    Attributes:
        question: With its gold.
        prediction: The answer.
        passages: The passages that the answer was read from, best first.
    """

    question: Question
    prediction: Prediction
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to the same question.

    Attributes:
        question: With its gold.
        one, other: The two answers, in the order of the runs' fingerprints.
        passages: Positive passages of the question, where a judge wants the gold document.
    """

    question: Question
    one: Prediction
    other: Prediction
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of parsing a reply: a verdict, or the reason why there is none. Exactly one of the two is given."""

    value: Mapping[str, Any] | None
    unscored: str | None = None


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call of a judge, as the store keeps it.

    Attributes:
        part: The judge's prompt, or the claim; for pair judges `AS_GIVEN` or `SWAPPED`.
        repetition: 0, 1 …
        key: Of the reply in the cache; None if no model was called (a rule, or a case that needs no model).
        parsed: Its parsed content.
        model: As the endpoint names it, with its fingerprint and version where it says them; `RULE` for rules, "" where none was asked.
        prompt_tokens, completion_tokens, seconds, cost_usd: Its cost.
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
        """Return whether all that was asked for could be read."""
        return self.parsed.value is not None and not self.parsed.value.get("unscored")


LOST = "the reply is not kept any more"
"""Reason of a call that was read once and whose reply is no longer in the cache."""


def counting(calls: Sequence[JudgeCall]) -> list[JudgeCall]:
    """Return the call that counts of each part and repetition, in order.

    A judge is asked once more if its reply cannot be read. Of the two calls the first one counts that was read in
    full, else the first that was read in part, else the first whose reply was read once and is lost, else the first.
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
    """A question's value on a measure: a number; or the reason why it is missing; or neither, if it is unscorable."""

    value: float | None
    unscored: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a judge gives a question.

    Attributes:
        name: As in metric ids (`accuracy`).
        definition: One paragraph.
        low, high: Its range.
        higher_is_better: Direction.
        ranks: Whether it says how good an answer is, so that controls have a known place on it.
    """

    name: str
    definition: str
    low: float | None = 0.0
    high: float | None = 1.0
    higher_is_better: bool = True
    ranks: bool = True


class JudgeConfig(FrozenModel):
    """Base of every judge's options: frozen, and unknown keys are errors."""

    policy: ClassVar[frozenset[str]] = frozenset()
    """Options that affect the use of replies but not the prompts: a replay may change them."""

    alongside: ClassVar[Mapping[str, Any]] = {}
    """Options that are not part of the judge's identity, as `model_dump(exclude=…)` takes them: prices, and names of files
    whose content `identity` hashes."""

    @property
    def label(self) -> str:
        """Return the model's name in ids."""
        return RULE

    @property
    def weights(self) -> str:
        """Return the hash of the weights of a local model, "" if there is none."""
        return ""

    def deciding(self) -> dict[str, Any]:
        """Return the options that are part of the judge's identity, as JSON has them."""
        return self.model_dump(mode="json", exclude=dict(self.alongside))

    def preflight(self) -> None:
        """Check, without calling anything, that these options can work here.

        Raises:
            UserError: Something is missing; the message says how to get it.
        """

    def reach(self, cache: Path | None) -> None:
        """Make one short call to the judge's endpoint, unless replies of its model are kept.

        Raises:
            Broke: It does not answer; the message says why.
        """

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """Return the work of a number of judgments, one call each.

        Args:
            lengths: Of the data.
            judgments: Answers, or pairs of them in one order.
            answer: Tokens of an answer at most.
            shown: Answers in a prompt.
        """
        return Work() if self.label == RULE else unknown(f"judging by {self.label}: the judge states no work")

    @property
    def needs(self) -> Needs:
        """Return the model of the judge, None without a model."""
        return Needs()


class PointJudge(Protocol):
    """A judge of single answers; it has one form of `ask` too."""

    def parse(self, part: str, reply: str) -> Parsed:
        """Read a raw reply to one of the judge's prompts."""
        ...

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Return a score for each of the judge's measures from the calls made for an item; repetitions are averaged."""
        ...


class PairJudge(Protocol):
    """A judge of two answers to one question, in both orders of presentation; it has one form of `ask` too."""

    def parse(self, part: str, reply: str) -> Parsed:
        """Read a raw reply."""
        ...

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        """Return `FIRST`, `SECOND`, `TIE` or `NONE` per criterion, by the displayed order; None if the criterion is unscored."""
        ...


JudgeKind = Literal["point", "pair"]


@dataclass(frozen=True)
class JudgeEntry:
    """A registered judge.

    Attributes:
        id: The name in experiment files.
        kind: `point` judges give every answer a number, `pair` judges compare two answers.
        version: Of parser, policy and arithmetic; the prompts are hashed on their own.
        summary: One line.
        definition: One paragraph: what is asked, what counts, what is unscored.
        factory: From options and services to a `PointJudge` or `PairJudge`.
        config: The class of its options.
        measures: Measures of a point judge, main one first.
        criteria: Criteria of a pair judge, main one first.
        needs: Fields of a question and answer that it reads.
        source: Paper or library that defines it.
        also: From a config to whatever else decides what it says: hashes of prompts, versions of libraries.
        code: Of a plug-in; None for shipped judges.
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
    """Declare a judge; decorates its factory `(config, services)`, whose docstring is the definition.

    Of a plug-in, `identity` says whether its id covers its `code`, or only the `version` that its author raises.
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
    """A registered judge with its options: what can be named, described and built."""

    entry: JudgeEntry
    config: JudgeConfig
    _made: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, identifier: str, config: Mapping[str, Any] | None = None, *, where: str | None = None) -> Judge:
        """Look a judge up and validate its options.

        Raises:
            UserError: There is no such judge.
            pydantic.ValidationError: An option is unknown or of the wrong type.
        """
        entry = JUDGES.get(identifier, where=where)
        return cls(entry, entry.config.model_validate(dict(config or {})))

    @property
    def rule(self) -> bool:
        """Return whether the judge is a rule without a model."""
        return self.config.label == RULE

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return the settings that determine the judge's verdicts."""
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
        """Return eight hex digits of the identity: what tells two judges with the same model apart."""
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
        """Return the metric id of one of its measures: `accuracy(model=gpt-4.1,as=3fa9c1d2)#v1`."""
        return self._named(measure)

    @property
    def metrics(self) -> dict[str, str]:
        """Return metric ids by measure."""
        return {measure.name: self.metric(measure.name) for measure in self.entry.measures}

    def build(self, services: Services) -> Any:
        """Make the judge itself."""
        return self.entry.factory(self.config, services)

    def describe(self) -> dict[str, Any]:
        """Return the card as the store keeps it."""
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
