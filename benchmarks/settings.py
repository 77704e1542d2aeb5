"""Define retrieval settings, which determine the passages that a method may use; all datasets share the grammar.

| setting | a question's candidates |
| --- | --- |
| `distractor` | the record's own passages, in the order in which the authors give them |
| `corpus` | no list: the method searches the whole corpus |
| `corpus(retriever=X,n=20)` (alias `normal`) | the n best of the corpus by retriever X or X[preset], best first |
| `oracle(base=B,n=N)` | B's candidates with every positive inserted, N in total |
| `gold_only` | the positives, in the order of the evidence |
| `document` | the passages of the question's document, in the document's order |
| `graph(scope=question)` (alias `graph`) | the triples of the question's own graph |
| `graph(scope=split)` | no list: the method searches the union of the split's graphs, which is the corpus |
| `closed_book` | no passages |

The candidates depend only on the question, the setting and the seed, never on other questions.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Query, Question, triple_id

DEFAULT_N = 20
"""Default number of candidates of `corpus(retriever=…)`."""
SCOPES = ("question", "split")
BROUGHT = ("distractor", "document")
"""Settings in which only the passages of the selected questions are indexed."""


class Ranked(Protocol):
    """A ranking of one query, reduced to what this module needs (`methods.api.Ranking` conforms)."""

    @property
    def query_id(self) -> str: ...
    @property
    def ids(self) -> Sequence[str]: ...


Retrieve = Callable[[str, Sequence[Query], int], Sequence[Ranked]]
"""Retrieval function: from a retriever's name, queries and n to one ranking of at most n passages per query, in order."""

_PARAMETERS = {
    "distractor": (),
    "corpus": ("retriever", "n"),
    "oracle": ("base", "n"),
    "gold_only": (),
    "document": (),
    "graph": ("scope",),
    "closed_book": (),
}  # in the order in which they may be given without their names
_ALIASES = {"normal": "corpus"}
_FORM = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Setting:
    """A retrieval setting. `Setting.parse` parses it, and `str` returns its canonical form.

    Attributes:
        name: One of the names in the module's table.
        retriever: For `corpus`: the retriever whose results are the candidates; None: no candidates are prescribed.
        n: For `corpus` with a retriever and for `oracle`: number of candidates; None in `oracle`: the base's number.
        base: For `oracle`: the setting of the candidates other than the positives.
        scope: For `graph`: `question` or `split`.
    """

    name: str
    retriever: str | None = None
    n: int | None = None
    base: Setting | None = None
    scope: str | None = None

    def __str__(self) -> str:
        values = {name: getattr(self, name) for name in _PARAMETERS[self.name]}
        shown = ",".join(f"{name}={value}" for name, value in values.items() if value is not None)
        return f"{self.name}({shown})" if shown else self.name

    @classmethod
    def parse(cls, text: str, *, where: str | None = None) -> Setting:
        """Parse a setting such as `oracle(base=distractor,n=20)`.

        Raises:
            UserError: The name, a parameter or a value does not exist, or they are incompatible.
        """
        match = _FORM.fullmatch(text)
        if not match:
            raise UserError(
                f"{text!r} is not a setting", code="not-setting", where=where, try_this="write e.g. corpus(retriever=bm25,n=20)"
            )
        name = _ALIASES.get(match[1], match[1])
        if name not in _PARAMETERS:
            raise unknown_name("setting", match[1], (*_PARAMETERS, *_ALIASES), where=where)
        value = _arguments(name, match[2] or "", where)
        if name == "corpus":
            return cls._corpus(value, where)
        if name == "oracle":
            return cls._oracle(value, where)
        if name == "graph":
            scope = value.get("scope", SCOPES[0])
            if scope not in SCOPES:
                raise unknown_name("scope of graph", scope, SCOPES, where=where)
            return cls(name, scope=scope)
        return cls(name)

    @classmethod
    def _corpus(cls, options: dict[str, str], where: str | None) -> Setting:
        retriever = options.get("retriever")
        if retriever is None:
            if "n" in options:
                raise UserError(
                    "the setting corpus has n but no retriever",
                    code="corpus-n-without-retriever",
                    where=where,
                    try_this="corpus(retriever=bm25,n=20), or corpus alone to let each method search for itself",
                )
            return cls("corpus")
        if not re.fullmatch(r"[\w.\[\]-]+", retriever):
            raise UserError(f"{retriever!r} is not the name of a retriever", code="bad-retriever-name", where=where)
        return cls("corpus", retriever=retriever, n=_count("corpus", options.get("n", str(DEFAULT_N)), where))

    @classmethod
    def _oracle(cls, options: dict[str, str], where: str | None) -> Setting:
        base = cls.parse(options.get("base", "distractor"), where=where)
        if base.name not in ("distractor", "corpus") or (base.name == "corpus" and base.retriever is None):
            raise UserError(
                f"oracle cannot insert positives into {base}: it has no candidate list",
                code="oracle-without-candidates",
                where=where,
                try_this="base=distractor, or base=corpus(retriever=bm25,n=20)",
            )
        n = _count("oracle", options["n"], where) if "n" in options else base.n
        if n is not None and base.n is not None and n > base.n:
            raise UserError(
                f"oracle wants {n} candidates, but its base retrieves {base.n}",
                code="oracle-candidates-mismatch",
                where=where,
                try_this=f"base=corpus(retriever={base.retriever},n={n})",
            )
        return cls("oracle", base=base, n=n)


