"""Grounding by rule: the same two measures without a model, for offline use. Words are compared, not meanings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import Field

from benchmarks.schema import Question
from benchmarks.text import f1, is_abstention, normalise, sentences
from judges.judging import RULE, Item, JudgeCall, JudgeConfig, Parsed, Score, register_judge
from judges.llm.grounding import FACTUAL_CORRECTNESS, FAITHFULNESS, settled
from judges.llm.grounding_claims import Mode
from methods.api import Services

FAITHFUL, CORRECT = "claims found", "claims compared"
"""Parts of what is kept of an item."""

_FUNCTION_WORD_LIST = """
am is are was were be been being do does did has have had of in on at by for from to with and or but nor as it
its he she they him her them his hers their this that these those there here which who whom whose what when
where why how will would can could shall should may might must not also than then so such into over under about
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
"""Numbers whole, letters in runs: `Bay's` has the word `Bay`."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ITEMS = re.compile(r"\s*\n\s*|[,;]\s+|\s+and\s+")
_VERDICTS = frozenset(("yes", "no", "true", "false"))


class RuleGroundingConfig(JudgeConfig):
    """Options of grounding by rule."""

    least_overlap: float = Field(0.8, gt=0, le=1, description="share of a claim's content words that one passage must hold to support it")
    mode: Mode = Field("f1", description="factual correctness as f1, precision or recall")


class RuleGrounding:
    """The judge.

    Args:
        config: Options.
    """

    def __init__(self, config: RuleGroundingConfig) -> None:
        self.config = config

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        """What the rules say; nobody is asked."""
        return [
            [JudgeCall(FAITHFUL, 0, None, self._faithful(item), RULE), JudgeCall(CORRECT, 0, None, self._correct(item), RULE)]
            for item in items
        ]

    def parse(self, part: str, reply: str) -> Parsed:
        return Parsed(None, "rules give no reply that could be read again")

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Both measures from what the rules said."""
        said = {call.part: call.parsed for call in calls}
        scores = settled(item)
        if not _references(item.question):
            scores[FACTUAL_CORRECTNESS.name] = Score(None)
        for name, part in ((FAITHFULNESS.name, FAITHFUL), (FACTUAL_CORRECTNESS.name, CORRECT)):
            if name in scores:
                continue
            found = said.get(part, Parsed(None, f"{part}: the rules were not applied"))
            scores[name] = Score(None, found.unscored) if found.value is None else Score(self._value(found.value))
        return scores

    def _value(self, found: Mapping[str, Sequence[float]]) -> float:
        if "supported" in found:
            return _mean(found["supported"])
        return agreement(found["answer"], found["reference"], self.config.mode)

    def _faithful(self, item: Item) -> Parsed:
        claims = _claims(item.prediction.answer, item.question.answer_set)
        if not claims:
            return Parsed(None, "the answer states nothing that words could support")
        passages = [words(passage.full_text) for passage in item.passages]
        return Parsed({"supported": [int(supported(claim, passages, self.config.least_overlap)) for claim in claims]})

    def _correct(self, item: Item) -> Parsed:
        pieces = _pieces(item.prediction.answer, item.question.answer_set)
        best = max(
            (compared(pieces, reference) for reference in _references(item.question)),
            key=lambda found: agreement(found[0], found[1], self.config.mode),
            default=([], []),
        )
        return Parsed({"answer": best[0], "reference": best[1]})


def words(text: str) -> frozenset[str]:
    """The distinct words of a text: letter case, punctuation, articles and a possessive s gone, 1,070 as 1070."""
    found = {word.replace(",", "") for word in _WORD.findall(text.casefold())}
    return frozenset(found - {"a", "an", "the", "s"})


