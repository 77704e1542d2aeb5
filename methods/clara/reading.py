"""Rows from data references: the authors' files, PISCO's, what was synthesised, worlds, or any benchmark.

Files of rows are streamed by their loaders and taken as they are. Any other benchmark is loaded, and its questions get
documents by `PoolConfig`: what a method may see decides which (candidates, or a retriever's), and gold decides only
which positives are put among them for training, in an order that does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from benchmarks import registry
from benchmarks.datasets import clara_stages, pisco
from benchmarks.datasets.training_rows import Row, RowsConfig
from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, DataReference, DatasetConfig, SkippedRecord
from benchmarks.schema import Question
from benchmarks.worlds.dataset import WorldsConfig
from methods.api import Services
from methods.clara.data_config import PoolConfig, ScpDataConfig
from methods.clara.rows import InstructionRow, JointRow, ScpRow, instruction_row, joint_row, pooled, scp_row
from methods.clara.worlds_rows import world_rows
from methods.retrieved import retrieved

STREAMED: Mapping[str, Callable[[DataReference, RowsConfig, list[SkippedRecord]], Iterator[Row]]] = {
    "clara_stages": clara_stages.rows,
    "pisco": pisco.rows,
}
"""The datasets that are files of rows."""
PRETRAINING = "pretraining"
_OF_MIX = {"all": ("qa", "paraphrase"), "paraphrase": ("paraphrase",), "simple+complex": ("qa",)}
"""Kinds of the rows of files, by mix: files do not say which questions are simple."""


def scp_rows(reference: str, data: ScpDataConfig | None = None, options: Mapping[str, Any] | None = None) -> list[ScpRow]:
    """Rows of pretraining: of worlds, or of `clara_stages/pretraining`, whose `path` may be a synthesised file.

    Args:
        reference: The data.
        data: Which rows, of how many documents.
        options: Of the dataset.

    Raises:
        UserError: The data is of another kind, or files of rows cannot give this mix.
    """
    data = data or ScpDataConfig()
    if not data.types:
        return []
    found, config = _resolved(reference, options)
    if isinstance(config, WorldsConfig):
        parts = (replace(found, split=split) for split in (found.split or "").split("+"))
        return [row for part in parts for row in world_rows(part, config, data)]
    if found.name != "clara_stages" or found.subset != PRETRAINING:
        raise UserError(
            f"{found} holds no rows of pretraining",
            where="data",
            try_this="worlds/…:train, clara_stages/pretraining:train with its path, or ragmeter synthesise clara",
        )
    kinds = _OF_MIX.get(data.mix)
    if kinds is None:
        raise UserError(
            "files of rows do not say which questions are simple",
            where=f"mix: {data.mix}",
            try_this="a file that ragmeter synthesise clara wrote with --mix simple, read with mix: simple+complex",
        )
    return _drawn([row for row in map(scp_row, _streamed(found, config)) if row.kind in kinds], data)


def instruction_rows(
    reference: str,
    pool: PoolConfig | None = None,
    options: Mapping[str, Any] | None = None,
    services: Services | None = None,
    *,
    limit: int | None = None,
) -> list[InstructionRow]:
    """Rows of instruction tuning.

    Args:
        reference: The data.
        pool: The documents of a question; of files of rows only `depth` counts.
        options: Of the dataset.
        services: What a retriever is built with.
        limit: Only the first so many.

    Raises:
        UserError: The data does not allow it.
    """
    pool = pool or PoolConfig(depth=5)
    found, config = _resolved(reference, options)
    if found.name in STREAMED:
        return [instruction_row(row, pool.depth) for row in islice(_streamed(found, config), limit)]
    rows = joint_rows_of(registry.load(found, config).limited(limit), pool, services)
    return [InstructionRow(row.question, row.documents, row.answer, row.golds[0], row.id, row.positives) for row in rows]


def joint_rows(
    reference: str,
    pool: PoolConfig | None = None,
    options: Mapping[str, Any] | None = None,
    services: Services | None = None,
    *,
    limit: int | None = None,
) -> list[JointRow]:
    """Rows of joint training or evaluation; otherwise as `instruction_rows`, of files `seed` counts too."""
    pool = pool or PoolConfig()
    found, config = _resolved(reference, options)
    if found.name in STREAMED:
        return [joint_row(row, pool.depth, seed=pool.seed) for row in islice(_streamed(found, config), limit)]
    return joint_rows_of(registry.load(found, config).limited(limit), pool, services)


def joint_rows_of(benchmark: Benchmark, pool: PoolConfig, services: Services | None = None) -> list[JointRow]:
    """The questions of a benchmark that have an answer, with their documents.

    Raises:
        UserError: There is no such question, or there are no candidates and no retriever is asked.
    """
    questions = [one for one in benchmark.questions if one.answerable and one.golds]
    if not questions:
        raise UserError(f"{benchmark.reference} has no question with an answer", where="data")
    ranked = _ranked(benchmark, questions, pool, services or Services())
    rows = []
    for question in questions:
        others = [passage.full_text for passage in benchmark.corpus.get(ranked[question.id])]
        present = [one for one in dict.fromkeys(question.evidence) if one in benchmark.corpus]
        positives = [passage.full_text for passage in benchmark.corpus.get(present)]
        if pool.oracle:
            documents, places = pooled(question.id, positives, others, pool.depth, seed=pool.seed)
        else:
            documents = tuple(dict.fromkeys(others))[: pool.depth]
            places = tuple(place for place, text in enumerate(documents) if text in set(positives))
        taught = _answer(question, [documents[place] for place in places])
        rows.append(JointRow(question.id, question.text, documents, taught, places, question.golds))
    return rows


def _answer(question: Question, evidence: Sequence[str]) -> str:
    """What is taught: the first answer, or all that are wanted; worded as the evidence has it, where it can be."""
    if question.answer_set:
        return ", ".join(question.answers)
    stated = (gold for gold in sorted(question.golds, key=len, reverse=True) if any(gold in text for text in evidence))
    first = question.answers[0]
    return first if any(first in text for text in evidence) else next(stated, first)


def _ranked(benchmark: Benchmark, questions: list[Question], pool: PoolConfig, services: Services) -> dict[str, tuple[str, ...]]:
    """Ids of the documents that a question may have, best first."""
    given = {one.id: tuple(one.candidates or ()) for one in questions if pool.source != "retriever"}
    if pool.source == "record" and not any(given.values()):
        raise UserError(f"{benchmark.reference} gives its questions no candidates", where="source: record", try_this="source: retriever")
    if pool.source == "record":
        return given
    found = retrieved(benchmark, questions, pool.component, pool.depth, services)
    return {one.id: (*given.get(one.id, ()), *found[one.id]) for one in questions}


def _resolved(reference: str, options: Mapping[str, Any] | None) -> tuple[DataReference, DatasetConfig]:
    found, entry = registry.resolve(reference, where="data")
    return found, registry.options_of(entry, options or {})


def _streamed(reference: DataReference, config: DatasetConfig) -> Iterable[Row]:
    assert isinstance(config, RowsConfig)
    skipped: list[SkippedRecord] = []
    for split in (reference.split or "").split("+"):
        yield from STREAMED[reference.name](replace(reference, split=split), config, skipped)


def _drawn(rows: list[ScpRow], data: ScpDataConfig) -> list[ScpRow]:
    """The rows of so many documents; a larger draw holds every smaller one of its seed."""
    texts = list(dict.fromkeys(row.document for row in rows))
    if data.documents is None or data.documents >= len(texts):
        return rows
    chosen = set(Draws("clara documents", data.seed).sample(texts, data.documents))
    return [row for row in rows if row.document in chosen]
