"""Prediction files in the layouts of the official evaluators, read as rows of a submission.

Each format is one function from the benchmark to a reader of rows. What a file cannot say is not scored: a file of answers
alone gets no ranking metric. A file's own golds, flags and scores are not read, but for those that its rows are matched by.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, BinaryIO

from benchmarks.datasets.multihop import holder
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, passage_id
from judges.metric import Metric
from judges.metrics.graph_qa import rog_lines
from methods.api import ANSWERABLE, SUPPORT, TRIPLES
from results.formats.trec import run_rows
from results.offered import Limits
from results.submission import Findings, shown
from results.submission.rows import DECODER, Bad, Row, RowReader, check_value, jsonl_rows, lines, prediction_of, read_json, too_deep, wrong

SAYABLE = frozenset(("answer", "ranking", "texts", "graph", "support", "triples", "answerable", "group"))
"""What metrics need of a prediction; a format says some of it."""
_RANKING = frozenset(("ranking", "texts", "graph"))


@dataclass(frozen=True)
class Format:
    """A layout of predictions.

    Attributes:
        form: What a file holds.
        says: Of `SAYABLE`.
        reader: From the benchmark, in the card's setting, to a reader of rows.
    """

    form: str
    says: frozenset[str]
    reader: Callable[[Benchmark], RowReader]

    def scorable(self, metrics: Iterable[Metric]) -> list[Metric]:
        """The metrics that read nothing which this layout cannot say."""
        return [metric for metric in metrics if SAYABLE.intersection(metric.entry.needs) <= self.says]


Record = tuple[int, Any]
"""A line and the JSON value that begins there."""


def _rows(records: Iterable[Record], make: Callable[[Any], Mapping[str, Any]], findings: Findings, limits: Limits) -> Iterator[Row]:
    """A row of each record; what is none becomes a finding."""
    for line, value in records:
        try:
            check_value(value, limits)
            yield Row(line, prediction_of(make(value), limits))
        except Bad as bad:
            _note(bad, line, findings)


def _note(bad: Bad, line: int, findings: Findings) -> None:
    findings.add(bad.code, bad.what, bad.detail, line=line, try_this=bad.try_this)


def _jsonl(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[Record]:
    for line in lines(source, findings, limits, 2 * limits.rows):
        try:
            yield line.number, read_json(line.text, limits)
        except Bad as bad:
            _note(bad, line.number, findings)


class _Document:
    """A file that is one JSON value, read member by member, so that each has its line."""

    def __init__(self, source: BinaryIO, findings: Findings, limits: Limits) -> None:
        self._limits = limits
        parts: list[str] = []
        for line in lines(source, findings, replace(limits, line_bytes=limits.file_bytes), limits.file_bytes):
            parts += [""] * (line.number - 1 - len(parts))
            parts.append(line.text)
        self.text = "\n".join(parts)
        self._ends = list(accumulate(len(part) + 1 for part in parts))

    def line(self, at: int) -> int:
        """The 1-based line of a character."""
        return bisect_right(self._ends, at) + 1

    def members(self, at: int = 0, decoder: json.JSONDecoder = DECODER) -> Iterator[tuple[str, Any, int, int]]:
        """Key, value, and where both begin, of each member of the object that begins there.

        Raises:
            _At: What is there is no object, or breaks off.
        """
        at, more = self._opened(at, "{}")
        while more:
            key, end = self._value(at, DECODER)
            if not isinstance(key, str):
                raise self._broken(at, "a key is a text in quotes")
            start = self._mark(end, ":")
            value, end = self._value(start, decoder)
            yield key, value, at, start
            at, more = self._next(end, "}")

    def elements(self) -> Iterator[Record]:
        """Line and value of each element of the array that the file is.

        Raises:
            _At: It is none, or breaks off.
        """
        at, more = self._opened(0, "[]")
        while more:
            value, end = self._value(at, DECODER)
            yield self.line(at), value
            at, more = self._next(end, "]")

    def _opened(self, at: int, brackets: str) -> tuple[int, bool]:
        at = self._mark(at, brackets[0])
        return at, self.text[at : at + 1] != brackets[1]

    def _next(self, end: int, closing: str) -> tuple[int, bool]:
        at = self._blank(end)
        if self.text[at : at + 1] == closing:
            return at, False
        return self._mark(at, ","), True

    def _mark(self, at: int, wanted: str) -> int:
        at = self._blank(at)
        if self.text[at : at + 1] != wanted:
            raise self._broken(at, f"{wanted!r} is expected")
        return self._blank(at + 1)

    def _blank(self, at: int) -> int:
        while self.text[at : at + 1] in (" ", "\t", "\n", "\r"):
            at += 1
        return at

    def _value(self, at: int, decoder: json.JSONDecoder) -> tuple[Any, int]:
        try:
            return decoder.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            raise self._broken(error.pos, error.msg) from None
        except RecursionError:
            raise _At(self.line(at), too_deep(self._limits)) from None
        except Bad as bad:
            raise _At(self.line(at), bad) from None

    def _broken(self, at: int, what: str) -> _At:
        here = shown(self.text[at : at + 20]) if at < len(self.text) else "the end of the file"
        return _At(self.line(at), Bad("not_json", "the file is not the JSON that it should be", f"{what}, here is {here}"))


class _At(Exception):
    """A refusal of the rest of a file, and its line."""

    def __init__(self, line: int, bad: Bad) -> None:
        self.line, self.bad = line, bad
        super().__init__(bad.what)


def _whole(read: Callable[[_Document, Findings, Limits], Iterator[Row]]) -> RowReader:
    """A reader of a file that is one JSON value."""

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[Row]:
        document = _Document(source, findings, limits)
        try:
            # An empty file, and what is no text, is a finding already.
            if document.text:
                yield from read(document, findings, limits)
        except _At as end:
            _note(end.bad, end.line, findings)

    return rows


def _field(record: Any, name: str, kind: Any, wanted: str) -> Any:
    if not isinstance(record, dict):
        raise wrong("a row", "an object", record)
    if name not in record:
        raise Bad("missing_field", f"a row lacks {name!r}")
    if not isinstance(record[name], kind) or (kind is int and isinstance(record[name], bool)):
        raise wrong(name, wanted, record[name])
    return record[name]


# -- HotpotQA and 2WikiMultihopQA -------------------------------------------------------------------------------


class _Titles:
    """The passages that a supporting fact of a question may mean, by title."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._corpus = benchmark.corpus
        self._questions = {question.id: question for question in benchmark.questions}

    @cached_property
    def _every(self) -> dict[str, list[Passage]]:
        return _by_title(self._corpus)

    def claims(self, identifier: str, facts: Any) -> list[list[Any]]:
        """Sentences [passage id, index] that pairs [title, index] name, as the loader reads those of the gold.

        Raises:
            Bad: A pair is none, or its title is that of no passage of the question.
        """
        question = self._questions.get(identifier)
        if question is None:
            return []
        if not isinstance(facts, list):
            raise wrong("sp", "a list of [title, sentence number]", facts)
        titles = self._every if question.candidates is None else _by_title(self._corpus.get(question.candidates))
        claims = []
        for fact in facts:
            if not isinstance(fact, list) or len(fact) != 2 or not isinstance(fact[0], str) or type(fact[1]) is not int:
                raise wrong("sp", "a list of [title, sentence number]", fact)
            passage, _ = holder(titles.get(fact[0], ()), fact[1])
            if passage is None:
                where = "corpus" if question.candidates is None else "question"
                what = f"a title is that of no passage of the {where}"
                raise Bad("unknown_title", what, f"{shown(fact[0])}, question {shown(identifier)}", "titles as in the dataset's `context`")
            claims.append([passage.id, fact[1]])
        return claims


