"""The reference pages of the documentation, written from the code: options, methods, metrics, datasets, commands."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from benchmarks.registry import DATASETS, DatasetEntry, subsets_by_value
from docs._site import facts
from docs._site.markdown import code, codes, page, table
from docs._site.prompts import prompts_page
from judges.judge import JUDGES, JudgeEntry
from judges.metric import METRICS, NEEDS, MetricEntry, Parameter, written
from methods.models.chat_config import ChatConfig
from methods.models.local_llm import LocalConfig
from methods.models.scripts import ScriptedConfig
from methods.registry import METHODS as REGISTERED
from methods.registry import MethodEntry
from methods.training import TRAININGS, TrainingEntry
from ragmeter.cli import NAMES
from ragmeter.experiment import BenchmarkSpec, ComponentSpec, ExperimentSpec, JudgeSpec, MethodSpec
from ragmeter.trainings import TrainingSpec

OF_PAPERS = ("paper", "released")
"""Presets that have a column each: what the paper says, and what the released code does."""

LONGEST_ROW = 8
"""Values of a preset that a row of a table holds; longer presets are folded."""

_WORDS = {str: "text", int: "whole number", float: "number", bool: "true / false", type(None): "null", Any: "anything"}
_BOUNDS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: That of one within another has dots.
        field: How it is declared.
        above: The default of the part that it stands in, None where that part has none.
    """

    name: str
    field: FieldInfo
    above: BaseModel | None = None

    @property
    def type(self) -> str:
        """Return type and bounds, in words."""
        bounds = (
            f"{sign} {_number(getattr(mark, name))}"
            for mark in self.field.metadata
            for kind, (name, sign) in _BOUNDS.items()
            if isinstance(mark, kind)
        )
        return ", ".join((words(self.field.annotation), *bounds))

    @property
    def default(self) -> str:
        """Return the default as an experiment file writes it, or "required"."""
        supplied = self.supplied
        return "*required*" if supplied is ... else code(value(supplied))

    @property
    def supplied(self) -> Any:
        """Return the default; `...` if there is none."""
        if self.above is not None:
            return getattr(self.above, self.name.rpartition(".")[2])
        return ... if self.field.is_required() else self.field.get_default(call_default_factory=True)


def options_of(config: type[BaseModel], prefix: str = "", above: BaseModel | None = None) -> Iterator[Option]:
    """The options of a class, and of the classes within it, in their order."""
    for name, field in config.model_fields.items():
        option = Option(prefix + name, field, above)
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            yield option
            continue
        if field.description:
            yield option
        default = option.supplied
        yield from options_of(inner, f"{prefix}{name}.", default if isinstance(default, inner) else None)


