"""ROUGE equals rouge-score exactly, and hand-computed tables."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Question
from judges.metric import Batch, parse
from judges.metrics import generation as rouge_module
from judges.metrics.generation import TYPES, rouge_of_pairs
from methods.api import Prediction
from tests.support.errors import raises

scorer = pytest.importorskip("rouge_score.rouge_scorer")
SCORERS = {stem: scorer.RougeScorer(list(TYPES), use_stemmer=stem) for stem in (True, False)}
BOTH = pytest.mark.parametrize("stem", [True, False])


def official(prediction, reference, stem):
    result = SCORERS[stem].score(reference, prediction)
    return {kind: result[kind].fmeasure for kind in TYPES}


def assert_equal_to_the_last_digit(pairs, stem):
    predictions, references = [list(side) for side in zip(*pairs, strict=True)] or [[], []]
    expected = [official(*pair, stem) for pair in pairs]
    for kind in TYPES:
        ours = rouge_of_pairs(predictions, references, kind, stem=stem)
        assert ours.tolist() == [row[kind] for row in expected], kind


def score_one(metric, golds, answer, **more):
    query = Question("q", "?", tuple(golds), **more)
    return float(parse(metric).compute(Batch([query], [Prediction("q", answer)]))[0])


@pytest.mark.parametrize(
    ("kind", "prediction", "reference", "expected"),
    [
        ("rouge1", "the cat sat", "the cat sat down", 6 / 7),  # 3 of 3 and 3 of 4
        ("rouge2", "the cat sat", "the cat sat down", 4 / 5),  # 2 of 2 and 2 of 3
        ("rougeL", "sat the cat", "the cat sat", 2 / 3),  # "the cat" is the longest in order
        ("rouge1", "sat the cat", "the cat sat", 1),
        ("rouge1", "cat cat cat", "cat", 0.5),  # as multisets: one of three and one of one
        ("rouge2", "cat", "cat", 0),  # one word has no pair
        ("rougeL", "", "cat", 0),
        ("rougeL", "cat", "", 0),
        ("rougeL", "", "", 0),
        ("rougeL", "U.S.", "us", 0),  # punctuation becomes a space: u s
        ("rougeL", "東京", "東京", 0),  # words of other scripts are ignored
    ],
)
def test_values_equal_the_hand_computed_table(kind, prediction, reference, expected):
    result = rouge_of_pairs([prediction], [reference], kind)
    assert result[0] == pytest.approx(expected, abs=1e-15)


HARD = [
    ("", ""),
    ("a", ""),
    ("İstanbul IS big", "istanbul is big"),
    ("the Kelvin sign \u212a", "the kelvin sign k"),
    ("ſtraße ß", "strasse ss"),
    ("naïve café", "naive cafe"),
    ("a\u00a0b\u2003c", "a b c"),
    ("\ud800 lone", "lone"),
    ("one\ntwo\tthree", "one two three"),
    ("running runs ran easily", "run easy"),
    ("1,000.5 km²", "1000 5 km2"),
    ("don't", "don t"),
    ("x" * 300, "x" * 300),
    ("ties tied tying dies dying news", "tie die new"),
    ("!!!", "???"),
]


@BOTH
def test_difficult_texts_score_like_the_official_package(stem):
    assert_equal_to_the_last_digit(HARD, stem)


WORDS = """a an the cat cats running ran café Tokyo 1984 U.S. naïve, generously generous İ \u212a 東京 -- don't"""
words = st.sampled_from(WORDS.split())
texts = st.one_of(st.lists(words, max_size=12).map(" ".join), st.text(max_size=40))


@BOTH
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_random_texts_score_like_the_official_package(stem, pairs):
    assert_equal_to_the_last_digit(pairs, stem)


@BOTH
def test_real_texts_score_like_the_official_package(stem, data_folder):
    file = data_folder / "clara" / "pretrain_data.100.jsonl"
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    passages = [document for row in rows for document in row["docs"]]
    chinese = (data_folder / "longbench" / "multifieldqa_zh.jsonl").read_text(encoding="utf-8")[:600]
    sides = [text[:700] for text in passages[:60]] + [chinese]
    assert len(sides) > 40
    pairs = [*zip(sides, [*sides[1:], sides[0]], strict=True), (sides[0], sides[0])]
    assert_equal_to_the_last_digit(pairs, stem)


@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5), st.sampled_from(TYPES))
def test_score_is_the_maximum_over_golds_with_words(rows, kind):
    queries = [Question(f"q{n}", "?", tuple(dict.fromkeys(row[1:]))) for n, row in enumerate(rows)]
    answers = [Prediction(q.id, row[0]) for q, row in zip(queries, rows, strict=True)]
    results = parse(f"rouge(type={kind})").compute(Batch(queries, answers))
    needed = 2 if kind == "rouge2" else 1
    for value, question, answer in zip(results, queries, answers, strict=True):
        usable = [gold for gold in question.golds if len(rouge_module.rouge_words([gold], True)[0].split()) >= needed]
        if not usable:
            assert np.isnan(value)
        else:
            best = SCORERS[True].score_multi(usable, answer.answer)[kind].fmeasure
            assert value == best


@pytest.mark.parametrize("golds", [["東京"], [""], ["…"], []])
def test_gold_without_words_is_unscorable_for_any_answer(golds):
    assert np.isnan(score_one("rouge", golds, "東京"))
    assert np.isnan(score_one("rouge", golds, "anything"))


def test_gold_of_one_word_has_no_rouge2():
    assert np.isnan(score_one("rouge(type=rouge2)", ["Paris"], "Paris"))
    assert score_one("rouge(type=rouge2)", ["Paris", "Paris, France"], "Paris France") == 1


def test_golds_first_uses_only_the_first_gold_and_unanswerable_is_unscorable():
    assert score_one("rouge(golds=first)", ["Rome", "Milan"], "Milan") == 0
    assert score_one("rouge", ["Rome", "Milan"], "Milan") == 1
    assert np.isnan(score_one("rouge", ["Rome"], "Rome", answerable=False))


def test_answer_set_is_scored_as_one_text():
    assert score_one("rouge", ["Rome", "Milan"], "Rome\nMilan", answer_set=True) == 1
    assert score_one("rouge", ["Rome", "Milan"], "Rome", answer_set=True) == pytest.approx(2 / 3)


def test_words_are_tokenized_and_stemmed_once_for_all_types(monkeypatch):
    seen = []
    monkeypatch.setattr(rouge_module, "_words", lambda text, stem, real=rouge_module._words: seen.append(text) or real(text, stem))
    queries = [Question("q", "?", ("the cats", "a cat"))]
    batch = Batch(queries, [Prediction("q", "cats")])
    for kind in TYPES:
        parse(f"rouge(type={kind})").compute(batch)
    assert sorted(seen) == ["a cat", "cats", "the cats"]


def test_missing_package_error_names_its_extra_only_if_needed(monkeypatch):
    for module in ("rapidfuzz", "rapidfuzz.distance", "rapidfuzz.distance.LCSseq"):
        monkeypatch.setitem(sys.modules, module, None)
    assert rouge_of_pairs(["a"], ["a"], "rouge1", stem=False) == 1
    with raises("missing-package"):
        rouge_of_pairs(["a"], ["a"], "rougeL", stem=False)


def test_unknown_type_is_refused():
    with raises("unknown-type"):
        rouge_of_pairs(["a"], ["a"], "rougel")
