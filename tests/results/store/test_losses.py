"""What the store says when rows that it had committed are gone, when another process holds it, and when a folder is in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock

from benchmarks.core.errors import Broke
from methods.api import Prediction
from results.store import holder, losses, queries, shared_connection
from results.store.store import FINISHED, INTERRUPTED, RUNNING, Run, Store
from tests.support.errors import raises

EARLIER = Run("1111aaaa", "bm25", "bm25", "retriever", {}, "toy:dev", "d", "corpus", 0, 4, {})
LATER = replace(EARLIER, run="2222bbbb", questions=50)


def answer(store: Store, run: Run, numbers: range) -> None:
    batch = [Prediction(f"q{number}", "a") for number in numbers]
    store.append(run.run, batch, {"em#v2": np.ones(len(batch))})


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as a killed process leaves it: one run in the file, another in the write-ahead log."""
    store = Store(tmp_path_factory.mktemp("left") / "store")
    store.start(EARLIER)
    answer(store, EARLIER, range(4))
    store.end(EARLIER.run, FINISHED)
    store.database.close()
    store.start(LATER)
    for number in range(0, 50, 5):
        answer(store, LATER, range(number, number + 5))
    copy = store.folder.with_name("copy")
    shutil.copytree(store.folder, copy)
    store.database.close()
    assert log_of(copy).stat().st_size > 10_000
    return copy


@pytest.fixture
def unclean(left_behind: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left_behind, tmp_path / "unclean"))


def log_of(folder: Path) -> Path:
    return folder / "store.duckdb.wal"


