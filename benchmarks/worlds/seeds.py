"""Which worlds are for training, validation and testing: the seed alone decides."""

from __future__ import annotations

from benchmarks.errors import UserError

TRAIN = range(10_000)
VALIDATION = range(10_000, 20_000)
TEST = range(100_000, 2**31)
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


def split_of(seed: int) -> str:
    """The split that a world belongs to: `train`, `validation` or `test`.

    Raises:
        UserError: The seed lies in none of the three ranges.
    """
    for split, seeds in SPLITS.items():
        if seed in seeds:
            return split
    raise UserError(f"{seed} is not the seed of a world", where="seed", try_this=_ranges())


def require_training_seed(seed: int) -> int:
    """The seed, if worlds of it may be trained on.

    Raises:
        UserError: It belongs to validation or test worlds.
    """
    split = split_of(seed)
    if split != "train":
        raise UserError(f"seed {seed} makes a {split} world, which must not be trained on", where="seed", try_this=_ranges())
    return seed


def require_split(seed: int, split: str) -> int:
    """The seed, if it belongs to the split that was asked for.

    Raises:
        UserError: It belongs to another one.
    """
    if split_of(seed) != split:
        raise UserError(f"seed {seed} makes a {split_of(seed)} world, not a {split} world", where="seed", try_this=_ranges())
    return seed


def _ranges() -> str:
    return "train seeds are below 10,000, validation seeds 10,000 to 19,999, test seeds 100,000 and above"
