"""Select documents differentiably, and generate or score replies from their memory vectors.

A prompt contains placeholder tokens for the memory of k documents, whose embeddings are replaced by the memory vectors. Nothing
is truncated: a prompt that is too long with its reply raises an error.

`select` chooses the best k documents so that the loss has a gradient in the scores. Forward, the weights are one-hot rows of
the k highest scores; backward, they are those of a softmax over the documents not yet taken (straight-through estimator). With
memory m_i, gradient g_j at slot j and soft weights p_j, the scores get

    dL/ds_i = (1/tau) Σ_j p_j[i] g_jᵀ (m_i − Σ_l p_j[l] m_l)

Source: paper, equations 3.3 to 3.6 and algorithm 1. They differ in the mask of selected documents: the equation divides it by
the temperature, the algorithm does not, which leaks weight onto selected documents. The default mask is −∞, for which both
agree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.core.errors import UserError
from methods.clara.config import Variant
from methods.clara.prompts import Layout, Request
from methods.models.causal import Generation
from methods.models.likelihood import UNBOUNDED, TextEncoder, by_length, logits_only_at, padded
from methods.training.packing import IMPLEMENTATIONS, batch_of, row_of
from methods.training.pieces import decode_greedily
from methods.training.soft_prompts import MemoryRows, Tokens, harmless

Memory: TypeAlias = Sequence[Tensor] | Tensor | None
"""Memory of each prompt's documents, [k_i · M, h] or [k_i, M, h]; or one tensor [B, k, M, h] for all; None if no prompt has
memory.
"""
Reduction = Literal["tokens", "row_means", "row_sums"]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A batch of embedded prompts, ready for the model.

    Attributes:
        embedded: Input embeddings [B, n, h].
        mask: Attention mask, int64 [B, n].
        labels: Token ids of the reply, -100 elsewhere, int64 [B, n].
        ids: Token ids, int64 [B, n].
    """

    embedded: Tensor
    mask: Tensor
    labels: Tensor
    ids: Tensor


