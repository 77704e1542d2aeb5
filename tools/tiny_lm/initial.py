"""Where training starts: an ordinary Llama whose first two layers can already copy, and whose last one passes on what
it looks at.

Learning to copy from nothing takes more steps than all the rest together (the loss on repeated random tokens stays
flat for thousands of steps and then drops). Here the first layer starts with heads that look at the previous token,
and the second with heads that look for the token that followed the same token before, and copy it: an induction
circuit. The heads of the last layer that training will point at answers (`pointing.py`) start by passing on the token
that they look at. It is a starting point like any other random draw; training changes all of it.

Source: the circuit is that of Olsson et al., *In-context Learning and Induction Heads* (2022); starting attention in
a useful structure follows Trockman and Kolter, *Mimetic Initialization of Self-Attention Layers* (2023).
"""

from __future__ import annotations

import math
from typing import Any

HIDDEN, LAYERS, HEADS, FEED_FORWARD = 192, 5, 6, 416
HEADS_THAT_COPY = 4
"""So many heads hold all of a token that tells it from others."""
ROPE_THETA = 1e7
"""Long periods: most pairs of a head hardly rotate within a prompt, so that they compare content at any distance."""
LENGTH = 1024
_SLOW = 7
"""First pair of a head that turns by less than about a radian over 400 tokens."""


def fresh_model(vocabulary: int, pad: int, bos: int, eos: int, seed: int, layers: int = LAYERS) -> Any:
    """Create a `LlamaForCausalLM` with random weights to train from.

    Args:
        vocabulary: Number of tokens.
        pad, bos, eos: Ids of the special tokens.
        seed: Random seed of the weights.
        layers: Number of layers, at least two.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=eos,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        _random(model)
        _copying(model)
    return model


def _random(model: Any) -> None:
    """Small random weights, and heads of later layers that begin by comparing content."""
    import torch

    h = HIDDEN
    layers = model.model.layers
    for number, layer in enumerate(layers):
        attention = layer.self_attn
        for matrix in (attention.q_proj, attention.k_proj, attention.v_proj, layer.mlp.gate_proj, layer.mlp.up_proj):
            torch.nn.init.normal_(matrix.weight, std=0.7 / math.sqrt(h))
        for matrix in (attention.o_proj, layer.mlp.down_proj):
            torch.nn.init.normal_(matrix.weight, std=0.003)
        if number >= 2:
            size = h // HEADS
            for head in range(HEADS // 2):
                rows = torch.arange(head * size, (head + 1) * size)
                attention.k_proj.weight[rows] = attention.q_proj.weight[rows]


def _copying(model: Any) -> None:
    """Previous-token heads in the first layer, induction heads in the second, heads that pass on what they see in the
    last, over a token part of the stream.

    The stream's first dimension is the same for all tokens, the next `pieces` are free for the previous token, the
    rest tells tokens apart.
    """
    import torch

    h, size = HIDDEN, HIDDEN // HEADS
    half = size // 2
    pairs = torch.arange(half)
    frequency = ROPE_THETA ** (-pairs / half)
    scale = 1 / math.sqrt(h)
    embedding = model.model.embed_tokens.weight
    pieces = 2 * size
    content = torch.arange(1 + pieces, h)
    torch.nn.init.normal_(embedding, std=scale * math.sqrt(h / len(content)))
    embedding[:, 0] = 3 * scale
    embedding[:, 1 : 1 + pieces] *= 0.1

    # What identifies a token to the heads: a random projection of its content, `pieces` numbers.
    projection = torch.linalg.qr(torch.randn(len(content), pieces))[0].T  # [pieces, content]
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    slow = torch.arange(_SLOW, half)
    both = torch.cat([slow, slow + half])  # dimensions of a head that compare content
    strength = 7.5 / 3
    for head in (0, 1):
        rows = torch.arange(head * size, (head + 1) * size)
        for matrix in (first.q_proj, first.k_proj, first.v_proj):
            matrix.weight[rows] = 0
        fast = pairs[:4]
        # Rotated by one step more, a key meets the query of the next token.
        first.q_proj.weight[rows[fast], 0] = strength
        first.k_proj.weight[rows[fast], 0] = strength * torch.cos(frequency[fast])
        first.k_proj.weight[rows[fast + half], 0] = strength * torch.sin(frequency[fast])
        part = projection[head * size : (head + 1) * size]
        first.v_proj.weight[rows[:, None], content] = part
        first.o_proj.weight[:, rows] = 0
        first.o_proj.weight[1 + rows, rows] = 2 * scale
    for head in range(HEADS_THAT_COPY):
        rows = torch.arange(head * size, (head + 1) * size)
        for matrix in (second.q_proj, second.k_proj):
            matrix.weight[rows] = 0
        chosen = (head * 16 + torch.arange(len(both))) % pieces
        second.q_proj.weight[rows[both][:, None], content] = 2.6 * projection[chosen]
        second.k_proj.weight[rows[both], 1 + chosen] = 2.6
    for attention in (second, model.model.layers[-1].self_attn):
        for head in range(HEADS_THAT_COPY):
            rows = torch.arange(head * size, (head + 1) * size)
            copied = content[head * size : (head + 1) * size]
            attention.v_proj.weight[rows] = 0
            attention.v_proj.weight[rows[: len(copied)], copied] = 1
            attention.o_proj.weight[:, rows] = 0
            attention.o_proj.weight[copied, rows[: len(copied)]] = 4 * scale
