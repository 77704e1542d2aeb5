"""Describe a benchmark for a plan: counted if it is on this machine, else typical values marked as such; nothing is downloaded.

Both give questions with passages (one made of filler of typical lengths), so that prompts are counted the same way. Of
generated data (worlds) only a few questions are made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal
from unittest.mock import patch

from benchmarks import registry, settings
from benchmarks.availability import LOCAL, MADE, absences, availability, base_of
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.io.hub import OFFLINE_VARIABLES
from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.schema import Passage, Question
from benchmarks.settings import DEFAULT_N, Setting
from benchmarks.typical import Typical, typical
from methods.api import Reading
from methods.work import CHARACTERS, Lengths, Sample, mean, tokens

SEARCHED = 100
"""Passages shown of a corpus without candidates, and triples of a graph."""
Origin = Literal["counted", "sampled", "stated", "unknown"]


@dataclass(frozen=True)
class Shape:
    """Number and lengths of a benchmark's questions and passages in a retrieval setting, for cost estimates.

    Attributes:
        questions: Number of questions; None if unknown.
        origin: How the numbers are known: "counted" (the data are here), "sampled" (from a sample of generated data), "stated"
            (from the card and typical lengths) or "unknown".
        samples: Number of questions that lengths were measured on.
        corpus, own: Upper bounds of the number of passages in the corpus, and in all distinct candidate sets; None if unknown.
        passage: Mean number of tokens per passage.
        whole: Whether the whole corpus is searched because there are no candidates.
        reading: The dataset authors' reading instructions.
        benchmark: The loaded questions: all if counted, a few if sampled.
        absent: Missing data files.
        whole_number: Number of questions of the full dataset, if a local file contains only a sample.
        key: Key that is equal for equal corpora.
        indexed: The corpus that methods index, if it is here.
    """

    reference: DataReference
    questions: int | None
    origin: Origin
    samples: tuple[Sample, ...] = ()
    corpus: int | None = None
    passage: float = 0.0
    whole: bool = False
    reading: Reading | None = None
    benchmark: Benchmark | None = None
    absent: tuple[UserError, ...] = ()
    whole_number: int | None = None
    key: str = ""
    own: int | None = None
    indexed: Corpus | None = None

    @property
    def unclear(self) -> str | None:
        """Explain what is unknown; None if there is enough information to estimate with."""
        if self.questions is None:
            return f"how many questions {self.reference} has"
        if not self.samples:
            return f"lengths of {self.reference}"
        return f"the corpus of {self.reference}" if self.corpus is None else None

    def lengths(self, questions: float | None = None, **further: Any) -> Lengths:
        """Return the lengths that parts need for their estimates; without questions if the shape is unclear."""
        number = 0.0 if self.unclear else float(self.questions or 0) if questions is None else questions
        of = (self.samples, self.corpus or 0, self.passage, self.whole, (self.corpus if self.whole else self.own) or 0)
        return Lengths(self.key, number, *of, reading=self.reading, **further)


def estimated(
    reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None, absent: tuple[UserError, ...]
) -> Shape:
    """Estimate number and lengths of questions and passages of missing data, from their card and typical values."""
    base = base_of(reference, config)
    source = reference if base is None else base[0]
    usual, questions = typical(source), expected_questions(source)
    documents = getattr(config, "documents", None)
    questions = documents if isinstance(documents, int) else questions
    if questions is not None and limit is not None:
        questions = min(questions, limit)
    if usual is None:
        return Shape(reference, questions if questions is not None else limit, "unknown", absent=absent)
    count, whole = _typical_candidates(usual, setting)
    filler = Passage("", "", "x" * (CHARACTERS * usual.passage))
    query = Sample("x" * (CHARACTERS * usual.question), (filler,) * count, "x" * (CHARACTERS * usual.answer), count)
    of_questions = None if questions is None else max(usual.candidates, round(questions * usual.candidates / usual.shared))
    searches = getattr(config, "corpus", None) is not None or (setting is not None and setting.name == "corpus")
    corpus = usual.corpus if usual.corpus is not None and searches else of_questions
    reading = None if usual.reading is None else Reading(**usual.reading)
    return Shape(reference, questions, "stated", (query,), corpus, float(usual.passage), whole, reading, None, absent, own=of_questions)


def _typical_candidates(usual: Typical, setting: Setting | None) -> tuple[int, bool]:
    """Return how many passages a question may use, and whether these are the whole corpus."""
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


def expected_questions(reference: DataReference) -> int | None:
    """Return the number of questions of all splits according to the card, else a typical number."""
    splits = registry.resolve(reference)[1].card.splits_of(reference.subset)
    known = [splits.get(split) for split in (reference.split or "").split("+")]
    usual = typical(reference)
    return getattr(usual, "questions", None) if None in known else sum(filter(None, known))


NEARLY_ALL = 0.9
"""Minimum share of the stated size for a file that is not a sample; versions of data differ by a few records."""


def whole_of(reference: DataReference, config: DatasetConfig, benchmark: Benchmark, counted: int) -> int | None:
    """Return the size of the full dataset if a local file with `counted` records is only a sample of it; else None."""
    if getattr(config, "first", None) is not None or getattr(config, "documents", None) is not None:
        return None
    source, value = base_of(reference, config) or (reference, config)
    options = value.model_dump(exclude_unset=True)
    splits = (source.split or "").split("+")
    positions = (availability(DataReference(source.name, source.subset, split), options) for split in splits)
    if all(position.state != LOCAL for position in positions):
        return None
    # A layout of the file may have a number of its own.
    expected = benchmark.extra["expected"] if "expected" in benchmark.extra else expected_questions(source)
    return expected if expected is not None and counted < NEARLY_ALL * expected else None


SAMPLED, GENERATED, ROWS = 20, 6, 500
"""Maximum questions for measuring lengths; generated questions; rows read of a file of training rows."""


def shape_of(
    reference: DataReference, config: DatasetConfig, setting: Setting | None = None, limit: int | None = None, *, full: bool = False
) -> Shape:
    """Determine number and lengths of a benchmark's questions and passages.

    `full` loads or generates all of its data if possible, as fingerprints need it.
    """
    result = _shape_of(reference, config, setting, limit, full=full)
    # Splits of a dataset share a corpus that is a file of its own; of few questions less may be indexed.
    return replace(result, key=str(getattr(config, "corpus", None) or f"{reference} {config.model_dump_json()} {result.corpus}"))


def _shape_of(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None, *, full: bool) -> Shape:
    absent = tuple(absences(reference, config))
    if absent:
        return estimated(reference, config, setting, limit, absent)
    if not full and getattr(config, "corpus", None) is not None:
        # Building millions of passages is not part of a plan.
        return estimated(reference, config, setting, limit, ())
    try:
        with patch.dict(os.environ, {OFFLINE_VARIABLES[0]: "1"}):  # loaders may not ask the network
            return _full(reference, config, setting, limit) if full else _quick(reference, config, setting, limit)
    except UserError as error:
        return estimated(reference, config, setting, limit, (error,))


def _full(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    whole = registry.load(reference, config)
    result = _of(whole.limited(limit), setting)
    counted = len(whole.questions) + len(whole.skipped)
    number = whole_of(reference, config, whole, counted) if limit is None or counted < limit else None
    return replace(result, whole_number=number)


def _quick(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    """Load a few questions of generated data, the first ones of a file of training rows, and all of other data."""
    shrunk = _shrunk(reference, config)
    if shrunk is not None:
        few, share, questions = shrunk
        result = _of(_made(str(reference), few.model_dump_json(exclude_unset=True)), setting)
        corpus, own = round((result.corpus or 0) / share), round((result.own or 0) / share)
        if getattr(config, "documents", 0) is None:
            # Documents are rephrased, all of them unless a number is given.
            questions = corpus
        questions = questions if limit is None else min(limit, questions)
        if setting is not None and setting.name in settings.BROUGHT:
            brought = round(questions * mean([sample.candidates for sample in result.samples]))
            corpus, own = min(corpus, brought), min(own, brought)
        return replace(result, questions=questions, origin="sampled", corpus=corpus, own=own)
    if setting is None and getattr(config, "first", 0) is None:
        return _first_rows(reference, config)
    return _full(reference, config, setting, limit)


def _first_rows(reference: DataReference, config: DatasetConfig) -> Shape:
    """Load the first rows of a file of training rows; a row may have several questions, whose answers are one target."""
    benchmark = registry.load(reference, config.model_copy(update={"first": ROWS}))
    rows: dict[Any, list[Question]] = {}
    for question in benchmark.questions:
        rows.setdefault(question.metadata.get("row", question.id), []).append(question)
    result = _of(benchmark, None)
    if any(len(several) > 1 for several in rows.values()):
        shown = [_row(several, benchmark) for several in list(rows.values())[:SAMPLED]]
        result = replace(result, samples=tuple(shown), questions=len(rows))
    if len(rows) < ROWS:
        return replace(result, whole_number=whole_of(reference, config, benchmark, result.questions or 0))
    number = estimated(reference, config, None, None, ()).questions
    corpus = None if number is None else round(number * len(benchmark.corpus) / len(rows))
    return replace(result, questions=number, origin="sampled", corpus=corpus)


def _row(questions: Sequence[Question], benchmark: Benchmark) -> Sample:
    """Return a row of pretraining: its document, and all questions with their answers as the target."""
    first = _request(questions[0], benchmark, None)
    target = "\n".join(f"{question.text} {next(iter(question.answers), '')}" for question in questions)
    return replace(first, answer=target)


def _of(benchmark: Benchmark, setting: Setting | None) -> Shape:
    """Return the shape of available data."""
    reading = benchmark.extra.get("reading")
    first = benchmark.questions[:SAMPLED]
    shown = [_request(item, benchmark, setting) for item in first]
    named = [_candidates(item, benchmark, setting) for item in benchmark.questions]
    corpus = benchmark.corpus if setting is None else settings.indexed(setting, benchmark.corpus, benchmark.questions, named)
    lengths = [tokens(passage.full_text) for passage in corpus.get(corpus.ids[:SEARCHED])]
    sets = [tuple(own) for own in named if own is not None]
    searched = setting if setting is None or setting.name == "corpus" else setting.base
    if searched is None or searched.retriever is None:
        sets = list(set(sets))  # what a search will find for each question is not known here
    whole = bool(first) and all(own is None for own in named[: len(first)])
    read = Reading(**reading) if reading else None
    counts = (len(benchmark.questions), "counted", tuple(shown), len(corpus), mean(lengths), whole, read, benchmark)
    return Shape(benchmark.reference, *counts, own=sum(map(len, sets)), indexed=corpus)  # type: ignore[arg-type]


def _request(question: Question, benchmark: Benchmark, setting: Setting | None) -> Sample:
    named = _candidates(question, benchmark, setting)
    ids = benchmark.corpus.ids[:SEARCHED] if named is None else named
    shown = ids[:SEARCHED] if setting is not None and setting.name == "graph" else ids
    present = [item for item in shown if item in benchmark.corpus]
    answer = str(question.metadata.get("target") or next(iter(question.answers), ""))
    return Sample(question.text, tuple(benchmark.corpus.get(present)), answer, len(ids))


def _candidates(question: Question, benchmark: Benchmark, setting: Setting | None) -> Sequence[str] | None:
    """Return the passage ids that a question may use; None for the whole corpus."""
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


def _shrunk(reference: DataReference, config: DatasetConfig) -> tuple[DatasetConfig, float, int] | None:
    """Return options for a few generated questions, their share of the whole, and the total; None for files."""
    base = base_of(reference, config)
    if base is not None:
        inner = _shrunk(*base)
        if inner is None:
            return None
        few, share, questions = inner
        value = few.model_dump(exclude_unset=True)
        if (documents := getattr(config, "documents", None)) is not None:
            return config.model_copy(update={"base_config": value, "documents": None}), share, documents
        return config.model_copy(update={"base_config": value}), share, questions
    if (
        availability(replace(reference, split=(reference.split or "").partition("+")[0]), config.model_dump(exclude_unset=True)).state
        != MADE
    ):
        return None
    number = getattr(config, "questions", None)
    if not isinstance(number, int):
        return None
    worlds = getattr(config, "worlds", None) or (2 if reference.subset == "long" else 1)
    few = config.model_copy(update={"questions": min(number, GENERATED), "worlds": 1})
    # Documents of long worlds are complete for any questions, and graphs of a few questions have nearly all triples of
    # their world; other passages come with their questions.
    share = 1 / worlds if reference.subset in ("long", "graph") else min(number, GENERATED) / number
    return few, share, number * len((reference.split or "").split("+"))


@lru_cache(maxsize=128)
def _made(reference: str, value: str) -> Benchmark:
    """Generate data, cached by options."""
    return registry.load(reference, json.loads(value))


def options(reference: str, settings: Mapping[str, Any]) -> tuple[DataReference, DatasetConfig]:
    """Parse a data reference and complete its options with defaults."""
    result, entry = registry.resolve(reference)
    return result, registry.options_of(entry, settings)
