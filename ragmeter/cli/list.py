"""`ragmeter list`: what is registered, what ships and what a store holds, by kind; with a name, one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import unknown_name
from ragmeter.cli import completion, options
from ragmeter.cli.config_options import option_rows
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.code_text import code_in_words
from ragmeter.show.console import listing, out

if TYPE_CHECKING:
    from judges.metric import MetricEntry

app = App(default="overview", help="Datasets, methods, metrics, experiments, runs, judges, checkpoints.")


@app.command()
def overview(common: Common) -> None:
    """Say how many there are of each kind."""
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


@app.command()
def datasets(
    common: Common, reference: Annotated[str | None, argument("Show this one: name[/subset].", completion.references, metavar="REF")] = None
) -> None:
    """List datasets, or show one with its options."""
    from ragmeter.cli.data import list_datasets, show_dataset

    if reference is None:
        list_datasets(common)
    else:
        show_dataset(reference, common)


@app.command()
def methods(
    common: Common,
    name: Annotated[str | None, argument("Show this one.", completion.methods)] = None,
    kind: Annotated[
        str | None,
        option(
            "Only this kind: retriever, reader, control …",
            completes=completion.words("retriever", "reranker", "compressor", "reader", "method", "control"),
        ),
    ] = None,
) -> None:
    """List methods, or show one with its options."""
    list_methods(name, kind, common)


def list_methods(name: str | None, kind: str | None, common: Common) -> None:
    """List methods, or show one with its options; `ragmeter method` does so, too."""
    from methods.registry import METHODS

    if name is not None:
        entry = METHODS.get(name)
        facts = {"kind": entry.kind, "version": entry.version, "paper": entry.paper or "–"}
        facts |= {"presets": ", ".join(entry.presets) or "–", "trained on": ", ".join(entry.training_data) or "–"}
        value = entry.card() | {"options": option_rows(entry.config)}
        if entry.code is not None:
            facts["code"] = code_in_words(entry.code.to_json())
            value["code"] = entry.code.to_json()
        common.emit(value, lambda: options.print_card(entry.id, entry.summary, facts, entry.config))
        return
    kinds = {entry.kind for entry in METHODS}
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of method", kind, kinds, where="--kind")
    chosen = [entry for entry in METHODS if kind in (None, entry.kind)]
    rows = [(entry.id, entry.kind, entry.summary) for entry in chosen]
    common.emit([entry.card() for entry in chosen], lambda: listing(("method", "kind", "summary"), rows, empty="none"))


@app.command()
def metrics(common: Common, name: Annotated[str | None, argument("Show its definition.", completion.metrics)] = None) -> None:
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
    """List experiments: those that ship with ragmeter and those in the store."""
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
    common: Common, experiment: Annotated[str | None, argument("Only those of this experiment.", completion.stored_experiments)] = None
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


@app.command()
def judges(common: Common, name: Annotated[str | None, argument("Show this one.", completion.judges)] = None) -> None:
    """List judges, or show one with its options."""
    from ragmeter.cli.judge import list_judges

    list_judges(name, common)


@app.command()
def checkpoints(common: Common) -> None:
    """List the store's checkpoints, and folders in it that could be added."""
    from ragmeter.cli.train import list_checkpoints

    list_checkpoints(common)


@app.command()
def trainings(common: Common, name: Annotated[str | None, argument("Show the options of this one.", completion.trainings)] = None) -> None:
    """List what can be trained, or the options of one training."""
    from ragmeter.cli.train import list_trainings

    list_trainings(name, common)
