"""Generate questions about a world, with answers and the facts that prove them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.schema import Triple
from benchmarks.worlds.text import NO_FACT, Library
from benchmarks.worlds.world import Entity, Fact, World, relation, relations_of

MIX: Mapping[str, float] = {"single": 0.25, "bridge": 0.40, "comparison": 0.20, "multi": 0.15}
"""Default share of each question type."""

HELD_OUT_TYPES = ("single", "bridge")
"""Question types for held-out relations, which have no comparisons or lists."""

MAX_ANSWERS = 4
_TRIES = 400


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a question: a sub-question that one fact answers; `#1` stands for the first step's answer."""

    question: str
    answer: str
    fact: int


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A generated question, before its candidate passages are chosen.

    Attributes:
        text: The question.
        type: `single`, `bridge`, `comparison` or `multi`.
        answers: Gold answers; empty if the question is unanswerable.
        aliases: Unambiguous shorter forms, by answer.
        facts: The facts that prove the answer, first hop first.
        topics: The entities that the question names.
        relations: Relations that the question is about, first hop first.
        steps: The hops, if the question is a chain.
        answerable: Whether the world's facts answer it.
    """

    text: str
    type: str
    answers: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]]
    facts: tuple[Fact, ...]
    topics: tuple[Entity, ...]
    relations: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    answerable: bool = True

    @property
    def held_out(self) -> bool:
        """Return whether the question involves a relation that is held out from training."""
        return any(relation(name).held_out for name in self.relations)


class Asker:
    """Random generator of questions about a set of facts.

    Args:
        world: The world; answers must be correct for all of its facts, not only `facts`.
        facts: Facts that the texts state.
        draws: Random numbers.
        alias: Fraction of questions that use an entity's alias.
        held_out: True: only questions that involve a held-out relation; False: only questions that do not; None: both.
    """

    def __init__(self, world: World, facts: Iterable[Fact], draws: Draws, alias: float = 0.3, held_out: bool | None = None) -> None:
        self._world = world
        self._facts = list(facts)
        self._known = {fact.row for fact in self._facts}
        self._draws = draws
        self._alias = alias
        self._held_out = held_out
        self._heads = list({fact.head.index: fact.head for fact in self._facts}.values())
        self._seen: set[str] = set()
        # Types of questions that need a certain kind of fact draw from those alone.
        self._plain = [fact for fact in self._facts if not fact.relation.many]
        self._bridges = [f for f in self._plain if f.tail and f.relation.phrases and f.tail.index in world.by_head]
        self._lists = [fact for fact in self._facts if fact.relation.many]
        self._inverse = [fact for fact in self._facts if fact.relation.inverse]
        self._same = _by_relation(fact for fact in self._plain if fact.relation.same)
        self._sized = _by_relation(fact for fact in self._plain if fact.relation.compare)

    def ask(self, count: int, unanswerable: float = 0.0, mix: Mapping[str, float] = MIX) -> list[WorldQuestion]:
        """Generate distinct questions in random order of types.

        Args:
            count: Number of questions.
            unanswerable: Fraction of unanswerable questions (of types single and bridge).
            mix: Share of each type among the answerable questions.

        Raises:
            UserError: The facts do not allow that many distinct questions.
        """
        return self.of(kinds_of(count, unanswerable, mix))

    def of(self, kinds: Iterable[str]) -> list[WorldQuestion]:
        """Generate one question per given type, all distinct, in random order; raises the errors of `ask`."""
        order = list(kinds)
        self._draws.shuffle(order)
        return [self._new(kind) for kind in order]

    def _new(self, kind: str) -> WorldQuestion:
        makers: dict[str, Callable[[], WorldQuestion | None]] = {
            "single": self.single,
            "bridge": self.bridge,
            "comparison": self.comparison,
            "multi": self.multi,
            "unanswerable": self.unanswerable,
        }
        for _ in range(_TRIES):
            query = makers[kind]()
            if query is None or self._held_out not in (None, query.held_out):
                continue
            # Neither the same text twice nor the same proof: variety, and ids made of a proof stay unique.
            proof = " ".join(str(fact.row) for fact in query.facts) or query.text
            if query.text not in self._seen and proof not in self._seen:
                self._seen.update((query.text, proof))
                return query
        raise UserError(
            f"the world does not have enough different questions of type {kind}",
            code="too-few-world-questions",
            where="questions",
            try_this="ask for fewer questions, or make the worlds larger (entities)",
        )

    def single(self) -> WorldQuestion | None:
        """Generate a one-hop question: for a fact's tail, or for its head if that is unique. None if no attempt succeeds."""
        if self._inverse and self._draws.chance(0.15):
            fact = self._draws.pick(self._inverse)
            if fact.tail is not None and len(self._world.leading_to(fact.tail, fact.relation)) == 1:
                text = self._fill(self._draws.pick(fact.relation.inverse), t=fact.tail)
                step = Step(text, fact.head.name, fact.row)
                return self._question(text, "single", [fact.head], (fact,), (fact.tail,), (step,))
        if not self._plain:
            return None
        fact = self._draws.pick(self._plain)
        text = self._fill(self._draws.pick(fact.relation.asks), h=fact.head)
        return self._question(text, "single", [fact], (fact,), (fact.head,), (Step(text, fact.text, fact.row),))

    def bridge(self) -> WorldQuestion | None:
        """Generate a two-hop question: the second fact is about the first fact's tail, which the question only describes. None
        if no attempt succeeds.
        """
        first = self._pick(self._bridges)
        if first is None or first.tail is None:
            return None
        second = self._pick([f for f in self._world.by_head[first.tail.index] if f.row in self._known])
        if second is None or second.relation.many or second.tail is first.head:
            return None
        phrase = self._fill(self._draws.pick(first.relation.phrases), h=first.head)
        ask = self._draws.pick(second.relation.asks)
        steps = (
            Step(self._fill(self._draws.pick(first.relation.asks), h=first.head), first.text, first.row),
            Step(ask.format(h="#1"), second.text, second.row),
        )
        return self._question(ask.format(h=phrase), "bridge", [second], (first, second), (first.head,), steps)

    def comparison(self) -> WorldQuestion | None:
        """Generate a question that compares two facts of one relation: which of two, or yes/no. None if no attempt succeeds."""
        if self._same and (not self._sized or self._draws.chance(0.4)):
            return self._same_or_not()
        if not self._sized:
            return None
        item, two = self._pair(self._draws.pick(list(self._sized.values())))
        if item.number == two.number or item.head is two.head:
            return None
        side, which, whether = self._draws.pick(item.relation.compare)
        winner = min(item, two, key=_number) if side == "smaller" else max(item, two, key=_number)
        heads = (item.head, two.head)
        if self._draws.chance(0.5):
            text = self._fill(which, a=item.head, b=two.head)
            return self._question(text, "comparison", [winner.head], (item, two), heads, ())
        text = self._fill(whether, a=item.head, b=two.head)
        return self._question(text, "comparison", ["yes" if winner is item else "no"], (item, two), heads, ())

    def multi(self) -> WorldQuestion | None:
        """Generate a question whose answer is a set: all tails of a head, or all heads of a tail. None if no attempt succeeds."""
        if self._lists and (not self._inverse or self._draws.chance(0.5)):
            fact = self._draws.pick(self._lists)
            facts = self._world.about(fact.head, fact.relation)
            text = self._fill(self._draws.pick(fact.relation.asks), h=fact.head)
            return self._set(text, facts, facts, fact.head)
        fact = self._pick(self._inverse) or None  # type: ignore[assignment]
        if fact is None or fact.tail is None:
            return None
        facts = self._world.leading_to(fact.tail, fact.relation)
        text = self._fill(self._draws.pick(fact.relation.inverse), t=fact.tail)
        return self._set(text, [fact.head for fact in facts], facts, fact.tail)

    def unanswerable(self) -> WorldQuestion | None:
        """Generate a one- or two-hop question whose last fact is not in the world. None if no attempt succeeds."""
        first = self._pick(self._bridges) if self._draws.chance(0.4) else None
        head = first.tail if first is not None and first.tail is not None else self._draws.pick(self._heads)
        query = self._draws.pick(relations_of(head.kind, self._world.config.unseen_relations))
        if query.many or "unless-capital" in query.flags or self._world.about(head, query):
            return None
        if "once" in query.flags and self._world.leading_to(head, query):
            return None
        ask = self._draws.pick(query.asks)
        if first is None:
            return WorldQuestion(self._fill(ask, h=head), "single", (), {}, (), (head,), (query.id,), answerable=False)
        phrase = self._fill(self._draws.pick(first.relation.phrases), h=first.head)
        ids = (first.relation.id, query.id)
        return WorldQuestion(ask.format(h=phrase), "bridge", (), {}, (), (first.head,), ids, answerable=False)

    def _same_or_not(self) -> WorldQuestion | None:
        facts = self._draws.pick(list(self._same.values()))
        item = self._draws.pick(facts)
        want = self._draws.chance(0.5)
        others = [f for f in facts if (f.text == item.text) is want and f.head is not item.head]
        if not others:
            return None
        two = self._draws.pick(others)
        text = self._fill(self._draws.pick(item.relation.same), a=item.head, b=two.head)
        return self._question(text, "comparison", ["yes" if want else "no"], (item, two), (item.head, two.head), ())

    def _set(self, text: str, answers: Sequence[Fact | Entity], facts: Sequence[Fact], topic: Entity) -> WorldQuestion | None:
        if not 2 <= len(facts) <= MAX_ANSWERS or not all(fact.row in self._known for fact in facts):
            return None
        return self._question(text, "multi", answers, tuple(facts), (topic,), ())

    def _pair(self, facts: Sequence[Fact]) -> tuple[Fact, Fact]:
        return self._draws.pick(facts), self._draws.pick(facts)

    def _pick(self, facts: Sequence[Fact]) -> Fact | None:
        return self._draws.pick(facts) if facts else None

    def _fill(self, template: str, **entities: Entity) -> str:
        return template.format(**{slot: self._mention(entity) for slot, entity in entities.items()})

    def _mention(self, entity: Entity) -> str:
        aliases = entity.aliases
        return self._draws.pick(aliases) if aliases and self._draws.chance(self._alias) else entity.text

    def _question(
        self,
        text: str,
        kind: str,
        answers: Sequence[Fact | Entity | str],
        facts: tuple[Fact, ...],
        topics: tuple[Entity, ...],
        steps: tuple[Step, ...],
    ) -> WorldQuestion:
        golds = [answer_of(answer) for answer in answers]
        return WorldQuestion(
            text,
            kind,
            tuple(gold for gold, _ in golds),
            {gold: aliases for gold, aliases in golds if aliases},
            facts,
            topics,
            tuple(fact.relation.id for fact in facts),
            steps,
        )


