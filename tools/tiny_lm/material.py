"""What training takes from worlds: every fact in all its wordings, of worlds whose seeds are for training alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.core.random import Draws
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.worlds.questions import answer_of, paraphrases
from benchmarks.worlds.text import statements
from benchmarks.worlds.world import Fact, World, WorldConfig, generate, require_training_seed


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """Fact of a world with all of its wordings, for training the pocket model.

    Attributes:
        fact: The fact.
        answer: The fact's tail, as an answer.
        accepted: Other accepted wordings of the answer.
        statements: Statements by style, `formal` first; each style has every template of the relation.
        questions: All questions for the tail, which are paraphrases of each other.
    """

    fact: Fact
    answer: str
    accepted: tuple[str, ...]
    statements: dict[str, tuple[str, ...]]
    questions: tuple[str, ...]


def training_world(seed: int, config: WorldConfig | None = None) -> World:
    """Generate a world to train on.

    Raises:
        UserError: The seed belongs to validation or test worlds.
    """
    return generate(require_training_seed(seed), config)


def fact_material(world: World, styles: Sequence[str] = STYLES) -> Iterator[FactMaterial]:
    """Yield every fact of a world with all of its wordings.

    Args:
        world: The world; its split decides which rewriting rules are used.
        styles: Styles to add to the formal statements.
    """
    rewriter = RuleRewriter(world.split)
    draws = Draws("material", world.seed)
    for fact in world.facts:
        plain = statements(fact)
        restyled = {style: tuple(rewriter.sentence(text, style, draws) for text in plain) for style in styles}
        answer, accepted = answer_of(fact)
        yield FactMaterial(fact, answer, accepted, {"formal": tuple(plain), **restyled}, tuple(paraphrases(fact)))
