"""Judging what is stored: every verdict accounted for, killed and continued, read again without a call."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.judging import (
    AS_GIVEN,
    FIRST,
    JUDGES,
    SWAPPED,
    Item,
    Judge,
    JudgeCall,
    JudgeConfig,
    Measure,
    Pair,
    Parsed,
    Score,
    register_judge,
)
from methods.api import FAILED, Prediction, Services
from methods.models.openai_server import ChatRequest, Refused
from methods.models.response_cache import ResponseCache
from ragmeter import judging
from ragmeter.commands import running
from ragmeter.experiment import JudgePlan
from ragmeter.judging import LOST, Replayed, execute, judgings, replay
from ragmeter.testing.faults import Faults
from ragmeter.testing.world_truth import WorldTruth
from results import judgements, queries
from results.battle_board import battle_boards
from results.board import boards
from results.queries import RunRow
from results.store import Store

REFERENCE = "worlds/multihop:test"
QUESTIONS = 10
EXPERIMENT = f"""\
name: small
reference: bm25
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {QUESTIONS}}}]
methods: [{{id: bm25}}, {{id: random, reader: extractive}}, {{id: gold_answer}}]
metrics: [em]
"""


class Silent:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.done = 0

    def begin(self, name: str, total: int, done: int) -> None:
        self.begun.append((name, total, done))

    def advance(self, questions: int) -> None:
        self.done += questions


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answered")
    (folder / "x.yaml").write_text(EXPERIMENT)
    request = running.Request(str(folder / "x.yaml"))
    assert running.run(request, folder / "store", as_json=True, quiet=True, verbose=False) == 0
    return folder / "store"


@pytest.fixture
def store(answered: Path, tmp_path: Path) -> Store:
    shutil.copytree(answered, tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture
def scratch() -> Iterator[None]:
    """Judges that a test registers are gone after it."""
    list(JUDGES)
    before = dict(JUDGES._entries)
    yield
    JUDGES._entries.clear()
    JUDGES._entries.update(before)


def runs(store: Store, *names: str) -> list[RunRow]:
    found = {row.method: row for row in queries.runs(store, "small")}
    return [found[name] for name in names] if names else list(found.values())


def llm(name: str, url: str, **options: Any) -> Judge:
    return Judge.of(name, {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, "timeout_s": 2.0,
                           **options})  # fmt: skip


def judge(
    store: Store, judge: Judge, chosen: Sequence[RunRow], *, retry: bool = False, everyone: bool = False
) -> Silent:
    progress = Silent()
    work = judgings([JudgePlan(judge, everyone)], chosen, "bm25")
    execute(work, store, Services(cache=store.cache), progress, retry_unscored=retry)
    return progress


def again(store: Store, old: Judge, new: Judge | None = None) -> list[Replayed]:
    def kept(keys: Sequence[str]) -> dict[str, str]:
        return {key: reply["text"].strip() for key, reply in ResponseCache(store.cache).get(keys).items()}

    return replay(store, str(old), new or old, Services(), queries.runs(store), kept)


def rows(store: Store, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    with store.database.reading() as connection:
        return {table: connection.execute(f"FROM {table} ORDER BY ALL").fetchall() for table in tables}


JUDGED = ("battles", "battle_calls", "judge_calls", "scores", "summaries")


# -- a whole judging under faults ----------------------------------------------------------------------------------


def faulty_pairwise(store: Store, repetitions: int, chosen: Sequence[str]) -> None:
    """Judge pairwise while a fifth of the tries and a fifth of the replies are faulty; then replay it offline."""
    faults = Faults(passing=0.2)
    truth = WorldTruth.of(REFERENCE, corruption=0.2, faults=faults)
    server = truth.server()
    with server.running() as url:
        pairwise = llm("pairwise", url, repetitions=repetitions)
        judge(store, pairwise, runs(store, *chosen))
        asked = server.calls
    assert sum(faults.played.values()) > 0
    assert sum(truth.corrupted.values()) > 0
    assert truth.unrecognised == 0

    (board,) = battle_boards(store, runs(store, *chosen), "bm25")
    for pairing in board.pairings:
        said = pairing.rate.verdicts
        assert pairing.pending == 0
        assert sum(said.values()) == 2 * repetitions * (QUESTIONS - pairing.unscorable)
    kept = rows(store, "battles")["battles"]
    by_cell = Counter((row[4], row[5], row[6], row[3], row[7], row[8]) for row in kept)  # question … repetition
    assert set(by_cell.values()) == {1}
    pairs = len(chosen) - 1
    verdicts = [(row[9], row[10]) for row in kept if (row[9], row[10]) != (None, None)]
    unscorable = {row[4] for row in kept} - {row[4] for row in kept if (row[9], row[10]) != (None, None)}
    assert len(verdicts) == pairs * (QUESTIONS - len(unscorable)) * 2 * repetitions * len(pairwise.entry.criteria)
    assert all((verdict is None) != (reason is None) for verdict, reason in verdicts)
    assert any(reason for _, reason in verdicts)

    before = rows(store, *JUDGED)
    boards_before = [one.to_json() for one in battle_boards(store, runs(store, *chosen), "bm25")]
    (*found,) = again(store, pairwise)
    assert server.calls == asked
    assert sum(one.changed + one.lost for one in found) == 0
    assert sum(one.questions for one in found) == pairs * QUESTIONS
    assert rows(store, *JUDGED) == before
    assert [one.to_json() for one in battle_boards(store, runs(store, *chosen), "bm25")] == boards_before


def test_a_pairwise_judging_survives_faults_and_replays_offline(store: Store) -> None:
    faulty_pairwise(store, 1, ["bm25", "random + extractive"])


@pytest.mark.slow
def test_a_pairwise_judging_of_all_with_five_repetitions_survives_faults_and_replays_offline(store: Store) -> None:
    faulty_pairwise(store, 5, ["bm25", "random + extractive", "gold_answer"])


def test_a_question_that_failed_is_in_the_judging_too(store: Store) -> None:
    run = runs(store, "bm25")[0].run
    first = store.predictions(run)[0].question_id
    store.append(run, [Prediction(first, "", notes={FAILED: "timeout"})], {})
    judge(store, Judge.of("rule_match"), runs(store, "bm25"))
    assert judgements.scores(store, run, str(Judge.of("rule_match")))[first]["accuracy"].value == 0.0


# -- whom a judge judges -------------------------------------------------------------------------------------------


def test_a_pair_judge_compares_with_the_reference_or_all_with_all(store: Store) -> None:
    pairwise = Judge.of("rule_pairwise")
    every = runs(store)

    def compared(plan: JudgePlan, reference: str | None) -> set[frozenset[str]]:
        return {frozenset(run.method for run in one.runs) for one in judgings([plan], every, reference)}

    others = ("random + extractive", "gold_answer")
    with_reference = {frozenset(("bm25", other)) for other in others}
    assert compared(JudgePlan(pairwise), "bm25") == with_reference
    assert compared(JudgePlan(pairwise, everyone=True), "bm25") == with_reference | {frozenset(others)}
    assert compared(JudgePlan(pairwise), None) == with_reference | {frozenset(others)}
    for one in judgings([JudgePlan(pairwise)], every, None):
        assert one.runs[0].run < one.runs[1].run


def test_a_run_named_twice_is_judged_once(store: Store) -> None:
    bm25 = runs(store, "bm25")
    assert len(judgings([JudgePlan(Judge.of("rule_match"))], bm25 * 2)) == 1
    assert judgings([JudgePlan(Judge.of("rule_pairwise"))], bm25 * 2) == []


# -- going on ------------------------------------------------------------------------------------------------------


class FragileConfig(JudgeConfig):
    """No options."""


class Fragile:
    """A judge that breaks after some questions.

    Attributes:
        left: Questions that it still judges.
        asked: All that it was asked about.
    """

    batch_size = 2
    left = 0
    error: type[BaseException] = RuntimeError
    asked: list[str] = []  # noqa: RUF012

    def __init__(self, config: FragileConfig, services: Services) -> None: ...

    def ask(self, things: Sequence[Item | Pair]) -> list[list[JudgeCall]]:
        if Fragile.left < len(things):
            raise Fragile.error("out of luck")
        Fragile.left -= len(things)
        Fragile.asked += [thing.question.id for thing in things]
        parts = ("x",) if isinstance(things[0], Item) else (AS_GIVEN, SWAPPED)
        return [[JudgeCall(part, 0, None, Parsed({"by": "luck"}), "rule") for part in parts] for _ in things]

    def parse(self, part: str, reply: str) -> Parsed:
        raise AssertionError("there is no reply")

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return {"luck": Score(1.0)}

    def verdicts(self, call: JudgeCall) -> Mapping[str, str | None]:
        return {"overall": FIRST}


def fragile(kind: Any) -> Judge:
    Fragile.left, Fragile.asked = 0, []
    measures = (Measure("luck", "Luck."),) if kind == "point" else ()
    criteria = ("overall",) if kind == "pair" else ()

    @register_judge(f"test_{kind}", kind=kind, summary="breaks", source="a test", needs=("answer",),
                    config=FragileConfig, measures=measures, criteria=criteria)  # fmt: skip
    def make(config: FragileConfig, services: Services) -> Fragile:
        """It breaks."""
        return Fragile(config, services)

    return Judge.of(f"test_{kind}")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["point", "pair"])
def test_a_killed_judging_goes_on_where_it_was_and_doubles_nothing(
    store: Store, scratch: None, kind: str, error: type[BaseException]
) -> None:
    mine = fragile(kind)
    Fragile.error, Fragile.left = error, 5
    chosen = runs(store, "bm25", "gold_answer")[: 1 if kind == "point" else 2]
    with pytest.raises(error):
        judge(store, mine, chosen)
    table = "judge_calls" if kind == "point" else "battles"
    parts = 1 if kind == "point" else 2
    assert len(rows(store, table)[table]) == 4 * parts
    first = list(Fragile.asked)
    if kind == "pair":
        (board,) = battle_boards(store, chosen, "bm25")
        assert board.pairings[0].pending == QUESTIONS - 4
    Fragile.left = 100
    progress = judge(store, mine, chosen)
    assert progress.begun[0][1:] == (QUESTIONS, 4)
    assert progress.done == QUESTIONS - 4
    assert len(first) == 4
    assert Counter(Fragile.asked) == dict.fromkeys(Fragile.asked, 1)
    assert len(rows(store, table)[table]) == QUESTIONS * parts
    before = list(Fragile.asked)
    assert judge(store, mine, chosen).done == 0
    assert Fragile.asked == before


def test_only_what_has_no_value_is_judged_again_when_asked(store: Store) -> None:
    sick = {"on": True}
    truth = WorldTruth.of(REFERENCE)

    @truth.handle
    def refuse(_: WorldTruth, request: ChatRequest) -> str | None:
        if sick["on"] and len(request.prompt) % 3 == 0:
            raise Refused(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
        return None

    server = truth.server()
    (run,) = runs(store, "random + extractive")
    with server.running() as url:
        match = llm("match", url, exact="none")
        judge(store, match, [run])
        before = judgements.scores(store, run.run, str(match))
        lost = {question for question, score in before.items() if score["accuracy"].unscored}
        assert 0 < len(lost) < QUESTIONS
        assert all("no reply" in str(before[question]["accuracy"].unscored) for question in lost)
        asked, sick["on"] = server.calls, False
        judge(store, match, [run])
        assert server.calls == asked
        judge(store, match, [run], retry=True)
        assert server.calls - asked == len(lost)
    after = judgements.scores(store, run.run, str(match))
    assert not any(score["accuracy"].unscored for score in after.values())
    assert {question: after[question] for question in before if question not in lost} == {
        question: score for question, score in before.items() if question not in lost
    }
    assert len(judgements.calls(store, run.run, str(match))) == len(after) == QUESTIONS


def test_a_new_answer_is_judged_anew(store: Store) -> None:
    rule = Judge.of("rule_match")
    pairwise = Judge.of("rule_pairwise")
    (run,) = runs(store, "random + extractive")
    chosen = runs(store, "bm25", "random + extractive")
    judge(store, rule, [run])
    judge(store, pairwise, chosen)
    question = next(item.question for item in judging.records.items(store, run) if item.question.answerable)
    store.append(run.run, [Prediction(question.id, question.golds[0])], {})
    assert judge(store, rule, [run]).done == 1
    assert judgements.scores(store, run.run, str(rule))[question.id]["accuracy"].value == 1.0
    assert judge(store, pairwise, chosen).done == 1
    assert len(rows(store, "judge_calls")["judge_calls"]) == QUESTIONS


# -- again, without a call -----------------------------------------------------------------------------------------


class Sheet:
    """A match judging whose replies are told, kept in the store's cache."""

    def __init__(self, store: Store) -> None:
        self.truth = WorldTruth.of(REFERENCE)
        said = iter(["Match", "Partial", "Mismatch", "dunno"] * QUESTIONS)

        @self.truth.handle
        def tell(_: WorldTruth, request: ChatRequest) -> str | None:
            return next(said) if "Partial" in str(request.messages) else None

        self.server = self.truth.server()
        (self.run,) = runs(store, "random + extractive")
        with self.server.running() as url:
            self.judge = llm("match", url, exact="none", concurrency=1)
            judge(store, self.judge, [self.run])
        self.calls = self.server.calls

    def other(self, **options: Any) -> Judge:
        return Judge.of("match", {**self.judge.config.model_dump(), **options})


