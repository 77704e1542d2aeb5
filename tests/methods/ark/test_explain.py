"""`ragmeter explain ark` for a question about a world, against the steps of the training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Question
from methods.api import Services
from methods.ark.explain import ArkExplainConfig, explain
from methods.registry import EXPLAINERS
from methods.training import TRAININGS
from tests.support.errors import raises

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def question_and_corpus() -> tuple[Question, Corpus]:
    """Return a question about a long document with the passages that answer it and the first others."""
    world = registry.load("worlds/long:train", {"worlds": 1, "questions": 8})
    question = next(question for question in world.questions if question.type == "single" and question.document_id)
    kept = dict.fromkeys([*question.evidence, *world.corpus.by_document[question.document_id or ""][:10]])
    return replace(question, candidates=tuple(kept)), Corpus.of(world.corpus.get(kept))


@pytest.fixture(scope="module")
def training(tiny_models: ModuleType, tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    import transformers

    folder = tmp_path_factory.mktemp("base")
    model = transformers.BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer("bert"))))
    tiny_models.save(folder, "bert", model)
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {})
    return {
        "base": str(folder),
        "chunks": "passages",
        "score": {"scorer": tiny_llama, "positives": 2},
        "kg": {"chunk": {"unit": "sentence", "size": 10, "overlap": 0}, "similarity": {"enabled": False}},
        "mine": {"top_k": 4, "keep_out": 3},
    }


@pytest.mark.slow
def test_explanation_has_a_table_per_step(question_and_corpus: tuple[Question, Corpus], training: dict[str, Any], tmp_path: Path) -> None:
    question, corpus = question_and_corpus
    config = ArkExplainConfig(training=training)
    config.preflight()
    result = explain(question, corpus, config, Services(artifacts=tmp_path, device="cpu"))
    entities, cuts, queries, chunks, negatives = result.tables
    assert question.answers[0] in result.summary
    assert [row[0] for row in cuts.rows] == ["large", "small"]
    within = [row[3] for row in entities.rows]
    assert cuts.rows[1][2] == within.count("small") <= cuts.rows[0][2] == len([item for item in within if item])
    assert any(row[4] == "seed" for row in entities.rows)
    assert {row[0] for row in queries.rows} == {"large", "small"}
    assert [row[0] for row in chunks.rows] == list(range(1, len(corpus) + 1))
    assert [row[6] for row in chunks.rows] == ["positive"] * 2 + [""] * (len(corpus) - 2)
    assert sum(row[7] == "evidence" for row in chunks.rows) == len(question.evidence)
    positive = {row[1] for row in chunks.rows[:2]}
    assert negatives.rows
    assert not positive & {row[1] for row in negatives.rows}
    assert result.picture
    assert result.picture.startswith("<svg")
    assert explain(question, corpus, config, Services(artifacts=tmp_path, device="cpu")) == result


def test_questions_and_options_that_cannot_be_explained_are_refused(
    question_and_corpus: tuple[Question, Corpus], training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, corpus = question_and_corpus
    config = ArkExplainConfig(training=training)
    monkeypatch.setattr("methods.ark.data.WHOLE", len(corpus) - 1)
    with raises("question-without-gold"):
        explain(replace(question, answers=()), corpus, config, Services(device="cpu"))
    with raises("question-without-document"):
        explain(replace(question, document_id=None, candidates=None), corpus, config, Services(device="cpu"))
    with raises("not-checkpoint-ark"):
        ArkExplainConfig(checkpoint=str(tmp_path)).preflight()


def test_explainer_is_found_by_the_name_of_its_method() -> None:
    assert EXPLAINERS.get("ark").config is ArkExplainConfig


def test_options_override_the_preset_and_an_unknown_option_is_named() -> None:
    config = ArkExplainConfig.model_validate({"training": {"preset": "worlds", "seed": 7}})
    explained = config.options("explained")
    assert explained == TRAININGS.get("ark").validate({"preset": "worlds", "seed": 7, "data": ["worlds/long:train"]})
    wrong = ArkExplainConfig.model_validate({"training": {"preset": "worlds", "score": {"scorers": "x"}}})
    with pytest.raises(UserError) as caught:
        wrong.options("explained")
    assert caught.value.where == "training.score.scorers"
