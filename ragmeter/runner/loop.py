"""The run loop: for each task, load → index → answer → score, every finished question durable within seconds.

A killed run continues: stored answers are kept, and because a prediction depends only on its query, the results are the
same.
"""

from __future__ import annotations

import importlib
import math
import shlex
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Protocol

from benchmarks.core.errors import Broke, Incomplete, UserError, counted, message_of
from benchmarks.registry import Benchmark
from benchmarks.schema import Query, Question
from judges.metric import Metric, QuestionGraphs, Scores
from judges.metric import parse as parse_metric
from judges.score import require_no_faults, score
from methods.api import FAILED, Control, Evidence, Indexed, Prediction, Services, Usage
from methods.flow import NOTICE_S, Cancelled, interrupt
from methods.models.limits import execution
from methods.retrieval.ranking import reporting
from methods.spending import current
from ragmeter.experiment import in_setting
from ragmeter.runner.executors import Executor, Local
from ragmeter.runner.provenance import checkpoints_of
from ragmeter.runner.recorder import Recorder
from ragmeter.runner.revisions import Watch
from ragmeter.runner.shield import shielded
from ragmeter.runner.tasks import Task, TaskState
from results import store_folder
from results.boards.added import added_columns
from results.contexts import Matcher, named, reading
from results.store.checkpoints import register_recorded
from results.store.failures import IN_A_ROW, MAX_RATE, Failures, Streak, failures, kind_of
from results.store.faults import DiskFull
from results.store.invariants import check_run
from results.store.store import FAILED_RUN, FINISHED, INCOMPLETE, INTERRUPTED, Store


class Interrupted(Exception):
    """Raised after the user interrupted a run; everything finished is in the store.

    Args:
        how: Text that names the command to continue with.
    """

    exit_code = 130
    """Shell exit code of a command that Ctrl-C ended."""

    def __init__(self, how: str = "`ragmeter run --resume` continues") -> None:
        super().__init__(f"interrupted; everything finished is kept: {how}")