def _arguments(name: str, text: str, where: str | None) -> dict[str, str]:
    known = _PARAMETERS[name]
    options: dict[str, str] = {}
    for position, part in enumerate(_split(text, where)):
        key, separator, value = part.partition("=")
        # In `oracle(corpus(retriever=x))` the first = belongs to the nested setting.
        if not separator or "(" in key:
            if position >= len(known):
                raise UserError(
                    f"{name} takes {len(known) or 'no'} parameters; {part!r} is one too many", code="too-many-parameters", where=where
                )
            key, value = known[position], part
        key, value = key.strip(), value.strip()
        if key not in known:
            raise unknown_name(f"parameter of {name}", key, known, where=where)
        if key in options:
            raise UserError(f"{key} is set twice in {name}", code="duplicate-option", where=where)
        if not value:
            raise UserError(f"{key} of {name} lacks its value", code="option-without-value", where=where, try_this=f"{name}({key}=…)")
        options[key] = value
    return options


def _split(text: str, where: str | None) -> list[str]:
    """Split a text at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise UserError(f"the parentheses in {text!r} do not match", code="unbalanced-parentheses", where=where)
    return [*parts, text[start:]] if text.strip() else []


def _count(name: str, text: str, where: str | None) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise UserError(f"n={text} of {name} is not a number from 1 on", code="bad-n", where=where)
    return int(text)


def possible_settings(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the names of the settings that a benchmark's data allows."""
    questions = benchmark.questions
    own = any(question.candidates is not None for question in questions)
    positives = any(identifier in benchmark.corpus for question in questions for identifier in question.evidence)
    documents = any(question.document_id is not None for question in questions)
    allowed = {
        "distractor": own,
        "corpus": len(benchmark.corpus) > 0,
        "oracle": positives,
        "gold_only": positives,
        "document": documents,
        "graph": bool(benchmark.extra.get("graphs")),
        "closed_book": True,
    }
    only = benchmark.extra.get("settings", allowed)
    return tuple(name for name, possible in allowed.items() if possible and name in only)


def check(setting: Setting, benchmark: Benchmark, *, where: str | None = None) -> None:
    """Check that a benchmark supports a setting.

    Raises:
        UserError: The benchmark does not support it; the message lists the supported settings.
    """
    possible = possible_settings(benchmark)
    for needed in (setting, setting.base):
        if needed is not None and needed.name not in possible:
            reason = ": its texts are read as a whole" if "settings" in benchmark.extra else _LACKS.get(needed.name, "")
            raise UserError(
                f"{benchmark.reference} does not support the setting {setting}{reason}",
                code="setting-not-supported",
                where=where,
                try_this=f"one of: {', '.join(possible)}",
            )


