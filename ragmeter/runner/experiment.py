"""An experiment carried through: what it needs is trained, its tasks are answered and scored, its judges heard.

The commands `run`, `resume` and `demo` and the Python API all end here; what they show of it is their own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from benchmarks.core.errors import UserError, counted
from benchmarks.core.fingerprint import fingerprint
from methods.api import Services
from methods.models.counting import Estimate
from methods.models.llm import smallest_concurrency
from methods.spending import NO_LIMITS, LimitReached, Limits, spending
from ragmeter.experiment import Experiment, place_of_data
from ragmeter.runner.executors import Executor, Local
from ragmeter.runner.executors.devices import every_device
from ragmeter.runner.loop import Interrupted, Outcome, execute, resume_command, stoppable
from ragmeter.runner.preflight import preflight, to_train
from ragmeter.runner.progress import JudgingProgress, RunProgress, TrainingProgress
from ragmeter.runner.revisions import begin
from ragmeter.runner.spending import merged_limits, options_of, require_prices
from ragmeter.runner.tasks import Task, TaskState, choose, estimate, reach, states, tasks_of
from ragmeter.show.console import err
from ragmeter.trainings import TrainingPlan
from results.boards.changes import since_last
from results.store import queries
from results.store.queries import RunRow
from results.store.store import Store, left_behind

if TYPE_CHECKING:
    from ragmeter.runner.executors.cluster import Shares


@dataclass(frozen=True)
class How:
    """Options for running an experiment, mostly from the command line of `ragmeter run`.

    Attributes:
        limit: Maximum number of questions per benchmark, in addition to the experiment's own limits.
        fresh: Start a new run of every task in addition to the stored ones, and call models again.
        reuse_replies: Whether new runs may use cached model replies.
        retry_failed: Ask failed questions again; for a finished run, in a new run that keeps the other answers.
        accept_failures: Count failures in ragmeter's or a plug-in's code as wrong answers, and do not ask these questions
            again.
        fail_fast: Stop at the first task that crashes.
        device: Device of models; None chooses automatically.
        calls: Store the model calls of each question.
        processes: Whether trainings may run in separate processes (`run_trainings`).
        together: Number of processes that carry out one training together; None: one per GPU, if `processes` allows it.
        timeout: Seconds that these processes wait for each other within a step, if the default is too short.
        limits: Spending limits; they override those of the experiment's file.
        cluster: The Ray cluster to use; None answers in this process.
        every_device: Without a cluster, use one worker per GPU of this machine, if it has several.
        part: (I, N) runs only part I (from 0) of the tasks, which are divided into N parts (`part_of`).
    """

    limit: int | None = None
    fresh: bool = False
    reuse_replies: bool = False
    retry_failed: bool = False
    accept_failures: bool = False
    fail_fast: bool = False
    device: str | None = None
    calls: bool = True
    processes: bool = False
    limits: Limits = NO_LIMITS
    cluster: Shares | None = None
    every_device: bool = False
    part: tuple[int, int] | None = None
    together: int | None = None
    timeout: Callable[[TrainingPlan, Store], float] = lambda plan, store: 0.0


def limited(experiment: Experiment, limit: int | None) -> Experiment:
    """Limit every benchmark of an experiment to at most `limit` questions; None changes nothing."""
    if limit is None:
        return experiment
    fewer = [replace(b, limit=limit if b.limit is None else min(limit, b.limit)) for b in experiment.benchmarks]
    return replace(experiment, benchmarks=tuple(fewer))


def run_experiment(experiment: Experiment, store: Store, how: How, *, talk: bool) -> list[Outcome]:
    """Run everything of an experiment that the store lacks: trainings, questions, scores and judgments.

    Args:
        experiment: The validated experiment.
        store: The store to write to.
        how: The options.
        talk: Whether to show progress and messages on standard error.

    Returns:
        The outcome of each task. A crashed task does not affect the others.

    Raises:
        UserError: The experiment cannot run here as written.
        Broke: A required endpoint does not answer.
        LimitReached: A training or judge reached a spending limit; the error holds the tasks' outcomes.
        Interrupted: The user interrupted it; everything finished is in the store.
    """
    experiment = limited(experiment, how.limit)
    if how.part is not None:
        _refuse_trainings(experiment)
    limits = merged_limits(experiment, how.limits)
    require_prices(options_of(experiment, store), limits)
    resume = f"`{_resume(experiment, store, how)}`"
    with opened(how) as executor, smallest_concurrency(options_of(experiment, store)) as different, spending(limits, resume):
        # Devices of a cluster are those of its nodes.
        preflight(experiment, store, how.device if how.cluster is None else None)
        executor.check(experiment, store, how.device)
        for line in different if talk else ():
            err.print(Text(line, style="yellow"), soft_wrap=True)
        return _carried_through(experiment, store, how, executor, talk=talk)


def opened(how: How) -> AbstractContextManager[Executor]:
    """Return the executor for a block: a Ray cluster, all GPUs of this machine, or this process."""
    if how.cluster is not None:
        from ragmeter.runner.executors.cluster import connected

        return connected(how.cluster)
    return every_device() if how.every_device and how.device is None else nullcontext(Local())


def _carried_through(experiment: Experiment, store: Store, how: How, executor: Executor, *, talk: bool) -> list[Outcome]:
    _train(experiment, how, store, quiet=not talk)
    resolved = begin(experiment, store, talk=talk)
    with err.status("loading", spinner="dots") if talk else nullcontext():
        tasks = _tasks(experiment, resolved)
    experiment = resolved()
    store.database.open_to_write()
    chosen = {"fresh": how.fresh, "reuse_replies": how.reuse_replies, "retry_failed": how.retry_failed}
    tasks = choose(tasks, store, **chosen)
    _enter(experiment, tasks, store, how)
    if how.fresh:
        store.promise([task.run for task in tasks])
    if how.accept_failures:
        for task in tasks:
            store.accept(task.run.run, True)
    # The whole experiment is entered, so that the stores of all parts merge into it.
    mine = tasks if how.part is None else [task for task in tasks if part_of(task, how.part[1]) == how.part[0]]
    results = states(mine, store, retry_failed=how.retry_failed)
    if talk:
        _announce(experiment, results, store)
    cache = None if how.fresh and not how.reuse_replies else store.cache
    reach(results, cache)
    for plan in experiment.judges:
        plan.judge.config.reach(cache)
    services = Services(seed=experiment.seed, artifacts=store.artifacts, device=how.device, cache=store.cache)
    with RunProgress(len(results), quiet=not talk) as progress:
        keeping = Store(store.folder, calls=how.calls)
        try:
            outcomes = execute(
                results,
                keeping,
                services,
                progress,
                retry_failed=how.retry_failed,
                accept_failures=how.accept_failures,
                fail_fast=how.fail_fast,
                max_failure_rate=experiment.max_failure_rate,
                executor=executor,
            )
        except Interrupted:
            raise Interrupted(f"`{_resume(experiment, store, how)}` continues") from None
    if how.part is not None:
        if experiment.judges and talk:
            err.print(Text("judges are asked by `ragmeter run` over the merged store"), soft_wrap=True)
        return outcomes
    try:
        _judge(experiment, store, services, how.retry_failed, quiet=not talk)
    except LimitReached as error:
        error.outcomes = outcomes
        raise
    return outcomes


def part_of(task: Task, count: int) -> int:
    """Return the part of a task, from a hash of its names in the experiment.

    Unlike the task's fingerprint, the names are the same on every machine if weights differ there.
    """
    plan = task.loaded.plan
    return int(fingerprint(str(plan.reference), str(plan.setting), task.method.name, task.seed, task.method.repeat), 16) % count


def _refuse_trainings(experiment: Experiment) -> None:
    """Refuse to run parts of an experiment with trainings.

    Every part would train, possibly other weights. The folder of a checkpoint is part of a run's identity, and each store has its own.

    Raises:
        UserError: A method needs a training.
    """
    names = dict.fromkeys(plan.name for method in experiment.methods for plan in method.needs)
    if names:
        raise UserError(
            f"an experiment with trainings ({', '.join(names)}) cannot be divided, because each part would train for itself",
            code="parts-with-trainings",
            where="--task-index",
            try_this="train once by `ragmeter train … -o FOLDER` into a folder that all machines see, and name it in place of "
            "{checkpoint: …}",
        )


def _resume(experiment: Experiment, store: Store, how: How) -> str:
    """Return the command that continues an experiment."""
    return resume_command(experiment.name, store, *how.limits.options(), *(how.cluster.options() if how.cluster is not None else ()))


def estimates(results: list[TaskState]) -> dict[str, Estimate]:
    """Estimate the model calls per method and dataset, for tasks that call an endpoint."""
    every = {f"{state.task.method.name} on {state.task.run.dataset}": estimate(state) for state in results}
    return {name: wanted for name, wanted in every.items() if wanted is not None}


def _tasks(experiment: Experiment, resolved: Callable[[], Experiment]) -> list[Task]:
    """Load all data and return the experiment's tasks; errors in data name the line of the experiment."""
    prepared: list[str] = []
    try:
        return tasks_of(experiment, prepared.append, resolved)
    except UserError as error:
        if prepared and experiment.source.name not in (error.where or ""):
            error.also_at(place_of_data(experiment, len(prepared) - 1))
        raise


