"""What the Tab key offers: names, from where they are registered or stored; and how the offer reaches a shell.

Each public function completes a word of one kind; declarations of arguments and options name it. Somebody waits for each
of them, so ids are read from the source of our modules and not by importing them (unless other packages register, too),
and a store is read where there is one and nobody is writing to it at this moment.
"""

from __future__ import annotations

import glob
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from ragmeter.cli.errors import BROKE, FINE
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
"""By what is registered: the package, the decorator, and where the registry is."""


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _offer(source: Callable[[typer.Context], Iterable[str]]) -> Complete:
    """Completes one of the names of a source."""
    return lambda ctx, incomplete: _beginning(incomplete, source(ctx))


def words(*names: str) -> Complete:
    """Completes one of these words."""
    return _offer(lambda ctx: names)


@cache
def _written(noun: str) -> dict[str, str]:
    from benchmarks.core.plugins import written_ids

    return written_ids(*_REGISTRIES[noun][:2])


def _registry(noun: str) -> Any:
    module, name = _REGISTRIES[noun][2:]
    return getattr(import_module(module), name)


def ids(noun: str) -> list[str]:
    """Of everything of a kind that is registered."""
    from benchmarks.core.plugins import has_plugins

    if has_plugins(f"ragmeter.{_REGISTRIES[noun][0]}"):
        return [entry.id for entry in _registry(noun)]
    return sorted(_written(noun))


def _entry(noun: str, identifier: str) -> Any:
    """An entry; of our own ones its module alone is imported."""
    if module := _written(noun).get(identifier):
        import_module(module)
    return _registry(noun).get(identifier)


def _registered(noun: str) -> Complete:
    return _offer(lambda ctx: ids(noun))


datasets, methods, trainings = _registered("dataset"), _registered("method"), _registered("training")
explainers, metrics, judges = _registered("explainer"), _registered("metric"), _registered("judge")


def references(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes `name[/subset][:split]`, part after part: what comes next is offered once what it belongs to is clear.

    Several splits may be joined, as in `webqsp:train+validation`.
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
    """The first argument of the command; an option still without its value keeps the parser from taking it."""
    return str(ctx.params.get(argument) or ctx.args[0])


# Of the training that stands before.
presets = _offer(lambda ctx: _entry("training", _before(ctx, "name")).presets)
stages = _offer(lambda ctx: _entry("training", _before(ctx, "name")).stages)


def experiments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes experiments that can be run, those that ship and YAML files; with --resume, those of the store."""
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
    """Rows of the store that the command line names; none where there is no store, or somebody writes to it all the time."""
    import duckdb

    from results.store.database import FILE, WANTED, busy

    path = store_folder(ctx.params.get("store")) / FILE
    # Not by `results.Store`, which waits for its turn: somebody has pressed Tab.
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


def stored_metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes what stored answers were scored on, or where nothing is stored, any metric."""
    return _scored(ctx, incomplete) or metrics(ctx, incomplete)


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a run: a tag or a path; where neither begins so, the rest of a path or a fingerprint."""
    rows = [tuple(map(str, row)) for row in _stored(ctx, _RUNS)]
    result = tagged(ctx, incomplete) + _beginning(incomplete, ("/".join(row[:5]) for row in rows))
    return result or _beginning(incomplete, [*("/".join(row[1:5]) for row in rows), *(row[5] for row in rows)])


def checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a checkpoint of the store: a tag, a folder's name, or the beginning of its hash."""
    rows = _stored(ctx, "SELECT path, sha256 FROM checkpoints ORDER BY added_at DESC")
    folders = _beginning(incomplete, (Path(path).name for path, _ in rows))
    return tagged(ctx, incomplete) + (folders or _beginning(incomplete, (sha256 for _, sha256 in rows if incomplete)))


def runs_or_checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes what a tag may point to."""
    return list(dict.fromkeys([*runs(ctx, incomplete), *checkpoints(ctx, incomplete)]))


# -- How the offer reaches a shell --
# Typer speaks with the shells. Whatever goes wrong, nothing is offered: a traceback in the middle of somebody's command
# line helps nobody. And bash cuts a word such as `worlds/long:test` or `recall@5` into several before it asks, and puts the
# answer in the place of the last one.


_VARIABLE = "_RAGMETER_COMPLETE"
_BASH = "complete_bash"
_BREAKS = ":=@"
"""Where bash ends a word (`COMP_WORDBREAKS`), of what occurs in names of ours."""
_SPECIAL = re.compile(r"[^\w%+=:@,./~#-]")
"""What a shell does not take as part of a word unless it is quoted."""


def requested() -> bool:
    """Whether this process was started by a shell that completes a word."""
    return os.environ.get(_VARIABLE, "").startswith("complete_")


def answer(app: Any) -> int:
    """Print the words that a shell may offer, or nothing; returns the exit code."""
    in_bash = os.environ[_VARIABLE] == _BASH
    response, code, word = io.StringIO(), FINE, ""
    try:
        if in_bash:
            word = _whole_words(os.environ)
        with redirect_stdout(response), redirect_stderr(io.StringIO()):
            app(standalone_mode=False, prog_name="ragmeter")
    except SystemExit as end:
        # So typer ends an answer.
        code = end.code if isinstance(end.code, int) else FINE
    except (Exception, KeyboardInterrupt):
        return BROKE
    text = response.getvalue()
    sys.stdout.write("".join(f"{line}\n" for line in _for_bash(text.splitlines(), word)) if in_bash else text)
    return code


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Put together what bash cut; returns the word to be completed, as it is typed."""
    words = environment.get("COMP_WORDS", "").split("\n")
    at = int(environment.get("COMP_CWORD", 0))
    joined: list[str] = []
    position, after_break = at, False
    for number, word in enumerate(words):
        is_break = word != "" and set(word) <= set(_BREAKS)
        if joined and word and (is_break or after_break):
            joined[-1] += word
            position -= number <= at
        else:
            joined.append(word)
        after_break = is_break
    environment.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(position))
    return joined[position] if position < len(joined) else ""


def _for_bash(results: Sequence[str], word: str) -> Iterator[str]:
    """What bash is to put in the place of the last piece of a word, quoted where the word is not."""
    value = word.partition("=")[2] if word.startswith("-") else word
    there = value[: 1 + max(value.rfind(mark) for mark in _BREAKS)]
    plain = re.sub(r"\\(.)", r"\1", there).lstrip("'\"")
    for item in filter(None, results):
        rest = item.removeprefix(plain)
        yield rest if word[:1] in ("'", '"') else _SPECIAL.sub(lambda special: f"\\{special[0]}", rest)
