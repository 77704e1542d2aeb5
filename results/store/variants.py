"""The base dataset and styles of a benchmark, and whether training data contain its questions.

Names are compared; the datasets' cards list splits with the same questions under different names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.registry import DataReference, included_splits
from benchmarks.styles import FORMAL, STYLED

SAME_QUESTIONS = {"sark": "nq"}
"""ragmeter's datasets with the questions of a dataset in the papers."""

_OF = "restyled="
_DRAWN = (_OF[:-1], "by", "seed", "draw")
"""Keys of a variant that are not styles."""


@dataclass(frozen=True, slots=True)
class StyledRun:
    """Base dataset of a run on restyled data, and the styles of its candidates.

    Attributes:
        base: Data reference of the questions, `name[/subset]:split`.
        shares: Share of candidates in each style; the rest is formal.
        drawn: The writer of the texts, and how the restyled candidates were sampled.
        split: Split of the base dataset.
        same_questions: All data references that contain these questions, according to the dataset cards; the papers' name comes
            first.
    """

    base: str
    shares: tuple[tuple[str, float], ...] = ()
    drawn: str = ""
    split: str | None = field(default=None, compare=False)
    same_questions: tuple[str, ...] = field(default=(), compare=False)

    @property
    def formal(self) -> float:
        """Return the share of formal candidates."""
        return round(1.0 - sum(share for _, share in self.shares), 6)

    @property
    def name(self) -> str:
        """Return a readable name of the mix: `formal`, `informal`, `50 % informal`, `informal evidence`."""
        parts = [style if share == 1 else f"{100 * share:g} % {style}" for style, share in self.shares]
        some = self.drawn.partition(",")[0]
        return " + ".join(parts) + (f" {some.removeprefix(_OF)}" if some.startswith(_OF) else "") or FORMAL

    @property
    def style(self) -> str | None:
        """Return the only style other than formal; None if there is none or several."""
        return self.shares[0][0] if len(self.shares) == 1 else None

    def row(self) -> dict[str, Any]:
        """Return the values of this object as columns of the table `runs`."""
        style = json.dumps({"shares": dict(self.shares), "drawn": self.drawn})
        return {"base": self.base, "split": self.split, "style": style, "same_questions": list(self.same_questions)}

    @classmethod
    def of_row(cls, base: str, split: str | None, style: str, same_questions: Iterable[str]) -> StyledRun:
        """Build the object from columns of the table `runs`."""
        kept = json.loads(style)
        return cls(base, tuple(kept["shares"].items()), kept["drawn"], split, tuple(same_questions))


def style_of_name(dataset: str) -> StyledRun:
    """Parse base dataset and styles from a dataset's name; a name without a mix is formal.

    Source: `benchmarks.styles.mix`, which names its benchmarks
    `styled:SPLIT(BASE,STYLE=SHARE,…,restyled=…,by=…,seed=…)`.
    """
    try:
        query = questions_of(dataset)
        base, *parts = variant_of(dataset) or [""]
    except UserError:
        return StyledRun(dataset)  # of a program of the user's own
    same = (str(query), *sorted(included_splits(query) - {str(query)}))
    if not base:
        return StyledRun(dataset, split=query.split, same_questions=same)
    keys = [part.partition("=") for part in parts]
    shares = tuple((key, float(value)) for key, _, value in keys if key not in (*_DRAWN, FORMAL))
    drawn = ",".join(f"{key}={value}" for key, _, value in keys if key in _DRAWN and shares)
    return StyledRun(f"{base}:{query.split}", shares, drawn, query.split, same)


def variant_of(dataset: str) -> list[str]:
    """Parse the name of a restyled benchmark into base, shares and the other options; empty for other benchmarks.

    Raises:
        UserError: The name does not begin with a data reference.
    """
    name, _, variant = dataset.partition("(")
    return variant.removesuffix(")").split(",") if variant and DataReference.parse(name).name == STYLED else []


def questions_of(dataset: str) -> DataReference:
    """Return the dataset whose questions a benchmark asks, under the name that papers use.

    Args:
        dataset: A benchmark's name, or a data reference.

    Raises:
        UserError: The name does not begin with a data reference.
    """
    reference = DataReference.of_name(dataset)
    if variant := variant_of(dataset):
        reference = replace(DataReference.parse(variant[0]), split=reference.split)
    return replace(reference, name=SAME_QUESTIONS.get(reference.name, reference.name))


@lru_cache(maxsize=4096)  # boards request the same few pairs, once per run
def covers(reference: str, dataset: str) -> bool:
    """Return whether training data include the evaluated split or its questions; data without a split include every split.

    Args:
        reference: Data reference or benchmark name of the training data; other texts cover nothing.
        dataset: Data reference or benchmark name of the evaluated data.
    """
    try:
        if _holds(questions_of(reference), questions_of(dataset)):
            return True
        # A reference to mixed styles without a base may refer to the evaluated ones.
        return not variant_of(reference) and _holds(DataReference.of_name(reference), DataReference.of_name(dataset))
    except UserError:
        return False


@lru_cache(maxsize=4096)
def covers_run(reference: str, same_questions: tuple[str, ...], mixed: bool) -> bool:
    """Return whether training data include the questions of a stored run (`covers`, with the run's `StyledRun.same_questions`).

    Args:
        reference: Data reference of the training data.
        same_questions: `StyledRun.same_questions` of the run.
        mixed: Whether the run's benchmark is restyled.
    """
    try:
        query = DataReference.parse(same_questions[0])
        if _holds(questions_of(reference), query, frozenset(same_questions)):
            return True
        # A reference to mixed styles without a base may refer to the evaluated ones.
        return mixed and not variant_of(reference) and _holds(DataReference.of_name(reference), replace(query, name=STYLED, subset=None))
    except (UserError, IndexError):
        return False


def overlap(item: str, other: str) -> bool:
    """Return whether two names of training data may refer to the same questions."""
    return item == other or covers(item, other) or covers(other, item)


def _holds(value: DataReference, query: DataReference, same: frozenset[str] | None = None) -> bool:
    same_subset = value.name == query.name and (not value.subset or not query.subset or value.subset == query.subset)
    if same_subset and (value.split is None or set(value.split.split("+")) & set((query.split or "").split("+"))):
        return True
    return query.split is not None and not included_splits(value, query).isdisjoint(included_splits(query, value) if same is None else same)


def without_options(dataset: str) -> str:
    """Return a dataset's name without its options; a restyled dataset keeps its style."""
    if "(" not in dataset:
        return dataset  # without the registry: plug-ins are imported for a name that it lacks
    how = style_of_name(dataset)
    base = how.base.partition("(")[0]
    return base if how.base == dataset else f"{base}, {how.name}"
