"""Attention supervision: heads of the last layer are supervised with where in the context an answer stands.

The loss on an answer's words says which word is right, but not where it was to be read. Heads that are shown the place
directly learn to look questions up many times faster. Where nothing answers, the place is the context's first token.

Source: Liu et al., *Neural Machine Translation with Supervised Attention* (2016), for the idea of a loss on attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.tiny_lm.initial import HEADS_THAT_COPY
from tools.tiny_lm.packing import TASKS, Batch

WEIGHT = 0.3
"""Of this loss beside that of the words."""
_READ = [TASKS.index(task) for task in ("single", "inverse", "bridge", "comparison")]
_DECLINED = [TASKS.index(task) for task in ("missing", "closed")]


@dataclass(frozen=True, slots=True)
class Pointers:
    """Where answers begin in a batch, and where the context mentions them; targets for supervised attention.

    Attributes:
        rows, columns: Position of the token that predicts an answer's first token; shape [answers].
        positions: True at the first token of every mention of the answer in the context; shape [answers, length].
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    positions: NDArray[np.bool_]


def pointers(batch: Batch) -> Pointers:
    """Find the pointers of a batch; answers that the context does not contain literally (such as "yes") have none."""
    supervised = np.isin(batch.task, _READ + _DECLINED)
    first = supervised.copy()
    same = (batch.block[:, 1:] == batch.block[:, :-1]) & (batch.group[:, 1:] == batch.group[:, :-1])
    first[:, 1:] &= ~(supervised[:, :-1] & same)
    results: list[tuple[int, int, NDArray[np.bool_]]] = []
    length = batch.ids.shape[1]
    for row, column in zip(*(where.tolist() for where in np.nonzero(first)), strict=True):
        group, block = batch.group[row], batch.block[row]
        context = (group == group[column]) & (block == 0)
        if batch.task[row, column] in _DECLINED:
            positions = context & (batch.positions[row] == 0)
        else:
            end = column
            while end < length and supervised[row, end] and block[end] == block[column] and group[end] == group[column]:
                end += 1
            positions = context.copy()
            # The last target is the end of the sequence, which no context holds.
            for step, token in enumerate(batch.target[row, column : end - 1]):
                here = np.zeros(length, dtype=bool)
                here[: length - step] = (batch.ids[row, step:] == token) & context[step:]
                positions &= here
        if positions.any():
            results.append((row, column, positions))
    return Pointers(
        np.array([row for row, _, _ in results], dtype=np.int64),
        np.array([column for _, column, _ in results], dtype=np.int64),
        np.stack([positions for _, _, positions in results]) if results else np.zeros((0, length), dtype=bool),
    )


class Watched:
    """Captures the inputs of the last layer's attention while the model runs: `with Watched(model) as watched`.

    Args:
        model: A `LlamaForCausalLM`.
    """

    def __init__(self, model: Any) -> None:
        self._attention = model.model.layers[-1].self_attn
        self._handed: dict[str, Any] = {}

    def __enter__(self) -> Watched:
        self._hook = self._attention.register_forward_pre_hook(lambda _, __, keywords: self._handed.update(keywords), with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def missed(self, mask: Any, wanted: Pointers) -> Any:
        """Compute the attention loss: minus the log of the attention on the mentions, per pointer and supervised head.

        Args:
            mask: Result of `Batch.mask`.
            wanted: Pointers of the batch.

        Returns:
            Float tensor [pointers, heads], with its gradient.
        """
        import torch
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        attention, hidden = self._attention, self._handed["hidden_states"]
        heads, size = HEADS_THAT_COPY, attention.head_dim

        def split(weight: Any) -> Any:
            return (hidden @ weight[: heads * size].T).view(*hidden.shape[:2], heads, size).transpose(1, 2)

        queries, keys = apply_rotary_pos_emb(
            split(attention.q_proj.weight), split(attention.k_proj.weight), *self._handed["position_embeddings"]
        )
        rows, columns = torch.from_numpy(wanted.rows), torch.from_numpy(wanted.columns)
        query = queries.transpose(1, 2)[rows, columns]  # [pointers, heads, size]
        scores = torch.einsum("phs,phls->phl", query, keys[rows]) * attention.scaling
        scores = scores.masked_fill(~mask[rows, 0, columns][:, None], float("-inf")).float().log_softmax(-1)
        return -scores.masked_fill(~torch.from_numpy(wanted.positions)[:, None], float("-inf")).logsumexp(-1)