def _train(experiment: Experiment, how: How, store: Store, *, quiet: bool) -> None:
    """Train missing checkpoints of the experiment's methods; then everything can be checked."""
    needed = [plan for method in experiment.methods for plan in method.needs]
    if not needed:
        return
    from ragmeter.runner.training_jobs import Processes, register_finished, require_same_files, run_trainings

    require_same_files(experiment.trainings, store)
    register_finished(experiment.trainings, store)
    left = to_train(experiment.trainings, store)
    if not any(plan in left for plan in needed):
        return
    # The experiment is not in the store before its runs are known, so `resume` would not find it.
    wanted = how.together if how.processes else how.together or 1
    together = Processes.chosen(wanted, how.device, how.timeout, in_ray=how.cluster is not None)
    with TrainingProgress(quiet=quiet) as progress, stoppable("the same command continues it"):
        try:
            run_trainings(experiment.trainings, store, how.device, progress, processes=how.processes, together=together)
        except LimitReached as error:
            remedy = "the same command continues; the limit counts from zero again, and cached replies cost nothing"
            raise LimitReached(error.what, code=error.code, where=error.where, try_this=remedy) from None
    # A finished training may have started from a checkpoint that was trained again now.
    require_same_files(experiment.trainings, store)
    preflight(experiment, store, how.device)