def test_a_replay_by_another_policy_leaves_the_old_numbers_and_makes_no_call(store: Store) -> None:
    sheet = Sheet(store)
    before = judgements.scores(store, sheet.run.run, str(sheet.judge))
    drop = sheet.other(partial="drop")
    (found,) = again(store, sheet.judge, drop)
    after = judgements.scores(store, sheet.run.run, str(drop))
    verdicts = {q: (c[0].parsed.value or {}).get("verdict") for q, c in
                judgements.calls(store, sheet.run.run, str(sheet.judge)).items()}  # fmt: skip
    partial = {question for question, verdict in verdicts.items() if verdict == "Partial"}
    assert len(partial) > 1
    assert {q for q in before if before[q]["accuracy"] != after[q]["accuracy"]} == partial
    assert all(before[q]["accuracy"].value == 0.0 for q in partial)
    assert all("left out" in str(after[q]["accuracy"].unscored) for q in partial)
    assert judgements.scores(store, sheet.run.run, str(sheet.judge)) == before
    assert (found.questions, found.changed, found.lost) == (QUESTIONS, len(partial), 0)
    assert sheet.server.calls == sheet.calls


def test_a_reply_that_is_not_kept_any_more_is_unscored_under_another_policy(store: Store) -> None:
    sheet = Sheet(store)
    calls = judgements.calls(store, sheet.run.run, str(sheet.judge))
    read = [question for question, (call, *_) in calls.items() if call.parsed.value is not None]
    store.cache.unlink()
    before = judgements.scores(store, sheet.run.run, str(sheet.judge))
    drop = sheet.other(partial="drop")
    (found,) = again(store, sheet.judge, drop)
    assert (found.calls, found.lost) == (len(calls) - len(read), len(read))
    after = judgements.scores(store, sheet.run.run, str(drop))
    assert {score["accuracy"].unscored for question, score in after.items() if question in read} == {LOST}
    # A reply that could not be read then stays what it was.
    assert {q: s for q, s in after.items() if q not in read} == {q: s for q, s in before.items() if q not in read}


