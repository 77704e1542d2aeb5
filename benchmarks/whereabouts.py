"""Where a split would be read from now: a local file, the hub's cache, or nowhere yet. Nothing is read or fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import hub
from benchmarks.errors import UserError
from benchmarks.local_files import NotThere, found_locally, key, no_such_path
from benchmarks.registry import DATASETS, DataReference, DatasetEntry, options_of, resolve
from benchmarks.sources import Sought, sought_by

LOCAL, CACHED, ABSENT, MADE, UNCLEAR, OWN = "local", "cached", "absent", "made here", "unclear", "own file"
"""In a file on this machine; in the hub's cache; nowhere here; generated; something is there that cannot be taken; in
a file that only who has it can name."""

_NOWHERE = "/no-such-folder/only-asked-where-it-reads"
"""A path that names nothing: a loader that is only asked opens no file of anybody's."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a split is.

    Attributes:
        reference: The split, complete.
        state: One of the states above.
        paths: Its files, where there are any.
        repository: The hub's repository that has the split, if one does.
        said: What stands in the way, where something does.
    """

    reference: DataReference
    state: str
    paths: tuple[Path, ...] = ()
    repository: str | None = None
    said: UserError | None = None


def splits(entry: DatasetEntry) -> Iterator[DataReference]:
    """Every split of every subset of a dataset."""
    for subset in entry.subsets or (None,):
        for split in entry.card.splits_of(subset):
            yield DataReference(entry.id, subset, split)


def parts(reference: str | DataReference) -> list[DataReference]:
    """The single splits that a reference means."""
    whole, _ = resolve(reference)
    return [replace(whole, split=split) for split in (whole.split or "").split("+")]


def whereabouts(reference: DataReference, options: Mapping[str, Any] | None = None) -> Whereabouts:
    """Where a split would be read from now.

    Args:
        reference: A single split.
        options: The dataset's options.

    Raises:
        UserError: The reference or an option does not exist.
    """
    reference, entry = resolve(reference)
    try:
        config = options_of(entry, options or {})
    except UserError as error:
        if options:
            raise
        # Some option has to be given, and nobody was asked for it yet.
        return Whereabouts(reference, OWN, said=error)
    sought = _sought(reference, entry, options or {})
    if isinstance(sought, OwnFile):
        return _own(reference, config.path, sought)
    if sought is None:
        return Whereabouts(reference, MADE)
    names = sought.hub.get(key(reference), ())
    repository = sought.card.hub_id if sought.card is not None and names else None
    missing: UserError | None = None
    if config.revision is None:
        try:
            found = found_locally(reference, config, sought.folders, sought.patterns, sought.hub, sharded=True)
            return Whereabouts(reference, LOCAL, found, repository)
        except NotThere as error:
            missing = error
        except UserError as error:
            return Whereabouts(reference, UNCLEAR, (), repository, error)
    if repository is not None and config.path is None:
        cached = hub.cached(repository, names, config.revision or entry.card.revision)
        if cached is not None:
            return Whereabouts(reference, CACHED, cached, repository)
    return Whereabouts(reference, ABSENT, (), repository, missing)


def fetch(reference: DataReference, revision: str | None = None) -> hub.Fetched:
    """Get a split's files into the hub's cache, whatever lies on this machine besides.

    Args:
        reference: A single split.
        revision: In place of the card's.

    Raises:
        UserError: It is not on the hub (also: what `hub.fetch` raises).
    """
    reference, entry = resolve(reference)
    sought, repository = _sought(reference, entry, {}), entry.card.hub_id
    if isinstance(sought, OwnFile):
        raise UserError(f"{sought.what}: there is nothing to fetch", try_this=sought.try_this)
    if sought is None:
        raise UserError(f"{reference} is made here: there is nothing to fetch")
    names = sought.hub.get(key(reference), ())
    if repository is None or not names:
        held = [str(one) for one in splits(entry) if key(one) in sought.hub] if repository else []
        raise UserError(
            f"{reference} is not on the hub",
            where=str(repository or reference),
            try_this=f"of {entry.id} the hub has {', '.join(held[:12])}" if held else "set path to the authors' file",
        )
    return hub.fetch(repository, names, revision or entry.card.revision)


class OwnFile(UserError):
    """What is said of data in a file that its loader opens itself, wherever the option `path` says that it is."""

    def __init__(self, reference: DataReference) -> None:
        hint = "name it: --path FILE, in an experiment config: {path: FILE}"
        super().__init__(f"{reference} is read from a file of your own", try_this=hint)


def _own(reference: DataReference, named: str | None, said: OwnFile) -> Whereabouts:
    if named is None:
        return Whereabouts(reference, OWN, said=said)
    path = Path(named).expanduser()
    if path.exists():
        return Whereabouts(reference, LOCAL, (path,))
    return Whereabouts(reference, ABSENT, said=no_such_path(reference, path))


def _sought(reference: DataReference, entry: DatasetEntry, options: Mapping[str, Any]) -> Sought | OwnFile | None:
    # A loader that generates its questions refuses a path at once, so that nothing is made here.
    shipped = DATASETS.source(entry.id).startswith("benchmarks.")
    path = (options.get("path") if shipped else None) or _NOWHERE
    config = options_of(entry, {**options, "path": path, "revision": None})
    found = sought_by(lambda: entry.load(reference, config))
    if not isinstance(found, Exception):
        return found
    opened = not isinstance(found, UserError) or _NOWHERE in str(found)
    return OwnFile(reference) if opened and not shipped else None
