"""Platform-independent random numbers for worlds and styles, from the one generator whose output Python guarantees."""

from __future__ import annotations

import hashlib
import random
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Seeded random numbers that are equal on every machine and Python version.

    Python only guarantees the sequence of `random.Random(seed).random()` for an integer seed, so all methods derive from it.

    Args:
        key: Seed parts, e.g. `Draws("facts", seed)`; different keys give independent sequences.
    """

    __slots__ = ("random",)

    def __init__(self, *key: str | int) -> None:
        digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
        self.random = random.Random(int.from_bytes(digest, "little")).random

    def below(self, bound: int) -> int:
        """Return a random integer in [0, bound)."""
        return int(self.random() * bound)

    def between(self, low: int, high: int) -> int:
        """Return a random integer in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """Return a random item of a non-empty sequence."""
        return items[int(self.random() * len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle items in place (Fisher–Yates)."""
        draw = self.random
        for last in range(len(items) - 1, 0, -1):
            other = int(draw() * (last + 1))
            items[last], items[other] = items[other], items[last]

    def sample(self, items: Sequence[T], size: int) -> list[T]:
        """Return up to `size` items without replacement, in random order."""
        pool = list(items)
        size = min(size, len(pool))
        for first in range(size):
            other = first + int(self.random() * (len(pool) - first))
            pool[first], pool[other] = pool[other], pool[first]
        return pool[:size]
