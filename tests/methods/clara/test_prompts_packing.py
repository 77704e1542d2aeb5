"""Exchanges over one encoding, packed into one row, equal separate ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.clara.prompts import answer, paraphrase, qa_pairs
from methods.training.packing import batch_of, row_of

Make = Callable[..., Any]
tokens = st.lists(st.integers(1, 3), min_size=1, max_size=5)
REQUESTED = [[answer("Where was Ana born ?", 2), answer("who ?", 2), answer("who lived ?", 2)], [answer("what is a", 1)]]
TAUGHT = [["on the river", "Bor Ana", "1850"], ["moss grows"]]


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5))
def test_packed_exchanges_are_whole_and_do_not_attend_to_each_other(pairs: list[Any]) -> None:
    prompts, replies = zip(*pairs, strict=True)
    row = row_of(prompts, replies)
    longest = next((n for n, some in enumerate(zip(*prompts, strict=False)) if len({*some}) > 1), 9)
    assert row.shared == min(longest, min(map(len, prompts)) - 1)
    batch = batch_of([row, row_of([[1]], [[2]])], 0, "cpu")
    for number, (prompt, reply) in enumerate(pairs, start=1):
        positions = [position for position, block in enumerate(row.block) if block in (0, number)]
        assert [row.ids[position] for position in positions] == [*prompt, *reply]
        assert [row.positions[position] for position in positions] == list(range(len(prompt) + len(reply)))
        assert [row.labels[position] for position in positions] == [-100] * len(prompt) + list(reply)
        last = batch.seen[0, 0, positions[-1]].nonzero().flatten().tolist()
        assert last == positions
        # What comes before a reply's first token is the end of its own prompt.
        first = positions[len(prompt)]
        assert row.block[first - 1] in (0, number)
        assert row.ids[first - 1] == prompt[-1]
    assert batch.seen.any(-1).all()


def prepared(clara: Any) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    shape = clara.memory_tokens, clara.hidden_size
    return [torch.randn(item[0].documents * shape[0], shape[1], generator=draw).requires_grad_() for item in REQUESTED]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_losses_and_gradients_equal_those_of_separate_exchanges(make_clara: Make, kind: str, attention: str) -> None:
    clara = make_clara(kind)
    clara.base.set_attn_implementation(attention)
    clara.set_trainable({"generator"})
    memory = prepared(clara)
    together = clara.packed_cross_entropy(REQUESTED, memory, TAUGHT)
    together.sum().backward()
    results = [item.grad for item in memory], [parameter.grad.clone() for parameter in clara.trainable_parameters().values()]
    clara.module.zero_grad()
    again = prepared(clara)
    flat = [
        (item, own, reply)
        for some, own, replies in zip(REQUESTED, again, TAUGHT, strict=True)
        for item, reply in zip(some, replies, strict=True)
    ]
    prompts, own, replies = map(list, zip(*flat, strict=True))
    alone = clara.cross_entropy(prompts, own, replies, "row_sums")
    alone.sum().backward()
    assert together.tolist() == pytest.approx([float(alone[:3].sum()), float(alone[3])], rel=1e-5)
    assert min(float(item.abs().max()) for item in results[0]) > 0.01
    for item, other in zip(results[0], again, strict=True):
        torch.testing.assert_close(item, other.grad, rtol=1e-3, atol=1e-4)
    for item, parameter in zip(results[1], clara.trainable_parameters().values(), strict=True):
        torch.testing.assert_close(item, parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_pocket_model_supports_packing(make_clara: Make) -> None:
    clara = make_clara("pocket", max_length=16, rate=4, memory_length="embedding")
    memory = prepared(clara)
    together = clara.packed_cross_entropy(REQUESTED, memory, TAUGHT)
    alone = clara.cross_entropy(REQUESTED[0], [memory[0]] * 3, TAUGHT[0], "row_sums")
    assert float(together[0]) == pytest.approx(float(alone.sum()), rel=1e-5)


def test_prompts_that_differ_before_the_memory_are_not_packed(make_clara: Make) -> None:
    clara = make_clara("Mistral")
    memory = prepared(clara)[1:]
    assert clara.packed_cross_entropy([[paraphrase(0), qa_pairs()]], memory, [["moss grows", "who ?"]]) is None


def test_attention_without_mask_support_is_not_packed(make_clara: Make) -> None:
    clara = make_clara("Llama")
    clara.base.config._attn_implementation = "flash_attention_2"
    assert clara.packed_cross_entropy(REQUESTED, prepared(clara), TAUGHT) is None
