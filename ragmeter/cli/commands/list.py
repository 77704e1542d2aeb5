"""The bare nouns `methods`, `metrics`, `experiments`, `published`, and `check`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from judges.metric import METRICS, NEEDS, MetricEntry, Parameter, written
from methods.registry import METHODS, Component, MethodEntry
from ragmeter import experiment
from ragmeter.conformance import Check, check_dataset, check_method
from ragmeter.console import PROSE, WHOLE, emit, listing, out
from ragmeter.runner.rewriting import refusal
from results import queries, store_folder
from results.published import Figure, figures, find
from results.store import Store

# -- `check method` and `check dataset` --


def method(name: str, config: str | None, as_json: bool) -> int:
    """Check a method; returns the exit code."""
    options = options_given(config)
    try:
        component = Component.of(name, options)
    except ValidationError as error:
        raise refusal(error, name, METHODS.get(name).config, where="--config") from None
    component.preflight()
    return _report(f"method {name}", check_method(component), as_json)


def dataset(reference: str, config: str | None, as_json: bool) -> int:
    """Check a dataset; returns the exit code."""
    return _report(f"dataset {reference}", check_dataset(reference, options_given(config)), as_json)


def options_given(config: str | None, path: Path | None = None) -> dict[str, Any]:
    """The options that --config and --path give.

    Raises:
        UserError: --config is no JSON object.
    """
    given = {} if path is None else {"path": str(path)}
    if config is None:
        return given
    try:
        options = json.loads(config)
    except ValueError as error:
        raise UserError(f"this is not JSON: {error}", where="--config", try_this="""--config '{"key": "value"}'""") from None
    if not isinstance(options, dict):
        raise UserError("options are a JSON object", where="--config", try_this="""--config '{"key": "value"}'""")
    return options | given


def _report(what: str, checks: list[Check], as_json: bool) -> int:
    failed = [check for check in checks if not check.passed]

    def show() -> None:
        for check in checks:
            mark = Text("✓ ", style="green") if check.passed else Text("✗ ", style="red")
            out.print(mark + Text(check.name) + Text(f"  {check.detail}" if check.detail else "", style="red"))
        out.print(Text(f"{what}: {len(checks) - len(failed)} of {len(checks)} checks passed"))

    emit({"checked": what, "passed": not failed, "checks": [asdict(check) for check in checks]}, as_json, show)
    return 1 if failed else 0


def methods(name: str | None, kind: str | None, as_json: bool) -> None:
    """List methods, or show one with its options."""
    if name is not None:
        entry = METHODS.get(name)
        card = entry.card() | {"options": option_rows(entry.config)}
        emit(card, as_json, lambda: print_card(entry.id, entry.summary, _method_facts(entry), entry.config))
        return
    kinds = {entry.kind for entry in METHODS}
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of method", kind, kinds, where="--kind")
    found = [entry for entry in METHODS if kind in (None, entry.kind)]
    rows = [(entry.id, entry.kind, entry.summary) for entry in found]
    emit([entry.card() for entry in found], as_json, lambda: listing(("method", "kind", "summary"), rows, empty="none"))


def metrics(name: str | None, as_json: bool) -> None:
    """List metrics with definition, range and source, or show one."""
    if name is not None:
        entry = METRICS.get(name.partition("@")[0].partition("(")[0].partition("#")[0])
        emit(_metric_json(entry), as_json, lambda: _print_metric(entry))
        return
    entries = sorted(METRICS, key=lambda entry: (entry.group, entry.id))
    rows = [(_signature(e), _range(e), e.definition.partition(". ")[0].rstrip("."), e.source) for e in entries]
    columns = ("metric", "range", "definition", "source")
    emit([_metric_json(e) for e in METRICS], as_json, lambda: listing(columns, rows, empty="none"))


def experiments(folder: Path | None, as_json: bool) -> None:
    """List shipped experiments and those in the store."""
    store = Store(store_folder(folder))
    stored = queries.experiments(store) if store.database.exists else []
    # By what `run` and `plan` take: the name in the store may be another.
    shipped = {name: experiment.load(name).description for name in experiment.shipped()}
    rows = [(name, "shipped", description) for name, description in shipped.items()]
    rows += [(row.name, "stored", f"{row.runs} runs, {row.updated_at:%Y-%m-%d %H:%M} UTC") for row in stored]
    emit(
        {
            "shipped": [{"name": name, "description": description} for name, description in shipped.items()],
            "stored": [{"name": r.name, "runs": r.runs, "updated_at": r.updated_at.isoformat()} for r in stored],
        },
        as_json,
        lambda: listing(("experiment", "where", ""), rows, empty="none"),
    )


def option_rows(config: type[BaseModel]) -> list[dict[str, Any]]:
    """The options of a config class: name, type, default, description."""
    schema = config.model_json_schema()
    return [
        {"name": name, "type": _type(field), "default": field.get("default"), "description": field.get("description", "")}
        for name, field in schema.get("properties", {}).items()
    ]


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "anyOf" in field:
        return " | ".join(_type(option) for option in field["anyOf"])
    return str(field.get("type", field.get("const", "object")))


def _method_facts(entry: MethodEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "version": entry.version,
        "paper": entry.paper or "–",
        "presets": ", ".join(entry.presets) or "–",
        "trained on": ", ".join(entry.training_data) or "–",
    }


def print_card(name: str, summary: str, facts: dict[str, Any], config: type[BaseModel]) -> None:
    """Print what is known of an entry, and its options."""
    out.print(Text(name, style="bold") + Text("  " + summary))
    listing(("", ""), facts.items(), empty="")
    rows = [(o["name"], o["type"], json.dumps(o["default"]), o["description"]) for o in option_rows(config)]
    out.print()
    listing(("option", "type", "default", ""), rows, empty="it has no options", below=PROSE)


def _signature(entry: MetricEntry) -> str:
    at = "@k" if any(p.name == "k" for p in entry.parameters) else ""
    named = ",".join(p.name for p in entry.parameters if p.name != "k" and not p.quiet)
    return f"{entry.id}{at}{f'({named})' if named else ''}#v{entry.version}"


def _range(entry: MetricEntry) -> str:
    low = "−∞" if entry.low is None else f"{entry.low:g}"
    high = "∞" if entry.high is None else f"{entry.high:g}"
    return f"{low}–{high}"


def _missing(entry: MetricEntry) -> str:
    said = {"empty": "as an empty answer", "unscorable": "nothing: it is left out and counted"}
    return said.get(str(entry.missing)) or f"{entry.missing:g}"


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.kind.__name__,
        "default": parameter.default,
        "choices": list(parameter.choices),
        "help": parameter.help,
        "quiet": parameter.quiet,
    }


def _metric_json(entry: MetricEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "version": entry.version,
        "definition": entry.definition,
        "low": entry.low,
        "high": entry.high,
        "higher_is_better": entry.higher_is_better,
        "needs": list(entry.needs),
        "source": entry.source,
        "group": entry.group,
        "missing": entry.missing,
        "exact": entry.exact,
        "unit": entry.unit,
        "parameters": list(map(_parameter, entry.parameters)),
    }


def _print_metric(entry: MetricEntry) -> None:
    out.print(Text(_signature(entry), style="bold"))
    out.print(Text(entry.definition))
    shown = "as a fraction, × 100 on tables" if entry.unit == "fraction" else "as it is"
    facts = {
        "range": f"{_range(entry)}, {'more' if entry.higher_is_better else 'less'} is better",
        "kept": shown,
        "needs": "; ".join(f"{need} ({NEEDS[need]})" for need in entry.needs),
        "source": entry.source,
        "a missing prediction scores": _missing(entry),
    }
    listing(("", ""), facts.items(), empty="")
    rows = [
        (
            p.name,
            p.kind.__name__,
            "required" if p.default is None else written(p.default),
            " | ".join(map(written, p.choices)),
            p.help + (" (in ids only where not the default)" if p.quiet else ""),
        )
        for p in entry.parameters
    ]
    listing(("parameter", "type", "default", "choices", ""), rows, empty="it has no parameters", below=PROSE)


# -- `published`: what the papers print --


def papers(as_json: bool) -> None:
    """List the papers, with their tables."""
    tables: dict[str, list[str]] = {}
    for figure in figures():
        known = tables.setdefault(figure.paper, [])
        if figure.table not in known:
            known.append(figure.table)
    tables = {paper: sorted(of, key=_in_order) for paper, of in tables.items()}
    rows = [(paper, len(figures(paper)), ", ".join(of)) for paper, of in tables.items()]
    emit(tables, as_json, lambda: listing(("paper", "figures", "tables"), rows, empty="none"))


def published(paper: str, table: str | None, method: str | None, dataset: str | None, slips: bool, as_json: bool) -> None:
    """List a paper's figures.

    Raises:
        UserError: There is no such paper, or it prints nothing of the kind.
    """
    found = find(paper=paper, table=table, method=method, dataset=dataset)
    found = [figure for figure in found if figure.slip] if slips else found
    if not found:
        known = ", ".join(sorted({figure.table for figure in figures(paper)}, key=_in_order))
        raise UserError(f"{paper} prints no such figure", try_this=f"`ragmeter published {paper}`; its tables: {known}")

    def show() -> None:
        rows = [_row(figure) for figure in found]
        listing(("table", "method", "dataset", "metric", "value", "setting"), rows, empty="none", below=WHOLE)
        notes = dict.fromkeys((f"{figure.source}, {figure.method}: {figure.note}") for figure in found if figure.note)
        for note in notes:
            out.print(Text(note, style="dim"))

    emit([asdict(figure) for figure in found], as_json, show)


def _in_order(table: str) -> list[str | int]:
    """What tables are sorted by: 9 before 10, and numbers before `figure 4` and `text 3.2`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", table)]


def _row(figure: Figure) -> tuple[str, ...]:
    unit = "" if figure.unit in ("text", "number", "count") else f" {figure.unit}"
    return figure.table, figure.method, figure.dataset, figure.metric, figure.value + unit, figure.setting
