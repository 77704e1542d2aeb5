"""Rule-based style rewriting, with separate rule sets for training and testing.

The two sets of a style share no phrase, neither searched nor inserted, so a model that memorizes the training phrases gains
nothing on the test set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.random import Draws
from benchmarks.schema import Passage, passage_id


@dataclass(frozen=True, slots=True)
class Rules:
    """Rewriting rules of one style in one rule set.

    Attributes:
        openers: Phrases to put before a sentence, which keeps its capital letter.
        closers: Phrases that may replace a sentence's full stop.
        swaps: Replacement by plain phrase, all lower-case, so that names are not affected.
        vague: Vague sentences that replace a sentence whose content is dropped.
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    swaps: Mapping[str, str]
    vague: tuple[str, ...]

    @property
    def phrases(self) -> frozenset[str]:
        """Return all phrases that the rules search for or insert."""
        return frozenset((*self.openers, *self.closers, *self.swaps, *self.swaps.values(), *self.vague))


STYLES = ("informal", "humor", "romance")
"""Styles other than `formal`."""


def _read_rules(style: str, rule_set: str) -> Rules:
    """Parse `STYLE_SET.txt` next to this file: one phrase per line below `[openers]`, `[closers]`, `[vague]` and `[swaps]`."""
    sections: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / f"{style}_{rule_set}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    swaps = {plain: styled for plain, _, styled in (line.partition(" -> ") for line in sections["swaps"])}
    return Rules(tuple(sections["openers"]), tuple(sections["closers"]), swaps, tuple(sections["vague"]))


RULES: Mapping[str, Mapping[str, Rules]] = {
    rule_set: {style: _read_rules(style, rule_set) for style in STYLES} for rule_set in ("train", "test")
}
"""Rules by rule set and style."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of rewriting one passage.

    Attributes:
        passage: The rewritten passage with its own content id; None on failure.
        by: Writer: `rule`, or the model's name at its endpoint; "" on failure.
        failed: Reason of each failed attempt, as `what: detail`.
    """

    passage: Passage | None
    by: str = ""
    failed: tuple[str, ...] = ()


class Rewriter(Protocol):
    """Protocol of rewriters, which convert passages to another style.

    If a passage has separate sentences, their number and order must stay the same, so that supporting facts remain valid.
    """

    @property
    def id(self) -> str:
        """Return name and version; rewriters with equal ids produce equal texts."""
        ...

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        """Rewrite passages.

        Args:
            passages: The formal passages.
            style: One of `rules.STYLES`.

        Returns:
            One per passage, in order, with its own content id; None on failure.
        """
        ...

    def outcomes(self, passages: Sequence[Passage], style: str) -> Iterable[Outcome]:
        """Yield the outcome of each passage (text, writer, failed attempts) as soon as it is available."""
        ...


RULE = "rule"
"""Writer's name of rule-based rewrites."""


class RuleRewriter:
    """Rewriter with fixed rules; names, numbers and years stay unchanged.

    Args:
        split: `train` and `validation` use the training rules, `test` the test rules.
        content_loss: Fraction of sentences whose content is dropped, to compare content loss with style shift.
        opener: Fraction of sentences that get an opener.
        closer: Fraction of sentences that get a closer.

    Raises:
        UserError: The split is unknown, or a fraction is outside [0, 1].
    """

    def __init__(self, split: str, *, content_loss: float = 0.0, opener: float = 0.6, closer: float = 0.5) -> None:
        if split not in ("train", "validation", "test"):
            raise unknown_name("split", split, ("train", "validation", "test"), where="styles")
        for name, share in (("content_loss", content_loss), ("opener", opener), ("closer", closer)):
            if not 0 <= share <= 1:
                raise UserError(
                    f"{name} must be a share between 0 and 1, not {share}",
                    code="bad-share",
                    where=name,
                    try_this="give a number from 0 to 1",
                )
        self.rules_of = "test" if split == "test" else "train"
        self.content_loss = content_loss
        self.opener = opener
        self.closer = closer

    @property
    def id(self) -> str:
        """Return name, rule set, version and fractions."""
        return f"rules-{self.rules_of}#v2(loss={self.content_loss},opener={self.opener},closer={self.closer})"

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        rules, pattern = self._compiled(style)
        return [self._passage(passage, style, rules, pattern) for passage in passages]

    def outcomes(self, passages: Sequence[Passage], style: str) -> list[Outcome]:
        return [Outcome(passage, RULE) for passage in self.rewrite(passages, style)]

    def sentence(self, text: str, style: str, draws: Draws) -> str:
        """Rewrite one sentence."""
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
        styled = tuple(self._sentence(text.strip(), rules, pattern, draws) for text in plain)
        text = " ".join(styled)
        identifier = passage_id(passage.title, text, passage.document_id)
        return Passage(identifier, passage.title, text, styled if passage.sentences else (), passage.document_id)

    def _sentence(self, text: str, rules: Rules, pattern: re.Pattern[str], draws: Draws) -> str:
        if self.content_loss and draws.chance(self.content_loss):
            return draws.pick(rules.vague)
        styled = pattern.sub(lambda match: rules.swaps[match[0]], text)
        if draws.chance(self.opener):
            styled = f"{draws.pick(rules.openers)} {styled}"
        if styled.endswith(".") and draws.chance(self.closer):
            styled = styled[:-1] + draws.pick(rules.closers)
        return styled
