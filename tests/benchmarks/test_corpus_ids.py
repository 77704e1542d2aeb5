"""Ids by sorted keys, compared with dicts and sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import corpus as corpus_module
from benchmarks.corpus import Corpus, IdIndex, KeySet, key, keys_of
from benchmarks.schema import Passage, passage_id

ids = st.one_of(st.text(max_size=20), st.integers(0, 50).map(str), st.integers(0, 2**64 - 1).map(lambda n: f"p{n:016x}"))


@given(st.lists(ids, unique=True, max_size=40), st.lists(ids, max_size=10))
def test_id_index_lookup_equals_a_dict(held, query):
    index = IdIndex.of(keys_of(held), held.__getitem__)
    positions = {identifier: position for position, identifier in enumerate(held)}
    for identifier in (*held, *query):
        assert index.find(identifier) == positions.get(identifier)


@given(st.lists(ids, unique=True, max_size=20))
def test_colliding_keys_of_different_ids_are_distinguished(held):
    # Every id gets one of three keys, so that nearly all collide.
    keys = np.array([len(identifier) % 3 for identifier in held], dtype=np.uint64)
    index = IdIndex.of(keys, held.__getitem__)
    original = corpus_module.key
    corpus_module.key = lambda identifier: len(identifier) % 3
    try:
        assert [index.find(identifier) for identifier in held] == list(range(len(held)))
        assert index.find("not among them, whatever its key") is None
    finally:
        corpus_module.key = original


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12))
def test_key_set_reports_which_keys_are_new(batches):
    keys, seen = KeySet(), set()
    for batch in batches:
        expected = []
        for item in batch:
            expected.append(item not in seen)
            seen.add(item)
        assert keys.add(np.array(batch, dtype=np.uint64)).tolist() == expected
        assert all((item in keys) == (item in seen) for item in range(61))


def test_content_id_is_its_own_key_and_other_ids_are_hashed():
    assert key("p00000000000000ff") == 255
    assert key("q00000000000000ff") == 255
    # Sixteen characters that `bytes.fromhex` would read as fewer bytes are not a content id.
    assert key("p00 00 00 00 00 0") == key("p00 00 00 00 00 0") < 2**64
    assert key("p00 00 00 00 00 0") != 0
    assert len({key(text) for text in ("a", "b", "p0000000000000zzz", "")}) == 4


def test_index_on_disk_equals_the_index_in_memory(tmp_path):
    held = [f"n{i}" for i in range(100)]
    IdIndex.of(keys_of(held), held.__getitem__).save(tmp_path / "ids")
    index = IdIndex.open(tmp_path / "ids", held.__getitem__)
    assert [index.find(identifier) for identifier in held] == list(range(100))
    assert index.find("n100") is None


def test_ids_behave_like_a_sequence():
    passages = [Passage(passage_id("", str(i)), "", str(i)) for i in range(10)]
    corpus = Corpus.of(passages)
    plain = tuple(p.id for p in passages)
    assert corpus.ids == plain
    assert plain == corpus.ids
    assert list(corpus.ids) != plain[::-1]
    assert corpus.ids != plain[:-1]
    assert (corpus.ids[3], corpus.ids[-1], corpus.ids[2:9:3]) == (plain[3], plain[-1], plain[2:9:3])
    assert corpus.ids[np.int64(4)] == plain[4]
    assert plain[0] in corpus.ids
    assert "none" not in corpus.ids


def test_builder_that_spills_to_disk_gives_the_same_corpus(monkeypatch):
    passages = [Passage(passage_id("T", str(i % 60)), "T", str(i % 60), (str(i % 60),)) for i in range(100)]
    whole = Corpus.of(passages)
    monkeypatch.setattr(corpus_module, "BATCH_ROWS", 7)
    monkeypatch.setattr(corpus_module, "SPILL_BYTES", 300)
    spilled = Corpus.of(passages)
    assert list(spilled) == list(whole) == list(dict.fromkeys(passages))
    assert spilled.fingerprint == whole.fingerprint
    assert spilled.get(whole.ids[::-1]) == whole.get(whole.ids[::-1])


def test_spilled_corpus_leaves_no_temporary_files(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus_module, "SPILL_BYTES", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    corpus = Corpus.of(Passage(passage_id("", str(i)), "", str(i)) for i in range(10))
    assert list(tmp_path.iterdir()) == []
    assert corpus[9].text == "9"


@given(st.lists(st.text("0123456789abcdefABCDEF _+-gé", min_size=16, max_size=16).map("p".__add__), max_size=5))
def test_batch_keys_equal_single_keys(held):
    made = ["p00000000000000ff", "t7d72e9e4d2bbb3a1"]
    for ids in (held, made, held + made):
        assert keys_of(ids).tolist() == [key(identifier) for identifier in ids]
