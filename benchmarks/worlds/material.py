"""What training code takes from worlds: statements, questions, paraphrases, passages with what can be asked of them.

Everything here is plain text with its truth. Training makes its worlds by `training_world`, which refuses the seeds of
validation and test worlds; evaluation makes them by `generate.generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.draws import Draws
from benchmarks.schema import Passage
from benchmarks.styles.rewriter import RuleRewriter
from benchmarks.styles.rules import STYLES
from benchmarks.worlds.candidates import Distractors
from benchmarks.worlds.documents import articles
from benchmarks.worlds.generate import generate
from benchmarks.worlds.lexicon import training_words
from benchmarks.worlds.questions import MIX, Asked, Asker, answer_of, paraphrases
from benchmarks.worlds.seeds import require_training_seed
from benchmarks.worlds.surface import NO_FACT, statements
from benchmarks.worlds.world import Fact, World, WorldConfig

__all__ = [
    "Example",
    "FactMaterial",
    "PassageQuestion",
    "examples",
    "fact_material",
    "passage_questions",
    "training_words",
    "training_world",
]


@dataclass(frozen=True, slots=True)
class FactMaterial:
    """One fact in all its wordings.

    Attributes:
        fact: The fact.
        answer: Its tail, as an answer.
        accepted: Other accepted wordings of the answer.
        statements: By style, `formal` first; every template of the relation in each.
        questions: Every way to ask for the tail: paraphrases of each other.
    """

    fact: Fact
    answer: str
    accepted: tuple[str, ...]
    statements: dict[str, tuple[str, ...]]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """A passage, and a question that one of its sentences answers: for question generation and reading.

    Attributes:
        passage: The passage.
        sentence: Number of the sentence that answers.
        question: The question.
        answer: The answer as it stands in the sentence.
        fact: The fact behind both.
    """

    passage: Passage
    sentence: int
    question: str
    answer: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class Example:
    """A question with candidate passages.

    Attributes:
        asked: The question with its answers, type and proof.
        passages: Candidates in random order.
        relevant: Places in `passages` of the evidence; empty for unanswerable questions.
    """

    asked: Asked
    passages: tuple[Passage, ...]
    relevant: tuple[int, ...]


def training_world(seed: int, config: WorldConfig | None = None) -> World:
    """A world to train on.

    Raises:
        UserError: The seed is one of validation or test.
    """
    return generate(require_training_seed(seed), config)


def fact_material(world: World, styles: Sequence[str] = STYLES) -> Iterator[FactMaterial]:
    """Every fact of a world in all its wordings.

    Args:
        world: The world; its split decides which rewriting rules are used.
        styles: Styles to add to the formal statements.
    """
    rewriter = RuleRewriter(world.split)
    draws = Draws("material", world.seed)
    for fact in world.facts:
        plain = statements(fact)
        told = {style: tuple(rewriter.sentence(text, style, draws) for text in plain) for style in styles}
        answer, accepted = answer_of(fact)
        yield FactMaterial(fact, answer, accepted, {"formal": tuple(plain), **told}, tuple(paraphrases(fact)))


def passage_questions(world: World, style: str = "formal") -> Iterator[PassageQuestion]:
    """For every sentence of every article that states a fact, one question that it answers.

    Facts with several tails are left out: one sentence does not answer them.

    Args:
        world: The world.
        style: `formal`, or the style the passages are told in.
    """
    draws = Draws("passage questions", world.seed, style)
    rewriter = RuleRewriter(world.split)
    for text in articles(world).texts:
        passage = text.passage
        if style != "formal":
            passage = rewriter.rewrite([passage], style)[0] or passage
        for number, index in enumerate(text.facts):
            if index == NO_FACT or world.facts[index].relation.many:
                continue
            fact = world.facts[index]
            answer, accepted = answer_of(fact)
            stated = next(form for form in (answer, *accepted) if form in passage.sentences[number])
            yield PassageQuestion(passage, number, draws.pick(paraphrases(fact)), stated, fact)


def examples(
    world: World, count: int, candidates: int, unanswerable: float = 0.0, mix: dict[str, float] | None = None
) -> Iterator[Example]:
    """Questions with candidate passages, evidence among distractors.

    Args:
        world: The world.
        count: Number of questions, all different.
        candidates: Passages per question; more only where the evidence alone is larger.
        unanswerable: Share of questions whose answer is in no passage.
        mix: Shares of the question types (`questions.MIX`).

    Raises:
        UserError: The world does not give so many questions.
    """
    library = articles(world)
    draws = Draws("examples", world.seed)
    chooser = Distractors(world, library)
    for asked in Asker(world, world.facts, draws).ask(count, unanswerable, mix or MIX):
        rows = chooser.choose(asked, candidates, draws)
        evidence = {library.where[fact.row][0] for fact in asked.facts}
        passages = tuple(library.texts[row].passage for row in rows)
        yield Example(asked, passages, tuple(place for place, row in enumerate(rows) if row in evidence))
