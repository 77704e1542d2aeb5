"""From groups to batches of token ids: many groups in a row, each block seeing its own context and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core.random import Draws
from methods.models.pocket import QUESTION
from tools.tiny_lm.tasks import Block, Group, Level, Maker

TASKS = ("copy", "single", "inverse", "bridge", "comparison", "missing", "closed", "question", "paraphrase")
"""Tasks by number, as `Batch.task` has them."""
WEIGHTS = {"question": 0.4, "paraphrase": 0.4}
"""Weight of a target token by task, 1 where not named."""
_LATER = 0.4
"""Share of that weight for all but an answer's first token: which answer is harder than copying the rest of it."""
_EVEN = ("copy", "question", "paraphrase")
_LABELS = re.compile(f"({QUESTION}|Answer:|Paraphrase:)")


@dataclass(frozen=True, slots=True)
class Batch:
    """Training batch: rows of packed groups (a context with its prompts); all arrays have shape [rows, length].

    Attributes:
        ids: Token ids; 0 for padding.
        positions: Position of each token in its own prompt.
        group: Number of the group; -1 for padding.
        block: 0 in a context, else the number of the block after it.
        target: Token to predict at each position; -1 if none.
        weight: Weight of each prediction.
        task: Number of the task; -1 for context text.
    """

    ids: np.ndarray
    positions: np.ndarray
    group: np.ndarray
    block: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    task: np.ndarray

    def mask(self) -> Any:
        """Return the attention mask: bool tensor [rows, 1, length, length], True where the first position attends to the second."""
        import torch

        group, block = torch.from_numpy(self.group), torch.from_numpy(self.block)
        same = group[:, :, None] == group[:, None, :]
        own = (block[:, None, :] == 0) | (block[:, :, None] == block[:, None, :])
        length = self.ids.shape[1]
        return (same & own & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


class Encoder:
    """Caching tokenizer: returns the token ids of texts, each text tokenized once.

    Args:
        tokenizer: The pocket model's tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.bos: int = tokenizer.bos_token_id
        self.eos: int = tokenizer.eos_token_id
        self.size: int = len(tokenizer)

    def __call__(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        result = self._known.get(text)
        if result is None:
            result = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(text) < 40:
                self._known[text] = result
        return result


@dataclass(slots=True)
class _Row:
    length: int = 0
    groups: int = 0


class Packer:
    """Packs groups into batches.

    Args:
        encode: Returns token ids of texts.
        rows, length: Shape of a batch.
        draws: Random generator.
        text_share: Share of context tokens that are training targets, too.
        text_weight: Weight of these targets in the loss.
    """

    def __init__(self, encode: Encoder, rows: int, length: int, draws: Draws, text_share: float = 0.1, text_weight: float = 0.1) -> None:
        self._encode = encode
        self._shape = (rows, length)
        self._draws = draws
        self._text = (text_share, text_weight)
        self._fresh()

    def _fresh(self) -> None:
        def full(value: int, kind: Any = np.int64) -> np.ndarray:
            return np.full(self._shape, value, dtype=kind)

        self._batch = Batch(full(0), full(0), full(-1), full(0), full(-1), full(0, np.float32), full(-1))
        self._rows = [_Row() for _ in range(self._shape[0])]

    def pack(self, groups: Iterable[Group | list[int]]) -> Iterator[Batch]:
        """Yield batches of groups (a list of ids is a text to copy); an incomplete last batch is dropped."""
        for group in groups:
            parts = self._copy(group) if isinstance(group, list) else self._parts(group)
            size = sum(len(ids) for ids, _, _ in parts)
            if len(parts) < 2 or size > self._shape[1]:
                continue
            row = next((row for row in range(len(self._rows)) if self._rows[row].length + size <= self._shape[1]), None)
            if row is None:
                yield self._batch
                self._fresh()
                row = 0
            self._put(row, parts, copied=isinstance(group, list))

    def _parts(self, group: Group) -> list[tuple[list[int], int, str]]:
        """The context and the blocks that fit: ids, how many of the last are the target, and the task."""
        context = [self._encode.bos, *(token for piece in group.context for token in self._encode(piece))]
        parts = [(context, 0, "")]
        room = self._shape[1] - len(context)
        for block in group.blocks:
            prompt = self.prompt(block)
            target = [*self._encode(f" {block.target}"), self._encode.eos]
            room -= len(prompt) + len(target)
            if room >= 0:
                parts.append((prompt + target, len(target), block.task))
        return parts

    def prompt(self, block: Block) -> list[int]:
        """Return the token ids of a block's prompt."""
        return [token for piece in _LABELS.split(block.prompt) if piece for token in self._encode(piece)]

    def _copy(self, ids: list[int]) -> list[tuple[list[int], int, str]]:
        return [(ids, 0, ""), (ids, len(ids) - 1, "copy")]

    def _put(self, row: int, parts: Sequence[tuple[list[int], int, str]], copied: bool) -> None:
        position, batch = self._rows[row], self._batch
        share, weight = self._text
        context = len(parts[0][0])
        for number, (ids, targets, task) in enumerate(parts):
            start, end = position.length, position.length + len(ids)
            first = 0 if number == 0 else context
            batch.ids[row, start:end] = ids
            batch.positions[row, start:end] = np.arange(first, first + len(ids))
            batch.group[row, start:end] = position.groups
            batch.block[row, start:end] = number
            if targets:
                # The last place before a target token predicts it.
                batch.target[row, end - 1 - targets : end - 1] = ids[-targets:]
                whole = WEIGHTS.get(task, 1.0)
                batch.weight[row, end - 1 - targets : end - 1] = whole if task in _EVEN else whole * _LATER
                batch.weight[row, end - 1 - targets] = whole
                batch.task[row, end - 1 - targets : end - 1] = TASKS.index(task)
            elif not copied:
                for at in range(len(ids) - 1):
                    if self._draws.random() < share:
                        batch.target[row, start + at] = ids[at + 1]
                        batch.weight[row, start + at] = weight
            position.length = end
        position.groups += 1


def copies(encode: Encoder, draws: Draws, count: int, longest: int) -> list[list[int]]:
    """Generate random token sequences of 6 to `longest` tokens to copy."""
    return [[3 + draws.below(encode.size - 3) for _ in range(draws.between(6, longest))] for _ in range(count)]


def chunk(encode: Encoder, level: Level, number: int, copied: float, groups: int = 60) -> list[Batch]:
    """Generate the batches of one training world; equal arguments give equal batches.

    Args:
        encode: Returns token ids of texts.
        level: The step of the curriculum.
        number: Number of the chunk, which is the seed of its world.
        copied: Share of groups that are random tokens to copy.
        groups: Number of groups with a context.

    Returns:
        Batches; equal arguments give equal batches.
    """
    draws = Draws("pocket chunk", number)
    mixed: list[Group | list[int]] = []
    if copied < 1:
        mixed += Maker(number, level).groups(groups)
    mixed += copies(encode, draws, round(copied * groups * (1 if copied < 1 else 4)), min(40, level.row // 2))
    draws.shuffle(mixed)
    return list(Packer(encode, level.rows, level.row, draws).pack(mixed))
