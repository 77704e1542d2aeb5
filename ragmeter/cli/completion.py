"""Names that the Tab key offers, from the registries and the store; Typer handles the shells.

Each public function completes a word of one kind; declarations of arguments and options name it. The user waits for the
answer. So ids are read from the source of our modules instead of by importing them, unless other packages register too,
and a store is only read if nobody is writing to it at this moment.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from ragmeter.experiments import shipped_files
from results import store_folder

Complete = Callable[[typer.Context, str], list[str]]

_REGISTRIES = {
    "dataset": ("benchmarks", "register", "benchmarks.registry", "DATASETS"),
    "method": ("methods", "register", "methods.registry", "METHODS"),
    "training": ("methods", "register_training", "methods.training", "TRAININGS"),
    "explainer": ("methods", "register_explainer", "methods.registry", "EXPLAINERS"),
    "metric": ("judges", "register", "judges.metric", "METRICS"),
    "judge": ("judges", "register_judge", "judges.judge", "JUDGES"),
}
"""Registries by kind: package, decorator, and location."""


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _quietly(complete: Complete) -> Complete:
    """Return no suggestions if a completion raises, because a traceback within a command line does not help."""

    @wraps(complete)
    def offered(ctx: typer.Context, incomplete: str) -> list[str]:
        with suppress(Exception):
            return complete(ctx, incomplete)
        return []

    return offered


def _offer(source: Callable[[typer.Context], Iterable[str]]) -> Complete:
    """Complete the names of a source."""
    return _quietly(lambda ctx, incomplete: _beginning(incomplete, source(ctx)))


def offer_words(*names: str) -> Complete:
    """Return a shell-completion function that offers these words."""
    return _offer(lambda ctx: names)


@cache
def _read_ids(noun: str) -> dict[str, str]:
    from benchmarks.core.plugins import written_ids

    return written_ids(*_REGISTRIES[noun][:2])


def _registry(noun: str) -> Any:
    module, name = _REGISTRIES[noun][2:]
    return getattr(import_module(module), name)


def ids(noun: str) -> list[str]:
    """List all registered ids of a kind, for shell completion."""
    from benchmarks.core.plugins import has_plugins

    if has_plugins(f"ragmeter.{_REGISTRIES[noun][0]}"):
        return [entry.id for entry in _registry(noun)]
    return sorted(_read_ids(noun))


def _entry(noun: str, identifier: str) -> Any:
    return _registry(noun).get(identifier)


def _registered(noun: str) -> Complete:
    return _offer(lambda ctx: ids(noun))


datasets, methods, trainings = _registered("dataset"), _registered("method"), _registered("training")
explainers, metrics, judges = _registered("explainer"), _registered("metric"), _registered("judge")


@_quietly
def references(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a data reference `name[/subset][:split]` part by part: splits are offered once the dataset is complete.

    Several splits can be joined, as in `webqsp:train+validation`.
    """
    whole, colon, splits = incomplete.partition(":")
    name, slash, _ = whole.partition("/")
    if not slash and not colon:
        names = _beginning(incomplete, ids("dataset"))
        if len(names) != 1:
            return names
        entry = _entry("dataset", names[0])
        return [entry.id, *(f"{entry.id}/{subset}" for subset in entry.subsets), *_splits(entry, entry.id)]
    entry = _entry("dataset", name)
    if colon:
        *chosen, last = splits.split("+")
        prefix = "".join(f"{item}+" for item in chosen)
        known = [split.rpartition(":")[2] for split in _splits(entry, whole)]
        return [f"{whole}:{prefix}{item}" for item in _beginning(last, known) if item not in chosen]
    subsets = _beginning(whole, [f"{name}/{subset}" for subset in entry.subsets])
    return subsets + (_splits(entry, subsets[0]) if len(subsets) == 1 else [])


def _splits(entry: Any, whole: str) -> list[str]:
    subset = whole.partition("/")[2] or next(iter(entry.subsets), None)
    return [f"{whole}:{split}" for split in entry.card.splits_of(subset)]


