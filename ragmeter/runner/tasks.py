"""Derive tasks from an experiment and find out which of them are done.

A finished run never changes. An experiment keeps the executions that it shows; a task that is new to it shares the
newest finished one. `--fresh` begins another next to them, and `--retry-failed` another with the answers that did
not fail. So the tables, tags and judgments of everybody else stay as they are.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import registry as datasets
from benchmarks import settings
from benchmarks.clusters import Sampled
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark
from judges.metric import Metric, QuestionGraphs, require_language
from judges.metric import parse as parse_metric
from judges.score import can_score
from methods.api import Context, Method, Reading, Services
from methods.models.counting import Estimate
from methods.models.llm import components_within, endpoints
from methods.work import filler
from ragmeter.experiment import BenchmarkPlan, Experiment, MethodPlan, candidate_retriever
from ragmeter.runner.provenance import environment, forget_checkouts, provenance
from results.store.store import FINISHED, TOKEN, Execution, Run, Store, execution_id, fingerprint_of, token_of

GROUP_METRICS = ("group_answer_f1", "group_support_f1", "sufficiency")
RANKING_METRICS = ("recall@5", "recall@20", "mrr@10", "ndcg@10")
"""Metrics shown next to the official ones if questions have positives."""
_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
MINIMUM_FREE_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Loaded:
    """Benchmark as tasks use it: loaded, limited and put into its retrieval setting."""

    plan: BenchmarkPlan
    benchmark: Benchmark
    metrics: tuple[Metric, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Return the fingerprint of questions and corpus before the setting, which enters a run's fingerprint separately."""
        return self.benchmark.fingerprint

    @cached_property
    def cluster(self) -> Sampled | None:
        """Return the kind of cluster that the experiment declares; None uses the benchmark's."""
        return self.benchmark.sampled(self.plan.cluster, where=self.plan.cluster_at) if self.plan.cluster else None


@dataclass(frozen=True)
class Task:
    """One method on one benchmark in one setting with one seed: the unit of execution.

    Attributes:
        token: Identifies the execution (`results.store.store.execution_id`); "" for the first.
        replies: Which cached replies the execution may use (`Services.replies`).
    """

    experiment: str
    loaded: Loaded
    method: MethodPlan
    seed: int
    token: str = ""
    replies: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Return the fingerprint of the task: a hash of data, setting, candidates, method, seed and repeat, shared by all its
        executions.
        """
        retriever = candidate_retriever(self.loaded.plan.setting)
        candidates = retriever.describe() if retriever else None
        shared = (self.loaded.fingerprint, str(self.loaded.plan.setting), candidates, self.description, self.seed)
        # The first repeat is the run that there is without repeats.
        return fingerprint(*shared, *([f"repeat {self.method.repeat}"] if self.method.repeat else []))

    @cached_property
    def description(self) -> dict[str, Any]:
        """Return the description of the method: its parts and options as JSON."""
        return self.method.composition.describe(self.reading) | self.method.declared_revision

    def execution(self, token: str, replies: str) -> Task:
        """Return this task as one of its executions."""
        task = replace(self, token=token, replies=replies)
        # Hashing weights and options again would give the same.
        vars(task).update({name: vars(self)[name] for name in ("fingerprint", "description", "reading") if name in vars(self)})
        return task

    @cached_property
    def run(self) -> Run:
        """Return the run that executing this task continues or starts."""
        return Run(
            execution_id(self.fingerprint, self.token),
            self.method.name,
            self.method.composition.method.id,
            self.method.kind,
            self.description,
            self.loaded.benchmark.name,
            self.loaded.fingerprint,
            str(self.loaded.plan.setting),
            self.seed,
            len(self.loaded.benchmark.questions),
            provenance(self.loaded.benchmark, self.metrics, self.method.components, self.method.revision),
            environment,
            cluster=self.loaded.plan.cluster,
            replies=self.replies,
        )

    @cached_property
    def reading(self) -> Reading | None:
        """Return the dataset authors' reading instructions for the benchmark; None if there are none.

        Raises:
            UserError: The method needs them, but there are none.
        """
        reading = self.loaded.benchmark.extra.get("reading")
        if reading is None and self.method.composition.follows_benchmark:
            raise UserError(
                f"{self.method.name!r} needs reading instructions, and {self.loaded.plan.reference} has none",
                code="missing-reading-instructions",
                where=self.loaded.plan.where,
                try_this="reading: own for its reader, or a benchmark with instructions (longbench, ultradomain)",
            )
        return Reading(**reading) if reading else None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of the benchmark that the method can be scored on."""
        return tuple(filter(self.method.can_score, self.loaded.metrics))

    @cached_property
    def endpoints(self) -> frozenset[str]:
        """Return the models behind endpoints that the method calls."""
        return frozenset().union(*(endpoints(part.config) for part in self.method.components))

    def services(self, services: Services) -> Services:
        """Return the services that the method receives."""
        repeat = self.method.repeat
        seed = Draws("repeat", self.seed, repeat).below(2**32) if repeat else self.seed
        return replace(services, seed=seed, reading=self.reading, replies=self.replies, repeat=repeat)

    def build(self, services: Services) -> Method:
        """Build the method in this process."""
        return self.method.composition.build(self.services(services))


