"""Judging stored answers: pending ones, many questions at once, each stored within a second of its end.

Works on the store alone. A killed judging resumes, and its earlier replies come from the
cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Protocol

from benchmarks.core.errors import UserError
from judges.judge import LOST, Judge, JudgeCall, Pair, Parsed, counting
from judges.llm.ask import NO_REPLY
from judges.raising import call_that_raised, scores_of, verdicts_of, why_raised
from methods.api import Services
from methods.flow import Cancelled, each, in_flight, interrupt, is_cancelled, one, stream
from methods.models.limits import execution
from methods.models.llm import chats
from methods.presets import laid_over
from ragmeter.experiment import JudgePlan
from ragmeter.runner.recorder import Recorder
from ragmeter.runner.shield import shielded
from results.boards.board import groups
from results.boards.names import repeat_of, repeated_name
from results.boards.unread import Missing, max_unscored, missing_values, why_incomplete
from results.judging import judgments
from results.judging.judgments import Battle, Match
from results.store import records
from results.store.failures import IN_A_ROW, OTHER, Failures, Streak, kind_of
from results.store.queries import RunRow
from results.store.store import Store

_Judged = tuple[Any, list[JudgeCall]]
"""An item, or a pair, with the calls made for it."""


class Progress(Protocol):
    """Interface for displaying the progress of judging."""

    def begin(self, name: str, total: int, done: int) -> None: ...
    def advance(self, questions: int) -> None: ...


@dataclass(frozen=True)
class Judging:
    """Work of one judge on one run, or on a pair of runs.

    Attributes:
        judge: The judge.
        runs: One run, or two in the order of their fingerprints.
    """

    judge: Judge
    runs: tuple[RunRow, ...]

    @property
    def name(self) -> str:
        """Return the display name of this work."""
        return f"{self.judge.entry.id}: {' and '.join(run.method for run in self.runs)} on {self.runs[0].dataset}"

    @property
    def about(self) -> str | Match:
        """Return the run's id, or the pair of runs as a `Match`."""
        item, *others = self.runs
        return Match(item.dataset_fingerprint, item.setting, item.run, others[0].run) if others else item.run


def judgings(plans: Sequence[JudgePlan], runs: Sequence[RunRow], reference: str | None = None) -> list[Judging]:
    """List the work of judges on runs: point judges take each run, pair judges take pairs of runs on the same board.

    A run that lacks what a judge reads is left out. If it is the reference, a pair judge compares nothing with it.

    Args:
        plans: The judges.
        runs: The runs.
        reference: Name of the method to compare others with; None compares all pairs.
    """
    results = []
    for plan in plans:
        if plan.judge.entry.kind == "point":
            distinct = {run.run: run for run in runs}
            results += [Judging(plan.judge, (run,)) for run in distinct.values()]
            continue
        for group in groups(runs, seeds_apart=True):
            for a, b in _pairs_of_repeats(group, None if plan.everyone else reference):
                results.append(Judging(plan.judge, (a, b) if a.run < b.run else (b, a)))
    return [item for item in results if all(can_judge(item.judge, run) for run in item.runs)]


def can_judge(judge: Judge, run: RunRow) -> bool:
    """Return whether a run holds what a judge reads: without a reader there are no answers to judge."""
    return run.not_stated.isdisjoint(judge.entry.needs)


def not_judged(plans: Sequence[JudgePlan], runs: Sequence[RunRow]) -> list[str]:
    """List the runs that give no answers to some judge, one line each."""
    results = []
    for run in {run.run: run for run in runs}.values():
        if lacking := [plan.judge.entry.id for plan in plans if not can_judge(plan.judge, run)]:
            results.append(f"{run.method} on {run.dataset} gives no answers: {', '.join(dict.fromkeys(lacking))} left it out")
    return results


def _pairs_of_repeats(group: Sequence[RunRow], reference: str | None) -> Iterator[tuple[RunRow, RunRow]]:
    """Pair the runs of each repeat; if the reference has fewer repeats than others, use its first one."""
    for repeat in dict.fromkeys(repeat_of(run.method) for run in group):
        members = [run for run in group if repeat_of(run.method) == repeat]
        name = reference and repeated_name(reference, repeat)
        if name not in [run.method for run in members] and (base := [run for run in group if run.method == reference]):
            members, name = [*base, *members], reference
        yield from _pairs(members, name)


