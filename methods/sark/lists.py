"""List-level labels (eq. 3): an order of six sampled candidates of a question, best first.

A chat model receives one passage per turn and is asked for `[3] > [1] > …`. Its reply is parsed strictly, because missing
passages would have to be invented. Without a model, the order comes from the dataset's evidence.
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
from methods.models.rewriter import bare_text
from methods.sark.config import DEPTH, ListsConfig
from methods.sark.prompts import ORDER, ordering
from methods.sark.rows import LENGTH
from methods.training import Progress, Silent
from methods.training.journal import Journal, each_once

NO_REPLY = "no reply"
GOLDS = " | "
"""Separator of several gold answers in a prompt."""
_NUMBER = re.compile(r"\[\s*([0-9]{1,6})\s*\]")
_CHAIN = re.compile(r"\[[\s0-9]{1,10}\](?:\s*>\s*\[[\s0-9]{1,10}\])+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Parsed order: all positions (from 0), best first; or the reason why the reply is invalid."""

    order: tuple[int, ...]
    rejected: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Order of a question's list: passage ids, best first; empty if the reply was rejected or missing."""

    ids: tuple[str, ...]
    rejected: str | None = None

    @property
    def came(self) -> bool:
        """Return whether there was a reply."""
        return self.rejected != NO_REPLY

    lasting = came


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A question with passages to order, in retrieval order."""

    question: Question
    passages: tuple[Passage, ...]


def sampled_ranks(candidates: int, depth: int = DEPTH, length: int = LENGTH) -> tuple[int, ...]:
    """Return the ranks (from 0) of the sampled candidates: of 50, these are 0, 9, 19, 29, 39, 49; of fewer, evenly spaced.

    Args:
        candidates: Number of candidates.
        depth: Maximum candidates to sample from.
        length: Number of ranks to sample.

    Returns:
        `length` distinct ascending ranks; () if there are fewer candidates.
    """
    among = min(candidates, depth)
    if among < length:
        return ()
    return tuple(max(1, -(-step * among // (length - 1))) - 1 for step in range(length))


def parse_order(reply: str, size: int) -> Parsed:
    """Parse an order in a reply strictly: at most one passage may be missing.

    The first mention of each number counts, in the last line with at least two bracketed numbers (else in the whole text). If
    this line has chains such as `[2] > [1]`, only the longest counts, so that numbers in remarks do not. A single missing number
    comes last.

    Args:
        reply: The model's reply.
        size: Number of passages.
    """
    text = bare_text(reply)
    lines = [line for line in text.splitlines() if len(_NUMBER.findall(line)) >= 2]
    chosen = lines[-1] if lines else text
    options = [int(number) - 1 for number in _NUMBER.findall(max(_CHAIN.findall(chosen), key=len, default=chosen))]
    distinct = list(dict.fromkeys(position for position in options if 0 <= position < size))
    if len(distinct) < size - 1 or not distinct:
        return Parsed((), "no order" if not distinct else "too few numbers")
    return Parsed((*distinct, *(position for position in range(size) if position not in distinct)))


class Orderer(Protocol):
    """Protocol of orderers, with `orders(requests)`, or the asynchronous `orders_one(request)` if it calls a model."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines the order."""
        ...


class LLMOrderer:
    """Orderer with a chat model, with one turn per passage.

    Args:
        model: The model.
        prompt: A user's template file.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = ORDER.load(prompt)
        self.in_flight = model.in_flight

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.identity(), self._prompt.hash)

    async def orders_one(self, request: ListRequest) -> Order:
        question, passages = request.question, [contents(passage) for passage in request.passages]
        reply = await self._model.ask(ordering(self._prompt, question.text, right_answer(question), passages), step="order")
        if reply.failed is not None:
            return Order((), NO_REPLY)
        parsed = parse_order(reply.text, len(passages))
        return Order(tuple(request.passages[position].id for position in parsed.order), parsed.rejected)


class EvidenceOrderer:
    """Orderer without a model: evidence first, then by contained facts, named entities, and shared words with the question.

    Remaining ties are broken by shared character 4-grams with the question, so that the order depends only on visible features,
    then by retrieval order.
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
    """Return a sort key for how much of a question's answer a passage contains.

    Returns:
        Tuple: whether it is evidence; number of gold triples with both entities in it; number of these entities and answers
            that it names; number of the question's words in it; number of the question's distinct character 4-grams in it.
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
    """Return the gold answers for a prompt, separated by bars."""
    return GOLDS.join(question.wanted)


def orderer_of(config: ListsConfig, services: Services) -> Orderer:
    """Build the orderer that the options select."""
    if (llm := config.active_llm) is not None:
        model = open_llm(llm, services, role="list orders")
        return LLMOrderer(model, config.prompt)
    return EvidenceOrderer()


def sampled(question: Question, candidates: Sequence[str], keep_evidence: bool, depth: int = DEPTH) -> tuple[str, ...]:
    """Sample the candidates of a list, in retrieval order.

    Args:
        question: The question.
        candidates: Candidates in retrieval order.
        keep_evidence: Whether unsampled evidence replaces the lowest-ranked sampled non-evidence, the best-ranked evidence
            first.
        depth: Maximum candidates to sample from.
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
    """Computes and saves the orders of lists.

    Args:
        orderer: The orderer.
        path: File of orders; None saves nothing.

    Attributes:
        counts: `lists_asked`, and rejected lists by reason.
    """

    def __init__(self, orderer: Orderer, path: Path | None = None) -> None:
        self._orderer = orderer
        self._journal = Journal(path) if path is not None else None
        self.counts: Counter[str] = Counter()

    def orders(self, requests: Sequence[ListRequest], progress: Progress | None = None) -> list[Order]:
        """Return the order of each list; lists without a reply are retried next time.

        Raises:
            Broke: All calls failed, or no further call could succeed.
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
        """Return the counts since the last call of this function, and reset them."""
        counts, self.counts = self.counts, Counter()
        return counts


def _request_key(request: ListRequest) -> tuple[Any, ...]:
    """Return everything in a request that determines its order."""
    question = request.question
    return (
        question.text,
        list(question.answers),
        list(question.evidence),
        list(question.triples),
        [passage.id for passage in request.passages],
    )