@dataclass(frozen=True)
class TaskState:
    """Task with the stored state of its run: finished questions and status."""

    task: Task
    done: int
    status: str | None

    @property
    def pending(self) -> int:
        return self.task.run.questions - self.done

    @property
    def complete(self) -> bool:
        return self.pending == 0 and self.status == FINISHED


def load_benchmark(plan: BenchmarkPlan, metrics: Sequence[Metric] | None) -> Loaded:
    """Load a benchmark and choose the metrics to compute.

    Raises:
        UserError: The data cannot be loaded, or contain no question.
    """
    benchmark = datasets.load(plan.reference, plan.config).limited(plan.limit)
    if not benchmark.questions:
        raise UserError(
            "this split holds no question",
            code="empty-split",
            where=str(plan.reference),
            try_this=f"another split: `ragmeter list datasets {plan.reference.name}` lists them",
        )
    for metric in metrics or ():
        require_language(metric, benchmark.card.languages_of(benchmark.reference.subset), where=plan.where)
    loaded = Loaded(plan, benchmark, tuple(metrics) if metrics is not None else default_metrics(benchmark))
    _ = loaded.cluster  # what cannot be sampled is refused before anything runs
    return loaded


def default_metrics(benchmark: Benchmark) -> tuple[Metric, ...]:
    """Return the default metrics: the dataset's official ones, group metrics if there are groups, and ranking metrics if
    questions have positives.
    """
    names = list(benchmark.card.metrics_of(benchmark.reference.subset))
    if any(question.group is not None for question in benchmark.questions):
        names += GROUP_METRICS
    if any(question.evidence for question in benchmark.questions) and not any("level=documents" in name for name in names):
        names += RANKING_METRICS
    return tuple({str(metric): metric for metric in map(parse_metric, names)}.values())


def tasks_of(
    experiment: Experiment, on_load: Callable[[str], None] | None = None, resolved: Callable[[], Experiment] | None = None
) -> list[Task]:
    """Load every benchmark of an experiment, and make a task for each benchmark and method.

    Args:
        experiment: The validated experiment.
        on_load: Called with the name of each benchmark before it is loaded.
        resolved: Returns the experiment with revisions, after everything is loaded (`runner.revisions`); None uses the
            experiment unchanged.
    """
    forget_checkouts()
    every = []
    for plan in experiment.benchmarks:
        if on_load:
            on_load(str(plan.reference))
        loaded = load_benchmark(plan, experiment.metrics)
        # An impossible setting shows before anything runs.
        settings.check(plan.setting, loaded.benchmark, where=plan.where)
        require_scoring(experiment, loaded)
        for method in experiment.methods:
            _require_whole(loaded, method)
        every.append(loaded)
    methods = (resolved() if resolved else experiment).methods
    tasks = [Task(experiment.name, loaded, method, experiment.seed) for loaded in every for method in methods]
    first: dict[str, Task] = {}
    for task in tasks:
        other = first.setdefault(task.fingerprint, task)
        if other is not task:
            raise UserError(
                f"the methods {task.method.name!r} and {other.method.name!r} are identical on {task.run.dataset}",
                code="duplicate-work",
                where=experiment.source.where(("methods",)),
                try_this="remove one of the two methods (or of the two equal benchmarks)",
            )
    return tasks


