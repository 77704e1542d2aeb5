"""Failures are not wrong answers: incomplete runs, stopped runs, and how both resume."""

from __future__ import annotations

import random
import threading
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.core.errors import MESSAGE_CHARACTERS
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from judges.metric import METRICS, Batch
from judges.metric import register as metric
from methods.api import FAILED, Answer, Context, Prediction, Services
from methods.models.limits import LIMIT
from methods.registry import METHODS, MethodConfig, register
from ragmeter.api import run as run_experiment
from ragmeter.runner.loop import Interrupted
from ragmeter.runner.progress import RunProgress
from results.boards.board import boards
from results.judging import judgments
from results.store import queries
from results.store.failures import IN_A_ROW, Failures, Streak, cause_of, failures, kind_of
from results.store.store import FAILED_RUN, FINISHED, INCOMPLETE, INTERRUPTED, Store
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

QUESTIONS, CONCURRENCY, ATTEMPTS, IN_FLIGHT = 150, 4, 2, 64


@pytest.fixture(scope="session")
def small(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("small_experiment.py"))


@pytest.fixture
def scratch() -> Iterator[None]:
    """Unregister methods after the test."""
    list(METHODS)
    before = dict(METHODS._entries)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


class Mortal:
    """Endpoint that answers a number of calls and refuses all others, with a different message each time."""

    def __init__(self, text: str = "Ann") -> None:
        self.left = 0
        self.calls = 0
        self._text = text
        self._lock = threading.Lock()
        self.server = OpenAIServer("m", self._answer)

    def _answer(self, request: ChatRequest) -> Written:
        if len(request.prompt) < 40:  # whether it is reachable
            return Written("ok", 1, 1)
        with self._lock:
            self.calls += 1
            self.left -= 1
            if self.left < 0:
                raise Refused(500, f"worker {self.calls} is gone")
        return Written(self._text, 3, 1)


def asking(url: str) -> str:
    llm = f"{{model: m, base_url: '{url}', key_variable: null, concurrency: {CONCURRENCY}, attempts: {ATTEMPTS}, backoff_s: 0.001}}"
    reader = f"{{id: chat, config: {{llm: {llm}}}}}"
    return (
        f"name: mortal\nbenchmarks: [{{id: worlds/multihop, split: test, limit: {QUESTIONS}, "
        f"config: {{questions: {QUESTIONS}}}}}]\nmetrics: [em]\nmethods:\n"
        f"  - {{id: bm25}}\n  - {{id: bm25, name: asks, k: 1, depth: 1, reader: {reader}}}\n"
        f"  - {{id: bm25, name: also, k: 2, depth: 2, reader: {reader}}}\n"
    )


def everything(store: Store) -> list[Any]:
    """Return everything except times and failed attempts."""
    columns = {"predictions": "run, question, answer, failed", "scores": "*", "evidence": "*", "usage": "run, question, prompt_tokens"}
    with store.database.reading() as connection:
        return [connection.execute(f"SELECT {names} FROM {table} ORDER BY ALL").fetchall() for table, names in columns.items()]


@pytest.mark.slow
def test_dead_endpoint_exits_with_3_and_the_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, call: Any) -> None:
    endpoint, file, answered = Mortal(), tmp_path / "mortal.yaml", QUESTIONS // 2
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    with endpoint.server.running() as url:
        file.write_text(asking(url))
        endpoint.left = answered
        done = call("run", str(file), "--store", str(torn))
        assert done.code == 3
        message = " ".join(done.err.split())
        assert f"{IN_A_ROW} × endpoint: Error code: 500" in message
        assert f"ragmeter run --resume mortal --retry-failed --store {torn}" in message
        run = next(row for row in queries.runs(Store(torn)) if row.method == "asks")
        assert (run.status, run.failed) == (INCOMPLETE, IN_A_ROW)
        assert run.done == answered + IN_A_ROW
        # After the twentieth failure, only calls in flight finish, and no further task starts at that endpoint.
        began = {row.method for row in queries.runs(Store(torn))}
        assert endpoint.calls <= answered + ATTEMPTS * (IN_A_ROW + IN_FLIGHT) * (len(began) - 1)
        assert began >= {"bm25", "asks"}
        (board,) = boards(Store(torn), "mortal", reference="bm25")
        (cell,) = next(row for row in board.rows if row.run.method == "asks").cells.values()
        assert (cell.difference, cell.p_holm) == (None, None)
        assert "(incomplete)" in done.out

        endpoint.left = 10**6
        again = call("run", "--resume", "mortal", "--retry-failed", "--store", str(torn))
        assert (again.code, again.err.count("incomplete")) == (0, 0)
        assert call("run", str(file), "--store", str(whole)).code == 0
    assert everything(Store(torn)) == everything(Store(whole))


