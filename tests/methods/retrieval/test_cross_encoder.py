"""Cross-encoders against plain `CrossEncoder.predict`, and as rerankers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Ranking, Reranker, Services
from methods.models.cross_encoder import PRESETS, CrossEncoderConfig, CrossEncoderModel
from methods.registry import Component
from tests.support.errors import raises

QUERY = "where was the painter born ?"


def make(folder: Path, tiny: ModuleType, kind: str, style: str, labels: int = 1) -> str:
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(tiny.config(kind, 200, num_labels=labels))
    return str(tiny.save(folder, style, tiny.scaled(model, 8.0)))


@pytest.fixture(params=[("Bert", "bert"), pytest.param(("XLMRoberta", "xlmr"), marks=pytest.mark.slow)], ids=["bert", "xlmr"])
def folder(request: pytest.FixtureRequest, tiny_models: ModuleType, tmp_path: Path) -> str:
    return make(tmp_path / "model", tiny_models, *request.param)


@pytest.fixture
def texts(tiny_models: ModuleType) -> list[str]:
    return [*tiny_models.TEXTS, "river " * 100, " ".join(tiny_models.TEXTS), "moss , " * 30]


def plain(folder: str, query: str, texts: list[str], **options: Any) -> np.ndarray:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(folder, device="cpu", **options).predict([(query, text) for text in texts])


@pytest.mark.slow
def test_scores_equal_raw_scores_of_sentence_transformers(folder: str, texts: list[str]) -> None:
    import torch

    expected = plain(folder, QUERY, texts, activation_fn=torch.nn.Identity())
    for budget in (32, 200, 16384):
        model = CrossEncoderModel(CrossEncoderConfig(model=folder, token_budget=budget), "cpu")
        assert model.scores(QUERY, texts) == pytest.approx(expected, abs=1e-4)
    assert np.ptp(expected) > 0.05


def test_sigmoid_is_applied_if_configured(folder: str, texts: list[str]) -> None:
    model = CrossEncoderModel(CrossEncoderConfig(model=folder, activation="sigmoid"), "cpu")
    assert model.scores(QUERY, texts) == pytest.approx(plain(folder, QUERY, texts), abs=1e-5)


def test_pairs_have_segment_ids_if_the_model_uses_them(tiny_models: ModuleType, tmp_path: Path) -> None:
    model = CrossEncoderModel(CrossEncoderConfig(model=make(tmp_path / "m", tiny_models, "Bert", "bert")), "cpu")
    encoded = model._pairs.encoded("old bridge", ["moss"])[0]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_passage_is_truncated_and_a_very_long_query_limited_to_its_share(folder: str) -> None:
    model = CrossEncoderModel(CrossEncoderConfig(model=folder, max_length=40, query_share=0.5), "cpu")
    tokenizer = model._pairs.tokenizer
    words = tokenizer.tokenize
    for query, passage in (("old " * 100, "moss " * 100), ("old bridge", "moss " * 100), ("old " * 100, "moss")):
        cut = model._pairs.cut(query.strip())
        ids = model._pairs.encoded(cut, [passage])[0]["input_ids"]
        assert words(cut) == words(query)[:20]
        assert len(ids) == min(40, len(words(cut)) + len(words(passage)) + tokenizer.num_special_tokens_to_add(True))
        assert words(cut) == [token for token in tokenizer.convert_ids_to_tokens(ids) if token in {"old", "bridge"}]


def test_scores_are_bit_identical_in_any_order_of_passages(folder: str, texts: list[str]) -> None:
    model = CrossEncoderModel(CrossEncoderConfig(model=folder, token_budget=150), "cpu")
    first = model.scores(QUERY, texts)
    order = np.random.default_rng(0).permutation(len(texts))
    assert np.array_equal(model.scores(QUERY, [texts[position] for position in order]), first[order])
    assert np.array_equal(model.scores(QUERY, texts), first)
    twice = model.scores(QUERY, [*texts, *texts])
    assert np.array_equal(twice, np.concatenate([first, first]))
    assert model.scores(QUERY, []).shape == (0,)


def ranking(query: str, corpus: Corpus) -> Ranking:
    return Ranking(query, corpus.ids, tuple(float(-rank) for rank in range(len(corpus))))


@pytest.fixture
def corpus(texts: list[str]) -> Corpus:
    # Two passages with one text each: ties that only the incoming order can decide.
    return Corpus.of(Passage(passage_id("", text, d), "", text, (), d) for text in texts for d in ("a", "b"))


def test_reranking_sorts_by_score_and_keeps_the_order_of_ties(folder: str, corpus: Corpus, texts: list[str]) -> None:
    reranker = Component.of("cross_encoder", {"model": folder}).build(Services(device="cpu"))
    assert isinstance(reranker, Reranker)
    query = Query("q", QUERY)
    value = ranking("q", corpus)
    result = reranker.rerank([query], [value], corpus)[0]
    scores = reranker.model.scores(QUERY, [passage.text for passage in corpus])
    order = sorted(range(len(corpus)), key=lambda row: (-scores[row], row))
    assert result.ids == tuple(corpus.ids[row] for row in order)
    assert result.scores == tuple(sorted(scores, reverse=True))
    backwards = Ranking("q", value.ids[::-1], value.scores)
    mirrored = reranker.rerank([query], [backwards], corpus)[0]
    assert mirrored.scores == result.scores
    assert [set(mirrored.ids[i : i + 2]) for i in range(0, 18, 2)] == [set(result.ids[i : i + 2]) for i in range(0, 18, 2)]


def test_rankings_do_not_depend_on_other_queries(folder: str, corpus: Corpus) -> None:
    reranker = Component.of("cross_encoder", {"model": folder}).build(Services(device="cpu"))
    queries = [Query(str(n), text) for n, text in enumerate([QUERY, "old bridge", "moss " * 80, ""])]
    rankings = [ranking(query.id, corpus).top(3 + 4 * n) for n, query in enumerate(queries)]
    rankings[3] = Ranking("3", (), ())
    together = reranker.rerank(queries, rankings, corpus)
    alone = [reranker.rerank([query], [value], corpus)[0] for query, value in zip(queries, rankings, strict=True)]
    for ours, own in zip(together, alone, strict=True):
        assert ours.ids == own.ids
        assert ours.scores == pytest.approx(own.scores, rel=1e-5, abs=1e-5)
    assert [set(result.ids) for result in together] == [set(value.ids) for value in rankings]


@pytest.mark.slow
def test_candidates_below_the_depth_keep_their_order(folder: str, corpus: Corpus) -> None:
    reranker = Component.of("cross_encoder", {"model": folder, "depth": 5}).build(Services(device="cpu"))
    value = ranking("q", corpus)
    result = reranker.rerank([Query("q", QUERY)], [value], corpus)[0]
    assert set(result.ids[:5]) == set(value.ids[:5])
    assert result.ids[5:] == value.ids[5:]
    assert list(result.scores) == sorted(result.scores, reverse=True)
    assert result.top(5) == reranker.rerank([Query("q", QUERY)], [value.top(5)], corpus)[0]


def test_pipeline_reranks_with_a_cross_encoder(folder: str, ground: Any) -> None:
    from methods.pipeline import assemble

    method = assemble(Component.of("bm25"), Services(device="cpu"), rerankers=[Component.of("cross_encoder", {"model": folder})], k=3)
    method.index(ground.corpus)
    predictions = list(method.answer(question.query() for question in ground.questions[:2]))
    reranker = Component.of("cross_encoder", {"model": folder}).build(Services(device="cpu"))
    for prediction, question in zip(predictions, ground.questions, strict=False):
        passages = ground.corpus.get([item.id for item in prediction.evidence])
        scores = reranker.model.scores(question.text, [passage.full_text for passage in passages])
        assert [item.score for item in prediction.evidence] == pytest.approx(scores.tolist(), abs=1e-5)


@pytest.mark.slow
def test_separate_head_module_loads_as_saved(tiny_models: ModuleType, tmp_path: Path, texts: list[str]) -> None:
    """Uses the layout of SARK's checkpoints: transformer, first token, two dense layers."""
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import BertModel

    torch.manual_seed(0)
    tiny_models.save(tmp_path / "base", "bert", tiny_models.scaled(BertModel(tiny_models.config("Bert", 200)), 8.0))
    modules = [
        Transformer(str(tmp_path / "base")),
        Pooling(32, "cls"),
        Dense(32, 16, activation_function=torch.nn.ReLU()),
        Dense(16, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "head"))
    expected = plain(str(tmp_path / "head"), QUERY, texts, activation_fn=torch.nn.Identity())
    model = CrossEncoderModel(CrossEncoderConfig(model=str(tmp_path / "head")), "cpu")
    assert model.scores(QUERY, texts) == pytest.approx(expected, abs=1e-4)
    assert np.ptp(expected) > 0.01


