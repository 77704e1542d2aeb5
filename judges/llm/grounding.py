"""The grounding judge: ragas' Faithfulness and FactualCorrectness, asked through our own chat client.

The prompts, their examples and the JSON asked for are ragas' own; the calls are ours, so that cache, export, limits,
retries and faults are those of every other call, and each reply is kept raw. A test holds the numbers against those of
ragas' metric objects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from benchmarks.core.errors import Broke, MissingPackage, how_to_install
from benchmarks.schema import Question
from judges.judge import NOTHING_CLAIMED, Item, JudgeCall, Measure, Parsed, Score, counting, register_judge
from judges.llm.abstention import rightly_declines
from judges.llm.ask import Asker, AskingJudgeConfig, Case, has_gold
from judges.llm.match import unanswered
from judges.llm.reading import VERSION, refused, unreadable, without_thought
from methods.api import Services
from methods.flow import together
from methods.models.llm import LLM, defaults
from methods.models.structured import parse

# A text is taken apart into claims, then each claim is judged against another text: 1, it follows from it; 0, it does
# not. Faithfulness and factual correctness are counts of such verdicts, as ragas defines them, but never rounded.
#
# Stricter than ragas where a broken reply would pass for a low or a high score: a verdict other than 0 and 1, more or
# fewer verdicts than claims, a reply that breaks off, a reference in which no claim was found.


STATEMENTS, STATEMENT_VERDICTS = "statements", "statements supported"
ANSWER_CLAIMS, ANSWER_VERDICTS = "answer claims", "answer claims supported"
REFERENCE_CLAIMS, REFERENCE_VERDICTS = "reference claims", "reference claims supported"
FOLLOWS = {STATEMENTS: STATEMENT_VERDICTS, ANSWER_CLAIMS: ANSWER_VERDICTS, REFERENCE_CLAIMS: REFERENCE_VERDICTS}
"""Parts that split a text into claims, each with the part that judges those claims."""
NOT_REQUESTED = "not_called"
"""Part of an item without a call: the answer is empty, or there is no text to check it against."""

Mode = Literal["f1", "precision", "recall"]


class Statements(BaseModel):
    """A text taken apart, as ragas' Faithfulness asks for it."""

    statements: list[str]

    def response(self) -> dict[str, list[Any]]:
        """Return the claims."""
        return {"claims": _claims(self.statements)}


class Claims(BaseModel):
    """A text taken apart, as ragas' FactualCorrectness asks for it."""

    claims: list[str]

    def response(self) -> dict[str, list[Any]]:
        """Return the claims."""
        return {"claims": _claims(self.claims)}


class Verdict(BaseModel):
    """A verdict on a claim; other text in the reply is ignored."""

    verdict: int = Field(ge=0, le=1)


class Verdicts(BaseModel):
    """Verdicts in the order in which the claims were given."""

    statements: list[Verdict]

    def response(self) -> dict[str, list[Any]]:
        """Return the verdicts."""
        return {"verdicts": [statement.verdict for statement in self.statements]}


def read_reply(part: str, reply: str) -> Parsed:
    """Parse a raw reply: `{"claims": [text, …]}` for parts that split a text, `{"verdicts": [0 or 1, …]}` for the others.

    Raises:
        MissingPackage: The reply is not plain JSON, and the package that could repair it is not installed.
    """
    form: type[Statements | Claims | Verdicts] = Verdicts
    if part in FOLLOWS:
        form = Statements if part == STATEMENTS else Claims
    reply, unfinished = without_thought(reply)
    if unfinished:
        return Parsed(None, unfinished)
    result = parse(reply, form)
    if result.value is None:
        refusal = unreadable(reply, "")
        return refusal if refused(refusal) else Parsed(None, result.failed)
    if result.repaired and breaks_off(reply):
        return Parsed(None, "the reply breaks off in the middle of its JSON object")
    return Parsed(result.value.response())


def breaks_off(reply: str) -> bool:
    """Return whether a reply was cut off: the last JSON object that it begins is never closed.

    Braces inside strings are ignored. If the reply does not use JSON's quotes, a complete object may be reported as cut off.
    """
    depth, inside, escaped = 0, False, False
    for character in reply[max(reply.find("{"), 0) :]:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"' and depth:
            inside = True
        elif character in "{[":
            depth += 1
        elif character in "}]" and depth:
            depth -= 1
    return depth > 0


def sound(text: str) -> str:
    """Remove unpaired surrogates from a text, which neither JSON nor the store can represent."""
    return text.encode("utf-8", "replace").decode()


def _claims(results: Sequence[str]) -> list[str]:
    return [sound(claim) for claim in results if claim.strip()]


