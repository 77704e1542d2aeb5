"""Judge which of two answers is better, in both orders: by a reference (ARK's win rate), or without one (LightRAG's)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, JudgeCall, Pair, Parsed, register_judge
from judges.llm.abstention import gold_abstains, rightly_declines, settled
from judges.llm.ask import Case, CaseJudge, Golds, LLMJudgeConfig, gold_text, has_gold, prompt_identity
from judges.llm.fences import cut
from judges.llm.reading import VERSION, read_criteria
from methods.api import Prediction
from methods.models.llm import LLM, defaults
from methods.prompts import Shipped

REFERENCE_CHARS = 40_000
"""Maximum characters of the reference in the prompt."""
CRITERIA = ("overall", "faithfulness", "conciseness")
OPEN_CRITERIA = ("overall", "comprehensiveness", "diversity", "empowerment")
ORDERS = (AS_GIVEN, SWAPPED)
OFFERED = {"Answer 1": FIRST, "Answer 2": SECOND, "Tie": TIE, "None": NONE}
"""Verdicts in the words of the prompts."""
DISQUALIFIED = "disqualification"
"""Rule that decides without a call."""
DECLINED = (
    "(The right answer is: {gold}. If this says that the question cannot be answered, an answer that says the same is right: "
    "it is not out, and it wins over one that names something.)"
)
"""Text after the reference if the gold answer abstains."""
_Choice = Literal["Answer 1", "Answer 2"]
_Verdict = Literal["Answer 1", "Answer 2", "Tie", "None"]


# The docstrings of the next two classes are sent to the model in the JSON schema; they must not change.
class PairwiseVerdict(BaseModel):
    """The reply with a reference answer; the order of its fields makes the model argue before it decides."""

    reasoning: str
    faithfulness: _Verdict
    conciseness: _Verdict
    overall: _Verdict


class OpenVerdict(BaseModel):
    """The reply where a question has no reference answer."""

    reasoning: str
    comprehensiveness: _Choice
    diversity: _Choice
    empowerment: _Choice
    overall: _Choice


class ComparingConfig(LLMJudgeConfig):
    """Options of judges that compare two answers."""

    llm: Annotated[LLM, defaults(max_tokens=512)] = Field(description="the model that compares")
    disqualify: Literal["rule", "judge"] = Field(
        "rule",
        description="how missing answers and set phrases such as `unknown` are detected: by a rule without a call, or by "
        "the model; the model always judges other forms of abstention",
    )


class PairwiseConfig(ComparingConfig):
    """Options of the pairwise judge (with a reference)."""

    template: ClassVar[Shipped] = Shipped("judges.llm", "pairwise")

    repetitions: int = Field(5, ge=1, description="replies per order (paper: the mean of five runs; released: one order, once)")
    reference: Literal["answer", "document"] = Field(
        "answer", description="reference for the answers: the gold answer, or the passages that prove it"
    )
    golds: Golds = Field("first", description="gold answers in the prompt (released: the first)")


class OpenPairwiseConfig(ComparingConfig):
    """Options of the open pairwise judge (without a reference)."""

    template: ClassVar[Shipped] = Shipped("judges.llm", "open_pairwise")
    keys = frozenset(OPEN_CRITERIA)


P = TypeVar("P", bound=ComparingConfig)


class Comparing(CaseJudge[P]):
    """Base class of judges whose model compares two answers, once in each presentation order."""

    criteria: ClassVar[Sequence[str]]
    shape: ClassVar[type[BaseModel]]
    """JSON schema of the reply."""
    offered: ClassVar[Sequence[str]]
    """Verdicts that the prompt offers."""

    def parse(self, part: str, reply: str) -> Parsed:
        return read_criteria(reply, self.criteria, self.offered)

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        return shown_verdicts(call, self.criteria)

    def cases(self, item: Pair) -> list[Case]:
        further = self.further_texts(item)
        return [] if further is None else [self._case(item, order, further) for order in ORDERS]

    @abstractmethod
    def further_texts(self, pair: Pair) -> Mapping[str, str] | None:
        """Return the further texts of the prompt, by placeholder, besides question and answers; None if the question is unscorable."""

    def _case(self, pair: Pair, order: str, further: Mapping[str, str]) -> Case:
        shown = in_order(pair, order)
        # The prompts put out every answer that declines, so the model is not asked where declining is right.
        if self.config.disqualify == "rule" or any(rightly_declines(pair.question, answer) for answer in shown):
            verdict = settled(pair.question, *shown)
            if verdict is not None:
                return Case.ruled(order, DISQUALIFIED, **dict.fromkeys(self.criteria, verdict))
        first, second = (cut(prediction.answer, self.config.max_answer_chars) for prediction in shown)
        messages = self.messages(question=pair.question.text, answer_1=first, answer_2=second, **further)
        return Case(order, messages, shape=self.shape)


@register_judge(
    "pairwise",
    kind="pair",
    summary="an LLM compares two answers by faithfulness, conciseness and overall, in both orders",
    source="ARK: win rate",
    needs=("answer", "gold", "passages"),
    config=PairwiseConfig,
    criteria=CRITERIA,
    version=VERSION,
    also=prompt_identity,
)
class PairwiseJudge(Comparing[PairwiseConfig]):
    """LLM judge that compares two answers given a reference; each criterion gets Answer 1, Answer 2, Tie or None.

    An answer that is missing or abstains is disqualified: it loses by every criterion, and two such answers have the verdict
    None. A rule detects missing answers and set phrases, the model other abstentions. If a gold answer is such a phrase
    ("Unanswerable"), abstaining is correct: it wins without a call over an answer without a gold string, and ties with one that
    contains it. An unreadable reply is requested once more. A verdict that was not offered, or two verdicts, leave that
    criterion unscored; contradicting JSON objects leave all criteria unscored. A question without gold (or without its gold
    passages, if they are the reference) is unscorable.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    criteria = CRITERIA
    shape = PairwiseVerdict
    offered = tuple(OFFERED)

    def further_texts(self, pair: Pair) -> Mapping[str, str] | None:
        reference = self._reference(pair)
        return None if reference is None else {"reference": cut(reference, REFERENCE_CHARS)}

    def _reference(self, pair: Pair) -> str | None:
        if not has_gold(pair.question):
            return None
        gold = gold_text(pair.question, self.config.golds)
        reference = gold
        if self.config.reference == "document":
            reference = "\n\n".join(passage.full_text for passage in pair.passages)
        if reference and gold_abstains(pair.question):
            return f"{reference}\n{DECLINED.format(gold=gold)}"
        return reference or None


