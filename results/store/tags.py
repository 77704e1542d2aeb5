"""Tags, and the resolution of RUN and CHECKPOINT arguments.

A tag points to a run or to a checkpoint: `main`, the baseline that candidates are compared with. It can be moved, and it takes
precedence over all other matches of the same text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.core.errors import UserError, nearest, unknown_name
from results.store import queries
from results.store.checkpoints import Checkpoint, checkpoints, matching, runs_with
from results.store.queries import RunRow
from results.store.schema import now
from results.store.store import FINISHED, Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Tag:
    """User-defined name for a run or a checkpoint; exactly one of `run` and `checkpoint` is set."""

    name: str
    run: str | None
    checkpoint: str | None
    note: str | None
    tagged_at: datetime


def tag_run(store: Store, name: str, target: RunRow | Checkpoint, note: str | None = None) -> Tag | None:
    """Give a run or a checkpoint a name; an existing name is moved to the new target.

    Returns:
        The tag with its previous target; None if the name is new.

    Raises:
        UserError: The name is not a valid tag, or the run is unfinished or a control.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be a tag",
            code="bad-tag",
            try_this="up to 100 letters, digits and . _ + -, beginning with a letter or digit: main, ark-best",
        )
    if isinstance(target, RunRow):
        if target.kind == "control":
            raise UserError(f"{target.method} is a control, which cannot be a baseline", code="control-as-baseline", where=target.path)
        if target.status != FINISHED:
            raise UserError(
                f"this run is {target.status}, not finished", code="run-not-finished", where=target.path, try_this="ragmeter run --resume"
            )
    before = tag_named(store, name)
    run, checkpoint = (target.run, None) if isinstance(target, RunRow) else (None, target.sha256)
    with store.database.writing() as connection:
        connection.execute("DELETE FROM tags WHERE name = ?", [name])
        connection.execute("INSERT INTO tags VALUES (?, ?, ?, ?, ?)", [name, run, checkpoint, note, now()])
    return before


def untag(store: Store, name: str) -> Tag:
    """Remove a tag and return it; its target stays in the store.

    Raises:
        UserError: No tag has this name.
    """
    before = tag_named(store, name)
    if before is None:
        raise unknown_name("tag", name, [item.name for item in all_tags(store)])
    with store.database.writing() as connection:
        connection.execute("DELETE FROM tags WHERE name = ?", [name])
    return before


def all_tags(store: Store) -> list[Tag]:
    """List all tags by name; empty if there is no store yet."""
    rows = store.database.rows("SELECT name, run, checkpoint, note, tagged_at FROM tags ORDER BY name", lenient=True)
    return [Tag(*row) for row in rows]


def tag_named(store: Store, name: str) -> Tag | None:
    """Find a tag by its name; None if there is none."""
    return next((item for item in all_tags(store) if item.name == name), None)


def resolve(store: Store, text: str) -> RunRow | Checkpoint:
    """Find the run or checkpoint that a command-line argument names; tags take precedence.

    A run can be named by the beginning of its fingerprint or by its path; a checkpoint by the beginning of its hash, its folder
    or the folder's name.

    Raises:
        UserError: The argument matches nothing or several things, or a tag points to something that was deleted.
    """
    name = tag_named(store, text)
    if name is not None:
        return _tagged(store, name)
    results = matching(store, text)
    try:
        run = queries.find_run(store, text)
    except UserError as error:
        if not error.what.startswith("unknown "):
            raise
        if not results:
            named = [*(item.name for item in all_tags(store)), *(checkpoint.name for checkpoint in checkpoints(store))]
            noun, every = "run, checkpoint or tag", queries.runs(store, hidden=True)
            raise queries.unknown_run(store, noun, text, _names(store, text), every, named) from None
        if len(results) > 1:
            raise _ambiguous(text, [], results) from None
        return results[0]
    if results:
        raise _ambiguous(text, [run], results)
    return run


