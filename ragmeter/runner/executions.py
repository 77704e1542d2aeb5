"""Which execution of a task an experiment continues, shows again or begins.

A finished run never changes. An experiment keeps the executions that it shows; a task that is new to it shares the
newest finished one. `--fresh` begins another next to them, and `--retry-failed` another with the answers that did
not fail. So the tables, tags and judgments of everybody else stay as they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from ragmeter.runner.tasks import Task
from results.store.store import TOKEN, Execution, Store, fingerprint_of, token_of


def choose(
    tasks: Sequence[Task], store: Store, *, fresh: bool = False, reuse_replies: bool = False, retry_failed: bool = False
) -> list[Task]:
    """Return tasks as the executions that an experiment's next run continues, shows or begins.

    Args:
        tasks: The experiment's tasks.
        store: What has been executed.
        fresh: Begin a new execution of every task.
        reuse_replies: A new execution may use cached replies of models.
        retry_failed: Begin a new execution of finished runs in which questions failed; with the answers that did not.
    """
    token = secrets.token_hex(TOKEN // 2)
    known = store.executions([task.fingerprint for task in tasks])
    names = {task.experiment for task in tasks}
    mine = {fingerprint_of(run): run for name in names for run in store.runs_of(name)}
    results = []
    for task in tasks:
        stored = known.get(task.fingerprint, [])
        current = _current(stored, mine.get(task.fingerprint))
        if fresh:
            results.append(task.execution(token if stored else "", "" if reuse_replies else token))
        elif current is None:
            results.append(task.execution("", ""))
        elif retry_failed and current.finished and current.failed:
            renewed = task.execution(token, current.replies)
            store.begin_as(renewed.run, current.run)
            results.append(renewed)
        else:
            results.append(task.execution(token_of(current.run), current.replies))
    return results


def _current(stored: Sequence[Execution], mine: str | None) -> Execution | None:
    """Return the execution that an experiment shows, else the newest finished one, else the newest."""
    own = next((execution for execution in stored if execution.run == mine), None)
    return own or max(stored, key=lambda execution: (execution.finished, execution.started_at), default=None)