def option_table(config: type[BaseModel], presets: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The table of a class's options; with a column each for the presets of `OF_PAPERS` that there are."""
    columns = [name for name in OF_PAPERS if name in (presets or {})]
    set_by = [_flat((presets or {})[name]) for name in columns]
    results = list(options_of(config))
    parts = {o.name.rpartition(".")[0] for o in results}
    rows = [
        (
            code(o.name),
            o.type,
            "" if o.name in parts else o.default,
            *("" if o.name in parts else _set_by(values, o.name) for values in set_by),
            o.field.description or "",
        )
        for o in results
    ]
    return table(("option", "type", "default", *columns, "meaning"), rows) or "It has no options."


def preset_table(presets: Mapping[str, Mapping[str, Any]]) -> str:
    """The presets that have no column of their own, with what they set: a table of short ones, long ones folded."""
    rest = {name: values for name, values in presets.items() if name not in OF_PAPERS}
    flat = {name: _flat(values) for name, values in rest.items()}
    rows = [
        (code(name), codes(f"{key}: {value(item)}" for key, item in values.items()))
        for name, values in flat.items()
        if len(values) <= LONGEST_ROW
    ]
    long = [_folded(name, rest[name]) for name, values in flat.items() if len(values) > LONGEST_ROW]
    return "\n\n".join(filter(None, (table(("preset", "sets"), rows), *long)))


def _folded(name: str, values: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(json.loads(json.dumps(values, default=str)), sort_keys=False, default_flow_style=None)
    return "\n".join([f'??? note "preset {name}"', "    ```yaml", *(f"    {line}" for line in text.splitlines()), "    ```"])


def value(supplied: Any) -> str:
    """A value as an experiment file writes it."""
    if isinstance(supplied, BaseModel):
        supplied = supplied.model_dump(mode="json")
    text = supplied if isinstance(supplied, str) and supplied else json.dumps(supplied, default=str, ensure_ascii=False)
    return " ".join(text.split())


def words(annotation: Any) -> str:
    """A type in words: `Literal["a", "b"] | None` is "`a`, `b` or null"."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return codes(map(value, inside))
    if origin in (Union, types.UnionType):
        *first, last = dict.fromkeys(words(item) for item in inside)
        return f"{', '.join(first)} or {last}" if first else last
    if origin in (list, tuple, set, frozenset) or annotation in (list, tuple):
        kinds = list(dict.fromkeys(words(item) for item in inside if item is not Ellipsis))
        return f"list of {' and '.join(map(_several, kinds))}" if kinds else "list"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    if hasattr(annotation, "__metadata__"):
        return words(annotation.__origin__)
    return "mapping" if annotation is dict else str(getattr(annotation, "__name__", annotation))


def _number(bound: float) -> str:
    power = int(bound).bit_length() - 1
    return f"2^{power}" if power > 16 and bound == 2**power else f"{bound:,}"


def _several(kind: str) -> str:
    """More than one of a kind of value: `texts`, `texts or mappings`."""
    return re.sub(r"\b(text|whole number|number|mapping)\b(?! number)", r"\1s", kind)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    results: dict[str, Any] = {}
    for key, item in values.items():
        results |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) and item else {prefix + key: item}
    return results


def _set_by(values: Mapping[str, Any], name: str) -> str:
    """Return a preset's value of an option, or of the keys within it if the option takes a mapping."""
    if name in values:
        return code(value(values[name]))
    return codes(f"{key[len(name) + 1 :]}: {value(item)}" for key, item in values.items() if key.startswith(f"{name}."))


PARTS = "[readers](readers.md), [rerankers](rerankers.md), [compressors](compressors.md)"
METHODS = "[retrievers](retrievers.md), [whole systems](systems.md), [controls](controls.md)"
KEYS = (
    ("The file", ExperimentSpec, ""),
    ("benchmarks", BenchmarkSpec, "One benchmark in one setting. Options: [datasets](datasets.md)."),
    ("methods", MethodSpec, f"One method. Options: {METHODS}."),
    ("reader, rerankers, compressor", ComponentSpec, f"A part; a bare name is `{{id: name}}`. Options: {PARTS}."),
    ("judges", JudgeSpec, "A judge; a bare name is `{id: name}`. Options: [judges](judges.md)."),
    ("llm: an endpoint", ChatConfig, "The option `llm` of everything that asks a language model: `llm: {model: NAME}`."),
    ("llm: local weights", LocalConfig, "`llm: {local: FOLDER or hub id}`, used like an endpoint."),
    ("llm: a script", ScriptedConfig, "`llm: {scripted: worlds/multihop:test}`, for trials: its results say nothing about any model."),
    ("trainings", TrainingSpec, "Trainings that run before the methods. Options: [trainings](trainings.md)."),
)


def experiment_page() -> str:
    """Every key of an experiment file."""
    lead = (
        "All keys of an experiment file. How to write one: [Experiments](../experiments.md). "
        "Unknown keys and wrong types are errors that name the line."
    )
    parts = (part for title, spec, response in KEYS for part in (f"## {title}", response, option_table(spec)))
    return page("Experiment files", lead, parts)


def datasets_page() -> str:
    """Every dataset."""
    lead = (
        "Every dataset as it is registered. How to load and check them: [Datasets](../datasets.md). `ragmeter list datasets` "
        "shows which of them are on your machine."
    )
    overview = table(("id", "task", "license"), [(f"[{code(e.id)}](#{e.id})", e.card.task, e.card.license) for e in DATASETS])
    return page("Datasets", lead, (overview, *map(_dataset, DATASETS)))


def _dataset(entry: DatasetEntry) -> str:
    card = entry.card
    facts = {
        "title": card.title,
        "on the hub": f"{code(card.hub_id)}{f' at {code(card.revision[:12])}' if card.revision else ''}" if card.hub_id else "",
        "license": card.license,
        "subsets": codes(entry.subsets),
        "splits": _splits(card.splits),
        **{f"splits of {code(name)}": _splits(splits) for name, splits in card.subset_splits.items()},
        "settings": codes(card.settings),
        **{f"settings of {codes(names)}": codes(of_them) for of_them, names in subsets_by_value(card.subset_settings)},
        "metrics": codes(card.metrics),
        **{f"metrics of {codes(names)}": codes(of_them) for of_them, names in subsets_by_value(card.subset_metrics)},
        "languages": ", ".join(card.languages),
        **{f"languages of {codes(names)}": ", ".join(of_them) for of_them, names in subsets_by_value(card.subset_languages)},
        "cluster": card.cluster or "questions that share a document, a gold passage or a world",
        "citation": card.citation,
        "code version": str(entry.version),
    }
    reported = "\n".join(f"- {name}: {what}" for name, what in facts.items() if what)
    return "\n\n".join(filter(None, (f"## {entry.id}", card.description, reported, card.notes, option_table(entry.config))))


def _splits(sizes: Mapping[str, int | None]) -> str:
    return ", ".join(f"{code(name)}{'' if n is None else f' ({n:,})'}" for name, n in sizes.items())


EVERYWHERE = {"--store", "--json", "--quiet", "--verbose", "--help"}
"""Options that every command has; the page `reference/cli.md` explains them."""


def commands_page(group: str) -> str:
    """Every command of a group, with its arguments and options."""
    from typer.main import get_command

    from ragmeter.cli import GROUPS, app

    root = get_command(app)
    item = root.get_command(root.make_context("ragmeter", [], resilient_parsing=True), group)  # type: ignore[attr-defined]
    line = next(lines[group] for lines in GROUPS.values() if group in lines)
    lead = f"{line} Options of every command, and exit codes: [the command line](cli.md)."
    return page(f"ragmeter {group}", lead, (_section(*part) for part in _walk(f"ragmeter {group}", item)))


def _walk(path: str, command: Any, alone: str = "") -> Iterator[tuple[str, Any, str]]:
    """Commands that do something, in the order of the help: the words that call them, and the shorter ones of a group's default."""
    if not hasattr(command, "list_commands"):
        yield path, command, alone
        return
    context = command.make_context(path, [], resilient_parsing=True)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if not inner.hidden:
            yield from _walk(f"{path} {name}", inner, path if name == getattr(command, "default", None) else "")


def _section(path: str, command: Any, alone: str) -> str:
    shown = [p for p in command.params if not EVERYWHERE & {*p.opts} and not getattr(p, "hidden", False)]
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *(piece for p in shown for piece in p.get_usage_pieces(context))])
    records = (p.get_help_record(context) for p in shown)
    rows = [(code(name), " ".join(response.split())) for name, response in filter(None, records)]
    help_text = " ".join((command.help or "").split())
    default = alone and f"`{alone}` means this command if you name no other command of the group."
    parts = (f"## {path}", help_text, default, f"```text\n{usage}\n```", table(("", "meaning"), rows))
    return "\n\n".join(filter(None, parts))


