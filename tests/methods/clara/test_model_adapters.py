"""Adapters on one base: the active and the trained ones are independent, and the base never changes."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from methods.clara.config import ADAPTERS
from methods.clara.generator import select
from methods.clara.prompts import answer, qa_pairs
from methods.training.adapters import LoraOptions
from tests.support.errors import raises

TEXTS = ["Ana was born in 1850 .", "Bor lived by the river .", "moss grows on the old stone bridge ."]
QUESTION = "Where was Ana born ?"
Make = Callable[..., Any]


def frozen_hash(clara: Any) -> str:
    """Hash everything that no stage may change: the base with its embeddings and output layer, and the marks."""
    digest = hashlib.sha256()
    for name, tensor in clara.module.state_dict().items():
        if "lora_" not in name and name != "rows.memory":
            digest.update(name.encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def adapter_hash(clara: Any, name: str) -> str:
    tensors = clara.adapters.of(name).values()
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def joint_loss(clara: Any) -> Any:
    """Run a joint step in the order of forward passes in which PEFT's own switches lose gradients: reasoner, then generator."""
    with torch.no_grad():
        memory = clara.encode(TEXTS).memory
    scores = clara.similarity(clara.encode([QUESTION], "reasoner").memory, memory)
    chosen = select(scores, 2, 0.1).apply(memory.unsqueeze(0))
    return clara.cross_entropy([answer(QUESTION, 2)], chosen, ["1850"])


def norms(clara: Any, name: str) -> list[float]:
    return [0.0 if item.grad is None else float(item.grad.norm()) for item in clara.adapters.of(name).values()]


def test_new_adapter_leaves_outputs_bit_identical(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind, drawn=False)
    bare = clara.encode(TEXTS, None).memory
    for name in ADAPTERS:
        assert torch.equal(clara.encode(TEXTS, name).memory, bare)


