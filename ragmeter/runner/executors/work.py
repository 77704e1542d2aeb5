"""Run one worker: it builds a method, opens corpus and index by their paths, and answers the queries that it is sent."""

from __future__ import annotations

import os
import pickle
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, Question
from methods.api import Control, Indexed, Prediction, Services, Usage
from methods.flow import IN_FLIGHT
from methods.models.limits import execution, limiters
from methods.models.reply_cache import share
from methods.pipeline import Composition
from methods.spending import replace_account
from ragmeter.runner.executors.nodes import Node, Wanted, probe, refuse_nodes
from ragmeter.runner.executors.permits import Permits, Place, RemoteAccount, RemoteCache
from results.store.mounts import network_here


@dataclass(frozen=True)
class Work:
    """Task in the form sent to workers; it is small, because corpora and indexes are given by path.

    Attributes:
        composition: The parts of the method.
        services: The services to build it with.
        corpus: File or folder of the corpus.
        questions: Questions with gold, for a control.
        variables: Environment variables with API keys and data locations.
        place, key, limited: Address, key and `limited` of the `PermitServer`.
        charged: Whether calls count towards the server's spending account.
        same: Properties that the worker's node must have in common with the main process; None if it runs on the same machine.
    """

    composition: Composition
    services: Services
    corpus: Path
    questions: Sequence[Question] | None
    variables: Mapping[str, str]
    place: Place
    key: bytes
    limited: bool
    charged: bool
    same: tuple[Wanted, Node] | None


@dataclass(frozen=True)
class Ready:
    """Report of a worker that is ready to answer.

    Attributes:
        pid, node: Process id and node.
        indexed: Cost of building or opening the index.
        in_flight: Number of questions that it processes at once.
        waits: Whether its last questions only wait for an endpoint.
    """

    pid: int
    node: str
    indexed: Indexed | None
    in_flight: int
    waits: bool


class Backlog(Iterator[Query]):
    """Queue of waiting queries as an iterator; it ends when empty, and continues after something was added."""

    def __init__(self) -> None:
        self._waiting: deque[Query] = deque()
        self._filled = threading.Event()

    def add(self, queries: Sequence[Query]) -> None:
        """Append queries."""
        self._waiting.extend(queries)
        self._filled.set()

    def wait(self) -> None:
        """Wait until the queue is not empty."""
        self._filled.wait()

    def __next__(self) -> Query:
        try:
            return self._waiting.popleft()
        except IndexError:
            self._filled.clear()
            if self._waiting:  # added between the two
                self._filled.set()
            raise StopIteration from None


class Worker:
    """Worker process that answers queries of one task."""

    def started(self) -> None:
        """Return as soon as the process runs, to test that it has started."""

    def index(self, work: Work) -> Ready:
        """Build the method, build or open the index, and report the cost.

        Args:
            work: The task.
        """
        os.environ.update(work.variables)
        if work.same is not None:
            wanted, here = work.same
            refuse_nodes([probe(os.uname().nodename, wanted)], here)
        permits = Permits(work.place, work.key, work.limited)
        limiters.make = permits.limiter
        if work.charged:
            replace_account(RemoteAccount(permits))
        if work.services.cache is not None:
            share(work.services.cache, RemoteCache(permits))
        self._backlog = Backlog()
        self._answered: queue.SimpleQueue[Prediction | BaseException] = queue.SimpleQueue()
        with execution(permits.budget):
            self._method = work.composition.build(with_local_embeddings(work.services))
        if work.questions is not None and isinstance(self._method, Control):
            self._method.prepare(work.questions)
        threading.Thread(target=self._answer, name="answers", daemon=True).start()
        indexed = self._method.index(TripleCorpus.open(work.corpus))
        method: Any = self._method
        in_flight = int(getattr(method, "in_flight", IN_FLIGHT))
        return Ready(os.getpid(), os.uname().nodename, indexed, in_flight, bool(getattr(method, "waits", False)))

    def build_for(self, queries: Sequence[Query]) -> Usage | None:
        """Build the index that these queries need (`methods.pipeline.Pipeline.build_for`)."""
        build_for = getattr(self._method, "build_for", None)
        usage: Usage | None = None if build_for is None else build_for(queries)
        return usage

    def exchange(self, queries: Sequence[Query]) -> tuple[list[Prediction], BaseException | None]:
        """Accept more queries, wait for predictions, and return the finished ones and the error that ended answering, if any."""
        self._backlog.add(queries)
        results: list[Prediction] = []
        while True:
            item = self._answered.get()
            if isinstance(item, BaseException):
                return results, item
            results.append(item)
            if self._answered.empty():
                return results, None

    def _answer(self) -> None:
        try:
            while True:
                self._backlog.wait()
                for prediction in self._method.answer(self._backlog):
                    self._answered.put(prediction)
        except BaseException as error:
            self._answered.put(sendable(error))


def with_local_embeddings(services: Services) -> Services:
    """Return services whose embedding cache is on a local disk of this node if `artifacts` is on a network file system.

    Raises:
        UserError: The node has no local folder for the cache.
    """
    if services.artifacts is None or network_here(services.artifacts) is None:
        return services
    folder = Path(tempfile.gettempdir(), f"ragmeter-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # No other user may write vectors there.
    kind = network_here(folder)
    if kind is not None or folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise UserError(
            f"the cache of embeddings needs a local disk, and {folder} " + (f"is on {kind}" if kind else "belongs to another user"),
            code="no-local-embeddings",
            where=f"node {os.uname().nodename}",
            try_this="set TMPDIR to a folder of your own on a local disk before `ray start` on this node",
        )
    return replace(services, embeddings=folder / "embeddings")


def sendable(error: BaseException) -> BaseException:
    """Return an error in a form that can be pickled and sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
