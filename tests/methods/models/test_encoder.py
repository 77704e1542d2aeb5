"""Encoders with their presets, against a few lines of transformers, one text at a time, without padding."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Services
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS
from methods.models.remote_code import REMOTE_CODE
from methods.registry import Component
from tests.support.errors import raises

PUBLISHED = [
    ("bge-large-en-v1.5", "Bert", "bert", "cls", True),
    ("contriever", "Bert", "bert", "mean", False),
    pytest.param("e5-large-v2", "Bert", "bert", "mean", True, marks=pytest.mark.slow),
    pytest.param("gte-large", "DistilBert", "bert", "mean", True, marks=pytest.mark.slow),
    pytest.param("all-roberta-large-v1", "XLMRoberta", "xlmr", "mean", True, marks=pytest.mark.slow),
    pytest.param("bge-m3", "XLMRoberta", "xlmr", "cls", True, marks=pytest.mark.slow),
    ("qwen3-embedding-0.6b", "Qwen3", "qwen3", "last", True),
    ("sfr-embedding-mistral", "Mistral", "mistral", "last", True),
]
"""Preset, class, tokenizer, pooling, and whether vectors are normalized."""

PROMPTS = {
    "bge-large-en-v1.5": ("Represent this sentence for searching relevant passages: ", ""),
    "contriever": ("", ""),
    "e5-large-v2": ("query: ", "passage: "),
    "gte-large": ("", ""),
    "all-roberta-large-v1": ("", ""),
    "bge-m3": ("", ""),
    "qwen3-embedding-0.6b": ("Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:", ""),
    "sfr-embedding-mistral": ("Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ", ""),
    "stella-en-400m-v5": ("Instruct: Given a web search query, retrieve relevant passages that answer the query.\nQuery: ", ""),
    "jina-v3": ("Represent the query for retrieving evidence documents: ", "Represent the document for retrieval: "),
}
"""Prefixes of queries and passages, copied from the models' cards."""


def make(folder: Path, tiny: ModuleType, kind: str, style: str, seed: int = 0) -> Path:
    import torch
    import transformers

    torch.manual_seed(seed)
    more = {"num_key_value_heads": 2, "head_dim": 8} if kind in {"Qwen3", "Mistral"} else {}
    if kind == "DistilBert":
        settings = transformers.DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=80)
    else:
        settings = tiny.config(kind, 200, **more)
    return tiny.save(folder, style, tiny.scaled(getattr(transformers, f"{kind}Model")(settings)))