def test_what_the_same_judge_read_outlives_its_replies(store: Store) -> None:
    sheet = Sheet(store)
    before = judgements.scores(store, sheet.run.run, str(sheet.judge))
    store.cache.unlink()
    (found,) = again(store, sheet.judge)
    assert found.lost > 0
    assert found.changed == 0
    assert judgements.scores(store, sheet.run.run, str(sheet.judge)) == before


def test_rules_judge_anew_when_replayed(store: Store) -> None:
    loose, strict = Judge.of("rule_match", {"partial_f1": 0.05}), Judge.of("rule_match", {"partial_f1": 1.0})
    (run,) = runs(store, "random + extractive")
    for one in (loose, strict):
        judge(store, one, [run])
    direct = judgements.scores(store, run.run, str(strict))
    with store.database.writing() as connection:
        connection.execute("DELETE FROM judge_calls WHERE judge = ?", [str(strict)])
        connection.execute("DELETE FROM scores WHERE list_contains(?, metric)", [list(strict.metrics.values())])
    again(store, loose, strict)
    assert judgements.scores(store, run.run, str(strict)) == direct


def test_what_is_unscorable_stays_so_under_another_policy(store: Store) -> None:
    """Nothing is asked of a question without gold, and yet it is counted by every judge."""
    (run,) = runs(store, "random + extractive")
    first = store.predictions(run.run)[0].question_id
    with store.database.writing() as connection:
        connection.execute("UPDATE questions SET answers = [], golds = [] WHERE question = ?", [first])
    sheet = Sheet(store)
    drop = sheet.other(partial="drop")
    again(store, sheet.judge, drop)
    assert judgements.scores(store, run.run, str(drop))[first]["accuracy"] == Score(None)
    assert len(judgements.scores(store, run.run, str(drop))) == QUESTIONS
    pairwise = Judge.of("rule_pairwise")
    chosen = runs(store, "bm25", "random + extractive")
    judge(store, pairwise, chosen)
    ((_, total, done),) = judge(store, pairwise, chosen).begun
    assert (total, done) == (QUESTIONS, QUESTIONS)
    before = rows(store, "battles")
    again(store, pairwise)
    assert rows(store, "battles") == before
    (board,) = battle_boards(store, chosen, "bm25")
    assert {pairing.unscorable for pairing in board.pairings} == {1}