@contextmanager
def stoppable(how: str = "`ragmeter run --resume` continues") -> Iterator[None]:
    """Let Ctrl-C end a block whose finished part is kept; `how` names the command to continue with."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(how) from None


class Progress(Protocol):
    """Interface for displaying the progress of a run."""

    def begin(self, task: Task, done: int) -> None: ...
    def stage(self, task: Task, name: str) -> None: ...
    def advance(self, task: Task, questions: int, *, failed: int = 0, dollars: float = 0.0) -> None: ...
    def end(self, task: Task, status: str, message: str | None) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """Outcome of a task.

    Attributes:
        task: The task.
        status: "finished", "failed", "interrupted" or "incomplete".
        error: Error message; None if it finished.
        answered: Number of questions answered in this execution.
        seconds: Wall time of this execution.
        overhead_s: Part of it that the harness itself took, without loading.
    """

    task: Task
    status: str
    error: BaseException | None
    answered: int
    seconds: float
    overhead_s: float


def execute(
    states: Sequence[TaskState],
    store: Store,
    services: Services,
    progress: Progress,
    *,
    retry_failed: bool = False,
    accept_failures: bool = False,
    fail_fast: bool = False,
    max_failure_rate: float = MAX_RATE,
    executor: Executor | None = None,
) -> list[Outcome]:
    """Run the pending questions of each task, in order; the next task starts while the last replies of one are outstanding.

    A task that crashes is recorded as failed, and the next one starts, unless `fail_fast` is set. A task is incomplete in three
    cases: more than `max_failure_rate` of its questions failed; twenty failed in a row for one cause (further tasks with the
    same endpoints are then not started); or ragmeter's or a plug-in's code failed on a question, unless `accept_failures`
    counts this as a wrong answer. The executor builds the methods; None builds them in this process.

    Raises:
        Interrupted: The user interrupted it; everything finished is in the store.
    """
    progress = shielded(progress)
    executor = executor or Local()
    running: list[_Running] = []
    not_started: list[Outcome] = []
    applied = _Settings(store, services)
    how = _How(executor, retry_failed, accept_failures, max_failure_rate)
    import_heavy(states)

    def stops(entry: _Running) -> bool:
        outcome = entry.outcome
        return outcome is not None and outcome.error is not None and (fail_fast or isinstance(outcome.error, DiskFull))

    try:
        for state in states:
            dead = next((dead for entry in running if (dead := _dead(entry)) and dead <= state.task.endpoints), None)
            if dead is not None and state.pending:
                not_started.append(_not_started(state.task, store, dead, progress))
                continue
            running.append(_Running(_execute(state, store, services, progress, applied, how)))
            running[-1].advance()
            if any(map(stops, running)):
                break
        return [*(entry.result() for entry in running), *not_started]
    except (KeyboardInterrupt, Interrupted):
        interrupt()
        executor.interrupt()
        for entry in running:
            entry.end()
        raise Interrupted from None


@dataclass(frozen=True)
class _How:
    """Options of the execution of tasks; see `execute`."""

    executor: Executor
    retry_failed: bool
    accept_failures: bool
    max_failure_rate: float


class _Running:
    """A task in execution.

    Args:
        steps: Yields where the next task may begin; its value is the outcome.
    """

    def __init__(self, steps: Generator[None, None, Outcome]) -> None:
        self.outcome: Outcome | None = None
        self._steps = steps
        self._error: BaseException | None = None
        # Not `Thread.join`: Python 3.11 and 3.12 take a thread for ended once Ctrl-C has interrupted that.
        self._ended = threading.Event()
        self._ended.set()

    def advance(self) -> None:
        """Continue the task as long as no other one can start; the rest continues in a thread."""
        try:
            next(self._steps)
        except StopIteration as done:
            self.outcome = done.value
            return
        self._ended.clear()
        try:
            threading.Thread(target=self._rest, name="last replies", daemon=True).start()
        except BaseException:
            self._ended.set()
            raise

    def _rest(self) -> None:
        try:
            while True:
                next(self._steps)
        except StopIteration as done:
            self.outcome = done.value
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def end(self) -> None:
        """Wait for the work in the task's thread."""
        while not self._ended.wait(NOTICE_S):
            pass

    def result(self) -> Outcome:
        """Wait for the task, and return its outcome or raise its error."""
        self.end()
        if self._error is not None:
            raise self._error
        assert self.outcome is not None
        return self.outcome


class Stopped(Incomplete):
    """Raised if many questions of a task failed in a row for one cause, so that no more were asked.

    Attributes:
        endpoints: Endpoints that no longer answer, from `Task.endpoints`; empty if the cause was another.
    """

    def __init__(self, error: Incomplete, endpoints: frozenset[str]) -> None:
        super().__init__(error.what, code=error.code, where=error.where, try_this=error.try_this)
        self.endpoints = endpoints


def _dead(entry: _Running) -> frozenset[str]:
    """Return endpoints that stopped answering a finished task."""
    error = entry.outcome.error if entry.outcome is not None else None
    return error.endpoints if isinstance(error, Stopped) else frozenset()


HEAVY = {"models": ("torch", "transformers")}
"""Packages per extra that take seconds to import."""


def import_heavy(states: Sequence[TaskState]) -> None:
    """Import heavy packages that several tasks need before the first one starts, because overlapping imports can fail."""
    pending = [state for state in states if state.pending]
    if len(pending) < 2:
        return
    for extra in {part.entry.extra for state in pending for part in state.task.method.components}:
        for name in HEAVY.get(extra or "", ()):
            with suppress(ImportError):  # the part that needs it names the package to install
                importlib.import_module(name)


def resume_command(experiment: str, store: Store, *options: str) -> str:
    """Return the command that resumes an experiment, with further options."""
    place = [] if store.folder.absolute() == store_folder(None) else ["--store", str(store.folder)]
    return shlex.join(["ragmeter", "run", "--resume", experiment, *options, *place])


RAISED = "code of ragmeter or a plug-in raised an error, which is not the method's fault (count as wrong: --accept-failures)"


