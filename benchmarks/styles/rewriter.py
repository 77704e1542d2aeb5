"""What rewrites passages in another style, and the deterministic one that needs no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from benchmarks.draws import Draws
from benchmarks.errors import UserError, unknown_name
from benchmarks.schema import Passage, passage_id
from benchmarks.styles.rules import RULES, STYLES, Rules

FORMAL = "formal"
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one passage that was to be rewritten.

    Attributes:
        passage: The passage in the other style, with its own content id; None where nothing usable came back.
        by: What wrote it: `rule`, or the model as its endpoint names it; "" where nothing did.
        failed: Why each try that failed did, in order: `what: detail`.
    """

    passage: Passage | None
    by: str = ""
    failed: tuple[str, ...] = ()


class Rewriter(Protocol):
    """Tells passages in another style.

    A rewriter keeps the number and order of a passage's sentences where it has any, so that supporting sentences
    can still be pointed at.
    """

    @property
    def id(self) -> str:
        """Name and version: equal ids give equal texts."""
        ...

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        """Rewrite passages.

        Args:
            passages: The formal passages.
            style: One of `rules.STYLES`.

        Returns:
            One per passage, in order, with its own content id; None where nothing usable came back.
        """
        ...

    def outcomes(self, passages: Sequence[Passage], style: str) -> list[Outcome]:
        """As `rewrite`, with who wrote each text and why tries failed."""
        ...


RULE = "rule"
"""By what the rule-based rewriter's texts are written."""


class RuleRewriter:
    """Rewrites by fixed rules; names, numbers and years survive.

    Args:
        split: `train` and `validation` use the training rules, `test` those that share nothing with them.
        content_loss: Share of sentences whose content is dropped, to tell a loss of content from one of style.
        opener: Share of sentences that get an opener.
        closer: Share of sentences that get a closer.

    Raises:
        UserError: The split is none of the three, or a share lies outside [0, 1].
    """

    def __init__(self, split: str, *, content_loss: float = 0.0, opener: float = 0.6, closer: float = 0.5) -> None:
        if split not in ("train", "validation", "test"):
            raise unknown_name("split", split, ("train", "validation", "test"), where="styles")
        for name, share in (("content_loss", content_loss), ("opener", opener), ("closer", closer)):
            if not 0 <= share <= 1:
                raise UserError(f"{name} is a share, not {share}", where=name, try_this="give a number from 0 to 1")
        self.rules_of = "test" if split == "test" else "train"
        self.content_loss = content_loss
        self.opener = opener
        self.closer = closer

    @property
    def id(self) -> str:
        """Name, rule set, version and shares."""
        return f"rules-{self.rules_of}#v2(loss={self.content_loss},opener={self.opener},closer={self.closer})"

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        rules, pattern = self._compiled(style)
        return [self._passage(passage, style, rules, pattern) for passage in passages]

    def outcomes(self, passages: Sequence[Passage], style: str) -> list[Outcome]:
        return [Outcome(passage, RULE) for passage in self.rewrite(passages, style)]

    def sentence(self, text: str, style: str, draws: Draws) -> str:
        """One sentence in another style."""
        rules, pattern = self._compiled(style)
        return self._sentence(text, rules, pattern, draws)

    def _compiled(self, style: str) -> tuple[Rules, re.Pattern[str]]:
        if style not in STYLES:
            raise unknown_name("style", style, STYLES)
        return self._patterns[style]

    @cached_property
    def _patterns(self) -> dict[str, tuple[Rules, re.Pattern[str]]]:
        compiled = {}
        for style in STYLES:
            rules = RULES[self.rules_of][style]
            longest_first = sorted(rules.swaps, key=lambda phrase: (-len(phrase), phrase))
            compiled[style] = (rules, re.compile(r"\b(" + "|".join(map(re.escape, longest_first)) + r")\b"))
        return compiled

    def _passage(self, passage: Passage, style: str, rules: Rules, pattern: re.Pattern[str]) -> Passage:
        draws = Draws("style", self.rules_of, style, passage.id)
        plain = passage.sentences or tuple(part for part in _SENTENCE.split(passage.text.strip()) if part)
        told = tuple(self._sentence(text.strip(), rules, pattern, draws) for text in plain)
        text = " ".join(told)
        identifier = passage_id(passage.title, text, passage.document_id)
        return Passage(identifier, passage.title, text, told if passage.sentences else (), passage.document_id)

    def _sentence(self, text: str, rules: Rules, pattern: re.Pattern[str], draws: Draws) -> str:
        if self.content_loss and draws.chance(self.content_loss):
            return draws.pick(rules.vague)
        told = pattern.sub(lambda match: rules.swaps[match[0]], text)
        if draws.chance(self.opener):
            told = f"{draws.pick(rules.openers)} {told}"
        if told.endswith(".") and draws.chance(self.closer):
            told = told[:-1] + draws.pick(rules.closers)
        return told