class Generator:
    """Generates and scores replies with the active adapter.

    Args:
        model: The causal language model below the adapters.
        tokenizer: Tokenizer with the added memory tokens.
        rows: Embeddings of the added tokens.
        tokens: Ids of the added tokens.
        layout: Prompt format.
        max_prompt: Maximum tokens of prompt and reply.
        max_length: Maximum tokens of a document given as text.
        as_embeddings: Whether memory vectors are rescaled to the mean norm of the base's embeddings.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        rows: MemoryRows,
        tokens: Tokens,
        layout: Layout,
        max_prompt: int,
        max_length: int,
        as_embeddings: bool = False,
    ) -> None:
        self._model, self._tokenizer, self._rows, self._tokens = model, tokenizer, rows, tokens
        self._layout, self._max_length = layout, max_length
        self._encoder = TextEncoder(tokenizer)
        self._between = tokenizer.convert_ids_to_tokens(tokens.between)
        self._ending = tokenizer.convert_tokens_to_ids(layout.ending)
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.room = min(max_prompt, positions or max_prompt)
        pad = tokenizer.pad_token_id
        self._pad = 0 if pad is None else pad
        weight = model.get_input_embeddings().weight
        self._norm = float(weight.detach().float().norm(dim=-1).mean()) if as_embeddings else None

    def prompt_ids(self, prompt: Request) -> list[int]:
        """Return a prompt's token ids.

        Raises:
            UserError: The base's chat template drops or changes its input.
        """
        texts = tuple(harmless(self._cut(text)) for text in prompt.texts)
        plain = replace(prompt, question=harmless(prompt.question), texts=texts)
        text = self._layout.prompt(plain, self._tokens.memory, self._between)
        ids = list(self._tokenizer(text, add_special_tokens=self._layout.special)["input_ids"])
        first, count = self._tokens.first, self._tokens.count
        slots = [identifier for identifier in ids if first <= identifier < first + count]
        if slots != list(range(first, first + count)) * prompt.documents:
            raise UserError(
                f"a prompt has {len(slots)} slots for memory instead of {prompt.documents * count}",
                code="memory-slot-mismatch",
                where="template",
                try_this="template: plain, because this base's chat template changes its input",
            )
        return ids

    def target_ids(self, target: str) -> list[int]:
        """Return a reply's token ids, including the end token.

        Raises:
            ValueError: The reply is empty.
        """
        if not target:
            raise ValueError("a target is empty: each row needs a text to learn")
        return [*self._encoder.target(self._layout.reply(target)), self._ending]

    def _cut(self, text: str) -> str:
        """Truncate a document to L tokens, and return its text."""
        ids = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return text if len(ids) <= self._max_length else str(self._tokenizer.decode(ids[: self._max_length]))

    def length(self, prompt: Request, target: str = "") -> int:
        """Return the number of tokens of a prompt with its reply, to be compared with `room`."""
        return len(self.prompt_ids(prompt)) + (len(self.target_ids(target)) if target else 0)

    def assemble(self, prompts: Sequence[Request], memory: Memory, targets: Sequence[str] | None = None, side: str = "left") -> Assembled:
        """Embed prompts with their memory, followed by the replies, as a padded batch.

        Args:
            prompts: The prompts, at least one.
            memory: Memory of their documents, best first.
            targets: Replies to append; None for generation.
            side: Padding side, `left` or `right`.

        Raises:
            UserError: A prompt is too long with its reply.
            ValueError: The shape of the memory does not match the prompts, or a target is empty.
        """
        queries = [self.prompt_ids(prompt) for prompt in prompts]
        replies = [self.target_ids(target) for target in targets] if targets is not None else [[] for _ in prompts]
        return self._assemble(prompts, queries, replies, memory, side)

    def _assemble(
        self, prompts: Sequence[Request], queries: Sequence[list[int]], replies: Sequence[list[int]], memory: Memory, side: str
    ) -> Assembled:
        rows = [before + after for before, after in zip(queries, replies, strict=True)]
        for prompt, row in zip(prompts, rows, strict=True):
            self._check_room(prompt, len(row))
        device = self._rows.memory.device
        filled, masks = padded(rows, self._pad, side)
        taught = [[-100] * len(before) + after for before, after in zip(queries, replies, strict=True)]
        labels, _ = padded(taught, -100, side)
        ids = torch.tensor(filled, device=device)
        embedded = self._inserted(ids, self._flat(prompts, memory))
        return Assembled(embedded, torch.tensor(masks, device=device), torch.tensor(labels, device=device), ids)

    def _check_room(self, prompt: Request, length: int) -> None:
        if length > self.room:
            raise UserError(
                f"a {prompt.kind} prompt takes {length} tokens, but only {self.room} fit",
                code="prompt-too-long",
                where=prompt.question[:80] or None,
                try_this="a higher max_prompt, fewer documents, or leave the row out",
            )

    def _flat(self, prompts: Sequence[Request], memory: Memory) -> Tensor:
        """Concatenate memory vectors in the order of the slots: [slots, h]."""
        count, width = self._tokens.count, self._rows.memory.shape[1]
        wanted = [prompt.documents * count for prompt in prompts]
        options: list[Tensor] = [] if memory is None else [item.reshape(-1, width) for item in memory]
        result = [len(item) for item in options] or [0] * len(prompts)
        if result != wanted:
            raise ValueError(f"prompts have slots for {wanted} memory vectors and are given {result}")
        return torch.cat(options) if options else self._rows.memory.new_zeros(0, width)

    def _inserted(self, ids: Tensor, vectors: Tensor) -> Tensor:
        embedded = self._rows.embed(ids)
        if self._norm is not None:
            vectors = functional.normalize(vectors.float(), dim=-1) * self._norm
        slots = self._rows.slots(ids)
        return embedded.masked_scatter(slots.unsqueeze(-1), vectors.to(embedded.dtype))

    def cross_entropy(self, prompts: Sequence[Request], memory: Memory, targets: Sequence[str], reduction: Reduction = "tokens") -> Tensor:
        """Compute the cross-entropy of replies, in nats (equations 2.1 and 3.2).

        Args:
            prompts: The prompts.
            memory: Memory of their documents.
            targets: Target replies.
            reduction: tokens: mean over all tokens of all replies, a scalar; row_means and row_sums: over each reply's
                tokens, [B].

        Raises:
            UserError: A prompt is too long with its reply.
            ValueError: The shape of the memory does not match the prompts, or a target is empty.
        """
        # Behind a causal model padding at the end needs no mask.
        batch = self.assemble(prompts, memory, targets, side="right")
        rows, losses = self._losses(batch.embedded, batch.labels)
        if reduction == "tokens":
            return losses.mean()
        sums = losses.new_zeros(len(prompts)).index_add(0, rows, losses)
        return sums if reduction == "row_sums" else sums / torch.bincount(rows, minlength=len(prompts))

    def packed_cross_entropy(self, prompts: Sequence[Sequence[Request]], memory: Memory, targets: Sequence[Sequence[str]]) -> Tensor | None:
        """Compute the cross-entropy of replies to several prompts that share the same documents; the shared prefix is computed
        once.

        Args:
            prompts: Prompts per example, at least one, all about the same documents.
            memory: Memory of each example's documents.
            targets: Target replies.

        Returns:
            Sums over the tokens of each example's replies [B], in nats. None if the base's attention does not support custom
            masks, or if the prompts differ before the end of the memory.

        Raises:
            UserError: A prompt is too long with its reply.
            ValueError: The shape of the memory does not match the prompts, or a target is empty.
        """
        kind = getattr(self._model.config.get_text_config(), "_attn_implementation", None)
        if kind not in IMPLEMENTATIONS:
            return None
        rows = []
        for queries, wanted in zip(prompts, targets, strict=True):
            ids, replies = [self.prompt_ids(item) for item in queries], [self.target_ids(item) for item in wanted]
            for item, before, after in zip(queries, ids, replies, strict=True):
                self._check_room(item, len(before) + len(after))
            row = row_of(ids, replies)
            first, count = self._tokens.first, self._tokens.count
            slots = sum(first <= identifier < first + count for identifier in row.ids[: row.shared])
            if slots < queries[0].documents * count:
                return None
            rows.append(row)
        batch = batch_of(rows, self._pad, self._rows.memory.device)
        embedded = self._inserted(batch.ids, self._flat([prompt[0] for prompt in prompts], memory))
        seen = batch.seen
        if kind == "eager":
            # This one adds its mask to the scores.
            seen = torch.zeros_like(seen, dtype=embedded.dtype).masked_fill(~seen, torch.finfo(embedded.dtype).min)
        positions, losses = self._losses(embedded, batch.labels, attention_mask=seen, position_ids=batch.positions)
        return losses.new_zeros(len(rows)).index_add(0, positions, losses)

    def _losses(self, embedded: Tensor, labels: Tensor, **value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row and loss of every target token."""
        rows, columns = (labels != -100).nonzero(as_tuple=True)
        with logits_only_at(self._model, rows, columns - 1):
            logits = self._model(inputs_embeds=embedded, use_cache=False, **value).logits[0]
        return rows, functional.cross_entropy(logits.float(), labels[rows, columns], reduction="none")

    def generate(self, prompts: Sequence[Request], memory: Memory, max_new_tokens: int, batch_size: int) -> list[Generation]:
        """Generate replies greedily; prompts of similar length are batched.

        Args:
            prompts: The prompts.
            memory: Memory of their documents.
            max_new_tokens: Maximum reply length.
            batch_size: Batch size.

        Returns:
            One per prompt, in order.

        Raises:
            UserError: A prompt is too long with room for its reply.
            ValueError: The shape of the memory does not match the prompts.
        """
        queries = [self.prompt_ids(prompt) for prompt in prompts]
        for prompt, ids in zip(prompts, queries, strict=True):
            self._check_room(prompt, len(ids) + max_new_tokens)
        done: dict[int, Generation] = {}
        for positions in by_length([len(ids) for ids in queries], UNBOUNDED, batch_size):
            chosen = None if memory is None else [memory[position] for position in positions]
            some = [prompts[position] for position in positions], [queries[position] for position in positions]
            done.update(zip(positions, self._write_batch(*some, chosen, max_new_tokens), strict=True))
        return [done[position] for position in range(len(prompts))]

    def _write_batch(
        self, prompts: Sequence[Request], queries: Sequence[list[int]], memory: Memory, max_new_tokens: int
    ) -> list[Generation]:
        started = time.perf_counter()
        with torch.inference_mode():
            batch = self._assemble(prompts, queries, [[] for _ in queries], memory, "left")
        limits = list(map(len, queries)), [self._ending], self._pad, max_new_tokens, started
        return decode_greedily(self._model, self._tokenizer, batch.embedded, batch.mask, *limits)


