"""Answer the prompts of judges as the scripted LLM: match, both pairwise judges, style and content.

It judges by what the world says, not by the gold that it is shown; for questions it does not know, by that gold.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from benchmarks.schema import Question
from benchmarks.styles.rules import RULES
from judges.llm.fences import EMPTY
from judges.llm.match import MatchConfig
from judges.llm.pairwise import OPEN_CRITERIA, OpenPairwiseConfig, PairwiseConfig
from judges.llm.rules import RuleMatchConfig, answer_support, compared, match_verdicts
from judges.llm.style import ALTERED, FORMAL, INFORMAL, KEPT, LOST, ContentConfig, StyleConfig
from methods.api import Prediction
from ragmeter.scripted.prompt_patterns import Shown, Truth, answers

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@answers(MatchConfig.template)
def judge_match(truth: Truth, shown: Shown) -> str:
    """Reply to the match judge's prompt."""
    question = _question(truth, shown["question"], shown["gold"])
    (verdict,) = match_verdicts([question], [_answer(shown["answer"])], RuleMatchConfig.model_validate({}))
    return verdict or "Mismatch"


@answers(PairwiseConfig.template)
def judge_pair(truth: Truth, shown: Shown) -> str:
    """Reply to the pairwise judge's prompt."""
    question = _question(truth, shown["question"], shown["reference"])
    first, second = _answer(shown["answer_1"]), _answer(shown["answer_2"])
    support = answer_support([question] * 2, [first, second])
    verdicts = compared(question, first, second, float(support[0]), float(support[1]))
    return json.dumps({"reasoning": f"The answer is {question.golds[0]}.", **verdicts})


@answers(OpenPairwiseConfig.template)
def judge_open_pair(truth: Truth, shown: Shown) -> str:
    """Reply to the open pairwise judge's prompt: more names of the world win, then the longer answer, then the first."""
    first, second = ((len(_facts(truth, text)), len(text)) for text in (shown["answer_1"], shown["answer_2"]))
    winner = "Answer 1" if first >= second else "Answer 2"
    return json.dumps({"reasoning": f"{winner} names more.", **dict.fromkeys(OPEN_CRITERIA, winner)})


@answers(StyleConfig.template)
def judge_style(truth: Truth, shown: Shown) -> str:
    """Reply to the style judge's prompt: a text is informal if it contains marks that the rewriting rules insert."""
    return INFORMAL if _style_phrases().search(shown["text"]) else FORMAL


@answers(ContentConfig.template)
def judge_content(truth: Truth, shown: Shown) -> str:
    """Reply to the content judge's prompt: names of the world and numbers are the facts to keep."""
    source, rewritten = (_facts(truth, shown[name]) for name in ("source", "rewritten"))
    if rewritten - source:
        return ALTERED
    return LOST if source - rewritten else KEPT


def _question(truth: Truth, text: str, gold: str) -> Question:
    return truth.question(text) or Question("", text, tuple(gold.split(" | ")))


def _answer(text: str) -> Prediction:
    return Prediction("", "" if text == EMPTY else text)


@lru_cache
def _style_phrases() -> re.Pattern[str]:
    """Return the phrases that rewriting rules insert, of every style."""
    phrases = {
        phrase.strip(" ,.")
        for styles in RULES.values()
        for rules in styles.values()
        for phrase in (*rules.openers, *rules.closers, *rules.swaps.values(), *rules.vague)
    }
    return re.compile("|".join(rf"(?<!\w){re.escape(p)}(?!\w)" for p in sorted(phrases, key=len, reverse=True)))


def _facts(truth: Truth, text: str) -> set[str]:
    names = {entity.name for world in truth.worlds.values() for entity in world.entities if entity.name in text}
    return names | set(_NUMBER.findall(text))
