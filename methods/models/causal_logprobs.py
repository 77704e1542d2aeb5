"""Compute token log-probabilities under a causal model, with shared prefixes of prompts computed once.

If prompts share a prefix, its keys and values are computed once for all sequences of the group. A row is then laid out as
`padding | prefix | rest | padding`. Its tokens are adjacent, so sliding windows, which count columns, see the same tokens as
without padding. Positions are passed explicitly, so padding does not change them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.models.likelihood import Item, ScoringConfig, by_length, log_probabilities, logits_only_at, padded, rows_for

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences, given by their positions, that share a prefix of `prefix` tokens."""

    prefix: int
    members: tuple[int, ...]


def shared_prefixes(sequences: Sequence[Sequence[int]], limits: Sequence[int], smallest: int = 1, members: int = 2) -> list[Group]:
    """Group sequences so that computing each group's common prefix once saves the most tokens.

    A group of m sequences with p common tokens saves (m − 1) · p. The sorted sequences form a prefix tree. At each node, either
    all sequences below share the node's prefix, or its children are grouped separately, whichever saves more; this is computed
    bottom-up in one pass.

    Args:
        sequences: Token ids.
        limits: Maximum prefix length of each sequence, which must keep its last tokens.
        smallest: Minimum prefix length.
        members: Minimum group size.

    Returns:
        Disjoint groups; sequences without a shared prefix are in none.
    """
    heads = [tuple(sequence[: max(0, limit)]) for sequence, limit in zip(sequences, limits, strict=True)]
    order = sorted((position for position in range(len(heads)) if heads[position]), key=heads.__getitem__)
    if len(order) < 2:
        return []
    # A node of the tree: its depth in tokens, its first sequence, and the best groups of its finished children.
    stack: list[_Node] = [_Node(0, 0)]
    for here in range(1, len(order)):
        common = _common(heads[order[here - 1]], heads[order[here]])
        start, children = here - 1, _Best(0, [])
        while stack[-1].depth > common:
            node = stack.pop()
            done = node.closed(here, smallest, members)
            start, children = node.start, done
            if stack[-1].depth >= common:
                stack[-1].take(done)
                children = _Best(0, [])
        if stack[-1].depth < common:
            stack.append(_Node(common, start))
            stack[-1].take(children)
    while len(stack) > 1:
        done = stack.pop().closed(len(order), smallest, members)
        stack[-1].take(done)
    return [Group(prefix, tuple(sorted(order[start:end]))) for prefix, start, end in sorted(stack[0].groups, key=_beginning)]


@dataclass(slots=True)
class _Best:
    saved: int
    groups: list[tuple[int, int, int]]  # prefix, first and after the last place in the sorted order


class _Node(_Best):
    """A subtree under construction."""

    def __init__(self, depth: int, start: int) -> None:
        super().__init__(0, [])
        self.depth = depth
        self.start = start

    def take(self, child: _Best) -> None:
        self.saved += child.saved
        # Small lists are merged into larger ones, so that a deep tree costs n · log n.
        if len(self.groups) < len(child.groups):
            self.groups, child.groups = child.groups, self.groups
        self.groups.extend(child.groups)

    def closed(self, end: int, smallest: int, members: int) -> _Best:
        """Return this subtree's best grouping: one group of all its sequences, or the groups of its children."""
        count = end - self.start
        saved = (count - 1) * self.depth
        if self.depth >= smallest and count >= members and saved > self.saved:
            return _Best(saved, [(self.depth, self.start, end)])
        return _Best(self.saved, self.groups)


