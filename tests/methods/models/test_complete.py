from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from benchmarks.core.errors import UserError
from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.nli import NliConfig, NliModel
from methods.models.pretrained import load_pretrained
from tests.support.errors import raises

torch = pytest.importorskip("torch")

Tensors = dict[str, Any]
LOADERS: dict[str, Callable[[str], object]] = {
    "BertModel": lambda model: Encoder(EncoderConfig(model=model), "cpu"),
    "BertForSequenceClassification": lambda model: CrossEncoderModel(CrossEncoderConfig(model=model), "cpu"),
    "LlamaForCausalLM": lambda model: load_pretrained("reader", "AutoModelForCausalLM", model, None, None, "cpu"),
}
WEIGHTS = "model.safetensors"
LABELS = {0: "contradiction", 1: "neutral", 2: "entailment"}


def prefixed(tensors: Tensors) -> Tensors:
    """Rename tensors like `DistributedDataParallel` does."""
    return {f"module.{name}": value for name, value in tensors.items()}


def without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def make(folder: Path, tiny: ModuleType, kind: str, change: Callable[[Tensors], Tensors], **config: Any) -> str:
    """Save a tiny model and change its weights file."""
    import transformers

    style = "mistral" if kind.startswith("Llama") else "bert"
    settings = tiny.config(style.replace("mistral", "Llama").replace("bert", "Bert"), len(tiny.tokenizer(style)), **config)
    tiny.save(folder, style, getattr(transformers, kind)(settings))
    file = folder / WEIGHTS
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, prefixed) for kind in LOADERS),
        ("BertModel", without("layer.1.")),
        ("BertForSequenceClassification", without("classifier")),
        ("LlamaForCausalLM", without("lm_head")),
    ],
)
def test_model_file_with_missing_weights_is_refused(
    kind: str, change: Callable[[Tensors], Tensors], tiny_models: ModuleType, tmp_path: Path
) -> None:
    labels = {"num_labels": 1} if kind.endswith("Classification") else {}
    LOADERS[kind](make(tmp_path / "whole", tiny_models, kind, dict, **labels))
    with raises("random-weights"):
        LOADERS[kind](make(tmp_path / "changed", tiny_models, kind, change, **labels))


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_weights_of_more_layers_than_configured_are_refused(kind: str, prefix: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    labels = {"num_labels": 1} if kind.endswith("Classification") else {}
    change = (lambda tensors: {f"{prefix}{name}": value for name, value in tensors.items()}) if kind == "BertModel" else dict
    folder = Path(make(tmp_path / "model", tiny_models, kind, change, **labels))
    LOADERS[kind](str(folder))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}), "utf-8")
    with raises("layers-beyond-config"):
        LOADERS[kind](str(folder))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1, "num_nextn_predict_layers": 1}), "utf-8")
    LOADERS[kind](str(folder))


def in_eight_bits(tensors: Tensors) -> Tensors:
    """Store projections like NVIDIA's ModelOpt: in 8 bits, next to the scale by which they are multiplied."""
    stored = {}
    for name, value in tensors.items():
        stored[name] = value
        if name.endswith("proj.weight"):
            scale = value.abs().max() / 448
            stored |= {name: (value / scale).to(torch.float8_e4m3fn), f"{name}_scale": scale, name[:-6] + "input_scale": scale.clone()}
    return stored


def with_suffix(layer: str, suffix: str) -> Callable[[Tensors], Tensors]:
    """Add a tensor to a layer."""
    return lambda tensors: (
        tensors
        | {
            name.removesuffix("weight") + suffix: torch.ones(len(value))
            for name, value in tensors.items()
            if name.endswith(f"{layer}.weight")
        }
    )


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("LlamaForCausalLM", in_eight_bits),
        ("LlamaForCausalLM", with_suffix("q_proj", "bias")),
        ("LlamaForCausalLM", with_suffix("q_proj", "lora_A.default.weight")),
        ("BertModel", with_suffix("query", "weight_scale")),
        ("BertForSequenceClassification", with_suffix("classifier", "weight_scale_inv")),
    ],
)
def test_scales_biases_and_adapters_that_the_model_would_not_read_are_refused(
    kind: str, change: Callable[[Tensors], Tensors], tiny_models: ModuleType, tmp_path: Path
) -> None:
    labels = {"num_labels": 1} if kind.endswith("Classification") else {}
    folder = Path(make(tmp_path / "model", tiny_models, kind, change, **labels))
    with raises("tensors-not-read"):
        LOADERS[kind](str(folder))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "modelopt"}}), "utf-8")
    with raises("tensors-not-read"):  # transformers skips a quantization that it does not know
        LOADERS[kind](str(folder))