_LACKS = {
    "distractor": ": its questions bring no passages of their own",
    "corpus": ": it has no passages",
    "oracle": ": no question has a positive passage in its corpus",
    "gold_only": ": no question has a positive passage in its corpus",
    "document": ": its questions are not asked about a document",
    "graph": ": it has no graphs",
}


def apply(setting: Setting | str, benchmark: Benchmark, seed: int, retrieve: Retrieve | None = None) -> Benchmark:
    """Return a benchmark whose questions have the candidate passages of a setting.

    The order never reveals gold passages: `distractor` keeps the authors' order, retrieved lists are in rank order,
    and `oracle` inserts each positive that its base lacks at a position drawn by (seed, question id), while other
    positives keep theirs. `oracle` drops the base's last negatives to keep the size; over `distractor`, which has no
    ranks, the authors' order decides. A positive that is not in the corpus cannot be inserted: it is left out and
    counted. Questions without positives keep the base's list in `oracle` and have no candidates in `gold_only`; they
    are counted, too.

    In `distractor` and `document` the corpus consists of the questions' passages, so that with `--limit` only the
    passages of the selected questions are indexed.

    Document and topic entities are removed if the setting does not provide them; the document id stays in
    `Question.metadata`, for statistics that cluster by it.

    Args:
        setting: The setting, or its text.
        benchmark: The loaded benchmark.
        seed: The task's seed.
        retrieve: Retrieval function, needed by `corpus(retriever=…)`, also as a base. It receives queries without candidates.

    Returns:
        The benchmark with the questions' `candidates` and the matching corpus; `extra` has additional counts and notes.

    Raises:
        UserError: The benchmark does not support this setting.
        ValueError: `retrieve` is missing, or its results are invalid.
    """
    setting = Setting.parse(setting) if isinstance(setting, str) else setting
    check(setting, benchmark)
    counts: Counter[str] = Counter()
    candidates = list(_candidates(setting, benchmark, seed, retrieve, counts))
    corpus = indexed(setting, benchmark.corpus, benchmark.questions, candidates)
    questions = [_withheld(question, chosen, setting) for question, chosen in zip(benchmark.questions, candidates, strict=True)]
    extra = dict(benchmark.extra)
    if counts:
        extra["counts"] = {**extra.get("counts", {}), **counts}
        notes = (_NOTES[key].format(n=number, setting=setting) for key, number in counts.items())
        extra["notes"] = (*extra.get("notes", ()), *notes)
    return replace(benchmark, questions=questions, corpus=corpus, extra=extra)


def indexed(setting: Setting, corpus: Corpus, questions: Iterable[Question], candidates: Iterable[Sequence[str] | None]) -> Corpus:
    """Return the corpus to index: in `distractor` and `document` only candidates and evidence of the questions, else
    everything.
    """
    if setting.name not in BROUGHT:
        return corpus
    # A positive may be in another question's record; controls and metrics need it.
    own = {identifier for question in questions for identifier in question.evidence}
    return corpus.restricted(own | {identifier for chosen in candidates for identifier in chosen or ()})


_NOTES = {
    "setting_positives_left_out": "{setting}: {n} positives are not in the corpus and could not be given",
    "setting_questions_without_positives": "{setting}: {n} questions have no positive to give",
}

Candidates = Iterable[Sequence[str] | None]


def _candidates(setting: Setting, benchmark: Benchmark, seed: int, retrieve: Retrieve | None, counts: Counter[str]) -> Candidates:
    questions = benchmark.questions
    if setting.name == "closed_book":
        return [()] * len(questions)
    if setting.scope == "question":
        return [_graph(question, benchmark) for question in questions]
    if setting.scope == "split" or (setting.name == "corpus" and setting.retriever is None):
        return [None] * len(questions)
    if setting.name == "distractor":
        return [_own(question, benchmark) for question in questions]
    if setting.name == "document":
        return [_document(question, benchmark) for question in questions]
    if setting.name == "corpus":
        return _retrieved(setting, benchmark, retrieve)
    positives = [_positives(question, benchmark, counts) for question in questions]
    if setting.name == "gold_only":
        return positives
    assert setting.base is not None  # `parse` sees to it
    bases = _candidates(setting.base, benchmark, seed, retrieve, counts)
    return [
        insert_positives(base or (), gold, setting.n, seed, question.id)
        for base, gold, question in zip(bases, positives, questions, strict=True)
    ]