KINDS = {
    "retriever": ("Retrievers", "Find passages, or triples of a graph, for a question. A reader completes them."),
    "reranker": ("Rerankers", "Reorder what was retrieved: `rerankers: [{id: …}]` of a method."),
    "compressor": ("Compressors", "Shorten what the reader gets: `compressor: {id: …}` of a method."),
    "reader": ("Readers", "Answer from the passages: `reader: {id: …}` of a method."),
    "method": ("Whole systems", "Retrieve and answer themselves; they take no other parts."),
    "control": (
        "Controls",
        "Methods whose rank is known in advance, to show what a metric can detect. They see the gold, are marked on every table and "
        "never ranked.",
    ),
}
APPROACHES = ("ark", "gpr", "sark", "clara")
"""Methods with a page of their own."""


def methods_page(kind: str) -> str:
    """All methods of a kind."""
    title, lead = KINDS[kind]
    results = [entry for entry in REGISTERED if entry.kind == kind]
    overview = table(("id", ""), [(f"[{code(e.id)}](#{e.id})", e.summary) for e in results])
    return page(title, lead, (overview, *map(_method, results)))


def trainings_page() -> str:
    """Everything that `ragmeter train` trains."""
    lead = (
        "Options of `ragmeter train NAME`: with `--set OPTION=VALUE`, in a file with `--config`, or as the `config` of a "
        "training in an [experiment file](experiment.md#trainings)."
    )
    overview = table(("id", ""), [(f"[{code(e.id)}](#{e.id})", e.summary) for e in TRAININGS])
    return page("Trainings", lead, (overview, *map(_training, TRAININGS)), wide=True)


