"""SKP: what is hidden, its loss against naive loops, and its training from a graph to towers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import UserError
from benchmarks.fingerprint import folder_sha256
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.worlds.dataset import CARD
from methods.api import Services
from methods.baselines.graph import skp_training
from methods.baselines.graph.skp_loss import SkpObjective, contrastive
from methods.baselines.graph.skp_masking import (
    NOT_A_TARGET,
    SEPARATOR,
    Tokenised,
    hidden_words,
    masked,
    tokenised,
)
from methods.baselines.graph.skp_text import unit_texts
from methods.baselines.graph.skp_training import SkpTraining, SkpTrainingConfig
from methods.knowledge.linearise import LineariseConfig
from methods.knowledge.pretraining import graph_of
from methods.torch_loop import accelerator
from methods.training import Silent, TrainedStage, Workshop

torch = pytest.importorskip("torch")
WORDS = ["moss", "old", "river_stone", "unused", "m.0abc", "the", "bridge,", "x1y2", "Ünü"]
TEXTS = ["old bridge moss", "river_stone unused the", "moss", "the  bridge,\tof  m.0abc stone", "x1y2 Ünü old old"]


@pytest.fixture(scope="module")
def tokenizer(tiny_models: ModuleType) -> Any:
    return tiny_models.tokenizer("bert")


def laid_out(texts: list[str], tokenizer: Any, length: int = 64, seed: int = 0) -> tuple[Tokenised, Any]:
    found = tokenised(texts, tokenizer, length)
    return found, masked(found, np.arange(len(texts)), hidden_words(found, seed))


# -- what is hidden ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.lists(st.sampled_from([*WORDS, SEPARATOR]), max_size=9), min_size=1, max_size=6),
    seed=st.integers(0, 50),
    length=st.integers(8, 40),
)
def test_one_word_with_all_its_pieces_is_hidden_and_everything_else_stays(
    tokenizer: Any, texts: list[list[str]], seed: int, length: int
) -> None:
    found, batch = laid_out([" ".join(words) for words in texts], tokenizer, length, seed)
    for row, words in enumerate(texts):
        # Naively: the pieces of one word after another, between [CLS] and [SEP], as far as they fit.
        pieces = [(number, piece) for number, word in enumerate(words) for piece in tokenizer.tokenize(word)]
        pieces = pieces[: length - 2]
        plain = tokenizer.convert_tokens_to_ids(["[CLS]", *(piece for _, piece in pieces), "[SEP]"])
        size = int(batch.attention[row].sum())
        assert batch.attention[row].tolist() == [1] * size + [0] * (batch.ids.shape[1] - size)
        assert batch.ids[row, :size].tolist() == plain
        assert set(batch.ids[row, size:].tolist()) <= {tokenizer.pad_token_id}
        places = np.flatnonzero(batch.labels[row] != NOT_A_TARGET)
        candidates = {number for number, _ in pieces if words[number] != SEPARATOR}
        assert found.counts[row] == len(candidates)
        if not candidates:
            assert not len(places)
            assert (batch.copies[row] == batch.ids[row]).all()
            continue
        chosen = pieces[places[0] - 1][0]
        assert chosen in candidates
        assert places.tolist() == [1 + at for at, (number, _) in enumerate(pieces) if number == chosen]
        assert (batch.copies[row, places] == tokenizer.mask_token_id).all()
        assert (batch.labels[row, places] == batch.ids[row, places]).all()
        rest = np.delete(np.arange(batch.ids.shape[1]), places)
        assert (batch.copies[row, rest] == batch.ids[row, rest]).all()


def test_every_word_is_hidden_as_often_as_the_others(tokenizer: Any) -> None:
    found = tokenised(["old moss bridge river"] * 8000, tokenizer, 64)
    counts = np.bincount(hidden_words(found, 3), minlength=4)
    expected = 2000
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_the_hidden_word_is_drawn_from_the_key(tokenizer: Any) -> None:
    found = tokenised(["old moss bridge river"] * 50, tokenizer, 64)
    assert (hidden_words(found, 1, "epoch", 0) == hidden_words(found, 1, "epoch", 0)).all()
    assert (hidden_words(found, 1, "epoch", 0) != hidden_words(found, 1, "epoch", 1)).any()


def test_parts_of_a_batch_are_the_batch(tokenizer: Any) -> None:
    _, batch = laid_out(TEXTS, tokenizer)
    part = batch.rows(slice(1, 3))
    width = part.ids.shape[1]
    assert width == int(batch.attention[1:3].sum(axis=1).max())
    assert (part.ids == batch.ids[1:3, :width]).all()
    assert (part.labels == batch.labels[1:3, :width]).all()
    assert sum(batch.rows(slice(n, n + 1)).targets for n in range(len(batch))) == batch.targets


# -- the loss ------------------------------------------------------------------------------------------------------


def cosine(one: Any, other: Any) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 7), temperature=st.floats(0.05, 2))
def test_the_contrastive_loss_is_that_of_a_loop(seed: int, count: int, temperature: float) -> None:
    texts, copies = np.random.default_rng(seed).normal(size=(2, count, 5))
    losses = []
    for i in range(count):
        scores = [math.exp(cosine(texts[i], copies[j]) / temperature) for j in range(count)]
        losses.append(-math.log(scores[i] / sum(scores)))
    found = contrastive(torch.from_numpy(texts), torch.from_numpy(copies), temperature)
    assert float(found) == pytest.approx(sum(losses) / count, rel=1e-4, abs=1e-5)
    scaled = contrastive(torch.from_numpy(texts * 7), torch.from_numpy(copies * 0.3), temperature)
    assert float(scaled) == pytest.approx(float(found), rel=1e-4, abs=1e-5)


def test_a_text_alone_has_nothing_to_be_told_from() -> None:
    assert float(contrastive(torch.ones(1, 3), torch.rand(1, 3), 0.5)) == 0


KINDS = ["Bert", "DistilBert"]


def language_model(tiny: ModuleType, kind: str = "Bert", dropout: float = 0.0) -> Any:
    import transformers

    torch.manual_seed(0)
    size = len(tiny.tokenizer("bert"))
    if kind == "DistilBert":
        options = transformers.DistilBertConfig(
            vocab_size=size, dim=32, n_layers=2, n_heads=4, hidden_dim=48, dropout=dropout, attention_dropout=dropout
        )
    else:
        options = tiny.config(kind, size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return tiny.scaled(getattr(transformers, f"{kind}ForMaskedLM")(options), 3.0)


def gradients(model: Any) -> Any:
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vector", ["first", "flatten"])
def test_the_loss_and_its_gradient_are_those_of_a_loop(
    tiny_models: ModuleType, tokenizer: Any, kind: str, vector: Any
) -> None:
    model = language_model(tiny_models, kind).train()
    _, batch = laid_out(TEXTS, tokenizer)
    figures = SkpObjective(model, vector, 0.2, 0.5, part=64).backward(batch, ("seed", 0))
    found = gradients(model)
    # Naively: text by text, the plain forward pass, every logit.
    model.zero_grad()
    hidden, vectors = [], [[], []]
    width = batch.ids.shape[1]
    for row in range(len(batch)):
        size = int(batch.attention[row].sum())
        text, copy = (model(torch.from_numpy(ids[row : row + 1, :size]), output_hidden_states=True)
                      for ids in (batch.ids, batch.copies))  # fmt: skip
        for place in np.flatnonzero(batch.labels[row] != NOT_A_TARGET):
            hidden.append(-copy.logits[0, place].log_softmax(0)[batch.labels[row, place]])
        for side, output in enumerate((text, copy)):
            states = output.hidden_states[-1][0]
            empty = torch.zeros(width - size, states.shape[1])
            vectors[side].append(states[0] if vector == "first" else torch.cat([states, empty]).flatten())
    apart = []
    for i, text in enumerate(vectors[0]):
        scores = torch.stack([torch.cosine_similarity(text, copy, dim=0) for copy in vectors[1]]) / 0.5
        apart.append(-scores.log_softmax(0)[i])
    expected = torch.stack(hidden).mean() + 0.2 * torch.stack(apart).mean()
    expected.backward()
    assert figures["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert figures["masked"] == pytest.approx(float(torch.stack(hidden).mean().detach()), rel=1e-5)
    assert figures["contrastive"] == pytest.approx(float(torch.stack(apart).mean().detach()), rel=1e-4)
    assert torch.allclose(found, gradients(model), atol=2e-5)


@pytest.mark.parametrize("vector", ["first", "flatten"])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(
    tiny_models: ModuleType, tokenizer: Any, vector: Any
) -> None:  # fmt: skip
    model = language_model(tiny_models).train()
    _, batch = laid_out(TEXTS, tokenizer)
    found = []
    for part in (64, 2, 1):
        model.zero_grad()
        figures = SkpObjective(model, vector, 0.2, 0.5, part).backward(batch, ("seed", 0))
        found.append((figures["loss"], gradients(model)))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert torch.allclose(gradient, found[0][1], atol=2e-5)


def test_dropout_is_that_of_the_step_in_both_passes(tiny_models: ModuleType, tokenizer: Any) -> None:
    model = language_model(tiny_models, dropout=0.3).train()
    _, batch = laid_out(TEXTS, tokenizer)
    found = []
    for seed in (0, 0, 1):
        model.zero_grad()
        torch.rand(seed + 1)
        figures = SkpObjective(model, "first", 0.2, 0.5, part=2).backward(batch, ("seed", seed))
        found.append((figures["loss"], gradients(model)))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][0] != found[2][0]


# -- the training --------------------------------------------------------------------------------------------------

ENTITIES = ["old bridge", "moss", "painter", "river", "town", "stone house", "north side", "year"]
RELATIONS = ["place.built_by", "grows_on", "person.lived_in"]


def toy_graph(count: int = 24) -> Any:
    """Distinct triples of a few entities."""
    triples = [
        (ENTITIES[n % 8], RELATIONS[n % 3], f"{ENTITIES[(n * 3 + 1) % 8]} {n}") for n in range(count)
    ]  # fmt: skip
    corpus = TripleCorpus.of_triples(triples)
    benchmark = Benchmark(DataReference("worlds", "graph", "train"), 1, CARD, [], corpus)
    return graph_of([benchmark], [corpus], ())


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = toy_graph()
    monkeypatch.setattr(skp_training, "load_graph", lambda references, options, allow_test: made)
    return made


@pytest.fixture(scope="module", params=KINDS)
def base(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("base")
    return str(tiny_models.save(folder, "bert", language_model(tiny_models, request.param, dropout=0.1)))


def options(base: str, **changes: Any) -> SkpTrainingConfig:
    given = {"graph": ["worlds/graph:train"], "base": base, "epochs": 2, "batch_size": 8, "part": 4,
             "learning_rate": 1e-3, "save_every": 2, "max_length": 32, "seed": 5, **changes}  # fmt: skip
    return SkpTrainingConfig.model_validate(given)


def train(config: SkpTrainingConfig, folder: Path, progress: Any = None) -> TrainedStage:
    services = Services(config.seed, folder / "artefacts", "cpu")
    workshop = Workshop(folder / "work", folder / "checkpoints", services, progress or Silent())
    [stage] = SkpTraining(config).run(workshop)
    return stage


def curve(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "work" / "train" / "curve.jsonl").read_text().splitlines()]


def test_from_a_graph_to_an_encoder_that_sentence_transformers_loads(graph: Any, base: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    stage = train(options(base), tmp_path)
    assert stage.fresh
    assert stage.data == graph.fingerprints
    assert {name: stage.figures[name] for name in ("steps", "texts", "triples", "texts_left_out")} == {
        "steps": 6, "texts": 24, "triples": 24, "texts_left_out": 0,
    }  # fmt: skip
    model = SentenceTransformer(str(stage.folder), device="cpu")
    inputs = model.tokenizer(["old moss"], return_tensors="pt")
    plain = AutoModel.from_pretrained(stage.folder).eval()(**inputs).last_hidden_state[0, 0]
    before = AutoModel.from_pretrained(base).eval()(**inputs).last_hidden_state[0, 0]
    assert np.allclose(model.encode_query(["old moss"])[0], plain.detach().numpy(), atol=1e-5)
    assert not np.allclose(plain.detach().numpy(), before.detach().numpy(), atol=1e-3)
    assert model.max_seq_length == 32
    assert "SKP" in (stage.folder / "README.md").read_text()
    assert list(stage.folder.glob("*.safetensors"))


@pytest.mark.parametrize(("weight", "name"), [(0.2, "masked"), (20.0, "contrastive")])
def test_training_lowers_the_loss_that_counts(
    graph: Any, tiny_models: ModuleType, tmp_path: Path, weight: float, name: str
) -> None:
    base = str(tiny_models.save(tmp_path / "base", "bert", language_model(tiny_models, "Bert")))
    train(options(base, epochs=40, batch_size=24, part=24, contrastive_weight=weight), tmp_path)
    lines = curve(tmp_path)
    assert lines[-1][name] < 0.8 * lines[0][name]
    assert lines[-1]["loss"] == pytest.approx(lines[-1]["masked"] + weight * lines[-1]["contrastive"], rel=1e-5)


class Cut(Exception):
    """Somebody pulled the plug."""


class CutOff(Silent):
    """Ends the process after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if not self.left:
            raise Cut