def _graph(question: Question, benchmark: Benchmark) -> Sequence[str]:
    """Return a question's own graph; empty if it has none."""
    if question.candidates is not None:
        return question.candidates
    return tuple(dict.fromkeys(triple_id(triple) for triple in benchmark.extra["graphs"].get(question.id, ())))


def _own(question: Question, benchmark: Benchmark) -> Sequence[str]:
    if question.candidates is None:
        raise UserError(
            f"question {question.id!r} has no passages of its own, unlike other questions",
            code="question-without-passages",
            where=str(benchmark.reference),
            try_this="corpus, or repair the record",
        )
    return question.candidates


def _document(question: Question, benchmark: Benchmark) -> tuple[str, ...]:
    if question.document_id not in benchmark.corpus.by_document:
        raise UserError(
            f"the document {question.document_id!r} of question {question.id!r} is not in the corpus",
            code="question-document-missing",
            where=str(benchmark.reference),
        )
    return benchmark.corpus.by_document[question.document_id]


def _positives(question: Question, benchmark: Benchmark, counts: Counter[str]) -> tuple[str, ...]:
    present = tuple(identifier for identifier in question.evidence if identifier in benchmark.corpus)
    if len(present) < len(question.evidence):
        counts["setting_positives_left_out"] += len(question.evidence) - len(present)
    if not present:
        counts["setting_questions_without_positives"] += 1
    return present


def _retrieved(setting: Setting, benchmark: Benchmark, retrieve: Retrieve | None) -> list[tuple[str, ...]]:
    if retrieve is None or setting.retriever is None or setting.n is None:
        raise ValueError(f"the setting {setting} needs a retrieve function")
    queries = [replace(q, candidates=None, document_id=None, topic_entities=()).query() for q in benchmark.questions]
    rankings = retrieve(setting.retriever, queries, setting.n)
    if [ranking.query_id for ranking in rankings] != [query.id for query in queries]:
        raise ValueError(f"{setting.retriever} must return one ranking per query, in the queries' order")
    lists = [tuple(ranking.ids) for ranking in rankings]
    for ids in lists:
        if len(ids) > setting.n or len(set(ids)) < len(ids) or not all(i in benchmark.corpus for i in ids):
            raise ValueError(f"{setting.retriever} must return at most {setting.n} different passages of the corpus")
    return lists


def insert_positives(base: Sequence[str], positives: Sequence[str], n: int | None, seed: int, question_id: str) -> tuple[str, ...]:
    """Insert all positive passages into a candidate list, at seeded random positions.

    Args:
        base: Candidates, best first.
        positives: Passages that must be in the list.
        n: The requested size, None for the base's own. The list is shorter if base and positives together are fewer.
        seed, question_id: Seeds of the positions of inserted positives.

    Raises:
        UserError: There are more positives than n.
    """
    size = len(base) if n is None else n
    if len(positives) > size:
        raise UserError(
            f"question {question_id!r} has {len(positives)} positives: they do not fit into {size} candidates",
            code="too-many-positives",
            try_this=f"oracle with n={len(positives)} or more",
        )
    gold = set(positives)
    room = size - len(positives)
    kept: list[str] = []
    for identifier in base:
        if identifier in gold:
            kept.append(identifier)
        elif room:
            kept.append(identifier)
            room -= 1
    present = set(kept)
    # Python guarantees the same random() sequence for an integer seed on every machine and version.
    draw = random.Random(int(fingerprint("oracle", seed, question_id), 16))
    for identifier in positives:
        if identifier not in present:
            kept.insert(int(draw.random() * (len(kept) + 1)), identifier)
    return tuple(kept)


def _withheld(question: Question, candidates: Sequence[str] | None, setting: Setting) -> Question:
    document = question.document_id if setting.name == "document" else None
    topics = question.topic_entities if setting.name == "graph" else ()
    metadata = question.metadata
    if question.document_id is not None and document is None:
        metadata = {**metadata, "document_id": question.document_id}
    return replace(question, candidates=candidates, document_id=document, topic_entities=topics, metadata=metadata)
