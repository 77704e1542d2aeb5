"""Load generated worlds as benchmarks: `worlds/multihop`, `worlds/long`, `worlds/graph`, `worlds/style`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.schema import Passage, Question, Triple, sentence_id, sentence_of, triple_id
from benchmarks.styles import FORMAL
from benchmarks.styles.pairs import StylePair
from benchmarks.styles.rules import RuleRewriter
from benchmarks.worlds.kept import kept
from benchmarks.worlds.questions import HELD_OUT_TYPES, MIX, Asker, Distractors, WorldQuestion, apportion, kinds_of, question_graph
from benchmarks.worlds.text import Library, Rendering, articles, document
from benchmarks.worlds.world import SPLITS, Entity, World, WorldConfig, generate, require_split

VERSION = 2
SUBSETS = ("multihop", "long", "graph", "style")
_WORLDS = {"multihop": 1, "long": 2, "graph": 1, "style": 1}
"""Number of worlds for training and validation, and for testing if a size is given."""
_TESTED = 30
"""Number of test worlds, which are the clusters; each is correspondingly smaller."""
_ASKED = 3
"""Minimum number of questions per test world."""
_SMALL = {"multihop": 36, "long": 66, "graph": 36, "style": 36}
"""Number of entities per test world."""
_SMALL_GRAPH = 120
_QUESTIONS = 200
_UNSEEN = ("unseen", "all")
_HELD_OUT = {"seen": False, "unseen": True}
"""Argument `held_out` of `Asker` by value of the option `relations`."""

CARD = DatasetCard(
    title="Worlds",
    task="multi-hop QA, long-document QA, graph QA and style-shifted QA over fictional worlds",
    description="Questions about fictional worlds that are generated from a seed. Every answer, its proof and its knowledge "
    "graph are known, and no model has seen them. multihop: ten passages per question; long: documents of 45 or "
    "more chunks, with several questions each; graph: a graph of 120 triples per question; style: the questions "
    "of multihop over passages that are partly rewritten in another style.",
    hub_id=None,
    revision=None,
    license="Apache-2.0",
    citation="@misc{ragmeter_worlds, title={ragmeter worlds: fictional worlds with known truth}, year={2026}}",
    languages=("en",),
    splits=dict.fromkeys(SPLITS, _QUESTIONS),
    same_questions={f"style:{split}": (f"worlds/multihop:{split}",) for split in SPLITS},
    metrics=("f1(rules=hotpotqa)", "em", "recall@5", "sp_f1"),
    cluster="world",
    settings=("distractor", "corpus", "oracle", "gold_only", "closed_book"),
    subset_settings={
        "long": ("document", "corpus", "gold_only", "closed_book"),
        "graph": ("graph(scope=question)", "graph(scope=split)", "corpus", "closed_book"),
    },
    notes="Seeds below 10,000 are for training, 10,000 to 19,999 for validation, 100,000 and above for testing. Held-out worlds "
    "have names that no training world has, some unseen words, and styles from rewriting rules that share nothing with "
    "those of training. Ten relations occur in no world for training or validation; `relations: unseen` asks test worlds "
    "only about these.",
)


_MOST: Mapping[str, float] = {"questions": 50_000, "candidates": 1_000, "triples": 20_000, "decoys": 50}
_MOST_ENTITIES = 200_000
"""Limit for untrusted cards; generation takes 0.1 to 0.3 ms per entity."""


class WorldsConfig(DatasetConfig, WorldConfig, Rendering):
    """Options of generated worlds: number, size, difficulty and question types."""

    seed: int | None = Field(default=None, description="seed of the first world; null: the split's first seed")
    worlds: int | None = Field(
        default=None,
        ge=1,
        description="number of worlds, with consecutive seeds. Null: for testing, 30 worlds (one per three questions if there "
        "are fewer than 90 questions) of 36 entities each (long: 66) and 120 triples per graph, unless you give a "
        "size; otherwise 1 world of full size (long: 2)",
    )
    questions: int = Field(
        default=_QUESTIONS,
        ge=0,
        description="number of questions, spread evenly over worlds and documents; 0 (graph only): the graph without questions",
    )
    mix: dict[str, float] = Field(default=dict(MIX), description="shares of the question types single, bridge, comparison, multi")
    unanswerable: float = Field(default=0.0, ge=0, le=1, description="share of unanswerable questions")
    question_alias: float = Field(default=0.3, ge=0, le=1, description="share of questions that call an entity by a shorter name")
    candidates: int = Field(default=10, ge=2, description="passages per question (multihop, style)")
    relations: Literal["seen", "unseen", "all"] | None = Field(
        default=None,
        description="relations that questions of test worlds ask about: seen, the relations of training worlds; unseen, the "
        "relations held out from training (every question is of type single or bridge and uses at least one of "
        "them); all. Worlds for unseen or all contain every relation. Null: all relations that the worlds contain, "
        "see unseen_relations",
    )
    triples: int = Field(default=1200, ge=1, description="triples in the graph of a question (graph)")
    styles: dict[str, float] = Field(
        default={FORMAL: 0.5, "informal": 0.5}, description="share of each style among a question's passages, exact per question (style)"
    )
    content_loss: float = Field(default=0.0, ge=0, le=1, description="share of restyled sentences that lose their content (style)")

    def sized(self, subset: str, split: str) -> WorldsConfig:
        """Return a copy with the default number and size of worlds for a subset and split filled in."""
        if self.worlds is not None:
            return self
        if split != "test" or self.model_fields_set & {"entities", "community", "triples"}:
            return self.model_copy(update={"worlds": _WORLDS[subset]})
        worlds = min(_TESTED, max(1, self.questions // _ASKED))
        size = _SMALL[subset]
        return self.model_copy(update={"worlds": worlds, "entities": size, "community": size, "triples": _SMALL_GRAPH})

    def excess(self) -> tuple[str, str] | None:
        """Return an option that exceeds the limit for untrusted cards, and the limit; see `DatasetConfig.excess`."""
        for name, most in _MOST.items():
            if (getattr(self, name) or 0) > most:
                return name, f"at most {most:,}"
        if (self.worlds or 1) * self.entities > _MOST_ENTITIES:
            return "worlds", f"at most {_MOST_ENTITIES:,} entities in all worlds together"
        return None

    @property
    def world_config(self) -> WorldConfig:
        """Return the options of a single world."""
        values = {name: getattr(self, name) for name in WorldConfig.model_fields}
        return WorldConfig(**{**values, "unseen_relations": self.unseen_relations or self.relations in _UNSEEN})

    @property
    def question_mix(self) -> dict[str, float]:
        """Return the share of each question type, restricted to types that the wanted relations support."""
        return {kind: share for kind, share in self.mix.items() if self.relations != "unseen" or kind in HELD_OUT_TYPES}

    @property
    def rendering(self) -> Rendering:
        """Return the options of the text style."""
        return Rendering(**{name: getattr(self, name) for name in Rendering.model_fields})


@register("worlds", card=CARD, version=VERSION, config=WorldsConfig, subsets=SUBSETS, default_split="test")
def load(reference: DataReference, config: WorldsConfig) -> Benchmark:
    """Generate a split.

    Further gold data is in `extra`. `graph`: `seeds` of the worlds, and `graphs`, the triples by question id; their ids are the
    question's candidates. `style`: `styles`, the `StylePair`s by question id.

    Raises:
        UserError: A seed is outside the split, or the worlds are too small for the requested questions.
    """
    subset, split = reference.subset or SUBSETS[0], reference.split or "test"
    _check(config, split)
    config = config.sized(subset, split)
    first = SPLITS[split].start if config.seed is None else config.seed
    seeds = range(first, first + (config.worlds or 1))
    for seed in (seeds[0], seeds[-1]):
        require_split(seed, split)
    if subset == "graph":
        return _generated(reference, subset, split, config, seeds)
    return kept(lambda: _generated(reference, subset, split, config, seeds), str(reference), VERSION, config.model_dump(mode="json"))


def _generated(reference: DataReference, subset: str, split: str, config: WorldsConfig, seeds: range) -> Benchmark:
    worlds = [generate(seed, config.world_config) for seed in seeds]
    questions: list[Question] = []
    passages: dict[str, Passage] = {}
    triples: list[Triple] = []
    extra: dict[str, Any] = {}
    if subset == "long":
        _long(worlds, config, questions, passages)
    elif subset == "graph":
        extra |= {"graphs": _graphs(worlds, config, questions), "seeds": tuple(seeds)}
        triples = [triple for world in worlds for triple in world.graph()]
    else:
        _multihop(worlds, config, questions, passages)
        if subset == "style":
            questions, passages, extra["styles"] = _styled(questions, passages, config, split)
    if split == "test":
        # One question of each world after another, so that a limit asks all of them.
        turns: Counter[int] = Counter()
        questions.sort(key=lambda question: turns.update([question.metadata["seed"]]) or turns[question.metadata["seed"]])
    if variant := _variant(config):
        extra["variant"] = variant
    corpus = TripleCorpus.of_triples(triples) if subset == "graph" else Corpus.of(passages.values())
    return Benchmark(reference, VERSION, CARD, questions, corpus, extra=extra)


def _variant(config: WorldsConfig) -> str:
    """Describe the question options that differ from the defaults."""
    parts = []
    if config.mix != MIX:
        parts.append("mix=" + "+".join(f"{kind}:{share:g}" for kind, share in config.mix.items() if share))
    if config.relations is not None and config.world_config.unseen_relations:
        parts.append(f"relations={config.relations}")
    return ",".join(parts)


def _check(config: WorldsConfig, split: str) -> None:
    if config.path is not None:
        raise UserError("worlds are generated, not read", code="worlds-with-file", where="path", try_this="choose a seed instead")
    if config.relations in _UNSEEN and split != "test":
        raise UserError(
            f"{split} worlds must not contain the relations that are held out for testing",
            code="held-out-relation",
            where=f"relations: {config.relations}",
            try_this="relations: seen, or the split test",
        )
    for name, known in (("mix", MIX), ("styles", (FORMAL, "informal", "humor", "romance"))):
        shares: Mapping[str, float] = getattr(config, name)
        wrong = [key for key in shares if key not in known]
        if wrong or any(share < 0 for share in shares.values()) or not sum(shares.values()) > 0:
            raise UserError(
                f"{name} must give shares of {', '.join(known)}",
                code="shares-expected",
                where=f"{name}: {shares}",
                try_this="shares of 0 or more",
            )
    if config.questions and not sum(config.question_mix.values()) > 0:
        raise UserError(
            f"only questions of the types {', '.join(HELD_OUT_TYPES)} use relations that the training data lack",
            code="relations-not-trained",
            where=f"mix: {config.mix}",
            try_this="give one of those a share",
        )


def _dealt(config: WorldsConfig, parts: int) -> list[list[str]]:
    """Divide the question types over worlds (or documents), so that the overall shares are as requested."""
    kinds = kinds_of(config.questions, config.unanswerable, config.question_mix)
    return [kinds[part::parts] for part in range(parts)]


def _multihop(worlds: list[World], config: WorldsConfig, questions: list[Question], passages: dict[str, Passage]) -> None:
    for world, kinds in zip(worlds, _dealt(config, len(worlds)), strict=True):
        library = articles(world, config.rendering)
        draws = Draws("multihop", world.seed)
        chooser = Distractors(world, library)
        for number, query in enumerate(_questions(world, world.facts, draws, kinds, config)):
            chosen = [library.texts[row].passage for row in chooser.choose(query, config.candidates, draws)]
            passages.update((passage.id, passage) for passage in chosen)
            candidates = tuple(passage.id for passage in chosen)
            questions.append(_question(world, query, f"multihop-{world.seed}-{number:05d}", library, candidates))


def _long(worlds: list[World], config: WorldsConfig, questions: list[Question], passages: dict[str, Passage]) -> None:
    parts = [(world, community) for world in worlds for community in range(world.communities)]
    for (world, community), kinds in zip(parts, _dealt(config, len(parts)), strict=True):
        library = document(world, community, config.rendering)
        chunks = [text.passage for text in library.texts]
        passages.update((chunk.id, chunk) for chunk in chunks)
        candidates = tuple(dict.fromkeys(chunk.id for chunk in chunks))
        draws = Draws("long", world.seed, community)
        facts = [world.facts[index] for index in library.where]
        for number, query in enumerate(_questions(world, facts, draws, kinds, config)):
            identifier = f"long-{world.seed}-{community}-{number:05d}"
            question = _question(world, query, identifier, library, candidates)
            questions.append(replace(question, document_id=chunks[0].document_id))


def _graphs(worlds: list[World], config: WorldsConfig, questions: list[Question]) -> dict[str, tuple[Triple, ...]]:
    graphs: dict[str, tuple[Triple, ...]] = {}
    for world, kinds in zip(worlds, _dealt(config, len(worlds)), strict=True):
        draws = Draws("graph", world.seed)
        ids = {triple: triple_id(triple) for triple in world.graph()}
        for number, query in enumerate(_questions(world, world.facts, draws, kinds, config)):
            question = _question(world, query, f"graph-{world.seed}-{number:05d}", None, None)
            graph = question_graph(world, query, config.triples, draws)
            evidence = tuple(dict.fromkeys(ids[triple] for triple in question.triples))
            candidates = tuple(dict.fromkeys(ids[triple] for triple in graph))
            topics = tuple(entity.name for entity in query.topics)
            questions.append(replace(question, evidence=evidence, candidates=candidates, topic_entities=topics))
            graphs[question.id] = graph
    return graphs


def _questions(world: World, facts: Iterable[Any], draws: Draws, kinds: list[str], config: WorldsConfig) -> Iterator[WorldQuestion]:
    asker = Asker(world, facts, draws, config.question_alias, _HELD_OUT.get(config.relations or ""))
    yield from asker.of(kinds)


def _question(world: World, query: WorldQuestion, identifier: str, library: Library | None, candidates: tuple[str, ...] | None) -> Question:
    where = (lambda fact: library.texts[library.where[fact][0]].passage.id) if library else (lambda fact: None)
    metadata = {
        "seed": world.seed,
        "world": str(world.seed),
        "hops": 2 if query.type == "bridge" else 1,
        "relations": query.relations,
        "unseen_relation": query.held_out,
        "id_triples": tuple((_id(world, f.head), f.relation.id, _id(world, f.tail) if f.tail else f.text) for f in query.facts),
        "answer_ids": tuple(_id(world, world.by_name.get(answer)) for answer in query.answers),
        "steps": tuple({"question": s.question, "answer": s.answer, "fact": s.fact, "passage": where(s.fact)} for s in query.steps),
    }
    return Question(
        id=identifier,
        text=query.text,
        answers=query.answers,
        aliases=query.aliases,
        answer_set=query.type == "multi",
        evidence=library.evidence(query.facts) if library else (),
        supporting_facts=library.supporting(query.facts) if library else (),
        triples=tuple(fact.triple for fact in query.facts),
        type=query.type,
        answerable=query.answerable,
        candidates=candidates,
        metadata=metadata,
    )


def _id(world: World, entity: Entity | None) -> str:
    """Return an entity id that is unique across worlds; "" for None."""
    return f"W{world.seed}{entity.id}" if entity else ""


def _styled(
    questions: list[Question], passages: Mapping[str, Passage], config: WorldsConfig, split: str
) -> tuple[list[Question], dict[str, Passage], dict[str, tuple[StylePair, ...]]]:
    rewriter = RuleRewriter(split, content_loss=config.content_loss)
    others = [style for style, share in config.styles.items() if style != FORMAL and share > 0]
    formal = list(passages.values())
    texts_by_style: dict[str, dict[str, Passage]] = {FORMAL: dict(passages)}
    for style in others:
        texts = rewriter.rewrite(formal, style)
        texts_by_style[style] = {p.id: text for p, text in zip(formal, texts, strict=True) if text is not None}
    changed: list[Question] = []
    kept: dict[str, Passage] = {}
    pairs: dict[str, tuple[StylePair, ...]] = {}
    for question in questions:
        candidates = question.candidates or ()
        assigned = apportion(len(candidates), config.styles)
        Draws("mixture", question.id).shuffle(assigned)
        now = {old: texts_by_style[style][old] for old, style in zip(candidates, assigned, strict=True)}
        kept.update((passage.id, passage) for passage in now.values())
        pairs[question.id] = tuple(
            StylePair(passages[old], style, texts_by_style[style][old], used=now[old] is texts_by_style[style][old])
            for old in candidates
            for style in others
        )
        changed.append(_moved(question, {old: new.id for old, new in now.items()}))
    return changed, kept, pairs


def _moved(question: Question, new: Mapping[str, str]) -> Question:
    """Replace all passage ids of a question by those of the restyled passages."""
    facts = map(sentence_of, question.supporting_facts)
    steps = tuple({**step, "passage": new[step["passage"]]} for step in question.metadata["steps"])
    return replace(
        question,
        candidates=tuple(new[old] for old in question.candidates or ()),
        evidence=tuple(new[old] for old in question.evidence),
        supporting_facts=tuple(sentence_id(new[old], index) for old, index in facts),
        metadata={**question.metadata, "steps": steps},
    )
