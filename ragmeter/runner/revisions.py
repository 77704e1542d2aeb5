"""Identify the deployments that a command calls: every probe is called once and replaced by its text.

This happens before fingerprints are computed, so that descriptions, ids of judges and keys of cached replies hold the text.
A row's revision also covers each endpoint that the row asks and that states none itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

from rich.text import Text

from benchmarks.core.errors import UserError, unknown_name
from methods.api import ENDPOINTS, UNKNOWN_REVISION, Prediction
from methods.models.chat_config import ChatConfig
from methods.models.llm import chats, with_chats
from methods.models.revision import Probe, ask, parse_revision
from methods.registry import Component
from ragmeter.experiment import Experiment, JudgePlan, MethodPlan
from ragmeter.show.console import err
from ragmeter.yaml_source import Source
from results.boards.names import base_name, first_name
from results.store import queries
from results.store.store import Store

if TYPE_CHECKING:
    from methods.models.deployments import Deployment

_AUTOMATIC = "created "
"""Prefix of the keys of endpoints without a reported revision."""


def begin(experiment: Experiment, store: Store, *, talk: bool = True, entering: bool = True) -> Callable[[], Experiment]:
    """Start to determine the revisions of deployed systems in the background: call the experiment's probes, and identify endpoints.

    Args:
        experiment: The validated experiment.
        store: The store; known deployments are recorded next to its cached replies.
        talk: Whether to report changed and unreachable deployments on standard error.
        entering: Whether a store may be created; otherwise, without a store, only declared probes are called.

    Returns:
        A function that waits for the results and returns the experiment with revisions in place of probes. It raises `Broke` if
        a probe gives no revision, and `UserError` if a variable that a probe needs is not set; both name the line.
    """
    asking = _Asking(store, automatic=entering or store.cache.exists())
    for plan in experiment.methods:
        asking.add(_row_probe(plan), _place(experiment.source, plan.at, direct=True))
        for config in _endpoints(plan):
            asking.add(config, _place(experiment.source, plan.at))
    for index, judge in enumerate(experiment.judges):
        for config in chats(judge.judge.config):
            asking.add(config, _place(experiment.source, ("judges", index)))

    @cache
    def resolved() -> Experiment:
        asking.finish(talk=talk)
        methods = tuple(_resolved_method(plan, asking) for plan in experiment.methods)
        return replace(experiment, methods=methods, judges=tuple(_resolved_judge(plan, asking) for plan in experiment.judges))

    return resolved


def resolve(experiment: Experiment, store: Store, *, talk: bool = True, entering: bool = True) -> Experiment:
    """Replace every probe of an experiment by the revision that it returns; arguments and errors as in `begin`."""
    return begin(experiment, store, talk=talk, entering=entering)()


def resolve_judges(plans: Sequence[JudgePlan], store: Store, *, talk: bool = True) -> list[JudgePlan]:
    """Replace the probes of judges of stored answers by revisions, like `resolve`.

    Raises:
        Broke: A probe gives no revision.
    """
    asking = _Asking(store)
    for plan in plans:
        for config in chats(plan.judge.config):
            asking.add(config, f"judge {plan.judge.entry.id}")
    asking.finish(talk=talk)
    return [_resolved_judge(plan, asking) for plan in plans]


def with_revisions(experiment: Experiment, revisions: Mapping[str, str], where: str = "--revision") -> Experiment:
    """Set the revisions of rows; all seeds and repeats of a method are one row.

    Raises:
        UserError: A row is unknown, or a text is not a valid revision.
    """
    names = {name for plan in experiment.methods for name in (plan.name, first_name(plan.name), base_name(plan.name))}
    texts = {row: parse_revision(text, where) for row, text in revisions.items()}
    for row in texts.keys() - names:
        raise unknown_name("row", row, {base_name(name) for name in names}, where=where)

    def of(plan: MethodPlan) -> MethodPlan:
        text = next((texts[name] for name in (plan.name, first_name(plan.name), base_name(plan.name)) if name in texts), None)
        return replace(plan, revision=text) if text else plan

    return replace(experiment, methods=tuple(map(of, experiment.methods)))


def read_revisions(options: Sequence[str]) -> dict[str, str]:
    """Parse `--revision ROW=TEXT` options.

    Raises:
        UserError: An option has no `=`, or a row occurs twice.
    """
    results: dict[str, str] = {}
    for option in options:
        row, mark, text = option.partition("=")
        if not mark or not row:
            raise UserError(
                f"{option!r} is not ROW=TEXT", code="bad-row-option", where="--revision", try_this="--revision my_app=${GITHUB_SHA}"
            )
        if row in results:
            raise UserError(f"two revisions are given for the row {row!r}", code="two-revisions", where="--revision", try_this="state one")
        results[row] = text
    return results


def begun_with(store: Store, experiment: Experiment) -> dict[str, str]:
    """Return the revisions with which a stored experiment's rows were started and that its file does not state."""
    silent = {plan.name for plan in experiment.methods if plan.revision is None}
    rows = [row for row in queries.runs(store, experiment.name) if row.method in silent]
    return {row.method: row.description["revision"] for row in rows if row.description.get("revision")}


