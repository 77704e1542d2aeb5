"""Expand the rows of an experiment file that define several rows.

A row with `grid:` becomes one row per combination of the values of its axes, the first axis slowest:

    - {grid: {k: [5, 10], seed: [1, 2]}, id: full_context, name: "K=$k, seed $seed", k: $k}

A text that is only `$axis` becomes the value itself; inside a longer text the value is written out. `${axis.key}` takes a
key of an axis whose values are mappings. A row may also list axes of the file's own `grid:`, which a profile may replace.
Everything after this module sees ordinary rows.
"""

from __future__ import annotations

import itertools
import json
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.yaml import Path
from ragmeter.yaml_source import Source
from results.store.redaction import echoed

GRID = "grid"
GRID_DESCRIPTION = "axes of this row: their values, or names of axes of the file; one row per combination, `$axis` in it"
LISTS = ("benchmarks", "methods", "trainings", "judges")
MOST_ROWS = 1_000
"""Maximum number of rows from one grid."""
_EXAMPLE = "grid: {k: [5, 10]}, and `$k` in the row"
Axes = Mapping[str, Path]
"""Location of each axis' values in the file."""


class _Placeholders(string.Template):
    idpattern = r"(?a:[_a-zA-Z][_a-zA-Z0-9]*)"
    braceidpattern = r"(?a:[_a-zA-Z][_a-zA-Z0-9]*(?:\.[_a-zA-Z][_a-zA-Z0-9]*)*)"


def expand(source: Source) -> Source:
    """Expand the grids of an experiment file to one row per combination; errors in a row still name the line of its grid.

    Raises:
        UserError: A grid has no axis, an axis has no values, or the row uses an unknown axis or leaves one unused.
    """
    lists = {key: source.value[key] for key in LISTS if isinstance(source.value.get(key), list)}
    gridded = any(isinstance(row, Mapping) and GRID in row for rows in lists.values() for row in rows)
    if not gridded and GRID not in source.value:
        return source
    shared = _axes(source, (GRID,)) if GRID in source.value else {}
    value = {key: item for key, item in source.value.items() if key != GRID}
    lines = {path: line for path, line in source.lines.items() if path[:1] not in {(key,) for key in lists} or len(path) == 1}
    names: dict[Path, str] = {}
    below: dict[Path, list[Path]] = {}
    for path in source.lines:
        below.setdefault(path[:2], []).append(path)
    for key, rows in lists.items():
        results: list[Any] = []
        for index, row in enumerate(rows):
            for name, filled, moved in _expand_row(source, (key, index), row, shared):
                place = (key, len(results))
                results.append(filled)
                names[place] = f"{key}.{index}{name}"
                lines |= {(*place, *path[2:]): source.lines[path] for path in below.get((key, index), ())}
                lines |= {(*place, *path[2:]): line for path, line in moved.items()}
        value[key] = results
    return replace(source, value=value, lines=lines, names=names)


def _expand_row(source: Source, at: Path, row: Any, shared: Axes) -> Iterator[tuple[str, Any, dict[Path, int]]]:
    """Yield the name of a row's position, the row, and the lines of values from its grid."""
    if not isinstance(row, Mapping) or GRID not in row:
        yield "", row, {}
        return
    axes = _chosen(source, at, row, shared)
    values = {name: _at(source.value, path) for name, path in axes.items()}
    if (number := math.prod(map(len, values.values()))) > MOST_ROWS:
        raise UserError(
            f"this grid makes {number:,} rows, more than {MOST_ROWS:,}",
            code="grid-too-large",
            where=source.where((*at, GRID)),
            try_this="fewer values",
        )
    rest = {key: item for key, item in row.items() if key != GRID}
    for indices in itertools.product(*map(range, map(len, values.values()))):
        chosen = dict(zip(axes, indices, strict=True))
        filling = _Filling(source, {name: (*axes[name], index) for name, index in chosen.items()})
        filled = filling.fill(rest, at)
        if unused := axes.keys() - filling.used:
            name = next(name for name in axes if name in unused)
            raise UserError(
                f"the row does not use the axis {name!r}",
                code="row-without-axis",
                where=source.where((*at, GRID, name)),
                try_this=f"write ${name} in it",
            )
        shown = (f"{name}={_shorten_value(values[name][index], index)}" for name, index in chosen.items())
        yield f"[{', '.join(shown)}]", filled, filling.lines