def failing(share: float) -> None:
    """Register a method whose model gives no answer to about this share of questions."""

    @register("test_raising", kind="method", summary="fails now and then")
    class Raising:
        def __init__(self, config: MethodConfig, services: Services) -> None:
            self._asked = 0

        def index(self, corpus: Corpus) -> None: ...

        async def answer_one(self, query: Query) -> Prediction:
            self._asked += 1
            if share and self._asked % round(1 / share) == 0:
                return Prediction(query.id, "", notes={FAILED: f"HTTP 500: question {self._asked} is odd"})
            return Prediction(query.id, "x")


def mending(broken: set[str], texts: list[str]) -> None:
    """Register a method that raises on the third question until it is repaired; its model has no answer to the last."""

    @register("test_mending", kind="method", summary="raises until it is mended")
    class Mending:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        async def answer_one(self, query: Query) -> Prediction:
            texts.append(query.text)
            if len(texts) == 3:
                broken.add(query.text)
            if query.text in broken:
                raise RuntimeError("partially initialized module")
            return Prediction(query.id, "", notes={FAILED: "HTTP 500"}) if len(texts) == 25 else Prediction(query.id, "x")


@pytest.mark.slow
def test_questions_failed_by_an_exception_are_retried_until_accepted(tmp_path: Path, scratch: None) -> None:
    broken: set[str] = set()
    texts: list[str] = []
    mending(broken, texts)
    file, store = tmp_path / "mending.yaml", Store(tmp_path / "store")
    file.write_text(FILE.replace("LIMIT", "25").replace("test_raising", "test_mending"))

    def run(**options: Any) -> tuple[str, int]:
        before = len(texts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_experiment(file, store=store.folder, **options)
        return queries.runs(store)[0].status, len(texts) - before

    def failed() -> Failures:
        (ended,) = failures(store, [queries.runs(store)[0].run]).values()
        return ended

    assert run() == (INCOMPLETE, 25)
    assert (failed().failed, failed().code, failed().unresolved) == (2, 1, 1)
    assert run() == (INCOMPLETE, 1)  # questions failed by the model are not asked again
    assert run(accept_failures=True) == (INCOMPLETE, 0)  # 2 of 25 failed, which is more than 5 %
    file.write_text(file.read_text() + "max_failure_rate: 0.1")
    assert run() == (FINISHED, 0)
    (board,) = boards(store, "raising")
    assert (board.rows[0].accepted, failed().unresolved) == (1, 0)
    broken.clear()
    assert run(retry_failed=True) == (FINISHED, 2)
    assert (failed().failed, failed().code) == (0, 0)


def ending(error: BaseException) -> None:
    """Register a method that raises after its third answer."""

    @register("test_ending", kind="method", summary="ends early")
    class Ending:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        def answer(self, queries: Iterator[Query]) -> Iterator[Prediction]:
            for number, query in enumerate(queries):
                if number == 3:
                    raise error
                yield Prediction(query.id, "x")


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), CancelledError(), ValueError("\ud800\0"), ValueError("x" * 100_000)])
def test_run_of_a_method_that_stops_early_is_failed_and_keeps_its_answers(tmp_path: Path, scratch: None, error: BaseException) -> None:
    ending(error)
    file, store = tmp_path / "ending.yaml", Store(tmp_path / "store")
    file.write_text(FILE.replace("LIMIT", "8").replace("test_raising", "test_ending"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_experiment(file, store=store.folder)
    (run,) = queries.runs(store)
    assert (run.status, run.done) == (FAILED_RUN, 3)
    assert len(run.error or "") <= MESSAGE_CHARACTERS


@pytest.mark.slow
def test_remedy_for_raised_failures_is_a_plain_rerun(tmp_path: Path, scratch: None) -> None:
    @register("test_raising_always", kind="method", summary="raises always")
    class Broken:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        async def answer_one(self, query: Query) -> Prediction:
            raise RuntimeError("broken")

    file = tmp_path / "broken.yaml"
    remedies = []
    for limit in (IN_A_ROW - 1, IN_A_ROW + 5):
        file.write_text(FILE.replace("LIMIT", str(limit)).replace("test_raising", "test_raising_always"))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            run_experiment(file, store=tmp_path / f"store{limit}")
        remedies += [str(item.message) for item in warned if "ragmeter run" in str(item.message)]
    assert len(remedies) == 2
    assert all("--resume" in remedy and "--retry-failed" not in remedy for remedy in remedies)


@pytest.mark.slow
@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, CancelledError])
def test_exception_of_a_program_or_role_fails_only_its_question(tmp_path: Path, scratch: None, error: type[BaseException]) -> None:
    broken: set[str] = set()

    @register("test_raises", kind="method", summary="raises for the third question")
    class Raises:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        async def answer_one(self, query: Query) -> Prediction:
            broken.update([query.text] if len(broken) < 3 else [])
            if query.text in broken:
                raise error
            return Prediction(query.id, "x")

    @register("test_raising_reader", kind="reader", summary="raises for the same question")
    class Reads:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
            if broken & {query.text for query in queries}:
                raise error
            return [Answer("x") for _ in queries]

    file, store = tmp_path / "raises.yaml", Store(tmp_path / "store")
    methods = "[{id: test_raises}, {id: no_retrieval, reader: test_raising_reader}]"
    file.write_text(FILE.replace("LIMIT", "8").replace("[{id: test_raising}]", methods))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_experiment(file, store=store.folder)
    assert [(run.status, run.done, run.failed) for run in queries.runs(store)] == [(INCOMPLETE, 8, 3)] * 2