def faithfulness(round_: Mapping[str, Parsed]) -> Score:
    """Compute ragas' faithfulness from the calls of one repetition: the share of the answer's claims that the passages support."""
    verdicts = _verdicts(round_, STATEMENTS)
    if isinstance(verdicts, str):
        return Score(None, verdicts)
    if not verdicts:
        return Score(None, NOTHING_CLAIMED[0])
    return Score(sum(verdicts) / len(verdicts))


def factual_correctness(round_: Mapping[str, Parsed], mode: Mode) -> Score:
    """Compute ragas' factual correctness from the calls of one repetition: agreement of the answer's claims with the reference
    (`from_counts`).
    """
    answer = _verdicts(round_, ANSWER_CLAIMS)
    if isinstance(answer, str):
        return Score(None, answer)
    if mode == "precision":
        return Score(from_counts(answer, [], mode))
    reference = _verdicts(round_, REFERENCE_CLAIMS)
    if isinstance(reference, str):
        return Score(None, reference)
    if not reference:
        return Score(None, "no claim was found in the reference")
    return Score(from_counts(answer, reference, mode))


def from_counts(answer: Sequence[int], reference: Sequence[int], mode: Mode) -> float:
    """Compute ragas' precision, recall or F1 of claims, unrounded.

    tp is how many of the answer's claims the reference supports, fp how many it does not, fn how many of the
    reference's claims the answer does not support. precision = tp/(tp+fp), recall = tp/(tp+fn), f1 is their harmonic
    mean, and all are 0 if tp is. (So recall counts claims of both texts; that is ragas' definition.)

    Args:
        answer: For each claim of the answer, 1 if the reference supports it, else 0.
        reference: For each claim of the reference, 1 if the answer supports it, else 0.
        mode: `precision`, `recall` or `f1`.
    """
    tp = sum(answer)
    fp, fn = len(answer) - tp, len(reference) - sum(reference)
    if not tp:
        return 0.0
    if mode == "precision":
        return tp / (tp + fp)
    if mode == "recall":
        return tp / (tp + fn)
    return 2 * tp / (2 * tp + fp + fn)


def _verdicts(round_: Mapping[str, Parsed], part: str) -> list[int] | str:
    """Return the verdicts on a part's claims, or the reason why there are none."""
    result = _value(round_, part)
    if isinstance(result, str):
        return result
    claims = result["claims"]
    if not claims:
        return []
    judged = _value(round_, FOLLOWS[part])
    if isinstance(judged, str):
        return judged
    verdicts: list[int] = judged["verdicts"]
    if len(verdicts) != len(claims):
        return f"{FOLLOWS[part]}: {len(verdicts)} verdicts on {len(claims)} claims"
    return verdicts


def _value(round_: Mapping[str, Parsed], part: str) -> Mapping[str, Any] | str:
    call = round_.get(part)
    if call is None:
        return f"{part}: no call was made"
    if call.value is None:
        return f"{part}: {call.unscored}"
    return call.value


def rounds(calls: Sequence[JudgeCall]) -> list[dict[str, Parsed]]:
    """Group an item's calls by repetition; each group maps a part to its parsed reply."""
    results: dict[int, dict[str, Parsed]] = {}
    for call in counting(calls):
        results.setdefault(call.repetition, {})[call.part] = call.parsed
    return [results[repetition] for repetition in sorted(results)]


def mean_score(scores: Sequence[Score]) -> Score:
    """Average scores over repetitions; unscored, with the first reason, if more than half have no score."""
    values = [score.value for score in scores if score.value is not None]
    if values and 2 * len(values) >= len(scores):
        return Score(sum(values) / len(values))
    return next((score for score in scores if score.value is None), Score(None, "no call was made"))


# ragas is imported when the first prompt is written, because that takes seconds; it makes no calls here.


def ragas_version() -> str:
    """Return the installed version of ragas, part of the judge's id.

    Raises:
        MissingPackage: ragas is not installed.
    """
    try:
        return version("ragas")
    except PackageNotFoundError as error:
        raise MissingPackage("ragas", "grounding", "the grounding judge") from error


