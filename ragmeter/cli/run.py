"""`ragmeter run`: from an experiment file to its tables; the same again from the store; and what it would take."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.text import Text

from benchmarks.core.errors import Broke, Incomplete, UserError, counted, message_of
from ragmeter.cli.errors import WRONG
from ragmeter.cli.options import (
    App,
    Common,
    DeviceOption,
    ExperimentArgument,
    LimitOption,
    MaxCallsOption,
    MaxHoursOption,
    MaxUsdOption,
    ProcessesOption,
    ProfileOption,
    SkipBadOption,
    WideOption,
    option,
    set_option,
)
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from methods.spending import LimitReached
    from ragmeter.experiment import Experiment
    from ragmeter.runner.experiment import How
    from ragmeter.runner.loop import Outcome
    from ragmeter.trainings import TrainingPlan
    from results.store.store import Store

NO_CALLS = "Do not store model calls (default: the first 200 per question, up to 20,000 characters per text)."
app = App(help="Run, continue (--resume) or plan (--dry-run) an experiment.")


@app.command(offline=True)
def run(
    common: Common,
    experiment: ExperimentArgument = None,
    resume: Annotated[bool, option("Continue the newest experiment of the store, or the named one.", "--resume")] = False,
    dry_run: Annotated[bool, option("Estimate the cost without running; exit with 2 if a prerequisite is missing.", "--dry-run")] = False,
    profile: ProfileOption = None,
    settings: Annotated[list[str] | None, set_option("Override a value of the file, e.g. methods.bm25.config.k1=2")] = None,
    limit: LimitOption = None,
    fresh: Annotated[bool, option("Start new runs next to the stored ones, and call models again.", "--fresh")] = False,
    reuse_replies: Annotated[bool, option("Use cached model replies with --fresh.", "--reuse-replies")] = False,
    revision: Annotated[list[str] | None, option("Set the revision of a row's system: ROW=TEXT; repeatable.", "--revision")] = None,
    retry_failed: Annotated[bool, option("Retry questions that failed.", "--retry-failed")] = False,
    accept_failures: Annotated[bool, option("Count questions that our code or an extension failed as wrong.", "--accept-failures")] = False,
    fail_fast: Annotated[bool, option("Stop at the first task that fails.", "--fail-fast")] = False,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = None,
    executor: Annotated[
        Literal["local", "ray"] | None, option("Run methods in this process with all its GPUs, or on a Ray cluster.")
    ] = None,
    address: Annotated[str | None, option("HOST:PORT of the Ray head (default: RAY_ADDRESS, or a local cluster).")] = None,
    workers: Annotated[int | None, option("Maximum Ray workers per task (default: as many as fit).", min=1)] = None,
    gpus_per_worker: Annotated[float | None, option("GPUs per Ray worker (default: by the models' sizes).", min=0.0)] = None,
    shared: Annotated[Path | None, option("Folder that all Ray nodes share, for corpora and indexes.")] = None,
    processes: ProcessesOption = None,
    task_index: Annotated[int | None, option("Part of the tasks to run, from 0 (with --task-count).", min=0)] = None,
    task_count: Annotated[int | None, option("Number of parts that the tasks are split into.", min=1)] = None,
    no_calls: Annotated[bool, option(NO_CALLS, "--no-calls")] = False,
    wide: WideOption = False,
    max_usd: MaxUsdOption = None,
    max_hours: MaxHoursOption = None,
    max_calls: MaxCallsOption = None,
    utilization: Annotated[float | None, option("Share of peak performance in estimates of --dry-run (default: 0.4).")] = None,
) -> int:
    """Run, resume (--resume) or plan (--dry-run) an experiment."""
    if experiment is None and not resume:
        return _list(common)
    if not dry_run and utilization is not None:
        raise UserError("this option needs --dry-run", code="option-without-dry-run", where="--utilization", try_this="add --dry-run")
    if dry_run and fresh:
        raise UserError(
            "a plan counts only answers that are not stored, so --fresh has no effect on it",
            code="plan-of-stored",
            where="--fresh",
            try_this="--dry-run with --store FOLDER that is empty",
        )
    if reuse_replies and not fresh:
        raise UserError(
            "--reuse-replies needs --fresh",
            code="reuse-replies-without-fresh",
            where="--reuse-replies",
            try_this="add --fresh, or leave it out",
        )

    from methods.spending import Limits

    part = _part(task_index, task_count, fresh or retry_failed)
    of_ray = {"--address": address, "--workers": workers, "--gpus-per-worker": gpus_per_worker, "--shared": shared}
    if executor != "ray" and (name := next((name for name, setting in of_ray.items() if setting is not None), None)):
        raise UserError(f"{name} needs --executor ray", code="option-without-ray", where=name, try_this="add --executor ray")

    from ragmeter import experiment as experiments
    from ragmeter.cli.config_options import path_settings
    from ragmeter.runner import revisions
    from ragmeter.runner.experiment import How, limited
    from results.store import queries

    declared = revisions.read_revisions(revision or [])
    limits = Limits.from_options(max_usd=max_usd, max_hours=max_hours, max_calls=max_calls)

    # A file that is run again resumes where it was.
    if resume and not (experiment and Path(experiment).is_file()):
        for option, typed in {
            "--profile": profile,
            "--set": settings,
            "--limit": limit,
            "--fresh": fresh,
            "--reuse-replies": reuse_replies,
        }.items():
            if typed:
                raise UserError(
                    "--resume continues an experiment with its stored options",
                    code="resume-with-options",
                    where=option,
                    try_this="leave it out",
                )
        row = queries.experiment(common.store, experiment)
        source, limit = row.path or f"{row.name} (stored)", row.limit
        common.read_env(source)
        chosen = experiments.parse(row.source, source, path=row.path, profile=row.profile, store=common.folder)
        declared = revisions.begun_with(common.store, chosen) | declared
    else:
        source = str(experiment)
        common.read_env(source)
        chosen = experiments.load(source, profile=profile, store=common.folder, settings=path_settings(settings))
    chosen = revisions.with_revisions(chosen, declared)
    chosen = experiments.skipping_bad(chosen) if skip_bad else chosen
    if dry_run:
        from ragmeter.plan.plan import plan_of
        from ragmeter.plan.show import plan_json, show_plan
        from ragmeter.runner.spending import merged_limits, options_of, require_prices

        chosen = revisions.resolve(limited(chosen, limit), common.store, talk=common.talk, entering=False)
        chosen = replace(chosen, limits=merged_limits(chosen, limits))
        require_prices(options_of(chosen, common.store), chosen.limits)
        planned = plan_of(chosen, common.store, utilization)
        common.emit(plan_json(planned), lambda: show_plan(planned, str(common.store.folder), verbose=common.verbose))
        return WRONG if planned.missing else 0
    cluster = None
    if executor == "ray":
        from ragmeter.runner.executors.cluster import Shares

        cluster = Shares(address, workers, gpus_per_worker, shared)
    how = How(
        limit,
        fresh,
        reuse_replies,
        retry_failed,
        accept_failures,
        fail_fast,
        device,
        not no_calls,
        True,
        limits,
        cluster,
        executor is None,
        part,
        processes,
        _timeout,
    )
    code, value = run_and_show(chosen, how, common, wide=wide)
    common.emit(value, lambda: show_where(common))
    return code


def _timeout(plan: TrainingPlan, store: Store) -> float:
    """Return `group_timeout`; a run without a training does not import the plan."""
    from ragmeter.plan.timeout import group_timeout

    return group_timeout(plan, store)


def _part(index: int | None, count: int | None, restart: bool) -> tuple[int, int] | None:
    """Return the part of the tasks to run; None for all."""
    if index is None and count is None:
        return None
    if index is None or count is None or index >= count:
        raise UserError(
            f"--task-index {index} of --task-count {count} is not a part",
            code="bad-task-index",
            where="--task-index",
            try_this="--task-index I --task-count N with I from 0 to N - 1",
        )
    if restart:
        raise UserError(
            "one part of an experiment cannot start new runs, because the parts could not be merged",
            code="task-index-with-new-runs",
            where="--task-index",
            try_this="leave out --fresh and --retry-failed; use an empty --store FOLDER instead",
        )
    return index, count


def _list(common: Common) -> int:
    from ragmeter.experiments import descriptions

    known = descriptions()
    value = [{"name": name, "description": text} for name, text in known.items()]
    common.emit(value, lambda: listing(("ragmeter run …", ""), known.items(), empty=""))
    return 0


def run_and_show(experiment: Experiment, how: How, common: Common, *, wide: bool = False) -> tuple[int, dict[str, Any]]:
    """Run an experiment and print its tables; return the exit code and the JSON value."""
    from methods.spending import LimitReached
    from ragmeter.runner.experiment import run_experiment
    from ragmeter.show.board_text import show_battles, show_boards
    from results.boards.board import boards
    from results.boards.names import base_name, first_name
    from results.boards.verdict_of import MANY, verdicts
    from results.boards.verdict_text import headlines
    from results.store import queries
    from results.store.schema import now

    store, began = common.store, now()
    stopped: LimitReached | None = None
    try:
        outcomes = run_experiment(experiment, store, how, talk=common.talk)
    except LimitReached as error:
        if not error.outcomes:
            raise
        outcomes, stopped = list(error.outcomes), error
    value: dict[str, Any] = {}
    # One state of the store, so that a query which several of these need is asked once.
    with store.database.reading():
        runs, results = queries.runs(store, experiment.name), boards(store, experiment.name)
        battles = []
        if common.json or common.verbose:
            from ragmeter.cli.results import comparison_json, show_comparison
            from results.judging.battles import battle_boards

            battles = battle_boards(store, runs, experiment.reference)
        known = verdicts(store, experiment.name, most=None if common.json else MANY)
        seeded = any(base_name(row.method) != first_name(row.method) for row in runs)
        shown = boards(store, experiment.name, over_seeds=True) if seeded and not common.json else results
    if common.json:
        value = {"experiment": experiment.name, "boards": [board.to_json() for board in results]}
        value |= {"verdicts": [verdict.to_json() for verdict in known]}
        value |= {"battles": [battle.to_json() for battle in battles], "published": comparison_json(results)}
    else:
        show_boards(shown, headlines(known), out, wide=wide, verbose=common.verbose, began=began)
        if common.verbose:
            if seeded:
                out.print(Text("rows of several seeds; `ragmeter results` shows each", style="dim"))
            show_comparison(results)
            for battle in battles:
                show_battles(battle, out, {row.method for row in runs if row.kind == "control"})
    code = conclude(outcomes, len(experiment.benchmarks) * len(experiment.methods), common.verbose, stopped)
    return code or conclude_judging(experiment, store), value


def show_where(common: Common) -> None:
    """Print where the results are stored, and the commands that show them."""
    folder = str(common.store.folder)
    # As it was called: outside an activated environment the bare name would not be found.
    called = sys.argv[0] if sys.argv[0].endswith("ragmeter") else "ragmeter"
    pages = shlex.join([called, "leaderboard", "--open", "--store", folder])
    out.print(Text(f"stored in {folder}\nleaderboard: {pages}"), soft_wrap=True)


def conclude_judging(experiment: Experiment, store: Store) -> int:
    """Print which judges gave too few verdicts, and return the exit code."""
    from ragmeter.runner.experiment import unread_judgings
    from ragmeter.runner.loop import resume_command

    lacking = unread_judgings(experiment, store)
    for line in lacking:
        err.print(Text(line, style="bold red"))
    if lacking:
        from ragmeter.runner.judging import READABLE

        command = resume_command(experiment.name, store, "--retry-failed")
        err.print(Text(f"try: {READABLE}; then `{command}`"), soft_wrap=True)
    return Incomplete.exit_code if lacking else 0


def conclude(outcomes: Sequence[Outcome], planned: int, verbose: bool, stopped: LimitReached | None = None) -> int:
    """Print failed and incomplete tasks and exceeded spending limits, and return the exit code."""
    from methods.spending import LimitReached
    from results.store.store import INCOMPLETE

    limited = [outcome for outcome in outcomes if isinstance(outcome.error, LimitReached)]
    outcomes = [outcome for outcome in outcomes if outcome not in limited]
    stopped = stopped or next((outcome.error for outcome in limited if isinstance(outcome.error, LimitReached)), None)
    broken = [outcome for outcome in outcomes if outcome.error is not None and outcome.status != INCOMPLETE]
    incomplete = [outcome for outcome in outcomes if outcome.status == INCOMPLETE]
    if broken:
        err.print(Text(f"{len(broken)} of {planned} tasks failed; their finished answers are kept", style="bold red"))
    if incomplete:
        what = "incomplete, as questions failed; all answers so far are stored"
        err.print(Text(f"{len(incomplete)} of {planned} tasks {'is' if len(incomplete) == 1 else 'are'} {what}", style="bold red"))
    for outcome in [*broken, *incomplete]:
        error = outcome.error
        lines = error.lines() if isinstance(error, UserError) else [f"{type(error).__name__}: {message_of(error) if error else ''}"]
        err.print(Text(f"{outcome.task.method.name} on {outcome.task.run.dataset}: " + "\n".join(lines)))
        if verbose and not isinstance(error, UserError):
            err.print(Text("".join(traceback.format_exception(error))))
    if stopped is not None:
        what = f"{counted(len(limited), 'task')} incomplete" if limited else "the judges have not judged everything"
        err.print(Text(f"stopped at a limit on spending: {what}", style="bold red"))
        err.print(Text("\n".join(stopped.lines())), soft_wrap=True)
    # Also where a user's mistake broke it: it had begun, and 2 says that nothing was spent.
    return Broke.exit_code if broken else Incomplete.exit_code if incomplete or stopped is not None else 0
