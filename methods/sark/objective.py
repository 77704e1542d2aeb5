"""Compute a task's gradient over a batch, in parts that fit into memory.

A group is the input of one loss term: a labeled passage, or a whole list. Losses are sums over groups, so the division into
parts does not change the gradient, except for dropout, which is seeded by the seed, the step, the task and the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from methods.models.cross_encoder import Features, PairTokens
from methods.models.likelihood import by_length
from methods.sark.config import LossConfig, SarkTrainingConfig
from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked, softmax_terms
from methods.sark.model import last_bias
from methods.sark.rows import SarkRow
from methods.training.parts import Figures, MicroBatch, over_parts
from methods.training.ranks import backward

if TYPE_CHECKING:
    from torch import Tensor

Task = Literal["passage", "list"]
TASKS: tuple[Task, ...] = ("passage", "list")
QUERY_SHARE = 0.75
"""Maximum fraction of a pair's tokens for the query."""
BLOCK = 6
"""Pairs per forward pass on a CPU."""
FORMAL, INFORMAL = 0, 1
"""Indices of both styles in a row's texts."""
MIXED = 0.5
"""Probability that a passage of a mixed-style list keeps the list's main style."""
PAPER = LossConfig.model_validate({})
LEVELED = 64
"""Number of labeled passages for initializing the head's bias."""
REACH, HALVINGS = 40.0, 60
"""Search range beyond all scores for the bias shift, and number of bisections."""


@dataclass(frozen=True, slots=True)
class Group:
    """Texts of one question in one style, for one loss term.

    Attributes:
        query: The question.
        texts: One labeled passage, or a list, best first.
        label: 1 or 0; None for a list.
        evidence: Evidence passages of a list, for the softmax loss; None for the pairwise loss.
    """

    query: str
    texts: tuple[str, ...]
    label: int | None
    evidence: tuple[bool, ...] | None = None

    @property
    def terms(self) -> int:
        """Return the number of loss terms."""
        if self.label is not None:
            return 1
        return pairs_of(len(self.texts)) if self.evidence is None else sum(self.evidence)


Part = list[tuple[Group, list[Features]]]
"""Groups of one task and size that are processed together, with tokenized pairs."""


def groups_of(
    task: Task, rows: Sequence[SarkRow], styles: Sequence[int], loss: LossConfig = PAPER, seed: Sequence[str | int] = ()
) -> list[Group]:
    """Return the groups of a task in some rows, by style.

    Args:
        task: `passage` or `list` task.
        rows: Rows of a batch.
        styles: `FORMAL`, or both.
        loss: Loss options for lists and styles.
        seed: Seed parts for mixed-style lists.
    """
    if task == "passage":
        return [
            Group(row.query, ((row.formal, row.informal)[style],), row.label) for style in styles for row in rows if row.label is not None
        ]
    results = []
    for style in styles:
        for row in rows:
            if row.list is None or not learnable(row, loss):
                continue
            chosen = [style] * len(row.list)
            if loss.list_styles == "mixed" and len(styles) > 1:
                draws = Draws("sark mixed list", *seed, row.question_id)
                # The second time every passage is in the style that it had not the first time.
                chosen = [style if draws.random() < MIXED else 1 - style for _ in row.list]
            evidence = row.list_evidence if loss.list_loss == "softmax" else None
            results.append(Group(row.query, tuple(both[item] for both, item in zip(row.list, chosen, strict=True)), None, evidence))
    return results


def learnable(row: SarkRow, loss: LossConfig) -> bool:
    """Return whether a list has a gradient; for the softmax loss, it needs both evidence and non-evidence."""
    return row.list is not None and (loss.list_loss == "ranknet" or len(set(row.list_evidence)) > 1)


