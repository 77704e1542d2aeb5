"""Find the installed distribution that a module belongs to, and the versions of its dependencies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


@dataclass(frozen=True)
class Owner:
    """An installed distribution.

    Attributes:
        name, version: Installed name and version.
        project: The folder of an editable installation.
    """

    name: str
    version: str
    project: Path | None
    _distribution: Distribution = field(repr=False, compare=False)

    @cached_property
    def files(self) -> frozenset[str]:
        """Return the files in the distribution's RECORD; empty without one."""
        return frozenset(_recorded(self._distribution))

    @cached_property
    def dependencies(self) -> dict[str, str]:
        """Return the installed versions of its requirements, including those of installed extras."""
        results = {}
        for line in self._distribution.requires or ():
            if match := _NAME.match(line):
                try:
                    results[match[1]] = version(match[1])
                except PackageNotFoundError:
                    continue
        return dict(sorted(results.items()))


@lru_cache(maxsize=64)
def owner_of(base: Path, file: str) -> Owner | None:
    """Find the distribution that contains a module; None if the module was not installed.

    Args:
        base: The folder from which it is imported.
        file: The module's file, relative to `base`.
    """
    # Those with parts for ragmeter first: the records of others may be long.
    here = sorted(distributions(path=[str(base)]), key=lambda item: "[ragmeter." not in (item.read_text("entry_points.txt") or ""))
    owner = next((item for item in here if _claims(item, file)), None) or _editable(base / file)
    if owner is None:
        return None
    return Owner(str(owner.metadata["Name"]), owner.version, _project(owner), owner)


def _claims(item: Distribution, file: str) -> bool:
    """Return whether a distribution's metadata lists the file as its own."""
    record = item.read_text("RECORD")
    if record is not None:
        return file in _recorded(item)
    top = file.partition("/")[0].removesuffix(".py")
    listed = item.read_text("top_level.txt")
    if listed is not None:
        return top in listed.split()
    points = item.read_text("entry_points.txt") or ""
    return re.search(rf"=\s*{re.escape(top)}(?![\w-])", points) is not None


def _recorded(item: Distribution) -> Iterable[str]:
    record = item.read_text("RECORD") or ""
    return [line.rsplit(",", 2)[0].strip('"') for line in record.splitlines()]


def _editable(file: Path) -> Distribution | None:
    """Return the editable installation that contains a file; the innermost of several."""
    inside = [(project, item) for project, item in _projects() if file.is_relative_to(project)]
    return max(inside, key=lambda pair: len(pair[0].parts))[1] if inside else None


@lru_cache(maxsize=1)
def _projects() -> list[tuple[Path, Distribution]]:
    return [(project, item) for item in distributions() if (project := _project(item)) is not None]


def _project(item: Distribution) -> Path | None:
    """Return the project folder of an editable installation."""
    text = item.read_text("direct_url.json")
    if text is None:
        return None
    try:
        origin = json.loads(text)
        if not origin["dir_info"].get("editable"):
            return None
        return Path(url2pathname(urlsplit(origin["url"]).path))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