def _beginning(group: tuple[int, int, int]) -> int:
    return group[1]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the length of the common prefix of two sequences."""
    end = min(len(first), len(second))
    if first[:end] == second[:end]:
        return end
    low, high = 0, end  # equal up to low, different somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle)
    return low


def rows_of(cache: Any, rows: Tensor) -> Any:
    """Copy the given rows of a `transformers` key–value cache, in order; rows may repeat.

    The copy can be extended without changing the original.

    Args:
        cache: A `DynamicCache`.
        rows: Row numbers, an integer tensor on the cache's device.
    """
    taken = copy.copy(cache)
    taken.layers = [copy.copy(layer) for layer in cache.layers]
    # Selecting makes new tensors and puts them into the copied layers.
    taken.batch_select_indices(rows)
    return taken


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of all sequences."""
    ordered = sorted(map(tuple, sequences))
    return _common(ordered[0], ordered[-1])  # in sorted order the most different ones


def _layers(model: Any) -> tuple[set[str], bool]:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds, getattr(config, "sliding_window", None) is not None


def supports(model: Any) -> bool:
    """Return whether a model's cache consists only of keys and values, so that rows can be selected (`rows_of`)."""
    return _layers(model)[0] <= {"full_attention", "sliding_attention"} and not getattr(model, "_is_stateful", False)


def windowed(model: Any) -> bool:
    """Return whether a layer uses sliding-window attention, or caches anything other than keys and values."""
    kinds, window = _layers(model)
    return window or kinds != {"full_attention"} or not supports(model)


class CausalLogprobs:
    """Computes token log-probabilities under a causal model.

    Args:
        model: A causal language model of `transformers`, in evaluation mode.
        pad: Any id of the vocabulary; padding is masked.
        device: Device of the model.
        config: Options.
    """

    def __init__(self, model: Any, pad: int, device: str, config: ScoringConfig) -> None:
        self.model, self.pad, self.device, self.config = model, pad, device, config
        self.budget = config.tokens(device)
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self._positions = "position_ids" in inspect.signature(model.forward).parameters
        self._shares = config.share_prefixes and supports(model)

    def __call__(self, items: Sequence[Item]) -> list[list[float]]:
        """Return the log-probability of each token of each target, given the prompt and the target's tokens before it.

        Raises:
            ValueError: A prompt or a target has no tokens.
        """
        for number, (prompt, target) in enumerate(items):
            if not prompt or not target:
                raise ValueError(f"pair {number} has an empty {'target' if prompt else 'prompt'}")
        # The last token of a target is never an input. Equal inputs are computed once, even if the last tokens differ.
        inputs: dict[tuple[int, ...], int] = {}
        wanted: list[list[int]] = []  # items of each input
        for number, (prompt, target) in enumerate(items):
            row = inputs.setdefault((*prompt, *target[:-1]), len(wanted))
            if row == len(wanted):
                wanted.append([])
            wanted[row].append(number)
        rows = list(inputs)
        # Logits are needed from the last token of the shortest prompt on; all before may be shared.
        firsts = [min(len(items[number][0]) for number in numbers) - 1 for numbers in wanted]
        scores = _Scores(items, rows, wanted)
        groups = shared_prefixes(rows, firsts, self.config.smallest_prefix) if self._shares else []
        import torch

        with torch.inference_mode():
            for positions in by_length([group.prefix for group in groups], self.budget):
                self._groups([groups[position] for position in positions], scores)
            grouped = {member for group in groups for member in group.members}
            self._alone([position for position in range(len(rows)) if position not in grouped], scores)
        return scores.lists()

    def _alone(self, positions: Sequence[int], scores: _Scores) -> None:
        """Score sequences without shared prefixes."""
        if not positions:
            return
        most = rows_for([scores.count(position) for position in positions], self.vocabulary, self.device)
        for batch in by_length([len(scores.rows[position]) for position in positions], self.budget, most):
            batch_places = [positions[number] for number in batch]
            ids, mask = self._tensors([scores.rows[position] for position in batch_places], self.config.padding)
            starts = (mask.argmax(dim=1)).tolist()
            # Causal attention ignores later tokens, so right padding needs no mask, and attention is faster without one.
            arguments = {"input_ids": ids} if self.config.padding == "right" else self._arguments(ids, mask, _positions(mask))
            self._forward(batch_places, starts, arguments, None, scores)

    def _groups(self, groups: Sequence[Group], scores: _Scores) -> None:
        """Score groups of sequences: prefixes first, then the rest of each."""
        import torch

        prefixes = [scores.rows[group.members[0]][: group.prefix] for group in groups]
        ids, mask = self._tensors(prefixes, "left")
        zero = torch.zeros(1, dtype=torch.long, device=self.device)
        with logits_only_at(self.model, zero, zero):
            shared = self.model(**self._arguments(ids, mask, _positions(mask)), use_cache=True).past_key_values
        indices = [(member, number) for number, group in enumerate(groups) for member in group.members]
        rests = [scores.rows[position][groups[number].prefix :] for position, number in indices]
        most = rows_for([scores.count(position) for position, _ in indices], self.vocabulary, self.device)
        for batch in by_length([len(rest) for rest in rests], self.budget, most, fixed=ids.shape[1]):
            owners = torch.tensor([indices[number][1] for number in batch], device=self.device)
            own_ids, own_mask = self._tensors([rests[number] for number in batch], "right")
            whole = torch.cat([mask[owners], own_mask], dim=1)
            positions = _positions(whole)[:, ids.shape[1] :]
            cache = rows_of(shared, owners)
            batch_places = [indices[number][0] for number in batch]
            starts = [-groups[indices[number][1]].prefix for number in batch]
            self._forward(batch_places, starts, self._arguments(own_ids, whole, positions), cache, scores)

    def _forward(self, indices: Sequence[int], starts: Sequence[int], arguments: dict[str, Tensor], cache: Any, scores: _Scores) -> None:
        """Run one pass over a batch; `starts` are the columns of the sequences' first tokens (negative: in the cache)."""
        import torch

        rows, columns, targets = scores.wanted(indices, starts)
        at = torch.tensor([rows, columns, targets], device=self.device)
        with logits_only_at(self.model, at[0], at[1]):
            logits = self.model(**arguments, past_key_values=cache, use_cache=cache is not None).logits
        scores.put(indices, log_probabilities(logits, at[2]).tolist())

    def _tensors(self, rows: Sequence[Sequence[int]], side: str) -> tuple[Tensor, Tensor]:
        import torch

        # Through NumPy: PyTorch takes several times as long to read a list.
        ids, masks = (torch.from_numpy(np.array(part, dtype=np.int64)).to(self.device) for part in padded(rows, self.pad, side))
        return ids, masks

    def _arguments(self, ids: Tensor, mask: Tensor, positions: Tensor) -> dict[str, Tensor]:
        arguments = {"input_ids": ids, "attention_mask": mask}
        if self._positions:
            arguments["position_ids"] = positions
        return arguments


