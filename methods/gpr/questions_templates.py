"""Questions without a model, from the words of the relation: for tests and dry runs, on any graph.

They are no natural language ("What is the languages spoken of Jamaica?"), and results that rest on them are not the
paper's; the generator's name says so in every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from methods.gpr.masked import MaskedTriple, Side, checked, words
from methods.knowledge.linearise import relation_text

PATTERNS: Mapping[Side, tuple[str, ...]] = {
    "tail": ("What is the {relation} of {visible}?", "Which {relation} does {visible} have?"),
    "head": ("What has {visible} as its {relation}?", "Of what is {visible} the {relation}?"),
}
"""By the hidden end."""


class TemplateQuestions:
    """Fills patterns; which one is decided by the triple's id."""

    name = "template-v1"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """A question for each, or None where the relation has no words or names an end."""
        return [checked(filled(one), one, self.counts, "the relation has no words") for one in batch]


def filled(masked: MaskedTriple) -> str | None:
    """The question of a masked triple, None where the relation has no words."""
    relation = " ".join(words(relation_text(masked.relation)))
    if not relation:
        return None
    return chosen(PATTERNS[masked.side], masked).format(relation=relation, visible=masked.visible)


def chosen(patterns: Sequence[str], masked: MaskedTriple) -> str:
    """One of some patterns, always the same for a triple."""
    return patterns[int(masked.id[1:], 16) % len(patterns)]
