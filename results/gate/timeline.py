"""Put the runs of a method into their order in time: its revisions or checkpoints, with tags, anchors and the gate's decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from results.boards.names import base_name
from results.gate.history import Decided, history
from results.store import checkpoints
from results.store.checkpoints import Checkpoint
from results.store.queries import RunRow
from results.store.store import Store, token_of


class Line(NamedTuple):
    """Subject of a timeline: a method without its seed, on one benchmark in one setting.

    The data's fingerprint is not part of it: changed questions are a point of the timeline, which names them.
    """

    method: str
    dataset: str
    setting: str


@dataclass(frozen=True, slots=True)
class Point:
    """A run on a timeline.

    Attributes:
        number: From 1, in the order in which the runs were started.
        run: The run.
        revision: Its distinguishing mark: its stated revision, its checkpoint, or its execution.
        changed_data: Whether its questions or gold are not those of the run before it, so that its value is not comparable.
        tags: Names of tags that point to it or to its checkpoint.
        anchors: Names of baselines whose losses are measured from it.
        decided: The gate's decisions about it as candidate, newest first, on all metrics.
    """

    number: int
    run: RunRow
    revision: str
    changed_data: bool
    tags: tuple[str, ...]
    anchors: tuple[str, ...]
    decided: tuple[Decided, ...]


def timelines(store: Store, runs: Sequence[RunRow]) -> dict[Line, list[Point]]:
    """Return the timelines of runs: those with decisions first, then the longest.

    Args:
        store: The store of checkpoints, tags, anchors and decisions.
        runs: Of one method; controls are left out.
    """
    groups: dict[Line, dict[str, RunRow]] = {}
    for run in sorted(runs, key=lambda run: (run.started_at, run.run)):
        if run.kind != "control":
            groups.setdefault(Line(base_name(run.method), run.dataset, run.setting), {}).setdefault(run.run, run)
    made = checkpoints.checkpoints(store)
    tags = checkpoints.tags(store)
    pinned: dict[str, list[str]] = {}
    for name, run_id in store.database.rows("SELECT DISTINCT name, run FROM anchors ORDER BY name", lenient=True):
        pinned.setdefault(run_id, []).append(name)
    decided: dict[str, list[Decided]] = {}
    for item in history(store):
        decided.setdefault(item.candidate, []).append(item)
    results: dict[Line, list[Point]] = {}
    for line, rows in groups.items():
        before: RunRow | None = None
        for number, run in enumerate(rows.values(), 1):
            used = [item for item in made if checkpoints.made_with(run, item.sha256)]
            named = [tag.name for tag in tags if tag.run == run.run or tag.checkpoint in {item.sha256 for item in used}]
            point = Point(
                number,
                run,
                _revision(run, used),
                before is not None and before.dataset_fingerprint != run.dataset_fingerprint,
                tuple(named),
                tuple(pinned.get(run.run, ())),
                tuple(decided.get(run.run, ())),
            )
            results.setdefault(line, []).append(point)
            before = run
    order = sorted(results, key=lambda line: (not any(point.decided for point in results[line]), -len(results[line])))
    return {line: results[line] for line in order}


def worth_showing(points: Sequence[Point]) -> bool:
    """Return whether a timeline says more than its only run does."""
    return len(points) > 1 or any(point.decided or point.anchors or point.tags for point in points)


def _revision(run: RunRow, used: Sequence[Checkpoint]) -> str:
    stated = run.description.get("revision")
    if isinstance(stated, str) and stated:
        return stated
    if used:
        return ", ".join(f"{item.stage} {item.sha256[:8]}" for item in used)
    return f"execution {run.execution}" if token_of(run.run) else run.short


def outcome_of(decisions: Sequence[Decided], metric: str | None = None) -> Decided | None:
    """Return the newest decision on a metric; None: on any metric."""
    return next((item for item in decisions if metric in (None, item.metric)), None)
