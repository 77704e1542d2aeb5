"""What a benchmark is like, for a plan: counted where it is here, else stated and typical; nothing is fetched.

Both come as questions with passages, a few that are there or one made of filler of the typical lengths, so that prompts
are counted the same way. What is generated (worlds) is not made in full: a few questions of it are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from benchmarks import registry
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.schema import Passage, Question
from benchmarks.settings import DEFAULT_N, Setting
from benchmarks.whereabouts import ABSENT, MADE, UNCLEAR, whereabouts
from methods.api import Reading
from methods.models.tokens import CHARACTERS_PER_TOKEN
from ragmeter.planning.typical import Typical, typical

SAMPLED = 20
"""Questions that lengths are taken from."""
GENERATED = 6
"""Questions that are made of what is generated."""
FILES = {
    "corpus": "its path; docs/data.md says where corpora are had",
    "pairs": "make it with `ragmeter styles rewrite`, or name its path",
}
"""Options of datasets that name files, and how these are had."""
SEARCHED = 100
"""Passages shown of a corpus that has no candidates, and triples of a graph."""
Origin = Literal["counted", "sampled", "stated", "unknown"]


@dataclass(frozen=True)
class Asked:
    """A question as a method meets it.

    Attributes:
        question: Its text.
        passages: Those that it may use; of a corpus, or of a graph's triples, the first ones.
        answer: An answer to it.
        candidates: How many it may use.
    """

    question: str
    passages: tuple[Passage, ...]
    answer: str
    candidates: int


@dataclass(frozen=True)
class Shape:
    """What a benchmark is like in a setting.

    Attributes:
        reference: The data.
        questions: How many; None: unknown.
        origin: counted: the data are here; sampled: some of what is generated was made; stated: by card and typical
            lengths; unknown: nothing is known of lengths.
        asked: Questions that lengths are taken from.
        corpus: Passages of the corpus, at most; None: unknown.
        passage: Mean tokens of one of them.
        whole: Whether all of the corpus is searched, for want of candidates.
        reading: How its authors have it read.
        benchmark: What was read: all of it where it was counted, a few questions where it was sampled.
        absent: Why they are not here, where they are not: each file.
    """

    reference: DataReference
    questions: int | None
    origin: Origin
    asked: tuple[Asked, ...] = ()
    corpus: int | None = None
    passage: float = 0.0
    whole: bool = False
    reading: Reading | None = None
    benchmark: Benchmark | None = None
    absent: tuple[UserError, ...] = ()

    @property
    def question(self) -> float:
        """Mean tokens of a question."""
        return mean([tokens(one.question) for one in self.asked])

    @property
    def answer(self) -> float:
        """Mean tokens of an answer."""
        return mean([tokens(one.answer) for one in self.asked])

    @property
    def candidates(self) -> float:
        """Mean number of passages that a question may use; of a corpus without candidates all."""
        return float(self.corpus or 0) if self.whole else mean([one.candidates for one in self.asked])

    @property
    def document(self) -> float:
        """Mean tokens of all passages that a question may use."""
        shown = [tokens(passage.full_text) for one in self.asked for passage in one.passages]
        return mean(shown) * mean([one.candidates for one in self.asked])


def tokens(text: str) -> int:
    """Tokens of a text, as estimates count them."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def shape_of(
    reference: DataReference, config: DatasetConfig, setting: Setting | None = None, limit: int | None = None, *,
    full: bool = False,
) -> Shape:  # fmt: skip
    """What a benchmark is like.

    Args:
        reference: Complete, its splits perhaps joined by +.
        config: The dataset's options.
        setting: As it is asked; None: with the passages that its records bring.
        limit: Only the first so many questions.
        full: Read or make all of it, where it is here, whatever that takes: runs are known by all of their data.
    """
    absent = tuple(absences(reference, config))
    if absent:
        return _stated(reference, config, setting, limit, absent)
    own_corpus = getattr(config, "corpus", None) is not None
    if not full and own_corpus:
        # Building millions of passages is no part of a plan.
        return _stated(reference, config, setting, limit, ())
    try:
        shrunk = None if full else _shrunk(reference, config)
        if shrunk is None:
            return _of(registry.load(reference, config).limited(limit), setting)
        few, share, questions = shrunk
        questions = questions if limit is None else min(limit, questions)
        return _sampled(_of(_made(str(reference), few.model_dump_json(exclude_unset=True)), setting), share, questions)
    except UserError as error:
        return _stated(reference, config, setting, limit, (error,))


def absences(reference: DataReference, config: DatasetConfig) -> Iterator[UserError]:
    """What of data, or of what they are made of, is not here."""
    for option, remedy in FILES.items():
        path = getattr(config, option, None)
        if isinstance(path, str) and not Path(path).expanduser().exists():
            yield UserError(f"{reference} needs a file that is not here", where=f"{option}: {path}", try_this=remedy)
    if (base := _base(reference, config)) is not None:
        yield from absences(*base)
        return
    options = config.model_dump(exclude_unset=True)
    for split in (reference.split or "").split("+"):
        try:
            found = whereabouts(replace(reference, split=split), options)
        except UserError as error:
            yield error
            continue
        if found.state in (ABSENT, UNCLEAR):
            fetch = f"ragmeter datasets fetch {found.reference}" if found.repository else None
            said = found.said
            yield UserError(
                f"the data {found.reference} are not here" if found.state == ABSENT else str(said and said.what),
                where=said.where if said else None,
                try_this=" or ".join(filter(None, (said.try_this if said else None, fetch))) or None,
            )


