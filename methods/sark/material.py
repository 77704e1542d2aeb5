"""The benchmarks of a training, checked: nothing that is for testing, and no question on both sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks import registry
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark
from methods.sark.config import SarkTrainingConfig
from methods.sark.data import training_benchmarks


class Material(NamedTuple):
    """What is trained on, and what the best epoch is known by."""

    training: list[Benchmark]
    validation: list[Benchmark]


def load_material(config: SarkTrainingConfig) -> Material:
    """Load the benchmarks.

    Raises:
        UserError: One is a test split, or holds worlds that must not be trained on; or a question is in both.
    """
    _require_no_test(config.data, "data")
    _require_no_test(config.validation, "validation")
    options = config.validation_options
    validation = [registry.load(one, options.get(registry.resolve(one)[0].name, {})) for one in config.validation]
    return Material(training_benchmarks(config.data, config.data_options, validation), validation)


def _require_no_test(references: Iterable[str], where: str) -> None:
    for reference in references:
        if "test" in (registry.resolve(reference)[0].split or "").split("+"):
            raise UserError(
                f"{reference} is a test split, which a training must not see", where=where, try_this="train and validation splits"
            )
