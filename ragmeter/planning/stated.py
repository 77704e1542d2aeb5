"""The shape of data that are not here: by their card, and by typical lengths, as questions and passages of filler."""

from __future__ import annotations

from benchmarks import registry
from benchmarks.errors import UserError
from benchmarks.registry import DataReference, DatasetConfig
from benchmarks.schema import Passage
from benchmarks.settings import DEFAULT_N, Setting
from methods.api import Reading
from methods.models.tokens import CHARACTERS_PER_TOKEN
from ragmeter.planning.shape import SEARCHED, Asked, Shape
from ragmeter.planning.typical import Typical, typical


def base_of(reference: DataReference, config: DatasetConfig) -> tuple[DataReference, DatasetConfig] | None:
    """What a dataset is made of that tells another one otherwise (styled, retold); None of others."""
    named = getattr(config, "base", None)
    if not isinstance(named, str):
        return None
    found, entry = registry.resolve(named if ":" in named else f"{named}:{reference.split}")
    return found, registry.options_of(entry, getattr(config, "base_config", {}))


def stated(
    reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None, absent: tuple[UserError, ...]
) -> Shape:
    """The shape of data by their card and typical lengths.

    Args:
        reference, config, setting, limit: As in `shapes.shape_of`.
        absent: Why the data are not read.
    """
    base = base_of(reference, config)
    source = reference if base is None else base[0]
    usual, questions = typical(source), stated_questions(source)
    documents = getattr(config, "documents", None)
    if documents is not None:
        questions = documents
    if questions is not None and limit is not None:
        questions = min(questions, limit)
    if usual is None:
        return Shape(reference, questions if questions is not None else limit, "unknown", absent=absent)
    count, whole = _stated_candidates(usual, setting)
    filler = Passage("", "", "x" * (CHARACTERS_PER_TOKEN * usual.passage))
    asked = Asked(_filled(usual.question), (filler,) * count, _filled(usual.answer), count)
    of_questions = None if questions is None else max(usual.candidates, round(questions * usual.candidates / usual.shared))
    corpus = usual.corpus if usual.corpus is not None and _searches(config, setting) else of_questions
    reading = None if usual.reading is None else Reading(**usual.reading)
    return Shape(reference, questions, "stated", (asked,), corpus, float(usual.passage), whole, reading, None, absent)


def _searches(config: DatasetConfig, setting: Setting | None) -> bool:
    return getattr(config, "corpus", None) is not None or (setting is not None and setting.name == "corpus")


def _stated_candidates(usual: Typical, setting: Setting | None) -> tuple[int, bool]:
    """How many passages a question may use, and whether these are all of a corpus."""
    if setting is None:
        return (usual.candidates or SEARCHED), usual.candidates == 0
    if setting.name == "closed_book":
        return 0, False
    if setting.name == "gold_only":
        return min(2, usual.candidates), False
    if (setting.name == "corpus" and setting.retriever is None) or setting.scope == "split":
        return SEARCHED, True
    if setting.name == "corpus":
        return setting.n or DEFAULT_N, False
    base = setting.base
    if base is not None and base.retriever is not None:
        return setting.n or base.n or DEFAULT_N, False
    return min(setting.n or usual.candidates, usual.candidates), False


def stated_questions(reference: DataReference) -> int | None:
    """By the card, all splits together; else as is typical."""
    _, entry = registry.resolve(reference)
    stated = entry.card.splits_of(reference.subset)
    known = [stated.get(split) for split in (reference.split or "").split("+")]
    if all(one is not None for one in known):
        return sum(one for one in known if one is not None)
    usual = typical(reference)
    return None if usual is None else usual.questions


def _filled(count: int) -> str:
    return "x" * (CHARACTERS_PER_TOKEN * count)
