"""Files of predictions as the official evaluators read them: HotpotQA, 2WikiMultihopQA, MuSiQue, LongBench, RoG, SQuAD.

A file that the official script scores is accepted. Faults that the script ignores (a missing question, a title of
another article, a sentence past the end) are counted as warnings; `--strict` makes it an error. Golds in a file are not
read, but for those that its rows are matched by.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO

from benchmarks.core.fingerprint import content_id
from benchmarks.datasets.long_document import LISTED
from benchmarks.datasets.multihop import TITLES, absent_passage, holder
from benchmarks.datasets.musique import numbered_paragraphs
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, sentence_of
from judges.metrics.graph_qa import rog_lines
from judges.metrics.support import triple_part
from methods.api import ANSWERABLE, FAILED, SUPPORT, TRIPLES
from results.formats.official_scores import EMPTY_LIST
from results.formats.reading import At, Document, Record, field_of, lenient_decoder, note, row_of, whole
from results.offered import Limits
from results.submission import NO_ANSWER, Findings, shown
from results.submission.rows import Bad, PredictionRow, RowReader, check_value, lines, prediction_of, wrong

Make = Callable[[Record], Mapping[str, Any] | None]
"""Function from a record to a row; None if the official script ignores the record."""


def _rows(records: Iterable[Record], make: Make, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
    """Yield one row per record; a record that the script cannot score becomes a finding."""
    for record in records:
        try:
            row = make(record)
            if row is not None:
                yield PredictionRow(record[0], prediction_of(_storable(row, record[0], findings, limits), limits), official=True)
        except Bad as bad:
            note(bad, bad.line or record[0], findings)


def _storable(row: Mapping[str, Any], line: int, findings: Findings, limits: Limits) -> Any:
    """Replace characters that cannot be stored. Neither they nor U+FFFD are in a gold, so no score changes."""
    try:
        check_value(row, limits)
    except Bad as bad:
        if bad.code not in ("nul", "surrogate") or findings.strict:
            raise
        findings.lenient(bad.code, bad.what, bad.detail, line=line, try_this="nothing: each was replaced by U+FFFD")
        return _replaced(row)
    return row


_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return _NO_CHARACTER.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value


def _json_lines(source: BinaryIO, findings: Findings, limits: Limits, *, skip: bool = False) -> Iterator[Record]:
    """Yield the records of JSON Lines as Python's `json` parses them; `skip` ignores other lines like the script."""
    decoder, read = lenient_decoder(findings), 0
    for line in lines(source, findings, limits, 2 * limits.rows):
        try:
            value = decoder.decode(line.text.strip())
        except (ValueError, RecursionError) as error:
            bad = Bad("not_json", "a line is not JSON", str(error))
            if skip:
                findings.lenient(bad.code, bad.what, bad.detail, line=line.number)
            else:
                note(bad, line.number, findings)
        except Bad as bad:
            note(bad, line.number, findings)
        else:
            read += 1
            yield line.number, value
    if not read and not findings.errors:
        findings.add("no_rows", "no line of the file can be read", line=1, try_this="one JSON object per line")


