"""Generate, save and count the questions about a graph's triples: the options, the language model, and the set in use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.errors import UserError, require_writable
from benchmarks.core.files import Lines
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import RetiredOptions
from benchmarks.registry import Benchmark
from benchmarks.sources import data_path
from methods.api import Services
from methods.flow import form_of, in_flight, in_order, one
from methods.gpr.masked import ACCEPTED, DROPPED, RETRIED, SIDES, MaskedTriple, QuestionGenerator, Side, fault, unaskable
from methods.gpr.question_files import WHAT, Written, WrittenQuestions, evidence_questions, kept_questions, line_of
from methods.gpr.wordings import TemplateQuestions, WorldsQuestions
from methods.graphs.triples import PretrainingGraph
from methods.models.chat import ChatModel, Reply
from methods.models.llm import LLM, MayAskConfig, defaults, open_llm
from methods.models.rewriter import bare_text, refuses
from methods.prompts import Shipped
from methods.training import Progress, Silent

TRIES = 3
"""Maximum attempts per triple, each with another seed."""
PROMPT = Shipped("methods.gpr", "questions")
"""Prompt with the triple and the hidden side; as in the paper, the hidden entity itself is not shown."""
_LEAD = re.compile(r"^(?:[-*•>#\s]+|\(?\d{1,3}[.):]\s+|(?:\*\*)?question(?:\s*\d+)?\s*:(?:\*\*)?\s*)+", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»`*_"


class LLMQuestions:
    """Generator that asks a language model for one question per triple, and retries invalid ones up to two times.

    Args:
        model: The model; with a cache of replies, a second run makes no call.
        prompt: A user's template file.

    Raises:
        UserError: The template is invalid.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = PROMPT.load(prompt)
        self.counts: Counter[str] = Counter()
        self.in_flight = model.in_flight
        also = fingerprint(model.config.identity(), self._prompt.hash, TRIES)
        self.name = f"llm-{model.config.model}({also[:8]})"

    async def generate_one(self, masked: MaskedTriple) -> str | None:
        """Generate a question; None if all attempts are invalid.

        Raises:
            Broke: No further call could succeed: wrong key, unknown model, or unreachable endpoint.
        """
        reason = unaskable(masked)
        if reason is None:
            messages = self._prompt.messages(triple=str(masked), side=masked.side)
            for number in range(TRIES):
                self.counts[RETRIED] += number > 0
                question, reason = read(await self._model.ask(messages, repetition=number, step="question"), masked)
                if reason is None:
                    self.counts[ACCEPTED] += 1
                    return question
        self.counts[f"{DROPPED}{reason}"] += 1
        return None


def read(reply: Reply, masked: MaskedTriple) -> tuple[str | None, str | None]:
    """Extract the question from a reply; returns (question, None) or (None, reason)."""
    if reply.failed is not None:
        return None, "no reply"
    if refuses(reply.text):
        return None, "refusal"
    question = parse(reply.text)
    if not question:
        return None, "empty reply"
    reason = fault(question, masked)
    return (question, None) if reason is None else (None, reason)


def parse(reply: str) -> str:
    """Return the first line of a reply as a question, without quotation marks, bullets, numbers and a leading "Question:"."""
    for line in bare_text(reply).splitlines():
        text = _bare(line)
        if words_in(text):
            return text if text.endswith("?") else f"{text.rstrip('.!:; ')}?"
    return ""


def words_in(text: str) -> bool:
    """Return whether a line contains any letter or digit."""
    return any(character.isalnum() for character in text)


def _bare(line: str) -> str:
    text, before = line.strip(), None
    while text != before:
        before = text
        text = _LEAD.sub("", text).strip()
        if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
            text = text[1:-1].strip()
    return " ".join(text.split())


FROM_FILE = ("cache", "recorded")
"""Generators that read the file of the option `path`."""

BATCH = 2048
"""Masked triples per batch for generators without a model."""


class QuestionsConfig(RetiredOptions, MayAskConfig):
    """Options of the question generator."""

    retired = MappingProxyType({"phrasings": ["statements"]})
    choice: ClassVar[str] = "generator"

    generator: Literal["llm", "cache", "recorded", "evidence", "template", "worlds"] = Field(
        default="worlds",
        description="llm: a language model (paper); cache: read `path`; recorded: read a table of questions from `path`; "
        "evidence: the data's own questions about their evidence, a control; template: words of the relation, for "
        "dry runs; worlds: the wordings of worlds' relations",
    )
    llm: Annotated[LLM, defaults(max_tokens=96, temperature=0.7)] | None = Field(
        default=None,
        description="model of generator llm; paper: Llama-3.1-8B-Instruct. With a temperature above 0, a second attempt differs",
    )
    prompt: str | None = Field(default=None, description="your own template file; null: the shipped one")
    path: str | None = Field(
        default=None, description="file of generator cache, as written by training (questions.jsonl), or of generator recorded (TSV)"
    )
    sides: tuple[Side, ...] = Field(
        default=SIDES, min_length=1, description="ends of a triple that are hidden, with one question each; paper: both"
    )
    triples: int | None = Field(default=None, ge=1, description="maximum triples to ask questions about, sampled with the seed; null: all")

    @model_validator(mode="after")
    def _has_its_source(self) -> Self:
        if self.generator in FROM_FILE and self.path is None:
            raise ValueError(f"generator {self.generator} needs path: a file of questions")
        if len(set(self.sides)) < len(self.sides):
            raise ValueError("sides has a duplicate")
        return self


