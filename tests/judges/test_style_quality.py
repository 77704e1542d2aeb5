"""The report on rewritten texts: strength, content, fluency, sentiment, and preserved gold answers."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.registry import load
from benchmarks.styles.mix import rewritten
from benchmarks.styles.rules import RuleRewriter
from benchmarks.text import has_answer
from judges.judge import Judge
from judges.metrics.generation import perplexity_of_texts
from judges.style import StyleText, StyleValidator, polarities, polarity, rows, style_quality, textblob_polarities, texts_of
from methods.api import Services
from methods.flow import each
from tests.support.errors import raises

STYLES = ("informal", "humor", "romance")


@pytest.fixture(scope="module")
def world():
    return load("worlds/multihop:test", {"questions": 40})


def by_style(report):
    return {item.style: item.measures for item in report}


def test_values_equal_a_naive_loop() -> None:
    texts = [
        StyleText("informal", "Ada Stone sold 12 mills in 1871.", "Ada Stone sold 12 mills, lol.", ("1871",)),
        StyleText("informal", "It was sad.", "it was  sad.", ("Ada",)),
        StyleText("informal", "It was sad.", "It was a lovely mill!", ("sad",)),
    ]
    (result,) = style_quality(texts)
    values = {name: measured.values.tolist() for name, measured in result.measures.items()}
    assert values["entities"] == [2 / 3, 1.0, 1.0]
    assert values["numbers"][0] == 0.5
    assert [math.isnan(value) for value in values["numbers"]] == [False, True, True]
    assert values["answer_kept"][0] == values["answer_kept"][2] == 0.0
    assert math.isnan(values["answer_kept"][1])
    assert values["unchanged"] == [0.0, 0.0, 0.0]
    assert values["words"] == [6 / 7, 1.0, 5 / 3]
    assert values["sentiment_shift"] == [0.0, 0.0, 2.0]
    response = result.to_json()["measures"]
    assert response["numbers"] == {"n": 1, "missing": 2, "mean": 0.5, "sd": None}
    assert response["words"]["mean"] == pytest.approx(statistics.fmean(values["words"]))
    assert response["words"]["sd"] == pytest.approx(statistics.stdev(values["words"]))


@pytest.mark.slow
def test_rule_styles_are_strong_and_keep_names_and_answers(world) -> None:
    pairs = rewritten(world, RuleRewriter("test"), STYLES, by_question=True)
    judge = Judge.of("rule_style").build(Services())
    report = by_style(style_quality(texts_of(pairs, world), strength=judge))
    assert list(report) == list(STYLES)
    assert report["informal"]["informal"].mean > 0.9
    assert report["informal"]["informal_source"].mean < 0.05
    for style in STYLES:
        assert report[style]["answer_kept"].mean == 1.0
        assert report[style]["numbers"].mean == 1.0
        assert report[style]["entities"].mean > 0.95
    assert report["romance"]["sentiment_shift"].mean > 0.1
    golds = {question.id: question.golds for question in world.questions}
    sources = [has_answer(pair.formal.text, golds[pair.question]) for pair in pairs if pair.style == "humor"]
    assert report["humor"]["answer_kept"].n == sum(sources) > 30


@pytest.mark.slow
def test_content_loss_is_detected_but_pure_style_changes_are_not(world) -> None:
    report = [
        by_style(style_quality(texts_of(rewritten(world, RuleRewriter("test", content_loss=loss), ["humor"], by_question=True), world)))[
            "humor"
        ]
        for loss in (0.0, 0.5)
    ]
    assert report[0]["answer_kept"].mean == 1.0
    assert 0.3 < report[1]["answer_kept"].mean < 0.7
    assert report[1]["entities"].mean < report[0]["entities"].mean - 0.2


def test_failed_rewritings_are_counted_separately_from_pairs() -> None:
    results = style_quality([StyleText("humor", "a", "b")], failed={"humor": 3, "romance": 2})
    assert [(item.style, item.pairs, item.failed) for item in results] == [("humor", 1, 3), ("romance", 0, 2)]
    assert results[1].to_json()["measures"] == {}


@pytest.mark.slow
def test_table_rows_contain_every_measure_once(world) -> None:
    report = style_quality(texts_of(rewritten(world, RuleRewriter("test"), STYLES)))
    table = rows(report)
    assert len({(row["style"], row["measure"]) for row in table}) == len(table) == 3 * len(report[0].measures)
    assert set(table[0]) == {"style", "measure", "n", "missing", "mean", "sd"}


def test_each_text_is_scored_by_a_model_once() -> None:
    class Judging:
        def __init__(self):
            self.requested = []

        def ask(self, items):
            self.requested += [item.prediction.answer for item in items]
            return Judge.of("rule_style").build(Services()).ask(items)

    judge = Judging()
    texts = [StyleText(style, "One text.", "Wow, one text!") for style in ("informal", "humor") for _ in range(3)]
    (informal, humor) = style_quality(texts, strength=judge)
    assert sorted(judge.requested) == ["One text.", "Wow, one text!"]
    assert informal.measures["informal"].values.tolist() == humor.measures["informal"].values.tolist() == [1.0] * 3


@pytest.mark.slow
def test_fluency_equals_the_perplexity_of_the_given_model(data_folder: Path) -> None:
    model = str(data_folder / "models" / "stories260K")
    source = "Once upon a time there was a little girl named Lily."
    texts = [StyleText("humor", source, "Once upon a time there was a cat."), StyleText("humor", source, "zx qv kk")]
    (result,) = style_quality(texts, perplexity=model, sentiment=None)
    alone = perplexity_of_texts([text.styled for text in texts], model)
    np.testing.assert_allclose(result.measures["perplexity"].values, alone, rtol=1e-4)
    assert alone[1] > 10 * alone[0]
    assert result.measures["perplexity_source"].values[0] == result.measures["perplexity_source"].values[1]
    assert "sentiment" not in result.measures


def test_empty_input_gives_empty_measures() -> None:
    assert style_quality([]) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0.0),
        ("The mill was built in 1871.", 0.0),
        ("A lovely, charming mill.", 1.0),
        ("A lovely mill, sadly ruined.", -1 / 3),
        ("It was not good.", -1.0),
        ("It wasn’t a good mill.", -1.0),
        ("It was never very bad.", 1.0),
        ("No. The old mill was good.", 1.0),
        ("LOVELY!", 1.0),
    ],
)
def test_polarity_is_the_word_balance_inverted_by_negations(text: str, value: float) -> None:
    assert polarity(text) == pytest.approx(value)


@given(st.text())
def test_polarity_stays_between_minus_one_and_one(text: str) -> None:
    assert -1.0 <= polarities([text])[0] <= 1.0


def test_only_the_listed_styles_must_be_informal() -> None:
    validator = StyleValidator.of(Judge.of("rule_style"), Services())
    formal, chatty = "The mill was built in 1871.", "Dude, the mill got going in 1871, lol!"
    assert each(validator, "objections", [formal] * 2, [formal, chatty], "informal") == ["style: judged Formal, not Informal", None]
    assert each(validator, "objections", [formal], [formal], "romance") == [None]
    assert each(validator, "objections", [formal], [" "], "informal") == ["style not judged: nothing to judge"]


def test_bertscore_compares_each_rewriting_with_its_source_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[tuple[str, str]] = []

    def similarity(styled, sources, model, *, layer, device):
        assert (model, layer, device) == ("some/encoder", 9, "cpu")
        queries.extend(zip(styled, sources, strict=True))
        return np.array([len(text) / 10 for text in styled])

    monkeypatch.setattr("judges.style.bertscore_of_pairs", similarity)
    texts = [StyleText("humor", "a", "bb"), StyleText("romance", "a", "ccc"), StyleText("humor", "a", "bb")]
    report = by_style(style_quality(texts, bertscore="some/encoder", layer=9, device="cpu"))
    assert queries == [("bb", "a"), ("ccc", "a")]
    assert report["humor"]["bertscore"].values.tolist() == [0.2, 0.2]
    assert report["romance"]["bertscore"].values.tolist() == [0.3]


def test_textblob_polarity_equals_the_published_value() -> None:
    pytest.importorskip("textblob")
    texts = [StyleText("humor", "The bridge was awful.", "A great and lovely bridge.")]
    (report,) = style_quality(texts, sentiment=textblob_polarities)
    means = [report.measures[name].mean for name in ("sentiment_source", "sentiment", "sentiment_shift")]
    assert means == pytest.approx([-1.0, 0.65, 1.65])


def test_textblob_polarity_requires_textblob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textblob", None)
    with raises("missing-package"):
        textblob_polarities(["text"])
