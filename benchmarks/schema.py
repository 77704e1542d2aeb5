"""Define questions, and which of their fields a method may see.

A loader yields `Question` objects: text with all gold data. A method receives `question.query()`, a `Query` without
gold data. Only declared controls receive a `GoldQuery`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from benchmarks.core.fingerprint import LENGTH, content_id

Triple = tuple[str, str, str]
"""A triple: head, relation, tail."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable unit of text.

    Attributes:
        id: Opaque id, derived from the content (`passage_id`), so that it cannot hint at relevance.
        title: The title; may be empty.
        text: The whole text; for passages with sentences, their concatenation.
        sentences: The sentences as the dataset splits them, if supporting facts refer to them.
        document_id: The long document that this passage was cut from, if any.
    """

    id: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()
    document_id: str | None = None

    @property
    def full_text(self) -> str:
        """Return the title followed by the text, as retrievers and readers use it."""
        return f"{self.title}\n{self.text}" if self.title else self.text


def passage_id(title: str, text: str, document_id: str | None = None) -> str:
    """Return the id of a passage: a content hash, equal in every dataset and split."""
    return content_id("p", title, text, document_id or "")


def triple_id(triple: Triple) -> str:
    """Return the id of a triple: a hash of head, relation and tail."""
    return content_id("t", *triple)


def sentence_id(passage: str, index: int) -> str:
    """Return the id of the sentence with this 0-based index in a passage.

    Only gold data has such ids (`Question.supporting_facts`). A prediction names a sentence as a pair of passage id and
    index; its ids are those of passages or triples, and may contain any character.
    """
    return f"{passage}#{index}"


def sentence_of(identifier: str) -> tuple[str, int]:
    """Split a sentence id into passage id and sentence index; the inverse of `sentence_id`."""
    passage, _, index = identifier.rpartition("#")
    return passage, int(index)


ROLES = ("user", "assistant")
"""Speakers of the earlier turns of a conversation."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier turn of the conversation that a question continues; `role` is one of `ROLES`."""

    role: str
    text: str


def turns_of(value: Any) -> tuple[Turn, ...]:
    """Parse earlier conversation turns from `[{"role": "user", "text": …}]`.

    Raises:
        ValueError: The value has another form; the message names the turn.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"turns must be a list, not {type(value).__name__}")
    for number, turn in enumerate(value):
        if not isinstance(turn, Mapping) or turn.get("role") not in ROLES or not isinstance(turn.get("text"), str):
            raise ValueError(f'turns[{number}] must be {{"role": "user" or "assistant", "text": a text}}')
    return tuple(Turn(turn["role"], turn["text"]) for turn in value)


@dataclass(frozen=True, slots=True)
class Query:
    """The fields of a question that a method may see.

    Attributes:
        id: Hash of the native id, because native ids can spell out hops or hash the answer.
        text: The question.
        document_id: The document that the question is about, in the `document` setting.
        candidates: Ids of the passages that may be used: None for the whole corpus, () for no passages. A tuple, or a
            view that equals it (`views.TupleView`).
        topic_entities: Entities that a graph dataset gives as input.
        turns: Earlier turns of the conversation, oldest first.
    """

    id: str
    text: str
    document_id: str | None = None
    candidates: Sequence[str] | None = None
    topic_entities: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()


PAGES = "pages"
"""Key of `Question.metadata` and of a prediction's notes: ids of Wikipedia pages (KILT)."""
SPANS = "spans"
"""Key of `Question.metadata`: gold spans of documents, each as (characters, {passage id: (first, last character of the span in it)})."""
SCORED = ("triple_aliases", "parses", PAGES, SPANS)
"""Keys of `Question.metadata` that a metric reads and that are therefore stored with the gold: other names of heads and tails
of the gold triples (2Wiki), the answers of each semantic parse (WebQSP), the pages of each provenance (KILT), and gold spans."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold.

    Attributes:
        id: The dataset's own id, unique within a split.
        text: The question.
        answers: Gold answers as the dataset lists them, with repetitions; `wanted` has each once. One of them suffices,
            unless `answer_set` is true: then all are required.
        aliases: Other accepted wordings, by answer.
        answer_set: Whether a prediction must name all of `answers` (graph QA, multi-answer questions).
        evidence: Ids of the positive passages (or triples), in the dataset's order.
        supporting_facts: Ids of supporting sentences (`sentence_id`), if the dataset has them.
        triples: Gold reasoning triples, if the dataset has them.
        type: The dataset's question type (`bridge`, `comparison`, `2hop` …), or "".
        answerable: False if the gold data says that the evidence does not answer the question.
        document_id, candidates, topic_entities, turns: As in `Query`.
        metadata: Other fields of the native record, for analyses. Gold data: methods never see it.
        group: Shared key of questions that a metric scores together (MuSiQue-full's twins); None for a single question.
        grades: Grade of each judged passage, by id; `evidence` are those above 0. If it is empty, every passage of
            `evidence` has grade 1, and no other passage is known to be judged.
        excluded: Passages that count as not retrieved for this question (ArguAna: the question's own text).
    """

    id: str
    text: str
    answers: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answer_set: bool = False
    evidence: tuple[str, ...] = ()
    supporting_facts: tuple[str, ...] = ()
    triples: tuple[Triple, ...] = ()
    type: str = ""
    answerable: bool = True
    document_id: str | None = None
    candidates: Sequence[str] | None = None
    topic_entities: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    grades: Mapping[str, float] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the distinct answers, in the dataset's order."""
        return tuple(dict.fromkeys(self.answers))

    @property
    def golds(self) -> tuple[str, ...]:
        """Return all distinct accepted strings: each answer followed by its aliases."""
        flat = (text for answer in self.answers for text in (answer, *self.aliases.get(answer, ())))
        return tuple(dict.fromkeys(flat))

    @property
    def query_id(self) -> str:
        """Return the opaque id under which methods see this question."""
        return content_id("q", self.id)

    def query(self) -> Query:
        """Return the question as methods see it, without answer, evidence, type or native id."""
        return Query(self.query_id, self.text, self.document_id, self.candidates, self.topic_entities, self.turns)

    def gold_query(self) -> GoldQuery:
        """Return the question with all gold data, for controls."""
        return GoldQuery(self.query_id, self.text, self.document_id, self.candidates, self.topic_entities, self.turns, question=self)


