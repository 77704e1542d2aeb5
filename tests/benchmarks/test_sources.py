import hashlib
import subprocess
import zipfile

import pytest

from benchmarks.availability import UNCLEAR, availability
from benchmarks.core.errors import UserError
from benchmarks.registry import DataReference, DatasetCard, DatasetConfig, load, resolve
from benchmarks.sources import find_file, find_files
from tests.support.errors import raises

CARD = DatasetCard(
    title="Set",
    task="QA",
    description="A set.",
    hub_id=None,
    revision=None,
    license="MIT",
    citation="none",
    languages=("en",),
    splits={"dev": None},
    metrics=("em",),
    settings=("corpus",),
)

FILES = {
    "a:train": ("set_train.json", "set_train*.json"),
    "a:dev": ("set_dev_a.json", "set_*dev*.json"),
    "b:train": ("set_train.json", "set_train*.json"),
    "b:dev": ("other_dev*.json",),
}


def find(text, path=None):
    config = DatasetConfig(path=None if path is None else str(path))
    return find_file(DataReference.parse(text), config, folders=("set", "the-set"), patterns=FILES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def test_only_matching_file_is_found(folder):
    (folder / "set_train50.json").touch()
    (folder / "unrelated.json").touch()
    assert find("set/a:train") == folder / "set_train50.json"


def test_exact_published_name_is_preferred(folder):
    (folder / "set_train.json").touch()
    (folder / "set_train50.json").touch()
    assert find("set/a:train") == folder / "set_train.json"


def test_compressed_file_is_found(folder):
    (folder / "set_train.json.gz").touch()
    assert find("set/a:train").name == "set_train.json.gz"


def test_file_lookup_ignores_letter_case(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    (tmp_path / "The-Set").mkdir()
    (tmp_path / "The-Set" / "Set_Train.JSON").touch()
    assert find("set/a:train").name == "Set_Train.JSON"


def test_several_matching_files_are_listed(folder):
    for name in ("set_train1.json", "set_train2.json"):
        (folder / name).touch()
    with raises("ambiguous-file"):
        find("set/a:train")


def test_file_next_to_its_compressed_copy_is_ambiguous(folder):
    for name in ("set_train.json", "set_train.json.gz"):
        (folder / name).touch()
    with raises("ambiguous-file"):
        find("set/a:train")


def test_missing_split_error_lists_searched_and_existing_files(folder):
    (folder / "set_train50.json").touch()
    with pytest.raises(UserError) as caught:
        find("set/a:dev")
    assert str(folder) in caught.value.where
    assert "set_dev_a.json" in caught.value.where
    assert "set/a:train" in caught.value.try_this


def test_missing_folder_error_lists_the_searched_names(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    with raises("no-data-found") as caught:
        find("set/a:dev")
    assert "the-set/" in caught.value.where


def test_error_without_path_and_variable_names_both_remedies(monkeypatch):
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    with raises("no-data-file-named") as caught:
        find("set/a:dev")
    assert "path" in caught.value.try_this


def test_data_variable_without_a_folder_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path / "none"))
    with raises("unknown-folder"):
        find("set/a:dev")


def test_path_may_be_a_file_of_any_name_or_a_folder(tmp_path):
    (tmp_path / "mine.json").touch()
    (tmp_path / "set_dev_a.json").touch()
    assert find("set/a:dev", tmp_path / "mine.json") == tmp_path / "mine.json"
    assert find("set/a:dev", tmp_path) == tmp_path / "set_dev_a.json"
    with raises("missing-file"):
        find("set/a:dev", tmp_path / "none.json")


def test_file_named_after_another_split_is_refused(tmp_path):
    (tmp_path / "set_train50.json").touch()
    with raises("file-name-mismatch"):
        find("set/a:dev", tmp_path / "set_train50.json")
    assert find("set/b:train", tmp_path / "set_train50.json").exists()


def find_several(text, path=None):
    config = DatasetConfig(path=None if path is None else str(path))
    return find_files(DataReference.parse(text), config, card=CARD, folders=("set", "the-set"), patterns=FILES, hub={"a:dev": ("h/*",)})


def test_shards_are_found_in_order_only_if_complete(folder):
    names = [f"set_dev_a-{i:05}-of-00003.json" for i in range(3)]
    for name in reversed(names):
        (folder / name).touch()
    assert find_several("set/a:dev") == tuple(folder / name for name in names)
    with raises("ambiguous-file"):
        find("set/a:dev")
    (folder / names[1]).unlink()
    with raises("missing-shards"):
        find_several("set/a:dev")


def test_a_path_to_one_shard_means_all_of_them(folder, tmp_path):
    names = [f"set_dev_a-{i:05}-of-00002.json" for i in range(2)]
    for name in (*names, "set_dev_a-00000-of-00003.json", "set_dev_a-00000-of-00002.parquet"):
        (folder / name).touch()
    assert find_several("set/a:dev", folder / names[1]) == tuple(folder / name for name in names)
    with raises("missing-shards"):
        find_several("set/a:dev", folder / "set_dev_a-00000-of-00003.json")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        for name in ("x/" + names[0], "x/" + names[1], "y/" + names[0]):
            file.writestr(name, "[]")
    assert find_several("set/a:dev", tmp_path / f"all.zip!x/{names[0]}") == tuple(tmp_path / f"all.zip!x/{name}" for name in names)


def test_several_files_that_are_not_shards_stay_ambiguous(folder):
    for name in ("set_x_dev.json", "set_y_dev.json"):
        (folder / name).touch()
    with raises("ambiguous-file"):
        find_several("set/a:dev")


def test_path_may_be_an_archive_or_an_archive_member(tmp_path):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data/set_dev_a.json", "[]")
        file.writestr("data/set_train.json", "[]")
    member = tmp_path / "all.zip!data/set_dev_a.json"
    assert find_several("set/a:dev", path) == (member,)
    assert find_several("set/a:dev", member) == (member,)
    with raises("file-name-mismatch"):
        find_several("set/a:dev", tmp_path / "all.zip!data/set_train.json")
    with raises("missing-file"):
        find_several("set/a:dev", tmp_path / "none.zip!data/set_dev_a.json")
    with pytest.raises(UserError, match="no file with a name of set/b:dev"):
        find_several("set/b:dev", path)


def test_explicit_path_never_falls_back_to_the_hub(tmp_path):
    with raises("data-file-not-found") as caught:
        find_several("set/a:dev", tmp_path)
    assert "hub" not in caught.value.what


def test_option_revision_selects_the_hub(tmp_path):
    reference = DataReference.parse("set/a:dev")
    with raises("path-and-revision"):
        find_files(
            reference,
            DatasetConfig(path=str(tmp_path), revision="main"),
            card=CARD,
            folders=("set",),
            patterns=FILES,
            hub={"a:dev": ("x",)},
        )
    with raises("revision-without-hub"):
        find_files(reference, DatasetConfig(revision="main"), card=CARD, folders=("set",), patterns=FILES)


def test_file_with_a_wrong_hash_is_refused_with_both_hashes(folder):
    path = folder / "set_dev_a.json"
    path.write_text("[1]")
    (folder / "other.json").write_text("[]")
    sums = subprocess.run(["sha256sum", "set_dev_a.json", "other.json"], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / "SHA256SUMS").write_text(sums)
    assert find("set/a:dev") == path
    path.write_text("[2]")
    for looked in (lambda: find("set/a:dev"), lambda: find_several("set/a:dev"), lambda: find("set/a:dev", path)):
        with raises("recorded-hash-mismatch") as caught:
            looked()
        assert hashlib.sha256(b"[1]").hexdigest() in caught.value.what
        assert hashlib.sha256(b"[2]").hexdigest() in caught.value.what
    (folder / "SHA256SUMS").write_text("nonsense\n")
    with raises("not-hash-line") as caught:
        find("set/a:dev")
    assert caught.value.where.endswith("SHA256SUMS, line 1")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b"", "fetch it"),
        (b"\x1f\x8b\x08", "gzip -t"),
    ],
)
def test_unreadable_file_is_refused_and_not_listed_as_available(content, hint, tmp_path, monkeypatch):
    (tmp_path / "hotpotqa").mkdir()
    path = tmp_path / "hotpotqa" / "hotpot_dev_distractor_v1.json"
    path.write_bytes(content)
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load("hotpotqa:dev")
    where = availability(DataReference("hotpotqa", "distractor", "dev"))
    assert where.state == UNCLEAR
    for error in (caught.value, where.problem):
        assert str(path) in str(error.where)
        assert hint in str(error.try_this)


def test_git_lfs_pointer_to_a_zip_archive_is_detected(tmp_path):
    (tmp_path / "data.zip").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with raises("lfs-pointer"):
        load("longbench/qasper:test", {"path": str(tmp_path)})


@pytest.mark.parametrize(("wrong", "right"), [("hotpotqa:validation", "dev"), ("nq:tset", "test"), ("worlds/multihop:dev", "validation")])
def test_wrong_split_name_suggests_the_right_one(wrong, right):
    with pytest.raises(UserError) as caught:
        resolve(wrong)
    assert caught.value.try_this == f"did you mean {right!r}?"