def _chosen(source: Source, at: Path, row: Mapping[str, Any], shared: Axes) -> Axes:
    grid = row[GRID]
    if not isinstance(grid, list):
        return _axes(source, (*at, GRID))
    for index, name in enumerate(grid):
        if not isinstance(name, str) or name not in shared:
            where = source.where((*at, GRID, index))
            if not shared:
                raise UserError(
                    f"the file has no axis {echoed(name)}", code="unknown-axis", where=where, try_this=f"{_EXAMPLE}, or `grid:` in the file"
                )
            raise unknown_name("axis", str(name), shared, where=where)
    if not grid:
        raise UserError("this grid has no axis", code="grid-without-axis", where=source.where((*at, GRID)), try_this=_EXAMPLE)
    return {name: shared[name] for name in grid}


def _axes(source: Source, at: Path) -> Axes:
    """Return the checked locations of the values of each axis of a grid."""
    grid = _at(source.value, at)
    if not isinstance(grid, Mapping) or not grid:
        raise UserError(
            f"a grid maps axes to lists of values, got {echoed(grid)}", code="grid-not-mapping", where=source.where(at), try_this=_EXAMPLE
        )
    for name, values in grid.items():
        where = source.where((*at, str(name)))
        if not isinstance(name, str) or not (name.isidentifier() and name.isascii()):
            raise UserError(
                f"an axis cannot be called {echoed(name)}", code="bad-axis-name", where=where, try_this="a name of letters, digits and _"
            )
        if not isinstance(values, list) or not values:
            hint = f"{name}: [{values}]" if isinstance(values, str | int | float) else f"{name}: [5, 10]"
            raise UserError(
                f"the axis {name!r} needs a list of values, got {echoed(values)}", code="axis-without-list", where=where, try_this=hint
            )
    return {name: (*at, name) for name in grid}


class _Filling:
    """One combination of values, put into a row.

    Attributes:
        used: Axes that the row named.
        lines: Where values come from, by their path in the row.
    """

    def __init__(self, source: Source, axes: Axes) -> None:
        self._source, self._axes = source, axes
        self.used: set[str] = set()
        self.lines: dict[Path, int] = {}

    def fill(self, value: Any, at: Path) -> Any:
        """Return a value of the row with its placeholders replaced."""
        if isinstance(value, Mapping):
            return {key: self.fill(item, (*at, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*at, index)) for index, item in enumerate(value)]
        return self._text(value, at) if isinstance(value, str) and "$" in value else value

    def _text(self, text: str, at: Path) -> Any:
        parts: list[str] = []
        end = 0
        for match in _Placeholders.pattern.finditer(text):
            if match["invalid"] is not None:
                raise UserError(
                    f"`$` in {echoed(text)} names no axis",
                    code="unknown-grid-axis",
                    where=self._source.where(at),
                    try_this="write $$ for a dollar sign",
                )
            parts.append(text[end : match.start()])
            end = match.end()
            if match["escaped"] is not None:
                parts.append("$")
                continue
            value, path = self._value(match["named"] or match["braced"], at)
            if match.span() == (0, len(text)):
                origin = (known for known in self._source.lines if known[: len(path)] == path)
                self.lines |= {(*at, *known[len(path) :]): self._source.lines[known] for known in origin}
                return value
            if isinstance(value, Mapping | list):
                what = f"${match['named'] or match['braced']} is {'a mapping' if isinstance(value, Mapping) else 'a list'} inside a text"
                raise UserError(what, code="bad-grid", where=self._source.where(at), try_this="take a key of it: ${axis.key}")
            parts.append(value if isinstance(value, str) else json.dumps(value, default=str).strip('"'))
        return "".join((*parts, text[end:]))

    def _value(self, reference: str, at: Path) -> tuple[Any, Path]:
        name, *keys = reference.split(".")
        if name not in self._axes:
            raise unknown_name("axis", name, self._axes, where=self._source.where(at))
        self.used.add(name)
        path = self._axes[name]
        value = _at(self._source.value, path)
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                what = f"the value {echoed(value)} of the axis {name!r} has no key {key!r}"
                raise UserError(what, code="bad-grid", where=self._source.where(path), try_this=f"add {key}: …")
            value, path = value[key], (*path, key)
        return value, path


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


def _shorten_value(value: Any, index: int) -> str:
    return f"#{index + 1}" if isinstance(value, Mapping | list) or len(str(value)) > 20 else str(value)