def test_low_precision_scores_are_close(folder: str, texts: list[str]) -> None:
    full, half = (
        CrossEncoderModel(CrossEncoderConfig(model=folder, dtype=dtype), "cpu").scores(QUERY, texts) for dtype in ("float32", "bfloat16")
    )
    assert not np.array_equal(full, half)
    assert np.abs(full - half).max() < 0.1 * np.ptp(full)


def test_presets_name_the_published_models() -> None:
    named = {name: Component.of("cross_encoder", {"preset": name}).config.model for name in PRESETS}  # type: ignore[attr-defined]
    assert named == {
        "bge-reranker-base": "BAAI/bge-reranker-base",
        "bge-reranker-large": "BAAI/bge-reranker-large",
        "bge-reranker-v2-m3": "BAAI/bge-reranker-v2-m3",
        "minilm-l6": "cross-encoder/ms-marco-MiniLM-L6-v2",
        "minilm-l12": "cross-encoder/ms-marco-MiniLM-L12-v2",
        "mgte": "Alibaba-NLP/gte-multilingual-reranker-base",
    }


def test_unsuitable_models_are_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    with raises("untrusted-model-code"):
        Component.of("cross_encoder", {"preset": "mgte"}).preflight()
    three = make(tmp_path / "three", tiny_models, "Bert", "bert", labels=3)
    with raises("wrong-score-count"):
        CrossEncoderModel(CrossEncoderConfig(model=three), "cpu")
    with raises("no-model-folder"):
        Component.of("cross_encoder", {"model": str(tmp_path / "nowhere")}).preflight()


