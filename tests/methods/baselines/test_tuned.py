"""Rollouts and rewards of systems that tune their model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.schema import Passage, Question
from methods.api import Services
from methods.baselines.tuned import Example, SystemTuned, once
from methods.training import Silent

PASSAGES = (Passage("a", "Lyon", "Lyon was founded by Plancus."),)


def test_rewards_are_exact_match_or_a_judgment() -> None:
    @dataclass
    class Judge:
        fingerprint: str = "test"

        async def verdicts_one(self, question: Question, answer: str) -> str | None:
            return {"near": "Partial", "same": "Match", "odd": "Mismatch"}.get(answer)

    tuned = SystemTuned.__new__(SystemTuned)
    question = Question("q", "Who?", ("Ann",))
    answers = [(question, text) for text in ("Ann", "near", "same", "odd", "", "unread")]
    tuned.services = Services()
    assert tuned.rewards(answers) == [1, 0, 0, 0, 0, 0]
    tuned.services = Services(judge=Judge())
    assert tuned.rewards(answers) == [1, 0.5, 1, 0, 0, None]


def test_rollouts_are_computed_once(tmp_path: Path) -> None:
    examples = [Example(Question(str(n), f"q{n}", ("a",)), PASSAGES) for n in range(3)]
    computed: list[str] = []

    def compute(some: Any) -> list[int]:
        computed.extend(example.text for example in some)
        return [len(computed)] * len(some)

    path = tmp_path / "values.jsonl"
    assert once(path, examples[:2], "m", compute, Silent(), "w") == [2, 2]
    assert once(path, examples, "m", compute, Silent(), "w") == [2, 2, 3]
    assert computed == ["q0", "q1", "q2"]
    assert once(path, examples[:1], "other", compute, Silent(), "w") == [4]
