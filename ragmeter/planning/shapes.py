"""What a benchmark is like, for a plan: counted where it is here, else stated and typical; nothing is fetched.

Both come as questions with passages, a few that are there or one made of filler of the typical lengths, so that prompts
are counted the same way. What is generated (worlds) is not made in full: a few questions of it are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import registry
from benchmarks.datasets.training_rows import RowsConfig
from benchmarks.errors import UserError
from benchmarks.hub import OFFLINE_VARIABLES
from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.schema import Question
from benchmarks.settings import DEFAULT_N, Setting
from benchmarks.whereabouts import ABSENT, MADE, UNCLEAR, whereabouts
from methods.api import Reading
from ragmeter.planning.samples import whole_of
from ragmeter.planning.shape import SEARCHED, Asked, Shape, mean, tokens
from ragmeter.planning.stated import base_of, stated

SAMPLED = 20
"""Questions that lengths are taken from."""
GENERATED = 6
"""Questions that are made of what is generated."""
ROWS = 500
"""Training rows that are read of a file of them; of a shorter one all."""
FILES = {
    "corpus": "its path; the documentation's page “Data” says where corpora are had",
    "pairs": "make it with `ragmeter styles rewrite`, or name its path",
}
"""Options of datasets that name files, and how these are had."""


def shape_of(
    reference: DataReference, config: DatasetConfig, setting: Setting | None = None, limit: int | None = None, *, full: bool = False
) -> Shape:
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
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def absences(reference: DataReference, config: DatasetConfig) -> Iterator[UserError]:
    """What of data, or of what they are made of, is not here."""
    for option, remedy in FILES.items():
        path = getattr(config, option, None)
        if isinstance(path, str) and not Path(path).expanduser().exists():
            yield UserError(f"{reference} needs a file that is not here", where=f"{option}: {path}", try_this=remedy)
    if (base := base_of(reference, config)) is not None:
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
                try_this="; or ".join(filter(None, (said.try_this if said else None, fetch))) or None,
            )


# -- what is here ---------------------------------------------------------------------------------------------------


def _full(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    whole = registry.load(reference, config)
    found = _of(whole.limited(limit), setting)
    held = len(whole.questions) + len(whole.skipped)
    number = whole_of(reference, config, whole, held) if limit is None or held < limit else None
    return replace(found, whole_number=number)


def _quick(reference: DataReference, config: DatasetConfig, setting: Setting | None, limit: int | None) -> Shape:
    """Of what is generated a few questions, of a file of training rows the first ones, of anything else all."""
    shrunk = _shrunk(reference, config)
    if shrunk is not None:
        few, share, questions = shrunk
        found = _of(_made(str(reference), few.model_dump_json(exclude_unset=True)), setting)
        corpus = round((found.corpus or 0) / share)
        if getattr(config, "documents", 0) is None:
            # What is retold are documents, all of them unless it is said how many.
            questions = corpus
        questions = questions if limit is None else min(limit, questions)
        return replace(found, questions=questions, origin="sampled", corpus=corpus)
    if isinstance(config, RowsConfig) and config.first is None and setting is None:
        return _first_rows(reference, config)
    return _full(reference, config, setting, limit)


def _first_rows(reference: DataReference, config: RowsConfig) -> Shape:
    """A file of training rows by its first ones: a row may be several questions, whose answers are one target."""
    benchmark = registry.load(reference, config.model_copy(update={"first": ROWS}))
    rows: dict[Any, list[Question]] = {}
    for question in benchmark.questions:
        rows.setdefault(question.metadata.get("row", question.id), []).append(question)
    found = _of(benchmark, None)
    if any(len(several) > 1 for several in rows.values()):
        shown = [_row(several, benchmark) for several in list(rows.values())[:SAMPLED]]
        found = replace(found, asked=tuple(shown), questions=len(rows))
    if len(rows) < ROWS:
        return replace(found, whole_number=whole_of(reference, config, benchmark, found.questions or 0))
    number = stated(reference, config, None, None, ()).questions
    corpus = None if number is None else round(number * len(benchmark.corpus) / len(rows))
    return replace(found, questions=number, origin="sampled", corpus=corpus)


def _row(questions: Sequence[Question], benchmark: Benchmark) -> Asked:
    """A row of pretraining: its document, and all questions with their answers as the target."""
    first = _asked(questions[0], benchmark, None)
    target = "\n".join(f"{one.text} {next(iter(one.answers), '')}" for one in questions)
    return replace(first, answer=target)


def _of(benchmark: Benchmark, setting: Setting | None) -> Shape:
    """The shape of data that are here."""
    said = benchmark.extra.get("reading")
    first = benchmark.questions[:SAMPLED]
    shown = [_asked(one, benchmark, setting) for one in first]
    corpus = list(benchmark.corpus.ids[:SEARCHED])
    lengths = [tokens(passage.full_text) for passage in benchmark.corpus.get(corpus)] if corpus else []
    whole = bool(first) and all(_candidates(one, benchmark, setting) is None for one in first)
    return Shape(
        benchmark.reference,
        len(benchmark.questions),
        "counted",
        tuple(shown),
        len(benchmark.corpus),
        mean(lengths),
        whole,
        Reading(**said) if said else None,
        benchmark,
    )


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
    base = base_of(reference, config)
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
def _made(reference: str, given: str) -> Benchmark:
    """What is generated of some options, which give the same again."""
    return registry.load(reference, json.loads(given))


def _single(reference: DataReference) -> DataReference:
    return replace(reference, split=(reference.split or "").partition("+")[0])


def options(reference: str, given: Mapping[str, Any]) -> tuple[DataReference, DatasetConfig]:
    """A reference and its options, complete.

    Raises:
        UserError: There is no such dataset or option.
    """
    found, entry = registry.resolve(reference)
    return found, registry.options_of(entry, given)
