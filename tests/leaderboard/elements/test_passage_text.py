"""Passages on pages: marks, folding, and complete text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.elements.nodes import Node
from leaderboard.elements.passage import MOST, WHOLE, key, passage_text
from results.store.records import informative_golds, positions

FILLER = "Mills and market days. "


def joined(node: Node) -> str:
    return "".join(node.texts())


def answers(node: Node) -> list[str]:
    return ["".join(mark.texts()) for mark in node.find(tag="mark", cls="answer")]


def visible(node: Node) -> str:
    """Return the text that is visible before anything is opened."""
    if node.tag == "p":
        return joined(node)
    return "".join(joined(child) for child in node.children if isinstance(child, Node) and child.tag == "p")


@pytest.mark.parametrize(
    ("golds", "kept"),
    [
        (["Paris", "Paris", "paris"], ("Paris", "paris")),
        (["yes", "No.", "TRUE", "False", "noanswer"], ()),
        (["7", "A", "the", "B.", "", "  ", "unanswerable", "None"], ()),
        (["42", "the U.S.", "New York"], ("42", "the U.S.", "New York")),
    ],
)
def test_informative_golds_are_selected(golds: list[str], kept: tuple[str, ...]) -> None:
    assert informative_golds(golds) == kept


def test_number_of_searched_golds_is_limited() -> None:
    assert len(informative_golds(f"name {number}" for number in range(5000))) == 300


def test_answer_in_a_passage_without_sentences_is_marked_at_any_position() -> None:
    drawn = passage_text("In new  york, not in New Yorkshire; New York.", (), ("New York",)).render("k")
    assert answers(drawn) == ["new  york", "New York"]
    assert joined(drawn) == "In new  york, not in New Yorkshire; New York."
    assert all(mark.attributes["title"] == "gold answer" for mark in drawn.find(tag="mark"))


def test_answer_within_a_gold_sentence_is_marked() -> None:
    drawn = passage_text("", ("It is old. ", "Its charter is of 1506.", "Yes, 1506!"), ("1506",), {1}).render("k")
    (sentence,) = (mark for mark in drawn.find(tag="mark") if not mark.classes)
    assert joined(sentence) == "Its charter is of 1506."
    assert answers(sentence) == ["1506"]
    assert answers(drawn) == ["1506", "1506"]
    assert joined(drawn) == "It is old. Its charter is of 1506. Yes, 1506! "


def test_long_text_shows_its_first_answer_and_folds_the_rest() -> None:
    text = f"{FILLER * 200}The charter is of 1506. {FILLER * 200}In 1506 it was new."
    drawn = passage_text(text, (), ("1506",)).render("k")
    seen = visible(drawn)
    assert "The charter is of 1506." in seen
    assert len(seen) < 2 * WHOLE
    assert seen.index("The charter") > 200, "what leads to it is seen too"
    before, after = drawn.find(tag="details")
    assert not before.attributes.get("open")
    assert "before" in joined(next(before.find(tag="summary")))
    assert "more, the answer once" in joined(next(after.find(tag="summary")))
    assert answers(after) == ["1506"]
    assert before.attributes["key"] != after.attributes["key"]


def test_long_text_with_an_early_answer_is_folded_only_at_its_end() -> None:
    drawn = passage_text(f"1506 was {FILLER * 200}", (), ("1506",)).render("k")
    assert visible(drawn).startswith("1506 was")
    (after,) = drawn.find(tag="details")
    assert "characters more" in joined(next(after.find(tag="summary")))


def test_gold_sentence_deep_in_a_passage_is_visible() -> None:
    drawn = passage_text("", [FILLER] * 300 + ["She died there."] + [FILLER] * 300, (), {300}).render("k")
    assert "She died there." in visible(drawn)


def test_text_sent_to_the_browser_is_limited_with_a_note() -> None:
    drawn = passage_text("1506 and " + "x" * 10 * MOST, (), ("1506",)).render("k")
    assert len(joined(drawn)) < MOST + 200
    assert f"{9 * MOST + 9:,} characters that are not shown" in joined(drawn)


def test_legend_lists_only_possible_marks() -> None:
    assert key(sentences=False, answers=False) is None
    only = key(sentences=False, answers=True)
    assert only is not None
    assert [mark.classes for mark in only.find(tag="mark")] == ["answer"]
    assert "accepted answer" in joined(only)
    both = key(sentences=True, answers=True)
    assert both is not None
    assert len(list(both.find(tag="mark"))) == 2


WORDS = st.sampled_from(["York", "New", " ", "\n", "é", "e\u0301", "<b>", "1506", ".", "yes", "x" * 300, FILLER * 40])
TEXTS = st.lists(WORDS, max_size=14).map("".join)


@pytest.mark.slow
@given(TEXTS, st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=3), st.sets(st.integers(0, 7)))
def test_no_text_is_lost_and_every_answer_is_marked(text: str, sentences: list[str], golds: list[str], gold: set[int]) -> None:
    wanted = informative_golds(golds)
    read = passage_text(text, sentences, wanted, gold)
    drawn = read.render("k")
    reported = "".join(joined(part) for part in drawn.find(tag="p")) if drawn.tag == "div" else joined(drawn)
    assert reported == read.text
    assert "".join(answers(drawn)) == "".join(read.text[start:end] for start, end in positions(read.text, wanted))
    if read.answers:
        first, last = read.answers[0]
        start, end = read.window()
        named = [read.sentences[n] for n in gold if 0 <= n < len(read.sentences)]
        assert (start <= first and last <= end) or any(span[0] <= first for span in named)
