"""`ragmeter list`: what is registered, what ships and what a store holds, by kind; with a name, one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from ragmeter.cli import completion, data, judge, method, train
from ragmeter.cli.options import App, Common, argument
from ragmeter.show.console import listing, out

if TYPE_CHECKING:
    from judges.metric import MetricEntry

app = App(default="overview", help="Datasets, methods, metrics, experiments, runs, judges, checkpoints.")


@app.command()
def overview(common: Common) -> None:
    """Count the entries of each kind."""
    from ragmeter.experiments import shipped_files
    from results.store import checkpoints, queries

    store = common.store
    runs, stored, kept = [], [], []
    if store.database.exists:
        runs, stored, kept = queries.runs(store), queries.experiments(store), checkpoints.checkpoints(store)
    value = {f"{noun}s": len(completion.ids(noun)) for noun in ("dataset", "method", "metric", "judge", "training")}
    value |= {"experiments": len(list(shipped_files())), "experiments in the store": len(stored)}
    value |= {"runs": len({row.run for row in runs}), "checkpoints": len(kept)}
    common.emit(value, lambda: listing(("ragmeter list …", ""), value.items(), empty=""))


app.command("datasets", plugin=True, help="List datasets, or show one with its options.")(data.list_all)
app.command("methods", plugin=True, help="List methods, or show one with its options.")(method.list_all)


@app.command(plugin=True)
def metrics(common: Common, name: Annotated[str | None, argument("Entry to show with its definition.", completion.metrics)] = None) -> None:
    """List metrics with definition, range and source, or show one."""
    from judges.metric import METRICS

    if name is not None:
        entry = METRICS.get(name.partition("@")[0].partition("(")[0].partition("#")[0])
        common.emit(_metric_json(entry), lambda: _print_metric(entry))
        return
    entries = sorted(METRICS, key=lambda entry: (entry.group, entry.id))
    rows = [(_signature(entry), _range(entry), entry.definition.partition(". ")[0].rstrip("."), entry.source) for entry in entries]
    common.emit(
        [_metric_json(entry) for entry in METRICS], lambda: listing(("metric", "range", "definition", "source"), rows, empty="none")
    )


def _signature(entry: MetricEntry) -> str:
    at = "@k" if any(parameter.name == "k" for parameter in entry.parameters) else ""
    named = ",".join(parameter.name for parameter in entry.parameters if parameter.name != "k" and not parameter.quiet)
    return f"{entry.id}{at}{f'({named})' if named else ''}#{entry.edition}"


def _range(entry: MetricEntry) -> str:
    low, high = "−∞" if entry.low is None else f"{entry.low:g}", "∞" if entry.high is None else f"{entry.high:g}"
    return f"{low}–{high}"


def _metric_json(entry: MetricEntry) -> dict[str, Any]:
    names = ("id", "version", "definition", "low", "high", "higher_is_better", "needs", "source", "group", "missing", "exact", "unit")
    shown = ("name", "default", "choices", "help", "quiet")
    parameters = [{name: getattr(parameter, name) for name in shown} | {"type": parameter.kind.__name__} for parameter in entry.parameters]
    return {name: getattr(entry, name) for name in names} | {"parameters": parameters}


def _print_metric(entry: MetricEntry) -> None:
    from judges.metric import NEEDS, written

    out.print(Text(_signature(entry), style="bold"))
    out.print(Text(entry.definition))
    missing = {"empty": "as an empty answer", "unscorable": "nothing: it is left out and counted"}
    facts = {
        "range": f"{_range(entry)}, {'more' if entry.higher_is_better else 'less'} is better",
        "stored": "as a fraction, × 100 on tables" if entry.unit == "fraction" else "as it is",
        "needs": "; ".join(f"{need} ({NEEDS[need]})" for need in entry.needs),
        "source": entry.source,
        "a missing prediction scores": missing.get(str(entry.missing)) or f"{entry.missing:g}",
    }
    listing(("", ""), facts.items(), empty="")
    rows = [
        (
            parameter.name,
            parameter.kind.__name__,
            "required" if parameter.default is None else written(parameter.default),
            " | ".join(map(written, parameter.choices)),
            parameter.help + (" (in ids only where not the default)" if parameter.quiet else ""),
        )
        for parameter in entry.parameters
    ]
    listing(("parameter", "type", "default", "choices", ""), rows, empty="it has no parameters")


@app.command()
def experiments(common: Common) -> None:
    """List experiments that ship with ragmeter or are in the store."""
    from ragmeter.experiments import descriptions
    from results.store import queries

    store = common.store
    stored = queries.experiments(store) if store.database.exists else []
    # By what `run` takes: the name in the store may be another.
    rows = [(name, "shipped", text) for name, text in descriptions().items()]
    value = {
        "shipped": [{"name": name, "description": text} for name, _, text in rows],
        "stored": [{"name": row.name, "runs": row.runs, "updated_at": row.updated_at.isoformat()} for row in stored],
    }
    rows += [(row.name, "stored", f"{row.runs} runs, {row.updated_at:%Y-%m-%d %H:%M} UTC") for row in stored]
    common.emit(value, lambda: listing(("experiment", "where", ""), rows, empty="none"))


@app.command()
def runs(
    common: Common, experiment: Annotated[str | None, argument("Show only this experiment.", completion.stored_experiments)] = None
) -> None:
    """List the runs in the store."""
    from results.store import queries

    if experiment is not None:
        queries.experiment(common.store, experiment)
    rows = queries.runs(common.store, experiment)
    heads = ("run", "status", "answered", "failed", "started (UTC)", "path")
    lines = [
        (row.short, row.status, f"{row.done}/{row.questions}", row.failed or "", f"{row.started_at:%Y-%m-%d %H:%M}", row.path)
        for row in rows
    ]
    empty = "the store holds no run yet: ragmeter demo"
    common.emit([row.to_json() for row in rows], lambda: listing(heads, lines, empty=empty, whole=True))


app.command("judges", plugin=True, help="List judges, or show one with its options.")(judge.list_all)
app.command("checkpoints")(train.list_checkpoints)
app.command("trainings", plugin=True, help="List what can be trained, or the options of one training.")(train.list_trainings)
