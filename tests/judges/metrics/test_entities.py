"""Entity preservation: what the rules take for an entity, and the share of them that survives."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Question
from judges.metric import parse
from judges.metrics.entities import entity_preservation_of_pairs, rule_entities
from judges.score import score
from methods.api import Prediction
from tests.support.errors import raises

METRIC = "entity_preservation(extractor=rule)#v1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("She met Leonardo da Vinci in Rome.", {"leonardo da vinci", "rome"}),
        ("The University of Oxford lies in England.", {"university of oxford", "england"}),
        ("Rome fell in 476. It was the capital.", {"rome", "476"}),
        ("John's brother paid 1,200.5 dollars.", {"john", "1,200.5"}),
        ("the U.S. Army", {"u.s. army"}),
        ("Paris, Lyon and Nice", {"paris", "lyon", "nice"}),
        ("the Bank of", {"bank"}),
        ("Élan Vital visited Zürich", {"élan vital", "zürich"}),
        ("nothing of note happened", set()),
        ("It was. He did. They were.", set()),
        ("", set()),
        ("東京は日本の首都です。", set()),  # no capitals, no names by rule
    ],
)
def test_what_the_rules_take_for_an_entity(text, names):
    assert rule_entities(text) == names


@pytest.mark.parametrize(
    ("source", "target", "share"),
    [
        ("Ann met Bob in Rome.", "In Rome Ann met Bob.", 1 / 3),  # "rome ann" is one name by rule
        ("Ann met Bob in Rome.", "Ann met Bob there.", 2 / 3),
        ("Ann met Bob in Rome.", "somebody met somebody", 0),
        ("nothing of note", "anything", 1),  # CLaRa: 1 where the source has none
        ("", "", 1),
        ("Ann Ann Ann, and Ann.", "Ann", 0.5),
    ],
)
def test_share_by_hand(source, target, share):
    assert entity_preservation_of_pairs([source], [target])[0] == pytest.approx(share)


@given(st.text(max_size=60), st.text(max_size=60))
def test_shares_are_fractions_and_a_text_preserves_itself(source, target):
    values = entity_preservation_of_pairs([source, source], [target, source])
    assert 0 <= values[0] <= 1
    assert values[1] == 1


def asked(*answers, **more):
    return Question("q", "?", answers, **more)


def one(question, answer):
    return float(score([question], [answer and Prediction("q", answer)], [METRIC])[METRIC][0])


def test_the_gold_with_the_largest_share_counts():
    assert one(asked("Ann Lee of Rome", "Bob"), "Bob") == 1
    assert one(asked("Ann and Bob"), "Ann") == 0.5


def test_a_gold_without_entities_does_not_settle_a_question_that_has_one_with():
    assert one(asked("Bob", "the baker"), "nobody") == 0
    assert one(asked("the baker"), "nobody") == 1
    assert one(asked("Bob"), None) == one(asked("the baker"), None) == 0


def test_nothing_to_compare_with_is_unscorable():
    assert np.isnan(one(asked(), "Bob"))
    assert np.isnan(one(asked("Bob", answerable=False), "Bob"))


def test_the_two_extractors_have_ids_of_their_own_and_neither_stands_in_for_the_other():
    assert str(parse("entity_preservation")) == METRIC
    spacy_id = "entity_preservation(extractor=en_core_web_sm)"
    assert str(parse(spacy_id)) != METRIC
    if importlib.util.find_spec("spacy") is None:
        with raises("missing-spacy"):
            score([asked("Bob")], [Prediction("q", "Bob")], [spacy_id])
    elif importlib.util.find_spec("en_core_web_sm") is not None:
        result = entity_preservation_of_pairs(["Barack Obama was born in Hawaii."], ["Hawaii"], "en_core_web_sm")
        assert 0 < result[0] < 1
    with raises("unknown-extractor"):
        entity_preservation_of_pairs(["x"], ["y"], "magic")
