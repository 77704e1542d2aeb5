"""What changed between two runs, as lines for a reader: code with its files, weights, revisions, options, environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.core.errors import counted
from results.checkpoints import parts
from results.compare import Setting, differing
from results.queries import RunRow

KINDS = ("part", "code", "weights", "revision", "option", "environment", "provenance")
"""In the order in which changes are listed."""
_HASH = re.compile(r"[0-9a-f]{16,}")
_LISTED = ("code", "revisions", "parts", "models", "metrics")
"""Parts of the provenance that are compared by name, or follow from the description."""
_CODE = re.compile(r"(?:method|reader|compressor|rerankers\[\d+\])\.code\b")
_SHORT = 12
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that the two runs do not have in common.

    Attributes:
        kind: One of `KINDS`.
        name: The part, option or model.
        before, after: The values, shortened; None if that run does not have it.
        files: Files that were changed, added or removed, for code.
    """

    kind: str
    name: str
    before: str | None
    after: str | None
    files: tuple[str, ...] = ()


def changes_of(baseline: RunRow, candidate: RunRow) -> list[Change]:
    """List what changed, in the order of `KINDS`."""
    results = [*_code(baseline, candidate), *_described(baseline, candidate), *_revisions(baseline, candidate)]
    first, second = ({name: value for name, value in run.provenance.items() if name not in _LISTED} for run in (baseline, candidate))
    results += [_change("environment", item) for item in differing(baseline.environment, candidate.environment)]
    results += [_change("provenance", item) for item in differing(first, second)]
    return sorted(results, key=lambda change: KINDS.index(change.kind))


def _code(baseline: RunRow, candidate: RunRow) -> Iterator[Change]:
    """Compare the code of parts that both runs have, by hash; files are known if the provenance lists them."""
    first, second = _hashes(baseline), _hashes(candidate)
    for part in first:
        if part in second and first[part] != second[part]:
            before, after = (next((_text(known) for known in hashes[part] if known), None) for hashes in (first, second))
            yield Change("code", part, before, after, tuple(_files(baseline, candidate, part)))


def _hashes(run: RunRow) -> dict[str, tuple[Any, Any]]:
    """Return the code of each part as described, and as recorded in the provenance."""
    described = {part["id"]: part.get("code") for part in parts(run.description)}
    recorded = {part: facts.get("hash") for part, facts in _recorded(run).items()}
    return {part: (described.get(part), recorded.get(part)) for part in {**described, **recorded}}


def _recorded(run: RunRow) -> dict[str, Mapping[str, Any]]:
    """Return what the provenance knows of each plug-in's code; methods by their id, others as `dataset acme`."""
    code = run.provenance.get("code") or {}
    return {str(name).removeprefix("method "): facts for name, facts in code.items() if isinstance(facts, Mapping)}


def _files(baseline: RunRow, candidate: RunRow, part: str) -> Iterator[str]:
    first, second = (_recorded(run).get(part, {}).get("files") or {} for run in (baseline, candidate))
    for name in sorted(first.keys() | second.keys()):
        if name not in second:
            yield f"{name} (removed)"
        elif name not in first:
            yield f"{name} (added)"
        elif first[name] != second[name]:
            yield name


def _described(baseline: RunRow, candidate: RunRow) -> Iterator[Change]:
    only_one = 0
    for item in differing(baseline.description, candidate.description):
        *way, last = re.split(r"\.|\[", item.key)
        if _CODE.match(item.key):
            continue  # compared by part
        if last == "revision":
            yield _change("revision", item)
        elif _is_part(item.first) or _is_part(item.second):
            yield _change("part", item)
        elif last == "id" and "config" not in way:
            yield replace(_change("part", item), name=item.key.removesuffix(".id"))
        elif "config" not in way and {"weights", "version", "code"} & {last, *way}:
            yield _change("weights" if last == "weights" else "code", item)
        elif not (item.in_first and item.in_second):
            # Another method has other options: their names say nothing about a change.
            only_one += 1
        else:
            yield _change("option", item)
    if only_one:
        yield Change("option", f"{counted(only_one, 'option')} that only one of the two has", None, None)


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("id"), str)


def _revisions(baseline: RunRow, candidate: RunRow) -> Iterator[Change]:
    first, second = (run.provenance.get("revisions") or {} for run in (baseline, candidate))
    for model in first:
        if model in second and first[model] != second[model]:
            yield Change("revision", str(model), _text(first[model]), _text(second[model]))


def _change(kind: str, item: Setting) -> Change:
    before, after = (None if value is None else _text(value) for value in (item.first, item.second))
    return Change(kind, item.key, before, after)


def _text(value: Any) -> str:
    """Return a JSON value as a short text, a part as its id; hashes keep their beginning."""
    value = value["id"] if _is_part(value) else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _HASH.sub(lambda match: match[0][:_SHORT], text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