def test_tensors_that_no_layer_of_the_model_owns_are_accepted(tiny_models: ModuleType, tmp_path: Path) -> None:
    further = {
        "rotary_emb.inv_freq": torch.ones(4),
        "model.layers.0.self_attn.masked_bias": torch.ones(1),
        "model.layers.0.self_attn.q_proj.input_scale": torch.ones(1),
        "value_head.weight": torch.ones(1, 32),
    }
    folder = make(tmp_path / "model", tiny_models, "LlamaForCausalLM", lambda tensors: tensors | further)
    _, model = load_pretrained("reader", "AutoModelForCausalLM", folder, None, None, "cpu")
    assert model.state_dict().keys().isdisjoint(further)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-10], lambda raw: b"", lambda raw: b"version https://git-lfs.github.com/spec/v1"])
def test_damaged_bin_file_is_refused(damage: Callable[[bytes], bytes], tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = Path(make(tmp_path / "model", tiny_models, "LlamaForCausalLM", dict))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    LOADERS["LlamaForCausalLM"](str(folder))
    (folder / "pytorch_model.bin").write_bytes(damage((folder / "pytorch_model.bin").read_bytes()))
    with raises("damaged-weights"):
        LOADERS["LlamaForCausalLM"](str(folder))


def test_encoder_folder_without_pooling_or_with_foreign_layer_names_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    def modules(*kinds: str) -> None:
        rows = [
            {"idx": n, "name": str(n), "path": kind if n else "", "type": f"sentence_transformers.models.{kind}"}
            for n, kind in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(rows), "utf-8")

    folder = Path(make(tmp_path / "model", tiny_models, "BertModel", dict))
    modules("Transformer")
    with raises("encoder-without-pooling"):
        Encoder(EncoderConfig(model=str(folder)), "cpu").passages(["moss"])
    modules("Transformer", "Pooling", "Dense")
    (folder / "Pooling").mkdir()
    (folder / "Pooling" / "config.json").write_text('{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}')
    (folder / "Dense").mkdir()
    (folder / "Dense" / "config.json").write_text('{"in_features": 32, "out_features": 8, "bias": false}')
    save_file({"linear.weight": torch.ones(8, 32)}, folder / "Dense" / "model.safetensors")
    assert Encoder(EncoderConfig(model=str(folder)), "cpu").passages(["moss"]).shape == (1, 8)
    save_file({"weight": torch.ones(8, 32)}, folder / "Dense" / "model.safetensors")
    with raises("weight-names-mismatch"):
        Encoder(EncoderConfig(model=str(folder)), "cpu")


def test_an_nli_classifier_without_its_head_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    model = make(tmp_path, tiny_models, "BertForSequenceClassification", without("classifier"), num_labels=3, id2label=LABELS)
    with raises("random-weights"):
        NliModel(NliConfig(model=model), "cpu")


def test_encoder_without_pooler_and_model_with_tied_head_are_accepted(tiny_models: ModuleType, tmp_path: Path) -> None:
    whole, lacking = make(tmp_path / "whole", tiny_models, "BertModel", dict), tmp_path / "lacking"
    shutil.copytree(whole, lacking)
    save_file(without("pooler")(load_file(lacking / WEIGHTS)), lacking / WEIGHTS, metadata={"format": "pt"})
    expected, vectors = (Encoder(EncoderConfig(model=str(model)), "cpu").queries(["who wrote it"]) for model in (whole, lacking))
    assert np.array_equal(vectors, expected)
    tied = make(tmp_path / "tied", tiny_models, "LlamaForCausalLM", without("lm_head"), tie_word_embeddings=True)
    model = load_pretrained("reader", "AutoModelForCausalLM", tied, None, None, "cpu")[1]
    assert torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)


