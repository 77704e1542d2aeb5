"""List-level orders (eq. 3): six sampled candidates of a question, best first.

A chat model is shown one passage a turn and asked for `[3] > [1] > …`; its reply is read strictly, since what it left
out would be made up. Offline the order is that of the dataset's own evidence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage, Question
from benchmarks.styles.sark_files import contents
from benchmarks.text import normalize, tokens
from methods.api import Services
from methods.flow import in_flight, one
from methods.models.chat import ChatModel
from methods.models.llm import open_llm
from methods.models.rewriter import said
from methods.sark.config import DEPTH, ListsConfig
from methods.sark.prompts import ORDER, ordering
from methods.sark.rows import LENGTH
from methods.training import Progress, Silent
from methods.training.journal import Journal, each_once

NO_REPLY = "no reply"
GOLDS = " | "
"""Between several right answers, as they are shown."""
_NUMBER = re.compile(r"\[\s*([0-9]{1,6})\s*\]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Parsed reply: all positions from 0, best first; or the reason why it cannot be used."""

    order: tuple[int, ...]
    rejected: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a question's list: passage ids, best first; none where the reply was rejected or did not come."""

    ids: tuple[str, ...]
    rejected: str | None = None

    @property
    def came(self) -> bool:
        """Return whether there was a reply."""
        return self.rejected != NO_REPLY

    lasting = came


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A question with the passages that are to be put in order, as they were retrieved."""

    question: Question
    passages: tuple[Passage, ...]


def sampled_ranks(candidates: int, depth: int = DEPTH, length: int = LENGTH) -> tuple[int, ...]:
    """Return the ranks, from 0, that a list is made of: of 50 candidates 0, 9, 19, 29, 39, 49; of fewer as evenly.

    Args:
        candidates: How many there are; those beyond `depth` are not looked at.
        depth: Most candidates.
        length: Ranks to sample.

    Returns:
        `length` different ranks, rising; none where there are fewer candidates than that.
    """
    among = min(candidates, depth)
    if among < length:
        return ()
    return tuple(max(1, -(-step * among // (length - 1))) - 1 for step in range(length))


def parse_order(reply: str, size: int) -> Parsed:
    """Read an order as a label: nothing that the reply does not say is taken for said, but for one last passage.

    Of the last line with at least two bracketed numbers (else of the whole text) the first mention of each number
    counts. One that is missing comes last.

    Args:
        reply: What the model wrote.
        size: How many passages it was shown.
    """
    text = said(reply)
    lines = [line for line in text.splitlines() if len(_NUMBER.findall(line)) >= 2]
    options = [int(number) - 1 for number in _NUMBER.findall(lines[-1] if lines else text)]
    distinct = list(dict.fromkeys(position for position in options if 0 <= position < size))
    if len(distinct) < size - 1 or not distinct:
        return Parsed((), "no order" if not distinct else "too few numbers")
    return Parsed((*distinct, *(position for position in range(size) if position not in distinct)))


class Orderer(Protocol):
    """Puts passages in order: `orders(requests)`, or `orders_one(request)` where it asks (`methods.flow`)."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the order."""
        ...


