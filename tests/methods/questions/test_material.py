"""Material for questions: documents in turn, passages that share rare words, and parts without common documents."""

from __future__ import annotations

from benchmarks.schema import Passage, passage_id
from methods.questions.material import Material, divided, drawn, linked
from methods.questions.rules import cloze, heading
from methods.questions.writing import KEPT

FILL = "and some further words about nothing in particular so that it is long enough"


def passage(text: str, document: str, title: str = "") -> Passage:
    return Passage(passage_id(title, text, document), title, text, (), document)


PASSAGES = [
    *(passage(f"Alpha number {n} {FILL}", "a") for n in range(3)),
    passage(f"Zebracorn lives here {FILL}", "b"),
    passage(f"Nobody saw a zebracorn {FILL}", "c"),
    passage("too short", "d"),
]


def test_every_document_is_used_before_one_is_repeated() -> None:
    first = drawn("single", PASSAGES, 3, seed=1)
    assert {item.documents for item in first} == {("a",), ("b",), ("c",)}
    assert len(drawn("single", PASSAGES, 99, seed=1)) == 5
    assert drawn("single", PASSAGES, 3, seed=1) == first


def test_passages_are_linked_by_rare_words_they_share() -> None:
    pairs = [{left.document_id, right.document_id} for left, right in linked(PASSAGES)]
    assert {"b", "c"} in pairs


def test_no_document_is_in_both_parts() -> None:
    for share in (0.0, 0.3, 0.9):
        test, dev = divided(PASSAGES, share, seed=0)
        assert {p.document_id for p in test}.isdisjoint(p.document_id for p in dev)
        assert len(test) + len(dev) == len(PASSAGES)
        assert test
        assert bool(dev) == (share > 0)


def test_rules_write_cloze_and_heading_questions() -> None:
    fees = passage("## Fees\n\nA membership costs 24 euros per month.", "m", "Membership > Fees")
    gap = cloze(Material("cloze", (fees,)))
    assert (gap.status, gap.answer, gap.quotes) == (KEPT, "24", ("A membership costs 24 euros per month.",))
    assert "24" not in gap.question
    section = heading(Material("heading", (fees,)))
    assert (section.status, section.answer) == (KEPT, "")
    assert "Fees" in section.question
    assert heading(Material("heading", (passage("No heading.", "m", "Membership"),))).status != KEPT
