"""SKP's training, from a graph to an encoder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.core.fingerprint import folder_sha256
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.worlds.dataset import CARD
from methods.api import Services
from methods.baselines.graph import skp
from methods.baselines.graph.skp import SkpTraining, SkpTrainingConfig, unit_texts
from methods.graphs.triples import LinearizeConfig, graph_of
from methods.training import Silent, TrainedStage, TrainingContext
from methods.training.ranks import accelerator
from tests.support.errors import raises

torch = pytest.importorskip("torch")
ENTITIES = ["old bridge", "moss", "painter", "river", "town", "stone cabin", "north side", "year"]
RELATIONS = ["place.built_by", "grows_on", "person.lived_in"]


def toy_graph(count: int = 24) -> Any:
    """Return distinct triples of a few entities."""
    triples = [(ENTITIES[n % 8], RELATIONS[n % 3], f"{ENTITIES[(n * 3 + 1) % 8]} {n}") for n in range(count)]
    corpus = TripleCorpus.of_triples(triples)
    benchmark = Benchmark(DataReference("worlds", "graph", "train"), 1, CARD, [], corpus)
    return graph_of([benchmark], [corpus], ())


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = toy_graph()
    monkeypatch.setattr(skp, "load_graph", lambda references, options, allow_test: made)
    return made


@pytest.fixture(scope="module", params=["Bert", pytest.param("DistilBert", marks=pytest.mark.slow)])
def base(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("base")
    return str(tiny_models.save(folder, "bert", tiny_models.masked_language_model(request.param, dropout=0.1)))


def options(base: str, **changes: Any) -> SkpTrainingConfig:
    settings = {
        "graph": ["worlds/graph:train"],
        "base": base,
        "epochs": 2,
        "batch_size": 8,
        "part": 4,
        "learning_rate": 1e-3,
        "save_every": 2,
        "max_length": 32,
        "seed": 5,
        **changes,
    }
    return SkpTrainingConfig.model_validate(settings)


def train(config: SkpTrainingConfig, folder: Path, progress: Any = None) -> TrainedStage:
    services = Services(config.seed, folder / "artifacts", "cpu")
    context = TrainingContext(folder / "work", folder / "checkpoints", services, progress or Silent())
    [stage] = SkpTraining(config).run(context)
    return stage


def curve(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "work" / "train" / "curve.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_training_on_a_graph_gives_an_encoder_that_sentence_transformers_loads(graph: Any, base: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    stage = train(options(base), tmp_path)
    assert stage.fresh
    assert stage.data == graph.fingerprints
    assert {name: stage.figures[name] for name in ("steps", "texts", "triples", "texts_left_out")} == {
        "steps": 6,
        "texts": 24,
        "triples": 24,
        "texts_left_out": 0,
    }
    model = SentenceTransformer(str(stage.folder), device="cpu")
    inputs = model.tokenizer(["old moss"], return_tensors="pt")
    plain = AutoModel.from_pretrained(stage.folder).eval()(**inputs).last_hidden_state[0, 0]
    before = AutoModel.from_pretrained(base).eval()(**inputs).last_hidden_state[0, 0]
    assert np.allclose(model.encode_query(["old moss"])[0], plain.detach().numpy(), atol=1e-5)
    assert not np.allclose(plain.detach().numpy(), before.detach().numpy(), atol=1e-3)
    assert model.max_seq_length == 32
    assert "SKP" in (stage.folder / "README.md").read_text()
    assert list(stage.folder.glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "name"), [(0.2, "masked"), (20.0, "contrastive")])
def test_training_lowers_the_weighted_loss(graph: Any, tiny_models: ModuleType, tmp_path: Path, weight: float, name: str) -> None:
    base = str(tiny_models.save(tmp_path / "base", "bert", tiny_models.masked_language_model("Bert")))
    train(options(base, epochs=40, batch_size=24, part=24, contrastive_weight=weight), tmp_path)
    lines = curve(tmp_path)
    assert lines[-1][name] < 0.8 * lines[0][name]
    assert lines[-1]["loss"] == pytest.approx(lines[-1]["masked"] + weight * lines[-1]["contrastive"], rel=1e-5)


class Cut(Exception):
    """Exception that simulates a power failure."""


class CutOff(Silent):
    """Progress that ends the process after a number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if not self.left:
            raise Cut


@pytest.mark.slow
def test_interrupted_run_ends_with_identical_files(graph: Any, base: str, tmp_path: Path) -> None:
    config = options(base, redraw=True)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Cut):
        train(config, tmp_path / "cut", CutOff(4))
    assert not (tmp_path / "cut" / "checkpoints").exists()
    resumed = train(config, tmp_path / "cut")
    assert folder_sha256(resumed.folder) == folder_sha256(whole.folder)
    assert not list((tmp_path / "cut" / "work").rglob("*.pt"))
    again = train(config, tmp_path / "cut")
    assert not again.fresh
    assert again.figures == whole.figures
    assert folder_sha256(train(config.model_copy(update={"seed": 6}), tmp_path / "other").folder) != folder_sha256(whole.folder)