def _before(ctx: typer.Context, argument: str) -> str:
    """Return the first argument of the command; an option without a value keeps the parser from finding it."""
    return str(ctx.params.get(argument) or ctx.args[0])


# Of the training that is before.
presets = _offer(lambda ctx: _entry("training", _before(ctx, "name")).presets)
stages = _offer(lambda ctx: _entry("training", _before(ctx, "name")).stages)


@_quietly
def experiments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete an experiment: shipped ones and YAML files; with --resume, those in the store."""
    if ctx.params.get("resume"):
        return stored_experiments(ctx, incomplete)
    files = [file for end in (".yaml", ".yml") for file in sorted(glob.glob(f"{glob.escape(incomplete)}*{end}"))]
    return [*_beginning(incomplete, (name for name, _ in shipped_files())), *files]


def _profiles(ctx: typer.Context) -> Iterable[str]:
    import yaml

    named = _before(ctx, "experiment")
    file = Path(named)
    text = (file if file.is_file() else dict(shipped_files())[named]).read_text("utf-8-sig")
    return yaml.safe_load(text).get("profiles", ())


profiles = _offer(_profiles)


def _stored(ctx: typer.Context, query: str) -> list[Any]:
    """Return rows of the store in the command line; none if there is no store, or it is constantly being written to."""
    import duckdb

    from results.store.database import FILE
    from results.store.faults import busy
    from results.store.shared_connection import WANTED

    path = store_folder(ctx.params.get("store")) / FILE
    # Not by `results.store.store.Store`, which waits for its turn: the user has pressed Tab.
    for _ in range(25 if path.is_file() else 0):
        try:
            with closing(duckdb.connect(str(path), read_only=True)) as connection:
                return connection.execute(query).fetchall()
        except duckdb.Error as error:
            if not busy(error):
                break
        with suppress(OSError):
            path.with_name(WANTED).touch()
        time.sleep(0.02)
    return []


_RUNS = """
SELECT coalesce(m.experiment, '-'), coalesce(m.method, r.method), r.dataset, r.setting, r.seed, r.run
FROM runs r LEFT JOIN experiment_runs m USING (run) ORDER BY m.experiment NULLS LAST, m.position, r.started_at
"""


def _column(query: str) -> Complete:
    return _offer(lambda ctx: (str(row[0]) for row in _stored(ctx, query)))


stored_experiments = _column("SELECT name FROM experiments ORDER BY updated_at DESC")
stored_judges = _column("SELECT DISTINCT judge FROM judges ORDER BY judge")
stored_methods = _column(
    "SELECT DISTINCT coalesce(m.method, r.method) AS method FROM runs r LEFT JOIN experiment_runs m USING (run) ORDER BY method"
)
tagged = _column("SELECT name FROM tags ORDER BY name")
_scored = _column("SELECT DISTINCT regexp_extract(metric, '^[^(#]+') AS name FROM summaries ORDER BY name")


@_quietly
def stored_metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a metric that stored answers were scored on; if nothing is stored, any metric."""
    return _scored(ctx, incomplete) or metrics(ctx, incomplete)


@_quietly
def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a run: a tag or a path; if none matches, the rest of a path or a fingerprint."""
    rows = [tuple(map(str, row)) for row in _stored(ctx, _RUNS)]
    result = tagged(ctx, incomplete) + _beginning(incomplete, ("/".join(row[:5]) for row in rows))
    return result or _beginning(incomplete, [*("/".join(row[1:5]) for row in rows), *(row[5] for row in rows)])


@_quietly
def checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a checkpoint of the store: a tag, a folder's name, or the beginning of its hash."""
    rows = _stored(ctx, "SELECT path, sha256 FROM checkpoints ORDER BY added_at DESC")
    folders = _beginning(incomplete, (Path(path).name for path, _ in rows))
    return tagged(ctx, incomplete) + (folders or _beginning(incomplete, (sha256 for _, sha256 in rows if incomplete)))


@_quietly
def runs_or_checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a tag's target: a run or a checkpoint."""
    return list(dict.fromkeys([*runs(ctx, incomplete), *checkpoints(ctx, incomplete)]))
