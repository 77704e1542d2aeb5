"""A method whose questions are answered by workers of a Ray cluster.

The first worker makes the index; the others start when it is there, and open it. Every worker is sent as many queries as
keep it busy and gets the next ones with each reply. What a lost worker had not returned is sent to another one, so that
every question is answered once.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from benchmarks.core.errors import Broke
from benchmarks.corpus import Corpus
from benchmarks.schema import Query, Question
from methods.api import Indexed, Prediction, Usage
from methods.flow import Cancelled
from methods.spending import LimitReached
from ragmeter.runner.executors.permits import PermitServer

LOOK_S = 0.5
"""Seconds between two checks for an interruption while a method waits for its workers."""
ROOM_S = 20.0
"""Seconds without a started worker after which a message reports a full cluster."""
LOSSES = 5
"""Maximum number of workers lost without an answer in between."""


class RayMethod:
    """Method that answers queries in Ray workers.

    Args:
        start: Starts a worker (an actor of the class `work.Worker`).
        work: The task, without the path of the corpus.
        permits: Server of rate limits and caches for the workers; closed with the method.
        place_of: Returns the path at which workers open a corpus.
        workers: Maximum number of workers.
        questions: Maximum number of questions to answer.
    """

    def __init__(self, start: Any, work: Any, permits: PermitServer, place_of: Any, workers: int, questions: int) -> None:
        self._start = start
        self._work = work
        self._permits = permits
        self._place_of = place_of
        self._most = workers
        self._questions = questions
        self._prepared: Sequence[Question] | None = None
        self._built_for: Sequence[Query] = ()
        self._reference: Any = None
        self._workers: list[Any] = []
        self._losses = 0
        self._stopped: BaseException | None = None
        self._in_flight = 1
        self.waits = False

    def prepare(self, questions: Sequence[Question]) -> None:
        """Pass the questions with gold to the control that the workers build."""
        self._prepared = questions

    def index(self, corpus: Corpus) -> Indexed:
        """Let one worker build or open the index."""
        import ray

        self._reference = ray.put(self._work(self._place_of(corpus), self._prepared))
        ready = self._first(lambda worker: worker.index.remote(self._reference))
        self._in_flight, self.waits = ready.in_flight, ready.waits
        return ready.indexed if isinstance(ready.indexed, Indexed) else Indexed()

    def build_for(self, queries: Sequence[Query]) -> Usage | None:
        """Let the same worker build the index that these queries need; the other workers open it."""
        usage: Usage | None = self._first(lambda worker: worker.build_for.remote(list(queries)))
        self._built_for = queries if usage is not None else ()
        return usage

    def _first(self, ask: Any) -> Any:
        """Query the first worker, or another one if it is lost."""
        import ray

        while True:
            fresh = not self._workers
            if fresh:
                self._workers.append(self._start())
                self._wait_for_room(self._workers[0])
            worker = self._workers[0]
            try:
                if fresh and self._in_flight > 1:  # it was lost behind `index`
                    self._wait(worker.index.remote(self._reference))
                return self._wait(ask(worker))
            except ray.exceptions.RayActorError as error:
                self._lose(worker, error)

    def _wait_for_room(self, worker: Any) -> None:
        """Wait until a worker runs or is lost; tell the user the reason for waiting."""
        import ray

        started, since, noted = worker.started.remote(), time.monotonic(), False
        while not ray.wait([started], timeout=LOOK_S)[0]:
            self._look()
            if not noted and time.monotonic() - since > ROOM_S:
                noted, free = True, ray.available_resources()
                sys.stderr.write(
                    f"waiting for resources: free in the cluster are {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs\n"
                )

    def _wait(self, reference: Any) -> Any:
        """Return the value of a reference; ends when the run is interrupted."""
        import ray

        while not ray.wait([reference], timeout=LOOK_S)[0]:
            self._look()
        return value_of(reference)

    def _look(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def _lose(self, worker: Any, error: BaseException) -> None:
        """Count a lost worker.

        Raises:
            Broke: One after another was lost.
        """
        import ray

        self._workers.remove(worker)
        ray.kill(worker)  # it may only be out of reach, and must not ask any more
        self._losses += 1
        if self._losses >= LOSSES:
            raise Broke(
                f"{LOSSES} workers in a row were lost without an answer; the last one: {str(error).strip().splitlines()[-1]}",
                code="workers-lost",
                try_this="fewer workers per node if memory ran out (--workers), then the same command: it continues",
            ) from None

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Answer queries in the workers and yield predictions as they finish.

        Raises:
            Broke: Workers are lost repeatedly.
            LimitReached: A spending limit was reached; questions in flight were finished first.
            Cancelled: The run was interrupted.
        """
        import ray

        source, waiting = iter(queries), deque[Query]()
        wanted = min(self._most, max(1, math.ceil(self._questions / max(1, self._in_flight))))
        share = max(1, min(2 * self._in_flight, math.ceil(self._questions / wanted)))
        sent: dict[Any, dict[str, Query]] = {}
        replies: dict[Any, Any] = {}
        opening: dict[Any, Any] = {}

        def open_worker() -> None:
            worker = self._start()
            self._workers.append(worker)
            first = worker.index.remote(self._reference)
            opening[worker.build_for.remote(list(self._built_for)) if self._built_for else first] = worker

        exhausted = False
        limit: LimitReached | None = None

        def send(worker: Any) -> None:
            nonlocal exhausted
            open_ones = sent.setdefault(worker, {})
            room = share - len(open_ones) if limit is None else 0
            fresh = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            fresh += islice(source, room - len(fresh))
            exhausted = exhausted or len(fresh) < room
            open_ones.update({query.id: query for query in fresh})
            if open_ones:
                replies[worker.exchange.remote(fresh)] = worker

        for worker in list(self._workers):
            send(worker)
        # A worker that nothing is left for may never start: another task may hold the processor that it waits for.
        while replies or (limit is None and (waiting or (opening and not exhausted))):
            while limit is None and len(self._workers) < wanted and (waiting or len(sent) + len(opening) < wanted):
                open_worker()
            self._look()
            for reference in ray.wait([*replies, *opening], timeout=LOOK_S)[0]:
                worker = replies.pop(reference, None) or opening.pop(reference)
                try:
                    value = value_of(reference)
                except LimitReached as reached:  # in a worker that was opening
                    limit = reached
                    continue
                except ray.exceptions.RayActorError as loss:
                    waiting.extend(sent.pop(worker, {}).values())
                    self._lose(worker, loss)
                    continue
                predictions, error = value if isinstance(value, tuple) else ((), None)
                for prediction in predictions:
                    sent[worker].pop(prediction.question_id, None)
                    self._losses = 0
                    yield prediction
                if isinstance(error, LimitReached):
                    limit = error
                    continue
                if error is not None:
                    raise error
                send(worker)
            for worker in self._workers if waiting and limit is None else ():
                if worker not in replies.values() and worker not in opening.values():
                    send(worker)
        if limit is not None:
            raise limit

    def stop(self, error: BaseException | None = None) -> None:
        """Raise an error in all waits for workers; None raises `Cancelled`."""
        self._stopped = error or Cancelled()

    def close(self, *, kill: bool = True) -> None:
        """Stop the workers; without a cluster (`kill=False`) they stop on their own."""
        import ray

        for worker in self._workers if kill else ():
            ray.kill(worker)
        self._workers.clear()
        self._permits.close()


def value_of(reference: Any) -> Any:
    """Wait for a worker's result; errors of the worker's code are raised here unchanged.

    Raises:
        Broke: A node has no memory for the value.
    """
    import ray

    fault: Exception
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        fault = error.cause if isinstance(error.cause, Exception) else error
    except (ray.exceptions.OutOfDiskError, ray.exceptions.ObjectStoreFullError) as error:
        fault = error
    if isinstance(fault, ray.exceptions.OutOfDiskError | ray.exceptions.ObjectStoreFullError):
        raise Broke(
            f"a node has too little memory or disk for the objects that workers exchange: {str(fault).strip().splitlines()[0]}",
            code="object-store-full",
            where="--executor ray",
            try_this="free space in Ray's folder (/tmp/ray) or `ray start … --object-store-memory BYTES`; the same command continues",
        )
    raise fault from None
