"""Language-model inputs composed of pieces: token ids and vectors (soft tokens), in any number.

A row is a sequence of pieces. For scoring, rows are padded at the end, which causal attention ignores; for generation, at the
beginning. No result depends on the padding.
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
from methods.models.decoding import decoding
from methods.models.likelihood import UNBOUNDED, by_length, logits_only_at
from methods.training.packing import IMPLEMENTATIONS, batch_of, row_of

Piece: TypeAlias = Sequence[int] | Tensor
"""Token ids, or vectors [n, h]."""


def recompute_activations(model: Any, on: bool = True, **options: Any) -> None:
    """Enable or disable gradient checkpointing.

    Args:
        model: A model of `transformers`.
        on: True to recompute, False to keep activations.
        options: Options of `torch.utils.checkpoint`.
    """
    # Newer versions of transformers call it activation checkpointing.
    word = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    if on:
        getattr(model, f"{word}_checkpointing_enable")({"use_reentrant": False, **options})
    else:
        getattr(model, f"{word}_checkpointing_disable")()


def size(row: Sequence[Piece]) -> int:
    """Return a row's length in positions."""
    return sum(map(len, row))


def embedded(rows: Sequence[Sequence[Piece]], embeddings: nn.Module, side: str = "right") -> tuple[Tensor, Tensor]:
    """Embed rows as a padded batch in the precision of the embeddings.

    Args:
        rows: Rows with at least one piece each.
        embeddings: Embedding layer of the base model.
        side: Padding side.

    Returns:
        Vectors [B, n, h] and attention mask, int64 [B, n].
    """
    weight: Tensor = embeddings.weight
    ids = [list(piece) for row in rows for piece in row if not isinstance(piece, Tensor)]
    flat = torch.tensor([identifier for some in ids for identifier in some], dtype=torch.long, device=weight.device)
    known = iter(embeddings(flat).split([len(some) for some in ids]))
    vectors = [torch.cat([piece.to(weight) if isinstance(piece, Tensor) else next(known) for piece in row]) for row in rows]
    mask = pad_sequence([flat.new_ones(len(row)) for row in vectors], batch_first=True, padding_side=side)
    return pad_sequence(vectors, batch_first=True, padding_side=side), mask


def last_states(
    decoder: nn.Module, embeddings: nn.Module, rows: Sequence[Sequence[Piece]], count: int, budget: int, spread: bool = False
) -> Tensor:
    """Return a causal model's hidden states at the last `count` positions of each row; rows of similar length share a batch.

    Args:
        decoder: The model without its output layer.
        embeddings: Its token embeddings.
        rows: Rows with at least `count` positions each.
        count: Number of positions.
        budget: Maximum positions per batch, including padding.
        spread: Whether the last positions get position ids spread over the others instead of those after them.

    Returns:
        float32 [N, count, h], in the order of the rows.
    """
    lengths = [size(row) for row in rows]
    done: dict[int, Tensor] = {}
    for batch in by_length(lengths, budget):
        vectors, _ = embedded([rows[position] for position in batch], embeddings)
        more: dict[str, Tensor] = {}
        if spread:
            ends = torch.tensor([[lengths[position] - count] for position in batch], device=vectors.device)
            # Without a mask, positions that do not count up would be read as several texts in one row.
            ones = torch.ones(vectors.shape[:2], dtype=torch.long, device=vectors.device)
            more = {"position_ids": spread_positions(ends, count, vectors.shape[1]), "attention_mask": ones}
        states = decoder(inputs_embeds=vectors, use_cache=False, **more).last_hidden_state
        for state, position in zip(states, batch, strict=True):
            done[position] = state[lengths[position] - count : lengths[position]].float()
    return torch.stack([done[position] for position in range(len(rows))])


def spread_positions(ends: Tensor, count: int, width: int) -> Tensor:
    """Return position ids for rows of text followed by memory tokens: token j of `count` gets the position at the end of its
    share of the text.

    Args:
        ends: Number of text positions of each row, int64 [B, 1].
        count: Number of memory tokens.
        width: Length of a row.

    Returns:
        int64 [B, width].

    Source:
        Zhao et al. 2024, Position IDs Matter.
    """
    positions = torch.arange(width, device=ends.device)
    # Rounded up: the first place behind the tokens t with floor(t count / n) = j.
    shares = ((positions - ends + 1) * ends + count - 1) // count
    return torch.where(positions < ends, positions, shares.clamp(max=width))


@dataclass(frozen=True, slots=True)
class Taught:
    """Model outputs at the tokens of target replies.

    Attributes:
        logits: float32 [n, V].
        labels: The target tokens, int64 [n].
    """

    logits: Tensor
    labels: Tensor


