import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.schema import GoldQuery, Passage, Query, Question, passage_id, sentence_id, sentence_of, triple_id

QUESTION = Question(
    "2hop__1_2",
    "Where?",
    ("Zoll", "Zollburg"),
    aliases={"Zoll": ("Zol", "Zollburg")},
    evidence=("p1",),
    candidates=("p1", "p2"),
    document_id="d",
    topic_entities=("m.1",),
)


def test_golds_list_each_answer_followed_by_its_aliases_once():
    assert QUESTION.golds == ("Zoll", "Zol", "Zollburg")


def test_query_is_the_question_without_gold_and_with_an_opaque_id():
    query = QUESTION.query()
    assert query == Query(QUESTION.query_id, "Where?", "d", ("p1", "p2"), ("m.1",))
    assert query.id[0] == "q"
    assert "hop" not in query.id


def test_only_controls_see_the_gold_of_a_question():
    assert QUESTION.gold_query().question is QUESTION
    assert isinstance(QUESTION.gold_query(), GoldQuery)
    assert type(QUESTION.query()) is Query


def test_full_text_starts_with_the_title_if_present():
    assert Passage("p", "T", "x").full_text == "T\nx"
    assert Passage("p", "", "x").full_text == "x"


@pytest.mark.slow
@given(st.lists(st.tuples(st.text(), st.text(), st.none() | st.text(min_size=1)), unique=True, max_size=20))
def test_different_content_has_different_ids(contents):
    assert len({passage_id(*content) for content in contents}) == len(contents)


def test_moving_text_from_title_to_body_changes_the_id():
    assert passage_id("ab", "c") != passage_id("a", "bc")
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])


def test_passage_and_triple_ids_start_with_different_letters():
    assert passage_id("a", "b")[0] == "p"
    assert triple_id(("a", "b", "c"))[0] == "t"


@given(st.text(), st.integers(-1, 10**6))
def test_sentence_id_maps_back_to_its_passage(passage, index):
    assert sentence_of(sentence_id(passage, index)) == (passage, index)


def test_lone_surrogate_has_an_id():
    assert len(passage_id("\ud800", "x")) == 17
    assert passage_id("\ud800", "x") == "p" + content_hash(["\ud800", "x", ""])


def test_fingerprints_ignore_only_key_order():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert len({fingerprint(x) for x in ({"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, [1], 1, "1", None)}) == 8


def test_ids_and_fingerprints_are_the_same_in_another_process():
    code = (
        "from benchmarks.schema import passage_id, Question; from benchmarks.core.fingerprint import fingerprint;"
        "print(passage_id('t', 'é'), Question('i', 't', ()).query_id, fingerprint({'a': 1, 'b': 'x'}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).resolve().parents[2],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    expected = f"{passage_id('t', 'é')} {Question('i', 't', ()).query_id} {fingerprint({'a': 1, 'b': 'x'})}\n"
    assert outputs == {expected}
