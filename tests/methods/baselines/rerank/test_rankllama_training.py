"""`ragmeter train rankllama`: its rows, its loss against the formula, and a checkpoint that the reranker loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import registry
from benchmarks.core.fingerprint import CHECKPOINT_CARD
from benchmarks.text import has_answer
from methods.api import Services
from methods.baselines.rerank.rankllama_training import PairObjective, RankLlamaTraining
from methods.registry import Component
from methods.training import TRAININGS, Silent, TrainingContext
from methods.training.candidates import Mined, mined
from methods.training.contrast import drawn
from methods.training.material import load_data
from methods.training.ranks import accelerator
from tests.support.errors import raises
from tools.tiny_checkpoints import make

torch = pytest.importorskip("torch")
WORLD = {"worlds": {"worlds": 1, "questions": 12, "entities": 60}}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tiny")
    make(folder, ["llama"])
    options = {"preset": "worlds", "base": str(folder / "llama"), "negatives": 3, "batch_size": 8, "lora": {"r": 2, "dropout": 0.1}}
    data = {"data_options": WORLD, "validation_options": WORLD}
    return TRAININGS.get("rankllama").validate({**options, **data})


def context(folder: Path) -> TrainingContext:
    return TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), Silent())


def rows_of(benchmark: Any, config: Any, answers: bool = True) -> list[Mined]:
    return mined(benchmark, config.pool, config.own, answers, Services(device="cpu"))


def test_positives_are_never_negatives_and_rows_depend_only_on_seed_and_epoch(config: Any) -> None:
    (benchmark,) = load_data(config.data, config.data_options)
    rows = rows_of(benchmark, config)
    corpus = benchmark.corpus
    positives = {q.text: {passage.full_text for passage in corpus.get(q.evidence)} for q in benchmark.questions}
    made = drawn(rows, 3, "rows", 0, 1)
    assert sorted(text for group in made for text in group.texts[:1]) == sorted(text for row in rows for text in row.positives)
    for group in made:
        assert group.texts[0] in positives[group.question]
        assert not positives[group.question] & set(group.texts[1:])
        assert len(set(group.texts)) == 4
    assert made == drawn(rows, 3, "rows", 0, 1) != drawn(rows, 3, "rows", 0, 2)
    golds = {question.id: question.answers for question in benchmark.questions}
    for row in rows_of(benchmark, config, answers=False):
        assert not any(has_answer(text, golds[row.id]) for text in (*row.near, *row.others))
    with raises("test-split"):
        load_data(["worlds/multihop:test"], WORLD)


@pytest.mark.slow
def test_loss_equals_the_formula_and_the_checkpoint_has_the_trained_weights(config: Any, tmp_path: Path) -> None:
    (trained_on,) = load_data(config.data, config.data_options)
    groups = drawn(rows_of(trained_on, config), 3, "rows", 0)
    objective = PairObjective(config, accelerator("no", "cpu"))
    objective.model.eval()
    batch = groups[:5]
    with torch.no_grad():
        scores = objective.scores([(group.question, text) for group in batch for text in group.texts]).reshape(5, 4)
    assert objective.backward(batch, ("seed",)) == pytest.approx(float(-scores.log_softmax(1)[:, 0].mean()), abs=1e-5)
    trained = [name for name, weight in objective.model.named_parameters() if weight.requires_grad]
    assert all("lora_" in name or "score" in name for name in trained)
    assert any("score" in name for name in trained)

    (stage,) = RankLlamaTraining(config).run(context(tmp_path))
    assert stage.figures["rows"] == len(groups)
    # Base and layout are those that the checkpoint's card tells.
    (stage.folder / CHECKPOINT_CARD).write_text(json.dumps({"config": config.model_dump(mode="json")}))
    made = Component.of("rankllama", {"adapter": str(stage.folder)}).build(Services(device="cpu"))
    cut = Component.of("rankllama", {"adapter": str(stage.folder), "query_length": 4}).build(Services(device="cpu"))
    wanted = objective._tokenizer("<s>[1] a b\n\nQuestion: who?\nAnswer:", add_special_tokens=False)["input_ids"]
    assert made.encoded("who?", ["a  b"]) == [wanted]
    benchmark = registry.load("worlds/multihop:validation", WORLD["worlds"])
    question = benchmark.questions[0]
    ids = question.candidates or ()
    scores = made.scores(question.query(), ids, benchmark.corpus)
    assert scores.std() > 0
    assert not np.allclose(scores, cut.scores(question.query(), ids, benchmark.corpus)), "a cut query is another"
    (again,) = RankLlamaTraining(config).run(context(tmp_path))
    assert not again.fresh


@pytest.mark.parametrize("training", ["rankllama", "cocom"])
def test_data_that_choose_the_best_epoch_are_inputs(training: str, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, inputs = tmp_path / "held_out.jsonl", list[list[str]]()
    options = {"data": ["worlds/multihop:train"], "data_options": WORLD, "validation": ["nq/open:train"]}
    options |= {"base": config.base, "validation_options": {"nq": {"path": str(file)}}}
    entry = TRAININGS.get(training)
    for module in ("methods.training.stages", "methods.baselines.compress.training"):
        monkeypatch.setattr(f"{module}.train_stage", lambda *_, inputs=(), **__: inputs_seen(list(inputs)))

    def inputs_seen(value: list[str]) -> list[Any]:
        inputs.append(value)
        return []

    for question in ("who?", "how?"):
        file.write_text(json.dumps({"question": question, "answer": ["a"]}) + "\n", "utf-8")
        list(entry.factory(entry.validate(options)).run(context(tmp_path)))
    assert inputs[0]
    assert inputs[0] != inputs[-1]
