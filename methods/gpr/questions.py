"""The questions that triples are learned from: who writes them, and how a graph's are had, kept and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.errors import UserError, require_writable
from methods.api import Services
from methods.gpr.masked import SIDES, MaskedTriple, QuestionGenerator, Side
from methods.gpr.questions_file import WHAT, CachedQuestions, Key, Written, append_questions, kept_questions
from methods.gpr.questions_llm import LLMQuestions, QuestionsChat
from methods.gpr.questions_templates import TemplateQuestions
from methods.gpr.questions_worlds import Phrasing, WorldsQuestions
from methods.knowledge.pretraining import PretrainingGraph
from methods.models.chat import ChatModel
from methods.training import Progress, Silent

BATCH = 2048
"""Masked triples that a generator is given at a time, and after which the file is safe on disk."""


class QuestionsConfig(BaseModel):
    """Who writes the questions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    generator: Literal["llm", "cache", "template", "worlds"] = Field(
        default="worlds",
        description="llm: ask `chat` (paper); cache: read `path`; template: words of the relation, for dry runs; "
        "worlds: wordings of worlds' relations",
    )
    chat: QuestionsChat | None = Field(default=None, description="the model of generator llm; paper: Llama-3.1-8B-Instruct")
    prompt: str | None = Field(default=None, description="a template file of one's own; null: the one that ships")
    path: str | None = Field(default=None, description="the file of generator cache, JSON lines")
    phrasings: tuple[Phrasing, ...] = Field(
        default=("statements",),
        min_length=1,
        description="of generator worlds: statements share no template with test questions, descriptions share "
        "phrases, questions are theirs",
    )
    sides: tuple[Side, ...] = Field(default=SIDES, min_length=1, description="ends that are hidden, one question for each; paper: both")
    triples: int | None = Field(default=None, ge=1, description="most triples that questions are asked about, drawn by the seed; null: all")

    @model_validator(mode="after")
    def _has_its_source(self) -> Self:
        if self.generator == "llm" and self.chat is None:
            raise ValueError("generator llm needs chat: {model: …}")
        if self.generator == "cache" and self.path is None:
            raise ValueError("generator cache needs path: a file of questions")
        if len(set(self.sides)) < len(self.sides):
            raise ValueError("a side stands twice in sides")
        return self


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a graph, in the order of its triples.

    Attributes:
        triples: Of each question, the row of its triple: the anchors that `sampling.TripleIndex.draw` takes.
        sides: Of each question, the hidden end: 0 head, 1 tail.
        texts: The questions.
        generator: Who wrote them.
        counts: `triples` asked about, `unnamed` that were passed over, `kept` questions taken from the file; and
            what the generator counted: `accepted`, `retried`, `dropped: ` with a reason.
    """

    triples: NDArray[np.int64]
    sides: NDArray[np.int8]
    texts: list[str]
    generator: str
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.texts)


def generator_of(config: QuestionsConfig, services: Services) -> QuestionGenerator:
    """The generator that options name.

    Raises:
        UserError: Its file, prompt or key cannot be used.
    """
    if config.generator == "llm" and config.chat is not None:
        return LLMQuestions(ChatModel(config.chat, role="masked triples", cache=services.cache), config.prompt)
    if config.generator == "cache" and config.path is not None:
        return CachedQuestions(Path(config.path).expanduser())
    if config.generator == "template":
        return TemplateQuestions()
    return WorldsQuestions(config.phrasings)


def questions_of(
    graph: PretrainingGraph,
    config: QuestionsConfig,
    generator: QuestionGenerator,
    path: Path | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> QuestionSet:
    """The questions of a graph: both ends of every triple whose ends have names, each hidden once.

    Args:
        graph: The graph.
        config: Which ends are hidden, and how many triples are asked about.
        generator: Writes what is not kept (`generator_of`).
        path: File of questions, appended to as they come; those of the same generator are not asked for again. None
            keeps nothing.
        seed: Of the choice of triples, where there are more than are asked about.
        progress: Told of every batch.

    Raises:
        UserError: There is no question at all; the message says what became of the triples. Or the file cannot be
            written, which is known before the first question is asked for.
    """
    progress = progress or Silent()
    if path is not None:
        require_writable(path, what=WHAT)
    rows = _asked_about(graph, config, seed)
    kept = kept_questions(path, generator.name) if path is not None else {}
    before = Counter(generator.counts)
    triples: list[int] = []
    sides: list[int] = []
    texts: list[str] = []
    taken = 0
    progress.begin("questions", len(rows) * len(config.sides))
    for places, batch in _batches(graph, rows, config.sides):
        found, from_file = _questions(batch, kept, generator, path)
        taken += from_file
        for place, one, question in zip(places, batch, found, strict=True):
            if question is not None:
                triples.append(place)
                sides.append(SIDES.index(one.side))
                texts.append(question)
        progress.advance(len(batch))
    counted = Counter(generator.counts) - before
    counts = {"triples": len(rows), "unnamed": int((~graph.nameable).sum()), "kept": taken, **counted}
    if not texts:
        raise _nothing(graph, generator.name, counts)
    return QuestionSet(np.array(triples, np.int64), np.array(sides, np.int8), texts, generator.name, counts)


def _questions(
    batch: Sequence[MaskedTriple], kept: Mapping[Key, str], generator: QuestionGenerator, path: Path | None
) -> tuple[list[str | None], int]:
    """The questions of a batch, new ones appended to the file, and how many were kept there."""
    found = [kept.get((one.id, one.side)) for one in batch]
    missing = [number for number, question in enumerate(found) if question is None]
    made = generator.generate([batch[number] for number in missing]) if missing else []
    new = []
    for number, question in zip(missing, made, strict=True):
        if question is not None:
            found[number] = question
            new.append(Written(batch[number], question, generator.name))
    if path is not None and new:
        append_questions(path, new)
    return found, len(batch) - len(missing)


def _asked_about(graph: PretrainingGraph, config: QuestionsConfig, seed: int) -> NDArray[np.int64]:
    rows = np.flatnonzero(graph.nameable)
    if config.triples is None or len(rows) <= config.triples:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, config.triples, replace=False))


def _batches(graph: PretrainingGraph, rows: NDArray[np.int64], sides: tuple[Side, ...]) -> Iterator[tuple[list[int], list[MaskedTriple]]]:
    """Masked triples with the rows of their triples, so many at a time."""
    step = max(1, BATCH // len(sides))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        places = np.repeat(part, len(sides)).tolist()
        yield places, [MaskedTriple(triple, side) for triple in graph.triples.take(part) for side in sides]


def _nothing(graph: PretrainingGraph, generator: str, counts: Mapping[str, int]) -> UserError:
    fate = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number) or "nothing"
    return UserError(
        f"{generator} wrote no question about the {len(graph):,} triples ({fate})",
        where="questions",
        try_this="another generator, or another graph",
    )
