"""`run`, `resume`: from an experiment file to its tables; `plan` is in `planning.py`, `demo` in `demo.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.errors import Broke, UserError
from ragmeter import experiment as experiments
from ragmeter.commands.tabling import beside_json, show_beside
from ragmeter.console import emit, err, out
from ragmeter.experiment import Experiment
from ragmeter.experiment_run import How, carry_through
from ragmeter.render import show_battles, show_board
from ragmeter.run_loop import Outcome
from results import queries, store_folder
from results.battle_board import battle_boards
from results.board import boards
from results.series import stem
from results.store import FAILED_RUN, Store


@dataclass(frozen=True)
class Request:
    """What a command was asked to run, and how."""

    experiment: str
    profile: str | None = None
    limit: int | None = None
    fresh: bool = False
    retry_failed: bool = False
    fail_fast: bool = False
    device: str | None = None

    @property
    def how(self) -> How:
        return How(self.limit, self.fresh, self.retry_failed, self.fail_fast, self.device)


def run(request: Request, store: Path | None, as_json: bool, quiet: bool, verbose: bool) -> int:
    """Run an experiment; returns the exit code."""
    experiment = experiments.load(request.experiment, profile=request.profile, store=store)
    code, value = carry_and_show(experiment, request.how, Store(store_folder(store)), as_json, quiet, verbose)
    emit(value, as_json, lambda: None)
    return code


def resume(name: str | None, retry_failed: bool, device: str | None, folder: Path | None, as_json: bool, quiet: bool, verbose: bool) -> int:
    """Continue an experiment from the text in the store; returns the exit code."""
    store = Store(store_folder(folder))
    row = queries.experiment(store, name)
    experiment = experiments.parse(row.source, row.path or f"{row.name} (stored)", path=row.path, profile=row.profile, store=folder)
    how = How(row.limit, retry_failed=retry_failed, device=device)
    code, value = carry_and_show(experiment, how, store, as_json, quiet, verbose)
    emit(value, as_json, lambda: None)
    return code


def carry_and_show(experiment: Experiment, how: How, store: Store, as_json: bool, quiet: bool, verbose: bool) -> tuple[int, dict[str, Any]]:
    """Do it, show the tables to people; returns the exit code and what programs are told."""
    outcomes = carry_through(experiment, store, how, talk=not (quiet or as_json))
    seeded = any(stem(method.name) != method.name for method in experiment.methods)
    result = boards(store, experiment.name)
    chosen = queries.runs(store, experiment.name)
    battles = battle_boards(store, chosen, experiment.reference)
    if not as_json:
        for board in boards(store, experiment.name, over_seeds=True) if seeded else result:
            show_board(board, out)
        if seeded:
            out.print(Text("rows of several seeds; `ragmeter table` shows each", style="dim"))
        show_beside(result)
        for fought in battles:
            show_battles(fought, out, {row.method for row in chosen if row.kind == "control"})
    value = {
        "experiment": experiment.name,
        "boards": [board.to_json() for board in result],
        "battles": [fought.to_json() for fought in battles],
        "published": beside_json(result),
    }
    return _conclude(outcomes, len(experiment.benchmarks) * len(experiment.methods), verbose), value


def _conclude(outcomes: list[Outcome], planned: int, verbose: bool) -> int:
    broken = [outcome for outcome in outcomes if outcome.status == FAILED_RUN]
    if not broken:
        return 0
    err.print(Text(f"{len(broken)} of {planned} tasks failed; what they finished is kept", style="bold red"))
    for outcome in broken:
        error = outcome.error
        lines = error.lines() if isinstance(error, UserError) else [f"{type(error).__name__}: {error}"]
        err.print(Text(f"{outcome.task.method.name} on {outcome.task.run.dataset}: " + "\n".join(lines)))
        if verbose and error is not None and not isinstance(error, UserError):
            import traceback

            err.print(Text("".join(traceback.format_exception(error))))
    # Also where a user's mistake broke it: it had begun, and 2 says that nothing was spent.
    return Broke.exit_code