def test_nan_scores_are_an_error(folder: str) -> None:
    import torch

    model = CrossEncoderModel(CrossEncoderConfig(model=folder), "cpu")
    with torch.no_grad():
        next(model._model.parameters()).fill_(float("inf"))
    with raises("weights-not-finite"):
        model.scores(QUERY, ["moss"])


def test_changed_options_change_the_fingerprint(folder: str) -> None:
    base = Component.of("cross_encoder", {"model": folder})
    assert base.fingerprint == Component.of("cross_encoder", {"model": folder}).fingerprint
    assert base.fingerprint != Component.of("cross_encoder", {"model": folder, "depth": 50}).fingerprint


CHAT = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}[ answer ]"


def generative(folder: Path, tiny: ModuleType, template: str | None, prompt: str | None) -> str:
    """Save a language model that scores pairs by two tokens, in the layout of Qwen3-Reranker."""
    import torch
    import transformers
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    torch.manual_seed(0)
    tokens = tiny.tokenizer("qwen3", length=90)
    tokens.chat_template = template
    model = tiny.scaled(transformers.Qwen3ForCausalLM(tiny.config("Qwen3", len(tokens), num_key_value_heads=2, head_dim=8)))
    for part in (model, tokens):
        part.save_pretrained(folder / "language model")
    modules = [Transformer(str(folder / "language model"), transformer_task="text-generation"), LogitScore(10, 11)]
    named = {"prompts": {"task": prompt}, "default_prompt_name": "task"} if prompt else {}
    CrossEncoder(modules=modules, device="cpu", **named).save_pretrained(str(folder / "reranker"))
    return str(folder / "reranker")