class _Asking:
    """Probes and endpoint requests of one command."""

    def __init__(self, store: Store, *, automatic: bool = True) -> None:
        self._store, self._automatic = store, automatic
        self._asked: dict[str, tuple[Future[str | Deployment], str]] = {}

    def add(self, what: ChatConfig | Probe | None, where: str) -> None:
        """Start a probe, unless there is none or it is running already."""
        job = self._job(what)
        if job is not None and (key := _key(what)) not in self._asked:
            self._asked[key] = (_started(job), where)

    def _job(self, what: ChatConfig | Probe | None) -> Callable[[], str | Deployment] | None:
        if isinstance(what, Probe):
            return partial(ask, what)
        if what is None or isinstance(what.revision, str):
            return None
        if what.revision is not None:
            return what.resolved_revision
        if not self._automatic:
            return None
        from methods.models.deployments import identify
        from methods.models.reply_cache import shared

        return partial(identify, what, shared(self._store.cache))

    def finish(self, *, talk: bool) -> None:
        """Wait for all probes.

        Raises:
            UserError: Something could not be had: the first in the order in which it was added.
        """
        for key, (future, where) in self._asked.items():
            try:
                known = future.result()
            except UserError as error:
                if key.startswith(_AUTOMATIC):  # a key that is not set, a cache that cannot be written: said elsewhere
                    continue
                error.also_at(where)
                raise
            if talk and not isinstance(known, str) and (line := _said(key.removeprefix(_AUTOMATIC), known)):
                err.print(Text(line, style="yellow"), soft_wrap=True)

    def text(self, what: ChatConfig | Probe) -> str | None:
        """Return the observed revision, or None."""
        future, _ = self._asked.get(_key(what), (None, ""))
        if future is None or future.exception() is not None:
            return None
        known = future.result()
        return (known if isinstance(known, str) else known.revision) or None


def _started(job: Callable[[], str | Deployment]) -> Future[str | Deployment]:
    """Run a job in a thread that does not outlive the command."""
    future: Future[str | Deployment] = Future()

    def work() -> None:
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="revision", daemon=True).start()
    return future


def _key(what: ChatConfig | Probe | None) -> str:
    if isinstance(what, ChatConfig):
        return f"{_AUTOMATIC}{what.model} at {what.url}" if what.revision is None else f"{what.url} {what.model} {what.revision!r}"
    return repr(what)


def _said(who: str, known: Deployment) -> str:
    if known.source == "last known":
        if not known.revision:
            return ""
        when = f", seen on {datetime.fromtimestamp(known.seen, UTC):%Y-%m-%d}" if known.seen is not None else ""
        return f"{who} cannot be reached: its last known revision is used ({known.revision}{when})"
    if known.before:
        again = "; its answers are requested again" if known.revision else ""
        return f"{who} changed: revision {known.before} → {known.revision or UNKNOWN_REVISION}{again}"
    return ""


def _row_probe(plan: MethodPlan) -> Probe | None:
    return plan.revision if isinstance(plan.revision, Probe) else None


def _endpoints(plan: MethodPlan) -> Iterator[ChatConfig]:
    """Yield the endpoints of a row that its own revision does not cover."""
    for component in plan.components:
        yield from (config for config in chats(component.config) if config.revision is not None or plan.revision is None)


def _place(source: Source, at: tuple[str | int, ...], *, direct: bool = False) -> str:
    """Return file and line of a revision: that of the row, or the only one among its parts' options."""
    every = [path for path in source.lines if path[: len(at)] == at and path[-1:] == ("revision",)]
    inner = [path for path in every if path != (*at, "revision")]
    return source.where((*at, "revision") if direct else inner[0] if len(inner) == 1 else at)


def _resolved_method(plan: MethodPlan, asking: _Asking) -> MethodPlan:
    probe = _row_probe(plan)
    row = asking.text(probe) if probe is not None else plan.revision

    def change(config: ChatConfig) -> ChatConfig:
        if isinstance(config.revision, str):
            return config
        text = row if config.revision is None and row else asking.text(config)
        return config if text is None else config.model_copy(update={"revision": text})

    def part(component: Component) -> Component:
        config = with_chats(component.config, change)
        return component if config is component.config else replace(component, config=config)

    made_of = plan.composition
    composition = replace(
        made_of,
        method=part(made_of.method),
        rerankers=tuple(map(part, made_of.rerankers)),
        reader=part(made_of.reader) if made_of.reader else None,
        compressor=part(made_of.compressor) if made_of.compressor else None,
    )
    return replace(plan, composition=composition, revision=row)


def _resolved_judge(plan: JudgePlan, asking: _Asking) -> JudgePlan:
    def change(config: ChatConfig) -> ChatConfig:
        text = None if isinstance(config.revision, str) else asking.text(config)
        return config if text is None else config.model_copy(update={"revision": text})

    config = with_chats(plan.judge.config, change)
    return plan if config is plan.judge.config else replace(plan, judge=type(plan.judge)(plan.judge.entry, config))


@dataclass
class Watch:
    """Watches the model versions that endpoints report while a task runs, and warns once about each change.

    Args:
        who: Name of the task, for the warning.
        endpoints: The models that it calls, from `Task.endpoints`; several endpoints may serve a model of the same name.
    """

    who: str
    endpoints: frozenset[str] = frozenset()
    _texts: dict[str, dict[str, None]] = field(default_factory=dict)

    def see(self, prediction: Prediction) -> None:
        """Compare the model versions reported with a prediction with those reported before."""
        for item in prediction.notes.get(ENDPOINTS, ()):
            model = str(item.get("asked", ""))
            text = ", ".join(f"{name} {value}" for name, value in item.items() if name != "asked")
            texts = self._texts.setdefault(model, {})
            several = max(1, sum(name.endswith(f" {model}") for name in self.endpoints))
            if text in texts or len(texts) > several:
                continue
            texts[text] = None
            if len(texts) > several:
                what = " | ".join(texts)
                err.print(Text(f"{self.who}: the endpoint changed for {model} while it ran: {what}", style="yellow"), soft_wrap=True)