class LLMOrderer:
    """Asks a chat model, a turn for each passage.

    Args:
        model: The model.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = ORDER.load(prompt)
        self.in_flight = model.in_flight

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash)

    async def orders_one(self, request: ListRequest) -> Order:
        question, passages = request.question, [contents(passage) for passage in request.passages]
        reply = await self._model.ask(ordering(self._prompt, question.text, right_answer(question), passages), step="order")
        if reply.failed is not None:
            return Order((), NO_REPLY)
        parsed = parse_order(reply.text, len(passages))
        return Order(tuple(request.passages[position].id for position in parsed.order), parsed.rejected)


class EvidenceOrderer:
    """Orders by what the dataset knows: evidence first, then by facts held, entities named, and words of the question.

    What is equal in all of these is ordered by how much of the question's spelling it shares, so that nothing is taught
    that cannot be seen; what is equal even there stays as it was retrieved.
    """

    @property
    def fingerprint(self) -> str:
        return fingerprint("evidence", 2)

    def orders(self, requests: Sequence[ListRequest]) -> list[Order]:
        results = []
        for request in requests:
            values = {passage.id: worth(request.question, passage) for passage in request.passages}
            results.append(Order(tuple(sorted(values, key=values.__getitem__, reverse=True))))
        return results


def worth(question: Question, passage: Passage) -> tuple[int, int, int, int, int]:
    """Return how much of a question's answer a passage holds; the tuples are compared from the left.

    Returns:
        Whether it is evidence; how many of the question's facts (triples) have both ends in it; how many entities of
        the facts, and answers, it names; how many words of the question it has; how many of the question's different
        runs of four characters.
    """
    text = f" {normalize(passage.full_text)} "

    def names(entity: str) -> bool:
        wanted = normalize(entity)
        return bool(wanted) and f" {wanted} " in text

    ends = {end for head, _, tail in question.triples for end in (head, tail)}
    entities = {normalize(item): item for item in (*ends, *question.answers)}
    facts = sum(names(head) and names(tail) for head, _, tail in question.triples)
    words = set(text.split()) & set(tokens(question.text))
    queries = normalize(question.text)
    spelling = {queries[start : start + 4] for start in range(len(queries) - 3)}
    shared = sum(run in text for run in spelling)
    return int(passage.id in question.evidence), facts, sum(map(names, entities.values())), len(words), shared


def right_answer(question: Question) -> str:
    """Return the gold as it is shown; several answers with a bar between them."""
    return GOLDS.join(question.wanted)


def orderer_of(config: ListsConfig, services: Services) -> Orderer:
    """Return the orderer that options name."""
    if (llm := config.active_llm) is not None:
        model = open_llm(llm, services, role="list orders")
        return LLMOrderer(model, config.prompt)
    return EvidenceOrderer()


def sampled(question: Question, candidates: Sequence[str], keep_evidence: bool, depth: int = DEPTH) -> tuple[str, ...]:
    """Return the candidates that a list is made of, in their order.

    Args:
        question: The question.
        candidates: Its candidates, as they were retrieved.
        keep_evidence: Evidence that was not sampled takes the places of the last candidates that are none, the best
            ranked first, as far as there are such.
        depth: Most candidates.
    """
    chosen = [candidates[rank] for rank in sampled_ranks(len(candidates), depth)]
    if keep_evidence and chosen:
        missing = [candidate for candidate in candidates[:depth] if candidate in question.evidence and candidate not in chosen]
        others = [position for position, item in enumerate(chosen) if item not in question.evidence]
        for position, item in zip(reversed(others), missing, strict=False):
            chosen[position] = item
        chosen.sort(key=list(candidates).index)
    return tuple(chosen)


class Lister:
    """Has lists put in order, and keeps what came of it.

    Args:
        orderer: Puts in order.
        path: File of orders; None keeps nothing.

    Attributes:
        counts: `lists_asked`, and why those were rejected that were.
    """

    def __init__(self, orderer: Orderer, path: Path | None = None) -> None:
        self._orderer = orderer
        self._journal = Journal(path) if path is not None else None
        self.counts: Counter[str] = Counter()

    def orders(self, requests: Sequence[ListRequest], progress: Progress | None = None) -> list[Order]:
        """Return the order of each list. One that no reply came for is asked for again next time.

        Raises:
            Broke: No call was answered at all, or no further one could be.
        """
        progress = progress or Silent()
        progress.begin("orders of lists", len(requests))
        items = [(item.question.id, fingerprint(self._orderer.fingerprint, *_request_key(item)), item) for item in requests]
        at_once = in_flight([(self._orderer, "orders")])
        results = each_once(one(self._orderer, "orders"), items, Order, self._journal, progress, at_once, "lists")
        self.counts["lists_asked"] += len(requests)
        self.counts.update(f"list rejected: {item.rejected}" for item in results if item.rejected is not None)
        return results

    def taken_counts(self) -> Counter[str]:
        """Return the counts since they were last taken."""
        counts, self.counts = self.counts, Counter()
        return counts


def _request_key(request: ListRequest) -> tuple[Any, ...]:
    """Return all of a request that decides its order."""
    question = request.question
    return (
        question.text,
        list(question.answers),
        list(question.evidence),
        list(question.triples),
        [passage.id for passage in request.passages],
    )
