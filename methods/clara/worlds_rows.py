"""Rows of pretraining from worlds: questions about every document and a retelling of it, without any model.

They have the form and the types of what a language model synthesises (`synthesis`), and their truth is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.draws import Draws
from benchmarks.registry import DataReference
from benchmarks.schema import Passage
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.documents import Text, articles, document
from benchmarks.worlds.generate import generate
from benchmarks.worlds.seeds import SPLITS, require_split
from benchmarks.worlds.surface import NO_FACT
from benchmarks.worlds.world import World
from methods.clara.data_config import ScpDataConfig, Type
from methods.clara.rows import ScpRow
from methods.clara.worlds_telling import Said, complex_pairs, facts_of, retold, simple_pairs

_WORLDS = {"long": 2}
"""Worlds of a subset where the options do not say; one for the others."""


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A document of a world, with what each sentence says."""

    passage: Passage
    sentences: tuple[Said, ...]


def documents(reference: DataReference, config: WorldsConfig) -> Iterator[WorldDocument]:
    """The documents of worlds: chunks of long ones for `worlds/long`, articles for the other subsets.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds: seeds, size, how plainly they speak.

    Raises:
        UserError: A seed is of another split.
    """
    split = reference.split or "train"
    first = SPLITS[split].start if config.seed is None else config.seed
    count = config.worlds or _WORLDS.get(reference.subset or "", 1)
    for seed in range(first, first + count):
        world = generate(require_split(seed, split), config.world_config)
        for text in _texts(world, reference.subset == "long", config):
            yield WorldDocument(text.passage, _said(text, world))


def rows_about(one: WorldDocument, types: tuple[Type, ...], seed: int = 0) -> list[ScpRow]:
    """The rows about a document: one for each type that it gives anything for.

    Args:
        one: The document.
        types: The types wanted.
        seed: Of how it is asked and retold.
    """
    text, identifier = one.passage.full_text, one.passage.id
    rows = []
    for kind in types:
        draws = Draws("clara pretraining", kind, seed, identifier)
        facts = facts_of(one.sentences)
        if kind == "paraphrase":
            told = " ".join(retold(one.sentences, draws))
            rows.append(ScpRow("paraphrase", text, (), (told,), f"{identifier}/{kind}"))
            continue
        pairs = (simple_pairs if kind == "simple" else complex_pairs)(facts, text, draws)
        if pairs:
            questions, answers = zip(*pairs, strict=True)
            rows.append(ScpRow("qa", text, questions, answers, f"{identifier}/{kind}"))
    return rows


def world_rows(reference: DataReference, config: WorldsConfig, data: ScpDataConfig) -> list[ScpRow]:
    """The rows of worlds.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds.
        data: Which rows, of how many documents.

    Raises:
        UserError: A seed is of another split.
    """
    if not data.types:
        return []
    every = list(documents(reference, config))
    if data.documents is not None and data.documents < len(every):
        chosen = set(Draws("clara documents", data.seed).sample(range(len(every)), data.documents))
        every = [one for place, one in enumerate(every) if place in chosen]
    return [row for one in every for row in rows_about(one, data.types, data.seed)]


def _texts(world: World, long: bool, config: WorldsConfig) -> Iterator[Text]:
    if not long:
        yield from articles(world, config.telling).texts
        return
    for community in range(world.communities):
        yield from document(world, community, config.telling).texts


def _said(text: Text, world: World) -> tuple[Said, ...]:
    lines = zip(text.passage.sentences, text.subjects, text.facts, strict=True)
    return tuple(
        Said(sentence, world.entities[subject], None if fact == NO_FACT else world.facts[fact]) for sentence, subject, fact in lines
    )