def _enter(experiment: Experiment, tasks: list[Task], store: Store, how: How) -> None:
    """Record the experiment and its runs before they start, so that a killed run can be found."""
    shown = [Shown(task.run.run, task.method.name, _columns(task, experiment), task.run.cluster) for task in tasks]
    with store.database.reading():
        shown += _of_other_seeds(store, experiment, tasks)
        runs = [item.run for item in shown]
        left = left_behind(store, experiment.name, experiment.source.text, experiment.path, runs)
        lines = since_last(store, experiment.name, [task.run for task in tasks])
    for line in [left, *lines] if left else lines:
        err.print(Text(line, style="yellow"), soft_wrap=True)
    store.put_experiment(
        experiment.name,
        experiment.source.text,
        experiment.path,
        experiment.profile,
        experiment.reference,
        runs,
        how.limit,
        [item.method for item in shown],
        [item.metrics for item in shown],
        [item.cluster for item in shown],
    )
    components = {c.id: c.entry.card() for method in experiment.methods for c in method.components}
    store.put_cards(components.values(), {str(m): m for task in tasks for m in task.metrics}.values())


class Shown(NamedTuple):
    """Run as an experiment shows it: its id, the method's name, metric ids, and the kind of cluster."""

    run: str
    method: str
    metrics: list[str]
    cluster: str | None


def _of_other_seeds(store: Store, experiment: Experiment, tasks: Sequence[Task]) -> list[Shown]:
    """Return the runs of the experiment with another seed and the same method, options and data, which stay its repeats."""
    here = {task.run.run for task in tasks}
    if here.issuperset(store.runs_of(experiment.name)):
        return []
    tasks_of_key = {(task.method.name, task.loaded.fingerprint, str(task.loaded.plan.setting)): task for task in tasks}
    results = []
    for row in queries.runs(store, experiment.name):
        task = tasks_of_key.get((row.method, row.dataset_fingerprint, row.setting))
        if task is not None and row.run not in here and row.seed != task.seed and row.description == task.run.description:
            results.append(Shown(row.run, row.method, _columns(task, experiment), task.run.cluster))
    return results


def _columns(task: Task, experiment: Experiment) -> list[str]:
    """Return the metric ids that the experiment shows for a task: its metrics, then the measures of its judges.

    A metric that no method of the experiment can be scored on has no column.
    """
    judged = (metric for plan in experiment.judges for metric in plan.judge.metrics.values())
    shown = (metric for metric in task.loaded.metrics if any(method.can_score(metric) for method in experiment.methods))
    return [*map(str, shown), *judged]


def _announce(experiment: Experiment, results: list[TaskState], store: Store) -> None:
    pending = sum(state.pending for state in results)
    done = sum(state.done for state in results)
    again = f", {done} answered before" if done else ""
    what = f"{experiment.name}: {counted(len(results), 'task')}, {counted(pending, 'question')} to answer{again}"
    err.print(Text(f"{what}; store {store.folder}"))
    for name, wanted in estimates(results).items():
        err.print(Text(f"{name}: about {wanted}"))


def _own_runs(store: Store, experiment: Experiment) -> list[RunRow]:
    """Return the experiment's runs; submissions of others are only judged on request (`ragmeter judge run`)."""
    return [row for row in queries.runs(store, experiment.name) if row.origin == queries.OURS]


def unread_judgings(experiment: Experiment, store: Store) -> list[str]:
    """List judge-and-run combinations of an experiment with too many missing verdicts, one line each."""
    if not experiment.judges:
        return []
    from ragmeter.runner import judging

    work = judging.judgings(experiment.judges, _own_runs(store, experiment), experiment.reference)
    return judging.incomplete(store, work)


def _judge(experiment: Experiment, store: Store, services: Services, retry: bool, *, quiet: bool) -> None:
    """Judge the answers with the experiment's judges."""
    if not experiment.judges:
        return
    from ragmeter.runner import judging

    runs = _own_runs(store, experiment)
    work = judging.judgings(experiment.judges, runs, experiment.reference)
    for line in judging.not_judged(experiment.judges, runs) if not quiet else ():
        err.print(Text(line, style="yellow"), soft_wrap=True)
    with JudgingProgress(len(work), quiet=quiet) as progress, stoppable():
        judging.execute(work, store, services, progress, retry_unscored=retry)
