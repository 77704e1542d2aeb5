"""Documents and questions to memory vectors: the last states of M memory tokens that stand behind a text.

A text is `begin bos text eos` and then the memory tokens; of a long one the end is cut, its eos with it. Attention is
causal, so what stands behind the memory is never seen: rows are padded at the end, and no mask is needed.

Source: paper, section 2.2 and equations 2.2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from methods.clara.base import Tokens, decoder_of
from methods.clara.memory import MemoryRows
from methods.clara.template import Layout
from methods.models.batching import by_length
from methods.models.scoring import padded


@dataclass(frozen=True, slots=True)
class Encoded:
    """Texts in memory.

    Attributes:
        memory: float32 [N, M, h].
        document_mean: Mean of the states of each text's own tokens, marks included: float32 [N, h].
        memory_mean: Mean of its memory vectors: float32 [N, h].
    """

    memory: Tensor
    document_mean: Tensor
    memory_mean: Tensor


class Compressor:
    """Encodes texts through whichever adapter is active.

    Args:
        model: The causal language model below the adapters.
        tokenizer: With the new tokens.
        rows: Their embeddings.
        tokens: Their ids.
        layout: How a document is written.
        max_length: Longest text in tokens (L).
        spread: Whether memory tokens take positions all over the text, in place of those behind it.
    """

    def __init__(
        self, model: Any, tokenizer: Any, rows: MemoryRows, tokens: Tokens, layout: Layout, max_length: int, spread: bool = False
    ) -> None:
        self._spread = spread
        self._decoder = decoder_of(model)
        self._tokenizer, self._rows, self._tokens, self._layout = tokenizer, rows, tokens, layout
        self._before = [tokens.begin, *([tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else [])]
        self._after = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        self._room = max_length + len(self._before) + len(self._after)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, without the memory tokens; what looks like a special token in a text is text."""
        if not texts:
            return []
        written = [self._layout.document(text) for text in texts]
        found = self._tokenizer(written, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [[*self._before, *ids, *self._after][: self._room] for ids in found]

    def encode(self, texts: Sequence[str], token_budget: int) -> Encoded:
        """Encode texts, those of like length together; the result does not depend on that.

        Args:
            texts: Documents or questions, in any order.
            token_budget: Tokens of a batch, padding included.
        """
        ids = self.ids(texts)
        batches = by_length([len(one) for one in ids], token_budget, fixed=self._tokens.count)
        parts = [self._batch([ids[place] for place in places]) for places in batches]
        device = self._rows.memory.device
        order = torch.argsort(torch.tensor([place for places in batches for place in places], device=device))
        if not parts:
            width = self._rows.memory.shape[1]
            nothing = torch.zeros(0, width, device=device)
            return Encoded(nothing.reshape(0, self._tokens.count, width), nothing, nothing)
        memory, documents = (torch.cat(side)[order] for side in zip(*parts, strict=True))
        return Encoded(memory, documents, memory.mean(1))

    def _batch(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Memory [n, M, h] and means of the texts' own states [n, h], float32."""
        count, device = self._tokens.count, self._rows.memory.device
        memory = list(range(self._tokens.first, self._tokens.first + count))
        filled, _ = padded([row + memory for row in rows], 0)
        ends = torch.tensor([len(row) for row in rows], device=device).unsqueeze(1)
        embedded = self._rows.embed(torch.tensor(filled, device=device))
        states = self._states(embedded, ends)
        places = ends + torch.arange(count, device=device)
        kept = states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1])).float()
        own = torch.arange(states.shape[1], device=device) < ends
        return kept, (states.float() * own.unsqueeze(-1)).sum(1) / ends

    def _states(self, embedded: Tensor, ends: Tensor) -> Tensor:
        if not self._spread:
            return self._decoder(inputs_embeds=embedded, use_cache=False).last_hidden_state
        # Without a mask, positions that do not count up would be read as several texts in one row.
        return self._decoder(
            inputs_embeds=embedded,
            position_ids=self._positions(ends, embedded.shape[1]),
            attention_mask=torch.ones(embedded.shape[:2], dtype=torch.long, device=embedded.device),
            use_cache=False,
        ).last_hidden_state

    def _positions(self, ends: Tensor, width: int) -> Tensor:
        """Positions of rows of which the first so many are text: memory token j of M stands behind its share of it."""
        places = torch.arange(width, device=ends.device)
        # Rounded up: the first place behind the tokens t with floor(t M / n) = j.
        shares = ((places - ends + 1) * ends + self._tokens.count - 1) // self._tokens.count
        return torch.where(places < ends, places, shares.clamp(max=width))


def alignment(encoded: Encoded, over: str = "mean") -> Tensor:
    """How far the mean of memory is from that of the document: the squared distance, averaged over documents.

    Args:
        encoded: Documents.
        over: mean: divided by the width, as released and as λ = 0.1 is meant for; sum: as printed in equation 2.2.
    """
    loss = functional.mse_loss(encoded.document_mean, encoded.memory_mean)
    return loss if over == "mean" else loss * encoded.memory_mean.shape[-1]


def similarity(queries: Tensor, memory: Tensor) -> Tensor:
    """Cosine between the vectors of questions and of documents, each flattened (equation 3.1).

    Args:
        queries: [B, M, h].
        memory: [B, D, M, h], or [D, M, h]: the same documents for all.

    Returns:
        float32 [B, D] (float64 for float64).
    """
    wanted = torch.float64 if queries.dtype == torch.float64 else torch.float32
    with torch.autocast(queries.device.type, enabled=False):
        q = functional.normalize(queries.flatten(1).to(wanted), dim=-1)
        d = functional.normalize(memory.flatten(-2).to(wanted), dim=-1)
        return q @ d.T if d.dim() == 2 else torch.einsum("bn,bdn->bd", q, d)
