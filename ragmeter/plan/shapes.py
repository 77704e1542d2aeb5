"""What a benchmark is like, for a plan: counted where it is here, else stated and typical; nothing is fetched.

Both come as questions with passages, a few that are there or one made of filler of the typical lengths, so that prompts
are counted the same way. What is generated (worlds) is not made in full: a few questions of it are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from benchmarks import registry, settings
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.datasets import longbench
from benchmarks.io.hub import OFFLINE_VARIABLES
from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.schema import Passage, Question
from benchmarks.settings import DEFAULT_N, Setting
from benchmarks.sources import LOCAL, MADE, absences, availability, base_of
from methods.api import Reading
from methods.work import CHARACTERS, Lengths, Sample, mean, tokens

SEARCHED = 100
"""Passages shown of a corpus that has no candidates, and triples of a graph."""
Origin = Literal["counted", "sampled", "stated", "unknown"]


@dataclass(frozen=True)
class Shape:
    """What a benchmark is like in a setting.

    Attributes:
        reference: The data.
        questions: How many; None: unknown.
        origin: counted: the data are here; sampled: some of what is generated was made; stated: by card and typical
            lengths; unknown: nothing is known of lengths.
        samples: Questions that lengths are taken from.
        corpus: Passages of the corpus, at most; None: unknown.
        passage: Mean tokens of one of them.
        whole: Whether all of the corpus is searched, for want of candidates.
        own: Passages of all distinct sets of candidates together; None: unknown.
        reading: How its authors have it read.
        benchmark: What was read: all of it where it was counted, a few questions where it was sampled.
        absent: Why they are not here, where they are not: each file.
        whole_number: How many are stated of them, where a local file holds only a sample.
        key: Of the corpus: equal where it is the same.
        indexed: What methods index, where it is here.
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
        """What is not known of it, in words; None: enough to plan with."""
        if self.questions is None:
            return f"how many questions {self.reference} has"
        if not self.samples:
            return f"lengths of {self.reference}"
        return f"the corpus of {self.reference}" if self.corpus is None else None

    def lengths(self, questions: float | None = None, **further: Any) -> Lengths:
        """What parts know of it; nothing is to be done where it is unclear."""
        number = 0.0 if self.unclear else float(self.questions or 0) if questions is None else questions
        of = (self.samples, self.corpus or 0, self.passage, self.whole, (self.corpus if self.whole else self.own) or 0)
        return Lengths(self.key, number, *of, reading=self.reading, **further)


# -- Typical lengths of datasets, for plans of data that are not here; rounded, in tokens of four characters --
# Where a card states the number of questions, that is used and not the one here. Measured on samples of the data unless a
# source is named.


CHUNK_WORDS, CHUNK_TOKENS = 512, 720
"""Words of a passage of a long document, as loaders cut it, and the tokens that these make."""


@dataclass(frozen=True, slots=True)
class Typical:
    """What a question of a dataset typically looks like, in tokens.

    Attributes:
        question, passage, answer: Of one.
        candidates: Passages (or triples) that a record brings, or that its document is cut into; 0: none.
        shared: Questions that share their passages, on average.
        questions: How many there are, where no card says so.
        corpus: Passages of the corpus that is searched, where it is not that of the questions' own.
        reading: How its authors have it read, where they say so.
    """

    question: int
    candidates: int
    passage: int
    shared: float = 1.0
    answer: int = 5
    questions: int | None = None
    corpus: int | None = None
    reading: Mapping[str, Any] | None = None


_ULTRADOMAIN_TOKENS, _BOOK_TOKENS = {"fin": 41_000, "legal": 51_000, "mix": 10_000}, 140_000
"""Qian et al. 2024, MemoRAG, statistics of UltraDomain, rounded; the eighteen textbook domains alike."""
_EVALUATED = {"nq": 6489, "hotpotqa": 7384, "musique": 2417, "2wiki": 12576}
PRETRAINING_DOCUMENTS, INSTRUCTION_ROWS = 2_000_000, 453_000
"""He et al. 2025, CLaRa, table 9: documents of 95.6 words; and COCOM's questions."""

_PLAIN: Mapping[str, Typical] = {
    "hotpotqa": Typical(26, 10, 148),
    "2wikimultihopqa": Typical(19, 10, 97),
    "musique": Typical(23, 20, 119),
    # DPR's psgs_w100.tsv: 100 words and a title a passage.
    "nq": Typical(12, 0, 160, corpus=21_015_324),
    # Graphs around questions overlap: together they are some millions of triples (Saxena et al. 2020, EmbedKGQA: 5.7
    # million within two hops of the entities of WebQSP).
    "webqsp": Typical(9, 2000, 20, shared=2.0, answer=4),
    "cwq": Typical(20, 3500, 20, shared=20.0, answer=4),
    # Their authors' mean lengths, in passages of 512 words.
    "longbench_v2": Typical(90, 250, CHUNK_TOKENS, shared=1.2, answer=8),
    "infinitebench": Typical(25, 300, CHUNK_TOKENS, shared=5.0, answer=6),
    "sark": Typical(12, 50, 160, questions=3000),
    "pisco": Typical(15, 5, 140, answer=60, questions=INSTRUCTION_ROWS),
    "parallel_style": Typical(40, 10, 45),
}