@dataclass(frozen=True)
class QuestionSet:
    """The questions about a graph, in the order of its triples.

    Attributes:
        triples: Row of each question's triple (the anchors for `sampling.TripleIndex.draw`).
        sides: Hidden end of each question: 0 head, 1 tail.
        texts: The questions.
        generator: Identity of the generator.
        counts: `triples` asked about, `unnamed` ones skipped, `kept` questions reused from the file, `left_out` for lack of a
            valid question, and the generator's counts. For written questions also `unmatched`: triples that are not in the graph.
    """

    triples: NDArray[np.int64]
    sides: NDArray[np.int8]
    texts: list[str]
    generator: str
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.texts)


def generator_of(config: QuestionsConfig, services: Services, own: Callable[[], Iterable[Benchmark]] = tuple) -> QuestionGenerator:
    """Build the question generator that the options select.

    Args:
        config: The options.
        services: Services for a language model.
        own: Function that loads the benchmarks for the generator `evidence`.

    Raises:
        UserError: Its file, prompt or key is invalid.
    """
    if (llm := config.active_llm) is not None:
        model = open_llm(llm, services, role="masked triples")
        return LLMQuestions(model, config.prompt)
    if config.generator == "evidence":
        return evidence_questions(own())
    if config.path is not None and config.generator in FROM_FILE:
        path = data_path(config.path)
        return WrittenQuestions.cached(path) if config.generator == "cache" else WrittenQuestions.recorded(path)
    if config.generator == "template":
        return TemplateQuestions()
    return WorldsQuestions()


def questions_of(
    graph: PretrainingGraph,
    config: QuestionsConfig,
    generator: QuestionGenerator,
    path: Path | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    asks: bool = True,
) -> QuestionSet:
    """Return the questions about a graph: every triple with named entities, with each end hidden once.

    Args:
        graph: The graph.
        config: Which ends to hide, and the maximum number of triples.
        generator: Generator for missing questions (`generator_of`).
        path: File of questions, appended to immediately; those of the same generator are reused. None saves nothing.
        seed: Random seed for the choice of triples, if there are too many.
        progress: Progress display.
        asks: Whether to generate questions that are not in the file.

    Raises:
        UserError: There are no questions (the message gives the counts), or the file cannot be written (checked first).
    """
    progress = progress or Silent()
    if path is not None:
        require_writable(path, what=WHAT)
    rows = _asked(graph, config, generator, seed)
    kept = kept_questions(path, generator.name) if path is not None else {}
    before = Counter(generator.counts)
    triples: list[int] = []
    sides: list[int] = []
    texts: list[str] = []
    taken = count = 0
    progress.begin("questions", len(rows) * len(config.sides))
    made = _made(generator, (item for _, item in _items(graph, rows, config, generator) if (item.id, item.side) not in kept))
    with Lines(path, WHAT) if path is not None else nullcontext() as file:
        for row, item in _items(graph, rows, config, generator):
            question = kept.get((item.id, item.side))
            count += 1
            taken += question is not None
            if question is None and asks and (question := next(made)) is not None and file is not None:
                file.add(line_of(Written(item, question, generator.name)))
            if question is not None:
                triples.append(row)
                sides.append(SIDES.index(item.side))
                texts.append(question)
            progress.advance()
    counted = dict(sorted((Counter(generator.counts) - before).items()))
    unnamed = 0 if isinstance(generator, WrittenQuestions) else int((~graph.nameable).sum())
    counts = {"triples": len(rows), "unnamed": unnamed, "kept": taken, "left_out": count - len(texts), **counted}
    if isinstance(generator, WrittenQuestions) and (unmatched := len(generator.triples - set(graph.triples.ids(np.arange(len(graph)))))):
        counts["unmatched"] = unmatched
    if not texts:
        raise _nothing(graph, generator.name, counts)
    return QuestionSet(np.array(triples, np.int64), np.array(sides, np.int8), texts, generator.name, counts)


def _made(generator: Any, missing: Iterator[MaskedTriple]) -> Iterator[str | None]:
    """Yield a generator's questions in order."""
    if form_of(generator, "generate") == "single":
        return in_order(one(generator, "generate"), missing, in_flight([(generator, "generate")]))
    batches = iter(lambda: list(islice(missing, BATCH)), [])
    return (question for batch in batches for question in generator.generate(batch))


def _asked(graph: PretrainingGraph, config: QuestionsConfig, generator: QuestionGenerator, seed: int) -> NDArray[np.int64]:
    """Return the rows of triples that get questions; for written questions, those in the file."""
    rows = np.flatnonzero(graph.nameable)
    if isinstance(generator, WrittenQuestions):
        ids = graph.triples.ids(np.arange(len(graph)))
        rows = np.array([row for row, name in enumerate(ids) if name in generator.triples], np.int64)
    if config.triples is None or len(rows) <= config.triples:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, config.triples, replace=False))


def _items(
    graph: PretrainingGraph, rows: NDArray[np.int64], config: QuestionsConfig, generator: QuestionGenerator
) -> Iterator[tuple[int, MaskedTriple]]:
    """Yield the masked triples that get questions; for written questions, those in the file."""
    items = _masked(graph, rows, config.sides)
    return ((row, item) for row, item in items if item in generator) if isinstance(generator, WrittenQuestions) else items


def _masked(graph: PretrainingGraph, rows: NDArray[np.int64], sides: tuple[Side, ...]) -> Iterator[tuple[int, MaskedTriple]]:
    """Yield masked triples with the rows of their triples."""
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        for row, triple in zip(part.tolist(), graph.triples.take(part), strict=True):
            yield from ((row, MaskedTriple(triple, side)) for side in sides)


def _nothing(graph: PretrainingGraph, generator: str, counts: Mapping[str, int]) -> UserError:
    fate = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number) or "nothing"
    return UserError(
        f"{generator} wrote no question about the {len(graph):,} triples ({fate})",
        code="no-question-written",
        where="questions",
        try_this="use another generator or graph",
    )
