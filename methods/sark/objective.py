"""The gradient of one task's loss over a batch, in parts that fit into memory.

A group is what one term of a loss needs together: one labelled passage, or one whole list. The losses are sums over
groups, so a batch in parts has the gradient of the whole: exactly, but for dropout, which is drawn from the seed, the
step, the task and the part. Where a part is too large for the memory, the task begins anew in smaller ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from benchmarks.errors import Broke
from benchmarks.fingerprint import fingerprint
from methods.models.batching import by_length
from methods.models.pair_tokens import Features, PairTokens
from methods.sark.config import SarkTrainingConfig
from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked
from methods.sark.rows import SarkRow

Task = Literal["passage", "list"]
TASKS: tuple[Task, ...] = ("passage", "list")
BLOCK = 6
"""Pairs that a CPU reads at once."""
FORMAL, INFORMAL = 0, 1
"""Places of both styles in a row's texts."""


@dataclass(frozen=True, slots=True)
class Group:
    """Texts of one question in one style.

    Attributes:
        query: The question.
        texts: One labelled passage; or a list, best first.
        label: 1 or 0; None of a list.
    """

    query: str
    texts: tuple[str, ...]
    label: int | None

    @property
    def terms(self) -> int:
        """Terms that it adds to its loss."""
        return 1 if self.label is not None else pairs_of(len(self.texts))


Part = list[tuple[Group, list[Features]]]
"""Groups of one task and size that are read at once, with their pairs as tokens."""


def groups_of(task: Task, rows: Sequence[SarkRow], styles: Sequence[int]) -> list[Group]:
    """What rows give a task to learn from, style by style; both styles of a row stand in the same rows.

    Args:
        task: Which loss.
        rows: Of a batch.
        styles: `FORMAL`, or both.
    """
    if task == "passage":
        return [
            Group(row.query, ((row.formal, row.informal)[style],), row.label) for style in styles for row in rows if row.label is not None
        ]
    return [Group(row.query, tuple(told[style] for told in row.list), None) for style in styles for row in rows if row.list is not None]