def answer_of(answer: Fact | Entity | str) -> tuple[str, tuple[str, ...]]:
    """Return an answer's text and its accepted aliases."""
    if isinstance(answer, str):
        return answer, ()
    entity = answer.tail if isinstance(answer, Fact) else answer
    if entity is not None:
        with_article = (entity.text,) if entity.article else ()
        return entity.name, (*entity.aliases, *with_article)
    assert isinstance(answer, Fact)
    if answer.relation.tail == "number":
        # Digits alone, with and without separators, say the same.
        digits = answer.text.split(" ")[0]
        return answer.text, tuple(dict.fromkeys((digits, str(answer.number))))
    return answer.text, ()


def paraphrases(fact: Fact) -> list[str]:
    """Return all question templates for a fact's tail, filled with the head's full name."""
    return [template.format(h=fact.head.text) for template in fact.relation.asks]


def kinds_of(count: int, unanswerable: float = 0.0, mix: Mapping[str, float] = MIX) -> list[str]:
    """Return the sequence of question types that `Asker.ask` generates for these arguments."""
    lost = round(count * unanswerable)
    return ["unanswerable"] * lost + apportion(count - lost, mix)


def apportion(count: int, mix: Mapping[str, float]) -> list[str]:
    """Distribute `count` items over names in proportion to `mix`, rounded to whole numbers; returns one name per item."""
    total = sum(mix.values())
    exact = {kind: count * share / total for kind, share in mix.items()}
    counts = {kind: int(value) for kind, value in exact.items()}
    by_rest = sorted(mix, key=lambda kind: counts[kind] - exact[kind])
    for kind in by_rest[: count - sum(counts.values())]:
        counts[kind] += 1
    return [kind for kind, number in counts.items() for _ in range(number)]


