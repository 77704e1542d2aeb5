"""BM25 against Lucene's formula as a loop."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Services
from methods.baselines.bm25 import BM25Config, library, tokenize
from methods.baselines.words import STOPWORDS
from methods.registry import Component
from tests.support.errors import raises

PLAIN = {"stemmer": None, "stopwords": None}
WORDS = ["moss", "river", "tin", "lamp", "crow", "salt", "harp"]


def words(text: str) -> list[str]:
    return re.findall(r"\b\w\w+\b", text.lower())


def lucene(query: str, texts: list[str], k1: float, b: float) -> list[float]:
    documents = [words(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in words(query):
            holders = sum(term in other for other in documents)
            if counts[term]:
                idf = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


def corpus_of(texts: list[str]) -> Corpus:
    return Corpus.of(Passage(passage_id(f"t{i}", text), f"t{i}", text) for i, text in enumerate(texts))


def bm25(**config: Any) -> Any:
    return Component.of("bm25", config).build(Services())


texts_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=12)


@pytest.mark.slow
@given(
    texts_of_words,
    st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=6).map(" ".join),
    st.sampled_from([(1.5, 0.75), (0.9, 0.4), (1.2, 0.0), (0.0, 1.0)]),
    st.integers(1, 12),
)
def test_scores_equal_lucenes_formula(texts: list[str], query: str, parameters: tuple[float, float], own: int) -> None:
    """Scores over the corpus, and over a question's candidates as if they were the corpus."""
    k1, b = parameters
    corpus = corpus_of(texts)
    index = bm25(k1=k1, b=b, **PLAIN).index(corpus)
    for candidates, tolerance in ((None, 1e-5), (corpus.ids[:own], 1e-9)):
        expected = lucene(query, list(corpus.full_texts())[: None if candidates is None else own], k1, b)
        ranking = index.retrieve([Query("q", query, candidates=candidates)], len(texts))[0]
        results = {corpus.row(identifier): score for identifier, score in zip(ranking.ids, ranking.scores, strict=True)}
        assert set(results) == {row for row, score in enumerate(expected) if score > 0}
        assert [results[row] for row in sorted(results)] == pytest.approx([expected[r] for r in sorted(results)], abs=tolerance)


def exact(query: str, texts: list[str], k1: float, b: float) -> list[dict[int, Fraction]]:
    """Compute scores in exact arithmetic: for each n, the factor of the logarithm for terms that n texts contain."""
    documents = [words(text) for text in texts]
    mean = Fraction(sum(map(len, documents)), len(documents))
    scores = []
    for document in documents:
        score: dict[int, Fraction] = defaultdict(Fraction)
        for term in words(query):
            if count := document.count(term):
                damping = Fraction(str(k1)) * (1 - Fraction(str(b)) + Fraction(str(b)) * len(document) / mean)
                score[sum(term in other for other in documents)] += count / (count + damping)
        scores.append(dict(score))
    return scores


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=9),
    st.sampled_from([(1.5, 0.75), (1.2, 0.0)]),
    st.randoms(),
)
def test_scores_that_are_equal_in_exact_arithmetic_are_equal(
    texts: list[str], query: list[str], parameters: tuple[float, float], rng: Any
) -> None:
    """No order changes a score: of the query's words, of the candidates, or of other passages in the corpus."""
    k1, b = parameters
    texts = [*texts, *rng.choices(texts, k=3)]
    passages = [Passage(passage_id("", text, str(number)), "", text, document_id=str(number)) for number, text in enumerate(texts)]
    others = [Passage("other", "", "moss river crow crow")]
    candidates = tuple(passage.id for passage in passages)
    first, second = ([*passages, *others], [*others, *rng.sample(passages, len(passages))])
    rankings = []
    for corpus, order in ((first, query), (second, rng.sample(query, len(query)))):
        index = bm25(k1=k1, b=b, **PLAIN).index(Corpus.of(corpus))
        rankings += index.retrieve([Query("q", " ".join(order), candidates=candidates)], 20)
    assert rankings[0] == rankings[1]
    (shuffled,) = index.retrieve([Query("q", " ".join(query), candidates=tuple(rng.sample(candidates, len(candidates))))], 20)
    scores = dict(zip(rankings[0].ids, rankings[0].scores, strict=True))
    assert dict(zip(shuffled.ids, shuffled.scores, strict=True)) == scores
    alike = defaultdict(set)
    for identifier, number in zip(candidates, exact(" ".join(query), texts, k1, b), strict=True):
        alike[tuple(sorted(number.items()))].add(scores.get(identifier, 0.0))
    assert {len(values) for values in alike.values()} == {1}
    ranked = sorted(scores, key=lambda identifier: (-scores[identifier], candidates.index(identifier)))
    assert tuple(ranked) == rankings[0].ids


