from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from judges.metric import parse as parse_metric
from judges.score import score
from methods.api import Evidence, Prediction, Services, Usage
from methods.pipeline import Composition
from methods.registry import METHODS, Component, MethodConfig, register
from ragmeter import experiment
from ragmeter.runner.loop import Outcome, execute
from ragmeter.runner.tasks import Task, states, tasks_of
from results.boards.board import boards
from results.boards.verdict_of import verdicts
from results.gate.comparable import margins_of
from results.store import cost_queries, queries, score_queries
from results.store.store import FAILED_RUN, FINISHED, Store
from tests.support.errors import raises

FILE = """\
name: small
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 12}]
methods: [{id: bm25}, {id: gold_answer}, {id: random}]
metrics: [em, f1(rules=hotpotqa), recall@5, mrr@10]
"""


class Silent:
    """Progress that shows nothing and records stages."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def begin(self, task: Task, done: int) -> None: ...

    def stage(self, task: Task, name: str) -> None:
        self.seen.append((task.method.name, name))

    def advance(self, task: Task, questions: int) -> None: ...

    def end(self, task: Task, status: str, message: str | None) -> None:
        self.seen.append((task.method.name, status))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def scratch() -> Iterator[None]:
    """Unregister methods after the test."""
    list(METHODS)
    before = dict(METHODS._entries)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


def run(store: Store, text: str = FILE, progress: Silent | None = None, **options: bool):
    result = experiment.parse(text, "x.yaml")
    tasks = tasks_of(result)
    store.put_experiment(result.name, text, None, None, result.reference, [task.run.run for task in tasks])
    pending = states(tasks, store, retry_failed=options.get("retry_failed", False))
    return execute(pending, store, Services(seed=result.seed), progress or Silent(), **options)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome]]:
    """Return the folder of a store in which the experiment was run, and the outcomes of its tasks; do not write to it."""
    store = Store(tmp_path_factory.mktemp("once") / "store")
    return store.folder, run(store)


@pytest.fixture
def finished(once: tuple[Path, list[Outcome]], tmp_path: Path) -> Store:
    """Return a copy of that store."""
    return Store(Path(shutil.copytree(once[0], tmp_path / "finished")))


def rows(store: Store) -> dict[str, list[tuple]]:
    """Return everything that must be equal between two executions (not times)."""
    columns = {
        "predictions": "run, question, answer, notes",
        "evidence": "run, question, rank, id, score",
        "scores": "run, question, metric, value",
        "usage": "run, question, prompt_tokens, completion_tokens, model_calls",
        "passages": "id, title, text",
    }
    with store.database.reading() as connection:
        return {t: connection.execute(f"SELECT {columns[t]} FROM {t} ORDER BY ALL").fetchall() for t in columns}


@pytest.mark.slow
def test_finished_run_has_every_question_scored_on_every_metric(finished: Store, once: tuple[Path, list[Outcome]]) -> None:
    assert [outcome.status for outcome in once[1]] == [FINISHED] * 3
    for row in queries.runs(finished, "small"):
        assert (row.done, row.status) == (12, FINISHED)
        assert set(finished.scored(row.run).values()) == {12}


def test_stored_scores_equal_the_scores_of_the_predictions(finished: Store, once: tuple[Path, list[Outcome]]) -> None:
    task = once[1][0].task
    questions = {q.id: q for q in task.loaded.benchmark.questions}
    predictions = finished.predictions(task.run.run)
    corpus = task.loaded.benchmark.corpus
    fresh = score([questions[p.question_id] for p in predictions], predictions, task.loaded.metrics, passage=lambda i: corpus.get([i])[0])
    columns = score_queries.score_columns(finished, task.loaded.fingerprint, [task.run.run]).values
    for metric, values in fresh.items():
        assert sorted(columns[task.run.run, metric].tolist()) == sorted(values.tolist())


def test_gold_answer_control_is_perfect_and_never_the_reference(finished: Store) -> None:
    (board,) = boards(finished, "small")
    assert board.reference == "bm25"
    gold = next(row for row in board.rows if row.run.method == "gold_answer")
    assert gold.control
    em = next(metric for metric in board.metrics if metric.startswith("em"))
    assert gold.cells[em].estimate.value == 1.0
    assert gold.cells[em].difference is None


@pytest.mark.slow
def test_rerun_answers_and_changes_nothing(finished: Store) -> None:
    before = rows(finished)
    progress = Silent()
    outcomes = run(finished, progress=progress)
    assert [outcome.answered for outcome in outcomes] == [0, 0, 0]
    assert not [name for _, name in progress.seen if name in {"build", "index", "answer", "score"}]
    assert rows(finished) == before


@pytest.mark.slow
def test_experiments_that_share_a_run_keep_their_row_names(store: Store) -> None:
    def execute_as(name: str, method: str) -> None:
        text = FILE.replace("name: small", f"name: {name}").replace("{id: bm25}", f"{{id: bm25, name: {method}}}")
        result = experiment.parse(text, "x")
        tasks = tasks_of(result)
        names = [task.method.name for task in tasks]
        store.put_experiment(name, text, None, None, result.reference, [t.run.run for t in tasks], None, names)
        execute(states(tasks, store), store, Services(), Silent())

    execute_as("one", "mine")
    execute_as("two", "theirs")
    for name, method in (("one", "mine"), ("two", "theirs")):
        (board,) = boards(store, name)
        assert (board.rows[0].run.method, board.reference) == (method, method)


def test_runs_without_a_reader_have_no_scores_of_answers(store: Store) -> None:
    methods = "{id: bm25, reader: retrieval_only}, {id: random, reader: retrieval_only}"
    text = FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", methods)
    assert [outcome.status for outcome in run(store, text)] == [FINISHED] * 2
    for row in queries.runs(store, "small"):
        assert set(store.scored(row.run)) == {"recall@5#v2", "mrr@10#v2"}
    # Beside a method with answers, the cells of the others stay empty.
    run(store, text.replace(methods, f"{methods}, {{id: full_context}}"))
    (board,) = boards(store, "small")
    answered = [row.run.method for row in board.rows if any(metric.startswith("em") for metric in row.cells)]
    assert answered == ["full_context"]


def test_runs_without_retrieval_have_no_scores_of_rankings(store: Store) -> None:
    text = FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: no_retrieval}, {id: full_context}")
    assert [outcome.status for outcome in run(store, text)] == [FINISHED] * 2
    without, all_read = queries.runs(store, "small")
    assert set(store.scored(all_read.run)) - set(store.scored(without.run)) == {"recall@5#v2", "mrr@10#v2"}
    (board,) = boards(store, "small")
    assert [row.run.method for row in board.rows if "recall@5#v2" in row.cells] == ["full_context"]
    with raises("no-answers-to-score"):
        tasks_of(
            experiment.parse(
                FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: no_retrieval}").replace("em, f1(rules=hotpotqa), ", ""),
                "x.yaml",
            )
        )


def test_run_without_retrieval_and_reader_has_no_scores(store: Store) -> None:
    text = FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: bm25}, {id: no_retrieval, reader: retrieval_only}")
    assert [outcome.status for outcome in run(store, text)] == [FINISHED] * 2
    baseline, without = queries.runs(store, "small")
    assert not store.scored(without.run)
    for metric, code in (("recall@5", "not-scorable"), ("em", "not-scorable"), ("rouge", "not-scored")):
        with raises(code):
            margins_of(store, baseline, without, metrics=[metric], margin=0.01)


def test_experiment_without_answers_is_refused_if_its_metrics_read_them() -> None:
    text = FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: bm25, reader: retrieval_only}")
    with raises("no-answers-to-score"):
        tasks_of(experiment.parse(text.replace("em, f1(rules=hotpotqa), recall@5, mrr@10", "em"), "x.yaml"))
    with raises("no-answers-to-score", "primary"):
        experiment.parse(text + "primary: {metric: em}\n", "x.yaml")


def test_duplicate_work_in_one_experiment_is_refused() -> None:
    with raises("duplicate-work"):
        tasks_of(experiment.parse(FILE.replace("{id: random}", "{id: bm25, name: again}"), "x"))


@pytest.mark.slow
def test_new_metric_is_scored_without_answering_again(finished: Store) -> None:
    outcomes = run(finished, FILE.replace("mrr@10]", "mrr@10, cover_em]"))
    assert [outcome.answered for outcome in outcomes] == [0, 0, 0]
    metric = str(parse_metric("cover_em"))
    assert all(finished.scored(outcome.task.run.run)[metric] == 12 for outcome in outcomes)


def test_method_inputs_contain_no_gold(store: Store, scratch: None) -> None:
    handed: list[object] = []

    @register("test_spy", kind="method", summary="remembers what it is handed")
    class Spy:
        def __init__(self, config: MethodConfig, services: Services) -> None:
            handed.append(services)

        def index(self, corpus: Corpus) -> None:
            handed.append(list(corpus))

        def build_for(self, queries: Iterable[Query]) -> Usage:
            handed.extend(queries)
            return Usage(30, 4, model_calls=2)

        def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
            for query in queries:
                handed.append(query)
                yield Prediction(query.id, "x", usage=Usage(seconds={"read": 0.0}))

    outcomes = run(store, FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: test_spy}"))
    questions = outcomes[0].task.loaded.benchmark.questions
    native = {question.id for question in questions}
    seen = [item for item in handed if isinstance(item, Query)]
    assert len(seen) == 2 * len(questions)
    cost = cost_queries.index_costs(store, [outcomes[0].task.run.run])[outcomes[0].task.run.run]
    assert (cost.prompt_tokens, cost.model_calls) == (30, 2)
    for query in seen:
        assert type(query) is Query
        assert query.id not in native
        fields = {name: getattr(query, name) for name in Query.__slots__}
        assert set(fields) == {"id", "text", "document_id", "candidates", "topic_entities", "turns"}
    texts = {value for question in questions for value in question.golds if len(value) > 3}
    for query in seen:
        # An answer may occur in a question (comparisons name their options) or equal an id by coincidence.
        assert query.id not in texts


@pytest.mark.slow
def test_failing_method_is_recorded_and_the_next_one_runs(store: Store, scratch: None) -> None:
    @register("test_broken", kind="method", summary="breaks at the third question")
    class Broken:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
            for number, query in enumerate(queries):
                if number == 2:
                    raise RuntimeError("out of luck")
                yield Prediction(query.id, "x", usage=Usage(seconds={"read": 0.0}))

    outcomes = run(store, FILE.replace("{id: bm25}", "{id: test_broken}"))
    assert [outcome.status for outcome in outcomes] == [FAILED_RUN, FINISHED, FINISHED]
    broken = queries.runs(store, "small")[0]
    assert (broken.status, broken.error, broken.done) == (FAILED_RUN, "out of luck", 2)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["silent", "twice", "unknown"])
def test_method_that_violates_the_contract_is_reported(store: Store, scratch: None, fault: str) -> None:
    @register("test_faulty", kind="method", summary="breaks the contract")
    class Faulty:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
            requests = list(queries)
            for query in requests[1:] if fault == "silent" else requests:
                yield Prediction(query.id, "x", (Evidence("p", 1.0),))
            if fault == "twice":
                yield Prediction(requests[0].id, "y")
            if fault == "unknown":
                yield Prediction("nobody", "y")

    (outcome,) = run(store, FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: test_faulty}"))
    assert isinstance(outcome.error, UserError)
    assert "broke the contract" in outcome.error.what
    assert "ragmeter method check test_faulty" in str(outcome.error.try_this)


def test_equal_tasks_have_equal_fingerprints_and_any_change_a_new_one() -> None:
    def prints(text: str) -> set[str]:
        return {task.run.run for task in tasks_of(experiment.parse(text, "x"))}

    base = prints(FILE)
    assert prints(FILE) == base
    assert not prints(FILE + "seed: 3\n") & base
    assert not prints(FILE.replace("distractor", "corpus")) & base
    assert not prints(FILE.replace("limit: 12", "limit: 11")) & base
    assert len(prints(FILE.replace("{id: bm25}", "{id: bm25, config: {k1: 1.1}}")) & base) == 2
    assert len(prints(FILE.replace("{id: bm25}", "{id: bm25, k: 3}")) & base) == 2
    # Another name or another metric is the same work.
    assert prints(FILE.replace("{id: bm25}", "{id: bm25, name: other}").replace("em, ", "")) == base


def test_fingerprint_includes_the_method_version(monkeypatch: pytest.MonkeyPatch) -> None:
    component = Component.of("bm25")
    before = Composition(component).fingerprint
    entry = METHODS.get("bm25")
    newer = type(entry)(**{**vars(entry), "version": entry.version + 1})
    assert Composition(Component(newer, component.config)).fingerprint != before


SLOW_METHOD = """
import os, time
from methods.api import Prediction, Usage
from methods.registry import register
from ragmeter.cli import main

