"""Rows of pretraining by a chat model: simple and complex questions, answers, checks, coverage, paraphrases.

Every document has one loop for each type of row (`synthesis_loop`); loops run side by side and share the endpoint.
After each step a loop's state is on disk, and every reply is in the cache of replies before it is used: a run that was
killed goes on where it was, and what was answered is not asked again.

Source: the paper's section 2.1.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, Field

from benchmarks.fingerprint import fingerprint
from methods.clara.data_config import TYPES, Type
from methods.clara.rows import ScpRow
from methods.clara.synthesis_loop import MOST_QUESTIONS, ROUNDS, Ask, Loop, advanced, asks, row_of
from methods.clara.synthesis_prompts import REPLIES, Prompts
from methods.clara.synthesis_states import StateFile
from methods.models.chat import ChatConfig, ChatModel, Messages, Structured
from methods.training import Progress, Silent

VERSION = 1
"""Of how rows come about; bump it when equal replies may give other rows."""
TRIES = 3
M = TypeVar("M", bound=BaseModel)


class SynthesisConfig(ChatConfig):
    """The model that writes, answers and checks, and how often it is asked."""

    max_tokens: int = Field(2048, ge=1, description="longest reply")
    temperature: float = Field(0.7, ge=0, description="above 0, so that another round or try gives another reply")
    rounds: int = Field(ROUNDS, ge=0, description="rounds of the coverage loop, and further retellings, at most; paper: 10")
    tries: int = Field(TRIES, ge=1, description="how often a call is made at most whose reply is not the JSON asked for")
    most_questions: int = Field(MOST_QUESTIONS, ge=1, description="questions of one reply that are looked at")
    prompts: str | None = Field(None, description="a folder of templates of one's own; null: those that ship")
    documents_at_once: int = Field(32, ge=1, description="loops that run side by side", exclude=True)


class Document(NamedTuple):
    """What rows are made of."""

    id: str
    text: str


class _Replies(NamedTuple):
    """What was replied to calls: None where nothing could be read; how often that was; and by whom."""

    values: list[BaseModel | None]
    unreadable: int
    by: set[str]


class Model(Protocol):
    """What of a chat model is needed here."""

    def complete_structured(self, conversations: Sequence[Messages], model: type[M], *, repetition: int = 0) -> list[Structured[M]]:
        """A reply to each conversation, read as JSON of a shape."""
        ...


class Synthesis:
    """Makes the rows of documents.

    Args:
        config: The model and its limits.
        states: Where loops are kept.
        model: In place of the model that the options name.
        cache: File of kept replies; None asks anew what no state tells.

    Attributes:
        put_aside: Loops that stopped because a call failed for good; the next run goes on with them.

    Raises:
        UserError: The key is not set, or a prompt is not right.
    """

    def __init__(self, config: SynthesisConfig, states: StateFile, *, model: Model | None = None, cache: Path | None = None) -> None:
        self.config = config
        self.states = states
        self.prompts = Prompts(config.prompts)
        self.model: Model = model or ChatModel(config, role="synthesis", cache=cache)
        self.put_aside: Counter[str] = Counter()
        self._stop = threading.Event()
        self._made_of = [VERSION, config.model_dump(mode="json", exclude={"base_url"}), self.prompts.hash]

    # -- states --

    def loop(self, document: Document, kind: Type) -> Loop:
        """Where a document is."""
        kept = self.states.get(_name(document, kind), self._identity(document))
        return Loop(kind) if kept is None else Loop.from_json(kept)

    def rows(self, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Iterator[ScpRow]:
        """The rows of what is covered, in the order of documents and types."""
        for document in documents:
            for kind in types:
                row = row_of(self.loop(document, kind), document.text, _name(document, kind))
                if row is not None:
                    yield row

    def _identity(self, document: Document) -> str:
        return fingerprint(*self._made_of, document.text)

    # -- work --

    def run(self, documents: Sequence[Document], types: Sequence[Type] = TYPES, progress: Progress | None = None) -> None:
        """Bring every loop to its end.

        Raises:
            Broke: No further call could succeed; what was done is kept.
            KeyboardInterrupt: Likewise.
        """
        progress = progress or Silent()
        progress.begin("synthesising", len(documents) * len(types))
        self._stop.clear()
        jobs = ((document, kind) for document in documents for kind in types)
        with ThreadPoolExecutor(self.config.documents_at_once) as pool:
            try:
                self._flow(pool, jobs, progress)
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _flow(self, pool: ThreadPoolExecutor, jobs: Iterator[tuple[Document, Type]], progress: Progress) -> None:
        """Keep so many loops running until there are no more; millions of them never wait in memory."""
        running: set[Future[Loop]] = set()
        pairs = 0
        while True:
            free = self.config.documents_at_once - len(running)
            running |= {pool.submit(self._work, *job) for job in islice(jobs, free)}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                pairs += len(one.result().pairs)
            progress.advance(len(done))
            progress.log({"pairs": pairs, "put aside": self.put_aside.total()})

    def _work(self, document: Document, kind: Type) -> Loop:
        identifier, made_of = _name(document, kind), self._identity(document)
        loop = self.loop(document, kind)
        while loop.status == "open" and not self._stop.is_set():
            calls = asks(loop, document.text, self.prompts)
            replies = self._replies(calls, loop)
            if replies is None:
                break
            unreadable = replies.unreadable
            loop = advanced(loop, replies.values, self.config.rounds, self.config.most_questions).counted(
                calls=len(calls) + unreadable - replies.values.count(None), unreadable=unreadable
            )
            loop = replace(loop, by=tuple(sorted({*loop.by, *replies.by})))
            self.states.add(identifier, made_of, loop.to_json())
        return loop

    def _replies(self, calls: Sequence[Ask], loop: Loop) -> _Replies | None:
        """What was replied to calls of one prompt; None: one was lost for good.

        A reply that cannot be read is asked for again as another draw; each round has draws of its own.
        """
        shape = REPLIES[calls[0].prompt]
        found: list[BaseModel | None] = [None] * len(calls)
        waiting, unreadable, by = list(range(len(calls))), 0, set[str]()
        for number in range(self.config.tries):
            replies = self.model.complete_structured(
                [calls[place].messages for place in waiting], shape, repetition=loop.round * self.config.tries + number
            )
            lost = [one.reply.failed for one in replies if one.reply.failed is not None and not one.reply.model]
            if lost:
                self.put_aside[_short(lost[0])] += 1
                return None
            for place, reply in zip(waiting, replies, strict=True):
                found[place] = reply.value
            by |= {one.reply.model for one in replies} - {""}
            waiting = [place for place in waiting if found[place] is None]
            unreadable += len(waiting)
            if not waiting:
                break
        return _Replies(found, unreadable, by)


def _name(document: Document, kind: Type) -> str:
    return f"{document.id}/{kind}"


def _short(reason: str) -> str:
    """What kind of failure it is, without the figures of one call."""
    return reason.partition(":")[0]
