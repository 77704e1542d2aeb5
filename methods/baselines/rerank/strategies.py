"""Rank many passages by comparisons of a few: sliding windows, heapsort, bubblesort.

Each strategy is an async function that awaits comparisons of positions in the original ranking (from 0). The result is always a
permutation of all positions, even if comparisons are inconsistent.

Source: Sun et al. 2023, RankGPT (arXiv:2304.09542), with the windows of rank_llm, which reach the head for any number of
passages; Zhuang et al. 2024, Setwise (arXiv:2310.09497).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from methods.flow import together

Sort = Callable[[Sequence[int]], Awaitable[Sequence[int]]]
"""Async function that sorts positions, best first."""
Choose = Callable[[Sequence[int]], Awaitable[int]]
"""Async function that returns the index of the best of some positions."""


async def windows(n: int, sort: Sort, size: int, step: int) -> list[int]:
    """Rank by sliding windows from the tail to the head; neighboring windows share `size − step` passages.

    Args:
        n: Number of passages.
        sort: Function that sorts a window.
        size: Window size, at least 2.
        step: Distance between windows, less than `size`, so that the best passage reaches the head.

    Returns:
        All positions, best first.
    """
    order = list(range(n))
    end = n
    while end > 1:
        start = max(0, end - size)
        order[start:end] = await sort(order[start:end])
        end = end - step if start else 0
    return order


def window_calls(n: int, size: int, step: int) -> int:
    """Return the number of windows that `windows` sorts."""
    return 0 if n < 2 else 1 + -(-max(0, n - size) // step)


async def heapsort(n: int, choose: Choose, children: int, k: int) -> list[int]:
    """Find the k best by heapsort with `children` children per node.

    Args:
        n: Number of passages.
        choose: Function that chooses the best of a parent and its children.
        children: Children per node (c); a comparison has at most c + 1 passages.
        k: Number of passages to sort; the others follow in their order.
    """
    heap = list(range(n))

    async def sift(parent: int, size: int) -> None:
        while (first := children * parent + 1) < size:
            family = [parent, *range(first, min(first + children, size))]
            best = family[await choose([heap[position] for position in family])]
            if best == parent:
                return
            heap[parent], heap[best] = heap[best], heap[parent]
            parent = best

    # Parents of one level have disjoint subtrees: it makes no difference to any comparison which of them sinks first.
    levels = [range(1)]
    while levels[-1].stop < n:
        levels.append(range(levels[-1].stop, children * levels[-1].stop + 1))
    for level in reversed(levels):
        await together(*(sift(parent, n) for parent in level if children * parent + 1 < n))
    for last in range(n - 1, max(0, n - 1 - k), -1):
        heap[0], heap[last] = heap[last], heap[0]
        if last > n - k:
            await sift(0, last)
    best = heap[: -k - 1 : -1] if n > k else heap[::-1]
    return best + sorted(set(range(n)) - set(best))


def heapsort_calls(n: int, children: int, k: int) -> int:
    """Return the maximum number of comparisons of `heapsort`."""
    if n < 2:
        return 0
    depth, reached, width = 0, 1, 1
    while reached < n:
        depth, width = depth + 1, width * children
        reached += width
    parents = -(-(n - 1) // children)
    # A parent may sink to the bottom when the heap is built; half of them are just above it, or fewer.
    built = parents * depth if children == 1 else parents + -(-parents // (children - 1))
    return built + (min(k, n) - 1) * depth


async def bubblesort(n: int, choose: Choose, children: int, k: int) -> list[int]:
    """Find the k best by passes from the tail, each of which moves the best remaining passage to its rank.

    Repeated comparisons are skipped: a pass starts where the previous one made its first change. Arguments are as in
    `heapsort`.
    """
    order = list(range(n))
    results: dict[tuple[int, ...], int] = {}
    for head in range(min(k, n - 1)):
        end = n
        while end > head + 1:
            start = max(head, end - children - 1)
            window = tuple(order[start:end])
            if window not in results:
                results[window] = await choose(window)
            best = start + results[window]
            order[start], order[best] = order[best], order[start]  # as published: the two change places
            end = start + 1 if start > head else 0
    return order[:k] + sorted(order[k:])


def bubblesort_calls(n: int, children: int, k: int) -> int:
    """Return the maximum number of comparisons of `bubblesort`."""
    return sum(-(-(n - 1 - head) // children) for head in range(min(k, max(0, n - 1))))