@register("test_slow", kind="method", summary="takes its time")
class Slow:
    def __init__(self, config, services): ...
    def index(self, corpus): ...
    def answer(self, queries):
        for query in queries:
            time.sleep(float(os.environ["DELAY"]))
            yield Prediction(query.id, query.text.split()[-1], usage=Usage(seconds={"read": 0.0}))

main()
"""


@pytest.mark.parametrize(
    ("kills", "questions"),
    [pytest.param(2, 20, marks=pytest.mark.slow), pytest.param(50, 500, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_killed_run_resumes_to_the_same_scores(tmp_path: Path, kills: int, questions: int) -> None:
    file = tmp_path / "slow.yaml"
    methods = "{id: bm25}, {id: test_slow}, {id: random}"
    file.write_text(FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", methods).replace("12", str(questions)))
    script = tmp_path / "slow.py"
    script.write_text(SLOW_METHOD)

    def start(store: Path, delay: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), "run", str(file), "--store", str(store), "--quiet"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "DELAY": delay})

    def answered(store: Store) -> int:
        results = queries.runs(store) if store.database.exists else []
        return {row.method: row.done for row in results}.get("test_slow", 0)

    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert start(calm, "0").wait() == 0
    instants, grew, before = random.Random(1), 0, 0
    for number in range(kills):
        process = start(stormy, "0.15")
        if number == 0:
            # Once in the middle of a task, whatever the speed of this machine.
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and not answered(Store(stormy)):
                time.sleep(0.1)
        else:
            # At any moment: while it starts, loads, indexes, answers or writes, without warning.
            time.sleep(instants.uniform(0.5, 7.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done = answered(Store(stormy))
        # Nothing finished is ever lost.
        assert done >= before
        grew += before < done < questions
        before = done
    assert grew, "no kill hit the middle of a task"
    assert start(stormy, "0").wait() == 0
    assert rows(Store(stormy)) == rows(Store(calm))


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [((signal.SIGINT,), 130), ((signal.SIGTERM, signal.SIGTERM), 143)])
def test_interrupted_run_keeps_its_answers_and_explains_how_to_resume(sent: tuple[signal.Signals, ...], code: int, tmp_path: Path) -> None:
    file, script, folder = tmp_path / "slow.yaml", tmp_path / "slow.py", tmp_path / "store"
    file.write_text(FILE.replace("{id: bm25}, {id: gold_answer}, {id: random}", "{id: test_slow}"))
    script.write_text(SLOW_METHOD)
    command = [sys.executable, str(script), "run", str(file), "--store", str(folder), "--quiet"]
    # A job that a shell put into the background ignores SIGINT, and its children inherit that.
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DELAY": "2"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    store = Store(folder)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (store.database.exists and any(r.done for r in queries.runs(store))):
        time.sleep(0.2)
    for number in sent:
        process.send_signal(number)
    _, response = process.communicate(timeout=60)
    assert process.returncode == code
    assert "ragmeter run --resume" in response
    (row,) = queries.runs(store)
    assert row.status == "interrupted"
    assert 0 < row.done < 12


def test_benchmark_without_a_computable_metric_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "mix_query.jsonl").write_text('{"query": "What does the poem praise?"}\n')
    (tmp_path / "mix_unique_contexts.json").write_text('["A poem praises the sea."]')
    (tmp_path / "NQ-open.dev.jsonl").write_text('{"question": "who wrote it", "answer": ["Ann Lee"]}\n')

    def tasks(data: str, file: str, *more: str) -> list[Task]:
        benchmark = f"benchmarks: [{{id: {data}, setting: closed_book, config: {{path: {tmp_path / file}}}}}]"
        return tasks_of(experiment.parse("\n".join(["name: x", benchmark, "methods: [{id: no_retrieval}]", *more]), "x.yaml"))

    queries_file = ("ultradomain/mix-queries", "mix_query.jsonl")
    for judges in ("", "judges: [rule_match]"):
        with pytest.raises(UserError) as caught:
            tasks(*queries_file, judges)
        assert "x.yaml:2" in str(caught.value.where)
        assert "open_pairwise" in str(caught.value.try_this)
    assert len(tasks(*queries_file, "judges: [{id: open_pairwise, config: {llm: {scripted: worlds/multihop:test}}}]")) == 1
    with pytest.raises(UserError) as caught:  # there is gold, but not what this metric needs
        tasks("nq/open:test", "NQ-open.dev.jsonl", "metrics: [recall@5]")
    assert "metrics: [em" in str(caught.value.try_this)
    assert len(tasks("nq/open:test", "NQ-open.dev.jsonl", "metrics: [recall@5, f1]")) == 1


def test_worlds_of_two_settings_count_once_in_the_verdict_over_both(store: Store) -> None:
    first = "{id: worlds/multihop, split: validation, setting: distractor, limit: 12}"
    run(store, FILE.replace(first, f"{first}, {first.replace('distractor', 'corpus')}"))
    by_suite = {verdict.place.suite: verdict.place for verdict in verdicts(store, "small")}
    assert by_suite[True].questions == by_suite[False].questions
    assert by_suite[True].clusters == by_suite[False].clusters


@pytest.mark.parametrize("change", ["number only", "text too", "style"])
def test_numbered_questions_of_two_files_are_the_same_only_if_their_content_is(store: Store, tmp_path: Path, change: str) -> None:
    """Ids alone do not tell: many files number their questions. A question in another style keeps its gold answer and evidence."""
    for name in "ab":
        word = {"number only": name, "text too": "a", "style": "a"}[change]
        prefix = "Tell me: " if change == "style" and name == "b" else ""
        items = [
            {"id": i, "question": f"{prefix}{word} {i}?", "answers": [f"{word}{i}"], "contexts": [f"{word} {i}, {name}."]}
            for i in range(12)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, items)))
    data = ", ".join(f"{{id: files, setting: closed_book, config: {{path: {tmp_path / name}.jsonl}}}}" for name in "ab")
    run(store, f"name: numbered\nbenchmarks: [{data}]\nmethods: [{{id: no_retrieval}}]\nmetrics: [f1]")
    whole = next(verdict.place for verdict in verdicts(store, "numbered") if verdict.place.suite)
    assert whole.questions == whole.clusters == (24 if change == "number only" else 12)


def test_numbered_questions_of_two_files_are_different_if_only_a_few_answers_agree(store: Store, tmp_path: Path) -> None:
    for name in "ab":
        answers = [["yes"], [f"{name} 1"], []]
        items = [{"id": i, "question": f"Is {name} {i} open?", "answers": answers[i % 3]} for i in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, items)))
    data = ", ".join(f"{{id: files, setting: closed_book, config: {{path: {tmp_path / name}.jsonl}}}}" for name in "ab")
    run(store, f"name: numbered\nbenchmarks: [{data}]\nmethods: [{{id: no_retrieval}}]\nmetrics: [f1]")
    whole = next(verdict.place for verdict in verdicts(store, "numbered") if verdict.place.suite)
    assert whole.questions == whole.clusters == 24
