"""GPR's pretraining end to end: two towers that learn, interruptions, curves, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import folder_sha256
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, triple_id
from methods.api import Services
from methods.gpr.config import GprTrainingConfig
from methods.gpr.loss import row_losses
from methods.gpr.masked import MaskedTriple
from methods.gpr.train import GprTraining, Towers, cosines_of
from methods.gpr.wordings import TemplateQuestions
from methods.registry import Component
from methods.training import TRAININGS, Prepared, TrainedStage, TrainingContext
from methods.training.ranks import accelerator
from tests.support.errors import raises

torch = pytest.importorskip("torch")
FACTS = {"born": "year", "built": "cabin"}
"""Relations of a graph and the beginnings of their tails."""


@pytest.fixture(scope="session")
def toy(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("gpr_toy.py"))


@pytest.fixture(scope="module")
def base(toy: ModuleType, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy.save_base(tiny_models, tmp_path_factory.mktemp("base"))


def context(folder: Path) -> TrainingContext:
    return TrainingContext(folder / "work", folder / "checkpoints", Services(artifacts=folder / "art", device="cpu"))


def trained(config: GprTrainingConfig, folder: Path, generator: Any = None) -> TrainedStage:
    (stage,) = GprTraining(config, generator).run(context(folder))
    return stage


@pytest.mark.slow
def test_training_lowers_the_loss_and_orders_triples_before_neighbors_and_negatives(toy: ModuleType, base: str, tmp_path: Path) -> None:
    train = {"epochs": 60, "batch_size": 21, "micro_batch": 21, "learning_rate": 3e-3, "save_every": 1000}
    item = toy.trainer(toy.options(base, train=train, validate_on={"share": 0}), tmp_path)
    toy.without_dropout(item.towers)
    figures = item.loop.run()
    curve = toy.lines(item)
    assert curve[0]["loss"] == pytest.approx(1.0, abs=0.15)
    assert figures["loss"] < 0.35
    assert curve[-1]["ordered"] > 0.85
    results = cosines_of(item.towers, item.material.texts(item.material.rows(0)), (0,))
    anchor, neighbor, negative = (float(part.detach().mean()) for part in results)
    assert anchor > neighbor + 0.3
    assert neighbor > negative + 0.3


@pytest.mark.slow
def test_last_smaller_batch_is_trained_with_the_mean_over_its_own_rows(toy: ModuleType, base: str, tmp_path: Path) -> None:
    """The batch size does not divide the number of rows."""
    count = len(toy.trainer(toy.options(base), tmp_path / "count").material)
    size = count - 2
    item = toy.trainer(toy.options(base, train={"batch_size": size, "micro_batch": size, "epochs": 1}), tmp_path / "run")
    toy.without_dropout(item.towers)
    reached = cosines_of(item.towers, item.material.texts(item.material.rows(0).take(slice(size, count))), (0,))
    expected = row_losses(reached, item.config.loss).detach().mean()
    assert item.loop._stepped(1)["loss"] == pytest.approx(float(expected), rel=1e-4)
    item.loop.run()
    assert [line["step"] for line in toy.lines(item)] == [0, 1]


@pytest.mark.slow
def test_training_interrupted_within_an_epoch_ends_with_the_same_weights(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.options(base)
    whole = toy.trainer(config, tmp_path / "whole")
    whole.loop.run()
    steps = len(toy.lines(whole))
    assert steps > 6
    assert toy.trainer(toy.options(base, seed=4), tmp_path / "other").loop._stepped(0)["loss"] != toy.lines(whole)[0]["loss"]
    last = steps // 2 + 1
    prepared = toy.trainer(config, tmp_path / "cut")
    step = prepared.loop.step

    def until(number: int) -> Any:
        if number == last:
            raise KeyboardInterrupt
        return step(number)

    prepared.loop.step = until
    with pytest.raises(KeyboardInterrupt):
        prepared.loop.run()
    resumed = toy.trainer(config, tmp_path / "cut")
    resumed.loop.run()
    for name, weight in toy.weights(whole.towers).items():
        assert torch.equal(weight, toy.weights(resumed.towers)[name]), name
    assert resumed.loop.curve.read_text() == whole.loop.curve.read_text()


@pytest.mark.slow
def test_mixed_precision_trains_nearly_as_full_precision_does(toy: ModuleType, base: str, tmp_path: Path) -> None:
    losses = []
    for precision in ("no", "bf16"):
        config = toy.options(base, train={"precision": precision, "epochs": 1})
        item = toy.trainer(config, tmp_path / precision, accelerator(precision, "cpu"))
        toy.without_dropout(item.towers)
        item.loop.run()
        losses.append([line["loss"] for line in toy.lines(item)])
    assert losses[1] == pytest.approx(losses[0], abs=0.03)
    assert losses[1] != losses[0]


class Counting(TemplateQuestions):
    """Questions that count how many were requested."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = 0

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        self.requested += len(batch)
        return super().generate(batch)