@pytest.mark.parametrize("redraw", [False, True])
def test_a_run_that_was_cut_off_ends_with_equal_files(
    graph: Any, base: str, tmp_path: Path, redraw: bool
) -> None:  # fmt: skip
    config = options(base, redraw=redraw)
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
    assert folder_sha256(train(config.model_copy(update={"seed": 6}), tmp_path / "other").folder) != folder_sha256(
        whole.folder
    )


def test_batches_in_smaller_parts_end_with_like_weights(graph: Any, tiny_models: ModuleType, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    base = str(tiny_models.save(tmp_path / "base", "bert", language_model(tiny_models, "Bert")))
    weights = [
        load_file(train(options(base, part=part), tmp_path / str(part)).folder / "model.safetensors") for part in (8, 3)
    ]
    assert all(np.allclose(weights[0][name], weights[1][name], atol=2e-3) for name in weights[0])


def test_a_text_is_hidden_alike_in_every_epoch_unless_redrawn(graph: Any, base: str, tmp_path: Path) -> None:
    for redraw in (False, True):
        workshop = Workshop(tmp_path, tmp_path, Services(device="cpu"))
        job = skp_training._Job(options(base, redraw=redraw), graph, workshop, accelerator("no", "cpu"))
        seen: list[dict[tuple[int, ...], tuple[int, ...]]] = [{}, {}]
        job.objective.backward = lambda batch, seed: {"loss": 0.0, "batch": batch}  # type: ignore[method-assign,dict-item]
        for step in range(2 * job._epoch):
            batch: Any = job._step(step)["batch"]
            for ids, labels in zip(batch.ids, batch.labels, strict=True):
                seen[step // job._epoch][tuple(ids[ids != 0])] = tuple(labels[ids != 0])
        assert len(seen[0]) == len(seen[1]) == 24
        assert (seen[0] == seen[1]) is not redraw


def test_a_subgraph_is_the_triples_of_a_head() -> None:
    triples = [("a", "r", "b"), ("c", "r", "d"), ("a", "x.s", "e"), ("a", "r", "f"), ("c", "r", "c")]
    corpus = TripleCorpus.of_triples(triples)
    graph = graph_of([Benchmark(DataReference("cwq", None, "train"), 1, CARD, [], corpus)], [corpus], ())
    plain = LineariseConfig.model_validate({})
    assert unit_texts(graph, "triple", plain, 16) == ["a r b", "c r d", "a s e", "a r f", "c r c"]
    assert unit_texts(graph, "subgraph", plain, 16) == ["a r b | a s e | a r f", "c r d | c r c"]
    assert unit_texts(graph, "subgraph", plain, 2) == ["a r b | a s e", "c r d | c r c", "a r f"]


def test_triples_that_read_alike_are_one_text() -> None:
    corpus = TripleCorpus.of_triples([("a", "x.r", "b"), ("a", "y.r", "b")])
    graph = graph_of([Benchmark(DataReference("cwq", None, "train"), 1, CARD, [], corpus)], [corpus], ())
    assert unit_texts(graph, "triple", LineariseConfig.model_validate({}), 1) == ["a r b"]


def test_a_base_without_an_encoder_is_refused(graph: Any, tiny_models: ModuleType, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_models.save(tmp_path / "base", "bert", language_model(tiny_models, "Bert"))
    weights = load_file(folder / "model.safetensors")
    head = {name: one for name, one in weights.items() if name.startswith("cls.")}
    assert 0 < len(head) < len(weights)
    save_file(head, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="its encoder is incomplete"):
        train(options(str(folder)), tmp_path)


def test_test_graphs_are_refused_unless_asked_for(tmp_path: Path, data_folder: Path) -> None:
    config = options("minilm", graph=["webqsp:test"])
    with pytest.raises(UserError, match="must not be pretrained on"):
        train(config, tmp_path)


@pytest.mark.slow
def test_minilm_is_pretrained_on_real_triples(data_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    lines = (data_folder / "webqsp" / "rog_style_webqsp.jsonl").read_text("utf-8").splitlines(keepends=True)
    path = tmp_path / "some.jsonl"
    path.write_text("".join(lines[:5]), "utf-8")
    config = SkpTrainingConfig.model_validate(
        {"base": "minilm", "graph": ["webqsp:test"], "graph_options": {"webqsp": {"path": str(path)}},
         "allow_test": True, "epochs": 1, "batch_size": 64, "part": 64, "max_length": 24}
    )  # fmt: skip
    stage = train(config, tmp_path)
    assert stage.figures["texts"] > 40
    assert math.isfinite(stage.figures["loss"])
    vectors = SentenceTransformer(str(stage.folder), device="cpu").encode_document(["Jamaica languages_spoken English"])
    assert vectors.shape == (1, 384)
    assert "test graphs of webqsp:test" in (stage.folder / "README.md").read_text()