def find_checkpoint(store: Store, text: str) -> Checkpoint:
    """Find a checkpoint by a tag, the beginning of its hash, a folder or the folder's name.

    Raises:
        UserError: The argument matches no checkpoint or several, or the tag names a run.
    """
    name = tag_named(store, text)
    if name is not None:
        target = _tagged(store, name)
        if isinstance(target, Checkpoint):
            return target
        raise UserError(f"{text!r} is the tag of a run, not of a checkpoint", code="tag-of-run", try_this=f"ragmeter results show {text}")
    results = matching(store, text)
    if len(results) == 1:
        return results[0]
    if results:
        raise _ambiguous(text, [], results)
    raise unknown_name("checkpoint", text, [name for checkpoint in checkpoints(store) for name in (checkpoint.name, checkpoint.sha256)])


def find_run(store: Store, text: str) -> RunRow:
    """Find the run that a command-line argument names; for a checkpoint, the newest finished run that uses it.

    Raises:
        UserError: As for `resolve` and `run_of`.
    """
    return run_of(store, resolve(store, text))


def run_of(store: Store, target: RunRow | Checkpoint, like: RunRow | None = None) -> RunRow:
    """Return the target itself if it is a run; for a checkpoint, the newest finished run that uses it.

    Args:
        store: The store to read.
        target: A run or checkpoint, as returned by `resolve`.
        like: A run to compare with; only runs with the same dataset, setting and seed are considered.

    Raises:
        UserError: There is no such run, or, without `like`, there are runs on several benchmarks.
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
                code="no-run-of-checkpoint",
                where=f"finished elsewhere: {elsewhere}" if elsewhere else None,
                try_this=f"ragmeter run an experiment whose method loads {target.path}, on the same benchmark and limit",
            )
        made = fits
    if not made:
        raise UserError(
            f"no finished run was made with checkpoint {target.name} ({target.sha256[:12]})",
            code="no-run-of-checkpoint",
            try_this=f"ragmeter run an experiment whose method loads {target.path}",
        )
    if len({_benchmark(run) for run in made}) > 1:
        listed = ", ".join(f"{run.short} ({run.path})" for run in made[:5])
        raise UserError(
            f"checkpoint {target.name} has runs on several benchmarks",
            code="checkpoint-on-several-benchmarks",
            try_this=f"name one: {listed}",
        )
    return made[0]


def _tagged(store: Store, name: Tag) -> RunRow | Checkpoint:
    if name.checkpoint is not None:
        results = [checkpoint for checkpoint in checkpoints(store) if checkpoint.sha256 == name.checkpoint]
        if results:
            return results[0]
    else:
        row = next((run for run in queries.runs(store, hidden=True) if run.run == name.run), None)
        if row is not None:
            return row
    gone = f"checkpoint {name.checkpoint}" if name.checkpoint else f"run {name.run}"
    raise UserError(
        f"{name.name!r} is the tag of {gone}, which the store does not hold any more",
        code="dangling-tag",
        try_this=f"ragmeter results tag {name.name} RUN, or ragmeter results tag {name.name} --remove",
    )


def _benchmark(run: RunRow) -> tuple[str, str, int]:
    return run.dataset_fingerprint, run.setting, run.seed


def _names(store: Store, text: str) -> list[str]:
    """Suggest similar hashes if the text resembles one, else names of checkpoints."""
    runs, trained = queries.runs(store, hidden=True), checkpoints(store)
    hashes = [*(run.run for run in runs), *(item.sha256 for item in trained)]
    if re.fullmatch("[0-9a-f]{4,}", text) and nearest(text, hashes):
        return hashes
    return [*(item.name for item in all_tags(store)), *(run.path for run in runs), *(item.name for item in trained)]


def _ambiguous(text: str, runs: Sequence[RunRow], results: Sequence[Checkpoint]) -> UserError:
    listed = [f"run {run.run[:12]} ({run.path})" for run in runs]
    listed += [f"checkpoint {item.sha256[:12]} ({item.path})" for item in results[:5]]
    return UserError(f"{text!r} means {len(runs) + len(results)} things", code="ambiguous-name", try_this=f"name one: {', '.join(listed)}")