def _incomplete(task: Task, store: Store, what: str) -> Incomplete:
    """Return the message about a task's stored failures."""
    failed = failures(store, [task.run.run]).get(task.run.run, Failures())
    counts = f"{failed.in_words()} of {counted(failed.rows, 'question')} asked"
    # Without an option, a rerun asks again what our code failed, and only that.
    options = () if what == RAISED or failed.code == failed.failed else ("--retry-failed",)
    return failed.error(f"{what}: {counts}" if what else counts, resume_command(task.experiment, store, *options))


def _not_started(task: Task, store: Store, dead: frozenset[str], progress: Progress) -> Outcome:
    command = resume_command(task.experiment, store, "--retry-failed")
    error = Incomplete(
        f"not started: {', '.join(sorted(dead))} stopped answering in an earlier task", code="endpoint-stopped", try_this=f"`{command}`"
    )
    progress.end(task, INCOMPLETE, error.what)
    return Outcome(task, INCOMPLETE, error, 0, 0.0, 0.0)


def _execute(
    state: TaskState, store: Store, services: Services, progress: Progress, applied: _Settings, how: _How
) -> Generator[None, None, Outcome]:
    task, run = state.task, state.task.run
    started = time.perf_counter()
    progress.begin(task, state.done)
    answered, overhead = 0, 0.0
    try:
        store.put_benchmark(task.loaded.benchmark, task.loaded.fingerprint, task.loaded.cluster)
        if not state.complete:
            if (account := current()) is not None:
                account.check()
            store.start(run)
            register_recorded(store, checkpoints_of(task.method.components))
            benchmark = applied(task)
            answered, overhead = yield from _answer(task, benchmark, store, services, progress, how)
        _score_missing(task, store, progress)
        check_run(store, run.run)
        if how.retry_failed or how.accept_failures:
            store.accept(run.run, how.accept_failures)
        failed = failures(store, [run.run]).get(run.run, Failures())
        if failed.unresolved:
            raise _incomplete(task, store, RAISED)
        if failed.too_many(how.max_failure_rate):
            raise _incomplete(task, store, "")
        if store.status(run.run) != FINISHED:
            store.end(run.run, FINISHED)
    except (KeyboardInterrupt, Cancelled):
        _close(store, run.run, INTERRUPTED, "interrupted")
        progress.end(task, INTERRUPTED, None)
        raise Interrupted from None
    except Incomplete as error:
        message = f"{error.what} ({error.where})"
        _close(store, run.run, INCOMPLETE, message)
        progress.end(task, INCOMPLETE, message)
        return Outcome(task, INCOMPLETE, error, answered, time.perf_counter() - started, overhead)
    except BaseException as error:  # a plug-in may call sys.exit, or raise GeneratorExit
        # One method's fault must not cost the others their results; the caller shows it and exits non-zero.
        message = message_of(error) or type(error).__name__
        if not isinstance(error, DiskFull):
            _close(store, run.run, FAILED_RUN, message)
        progress.end(task, FAILED_RUN, message)
        return Outcome(task, FAILED_RUN, error, answered, time.perf_counter() - started, overhead)
    progress.end(task, FINISHED, None)
    return Outcome(task, FINISHED, None, answered, time.perf_counter() - started, overhead)


def _close(store: Store, run: str, status: str, message: str) -> None:
    """Record how a run ended; if that cannot be written, the original error is still reported."""
    with suppress(Exception):
        store.end(run, status, message)


def _answer(
    task: Task, benchmark: Benchmark, store: Store, services: Services, progress: Progress, how: _How
) -> Generator[None, None, tuple[int, float]]:
    """Answer what is pending; returns the number of questions and the harness's own seconds.

    Yields once all questions are on their way, where the method then only waits for an endpoint (`waits`); before the first one, if
    they wait for a batch (`batches`) that the next task should share.

    Raises:
        Stopped: Question after question failed by one cause.
    """
    run = task.run.run
    finished = store.finished_questions(run, retry_failed=how.retry_failed)
    pending = adjacent([question for question in benchmark.questions if question.id not in finished])
    if not pending:
        return 0, 0.0
    with ExitStack() as stack:
        return (yield from _asked(task, benchmark, pending, store, services, progress, how.executor, stack))


