import gzip
import io
import json
import zipfile

import pytest

from benchmarks.io.files import archive_of, best, fits, is_sharded, matching, members, missing_shards, open_bytes, sibling, size_of
from benchmarks.io.records import stream_json
from benchmarks.records import records
from tests.support.errors import raises

RECORDS = [{"id": i, "text": f"Zürich \u2028 {i}"} for i in range(5)]
LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS).encode()


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data/lines.jsonl", LINES)
        file.writestr("data/packed.jsonl.gz", gzip.compress(LINES))
        file.writestr("data/array.json", json.dumps(RECORDS))
        file.writestr("data/e/lines.jsonl", LINES)
    return path


def inside(archive, member):
    return archive.parent / f"{archive.name}!{member}"


@pytest.mark.parametrize("member", ["data/lines.jsonl", "data/packed.jsonl.gz", "data/array.json"])
def test_archive_member_reads_like_a_file(archive, member):
    path = inside(archive, member)
    results = list(records(path))
    assert [record.fields for record in results] == RECORDS
    assert results[0].where == f"{path}, {'line 1, record 1' if member.endswith('.json') else 'line 1'}"


def test_archive_member_is_streamed_without_unpacking(archive):
    before = sorted(archive.parent.iterdir())
    assert next(stream_json(inside(archive, "data/lines.jsonl"))).value == RECORDS[0]
    assert sorted(archive.parent.iterdir()) == before


def test_missing_member_error_lists_existing_members(archive):
    with raises("archive-member-missing") as caught, open_bytes(inside(archive, "none")):
        pass
    assert caught.value.where == str(archive)
    assert "data/array.json" in caught.value.try_this


def test_file_name_with_the_member_separator_is_a_file(tmp_path):
    path = tmp_path / "what!really.jsonl"
    path.write_bytes(LINES)
    assert archive_of(path) is None
    assert len(list(records(path))) == 5
    odd = tmp_path / "a!b.zip"
    with zipfile.ZipFile(odd, "w") as file:
        file.writestr("c!d.jsonl", LINES)
    assert archive_of(tmp_path / "a!b.zip!c!d.jsonl") == (odd, "c!d.jsonl")
    assert archive_of(tmp_path / "none!x") is None


def test_member_sizes_are_uncompressed_sizes(archive):
    assert size_of(inside(archive, "data/lines.jsonl")) == len(LINES)
    assert size_of(inside(archive, "none")) == 0
    assert size_of(archive) == archive.stat().st_size
    assert size_of(archive.parent / "none") == 0


def test_sibling_of_a_member_is_in_the_same_archive_folder(archive):
    assert sibling(inside(archive, "data/lines.jsonl"), "array.json") == inside(archive, "data/array.json")
    assert sibling(inside(archive, "data/e/lines.jsonl"), "x") == inside(archive, "data/e/x")
    assert sibling(archive, "x") == archive.parent / "x"
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("top.json", "[]")
    assert sibling(inside(archive, "top.json"), "x") == inside(archive, "x")


def test_damaged_archive_is_reported_by_path(archive, tmp_path):
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-30])
    with raises("damaged-archive"):
        members(cut)
    spoiled = bytearray(archive.read_bytes())
    spoiled[60:70] = b"\0" * 10
    cut.write_bytes(spoiled)
    with raises("damaged-archive"):
        list(stream_json(tmp_path / "cut.zip!data/lines.jsonl"))


def test_encrypted_archive_is_reported_by_path(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        file.writestr("a.jsonl", LINES)
    raw = bytearray(sink.getvalue())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset] |= 1
    (tmp_path / "locked.zip").write_bytes(raw)
    with raises("unreadable-archive-member"):
        list(stream_json(tmp_path / "locked.zip!a.jsonl"))


@pytest.mark.parametrize(
    ("name", "pattern", "does"),
    [
        ("set_dev.json", "set_*.json", True),
        ("SET_dev.JSON.gz", "set_*.json", True),
        ("data/dev.json", "*.json", False),
        ("data/dev.json", "data/*.json", True),
        ("data/e/dev.json", "data/*.json", False),
        ("dev.json", "dev.jsonl", False),
    ],
)
def test_patterns_match_expected_names(name, pattern, does):
    assert fits(name, pattern) is does


def test_first_matching_pattern_wins_and_an_archive_matches_its_members():
    names = ["b.json", "a.json", "data.zip"]
    assert best(names, ["none", "*.json", "b.json"]) == ("a.json", "b.json")
    assert best(names, ["data.zip!data/x.jsonl"]) == ("data.zip",)
    assert best(names, ["none"]) == ()


def test_members_are_matched_inside_the_archive(archive):
    folder = archive.parent

    def inner(position, pattern):
        return [str(path).removeprefix(f"{archive}!") for path in matching(position, pattern)]

    assert inner(folder, "data.zip!data/*.jsonl") == ["data/lines.jsonl", "data/packed.jsonl.gz"]
    assert inner(folder, "*.zip!data/e/*.jsonl") == ["data/e/lines.jsonl"]
    assert inner(archive, "lines.jsonl") == ["data/e/lines.jsonl", "data/lines.jsonl"]
    assert matching(folder, "*.json") == ()


def test_shards_are_recognized_by_their_names():
    names = [f"data/train-{i:05}-of-00003.parquet" for i in range(3)]
    assert is_sharded(names)
    assert not is_sharded([*names, "data/dev-00000-of-00003.parquet"])
    assert missing_shards(names) == ""
    assert missing_shards(names[1:2]) == "shards 0, 2 of 3"
    assert missing_shards(["dev.json"]) == ""
