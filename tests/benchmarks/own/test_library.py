"""Gold evidence by name, span and quote."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.own.chunks import Chunker
from benchmarks.own.library import Library
from tests.support.errors import raises

TEXT = "# Leave\n\nParents have “twelve **weeks**” of paid leave – in two parts.\n\n> It's theirs.\n"


def library(size: int = 4, **documents: str) -> Library:
    result = Library(Chunker("words", size))
    for name, text in {"a/leave.md": TEXT, "b/leave.md": "Another text about leave.", **documents}.items():
        result.add(name, "Title", text, name)
    return result


def test_quotes_match_despite_white_space_punctuation_emphasis_and_case() -> None:
    for quote in (
        "parents have",
        'Parents  have "twelve weeks" of',
        "leave - in two",
        "parts. It’s theirs",
        "wels have",
        "arents have “twel",
    ):
        span = library().quoted(quote)
        assert (span is None) == (quote == "wels have"), quote


def test_quotes_match_text_from_pdf_with_divided_words_and_ligatures() -> None:
    printed = "Page 1\nThe of\ufb01ce engi-\nneer Ruiz, a well-\nknown e\ufb03cient man, dug co\u00adpper for 12-14 years.\n"
    shelf = library(**{"pdf.txt": printed})
    for quote, same in {
        "The office engineer Ruiz, a well-known efficient man, dug copper for 12-14 years.": printed[7:-1],
        "office engineer": "of\ufb01ce engi-\nneer",
        "neer ruiz": "neer Ruiz",
        "an e\ufb03cient man": None,
        "e\ufb03ci\u00adent ma-\nn": "e\ufb03cient man",
        "offices": None,
        "1214 years": None,
    }.items():
        span = shelf.quoted(quote)
        assert (span and span.length) == (same and len(same)), quote
    assert library().quoted("twelve we-\neks\ufb01") is None
    assert library().quoted("of pa-\nid leave") is not None


def test_quotes_of_a_page_match_its_markdown() -> None:
    page = (
        "# Rules\n\nAll have [28 days](https://x.org/a_(b)?c=d_e) of leave_time\\_off, as [[1]](#note) says.\n\n* a badge\n  + a key\n"
        "  - a [map](m)\n\n1. Go home.\n2. Sleep&nbsp;well &amp; long.\n\n| Kind | Days |\n| --- | :-: |\n| leave | 28 |\n"
    )
    shelf = library(**{"rules.html": page})
    for quote, words in {
        "All have 28 days of leave_time_off, as [1] says.": ("All", "says."),
        "a badge a key a map": ("a badge", "map"),
        "• a badge • a key": ("a badge", "key"),
        "Go home. Sleep well & long.": ("Go", "long."),
        "1. Go home. 2. Sleep": ("1. Go", "Sleep"),
        "Kind Days leave 28": ("Kind", "| 28"),
        "“leave 28”": ("leave | 28", "leave | 28"),
        "All have 29 days of leave": None,
    }.items():
        span = shelf.quoted(quote)
        assert (span and span.length) == (words and page.rindex(words[1]) + len(words[1]) - page.rindex(words[0])), quote


def test_quote_that_shows_nothing_matches_nothing_and_empty_lists_take_no_time() -> None:
    shelf = library(**{"a.txt": "Steps:" + "\n•\n-\n" * 200 + "one"})
    assert [shelf.quoted(quote) for quote in ("\u00ad", "![a picture](x.png)", '""', "Steps: two")] == [None] * 4
    assert shelf.quoted("Steps: one") is not None


def test_quotes_match_characters_in_another_form() -> None:
    forms = {
        "Cafe\u0301 Ελλα\u0301δα 1": "Café Ελλάδα 1",
        "有給\uff12\uff18日": "有給28日",
        "한국어": "한국어",
        "wait\u2026 now": "wait... now",
    }
    for text, quote in {**forms, "zero\u200bwidth \ufeffmarks": "zerowidth marks", "ｆｕｌｌ width": "full width"}.items():
        for one, other in ((text, quote), (quote, text)):
            shelf = library(**{"a.txt": f"before {one} after"})
            span = shelf.quoted(other)
            assert span is not None, (one, other)
            assert 0 <= len(one) - span.length <= 1, (one, other)


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 40), st.integers(1, 9))
def test_every_substring_of_a_document_is_located_for_every_chunk_size(start: int, length: int, size: int) -> None:
    quote = TEXT[start : start + length]
    span = library(size).quoted(quote)
    if quote.strip():
        assert span is not None
        covered = sorted(span.parts.values())
        assert (covered[0][0], max(end for _, end in covered)) == (0, span.length)
        assert set(span.evidence) <= set(span.parts)


def test_passage_that_contains_the_whole_span_is_the_evidence() -> None:
    shelf = Library(Chunker("words", 4, 2))
    shelf.add("d", "", "one two three four five six", "d")
    document = shelf.document("d")
    assert document is not None
    span = shelf.span(document, 8, 18)  # three four
    assert len(span.parts) == len(span.evidence) == 2
    assert len(shelf.span(document, 0, 18).evidence) == 1


def test_document_names_match_by_path_suffix_and_are_refused_if_ambiguous() -> None:
    shelf = library(**{"c/Fees.MD": "Fees and more."})
    assert [shelf.named(name) != () for name in ("c/Fees.MD", "fees", "x/y/c/fees.md", "C\\FEES.md", "fee")] == [True] * 4 + [False]
    assert shelf.named("a/leave.md") != shelf.named("b/leave.md")
    with raises("ambiguous-document"):
        shelf.named("leave")


def test_repeated_document_counts_once_and_a_name_conflict_is_refused() -> None:
    shelf = library()
    shelf.add("a/leave.md", "Title", TEXT, "again")
    assert shelf.repeated == 1
    with raises("duplicate-document", "a/leave.md and line 7"):
        shelf.add("a/leave.md", "Title", "other", "line 7")
    assert shelf.add_passage("", "text", "p", "line 1") == shelf.add_passage("", "text", "p", "line 2")
    with raises("duplicate-document", "line 1 and line 3"):
        shelf.add_passage("", "other", "p", "line 3")


def test_document_with_repeated_text_keeps_both_passages() -> None:
    shelf = Library(Chunker("words", 2))
    shelf.add("d", "", "a b a b", "d")
    assert len(shelf.corpus()) == 2