class _Facts:
    """Supporting facts of predictions as sentences of passages.

    Args:
        benchmark: As loaded: titles are those of each question's own paragraphs, or of a pooled corpus.
        fold: Whether titles are compared in lower case.
    """

    def __init__(self, benchmark: Benchmark, *, fold: bool) -> None:
        self._corpus, self._fold = benchmark.corpus, fold

    def _key(self, title: str) -> str:
        return title.lower() if self._fold else title

    def _by_title(self, passages: Iterable[Passage]) -> dict[str, list[Passage]]:
        titles: dict[str, list[Passage]] = {}
        for passage in passages:
            titles.setdefault(self._key(passage.title), []).append(passage)
        return titles

    @cached_property
    def _every(self) -> dict[str, list[Passage]]:
        return self._by_title(self._corpus)

    def _gold(self, question: Question) -> dict[tuple[str, int], str]:
        """Return the passage of each gold fact, by title and sentence number."""
        known = dict(question.metadata.get(TITLES, {}))
        known |= {absent_passage(title): title for title, _ in question.metadata.get("unreachable_facts", ())}
        gold = {}
        for passage, number in map(sentence_of, question.supporting_facts):
            title = self._corpus.get([passage])[0].title if passage in self._corpus else known.get(passage)
            if title is not None:
                gold[self._key(title), number] = passage
        return gold

    def claims(self, question: Question, value: Any, line: int, findings: Findings) -> list[list[Any]]:
        """Return the sentences [passage id, number] of facts [title, number]; foreign facts get a placeholder.

        Raises:
            Bad: The script cannot read the facts.
        """
        facts = list(dict.fromkeys(_tuples("sp", "a list of [title, sentence number]", value)))
        if findings.strict and not all(len(fact) == 2 and isinstance(fact[0], str) and type(fact[1]) is int for fact in facts):
            raise wrong("sp", "a list of [title, sentence number]", value)
        gold = self._gold(question)
        titles = self._every if question.candidates is None else self._by_title(self._corpus.get(question.candidates))
        return [self._claim(question, fact, gold, titles, line, findings) for fact in facts]

    def _claim(
        self,
        question: Question,
        fact: tuple[Any, ...],
        gold: Mapping[tuple[str, int], str],
        titles: Mapping[str, list[Passage]],
        line: int,
        findings: Findings,
    ) -> list[Any]:
        if self._fold and not (fact and isinstance(fact[0], str)):
            raise wrong("sp", "a list of [title, sentence number]", list(fact))
        detail = f"{shown(json.dumps(fact, ensure_ascii=False))}, question {shown(question.id)}"
        number = _whole_number(fact[1]) if len(fact) == 2 else None
        if number is None or not isinstance(fact[0], str):
            findings.lenient("odd_fact", "a supporting fact is no [title, sentence number] and counts as wrong", detail, line=line)
            return [content_id("p", "odd", json.dumps(fact)), 0]
        key = self._key(fact[0])
        passage, _ = holder(titles.get(key, ()), number)
        name = gold.get((key, number)) or (absent_passage(fact[0]) if passage is None else passage.id)
        if passage is None:
            where = "corpus" if question.candidates is None else "question"
            findings.lenient("unknown_title", f"a title matches no passage of the {where} and counts as wrong", detail, line=line)
        elif passage.title != fact[0]:
            what = "a title differs from the data only in case, which the script ignores"
            findings.lenient("title_case", what, detail, line=line)
        if passage is not None and passage.sentences and not 0 <= number < len(passage.sentences):
            findings.lenient("no_sentence", "a supporting fact names a sentence past the end of its passage", detail, line=line)
        return [name, number]


