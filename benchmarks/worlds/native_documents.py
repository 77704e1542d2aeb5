"""Worlds of long documents in LongBench's and UltraDomain's native file formats.

Neither has a place for evidence, types or supporting sentences; accepted wordings stand among the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from benchmarks.worlds.native_files import NativeFormat, json_lines

LONGBENCH_SET = "multifieldqa_en"
"""The set whose file is written: single documents of many kinds, short answers."""
SEPARATOR = "\n\n"
"""Between two chunks of a document in its context."""


def _longbench(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    """One JSON object a line, as in LongBench's `multifieldqa_en.jsonl`."""
    rows = [
        {
            "input": question.text,
            "context": context,
            "answers": list(question.golds),
            "length": len(context.split()),
            "dataset": LONGBENCH_SET,
            "language": "en",
            "all_classes": None,
            "_id": question.id,
        }
        for question, _, context in _with_documents(benchmark, questions)
    ]
    return {"": json_lines(rows)}


def _ultradomain(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    """One JSON object a line, as in a domain's file of UltraDomain."""
    rows = [
        {
            "input": question.text,
            "answers": list(question.golds),
            "context": context,
            "length": len(context.split()),
            "context_id": question.document_id,
            "_id": question.id,
            "label": benchmark.reference.name,
            "meta": {"title": chunks[0].title, "authors": ""},
        }
        for question, chunks, context in _with_documents(benchmark, questions)
    ]
    return {"": json_lines(rows)}


def _with_documents(benchmark: Benchmark, questions: Sequence[Question]) -> Iterator[tuple[Question, list[Passage], str]]:
    """Each question with its document's chunks and their text."""
    documents: dict[str, tuple[list[Passage], str]] = {}
    for question in questions:
        document = question.document_id or ""
        if document not in documents:
            chunks = benchmark.corpus.get(benchmark.corpus.by_document[document])
            documents[document] = chunks, SEPARATOR.join(chunk.text for chunk in chunks)
        yield (question, *documents[document])


def _has_one_answer(question: Question) -> bool:
    return len(question.answers) == 1


FORMATS: Mapping[str, NativeFormat] = {
    "longbench": NativeFormat(("long",), _has_one_answer, _longbench),
    "ultradomain": NativeFormat(("long",), _has_one_answer, _ultradomain),
}
"""By name."""
