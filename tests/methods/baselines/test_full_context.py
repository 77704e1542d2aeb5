"""Full context: documents are reassembled, too long texts lose their middle, and both are noted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.datasets.long_document import chunks
from benchmarks.schema import Passage, Query, passage_id
from methods.api import TRUNCATED, Answer, Context, Ranking, Reading, Services
from methods.baselines.full_context import FullContextConfig, FullContextIndex
from methods.pipeline import Pipeline
from methods.readers.prompts import fit_middle, without_middle
from methods.registry import Component
from tests.support.errors import raises

READING = Reading("Text:\n$passages\n\nQuestion: $question\nAnswer:", 6, "middle")
WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=5), min_size=1, max_size=60)


def document(text: str, words: int, overlap: int = 0, name: str = "d") -> list[Passage]:
    parts = chunks(text, words, overlap)
    return [Passage(passage_id("", part, f"{name}{n}"), "", part, document_id=name) for n, part in enumerate(parts)]


def context(passages: list[Passage], query: Query | None = None, k: int = 100, **config: Any) -> Context:
    index = FullContextIndex(Corpus.of(passages), FullContextConfig(**config))
    queries = [query or Query("q", "?", document_id="d")]
    return index.contexts(queries, [ranking.top(k) for ranking in index.retrieve(queries, len(passages))])[0]


@settings(deadline=None)
@given(WORDS, st.integers(2, 9), st.data())
def test_document_is_reassembled_from_overlapping_passages(words: list[str], size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    text = " ".join(words)
    result = context(document(text, size, overlap), whole=True, overlap=overlap)
    assert [passage.text for passage in result.passages] == [text]
    assert not result.notes


@settings(deadline=None)
@given(WORDS, st.integers(1, 70))
def test_word_limit_keeps_the_first_words_and_notes_the_truncation(words: list[str], limit: int) -> None:
    result = context(document(" ".join(words), 7), whole=True, words=limit)
    assert result.passages[0].text.split() == words[:limit]
    cut = {TRUNCATED: {"unit": "words", "kept": limit, "of": len(words)}} if limit < len(words) else {}
    assert result.notes == cut


def test_document_without_whole_is_its_passages_in_order() -> None:
    passages = document("a b c d e f", 2)
    assert context(passages).passages == tuple(passages)


def test_candidates_are_not_merged_into_a_document() -> None:
    passages = document("a b c d e f", 2)
    query = Query("q", "?", candidates=(passages[2].id, passages[0].id))
    assert context(passages, query, whole=True).passages == (passages[2], passages[0])


def test_document_reordered_by_a_reranker_is_not_reassembled() -> None:
    passages = document("a b c d e f", 2)
    index = FullContextIndex(Corpus.of(passages), FullContextConfig(whole=True))
    shuffled = Ranking("q", (passages[1].id, passages[0].id), (2.0, 1.0))
    result = index.contexts([Query("q", "?", document_id="d")], [shuffled])[0]
    assert result.passages == (passages[1], passages[0])


def test_overlap_that_the_passages_do_not_have_is_refused() -> None:
    with raises("overlap-not-repeated") as caught:
        context(document("a b c d e f g h i", 4, 1), whole=True, overlap=2)
    assert "chunk_overlap" in str(caught.value.try_this)


def test_overlap_and_words_options_require_whole() -> None:
    with pytest.raises(ValidationError, match="set whole"):
        FullContextConfig(words=5)
    released = Component.of("full_context", {"preset": "released"}).config
    assert released == FullContextConfig(whole=True, overlap=12, words=16_384)


def spans(text: str) -> list[tuple[int, int]]:
    return [(position, position + 1) for position in range(len(text))]


@settings(deadline=None)
@given(st.text("abc ", max_size=40), st.integers(0, 50))
def test_text_without_its_middle_keeps_head_and_tail_of_equal_length(text: str, limit: int) -> None:
    short, kept = without_middle(text, spans(text), limit)
    if len(text) <= limit:
        assert (short, kept) == (text, len(text))
    else:
        half = limit // 2
        assert short == text[:half] + text[len(text) - half :]
        assert kept == 2 * half <= limit


@settings(deadline=None)
@given(st.text("abc ", max_size=40), st.integers(0, 50), st.integers(0, 60))
def test_fit_middle_keeps_the_longest_text_that_fits_or_none(text: str, fixed: int, room: int) -> None:
    result = fit_middle(text, spans(text), lambda short: fixed + len(short) - room)
    if fixed > room:
        assert result is None
        return
    assert result is not None
    short, kept = result
    assert fixed + len(short) <= room
    assert kept == (len(text) if len(text) + fixed <= room else 2 * ((room - fixed) // 2))


@pytest.fixture(scope="module")
def reader(tiny_llama: str) -> Any:
    options = {"model": tiny_llama, "reading": "benchmark", "max_prompt_tokens": 200}
    return Component.of("causal", options).build(Services(device="cpu", reading=READING))


@settings(deadline=None)
@given(st.integers(0, 400))
def test_prompt_stays_within_the_token_limit_and_keeps_head_tail_and_question(reader: Any, length: int) -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(length))
    prompt, notes = reader._fitted("Where to?", [Passage("p", "", text)] if text else [])
    tokens = len(reader._model.encode(prompt))
    assert tokens <= 200
    assert "Question: Where to?" in prompt
    if not notes:
        assert text in prompt
    else:
        kept = notes[TRUNCATED]["kept"]
        assert notes[TRUNCATED]["of"] == length
        assert tokens >= 198, "the middle lost more than it had to"
        assert f"Text:\n{text[: kept // 2]}{text[length - kept // 2 :]}\n\n" in prompt


def test_prediction_notes_record_the_truncation(reader: Any) -> None:
    passages = document(" ".join(f"word{n}" for n in range(80)), 16, 4)
    retriever = Component.of("full_context", {"whole": True, "overlap": 4}).build(Services())
    pipeline = Pipeline(retriever, reader, k=None, depth=None)
    pipeline.index(Corpus.of([*passages, *document("short", 5, name="e")]))
    queries = [Query("long", "Where?", document_id="d"), Query("short", "Where?", document_id="e")]
    long, short = pipeline.answer(queries)
    assert long.notes[TRUNCATED]["unit"] == "tokens"
    assert TRUNCATED not in short.notes
    assert [item.id for item in long.evidence] == [passage.id for passage in passages]


def test_closed_book_prompt_has_no_passages(reader: Any) -> None:
    prompt, notes = reader._fitted("Where to?", [])
    assert "Text:\n\n\nQuestion: Where to?\nAnswer:" in prompt
    assert not notes
    assert isinstance(reader.read([Query("q", "Where to?")], [Context("q")])[0], Answer)