def test_ties_are_broken_by_corpus_order_at_every_depth() -> None:
    corpus = corpus_of(["moss lamp"] * 3 + ["moss moss"] + ["moss lamp"] * 5)
    index = bm25(**PLAIN).index(corpus)
    whole = index.retrieve([Query("q", "moss")], 9)[0].ids
    assert whole == tuple(corpus.ids[row] for row in [3, 0, 1, 2, 4, 5, 6, 7, 8])
    for k in range(10):
        assert index.retrieve([Query("q", "moss")], k)[0].ids == whole[:k]


def test_restricted_scores_equal_those_in_the_whole_corpus(ground: Any) -> None:
    index = bm25(statistics="corpus").index(ground.corpus)
    for question in ground.questions:
        everywhere = index.retrieve([Query("q", question.text)], len(ground.corpus))[0]
        scores = dict(zip(everywhere.ids, everywhere.scores, strict=True))
        chosen = ground.corpus.ids[5:30:3]
        within = index.retrieve([Query("q", question.text, candidates=chosen)], len(ground.corpus))[0]
        assert within.ids == tuple(identifier for identifier in everywhere.ids if identifier in chosen)
        assert within.scores == tuple(scores[identifier] for identifier in within.ids)


def test_document_scope_restricts_like_candidates() -> None:
    parts = [Passage(passage_id("", f"moss {i}", d), "", f"moss {i}", document_id=d) for d in "ab" for i in range(3)]
    corpus = Corpus.of(parts)
    ranking = bm25(**PLAIN).index(corpus).retrieve([Query("q", "moss", document_id="b")], 10)[0]
    assert ranking.ids == corpus.ids[3:]


def test_documents_and_queries_without_words_give_no_results() -> None:
    corpus = Corpus.of(Passage(passage_id("", text), "", text) for text in ["", "?!", "a", "moss lamp"])
    index = bm25(**PLAIN).index(corpus)
    assert index.retrieve([Query("q", "moss")], 4)[0].ids == (corpus.ids[3],)
    assert index.retrieve([Query("q", "?"), Query("r", "unknown")], 4)[1].ids == ()
    wordless = bm25().index(Corpus.of([Passage(passage_id("", "the"), "", "the")]))
    assert wordless.retrieve([Query("q", "the moss")], 4)[0].ids == ()
    assert bm25().index(Corpus.of([])).retrieve([Query("q", "moss")], 4)[0].ids == ()