class Objective:
    """Scores pairs with a model in training, and adds gradients to its parameters.

    Args:
        model: The `CrossEncoder`.
        config: Head, lengths, and how many tokens are read at once.
        accelerator: Of `accelerate`; None: one process in the model's own precision.
    """

    def __init__(self, model: Any, config: SarkTrainingConfig, accelerator: Any = None) -> None:
        self.model, self.config, self.accelerator = model, config, accelerator
        self._budget = config.train.token_budget
        options = config.model
        self._pairs = PairTokens(model.tokenizer, options.max_length, options.query_share)

    def backward(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Put the gradient of a loss on the parameters, which have none yet: the mean over all terms of its groups.

        With as many terms in each style, that is the mean over styles of the mean over terms. Of several processes each
        adds the gradient of its own parts. Where a part does not fit into the memory, what was added is dropped, and
        the whole of it is read again in smaller parts; whatever comes later is parted likewise.

        Args:
            groups: Of one task, in one style or both.
            seed: What dropout is drawn from: seed, step, task.

        Returns:
            The loss.

        Raises:
            Broke: Not even a single group fits into the device's memory.
        """
        while (loss := self._added(groups, seed)) is None:
            pass
        return loss

    def _added(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float | None:
        """The loss, its gradient added; None where a part was too large: nothing is added, and parts are smaller now.

        Raises:
            Broke: The part is a single group.
        """
        import torch

        terms, parts = sum(group.terms for group in groups), self._parts(groups)
        # The loss; whether a part was too large; whether that was a single group.
        found = [0.0, 0.0, 0.0]
        for number, part in self._own(parts):
            torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
            loss = self._learnt(part, terms)
            if loss is None:
                found[1:] = [1.0, float(len(part) == 1)]
                break
            found[0] += loss
        if self.accelerator is not None and self.accelerator.num_processes > 1:
            # All must part alike, whichever of them ran out of memory.
            found = self.accelerator.reduce(torch.tensor(found, device=self.model.device), "sum").tolist()
        total, too_large, single = found
        if not too_large:
            return total
        if single:
            raise self._too_large(groups)
        self._make_room(max(map(_tokens, parts)))
        return None

    def _learnt(self, part: Part, terms: int) -> float | None:
        """A part's share of the loss, its gradient added; None where it does not fit into the memory."""
        import torch

        try:
            loss = self._terms(part).sum() / terms
            self._backward(loss)
        except torch.OutOfMemoryError:
            return None
        return float(loss.detach())

    def _make_room(self, largest: int) -> None:
        """Drop all gradients, and from now on read half of what was too much."""
        import torch

        for parameter in self.model.parameters():
            parameter.grad = None
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        first = self._budget == self.config.train.token_budget
        before, self._budget = self._budget, min(self._budget, largest) // 2
        if first and (self.accelerator is None or self.accelerator.is_main_process):
            warnings.warn(
                f"{min(before, largest)} tokens at once are too many for the memory of {self.model.device}: the "
                f"training goes on with {self._budget}, or less where that is still too much; its options stay as they "
                "are",
                stacklevel=2,
            )

    def logits(self, pairs: Sequence[Features]) -> Any:
        """What the head gives for encoded pairs, in float32: shape (pairs, labels).

        On a CPU pairs of like length are read in small blocks: it gains nothing from large ones, and pads less.
        """
        import torch

        if self.model.device.type != "cpu" or len(pairs) <= BLOCK:
            return self._read(pairs)
        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place]["input_ids"]))
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
        found = torch.cat([self._read([pairs[place] for place in block]) for block in blocks])
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return found[back]

    def _read(self, pairs: Sequence[Features]) -> Any:
        features = self._pairs.padded(pairs, self.model.device)
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            found = self.model(features)["scores"]
        return found.float()

    def encoded(self, group: Group) -> list[Features]:
        """A group's pairs as tokens."""
        return self._pairs.encoded(self._pairs.cut(group.query), group.texts)

    def batched(self, encoded: Sequence[Sequence[Features]]) -> list[list[int]]:
        """Places of groups that are read at once: of one size, of like length, within the budget of tokens."""
        by_size = sorted(range(len(encoded)), key=lambda place: len(encoded[place]))
        batches: list[list[int]] = []
        for size, found in groupby(by_size, key=lambda place: len(encoded[place])):
            places = list(found)
            costs = [size * max(len(pair["input_ids"]) for pair in encoded[place]) for place in places]
            batches += [[places[one] for one in batch] for batch in by_length(costs, self._budget)]
        return batches

    def _parts(self, groups: Sequence[Group]) -> list[Part]:
        encoded = [self.encoded(group) for group in groups]
        return [[(groups[place], encoded[place]) for place in batch] for batch in self.batched(encoded)]

    def _own(self, parts: list[Part]) -> list[tuple[int, Part]]:
        """The parts of this process, with their numbers."""
        numbered = list(enumerate(parts))
        if self.accelerator is None:
            return numbered
        return numbered[self.accelerator.process_index :: self.accelerator.num_processes]

    def _terms(self, part: Part) -> Any:
        """The terms of some groups of one task and size."""
        import torch

        head = self.config.model.head
        logits = self.logits([pair for _, encoded in part for pair in encoded])
        if part[0][0].label is None:
            return list_terms(ranked(logits, head).reshape(len(part), -1))
        labels = torch.tensor([float(group.label or 0) for group, _ in part], device=logits.device)
        return passage_terms(classified(logits, head), labels)

    def _backward(self, loss: Any) -> None:
        if self.accelerator is None:
            loss.backward()
        else:
            self.accelerator.backward(loss)

    def _too_large(self, groups: Sequence[Group]) -> Broke:
        what = "one passage" if groups[0].label is not None else f"one list of {len(groups[0].texts)} passages"
        return Broke(
            f"{what} at once is too much for the memory of {self.model.device}",
            where="model.max_length",
            try_this="a device with more memory; or a new training with precision bf16, or a smaller model.max_length",
        )


def _tokens(part: Part) -> int:
    """Tokens of a part, padding included."""
    return sum(len(pairs) for _, pairs in part) * max(len(pair["input_ids"]) for _, pairs in part for pair in pairs)