def test_output_depends_only_on_the_active_adapter(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    alone = {name: clara.encode(TEXTS, name).memory for name in (*ADAPTERS, None)}
    assert len({float(item.detach().sum()) for item in alone.values()}) == 4
    for before in (*ADAPTERS, None):
        for name in (*ADAPTERS, None):
            with clara.use(before):
                inside = clara.encode(TEXTS, name).memory
                assert clara.adapters.active == before
            assert torch.equal(inside, alone[name])


def test_only_one_adapter_is_active_at_a_time(make_clara: Make) -> None:
    clara = make_clara()
    with clara.use("compressor"), clara.use("generator"):
        from peft.tuners.lora import LoraLayer

        active = {tuple(module.active_adapters) for module in clara.module.modules() if isinstance(module, LoraLayer)}
    assert active == {("generator",)}


def test_switching_adapters_keeps_the_trainable_parameters(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    assert clara.trainable_parameters() == {}
    clara.set_trainable({"reasoner", "generator"})
    wanted = set(clara.trainable_parameters())
    inside = []
    with contextlib.suppress(RuntimeError), clara.use("compressor"), clara.use(None):
        inside.append(set(clara.trainable_parameters()))
        raise RuntimeError
    assert inside == [wanted]
    assert set(clara.trainable_parameters()) == wanted
    assert clara.adapters.active == "compressor"


def test_set_trainable_trains_exactly_the_named_parts(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    every: tuple[set[Any], ...] = ({"compressor", "generator", "memory"}, {"reasoner"}, {"reasoner", "generator"}, set())
    for parts in every:
        clara.set_trainable(parts)
        results = clara.trainable_parameters()
        assert ("rows.memory" in results) == ("memory" in parts)
        for name in ADAPTERS:
            own = {item for item in results if f".{name}." in item}
            # Every linear layer but the output layer, two factors each.
            layers = {"Phi3": 4}.get(kind, 7) * 2
            assert len(own) == (2 * layers if name in parts else 0)
        assert all("lora_" in item or item == "rows.memory" for item in results)


def test_unknown_part_is_refused(make_clara: Make) -> None:
    with pytest.raises(KeyError, match="decoder"):
        make_clara().set_trainable({"decoder"})
    with pytest.raises(KeyError, match="decoder"), make_clara().use("decoder"):
        pass


def test_unknown_layers_are_refused(make_clara: Make) -> None:
    with raises("base-without-adapter-support"):
        make_clara(lora={"targets": ["no_such_layer"]})


def test_joint_step_changes_only_reasoner_and_generator(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    clara.set_trainable({"reasoner", "generator"})
    joint_loss(clara).backward()
    assert min(norms(clara, "reasoner")) > 0
    assert min(norms(clara, "generator")) > 0
    assert max(norms(clara, "compressor")) == 0
    assert clara.module.rows.memory.grad is None


def test_compression_step_changes_compressor_generator_and_memory(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    clara.set_trainable({"compressor", "generator", "memory"})
    memory = clara.encode(TEXTS[:1]).memory
    clara.cross_entropy([qa_pairs()], memory, ["Question: Who ?\nAnswer: Ana"]).backward()
    assert min(norms(clara, "compressor")) > 0
    assert min(norms(clara, "generator")) > 0
    assert max(norms(clara, "reasoner")) == 0
    assert clara.module.rows.memory.grad.norm(dim=1).min() > 0


def test_training_leaves_the_base_bit_identical(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    before, rows = frozen_hash(clara), clara.module.rows.memory.clone()
    hashes = {name: adapter_hash(clara, name) for name in ADAPTERS}
    clara.set_trainable({"reasoner", "generator"})
    train(clara, joint_loss, 3)
    assert frozen_hash(clara) == before
    assert torch.equal(clara.module.rows.memory, rows)
    assert [adapter_hash(clara, name) == hashes[name] for name in ADAPTERS] == [True, False, False]


def test_training_memory_rows_changes_documents(make_clara: Make) -> None:
    clara = make_clara()
    before, rows, memory = frozen_hash(clara), clara.module.rows.memory.clone(), clara.encode(TEXTS).memory
    clara.set_trainable({"memory"})
    train(clara, lambda item: item.cross_entropy([qa_pairs()] * 3, item.encode(TEXTS).memory, ["Ana", "Bor", "moss"]), 2)
    assert frozen_hash(clara) == before
    assert ((clara.module.rows.memory - rows).abs().amax(1) > 0).all()
    assert not torch.allclose(clara.encode(TEXTS).memory, memory)


def test_joint_stage_does_not_change_documents(make_clara: Make) -> None:
    clara = make_clara()
    memory, question = clara.encode(TEXTS).memory, clara.encode([QUESTION], "reasoner").memory
    clara.set_trainable({"reasoner", "generator"})
    train(clara, joint_loss, 2)
    assert torch.equal(clara.encode(TEXTS).memory, memory)
    assert not torch.allclose(clara.encode([QUESTION], "reasoner").memory, question)


def train(clara: Any, loss: Callable[[Any], Any], steps: int) -> None:
    optimizer = torch.optim.AdamW(clara.trainable_parameters().values(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(clara).backward()
        optimizer.step()


def test_copied_adapter_is_equal_and_independent(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    clara.adapters.copy("compressor", "reasoner")
    source, target = clara.adapters.of("compressor"), clara.adapters.of("reasoner")
    for item, other in zip(source.values(), target.values(), strict=True):
        assert torch.equal(item, other)
        assert item.data_ptr() != other.data_ptr()
    untouched = adapter_hash(clara, "compressor")
    clara.set_trainable({"reasoner"})
    train(clara, joint_loss, 1)
    assert adapter_hash(clara, "compressor") == untouched != adapter_hash(clara, "reasoner")


def test_reset_adapter_is_an_identity_initialized_from_its_seed(make_clara: Make) -> None:
    clara = make_clara()
    others = [adapter_hash(clara, name) for name in ("compressor", "reasoner")]
    drawn = []
    for seed in (3, 3, 4):
        clara.adapters.reset("generator", seed)
        drawn.append(adapter_hash(clara, "generator"))
    assert drawn[0] == drawn[1] != drawn[2]
    assert [adapter_hash(clara, name) for name in ("compressor", "reasoner")] == others
    assert torch.equal(clara.encode(TEXTS, "generator").memory, clara.encode(TEXTS, None).memory)


@pytest.mark.slow
def test_model_initialization_depends_on_its_seed_and_keeps_the_global_random_state(make_clara: Make) -> None:
    torch.manual_seed(9)
    first, after = make_clara(drawn=False, seed=1), torch.rand(1)
    torch.manual_seed(9)
    assert torch.equal(torch.rand(1), after)
    second, third = make_clara(drawn=False, seed=1), make_clara(drawn=False, seed=2)
    assert adapter_hash(first, "reasoner") == adapter_hash(second, "reasoner") != adapter_hash(third, "reasoner")
    assert torch.equal(first.module.rows.memory, second.module.rows.memory)
    assert not torch.equal(first.module.rows.memory, third.module.rows.memory)


@pytest.mark.slow
def test_gradient_checkpointing_gives_the_same_gradient_for_every_adapter(make_clara: Make, kind: str) -> None:
    # Recomputing happens at backward, when another adapter is active than in the forward.
    clara = make_clara(kind, lora={"dropout": 0.0})
    clara.set_trainable({"compressor", "reasoner", "generator", "memory"})
    clara.module.train()

    def gradients() -> list[torch.Tensor]:
        clara.module.zero_grad()
        memory = clara.encode(TEXTS).memory
        scores = clara.similarity(clara.encode([QUESTION], "reasoner").memory, memory)
        chosen = select(scores, 2, 0.1).apply(memory.unsqueeze(0))
        clara.cross_entropy([answer(QUESTION, 2)], chosen, ["1850"]).backward()
        return [parameter.grad.clone() for parameter in clara.trainable_parameters().values()]

    kept = gradients()
    clara.recompute_activations(True)
    calls = []
    hook = clara.base.get_decoder().layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    recomputed = gradients()
    hook.remove()
    assert len(calls) == 6, "three forwards, each computed twice"
    for item, other in zip(kept, recomputed, strict=True):
        assert torch.allclose(item, other, atol=1e-6, rtol=1e-4)
    clara.recompute_activations(False)
    assert not clara.base.get_decoder().layers[0].gradient_checkpointing


@pytest.mark.slow
def test_adapter_of_mistral_7b_has_the_size_in_the_paper() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    from methods.training.adapters import Adapters

    with torch.device("meta"):
        base = MistralForCausalLM(MistralConfig())
        adapters = Adapters(base, LoraOptions(), ("compressor", "generator"), 0, "mistral")
    assert sum(item.numel() for item in adapters.of("generator").values()) == 41_943_040