def _method(entry: MethodEntry) -> str:
    facts = [
        ("paper", entry.paper or ""),
        ("page", _approach(entry.id)),
        ("needs", code(f"pip install 'ragmeter[{entry.extra}]'") if entry.extra else ""),
        ("trained on", codes(entry.training_data)),
        ("code version", str(entry.version)),
    ]
    return _method_section(entry, facts)


def _training(entry: TrainingEntry) -> str:
    facts = [
        ("stages", codes(entry.stages)),
        ("paper", entry.paper or ""),
        ("page", _approach(entry.id)),
        ("code version", str(entry.version)),
    ]
    return _method_section(entry, facts)


def _approach(identifier: str) -> str:
    name = identifier.partition("_")[0]
    return f"[{name.upper()}](../methods/{name}.md)" if name in APPROACHES else ""


def _method_section(entry: MethodEntry | TrainingEntry, facts: Iterable[tuple[str, str]]) -> str:
    summary = entry.summary[:1].upper() + entry.summary[1:].rstrip(".") + "."
    reported = "\n".join(f"- {name}: {what}" for name, what in facts if what)
    parts = (f"## {entry.id}", summary, reported, option_table(entry.config, entry.presets), preset_table(entry.presets))
    return "\n\n".join(filter(None, parts))


GROUPS = {
    "answer": "Answers",
    "text": "Texts",
    "graph": "Graph answers",
    "retrieval": "Rankings",
    "support": "Support",
    "triples": "Reasoning triples",
    "joint": "Answer and support together",
}


def metrics_page() -> str:
    """Every metric, by group."""
    lead = (
        "Every metric as its code defines it. How to choose, and how an id reads: [Metrics](../metrics.md). "
        "Metrics that a language model decides are [judges](judges.md)."
    )
    groups = dict.fromkeys([*GROUPS, *(entry.group for entry in METRICS)])
    parts = [part for group in groups for part in _group(group)]
    needs = table(("word", "what is read"), [(code(need), meaning) for need, meaning in NEEDS.items()])
    return page("Metrics", lead, (*parts, "## What they read", needs))


def judges_page() -> str:
    """Every judge."""
    lead = "Every judge as its code defines it. How to use them, and how far to trust them: [Judges](../judges.md)."
    return page("Judges", lead, map(_judge, JUDGES))


