"""Training only an encoder's last layers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from methods.ark.tower import freeze_all_but_last
from tests.support.errors import raises

torch = pytest.importorskip("torch")

KINDS = {"Bert": ("bert", "encoder.layer."), "XLMRoberta": ("xlmr", "encoder.layer."), "Qwen3": ("qwen3", "layers.")}


def encoder(kind: str, tiny_models: ModuleType, folder: Path, layers: int = 3) -> Any:
    import transformers
    from sentence_transformers import SentenceTransformer

    style = KINDS[kind][0]
    heads = {"num_key_value_heads": 4, "head_dim": 8} if kind == "Qwen3" else {}
    config = tiny_models.config(kind, len(tiny_models.tokenizer(style)), num_hidden_layers=layers, **heads)
    tiny_models.save(folder, style, getattr(transformers, f"{kind}Model")(config))
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {})
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_last_layers_are_trained(kind: str, tiny_models: ModuleType, tmp_path: Path) -> None:
    model = encoder(kind, tiny_models, tmp_path)
    freeze_all_but_last(model, 1)
    trained = {name for name, item in model.named_parameters() if item.requires_grad}
    frozen = {name for name, item in model.named_parameters() if not item.requires_grad}
    stack = KINDS[kind][1]
    assert any(f"{stack}2." in name for name in trained)
    assert {position for position in range(3) if any(f"{stack}{position}." in name for name in frozen)} == {0, 1}
    assert not any(f"{stack}{position}." in name for name in trained for position in range(2))
    assert any("embed" in name for name in frozen)
    assert not any("embed" in name for name in trained)

    before = {name: item.detach().clone() for name, item in model.named_parameters()}
    model.train()
    loss = model(model.tokenize(["who built the bridge ?"]))["sentence_embedding"].pow(3).sum()
    loss.backward()
    torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1.0).step()
    moved = {name for name, item in model.named_parameters() if not torch.equal(item, before[name])}
    assert moved
    assert moved <= trained


def test_more_trainable_layers_than_the_model_has_are_refused(tiny_models: ModuleType, tmp_path: Path) -> None:
    with raises("too-few-encoder-layers"):
        freeze_all_but_last(encoder("Bert", tiny_models, tmp_path), 4)