class Objective:
    """Training objective: scores pairs and computes gradients.

    Args:
        model: The `CrossEncoder`.
        config: Options of head, lengths and batch size.
        accelerator: `accelerate` process; None for a single process in the model's precision.
    """

    def __init__(self, model: Any, config: SarkTrainingConfig, accelerator: Any = None) -> None:
        self.model, self.config, self.accelerator = model, config, accelerator
        self.micro = MicroBatch(config.train.token_budget, "train.token_budget")
        options = config.model
        self._pairs = PairTokens(model.tokenizer, options.max_length, QUERY_SHARE)

    def cut(self, rows: Iterable[SarkRow], styles: Sequence[int]) -> int:
        """Return how many distinct pairs of a question and a passage of rows are longer than the model reads."""
        texts: dict[str, set[str]] = {}
        for row in rows:
            both = [*([(row.formal, row.informal)] if row.label is not None else []), *(row.list or ())]
            texts.setdefault(row.query, set()).update(pair[style] for pair in both for style in styles)
        return sum(self._pairs.cut_passages(query, [*passages]) for query, passages in texts.items())

    def backward(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Compute the gradient of the mean over all loss terms and add it to the parameters.

        Both styles have equally many terms, so this is also the mean over styles. With several processes, each handles its own
        parts.

        Args:
            groups: Groups of one task, in one or both styles.
            seed: Seed parts for dropout: seed, step, task.

        Returns:
            The loss.

        Raises:
            TooLarge: A part does not fit into the device's memory.
        """
        learn = partial(self._learn, sum(group.terms for group in groups), seed)
        return over_parts(self._parts(groups), learn, self.accelerator, _tokens)["loss"]

    def _learn(self, terms: int, seed: Sequence[str | int], number: int, part: Part) -> Figures:
        """Compute the gradient of a part's share of the loss."""
        import torch

        torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
        loss = self._terms(part).sum() / terms
        backward(loss, self.accelerator)
        return {"loss": float(loss.detach())}

    def logits(self, pairs: Sequence[Features]) -> Tensor:
        """Compute the head's logits for tokenized pairs, in float32: shape (pairs, labels).

        On a CPU, pairs are processed in small blocks of similar length, which reduces padding.
        """
        import torch

        if self.model.device.type != "cpu" or len(pairs) <= BLOCK:
            return self._read(pairs)
        order = sorted(range(len(pairs)), key=lambda position: len(pairs[position]["input_ids"]))
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
        result = torch.cat([self._read([pairs[position] for position in block]) for block in blocks])
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return result[back]

    def _read(self, pairs: Sequence[Features]) -> Tensor:
        features = self._pairs.padded(pairs, self.model.device)
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            result = self.model(features)["scores"]
        return result.float()

    def encoded(self, group: Group) -> list[Features]:
        """Tokenize a group's pairs."""
        return self._pairs.encoded(self._pairs.cut(group.query), group.texts)

    def batched(self, encoded: Sequence[Sequence[Features]]) -> list[list[int]]:
        """Partition groups into batches of equal group size and similar length within the token budget; returns their
        positions.
        """
        by_size = sorted(range(len(encoded)), key=lambda position: len(encoded[position]))
        batches: list[list[int]] = []
        for size, result in groupby(by_size, key=lambda position: len(encoded[position])):
            positions = list(result)
            costs = [size * max(len(pair["input_ids"]) for pair in encoded[position]) for position in positions]
            batches += [[positions[item] for item in batch] for batch in by_length(costs, self.micro.size)]
        return batches

    def set_level(self, rows: Sequence[SarkRow], styles: Sequence[int]) -> None:
        """Shift the head's bias so that the mean of σ(z) over the first labeled passages equals their fraction of positives.

        Rankings do not change. If all labels are equal, the bias stays.
        """
        import torch

        groups = groups_of("passage", [row for row in rows if row.label is not None][:LEVELED], styles)
        share = sum(group.label or 0 for group in groups) / max(1, len(groups))
        if not 0 < share < 1:
            return
        self.model.eval()
        with torch.inference_mode():
            encoded = [self.encoded(group) for group in groups]
            logits = torch.cat([self.logits([encoded[item][0] for item in batch]) for batch in self.batched(encoded)])
            scores = classified(logits, self.config.model.head).double().cpu()
        low, high = -float(scores.max()) - REACH, REACH - float(scores.min())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = float(torch.sigmoid(scores + middle).mean()) < share
            low, high = (middle, high) if below else (low, middle)
        last_bias(self.model)[-1] += low

    def _parts(self, groups: Sequence[Group]) -> list[Part]:
        encoded = [self.encoded(group) for group in groups]
        return [[(groups[position], encoded[position]) for position in batch] for batch in self.batched(encoded)]

    def _terms(self, part: Part) -> Tensor:
        """Compute the loss terms of groups of one task and size."""
        import torch

        head = self.config.model.head
        logits = self.logits([pair for _, encoded in part for pair in encoded])
        if part[0][0].label is None:
            scores = ranked(logits, head).reshape(len(part), -1)
            evidence = [group.evidence for group, _ in part]
            return list_terms(scores) if evidence[0] is None else softmax_terms(scores, torch.tensor(evidence, device=scores.device))
        labels = torch.tensor([float(group.label or 0) for group, _ in part], device=logits.device)
        return passage_terms(classified(logits, head), labels)


def _tokens(part: Part) -> int:
    """Return a part's number of tokens, including padding."""
    return sum(len(pairs) for _, pairs in part) * max(len(pair["input_ids"]) for _, pairs in part for pair in pairs)