@pytest.mark.slow
def test_checkpoint_is_two_sentence_transformers_that_the_retriever_loads(toy: ModuleType, base: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from results.store.checkpoints import describe

    config = toy.options(base, train={"epochs": 1, "batch_size": 64, "micro_batch": 32}, validate_on={"share": 0.1})
    stage = trained(config, tmp_path)
    assert stage.stage == "towers"
    assert 0.2 < stage.figures["validation_loss"] < 1.2
    assert {"triples", "questions", "rows", "steps", "loss", "validation_ordered"} <= set(stage.figures)
    question, triple = (SentenceTransformer(str(stage.folder / name), device="cpu") for name in ("question", "triple"))
    assert question.max_seq_length == triple.max_seq_length == 64
    changed = question.encode(["moss"]) - SentenceTransformer(base, device="cpu").encode(["moss"])
    assert np.abs(changed).max() > 1e-4
    card = (stage.folder / "README.md").read_text()
    assert "`worlds/graph:train`" in card
    assert "worlds-v1" in card
    describe(stage.folder, method="gpr", stage=stage.stage, version=1, config=config.model_dump(mode="json"), parents=(), data=stage.data)
    component = Component.of("gpr", {"model": str(stage.folder)})
    component.config.preflight()
    graph = toy.toy_graph()
    corpus = TripleCorpus.of_triples(list(graph.triples))
    ids = tuple(triple_id(triple) for triple in graph.triples)
    query = Query("q", "who lived by the river ?", candidates=ids)
    (ranking,) = component.build(Services(device="cpu")).index(corpus).retrieve([query], 4)
    texts = [f"{head} {relation.rpartition('.')[2]} {tail}" for head, relation, tail in graph.triples]
    scores = question.similarity(question.encode([query.text]), triple.encode(texts))[0].numpy()
    assert ranking.scores == pytest.approx(np.sort(scores)[::-1][:4].tolist(), abs=1e-5)


@pytest.mark.slow
def test_finished_training_is_reused_and_an_interrupted_one_repeats_no_call(toy: ModuleType, base: str, tmp_path: Path) -> None:
    config = toy.options(base, train={"epochs": 1, "batch_size": 64, "micro_batch": 32})
    generator = Counting()
    first = trained(config, tmp_path / "a", generator)
    query, generator.requested = generator.requested, 0
    assert query > 0
    again = trained(config, tmp_path / "a", generator)
    assert first.fresh
    assert not again.fresh
    assert again.figures == first.figures
    assert generator.requested == 0
    assert folder_sha256(trained(config, tmp_path / "b", Counting()).folder) == folder_sha256(first.folder)
    assert (tmp_path / "a" / "work" / "questions.jsonl").read_text().count("\n") == first.figures["questions"]


@pytest.mark.slow
def test_folder_with_other_files_is_refused(toy: ModuleType, base: str, tmp_path: Path) -> None:
    train = {"epochs": 1, "batch_size": 64, "micro_batch": 32}
    trained(toy.options(base, train=train), tmp_path)
    with pytest.raises(UserError, match="other options"):
        trained(toy.options(base, train=train, seed=9), tmp_path)


@pytest.mark.slow
def test_dataset_questions_are_never_training_texts(toy: ModuleType, base: str, tmp_path: Path) -> None:
    """Other questions about the same worlds give identical weights."""
    hashes = set()
    for count, alias in ((12, 0.0), (5, 0.5)):
        world = {**toy.WORLD, "questions": count, "question_alias": alias}
        config = toy.options(base, graph_options={"worlds": world}, train={"epochs": 1, "batch_size": 64})
        stage = trained(config, tmp_path / str(count))
        hashes.add(tuple(folder_sha256(stage.folder / name) for name in ("question", "triple")))
    assert len(hashes) == 1


@pytest.mark.slow
def test_curve_has_answer_recall_equal_to_a_naive_loop(toy: ModuleType, base: str, tmp_path: Path) -> None:
    from benchmarks import registry
    from methods.gpr.train import held_out, validator

    world = {**toy.WORLD, "questions": 10}
    config = toy.options(base, validation=["worlds/graph:validation"], validation_options={"worlds": world}, validate_on={"k": 5})
    towers, material = Towers.load(config, "cpu"), toy.material(config)
    validate = validator(config, towers, material, held_out(config))
    assert validate is not None
    figures = validate()
    benchmark = registry.load("worlds/graph:validation", world)
    recalls = []
    for question in benchmark.questions:
        triples = [benchmark.corpus.triples[benchmark.corpus.row(item)] for item in question.candidates or ()]
        ends = {end.casefold() for triple in triples for end in (triple[0], triple[2])}
        answers = {answer.casefold() for answer in question.answers} & ends
        if answers:
            texts = [f"{head} {relation.rpartition('.')[2]} {tail}" for head, relation, tail in triples]
            scores = towers.encoded("triple", texts) @ towers.encoded("question", [question.text])[0]
            best = [triples[position] for position in np.argsort(-scores, kind="stable")[:5]]
            named = {end.casefold() for triple in best for end in (triple[0], triple[2])}
            recalls.append(len(answers & named) / len(answers))
    assert recalls
    assert figures["validation_answer_recall@5"] == pytest.approx(float(np.mean(recalls)))


@pytest.mark.slow
def test_curve_has_losses_per_step_and_metrics_per_epoch(toy: ModuleType, base: str, tmp_path: Path) -> None:
    from methods.gpr.train import held_out, validator

    config = toy.options(base, validate_on={"share": 0.2})
    item = toy.trainer(config, tmp_path)
    item.loop.validate = validator(config, item.towers, item.material, held_out(config))
    rows, epochs = item.material.rows, []
    item.material.rows = lambda epoch: epochs.append(epoch) or rows(epoch)
    item.loop.run()
    assert list(dict.fromkeys(epochs)) == list(range(config.train.epochs))
    validated = [line for line in toy.lines(item) if "validation_loss" in line]
    assert len(validated) == config.train.epochs
    assert all(0 <= line["validation_ordered"] <= 1 for line in validated)
    assert {"loss", "ordered", "learning_rate", "gradient_norm"} <= set(toy.lines(item)[0])


def test_no_validation_without_held_out_triples(toy: ModuleType, base: str) -> None:
    from methods.gpr.train import validator

    config = toy.options(base, validate_on={"share": 0})
    assert validator(config, Towers.load(config, "cpu"), toy.material(config), []) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": ["webqsp:train"]}, "generator-worlds-only"),
        ({"graph": ["nothing:train"]}, "unknown-dataset"),
        ({"questions": {"generator": "cache", "path": "/nowhere/x.jsonl"}}, "missing-file"),
        ({"base": "/nowhere/model"}, "no-model-folder"),
    ],
)
def test_contradictory_options_are_refused_before_loading(toy: ModuleType, base: str, options: dict[str, Any], message: str) -> None:
    with raises(message):
        toy.options(**{"base": base, **options}).preflight()


