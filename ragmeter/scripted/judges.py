"""How the scripted LLM answers the prompts of judges: match, the pairwise two, style and content.

It judges by what the world says, not by the gold that it is shown; for questions it does not know, by that gold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from benchmarks.schema import Question
from benchmarks.styles.rules import RULES
from benchmarks.worlds.world import World
from judges.llm.ask import EMPTY
from judges.llm.match import MatchConfig
from judges.llm.pairwise import OPEN_CRITERIA, OpenPairwiseConfig, PairwiseConfig
from judges.llm.rules import RuleMatchConfig, answer_support, compared, match_verdicts
from judges.llm.style import ALTERED, FORMAL, INFORMAL, KEPT, LOST, ContentConfig, StyleConfig
from methods.api import Prediction
from ragmeter.scripted.prompt_patterns import Request, filled

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Knows(Protocol):
    """What of the scripted LLM judging takes."""

    @property
    def questions(self) -> Mapping[str, Question]: ...

    @property
    def worlds(self) -> Mapping[int, World]: ...


def judge_match(truth: Knows, request: Request) -> str | None:
    """The prompt of the match judge."""
    result = filled(MatchConfig.template.load(), request)
    if result is None:
        return None
    question = _question(truth, result["question"], result["gold"])
    (verdict,) = match_verdicts([question], [_answer(result["answer"])], RuleMatchConfig.model_validate({}))
    return verdict or "Mismatch"


def judge_pair(truth: Knows, request: Request) -> str | None:
    """The prompt of the pairwise judge."""
    result = filled(PairwiseConfig.template.load(), request)
    if result is None:
        return None
    question = _question(truth, result["question"], result["reference"])
    first, second = _answer(result["answer_1"]), _answer(result["answer_2"])
    support = answer_support([question] * 2, [first, second])
    verdicts = compared(question, first, second, float(support[0]), float(support[1]))
    return json.dumps({"reasoning": f"The answer is {question.golds[0]}.", **verdicts})


def judge_open_pair(truth: Knows, request: Request) -> str | None:
    """The prompt of the judge without a reference: whatever names more of the world wins, then the longer one, then the first."""
    result = filled(OpenPairwiseConfig.template.load(), request)
    if result is None:
        return None
    first, second = ((len(_facts(truth, text)), len(text)) for text in (result["answer_1"], result["answer_2"]))
    winner = "Answer 1" if first >= second else "Answer 2"
    return json.dumps({"reasoning": f"{winner} names more.", **dict.fromkeys(OPEN_CRITERIA, winner)})


def judge_style(truth: Knows, request: Request) -> str | None:
    """The prompt of the style classifier: a text is informal if it holds what rewriting rules put in."""
    result = filled(StyleConfig.template.load(), request)
    if result is None:
        return None
    return INFORMAL if _style_phrases().search(result["text"]) else FORMAL


def judge_content(truth: Knows, request: Request) -> str | None:
    """The prompt of the content validation: names of the world and numbers are the facts."""
    result = filled(ContentConfig.template.load(), request)
    if result is None:
        return None
    source, rewritten = (_facts(truth, result[name]) for name in ("source", "rewritten"))
    if rewritten - source:
        return ALTERED
    return LOST if source - rewritten else KEPT


JUDGING: tuple[Callable[[Any, Request], str | None], ...] = (judge_match, judge_pair, judge_open_pair, judge_style, judge_content)


def _question(truth: Knows, text: str, gold: str) -> Question:
    known = truth.questions.get(" ".join(text.split()))
    return known or Question("", text, tuple(gold.split(" | ")))


def _answer(text: str) -> Prediction:
    return Prediction("", "" if text == EMPTY else text)


@lru_cache
def _style_phrases() -> re.Pattern[str]:
    """What rewriting rules put in, of every style."""
    phrases = {
        phrase.strip(" ,.")
        for styles in RULES.values()
        for rules in styles.values()
        for phrase in (*rules.openers, *rules.closers, *rules.swaps.values(), *rules.vague)
    }
    return re.compile("|".join(rf"(?<!\w){re.escape(p)}(?!\w)" for p in sorted(phrases, key=len, reverse=True)))


def _facts(truth: Knows, text: str) -> set[str]:
    names = {entity.name for world in truth.worlds.values() for entity in world.entities if entity.name in text}
    return names | set(_NUMBER.findall(text))