def _by_title(passages: Iterable[Passage]) -> dict[str, list[Passage]]:
    titles: dict[str, list[Passage]] = {}
    for passage in passages:
        titles.setdefault(passage.title, []).append(passage)
    return titles


def _multihop(benchmark: Benchmark, sections: Sequence[str]) -> RowReader:
    titles = _Titles(benchmark)

    def read(document: _Document, findings: Findings, limits: Limits) -> Iterator[Row]:
        # The members of a section are read one by one below, where each has its line.
        starts = {key: (value, at, start) for key, value, at, start in document.members(decoder=json.JSONDecoder())}
        for name in sorted(starts.keys() - set(sections)):
            bad = Bad("unknown_key", "an unknown key", f"{shown(name)}; known: {', '.join(sections)}")
            _note(bad, document.line(starts[name][1]), findings)
        for name in sections:
            if name not in starts:
                raise _At(1, Bad("missing_field", f"the file lacks {name!r}", try_this=f"an object with {', '.join(sections)}"))
        parts = {name: list(document.members(starts[name][2])) for name in sections}
        notes: dict[str, dict[str, Any]] = {}
        answered = {key for key, *_ in parts["answer"]}
        for name in sections[1:]:
            for identifier, value, at, _ in parts[name]:
                try:
                    if identifier not in answered:
                        raise Bad(
                            "no_answer", f"{name!r} has a question that 'answer' lacks", shown(identifier), "an answer for each, or ''"
                        )
                    own = notes.setdefault(identifier, {})
                    key = SUPPORT if name == "sp" else TRIPLES
                    if key in own:
                        raise Bad("duplicate_key", "a key occurs twice in one object", shown(identifier), "keep one of them")
                    own[key] = titles.claims(identifier, value) if name == "sp" else value
                except Bad as bad:
                    _note(bad, document.line(at), findings)
        records = ((document.line(at), (identifier, answer)) for identifier, answer, at, _ in parts["answer"])
        yield from _rows(records, lambda row: _row(row[0], row[1], notes.get(row[0])), findings, limits)

    return _whole(read)