def adjacent(questions: Sequence[Question]) -> list[Question]:
    """Order questions so that those with the same document or candidates are adjacent.

    Their prompts share a prefix, which servers and batches compute only once.
    """
    groups: dict[Any, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.document_id or question.candidates, []).append(question)
    return [question for group in groups.values() for question in group]


def _asked(
    task: Task,
    benchmark: Benchmark,
    pending: Sequence[Question],
    store: Store,
    services: Services,
    progress: Progress,
    executor: Executor,
    stack: ExitStack,
) -> Generator[None, None, tuple[int, float]]:
    run = task.run.run
    progress.stage(task, "build")
    with execution():  # all users of one model share its budget
        method = executor.build(task, services)
        stack.callback(executor.release, method)
        control = task.method.kind == "control"
        if control and isinstance(method, Control):
            method.prepare(benchmark.questions)
        progress.stage(task, "index")
        started = time.perf_counter()
        with reporting(lambda done, total: progress.stage(task, f"index {done / total:.0%}")):
            result = method.index(benchmark.corpus)
        indexed = result if isinstance(result, Indexed) else Indexed()
        if (build_for := getattr(method, "build_for", None)) is not None:
            # For all questions, also those answered before: what an index costs depends on no interruption.
            taken = build_for([question.query() for question in benchmark.questions])
            indexed = indexed if taken is None else replace(indexed, usage=replace(taken, seconds={}))
    if not indexed.usage.seconds:
        indexed = replace(indexed, usage=replace(indexed.usage, seconds={"index": time.perf_counter() - started}))
    store.put_indexing(run, indexed)
    progress.stage(task, "answer")

    # A batch of answers may hold one question of a group without the others.
    metrics = [metric for metric in _metrics(task, store) if metric.entry.exact and "group" not in metric.entry.needs]
    by_query = {question.query_id: question for question in pending}
    asked_all = getattr(method, "batches", False)

    def queries() -> Iterator[Query]:
        nonlocal asked_all
        for question in pending:
            yield question.gold_query() if control else question.query()
        asked_all = getattr(method, "waits", False)

    started = time.perf_counter()
    waited = 0.0
    streak, failed = Streak(), None
    watch = Watch(f"{task.method.name} on {task.run.dataset}", task.endpoints)
    graphs = QuestionGraphs.of(benchmark)
    matcher = Matcher(benchmark.corpus)

    def write(finished: Sequence[tuple[Question, Prediction]]) -> None:
        questions, predictions = map(list, zip(*finished, strict=True))
        predictions = list(map(matcher.place, questions, predictions))
        # Answers are kept even if a metric fails or is interrupted: `_score_missing` scores the rest.
        scores: Mapping[str, Scores] = {}
        try:
            scores = score(questions, predictions, metrics, reading(benchmark.corpus, predictions), graphs, faults={})
        finally:
            store.append(run, predictions, scores, named(benchmark.corpus, predictions))

    with Recorder(write) as recorder:
        predictions = iter(method.answer(queries()))
        while True:
            if asked_all:
                asked_all = False
                yield
            since = time.perf_counter()
            prediction = next(predictions, None)
            waited += time.perf_counter() - since
            if prediction is None:
                break
            if wrong := _not_a_prediction(prediction):
                raise _broken(task, wrong)
            question = by_query.pop(prediction.question_id, None)
            if question is None:
                raise _broken(task, f"answered {prediction.question_id!r}, which was not asked or answered already")
            recorder.add((question, replace(prediction, question_id=question.id)))
            watch.see(prediction)
            spent = prediction.usage.cost_usd
            progress.advance(task, 1, failed=int(FAILED in prediction.notes), dollars=spent if math.isfinite(spent) else 0.0)
            if streak.stops(failed := prediction.notes.get(FAILED), question.document_id):
                # Pending calls are cancelled, and no more are sent.
                getattr(predictions, "close", lambda: None)()
                break
    if prediction is not None:
        dead = task.endpoints if kind_of(str(failed)) == "endpoint" else frozenset[str]()
        raise Stopped(_incomplete(task, store, f"stopped after {IN_A_ROW} consecutive failures with the same cause"), dead)
    if by_query:
        raise _broken(task, f"left {len(by_query)} of {len(pending)} questions unanswered")
    return len(pending), max(0.0, time.perf_counter() - started - waited) + recorder.busy_s