def _pairs(group: Sequence[RunRow], reference: str | None) -> Iterator[tuple[RunRow, RunRow]]:
    base = next((run for run in group if run.method == reference), None)
    for number, run in enumerate(group):
        if base is None:
            yield from ((run, other) for other in group[number + 1 :])
        elif run is not base:
            yield base, run


def execute(work: Sequence[Judging], store: Store, services: Services, progress: Progress, *, retry_unscored: bool = False) -> None:
    """Make all missing judgments, one work item after another; judges with batch endpoints wait for all batches together.

    Args:
        work: The work items.
        store: The store that holds the answers and receives the judgments.
        services: Provides the reply cache.
        progress: Receives a report of every step.
        retry_unscored: Judge questions without a value again, with new replies in place of unreadable cached ones; existing
            verdicts are kept.

    Raises:
        Broke: A judge's endpoint cannot be used; finished judgments are kept.
        Incomplete: Many calls in a row failed for one cause; finished judgments are kept.
    """
    built: dict[tuple[Judge, str, int], Any] = {}
    progress = shielded(progress)
    together: list[tuple[Judging, Any]] = []
    with execution():  # judges that ask one model spend from one budget
        for item in work:
            # A judge of a run that asked its models again asks again, too.
            replies = next((run.replies for run in item.runs if run.replies), "")
            key = item.judge, replies, max(repeat_of(run.method) for run in item.runs)
            if key not in built:
                judgments.put_judge(store, item.judge)
                built[key] = item.judge.build(replace(services, replies=replies, repeat=key[2], reask_unread=retry_unscored))
            if any(chat.batch for chat in chats(item.judge.config)):
                together.append((item, built[key]))
            else:
                _judge(item, built[key], store, progress, retry_unscored)
        if together:
            _judge_together(together, store, _Joint(progress), retry_unscored)


class _Joint:
    """Combined progress of several judgings."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._total = self._done = 0

    def begin(self, name: str, total: int, done: int) -> None:
        with self._lock:
            self._total, self._done = self._total + total, self._done + done
            self._progress.begin("judgings in batches", self._total, self._done)

    def advance(self, questions: int) -> None:
        with self._lock:
            self._done += questions
            self._progress.advance(questions)


def _judge_together(work: Sequence[tuple[Judging, Any]], store: Store, progress: Progress, retry: bool) -> None:
    """Judge in one thread per judging, because they mostly wait."""
    with ThreadPoolExecutor(len(work), thread_name_prefix="judging") as threads:
        begun = [threads.submit(copy_context().run, _judge, item, judge, store, progress, retry) for item, judge in work]
        try:
            wait(begun)
        except KeyboardInterrupt:
            interrupt()
            raise
    for judged in begun:
        try:
            judged.result()
        except Cancelled:
            raise KeyboardInterrupt from None


def filled(before: Sequence[JudgeCall], made: Sequence[JudgeCall]) -> list[JudgeCall]:
    """Merge the calls of a retry into the earlier ones: only unreadable calls are replaced."""
    read = {(call.part, call.repetition) for call in counting(before) if call.parsed.value is not None}
    kept = [call for call in before if (call.part, call.repetition) in read]
    return kept + [call for call in made if (call.part, call.repetition) not in read]


def pairs(store: Store, runs: Sequence[RunRow]) -> list[Pair]:
    """List the questions that two runs both answered, with both answers, in the dataset's order."""
    item, other = (records.answered(store, run) for run in runs)
    second = {prediction.question_id: prediction for prediction in other[1]}
    both = [(question, response) for question, response in zip(*item, strict=True) if question.id in second]
    gold = records.positives(store, [question for question, _ in both])
    return [Pair(question, response, second[question.id], passages) for (question, response), passages in zip(both, gold, strict=True)]


def _items(store: Store, entry: Judging) -> Sequence[Any]:
    return records.items(store, entry.runs[0]) if len(entry.runs) == 1 else pairs(store, entry.runs)


def _put(store: Store, entry: Judging, judge: Any, items: Sequence[Any], made: Sequence[list[JudgeCall]]) -> None:
    """Write the calls about items (or pairs), and the judge's results."""
    names, about = [item.question.id for item in items], entry.about
    if isinstance(about, str):
        scores = [scores_of(judge, entry.judge.entry, item, calls) for item, calls in zip(items, made, strict=True)]
        judgments.put_judgments(store, about, entry.judge, names, made, scores)
    else:
        read = [[verdicts_of(judge, entry.judge.entry, call) for call in calls] for calls in made]
        calls = [[call for call, _ in row] for row in read]
        judgments.put_battles(store, about, entry.judge, names, calls, [[verdicts for _, verdicts in row] for row in read])


