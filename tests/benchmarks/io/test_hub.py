"""The hub protocol, against a loopback server."""

import errno
import hashlib
import json
import os
import subprocess
import sys

import pytest

from benchmarks.io import hub
from benchmarks.io.hub import fetch, stated_sizes
from benchmarks.registry import load
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository

BIG = bytes(range(256)) * 4096
FILES = {
    "README.md": b"---\nlicense: mit\n---\n",
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


def transfers(server):
    return [request for request in server.requests if request.startswith("GET /store") or "GET /datasets" in request]


def test_small_and_large_files_are_downloaded_with_correct_hashes(server, repository):
    fetched = fetch(NAME, ["plain/*"])
    names = ["plain/dev.jsonl", "plain/train-00000-of-00002.parquet", "plain/train-00001-of-00002.parquet"]
    assert [path.read_bytes() for path in fetched.paths] == [FILES[name] for name in names]
    assert fetched.files == {name: sha256(FILES[name]) for name in names}
    assert fetched.revision == repository.branches["main"]


def test_first_pattern_with_a_match_is_used(server):
    assert list(fetch(NAME, ["none-*", "plain/train-*.parquet", "plain/*"]).files) == [
        "plain/train-00000-of-00002.parquet",
        "plain/train-00001-of-00002.parquet",
    ]


def test_star_pattern_does_not_match_subfolders(server):
    with raises("unknown-repository-file"):
        fetch(NAME, ["*.jsonl"])


def test_long_listing_is_read_page_by_page(tmp_path):
    many = Repository({f"f{i:03}.jsonl": b"%d" % i for i in range(25)}, page=4)
    with HubServer({NAME: many}).as_hub(tmp_path):
        assert len(fetch(NAME, ["*.jsonl"]).paths) == 25


def test_missing_shard_is_an_error(tmp_path):
    partial = {name: content for name, content in FILES.items() if "00001" not in name}
    with HubServer({NAME: Repository(partial)}).as_hub(tmp_path), raises("repository-file-missing"):
        fetch(NAME, ["plain/train-*.parquet"])


def test_unpinned_load_resolves_and_records_the_commit_of_main(server, repository):
    fetched = fetch(NAME, ["big.bin"])
    assert hub.source([fetched]) == {
        "hub": NAME,
        "revision": repository.branches["main"],
        "pinned": False,
        "files": {"big.bin": sha256(BIG)},
    }
    (note,) = hub.notes([fetched])
    assert repository.branches["main"] in note
    assert "not pinned" in note


def test_pinned_revision_is_read_after_main_has_changed(server, repository):
    old = repository.branches["main"]
    new = repository.commit({"big.bin": b"new"})
    assert fetch(NAME, ["big.bin"], old).paths[0].read_bytes() == BIG
    assert fetch(NAME, ["big.bin"], new).paths[0].read_bytes() == b"new"
    assert fetch(NAME, ["big.bin"]).paths[0].read_bytes() == b"new"
    pinned = fetch(NAME, ["big.bin"], old)
    assert hub.source([pinned])["pinned"]
    assert hub.notes([pinned]) == ()


def test_branch_or_tag_pins_by_name_and_its_commit_is_recorded(server, repository):
    commit = repository.commit({"big.bin": b"tagged"}, "v1.0")
    assert fetch(NAME, ["big.bin"], "v1.0").revision == commit


def test_cached_pinned_file_needs_no_request(server, repository):
    commit = repository.branches["main"]
    fetch(NAME, ["big.bin"], commit)
    before = server.requests.total()
    fetch(NAME, ["big.bin"], commit)
    assert server.requests.total() == before


def test_missing_revision_repository_or_file_is_reported(server):
    with raises("no-revision"):
        fetch(NAME, ["big.bin"], "v9")
    with raises("no-revision"):
        fetch(NAME, ["big.bin"], "0" * 40)
    with raises("unknown-hub-repository"):
        fetch("owner/none", ["big.bin"])
    with raises("unknown-repository-file") as caught:
        fetch(NAME, ["other.json"])
    assert "big.bin" in caught.value.try_this
    with raises("bad-repository-id"):
        fetch("a/b/c", ["x"])


def test_renamed_repository_is_found_by_its_old_name(repository, tmp_path):
    with HubServer({NAME: repository}, moved={"former/set": NAME}).as_hub(tmp_path):
        fetched = fetch("former/set", ["big.bin", "plain/dev.jsonl"])
        assert fetched.paths[0].read_bytes() == BIG
        assert fetch("former/set", ["plain/dev.jsonl"]).paths[0].read_bytes() == FILES["plain/dev.jsonl"]


def test_read_only_cache_still_provides_cached_files(server, repository, tmp_path, monkeypatch):
    commit = repository.branches["main"]
    (path,) = fetch(NAME, ["big.bin"]).paths
    (path.parents[2] / "ragmeter" / f"{commit}.json").unlink()

    def refused(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    assert fetch(NAME, ["big.bin"], commit).paths == (path,)
    assert fetch(NAME, ["big.bin"]).paths == (path,)


def test_missing_huggingface_hub_error_names_the_remedy(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    with raises("missing-package") as caught:
        fetch(NAME, ["big.bin"])
    assert "[hub]" in caught.value.try_this
    with raises("missing-package") as caught:
        load("hotpotqa:dev")
    assert "[hub]" in caught.value.try_this


@pytest.mark.parametrize("token", [None, "hf_unknown"])
def test_gated_repository_error_explains_how_to_get_access(tmp_path, monkeypatch, token):
    gated = Repository(FILES, gated=True, granted=["hf_friend"])
    server = HubServer({NAME: gated})
    with server.as_hub(tmp_path) as url:
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with raises("access-asked-gated") as caught:
            fetch(NAME, ["big.bin"])
        assert caught.value.where == f"{url}/datasets/{NAME}"
        for word in ("accept its terms", "hf auth login", "HF_TOKEN"):
            assert word in caught.value.try_this
        monkeypatch.setenv("HF_TOKEN", "hf_friend")
        assert fetch(NAME, ["big.bin"]).paths[0].read_bytes() == BIG
        monkeypatch.delenv("HF_TOKEN")


def test_private_repository_is_reported_like_a_missing_one(tmp_path):
    with HubServer({NAME: Repository(FILES, private=True)}).as_hub(tmp_path):
        with raises("unknown-hub-repository") as caught:
            fetch(NAME, ["big.bin"])
        assert "HF_TOKEN" in caught.value.try_this


CARD = b"""---
configs:
- config_name: distractor
  data_files:
  - split: validation
    path: distractor/validation-*
dataset_info:
- config_name: distractor
  features:
  - name: id
    dtype: string
  splits:
  - name: train
    num_examples: 90447
  - name: validation
    num_examples: 7405
---
# HotpotQA
"""


@pytest.mark.slow
def test_split_sizes_are_read_from_the_repository_card(tmp_path):
    with HubServer({NAME: Repository({"README.md": CARD})}).as_hub(tmp_path):
        assert stated_sizes(NAME) == {"distractor": {"train": 90447, "validation": 7405}}


def test_repository_card_without_sizes_gives_no_sizes(server):
    assert stated_sizes(NAME) == {}


def test_unreadable_readme_is_reported(tmp_path):
    broken = Repository({"README.md": b"---\ndataset_info: [1, 2\n---\n"})
    with HubServer({NAME: broken}).as_hub(tmp_path):
        with raises("unreadable-model-metadata") as caught:
            stated_sizes(NAME)
        assert caught.value.where.endswith("README.md")


def test_recording_lists_fetched_files_once_per_repository(server, repository, tmp_path):
    with hub.recording() as fetched:
        fetch(NAME, ["big.bin"])
        fetch(NAME, ["plain/dev.jsonl"])
        fetch(NAME, ["big.bin"], repository.commit({"big.bin": b"v2"}, "v2"))
    source = hub.source(fetched)
    assert set(source["files"]) == {"big.bin", "plain/dev.jsonl"}
    assert [other["files"] for other in source["others"]] == [{"big.bin": sha256(b"v2")}]
    assert json.loads(json.dumps(source)) == source
    assert len(hub.notes(fetched)) == 1


@pytest.mark.slow
def test_importing_the_hub_module_does_not_import_huggingface_hub():
    code = "import sys, benchmarks.sources; print('huggingface_hub' in sys.modules, 'datasets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