def by_hand(folder: Path, texts: list[str], pooling: str, normal: bool, length: int = 64) -> np.ndarray:
    """Encode one text at a time: tokens, hidden states, pooling, normalization."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        with torch.no_grad():
            encoded = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
            hidden = model(**encoded).last_hidden_state[0]
        row = {"cls": hidden[0], "last": hidden[-1], "mean": hidden.mean(dim=0)}[pooling]
        rows.append((row / row.norm() if normal else row).numpy())
    return np.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "kind", "style", "pooling", "normal"), PUBLISHED)
def test_preset_gives_the_vectors_of_its_model_card(
    preset: str, kind: str, style: str, pooling: str, normal: bool, tiny_models: ModuleType, tmp_path: Path
) -> None:
    folder = make(tmp_path / "model", tiny_models, kind, style)
    encoder = Encoder(EncoderConfig.preset(preset, model=str(folder), max_length=64, dtype="float32"), "cpu")
    texts = [*tiny_models.TEXTS, "river " * 100]
    for encode, prompt in zip((encoder.queries, encoder.passages), PROMPTS[preset], strict=True):
        expected = by_hand(folder, [prompt + text for text in texts], pooling, normal)
        assert encode(texts) == pytest.approx(expected, abs=2e-5)
        assert np.abs(expected[0] - expected[1]).max() > 0.01
    if normal:
        assert np.linalg.norm(encoder.passages(texts), axis=1) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("preset", "prompts"), PROMPTS.items())
def test_prompts_equal_those_of_the_model_cards(preset: str, prompts: tuple[str, str]) -> None:
    config = EncoderConfig.preset(preset)
    assert (config.prompt("query"), config.prompt("passage")) == prompts


@pytest.mark.slow
def test_pooling_and_prompts_of_a_preset_replace_those_of_a_folder(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, "Bert", "bert")
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {"query": "moss ", "document": "stone "})
    texts = tiny_models.TEXTS
    own = Encoder(EncoderConfig(model=str(folder)), "cpu")
    assert own.queries(texts) == pytest.approx(by_hand(folder, [f"moss {t}" for t in texts], "mean", True), abs=2e-5)
    assert own.passages(texts) == pytest.approx(by_hand(folder, [f"stone {t}" for t in texts], "mean", True), abs=2e-5)
    bge = Encoder(EncoderConfig.preset("bge-large-en-v1.5", model=str(folder), max_length=64), "cpu")
    assert bge.passages(texts) == pytest.approx(by_hand(folder, texts, "cls", True), abs=2e-5)


def test_custom_instruction_replaces_the_default() -> None:
    config = EncoderConfig.preset("qwen3-embedding-0.6b", instruction="Find the bridge")
    assert config.prompt("query") == "Instruct: Find the bridge\nQuery:"
    with pytest.raises(ValueError, match="set instruction"):
        EncoderConfig(query_prompt="Instruct: {instruction}")


@pytest.mark.parametrize(("kind", "style"), [("Qwen3", "qwen3"), ("Mistral", "mistral")])
def test_padding_side_does_not_change_vectors(kind: str, style: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, kind, style)
    encoder = Encoder(EncoderConfig(model=str(folder), pooling="lasttoken"), "cpu")
    left = encoder.passages(tiny_models.TEXTS)
    encoder._passages._model.tokenizer.padding_side = "right"  # type: ignore[attr-defined]
    assert encoder.passages(tiny_models.TEXTS) == pytest.approx(left, abs=2e-5)


def test_tokenizer_that_drops_the_end_token_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, "Qwen3", "mistral")
    with raises("encoder-end-token-missing"):
        Encoder(EncoderConfig.preset("qwen3-embedding-0.6b", model=str(folder), max_length=64), "cpu")


def test_dimensions_option_truncates_and_renormalizes_vectors(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, "Qwen3", "qwen3")
    full = Encoder(EncoderConfig(model=str(folder), normalize=False), "cpu").passages(tiny_models.TEXTS)
    cut = Encoder(EncoderConfig(model=str(folder), dimension=8), "cpu")
    expected = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    assert cut.dimension == 8
    assert cut.passages(tiny_models.TEXTS) == pytest.approx(expected, abs=1e-5)
    with raises("dimension-too-large"):
        Encoder(EncoderConfig(model=str(folder), dimension=64), "cpu")


def test_stella_projects_the_masked_mean(tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder = make(tmp_path / "model", tiny_models, "Bert", "bert")
    dense = (
        "2_Dense_16",
        "Dense",
        {"in_features": 32, "out_features": 16, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"},
    )
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean"), dense], {"s2p_query": "not used"})
    weight, bias = torch.randn(16, 32), torch.randn(16)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense_16" / "model.safetensors")
    encoder = Encoder(EncoderConfig.preset("stella-en-1.5b-v5", model=str(folder), max_length=64), "cpu")
    expected = by_hand(folder, tiny_models.TEXTS, "mean", False) @ weight.numpy().T + bias.numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert encoder.dimension == 16
    assert encoder.passages(tiny_models.TEXTS) == pytest.approx(expected, abs=2e-5)


def test_values_of_the_models_config_can_be_overridden(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, "Bert", "bert")
    encoder = Encoder(EncoderConfig(model=str(folder), model_options={"num_hidden_layers": 1}), "cpu")
    assert len(encoder._passages._model[0].model.encoder.layer) == 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_bfloat16_weights_give_nearly_the_same_unit_vectors(tiny_models: ModuleType, tmp_path: Path) -> None:
    texts = [*tiny_models.TEXTS, "Moss grows on the north side of the old stone bridge."]
    full = Encoder(EncoderConfig(), "cpu").passages(texts)
    half = Encoder(EncoderConfig(dtype="bfloat16"), "cpu").passages(texts)
    assert (full * half).sum(axis=1).min() > 0.999
    assert not np.array_equal(full, half)
    assert np.linalg.norm(half, axis=1) == pytest.approx(1, abs=1e-6)


CODE = """
from sentence_transformers.models import Transformer


class TinyTasks(Transformer):
    forward_kwargs = {"task"}
    _lora_adaptations = ["retrieval.query", "retrieval.passage"]

    def forward(self, features, task=None, **kwargs):
        features = super().forward(features, **kwargs)
        if task is not None:
            shift = 1 + self._lora_adaptations.index(task)
            features["token_embeddings"] = features["token_embeddings"].roll(shift, dims=-1)
        return features
