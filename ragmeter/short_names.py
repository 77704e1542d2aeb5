"""Datasets by names short enough for a table or a progress bar."""

from __future__ import annotations

from results.asked import told_by_name


def in_words(dataset: str) -> str:
    """A dataset without its options, which tables above give; of one told in some style, which."""
    how = told_by_name(dataset)
    base = how.base.partition("(")[0]
    return base if how.base == dataset else f"{base}, {how.name}"