@dataclass(frozen=True, slots=True)
class GoldQuery(Query):
    """A query with its gold data, for controls only."""

    question: Question = field(kw_only=True)


def without_gold(query: Query) -> Query:
    """Convert a `GoldQuery` to a plain `Query`; other queries are returned unchanged."""
    if not isinstance(query, GoldQuery):
        return query
    return Query(query.id, query.text, query.document_id, query.candidates, query.topic_entities, query.turns)


T = TypeVar("T")

_LETTER = "p"
"""Letter before the hexadecimal digits of a passage's id."""
_BYTES = LENGTH // 2


class TupleView(Sequence[T]):
    """Base of lazy sequences that compare equal to a tuple of the same items; a subclass defines length and item access."""

    __slots__ = ()

    @abstractmethod
    def _some(self, positions: slice) -> Sequence[T]:
        """Return the items at these positions."""

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[T, ...]: ...
    def __getitem__(self, position: int | slice) -> T | tuple[T, ...]:
        if isinstance(position, slice):
            return tuple(self._some(position))
        start = range(len(self))[position]
        return self._some(slice(start, start + 1))[0]

    def __iter__(self) -> Iterator[T]:
        return iter(self._some(slice(None)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TupleView | tuple):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        return tuple, (tuple(self),)


class PassageIds(TupleView[str]):
    """Compact tuple of passage ids (`passage_id`): 8 bytes each, instead of 74 in a tuple of strings.

    Args:
        ids: The ids.

    Raises:
        ValueError: A text is not the id of a passage.
    """

    __slots__ = ("_packed",)

    def __init__(self, ids: Iterable[str]) -> None:
        listed = list(ids)
        digits = "".join([identifier[1:] for identifier in listed])
        self._packed = bytes.fromhex(digits)
        letters = "".join(listed)[:: LENGTH + 1]
        # fromhex also accepts capitals and blanks, and ignores the boundaries of ids.
        if self._packed.hex() != digits or set(map(len, listed)) - {LENGTH + 1} or letters.strip(_LETTER):
            raise ValueError(f"an id of a passage is {_LETTER} and {LENGTH} hex digits, not so in {listed[:3]} …")

    def _some(self, positions: slice) -> list[str]:
        packed = self._packed
        if positions != slice(None):
            packed = b"".join([packed[_BYTES * at : _BYTES * (at + 1)] for at in range(len(self))[positions]])
        digits = packed.hex()
        return [_LETTER + digits[start : start + LENGTH] for start in range(0, len(digits), LENGTH)]

    def __len__(self) -> int:
        return len(self._packed) // _BYTES

    def __repr__(self) -> str:
        return repr(tuple(self))
