"""Splits checked against their cards, the contract, each other and what was recorded of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

from benchmarks import verify
from benchmarks.availability import ABSENT, MADE, UNCLEAR, Availability, availability
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, load
from benchmarks.verify import GREEN, NOTE, RED, Finding, Recorded

_LOADS = "it loads, and twice to the same"


@dataclass
class CheckedSplit:
    """Checked split, with the texts that later comparisons need; its corpus is not kept."""

    position: Availability
    findings: list[Finding]
    benchmark: Benchmark | None = None
    recorded: Recorded | None = None
    passages: int = 0
    compared: list[Finding] = field(default_factory=list)

    @property
    def color(self) -> str:
        return verify.color([*self.findings, *self.compared])

    def to_json(self) -> dict[str, Any]:
        questions, passages = (len(self.benchmark.questions), self.passages) if self.benchmark else (None, None)
        paths, findings = list(map(str, self.position.paths)), [asdict(finding) for finding in (*self.findings, *self.compared)]
        whole = {"reference": str(self.position.reference), "color": self.color, "state": self.position.state, "paths": paths}
        return {**whole, "questions": questions, "passages": passages, "findings": findings}


def check_split(
    position: Availability, settings: Mapping[str, Any], partial: bool, known: Mapping[str, Recorded] | None, *, keep: bool
) -> CheckedSplit:
    """Load a split twice and check it against its card and the contract."""
    try:
        if position.state == UNCLEAR and position.problem is not None:
            raise position.problem
        benchmark = load(position.reference, settings)
        same = load(position.reference, settings).fingerprint == benchmark.fingerprint
    except UserError as error:
        return CheckedSplit(position, [Finding(_LOADS, RED, error.what + (f" ({error.where})" if error.where else ""))])
    if position.state == ABSENT:
        # Loading has fetched it.
        position = availability(position.reference, settings)
    now = verify.record(benchmark, position.paths) if keep or known is not None else None
    findings = [
        Finding(_LOADS, GREEN if same else RED, "" if same else "the second differs"),
        verify.files_verified(benchmark, position),
        *filter(None, [verify.against_repository(benchmark, partial=partial)]),
        *([verify.against_record(now, known.get(str(position.reference)))] if known is not None and now else ()),
        *verify.examine(benchmark, partial=partial),
        *_contract(benchmark, generated=position.state == MADE),
    ]
    return CheckedSplit(position, findings, replace(benchmark, corpus=Corpus.of(()), extra={}), now, len(benchmark.corpus))


def _contract(benchmark: Benchmark, *, generated: bool) -> Iterator[Finding]:
    """Yield the conformance checks; settings that the file does not support are notes, as long as one applies."""
    from ragmeter import conformance  # it imports methods and judges

    for item in conformance.check_benchmark(benchmark):
        yield Finding(item.name, GREEN if item.passed else RED, item.detail)
    settings = conformance.check_settings(benchmark)
    wrong = RED if generated or not any(setting.passed for setting in settings) else NOTE
    for item in settings:
        yield Finding(item.name, GREEN if item.passed else wrong, "" if item.passed else item.detail)


def compare_splits(checked: Sequence[CheckedSplit], similarity: float, *, same_set: bool) -> list[str]:
    """Search for near-duplicates between every two splits (with `same_set`, of one dataset only), and add them to the second
    one's findings.

    Returns one sentence per pair that was skipped because both splits read the same file.
    """
    skipped = []
    for first, second in combinations(checked, 2):
        item, other = first.position, second.position
        if first.benchmark is None or second.benchmark is None:
            continue
        if same_set and replace(item.reference, split=None) != replace(other.reference, split=None):
            continue
        if item.paths and item.paths == other.paths:
            skipped.append(f"near-duplicates of {item.reference} and {other.reference}: both read the same file")
            continue
        second.compared.append(verify.between(first.benchmark, second.benchmark, similarity))
    return skipped
