"""Check whether two runs may be compared by a gate, and on which metric with which margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.core.errors import UserError, unknown_name
from judges.metric import parse
from results.gate.margins import margin_of
from results.store import score_queries
from results.store.queries import RunRow
from results.store.store import FINISHED, INCOMPLETE, Store


def check_comparable(baseline: RunRow, candidate: RunRow, *, allow_partial: bool) -> None:
    """Refuse to compare two runs that are controls, unfinished, or on different questions or settings.

    Raises:
        UserError: The runs must not be compared; the message gives the reason.
    """
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        if not run.may_win:
            raise UserError(
                f"the {role} {run.method} is a control, and a gate does not test controls", code="control-gated", where=run.path
            )
    keys = ("dataset", "dataset_fingerprint", "questions", "setting", "seed")
    differ = [key for key in keys if getattr(baseline, key) != getattr(candidate, key)]
    if differ:
        differences = "; ".join(f"{key}: {getattr(baseline, key)} and {getattr(candidate, key)}" for key in differ)
        raise UserError(
            "these runs must not be compared: their questions or settings differ",
            code="runs-not-comparable",
            where=f"baseline and candidate differ in {differences}",
            try_this="run both on one benchmark, in one setting, with one limit and seed; `ragmeter results compare` shows more",
        )
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        if run.status != FINISHED and not allow_partial:
            again = " --retry-failed" if run.status == INCOMPLETE else ""
            raise UserError(
                f"the {role} is {run.status}, {run.done - run.failed} of {run.questions} questions answered",
                code="run-partly-answered",
                where=run.path,
                try_this=f"ragmeter run --resume{again}, or --allow-partial to decide on the questions that both have answered",
            )


def margins_of(
    store: Store,
    baseline: RunRow,
    candidate: RunRow,
    metrics: Sequence[str],
    margin: float | None = None,
    margins: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the margin (tolerated loss) of each metric to decide on, by metric id; arguments as in `ask`.

    Raises:
        UserError: A run was not scored on a metric, or a margin is missing, too wide, or for an unknown metric.
    """
    if not metrics:
        raise UserError("the gate needs at least one metric to decide on", code="no-metric-decide", try_this="--metric f1")
    chosen = {name: _common_metric(store, baseline, candidate, name) for name in metrics}
    named = dict(margins or {})
    for name in named:
        if name not in chosen and all(name not in (m, m.partition("#")[0]) for m in chosen.values()):
            raise unknown_name("metric with a margin", name, chosen, where="--margin")
    known = score_queries.definitions(store)
    widths = {m: _width(known.get(m, {}).get("low"), known.get(m, {}).get("high")) for m in chosen.values()}
    return {m: margin_of(m, name, margin, named, widths[m]) for name, m in chosen.items()}


def _common_metric(store: Store, baseline: RunRow, candidate: RunRow, name: str) -> str:
    """Return the single metric id that matches a name in both runs."""
    results = []
    for role, run in (("baseline", baseline), ("candidate", candidate)):
        try:
            results.append(score_queries.named_metrics(store, [run.run], [name]))
        except UserError as error:
            scored = f"it was scored on: {', '.join(score_queries.metric_ids(store, [run.run])) or 'nothing yet'}"
            if _lacks(run, name):
                raise UserError(
                    f"the {role} returns nothing that {name!r} reads", code="not-scorable", where=run.path, try_this=scored
                ) from None
            guess = error.try_this if error.try_this and error.try_this.startswith("did you mean") else ""
            raise score_queries.NotScored(
                f"the {role} was not scored on {name!r}", name, where=run.path, try_this=f"{guess} {scored}".strip()
            ) from None
    item, two = results
    both = [metric for metric in item if metric in two]
    if not both:
        raise UserError(
            f"baseline and candidate were scored on different definitions of {name!r}",
            code="metric-definitions-differ",
            where=f"baseline: {', '.join(item)}; candidate: {', '.join(two)}",
            try_this="run the older one again, so that both are scored by the same version",
        )
    if len(both) > 1:
        raise UserError(
            f"{name!r} means {len(both)} metrics", code="ambiguous-metric", where="--metric", try_this=f"name one: {', '.join(both)}"
        )
    return both[0]


def _lacks(run: RunRow, name: str) -> bool:
    """Return whether a run cannot be scored on a metric by its method's design: it has no answers, or no rankings."""
    try:
        return not run.not_stated.isdisjoint(parse(name).entry.needs)
    except UserError:
        return False


def _width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else high - low
