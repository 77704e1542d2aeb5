"""A judge as training pipelines take it, `methods.api.Judge`: plain verdicts for plain answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.schema import Question
from judges.judging import Item, JudgeCall, PointJudge
from judges.llm.match import MATCH, MISMATCH, PARTIAL
from methods.api import Prediction

BATCH = 1024
"""Answers per call of a judge."""
_WORST_FIRST = (MISMATCH, PARTIAL, MATCH)


class MatchVerdicts:
    """Match, Partial or Mismatch for each answer (SARK's verification).

    Args:
        judge: `match` or `rule_match`, built.
        fingerprint: Of its identity; "" where nobody keeps what it says.
    """

    def __init__(self, judge: PointJudge, fingerprint: str = "") -> None:
        self._judge, self.fingerprint = judge, fingerprint

    def verdicts(self, questions: Sequence[Question], answers: Sequence[str]) -> list[str | None]:
        """The verdict most repetitions give, among equals the worse; None where it is unscored or unscorable."""
        items = [Item(q, Prediction(q.id, answer)) for q, answer in zip(questions, answers, strict=True)]
        batches = (items[start : start + BATCH] for start in range(0, len(items), BATCH))
        return [commonest(calls) for batch in batches for calls in self._judge.ask(batch)]


def commonest(calls: Sequence[JudgeCall]) -> str | None:
    """The verdict that most calls give, among equals the worse; None where none was read."""
    counts = Counter(call.parsed.value["verdict"] for call in calls if call.parsed.value is not None)
    most = {verdict for verdict, count in counts.items() if count == max(counts.values())}
    return next((verdict for verdict in _WORST_FIRST if verdict in most), None)
