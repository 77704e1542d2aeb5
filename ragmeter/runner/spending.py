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


def merged_limits(experiment: Experiment, overrides: Limits) -> Limits:
    """Return the spending limits of an execution: the command's take precedence over the file's."""
    return experiment.limits.model_copy(update=overrides.model_dump(exclude_none=True))


def options_of(experiment: Experiment, store: Store) -> list[Any]:
    """Collect the options of all models that the experiment may call."""
    parts: list[Any] = [component.config for method in experiment.methods for component in method.components]
    retrievers = (candidate_retriever(benchmark.setting) for benchmark in experiment.benchmarks)
    parts += [retriever.config for retriever in retrievers if retriever is not None]
    parts += [plan.judge.config for plan in experiment.judges]
    return parts + [plan.config for plan in to_train(experiment.trainings, store)]


def require_prices(options: Any, limits: Limits) -> None:
    """Check that all prices are known if a limit in US dollars is set.

    Args:
        options: Options of everything that may call a model.
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
    """Apply spending limits to a command while the block runs; rerunning the command continues it.

    Raises:
        UserError: The price of a model is unknown, and a limit in US dollars is set.
    """
    require_prices(options, limits)
    with spending(limits, "the same command"):
        yield


def compared(limits: Limits, work: Work, hours: float | None) -> Iterator[str]:
    """Yield one line per limit that compares it with the expected spending.

    Args:
        limits: The limits.
        work: Upper bound of the remaining work.
        hours: Hours at the speed of earlier runs; None without one.
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