def halved(folder: Path) -> None:
    with open(log_of(folder), "r+b") as log:
        log.truncate(os.fstat(log.fileno()).st_size // 2)


def emptied(folder: Path) -> None:
    log_of(folder).write_bytes(b"")


def deleted(folder: Path) -> None:
    log_of(folder).unlink()


@pytest.mark.parametrize("damage", [halved, emptied, deleted])
def test_damaged_log_names_the_runs_and_marks_them_for_asking_again(
    unclean: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(unclean)
    store = Store(unclean)
    left = store.finished_questions(LATER.run)
    message = capsys.readouterr().err
    assert len(left) < 50
    assert f"run {LATER.run}: {50 - len(left)} of 50 answers" in message
    assert str(unclean) in message
    assert EARLIER.run not in message
    assert store.status(EARLIER.run) == FINISHED
    assert store.status(LATER.run) == (INTERRUPTED if damage is halved else None)
    # The same command again asks what is missing, and the message is not repeated.
    store.start(LATER)
    answer(store, LATER, range(50))
    store.database.close()
    assert len(Store(unclean).finished_questions(LATER.run)) == 50
    assert capsys.readouterr().err == ""


def test_finished_run_that_lost_answers_is_not_finished_any_more(unclean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(unclean)
    store.end(LATER.run, FINISHED)
    store.database.close()
    recorded = json.loads((unclean / losses.FILE).read_text())
    recorded["rows"]["answers"][LATER.run] = 60
    (unclean / losses.FILE).write_text(json.dumps(recorded))
    row = queries.find_run(store, LATER.run)
    assert row.status == INTERRUPTED
    assert "10 of 60 answers" in (row.error or "")
    assert f"run {LATER.run}: 10 of 60 answers" in capsys.readouterr().err


def test_whole_log_is_read_without_a_message(unclean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Store(unclean).finished_questions(LATER.run)) == 50
    assert capsys.readouterr().err == ""


def test_rows_deleted_on_purpose_are_no_loss_even_if_the_process_ends_at_the_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (EARLIER, LATER):
        store.start(run)
        answer(store, run, range(4))
    monkeypatch.setattr(losses.Recording, "committed", lambda self: None)
    store.forget(LATER.run)
    store.database.close()
    monkeypatch.undo()
    assert store.finished_questions(EARLIER.run) == {f"q{number}" for number in range(4)}
    assert capsys.readouterr().err == ""
    assert losses.read(store.folder) == {("answers", EARLIER.run): 4, ("scores", EARLIER.run): 4}


def test_transaction_that_fails_changes_no_counts(store: Store) -> None:
    store.start(EARLIER)
    answer(store, EARLIER, range(4))
    before = losses.read(store.folder)
    with pytest.raises(RuntimeError), store.database.writing() as connection:  # noqa: PT012
        connection.execute("DELETE FROM predictions")
        raise RuntimeError
    assert losses.read(store.folder) == before


@pytest.mark.parametrize("content", [None, "", "[]", '{"version": 1, "rows": {"answers": 3}}', '{"version": 2}'])
def test_missing_or_unreadable_counts_are_reported_once_and_recorded_again(
    store: Store, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    store.start(EARLIER)
    answer(store, EARLIER, range(4))
    store.database.close()
    recorded = losses.read(store.folder)
    if content is None:
        (store.folder / losses.FILE).unlink()
    else:
        (store.folder / losses.FILE).write_text(content)
    for reports in (1, 0):
        assert len(store.finished_questions(EARLIER.run)) == 4
        store.database.close()
        assert capsys.readouterr().err.count("warning: ") == reports
    assert losses.read(store.folder) == recorded


def test_counts_that_cannot_be_written_stop_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.start(EARLIER)
    answer(store, EARLIER, range(4))
    monkeypatch.setattr(os, "replace", full)
    answer(store, EARLIER, range(8))
    assert losses.read(store.folder) is None
    assert len(store.finished_questions(EARLIER.run)) == 8


def test_loss_in_a_folder_that_cannot_be_written_is_said_once_and_marks_nothing(
    unclean: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    halved(unclean)
    monkeypatch.setattr(os, "access", lambda *_: False)
    store = Store(unclean)
    assert store.status(LATER.run) == RUNNING
    store.database.close()
    store.status(LATER.run)
    assert capsys.readouterr().err.count("the store lost data") == 1


def test_folder_in_the_place_of_the_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "store.duckdb").mkdir()
    for use in (lambda: Store(tmp_path).start(EARLIER), lambda: Store(tmp_path).status("x")):
        with raises("folder-instead-of-file") as caught:
            use()
        assert caught.value.where == str(tmp_path / "store.duckdb")
        assert caught.value.exit_code == 2
    (tmp_path / "file").touch()
    with raises("unreadable-store"):
        Store(tmp_path / "file").status("x")


def test_store_that_is_removed_while_a_run_goes_on_takes_no_answers(store: Store) -> None:
    store.start(EARLIER)
    store.database.close()
    shutil.rmtree(store.folder)
    with raises("store-vanished"):
        answer(store, EARLIER, range(4))


@contextmanager
def holding(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has done something with the store and keeps it."""
    lines = f"{code}; print('ready', flush=True); sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", lines, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


OTHER_PROGRAM = "import sys, duckdb; kept = duckdb.connect(sys.argv[1] + '/store.duckdb', read_only=True)"
WRITER = (
    "import sys, os, signal; from pathlib import Path; from results.store import database, shared_connection; "
    "shared_connection.IDLE_S = 600.0; d = database.Database(Path(sys.argv[1])); c = d.writing(); c.__enter__()"
)


@pytest.mark.slow
@pytest.mark.parametrize("code", [OTHER_PROGRAM, WRITER])
def test_waiting_for_the_store_names_the_process_in_time_and_in_the_error(
    store: Store, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert holder.TELL_S <= 5
    store.start(EARLIER)
    store.database.close()
    monkeypatch.setattr(holder, "TELL_S", 0.05)
    monkeypatch.setattr(shared_connection, "PATIENCE_S", 0.3)
    with holding(code, store.folder) as process:
        began = time.monotonic()
        with pytest.raises(Broke, match=rf"process {process.pid} \(.*-c") as caught:
            store.start(LATER)
        assert time.monotonic() - began < 30
        message = capsys.readouterr().err
        assert caught.value.where in (str(store.folder), str(store.database.path))
        assert message.count("waiting for the store") == 1
        assert f"process {process.pid} (" in message
        assert "since 20" in message
    store.start(LATER)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_wait_that_ends_is_no_error(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    store.start(EARLIER)
    store.database.close()
    monkeypatch.setattr(holder, "TELL_S", 0.05)
    with holding(WRITER, store.folder) as process:
        os.kill(process.pid, signal.SIGSTOP)
        tries = count(1)

        def sleep(seconds: float) -> None:
            # The second try tells who is waited for, so the process lives until then.
            time.sleep(0.2)
            if next(tries) > 1:
                os.kill(process.pid, signal.SIGKILL)

        # A module of its own: `time.sleep` itself is what other threads of this process call.
        monkeypatch.setattr(shared_connection, "time", SimpleNamespace(**vars(time) | {"sleep": sleep}))
        store.start(LATER)
    assert f"process {process.pid}" in capsys.readouterr().err
    assert store.status(LATER.run) == RUNNING


def test_note_of_the_holder_goes_with_the_lock(store: Store) -> None:
    with store.database.writing():
        assert f"process {os.getpid()} (" in holder.named(store.folder)
    store.database.close()
    assert holder.named(store.folder) == "another process has it open"
    note = {"pid": 2**22 + 1, "command": "python x.py", "since": "2026-06-03T12:00:00+00:00"}
    for text in ("[]", "", json.dumps(note | {"pid": "x"}), *([json.dumps(note)] if Path("/proc/self").exists() else [])):
        (store.folder / holder.FILE).write_text(text)
        assert holder.named(store.folder) == "another process has it open"


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell who locks a file")
def test_note_of_a_process_that_ended_or_of_another_host_names_no_wrong_process(tmp_path: Path) -> None:
    note = {"pid": os.getpid(), "command": "ragmeter run x", "since": "2001-01-01T00:00:00+00:00", "host": socket.gethostname()}
    for change, named in (
        ({}, "another process"),
        ({"pid": 2**22 + 1}, "another process"),
        ({"host": "h\x1b"}, f"process {os.getpid()} on h "),
    ):
        (tmp_path / holder.FILE).write_text(json.dumps(note | change))
        assert holder.named(tmp_path).startswith(named)
    with FileLock(str(tmp_path / "store.lock")):
        code = f"from pathlib import Path; from results.store import holder; print(holder.named(Path({str(tmp_path)!r})))"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()} " in shown


def test_command_of_the_holder_shows_no_key_and_no_control_characters() -> None:
    key = "sk-" + "a1" * 20
    shown = holder._short(["/usr/bin/python", "/x/run.py", f"--set=api_key={key}", "\x1b[2J", "y" * 200])
    assert shown.startswith("python run.py --set=")
    assert key not in shown
    assert "\x1b" not in shown
    assert len(shown) <= 120
