"""Blessed names, and what a RUN or CHECKPOINT argument means.

A blessed name points to a run or to a checkpoint: `main`, the baseline that candidates are held against. It can be
moved, and it goes before everything else that the same text might mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.errors import UserError, nearest, unknown_name
from results import queries
from results.checkpoints import Checkpoint, checkpoints, matching, runs_with
from results.database import now
from results.queries import RunRow
from results.store import FINISHED, Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Blessing:
    """A name for a run or a checkpoint; exactly one of `run` and `checkpoint` is set."""

    name: str
    run: str | None
    checkpoint: str | None
    note: str | None
    blessed_at: datetime


def bless(store: Store, name: str, target: RunRow | Checkpoint, note: str | None = None) -> Blessing | None:
    """Give a run or a checkpoint a name; a name that exists moves.

    Returns:
        What the name pointed to before.

    Raises:
        UserError: The name cannot be one, the run is unfinished or a control.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be a blessed name",
            try_this="up to 100 letters, digits and . _ + -, beginning with a letter or digit: main, ark-best",
        )
    if isinstance(target, RunRow):
        if target.kind == "control":
            raise UserError(f"{target.method} is a control and no baseline", where=target.path)
        if target.status != FINISHED:
            raise UserError(f"this run is {target.status}, not finished", where=target.path, try_this="ragmeter resume")
    before = blessing(store, name)
    run, checkpoint = (target.run, None) if isinstance(target, RunRow) else (None, target.sha256)
    with store.database.writing() as connection:
        connection.execute("DELETE FROM blessings WHERE name = ?", [name])
        connection.execute("INSERT INTO blessings VALUES (?, ?, ?, ?, ?)", [name, run, checkpoint, note, now()])
    return before


def unbless(store: Store, name: str) -> Blessing:
    """Take a name away; what it pointed to stays.

    Raises:
        UserError: There is no such name.
    """
    before = blessing(store, name)
    if before is None:
        raise unknown_name("blessed name", name, [one.name for one in blessings(store)])
    with store.database.writing() as connection:
        connection.execute("DELETE FROM blessings WHERE name = ?", [name])
    return before


def blessings(store: Store) -> list[Blessing]:
    """Blessed names in their order; none where there is no store yet."""
    if not store.database.exists:
        return []
    with store.database.reading() as connection:
        rows = connection.execute("SELECT name, run, checkpoint, note, blessed_at FROM blessings ORDER BY name").fetchall()
    return [Blessing(*row) for row in rows]


def blessing(store: Store, name: str) -> Blessing | None:
    """What a name is blessed to, None where it is not."""
    return next((one for one in blessings(store) if one.name == name), None)


# -- what an argument means ----------------------------------------------------------------------------------------


def resolve(store: Store, text: str) -> RunRow | Checkpoint:
    """The run or checkpoint that an argument means: a blessed name first, then whatever else it fits.

    A run is meant by its fingerprint's beginning or its path, a checkpoint by its hash's beginning, its folder or its
    folder's name.

    Raises:
        UserError: Nothing, or more than one thing, is meant; a blessed name points to what is gone.
    """
    name = blessing(store, text)
    if name is not None:
        return _blessed(store, name)
    found = matching(store, text)
    try:
        run = queries.find_run(store, text)
    except UserError as error:
        if not error.what.startswith("unknown "):
            raise
        if not found:
            named = [*(one.name for one in blessings(store)), *(one.name for one in checkpoints(store))]
            noun, every = "run, checkpoint or blessed name", queries.runs(store)
            raise queries.unknown_run(store, noun, text, _names(store, text), every, named) from None
        if len(found) > 1:
            raise _ambiguous(text, [], found) from None
        return found[0]
    if found:
        raise _ambiguous(text, [run], found)
    return run


