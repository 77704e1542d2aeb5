"""Local language models write greedily whatever their generation_config.json says, and never from logits that are NaN."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from methods.models.causal import CausalConfig, CausalModel
from methods.models.likelihood import ScoringConfig
from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from tests.support.errors import raises

pytest.importorskip("transformers")

PROMPTS = ["the old stone bridge", "moss grows on the north side of the stone"]
OPTIONS: list[dict[str, Any]] = [
    {"repetition_penalty": 2.0, "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
    {"no_repeat_ngram_size": 1},
    {"exponential_decay_length_penalty": [2, 5.0]},
    {"guidance_scale": 3.0},
    {"sequence_bias": [[[5], 50.0]]},
    {"watermarking_config": {"bias": 20.0}},
    {"min_length": 40, "min_new_tokens": 12, "max_length": 5},
    {"forced_eos_token_id": 3},
    {"max_time": 1e-6},
    {"stop_strings": ["a", "e"]},
    {"return_dict_in_generate": True},
    {"prompt_lookup_num_tokens": 3},
    {"token_healing": True},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
]


def model(folder: Path, tiny: ModuleType, kind: str = "Llama", generation: dict[str, Any] | None = None) -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    size = len(tiny.tokenizer("mistral"))
    if kind == "Llama":
        made = transformers.LlamaForCausalLM(tiny.config("Llama", size))
    else:
        shared = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
        made = transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=size, **shared, **heads))
        made.generation_config.forced_eos_token_id = None
    tiny.save(folder, "mistral", tiny.scaled(made))
    change(folder / "generation_config.json", **(generation or {}))
    return folder


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | values), "utf-8")


def opened(folder: Path, tokens: int = 12, **options: Any) -> Any:
    kinds = {"llama": (CausalModel, CausalConfig), "bart": (Seq2SeqModel, Seq2SeqConfig)}
    loaded, config = kinds[json.loads((folder / "config.json").read_text("utf-8"))["model_type"]]
    return loaded(config(model=str(folder), max_new_tokens=tokens, **options), "cpu")


def written(folder: Path) -> list[tuple[str, bool]]:
    return [(reply.text, reply.ended) for reply in opened(folder).generate(PROMPTS)]


@pytest.mark.parametrize("kind", ["Llama", "Bart"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_generation_settings_of_a_checkpoint_do_not_change_replies(
    options: dict[str, Any], kind: str, tiny_models: ModuleType, tmp_path: Path
) -> None:
    plain = model(tmp_path / "plain", tiny_models, kind)
    set_up = model(tmp_path / "set", tiny_models, kind, options)
    assert written(set_up) == written(plain)


def test_end_tokens_of_generation_configuration_and_tokenizer_both_end_a_reply(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = model(tmp_path / "model", tiny_models)
    tokens = opened(folder).generate([[5, 6, 7]])[0].tokens
    first, second = list(dict.fromkeys(tokens))[:2]
    change(folder / "generation_config.json", eos_token_id=[0])
    change(folder / "tokenizer_config.json", eos_token=opened(folder).tokenizer.convert_ids_to_tokens(second))
    reply = opened(folder).generate([[5, 6, 7]])[0]
    assert (reply.tokens, reply.ended) == (tokens[: tokens.index(second) + 1], True)
    change(folder / "generation_config.json", eos_token_id=[0, first])
    reply = opened(folder).generate([[5, 6, 7]])[0]
    assert (reply.tokens, reply.ended) == ((first,), True)


@pytest.mark.parametrize("kind", ["Llama", "Bart"])
def test_logits_that_overflow_in_float16_are_refused(kind: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = model(tmp_path / "model", tiny_models, kind)
    tensors = load_file(folder / "model.safetensors")
    wide = ("up_proj.weight", "gate_proj.weight", "down_proj.weight", "fc1.weight", "fc2.weight")
    tensors |= {name: value * 1000 for name, value in tensors.items() if name.endswith(wide)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    item = ([5, 6, 7], [8, 9])
    exact, narrow = opened(folder), opened(folder, dtype="float16")
    assert all(torch.tensor(exact.logprobs([item], ScoringConfig())[0]).isfinite())
    assert len(exact.generate(PROMPTS)) == 2
    with raises("weights-not-finite"):
        narrow.generate(PROMPTS)
    with raises("weights-not-finite"):
        narrow.logprobs([item], ScoringConfig())
