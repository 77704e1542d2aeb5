"""The rule-based grounding judge: faithfulness and factual correctness by shared words, without a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import Field

from benchmarks.schema import Question
from benchmarks.text import f1, is_abstention, normalize, sentences
from judges.judge import NOTHING_CLAIMED, RULE, Item, JudgeCall, JudgeConfig, Parsed, Score, register_judge
from judges.llm.grounding import FACTUAL_CORRECTNESS, FAITHFULNESS, Mode, settled
from judges.llm.rules import Ruled
from methods.api import Services

FAITHFUL, CORRECT = "claims found", "claims compared"
"""Stored parts of an item."""

LEAST_OVERLAP = 0.8
"""Share of a claim's content words that one passage must hold to support it."""
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
    """Options of the rule-based grounding judge."""

    mode: Mode = Field("f1", description="factual correctness as f1, precision or recall")


class RuleGrounding(Ruled[RuleGroundingConfig]):
    """Rule-based judge of faithfulness and factual correctness; see `judge_by_rule`."""

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        """Apply the rules to items, without model calls."""
        return [
            [JudgeCall(FAITHFUL, 0, None, self._faithful(item), RULE), JudgeCall(CORRECT, 0, None, self._correct(item), RULE)]
            for item in items
        ]

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        """Compute faithfulness and factual correctness from the rules' verdicts."""
        read = {call.part: call.parsed for call in calls}
        scores = settled(item)
        if not _references(item.question):
            scores[FACTUAL_CORRECTNESS.name] = Score(None)
        for name, part in ((FAITHFULNESS.name, FAITHFUL), (FACTUAL_CORRECTNESS.name, CORRECT)):
            if name in scores:
                continue
            result = read.get(part, Parsed(None, f"{part}: the rules were not applied"))
            scores[name] = Score(None, result.unscored) if result.value is None else Score(self._value(result.value))
        return scores

    def _value(self, results: Mapping[str, Sequence[float]]) -> float:
        if "supported" in results:
            return _mean(results["supported"])
        return agreement(results["answer"], results["reference"], self.config.mode)

    def _faithful(self, item: Item) -> Parsed:
        claims = _rule_claims(item.prediction.answer, item.question.answer_set)
        if not claims:
            return Parsed(None, NOTHING_CLAIMED[1])
        passages = [words(passage.full_text) for passage in item.passages]
        return Parsed({"supported": [int(supported(claim, passages, LEAST_OVERLAP)) for claim in claims]})

    def _correct(self, item: Item) -> Parsed:
        pieces = _pieces(item.prediction.answer, item.question.answer_set)
        best = max(
            (compared(pieces, reference) for reference in _references(item.question)),
            key=lambda result: agreement(result[0], result[1], self.config.mode),
            default=([], []),
        )
        return Parsed({"answer": best[0], "reference": best[1]})


def words(text: str) -> frozenset[str]:
    """Return the set of distinct words of a text, without letter case, punctuation, articles and possessive s; 1,070 becomes 1070."""
    results = {word.replace(",", "") for word in _WORD.findall(text.casefold())}
    return frozenset(results - {"a", "an", "the", "s"})


def supported(claim: str, passages: Sequence[frozenset[str]], least: float) -> bool:
    """Return whether one passage contains every name and number of a claim, and enough of its content words.

    Names are capitalized words other than the claim's first word.

    Args:
        claim: A sentence, or one answer of a set.
        passages: The `words` of each passage.
        least: Minimum share of the claim's content words.
    """
    every = words(claim)
    content = every - _FUNCTION_WORDS or every
    tail = "".join(claim.split(maxsplit=1)[1:])
    names = [word for word in _WORD.findall(tail) if word[0].isupper()]
    must = words(" ".join([*_NUMBER.findall(claim), *names])) - _FUNCTION_WORDS
    return any(must <= passage and len(content & passage) >= least * len(content) for passage in passages)


def compared(claims: Sequence[str], reference: Sequence[Sequence[str]]) -> tuple[list[float], list[float]]:
    """Return each claim's best token F1 (HotpotQA's rules) with any claim of the other text.

    Args:
        claims: Claims of the answer.
        reference: Claims of the reference, each with all accepted wordings.

    Returns:
        Two lists: one value per claim of the answer, and one per claim of the reference.
    """
    table = [[f1(claim, wordings, "hotpotqa") for wordings in reference] for claim in claims]
    of_reference = [max((row[column] for row in table), default=0.0) for column in range(len(reference))]
    return [max(row, default=0.0) for row in table], of_reference


def agreement(answer: Sequence[float], reference: Sequence[float], mode: Mode) -> float:
    """Combine the values of `compared`: the mean over the answer's claims (precision), over the reference's (recall), or their
    harmonic mean (f1).
    """
    precision, recall = _mean(answer), _mean(reference)
    if mode != "f1":
        return precision if mode == "precision" else recall
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _pieces(text: str, answer_set: bool) -> list[str]:
    """Return sentences; of an answer that must name a set, what stands between commas, semicolons, lines and "and"."""
    results = sentences(text)
    if answer_set:
        results = [item for sentence in results for item in _ITEMS.split(sentence)]
    return [piece for piece in results if normalize(piece)]


def _rule_claims(text: str, answer_set: bool) -> list[str]:
    """Return the pieces that state something: neither a bare yes or no nor a refusal to answer."""
    return [p for p in _pieces(text, answer_set) if normalize(p) not in _VERDICTS and not is_abstention(p)]


def _references(question: Question) -> list[list[list[str]]]:
    """Return the references to choose from, each as claims, each claim in its wordings; none that normalizes to nothing."""
    if question.answer_set:
        results = [[[answer, *question.aliases.get(answer, ())] for answer in question.wanted if normalize(answer)]]
    else:
        results = [[[piece] for piece in _pieces(gold, False)] for gold in question.golds]
    return [reference for reference in results if reference]


@register_judge(
    "rule_grounding",
    kind="point",
    summary="faithfulness and factual correctness by the words of claims, without a model",
    source="ours; the measures are those of the grounding judge, judged by rules",
    needs=("answer", "gold", "passages"),
    config=RuleGroundingConfig,
    measures=(FAITHFULNESS, FACTUAL_CORRECTNESS),
    version=3,
)
def judge_by_rule(config: RuleGroundingConfig, services: Services) -> RuleGrounding:
    """Compute faithfulness and factual correctness by rules; the answer's claims are its sentences or, for a set of answers, its items.

    Faithfulness is the share of claims that a passage supports: one passage holds every name and number of the claim and at
    least `LEAST_OVERLAP` of its content words (all words but articles and function words). A bare yes or no, and an abstention,
    are not claims; an answer that consists only of them is unscored. Factual correctness compares claims by token F1
    (HotpotQA's rules): precision is the mean over the answer's claims of the best F1 with a claim of the reference, recall the
    mean over the reference's claims of the best F1 with a claim of the answer, f1 their harmonic mean; With several accepted
    answers the best value counts; the items of a set of answers are the claims of one reference. As with the grounding judge,
    an empty answer scores 0 on both measures, an answer without passages has faithfulness 0, and without a gold answer factual
    correctness is unscorable. Only words are compared, so negations and other meanings of the same words count as support.

    Args:
        config: The judge's options.
        services: Not needed.
    """
    return RuleGrounding(config, services)
