"""A hub that fails, returns wrong content or is unreachable, and offline mode."""

import errno
import hashlib
import os
import subprocess
import sys

import pytest

from benchmarks.io import hub
from benchmarks.io.hub import fetch
from tests.support.errors import raises
from tests.support.hub_server import Repository

BIG = bytes(range(256)) * 4096
FILES = {
    "plain/dev.jsonl": b'{"a": 1}\n',
    "plain/train-00000-of-00002.parquet": b"PAR1 first" * 100,
    "plain/train-00001-of-00002.parquet": b"PAR1 second" * 100,
    "other/dev.jsonl": b'{"a": 2}\n',
    "big.bin": BIG,
}
NAME = "owner/set"


@pytest.fixture
def repository():
    return Repository(FILES)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("fault", ["unavailable", "limited"])
def test_request_is_retried_until_the_hub_recovers(server, fault):
    setattr(server.faults, fault, 2)
    assert fetch(NAME, ["big.bin"]).paths[0].read_bytes() == BIG


@pytest.mark.parametrize(("fault", "says"), [("unavailable", "hub-failed"), ("limited", "hub-rate-limit")])
def test_request_fails_if_the_hub_does_not_recover(server, fault, says):
    setattr(server.faults, fault, 10_000)
    with raises(says) as caught:
        fetch(NAME, ["big.bin"])
    assert caught.value.exit_code == 1


@pytest.mark.slow
def test_interrupted_download_resumes_at_its_last_byte(server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    server.faults.cuts, server.faults.cut_after = 2, 300_000
    assert fetch(NAME, ["big.bin"]).paths[0].read_bytes() == BIG
    assert [value for value in server.ranges if value] == ["bytes=300000-", "bytes=600000-"]


@pytest.mark.slow
def test_server_that_ignores_ranges_does_not_corrupt_the_file(server):
    server.faults.cuts, server.faults.cut_after, server.faults.forgets_ranges = 1, 300_000, True
    assert fetch(NAME, ["big.bin"]).paths[0].read_bytes() == BIG


@pytest.mark.parametrize("name", ["big.bin", "plain/dev.jsonl"])
def test_content_with_a_wrong_hash_is_refused_and_deleted(server, name):
    server.faults.altered = {name}
    altered = bytes([FILES[name][0] ^ 1]) + FILES[name][1:]
    with raises("hub-hash-mismatch") as caught:
        fetch(NAME, [name])
    if name == "big.bin":
        assert sha256(altered) in caught.value.what
        assert sha256(BIG) in caught.value.what
    else:
        assert git_hash(altered) in caught.value.what
        assert git_hash(FILES[name]) in caught.value.what
    server.faults.altered = set()
    assert fetch(NAME, [name]).paths[0].read_bytes() == FILES[name]


def git_hash(content):
    done = subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.mark.parametrize("name", ["big.bin", "plain/dev.jsonl"])
def test_modified_cache_file_is_refused_online_and_offline(server, monkeypatch, name):
    (path,) = fetch(NAME, [name]).paths
    path.resolve().write_bytes(b"changed" + FILES[name][7:])
    for offline in ("0", "1"):
        monkeypatch.setenv("RAGMETER_OFFLINE", offline)
        with raises("hub-hash-mismatch") as caught:
            fetch(NAME, [name])
        assert caught.value.where == str(path)


def test_full_disk_is_reported_before_the_download(server, monkeypatch):
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda folder: Usage(10))
    with raises("disk-full"):
        fetch(NAME, ["big.bin"])
    assert not [request for request in server.requests if request.startswith("GET /store") or "GET /datasets" in request]


class Usage:
    def __init__(self, free):
        self.free = free


def test_disk_that_fills_up_during_the_download_is_reported(server, monkeypatch):
    import huggingface_hub

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/blob")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with raises("disk-full") as caught:
        fetch(NAME, ["big.bin"])
    assert caught.value.where == "/cache/blob"
    assert "HF_HOME" in caught.value.try_this


def test_unreachable_hub_is_reported(server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with raises("hub-unreachable") as caught:
        fetch(NAME, ["big.bin"])
    assert "HF_ENDPOINT" in caught.value.try_this


@pytest.fixture
def offline(monkeypatch):
    return lambda: monkeypatch.setenv("RAGMETER_OFFLINE", "1")


def test_offline_mode_reads_the_cache_without_a_request(server, offline):
    online = fetch(NAME, ["plain/*"])
    before = server.requests.total()
    offline()
    assert fetch(NAME, ["plain/*"]) == online
    assert server.requests.total() == before


def test_offline_mode_reports_files_missing_from_the_cache(server, repository, offline):
    fetch(NAME, ["big.bin"], repository.branches["main"])
    offline()
    with raises("not-in-cache"):
        fetch(NAME, ["plain/dev.jsonl"], repository.branches["main"])
    with raises("not-in-cache"):
        fetch(NAME, ["big.bin"])
    with raises("not-in-cache") as caught:
        fetch("owner/other", ["big.bin"])
    assert "--offline" in caught.value.try_this


def test_offline_mode_uses_a_cache_filled_by_huggingface_hub(server, repository, offline):
    from huggingface_hub import hf_hub_download

    hf_hub_download(NAME, "big.bin", repo_type="dataset", revision="main")
    offline()
    fetched = fetch(NAME, ["big.bin"])
    assert fetched.paths[0].read_bytes() == BIG
    assert fetched.revision == repository.branches["main"]


def test_offline_mode_refuses_a_partly_filled_cache(server, repository, offline):
    from huggingface_hub import hf_hub_download

    for name in ("plain/train-00000-of-00002.parquet", "other/dev.jsonl"):
        hf_hub_download(NAME, name, repo_type="dataset", revision="main")
    offline()
    with raises("not-in-cache"):
        fetch(NAME, ["plain/train-*.parquet"])
    with raises("offline-incomplete"):
        fetch(NAME, ["other/*"])
    assert fetch(NAME, ["other/dev.jsonl"]).paths[0].read_bytes() == FILES["other/dev.jsonl"]


def test_offline_mode_applies_to_child_processes(server):
    before = {name: os.environ.get(name) for name in hub.OFFLINE_VARIABLES}
    try:
        hub.go_offline()
        assert hub.offline()
        code = "import huggingface_hub; print(huggingface_hub.is_offline_mode())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "True"
    finally:
        for name, value in before.items():
            os.environ[name] = value


@pytest.mark.slow
def test_quiet_download_shows_no_progress(server):
    code = "from benchmarks.io import hub; hub.be_quiet(); print(hub.fetch('owner/set', ['big.bin']).paths[0].stat().st_size)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{len(BIG)}\n", "")
