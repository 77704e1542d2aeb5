"""Training rows of compressors: questions with passages, passages to reconstruct, and a teacher's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Query, passage_id
from benchmarks.worlds.names import out_of_vocabulary_in, replaced
from methods.api import Ranking, Services
from methods.registry import Component
from methods.training import TrainingContext
from methods.training.candidates import retrieved
from methods.training.stages import read_lines, write_lines

if TYPE_CHECKING:
    from methods.baselines.compress.model import SoftModel

LONGEST = 64
"""Maximum tokens of an answer that the base generates as a teacher."""
MARKS = 16
"""Maximum tokens added around a passage's memory in a prompt."""


@dataclass(frozen=True, slots=True)
class CompressionRow:
    """Training row: passages in memory, with a prompt and target reply.

    Attributes:
        kind: `restore` (target: the passage), `continue` (target: its continuation) or `answer` (target: the answer to a
            question).
        documents: Passages to encode.
        question: Question about them.
        target: Target reply.
        evidence: Passages that contain the answer.
        more: Further (question, reply) pairs about the same passages.
        relevance: A reranker's score of each passage.
    """

    kind: Literal["restore", "continue", "answer"]
    documents: tuple[str, ...]
    question: str
    target: str
    evidence: tuple[str, ...] = ()
    more: tuple[tuple[str, str], ...] = ()
    relevance: tuple[float, ...] = ()

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """Return all (question, reply) pairs."""
        return ((self.question, self.target), *self.more)


def answer_rows(benchmarks: Iterable[Benchmark], documents: int, context: TrainingContext) -> list[CompressionRow]:
    """Build a row per question with evidence and an answer: evidence first, then other candidates or BM25's results."""
    rows = []
    for benchmark in benchmarks:
        corpus = benchmark.corpus
        questions = [item for item in benchmark.questions if item.golds and any(at in corpus for at in item.evidence)]
        alone = [item for item in questions if not item.candidates]
        ranked = retrieved(benchmark, alone, Component.of("bm25"), 2 * documents, context.services)
        for item in questions:
            present = [at for at in item.evidence if at in corpus]
            chosen = list(dict.fromkeys((*present, *(item.candidates or ranked[item.id]))))[:documents]
            Draws("compress documents", item.id).shuffle(chosen)
            texts, evidence = (tuple(passage.full_text for passage in corpus.get(ids)) for ids in (chosen, present))
            rows.append(CompressionRow("answer", texts, item.text, item.golds[0], evidence))
    return rows


def joined(rows: Sequence[CompressionRow], together: int, seed: int) -> list[CompressionRow]:
    """Add further questions to rows, up to `together` per row, from rows whose evidence is among its passages."""
    about: dict[str, list[CompressionRow]] = {}
    for row in rows if together > 1 else ():
        about.setdefault(row.evidence[0], []).append(row)
    results = []
    for row in rows:
        others = {other.question: other for text in row.documents for other in about.get(text, ()) if {*other.evidence} <= {*row.documents}}
        others.pop(row.question, None)
        chosen = Draws("compress together", seed, row.question).sample(list(others.values()), min(together - 1, len(others)))
        results.append(replace(row, more=tuple((other.question, other.target) for other in chosen)))
    return results


def passage_rows(benchmark: Benchmark, limit: int | None, restored: float, seed: int) -> list[CompressionRow]:
    """Build a row per passage: restore the passage, or continue after its first half."""
    rows = []
    for passage in benchmark.corpus:
        text, words = passage.full_text, passage.full_text.split()
        draws = Draws("compress passages", seed, passage.id)
        if len(words) < 2:
            continue
        if draws.random() < restored:
            rows.append(CompressionRow("restore", (text,), "", text))
        else:
            middle = text.index(words[len(words) // 2], len(" ".join(words[: len(words) // 2])))
            rows.append(CompressionRow("continue", (text[:middle].rstrip(),), "", text[middle:]))
    return rows if limit is None or limit >= len(rows) else Draws("compress passages", seed).sample(rows, limit)


def kept_lines(path: Path, make: Callable[[], Iterable[Mapping[str, Any]]], *made_of: Any) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file; compute and write them if the file is missing or its input hash differs."""
    key = fingerprint(*made_of)
    kept = read_lines(path) if path.exists() else []
    if not kept or kept[0].get("made_of") != key:
        kept = [{"made_of": key}, *map(dict, make())]
        write_lines(path, kept)
    return kept[1:]


def taught_by_base(model: SoftModel, rows: Sequence[CompressionRow], path: Path) -> list[CompressionRow]:
    """Replace the targets of rows (with one question each) by the base model's answers from text, saved in a file; empty
    answers are dropped.
    """

    def replies() -> Iterable[Mapping[str, Any]]:
        prompts = [model.prompt_of_text(row.question, row.documents) for row in rows]
        return ({"answer": reply.text} for reply in model.generate(prompts, LONGEST, 16, None))

    kept = kept_lines(path, replies, [asdict(row) for row in rows])
    taught = [replace(row, target=item["answer"]) for row, item in zip(rows, kept, strict=True)]
    return [row for row in taught if row.target]


def ranked_by(teacher: Component, rows: Sequence[CompressionRow], services: Services) -> list[CompressionRow]:
    """Add a reranker's score of each passage to rows."""
    corpus = Corpus.of({text: Passage(passage_id("", text), "", text) for row in rows for text in row.documents}.values())
    queries = [Query(str(number), row.question) for number, row in enumerate(rows)]
    ids = [[passage_id("", text) for text in row.documents] for row in rows]
    rankings = [Ranking(query.id, tuple(dict.fromkeys(own)), (0.0,) * len(set(own))) for query, own in zip(queries, ids, strict=True)]
    scores = [dict(zip(item.ids, item.scores, strict=True)) for item in teacher.build(services).rerank(queries, rankings, corpus)]
    return [replace(row, relevance=tuple(known[at] for at in own)) for row, known, own in zip(rows, scores, ids, strict=True)]


def renamed(row: CompressionRow, share: float, draws: Draws) -> CompressionRow:
    """Replace a share of the world names in a row by invented ones, consistently."""
    swaps = out_of_vocabulary_in((*row.documents, *(question for question, _ in row.asked)), share, draws)
    (question, target), *more = ((replaced(question, swaps), replaced(target, swaps)) for question, target in row.asked)
    documents = tuple(replaced(text, swaps) for text in row.documents)
    return replace(row, documents=documents, question=question, target=target, more=tuple(more))


def fits(model: SoftModel, row: CompressionRow, *, text: bool) -> bool:
    """Return whether a row fits the model's context, by token counts; with `text`, also with passages as text."""
    memory = sum(model.system.count(model, text) + MARKS for text in row.documents)
    for question, target in row.asked:
        reply = len(model.reply(target))
        if text and not model.fits(model.prompt_of_text(question, row.documents), max(LONGEST, reply)):
            return False
        if not model.fits(model.prompt_of_text(question, ()) if row.kind == "answer" else [], memory + reply):
            return False
    return True
