"""Load data to train on, and refuse data that must not be trained on: test splits, and worlds for validation and test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.worlds.world import require_training_seed


def load_data(references: Iterable[str], options: Mapping[str, Mapping[str, Any]], *, train: bool = True) -> list[Benchmark]:
    """Load benchmarks; with `train`, check that they may be used for training.

    Args:
        references: Data references.
        options: Options of the loaders, by dataset id.
        train: Whether the benchmarks are trained on.

    Raises:
        UserError: A benchmark is a test split, or contains validation or test worlds, or options are named by a subset.
    """
    wanted = list(references)
    if wrong := next((key for key in options if "/" in key), None):
        raise UserError(
            f"options of loaders are named by the dataset's id: {wrong!r} has a subset and would not be read",
            code="options-of-subset",
            where="data_options" if train else "validation_options",
            try_this=f"{wrong.partition('/')[0]} in place of {wrong}",
        )
    if train:
        for reference in wanted:
            require_no_test(reference, "data")
    results = [load(reference, options.get(resolve(reference)[0].name, {})) for reference in wanted]
    for benchmark in results if train else ():
        if benchmark.reference.name == "worlds":
            for seed in sorted({question.metadata["seed"] for question in benchmark.questions}):
                require_training_seed(seed)
    return results


def chosen_by(validation: Sequence[Benchmark]) -> list[str]:
    """Return hashes of the data whose best epoch is the result, as inputs of the training; none without such data."""
    return [fingerprint([benchmark.fingerprint for benchmark in validation])] if validation else []


def check_references(references: Iterable[str], where: str = "data") -> None:
    """Check, without loading anything, that references exist and that none is a test split.

    Raises:
        UserError: One is a test split, or does not exist.
    """
    for reference in references:
        require_no_test(reference, where)


def is_test(reference: str, where: str | None = None) -> bool:
    """Return whether a data reference names a test split."""
    return "test" in (resolve(reference, where=where)[0].split or "").split("+")


def require_no_test(reference: str, where: str) -> None:
    """Refuse a reference to a test split.

    Raises:
        UserError: It is a test split, or does not exist.
    """
    if is_test(reference, where):
        raise UserError(
            f"{reference} is a test split, and must not be used for training",
            code="test-split",
            where=where,
            try_this="train and validation splits; if your own file holds training questions: files:train",
        )
