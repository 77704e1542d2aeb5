"""Which splits hold the questions of a data reference, under other names too? As the datasets' cards declare it.

Subsets may differ in passages alone (HotpotQA's distractor and fullwiki), one split may lie within another
(UltraDomain's whole files), and a dataset may ask another's questions (CLaRa's rows).
"""

from __future__ import annotations

from benchmarks.registry import DATASETS, DataReference, DatasetEntry


def held(reference: DataReference, other: DataReference | None = None) -> frozenset[str]:
    """The splits that a reference holds: its own, and those that the card names for them.

    Args:
        reference: A missing split stands for all; a missing subset for the default one, and for that of `other`.
        other: What it is held against.
    """
    if reference.name not in DATASETS:
        return frozenset()
    entry = DATASETS.get(reference.name)
    named = () if reference.split is None else reference.split.split("+")
    found: set[str] = set()
    for subset in _subsets(entry, reference, other or reference):
        for split in entry.card.splits_of(subset):
            if not named or split in named:
                found.add(str(DataReference(entry.id, subset, split)))
                found.update(entry.card.same_questions.get(f"{subset or ''}:{split}", ()))
    return frozenset(found)


def _subsets(entry: DatasetEntry, reference: DataReference, other: DataReference) -> set[str | None]:
    if reference.subset is not None or not entry.subsets:
        return {reference.subset}
    # Whoever leaves the subset out may mean the one that stands on the other side.
    meant = other.subset if other.name == reference.name and other.subset in entry.subsets else None
    return {entry.subsets[0], meant or entry.subsets[0]}
