"""Markdown of generated pages: tables, inline code, whole pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without its empty columns; "" if there are no rows."""
    body = [[_cell(cell) for cell in row] for row in rows]
    if not body:
        return ""
    kept = [column for column in range(len(head)) if any(row[column] for row in body)]
    lines = [[head[column] for column in kept], ["---"] * len(kept), *([row[c] for c in kept] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Return text as inline code; "" stays ""."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Return texts as inline code, separated by commas."""
    return ", ".join(map(code, texts))


def page(title: str, lead: str, parts: Iterable[str], *, wide: bool = False) -> str:
    """Return a page with title, introduction and parts; a wide one has no table of contents beside it."""
    head = "---\nhide: [toc]\n---\n\n" if wide else ""
    return head + "\n\n".join(filter(None, (f"# {title}", lead, *parts))) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