def test_reopened_index_ranks_the_same_and_is_not_rebuilt(ground: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [question.query() for question in ground.questions]
    built = bm25().index(ground.corpus, tmp_path / "index").retrieve(queries, 20)
    assert built == bm25().index(ground.corpus).retrieve(queries, 20)
    again = bm25()
    monkeypatch.setattr(again, "_build", lambda *_: pytest.fail("built a second time"))
    index = again.index(ground.corpus, tmp_path / "index")
    assert index.retrieve(queries, 20) == built
    assert isinstance(index._postings.scores, np.memmap)


def test_unfinished_index_is_rebuilt(ground: Any, tmp_path: Any) -> None:
    folder = tmp_path / "index"
    expected = bm25().index(ground.corpus, folder).retrieve([ground.questions[0].query()], 5)
    (folder / "complete.json").unlink()
    (folder / "data.csc.index.npy").write_bytes(b"cut off")
    assert bm25().index(ground.corpus, folder).retrieve([ground.questions[0].query()], 5) == expected


def test_damaged_index_or_one_of_another_corpus_is_refused(ground: Any, tmp_path: Any) -> None:
    folder = tmp_path / "index"
    bm25().index(ground.corpus, folder)
    with raises("index-count-mismatch"):
        bm25().index(corpus_of(["moss"]), folder)
    (folder / "data.csc.index.npy").write_bytes(b"damaged")
    with raises("unreadable-bm25-index"):
        bm25().index(ground.corpus, folder)


def test_chinese_is_tokenized_into_character_bigrams_and_other_scripts_into_words() -> None:
    text = "Well-known U.S. readers' naïve x2 I 9 10,000 _a_ Ünïcode…"
    for form in ("normalized", "bm25s"):
        config = BM25Config(stemmer=None, stopwords=None, tokens=form)
        words = tokenize(["在厦门大学举办 gpt模型, a ox 雨 x_1 ノート・人々", text], config, ids=False)
        assert words[0] == ["在厦", "厦门", "门大", "大学", "学举", "举办", "gpt", "模型", "ox", "雨", "x_1", "ノー", "ート", "人々"]
        assert words[1] == re.findall(r"\b\w\w+\b", text.lower())
    korean = "서울특별시"
    assert tokenize([korean], BM25Config(stemmer=None), ids=False)[0] == ["서울", "울특", "특별", "별시"]
    assert tokenize([korean], BM25Config(stemmer=None, tokens="bm25s"), ids=False)[0] == [korean]


@pytest.mark.parametrize(
    ("passage", "query"),
    [
        ("Beyonce\u0301 sang", "Beyoncé"),
        ("ＦＵＪＩ works", "fuji"),
        ("die große Straße", "STRASSE"),
        ("zero\u200bwidth", "zerowidth"),
        ("soft\u00adware", "software"),
        ("กรุงเทพมหานคร", "กรุงเทพ"),
        ("서울특별시는 수도이다", "서울"),
        ("ភ្នំពេញ", "ភ្នំ"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("كِتَاب", "كتاب"),
        ("İstanbul", "istanbul"),
    ],
)
def test_query_finds_a_passage_in_another_unicode_form_or_without_spaces(passage: str, query: str) -> None:
    corpus = corpus_of(["moss", passage])
    for one in (Query("q", query), Query("q", query, candidates=corpus.ids)):
        assert bm25().index(corpus).retrieve([one], 2)[0].ids == corpus.ids[1:]


@pytest.mark.parametrize(("name", "others"), [("C++", "C C# plain"), ("c#", "C++ C"), (".NET", "net nets"), ("F#", "F ff")])
def test_names_with_punctuation_are_distinguished(name: str, others: str) -> None:
    corpus = corpus_of([f"written in {others}.", f"written in {name}."])
    ids = bm25().index(corpus).retrieve([Query("q", name.swapcase())], 2)[0].ids
    assert ids[:1] == corpus.ids[1:]


@given(st.text(st.characters(codec="ascii", exclude_characters="#+."), max_size=60))
def test_tokens_of_ascii_text_equal_those_of_bm25s(text: str) -> None:
    own, bm25s = (tokenize([text], BM25Config(tokens=form), ids=False)[0] for form in ("normalized", "bm25s"))
    assert own == bm25s


@given(st.lists(st.text(max_size=60)), st.sampled_from([None, "english", "porter"]), st.sampled_from([None, "en"]))
def test_tokens_equal_those_of_bm25s(texts: list[str], stemmer: str | None, stopwords: Any) -> None:
    config = BM25Config(stemmer=stemmer, stopwords=stopwords, tokens="bm25s")
    stems = None if stemmer is None else Stemmer.Stemmer(stemmer)
    theirs = library().tokenize(
        texts, token_pattern=config.pattern, stopwords=stopwords, stemmer=stems, return_ids=False, show_progress=False
    )
    assert tokenize(texts, config, ids=False) == theirs
    assert tuple(sorted(STOPWORDS)) == library().stopwords.STOPWORDS_EN


def test_stemming_joins_inflected_forms() -> None:
    corpus = corpus_of(["painters of rivers", "tin lamps"])
    assert bm25().index(corpus).retrieve([Query("q", "river painter")], 2)[0].ids == corpus.ids[:1]
    assert bm25(**PLAIN).index(corpus).retrieve([Query("q", "river painter")], 2)[0].ids == ()


def test_unknown_stemmer_error_lists_the_available_ones() -> None:
    with raises("unknown-stemmer"):
        bm25(stemmer="englsh").index(corpus_of(["moss"]))


def test_the_pyserini_preset_sets_k1_and_b() -> None:
    config = Component.of("bm25", {"preset": "pyserini", "b": 0.5}).config.model_dump()
    assert (config["k1"], config["b"]) == (0.9, 0.5)


def test_jax_is_not_started_even_if_installed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise RuntimeError('started')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] in {"bm25s", "jax"}]:
        monkeypatch.delitem(sys.modules, name)
    assert not library().selection.JAX_IS_AVAILABLE
    with pytest.raises(RuntimeError, match="started"):
        __import__("jax")  # it can still be imported by who wants it