def _row(
    identifier: str, answer: Any, notes: Mapping[str, Any] | None = None, evidence: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    return {"question_id": identifier, "answer": answer, "notes": dict(notes or {}), "evidence": list(evidence)}


def hotpotqa(benchmark: Benchmark) -> RowReader:
    """`hotpot_evaluate_v1.py`: {"answer": {id: text}, "sp": {id: [[title, sentence number]]}}."""
    return _multihop(benchmark, ("answer", "sp"))


def two_wiki(benchmark: Benchmark) -> RowReader:
    """`2wikimultihop_evaluate_v1.1.py`: as HotpotQA's, and "evidence": {id: [[head, relation, tail]]}."""
    return _multihop(benchmark, ("answer", "sp", "evidence"))


# -- JSON Lines -------------------------------------------------------------------------------------------------


def musique(benchmark: Benchmark) -> RowReader:
    """`evaluate_v1.0.py`: {id, predicted_answer, predicted_support_idxs, predicted_answerable} a line.

    Twins of MuSiQue-full share an id: the n-th line with it is for the n-th question with it, as the official script pairs
    lines in the file's order.
    """
    sharing: dict[str, list[Question]] = {}
    for question in benchmark.questions:
        sharing.setdefault(str(question.metadata.get("native_id", question.id)), []).append(question)
    flagged = any(question.group is not None for question in benchmark.questions)

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[Row]:
        met: Counter[str] = Counter()

        def make(record: Any) -> dict[str, Any]:
            native = _field(record, "id", str, "a text")
            questions = sharing.get(native, ())
            if not questions:
                return _row(native, "")
            question = questions[min(met[native], len(questions) - 1)]
            met[native] += 1
            paragraphs = question.metadata.get("paragraphs") or question.candidates
            if paragraphs is None:
                raise Bad("no_paragraphs", "numbers of paragraphs mean nothing here: the questions have no paragraphs of their own")
            notes: dict[str, Any] = {SUPPORT: []}
            for index in _field(record, "predicted_support_idxs", list, "a list of paragraph numbers"):
                if type(index) is not int:
                    raise wrong("predicted_support_idxs", "a list of paragraph numbers", index)
                if not 0 <= index < len(paragraphs):
                    detail = f"{index}, question {shown(native)}"
                    raise Bad("unknown_paragraph", "a question has no paragraph of this number", detail, f"0 to {len(paragraphs) - 1}")
                notes[SUPPORT].append(paragraphs[index])
            if flagged or "predicted_answerable" in record:
                notes[ANSWERABLE] = _field(record, "predicted_answerable", bool, "true or false")
            return _row(question.id, _field(record, "predicted_answer", str, "a text"), notes)

        yield from _rows(_jsonl(source, findings, limits), make, findings, limits)

    return rows


def longbench(benchmark: Benchmark) -> RowReader:
    """`pred.py`: {pred, answers, all_classes, length} a line, without ids: in the file's order, and with the golds of each."""
    questions = benchmark.questions

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[Row]:
        place = 0

        def make(record: Any) -> dict[str, Any]:
            nonlocal place
            place += 1
            pred, answers = _field(record, "pred", str, "a text"), _field(record, "answers", list, "a list of texts")
            if place > len(questions):
                raise Bad("extra", "a row is for no question of the benchmark", f"the benchmark has {len(questions)} questions")
            question = questions[place - 1]
            length = question.metadata.get("length")
            same = [text for text in answers if not isinstance(text, str) or text.strip()] == list(question.answers)
            if not same or (length is not None and record.get("length", length) != length):
                raise Bad(
                    "other_question",
                    "a row has the answers or the length of another question than the one in its place",
                    f"{shown(json.dumps(answers, ensure_ascii=False), 60)} where question {shown(question.id)} stands",
                    "one row a question in the order of the data file; rows have no ids to sort them by",
                )
            return _row(question.id, pred)

        yield from _rows(_jsonl(source, findings, limits), make, findings, limits)

    return rows


def rog(benchmark: Benchmark) -> RowReader:
    """`predictions.jsonl` of RoG and GNN-RAG: {id, question, prediction, ground_truth, input} a line.

    A list of answers is one answer a line, the most frequent first and each once, as `extract_topk_prediction` has them.
    """

    def make(record: Any) -> dict[str, Any]:
        prediction = _field(record, "prediction", str | list, "a text or a list of texts")
        if isinstance(prediction, list):
            if not all(isinstance(text, str) for text in prediction):
                raise wrong("prediction", "a text or a list of texts", prediction)
            prediction = "\n".join(" ".join(text.split("\n")) for text in rog_lines(prediction))
        return _row(_field(record, "id", str, "a text"), prediction)

    return lambda source, findings, limits: _rows(_jsonl(source, findings, limits), make, findings, limits)


# -- one JSON value ---------------------------------------------------------------------------------------------


def squad(benchmark: Benchmark) -> RowReader:
    """SQuAD's `evaluate-v1.1.py`: {id: text}."""

    def read(document: _Document, findings: Findings, limits: Limits) -> Iterator[Row]:
        records = ((document.line(at), (identifier, answer)) for identifier, answer, at, _ in document.members())
        yield from _rows(records, lambda row: _row(*row), findings, limits)

    return _whole(read)


class _Texts:
    """The questions by their texts; of those with equal text, each in its turn."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._ids: dict[str, list[str]] = {}
        for question in questions:
            self._ids.setdefault(question.text, []).append(question.id)
        self._met: Counter[str] = Counter()

    def next(self, record: Any) -> str:
        text = _field(record, "question", str, "a text")
        ids = self._ids.get(text)
        if ids is None:
            raise Bad("extra", "a row is for no question of the benchmark", shown(text), "questions are matched by their whole text")
        self._met[text] += 1
        return ids[min(self._met[text], len(ids)) - 1]


def dpr(benchmark: Benchmark) -> RowReader:
    """DPR's retriever results: [{question, answers, ctxs: [{id, title, text, score, has_answer}]}], a ranking a question.

    A context is the passage with its title and text, or else the one that has its id in the corpus or in the dump.
    """
    corpus = benchmark.corpus

    def context(item: Any) -> str:
        title, text = item.get("title", ""), item.get("text", "")
        native = str(item.get("id", ""))
        if isinstance(title, str) and isinstance(text, str) and (held := passage_id(title, text)) in corpus:
            return held
        held = native if native in corpus else corpus.by_native_id(native.removeprefix("wiki:")) or ""
        if not held:
            detail = f"id {shown(native)}, title {shown(title)}"
            raise Bad(
                "unknown_evidence", "evidence is not in the corpus", detail, "score against the corpus that was searched (config: corpus)"
            )
        return held

    def rows(document: _Document, findings: Findings, limits: Limits) -> Iterator[Row]:
        texts = _Texts(benchmark.questions)

        def make(record: Any) -> dict[str, Any]:
            identifier = texts.next(record)
            evidence: dict[str, Any] = {}
            for item in _field(record, "ctxs", list, "a list of contexts"):
                if not isinstance(item, dict):
                    raise wrong("ctxs", "a list of {id, title, text, score}", item)
                evidence.setdefault(context(item), _score(item.get("score", 0.0)))
            return _row(identifier, "", evidence=[{"id": name, "score": score} for name, score in evidence.items()])

        yield from _rows(document.elements(), make, findings, limits)

    return _whole(rows)


def _score(value: Any) -> Any:
    """DPR writes its scores as texts."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise wrong("score", "a number", value) from None


def dpr_reader(benchmark: Benchmark) -> RowReader:
    """DPR's reader results: [{question, gold_answers, predictions: [{top_k, prediction: {text}}]}]; the largest top_k counts."""

    def rows(document: _Document, findings: Findings, limits: Limits) -> Iterator[Row]:
        texts = _Texts(benchmark.questions)

        def make(record: Any) -> dict[str, Any]:
            identifier = texts.next(record)
            predictions = _field(record, "predictions", list, "a list of predictions")
            if not predictions:
                return _row(identifier, "")
            best = max(predictions, key=lambda item: _field(item, "top_k", int, "a whole number"))
            return _row(identifier, _field(_field(best, "prediction", dict, "an object"), "text", str, "a text"))

        yield from _rows(document.elements(), make, findings, limits)

    return _whole(rows)


_ANSWER = frozenset(("answer",))
_MULTIHOP = _ANSWER | {"support", "triples"}
FORMATS: Mapping[str, Format] = {
    "jsonl": Format("rows of a submission", SAYABLE, lambda _: jsonl_rows),
    "hotpotqa": Format('{"answer": {id: text}, "sp": {id: [[title, sentence]]}}', _MULTIHOP, hotpotqa),
    "2wiki": Format('as hotpotqa, and "evidence": {id: [[head, relation, tail]]}', _MULTIHOP, two_wiki),
    "musique": Format("{id, predicted_answer, predicted_support_idxs, predicted_answerable} a line", SAYABLE - _RANKING, musique),
    "longbench": Format("{pred, answers, all_classes, length} a line, in the order of the data file", _ANSWER, longbench),
    "rog": Format("{id, prediction, …} a line, of RoG and GNN-RAG", _ANSWER, rog),
    "squad": Format("{id: text}", _ANSWER, squad),
    "dpr": Format("DPR's retriever results, [{question, answers, ctxs}]: rankings without answers", _RANKING, dpr),
    "dpr-reader": Format("DPR's reader results, [{question, predictions}]", _ANSWER, dpr_reader),
    "trec": Format("qid Q0 docid rank score tag: rankings without answers", _RANKING, run_rows),
}
"""By name, the formats that predictions may come in."""
