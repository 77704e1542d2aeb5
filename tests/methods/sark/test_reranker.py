"""A checkpoint of SARK as a reranker: its rankings and refused models."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.core.fingerprint import CHECKPOINT_CARD
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Ranking, Reranker, Services
from methods.registry import METHODS, Component
from methods.sark.config import SarkTrainingConfig
from methods.sark.model import new_reranker, save
from results.store.checkpoints import describe
from tests.support.errors import raises

torch = pytest.importorskip("torch")

QUERY = Query("q", "where was the painter born ?")


def checkpoint(folder: Path, base: str, seed: int = 1, head: str = "paper") -> str:
    """Save an untrained model with a card, like `ragmeter train`."""
    config = SarkTrainingConfig.model_validate(
        {"data": ["worlds/style:train"], "base": base, "seed": seed, "model": {"max_length": 64, "head": head}}
    )
    save(new_reranker(config, "cpu"), folder)
    describe(folder, method="sark", stage="reranker", version=1, config=config.model_dump(mode="json"), parents=(), data=("toy",))
    return str(folder)


@pytest.fixture(scope="module")
def base(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    import transformers

    torch.manual_seed(0)
    model = transformers.XLMRobertaModel(tiny_models.config("XLMRoberta", len(tiny_models.tokenizer("xlmr"))))
    return str(tiny_models.save(tmp_path_factory.mktemp("base"), "xlmr", tiny_models.scaled(model)))


@pytest.fixture(scope="module")
def folder(base: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint(tmp_path_factory.mktemp("trained") / "reranker", base)


@pytest.fixture
def corpus(tiny_models: ModuleType) -> Corpus:
    texts = [*tiny_models.TEXTS, "river " * 100, " ".join(tiny_models.TEXTS)]
    titled = [("stone", "the old bridge was built by the river"), ("", "moss")]
    return Corpus.of(Passage(passage_id(t, text), t, text) for t, text in [*titled, *(("", text) for text in texts)])


def ranking(corpus: Corpus, ids: tuple[str, ...] | None = None) -> Ranking:
    ids = corpus.ids if ids is None else ids
    return Ranking("q", ids, tuple(float(-rank) for rank in range(len(ids))))


def test_ranking_equals_plain_cross_encoder_on_passages_with_titles(folder: str, corpus: Corpus) -> None:
    from sentence_transformers import CrossEncoder

    reranker = Component.of("sark", {"model": folder}).build(Services(device="cpu"))
    assert isinstance(reranker, Reranker)
    result = reranker.rerank([QUERY], [ranking(corpus)], corpus)[0]
    plain = CrossEncoder(folder, device="cpu")
    texts = [passage.full_text for passage in corpus.get(corpus.ids)]
    scores = plain.predict([(QUERY.text, text) for text in texts], activation_fn=torch.nn.Identity())
    assert np.ptp(scores) > 1e-3
    by_id = dict(zip(corpus.ids, scores.tolist(), strict=True))
    assert result.scores == pytest.approx([by_id[identifier] for identifier in result.ids], abs=1e-4)
    assert list(result.scores) == sorted(result.scores, reverse=True)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_output_is_a_permutation_of_any_number_of_candidates(folder: str, corpus: Corpus, count: int) -> None:
    reranker = Component.of("sark", {"model": folder}).build(Services(device="cpu"))
    result = reranker.rerank([QUERY], [ranking(corpus, corpus.ids[:count])], corpus)[0]
    assert sorted(result.ids) == sorted(corpus.ids[:count])


def test_scores_depend_neither_on_the_order_of_candidates_nor_on_the_budget(folder: str, corpus: Corpus) -> None:
    results = []
    for budget, ids in ((16384, corpus.ids), (64, corpus.ids), (16384, corpus.ids[::-1])):
        reranker = Component.of("sark", {"model": folder, "token_budget": budget}).build(Services(device="cpu"))
        ranked = reranker.rerank([QUERY], [ranking(corpus, ids)], corpus)[0]
        results.append(dict(zip(ranked.ids, ranked.scores, strict=True)))
    assert results[0] == results[2]
    assert results[0] == pytest.approx(results[1], abs=1e-5)


def test_model_with_the_official_head_can_rank(base: str, corpus: Corpus, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "official", base, head="official")
    reranker = Component.of("sark", {"model": model}).build(Services(device="cpu"))
    assert len(reranker.rerank([QUERY], [ranking(corpus)], corpus)[0].ids) == len(corpus)


def test_changed_checkpoint_changes_the_fingerprint(folder: str, base: str, tmp_path: Path) -> None:
    entry = METHODS.get("sark")
    other = checkpoint(tmp_path / "other", base, seed=2)
    first, second = (Component.of("sark", {"model": item}) for item in (folder, other))
    assert first.fingerprint != second.fingerprint
    assert entry.checkpoint_hash is not None
    card = json.loads((Path(folder) / CHECKPOINT_CARD).read_text())
    assert entry.checkpoint_hash(first.config) == card["sha256"]


def test_model_not_trained_by_sark_is_refused(base: str, tmp_path: Path) -> None:
    Component.of("sark", {"model": checkpoint(tmp_path / "fine", base)}).preflight()
    with raises("not-checkpoint-sark") as caught:
        Component.of("sark", {"model": base}).preflight()
    assert "ragmeter train sark" in str(caught.value)
    foreign = tmp_path / "foreign"
    checkpoint(foreign, base)
    card = json.loads((foreign / CHECKPOINT_CARD).read_text())
    (foreign / CHECKPOINT_CARD).write_text(json.dumps({**card, "method": "ark"}))
    with raises("not-checkpoint-sark"):
        Component.of("sark", {"model": str(foreign)}).preflight()


def test_model_option_is_required() -> None:
    with pytest.raises(ValidationError, match="model"):
        Component.of("sark", {})