def supported(claim: str, passages: Sequence[frozenset[str]], least: float) -> bool:
    """Whether one passage holds every name and number of a claim, and enough of its content words.

    Names are words that begin with a capital, the claim's first word aside.

    Args:
        claim: A sentence or an item.
        passages: The `words` of each.
        least: The share of the claim's content words.
    """
    every = words(claim)
    content = every - _FUNCTION_WORDS or every
    tail = "".join(claim.split(maxsplit=1)[1:])
    names = [word for word in _WORD.findall(tail) if word[0].isupper()]
    must = words(" ".join([*_NUMBER.findall(claim), *names])) - _FUNCTION_WORDS
    return any(must <= passage and len(content & passage) >= least * len(content) for passage in passages)


def compared(claims: Sequence[str], reference: Sequence[Sequence[str]]) -> tuple[list[float], list[float]]:
    """Each claim's best token F1 (HotpotQA's rules) with a claim of the other side.

    Args:
        claims: The answer's.
        reference: The reference's, each in all its accepted wordings.

    Returns:
        One value per claim of the answer, one per claim of the reference.
    """
    table = [[f1(claim, wordings, "hotpotqa") for wordings in reference] for claim in claims]
    of_reference = [max((row[column] for row in table), default=0.0) for column in range(len(reference))]
    return [max(row, default=0.0) for row in table], of_reference


def agreement(answer: Sequence[float], reference: Sequence[float], mode: Mode) -> float:
    """The mean over the answer's claims (precision), over the reference's (recall), or their harmonic mean (f1)."""
    precision, recall = _mean(answer), _mean(reference)
    if mode != "f1":
        return precision if mode == "precision" else recall
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _pieces(text: str, answer_set: bool) -> list[str]:
    """Sentences; of an answer that must name a set, what stands between commas, semicolons, lines and "and"."""
    found = sentences(text)
    if answer_set:
        found = [item for sentence in found for item in _ITEMS.split(sentence)]
    return [piece for piece in found if normalise(piece)]


def _claims(text: str, answer_set: bool) -> list[str]:
    """The pieces that state something: neither a bare yes or no nor a refusal to answer."""
    return [p for p in _pieces(text, answer_set) if normalise(p) not in _VERDICTS and not is_abstention(p)]


def _references(question: Question) -> list[list[list[str]]]:
    """The references to choose from, each as claims, each claim in its wordings; none that normalises to nothing."""
    if question.answer_set:
        found = [[[answer, *question.aliases.get(answer, ())] for answer in question.answers if normalise(answer)]]
    else:
        found = [[[piece] for piece in _pieces(gold, False)] for gold in question.golds]
    return [reference for reference in found if reference]


@register_judge(
    "rule_grounding",
    kind="point",
    summary="faithfulness and factual correctness by the words of claims, without a model",
    source="ours; the measures are those of the grounding judge, judged by rules",
    needs=("answer", "gold", "passages"),
    config=RuleGroundingConfig,
    measures=(FAITHFULNESS, FACTUAL_CORRECTNESS),
)
def judge_by_rule(config: RuleGroundingConfig, services: Services) -> RuleGrounding:
    """The answer's sentences are its claims; of an answer that must name a set, the items named.

    Faithfulness is the share of claims that a passage supports: one passage holds every name and number of the claim
    and at least `least_overlap` of its content words (all words but articles and function words). A bare yes or no,
    and a refusal to answer, state nothing: an answer of nothing else is unscored. Factual correctness compares claims
    by token F1 (HotpotQA's rules): precision is the mean over the answer's claims of the best F1 with a claim of the
    reference, recall the mean over the reference's claims of the best F1 with a claim of the answer, f1 their harmonic
    mean; of several accepted answers the best counts, an answer set is one reference with an item a claim. As with the
    grounding judge an empty answer scores 0 on both, an answer read from no passage 0 in faithfulness, and without a
    gold answer factual correctness is unscorable. Words are compared: a negation, or true words of another meaning,
    pass for support.

    Args:
        config: Options.
        services: Not needed.
    """
    return RuleGrounding(config)