EPSILON = 1e-8
SMALLEST_TAU = 1e-6


@dataclass(frozen=True, slots=True)
class Selection:
    """Differentiable choice of k documents.

    Attributes:
        weights: Z, float [B, k, D]: one-hot in the forward pass, softmax in the backward pass.
        ids: Indices of the chosen documents, int64 [B, k], by descending score.
        soft: The softmax weights of each slot, float [B, k, D].
    """

    weights: Tensor
    ids: Tensor
    soft: Tensor

    def apply(self, memory: Tensor) -> Tensor:
        """Return the memory of the chosen documents (equation 3.6).

        Args:
            memory: float [B, D, M, h].

        Returns:
            [B, k, M, h] in the weights' precision, at least float32.
        """
        batch, documents, *shape = memory.shape
        flat = memory.reshape(batch, documents, -1).to(self.weights.dtype)
        # Reduced precision would lose the gradient, a sum over all numbers of a document.
        with torch.autocast(memory.device.type, enabled=False):
            chosen = torch.einsum("bkd,bdn->bkn", self.weights, flat)
        return chosen.reshape(batch, -1, *shape)


def select(scores: Tensor, k: int, tau: float, mask: Tensor | None = None, variant: Variant = "minus_infinity") -> Selection:
    """Select the k documents with the highest scores per row; ties go to the first.

    Args:
        scores: float [B, D]; computed in float32, or in float64 if given in it.
        k: Number of documents to select.
        tau: Temperature of the soft weights.
        mask: bool [B, D]; False marks padding, which is never chosen and has no weight or gradient.
        variant: How documents already taken are masked in the soft weights.

    Raises:
        UserError: A row has too few candidates.
        ValueError: Scores are not finite, an option is out of range, or shapes differ.
    """
    s = scores if scores.dtype == torch.float64 else scores.float()
    _check(s, k, tau, mask)
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    _require_enough(s, k)
    ids = torch.sort(s.detach(), dim=-1, descending=True, stable=True).indices[:, :k]
    hard = torch.nn.functional.one_hot(ids, s.shape[-1]).to(s.dtype)
    taken = hard.cumsum(1) - hard
    soft = torch.softmax(_logits(s, taken, max(tau, SMALLEST_TAU), variant), dim=-1)
    return Selection(hard + (soft - soft.detach()), ids, soft)