def _base(reference: DataReference, config: DatasetConfig) -> tuple[DataReference, DatasetConfig] | None:
    """What a dataset is made of that tells another one otherwise (styled, retold)."""
    named = getattr(config, "base", None)
    if not isinstance(named, str):
        return None
    found, entry = registry.resolve(named if ":" in named else f"{named}:{reference.split}")
    return found, registry.options_of(entry, getattr(config, "base_config", {}))


# -- what is here ---------------------------------------------------------------------------------------------------


def _of(benchmark: Benchmark, setting: Setting | None) -> Shape:
    """The shape of data that are here."""
    said = benchmark.extra.get("reading")
    first = benchmark.questions[:SAMPLED]
    shown = [_asked(one, benchmark, setting) for one in first]
    corpus = list(benchmark.corpus.ids[:SEARCHED])
    lengths = [tokens(passage.full_text) for passage in benchmark.corpus.get(corpus)] if corpus else []
    whole = bool(first) and all(_candidates(one, benchmark, setting) is None for one in first)
    return Shape(
        benchmark.reference, len(benchmark.questions), "counted", tuple(shown), len(benchmark.corpus), mean(lengths),
        whole, Reading(**said) if said else None, benchmark,
    )  # fmt: skip


def _asked(question: Question, benchmark: Benchmark, setting: Setting | None) -> Asked:
    named = _candidates(question, benchmark, setting)
    ids = benchmark.corpus.ids[:SEARCHED] if named is None else named
    shown = ids[:SEARCHED] if setting is not None and setting.name == "graph" else ids
    present = [one for one in shown if one in benchmark.corpus]
    answer = str(question.metadata.get("target") or next(iter(question.answers), ""))
    return Asked(question.text, tuple(benchmark.corpus.get(present)), answer, len(ids))


def _candidates(question: Question, benchmark: Benchmark, setting: Setting | None) -> Sequence[str] | None:
    """The ids that a question may use; None: all of the corpus."""
    if setting is None or setting.name in ("distractor", "graph"):
        own = question.candidates
        if own is None and question.document_id is not None:
            return benchmark.corpus.by_document[question.document_id]
        return None if setting is not None and setting.scope == "split" else own
    if setting.name == "closed_book":
        return ()
    if setting.name == "gold_only":
        return question.evidence
    if setting.name == "document":
        return benchmark.corpus.by_document[question.document_id or ""]
    if setting.name == "oracle" and not (setting.base and setting.base.retriever):
        return tuple(question.candidates or ())[: setting.n]
    prescribed = setting if setting.name == "corpus" else setting.base
    if prescribed is None or prescribed.retriever is None:
        return None
    return benchmark.corpus.ids[: setting.n or prescribed.n or DEFAULT_N]


# -- what is generated ----------------------------------------------------------------------------------------------


def _shrunk(reference: DataReference, config: DatasetConfig) -> tuple[DatasetConfig, float, int] | None:
    """Options for a few questions of what is generated, what share of the whole that is, and how many there are.

    None where the data are files.
    """
    base = _base(reference, config)
    if base is not None:
        inner = _shrunk(*base)
        if inner is None:
            return None
        few, share, questions = inner
        given = few.model_dump(exclude_unset=True)
        if (documents := getattr(config, "documents", None)) is not None:
            return config.model_copy(update={"base_config": given, "documents": None}), share, documents
        return config.model_copy(update={"base_config": given}), share, questions
    if whereabouts(_single(reference), config.model_dump(exclude_unset=True)).state != MADE:
        return None
    questions = getattr(config, "questions", None)
    if not isinstance(questions, int):
        return None
    worlds = getattr(config, "worlds", None) or (2 if reference.subset == "long" else 1)
    few_questions = min(questions, GENERATED)
    few = config.model_copy(update={"questions": few_questions, "worlds": 1})
    # The documents of long worlds are there whatever is asked; other passages come with their questions.
    share = 1 / worlds if reference.subset == "long" else few_questions / questions
    parts = len((reference.split or "").split("+"))
    return few, share, questions * parts


@lru_cache(maxsize=128)
def _made(reference: str, given: str) -> Benchmark:
    """What is generated of some options, which give the same again."""
    return registry.load(reference, json.loads(given))


def _single(reference: DataReference) -> DataReference:
    return replace(reference, split=(reference.split or "").partition("+")[0])


def _sampled(few: Shape, share: float, questions: int) -> Shape:
    corpus = None if few.corpus is None else round(few.corpus / share)
    return replace(few, questions=questions, origin="sampled", corpus=corpus)


# -- what is not here -----------------------------------------------------------------------------------------------


def _stated(
    reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None,
    absent: tuple[UserError, ...],
) -> Shape:  # fmt: skip
    """The shape of data by their card and typical lengths."""
    base = _base(reference, config)
    source = reference if base is None else base[0]
    usual, questions = typical(source), _stated_questions(source)
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
    of_questions = (
        None if questions is None else max(usual.candidates, round(questions * usual.candidates / usual.shared))
    )
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


def _stated_questions(reference: DataReference) -> int | None:
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


def options(reference: str, given: Mapping[str, Any]) -> tuple[DataReference, DatasetConfig]:
    """A reference and its options, complete.

    Raises:
        UserError: There is no such dataset or option.
    """
    found, entry = registry.resolve(reference)
    return found, registry.options_of(entry, given)