@pytest.mark.slow
def test_batches_in_smaller_parts_give_nearly_the_same_weights(graph: Any, tiny_models: ModuleType, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    base = str(tiny_models.save(tmp_path / "base", "bert", tiny_models.masked_language_model("Bert")))
    weights = [load_file(train(options(base, part=part), tmp_path / str(part)).folder / "model.safetensors") for part in (8, 3)]
    assert all(np.allclose(weights[0][name], weights[1][name], atol=2e-3) for name in weights[0])


@pytest.mark.slow
def test_masks_are_equal_in_every_epoch_unless_redrawn(graph: Any, base: str, tmp_path: Path) -> None:
    for redraw in (False, True):
        context = TrainingContext(tmp_path, tmp_path, Services(device="cpu"))
        job = skp.SkpRun(options(base, redraw=redraw), graph, context, accelerator("no", "cpu"))
        seen: list[dict[tuple[int, ...], tuple[int, ...]]] = [{}, {}]
        job.objective.backward = lambda batch, seed: {"loss": 0.0, "batch": batch}  # type: ignore[method-assign,dict-item]
        loop = job.prepared("same").loop
        for step in range(2 * loop.options.epoch):
            batch: Any = loop.step(step)["batch"]
            for ids, labels in zip(batch.ids, batch.labels, strict=True):
                seen[step // loop.options.epoch][tuple(ids[ids != 0])] = tuple(labels[ids != 0])
        assert len(seen[0]) == len(seen[1]) == 24
        assert (seen[0] == seen[1]) is not redraw


def test_subgraph_has_all_triples_of_a_head() -> None:
    triples = [("a", "r", "b"), ("c", "r", "d"), ("a", "x.s", "e"), ("a", "r", "f"), ("c", "r", "c")]
    corpus = TripleCorpus.of_triples(triples)
    graph = graph_of([Benchmark(DataReference("cwq", None, "train"), 1, CARD, [], corpus)], [corpus], ())
    plain = LinearizeConfig.model_validate({})
    assert unit_texts(graph, "triple", plain, 16) == ["a r b", "c r d", "a s e", "a r f", "c r c"]
    assert unit_texts(graph, "subgraph", plain, 16) == ["a r b | a s e | a r f", "c r d | c r c"]
    assert unit_texts(graph, "subgraph", plain, 2) == ["a r b | a s e", "c r d | c r c", "a r f"]


def test_triples_with_equal_text_are_deduplicated() -> None:
    corpus = TripleCorpus.of_triples([("a", "x.r", "b"), ("a", "y.r", "b")])
    graph = graph_of([Benchmark(DataReference("cwq", None, "train"), 1, CARD, [], corpus)], [corpus], ())
    assert unit_texts(graph, "triple", LinearizeConfig.model_validate({}), 1) == ["a r b"]


def test_a_base_without_an_encoder_is_refused(graph: Any, tiny_models: ModuleType, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_models.save(tmp_path / "base", "bert", tiny_models.masked_language_model("Bert"))
    weights = load_file(folder / "model.safetensors")
    head = {name: item for name, item in weights.items() if name.startswith("cls.")}
    assert 0 < len(head) < len(weights)
    save_file(head, folder / "model.safetensors", {"format": "pt"})
    with raises("load-failed"):
        train(options(str(folder)), tmp_path)


def test_a_base_without_a_mask_token_is_refused(graph: Any, tiny_models: ModuleType, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tiny_models.save(tmp_path / "base", "bert", tiny_models.masked_language_model("Bert"))
    tokens = AutoTokenizer.from_pretrained(folder)
    tokens.mask_token = None
    tokens.save_pretrained(folder)
    with raises("load-failed"):
        train(options(str(folder)), tmp_path)


def test_test_graphs_are_refused_by_default(tmp_path: Path, data_folder: Path) -> None:
    config = options("minilm", graph=["webqsp:test"])
    with raises("test-graph"):
        train(config, tmp_path)


@pytest.mark.slow
def test_minilm_is_pretrained_on_real_triples(data_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    lines = (data_folder / "webqsp" / "rog_style_webqsp.jsonl").read_text("utf-8").splitlines(keepends=True)
    path = tmp_path / "some.jsonl"
    path.write_text("".join(lines[:5]), "utf-8")
    config = SkpTrainingConfig.model_validate(
        {
            "base": "minilm",
            "graph": ["webqsp:test"],
            "graph_options": {"webqsp": {"path": str(path)}},
            "allow_test": True,
            "epochs": 1,
            "batch_size": 64,
            "part": 64,
            "max_length": 24,
        }
    )
    stage = train(config, tmp_path)
    assert stage.figures["texts"] > 40
    assert math.isfinite(stage.figures["loss"])
    vectors = SentenceTransformer(str(stage.folder), device="cpu").encode_document(["Jamaica languages_spoken English"])
    assert vectors.shape == (1, 384)
    assert "test graphs of webqsp:test" in (stage.folder / "README.md").read_text()
