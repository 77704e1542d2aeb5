"""Merged adapters give what PEFT computes without merging, also on bases that share input and output vectors."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from methods.models.adapters import adapted
from tests.support.errors import raises

pytest.importorskip("peft")

ADAPTERS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "output": {"target_modules": ["q_proj", "lm_head"]},
    "input": {"target_modules": ["q_proj", "embed_tokens"]},
    "both, tied by PEFT": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    "whole output": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "some tokens": {"target_modules": ["q_proj"], "trainable_token_indices": [5, 6]},
    "other ranks": {"target_modules": "all-linear", "use_rslora": True, "use_dora": True, "rank_pattern": {"q_proj": 1}},
}


def base(folder: Path, tiny: ModuleType, tied: bool) -> str:
    import torch
    import transformers

    torch.manual_seed(0)
    config = tiny.config("Llama", len(tiny.tokenizer("mistral")), tie_word_embeddings=tied)
    return str(tiny.save(folder, "mistral", tiny.scaled(transformers.LlamaForCausalLM(config))))


def loaded(folder: str, tokens: int = 0) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    if tokens:
        model.resize_token_embeddings(model.config.vocab_size + tokens)
    return model


def trained(folder: Path, model: Any, **options: Any) -> str:
    """Save an adapter with random weights."""
    import torch
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=2, **options))
        for weight in adapter.parameters():
            if weight.requires_grad:
                torch.nn.init.normal_(weight, std=0.3)
        adapter.save_pretrained(str(folder))
    return str(folder)


def logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[5, 6, 7, 8]])).logits


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ADAPTERS)
def test_merged_adapter_gives_the_logits_of_the_unmerged_one(kind: str, tied: bool, tiny_models: ModuleType, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel

    folder = base(tmp_path / "base", tiny_models, tied)
    adapter = trained(tmp_path / "adapter", loaded(folder), **ADAPTERS[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = logits(PeftModel.from_pretrained(loaded(folder), adapter))
        merged = adapted(loaded(folder), adapter, where="adapter")
    assert not torch.allclose(expected, logits(loaded(folder)), atol=0.1)
    torch.testing.assert_close(logits(merged), expected, rtol=0, atol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(loaded(str(tmp_path / "merged"))), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("options", [{"target_modules": ["q_proj"]}, {"target_modules": ["lm_head"], "modules_to_save": ["embed_tokens"]}])
def test_adapter_with_vectors_of_further_tokens_extends_its_base(
    options: dict[str, Any], tied: bool, tiny_models: ModuleType, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel

    folder = base(tmp_path / "base", tiny_models, tied)
    adapter = trained(tmp_path / "adapter", loaded(folder, tokens=2), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = logits(PeftModel.from_pretrained(loaded(folder, tokens=2), adapter))
        merged = adapted(loaded(folder), adapter, where="adapter")
    torch.testing.assert_close(logits(merged), expected, rtol=0, atol=1e-4)


def test_adapter_of_a_base_with_wider_layers_is_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    folder = base(tmp_path / "base", tiny_models, True)
    import transformers

    wide = transformers.LlamaForCausalLM(tiny_models.config("Llama", 200, hidden_size=64))
    adapter = trained(tmp_path / "adapter", wide, target_modules=["q_proj"], modules_to_save=["embed_tokens"])
    with raises("adapter-base-mismatch"):
        adapted(loaded(folder), adapter, where="adapter")
