"""Training material: groups of a context and what can be asked about it, made of train worlds.

A group is one context (numbered passages, or none) with several *blocks* behind it: a prompt's end and what is to be
written. Each block is trained as if it alone followed the context, so one reading of the passages serves many
questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.worlds.names import out_of_vocabulary_words, replaced, training_words
from benchmarks.worlds.questions import Asker, Distractors, WorldQuestion, answer_of
from benchmarks.worlds.text import NO_FACT, Library, Text, articles, document
from benchmarks.worlds.world import Entity, Fact, World, relations_of
from methods.models.pocket import ANSWER, GAP, PARAPHRASE, QUESTION, UNANSWERABLE, asking, entry, marker
from tools.tiny_lm.material import training_world


class Block(NamedTuple):
    """Continuation of a context: the end of a prompt, the text to write after it, and the task."""

    prompt: str
    target: str
    task: str


@dataclass(slots=True)
class Group:
    """Context in pieces (markers and entries) with its continuations (blocks)."""

    context: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Level:
    """Step of the training curriculum.

    Attributes:
        sentences: Maximum number of sentences per passage; longer ones are truncated.
        passages: Maximum number of passages per context.
        several: Share of contexts with several passages.
        long: Share of contexts that are chunks of long documents.
        missing: Unanswerable questions relative to the answerable ones; few at first, because abstaining is learned long before
            choosing.
        row: Length of a training row in tokens.
        rows: Rows per batch.
        absent: Share of contexts with several passages from which the evidence is removed; this teaches to abstain given
            similar passages.
    """

    sentences: int
    passages: int
    several: float
    long: float
    missing: float
    row: int
    rows: int
    absent: float = 0.0


LEVELS = (
    Level(sentences=1, passages=1, several=0.0, long=0.0, missing=0.03, row=256, rows=8),
    Level(sentences=3, passages=1, several=0.0, long=0.0, missing=0.06, row=256, rows=8),
    Level(sentences=9, passages=3, several=0.5, long=0.0, missing=0.15, row=320, rows=7),
    Level(sentences=9, passages=6, several=0.7, long=0.05, missing=0.25, row=448, rows=5),
    Level(sentences=9, passages=6, several=0.85, long=0.05, missing=0.25, row=448, rows=5, absent=0.45),
    Level(sentences=9, passages=6, several=0.9, long=0.03, missing=0.3, row=448, rows=5, absent=0.75),
)
STYLED, SWAPPED = 0.2, 0.2
"""Shares: contexts rewritten in a style, name words replaced by out-of-vocabulary ones."""


class Maker:
    """Generates training groups from one training world.

    Args:
        seed: Seed of the world.
        level: Step of the curriculum, which sets the length of contexts.

    Raises:
        UserError: The seed belongs to validation or test worlds.
    """

    def __init__(self, seed: int, level: Level) -> None:
        self._world: World = training_world(seed)
        self._level = level
        self._draws = Draws("pocket", seed, level.passages, level.sentences)
        self._library = articles(self._world)
        self._chooser = Distractors(self._world, self._library)
        self._rewriter = RuleRewriter(self._world.split)
        self._asker = Asker(self._world, self._world.facts, self._draws)
        self._swaps = out_of_vocabulary_words(training_words(), SWAPPED, self._draws)

    def groups(self, count: int) -> Iterator[Group]:
        """Yield `count` groups with a context, and a few without one."""
        draws, level = self._draws, self._level
        for _ in range(count):
            draw = draws.random()
            if draw < level.long:
                group = self._long()
            elif draw < level.long + level.several:
                group = self._several()
            else:
                group = self._single()
            if group.blocks:
                yield self._swapped(group)
        for _ in range(1 + count // 12):
            yield self._swapped(Group([], [self._closed_book(), self._closed_book(), self._paraphrase()]))

    def _single(self) -> Group:
        return self._group(self._library, [self._draws.pick(self._library.texts)], [])

    def _several(self) -> Group:
        draws, level, asker = self._draws, self._level, self._asker
        size = draws.between(2, level.passages)
        maker = draws.pick((asker.single, asker.single, asker.bridge, asker.comparison))
        query = maker()
        if query is None:
            return Group()
        if level.absent and query.type == "single" and draws.chance(level.absent):
            return self._absent(query, size)
        rows = self._chooser.choose(query, size, draws)
        if draws.chance(level.missing) and len(rows) > 1:
            rows.remove(draws.pick([self._library.where[fact.row][0] for fact in query.facts]))
        return self._group(self._library, [self._library.texts[row] for row in rows], [query])

    def _absent(self, query: WorldQuestion, size: int) -> Group:
        """The passages nearest to a question without the one that answers it, and more questions of that kind."""
        draws, head = self._draws, query.facts[0].head
        evidence = {self._library.where[fact.row][0] for fact in query.facts}
        rows = [row for row in self._chooser.choose(query, size + 1, draws) if row not in evidence][:size]
        texts = [self._library.texts[row] for row in rows]
        stated_here = {row for text in texts for row in text.facts}
        further = [fact for fact in self._world.by_head[head.index] if fact.row not in stated_here]
        draws.shuffle(further)
        group = self._group(self._library, texts, [])
        blocks = [Block(asking(query.text), UNANSWERABLE, "missing")]
        for fact in further[:3]:
            question = draws.pick(fact.relation.asks).format(h=self._mention(head))
            blocks.append(Block(asking(question), UNANSWERABLE, "missing"))
        # As many that the context answers as it lacks, so that declining is no habit.
        return Group(group.context, blocks + group.blocks[: len(blocks) + 2])

    def _long(self) -> Group:
        library = document(self._world, self._draws.below(self._world.communities))
        first = self._draws.below(max(1, len(library.texts) - 2))
        return self._group(library, list(library.texts[first : first + self._draws.between(1, 2)]), [])

    def _group(self, library: Library, texts: Sequence[Text], queries: Sequence[WorldQuestion]) -> Group:
        """The group of some texts: the given questions, and others about what the texts state."""
        draws, level, world = self._draws, self._level, self._world
        style = draws.pick(STYLES) if draws.chance(STYLED) else None
        context: list[str] = []
        stated: dict[int, str] = {}  # by fact: the sentence that states it
        offset = draws.below(20) if draws.chance(0.1) else 0
        for number, text in enumerate(texts, start=1 + offset):
            passage = text.passage
            if style is not None and (len(texts) == 1 or draws.chance(0.5)):
                passage = self._rewriter.rewrite([passage], style)[0] or passage
            # A first sentence may introduce what later ones refer to, so a cut keeps the beginning.
            keep = draws.between(1, level.sentences) if level.sentences < 9 else len(text.facts)
            sentences = passage.sentences[:keep]
            context += [marker(number), entry(Passage("", passage.title, " ".join(sentences))) + GAP]
            stated.update(zip(text.facts[:keep], sentences, strict=False))
        stated.pop(NO_FACT, None)
        blocks = [self._request(item, stated) for item in queries]
        facts = [world.facts[row] for row in stated if not world.facts[row].relation.many]
        draws.shuffle(facts)
        blocks += [self._about(fact, stated) for fact in facts[: 4 + 2 * len(texts)]]
        heads = list({world.facts[row].head.index: world.facts[row].head for row in stated}.values())
        for _ in range(len(blocks) if heads else 0):
            missing = self._unanswered(draws.pick(heads), stated) if draws.chance(level.missing) else None
            blocks += [missing] if missing else []
        if facts and draws.chance(0.35):
            fact = facts[0]
            answer = _as_stated(fact, stated[fact.row])
            question = draws.pick(fact.relation.asks).format(h=fact.head.text)
            blocks.append(Block(f"{ANSWER} {answer}\n{QUESTION}", question, "question"))
        if len(texts) > 1:
            # Not all of them may fit: of all tasks something should.
            draws.shuffle(blocks)
        return Group(context, blocks)

    def _about(self, fact: Fact, stated: dict[int, str]) -> Block:
        draws = self._draws
        invertible = fact.tail is not None and fact.relation.inverse and draws.chance(0.15)
        if invertible and fact.tail and len(self._world.leading_to(fact.tail, fact.relation)) == 1:
            question = draws.pick(fact.relation.inverse).format(t=self._mention(fact.tail))
            return Block(asking(question), fact.head.name, "inverse")
        question = draws.pick(fact.relation.asks).format(h=self._mention(fact.head))
        return Block(asking(question), _as_stated(fact, stated[fact.row]), "single")

    def _request(self, query: WorldQuestion, stated: dict[int, str]) -> Block:
        if any(fact.row not in stated for fact in query.facts):
            return Block(asking(query.text), UNANSWERABLE, "missing")
        answer = query.answers[0]
        last = query.facts[-1]
        if query.type in ("single", "bridge") and answer == answer_of(last)[0]:
            answer = _as_stated(last, stated[last.row])
        return Block(asking(query.text), answer, query.type)

    def _unanswered(self, head: Entity, stated: dict[int, str]) -> Block | None:
        """A question about an entity of the context that the context does not answer, or one about another entity."""
        draws, world = self._draws, self._world
        if draws.chance(0.35):
            others = [e for e in (draws.pick(world.entities) for _ in range(30)) if e.kind == head.kind and e is not head]
            head = others[0] if others else head
        relations = {world.facts[row].relation.id for row in stated if world.facts[row].head is head}
        relation = draws.pick(relations_of(head.kind, False))
        if relation.id in relations or "once" in relation.flags or "unless-capital" in relation.flags:
            return None
        question = draws.pick(relation.asks).format(h=self._mention(head))
        return Block(asking(question), UNANSWERABLE, "missing")

    def _closed_book(self) -> Block:
        query = self._draws.pick((self._asker.single, self._asker.bridge, self._asker.comparison))()
        fact = self._draws.pick(self._world.facts)
        text = query.text if query else self._draws.pick(fact.relation.asks).format(h=self._mention(fact.head))
        return Block(asking(text), UNANSWERABLE, "closed")

    def _paraphrase(self) -> Block:
        fact = self._draws.pick(self._world.facts)
        asks = [template.format(h=fact.head.text) for template in fact.relation.asks]
        self._draws.shuffle(asks)
        return Block(f"{QUESTION} {asks[0]}\n{PARAPHRASE}", asks[-1], "paraphrase")

    def _mention(self, entity: Entity) -> str:
        draws = self._draws
        return draws.pick(entity.aliases) if entity.aliases and draws.chance(0.3) else entity.text

    def _swapped(self, group: Group) -> Group:
        swaps = self._swaps
        blocks = [Block(replaced(block.prompt, swaps), replaced(block.target, swaps), block.task) for block in group.blocks]
        return Group([replaced(piece, swaps) for piece in group.context], blocks)


def _as_stated(fact: Fact, sentence: str) -> str:
    """The answer in the wording of the sentence, so that reading is copying; the full one where styles changed it."""
    answer, accepted = answer_of(fact)
    return next((form for form in (answer, *accepted) if form in sentence), answer)
