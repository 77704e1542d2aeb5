"""Messages and exit codes if output cannot be encoded or written, a task fails, or a name or number is wrong."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Prediction, Services
from methods.registry import METHODS, MethodConfig, register
from ragmeter.cli import main
from ragmeter.runner import training_jobs
from results.store import queries, tags
from results.store.store import Run, Store
from tests.support.errors import raises

Command = Callable[..., tuple[int, str, str]]
FULL = Path("/dev/full")


@pytest.fixture(scope="session")
def experiment_text() -> str:
    return """\
name: small
reference: bm25 + extractive
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 8}]
methods: [{id: bm25, reader: extractive}, {id: random, name: random é}, {id: gold_answer}]
metrics: [em]
"""


Written = Callable[..., bytes]


@pytest.fixture
def written(answered: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Return what a successful command writes to an output with an encoding, in this process."""

    def write(encoding: str, *words: str) -> bytes:
        output = io.BytesIO()
        with monkeypatch.context() as patch, io.TextIOWrapper(output, encoding) as text:
            for name, value in {"RAGMETER_STORE": str(answered / "store"), "COLUMNS": "150"}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["ragmeter", *words])
            patch.setattr(sys, "stdout", text)
            with pytest.raises(SystemExit) as end:
                main()
            assert not end.value.code
            text.flush()
            return output.getvalue()

    return write


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_unencodable_characters_are_replaced_in_output(encoding: str, answered: Path, written: Written) -> None:
    runs = [row.run for row in queries.runs(Store(answered / "store"))]
    shown = written(encoding, "results", "compare", *runs[:2]).decode(encoding)
    assert "+/=/?" in shown
    assert ("±" in shown) == (encoding == "cp1252")


