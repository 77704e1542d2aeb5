"""List changes since the run that an experiment's row showed before: code, options, weights, revision, data.

A row of an experiment is a method's name on one dataset, in one setting, with one seed. If it gets another fingerprint, its
questions are asked again; these lines give the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from benchmarks.core.code import shortened
from benchmarks.core.errors import counted
from results.store import queries
from results.store.doubts import unknown_code
from results.store.queries import RunRow
from results.store.store import Store

_LISTED = 5
_NAMED = ("method", "reader", "compressor")
_ROLES = {"rerankers": "reranker"}


class Made(Protocol):
    """Fields of a run, stored or planned, that `changes` compares."""

    @property
    def run(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def dataset(self) -> str: ...
    @property
    def dataset_fingerprint(self) -> str: ...
    @property
    def setting(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def questions(self) -> int: ...
    @property
    def description(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between a run and an earlier run of the same table row.

    Attributes:
        what: The subject, for example "`acme` changed" or "k of `bm25` changed".
        details: How it changed: old and new value, or file names.
        since: When the earlier run was started, UTC.
    """

    what: str
    details: str
    since: datetime

    def __str__(self) -> str:
        """Return the whole line: "`acme` changed since the run of 2026-11-27 10:12 (2 files: app.py, templates/ask.txt)"."""
        return f"{self.what} since the run of {self.since:%Y-%m-%d %H:%M}" + (f" ({self.details})" if self.details else "")


def changes(before: Made, now: Made, since: datetime) -> list[Change]:
    """List the differences between a run and an earlier run of the same table row.

    Args:
        before: The earlier run.
        now: The new one.
        since: When the earlier one was started.

    Returns:
        Changes, code changes first; empty if both runs have the same fingerprint.
    """
    if _fingerprint(before) == _fingerprint(now):
        return []
    lines = [*_code(before, now), *_data(before, now), *_parts(before, now)]
    if not lines:
        lines = [(f"`{now.method}` on {now.dataset} is another run", "ragmeter results compare shows the differences")]
    return [Change(what, details, since) for what, details in lines]


def previous(now: Made, rows: Iterable[RunRow]) -> RunRow | None:
    """Find the newest earlier run of the same row that has another fingerprint; None if there is none or the row is unchanged."""
    same = [row for row in rows if _row(row) == _row(now)]
    if any(_fingerprint(row) == _fingerprint(now) for row in same):
        return None
    return max(same, key=lambda row: row.started_at, default=None)


def since_last(store: Store, experiment: str, runs: Sequence[Made]) -> list[str]:
    """Report what changed since an experiment was last run, and which code cannot be compared.

    Call it before the experiment's new runs are written to the store.

    Args:
        store: The store to read.
        experiment: Name of the experiment.
        runs: The runs that are about to start.

    Returns:
        One line per change; a change that affects several benchmarks is listed once.
    """
    shown = store.database.rows("SELECT run, method FROM experiment_runs WHERE experiment = ?", [experiment], lenient=True)
    # Reading whole runs takes longer than all else here, and a rerun changes nothing.
    unchanged = {(now.run, now.method) for now in runs} <= {*shown}
    rows = queries.runs(store, experiment) if shown and not unchanged else []
    results: dict[tuple[str, str], Change] = {}
    notes: dict[str, None] = {}
    for now in runs:
        notes |= dict.fromkeys(unknown_code(now.provenance))
        before = previous(now, rows)
        if before is None:
            continue
        for change in changes(before, now, before.started_at):
            key = change.what, change.details
            if key not in results or results[key].since < change.since:
                results[key] = change
    return [*map(str, results.values()), *notes]


def _row(run: Made) -> tuple[str, str, str, int]:
    return run.method, run.dataset, run.setting, run.seed


def _fingerprint(run: Made) -> str:
    """Return a run's id without the token of its execution."""
    return run.run.partition(".")[0]


def _code(before: Made, now: Made) -> Iterator[tuple[str, str]]:
    old, new = before.provenance.get("code", {}), now.provenance.get("code", {})
    for name, code in new.items():
        if name.startswith("metric ") or code["identity"] != "code" or name not in old or old[name]["hash"] == code["hash"]:
            continue  # metrics are not part of a run; a part that is new, or versioned by hand, is described as such
        yield f"`{name.partition(' ')[2]}` changed", "" if code.get("unknown") else files_changed(old[name]["files"], code["files"])


def files_changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Summarize which of two sets of file hashes differ, for example "2 files: app.py, templates/ask.txt"."""
    every = sorted({**before, **now})
    short = dict(zip(every, shortened(every), strict=True))
    marks = {name: " (new)" if name not in before else " (removed)" if name not in now else "" for name in every}
    differ = [f"{short[name]}{marks[name]}" for name in every if before.get(name) != now.get(name)]
    more = f" and {len(differ) - _LISTED} more" if len(differ) > _LISTED else ""
    return f"{counted(len(differ), 'file')}: {', '.join(differ[:_LISTED])}{more}"


def _data(before: Made, now: Made) -> Iterator[tuple[str, str]]:
    if before.dataset_fingerprint == now.dataset_fingerprint:
        return
    fewer = f"{before.questions:,} → {counted(now.questions, 'question')}" if before.questions != now.questions else ""
    key = f"dataset {now.dataset.partition('/')[0].partition(':')[0]}"
    codes = [made.provenance.get("code", {}).get(key, {}).get("hash") for made in (before, now)]
    if fewer or codes[0] == codes[1]:
        yield f"the data of {now.dataset} changed", fewer


def _parts(before: Made, now: Made) -> Iterator[tuple[str, str]]:
    old, new = before.description, now.description
    for name in _NAMED:
        yield from _part(now.method, name, old.get(name), new.get(name))
    for name, role in _ROLES.items():
        lists = old.get(name) or [], new.get(name) or []
        for position in range(max(map(len, lists))):
            one, two = (items[position] if position < len(items) else None for items in lists)
            yield from _part(now.method, role, one, two)
    for name in dict.fromkeys((*old, *new)):
        if name not in (*_NAMED, *_ROLES) and old.get(name) != new.get(name):
            yield f"{name} of `{now.method}` changed", _to(old.get(name), new.get(name))


def _part(row: str, role: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Return the differences in one part of a method."""
    if old == new:
        return
    if not old or not new or old["id"] != new["id"]:
        yield f"the {role} of `{row}` changed", _to(old and old["id"], new and new["id"])
        return
    who = f"`{new['id']}`" if new["id"] == row else f"{role} `{new['id']}` of `{row}`"
    if old.get("version") != new.get("version"):
        yield f"the version of {who} changed", _to(old.get("version"), new.get("version"))
    from results.boards.diff import differing

    options = [f"{item.key} {_to(item.first, item.second)}" for item in differing(old.get("config") or {}, new.get("config") or {})]
    if options:
        more = f" and {len(options) - _LISTED} more" if len(options) > _LISTED else ""
        yield f"options of {who} changed", ", ".join(options[:_LISTED]) + more
    # Options name weights and prompts, and parts within a part are hashed with them.
    elif old.get("weights") != new.get("weights") and old.get("code") == new.get("code"):
        yield f"weights or prompts of {who} changed", ""
    if ("code" in old) != ("code" in new):
        yield f"the identity of {who} changed", "its code counts from now on" if "code" in new else "its code no longer counts"


def _to(old: Any, new: Any) -> str:
    return f"{_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