"""
"""A model with its own code and one adapter per task; each adapter shifts the components by another amount."""


@pytest.fixture
def tasks(tiny_models: ModuleType, tmp_path: Path) -> Path:
    folder = make(tmp_path / "model", tiny_models, "XLMRoberta", "xlmr")
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {"retrieval.query": "moss "})
    modules = json.loads((folder / "modules.json").read_text())
    modules[0] |= {"type": "custom_st.TinyTasks", "kwargs": ["task"]}
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "custom_st.py").write_text(CODE)
    return folder


def test_remote_code_runs_only_if_trusted(tasks: Path) -> None:
    (tasks / "custom_st.py").write_text("raise SystemExit('ran')")
    with raises("untrusted-model-code") as caught:
        Encoder(EncoderConfig.preset("jina-v3", model=str(tasks), max_length=64), "cpu")
    assert "trust_remote_code" in str(caught.value)
    for preset, values in PRESETS.items():
        component = Component.of("dense", {"preset": preset})
        if values["model"] in REMOTE_CODE:
            with raises("untrusted-model-code"):
                component.config.preflight()
        else:
            component.config.preflight()


def test_architecture_that_requires_remote_code_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    tiny_models.tokenizer("bert").save_pretrained(tmp_path)
    mapped = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": mapped}))
    for name in ("configuration_own", "modeling_own"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran')")
    with raises("untrusted-model-code"):
        Encoder(EncoderConfig(model=str(tmp_path)), "cpu")


@pytest.mark.slow
def test_queries_and_passages_use_their_task_adapter_and_prefix_once(tasks: Path, tiny_models: ModuleType) -> None:
    config = EncoderConfig.preset("jina-v3", model=str(tasks), max_length=64, trust_remote_code=True)
    encoder = Encoder(config, "cpu")
    for encode, prompt, shift in zip((encoder.queries, encoder.passages), PROMPTS["jina-v3"], (1, 2), strict=True):
        expected = np.roll(by_hand(tasks, [prompt + text for text in tiny_models.TEXTS], "mean", True), shift, axis=1)
        assert encode(tiny_models.TEXTS) == pytest.approx(expected, abs=2e-5)
    released = Encoder(EncoderConfig.preset("jina-v3-released", model=str(tasks), max_length=64, trust_remote_code=True), "cpu")
    expected = by_hand(tasks, tiny_models.TEXTS, "mean", True)
    assert released.queries(tiny_models.TEXTS) == pytest.approx(expected, abs=2e-5)
    assert released.passages(tiny_models.TEXTS) == pytest.approx(expected, abs=2e-5)


def test_missing_unknown_or_inapplicable_task_is_refused(tasks: Path, tiny_models: ModuleType, tmp_path: Path) -> None:
    trusted = {"model": str(tasks), "trust_remote_code": True}
    with raises("task-adapter-not-chosen"):
        Encoder(EncoderConfig(**trusted), "cpu")
    with raises("unknown-query_task"):
        Encoder(EncoderConfig(**trusted, query_task="retrieval.qery", passage_task="retrieval.passage"), "cpu")
    plain = make(tmp_path / "plain", tiny_models, "Bert", "bert")
    with raises("encoder-without-adapters"):
        Encoder(EncoderConfig(model=str(plain), query_task="retrieval.query"), "cpu")


@pytest.fixture
def dpr(tiny_models: ModuleType, tmp_path: Path) -> dict[str, str]:
    import torch
    from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

    settings = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    for seed, (name, kind) in enumerate((("question", DPRQuestionEncoder), ("passage", DPRContextEncoder))):
        torch.manual_seed(seed)
        model = kind(DPRConfig(**settings, intermediate_size=48, max_position_embeddings=80))
        tiny_models.save(tmp_path / name, "bert", tiny_models.scaled(model))
    return {"query_model": str(tmp_path / "question"), "model": str(tmp_path / "passage")}


def dpr_by_hand(dpr: dict[str, str], side: str, *segments: str) -> np.ndarray:
    import torch
    from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

    folder = dpr["query_model" if side == "question" else "model"]
    kind = DPRQuestionEncoder if side == "question" else DPRContextEncoder
    model = kind.from_pretrained(folder).eval()
    bert = model.question_encoder.bert_model if side == "question" else model.ctx_encoder.bert_model
    with torch.no_grad():
        encoded = AutoTokenizer.from_pretrained(folder)(*segments, truncation=True, max_length=64, return_tensors="pt")
        return bert(**encoded).last_hidden_state[0, 0].numpy()


@pytest.mark.slow
def test_dpr_has_two_towers_uses_titles_and_does_not_normalize(dpr: dict[str, str], tiny_models: ModuleType) -> None:
    encoder = Encoder(EncoderConfig.preset("dpr-nq", **dpr, max_length=64), "cpu")
    texts = [*tiny_models.TEXTS, "river " * 100]
    titles = ["moss", "", "the painter", "", "old", "a cabin", "a bridge"]
    queries = np.stack([dpr_by_hand(dpr, "question", text) for text in texts])
    passages = np.stack([dpr_by_hand(dpr, "passage", *filter(None, (title, text))) for title, text in zip(titles, texts, strict=True)])
    assert encoder.queries(texts) == pytest.approx(queries, abs=1e-4)
    assert encoder.passages(texts, titles) == pytest.approx(passages, abs=1e-4)
    assert encoder.passages(texts)[1] == pytest.approx(passages[1], abs=1e-4)
    assert np.linalg.norm(passages, axis=1).min() > 1.5
    swapped = {"model": dpr["query_model"], "query_model": dpr["model"]}
    with pytest.raises(UserError, match="not a passage encoder of DPR"):
        Encoder(EncoderConfig.preset("dpr-nq", **swapped), "cpu")


@pytest.mark.slow
def test_long_passage_has_the_score_of_its_best_part(dpr: dict[str, str], tiny_models: ModuleType, tmp_path: Path) -> None:
    texts = [*tiny_models.TEXTS, " ".join(tiny_models.TEXTS), " ".join(reversed(tiny_models.TEXTS)), ""]
    titles = ["moss", "", "painter"] * 3
    passages = [Passage(passage_id(t, x), t, x) for t, x in zip(titles, texts, strict=True)]
    corpus = Corpus.of(passages)
    options = {"preset": "dpr-nq", **dpr, "max_length": 64, "part_words": 5}
    dense = Component.of("dense", options).build(Services(device="cpu"))
    question = "where was the painter born ?"
    vector = dpr_by_hand(dpr, "question", question).astype(np.float64)
    expected = []
    for passage in passages:
        words = passage.text.split() or [""]
        parts = [" ".join(words[start : start + 5]) for start in range(0, len(words), 5)]
        results = [dpr_by_hand(dpr, "passage", *([passage.title] if passage.title else []), part) for part in parts]
        expected.append(max(float(row.astype(np.float64) @ vector) for row in results))
    order = np.argsort(-np.array(expected))
    for index in (dense.index(corpus), dense.index(corpus, tmp_path / "i"), dense.index(corpus, tmp_path / "i")):
        for k in (1, 3, 9):
            ranking = index.retrieve([Query("q", question)], k)[0]
            assert ranking.ids == tuple(corpus.ids[row] for row in order[:k])
            assert ranking.scores == pytest.approx([expected[row] for row in order[:k]], abs=2e-3)
        some = index.retrieve([Query("q", question, candidates=corpus.ids[2:5])], 9)[0]
        assert some.ids == tuple(corpus.ids[row] for row in order if row in (2, 3, 4))


def test_a_preset_runs_as_dense_retrieval(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = make(tmp_path / "model", tiny_models, "Bert", "bert")
    corpus = Corpus.of(Passage(passage_id("", text), "", text) for text in tiny_models.TEXTS)
    options = {"preset": "bge-large-en-v1.5", "model": str(folder), "max_length": 64}
    dense = Component.of("dense", options).build(Services(device="cpu", artifacts=tmp_path / "artifacts"))
    ranking = dense.index(corpus).retrieve([Query("q", "moss on the bridge")], 6)[0]
    query = by_hand(folder, [PROMPTS["bge-large-en-v1.5"][0] + "moss on the bridge"], "cls", True)[0]
    scores = by_hand(folder, tiny_models.TEXTS, "cls", True) @ query
    assert ranking.ids == tuple(corpus.ids[row] for row in np.argsort(-scores))
    assert len(list((tmp_path / "artifacts" / "embeddings").iterdir())) == 1


@pytest.mark.slow
def test_query_and_passage_encoders_may_be_different_sentence_transformers(tiny_models: ModuleType, tmp_path: Path) -> None:
    sides = [make(tmp_path / name, tiny_models, "Bert", "bert", seed) for seed, name in enumerate(("query", "triple"))]
    encoder = Encoder(EncoderConfig(query_model=str(sides[0]), model=str(sides[1])), "cpu")
    assert encoder.queries(tiny_models.TEXTS) == pytest.approx(by_hand(sides[0], tiny_models.TEXTS, "mean", True), abs=2e-5)
    assert encoder.passages(tiny_models.TEXTS) == pytest.approx(by_hand(sides[1], tiny_models.TEXTS, "mean", True), abs=2e-5)
    alone = EncoderConfig(model=str(sides[1]))
    assert EncoderConfig(query_model=str(sides[0]), model=str(sides[1])).checkpoint_hash() != alone.checkpoint_hash()


def test_incompatible_options_are_refused(dpr: dict[str, str]) -> None:
    with raises("unknown-encoder-preset"):
        EncoderConfig.preset("bge-m")
    with pytest.raises(ValueError, match="needs query_model"):
        EncoderConfig(architecture="dpr")
    with pytest.raises(ValueError, match="takes no pooling"):
        EncoderConfig(architecture="dpr", **dpr, pooling="mean")