@pytest.mark.slow
def test_metric_exception_keeps_the_answers_unscored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    returned: list[Any] = []

    @metric("test_metric", source="a test", group="answer", needs=("answer",))
    def measure(batch: Batch) -> Any:
        """Return the value or raise the error that the test sets."""
        if isinstance(returned[-1], BaseException):
            raise returned[-1]
        return returned[-1](batch)

    def right(batch: Batch) -> Any:
        return [0.5] * len(batch)

    def answered(batch: Batch) -> Any:
        return [0.5 if answer else float("nan") for answer in batch.answers]

    file, store = tmp_path / "metric.yaml", Store(tmp_path / "store")
    text = FILE.replace("LIMIT", "8").replace("test_raising", "empty_answer")
    file.write_text(text.replace("[em]", "[em, test_metric]"))
    faults: list[Any] = [GeneratorExit(), KeyError("x"), lambda b: [None] * len(b), lambda b: ["0.5"] * len(b), lambda b: [0.5], answered]
    faults += [lambda b: [float("inf")] * len(b)]
    for fault in faults:
        returned.append(fault)
        with pytest.warns(UserWarning, match="test_metric"):
            run_experiment(file, store=store.folder)
        (run,) = queries.runs(store)
        assert (run.status, run.done, store.scored(run.run)) == (INCOMPLETE, 8, {"em(rules=squad)#v2": 8})
    returned.append(right)
    run_experiment(file, store=store.folder)
    (run,) = queries.runs(store)
    assert (run.status, sorted(store.scored(run.run).values())) == (FINISHED, [8, 8])


@pytest.mark.slow
def test_interrupted_metric_keeps_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    signals = [KeyboardInterrupt()]

    @metric("test_metric", source="a test", group="answer", needs=("answer",))
    def measure(batch: Batch) -> Any:
        """Return 1 for each answer, after an interruption."""
        if signals:
            raise signals.pop()
        return [1.0] * len(batch)

    file, store = tmp_path / "metric.yaml", Store(tmp_path / "store")
    file.write_text(FILE.replace("LIMIT", "8").replace("test_raising", "empty_answer").replace("[em]", "[em, test_metric]"))
    with pytest.raises(Interrupted):
        run_experiment(file, store=store.folder)
    (run,) = queries.runs(store)
    assert (run.status, run.done, store.scored(run.run)) == (INTERRUPTED, 8, {})
    run_experiment(file, store=store.folder)
    (run,) = queries.runs(store)
    assert (run.status, sorted(store.scored(run.run).values())) == (FINISHED, [8, 8])


