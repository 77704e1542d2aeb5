"""Folders as people have them: an input gives the same alone and in a batch, and what a folder lacks is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.pretrained import load_pretrained
from tests.support.errors import raises

pytest.importorskip("torch")

SHORT, LONG = "moss", "moss and fern " * 12


def saved(folder: Path, tiny: ModuleType, kind: str, **settings: Any) -> Path:
    import transformers

    style = "bert" if kind.startswith("Bert") else "mistral"
    config = tiny.config("Bert" if style == "bert" else "Llama", len(tiny.tokenizer(style)), **settings)
    tiny.save(folder, style, tiny.scaled(getattr(transformers, kind)(config)))
    return folder


def change(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text("utf-8")) | values
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}), "utf-8")


def without_pad(folder: Path) -> None:
    change(folder / "tokenizer_config.json", pad_token=None)
    change(folder / "config.json", pad_token_id=None)


def scores(folder: Path) -> tuple[float, float]:
    model = CrossEncoderModel(CrossEncoderConfig(model=str(folder), max_length=64), "cpu")
    return float(model.scores("fern", [SHORT])[0]), float(model.scores("fern", [SHORT, LONG])[0])


def vectors(folder: Path, **options: Any) -> tuple[Any, Any]:
    encoder = Encoder(EncoderConfig(model=str(folder), **options), "cpu")
    return encoder.passages([SHORT])[0], encoder.passages([SHORT, LONG])[0]


def test_encoder_that_pads_on_the_left_gives_the_vector_of_the_text_alone(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_models, "BertModel")
    right = vectors(folder)
    change(folder / "tokenizer_config.json", padding_side="left")
    for vector in (*right, *vectors(folder)):
        np.testing.assert_allclose(vector, right[0], atol=1e-5)


def test_cross_encoder_that_pads_on_the_left_gives_the_score_of_the_pair_alone(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_models, "BertForSequenceClassification", num_labels=1)
    right = scores(folder)
    change(folder / "tokenizer_config.json", padding_side="left")
    assert (*right, *scores(folder)) == pytest.approx([right[0]] * 4, abs=1e-5)


@pytest.mark.parametrize("pad", [7, -1, None])
def test_classifier_reads_the_last_token_whatever_its_configuration_pads_with(
    pad: int | None, tiny_models: ModuleType, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "model", tiny_models, "LlamaForSequenceClassification", num_labels=1)
    alone, _ = scores(folder)
    change(folder / "config.json", pad_token_id=pad)
    assert scores(folder) == pytest.approx((alone, alone), abs=1e-5)


def test_models_whose_tokenizer_has_no_padding_token_read_batches(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "scorer", tiny_models, "LlamaForSequenceClassification", num_labels=1)
    without_pad(folder)
    alone, batch = scores(folder)
    assert batch == pytest.approx(alone, abs=1e-5)
    folder = saved(tmp_path / "encoder", tiny_models, "LlamaModel")
    without_pad(folder)
    np.testing.assert_allclose(*vectors(folder, pooling="lasttoken"), atol=1e-5)


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification", "Qwen2ForCausalLM"])
def test_folder_without_tokenizer_files_is_refused(kind: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    import transformers

    if kind == "Qwen2ForCausalLM":
        settings = transformers.Qwen2Config(vocab_size=99, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
        transformers.Qwen2ForCausalLM(settings).save_pretrained(tmp_path)
    else:
        saved(tmp_path, tiny_models, kind, **({"num_labels": 1} if kind.endswith("Classification") else {}))
        for file in tmp_path.iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                file.unlink()
    with raises("no-vocabulary"):
        if kind == "BertModel":
            vectors(tmp_path)
        elif kind == "Qwen2ForCausalLM":
            load_pretrained("reader", "AutoModelForCausalLM", str(tmp_path), None, None, "cpu")
        else:
            scores(tmp_path)


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "config_sentence_transformers.json"])
def test_settings_that_are_not_read_without_modules_json_are_refused(name: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_models, "BertModel")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text('{"pooling_mode": "cls", "prompts": {"query": "query: "}}', "utf-8")
    with raises("encoder-without-modules"):
        vectors(folder)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("config_sentence_transformers.json", "absent-files"),
        ("modules.json", "encoder-without-modules"),
        ("model.safetensors", "load-failed"),
    ],
)
def test_snapshot_of_the_hub_with_a_link_that_leads_nowhere_is_refused(
    name: str, code: str, tiny_models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.parent.mkdir(parents=True)
    saved(snapshot, tiny_models, "BertModel")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(snapshot.name)
    if name == "modules.json":
        (snapshot / "1_Pooling").mkdir()
    (snapshot / name).unlink(missing_ok=True)
    (snapshot / name).symlink_to("../../blobs/none")
    with raises(code) as caught:
        vectors(Path("owner/name"))
    assert ("hf download owner/name" in str(caught.value.try_this)) is (code != "encoder-without-modules")


def test_unusable_folder_is_explained_by_its_files(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "output" / "checkpoint-500", tiny_models, "BertModel")
    with raises("load-failed") as caught:
        vectors(folder.parent)
    assert "checkpoint-500" in str(caught.value.try_this)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "utf-8")
    with raises("damaged-weights") as caught:
        vectors(folder)
    assert "git lfs pull" in str(caught.value.try_this)


@pytest.mark.parametrize("method", ["gptq", "bitsandbytes", "torchao"])
def test_quantized_weights_that_nothing_reads_are_named(method: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_models, "LlamaForCausalLM")
    more = {"bits": 4, "load_in_4bit": True, "quant_type": "int4_weight_only"}
    change(folder / "config.json", quantization_config={"quant_method": method, **more})
    with raises("load-failed") as caught:
        load_pretrained("reader", "AutoModelForCausalLM", str(folder), None, None, "cpu")
    assert method in str(caught.value.try_this)
