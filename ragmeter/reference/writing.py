"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns in which no row says anything are left out. "" where there are no rows."""
    body = [[_cell(cell) for cell in row] for row in rows]
    if not body:
        return ""
    kept = [column for column in range(len(head)) if any(row[column] for row in body)]
    lines = [[head[column] for column in kept], ["---"] * len(kept), *([row[c] for c in kept] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Text as inline code; "" stays ""."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def codes(texts: Iterable[str]) -> str:
    """Several of them, with commas."""
    return ", ".join(map(code, texts))


def page(title: str, lead: str, parts: Iterable[str], *, wide: bool = False) -> str:
    """A page: its title, what it is about, and its parts; a wide one has no table of contents beside it."""
    head = "---\nhide: [toc]\n---\n\n" if wide else ""
    return head + "\n\n".join(filter(None, (f"# {title}", lead, *parts))) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
