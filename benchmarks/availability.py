"""Find out which splits are here, download those that are not, and report missing files with their remedy.

A loader is run only far enough to learn which files it looks for (`sources.sought_by`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.io import hub
from benchmarks.io.files import require_readable
from benchmarks.registry import DATASETS, DataReference, DatasetConfig, DatasetEntry, options_of, resolve
from benchmarks.sources import NotThere, OwnFile, Sought, data_path, found_locally, key, no_such_path, sought_by

LOCAL, CACHED, ABSENT, MADE, UNCLEAR, OWN = "local", "cached", "absent", "made here", "unclear", "own file"
"""States of a split: local file; in the hub's cache; missing; generated; present but unusable; requires a user's `path`."""

_NOWHERE = "/no-such-folder/only-asked-where-it-reads"
"""Nonexistent path, so that a queried loader opens no file."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Location of a split's data, if there is any.

    Attributes:
        reference: The split, complete.
        state: One of the states above.
        paths: Its files, if there are any.
        repository: The hub's repository that has the split, if one does.
        problem: Why the files cannot be used, if they cannot.
    """

    reference: DataReference
    state: str
    paths: tuple[Path, ...] = ()
    repository: str | None = None
    problem: UserError | None = None

    @property
    def read_from(self) -> str:
        """Describe where the split is read from, or why it cannot be."""
        if self.paths:
            return ", ".join(map(str, self.paths))
        if self.state == ABSENT:
            return f"the hub ({self.repository}), when it is loaded" if self.repository else "–"
        return self.problem.what if self.problem is not None else "–"

    def to_json(self) -> dict[str, Any]:
        """Return the location as a JSON object."""
        problem = None if self.problem is None or self.state == ABSENT else self.problem.what
        return {"state": self.state, "paths": list(map(str, self.paths)), "hub": self.repository, "problem": problem}


def splits(entry: DatasetEntry) -> Iterator[DataReference]:
    """Yield every split of every subset of a dataset."""
    for subset in entry.subsets or (None,):
        for split in entry.card.splits_of(subset):
            yield DataReference(entry.id, subset, split)


def parts(reference: str | DataReference) -> list[DataReference]:
    """Split a reference with `+` into references with one split each."""
    whole, _ = resolve(reference)
    return [replace(whole, split=split) for split in (whole.split or "").split("+")]


def availability(reference: DataReference, options: Mapping[str, Any] | None = None) -> Availability:
    """Determine where a split would be loaded from, without loading it.

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
        # A required option is missing, which the user was not asked for yet.
        return Availability(reference, OWN, problem=error)
    sought = _sought(reference, entry, options or {})
    if isinstance(sought, OwnFile):
        return _own(reference, config.path, sought)
    if sought is None:
        return Availability(reference, MADE)
    names = sought.hub.get(key(reference), ())
    repository = sought.card.hub_id if sought.card is not None and names else None
    missing: UserError | None = None
    if config.revision is None:
        try:
            result = found_locally(reference, config, sought.folders, sought.patterns, sought.hub, sharded=True)
            require_readable(result)
            return Availability(reference, LOCAL, result, repository)
        except NotThere as error:
            missing = error
        except UserError as error:
            return Availability(reference, UNCLEAR, (), repository, error)
    if repository is not None and config.path is None:
        cached = hub.cached(repository, names, config.revision or entry.card.revision)
        if cached is not None:
            return Availability(reference, CACHED, cached, repository)
    return Availability(reference, ABSENT, (), repository, missing)


def base_of(reference: DataReference, config: DatasetConfig) -> tuple[DataReference, DatasetConfig] | None:
    """Return reference and options of the dataset that a style dataset (`styled`, `rephrased`) rewrites; None for other
    datasets.
    """
    named = getattr(config, "base", None)
    if not isinstance(named, str):
        return None
    result, entry = resolve(named if ":" in named else f"{named}:{reference.split}")
    return result, options_of(entry, getattr(config, "base_config", {}))


FILES = {
    "corpus": "its path; DPR's download_data.py fetches psgs_w100.tsv as data.wikipedia_split.psgs_w100",
    "pairs": "make it with `ragmeter data restyle`, or name its path",
}
"""Dataset options that name files, and instructions to obtain each file."""


def absences(reference: DataReference, config: DatasetConfig) -> Iterator[UserError]:
    """Yield an error for each missing file of a dataset or of the dataset that it rewrites."""
    for option, remedy in FILES.items():
        path = getattr(config, option, None)
        if isinstance(path, str) and not Path(path).expanduser().exists():
            yield UserError(
                f"{reference} needs a file that is not here", code="needed-file-missing", where=f"{option}: {path}", try_this=remedy
            )
    if (base := base_of(reference, config)) is not None:
        yield from absences(*base)
        return
    options = config.model_dump(exclude_unset=True)
    for split in (reference.split or "").split("+"):
        try:
            result = availability(replace(reference, split=split), options)
        except UserError as error:
            yield error
            continue
        if result.state in (ABSENT, UNCLEAR):
            fetch = f"ragmeter data download {result.reference}" if result.repository else None
            problem = result.problem
            yield UserError(
                f"the data {result.reference} are not here" if result.state == ABSENT else str(problem and problem.what),
                code="missing-data",
                where=problem.where if problem else None,
                try_this="; or ".join(filter(None, (problem.try_this if problem else None, fetch))) or None,
            )


def fetch(reference: DataReference, revision: str | None = None) -> hub.Fetched:
    """Download a split's files into the hub's cache, even if other local copies exist.

    Args:
        reference: A single split.
        revision: Revision to use instead of the card's.

    Raises:
        UserError: The split is not on the hub, or as in `hub.fetch`.
    """
    reference, entry = resolve(reference)
    sought, repository = _sought(reference, entry, {}), entry.card.hub_id
    if isinstance(sought, OwnFile):
        raise UserError(f"{sought.what}: there is nothing to fetch", code="nothing-to-download", try_this=sought.try_this)
    if sought is None:
        raise UserError(f"{reference} is generated: there is nothing to fetch", code="nothing-to-fetch")
    names = sought.hub.get(key(reference), ())
    if repository is None or not names:
        wanted = [str(split) for split in splits(entry) if key(split) in sought.hub] if repository else []
        raise UserError(
            f"{reference} is not on the hub",
            code="not-on-hub",
            where=str(repository or reference),
            try_this=f"of {entry.id} the hub has {', '.join(wanted[:12])}" if wanted else "set path to the authors' file",
        )
    return hub.fetch(repository, names, revision or entry.card.revision)


def _own(reference: DataReference, named: str | None, problem: OwnFile) -> Availability:
    if named is None:
        return Availability(reference, OWN, problem=problem)
    path = data_path(named)
    if path.exists():
        return Availability(reference, LOCAL, (path,))
    return Availability(reference, ABSENT, problem=no_such_path(reference, path))


def _sought(reference: DataReference, entry: DatasetEntry, options: Mapping[str, Any]) -> Sought | OwnFile | None:
    # A loader that generates its questions refuses a path immediately, so this generates nothing.
    shipped = DATASETS.source(entry.id).startswith("benchmarks.")
    path = (options.get("path") if shipped else None) or _NOWHERE
    config = options_of(entry, {**options, "path": path, "revision": None})
    result = sought_by(lambda: entry.load(reference, config))
    if not isinstance(result, Exception) or isinstance(result, OwnFile):
        return result
    opened = not isinstance(result, UserError) or _NOWHERE in str(result)
    return OwnFile(reference) if opened and not shipped else None