def _logits(s: Tensor, taken: Tensor, tau: float, variant: Variant) -> Tensor:
    """Return the logits of the soft weights of each slot: [B, k, D]."""
    rows = s.unsqueeze(1)
    if variant == "minus_infinity":
        return (rows / tau).masked_fill(taken.bool(), -torch.inf)
    kept = torch.log(1 - taken + EPSILON)
    return (rows + kept) / tau if variant == "equation" else rows / tau + kept


def _check(s: Tensor, k: int, tau: float, mask: Tensor | None) -> None:
    if s.dim() != 2:
        raise ValueError(f"scores have {s.dim()} dimensions, not (batch, documents)")
    if mask is not None and mask.shape != s.shape:
        raise ValueError(f"the candidate mask is {tuple(mask.shape)} and the scores {tuple(s.shape)}")
    if k < 1 or tau <= 0:
        raise ValueError(f"k={k}, tau={tau}: at least 1, above 0")
    known = s if mask is None else s[mask]
    if not known.detach().isfinite().all():
        raise ValueError("scores of candidates must be finite numbers")


def _require_enough(s: Tensor, k: int) -> None:
    fewest = int((s.detach() > float("-inf")).sum(-1).min()) if len(s) else s.shape[-1]
    if k > fewest:
        raise UserError(
            f"{k} documents must be selected, but a question has only {fewest} candidates",
            code="too-few-candidates",
            where="k",
            try_this=f"k of at most {fewest}, or more candidates",
        )
