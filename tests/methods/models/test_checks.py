"""Damaged weights, non-finite output, missing presets and truncated passages, with real classes and real MiniLM."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, passage_id
from methods.api import Services
from methods.models.checks import check_output, missing_options, truncation
from methods.models.embeddings import EmbeddingCache, ExactSearch
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.weights import locate
from methods.pipeline import Pipeline, indexed
from methods.registry import Component
from methods.retrieval.ranking import best_rows
from tests.support.errors import raises

MINILM = Path(locate("minilm"))


def copied(folder: Path, **replaced: bytes) -> Path:
    """Link MiniLM's folder under another name, except for the files that a test writes."""
    folder.mkdir(parents=True)
    for source in MINILM.rglob("*"):
        target = folder / source.relative_to(MINILM)
        if source.is_dir():
            target.mkdir()
        elif target.name != "model.safetensors" or not replaced:
            target.symlink_to(source)
    return folder


def damaged(folder: Path, tensor: str, row: int) -> Path:
    """Copy MiniLM with NaN in one row of a tensor."""
    from safetensors.torch import load_file, save_file

    copied(folder, weights=b"")
    weights = load_file(MINILM / "model.safetensors")
    name = next(key for key in weights if key.endswith(tensor))
    weights[name][row] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def corpus(*texts: str) -> Corpus:
    return Corpus.of(Passage(passage_id("", text), "", text) for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "row"), [("word_embeddings.weight", 29000), ("layer.3.output.dense.weight", 7)])
def test_nan_in_one_row_of_minilm_is_refused_before_anything_is_cached(tensor: str, row: int, tmp_path: Path) -> None:
    folder = damaged(tmp_path / "model", tensor, row)
    with raises("vectors-not-finite") as refused:
        Encoder(EncoderConfig(model=str(folder)), "cpu", tmp_path / "cache")
    width = 1536 if "output" in tensor else 384
    assert f"{width:,} weights" in refused.value.what
    assert tensor in str(refused.value.where)
    assert not (tmp_path / "cache").exists()


def test_output_that_is_not_finite_is_counted_and_never_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(EncoderConfig(model="minilm", dtype="float32"), "cpu", tmp_path)
    encode = encoder._passages.encode

    def overflowing(*args: Any) -> Any:
        vectors = encode(*args).copy()
        vectors[0] = np.inf
        return vectors

    monkeypatch.setattr(encoder._passages, "encode", overflowing)
    with raises("weights-not-finite"):
        encoder.passages(["a", "b", "c"])
    assert encoder._cache is not None
    assert len(encoder._cache) == 0


@pytest.mark.parametrize(("dtype", "remedy"), [("float16", "dtype: float32 or bfloat16"), ("float32", "fetch")])
def test_suggested_fix_matches_the_dtype_of_the_weights(dtype: str, remedy: str) -> None:
    with pytest.raises(UserError) as refused:
        check_output([np.ones(2), np.array([1, np.nan])], "m", "encoder", dtype)
    assert refused.value.what.startswith("1 of 2 vectors")
    assert remedy in str(refused.value.try_this)


def test_vectors_cached_by_an_earlier_version_are_checked(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, "model", 2)
    cache.put(["a", "b"], np.array([[1, 0], [np.nan, 0]], dtype=np.float32))
    with raises("cached-vectors-not-finite"):
        cache.vectors(["a", "b"], lambda _: np.empty((0, 2), dtype=np.float32))
    with raises("index-not-finite"):
        ExactSearch(np.array([[1, 0], [np.nan, 0]], dtype=np.float32)).near(np.ones((1, 2), dtype=np.float32), 1)
    with raises("scores-nan"):
        best_rows(np.array([1.0, np.nan]), 1)


@pytest.mark.parametrize(
    ("part", "kind", "style"),
    [("dense", "Bert", "bert"), ("splade", "BertForMaskedLM", "bert"), ("cross_encoder", "BertForSequenceClassification", "bert")],
)
def test_damaged_weights_are_refused_by_every_component(part: str, kind: str, style: str, tmp_path: Path, tiny_models: ModuleType) -> None:
    import torch
    import transformers

    name = kind if "For" in kind else f"{kind}Model"
    more = {"num_labels": 1} if "Classification" in kind else {}
    model = getattr(transformers, name)(tiny_models.config("Bert", len(tiny_models.tokenizer()), **more))
    with torch.no_grad():
        model.base_model.encoder.layer[1].attention.self.query.weight[3] = float("inf")
    folder = tiny_models.save(tmp_path / "model", style, model)
    with raises("vectors-not-finite") as refused:
        Component.of(part, {"model": str(folder)}).build(Services(device="cpu"))
    assert "query.weight" in str(refused.value.where)


