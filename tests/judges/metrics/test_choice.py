"""Choices and masked names, compared with the authors' functions (label: `["Carley", "D"]`, then `D`)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.schema import Question
from judges.score import score
from methods.api import Prediction

REPLIES = {
    # reply: ∞Bench, LongBench v2, our lenient rules
    "D": (1, 0, 1),
    "(D)": (0, 0, 1),
    "D. Carley": (1, 0, 1),
    "(D) Carley": (0, 0, 1),
    "D) Carley, because she says so": (1, 0, 1),
    "D\n\nExplanation: she says so.": (1, 0, 1),
    "**D.** Carley": (0, 0, 1),
    "D. Lincoln": (1, 0, 0),
    "D.C. is the town": (1, 0, 0),
    "A. Carley": (0, 0, 0),
    "(A) is wrong. Answer: D": (1, 0, 1),
    "Answer: D\nAnswer: A": (0, 0, 0),
    "\\boxed{D}": (1, 0, 1),
    "答案：D": (0, 0, 1),
    "The answer is option (D): Carley": (0, 0, 1),
    "The answer is Dora": (1, 0, 0),
    "D. Dora": (1, 0, 0),
    "Carley": (0, 0, 1),
    "A, or rather D": (0, 0, 0),
    "The correct answer is (D)": (0, 1, 1),
    "**The correct answer is D**.": (1, 1, 1),
    "the correct answer is (D)": (0, 0, 1),
    "The correct answer is (A), not (D)": (0, 0, 0),
    "the answer is: D": (1, 0, 1),
    "answer:D": (0, 0, 1),
    "option is Carley": (1, 0, 0),
    "I think B": (0, 0, 0),
    "": (0, 0, 0),
}


def values(metric: str, reply: str, *golds: str) -> float:
    result = score([Question("q", "?", golds[:1], {golds[0]: golds[1:]} if golds else {})], [Prediction("q", reply)], [metric])
    return float(next(iter(result.values()))[0])


@pytest.mark.parametrize("reply", REPLIES)
def test_choice_is_read_like_the_official_script(reply: str) -> None:
    scores = [values(f"choice(rules={rules})", reply, "D", "Carley") for rules in ("infinitebench", "longbench_v2", "letter")]
    assert scores == list(REPLIES[reply])


def test_masked_name_matches_whole_words_ignoring_case() -> None:
    assert [values("infinitebench_name", reply, "ACE", "ACE ROTHSTEIN") for reply in ("Ace Rothstein", "It's ace.", "Aces", "")] == [
        1,
        1,
        0,
        0,
    ]
    assert values("infinitebench_name", "Ace Rothstein", "ACE ROTHSTEIN") == 0
    assert np.isnan(values("infinitebench_name", "Ace"))


def test_infinitebench_rules_tokenize_chinese_by_character() -> None:
    assert values("f1(rules=infinitebench_zh)", "是北 京市。", "北京") == pytest.approx(2 * (2 / 4) / (2 / 4 + 1))