def _by_relation(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.relation.id, []).append(fact)
    return {relation: group for relation, group in groups.items() if len(group) > 1}


def _number(fact: Fact) -> int:
    return fact.number


class Distractors:
    """Selector of distractors that are relevant but insufficient: about the same subject, or with the same relation about an
    entity of similar name.

    Args:
        world: The world.
        library: The texts to choose from.
    """

    def __init__(self, world: World, library: Library) -> None:
        self._world = world
        self._library = library

    @cached_property
    def _namesakes(self) -> dict[str, list[Entity]]:
        results: dict[str, list[Entity]] = {}
        for entity in self._world.entities:
            for word in entity.words:
                results.setdefault(word, []).append(entity)
        return results

    @cached_property
    def _stating(self) -> dict[str, list[int]]:
        """Return the texts that state each relation."""
        results: dict[str, list[int]] = {}
        for row, text in enumerate(self._library.texts):
            for fact in text.facts:
                if fact != NO_FACT:
                    results.setdefault(self._world.facts[fact].relation.id, []).append(row)
        return results

    def choose(self, query: WorldQuestion, size: int, draws: Draws) -> list[int]:
        """Return a question's candidates in random order: all evidence, filled up with distractors.

        Args:
            query: The question.
            size: Number of candidates; more if there is more evidence.
            draws: Random numbers.

        Returns:
            Distinct indices of texts. Only the evidence states facts of the question.
        """
        where = self._library.where
        chosen = dict.fromkeys(where[fact.row][0] for fact in query.facts)
        evidence = len(chosen)
        room = max(0, size - evidence)
        # A share of each sort, so that no sort gives the evidence away; what is left over goes to the next.
        for rows, share in (
            (self._same_subject(query), 0.4),
            (self._same_relation_of_namesake(query), 0.4),
            (self._same_relation(query, draws, size), 0.7),
            (self._anything(draws), 1.0),
        ):
            limit = evidence + max(1, round(room * share))
            for row in rows:
                if len(chosen) >= min(limit, evidence + room):
                    break
                chosen.setdefault(row)
        ordered = list(chosen)
        draws.shuffle(ordered)
        return ordered

    def _subjects(self, query: WorldQuestion) -> list[Entity]:
        """Return the question's entities, then the subjects of its facts, then their tails, without duplicates."""
        heads = (fact.head for fact in query.facts)
        tails = (fact.tail for fact in query.facts if fact.tail is not None)
        return list({entity.index: entity for entity in (*query.topics, *heads, *tails)}.values())

    def _same_subject(self, query: WorldQuestion) -> Iterator[int]:
        for entity in self._subjects(query):
            yield from self._library.about.get(entity.index, ())

    def _same_relation_of_namesake(self, query: WorldQuestion) -> Iterator[int]:
        for entity in self._subjects(query):
            for word in entity.words:
                for other in self._namesakes[word]:
                    if other is not entity:
                        yield from self._matching(other, query.relations)

    def _matching(self, entity: Entity, relations: Iterable[str]) -> Iterator[int]:
        wanted = set(relations)
        for fact in self._world.by_head.get(entity.index, ()):
            if fact.relation.id in wanted and fact.row in self._library.where:
                yield self._library.where[fact.row][0]
        yield from self._library.about.get(entity.index, ())[:1]

    def _same_relation(self, query: WorldQuestion, draws: Draws, size: int) -> Iterator[int]:
        for name in dict.fromkeys(query.relations):
            rows = self._stating.get(name, [])
            for _ in range(min(size, len(rows))):
                yield draws.pick(rows)

    def _anything(self, draws: Draws) -> Iterator[int]:
        texts = len(self._library.texts)
        for _ in range(50 * texts):
            yield draws.below(texts)


