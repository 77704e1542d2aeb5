"""Long documents: splitting, reassembling and truncation."""

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.datasets.long_document import LongDocumentConfig, Shelf, chunks, document_text, truncate_middle
from benchmarks.registry import load
from tests.support.errors import raises

TEXTS = st.lists(st.sampled_from(["a", "bb", "Zürich", " ", "\n\n", "\t", "\u2028", "\xa0", "\x1f", "\0"])).map("".join)


def naive_windows(text, words, overlap):
    """Return windows of white-space words with a fixed stride, up to the first that reaches the end."""
    listed = text.split()
    windows = []
    for start in range(0, len(listed), words - overlap):
        windows.append(listed[start : start + words])
        if start + words >= len(listed):
            break
    return windows


@given(TEXTS, st.integers(1, 6), st.data())
def test_windows_hold_the_words_of_a_naive_loop(text, words, data):
    overlap = data.draw(st.integers(0, words - 1))
    assert [window.split() for window in chunks(text, words, overlap)] == naive_windows(text, words, overlap)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 6), st.data())
def test_passages_reassemble_to_the_exact_document(text, words, data):
    overlap = data.draw(st.integers(0, words - 1))
    shelf = Shelf(LongDocumentConfig(chunk_words=words, chunk_overlap=overlap).cut)
    document = shelf.add(text)
    corpus = shelf.corpus()
    assert {passage.document_id for passage in corpus} <= {document}
    assert document_text(corpus, overlap) == (text if text.split() else "")
    if not overlap:
        assert "".join(passage.text for passage in corpus) == (text if text.split() else "")


def test_document_with_repeated_text_keeps_every_passage():
    shelf = Shelf(LongDocumentConfig(chunk_words=2).cut)
    document = shelf.add("ha ha ha ha ha ha")
    corpus = shelf.corpus()
    assert [passage.text for passage in corpus] == ["ha ha ", "ha ha ", "ha ha"]
    assert len(set(corpus.ids)) == len(corpus.by_document[document]) == 3


def test_equal_texts_share_a_document_but_equal_passages_of_two_documents_stay_apart():
    shelf = Shelf(LongDocumentConfig(chunk_words=2).cut)
    first, second = shelf.add("one two three"), shelf.add("one two four")
    assert shelf.add("one two three") == first != second
    corpus = shelf.corpus()
    assert [len(corpus.by_document[document]) for document in (first, second)] == [2, 2]
    assert len(corpus) == 4


@given(st.lists(st.integers()), st.integers(0, 12))
def test_middle_truncation_equals_upstream(tokens, limit):
    kept = truncate_middle(tokens, limit)
    if len(tokens) <= limit:
        assert kept == tokens
    else:
        half = int(limit / 2)
        # Upstream's `tokens[-half:]` would be the whole list for a half of 0, which no model has.
        assert kept == (tokens[:half] + tokens[-half:] if half else [])
        assert len(kept) <= limit


def test_overlap_as_long_as_the_passage_is_refused(tmp_path):
    with raises("bad-option"):
        load("longbench/qasper", {"path": str(tmp_path), "chunk_words": 12, "chunk_overlap": 12})
