"""The limits of an experiment: what they cover, whether they can be kept, and how they compare with what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.core.errors import UserError
from methods.models.llm import unpriced
from methods.spending import Limits, spending
from methods.work import Work
from ragmeter.experiment import Experiment, candidate_retriever
from ragmeter.runner.preflight import to_train
from results.store.store import Store


def limits_of(experiment: Experiment, stated: Limits) -> Limits:
    """Return the limits of an execution: those of the command, else those of the file."""
    return experiment.limits.model_copy(update=stated.model_dump(exclude_none=True))


def options_of(experiment: Experiment, store: Store) -> list[Any]:
    """Return the options of everything that the experiment may ask a model for."""
    parts: list[Any] = [component.config for method in experiment.methods for component in method.components]
    retrievers = (candidate_retriever(benchmark.setting) for benchmark in experiment.benchmarks)
    parts += [retriever.config for retriever in retrievers if retriever is not None]
    parts += [plan.judge.config for plan in experiment.judges]
    return parts + [plan.config for plan in to_train(experiment.trainings, store)]


def require_prices(options: Any, limits: Limits) -> None:
    """Check that a limit in dollars can be kept.

    Args:
        options: Of everything that may ask a model.
        limits: The limits.

    Raises:
        UserError: The price of a model or app is unknown.
    """
    if limits.max_usd is None:
        return
    if names := unpriced(options):
        raise UserError(
            f"max_usd is set, and no price is stated for {', '.join(names)}",
            code="no-price",
            where="limits.max_usd",
            try_this="under `llm:` of the model: usd_per_million_prompt_tokens and usd_per_million_completion_tokens; of an app: "
            "usd_per_call, or `cost`, the path to its dollars; 0 for what is free or reports its cost; or set max_calls instead",
        )


@contextmanager
def limited_command(options: Any, limits: Limits) -> Iterator[None]:
    """Hold a command that the same command continues to limits, for the length of a block.

    Raises:
        UserError: The price of a model is not stated, and dollars are limited.
    """
    require_prices(options, limits)
    with spending(limits, "the same command"):
        yield


def compared(limits: Limits, work: Work, hours: float | None) -> Iterator[str]:
    """Yield a line for each limit with what is expected.

    Args:
        limits: The limits.
        work: What is left, at most.
        hours: At the speed of earlier runs; None if there was none.
    """
    calls = sum(use.calls for use in work.uses if use.where != "here")
    expected = {"max_usd": work.usd, "max_hours": hours, "max_calls": calls}
    for name, most in limits:
        if most is None:
            continue
        value = expected[name]
        if value is None:
            yield f"{name} {most:g}: no earlier run to estimate the time from"
            continue
        number = f"{value:,.0f}" if name == "max_calls" else f"{value:,.2f}"
        open_ones = ", and more that is unknown" if name != "max_hours" and work.unknown else ""
        verdict = "more than the limit, so the run may stop before its end" if value > most else "within the limit"
        yield f"{name} {most:g}: at most {number} expected{open_ones}: {verdict}"
