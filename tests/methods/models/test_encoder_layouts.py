"""Folders of sentence-transformers as people publish them: prompts by other names, similarity, routers, tables of positions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from methods.models.checks import missing_options
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig

pytest.importorskip("sentence_transformers")

NORMALIZE = ("2_Normalize", "Normalize", {})


def made(folder: Path, tiny: ModuleType, *modules: Any, prompts: dict[str, str] | None = None, **settings: Any) -> str:
    import torch
    import transformers

    torch.manual_seed(0)
    tiny.save(folder, "bert", tiny.scaled(transformers.BertModel(tiny.config("Bert", 200))))
    tiny.layout(folder, 48, list(modules) or [tiny.pooling("mean")], prompts or {})
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | settings), "utf-8")
    return str(folder)


def encoder(folder: str, **options: Any) -> Encoder:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Encoder(EncoderConfig(model=folder, normalize=False, **options), "cpu")


@pytest.mark.parametrize("mode", ["mean", "lasttoken"])
@pytest.mark.parametrize("name", ["document", "passage", "corpus"])
def test_prompt_of_passages_is_used_under_each_of_its_names(name: str, mode: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "query : ", name: "passage : "}
    folder = made(tmp_path / "model", tiny_models, tiny_models.pooling(mode), prompts=prompts)
    texts = tiny_models.TEXTS
    reference = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(encoder(folder).queries(texts), reference.encode(texts, prompt_name="query"), atol=1e-5)
    np.testing.assert_allclose(encoder(folder).passages(texts), reference.encode(texts, prompt_name=name), atol=1e-5)
    np.testing.assert_allclose(encoder(folder, passage_prompt="").passages(texts), reference.encode(texts, prompt=""), atol=1e-5)
    again = made(tmp_path / "again", tiny_models, tiny_models.pooling(mode), prompts={**prompts, "document": prompts.get("document", "")})
    np.testing.assert_allclose(encoder(again).passages(texts), reference.encode(texts, prompt_name=name), atol=1e-5)


def test_vectors_and_runs_without_the_prompt_are_not_reused(tiny_models: ModuleType, tmp_path: Path) -> None:
    late = made(tmp_path / "late", tiny_models, prompts={"query": "query : ", "passage": "passage : "})
    usual = made(tmp_path / "usual", tiny_models, prompts={"query": "query : ", "document": "passage : "})
    stated = {"passage_prompt": "passage : "}
    assert EncoderConfig(model=late).checkpoint_hash() == EncoderConfig(model=late, **stated).checkpoint_hash() + "-p"
    assert EncoderConfig(model=usual).checkpoint_hash() == EncoderConfig(model=usual, **stated).checkpoint_hash()
    assert EncoderConfig(model="owner/name").checkpoint_hash() == EncoderConfig(model="owner/name", **stated).checkpoint_hash() + "-p"
    assert encoder(late).passage_fingerprint == encoder(late, **stated).passage_fingerprint
    assert encoder(usual).passage_fingerprint != encoder(usual, **stated).passage_fingerprint


@pytest.mark.parametrize(
    ("prompts", "settings", "expected"),
    [
        ({"search_query": "q : ", "search_document": "d : "}, {}, {"query_prompt": "q : ", "passage_prompt": "d : "}),
        ({"s2p_query": "q : ", "s2s_query": "s : "}, {}, {"query_prompt": "q : "}),
        ({"retrieval": "q : "}, {"default_prompt_name": "retrieval"}, {"query_prompt": "q : "}),
        ({"query": "q : ", "passage": "d : ", "Classification": "c : "}, {}, {}),
        ({"query": "q : ", "document": "", "STS": "s : "}, {}, {}),
        ({}, {"similarity_fn_name": "dot"}, {"normalize": False}),
        ({}, {"similarity_fn_name": "cosine"}, {}),
    ],
)
def test_settings_of_the_files_that_are_not_applied_are_named(
    prompts: dict[str, str], settings: dict[str, Any], expected: dict[str, Any], tiny_models: ModuleType, tmp_path: Path
) -> None:
    folder = made(tmp_path / "model", tiny_models, prompts=prompts, **settings)
    options = ", ".join(f"{key}: {json.dumps(value)}" for key, value in expected.items())
    assert missing_options(EncoderConfig(model=folder)) == ((None, options) if expected else None)
    assert missing_options(EncoderConfig(model=folder, query_prompt="", passage_prompt="", normalize=True)) is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notes = Encoder(EncoderConfig(model=folder), "cpu").notes
    assert [options in str(warning.message) for warning in caught if warning.category is UserWarning] == [True] * bool(expected)
    assert notes.get("preset") == ({"name": None, "options": options, "model": folder} if expected else None)


def test_inner_product_of_vectors_that_the_model_scales_is_the_cosine(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = made(tmp_path / "model", tiny_models, tiny_models.pooling("mean"), NORMALIZE, similarity_fn_name="dot")
    assert missing_options(EncoderConfig(model=folder)) is None


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_distance_of_another_order_than_the_cosine_is_refused_unless_normalize_is_set(
    name: str, tiny_models: ModuleType, tmp_path: Path
) -> None:
    folder = made(tmp_path / "model", tiny_models, similarity_fn_name=name)
    with pytest.raises(UserError) as caught:
        Encoder(EncoderConfig(model=folder), "cpu")
    assert caught.value.code == "unsupported-similarity"
    for normalize in (True, False):
        Encoder(EncoderConfig(model=folder, normalize=normalize), "cpu")
    scaled = made(tmp_path / "scaled", tiny_models, tiny_models.pooling("mean"), NORMALIZE, similarity_fn_name=name)
    if name == "euclidean":  # of vectors of length 1, it orders like the cosine
        Encoder(EncoderConfig(model=scaled), "cpu")
    else:
        with pytest.raises(UserError):
            Encoder(EncoderConfig(model=scaled), "cpu")


@pytest.mark.parametrize("side", ["left", "right"])
def test_models_with_a_table_of_positions_by_another_name_read_batches(side: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=4, n_positions=40, bos_token_id=0, eos_token_id=0)
    tiny_models.scaled(transformers.GPT2Model(config)).save_pretrained(tmp_path)
    tokens = tiny_models.tokenizer("qwen3", 10**30)
    tokens.padding_side = side
    tokens.save_pretrained(tmp_path)
    tiny_models.layout(tmp_path, 64, [tiny_models.pooling("lasttoken")], {})
    texts = [*tiny_models.TEXTS, "moss " * 90]
    model = encoder(str(tmp_path))
    alone = np.concatenate([model.passages([text]) for text in texts])
    np.testing.assert_allclose(model.passages(texts), alone, atol=1e-4)


def test_each_side_of_a_router_reads_up_to_its_own_length(tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    sides = []
    for seed, positions in enumerate((24, 80)):
        torch.manual_seed(seed)
        model = transformers.BertModel(tiny_models.config("Bert", 200, max_position_embeddings=positions))
        tiny_models.save(tmp_path / str(seed), "bert", tiny_models.scaled(model), length=10**6)
        sides.append([Transformer(str(tmp_path / str(seed))), Pooling(32, "mean")])
    router = Router.for_query_document(query_modules=sides[0], document_modules=sides[1])
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path / "router"))
    texts = [*tiny_models.TEXTS, "moss grows on the north " * 12]
    reference = SentenceTransformer(str(tmp_path / "router"), device="cpu")
    routed = encoder(str(tmp_path / "router"))
    np.testing.assert_allclose(routed.passages(texts), reference.encode_document(texts), atol=1e-5)
    np.testing.assert_allclose(routed.queries(texts), reference.encode_query(texts), atol=1e-5)
    short = encoder(str(tmp_path / "router"), max_length=30)
    np.testing.assert_allclose(short.passages(["moss " * 60]), short.passages(["moss " * 28]), atol=1e-5)


def test_sparse_encoder_uses_a_prompt_named_passage(tiny_models: ModuleType, tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    from methods.retrieval.splade import SpladeConfig, SpladeEncoder

    tiny_models.save(tmp_path / "plain", "bert", tiny_models.masked_language_model())
    prompts = {"query": "query : ", "passage": "passage : "}
    reference = SparseEncoder(str(tmp_path / "plain"), device="cpu", prompts=prompts)
    reference.save_pretrained(str(tmp_path / "model"))
    sparse = SpladeEncoder(SpladeConfig(model=str(tmp_path / "model")), "cpu")
    rows, terms, weights = sparse.passages(tiny_models.TEXTS)
    vectors = np.zeros((len(tiny_models.TEXTS), sparse.terms))
    vectors[rows, terms] = weights
    expected = reference.encode(tiny_models.TEXTS, prompt_name="passage", convert_to_sparse_tensor=False)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)


def test_late_interaction_uses_a_prompt_named_passage(tiny_models: ModuleType, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    from methods.models.late_interaction import LateInteraction, LateInteractionConfig

    reference = MultiVectorEncoder(str(tiny_models.colbert(tmp_path / "plain")), device="cpu")
    reference.prompts = {"query": "query : ", "document": "", "passage": "passage : "}
    reference.save_pretrained(str(tmp_path / "model"))
    late = LateInteraction(LateInteractionConfig(model=str(tmp_path / "model")), "cpu")
    expected = reference.encode_document(tiny_models.TEXTS, prompt="passage : ")
    for ours, theirs in zip(late.passages(tiny_models.TEXTS), expected, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), atol=1e-5)


def test_texts_longer_than_the_positions_are_cut_without_a_limit_of_the_tokenizer(tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    import transformers

    from methods.models.nli import NliConfig, NliModel
    from methods.retrieval.splade import SpladeConfig, SpladeEncoder

    torch.manual_seed(0)
    config = {"pad_token_id": 1, "type_vocab_size": 1}
    labels = {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}, "num_labels": 3}
    sparse, classifier = (
        tiny_models.save(
            tmp_path / kind, "xlmr", getattr(transformers, f"Roberta{kind}")(tiny_models.config("Roberta", 200, **config, **more)), 10**30
        )
        for kind, more in (("ForMaskedLM", {}), ("ForSequenceClassification", labels))
    )
    encoder = SpladeEncoder(SpladeConfig(model=str(sparse)), "cpu")
    assert encoder.truncation(["moss " * 300])["limit"] == 78
    np.testing.assert_array_equal(encoder.passages(["moss " * 300])[2], encoder.passages(["moss " * 76])[2])
    model = NliModel(NliConfig(model=str(classifier)), "cpu")
    assert model.infer(["moss " * 300], ["old"]).entailment == pytest.approx(model.infer(["moss " * 73], ["old"]).entailment)
