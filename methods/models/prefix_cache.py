"""Shared prefixes: which sequences should compute their common beginning once, and the key–value cache they share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences (by their places) that begin with the same `prefix` tokens."""

    prefix: int
    members: tuple[int, ...]


def shared_prefixes(sequences: Sequence[Sequence[int]], limits: Sequence[int], smallest: int = 1, members: int = 2) -> list[Group]:
    """Group sequences so that computing each group's common prefix once saves the most tokens.

    A group of m sequences with p tokens in common saves (m − 1) · p. Sorted, the sequences form a tree of common
    prefixes; at each of its nodes either all sequences below share that node's prefix or its children decide for
    themselves, whichever saves more. One pass over the sorted sequences, from the leaves up.

    Args:
        sequences: Token ids.
        limits: Longest prefix that may be taken from each sequence (its last tokens stay its own).
        smallest: Shortest prefix worth sharing.
        members: Fewest sequences worth sharing for.

    Returns:
        Disjoint groups; a sequence that shares nothing is in none of them.
    """
    heads = [tuple(sequence[: max(0, limit)]) for sequence, limit in zip(sequences, limits, strict=True)]
    order = sorted((place for place in range(len(heads)) if heads[place]), key=heads.__getitem__)
    if len(order) < 2:
        return []
    # A node of the tree: its depth in tokens, its first sequence, and the best that its finished children reach.
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
        # Small lists go into the larger, so that a deep tree costs n · log n.
        if len(self.groups) < len(child.groups):
            self.groups, child.groups = child.groups, self.groups
        self.groups.extend(child.groups)

    def closed(self, end: int, smallest: int, members: int) -> _Best:
        """This subtree's best: one group of all its sequences, or what its children reach."""
        count = end - self.start
        saved = (count - 1) * self.depth
        if self.depth >= smallest and count >= members and saved > self.saved:
            return _Best(saved, [(self.depth, self.start, end)])
        return _Best(self.saved, self.groups)


def _beginning(group: tuple[int, int, int]) -> int:
    return group[1]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Length of the common prefix of two sequences."""
    end = min(len(first), len(second))
    if first[:end] == second[:end]:
        return end
    low, high = 0, end  # equal up to low, different somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle)
    return low


def rows_of(cache: Any, rows: Any) -> Any:
    """A copy of a `transformers` key–value cache that holds the given rows, in that order, repeats allowed.

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
    """Number of tokens that all sequences begin with in common."""
    ordered = sorted(map(tuple, sequences))
    return _common(ordered[0], ordered[-1])  # in sorted order the most different ones


def _layers(model: Any) -> tuple[set[str], bool]:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds, getattr(config, "sliding_window", None) is not None


def supports(model: Any) -> bool:
    """Whether a model's cache is one of keys and values alone, whose rows can be selected."""
    return _layers(model)[0] <= {"full_attention", "sliding_attention"} and not getattr(model, "_is_stateful", False)


def windowed(model: Any) -> bool:
    """Whether some layer sees a window of columns only, or keeps something else than keys and values."""
    kinds, window = _layers(model)
    return window or kinds != {"full_attention"} or not supports(model)