def _judge(entry: Judging, judge: Any, store: Store, progress: Progress, retry: bool) -> None:
    known = judgments.judged(store, entry.about, entry.judge, retry_unscored=retry)
    every = _items(store, entry)
    pending = [item for item in every if item.question.id not in known]
    before = judgments.calls(store, entry.about, str(entry.judge)) if pending else {}
    progress.begin(entry.name, len(every), len(every) - len(pending))
    if not pending:  # nor is a model opened
        return
    ask = one(judge, "ask")

    async def judged(item: Any) -> _Judged:
        try:
            return item, await ask(item)
        except UserError:
            raise
        except BaseException as error:
            if is_cancelled():
                raise
            return item, [call_that_raised(error)]

    def write(judged: Sequence[_Judged]) -> None:
        made = [filled(before.get(item.question.id, ()), calls) for item, calls in judged]
        _put(store, entry, judge, [item for item, _ in judged], made)

    streak = Streak()
    judging = stream(judged, pending, in_flight([(judge, "ask")]))
    with Recorder(write) as recorder, closing(judging):
        for result in judging:
            recorder.add(result)
            progress.advance(1)
            calls = [call for call in result[1] if call.key is not None or why_raised([call])]
            if calls and streak.stops(reason := _no_reply(calls)):
                what = f"{entry.name}: stopped after {IN_A_ROW} consecutive failures with the same cause"
                raise Failures.of(IN_A_ROW, [(str(reason), IN_A_ROW)]).error(what, RETRY)


def _no_reply(calls: Sequence[JudgeCall]) -> str | None:
    """Return why no call about an item returned a reply; None if one did, with any content."""
    unscored = [call.parsed.unscored.removeprefix(f"{NO_REPLY}: ") for call in calls if call.parsed.unscored]
    reasons = [reason for reason in unscored if kind_of(reason) != OTHER]
    return reasons[0] if len(reasons) == len(calls) else None


RETRY = "the same command with --retry-failed (ragmeter run) or --retry-unscored (ragmeter judge run)"
"""Remedy for missing verdicts."""


READABLE = "see the reasons with `ragmeter judge card JUDGE`; a model that follows the form, or a larger max_tokens"
"""Remedy for replies that cannot be parsed."""


def incomplete(store: Store, work: Sequence[Judging]) -> list[str]:
    """List the work items with too many missing verdicts, one line each."""
    results = []
    for judging in work:
        if why := _incomplete(store, judging):
            results.append(f"{judging.name}: {why}")
    return results


def _incomplete(store: Store, judging: Judging) -> str:
    """Return why a judging is incomplete; empty if it is complete."""
    runs = [run.run for run in judging.runs]
    experiments = {run.experiment for run in judging.runs}
    if isinstance(judging.about, Match):
        unread, scorable = judgments.unread_battles(store, judging.about, judging.judge)
        with store.database.reading() as connection:
            return why_incomplete(Missing(unread, unread == scorable), scorable, max_unscored(connection, experiments))
    with store.database.reading() as connection:
        most = max_unscored(connection, experiments)
        missing = missing_values(connection, runs, list(judging.judge.metrics.values()))
    scores = judgments.scores(store, runs[0], str(judging.judge)) if missing else {}
    for name, metric in judging.judge.metrics.items():
        scorable = sum(
            score.value is not None or score.unscored is not None for score in (row[name] for row in scores.values() if name in row)
        )
        if (lacking := missing.get((runs[0], metric))) and (why := why_incomplete(lacking, scorable, most)):
            return why
    return ""


