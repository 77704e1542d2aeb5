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
from results.store.tags import all_tags


class Line(NamedTuple):
    """Key of a timeline: a method (without its seed) on one benchmark in one setting.

    The data's fingerprint is not part of the key: a run on changed questions is a marked point on the same timeline.
    """

    method: str
    dataset: str
    setting: str


@dataclass(frozen=True, slots=True)
class Point:
    """Run on a timeline, with its tags and gate decisions.

    Attributes:
        number: Position from 1, in the order in which the runs were started.
        run: The run.
        revision: Label of its version: the stated revision, else the checkpoint, else the execution.
        changed_data: Whether its questions or gold differ from those of the previous run, which makes the scores incomparable.
        tags: Tags of the run or of its checkpoint.
        anchors: Names of the baselines whose anchor it is.
        decided: Gate decisions with it as candidate, newest first, on all metrics.
    """

    number: int
    run: RunRow
    revision: str
    changed_data: bool
    tags: tuple[str, ...]
    anchors: tuple[str, ...]
    decided: tuple[Decided, ...]


def timelines(store: Store, runs: Sequence[RunRow]) -> dict[Line, list[Point]]:
    """Group runs into timelines, sorted: timelines with gate decisions first, then the longest.

    Args:
        store: The store that holds checkpoints, tags, anchors and decisions.
        runs: Runs of one method; controls are left out.
    """
    groups: dict[Line, dict[str, RunRow]] = {}
    for run in sorted(runs, key=lambda run: (run.started_at, run.run)):
        if run.kind != "control":
            groups.setdefault(Line(base_name(run.method), run.dataset, run.setting), {}).setdefault(run.run, run)
    made = checkpoints.checkpoints(store)
    tags = all_tags(store)
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
    """Return whether a timeline has more than one run, or a run with a tag, anchor or decision."""
    return len(points) > 1 or any(point.decided or point.anchors or point.tags for point in points)


def _revision(run: RunRow, used: Sequence[Checkpoint]) -> str:
    revision = run.description.get("revision")
    if isinstance(revision, str) and revision:
        return revision
    if used:
        return ", ".join(f"{item.stage} {item.sha256[:8]}" for item in used)
    return f"execution {run.execution}" if token_of(run.run) else run.short


def outcome_of(decisions: Sequence[Decided], metric: str | None = None) -> Decided | None:
    """Return the newest decision on a metric (None: on any metric); None if there is none."""
    return next((item for item in decisions if metric in (None, item.metric)), None)