class Prompts:
    """ragas' prompts as texts, with the JSON form that each requests.

    Args:
        atomicity, coverage: ragas' options for how finely and completely a text is split into claims; they select the prompt's
            examples.

    Raises:
        MissingPackage: ragas is not installed.
        Broke: ragas is installed, but fails to import because of incompatible packages.
    """

    def __init__(self, atomicity: str = "low", coverage: str = "low") -> None:
        ragas_version()
        os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")
        try:
            from ragas.metrics.collections.factual_correctness import util as correctness
            from ragas.metrics.collections.faithfulness import util as faith
        except ImportError as error:
            raise Broke(
                f"the grounding judge's package ragas is installed, but cannot be imported: {error}",
                code="ragas-import-failed",
                try_this=f"{how_to_install('grounding')}, which pins the versions that ragas works with",
            ) from error
        self._levels = {"atomicity": atomicity, "coverage": coverage}
        self._correctness, self._faith = correctness, faith

    def form(self, part: str) -> type[BaseModel]:
        """Return the JSON form that a part requests."""
        forms: dict[str, type[BaseModel]] = {
            STATEMENTS: self._faith.StatementGeneratorOutput,
            STATEMENT_VERDICTS: self._faith.NLIStatementOutput,
            ANSWER_CLAIMS: self._correctness.ClaimDecompositionOutput,
            REFERENCE_CLAIMS: self._correctness.ClaimDecompositionOutput,
            ANSWER_VERDICTS: self._correctness.NLIStatementOutput,
            REFERENCE_VERDICTS: self._correctness.NLIStatementOutput,
        }
        return forms[part]

    def apart(self, part: str, question: str, text: str) -> str:
        """Return the prompt that asks to split a text into claims."""
        if part == STATEMENTS:
            known = self._faith.StatementGeneratorInput(question=sound(question), answer=sound(text))
            return str(self._faith.StatementGeneratorPrompt().to_string(known))
        # A prompt of its own for each: filling it swaps its examples for a moment, which threads would see.
        value = self._correctness.ClaimDecompositionInput(response=sound(text), **self._levels)
        return str(self._correctness.ClaimDecompositionPrompt().to_string(value))

    def verdicts(self, part: str, context: str, claims: Sequence[str]) -> str:
        """Return the prompt that asks which claims a text supports."""
        owner = self._faith if part == STATEMENT_VERDICTS else self._correctness
        value = owner.NLIStatementInput(context=sound(context), statements=[sound(claim) for claim in claims])
        return str(owner.NLIStatementPrompt().to_string(value))


FAITHFULNESS = Measure(
    "faithfulness",
    "The share of the answer's claims that follow from what it was read from.",
    ranks=False,  # to its own passages: a wrong answer copied from them is more faithful than the gold
)
FACTUAL_CORRECTNESS = Measure(
    "factual_correctness", "Agreement of the answer's claims with the reference's, by the judge's mode (F1 unless set)."
)


class GroundingConfig(AskingJudgeConfig):
    """Options of the grounding judge: its model, and ragas' options."""

    policy: ClassVar[frozenset[str]] = frozenset(("mode",))

    llm: Annotated[LLM, defaults(max_tokens=2048)] = Field(
        description="the model that judges; verdicts come with a reason each, for which ragas allows 1024 tokens in all"
    )
    mode: Mode = Field("f1", description="factual correctness as f1, precision or recall; precision saves two calls")
    atomicity: Literal["low", "high"] = Field("low", description="granularity of claims (ragas' examples)")
    coverage: Literal["low", "high"] = Field("low", description="whether every detail becomes a claim")

    def preflight(self) -> None:
        """Check that the model can be called and that ragas is installed."""
        super().preflight()
        ragas_version()


class Grounding:
    """Judge of faithfulness and factual correctness with ragas' prompts; see `judge_grounding`.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    def __init__(self, config: GroundingConfig, services: Services) -> None:
        self.config = config
        self._asker = Asker(config, services, self.parse)

    @property
    def in_flight(self) -> int:
        """Return the number of concurrent items that keeps the model busy. Reading it also imports ragas, which takes seconds,
        outside the event loop.
        """
        _ = self._prompts
        return self._asker.in_flight

    async def ask_one(self, item: Item) -> list[JudgeCall]:
        """Split the texts of an item into claims, and judge the claims of each text as soon as they are known."""
        wanted = texts(item, self.config.mode).items()
        made = await together(
            *(self._claims(item, part, text, number) for part, text in wanted for number in range(self.config.repetitions))
        )
        return [call for wave in zip_longest(*made) for call in wave if call is not None] or [not_called(item)]

    def parse(self, part: str, reply: str) -> Parsed:
        return read_reply(part, reply)

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Compute faithfulness and factual correctness from the calls about an item; `judge_grounding` lists the cases without calls."""
        known = settled(item)
        read = rounds(calls)
        if FAITHFULNESS.name not in known:
            known[FAITHFULNESS.name] = mean_score([faithfulness(item) for item in read])
        if FACTUAL_CORRECTNESS.name not in known:
            scores = [factual_correctness(item, self.config.mode) for item in read]
            known[FACTUAL_CORRECTNESS.name] = mean_score(scores)
        return known

    # Made when first needed: reading cached replies again does not need ragas.

    @cached_property
    def _prompts(self) -> Prompts:
        return Prompts(self.config.atomicity, self.config.coverage)

    async def _claims(self, item: Item, part: str, text: str, repetition: int) -> list[JudgeCall]:
        """Return the call that splits a text into claims, and the call that judges them, if there are any."""
        apart = await self._call(part, self._prompts.apart(part, item.question.text, text), repetition)
        (result,) = counting(apart)
        claims = result.parsed.value["claims"] if result.parsed.value else []
        if not claims:
            return apart
        follows = FOLLOWS[part]
        return [*apart, *await self._call(follows, self._prompts.verdicts(follows, contexts(item)[follows], claims), repetition)]

    async def _call(self, part: str, prompt: str, repetition: int) -> list[JudgeCall]:
        case = Case(part, [{"role": "user", "content": prompt}], shape=self._prompts.form(part))
        return await self._asker.call(case, repetition)