@pytest.mark.parametrize("prompt", [None, "given a search query retrieve passages"])
@pytest.mark.parametrize("template", [None, CHAT])
def test_chat_template_and_prompt_of_a_reranker_are_in_its_input(
    template: str | None, prompt: str | None, tiny_models: ModuleType, tmp_path: Path
) -> None:
    import torch

    folder = generative(tmp_path, tiny_models, template, prompt)
    texts = [*tiny_models.TEXTS, "river stone " * 5]
    for budget in (90, 16384):
        model = CrossEncoderModel(CrossEncoderConfig(model=folder, token_budget=budget), "cpu")
        expected = plain(folder, QUERY, texts, activation_fn=torch.nn.Identity())
        assert model.scores(QUERY, texts) == pytest.approx(expected, abs=1e-4)
    hashed = CrossEncoderConfig(model=folder).checkpoint_hash()
    assert hashed.endswith("-r") == bool(template or prompt)


def test_rendered_pair_keeps_the_end_of_its_template_and_the_query(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = generative(tmp_path, tiny_models, CHAT, "given a search query")
    model = CrossEncoderModel(CrossEncoderConfig(model=folder, max_length=48), "cpu")
    tokenizer = model._pairs.tokenizer
    (pair,) = model._pairs.encoded(model._pairs.cut(QUERY), ["river " * 100])
    text = tokenizer.decode(pair["input_ids"])
    assert len(pair["input_ids"]) == 48
    assert "painter born" in text
    assert "[ answer ]" in text
    assert model.truncation(["river " * 100])["truncated"] == 1
    with raises("no-room-for-pair"):
        CrossEncoderModel(CrossEncoderConfig(model=generative(tmp_path / "b", tiny_models, CHAT, "moss " * 60), max_length=48), "cpu")


def test_pair_longer_than_the_positions_is_cut_without_a_limit_of_the_tokenizer(tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    options = {"num_labels": 1, "pad_token_id": 1, "type_vocab_size": 1}
    model = transformers.RobertaForSequenceClassification(tiny_models.config("Roberta", 200, **options))
    folder = tiny_models.save(tmp_path, "xlmr", model, length=10**30)
    assert len(CrossEncoderModel(CrossEncoderConfig(model=str(folder)), "cpu").scores(QUERY, ["moss " * 300])) == 1


@pytest.mark.parametrize("base", ["BertModel", "BertForSequenceClassification"])
@pytest.mark.parametrize("saved", [None, ["classifier"]])
def test_adapter_of_a_reranker_needs_a_head_of_its_own_or_of_its_base(
    saved: list[str] | None, base: str, tiny_models: ModuleType, tmp_path: Path
) -> None:
    import torch
    import transformers
    from peft import LoraConfig
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    labels = {"num_labels": 1} if base.endswith("Classification") else {}
    tiny_models.save(tmp_path / "base", "bert", tiny_models.scaled(getattr(transformers, base)(tiny_models.config("Bert", 200, **labels))))
    trained = CrossEncoder(str(tmp_path / "base"), num_labels=1, device="cpu")
    trained.add_adapter(LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=saved))
    for weight in trained.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    trained.save_pretrained(str(tmp_path / "adapter"))
    config = CrossEncoderConfig(model=str(tmp_path / "adapter"))
    if saved or labels:
        expected = trained.predict([(QUERY, text) for text in tiny_models.TEXTS], activation_fn=torch.nn.Identity())
        assert CrossEncoderModel(config, "cpu").scores(QUERY, tiny_models.TEXTS) == pytest.approx(expected, abs=1e-5)
    else:
        with raises("random-weights"):
            CrossEncoderModel(config, "cpu")