def test_json_output_keeps_every_character(written: Written) -> None:
    narrow, wide = (written(name, "list", "runs", "--json").decode(name) for name in ("ascii", "utf-8"))
    reported = json.loads(narrow)
    assert reported == json.loads(wide)
    assert "random é" in {row["method"] for row in reported}
    assert "random é" in wide


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("line", "unbuffered"), [("list runs", ""), ("list runs --json", "1"), ("", "1"), ("--version", "")])
def test_full_disk_on_standard_output_is_a_system_error(line: str, unbuffered: str, answered: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env |= {"RAGMETER_STORE": str(answered / "store"), "PYTHONUNBUFFERED": unbuffered}
    env |= {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    with FULL.open("wb") as full:
        command = [sys.executable, "-m", "ragmeter.cli", *line.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, check=False)
    response = done.stderr.decode()
    assert done.returncode == 1
    assert "the output could not be written: No space left on device" in response
    assert "fault" not in response
    # Python flushes once more at exit.
    assert "Traceback" not in response
    assert "Exception ignored" not in response
    if "--json" in line:
        assert set(json.loads(response)["error"]) == {"code", "what", "where", "try"}


@pytest.fixture
def faulty() -> Iterator[None]:
    """Register a method that raises a user error after the run has started."""
    list(METHODS)
    before = dict(METHODS._entries)

    @register("test_mistaken", kind="method", summary="breaks when it is asked")
    class Mistaken:
        def __init__(self, config: MethodConfig, services: Services) -> None: ...

        def index(self, corpus: Corpus) -> None: ...

        def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
            raise UserError("that model is not here")

    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


@pytest.mark.slow
def test_failed_task_exits_with_1_and_not_as_wrong_usage(faulty: None, experiment_text: str, tmp_path: Path, ragmeter: Command) -> None:
    file = tmp_path / "y.yaml"
    file.write_text(experiment_text.replace("{id: gold_answer}", "{id: test_mistaken}"))
    code, _, response = ragmeter("run", str(file))
    assert "that model is not here" in response
    assert "1 of 3 tasks failed" in response
    assert code == 1
    # Mistakes found before the run are still wrong input.
    file.write_text(experiment_text.replace("{id: gold_answer}", "{id: nobody}"))
    assert ragmeter("run", str(file))[0] == 2


def test_error_suggests_runs_whose_method_contains_the_word(ragmeter: Command, store: Store, tmp_path: Path) -> None:
    bm25 = next(row for row in queries.runs(store) if row.method == "bm25 + extractive")
    for line in (("results", "show", "BM25"), ("results", "compare", "bm25", "random é")):
        code, _, response = ragmeter(*line)
        assert code == 2
        assert f"name one: {bm25.run[:8]} ({bm25.path}); `ragmeter list runs` lists all" in response
    code, _, response = ragmeter("results", "show", "random é/worlds/multihop:tst/distractor/0")
    assert "did you mean 'small/random é/worlds/multihop:test/distractor/0'? `ragmeter list runs` lists all" in response


@pytest.mark.slow
def test_error_suggests_at_most_twelve_runs_of_the_newest_experiments(ragmeter: Command, store: Store) -> None:
    (like, *_) = queries.runs(store)
    names = ["at random", *(f"pick {number}" for number in range(13))]
    runs = [f"{number:064x}" for number in range(len(names))]
    for run, method in zip(runs, names, strict=True):
        dataset = (like.dataset, like.dataset_fingerprint, like.setting, like.seed, like.questions)
        store.start(Run(run, method, like.method_id, like.kind, {}, *dataset, {}))
    store.put_experiment("a-later", "name: a-later", None, None, None, runs, names=names)
    response = ragmeter("results", "show", "pick")[2]
    assert response.count("(a-later/pick") == 12
    assert "… (13 in all); `ragmeter list runs` lists all" in response
    response = ragmeter("results", "show", "random")[2]
    assert response.index("a-later/at random") < response.index("small/random é")


def test_error_suggests_matching_tags_before_runs(ragmeter: Command, store: Store) -> None:
    run = next(row for row in queries.runs(store) if row.method == "bm25 + extractive")
    tags.tag_run(store, "bm25-best", run)
    assert f"name one: bm25-best, {run.run[:8]} (" in ragmeter("results", "show", "bm25")[2]


def test_unknown_dataset_error_suggests_only_datasets(ragmeter: Command) -> None:
    code, _, response = ragmeter("data", "foo", "--json")
    assert code == 2
    error = json.loads(response)["error"]
    listed = error["try"].removeprefix("known: ").partition(", …")[0].split(", ")
    assert error["what"] == "unknown dataset 'foo'"
    assert len(listed) > 5
    assert not {"overlap", "download", "list"} & set(listed)
    # A mistyped command is still reported as one.
    assert "did you mean 'download'?" in ragmeter("data", "downlod")[2]


@pytest.mark.parametrize(
    ("line", "response"),
    [
        ("run demo --limit five", "invalid value for '--limit': a whole number is wanted, got 'five'"),
        ("run demo --limit 2.5", "invalid value for '--limit': a whole number is wanted, got '2.5'"),
        ("run demo --limit 0", "invalid value for '--limit': must be at least 1, got 0"),
        ("leaderboard --port 99999999", "invalid value for '--port': must be at most 65535, got 99999999"),
        ("store replies prune --older-than x", "invalid value for '--older-than': a number is wanted, got 'x'"),
    ],
)
def test_invalid_numbers_are_reported_in_plain_words(line: str, response: str, ragmeter: Command) -> None:
    code, _, reported = ragmeter(*line.split())
    assert code == 2
    assert reported.startswith(f"error: {response}\n")


def test_process_runs_exit_functions_and_keeps_its_code_and_output(tmp_path: Path) -> None:
    script = tmp_path / "ragmeter"
    script.write_text(
        "import atexit, sys\n"
        "from ragmeter.cli import main\n"
        "class Kept:\n"
        "    def __del__(self): print('collected')\n"
        "kept = Kept()\n"
        "import ragmeter.cli.errors as errors\n"
        "run = errors.run_command\n"
        "def command(app):\n"
        "    atexit.register(print, 'registered')\n"
        "    print('written', end='')\n"
        "    return run(app)\n"
        "sys.modules['ragmeter.cli'].run_command = command\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    end = subprocess.run([sys.executable, script, "--bad"], capture_output=True, text=True, check=False)
    assert end.returncode == 2
    assert end.stdout == "writtenregistered\n"
    assert end.stderr


def test_source_that_is_refused_does_not_stop_an_import(answered: Path, tmp_path: Path, call: Callable[..., Any]) -> None:
    sources = [str(tmp_path / "nothing"), str(answered / "store"), str(tmp_path / "nowhere")]
    done = call("store", "import", *sources, "--store", str(tmp_path / "new"), "--json")
    assert (done.code, [line["source"] for line in json.loads(done.out)]) == (2, sources[1:2])
    assert [name in done.err for name in ("nothing", "nowhere")] == [True, True]
    assert len(queries.runs(Store(tmp_path / "new"))) == len(queries.runs(Store(answered / "store")))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("line", ["list methods --json", "list methods"])
def test_closed_streams_are_no_error(line: str, closed: str) -> None:
    done = subprocess.run(f"'{sys.executable}' -m ragmeter.cli {line} {closed}", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed == "2>&-")


def test_help_goes_to_standard_output_with_json_too(ragmeter: Command) -> None:
    done = ragmeter("list", "methods", "--json", "--help")
    assert (done.code, done.err) == (0, "")
    assert "--json" in done.out


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", refused)
    with raises("no-file-locks"):
        Store(tmp_path / "store").database.open_to_write()
    done = call("train", "gpr", "--graph", "worlds/graph:train", "--base", "minilm", "--store", str(tmp_path / "other"), "--json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (2, "no-file-locks")


@pytest.mark.parametrize(("size", "code"), [("2", "training-killed"), ("1", "failed-command")])
def test_loss_of_another_process_of_a_training_is_named(
    size: str, code: str, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    def lost(*_: object, until: str | None) -> None:
        raise RuntimeError("[pair.cc:537] gloo: Read error [127.0.0.1]:20382: Connection reset by peer")

    monkeypatch.setattr(training_jobs.TrainingJob, "run", lost)
    monkeypatch.setenv("WORLD_SIZE", size)
    done = call("train", "gpr", "--graph", "worlds/graph:train", "--base", "minilm", "--device", "cpu", "--json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (1, code)
