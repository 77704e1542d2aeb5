"""A number with its noun."""

from __future__ import annotations


def counted(number: int, noun: str, several: str | None = None) -> str:
    """`1 task`, `2 tasks`, `1,000 tasks`; `several` is the plural that is not made with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or noun + 's'}"
