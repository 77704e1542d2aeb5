"""Worlds in the file layouts of Natural Questions, and their passages as a dump like DPR's `psgs_w100.tsv`.

Answers are flat there: every accepted string, aliases included. Ids of passages are those of the dump: the row, from 1.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import fingerprint
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from benchmarks.text import has_answer
from benchmarks.worlds.native_files import NativeFormat, Row, json_lines, put


def write_dump(corpus: Corpus, path: Path | str, *, overwrite: bool = False) -> None:
    """Write a corpus as DPR's dump: `id TAB text TAB title` with a header, fields with quotes in doubled quotes.

    Raises:
        UserError: A file is in the way.
    """
    rows = (("id", "text", "title"), *((str(row), p.text, p.title) for row, p in enumerate(corpus, 1)))
    put({"": _tab_separated(rows)}, Path(path), overwrite)


def _tab_separated(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    return text.getvalue()


def _open(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines({"question": q.text, "answer": list(q.golds)} for q in questions)


def _csv(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return _tab_separated((question.text, repr(list(question.golds))) for question in questions)


def _kilt(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines(
        {
            "id": str(int(fingerprint(q.id), 16)),
            "input": q.text,
            "output": [{"answer": answer, "provenance": _provenance(benchmark, q)} for answer in q.golds],
        }
        for q in questions
    )


def _provenance(benchmark: Benchmark, question: Question) -> list[Row]:
    return [
        {"wikipedia_id": _native_id(benchmark, passage), "title": passage.title, "section": "Section::::Abstract."}
        for passage in benchmark.corpus.get(question.evidence)
    ]


def _reader(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    rows = []
    for question in questions:
        passages = benchmark.corpus.get(question.candidates or ())
        contexts = {passage.id: _context(benchmark, passage, "passage_id") for passage in passages}
        negative = [context for one, context in contexts.items() if one not in question.evidence]
        rows.append(
            {
                "dataset": f"nq_{benchmark.reference.split}_worlds",
                "question": question.text,
                "answers": list(question.golds),
                "positive_ctxs": [contexts[one] for one in question.evidence],
                "negative_ctxs": negative[1::2],
                "hard_negative_ctxs": negative[::2],
            }
        )
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _contexts(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines(
        {
            "question": question.text,
            "answers": list(question.golds),
            "ctxs": [
                {
                    **_context(benchmark, passage, "id"),
                    "hasanswer": has_answer(passage.text, question.golds),
                    "isgold": passage.id in question.evidence,
                }
                for passage in benchmark.corpus.get(question.candidates or ())
            ],
        }
        for question in questions
    )


def _context(benchmark: Benchmark, passage: Passage, name: str) -> Row:
    return {name: _native_id(benchmark, passage), "title": passage.title, "text": passage.text}


def _native_id(benchmark: Benchmark, passage: Passage) -> str:
    return str(benchmark.corpus.row(passage.id) + 1)


def _format(text: Callable[[Benchmark, Sequence[Question]], str]) -> NativeFormat:
    return NativeFormat(
        ("multihop", "style"), lambda question: not question.answer_set, lambda benchmark, questions: {"": text(benchmark, questions)}
    )


FORMATS: Mapping[str, NativeFormat] = {
    "nq_open": _format(_open),
    "nq_csv": _format(_csv),
    "nq_reader": _format(_reader),
    "nq_kilt": _format(_kilt),
    "nq_contexts": _format(_contexts),
}
"""By name; the layouts are those of `datasets.nq_layouts`."""