def _whole_number(value: Any) -> int | None:
    """Return the integer equal to a number in Python (0 == 0.0 == False), None for other values."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) else None


def _tuples(name: str, wanted: str, value: Any) -> list[tuple[Hashable, ...]]:
    """Convert a list of lists like the scripts: `map(tuple, …)`, whose results they put into a set.

    Raises:
        Bad: It cannot be iterated so, or holds what is not hashable.
    """
    if not isinstance(value, list | dict | str):
        raise wrong(name, wanted, value)
    for item in value:
        if not isinstance(item, list | dict | str) or any(isinstance(member, list | dict) for member in item):
            raise wrong(name, wanted, item)
    return [tuple(item) for item in value]


def _triples(value: Any, *, strict: bool) -> list[list[str]]:
    """Return the predicted triples; malformed ones are replaced by one that is in no gold, like the script's comparison.

    Raises:
        Bad: The script cannot read it.
    """
    wanted = "a list of [head, relation, tail]"
    if isinstance(value, dict | str) and value:
        raise wrong("evidence", wanted, value)
    triples = []
    for members in _tuples("evidence", wanted, value):
        if not all(isinstance(member, str) for member in members) or (strict and len(members) != 3):
            raise wrong("evidence", wanted, list(members))
        texts = [str(member) for member in members]
        triples.append(texts if len(texts) == 3 else [content_id("t", "odd", *map(triple_part, texts)), "", ""])
    return triples


def _multihop(benchmark: Benchmark, sections: tuple[str, ...]) -> RowReader:
    facts = _Facts(benchmark, fold="evidence" in sections)
    questions = {question.id: question for question in benchmark.questions}

    def read(document: Document, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        starts: dict[str, tuple[int, int]] = {}
        for key, _, at, start in document.members(decoder=json.JSONDecoder()):
            if key in starts:
                findings.lenient("duplicate_key", "a key occurs twice; the script takes the last", shown(key), line=document.line(at))
            starts[key] = at, start
        for name in sorted(starts.keys() - set(sections)):
            detail = f"{shown(name)}; read: {', '.join(sections)}"
            findings.lenient("unknown_key", "the script does not read a key of the file", detail, line=document.line(starts[name][0]))
        for name in sections:
            if name not in starts:
                raise At(1, Bad("missing_field", f"the file lacks {name!r}", try_this=f"an object with {', '.join(sections)}"))
        decoder = lenient_decoder(findings)
        parts: dict[str, dict[str, tuple[int, Any]]] = {name: {} for name in sections}
        foreign: dict[str, int] = {}
        for name, part in parts.items():
            for identifier, value, at, _ in document.members(starts[name][1], decoder):
                line = document.line(at)
                if identifier in part:
                    findings.lenient("duplicate_key", "a key occurs twice; the script takes the last", shown(identifier), line=line)
                part[identifier] = line, value
                if identifier not in questions:
                    foreign.setdefault(identifier, line)
        for identifier, line in foreign.items():
            findings.lenient("extra", "the script ignores ids that match no question of the benchmark", shown(identifier), line=line)

        def make(record: Record) -> dict[str, Any]:
            line, identifier = record
            question = questions[identifier]
            notes: dict[str, Any] = {}
            answer = _answer(parts["answer"].get(identifier), notes, shown(identifier), line, findings)
            for name in sections[1:]:
                if identifier not in parts[name]:
                    what = f"{name!r} lacks a question, which then scores 0"
                    findings.add(f"missing_{name}", what, shown(identifier), line=line, severity="warning")
                    continue
                at, value = parts[name][identifier]
                try:
                    if name == "sp":
                        notes[SUPPORT] = facts.claims(question, value, at, findings)
                    else:
                        notes[TRIPLES] = _triples(value, strict=findings.strict)
                except Bad as bad:
                    bad.line = at
                    raise
            return row_of(identifier, answer, notes)

        ids = {key: line for part in parts.values() for key, (line, _) in reversed(part.items()) if key in questions}
        ids |= {key: line for key, (line, _) in parts["answer"].items() if key in questions}
        yield from _rows(((line, key) for key, line in ids.items()), make, findings, limits)

    return whole(read)


def _answer(section: tuple[int, Any] | None, notes: dict[str, Any], detail: str, line: int, findings: Findings) -> str:
    """Return the answer in a section of a file; without one the question fails."""
    if section is None:
        findings.lenient("missing_answer", "'answer' lacks a question, which then scores 0", detail, line=line)
        notes[FAILED] = NO_ANSWER
        return ""
    if not isinstance(section[1], str):
        raise wrong("answer", "a text", section[1])
    return section[1]


def hotpotqa(benchmark: Benchmark) -> RowReader:
    """Return a reader for prediction files of HotpotQA's `hotpot_evaluate_v1.py`: {"answer": {id: text}, "sp": {id: [[title,
    sentence number]]}}.
    """
    return _multihop(benchmark, ("answer", "sp"))


def two_wiki(benchmark: Benchmark) -> RowReader:
    """Return a reader for prediction files of `2wikimultihop_evaluate_v1.1.py`: HotpotQA's layout, and "evidence": {id: [[head,
    relation, tail]]}.
    """
    return _multihop(benchmark, ("answer", "sp", "evidence"))


def squad(benchmark: Benchmark) -> RowReader:
    """Return a reader for prediction files of SQuAD's `evaluate-v1.1.py`: {id: text}."""
    ids = {question.id for question in benchmark.questions}

    def read(document: Document, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        answers: dict[str, tuple[int, Any]] = {}
        for identifier, value, at, _ in document.members(decoder=lenient_decoder(findings)):
            line = document.line(at)
            if identifier in answers:
                findings.lenient("duplicate_key", "a key occurs twice; the script takes the last", shown(identifier), line=line)
            if identifier not in ids:
                findings.lenient("extra", "the script ignores ids that match no question of the benchmark", shown(identifier), line=line)
                continue
            answers[identifier] = line, value

        def make(record: Record) -> dict[str, Any]:
            return row_of(record[1], _answer(answers[record[1]], {}, "", record[0], findings))

        yield from _rows(((line, key) for key, (line, _) in answers.items()), make, findings, limits)

    return whole(read)


def musique(benchmark: Benchmark) -> RowReader:
    """Return a reader for prediction files of MuSiQue's `evaluate_v1.0.py`: {id, predicted_answer, predicted_support_idxs,
    predicted_answerable} per line.

    In MuSiQue-full an answerable and an unanswerable question share an id: the n-th line with an id belongs to the n-th
    question with it, as in the script. A support number is a paragraph's `idx`.
    """
    sharing: dict[str, list[Question]] = {}
    for question in benchmark.questions:
        sharing.setdefault(str(question.metadata.get("native_id", question.id)), []).append(question)
    flagged = any(question.group is not None for question in benchmark.questions)

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        met: Counter[str] = Counter()
        place = 0

        def make(record: Record) -> dict[str, Any]:
            nonlocal place
            line, value = record
            native = field_of(value, "id", str, "a text")
            questions = sharing.get(native)
            if questions is None:
                return row_of(native, "")
            question = questions[min(met[native], len(questions) - 1)]
            met[native] += 1
            place += 1
            if place <= len(benchmark.questions) and benchmark.questions[place - 1] is not question:
                what = "lines are not in the order of the data file; the official script refuses such a file"
                findings.lenient("other_order", what, f"question {shown(question.id)}", line=line)
            support = field_of(value, "predicted_support_idxs", object, "a list of paragraph numbers")
            answer = field_of(value, "predicted_answer", str if question.answerable else object, "a text")
            notes: dict[str, Any] = (
                {SUPPORT: _paragraphs(question, support, line, findings)} if question.answerable or findings.strict else {}
            )
            if flagged or "predicted_answerable" in value:
                flag = field_of(value, "predicted_answerable", bool if findings.strict else object, "true or false")
                if flag in (True, False):
                    notes[ANSWERABLE] = bool(flag)
            return row_of(question.id, answer if isinstance(answer, str) else "", notes)

        yield from _rows(_json_lines(source, findings, limits), make, findings, limits)

    return rows


def _paragraphs(question: Question, value: Any, line: int, findings: Findings) -> list[str]:
    """Return the passages with these paragraph numbers, as in the script: `set(map(int, …))`.

    Raises:
        Bad: One is not a number, or the question has no paragraphs of its own.
    """
    paragraphs = numbered_paragraphs(question)
    if paragraphs is None:
        raise Bad("no_paragraphs", "paragraph numbers cannot be read: the questions have no paragraphs of their own")
    if not isinstance(value, list | (tuple if findings.strict else str | dict)):
        raise wrong("predicted_support_idxs", "a list of paragraph numbers", value)
    claims: dict[str, None] = {}
    for item in value:
        try:
            if findings.strict and type(item) is not int:
                raise TypeError
            number = int(item)
        except (TypeError, ValueError, OverflowError):
            raise wrong("predicted_support_idxs", "a list of paragraph numbers", item) from None
        if number not in paragraphs:
            detail = f"{number}, question {shown(question.id)}"
            findings.lenient("unknown_paragraph", "a question has no paragraph of this number; it counts as wrong", detail, line=line)
        claims[paragraphs[number][0] if number in paragraphs else absent_passage(f"paragraph {number}")] = None
    return list(claims)


def longbench(benchmark: Benchmark) -> RowReader:
    """Return a reader for prediction files of LongBench's `eval.py`: {pred, answers, all_classes, length} per line, in any
    order and without ids.

    The official `pred.py` writes lines in the order in which its processes finish. A line belongs to the question at its
    position if answers and length agree, else to the first question without a line for which they agree.
    """
    questions = benchmark.questions
    even = (benchmark.reference.subset or "").endswith("_e")

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        waiting: dict[str, deque[int]] = {}
        keys = [_keys(question.metadata.get(LISTED, question.answers), question.metadata.get("length")) for question in questions]
        for number, known in enumerate(keys):
            for key in known:
                waiting.setdefault(key, deque()).append(number)
        free = set(range(len(questions)))
        place = 0

        def make(record: Record) -> dict[str, Any]:
            nonlocal place
            line, value = record
            pred, answers = field_of(value, "pred", str, "a text"), field_of(value, "answers", list, "a list of texts")
            if even and not isinstance(value.get("length"), int | float):
                raise Bad("missing_field", "a row lacks 'length', by which LongBench-E groups its questions")
            place += 1
            key, number = _keys(answers, value.get("length"))[0], place - 1
            if number not in free or key not in keys[number]:
                candidates = waiting.get(key, deque())
                while candidates and candidates[0] not in free:
                    candidates.popleft()
                if not candidates or findings.strict:
                    raise _other_question(answers, place, questions)
                number = candidates[0]
                findings.lenient("other_order", "lines are not in the order of the data file", f"question {number + 1}", line=line)
            free.remove(number)
            return row_of(questions[number].id, pred)

        yield from _rows(_json_lines(source, findings, limits), make, findings, limits)

    return rows


def _keys(answers: Iterable[Any], length: Any) -> tuple[str, ...]:
    """Return the key that a line shares with its question: answers and length, or only the answers for lines without a length."""
    listed = json.dumps(list(answers))
    return (listed,) if length is None else (f"{listed} {float(length) if isinstance(length, int) else length!r}", listed)


def _other_question(answers: list[Any], place: int, questions: Sequence[Question]) -> Bad:
    if place > len(questions):
        return Bad("extra", "a row is for no question of the benchmark", f"the benchmark has {len(questions)} questions")
    return Bad(
        "other_question",
        "a row's answers and length match no question that is still without a row",
        shown(json.dumps(answers, ensure_ascii=False), 60),
        "predict on this data file; a row is found by its answers and its length",
    )


def rog(benchmark: Benchmark) -> RowReader:
    """Return a reader for `predictions.jsonl` of RoG and GNN-RAG: {id, question, prediction, ground_truth, input} per line.

    A list of predictions becomes one answer per line, unique and the most frequent first, like `extract_topk_prediction`.
    """

    def make(record: Record) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        prediction = field_of(record[1], "prediction", str | list, "a text or a list of texts")
        if isinstance(prediction, list):
            if not all(isinstance(text, str) for text in prediction):
                raise wrong("prediction", "a text or a list of texts", prediction)
            notes = {} if prediction else {EMPTY_LIST: True}
            # A blank answer of a list is a line; a full stop normalizes to nothing and is not stripped.
            prediction = "\n".join(" ".join(text.split("\n")).strip() or "." for text in rog_lines(prediction))
        return row_of(field_of(record[1], "id", str, "a text"), prediction, notes)

    return lambda source, findings, limits: _rows(_json_lines(source, findings, limits, skip=True), make, findings, limits)