def test_test_graphs_are_refused(toy: ModuleType, base: str, tmp_path: Path) -> None:
    with raises("test-graph"):
        trained(toy.options(base, graph=["worlds/graph:test"]), tmp_path)


def test_llm_questions_require_a_model_name() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="needs llm"):
        TRAININGS.get("gpr").validate({"graph": ["webqsp:train"], "questions": {"generator": "llm"}})
    paper = TRAININGS.get("gpr").validate({"preset": "paper"})
    assert isinstance(paper, GprTrainingConfig)
    assert (paper.base, paper.train.batch_size, paper.train.epochs) == ("distilbert-base-uncased", 512, 5)
    assert (paper.loss.g1, paper.loss.g2, paper.train.learning_rate) == (0.5, 0.5, 2e-5)


def test_step_repeated_after_out_of_memory_has_the_whole_gradient(
    toy: ModuleType, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy.options(base, train={"micro_batch": 8})
    small, whole = (toy.trainer(config, tmp_path / name) for name in ("small", "whole"))
    vectors = small.towers.vectors

    def limited(side: str, texts: Sequence[str], seed: Any) -> Any:
        if len(texts) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return vectors(side, texts, seed)

    monkeypatch.setattr(small.towers, "vectors", limited)
    results = []
    for item in (small, whole):
        toy.without_dropout(item.towers)
    with pytest.warns(UserWarning, match="micro_batch"):
        results.append(small.loop._gradient(0))
    results.append(whole.loop._gradient(0))
    assert results[0] == pytest.approx(results[1])
    for mine, theirs in zip(small.loop.parameters(), whole.loop.parameters(), strict=True):
        assert mine.grad is None or torch.allclose(mine.grad, theirs.grad, atol=1e-5)


@pytest.mark.slow
def test_training_and_retrieval_work_on_real_graphs(toy: ModuleType, base: str, data_folder: Path, tmp_path: Path) -> None:
    """WebQSP's published records: with unnamed entities, inverse triples and separate graphs."""
    from benchmarks import registry
    from methods.models.encoder import Encoder
    from methods.models.encoder_config import EncoderConfig
    from methods.retrieval.triples import TripleRetriever

    path = {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")}
    config = toy.options(
        base,
        graph=["webqsp:test"],
        graph_options={"webqsp": path},
        allow_test=True,
        questions={"generator": "template", "triples": 60},
        validate_on={"share": 0.1},
        train={"epochs": 2, "batch_size": 16, "micro_batch": 16},
    )
    stage = trained(config, tmp_path)
    assert stage.figures["loss"] < 1.0
    assert "has seen the test graphs of webqsp:test" in (stage.folder / "README.md").read_text()
    benchmark = registry.load("webqsp:test", path)
    towers = EncoderConfig(model=str(stage.folder / "triple"), query_model=str(stage.folder / "question"))
    index = TripleRetriever(Encoder(towers, "cpu", tmp_path / "embeddings")).index(benchmark.corpus)
    queries = list(benchmark.questions[:3])
    for question, ranking in zip(queries, index.retrieve([item.query() for item in queries], 20), strict=True):
        assert len(ranking.ids) == min(20, len(question.candidates or ()))
        assert set(ranking.ids) <= set(question.candidates or ())


def test_what_own_graphs_leave_out_is_counted(base: str, toy: ModuleType, tmp_path: Path) -> None:
    names = ["Ann", "Bob", "m.0abc", "long " * 90, ""]
    graph = [[name, f"x.y.{relation}", f"{value} {number}"] for number, name in enumerate(names) for relation, value in FACTS.items()]
    row = {"id": "own", "question": "who?", "answer": ["none"], "q_entity": ["Ann"], "graph": graph}
    path = tmp_path / "graph.jsonl"
    path.write_text(json.dumps(row) + "\n")
    options = {"webqsp": {"path": str(path)}}
    config = toy.options(base, graph=["webqsp:train"], graph_options=options, questions={"generator": "template"}, validate_on={"share": 0})
    prepares = replace(context(tmp_path), prepares=True)
    with pytest.raises(Prepared) as prepared:
        list(GprTraining(config).run(prepares))
    assert prepared.value.figures == {
        "triples": 10,
        "questions": 14,
        "rows": 14,
        "questions_without_neighbor": 0,
        "triples_unnamed": 2,
        "questions_left_out": 2,
        "queries_cut": 2,
        "triples_cut": 2,
    }
    config = config.model_copy(update={"validation": ("webqsp:train",), "validation_options": options})
    with raises("no-validation-answer"):
        list(GprTraining(config).run(replace(prepares, work=tmp_path / "other")))


@pytest.mark.parametrize("graph", [[["a", "r.r.r", "b"]], [["a", "r.r.r", "b"], ["c", "r.r.r", "d"]]])
def test_graph_without_neighbors_is_refused(base: str, toy: ModuleType, tmp_path: Path, graph: list[list[str]]) -> None:
    path = tmp_path / "graph.jsonl"
    path.write_text(json.dumps({"id": "own", "question": "who?", "answer": [], "q_entity": [], "graph": graph}) + "\n")
    config = toy.options(base, graph=["webqsp:train"], graph_options={"webqsp": {"path": str(path)}}, questions={"generator": "template"})
    with raises("no-neighbor-triple"):
        trained(config, tmp_path)