def _positions(mask: Tensor) -> Tensor:
    """Return positions of tokens within their own sequence, counted from 0; padding before the first has position 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


class _Scores:
    """Requested log-probabilities per input row, with the results."""

    def __init__(self, items: Sequence[Item], rows: list[tuple[int, ...]], wanted: list[list[int]]) -> None:
        self.items, self.rows, self._wanted = items, rows, wanted
        self._found: list[list[float]] = [[] for _ in items]

    def count(self, position: int) -> int:
        """Return the number of log-probabilities requested of an input row."""
        return sum(len(self.items[number][1]) for number in self._wanted[position])

    def wanted(self, positions: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Return row and column in the batch of every requested log-probability, with its token id."""
        rows: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for row, (position, start) in enumerate(zip(positions, starts, strict=True)):
            for number in self._wanted[position]:
                prompt, target = self.items[number]
                first = start + len(prompt) - 1
                rows.extend([row] * len(target))
                columns.extend(range(first, first + len(target)))
                targets.extend(target)
        return rows, columns, targets

    def put(self, positions: Sequence[int], values: list[float]) -> None:
        start = 0
        for position in positions:
            for number in self._wanted[position]:
                end = start + len(self.items[number][1])
                self._found[number] = values[start:end]
                start = end

    def lists(self) -> list[list[float]]:
        return self._found
