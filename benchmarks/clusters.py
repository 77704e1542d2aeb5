"""Clusters: which questions were sampled together, and therefore are not independent.

Twenty questions about one document are not twenty independent observations. A dataset's card names its clusters. If it does
not, questions that share a document, a gold passage or a world form a cluster. An experiment may set another clustering for a
benchmark (`cluster:`), for example by a key of the questions' metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.core.errors import UserError, counted
from benchmarks.schema import Question

QUESTION, DOCUMENT, WORLD, CONVERSATION, EVIDENCE = KINDS = ("question", "document", "world", "conversation", "evidence group")


@dataclass(frozen=True, slots=True)
class Sampled:
    """Clusters of a benchmark's questions, for intervals and tests.

    Attributes:
        kind: One of `KINDS`, or a key of the questions' metadata. If the compared runs use different kinds, these are joined by
            " or ", and questions that share any of them are one cluster.
        labels: Cluster label of each question; None if each question is its own cluster.
    """

    kind: str = QUESTION
    labels: Sequence[str] | None = None

    def count(self, questions: int) -> int:
        """Return the number of clusters."""
        return questions if self.labels is None else len(set(self.labels))

    def in_words(self, questions: int) -> str:
        """Describe the sample, for example `200 questions in 30 worlds`, or `200 questions` if each is a cluster."""
        whole = counted(questions, "question")
        return whole if self.kind == QUESTION else f"{whole} in {counted(self.count(questions), self.kind)}"


def sampled(questions: Sequence[Question], kind: str | None = None, *, where: str | None = None) -> Sampled:
    """Determine the clusters of a benchmark's questions.

    Args:
        questions: In the benchmark's order.
        kind: One of `KINDS`, or a key of the questions' metadata; None groups questions that share a document, gold passage or
            world.
        where: Location of the setting, for error messages.

    Raises:
        UserError: A question lacks the field.
    """
    if kind is None:
        return _found(questions)
    if kind == QUESTION:
        return Sampled()
    if kind == EVIDENCE:
        groups = connected([_shared(question, documents=False) for question in questions])
        return Sampled(kind, groups) if len(set(groups)) < len(groups) else Sampled()
    labels = [question.document_id if kind == DOCUMENT else question.metadata.get(kind) for question in questions]
    lacking = sum(label is None for label in labels)
    if lacking:
        known = {key for question in questions for key in question.metadata}
        raise UserError(
            f"cluster: {kind}: {lacking} of {counted(len(questions), 'question')} {'has' if lacking == 1 else 'have'} no value",
            code="missing-clusters",
            where=where,
            try_this=f"one of {', '.join(KINDS)}, or a key of the questions' metadata: {', '.join(sorted(known)) or 'there is none'}",
        )
    return Sampled(kind, [str(label) for label in labels])


def _found(questions: Sequence[Question]) -> Sampled:
    labels = connected([_shared(question) for question in questions])
    if len(set(labels)) == len(labels):
        return Sampled()
    for kind, own in (
        (WORLD, [question.metadata.get(WORLD) for question in questions]),
        (CONVERSATION, [question.metadata.get(CONVERSATION) for question in questions]),
        (DOCUMENT, [question.document_id for question in questions]),
    ):
        if None not in own and len(set(own)) == len(set(labels)) == len(set(zip(own, labels, strict=True))):
            return Sampled(kind, [str(label) for label in own])
    return Sampled(EVIDENCE, labels)


def _shared(question: Question, *, documents: bool = True) -> list[tuple[str, str]]:
    """Return the attributes that link a question to others, as pairs of kind and label."""
    result = [(EVIDENCE, passage) for passage in question.evidence]
    if documents:
        result += [(kind, str(question.metadata[kind])) for kind in (WORLD, CONVERSATION) if question.metadata.get(kind) is not None]
        result += [(DOCUMENT, question.document_id)] if question.document_id else []
    return result


def connected(holds: Sequence[Iterable[object]]) -> list[str]:
    """Return a connected-component label per item; items with a common element are in one component."""
    parent = list(range(len(holds)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    first: dict[object, int] = {}
    for item, things in enumerate(holds):
        for thing in things:
            one, other = root(first.setdefault(thing, item)), root(item)
            parent[max(one, other)] = min(one, other)
    return [str(root(item)) for item in range(len(holds))]