def question_graph(world: World, query: WorldQuestion, size: int, draws: Draws) -> tuple[Triple, ...]:
    """Return a question's knowledge graph as named triples, in random order.

    It is grown breadth-first from the question's entities, and filled up with other facts of the world.

    Args:
        world: The world.
        query: The question; all of its facts are in the graph.
        size: Number of triples.
        draws: Random numbers.

    Raises:
        UserError: The world has fewer facts than `size`.
    """
    if len(world.facts) < size:
        raise UserError(
            f"a graph of {size} triples needs a larger world than one of {len(world.facts)} facts",
            code="world-too-small",
            where="triples",
            try_this="raise entities or density, or ask for smaller graphs",
        )
    kept = dict.fromkeys(fact.row for fact in query.facts)
    reached = {entity.index for entity in query.topics}
    frontier = list(reached)
    while frontier and len(kept) < size:
        following: list[int] = []
        draws.shuffle(frontier)
        for index in frontier:
            for fact in (*world.by_head.get(index, ()), *world.by_tail.get(index, ())):
                if len(kept) >= size:
                    break
                kept[fact.row] = None
                for entity in (fact.head, fact.tail):
                    if entity is not None and entity.index not in reached:
                        reached.add(entity.index)
                        following.append(entity.index)
        frontier = following
    while len(kept) < size:
        kept[draws.below(len(world.facts))] = None
    everything = world.triples
    return tuple(everything[index] for index in draws.sample(list(kept), size))
