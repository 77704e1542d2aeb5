"""A download that was killed goes on where it was, and never ends as a mixture of two files."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks.core.errors import UserError
from benchmarks.io import hub
from benchmarks.io.hub import fetch, part_of
from tests.support.hub_server import Repository

BIG = bytes(range(256)) * 4096
HALF = 300_000
NAME, FILE = "owner/set", "big.bin"
KILLED = """
import os, signal, time
from huggingface_hub import constants
from benchmarks.io.hub import fetch
constants.DOWNLOAD_CHUNK_SIZE = 100_000
# The client pauses where a transfer broke off: that is the middle of it.
time.sleep = lambda seconds: os.kill(os.getpid(), signal.SIGKILL)
fetch("owner/set", ["big.bin"])
"""


@pytest.fixture
def repository():
    return Repository({FILE: BIG, "small.bin": b"x" * 10_000, "text.txt": BIG})


def part(digest):
    return part_of(hub._folder(NAME), digest)


def stated(file=FILE):
    listing = hub._listing(NAME, "main")
    return listing.files[file].sha256 or listing.files[file].git


def leave(content, digest=None):
    """What an earlier process left behind."""
    path = part(digest or stated())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.slow
def test_what_a_killed_process_had_is_not_fetched_again(server):
    server.faults.cuts, server.faults.cut_after = 1, HALF
    died = subprocess.run([sys.executable, "-c", KILLED], env=dict(os.environ), check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    assert not any(hub._folder(NAME).glob("blobs/*"))
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG
    assert server.ranges == ["", f"bytes={HALF}-"]
    assert not part(stated()).exists()


@pytest.mark.parametrize("file", [FILE, "text.txt"])
def test_a_part_is_taken_up_of_large_storage_and_of_git(server, file):
    leave(BIG[:HALF], stated(file))
    assert fetch(NAME, [file]).paths[0].read_bytes() == BIG
    assert server.ranges == [f"bytes={HALF}-"]


def test_a_server_that_ignores_ranges_sends_all_and_nothing_is_doubled(server):
    server.faults.forgets_ranges = True
    leave(BIG[:HALF])
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG


@pytest.mark.parametrize("held", [b"\xff" * HALF, BIG[1 : HALF + 1], b"\xff" * len(BIG)])
def test_a_beginning_of_another_file_is_found_out_by_the_hash(server, held):
    leave(held)
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG
    assert server.ranges[-1] == ""


def test_a_file_that_changed_on_the_hub_begins_anew(server, repository):
    old = stated()
    leave(BIG[:HALF], old)
    changed = BIG[::-1]
    repository.commit({FILE: changed})
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == changed
    assert server.ranges == [""]
    assert part(old).exists()


def test_a_part_that_is_whole_takes_no_transfer_and_one_too_long_counts_for_nothing(server, tmp_path):
    leave(BIG)
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG
    assert server.ranges == []
    leave(BIG + b"more", stated("text.txt"))
    assert fetch(NAME, ["text.txt"]).paths[0].read_bytes() == BIG
    assert server.ranges == [""]


def test_what_was_right_before_the_file_was_spoilt_is_used(server):
    server.faults.altered = {FILE}
    leave(BIG[:HALF])
    # The altered byte is the first: what was there before and what comes now are one whole file.
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG


def test_what_is_wrong_from_the_start_is_refused_and_leaves_nothing(server):
    server.faults.altered = {FILE}
    for _ in range(2):
        with pytest.raises(UserError, match="not the file that the hub states"):
            fetch(NAME, [FILE])
    assert server.ranges == ["", ""]
    assert not part(stated()).exists()
    server.faults.altered = set()
    assert fetch(NAME, [FILE]).paths[0].read_bytes() == BIG


def test_small_files_leave_no_parts(server):
    leave(b"y" * 10, stated("small.bin"))
    assert fetch(NAME, ["small.bin"]).paths[0].read_bytes() == b"x" * 10_000
    assert server.ranges == [""]