def taught(model: Any, rows: Sequence[Sequence[Piece]], replies: Sequence[Sequence[int]]) -> Taught:
    """Compute logits at the tokens of target replies, row after row.

    Args:
        model: A causal language model.
        rows: Prompts.
        replies: Token ids of each reply, at least one.
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


def taught_together(model: Any, readings: Sequence[Sequence[Sequence[Piece]]], replies: Sequence[Sequence[Sequence[int]]]) -> Taught:
    """Compute logits at the tokens of replies to several prompts per example; a common prefix is computed once.

    Args:
        model: A causal language model.
        readings: Prompts of each example, which share all vectors and everything before them.
        replies: Token ids of the reply to each prompt, at least one.

    Returns:
        Up to rounding, the result of `taught` for all prompts in order.
    """
    kind = getattr(model.config.get_text_config(), "_attn_implementation", None)
    if kind not in IMPLEMENTATIONS or all(len(prompts) == 1 for prompts in readings):
        return taught(model, [row for prompts in readings for row in prompts], [ids for some in replies for ids in some])
    # A vector is an id below zero, so that equal beginnings are found by ids alone.
    packed = [row_of([_numbered(row) for row in prompts], some) for prompts, some in zip(readings, replies, strict=True)]
    batch = batch_of(packed, 0, model.device)
    vectors = model.get_input_embeddings()(batch.ids.clamp(min=0))
    own = [piece.to(vectors) for (first, *_) in readings for piece in first if isinstance(piece, Tensor)]
    if own:
        vectors = vectors.masked_scatter((batch.ids < 0).unsqueeze(-1), torch.cat(own))
    seen = batch.seen
    if kind == "eager":
        # This one adds its mask to the scores.
        seen = torch.zeros_like(seen, dtype=vectors.dtype).masked_fill(~seen, torch.finfo(vectors.dtype).min)
    which, column = (batch.labels != -100).nonzero(as_tuple=True)
    with logits_only_at(model, which, column - 1):
        logits = model(inputs_embeds=vectors, attention_mask=seen, position_ids=batch.positions, use_cache=False).logits[0]
    return Taught(logits.float(), batch.labels[which, column])


def _numbered(row: Sequence[Piece]) -> list[int]:
    ids: list[int] = []
    for piece in row:
        ids += range(-len(ids) - len(piece), -len(ids)) if isinstance(piece, Tensor) else piece
    return ids


def divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute the distillation loss T² KL(teacher ‖ student) per row.

    Args:
        student, teacher: Logits, [n, V].
        temperature: Temperature T, by which both logits are divided.

    Returns:
        [n], in nats.
    """
    wanted = (teacher / temperature).log_softmax(-1)
    terms = functional.kl_div((student / temperature).log_softmax(-1), wanted, reduction="none", log_target=True)
    return temperature**2 * terms.sum(-1)


def naming_terms(logits: Tensor, ids: Tensor, mask: Tensor, known: Tensor) -> Tensor:
    """Compute the loss of predicting a document's tokens from its memory vectors (ragmeter's addition).

    The tokens are divided evenly and in order: of n tokens, token t belongs to memory vector floor(t M / n).

    Args:
        logits: Logits of the base's output layer for each memory vector, [N, M, V].
        ids: Tokens of the documents, padded at the end, int64 [N, n].
        mask: False for padding, bool [N, n].
        known: Tokens to predict, bool [N, n].

    Returns:
        [N]: mean negative log-probability over the tokens to predict.
    """
    count = mask.sum(-1, keepdim=True)
    position = torch.arange(ids.shape[1], device=ids.device)
    slot = (position * logits.shape[1] // count).clamp(max=logits.shape[1] - 1)
    rows = torch.arange(len(ids), device=ids.device).unsqueeze(-1)
    log_probabilities = logits.float().log_softmax(-1)[rows, slot, ids]
    return -(log_probabilities * known).sum(-1) / known.sum(-1)


class Projector(nn.Module):
    """MLP that maps vectors of one model to inputs of another: optional RMS norm, linear, GELU, linear.

    Args:
        inner: Input width.
        width: Output width.
        norm: Whether to normalize the input.
    """

    def __init__(self, inner: int, width: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(inner, eps=1e-6) if norm else None
        self.first, self.second = nn.Linear(inner, width), nn.Linear(width, width)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map […, inner] to […, width]."""
        if self.norm is not None:
            vectors = self.norm(vectors)
        return self.second(functional.gelu(self.first(vectors)))


def write(
    model: Any, tokenizer: Any, rows: Sequence[Sequence[Piece]], ends: Sequence[int], pad: int, max_new_tokens: int, batch_size: int
) -> list[Generation]:
    """Generate replies to rows; rows of similar length share a batch.

    Args:
        model: A causal language model.
        tokenizer: Tokenizer of the model.
        rows: Prompts.
        ends: End tokens.
        pad: Padding token (any id).
        max_new_tokens: Maximum reply length in tokens.
        batch_size: Batch size.
    """
    lengths = [size(row) for row in rows]
    done: dict[int, Generation] = {}
    for batch in by_length(lengths, UNBOUNDED, batch_size):
        started = time.perf_counter()
        with torch.inference_mode():
            vectors, mask = embedded([rows[position] for position in batch], model.get_input_embeddings(), "left")
        limits = [lengths[position] for position in batch], ends, pad, max_new_tokens, started
        done.update(zip(batch, decode_greedily(model, tokenizer, vectors, mask, *limits), strict=True))
    return [done[position] for position in range(len(rows))]


def decode_greedily(
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
    """Generate replies greedily for a left-padded batch of embedded prompts [B, n, h]; time is measured from `started`."""
    ends = list(dict.fromkeys([*ends, *_own_ends(model)]))
    with torch.inference_mode():
        ids = model.generate(inputs_embeds=vectors, attention_mask=mask, **decoding(model, max_new_tokens, pad, ends)).tolist()
    seconds = (time.perf_counter() - started) / len(ids)
    return [_generation(tokenizer, length, row, ends, seconds) for length, row in zip(lengths, ids, strict=True)]


def _own_ends(model: Any) -> list[int]:
    own = model.generation_config.eos_token_id
    return [] if own is None else [own] if isinstance(own, int) else list(own)


def _generation(tokenizer: Any, prompt_tokens: int, ids: list[int], ends: Sequence[int], seconds: float) -> Generation:
    end = next((position for position, token in enumerate(ids) if token in ends), None)
    kept = ids if end is None else ids[:end]
    text = tokenizer.decode(kept, skip_special_tokens=True).strip()
    return Generation(text, prompt_tokens, len(kept) + (end is not None), seconds, end is not None, tuple(kept))
