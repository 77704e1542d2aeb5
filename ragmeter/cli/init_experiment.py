"""The text of a first experiment, with a comment on whatever a newcomer would change, and of the files next to it."""

from __future__ import annotations

import importlib.resources
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.registry import Benchmark
    from methods.apps.guess import Trial

FILE, WORKFLOW, IGNORE = "experiment.yaml", ".github/workflows/gate.yml", ".gitignore"
IGNORED = ("ragmeter-store/", ".env", "*.states.jsonl", "gate.md", "gate.xml")
"""Patterns of files to keep out of commits: the store with its cache of replies, secrets, prompts of written questions, reports."""
APP = "app"
"""Name of the app's row."""
_PLAIN = re.compile(r"[A-Za-z_./][\w./@-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


@dataclass(frozen=True)
class Model:
    """Chat model that `ragmeter init` writes into an experiment."""

    name: str
    base_url: str | None = None
    key_variable: str | None = "OPENAI_API_KEY"

    @property
    def options(self) -> dict[str, Any]:
        """Return the model's options for the YAML file."""
        options: dict[str, Any] = {"model": self.name}
        if self.base_url is not None:
            options |= {"base_url": self.base_url} | ({"key_variable": None} if self.key_variable is None else {})
        return options


@dataclass(frozen=True)
class Plan:
    """Content of the experiment that `ragmeter init` writes.

    Attributes:
        name: Name of the experiment.
        data: Options of the dataset `files`.
        benchmark: The benchmark loaded with these options.
        remarks: Comments on the data for the file.
        by_rule: Whether rules wrote the questions.
        url: Address of the user's app, if any.
        trial: The app's reply to a test question.
        model: Chat model, if any.
        schema: Name of the JSON schema file, if the folder has one.
    """

    name: str
    data: Mapping[str, Any]
    benchmark: Benchmark
    remarks: Sequence[str] = ()
    by_rule: bool = False
    url: str | None = None
    trial: Trial | None = None
    model: Model | None = None
    schema: str | None = None
    baseline: str = field(default="bm25", init=False)

    @property
    def asks_app(self) -> bool:
        """Return whether the experiment has an active row for the user's app."""
        return self.trial is not None and bool(self.trial.options)

    @property
    def faithful(self) -> bool:
        """Return whether the app returns the contexts that its model read, so that faithfulness can be judged."""
        return self.trial is not None and "contexts" in self.trial.options

    @property
    def searched(self) -> bool:
        """Return whether the benchmark has passages to search."""
        return len(self.benchmark.corpus) > 0

    @property
    def candidate(self) -> str:
        """Return the name of the row that a gate decides about."""
        if self.asks_app:
            return APP
        return f"{self.baseline}-{slug(self.model.name)}" if self.model else self.baseline

    @property
    def metrics(self) -> list[str]:
        """Return the metric ids, the deciding one first."""
        known = self.benchmark.card.metrics
        retrieval = [metric for metric in known if metric.startswith(("span_recall", "recall@5", "mrr"))]
        # Whole sentences of a model are right if they contain the answer; em would call them wrong.
        answers = ["cover_em", "f1"] if "em" in known else []
        plain = self.by_rule or not (self.asks_app or self.model)
        return [*retrieval, *answers] if plain and retrieval else [*answers, *retrieval]

    @property
    def judge(self) -> dict[str, Any]:
        """Return the faithfulness judge's entry for the YAML file."""
        return {"id": "grounding", "config": {"llm": self.model.options}} if self.model else {"id": "rule_grounding"}


def slug(text: str) -> str:
    """Convert a text to a valid name: letters, digits and . _ -."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "experiment"


def flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def experiment_text(plan: Plan) -> str:
    """Render the experiment as commented YAML."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    if plan.schema:
        yield f"# yaml-language-server: $schema={plan.schema}"
    yield f"# Run it with: ragmeter run {FILE}    (--dry-run estimates calls and cost first)"
    yield "# Every key is explained in the documentation: docs/experiments.md. Paths are relative to the working directory."
    yield f"name: {flow(plan.name)}"
    yield f"reference: {plan.baseline if plan.searched else APP}    # differences are measured from this row"
    yield f"metrics: {flow(plan.metrics)}    # `ragmeter list metrics` lists more"
    yield f"primary: {{metric: {flow(plan.metrics[0])}}}    # the metric that decides; choose it before you run"
    yield ""
    yield "benchmarks:"
    yield "  - id: files"
    yield "    config:"
    for line in plan.remarks:
        yield f"      # {line}"
    for name, value in plan.data.items():
        if name == "fields":
            yield "      fields:    # guessed from the names of columns; null turns a role off"
            yield from (f"        {role}: {flow(paths)}" for role, paths in value.items())
        else:
            yield f"      {name}: {flow(value)}"
    yield ""
    yield "methods:"
    if plan.searched:
        yield "  # A baseline without a model: BM25 finds passages, and a rule reads the answer out of them."
        yield f"  - {{id: bm25, name: {plan.baseline}}}"
        if not plan.asks_app and plan.model is None:
            yield "  # Passages in random order: a floor that every method should beat."
            yield "  - {id: random}"
    if plan.model is not None:
        yield from _model(plan, plan.model)
    if plan.url is not None:
        yield from _app(plan, plan.url)
    yield ""
    yield from _judges(plan)


def _model(plan: Plan, model: Model) -> Iterator[str]:
    name = f"{plan.baseline}-{slug(model.name)}"
    at = model.base_url or "OpenAI (base_url: names another endpoint)"
    key = f"the key is in ${model.key_variable}, set in the environment or in .env" if model.key_variable else "it wants no key"
    yield f"  # {model.name} at {at} reads BM25's passages; {key}."
    yield f"  - {{id: bm25, name: {flow(name)}, reader: {{id: chat, config: {{llm: {flow(model.options)}}}}}}}"


def _app(plan: Plan, url: str) -> Iterator[str]:
    trial = plan.trial
    yield "  # Your app. State its version when you run it, so that two versions are two rows:"
    yield f"  #   ragmeter run {FILE} --revision {APP}=v1"
    if trial is not None and trial.options:
        yield "  # The places in its reply were guessed from one reply; ? marks what a reply may lack."
        yield "  - id: http"
        yield f"    name: {APP}"
        yield "    config:"
        yield f"      url: {flow(url)}"
        yield from (f"      {name}: {flow(value)}" for name, value in trial.options.items())
        yield '      # headers: {Authorization: "Bearer ${APP_KEY}"}    # secrets come from the environment or .env'
        if not plan.faithful:
            yield '      # contexts: "docs[].text"    # what the app read; without it faithfulness cannot be judged'
        return
    problem = shorten(trial.problem if trial else "it was not asked", 100, placeholder=" …")
    yield f"  # It gave no answer when this file was written: {problem}"
    yield f"  # ragmeter method try http QUESTION --set url={url} shows what it replies. Then remove the marks:"
    yield "  # - id: http"
    yield f"  #   name: {APP}"
    yield "  #   config:"
    yield f"  #     url: {flow(url)}"
    yield '  #     body: {question: "{{question}}"}    # what the app takes'
    yield "  #     answer: answer                      # where its reply has the answer: data.answer"
    yield '  #     contexts: "docs[].text"             # and what it read'
    yield '  #     headers: {Authorization: "Bearer ${APP_KEY}"}'


def _judges(plan: Plan) -> Iterator[str]:
    if plan.model is not None:
        yield "# Faithfulness: the model checks each claim of an answer against the passages that were read; two or more calls per answer."
        yield f"judges: [{flow(plan.judge)}]"
    elif plan.faithful:
        yield "# Faithfulness by the words of claims, without a model. A model judges better:"
        yield "#   judges: [{id: grounding, config: {llm: {model: NAME}}}]"
        yield "judges: [rule_grounding]"
    else:
        yield "# Faithfulness, with a model that checks each claim of an answer against the passages that were read:"
        yield "# judges: [{id: grounding, config: {llm: {model: NAME}}}]"


def example(name: str) -> Any:
    """Locate a file or folder of `examples/`, in the installed package or the source tree."""
    packed = importlib.resources.files("ragmeter").joinpath("examples", name)
    return packed if packed.is_file() or packed.is_dir() else Path(__file__).parents[2] / "examples" / name


def workflow_text(plan: Plan, seed: int = 0) -> str:
    """Render the shipped CI gate workflow with the experiment's names."""
    text: str = example("github/gate.yml").read_text("utf-8")
    metric = plan.metrics[0]
    setting = plan.benchmark.card.settings[0]
    extras = ["retrieval"] * plan.searched + ["documents"] * _converted(plan) + ["llm"] * bool(plan.asks_app or plan.model)
    values = {
        "EXPERIMENT": FILE,
        "METHOD": f"{plan.name}/{plan.candidate}",
        "BENCHMARK": f"{plan.benchmark.name}/{setting}/{seed}",
        "METRICS": f"--metric {metric} --margin 5.0pp",
        "REVISION": f"--revision {APP}=${{{{ github.sha }}}}" if plan.asks_app else '""',
    }
    for name, value in values.items():
        line = re.compile(rf"^(  {name}: )\S.*?(?=  +#|$)", re.MULTILINE)
        text, number = line.subn(lambda match, value=value: match[1] + value, text, count=1)  # type: ignore[misc]
        assert number == 1, name
    if plan.model is not None and plan.model.key_variable:
        secret = f"  {plan.model.key_variable}: ${{{{ secrets.{plan.model.key_variable} }}}}"
        text = text.replace("\njobs:\n", f"{secret}\n\njobs:\n", 1)
    return text.replace("ragmeter[retrieval,models] @", f"ragmeter[{','.join(extras)}] @" if extras else "ragmeter @")


def _converted(plan: Plan) -> bool:
    return any("converted by" in note for note in plan.benchmark.extra.get("notes", ()))
