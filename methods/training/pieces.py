"""Prompts made of pieces: token ids, or vectors in the place of tokens, of any number each.

A row is a list of pieces one after another. Rows are read by a causal language model, padded at their end, where what
stands behind is never seen; written on from, padded at their beginning; and no result depends on the padding.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from methods.models.causal import Generation
from methods.models.likelihood import UNBOUNDED, by_length, logits_only_at

Piece: TypeAlias = Sequence[int] | Tensor
"""Token ids, or vectors [n, h]."""


def size(row: Sequence[Piece]) -> int:
    """Places that a row takes."""
    return sum(map(len, row))


def embedded(rows: Sequence[Sequence[Piece]], embeddings: nn.Module, side: str = "right") -> tuple[Tensor, Tensor]:
    """Rows as a batch in the precision of the embeddings.

    Args:
        rows: At least one piece each.
        embeddings: From ids to vectors, of a base.
        side: Where shorter rows are padded.

    Returns:
        Vectors [B, n, h], and where one stands, int64 [B, n].
    """
    weight: Tensor = embeddings.weight
    ids = [list(piece) for row in rows for piece in row if not isinstance(piece, Tensor)]
    flat = torch.tensor([identifier for some in ids for identifier in some], dtype=torch.long, device=weight.device)
    known = iter(embeddings(flat).split([len(some) for some in ids]))
    vectors = [torch.cat([piece.to(weight) if isinstance(piece, Tensor) else next(known) for piece in row]) for row in rows]
    mask = pad_sequence([flat.new_ones(len(row)) for row in vectors], batch_first=True, padding_side=side)
    return pad_sequence(vectors, batch_first=True, padding_side=side), mask


def last_states(decoder: nn.Module, embeddings: nn.Module, rows: Sequence[Sequence[Piece]], count: int, budget: int) -> Tensor:
    """What a causal model makes of the last places of each row, those of like length together.

    Args:
        decoder: The part below the output layer.
        embeddings: Of its tokens.
        rows: At least `count` places each.
        count: Places.
        budget: Places of a batch, padding included.

    Returns:
        float32 [N, count, h], in the order of the rows.
    """
    lengths = [size(row) for row in rows]
    done: dict[int, Tensor] = {}
    for batch in by_length(lengths, budget):
        vectors, _ = embedded([rows[position] for position in batch], embeddings)
        states = decoder(inputs_embeds=vectors, use_cache=False).last_hidden_state
        for state, position in zip(states, batch, strict=True):
            done[position] = state[lengths[position] - count : lengths[position]].float()
    return torch.stack([done[position] for position in range(len(rows))])


@dataclass(frozen=True, slots=True)
class Taught:
    """What a model says at each token of the replies to some rows.

    Attributes:
        logits: float32 [n, V].
        labels: The tokens themselves, int64 [n].
    """

    logits: Tensor
    labels: Tensor


def taught(model: Any, rows: Sequence[Sequence[Piece]], replies: Sequence[Sequence[int]]) -> Taught:
    """Logits at the tokens of replies, row after row.

    Args:
        model: A causal language model.
        rows: Prompts.
        replies: Token ids behind each, at least one.
    """
    whole = [[*row, reply] for row, reply in zip(rows, replies, strict=True)]
    vectors, _ = embedded(whole, model.get_input_embeddings())
    starts = [size(row) for row in rows]
    positions = [(n, start + at) for n, (start, reply) in enumerate(zip(starts, replies, strict=True)) for at in range(len(reply))]
    which, column = torch.tensor(positions, device=vectors.device).T
    labels = torch.tensor([identifier for reply in replies for identifier in reply], device=vectors.device)
    with logits_only_at(model, which, column - 1):
        logits = model(inputs_embeds=vectors, use_cache=False).logits[0]
    return Taught(logits.float(), labels)


def divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """How far a student's distributions are from a teacher's: T² KL(teacher ‖ student) of each row.

    Args:
        student, teacher: Logits, [n, V].
        temperature: T, by which both are divided.

    Returns:
        [n], in nats.
    """
    wanted = (teacher / temperature).log_softmax(-1)
    terms = functional.kl_div((student / temperature).log_softmax(-1), wanted, reduction="none", log_target=True)
    return temperature**2 * terms.sum(-1)


class Projector(nn.Module):
    """From vectors of one model to places of another: linear, GELU, linear; before it perhaps a norm (RMS).

    Args:
        inner: Width of what comes in.
        width: Of what goes out.
        norm: Whether it is normalized first.
    """

    def __init__(self, inner: int, width: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(inner, eps=1e-6) if norm else None
        self.first, self.second = nn.Linear(inner, width), nn.Linear(width, width)

    def forward(self, vectors: Tensor) -> Tensor:
        """[…, inner] to […, width]."""
        if self.norm is not None:
            vectors = self.norm(vectors)
        return self.second(functional.gelu(self.first(vectors)))


# -- Writing: greedily, from a prompt of any pieces --


def write(
    model: Any, tokenizer: Any, rows: Sequence[Sequence[Piece]], ends: Sequence[int], pad: int, max_new_tokens: int, batch_size: int
) -> list[Generation]:
    """Write replies, those to rows of like length together.

    Args:
        model: A causal language model.
        tokenizer: Of it.
        rows: Prompts.
        ends: Tokens that end a reply.
        pad: Any token.
        max_new_tokens: Longest reply.
        batch_size: Rows at once.
    """
    lengths = [size(row) for row in rows]
    done: dict[int, Generation] = {}
    for batch in by_length(lengths, UNBOUNDED, batch_size):
        started = time.perf_counter()
        with torch.inference_mode():
            vectors, mask = embedded([rows[position] for position in batch], model.get_input_embeddings(), "left")
        limits = [lengths[position] for position in batch], ends, pad, max_new_tokens, started
        done.update(zip(batch, written(model, tokenizer, vectors, mask, *limits), strict=True))
    return [done[position] for position in range(len(rows))]


def written(
    model: Any,
    tokenizer: Any,
    vectors: Tensor,
    mask: Tensor,
    lengths: Sequence[int],
    ends: Sequence[int],
    pad: int,
    max_new_tokens: int,
    started: float,
) -> list[Generation]:
    """Replies to a batch of prompts as vectors [B, n, h], padded at their beginning; its time counts from `started`."""
    ends = list(dict.fromkeys([*ends, *_own_ends(model)]))
    with torch.inference_mode():
        ids = model.generate(
            inputs_embeds=vectors,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
            pad_token_id=pad,
            eos_token_id=ends,
        ).tolist()
    seconds = (time.perf_counter() - started) / len(ids)
    return [_generation(tokenizer, length, row, ends, seconds) for length, row in zip(lengths, ids, strict=True)]


def _own_ends(model: Any) -> list[int]:
    own = model.generation_config.eos_token_id
    return [] if own is None else [own] if isinstance(own, int) else list(own)


def _generation(tokenizer: Any, prompt_tokens: int, ids: list[int], ends: Sequence[int], seconds: float) -> Generation:
    end = next((position for position, token in enumerate(ids) if token in ends), None)
    kept = ids if end is None else ids[:end]
    text = tokenizer.decode(kept, skip_special_tokens=True).strip()
    return Generation(text, prompt_tokens, len(kept) + (end is not None), seconds, end is not None)