def _require_whole(loaded: Loaded, method: MethodPlan) -> None:
    """Stop if a part would truncate texts that must be read as a whole.

    Raises:
        UserError: It would.
    """
    made_of = method.composition
    leaves_out = [part.id for part in (made_of.method, *made_of.rerankers, made_of.compressor) if part and not part.entry.reads_all]
    if "settings" not in loaded.benchmark.extra or made_of.method.entry.kind != "retriever" or not leaves_out:
        return
    raise UserError(
        f"the documents of {loaded.plan.reference} are read whole, but {leaves_out[0]} selects parts of them",
        code="read-whole-with-chooser",
        where=f"method {method.name}",
        try_this="only full_context, with `reading: benchmark` for its reader: texts that are too long lose their middle",
    )


def require_scoring(experiment: Experiment, loaded: Loaded) -> None:
    """Refuse a benchmark that no metric and no judge of the experiment can score.

    Raises:
        UserError: The benchmark cannot be scored; the message explains what to add.
    """
    benchmark, graphs = loaded.benchmark, QuestionGraphs.of(loaded.benchmark)
    wanted = [metric for metric in loaded.metrics if any(method.can_score(metric) for method in experiment.methods)]
    if any(can_score(metric, benchmark.questions, graphs) for metric in wanted):
        return
    from judges.llm.ask import has_gold

    gold = any(map(has_gold, benchmark.questions))
    if any(gold or "gold" not in plan.judge.entry.needs for plan in experiment.judges):
        return
    able = [metric for metric in loaded.metrics if can_score(metric, benchmark.questions, graphs)]
    if able:
        raise UserError(
            f"no method of this experiment returns what {', '.join(map(str, able))} {'reads' if len(able) == 1 else 'read'}",
            code="no-answers-to-score",
            where=loaded.plan.where,
            try_this="use metrics of rankings (recall@5) for the reader retrieval_only, of answers (f1) for the retriever no_retrieval",
        )
    defaults = [str(metric) for metric in default_metrics(benchmark) if can_score(metric, benchmark.questions, graphs)]
    free = "judges: [{id: open_pairwise, config: {llm: {model: …}}}] compares answers without gold; rule_style reads how they are written"
    raise UserError(
        f"nothing in this experiment can score {benchmark.name}: its questions lack what {', '.join(map(str, loaded.metrics))} "
        f"{'needs' if len(loaded.metrics) == 1 else 'need'}",
        code="nothing-to-score",
        where=loaded.plan.where,
        try_this=f"metrics: [{', '.join(defaults)}]" if defaults else free,
    )


