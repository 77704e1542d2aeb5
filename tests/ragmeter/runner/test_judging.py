"""Judging of stored answers: pairs, resuming, and judges in an experiment file."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from judges.judge import AS_GIVEN, FIRST, JUDGES, SWAPPED, Item, Judge, JudgeCall, JudgeConfig, Measure, Pair, Parsed, Score, register_judge
from judges.raising import scores_of
from methods.api import FAILED, Prediction, Services
from ragmeter.api import run as run_experiment
from ragmeter.experiment import JudgePlan
from ragmeter.runner.judging import judgings, not_judged
from results.boards.board import boards
from results.judging import judgments
from results.judging.battles import battle_boards
from results.store.store import Store
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written
from tests.support.stores import answer_again


@pytest.fixture(scope="session")
def small(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("small_experiment.py"))


@pytest.fixture(scope="session")
def experiment_text(small: ModuleType) -> str:
    return small.EXPERIMENT


@pytest.fixture
def scratch() -> Iterator[None]:
    """Unregister judges after the test."""
    list(JUDGES)
    before = dict(JUDGES._entries)
    yield
    JUDGES._entries.clear()
    JUDGES._entries.update(before)


@pytest.mark.slow
def test_pairwise_judge_compares_with_the_reference_or_all_pairs(small: ModuleType, store: Store) -> None:
    pairwise = Judge.of("rule_pairwise")
    every = small.runs(store)

    def compared(plan: JudgePlan, reference: str | None) -> set[frozenset[str]]:
        return {frozenset(run.method for run in item.runs) for item in judgings([plan], every, reference)}

    others = ("random + extractive", "gold_answer")
    with_reference = {frozenset(("bm25", other)) for other in others}
    assert compared(JudgePlan(pairwise), "bm25") == with_reference
    assert compared(JudgePlan(pairwise, everyone=True), "bm25") == with_reference | {frozenset(others)}
    assert compared(JudgePlan(pairwise), None) == with_reference | {frozenset(others)}
    for item in judgings([JudgePlan(pairwise)], every, None):
        assert item.runs[0].run < item.runs[1].run


def test_run_listed_twice_is_judged_once(small: ModuleType, store: Store) -> None:
    bm25 = small.runs(store, "bm25")
    assert len(judgings([JudgePlan(Judge.of("rule_match"))], bm25 * 2)) == 1
    assert judgings([JudgePlan(Judge.of("rule_pairwise"))], bm25 * 2) == []


RANKINGS = """\
name: rankings
reference: REFERENCE
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 3, config: {worlds: 1}}]
methods: [{id: bm25, name: ranks, reader: retrieval_only}, {id: bm25, name: answers}, {id: random, name: other}]
metrics: [recall@5, em]
judges: [rule_match, rule_pairwise]
"""


@pytest.mark.parametrize(("reference", "compared"), [("answers", [("answers", "other")]), ("ranks", [])])
def test_run_without_answers_is_not_judged(tmp_path: Path, reference: str, compared: list[tuple[str, str]]) -> None:
    file, folder = tmp_path / "rankings.yaml", tmp_path / "store"
    file.write_text(RANKINGS.replace("REFERENCE", reference), "utf-8")
    assert not run_experiment(file, store=folder).failed
    (board,) = boards(Store(folder), "rankings")
    judged = {row.run.method: {metric for metric, cell in row.cells.items() if cell.estimate.n} for row in board.rows}
    measures = {metric for metric in board.metrics if metric.startswith("accuracy")}
    assert len(measures) == 1
    assert {method for method, scored in judged.items() if scored & measures} == {"answers", "other"}
    assert {method for method, scored in judged.items() if any(metric.startswith("recall") for metric in scored)} == {*judged}
    every = [row.run for row in board.rows]
    plans = [JudgePlan(Judge.of("rule_pairwise"))]
    named = [tuple(sorted(run.method for run in item.runs)) for item in judgings(plans, every, reference)]
    assert named == compared
    assert [line.split(" on ")[0] for line in not_judged(plans, every)] == ["ranks"]


class FragileConfig(JudgeConfig):
    """Options without fields."""


class Fragile:
    """Judge that fails after some questions.

    Attributes:
        left: Number of questions that it still judges.
        requested: Judged questions.
        error: Error that it raises then.
    """

    in_flight = 1
    left = 0
    requested: list[str] = []  # noqa: RUF012
    error: type[BaseException] = UserError

    def __init__(self, config: FragileConfig, services: Services) -> None: ...

    async def ask_one(self, item: Item | Pair) -> list[JudgeCall]:
        if not Fragile.left:
            raise Fragile.error("out of luck")
        Fragile.left -= 1
        Fragile.requested.append(item.question.id)
        parts = ("x",) if isinstance(item, Item) else (AS_GIVEN, SWAPPED)
        return [JudgeCall(part, 0, None, Parsed({"by": "luck"}), "rule") for part in parts]

    def parse(self, part: str, reply: str) -> Parsed:
        raise AssertionError("there is no reply")

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return {"luck": Score(1.0)}

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        return {"overall": FIRST}


def fragile(kind: Any) -> Judge:
    Fragile.left, Fragile.requested = 0, []
    measures = (Measure("luck", "Luck."),) if kind == "point" else ()
    criteria = ("overall",) if kind == "pair" else ()

    @register_judge(
        f"test_{kind}",
        kind=kind,
        summary="breaks",
        source="a test",
        needs=("answer",),
        config=FragileConfig,
        measures=measures,
        criteria=criteria,
    )
    def make(config: FragileConfig, services: Services) -> Fragile:
        """Raise an error."""
        return Fragile(config, services)

    return Judge.of(f"test_{kind}")


@pytest.mark.parametrize(("kind", "error"), [("point", KeyboardInterrupt), ("pair", UserError)])
def test_killed_judging_resumes_without_duplicates(
    small: ModuleType, store: Store, scratch: None, kind: str, error: type[BaseException]
) -> None:
    mine = fragile(kind)
    interrupted = error is KeyboardInterrupt
    Fragile.left = 100 if interrupted else 4
    chosen = small.runs(store, "bm25", "gold_answer")[: 1 if kind == "point" else 2]
    with pytest.raises(error):
        small.judge(store, mine, chosen, progress=small.Silent(interrupted_after=4 if interrupted else None))
    table = "judge_calls" if kind == "point" else "battles"
    parts = 1 if kind == "point" else 2
    assert len(small.rows(store, table)[table]) == 4 * parts
    first = list(Fragile.requested)
    if kind == "pair":
        (board,) = battle_boards(store, chosen, "bm25")
        assert board.pairings[0].pending == small.QUESTIONS - 4
    Fragile.left = 100
    progress = small.judge(store, mine, chosen)
    assert progress.prepared[0][1:] == (small.QUESTIONS, 4)
    assert progress.done == small.QUESTIONS - 4
    assert len(first) == 4
    assert Counter(Fragile.requested) == dict.fromkeys(Fragile.requested, 1)
    assert len(small.rows(store, table)[table]) == small.QUESTIONS * parts
    before = list(Fragile.requested)
    assert small.judge(store, mine, chosen).done == 0
    assert Fragile.requested == before


@pytest.mark.parametrize(("kind", "error"), [("point", GeneratorExit), ("pair", KeyError)])
def test_questions_with_a_judge_exception_are_unscored_and_judged_again(
    small: ModuleType, store: Store, scratch: None, kind: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = fragile(kind)
    monkeypatch.setattr(Fragile, "error", error)
    Fragile.left = small.QUESTIONS - 3
    chosen = small.runs(store, "bm25", "gold_answer")[: 1 if kind == "point" else 2]
    table = "scores" if kind == "point" else "battles"
    unscored = f"SELECT DISTINCT question, unscored FROM {table} WHERE unscored LIKE 'raised: {error.__name__}%'"
    small.judge(store, mine, chosen)
    assert len(store.database.rows(unscored)) == 3
    Fragile.left = 100
    assert small.judge(store, mine, chosen).done == 3
    assert store.database.rows(unscored) == []


@pytest.mark.parametrize(
    "value",
    [Score(float("nan")), Score(2.0), Score("good"), Score(None, "unread"), None],
    ids=["nan", "range", "text", "unread", "nothing"],
)
def test_invalid_judge_scores_leave_the_question_unscored(scratch: None, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = fragile("point")
    monkeypatch.setattr(Fragile, "score", lambda self, item, calls: {"luck": value})
    (score,) = scores_of(mine.build(Services()), mine.entry, None, []).values()  # type: ignore[arg-type]
    assert score.value is None
    assert score.unscored


@pytest.mark.slow
def test_only_unscored_questions_are_judged_again_on_request(small: ModuleType, store: Store) -> None:
    sick = {"on": True}
    truth = WorldTruth.of(small.REFERENCE)

    @truth.handle
    def refuse(_: WorldTruth, request: ChatRequest) -> str | None:
        if sick["on"] and len(request.prompt) % 3 == 0:
            raise Refused(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
        return None

    server = truth.server()
    (run,) = small.runs(store, "random + extractive")
    with server.running() as url:
        match = small.llm("match", url, exact="none")
        small.judge(store, match, [run])
        before = judgments.scores(store, run.run, str(match))
        lost = {question for question, score in before.items() if score["accuracy"].unscored}
        assert 0 < len(lost) < small.QUESTIONS
        assert all("no reply" in str(before[question]["accuracy"].unscored) for question in lost)
        query, sick["on"] = server.calls, False
        small.judge(store, match, [run])
        assert server.calls == query
        small.judge(store, match, [run], retry=True)
        assert server.calls - query == len(lost)
    after = judgments.scores(store, run.run, str(match))
    assert not any(score["accuracy"].unscored for score in after.values())
    assert {question: after[question] for question in before if question not in lost} == {
        question: score for question, score in before.items() if question not in lost
    }
    assert len(judgments.calls(store, run.run, str(match))) == len(after) == small.QUESTIONS


@pytest.mark.slow
def test_slow_reply_does_not_delay_other_judgments(small: ModuleType, store: Store) -> None:
    """One call in twenty hangs; other judgments are in the store before it ends."""
    slow, begun, numbers = threading.Event(), threading.Event(), count()

    def answer(request: ChatRequest) -> Written:
        if next(numbers) == 3:
            begun.set()
            slow.wait(60)
        return Written("Match")

    (run,) = small.runs(store, "random + extractive")
    with OpenAIServer("m", answer).running() as url:
        match = small.llm("match", url, exact="none", repetitions=2, concurrency=3, timeout_s=90)
        progress = small.Silent()
        judging_it = threading.Thread(target=small.judge, args=(store, match, [run]), kwargs={"progress": progress})
        judging_it.start()
        try:
            assert begun.wait(30)
            until = time.monotonic() + 30
            while (stored := len(judgments.calls(store, run.run, str(match)))) < small.QUESTIONS - 1 and time.monotonic() < until:
                time.sleep(0.05)
            assert stored == progress.done == small.QUESTIONS - 1
            assert not slow.is_set()
        finally:
            slow.set()
            judging_it.join(30)
    assert progress.done == len(judgments.calls(store, run.run, str(match))) == small.QUESTIONS


@pytest.mark.slow
def test_failed_questions_are_judged(small: ModuleType, store: Store) -> None:
    run = small.runs(store, "bm25")[0].run
    first = store.predictions(run)[0].question_id
    answer_again(store, run, [Prediction(first, "", notes={FAILED: "timeout"})])
    small.judge(store, Judge.of("rule_match"), small.runs(store, "bm25"))
    assert judgments.scores(store, run, str(Judge.of("rule_match")))[first]["accuracy"].value == 0.0


def judged_experiment(experiment: str, url: str, judges: str) -> str:
    options = f"{{llm: {{model: m, base_url: '{url}', key_variable: null, backoff_s: 0.001, timeout_s: 30.0}}}}"
    return experiment + "judges:\n" + judges.replace("OPTIONS", options)


@pytest.mark.slow
def test_experiment_file_runs_match_grounding_and_pairwise_judges(small: ModuleType, store: Store, tmp_path: Path) -> None:
    pytest.importorskip("ragas")
    truth = WorldTruth.of(small.REFERENCE)
    server = truth.server()
    file, questions = tmp_path / "judged.yaml", 4
    text = small.EXPERIMENT.replace(f"limit: {small.QUESTIONS}", f"limit: {questions}")
    with server.running() as url:
        judges = (
            "  - {id: match, config: OPTIONS}\n  - {id: grounding, config: OPTIONS}\n  - rule_match\n"
            "  - {id: pairwise, config: OPTIONS, opponents: all}\n"
        )
        file.write_text(
            judged_experiment(text, url, judges).replace("timeout_s: 30.0}, opponents", "timeout_s: 30.0, repetitions: 1}, opponents")
        )
        assert not run_experiment(file, store=store.folder).failed
        query = server.calls
        assert not run_experiment(file, store=store.folder).failed
        assert server.calls == query
    assert truth.unrecognized == 0
    # Everything is judged: no server is needed any more.
    assert not run_experiment(file, store=store.folder).failed
    (board,) = boards(store, "small")
    named = {metric.split("(")[0] for metric in board.metrics}
    assert named == {"em", "accuracy", "partial", "mismatch", "faithfulness", "factual_correctness"}
    assert sum(metric.startswith("accuracy") for metric in board.metrics) == 2
    for row in board.rows:
        for metric, cell in row.cells.items():
            assert cell.estimate.n + cell.estimate.unscorable + cell.unscored == questions, metric
    gold = next(row for row in board.rows if row.run.method == "gold_answer")
    for metric, cell in gold.cells.items():
        if metric.startswith("accuracy"):
            assert cell.estimate.value == 1.0
            assert metric not in board.flags
    (fought,) = battle_boards(store, small.runs(store), "bm25")
    assert {frozenset((pairing.method, pairing.opponent)) for pairing in fought.pairings} == {
        frozenset(pair) for pair in (("bm25", "gold_answer"), ("bm25", "random + extractive"), ("gold_answer", "random + extractive"))
    }
    assert set(fought.strengths) == {"overall", "faithfulness", "conciseness"}
    assert fought.strengths["overall"][0][0] == "gold_answer"


@pytest.mark.slow
def test_failed_questions_are_answered_and_judged_again(small: ModuleType, store: Store, tmp_path: Path) -> None:
    rule, pairwise = Judge.of("rule_match"), Judge.of("rule_pairwise")
    (run,) = small.runs(store, "bm25")
    small.judge(store, rule, [run])
    right = {q for q, score in judgments.scores(store, run.run, str(rule)).items() if score["accuracy"].value == 1}
    question = min(right)
    file = tmp_path / "x.yaml"
    file.write_text(small.EXPERIMENT + "judges: [rule_match, rule_pairwise]\n")

    def executed(**options: bool) -> tuple[float | None, str | None]:
        """Run the experiment and return the rule verdicts on the question: the value, and the winner against the gold."""
        assert not run_experiment(file, store=store.folder, **options).failed
        shown = {row.method: row for row in small.runs(store)}
        match = judgings([JudgePlan(pairwise)], [shown["bm25"], shown["gold_answer"]])[0].about
        battles = judgments.battles(store, match.dataset_fingerprint, match.setting, str(pairwise), match)
        (verdict,) = {b.verdict for b in battles if b.question == question and b.criterion == "overall"}
        winner = {"one": match.one, "other": match.other}.get(str(verdict), verdict)
        assert len(judgments.calls(store, shown["bm25"].run, str(rule))) == len(judgments.judged(store, match, pairwise)) == small.QUESTIONS
        return judgments.scores(store, shown["bm25"].run, str(rule))[question]["accuracy"].value, winner

    good = executed()
    assert good == (1.0, "tie")
    answer_again(store, run.run, [Prediction(question, "", notes={FAILED: "timeout"})])
    (gold,) = small.runs(store, "gold_answer")
    assert executed() == (0.0, gold.run)
    assert executed() == (0.0, gold.run)
    assert executed(retry_failed=True) == good