@register_judge(
    "open_pairwise",
    kind="pair",
    summary="an LLM compares two answers without a reference: comprehensiveness, diversity, empowerment, overall; both orders",
    source="LightRAG (Guo et al., 2024), after Edge et al., 2024; the prompt's words are ours",
    needs=("answer",),
    config=OpenPairwiseConfig,
    criteria=OPEN_CRITERIA,
    version=VERSION,
    also=prompt_identity,
)
class OpenPairwiseJudge(Comparing[OpenPairwiseConfig]):
    """LLM judge that compares two answers without a reference; it must choose Answer 1 or Answer 2 by each criterion.

    It is meant for questions without a right answer, such as LightRAG's over UltraDomain, and measures which answer a reader
    would prefer, not which is true. A missing answer, or one that only consists of a set phrase, loses by every criterion
    without a call; two such answers have the verdict None. If the question is unanswerable, or a gold answer is such a phrase,
    abstaining wins, and ties with an answer that contains a gold string. An unreadable reply is requested once more. A verdict
    that was not offered (such as a tie) leaves that criterion unscored. Every question can be compared.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    criteria = OPEN_CRITERIA
    shape = OpenVerdict
    offered = ("Answer 1", "Answer 2")

    def further_texts(self, pair: Pair) -> Mapping[str, str]:
        return {}


def in_order(pair: Pair, order: str) -> tuple[Prediction, Prediction]:
    """Return the two answers of a pair in one of the presentation orders `ORDERS`."""
    return (pair.one, pair.other) if order == AS_GIVEN else (pair.other, pair.one)


def shown_verdicts(call: JudgeCall, criteria: Sequence[str] = CRITERIA) -> dict[str, str | None]:
    """Return the verdict per criterion in terms of the displayed order; None if the criterion is unscored."""
    value = call.parsed.value or {}
    verdicts = {criterion: value.get(criterion) for criterion in criteria}
    # A lacking verdict must not become the word None, which is one.
    return {criterion: None if verdict is None else OFFERED[verdict] for criterion, verdict in verdicts.items()}