def typical(reference: DataReference) -> Typical | None:
    """What a dataset is typically like; None where nothing is known of it."""
    makers = {"longbench": _longbench, "ultradomain": _ultradomain, "clara_stages": _clara}
    maker = makers.get(reference.name)
    if maker is not None:
        return maker(reference.subset or "")
    return _PLAIN.get(reference.name)


def _longbench(subset: str) -> Typical:
    a_set = longbench.set_of(subset)
    # Of a whole context one passage; a Chinese character is about as long as an English word, in tokens.
    passages = 1 if a_set.whole else -(-a_set.words // CHUNK_WORDS)
    length = round(a_set.words * CHUNK_TOKENS / CHUNK_WORDS) if a_set.whole else CHUNK_TOKENS
    return Typical(15, passages, length, reading=longbench.reading(subset))


def _ultradomain(subset: str) -> Typical:
    length = _ULTRADOMAIN_TOKENS.get(subset, _BOOK_TOKENS)
    # LightRAG counts 94 documents of legal and about 12 of a textbook domain; here as many questions share each.
    shared = {"legal": 4.7, "fin": 4.7, "mix": 2.1}.get(subset, 9.0)
    reading = {**longbench.reading("qasper"), "max_new_tokens": 512}
    return Typical(30, max(1, -(-length // CHUNK_TOKENS)), CHUNK_TOKENS, shared, 85, reading=reading)


def _clara(subset: str) -> Typical:
    if subset == "pretraining":
        # Three rows of a document: simple and complex questions with their answers, and a paraphrase.
        return Typical(20, 1, 140, answer=245, questions=3 * PRETRAINING_DOCUMENTS)
    if subset.startswith(("inst_eval", "instruction_tuning")):
        name = subset.split("_")[2] if subset.startswith("inst_eval") else ""
        return Typical(15, 5, 150, answer=5 if name else 60, questions=_EVALUATED.get(name, INSTRUCTION_ROWS))
    return Typical(20, 20, 150)


# -- The shape of data that are not here: by their card, and by typical lengths, as questions and passages of filler --


def stated(
    reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None, absent: tuple[UserError, ...]
) -> Shape:
    """The shape of data by their card and typical lengths."""
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
    filler = Passage("", "", "x" * (CHARACTERS * usual.passage))
    query = Sample(_filled(usual.question), (filler,) * count, _filled(usual.answer), count)
    of_questions = None if questions is None else max(usual.candidates, round(questions * usual.candidates / usual.shared))
    corpus = usual.corpus if usual.corpus is not None and _searches(config, setting) else of_questions
    reading = None if usual.reading is None else Reading(**usual.reading)
    return Shape(reference, questions, "stated", (query,), corpus, float(usual.passage), whole, reading, None, absent, own=of_questions)


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
    if all(item is not None for item in known):
        return sum(item for item in known if item is not None)
    usual = typical(reference)
    return None if usual is None else usual.questions


def _filled(count: int) -> str:
    return "x" * (CHARACTERS * count)


NEARLY_ALL = 0.9
"""A file that holds so large a share of what is stated is no sample: versions of data differ by a few records."""


def whole_of(reference: DataReference, config: DatasetConfig, benchmark: Benchmark, held: int) -> int | None:
    """How many records the whole has of which a local file holds `held`; None where that is no sample."""
    if getattr(config, "first", None) is not None or getattr(config, "documents", None) is not None:
        return None
    source, value = base_of(reference, config) or (reference, config)
    options = value.model_dump(exclude_unset=True)
    splits = (source.split or "").split("+")
    positions = (availability(DataReference(source.name, source.subset, split), options) for split in splits)
    if all(position.state != LOCAL for position in positions):
        return None
    # A layout of the file may have a number of its own.
    stated = benchmark.extra["expected"] if "expected" in benchmark.extra else stated_questions(source)
    return stated if stated is not None and held < NEARLY_ALL * stated else None


SAMPLED = 20
"""Questions that lengths are taken from."""
GENERATED = 6
"""Questions that are made of what is generated."""
ROWS = 500
"""Training rows that are read of a file of them; of a shorter one all."""


def shape_of(
    reference: DataReference, config: DatasetConfig, setting: Setting | None = None, limit: int | None = None, *, full: bool = False
) -> Shape:
    """What a benchmark is like; `full`: read or make all of it, where it is here: runs are known by all of their data."""
    result = _shape_of(reference, config, setting, limit, full=full)
    # Splits of a dataset share a corpus that is a file of its own; of few questions less may be indexed.
    return replace(result, key=str(getattr(config, "corpus", None) or f"{reference} {config.model_dump_json()} {result.corpus}"))


def _shape_of(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None, *, full: bool) -> Shape:
    absent = tuple(absences(reference, config))
    if absent:
        return stated(reference, config, setting, limit, absent)
    if not full and getattr(config, "corpus", None) is not None:
        # Building millions of passages is no part of a plan.
        return stated(reference, config, setting, limit, ())
    try:
        with without_network():
            return _full(reference, config, setting, limit) if full else _quick(reference, config, setting, limit)
    except UserError as error:
        return stated(reference, config, setting, limit, (error,))


@contextmanager
def without_network() -> Iterator[None]:
    """Forbid the network to the loaders of this block."""
    name = OFFLINE_VARIABLES[0]
    before = {name: os.environ[name]} if name in os.environ else {}
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update(before)


def _full(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    whole = registry.load(reference, config)
    result = _of(whole.limited(limit), setting)
    held = len(whole.questions) + len(whole.skipped)
    number = whole_of(reference, config, whole, held) if limit is None or held < limit else None
    return replace(result, whole_number=number)


def _quick(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    """Of what is generated a few questions, of a file of training rows the first ones, of anything else all."""
    shrunk = _shrunk(reference, config)
    if shrunk is not None:
        few, share, questions = shrunk
        result = _of(_made(str(reference), few.model_dump_json(exclude_unset=True)), setting)
        corpus, own = round((result.corpus or 0) / share), round((result.own or 0) / share)
        if getattr(config, "documents", 0) is None:
            # What is rephrased are documents, all of them unless a number is given.
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
    """A file of training rows by its first ones: a row may be several questions, whose answers are one target."""
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
    number = stated(reference, config, None, None, ()).questions
    corpus = None if number is None else round(number * len(benchmark.corpus) / len(rows))
    return replace(result, questions=number, origin="sampled", corpus=corpus)


def _row(questions: Sequence[Question], benchmark: Benchmark) -> Sample:
    """A row of pretraining: its document, and all questions with their answers as the target."""
    first = _request(questions[0], benchmark, None)
    target = "\n".join(f"{question.text} {next(iter(question.answers), '')}" for question in questions)
    return replace(first, answer=target)


def _of(benchmark: Benchmark, setting: Setting | None) -> Shape:
    """The shape of data that are here."""
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
    return Shape(
        benchmark.reference,
        len(benchmark.questions),
        "counted",
        tuple(shown),
        len(corpus),
        mean(lengths),
        whole,
        Reading(**reading) if reading else None,
        benchmark,
        own=sum(map(len, sets)),
        indexed=corpus,
    )


def _request(question: Question, benchmark: Benchmark, setting: Setting | None) -> Sample:
    named = _candidates(question, benchmark, setting)
    ids = benchmark.corpus.ids[:SEARCHED] if named is None else named
    shown = ids[:SEARCHED] if setting is not None and setting.name == "graph" else ids
    present = [item for item in shown if item in benchmark.corpus]
    answer = str(question.metadata.get("target") or next(iter(question.answers), ""))
    return Sample(question.text, tuple(benchmark.corpus.get(present)), answer, len(ids))


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


def _shrunk(reference: DataReference, config: DatasetConfig) -> tuple[DatasetConfig, float, int] | None:
    """Options for a few questions of what is generated, their share of the whole, and how many there are; None of files."""
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
    if availability(_single(reference), config.model_dump(exclude_unset=True)).state != MADE:
        return None
    number = getattr(config, "questions", None)
    if not isinstance(number, int):
        return None
    worlds = getattr(config, "worlds", None) or (2 if reference.subset == "long" else 1)
    few = config.model_copy(update={"questions": min(number, GENERATED), "worlds": 1})
    # Documents of long worlds are there whatever is asked, and graphs of a few questions have nearly all triples of
    # their world; other passages come with their questions.
    share = 1 / worlds if reference.subset in ("long", "graph") else min(number, GENERATED) / number
    return few, share, number * len((reference.split or "").split("+"))


@lru_cache(maxsize=128)
def _made(reference: str, value: str) -> Benchmark:
    """What is generated of some options, which give the same again."""
    return registry.load(reference, json.loads(value))


def _single(reference: DataReference) -> DataReference:
    return replace(reference, split=(reference.split or "").partition("+")[0])


def options(reference: str, settings: Mapping[str, Any]) -> tuple[DataReference, DatasetConfig]:
    """A reference and its options, complete."""
    result, entry = registry.resolve(reference)
    return result, registry.options_of(entry, settings)
