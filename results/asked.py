"""Whose questions a benchmark asks, and whether training data hold them: one answer for boards, papers, submissions.

Names are compared, with what the datasets' cards say of splits that hold the same questions under different names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from benchmarks.errors import UserError
from benchmarks.registry import DataReference
from benchmarks.same_questions import share_questions
from benchmarks.styles.mix import STYLED

SAME_QUESTIONS = {"sark": "nq"}
"""Datasets of ours that hold questions of one that the papers name."""


def variant_of(dataset: str) -> list[str]:
    """Base, shares and the rest, as a benchmark of mixed styles has them in its name; of another none.

    Raises:
        UserError: It does not begin with a data reference.
    """
    name, _, variant = dataset.partition("(")
    return variant.removesuffix(")").split(",") if variant and DataReference.parse(name).name == STYLED else []


def asked_of(dataset: str) -> DataReference:
    """The dataset whose questions a benchmark asks, by the name that the papers use.

    Args:
        dataset: A benchmark's name, or a data reference.

    Raises:
        UserError: It does not begin with a data reference.
    """
    reference = DataReference.of_name(dataset)
    if variant := variant_of(dataset):
        reference = replace(DataReference.parse(variant[0]), split=reference.split)
    return replace(reference, name=SAME_QUESTIONS.get(reference.name, reference.name))


@lru_cache(maxsize=4096)  # boards ask for the same few pairs, once a run
def covers(reference: str, dataset: str) -> bool:
    """Whether training data hold the evaluated split, or questions of it; data without a split hold all of them.

    Args:
        reference: Of the training data, or their name as a benchmark. Words that are no reference cover nothing.
        dataset: What is evaluated, likewise.
    """
    try:
        if _holds(asked_of(reference), asked_of(dataset)):
            return True
        # A reference to mixed styles that does not say of what may be to those that are asked.
        return not variant_of(reference) and _holds(DataReference.of_name(reference), DataReference.of_name(dataset))
    except UserError:
        return False


def overlap(one: str, other: str) -> bool:
    """Whether two names of training data may mean the same questions, whichever of the two says more."""
    return one == other or covers(one, other) or covers(other, one)


def _holds(given: DataReference, asked: DataReference) -> bool:
    alike = given.name == asked.name and (not given.subset or not asked.subset or given.subset == asked.subset)
    if alike and (given.split is None or set(given.split.split("+")) & set((asked.split or "").split("+"))):
        return True
    return asked.split is not None and share_questions(given, asked)