# -- by an experiment file -----------------------------------------------------------------------------------------


def judged_experiment(url: str, judges: str) -> str:
    options = f"{{model: m, base_url: '{url}', key_variable: null, backoff_s: 0.001, timeout_s: 2.0}}"
    return EXPERIMENT + "judges:\n" + judges.replace("OPTIONS", options)


@pytest.mark.slow
def test_match_grounding_and_pairwise_by_an_experiment_file(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("ragas")
    truth = WorldTruth.of(REFERENCE)
    server = truth.server()
    file = tmp_path / "judged.yaml"
    with server.running() as url:
        judges = (
            "  - {id: match, config: OPTIONS}\n  - {id: grounding, config: OPTIONS}\n  - rule_match\n"
            "  - {id: pairwise, config: OPTIONS, opponents: all}\n"
        )
        file.write_text(
            judged_experiment(url, judges).replace(
                "timeout_s: 2.0}, opponents", "timeout_s: 2.0, repetitions: 1}, opponents"
            )
        )
        request = running.Request(str(file))
        assert running.run(request, store.folder, as_json=True, quiet=True, verbose=False) == 0
        asked = server.calls
        assert running.run(request, store.folder, as_json=True, quiet=True, verbose=False) == 0
        assert server.calls == asked
    assert truth.unrecognised == 0
    # Everything is judged: no server is needed any more.
    assert running.run(request, store.folder, as_json=True, quiet=True, verbose=False) == 0
    (board,) = boards(store, "small")
    named = {metric.split("(")[0] for metric in board.metrics}
    assert named == {"em", "accuracy", "partial", "mismatch", "faithfulness", "factual_correctness"}
    assert sum(metric.startswith("accuracy") for metric in board.metrics) == 2
    for row in board.rows:
        for metric, cell in row.cells.items():
            assert cell.estimate.n + cell.estimate.unscorable + cell.unscored == QUESTIONS, metric
    gold = next(row for row in board.rows if row.run.method == "gold_answer")
    for metric, cell in gold.cells.items():
        if metric.startswith("accuracy"):
            assert cell.estimate.value == 1.0
            assert metric not in board.flags
    (fought,) = battle_boards(store, runs(store), "bm25")
    assert {frozenset((one.method, one.opponent)) for one in fought.pairings} == {
        frozenset(pair)
        for pair in (("bm25", "gold_answer"), ("bm25", "random + extractive"), ("gold_answer", "random + extractive"))
    }
    assert set(fought.strengths) == {"overall", "faithfulness", "conciseness"}
    assert fought.strengths["overall"][0][0] == "gold_answer"


@pytest.mark.slow
def test_questions_that_failed_are_answered_and_judged_again(store: Store, tmp_path: Path) -> None:
    rule, pairwise = Judge.of("rule_match"), Judge.of("rule_pairwise")
    (run,) = runs(store, "bm25")
    match = judgings([JudgePlan(pairwise)], runs(store, "bm25", "gold_answer"))[0].match
    judge(store, rule, [run])
    right = {q for q, score in judgements.scores(store, run.run, str(rule)).items() if score["accuracy"].value == 1}
    question = min(right)
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT + "judges: [rule_match, rule_pairwise]\n")

    def executed(**options: bool) -> tuple[float | None, str | None]:
        """What the rules say of the question once the experiment was run."""
        request = running.Request(str(file), **options)
        assert running.run(request, store.folder, as_json=True, quiet=True, verbose=False) == 0
        battles = judgements.battles(store, match.dataset_fingerprint, match.setting, str(pairwise), match)
        (verdict,) = {b.verdict for b in battles if b.question == question and b.criterion == "overall"}
        return judgements.scores(store, run.run, str(rule))[question]["accuracy"].value, verdict

    good = executed()
    assert good == (1.0, "tie")
    store.append(run.run, [Prediction(question, "", notes={FAILED: "timeout"})], {})
    assert executed() == (0.0, "one" if match.other == run.run else "other")
    assert executed() == (0.0, "one" if match.other == run.run else "other")
    assert executed(retry_failed=True) == good
    assert (
        len(judgements.calls(store, run.run, str(rule))) == len(judgements.fought(store, match, pairwise)) == QUESTIONS
    )