def choose(
    tasks: Sequence[Task], store: Store, *, fresh: bool = False, reuse_replies: bool = False, retry_failed: bool = False
) -> list[Task]:
    """Choose the execution of each task that the next run of an experiment continues, shows or starts.

    Args:
        tasks: The experiment's tasks.
        store: The store with earlier executions.
        fresh: Start a new execution of every task.
        reuse_replies: Whether a new execution may use cached model replies.
        retry_failed: Start a new execution of finished runs with failed questions; it keeps the successful answers.
    """
    token = secrets.token_hex(TOKEN // 2)
    known = store.executions([task.fingerprint for task in tasks])
    names = {task.experiment for task in tasks}
    mine = {fingerprint_of(run): run for name in names for run in store.runs_of(name)}
    results = []
    for task in tasks:
        stored = known.get(task.fingerprint, [])
        current = _current(stored, mine.get(task.fingerprint))
        if fresh:
            results.append(task.execution(token if stored else "", "" if reuse_replies else token))
        elif current is None:
            results.append(task.execution("", ""))
        elif retry_failed and current.finished and current.failed:
            renewed = task.execution(token, current.replies)
            store.begin_as(renewed.run, current.run)
            results.append(renewed)
        else:
            results.append(task.execution(token_of(current.run), current.replies))
    return results


def _current(stored: Sequence[Execution], mine: str | None) -> Execution | None:
    """Return the execution that an experiment shows, else the newest finished one, else the newest."""
    own = next((execution for execution in stored if execution.run == mine), None)
    return own or max(stored, key=lambda execution: (execution.finished, execution.started_at), default=None)


def states(tasks: Sequence[Task], store: Store, *, retry_failed: bool = False) -> list[TaskState]:
    """Read the stored state of each task."""
    return [
        TaskState(task, len(store.finished_questions(task.run.run, retry_failed=retry_failed)), store.status(task.run.run))
        for task in tasks
    ]


SAMPLED = 20
"""Number of questions whose prompts an estimate is based on."""


def estimate(state: TaskState) -> Estimate | None:
    """Estimate the cost of the pending questions with a paid model, before retrieval.

    Prompts are built from the first pending questions with as many passages as the reader receives: the question's first
    candidates, or the first passages of the corpus.

    Returns:
        The estimate; None if the reader calls no endpoint, or nothing is pending.
    """
    made_of, benchmark = state.task.method.composition, state.task.loaded.benchmark
    reader = made_of.answering
    if reader is None or not hasattr(reader.entry.factory, "estimate") or not state.pending:
        return None
    queries = [question.query() for question in benchmark.questions[:SAMPLED]]
    everything = benchmark.corpus.ids
    contexts = []
    own = [filler(made_of.context_tokens)] if made_of.context_tokens else []
    for query in queries:
        named = everything if query.candidates is None else query.candidates
        passages = benchmark.corpus.get(named[: made_of.handed_on or len(named)])
        contexts.append(Context(query.id, (*own, *passages)))
    services = Services(seed=state.task.seed, reading=state.task.reading)
    sample = reader.build(services).estimate(queries, contexts)
    share = state.pending / len(queries)
    return Estimate(
        state.pending,
        0,
        round(sample.prompt_tokens * share),
        round(sample.completion_tokens * share),
        sample.usd * share,
        sample.counted_by,
        cache_known=False,  # the prompts to come are only like those counted here
    )


def require_device(device: str | None) -> None:
    """Check that a device's name is valid and that the device is available.

    Raises:
        UserError: The device is unknown or unavailable.
    """
    if device is None or device == "cpu":
        return
    if not _DEVICE.fullmatch(device):
        raise UserError(
            f"device {device!r} does not exist", code="no-device", where="--device", try_this="cpu, cuda, cuda:1 … or leave it out"
        )
    import torch

    here = torch.backends.mps.is_available() if device == "mps" else torch.cuda.is_available()
    number = int(device.partition(":")[2] or 0)
    if not here or (device.startswith("cuda") and number >= torch.cuda.device_count()):
        raise UserError(f"torch finds no device {device!r} here", code="unknown-device", where="--device", try_this="leave it out, or cpu")


def reach(states: Sequence[TaskState], cache: Path | None = None) -> None:
    """Test every endpoint that a pending task needs, once each.

    Args:
        states: The tasks.
        cache: File of cached model replies.

    Raises:
        Broke: An endpoint does not answer.
    """
    needed = [part for state in states if state.pending for part in state.task.method.components]
    for component in {component.fingerprint: component for component in needed}.values():
        for config in (component.config, *components_within(component.config)):
            config.reach(cache)
