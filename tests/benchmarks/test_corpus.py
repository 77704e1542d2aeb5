import numpy as np
import pytest

from benchmarks import corpus as corpus_module
from benchmarks.corpus import Corpus, CorpusBuilder
from benchmarks.schema import Passage, passage_id
from tests.support.errors import raises


def passages(count):
    made = []
    for i in range(count):
        title, text = f"T{i % 7}", f"text {i} \u2028 \x00 é \U0001f600"
        document = f"d{i % 3}" if i % 2 else None
        sentences = (f"text {i}", " rest") if i % 5 else ()
        made.append(Passage(passage_id(title, text, document), title, text, sentences, document))
    return made


@pytest.fixture(params=[3, 8192])
def built(request, monkeypatch, tmp_path):
    """Return equal corpora: in memory (in batches of 3, or one batch) and memory-mapped."""
    monkeypatch.setattr(corpus_module, "BATCH_ROWS", request.param)
    content = passages(20)
    corpus = Corpus.of(content)
    corpus.save(tmp_path / "c.arrow")
    return content, [corpus, Corpus.open(tmp_path / "c.arrow")]


def test_corpus_returns_its_passages_in_order(built):
    content, corpora = built
    for corpus in corpora:
        assert list(corpus) == content
        assert len(corpus) == 20
        assert corpus.ids == tuple(p.id for p in content)
        assert [corpus[i] for i in range(-20, 20)] == [content[i] for i in range(-20, 20)]
        assert corpus[3:17:4] == content[3:17:4]
        assert corpus[::-1] == content[::-1]
        assert list(corpus.full_texts()) == [p.full_text for p in content]
        with pytest.raises(IndexError):
            corpus[20]


def test_passages_are_fetched_by_id_in_the_requested_order(built):
    content, corpora = built
    order = np.random.default_rng(0).integers(0, 20, 50)
    for corpus in corpora:
        assert corpus.get(content[i].id for i in order) == [content[i] for i in order]
        assert corpus.get([]) == []
        assert all(corpus.row(p.id) == i for i, p in enumerate(content))
        assert content[0].id in corpus
        assert "pnone" not in corpus
        with pytest.raises(KeyError):
            corpus.row("pnone")
        with pytest.raises(KeyError):
            corpus.get([content[0].id, "pnone"])


def test_passages_are_grouped_by_document_in_row_order(built):
    content, corpora = built
    expected = {}
    for p in content:
        if p.document_id is not None:
            expected[p.document_id] = (*expected.get(p.document_id, ()), p.id)
    assert [corpus.by_document for corpus in corpora] == [expected] * 2


def test_first_passage_of_each_id_is_kept_in_place():
    a, b = passages(2)
    again = Passage(a.id, a.title, a.text, ("other split",))
    assert list(Corpus.of([a, b, again])) == [a, b]
    builder = CorpusBuilder()
    builder.add([a])
    assert a.id in builder
    assert b.id not in builder
    builder.add([again, b])
    assert list(builder.build()) == [a, b]


def test_empty_corpus_is_valid(tmp_path):
    empty = Corpus.of([])
    assert (len(empty), list(empty), empty.ids, empty.by_document) == (0, [], (), {})
    empty.save(tmp_path / "e.arrow")
    assert len(Corpus.open(tmp_path / "e.arrow")) == 0


def test_fingerprint_depends_on_content_and_order_but_not_on_batches(monkeypatch):
    content = passages(20)
    whole = Corpus.of(content).fingerprint
    monkeypatch.setattr(corpus_module, "BATCH_ROWS", 3)
    assert Corpus.of(content).fingerprint == whole
    assert Corpus.of(content[::-1]).fingerprint != whole
    assert Corpus.of(content[:-1]).fingerprint != whole


def test_file_without_a_corpus_is_reported(tmp_path):
    (tmp_path / "text").write_text("not a corpus, but long enough to look at")
    for name in ("text", "none"):
        with raises("unreadable-corpus") as caught:
            Corpus.open(tmp_path / name)
        assert name in caught.value.where
