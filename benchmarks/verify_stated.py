"""Does a split hold as many records as the hub's repository says of itself?

The number in a dataset's card is the authors'; a repository on the hub states its own, and is sometimes another
release, a cut, or a script's output of long ago. A difference does not say who is wrong: both numbers are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from benchmarks.errors import UserError
from benchmarks.hub_card import stated_sizes
from benchmarks.registry import Benchmark
from benchmarks.verify import GREEN, NOTE, YELLOW, Finding

NAME = "as many records as the repository states"
_SHARD = re.compile(r"-\d{5}(-of-\d{5})?$")
_UNNAMED = "default"
"""What the hub calls the configuration of a repository that has one."""

Sizes = Mapping[str, Mapping[str, int]]
"""Rows by configuration and split, as `hub_card.stated_sizes` gives them."""


def against_repository(benchmark: Benchmark, *, partial: bool) -> Finding | None:
    """A split from the hub against what its repository states of it; None where it is not from the hub.

    Args:
        benchmark: A single split.
        partial: Whether it may hold fewer.
    """
    source = benchmark.extra.get("source")
    if not source:
        return None
    try:
        sizes = stated_sizes(source["hub"], source["revision"])
    except UserError as error:
        return Finding(NAME, NOTE, f"not checked: {error.what}")
    if not sizes:
        return Finding(NAME, NOTE, f"{source['hub']} states no sizes")
    stated = stated_of(sizes, source["files"])
    if stated is None:
        listed = ", ".join(f"{config}/{split}" for config, splits in sizes.items() for split in splits)
        return Finding(NAME, NOTE, f"none of the sizes that {source['hub']} states is plainly this one's: {listed}")
    return compared(len(benchmark.questions) + len(benchmark.skipped), *stated, partial=partial)


def stated_of(sizes: Sizes, files: Iterable[str]) -> tuple[str, int] | None:
    """The configuration and split that files are of, by their names, and its stated rows; None where it is not plain.

    Files lie as `config/split-00000-of-00002.parquet`, `config/split/0000.parquet`, `data/split-….parquet` or
    `split.jsonl`.
    """
    words = [_words(file) for file in files]
    every = [(config, split) for config, splits in sizes.items() for split in splits]
    found = [(config, split) for config, split in every if words and all(split in of_one for of_one in words)]
    by_name = [(config, split) for config, split in found if all(config in of_one for of_one in words)]
    unnamed = [(config, split) for config, split in found if config == _UNNAMED or len(sizes) == 1]
    for plain in (by_name, unnamed):
        if len(plain) == 1:
            config, split = plain[0]
            return f"{config}/{split}", sizes[config][split]
    return None


def _words(file: str) -> set[str]:
    path = PurePosixPath(file)
    return {*path.parent.parts, _SHARD.sub("", path.stem)}


def compared(held: int, name: str, stated: int, *, partial: bool) -> Finding:
    """The finding on two numbers.

    Args:
        held: Records read, those left out included.
        name: Of the split on the hub.
        stated: Its rows as stated.
        partial: Whether fewer are no surprise.
    """
    if held == stated:
        return Finding(NAME, GREEN, f"{held:,}")
    both = f"{held:,} here, {stated:,} stated of {name}"
    if held < stated:
        meaning = "the files are a cut or another release than its card describes, or a record is no question of its own"
        return Finding(NAME, NOTE if partial else YELLOW, f"{both}: {stated - held:,} fewer; {meaning}")
    meaning = "the repository grew after its card was written, or a record holds several questions"
    return Finding(NAME, YELLOW, f"{both}: {held - stated:,} more; {meaning}")