def with_policy(card: Mapping[str, Any], settings: Mapping[str, Any]) -> Judge:
    """Return a stored judge with other scoring options; options that change what the model is asked are refused."""
    from ragmeter.runner.rewriting import judge_of

    old = judge_of(card["judge"], card["config"])
    judge = judge_of(card["judge"], laid_over(card["config"], settings))
    before, now, also = old.config.deciding(), judge.config.deciding(), judge.identity["also"]
    fixed = [name for name in now if now[name] != before[name] and name not in judge.config.policy]
    # A file of the same text under another name asks the same; a folder of the same name may hold other weights.
    fixed += [name for name in settings if also.get(name) != card["also"].get(name)]
    fixed += ["llm"] if also.get("weights") != card["also"].get("weights") else []
    if fixed and not judge.rule:
        may = ", ".join(sorted(judge.config.policy)) or "none of its options"
        raise UserError(
            f"{fixed[0]} changes the prompts of {card['judge']}, but a replay makes no requests",
            code="replay-would-ask",
            where="--set",
            try_this=f"a replay can change {may}; for the rest: ragmeter judge run {card['judge']} --set {fixed[0]}=…",
        )
    return judge


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of scoring a judge's cached replies again (`replay`).

    Attributes:
        name: Display name of the judge's work.
        questions: Number of questions that were scored again.
        calls: Number of calls whose cached reply was parsed again.
        lost: Number of calls whose reply is no longer cached. They become unscored, except under the judge that made them,
            whose verdicts are stored.
        changed: Number of questions with a different value or verdict.
    """

    name: str
    questions: int
    calls: int
    lost: int
    changed: int


def replay(store: Store, old: str, judge: Judge, services: Services, runs: Sequence[RunRow], kept: Replies) -> list[Replayed]:
    """Parse a judge's cached replies again, with another parser or other scoring options, without any call.

    Args:
        store: The store that holds the judgments.
        old: Id of the judge that made the calls.
        judge: The judge that parses them, under whose id the scores are stored.
        services: Services to build the judge with.
        runs: All runs of the store.
        kept: Raw replies by key.
    """
    judgments.put_judge(store, judge)
    by_id = {run.run: run for run in runs}
    built = judge.build(services)
    results = []
    for names in _judged(store, old, judge):
        reader = _Reader(built, kept, rule=judge.rule, same=str(judge) == old)
        results.append(_replay(store, old, Judging(judge, tuple(by_id[name] for name in names)), reader))
    return results


def _judged(store: Store, old: str, judge: Judge) -> list[tuple[str, ...]]:
    """Return the runs, or pairs of runs, with stored calls of a judge."""
    if judge.entry.kind == "point":
        return [(run,) for run in judgments.judged_runs(store, old)]
    return [(match.one, match.other) for _, match in judgments.matches(store, old)]


Replies = Callable[[Sequence[str]], Mapping[str, str]]
"""Function from keys of calls to cached raw replies."""


class _Reader:
    """Parser of stored calls.

    Args:
        judge: The judge; rules judge again, since that takes no call.
        kept: Raw replies.
        rule: Whether the judge is a rule.
        same: Whether the judge made the calls itself, so that its stored parsing results count.

    Attributes:
        lost: Number of calls whose parsed reply is no longer cached.
    """

    def __init__(self, judge: Any, kept: Replies, *, rule: bool, same: bool) -> None:
        self.judge = judge
        self.lost = 0
        self._kept = kept
        self._rule = rule
        self._same = same

    def again(self, queries: Sequence[Any], calls: Sequence[Sequence[JudgeCall]]) -> list[list[JudgeCall]]:
        """Return the calls about items (or pairs), with their replies parsed by the judge's present rules."""
        if self._rule:
            return each(self.judge, "ask", queries)
        replies = self._kept([call.key for made in calls for call in made if call.key is not None])
        return [[self._again(call, replies) for call in made] for made in calls]

    def _again(self, call: JudgeCall, replies: Mapping[str, str]) -> JudgeCall:
        # A call that failed left no reply; it stays what it was.
        if call.key is None or (call.key not in replies and call.parsed.value is None):
            return call
        if call.key not in replies:
            self.lost += 1
            return call if self._same else replace(call, parsed=Parsed(None, LOST))
        return replace(call, parsed=self.judge.parse(call.part, replies[call.key]))


def _replay(store: Store, old: str, entry: Judging, reader: _Reader) -> Replayed:
    about = entry.about

    def said(judge: str) -> Mapping[str, Any]:
        if isinstance(about, str):
            return judgments.scores(store, about, judge)
        results: dict[str, set[Battle]] = {}
        for battle in judgments.battles(store, about.dataset_fingerprint, about.setting, judge, about):
            results.setdefault(battle.question, set()).add(battle)
        return results

    before, kept = said(old), judgments.calls(store, about, old)
    items = [item for item in _items(store, entry) if item.question.id in before]
    names = [item.question.id for item in items]
    # A question without a call is unscorable, and stays so.
    made = reader.again(items, [kept.get(name, []) for name in names])
    _put(store, entry, reader.judge, items, made)
    after = said(str(entry.judge))
    read = sum(call.key is not None for calls in made for call in calls) - reader.lost
    return Replayed(entry.name, len(made), read, reader.lost, sum(before[name] != after.get(name) for name in names))
