"""What a rewriter may be held to: judges of style and of content, and a count of names and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from benchmarks.errors import UserError
from judges.api import Scores
from judges.judging import Judge, JudgeCall
from judges.llm.content import KEPT
from judges.llm.style import INFORMAL
from judges.metrics.entities import RULE, entity_preservation_of_pairs
from methods.api import Services


class TextJudge(Protocol):
    """A judge of single texts (`style`, `rule_style`)."""

    def ask_texts(self, texts: Sequence[str]) -> list[list[JudgeCall]]:
        """For each text the calls made for it; none for a blank one."""
        ...


class PairJudge(Protocol):
    """A judge of sources and their rewritings (`content`)."""

    def ask_texts(self, pairs: Sequence[tuple[str, str]]) -> list[list[JudgeCall]]:
        """For each pair the calls made for it."""
        ...


class StyleValidator:
    """Objects to informal texts that are not judged Informal; other styles are none of its business.

    Args:
        judge: `style` or `rule_style`.
        id: What the judge is.
        styles: The styles that must read as Informal.
    """

    def __init__(self, judge: TextJudge, id: str, styles: Sequence[str] = ("informal",)) -> None:
        self._judge = judge
        self.id = f"style {id} of {','.join(styles)}"
        self._styles = tuple(styles)

    @classmethod
    def of(cls, judge: Judge, services: Services, styles: Sequence[str] = ("informal",)) -> StyleValidator:
        """By a registered judge."""
        return cls(_texts(judge, services), str(judge), styles)

    def objections(self, sources: Sequence[str], told: Sequence[str], style: str) -> list[str | None]:
        if style not in self._styles:
            return [None] * len(told)
        return [_objection("style", calls, INFORMAL) for calls in self._judge.ask_texts(list(told))]


class ContentValidator:
    """Objects to texts that are not judged to keep everything their source says.

    Args:
        judge: `content`.
        id: What the judge is.
    """

    def __init__(self, judge: PairJudge, id: str) -> None:
        self._judge = judge
        self.id = f"content {id}"

    @classmethod
    def of(cls, judge: Judge, services: Services) -> ContentValidator:
        """By a registered judge."""
        return cls(_texts(judge, services), str(judge))

    def objections(self, sources: Sequence[str], told: Sequence[str], style: str) -> list[str | None]:
        asked = self._judge.ask_texts(list(zip(sources, told, strict=True)))
        return [_objection("content", calls, KEPT) for calls in asked]


class EntityValidator:
    """Objects to texts that keep too few of the names and numbers of their source; needs no model.

    Args:
        least: Smallest share that must be kept.
        extractor: As in `entity_preservation`.
    """

    def __init__(self, least: float = 1.0, extractor: str = RULE) -> None:
        self.id = f"entities {extractor} {least:g}"
        self._least = least
        self._extractor = extractor

    def objections(self, sources: Sequence[str], told: Sequence[str], style: str) -> list[str | None]:
        kept = entity_preservation_of_pairs(sources, told, self._extractor)
        return [None if share >= self._least else f"entities: {share:.0%} of the names and numbers are kept" for share in kept.tolist()]


def verdicts(calls: Sequence[JudgeCall]) -> list[str]:
    """What the calls made for one text say, those that could not be read left out."""
    return [str(call.parsed.value["verdict"]) for call in calls if call.parsed.value is not None]


def share_of(verdict: str, asked: Sequence[Sequence[JudgeCall]]) -> Scores:
    """For each text the share of its verdicts that are this one. Shape (texts,), NaN where none could be read."""
    found = [verdicts(calls) for calls in asked]
    return np.array([row.count(verdict) / len(row) if row else np.nan for row in found], dtype=np.float64)


def _objection(what: str, calls: Sequence[JudgeCall], wanted: str) -> str | None:
    """Half of the verdicts and more must be the one wanted; a text that nobody judged has not passed."""
    found = verdicts(calls)
    if not found:
        reason = next((call.parsed.unscored for call in calls if call.parsed.unscored), "nothing to judge")
        return f"{what} not judged: {reason}"
    other = [verdict for verdict in found if verdict != wanted]
    return f"{what}: judged {other[0]}, not {wanted}" if len(other) * 2 > len(found) else None


def _texts(judge: Judge, services: Services) -> Any:
    built = judge.build(services)
    if not hasattr(built, "ask_texts"):
        raise UserError(f"the judge {judge.entry.id!r} judges answers, not texts", try_this="style, rule_style or content")
    return built