@pytest.mark.slow
@pytest.mark.parametrize("error", [GeneratorExit, SystemExit, OSError])
def test_exception_in_the_display_loses_no_question(tmp_path: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise error

    for name in ("begin", "stage", "advance", "end"):
        monkeypatch.setattr(RunProgress, name, fails)
    file, store = tmp_path / "display.yaml", Store(tmp_path / "store")
    file.write_text(FILE.replace("LIMIT", "8").replace("test_raising", "empty_answer"))
    run_experiment(file, store=store.folder)
    assert [(run.status, run.done) for run in queries.runs(store)] == [(FINISHED, 8)]


FILE = """\
name: raising
benchmarks: [{id: worlds/multihop, split: test, setting: closed_book, limit: LIMIT, config: {questions: LIMIT}}]
methods: [{id: test_raising}]
metrics: [em]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "limit", "allowed", "code"),
    [(0.001, 1000, "", 0), (0.1, 50, "", 3), (0.1, 50, "max_failure_rate: 0.1", 0), (0.1, 50, "max_failure_rate: 0", 3), (1.0, 3, "", 3)],
)
def test_share_of_failed_questions_decides_the_outcome(
    share: float, limit: int, allowed: str, code: int, tmp_path: Path, call: Any, scratch: None
) -> None:
    failing(share)
    file = tmp_path / "raising.yaml"
    file.write_text(FILE.replace("LIMIT", str(limit)) + allowed)
    done = call("run", str(file), "--store", str(tmp_path / "s"))
    assert done.code == code
    (run,) = queries.runs(Store(tmp_path / "s"))
    assert (run.status, run.failed, run.done) == (INCOMPLETE if code else FINISHED, round(share * limit), limit)
    assert ("is odd" in done.err) == bool(code)
    assert failures(Store(tmp_path / "s"), [run.run])[run.run].kinds == {"endpoint": run.failed}
    assert f"{run.failed} failed (endpoint {run.failed}" in " ".join(done.out.split())
    # The same command sends no requests and ends in the same way.
    assert call("run", str(file), "--store", str(tmp_path / "s")).code == code


@pytest.mark.slow
def test_judge_with_a_dead_endpoint_stops_and_resumes(small: ModuleType, tmp_path: Path) -> None:
    endpoint = Mortal("Match")
    store = Store(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(small.EXPERIMENT.replace("limit: 10", "limit: 60").replace("{id: random, reader: extractive}, ", ""))
    run_experiment(file, store=tmp_path)
    (run,) = small.runs(store, "bm25")
    with endpoint.server.running() as url:
        match = small.llm("match", url, attempts=1, concurrency=2)
        endpoint.left = 5
        with raises("incomplete-run"):
            small.judge(store, match, [run])
        kept = judgments.judged(store, run.run, match)
        assert IN_A_ROW <= len(kept) < 60
        assert endpoint.calls <= 5 + IN_A_ROW + 4
        endpoint.left = 10**6
        small.judge(store, match, [run], retry=True)
    assert len(judgments.judged(store, run.run, match, retry_unscored=True)) == 60


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Error code: 500 - {'error': {'message': 'internal error'}}", "endpoint"),
        ("HTTP 429: rate limit reached (it asks to wait 300 s; longest_wait_s is 120)", "endpoint"),
        ("timed out after 120 s", "endpoint"),
        ("Connection error. (ConnectError: All connection attempts failed)", "endpoint"),
        ("the reply is not a chat completion but text/html (is base_url right? it usually ends in /v1)", "endpoint"),
        ("the reply is empty (finish reason: stop)", "endpoint"),
        ("the reply is an HTML page, not an answer: '<html>' (is url the app's API? it may be a login page)", "endpoint"),
        ("the reply cannot be used: 'docs[].text' finds nothing", "endpoint"),
        ("the reply is empty (finish reason: length)", "truncation"),
        ("the prompt has 9,000 tokens, and m has room for 4,096", "truncation"),
        ("Error code: 400 - This model's maximum context length is 10 tokens", "truncation"),
        ("the question alone is longer than the model's context", "truncation"),
        ("Error code: 400 - The decoder prompt (length 70) is longer than the maximum model length of 64.", "truncation"),
        ("the endpoint's filter withheld the reply (finish reason: content_filter)", "refusal"),
        ("the endpoint's filter withheld the reply (finish reason: SAFETY)", "refusal"),
        ("Error code: 400 - {'error': {'message': 'Content Exists Risk'}}", "refusal"),
        (
            "Error code: 400 - {'error': {'message': 'Invalid prompt: your prompt was flagged as potentially violating our usage policy'}}",
            "refusal",
        ),
        ("the reply is empty (finish reason: MAX_TOKENS)", "truncation"),
        ("the reply ends within a thought (finish reason: model_length)", "truncation"),
        ("Error code: 400 - the request exceeds the available context size. try increasing the context size", "truncation"),
        ("Error code: 400 - {'message': 'Input is too long for requested model.'}", "truncation"),
        ("Error code: 400 - input length and `max_tokens` exceed context limit: 5000 + 64 > 4096", "truncation"),
        ("Error code: 400 - The input token count (5000) exceeds the maximum number of tokens allowed (4096).", "truncation"),
        ("Error code: 422 - Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", "truncation"),
        ("Error code: 400 - This model's maximum prompt length is 4096 but the request contains 5000 tokens.", "truncation"),
        ("Error code: 400 - too many tokens: total number of tokens in the prompt cannot exceed 4081", "truncation"),
        ("Error code: 413 - <html><h1>413 Request Entity Too Large</h1></html>", "truncation"),
        ("Error code: 429 - Request too large for m on tokens per minute (TPM): Limit 6000, Requested 7000", "endpoint"),
        ("Error code: 429 - This request would exceed the rate limit of 40,000 input tokens per minute", "endpoint"),
        ("the endpoint broke the reply off (finish reason: error)", "endpoint"),
        ("the stream ends before the answer is complete", "endpoint"),
        ("the reply is broken JSON: '{'", "endpoint"),
        ("no reply: ReadError", "endpoint"),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB (read, m.py line 3)", "memory"),
        (f"{LIMIT}: run_tokens 100", "limit"),
        ("KeyError: 'x' (read, mine.py line 3)", "raised"),
        ("nobody knows", "other"),
    ],
)
def test_failure_reasons_are_classified(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_cause_of_a_failure_ignores_numbers_and_ids() -> None:
    first = "Error code: 500 - worker 17 of req_8f3a2 at 'here'"
    assert cause_of(first) == cause_of("Error code: 503 - worker 9 of req_77b1 at 'there'")
    assert cause_of(first) != cause_of("Error code: 500 - queue 17 of req_8f3a2 at 'here'")


def test_run_stops_after_twenty_equal_failures_since_the_last_answer() -> None:
    draw = random.Random(3)
    for _ in range(50):
        ends = [draw.choices([None, "KeyError: 1", "timed out after 5 s"], [0.04, 1, 1])[0] for _ in range(200)]
        streak = Streak()
        stopped = next((number for number, end in enumerate(ends) if streak.stops(end)), None)
        since = [ends[max([i for i in range(n + 1) if ends[i] is None], default=-1) + 1 : n + 1] for n in range(200)]
        assert stopped == next((n for n in range(200) if max(map(since[n].count, since[n]), default=0) == IN_A_ROW), None)


def test_overlong_document_counts_once_toward_a_stop_and_dead_endpoint_each_time() -> None:
    too_long = "Error code: 400 - This model's maximum context length is 10 tokens"
    streak = Streak()
    assert not any(streak.stops(too_long, "novel") for _ in range(5 * IN_A_ROW))
    assert [streak.stops(too_long, f"novel {number}") for number in range(IN_A_ROW - 1)] == [False] * (IN_A_ROW - 2) + [True]
    streak = Streak()
    assert [streak.stops("timed out after 5 s", "novel") for _ in range(IN_A_ROW)] == [False] * (IN_A_ROW - 1) + [True]


@pytest.mark.parametrize(("rows", "failed", "many"), [(20, 1, False), (20, 2, True), (19, 18, False), (19, 19, True), (0, 0, False)])
def test_too_many_failures_are_a_share_of_at_least_20_questions_or_all(rows: int, failed: int, many: bool) -> None:
    result = Failures.of(rows, [(f"KeyError: {number}", 1) for number in range(failed)])
    assert result.failed == failed
    assert len(result.reasons) == bool(failed)
    assert result.too_many(0.05) is many
