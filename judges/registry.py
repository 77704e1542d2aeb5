"""How a metric is declared, and how its id prints and parses back to itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from benchmarks.errors import UserError, unknown_name
from benchmarks.plugins import Registry
from judges.api import NEEDS, Metric, MetricEntry, Missing, Parameter, Scores

METRICS: Registry[MetricEntry] = Registry("metric", "judges", "ragmeter.judges")

F = TypeVar("F", bound=Callable[..., Scores])

_ID = re.compile(r"(?P<name>\w+)(?:@(?P<k>\d+))?(?:\((?P<parameters>[^()]*)\))?(?:#v(?P<version>\d+))?")


def register(
    identifier: str,
    *,
    source: str,
    group: str,
    needs: Sequence[str],
    version: int = 1,
    parameters: Sequence[Parameter] = (),
    low: float | None = 0.0,
    high: float | None = 1.0,
    higher_is_better: bool = True,
    missing: Missing = 0.0,
    exact: bool = True,
    unit: Literal["fraction", "number"] = "fraction",
) -> Callable[[F], F]:
    """Declare a metric; decorates its function `(batch, **parameters) -> Scores`, whose docstring is the definition.

    Raises:
        ValueError: There is no definition, or `needs` is empty or says something that is not in `NEEDS`.
    """
    unknown = [need for need in needs if need not in NEEDS]
    if unknown or not needs:
        said = f"needs {unknown[0]!r}, which nobody provides" if unknown else "does not say what it needs"
        raise ValueError(f"metric {identifier!r} {said}; known: {', '.join(NEEDS)}")

    def decorate(compute: F) -> F:
        definition = " ".join((compute.__doc__ or "").split())
        if not definition:
            raise ValueError(f"metric {identifier!r} has no definition: write its docstring")
        entry = MetricEntry(
            identifier,
            version,
            definition,
            compute,
            tuple(parameters),
            low,
            high,
            higher_is_better,
            tuple(needs),
            source,
            group,
            missing,
            exact,
            unit,
        )
        METRICS.add(entry, compute.__module__)
        return compute

    return decorate


def parse(text: str, *, where: str | None = None) -> Metric:
    """The metric that an id denotes; parameters and version may be left out where they have defaults.

    Raises:
        UserError: The id does not parse, or names a metric, parameter, value or version that does not exist.
    """
    match = _ID.fullmatch(text.strip())
    if not match:
        raise UserError(
            f"{text!r} is not a metric id",
            where=where,
            try_this="write name[@k][(param=value,…)][#v1], e.g. recall@5 or f1(rules=hotpotqa)",
        )
    entry = METRICS.get(match["name"], where=where)
    if match["version"] and int(match["version"]) != entry.version:
        raise UserError(
            f"{entry.id} is at version {entry.version}, not {match['version']}",
            where=where,
            try_this=f"{entry.id}#v{entry.version}, or the ragmeter release that had version {match['version']}",
        )
    given: dict[str, str] = {"k": match["k"]} if match["k"] else {}
    for part in filter(None, (match["parameters"] or "").split(",")):
        name, separator, value = map(str.strip, part.partition("="))
        if not separator:
            raise UserError(f"{part!r} in {text!r} lacks its value", where=where, try_this="write param=value")
        if name in given:
            raise UserError(f"{text!r} gives {name} twice", where=where, try_this="write each parameter once")
        given[name] = value
    known = {parameter.name: parameter for parameter in entry.parameters}
    for name in given:
        if name not in known:
            raise unknown_name(f"parameter of {entry.id}", name, known, where=where)
    return Metric(entry, {p.name: _value(entry, p, given.get(p.name), where) for p in entry.parameters})


def _value(entry: MetricEntry, parameter: Parameter, raw: str | None, where: str | None) -> Any:
    if raw is None:
        if parameter.default is None:
            example = f"{entry.id}@5" if parameter.name == "k" else f"{entry.id}({parameter.name}=…)"
            raise UserError(f"{entry.id} needs {parameter.name}", where=where, try_this=f"write {example}")
        return parameter.default
    try:
        value = _READ.get(parameter.kind, parameter.kind)(raw)
    except ValueError:
        expected = parameter.kind.__name__
        raise UserError(f"{parameter.name}={raw!r} of {entry.id} is not of type {expected}", where=where) from None
    if parameter.choices and value not in parameter.choices:
        raise unknown_name(f"{parameter.name} of {entry.id}", str(value), map(str, parameter.choices), where=where)
    if parameter.name == "k" and value < 1:
        raise UserError(f"k of {entry.id} must be at least 1", where=where)
    wrong = parameter.check(value) if parameter.check else None
    if wrong:
        raise UserError(f"{parameter.name}={raw!r} of {entry.id} {wrong}", where=where)
    return value


def _truth(raw: str) -> bool:
    if raw not in ("true", "false"):
        raise ValueError(raw)
    return raw == "true"


_READ: dict[type, Callable[[str], Any]] = {bool: _truth}
"""Kinds of parameters that are not read by calling them."""
