"""The cache of replies: keys, concurrent processes, sudden death, exports, pruning, damage."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from methods.models.reply import BROKEN
from methods.models.reply_cache import Call, Entry, Kept, ResponseCache, export_replies, import_replies, shared
from tests.support.errors import raises

REQUESTED = [{"role": "user", "content": "Who?"}]


def call(text: str = "Who?", **changed: Any) -> Call:
    fields = {
        "endpoint": "http://localhost/v1",
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "parameters": {"temperature": 0.0, "max_tokens": 64},
        **changed,
    }
    return Call(**fields)


def reply(text: str = "Ann") -> dict[str, Any]:
    return {"text": text, "finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 1, "model": "m-1"}


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "store" / "cache.sqlite")
    yield cache
    cache.close()


def content(cache: ResponseCache) -> list[tuple[str, str, str]]:
    return [(entry.key, entry.request, entry.reply) for entry in cache.entries()]


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": "http://localhost:1/v1"},
        {"model": "n"},
        {"messages": [{"role": "system", "content": "Who?"}]},
        {"messages": [*REQUESTED, *REQUESTED]},
        {"parameters": {"temperature": 0.1, "max_tokens": 64}},
        {"parameters": {"temperature": 0.0, "max_tokens": 64, "seed": 1}},
        {"repetition": 1},
        {"revision": "r1"},
        {"scope": "12345678"},
    ],
)
def test_every_parameter_of_a_call_changes_its_key(cache: ResponseCache, changed: dict[str, Any]) -> None:
    other = call(**changed)
    assert other.key != call().key
    cache.put(call(), reply())
    assert cache.find([other]) == {}
    assert cache.find([call()])[call().key].reply == reply()


def test_order_of_fields_does_not_change_the_key() -> None:
    turned = call(messages=[{"content": "Who?", "role": "user"}], parameters={"max_tokens": 64, "temperature": 0.0})
    assert turned.key == call().key


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(query=st.text(st.characters(codec=None), max_size=40), response=st.text(st.characters(codec=None), max_size=40))
def test_any_text_round_trips(cache: ResponseCache, query: str, response: str) -> None:
    """Includes lone surrogates, NULs and line separators."""
    item = call(query)
    cache.add([])  # opening is no part of the property
    kept = cache.put(item, reply(response))
    assert cache.get([item.key])[item.key].reply == kept.reply
    if kept.reply["text"] == response:
        return
    # The same question was asked by an earlier example, whose reply stays.
    assert kept.reply["text"] != response


def test_first_stored_reply_is_kept(cache: ResponseCache) -> None:
    assert cache.put(call(), reply("first")).reply["text"] == "first"
    assert cache.put(call(), reply("second")).reply["text"] == "first"
    assert len(cache) == 1


@pytest.mark.parametrize("reason", sorted(BROKEN | {"Error"}))
def test_cached_reply_that_the_server_broke_off_counts_as_missing(cache: ResponseCache, reason: str) -> None:
    """Versions before 372017f6 cached such replies as if they were complete."""
    cache.put(call(), {**reply("hal"), "finish_reason": reason})
    cache.put(call(scope="aaaaaaaa"), {**reply("hal"), "finish_reason": reason})
    assert cache.find([call(), call(scope="aaaaaaaa")]) == {}
    assert cache.put(call(), reply("whole")).reply["text"] == "whole"
    assert cache.find([call()])[call().key].reply["text"] == "whole"
    assert cache.put(call(), reply("third")).reply["text"] == "whole"


def test_many_keys_are_looked_up_at_once(cache: ResponseCache) -> None:
    calls = [call(f"q{number}") for number in range(1300)]
    for number, item in enumerate(calls[::2]):
        cache.put(item, reply(str(number)))
    result = cache.get([item.key for item in calls] + ["absent"])
    assert {key: kept.reply["text"] for key, kept in result.items()} == {item.key: str(number) for number, item in enumerate(calls[::2])}


def test_scoped_call_reads_its_own_reply_and_unscoped_call_the_newest(cache: ResponseCache) -> None:
    first, second = call(scope="aaaaaaaa"), call(scope="bbbbbbbb")

    def texts(*calls: Call) -> list[str]:
        results = cache.find(calls)
        return [results[item.key].reply["text"] for item in calls if item.key in results]

    cache.put(first, reply("first"))
    assert texts(call()) == ["first"]
    assert texts(second) == []
    cache.put(call(), reply("plain"))
    assert texts(call()) == ["plain"]
    kept = cache.put(second, reply("second"))
    assert texts(first, call(), second) == ["first", "second", "second"]
    assert cache.find([call()])[call().key] == kept, "it says which entry it is, and when that was received"
    assert texts(call(revision="r2")) == []
    cache.put(call(revision="r2", scope="aaaaaaaa"), reply("of r2"))
    assert texts(call(), call(revision="r2")) == ["second", "of r2"]


def test_cache_of_the_first_layout_keeps_its_replies(tmp_path: Path) -> None:
    path, old, before = tmp_path / "cache.sqlite", call("old"), time.time() - 1000
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE replies (key TEXT PRIMARY KEY, model TEXT NOT NULL, request TEXT NOT NULL, reply TEXT NOT NULL,"
            " created REAL NOT NULL) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO replies VALUES (?, ?, ?, ?, ?)", (old.key, "m", old.request, json.dumps(reply()), before))
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    cache = ResponseCache(path)
    assert cache.find([old])[old.key] == Kept(old.key, reply(), before)
    cache.put(call("old", scope="aaaaaaaa"), reply("new"))
    assert cache.find([old])[old.key].reply["text"] == "new"
    cache.close()
    again = ResponseCache(path)
    assert len(again) == 2
    again.close()


def _write(path: Path, first: int, count: int) -> None:
    cache = ResponseCache(path)
    for number in range(first, first + count):
        cache.put(call(f"q{number}"), reply(str(number)))


@pytest.mark.slow
def test_concurrent_processes_lose_no_reply(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    context = multiprocessing.get_context("spawn")
    # Their ranges overlap by half, so they also write the same rows.
    workers = [context.Process(target=_write, args=(path, 100 * number, 200)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    cache = ResponseCache(path)
    assert {json.loads(r)["messages"][0]["content"]: json.loads(response)["text"] for _, r, response in content(cache)} == {
        f"q{number}": str(number) for number in range(400)
    }
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    cache.close()


def test_threads_share_one_cache_object(tmp_path: Path) -> None:
    cache = shared(tmp_path / "cache.sqlite")
    assert shared(tmp_path / "x" / ".." / "cache.sqlite").path.name == "cache.sqlite"
    assert shared(tmp_path / "cache.sqlite") is cache
    threads = [threading.Thread(target=lambda n=n: [cache.put(call(f"{n}-{i}"), reply()) for i in range(50)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 200
    cache.close()


def test_forked_child_opens_its_own_connection(cache: ResponseCache) -> None:
    cache.put(call("parent"), reply())
    pid = os.fork()
    if pid == 0:
        try:
            cache.put(call("child"), reply())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    cache.put(call("after"), reply())
    assert len(cache) == 3


_WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from methods.models.reply_cache import Call, ResponseCache
cache = ResponseCache(Path(sys.argv[1]))
number = 0
while True:
    call = Call("e", "m", [{"role": "user", "content": f"q{number}"}])
    cache.put(call, {"text": str(number)})
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_acknowledged_reply_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    root = Path(__file__).resolve().parents[3]
    total = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(root)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(total + 40):  # known rows are acknowledged again
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        acknowledged = sum(1 for _ in process.stdout) + total + 40
        process.wait()
        process.stdout.close()
        cache = ResponseCache(path)
        kept = len(cache)
        assert acknowledged <= kept <= acknowledged + 1
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        cache.close()
        total = kept
    assert total >= 160


def test_exported_replies_can_be_imported_into_another_cache(cache: ResponseCache, tmp_path: Path) -> None:
    further: list[dict[str, Any]] = [{}, {"revision": "r"}, {"scope": "aaaaaaaa"}, *[{}] * 4]
    calls = [call(f"q{number} \ud800 é\n", **changed) for number, changed in enumerate(further)]
    for number, item in enumerate(calls):
        cache.put(item, reply(f"{number} \udfff"))
    replies = tmp_path / "run.jsonl"
    assert export_replies(cache, replies) == 7
    assert len(replies.read_text("utf-8").splitlines()) == 7
    other = ResponseCache(tmp_path / "other.sqlite")
    assert import_replies(other, replies) == 7
    assert import_replies(other, replies) == 0
    assert content(other) == content(cache)
    assert other.find([replace(calls[2], scope="")]), "imported replies are found without their scope"
    assert other.get([calls[3].key])[calls[3].key].reply["text"] == "3 \udfff"
    assert export_replies(cache, replies, [calls[1].key, calls[2].key, "absent"]) == 2
    other.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row | {"key": "0" * 32}, "not-cache-entry"),
        (lambda row: row | {"request": row["request"] | {"model": "other"}}, "not-cache-entry"),
        (lambda row: {k: v for k, v in row.items() if k != "reply"}, "not-cache-entry"),
        (lambda row: row | {"reply": "x"}, "not-cache-entry"),
        (lambda row: row | {"reply": {"text": "x"}}, "not-cache-entry"),
        (lambda row: row | {"reply": row["reply"] | {"text": 3}}, "not-cache-entry"),
        (lambda row: row | {"request": row["request"] | {"x": 1}}, "not-cache-entry"),
    ],
)
def test_modified_line_of_an_export_is_named(cache: ResponseCache, tmp_path: Path, change: Any, message: str) -> None:
    cache.put(call("a"), reply())
    replies = tmp_path / "t.jsonl"
    export_replies(cache, replies)
    good = replies.read_text("utf-8")
    replies.write_text(good + "\n" + json.dumps(change(json.loads(good))) + "\n", "utf-8")
    with raises(message) as caught:
        import_replies(ResponseCache(tmp_path / "other.sqlite"), replies)
    assert "line 3" in str(caught.value)


def _aged(cache: ResponseCache, name: str, age_s: float, model: str = "m") -> Call:
    item = call(name, model=model)
    text = json.dumps(reply(), sort_keys=True)
    cache.add([Entry(item.key, item.request, text, time.time() - age_s)])
    return item


def test_replies_are_pruned_by_age_model_and_size(cache: ResponseCache) -> None:
    old, new, other = _aged(cache, "old", 1000), _aged(cache, "new", 10), _aged(cache, "other", 2000, "n")
    kept = lambda: {key for key, _, _ in content(cache)}  # noqa: E731
    assert cache.prune(older_than_s=500, model="m") == 1
    assert kept() == {new.key, other.key}
    size = max(len(r.encode()) + len(response.encode()) for _, r, response in content(cache))
    assert cache.prune(keep_bytes=size + 5) == 1
    assert kept() == {new.key}
    assert cache.prune(keep_bytes=10**6) == 0
    assert cache.prune() == 1
    assert kept() == set()
    assert old.key not in kept()


def test_pruning_shrinks_the_file(cache: ResponseCache) -> None:
    for number in range(200):
        cache.put(call(f"{number} " + "x" * 5000), reply())
    cache.prune(keep_bytes=0)
    assert cache.path.stat().st_size < 100_000


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"this is no database, but it is long enough to be looked at as one" * 100)
    with raises("unreadable-cache") as caught:
        len(ResponseCache(path))
    assert str(path) in str(caught.value)


def test_file_of_a_newer_layout_is_refused(cache: ResponseCache) -> None:
    cache.put(call(), reply())
    with sqlite3.connect(cache.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    cache.close()
    with raises("cache-too-new"):
        len(cache)


def test_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("x")
    with raises("unwritable-cache-folder"):
        len(ResponseCache(tmp_path / "store" / "cache.sqlite"))