def signature(entry: MetricEntry) -> str:
    """The name as an id writes it: `recall@k`, `rouge(type=rouge1/rouge2/rougeL,stem=true/false)`."""
    named = [p for p in entry.parameters if p.name != "k"]
    shown = [f"{p.name}={'/'.join(map(written, p.choices)) or written(p.default)}" for p in named if not p.quiet]
    at = "@k" if len(named) < len(entry.parameters) else ""
    return entry.id + at + (f"({','.join(shown)})" if shown else "")


def span(low: float | None, high: float | None, higher_is_better: bool) -> str:
    """A range in words."""
    ends = f"{'−∞' if low is None else f'{low:g}'} – {'∞' if high is None else f'{high:g}'}"
    return ends + ("" if higher_is_better else ", lower is better")


def _group(group: str) -> list[str]:
    entries = sorted((entry for entry in METRICS if entry.group == group), key=lambda entry: entry.id)
    return [f"## {GROUPS.get(group, group.capitalize())}", *map(_metric, entries)] if entries else []


def _metric(entry: MetricEntry) -> str:
    missing = {"empty": "what an empty answer scores", "unscorable": "nothing: it is left out and counted"}
    shown = "" if entry.unit == "fraction" else "; shown as it is, not × 100"
    facts = {
        "range": span(entry.low, entry.high, entry.higher_is_better) + shown,
        "without an answer": missing.get(str(entry.missing)) or f"{entry.missing:g}",
        "reads": codes(entry.needs),
        "source": entry.source,
        "code version": str(entry.version),
    }
    reported = "\n".join(f"- {name}: {what}" for name, what in facts.items())
    head = f"### {code(signature(entry))} {{ #{entry.id} }}"
    return "\n\n".join(filter(None, (head, entry.definition, reported, _parameters(entry.parameters))))


def _parameters(parameters: tuple[Parameter, ...]) -> str:
    rows = [
        (code(p.name), "*required*" if p.default is None else code(written(p.default)), codes(map(written, p.choices)), p.help)
        for p in parameters
        if p.name != "k"
    ]
    return table(("parameter", "default", "values", "meaning"), rows)


def _judge(entry: JudgeEntry) -> str:
    what = "gives every answer a number" if entry.kind == "point" else "compares two answers"
    facts = {
        "kind": f"{entry.kind}: {what}",
        "reads": codes(entry.needs),
        "criteria": codes(entry.criteria),
        "source": entry.source,
        "code version": str(entry.version),
    }
    reported = "\n".join(f"- {name}: {response}" for name, response in facts.items() if response)
    rows = [(code(m.name), span(m.low, m.high, m.higher_is_better), m.definition) for m in entry.measures]
    measures = table(("measure", "range", "definition"), rows)
    parts = (f"## {entry.id}", entry.definition, reported, measures, option_table(entry.config))
    return "\n\n".join(filter(None, parts))


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/experiment.md": experiment_page,
    "reference/retrievers.md": partial(methods_page, "retriever"),
    "reference/rerankers.md": partial(methods_page, "reranker"),
    "reference/compressors.md": partial(methods_page, "compressor"),
    "reference/readers.md": partial(methods_page, "reader"),
    "reference/systems.md": partial(methods_page, "method"),
    "reference/controls.md": partial(methods_page, "control"),
    "reference/trainings.md": trainings_page,
    "reference/datasets.md": datasets_page,
    "reference/metrics.md": metrics_page,
    "reference/judges.md": judges_page,
    "reference/experiments.md": facts.experiments_page,
    "reference/prompts.md": prompts_page,
    "reference/released.md": facts.released_page,
    "reference/weights.md": facts.weights_page,
    "reference/published.md": facts.published_page,
    "reference/environment.md": facts.environment_page,
    "reference/cli.md": facts.cli_page,
    **{f"reference/cli-{group}.md": partial(commands_page, group) for group in NAMES},
}


def pages() -> dict[str, str]:
    """Every page as Markdown, by its path below `docs/`."""
    return {path: write() for path, write in PAGES.items()}
