"""`datasets list`, `show`, `fetch`, `corpus`: what there is, where it is, how it gets here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from benchmarks import hub, whereabouts
from benchmarks.corpora.build import Progress as Built
from benchmarks.corpora.build import build_corpus
from benchmarks.corpora.records import LAYOUTS
from benchmarks.corpus import CARD, read_card
from benchmarks.errors import UserError, nearest, unknown_name
from benchmarks.open_file import archive_of
from benchmarks.plurals import counted
from benchmarks.registry import DATASETS, DatasetCard, DatasetEntry
from benchmarks.whereabouts import ABSENT, Whereabouts
from ragmeter.commands.listing import option_rows, print_card
from ragmeter.console import emit, err, listing, out

_SUBSETS_SHOWN = 4
_VERBS = ("list", "show", "fetch", "verify", "stats", "sample", "corpus", "contamination")


def list_all(as_json: bool) -> None:
    """List datasets."""
    found = {entry.id: _places(entry) for entry in DATASETS}
    emit(
        [_card_json(entry, found[entry.id]) for entry in DATASETS],
        as_json,
        lambda: listing(
            ("dataset", "", "splits", "licence", "hub id; here"),
            [
                (
                    entry.id,
                    "\n".join([entry.card.task, *_few(entry.subsets)]),
                    "\n".join(_sizes(entry)),
                    entry.card.licence,
                    f"{entry.card.hub_id or '–'}\n{_here(found[entry.id])}",
                )
                for entry in DATASETS
            ],
            empty="none",
        ),
    )


def show(name: str, as_json: bool) -> None:
    """Show one dataset."""
    if name not in DATASETS:
        raise _unknown(name)
    entry = DATASETS.get(name)
    places = _places(entry)

    def print_all() -> None:
        print_card(entry.id, entry.card.description, _facts(entry), entry.config)
        out.print()
        rows = [(str(place.reference), _number(_size(entry.card, place)), place.state, _where(place)) for place in places]
        listing(("split", "questions", "now", "read from"), rows, empty="")

    emit(_card_json(entry, places) | {"options": option_rows(entry.config)}, as_json, print_all)


def _unknown(name: str) -> UserError:
    """The error for a name that no dataset has; a command of the group may have been meant by it."""
    known = [entry.id for entry in DATASETS]
    if nearest(name, [*known, *_VERBS]) in _VERBS:
        return unknown_name("dataset or command", name, _VERBS)
    return unknown_name("dataset", name, known)


def _places(entry: DatasetEntry) -> list[Whereabouts]:
    return [whereabouts.whereabouts(reference) for reference in whereabouts.splits(entry)]


def _card_json(entry: DatasetEntry, places: Sequence[Whereabouts]) -> dict[str, Any]:
    return {
        "id": entry.id,
        "version": entry.version,
        "subsets": entry.subsets,
        **entry.card.model_dump(mode="json"),
        "here": [
            {
                "reference": str(place.reference),
                "questions": _size(entry.card, place),
                "state": place.state,
                "paths": list(map(str, place.paths)),
                "hub": place.repository,
                "said": None if place.said is None or place.state == ABSENT else place.said.what,
            }
            for place in places
        ],
    }


def _size(card: DatasetCard, place: Whereabouts) -> int | None:
    return card.splits_of(place.reference.subset)[place.reference.split or ""]


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _sizes(entry: DatasetEntry) -> list[str]:
    """The splits of the default subset."""
    splits = entry.card.splits_of(entry.subsets[0] if entry.subsets else None)
    return [f"{name} {_number(size)}" for name, size in splits.items()]


def _few(names: Sequence[str]) -> list[str]:
    if len(names) > _SUBSETS_SHOWN:
        return [f"{len(names)} subsets: {', '.join(names[:_SUBSETS_SHOWN])} …"]
    return [f"subsets: {', '.join(names)}"] if names else []


def _here(places: Sequence[Whereabouts]) -> str:
    """`local 2, absent 5`; one word where all splits are alike."""
    states = Counter(place.state for place in places)
    if len(states) == 1:
        return next(iter(states))
    return ", ".join(f"{state} {count}" for state, count in states.items())


def _where(place: Whereabouts) -> str:
    if place.paths:
        return ", ".join(map(str, place.paths))
    if place.state == ABSENT:
        return f"the hub ({place.repository}), when it is loaded" if place.repository else "–"
    return place.said.what if place.said is not None else "–"


def _facts(entry: DatasetEntry) -> dict[str, str]:
    card = entry.card
    return {
        "title": card.title,
        "task": card.task,
        "subsets": ", ".join(entry.subsets) or "–",
        "splits": ", ".join(_sizes(entry)),
        "metrics": ", ".join(card.metrics),
        "settings": ", ".join(card.settings),
        **{f"settings of {name}": ", ".join(of_it) for name, of_it in card.subset_settings.items()},
        "hub": card.hub_id or "–",
        "revision": card.revision or "not pinned" if card.hub_id else "–",
        "licence": card.licence,
        "citation": card.citation,
        "notes": card.notes or "–",
    }


# --- fetch ---------------------------------------------------------------------------------------------------


def fetch(references: Sequence[str], revision: str | None, as_json: bool, quiet: bool) -> None:
    """Fetch splits, each whole or not at all."""
    if quiet or as_json:
        hub.be_quiet()
    wanted = [part for reference in references for part in whereabouts.parts(reference)]
    fetched = [(part, whereabouts.fetch(part, revision)) for part in wanted]

    def print_all() -> None:
        for part, one in fetched:
            out.print(Text(str(part), style="bold") + Text(f"  {one.repository} at {one.revision}"))
            for file in _files(one):
                # As sha256sum writes it, in one piece whatever the width.
                line = Text(f"{file['sha256']}  {file['name']}") + Text(f"  {file['bytes']:,} bytes", style="dim")
                out.print(line, soft_wrap=True)
            if not _pinned(one):
                note = f"not pinned: this is what {one.pinned or hub.MAIN} was; --revision {one.revision} is this again"
                err.print(Text(note, style="yellow"), soft_wrap=True)

    emit(
        [
            {"reference": str(part), "repository": one.repository, "revision": one.revision, "pinned": _pinned(one), "files": _files(one)}
            for part, one in fetched
        ],
        as_json,
        print_all,
    )


def _pinned(fetched: hub.Fetched) -> bool:
    """Whether a commit was asked for, which is the same for ever."""
    return fetched.pinned == fetched.revision


def _files(fetched: hub.Fetched) -> list[dict[str, Any]]:
    places: dict[str, Path] = {}
    for path in fetched.paths:
        archive = archive_of(path)
        file = path if archive is None else archive[0]
        name = next(name for name in fetched.files if file.as_posix().endswith(f"/{fetched.revision}/{name}"))
        places[name] = file
    return [
        {"name": name, "bytes": places[name].stat().st_size, "sha256": sha256, "path": str(places[name])}
        for name, sha256 in fetched.files.items()
    ]


# --- corpus --------------------------------------------------------------------------------------------------


def corpus(source: Path, target: Path, layout: str | None, skip_bad: bool, as_json: bool, quiet: bool) -> None:
    """Build a corpus folder, or go on with one."""
    if layout is not None and layout not in LAYOUTS:
        raise unknown_name("layout of a dump", layout, LAYOUTS, where="--layout")
    with _display(quiet or as_json) as live:
        task = live.add_task(source.name, total=None, said="")

        def told(built: Built) -> None:
            said = f"{counted(built.records, 'record')}, {counted(built.passages, 'passage')}"
            live.update(task, total=None if built.share is None else 1.0, completed=built.share or 0, said=said)

        there = (target / CARD).exists()
        built = build_corpus(source, target, layout=layout, skip_bad=skip_bad, progress=told)
    card = read_card(target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())

    def print_all() -> None:
        state = "was there already" if there else "built"
        out.print(Text(f"{counted(len(built), 'passage')}, {size / 2**20:,.1f} MiB in {target} ({state})"))
        facts = {name: value for name, value in card.items() if isinstance(value, str | int) and name != "format"}
        listing(("", ""), facts.items(), empty="")
        for bad in card.get("bad_listed", ()):
            out.print(Text(f"left out: {bad}", style="yellow"))

    emit({"folder": str(target), "bytes": size, "was_there": there, **card}, as_json, print_all)


def _display(quiet: bool) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=err,
        disable=quiet,
        transient=True,
    )
