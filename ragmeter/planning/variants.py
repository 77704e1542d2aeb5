"""What tells benchmarks of an experiment apart that have the same name and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.experiment import BenchmarkPlan

Flat = dict[str, str]


def variants(plans: Sequence[BenchmarkPlan]) -> list[str]:
    """For each benchmark the options, `key=value`, in which it is not like the others of its name; "" for one alone."""
    options = [_flat(plan.config.model_dump(mode="json", exclude_unset=True)) for plan in plans]
    for plan, given in zip(plans, options, strict=True):
        given.update({} if plan.limit is None else {"limit": str(plan.limit)})
    names = [(str(plan.reference), str(plan.setting)) for plan in plans]
    found = []
    for name, given in zip(names, options, strict=True):
        alike = [other for other, its in zip(options, names, strict=True) if its == name]
        differing = {key for other in alike for key in other if any(one.get(key) != other[key] for one in alike)}
        found.append(", ".join(f"{key}={given[key]}" for key in given if key in differing))
    return found


def _flat(value: Mapping[str, Any], prefix: str = "") -> Flat:
    flat: Flat = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat.update(_flat(inner, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = str(inner)
    return flat