def named(folder: Path, tiny: ModuleType, prompts: dict[str, str] | None = None, pool: str | None = None) -> Path:
    """Save a tiny BERT in a folder of this name; with prompts or pooling, in a SentenceTransformer's layout."""
    import transformers

    tiny.save(folder, "bert", transformers.BertModel(tiny.config("Bert", len(tiny.tokenizer()))))
    if prompts is not None or pool is not None:
        tiny.layout(folder, 64, [tiny.pooling(pool or "mean")], prompts or {})
    return folder


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("e5-base-v2", "e5-base-v2"),
        ("intfloat__E5_small", None),
        ("e5-small-v2", "e5-base-v2"),
        ("multilingual-e5-base", "multilingual-e5-large"),
        ("bge-base-en-v1.5", "bge-large-en-v1.5"),
        ("Qwen3-Embedding-0.6B", "qwen3-embedding-0.6b"),
        ("gte-large", None),  # wants mean pooling and no prompt, as any folder is loaded
        ("gte-large-en-v1.5", "gte-large-en-v1.5"),
        ("all-MiniLM-L6-v2", None),
    ],
)
def test_folder_of_a_known_family_without_its_options_gets_a_preset_hint(name: str, preset: str | None, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    result = missing_options(EncoderConfig(model=str(folder)))
    assert (result and result[0]) == preset


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", json.dumps({"_name_or_path": "intfloat/e5-large-v2"})),
        ("README.md", "---\nlicense: mit\n---\n\n# e5-large-v2\n\nText embeddings.\n"),
        ("README.md", "---\nbase_model: intfloat/e5-large-v2\n---\n"),
        ("README.md", "---\nmodel-index:\n- name: e5-large-v2\n  results:\n---\n"),
    ],
)
def test_model_family_is_detected_from_its_files(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / file).write_text(text)
    result = missing_options(EncoderConfig(model=str(tmp_path)))
    assert result is not None
    assert result[0] == "e5-large-v2"
    assert 'query_prompt: "query: "' in result[1]


def test_no_preset_is_suggested_if_options_or_files_already_set_its_values(tmp_path: Path, tiny_models: ModuleType) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    folder = str(named(tmp_path / "e5-base-v2", tiny_models, prompts, "mean"))
    assert missing_options(EncoderConfig(model=folder)) is None
    bare = str(named(tmp_path / "bare" / "e5-base-v2", tiny_models))
    assert missing_options(EncoderConfig.preset("e5-base-v2", model=bare)) is None
    # Prompts that are set to nothing are a choice.
    assert missing_options(EncoderConfig(model=bare, query_prompt="", passage_prompt="")) is None
    assert missing_options(EncoderConfig(model=bare)) is not None
    bge = str(named(tmp_path / "bge-base-en-v1.5", tiny_models, {}, "cls"))
    result = missing_options(EncoderConfig(model=bge))
    assert result is not None
    assert "pooling" not in result[1]


def test_preset_hint_is_a_warning_and_stored_with_the_index(tmp_path: Path) -> None:
    folder = str(copied(tmp_path / "e5-base-v2"))
    with pytest.warns(UserWarning, match="preset: e5-base-v2"):
        retriever = Component.of("dense", {"model": folder}).build(Services(device="cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, cost = indexed(retriever, corpus("moss"), None)
    assert cost.notes["preset"]["name"] == "e5-base-v2"


def test_share_of_text_beyond_minilms_limit_is_counted(tmp_path: Path) -> None:
    short, long = "moss", " ".join(["stone"] * 508)
    retriever = Component.of("dense", {"model": "minilm"}).build(Services(device="cpu"))
    for folder in (None, tmp_path / "index", tmp_path / "index"):
        _, cost = indexed(retriever, corpus(short, long), folder)
        cut = cost.notes["truncated"]
        assert (cut["limit"], cut["passages"], cut["truncated"]) == (256, 2, 1)
        # Two of 256 tokens are special, so half of the long passage is read.
        assert cut["share"] == pytest.approx(0.5, abs=0.01)
    assert json.loads((tmp_path / "index" / "truncated.json").read_text())["truncated"] == 1


def test_truncation_of_a_reranker_is_counted(tmp_path: Path, tiny_models: ModuleType) -> None:
    import transformers

    model = transformers.BertForSequenceClassification(tiny_models.config("Bert", len(tiny_models.tokenizer()), num_labels=1))
    folder = tiny_models.save(tmp_path / "model", "bert", model)
    retriever, reader = (Component.of(name).build(Services()) for name in ("bm25", "extractive"))
    reranker = Component.of("cross_encoder", {"model": str(folder)}).build(Services(device="cpu"))
    passages = corpus("the old stone bridge", "moss " * 61)
    cut = Pipeline(retriever, reader, rerankers=[reranker], k=1).index(passages).notes["reranker_truncated"]
    # 64 tokens, 2 of them special and about 24 of the question: 38 of 61 words are read.
    assert (cut["limit"], cut["passages"], cut["truncated"]) == (64, 2, 1)
    assert cut["share"] == pytest.approx((61 - 38) * 5 / (61 * 5 + 20), abs=0.02)


def test_truncation_count_equals_that_of_the_tokenizer() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    texts = ["", "a", "Ünïcödé stone " * 9, "北京" * 20, "x" * 200, "the old stone bridge over the river"]
    for limit in (8, 16, 32):
        whole = [tokenizer(text)["input_ids"] for text in texts]
        cut = truncation(tokenizer, limit, texts)
        assert cut["truncated"] == sum(len(ids) > limit for ids in whole)
        assert 0 < cut["share"] < 1
    prefixed = truncation(tokenizer, 10, ["the old stone bridge over the river"], "query: ")
    assert prefixed["truncated"] == 1
    assert truncation(tokenizer, None, texts) == {}


def test_preset_hint_of_a_reranker_is_stored_with_the_run(tmp_path: Path) -> None:
    folder = str(copied(tmp_path / "e5-base-v2"))
    with pytest.warns(UserWarning, match="preset: e5-base-v2"):
        reranker = Component.of("bi_encoder", {"model": folder}).build(Services(device="cpu"))
    retriever, reader = (Component.of(name).build(Services()) for name in ("bm25", "extractive"))
    cost = Pipeline(retriever, reader, rerankers=[reranker], k=1).index(corpus("moss"))
    assert cost.notes["preset"]["name"] == "e5-base-v2"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Component.of("bi_encoder", {"preset": "e5-base-v2", "model": folder}).build(Services(device="cpu"))
