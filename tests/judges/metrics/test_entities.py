"""Entity preservation: entities by rule, and the share that is preserved."""

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
def test_entity_rules_find_expected_entities(text, names):
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
def test_entity_share_equals_hand_computed_values(source, target, share):
    assert entity_preservation_of_pairs([source], [target])[0] == pytest.approx(share)


@given(st.text(max_size=60), st.text(max_size=60))
def test_entity_shares_are_fractions_and_one_for_equal_texts(source, target):
    values = entity_preservation_of_pairs([source, source], [target, source])
    assert 0 <= values[0] <= 1
    assert values[1] == 1


def make_question(*answers, **more):
    return Question("q", "?", answers, **more)


def score_one(question, answer):
    return float(score([question], [answer and Prediction("q", answer)], [METRIC])[METRIC][0])


def test_best_gold_determines_the_entity_share():
    assert score_one(make_question("Ann Lee of Rome", "Bob"), "Bob") == 1
    assert score_one(make_question("Ann and Bob"), "Ann") == 0.5


def test_gold_without_entities_is_ignored_next_to_one_with_entities():
    assert score_one(make_question("Bob", "the baker"), "nobody") == 0
    assert score_one(make_question("the baker"), "nobody") == 1
    assert score_one(make_question("Bob"), None) == score_one(make_question("the baker"), None) == 0


def test_question_without_gold_is_unscorable():
    assert np.isnan(score_one(make_question(), "Bob"))
    assert np.isnan(score_one(make_question("Bob", answerable=False), "Bob"))


def test_entity_extractors_have_distinct_ids_and_never_replace_each_other():
    assert str(parse("entity_preservation")) == METRIC
    spacy_id = "entity_preservation(extractor=en_core_web_sm)"
    assert str(parse(spacy_id)) != METRIC
    if importlib.util.find_spec("spacy") is None:
        with raises("missing-spacy"):
            score([make_question("Bob")], [Prediction("q", "Bob")], [spacy_id])
    elif importlib.util.find_spec("en_core_web_sm") is not None:
        result = entity_preservation_of_pairs(["Barack Obama was born in Hawaii."], ["Hawaii"], "en_core_web_sm")
        assert 0 < result[0] < 1
    with raises("unknown-extractor"):
        entity_preservation_of_pairs(["x"], ["y"], "magic")