def test_damaged_language_model_and_mismatched_shapes_are_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    def damaged(tensors: Tensors) -> Tensors:
        name = "model.layers.1.mlp.up_proj.weight"
        return tensors | {name: tensors[name] * float("nan")}

    load = LOADERS["LlamaForCausalLM"]
    with raises("vectors-not-finite"):
        load(make(tmp_path / "nan", tiny_models, "LlamaForCausalLM", damaged))
    other = Path(make(tmp_path / "shapes", tiny_models, "LlamaForCausalLM", dict))
    config = json.loads((other / "config.json").read_text("utf-8"))
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": 500}), "utf-8")
    with raises("weight-shapes-mismatch"):
        load(str(other))
    quantized = config | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    (other / "config.json").write_text(json.dumps(quantized), "utf-8")
    with pytest.raises(UserError) as error:
        load(str(other))
    assert error.value.code == "load-failed"


@pytest.mark.parametrize("kind", LOADERS)
def test_token_that_the_weights_lack_is_refused_once_it_is_used(kind: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    import transformers

    style = "mistral" if kind.startswith("Llama") else "bert"
    settings = tiny_models.config("Llama" if style == "mistral" else "Bert", len(tiny_models.tokenizer(style)) - 3, num_labels=1)
    loaded: Any = LOADERS[kind](str(tiny_models.save(tmp_path, style, getattr(transformers, kind)(settings))))

    def compute(text: str) -> None:
        if isinstance(loaded, Encoder):
            loaded.passages([text])
        elif isinstance(loaded, CrossEncoderModel):
            loaded.scores(text, ["old"])
        else:
            tokenizer, model = loaded
            model(**tokenizer(text, return_tensors="pt"))

    compute("old stone")
    with raises("tokenizer-of-other-model", where=str(tmp_path)):
        compute("a9")


@pytest.mark.parametrize("length", [None, 200])
def test_inputs_longer_than_the_positions_are_cut(length: int | None, tiny_models: ModuleType, tmp_path: Path) -> None:
    model = make(tmp_path / "model", tiny_models, "BertModel", lambda tensors: tensors)
    tiny_models.layout(Path(model), 512, [tiny_models.pooling("mean")], {})
    encoder = Encoder(EncoderConfig(model=model, max_length=length), "cpu")
    assert np.allclose(encoder.passages(["old " * 90]), encoder.passages(["old " * 400]))
    assert encoder.truncation(["old " * 400])["limit"] == 80


@pytest.mark.parametrize(("file", "remedy"), [("adapter_config.json", "adapter"), ("m.gguf", "base_url"), ("README.md", "config.json")])
def test_folder_without_a_model_is_named_by_what_it_holds(file: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("{}")
    with raises("load-failed") as caught:
        LOADERS["LlamaForCausalLM"](str(tmp_path))
    assert remedy in (caught.value.try_this or "")


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_activation_function_that_the_library_would_replace_is_refused(kind: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    foreign = "acme.layers.Softsign"
    folder = Path(make(tmp_path / "model", tiny_models, kind, dict))
    if kind == "BertModel":
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Dense, Pooling

        base = SentenceTransformer(str(folder), device="cpu")
        size = base.get_embedding_dimension()
        whole = SentenceTransformer(modules=[base[0], Pooling(size), Dense(size, 8)], device="cpu")
        folder = tmp_path / "projected"
        whole.save(str(folder))
        LOADERS[kind](str(folder))  # its own function, Tanh, is trusted
        file, path = folder / "2_Dense" / "config.json", ("activation_function",)
    else:
        file, path = folder / "config.json", ("sentence_transformers", "activation_fn")
    settings = json.loads(file.read_text())
    part = settings
    for name in path[:-1]:
        part = part.setdefault(name, {})
    part[path[-1]] = foreign
    file.write_text(json.dumps(settings))
    with raises("untrusted-model-code") as error:
        LOADERS[kind](str(folder))
    assert foreign in error.value.what