def reference_of(question: Question) -> str:
    """Return the reference text: the first gold answer, or all answers of a set question; "" if there is none."""
    wanted = [answer for answer in question.wanted if answer.strip()] if has_gold(question) else []
    return ", ".join(wanted if question.answer_set else wanted[:1])


def settled(item: Item) -> dict[str, Score]:
    """Return the measures that are known without a call; `judge_grounding` lists these cases."""
    known = {}
    if not item.known and not unanswered(item):
        known[FAITHFULNESS.name] = Score(None)
    elif unanswered(item) or not contexts(item)[STATEMENT_VERDICTS].strip():
        known[FAITHFULNESS.name] = Score(0.0)
    if not reference_of(item.question):
        known[FACTUAL_CORRECTNESS.name] = Score(None)
    elif unanswered(item):
        known[FACTUAL_CORRECTNESS.name] = Score(0.0)
    elif rightly_declines(item.question, item.prediction):
        known[FACTUAL_CORRECTNESS.name] = Score(1.0)
    return known


def texts(item: Item, mode: Mode) -> dict[str, str]:
    """Return the texts to split into claims, by part."""
    known = settled(item)
    wanted = {}
    if FAITHFULNESS.name not in known:
        wanted[STATEMENTS] = item.prediction.answer
    if FACTUAL_CORRECTNESS.name not in known:
        wanted[ANSWER_CLAIMS] = item.prediction.answer
        if mode != "precision":
            wanted[REFERENCE_CLAIMS] = reference_of(item.question)
    return wanted


def contexts(item: Item) -> dict[str, str]:
    """Return the texts to check claims against, by part."""
    return {
        STATEMENT_VERDICTS: "\n".join(passage.full_text for passage in item.passages),
        ANSWER_VERDICTS: reference_of(item.question),
        REFERENCE_VERDICTS: item.prediction.answer,
    }


def not_called(item: Item) -> JudgeCall:
    """Return the record of an item that needs no call."""
    why = "no answer" if unanswered(item) else "neither a passage nor a reference to hold the answer against"
    return JudgeCall(NOT_REQUESTED, 0, None, Parsed({"by": why}))


@register_judge(
    "grounding",
    kind="point",
    summary="ragas' Faithfulness and FactualCorrectness by a chat model",
    source="ragas (Es et al. 2024), metrics.collections.Faithfulness and FactualCorrectness; CLaRa, Table 18",
    needs=("answer", "gold", "passages"),
    config=GroundingConfig,
    measures=(FAITHFULNESS, FACTUAL_CORRECTNESS),
    version=VERSION,
    also=lambda config: {"ragas": ragas_version()},
)
def judge_grounding(config: GroundingConfig, services: Services) -> Grounding:
    """Compute faithfulness and factual correctness with ragas' method: a model splits the answer into claims and judges each claim.

    Faithfulness is the share of the answer's claims that the passages support. For factual correctness, answer and reference
    are both split, and the claims of each are judged against the other text: tp and fp are the answer's claims that the
    reference does and does not support, fn the reference's claims that the answer does not support. The value is F1, precision
    tp/(tp+fp) or recall tp/(tp+fn), unrounded. The reference is the first gold answer, or all answers of a question with a set
    of answers. Prompts and arithmetic are ragas'. An empty answer scores 0 on both measures, and an answer without passages has
    faithfulness 0; if the app names its passages without their texts, faithfulness is unscorable. Without a gold answer, factual
    correctness is unscorable. A set phrase that abstains has factual correctness
    1 if a gold answer is one. An unreadable reply is requested once more. Unscored are: a failed call, an unreadable or
    truncated reply, a verdict other than 0 and 1, a number of verdicts other than the number of claims, a reference without
    claims and, for faithfulness, an answer without claims (ragas' NaN; its factual correctness is 0). Scores are averaged over
    repetitions.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """
    return Grounding(config, services)