def find_checkpoint(store: Store, text: str) -> Checkpoint:
    """The checkpoint that a blessed name, a hash's beginning, a folder or a folder's name means.

    Raises:
        UserError: None, or more than one, is meant; or the name is blessed to a run.
    """
    name = blessing(store, text)
    if name is not None:
        target = _blessed(store, name)
        if isinstance(target, Checkpoint):
            return target
        raise UserError(f"{text!r} is the blessed name of a run, not of a checkpoint", try_this=f"ragmeter show {text}")
    found = matching(store, text)
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(text, [], found)
    raise unknown_name("checkpoint", text, [name for one in checkpoints(store) for name in (one.name, one.sha256)])


def find_run(store: Store, text: str) -> RunRow:
    """The run that an argument means; of a checkpoint, the newest finished one made with it.

    Raises:
        UserError: As `resolve` and `run_of`.
    """
    return run_of(store, resolve(store, text))


def run_of(store: Store, target: RunRow | Checkpoint, like: RunRow | None = None) -> RunRow:
    """A run as it is; of a checkpoint, the newest finished run made with it.

    Args:
        store: Where to read.
        target: As `resolve` gives it.
        like: The run that it will be compared with: dataset, setting and seed must be the same.

    Raises:
        UserError: No such run is stored, or, without `like`, runs on more than one benchmark are.
    """
    if isinstance(target, RunRow):
        return target
    made = [run for run in runs_with(store, target) if run.status == FINISHED and run.kind != "control"]
    if like is not None:
        fits = [run for run in made if _benchmark(run) == _benchmark(like)]
        if not fits:
            elsewhere = ", ".join(sorted({f"{run.dataset} in {run.setting}, seed {run.seed}" for run in made}))
            raise UserError(
                f"no finished run was made with checkpoint {target.name} ({target.sha256[:12]}) on {like.dataset} in "
                f"{like.setting} with seed {like.seed}",
                where=f"finished elsewhere: {elsewhere}" if elsewhere else None,
                try_this=f"ragmeter run an experiment whose method loads {target.path}, on the same benchmark and limit",
            )
        made = fits
    if not made:
        raise UserError(
            f"no finished run was made with checkpoint {target.name} ({target.sha256[:12]})",
            try_this=f"ragmeter run an experiment whose method loads {target.path}",
        )
    if len({_benchmark(run) for run in made}) > 1:
        listed = ", ".join(f"{run.run[:8]} ({run.path})" for run in made[:5])
        raise UserError(f"checkpoint {target.name} has runs on several benchmarks", try_this=f"name one: {listed}")
    return made[0]


def _blessed(store: Store, name: Blessing) -> RunRow | Checkpoint:
    if name.checkpoint is not None:
        found = [one for one in checkpoints(store) if one.sha256 == name.checkpoint]
        if found:
            return found[0]
    else:
        row = next((run for run in queries.runs(store) if run.run == name.run), None)
        if row is not None:
            return row
    gone = f"checkpoint {name.checkpoint}" if name.checkpoint else f"run {name.run}"
    raise UserError(
        f"{name.name!r} is blessed to {gone}, which the store does not hold any more",
        try_this=f"ragmeter bless {name.name} RUN, or ragmeter bless {name.name} --remove",
    )


def _benchmark(run: RunRow) -> tuple[str, str, int]:
    return run.dataset_fingerprint, run.setting, run.seed


def _names(store: Store, text: str) -> list[str]:
    """What may have been meant: hashes where the text is nearly one, otherwise names, which tell people more."""
    runs, trained = queries.runs(store), checkpoints(store)
    hashes = [*(run.run for run in runs), *(one.sha256 for one in trained)]
    if re.fullmatch("[0-9a-f]{4,}", text) and nearest(text, hashes):
        return hashes
    return [*(one.name for one in blessings(store)), *(run.path for run in runs), *(one.name for one in trained)]


def _ambiguous(text: str, runs: Sequence[RunRow], found: Sequence[Checkpoint]) -> UserError:
    listed = [f"run {run.run[:12]} ({run.path})" for run in runs]
    listed += [f"checkpoint {one.sha256[:12]} ({one.path})" for one in found[:5]]
    return UserError(f"{text!r} means {len(runs) + len(found)} things", try_this=f"name one: {', '.join(listed)}")
