"""The hybrid over triples against a naive one, the training of its cross-encoder, and refused inputs."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import registry
from benchmarks.core.fingerprint import folder_sha256
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, Triple, triple_id
from methods.api import Ranking, Retriever, Services
from methods.baselines.graph.bm25 import relation_words, verbalized
from methods.baselines.graph.cross_encoder import BACKFILLED_FROM, GraphHybridConfig, GraphHybridIndex
from methods.baselines.graph.cross_encoder_training import (
    GraphCrossEncoderTraining,
    GraphCrossEncoderTrainingConfig,
    cross_encoder,
    groups,
    load_graphs,
    questions_of,
)
from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.registry import Component
from methods.training import Silent, TrainedStage, TrainingContext
from methods.training.contrast import Group, GroupObjective
from results.store import checkpoints
from tests.support.errors import raises

torch = pytest.importorskip("torch")
TRIPLES: list[Triple] = [(f"e{n % 5}", f"r{n % 3}.x_y", f"e{n}") for n in range(24)]
CORPUS = TripleCorpus.of_triples(TRIPLES)
IDS = [triple_id(triple) for triple in TRIPLES]


def texts_of(triples: Iterable[Triple]) -> set[str]:
    return {f"{head} {relation_words(relation)} {tail}" for head, relation, tail in triples}


class Scripted:
    """Index with a fixed order, and cross-encoder with fixed scores."""

    device = "cpu"

    def __init__(self, order: Sequence[int], scores: Sequence[float]) -> None:
        self.order, self.by_text = order, dict(zip(verbalized(CORPUS.triples), scores, strict=True))

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        results = []
        for query in queries:
            ids = [IDS[row] for row in self.order if query.candidates is None or IDS[row] in query.candidates][:k]
            results.append(Ranking(query.id, tuple(ids), tuple(-float(position) for position in range(len(ids)))))
        return results

    def scores(self, query: str, texts: Sequence[str]) -> Any:
        assert query == "the question"
        return np.array([self.by_text[text] for text in texts], dtype=np.float64)


ORDER = st.permutations(range(len(TRIPLES)))
SCORES = st.lists(st.sampled_from([0.0, 1.0, 2.0, -3.5]), min_size=len(TRIPLES), max_size=len(TRIPLES))


@pytest.mark.slow
@given(
    sparse=ORDER,
    dense=ORDER,
    scores=SCORES,
    depths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    graph=st.none() | st.sets(st.integers(0, len(TRIPLES) - 1)),
    k=st.integers(0, 26),
    cut=st.none() | st.integers(1, 12),
)
def test_ranking_equals_a_naive_hybrid(
    sparse: list[int], dense: list[int], scores: list[float], depths: tuple[int, int], graph: set[int] | None, k: int, cut: int | None
) -> None:
    model = Scripted(sparse, scores)
    config = GraphHybridConfig(sparse_depth=depths[0], dense_depth=depths[1], merge="rrf" if cut else "union", rrf_depth=cut or 1)
    index = GraphHybridIndex(config, CORPUS, model, model, Scripted(dense, scores))  # type: ignore[arg-type]
    candidates = None if graph is None else tuple(IDS[row] for row in sorted(graph))
    ranking = index.retrieve([Query("q", "the question", candidates=candidates)], k)[0]

    pool = [row for row in sparse if graph is None or row in graph]
    first, second = pool[: depths[0]], [row for row in dense if graph is None or row in graph][: depths[1]]
    fused = Counter(dict.fromkeys((*first, *second), 0.0))
    for results in (first, second):
        for rank, row in enumerate(results, 1):
            fused[row] += 1 / (60 + rank)
    read = sorted(fused, key=lambda row: (-fused[row], row))[:cut] if cut else list(fused)
    # Over a whole corpus BM25's order is known as far as it was asked for; behind that, that of the corpus holds.
    known = pool if graph is not None else first
    rank_of = {row: position for position, row in enumerate(known)}
    expected = sorted(read, key=lambda row: (-scores[row], rank_of.get(row, len(known)), row))[:k]
    filled = [row for row in pool if row not in read][: k - len(expected)]
    assert ranking.ids == tuple(IDS[row] for row in (*expected, *filled))
    assert list(ranking.scores[: len(expected)]) == [scores[row] for row in expected]
    assert list(ranking.scores) == sorted(ranking.scores, reverse=True)
    assert ranking.notes.get(BACKFILLED_FROM) == (len(expected) if filled else None)
    for shorter in range(k):
        cut_off = index.retrieve([Query("q", "the question", candidates=candidates)], shorter)[0]
        assert cut_off.ids == ranking.ids[:shorter]
        assert cut_off.scores == ranking.scores[:shorter]


OPTIONS = {"worlds": {"questions": 16, "triples": 120}}


@pytest.fixture(scope="module")
def worlds() -> list[registry.Benchmark]:
    return load_graphs(["worlds/graph:train"], OPTIONS, train=True)


def test_group_has_one_reasoning_triple_and_negatives_of_the_same_graph(worlds: list[registry.Benchmark]) -> None:
    [benchmark] = worlds
    queries, without = questions_of(worlds, 20)
    assert (len(queries), without) == (16, 0)
    proofs = {question.text: texts_of(question.triples) for question in benchmark.questions}
    graphs = {question.text: texts_of(benchmark.extra["graphs"][question.id]) for question in benchmark.questions}
    for hard in (0, 3, 7):
        rows = groups(queries, 7, hard, 5, 0)
        assert Counter((row.question, row.texts[0]) for row in rows) == Counter(
            (question, text) for question, texts in proofs.items() for text in texts
        )
        for row in rows:
            right, *wrong = row.texts
            assert right in proofs[row.question]
            assert len(wrong) == len(set(wrong)) == 7
            assert not set(wrong) & proofs[row.question]
            assert set(wrong) <= graphs[row.question]
    assert groups(queries, 7, 3, 5, 0) == groups(queries, 7, 3, 5, 0) != groups(queries, 7, 3, 5, 1)


def test_hard_triples_share_more_words_with_the_question(worlds: list[registry.Benchmark]) -> None:
    query, _ = questions_of(worlds, 20)

    def shared(rows: list[Group]) -> float:
        pairs = [(row.question, text) for row in rows for text in row.texts[1:]]
        return float(np.mean([len(set(item.lower().split()) & set(other.lower().split())) for item, other in pairs]))

    assert shared(groups(query, 6, 6, 1)) > 2 * shared(groups(query, 6, 0, 1))


def test_test_validation_and_non_graph_data_are_refused_for_training(data_folder: Path) -> None:
    with raises("test-split"):
        load_graphs(["webqsp:test"], {"webqsp": {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")}}, train=True)
    with raises("seed-of-other-split"):
        load_graphs(["worlds/graph:validation"], OPTIONS, train=True)
    with raises("no-graphs"):
        load_graphs(["worlds/multihop:train"], {"worlds": {"questions": 4}}, train=True)


def test_questions_without_reasoning_triples_are_refused(data_folder: Path) -> None:
    real = registry.load("webqsp:test", {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")})
    with raises("no-question-with-triples"):
        questions_of([real.limited(5)], 5)


@pytest.fixture(scope="module")
def base(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer("bert"))))
    return str(tiny_models.save(tmp_path_factory.mktemp("base"), "bert", model))


def options(base: str, **changes: Any) -> GraphCrossEncoderTrainingConfig:
    return GraphCrossEncoderTrainingConfig.model_validate(
        {
            "data_options": OPTIONS,
            "base": base,
            "max_length": 64,
            "epochs": 1,
            "batch_size": 8,
            "part": 16,
            "learning_rate": 1e-3,
            "save_every": 2,
            "seed": 5,
            **changes,
        }
    )


GROUPS = [
    Group("who built the old bridge ?", ("bridge built by painter", "moss grows on stone", "river is long")),
    Group("where is moss ?", ("moss grows on stone", "town built by river")),
    Group("old ?", ("a cold cabin",)),
    Group("where was the painter born ?", ("painter born in town", "a", "painter lived in cabin", "moss")),
]


def gradients(model: Any) -> Any:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("part", [1, 4, 64])
def test_loss_and_gradient_equal_a_naive_loop(base: str, part: int) -> None:
    model = cross_encoder(options(base), "cpu").eval()
    loss = GroupObjective(model, part).backward(GROUPS, ("seed", 0))
    result = gradients(model)
    model.zero_grad()
    losses = []
    for group in GROUPS:
        scores = []
        for text in group.texts:
            features = model.tokenizer(group.question, text, return_tensors="pt")
            scores.append(model(dict(features))["scores"].flatten()[0])
        losses.append(-torch.stack(scores).log_softmax(0)[0])
    expected = torch.stack(losses).mean()
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert torch.allclose(result, gradients(model), atol=1e-5)
    assert losses[2] == 0


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


def train(config: GraphCrossEncoderTrainingConfig, folder: Path, progress: Any = None) -> TrainedStage:
    context = TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), progress or Silent())
    [stage] = GraphCrossEncoderTraining(config).run(context)
    return stage


@pytest.fixture(scope="module")
def trained(base: str, tmp_path_factory: pytest.TempPathFactory) -> TrainedStage:
    """Write a checkpoint with its card, like `ragmeter train`."""
    config = options(base, validation=["worlds/graph:validation"], validation_options=OPTIONS)
    stage = train(config, tmp_path_factory.mktemp("trained"))
    checkpoints.describe(
        stage.folder,
        method="graph_cross_encoder",
        stage=stage.stage,
        version=1,
        config=config.model_dump(mode="json"),
        parents=[],
        data=stage.data,
    )
    return stage


def test_checkpoint_loads_as_a_sentence_transformers_cross_encoder(trained: TrainedStage, base: str) -> None:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(trained.folder), device="cpu")
    assert model.num_labels == 1
    assert model.max_seq_length == 64
    scores = model.predict([("who built the bridge ?", "bridge built by painter")])
    assert scores.shape == (1,)
    assert 0 <= trained.figures["validation_triple_recall@10"] <= 1
    assert trained.figures["questions"] == 16
    assert "hybrid[worlds-ce]" in (trained.folder / "README.md").read_text()


@pytest.mark.slow
def test_interrupted_run_ends_with_identical_files(base: str, tmp_path: Path) -> None:
    config = options(base)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Cut):
        train(config, tmp_path / "cut", CutOff(3))
    resumed = train(config, tmp_path / "cut")
    assert folder_sha256(resumed.folder) == folder_sha256(whole.folder)
    assert not train(config, tmp_path / "cut").fresh
    other = train(options(base, seed=6), tmp_path / "other")
    assert folder_sha256(other.folder) != folder_sha256(whole.folder)


def hybrid(model: str, dense: str, **config: Any) -> Component:
    return Component.of("graph_hybrid", {"model": model, "dense": {"id": "two_tower", "config": {"model": dense}}, **config})


def test_untrained_cross_encoder_is_refused(base: str, tmp_path: Path) -> None:
    untrained = cross_encoder(options(base), "cpu")
    untrained.save_pretrained(str(tmp_path / "untrained"))
    for model in (str(tmp_path / "untrained"), base, "minilm"):
        for refused in (hybrid(model, base).preflight, lambda model=model: hybrid(model, base).build(Services())):
            with raises("training-data-unstated"):
                refused()
    for model, code in ((base, "not-cross-encoder"), ("minilm", "random-weights")):
        with raises(code):
            hybrid(model, base, published=True).build(Services(device="cpu"))


def test_trained_cross_encoder_passes_preflight(trained: TrainedStage, base: str) -> None:
    hybrid(str(trained.folder), base).preflight()
    assert isinstance(hybrid(str(trained.folder), base).build(Services(device="cpu")), Retriever)


def test_head_may_be_a_separate_module(base: str, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(0)
    modules = [Transformer(base), Pooling(32, pooling_mode="cls"), Dense(32, 1, module_output_name="scores")]
    folder = tmp_path / "modules"
    CrossEncoder(modules=modules, num_labels=1, device="cpu").save_pretrained(str(folder))
    assert len(CrossEncoderModel(CrossEncoderConfig(model=str(folder)), "cpu").scores("stone", ["a river", "moss"])) == 2


def test_local_copy_of_a_published_cross_encoder_is_accepted(trained: TrainedStage, base: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.folder, copy)
    (copy / checkpoints.CARD).unlink()
    with raises("training-data-unstated"):
        hybrid(str(copy), base).preflight()
    hybrid(str(copy), base, published=True).preflight()


@pytest.mark.slow
def test_triples_are_ordered_by_plain_cross_encoder_predictions(
    trained: TrainedStage, base: str, worlds: list[registry.Benchmark], tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    [benchmark] = worlds
    queries = [question.query() for question in benchmark.questions[:3]]
    retriever = hybrid(str(trained.folder), base, sparse_depth=200, dense_depth=1).build(Services(artifacts=tmp_path, device="cpu"))
    rankings = retriever.index(benchmark.corpus).retrieve(queries, 30)
    plain = CrossEncoder(str(trained.folder), device="cpu")
    for query, ranking in zip(queries, rankings, strict=True):
        rows = benchmark.corpus.rows_of(query.candidates)
        texts = verbalized(benchmark.corpus.triples, rows)
        scores = plain.predict([(query.text, text) for text in texts], activation_fn=torch.nn.Identity())
        assert ranking.scores == pytest.approx(np.sort(scores)[::-1][:30], abs=1e-4)
        assert set(ranking.ids) <= set(query.candidates or ())
        assert retriever.index(benchmark.corpus).retrieve([query], 30)[0] == ranking


@pytest.mark.slow
def test_training_and_ranking_work_on_real_records(trained: TrainedStage, data_folder: Path, tmp_path: Path) -> None:
    path = str(data_folder / "cwq" / "rog_style_cwq.jsonl")
    benchmark = registry.load("cwq:test", {"path": path})
    component = hybrid(str(trained.folder), "minilm")
    index = component.build(Services(artifacts=tmp_path, device="cpu")).index(benchmark.corpus)
    questions = benchmark.questions[:20]
    for question, ranking in zip(questions, index.retrieve([q.query() for q in questions], 10), strict=True):
        assert len(ranking.ids) == min(10, len(question.candidates or ()))
        assert all(math.isfinite(score) for score in ranking.scores)
