"""Read and write questions about triples: files of a training, recorded tables and a benchmark's own questions.

A line of a training's file is `{"tid": "t…", "h": head, "r": relation, "t": tail, "side": "head" | "tail", "question": …,
"generator": …}`. `side` is the hidden end. One file may have questions of several generators.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from benchmarks.core.errors import UserError
from benchmarks.core.files import mend
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import triple_id
from methods.gpr.masked import SIDES, MaskedTriple, Side, checked, names

FIELDS = ("tid", "h", "r", "t", "side", "question", "generator")
WHAT = "the file of questions"
"""Description of the file in errors."""
Key = tuple[str, Side]
"""Triple id and hidden end."""


class Written(NamedTuple):
    """A line of the questions file."""

    masked: MaskedTriple
    question: str
    generator: str


def read_questions(path: Path) -> Iterator[Written]:
    """Yield the questions of a file, in order.

    Raises:
        UserError: The file cannot be read, or a line is invalid; the message names the line.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _read_line(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file of questions cannot be read: {error}", code="unreadable-questions", where=str(path)) from None


def _read_line(line: str, where: str) -> Written:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"this line is not JSON: {error.msg}", code="not-json", where=where, try_this="remove the line") from None
    if not isinstance(row, dict):
        raise UserError("this line is not a JSON object", code="not-json", where=where, try_this=f"an object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(row.get(name), str):
            what = "is missing" if name not in row else f"must be a text, and is {json.dumps(row[name])[:40]}"
            raise UserError(f"the field {name} {what}", code="bad-question-field", where=where, try_this=f"all of {', '.join(FIELDS)}")
    if row["side"] not in SIDES:
        raise UserError(f"side must be head or tail, and is {row['side']!r}", code="bad-side", where=where, try_this="the hidden end")
    if not row["question"].strip():
        raise UserError("the question is empty", code="question-empty", where=where, try_this="remove the line")
    triple = (row["h"], row["r"], row["t"])
    if row["tid"] != triple_id(triple):
        raise UserError(
            f"tid {row['tid']} is not the id of h, r and t, which is {triple_id(triple)}",
            code="triple-id-mismatch",
            where=where,
            try_this="correct the field, or remove the line",
        )
    return Written(MaskedTriple(triple, row["side"]), row["question"], row["generator"])


def kept_questions(path: Path, generator: str) -> dict[Key, str]:
    """Return the questions of one generator in a file; empty if the file does not exist.

    An incomplete last line is removed from the file.
    """
    if not path.exists():
        return {}
    mend(path)
    return {
        (question.masked.id, question.masked.side): question.question
        for question in read_questions(path)
        if question.generator == generator
    }


def line_of(written: Written) -> str:
    """Format a question as a line of the file."""
    masked, question, generator = written
    values = (masked.id, *masked.triple, masked.side, question, generator)
    return json.dumps(dict(zip(FIELDS, values, strict=True)), ensure_ascii=False) + "\n"


class WrittenQuestions:
    """Generator that returns previously written questions; other triples get none.

    Args:
        name: Identity stored with each question.
        questions: Questions by triple and hidden end.
        where: Their source, for messages.

    Attributes:
        triples: Ids of the triples with a question.

    Raises:
        UserError: There are no questions.
    """

    def __init__(self, name: str, questions: Mapping[Key, str], where: str) -> None:
        if not questions:
            raise UserError(f"{name} has no questions", code="no-question-in-file", where=where, try_this="use another file or generator")
        self._questions = questions
        self.triples = frozenset(triple for triple, _ in questions)
        self.counts: Counter[str] = Counter()
        self.name = name

    @classmethod
    def cached(cls, path: Path) -> Self:
        """Load the questions file of a training, regardless of the generator; the last question per triple and side is used.

        Raises:
            UserError: The file cannot be read, or has no questions.
        """
        questions = {(question.masked.id, question.masked.side): question.question for question in read_questions(path)}
        return cls(f"cache({file_sha256(path)[:8]})", questions, str(path))

    @classmethod
    def recorded(cls, path: Path) -> Self:
        """Load questions of a language model from a tab-separated table with the columns `RECORDED`.

        Raises:
            UserError: The file cannot be read, lacks a column, or has a line without a question; the message names the line.
        """
        return cls(f"recorded({file_sha256(path)[:8]})", dict(_read_recorded(path)), str(path))

    def __contains__(self, masked: MaskedTriple) -> bool:
        return (masked.id, masked.side) in self._questions

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return the question of each masked triple; None if there is no valid one."""
        return [checked(self._questions.get((item.id, item.side)), item, self.counts, "not in the file") for item in batch]


RECORDED = ("hidden", "head", "relation", "tail", "question")
"""Required columns of a file of recorded questions; `hidden` is head or tail."""


def _read_recorded(path: Path) -> Iterator[tuple[Key, str]]:
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file of questions cannot be read: {error}", code="unreadable-questions", where=str(path)) from None
    heads = lines[0].rstrip("\r").split("\t")
    if lacking := [name for name in RECORDED if name not in heads]:
        raise UserError(
            f"the first line has no column {', '.join(lacking)}",
            code="missing-question-column",
            where=f"{path}:1",
            try_this=f"a table separated by tabs with the columns {', '.join(RECORDED)}",
        )
    first: dict[Key, int] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        where, cells = f"{path}:{number}", line.rstrip("\r").split("\t")
        if len(cells) != len(heads):
            raise UserError(
                f"this line has {len(cells)} columns, the first line {len(heads)}",
                code="bad-question-columns",
                where=where,
                try_this="write a tab or line break inside a cell as a space",
            )
        row = dict(zip(heads, cells, strict=True))
        if empty := next((name for name in RECORDED if not row[name].strip()), None):
            raise UserError(f"{empty} is empty", code="question-empty", where=where, try_this="remove the line")
        if (side := next((side for side in SIDES if side == row["hidden"]), None)) is None:
            raise UserError(
                f"hidden must be head or tail, and is {row['hidden']!r}",
                code="bad-side",
                where=where,
                try_this="name the end that is asked for",
            )
        key: Key = (triple_id((row["head"], row["relation"], row["tail"])), side)
        if key in first:
            raise UserError(
                f"line {first[key]} asks about the same triple and hidden end",
                code="duplicate-question",
                where=where,
                try_this="remove one of the lines",
            )
        first[key] = number
        yield key, row["question"].strip()


MOST_EVIDENCE = 4
"""Maximum evidence triples per question for the generator `evidence`, since a list of all stations of a city has hundreds."""


def evidence_questions(benchmarks: Iterable[Benchmark]) -> WrittenQuestions:
    """Use the questions of benchmarks as questions about their evidence triples: a control that has seen the evaluation
    questions.

    A triple shared by several questions gets the first one. The hidden end is the tail, or the head if the question names the
    tail.

    Raises:
        UserError: No question has an evidence triple.
    """
    questions: dict[Key, str] = {}
    taken: set[str] = set()
    sources = list(benchmarks)
    for benchmark in sources:
        corpus = benchmark.corpus
        assert isinstance(corpus, TripleCorpus)
        for question in benchmark.questions:
            own = [name for name in question.evidence if name not in taken][:MOST_EVIDENCE]
            for triple in corpus.triples.take(corpus.rows_of(own)) if own else ():
                side = next((side for side in reversed(SIDES) if not names(question.text, MaskedTriple(triple, side).hidden)), None)
                if side is not None:
                    questions[triple_id(triple), side] = question.text
            taken.update(own)
    where = ", ".join(str(benchmark.reference) for benchmark in sources)
    return WrittenQuestions(f"evidence({fingerprint(sorted(questions.items()))[:8]})", questions, where)
