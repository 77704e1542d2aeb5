"""Load questions about long documents: cut documents into passages and combine them with questions and gold answers.

Documents are identified by their text, so questions about the same text share one document. A document is cut into windows of
words (Chinese text: at sentence ends, by characters). Its passages in order are the candidates in the setting `document`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.own.chunks import windows, words_pattern
from benchmarks.records import Record, read_records
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.text import normalize

T = TypeVar("T")

CHUNK_WORDS = 512
"""Words per passage, as in ARK's evaluation, where windows overlap by `PAPER_OVERLAP` words."""
PAPER_OVERLAP = 12

LISTED = "listed"
"""Key of `Question.metadata`: the answers as listed in the file, if blank ones were removed from the gold."""

NOTES = {
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "answers_as_text": "{n} questions have a string instead of a list of answers: each is taken as one answer",
    "blank_answers": "{n} blank answers were dropped from the gold in favor of other answers",
    "questions_with_empty_normal_form": "{n} questions have gold answers that all normalize to nothing: under "
    "LongBench's rules no answer can score on them",
    "documents_of_one_context_id": "{n} documents share their context_id with a different text; each text is a document of its own",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class LongDocumentConfig(DatasetConfig):
    """Options of long-document datasets."""

    chunk_words: int = Field(
        default=CHUNK_WORDS, ge=1, description="words per passage of the document; for Chinese, the maximum number of characters"
    )
    chunk_overlap: int = Field(
        default=0,
        ge=0,
        description=f"number of words that a passage repeats from the previous one (ARK: {PAPER_OVERLAP}); with 0, the "
        "concatenated passages equal the document, character by character",
    )

    def cut(self, text: str) -> list[str]:
        """Cut a document into windows of words."""
        return chunks(text, self.chunk_words, self.chunk_overlap)

    @field_validator("chunk_overlap")
    @classmethod
    def _shorter(cls, overlap: int, info: ValidationInfo) -> int:
        if overlap >= info.data.get("chunk_words", overlap + 1):
            raise ValueError("must be less than chunk_words")
        return overlap


@dataclass(frozen=True, slots=True)
class LongDocumentRow:
    """Question and document of one record.

    Attributes:
        question: The question, without its document.
        context: The text of its document.
        record: The record.
        counts: Number of peculiarities (keys of `NOTES`).
    """

    question: Question
    context: str
    record: Record
    counts: Counter[str] = field(default_factory=Counter)


def chunks(text: str, words: int = CHUNK_WORDS, overlap: int = 0) -> list[str]:
    """Cut a text into windows of words; white space is preserved.

    Args:
        text: The text.
        words: Words per window; the last may have fewer.
        overlap: Words shared by neighboring windows; less than `words`.

    Returns:
        The windows; none for a text without words. Without overlap, their concatenation is the text.
    """
    return [text[start:end] for start, end in windows(text, words, overlap)]


_SENTENCE_END = re.compile(r"(?:[。！？；…]+[”’」』）]*|\n)\s*")


def character_chunks(text: str, characters: int = CHUNK_WORDS) -> list[str]:
    """Cut a text in a script without spaces (such as Chinese) into windows that end at sentence ends.

    Args:
        text: The text.
        characters: Maximum characters per window, not counting white space; a longer sentence is cut.

    Returns:
        The windows, whose concatenation is the text; none for a blank text.
    """
    window = re.compile(rf"\s*+(?:\S\s*+){{1,{characters}}}")
    windows: list[str] = []
    start = 0
    while match := window.match(text, start):
        end = match.end()
        if end < len(text):
            first = match.start() + len(match[0]) - len(match[0].lstrip())
            end = max((stop.end() for stop in _SENTENCE_END.finditer(text, first, end)), default=end)
        windows.append(text[start:end])
        start = end
    return windows


Cut = Callable[[str], list[str]]
"""Function that cuts a document's text into passages."""


def document_text(passages: Iterable[Passage], overlap: int = 0) -> str:
    """Reconstruct a document's text from its passages in order.

    Args:
        passages: All passages of the document.
        overlap: The option `chunk_overlap` with which it was loaded.
    """
    texts = iter(passage.text for passage in passages)
    repeated = words_pattern(overlap) if overlap else None
    parts = [next(texts, "")]
    for text in texts:
        match = repeated.match(text) if repeated else None
        parts.append(text[match.end() :] if match else text)
    return "".join(parts)


def truncate_middle(tokens: Sequence[T], limit: int) -> Sequence[T]:
    """Truncate a prompt by LongBench's rule: keep the first and last half of the token limit.

    Args:
        tokens: Tokens of the prompt without the chat template.
        limit: Maximum tokens; an odd limit is rounded down, as in LongBench's code (31,500 for models with 32K tokens).

    Returns:
        All tokens if they fit, else `2 * (limit // 2)` of them.

    Source:
        LongBench, `pred.py`.
    """
    if len(tokens) <= limit:
        return tokens
    half = limit // 2
    return [*tokens[:half], *tokens[len(tokens) - half :]]


class Shelf:
    """Collection of documents, each distinct text once, cut into the passages of a corpus.

    Args:
        cut: Function from a document to its passages.
    """

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._known: set[str] = set()
        self._builder = CorpusBuilder()

    def add(self, text: str) -> str:
        """Add a document unless its text is already present, and return its id."""
        identifier = content_id("d", text)
        if identifier not in self._known:
            self._known.add(identifier)
            self._builder.add(self._passages(text, identifier))
        return identifier

    def _passages(self, text: str, document: str) -> Iterator[Passage]:
        repeats: Counter[str] = Counter()
        for part in self._cut(text):
            # A corpus holds an id once, and a document that repeats itself must not lose its second half.
            scope = f"{document}~{repeats[part]}" if repeats[part] else document
            repeats[part] += 1
            yield Passage(passage_id("", part, scope), "", part, (), document)

    def corpus(self) -> Corpus:
        """Return the corpus of all documents."""
        return self._builder.build()


def gold(record: Record, name: str = "answers", *, words: bool = True) -> tuple[tuple[str, ...], Counter[str]]:
    """Return a record's non-blank answers, and counts of peculiarities.

    Args:
        record: The record.
        name: The field.
        words: Whether answers are scored by words; answers that are empty after normalization are then counted.

    Raises:
        BadRecord: The field is missing or has another form.
    """
    options = record.answers(name)
    answers = tuple(answer for answer in options if answer.strip())
    listed = not isinstance(record.fields.get(name), str) or options != (record.fields[name],)
    empty = words and bool(answers) and not any(normalize(answer, "longbench") for answer in answers)
    return answers, Counter(
        questions_without_gold=int(not answers),
        answers_as_text=int(not listed and bool(answers)),
        blank_answers=len(options) - len(answers) if answers else 0,
        questions_with_empty_normal_form=int(empty),
    )


def answer_type(answers: Sequence[str]) -> str:
    """Return `yes_no` or `unanswerable` if every gold answer has that form, else ""."""
    forms = {normalize(answer, "longbench") for answer in answers}
    if forms and forms <= {"yes", "no"}:
        return "yes_no"
    return "unanswerable" if forms == {"unanswerable"} else ""


def assemble(
    reference: DataReference,
    version: int,
    card: DatasetCard,
    config: LongDocumentConfig,
    paths: Sequence[Path],
    parse: Callable[[Record], LongDocumentRow],
    *,
    first: int | None = None,
    extra: Mapping[str, Any] | None = None,
    cut: Cut | None = None,
) -> Benchmark:
    """Read files and build the benchmark from their questions and documents.

    Args:
        reference: The reference, with subset and split.
        version: The loader's code version.
        card: The dataset's card.
        config: The dataset's options.
        paths: The files, in order.
        parse: Function from a record to its question and document.
        first: Maximum number of valid records to read; None for all.
        extra: Further entries of the benchmark's `extra`.
        cut: Function that cuts documents; None cuts by words according to the options.

    Raises:
        UserError: A file cannot be read, or two records have the same question id.
    """
    shelf, counts, skipped = Shelf(cut or config.cut), Counter[str](), list[SkippedRecord]()
    questions: list[Question] = []
    ids = QuestionIds(paths)
    records = read_records(paths, parse, skip_bad=config.skip_bad, skipped=skipped)
    for query in islice(records, first):
        ids.add(query.question.id, query.record)
        _refuse_swapped(query, whole=cut is not None)
        questions.append(replace(query.question, document_id=shelf.add(query.context)))
        counts.update(query.counts)
    counts["documents_of_one_context_id"] = _divided(questions)
    return Benchmark(reference, version, card, questions, shelf.corpus(), tuple(skipped), {**count_notes(counts, NOTES), **(extra or {})})


def _refuse_swapped(row: LongDocumentRow, *, whole: bool) -> None:
    """Raise an error if a question is longer than its document, which suggests swapped fields.

    Raises:
        UserError: The question is longer than the document.
    """
    question, document = len(row.question.text), len(row.context)
    if not whole and question > max(document, 2000):
        raise UserError(
            f"the question has {question:,} characters and its document {document:,}: the two fields are swapped",
            code="question-and-document-swapped",
            where=row.record.where,
            try_this="swap the two columns",
        )


def _divided(questions: Sequence[Question]) -> int:
    """Count documents that share a native context id with another document."""
    texts: dict[str, set[str | None]] = {}
    for question in questions:
        native = question.metadata.get("context_id")
        if native:
            texts.setdefault(native, set()).add(question.document_id)
    return sum(len(documents) - 1 for documents in texts.values())