def _not_a_prediction(item: object) -> str | None:
    """Return how a method's result differs from a prediction; None if it is one."""
    if not isinstance(item, Prediction):
        return f"gave a {type(item).__name__} instead of a Prediction"
    if not isinstance(item.answer, str):
        return f"gave an answer of type {type(item.answer).__name__} instead of a text"
    if not isinstance(item.evidence, Sequence) or not all(map(_is_evidence, item.evidence)):
        return "gave evidence that is not Evidence(id, score) with a text as id and a number as score"
    if not isinstance(item.usage, Usage) or not isinstance(item.notes, Mapping):
        return f"gave usage of type {type(item.usage).__name__} and notes of type {type(item.notes).__name__}, not Usage and a dictionary"
    return None


def _is_evidence(item: object) -> bool:
    return isinstance(item, Evidence) and isinstance(item.id, str) and isinstance(item.score, Real)


def _broken(task: Task, what: str) -> Broke:
    return Broke(
        f"method {task.method.name!r} broke the contract: it {what}",
        code="contract-broken",
        try_this=f"ragmeter method check {task.run.method_id}",
    )


def _metrics(task: Task, store: Store) -> list[Metric]:
    """Return the task's metrics, added metrics, and those of other experiments, so that their columns stay complete.

    Metrics that the method cannot be scored on are left out, so their cells are empty instead of 0.
    """
    wanted = {str(metric): metric for metric in task.metrics}
    added = [column.metric for column in added_columns(store, [task.run.run])]
    for name in (*store.scored(task.run.run), *added):
        if name not in wanted:
            # An older version of a metric cannot be scored any more, and a judge's is not scored here: rows stay as
            # they are.
            with suppress(UserError):
                wanted[name] = parse_metric(name)
    return list(filter(task.method.can_score, wanted.values()))


def _score_missing(task: Task, store: Store, progress: Progress) -> None:
    """Score stored predictions on the metrics that they lack, without answering again.

    Raises:
        Incomplete: A metric of the task raised; those of other experiments are left out then.
        UserError: A metric of the task lacks something.
    """
    run = task.run
    scored = store.scored(run.run)
    missing = [metric for metric in _metrics(task, store) if scored.get(str(metric), 0) < run.questions]
    if not missing:
        return
    progress.stage(task, "score")
    questions = {question.id: question for question in task.loaded.benchmark.questions}
    predictions = [p for p in store.predictions(run.run) if p.question_id in questions]
    faults: dict[Metric, BaseException] = {}
    scores = score(
        [questions[p.question_id] for p in predictions],
        predictions,
        missing,
        passage=reading(task.loaded.benchmark.corpus, predictions),
        graphs=QuestionGraphs.of(task.loaded.benchmark),
        faults=faults,
    )
    store.put_scores(run.run, [p.question_id for p in predictions], scores)
    own = {metric: error for metric, error in faults.items() if metric in task.metrics}
    require_no_faults(own, f"remove it from `metrics`; then `{resume_command(task.experiment, store)}` scores without requests")


class _Settings:
    """Benchmarks with applied settings, cached."""

    def __init__(self, store: Store, services: Services) -> None:
        self._services = services
        self._known: dict[tuple[str, str, int], Benchmark] = {}

    def __call__(self, task: Task) -> Benchmark:
        key = (task.loaded.fingerprint, str(task.loaded.plan.setting), task.seed)
        if key not in self._known:
            services = self._services.seeded(task.seed)
            self._known[key] = in_setting(task.loaded.plan.setting, task.loaded.benchmark, services)
        return self._known[key]
