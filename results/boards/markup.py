"""Write rows as CSV, Markdown, LaTeX (booktabs) and HTML for notebooks, and values as JSON.

All text is untrusted: it is escaped for the format, and a spreadsheet never treats a text cell as a formula. The HTML has no
script and no style sheet, because a notebook puts it into its page unchanged.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from html import escape
from typing import Any

import numpy as np

from benchmarks.core.unseen import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\n")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "±": r"$\pm$", "×": r"$\times$", "–": "--", "—": "---", "…": r"\dots{}",
    "·": r"$\cdot$", "−": "$-$",
}  # fmt: skip


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Render rows as CSV (RFC 4180, line feeds); missing values become empty cells, and texts are made safe for spreadsheets.

    A text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe; carriage returns become line feeds.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[_csv_cell(value) for value in row] for row in (columns, *rows)])
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        text = value.replace("\r\n", "\n").replace("\r", "\n")
        return "'" + text if text.startswith(_FORMULA) else text
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def markdown_text(text: str) -> str:
    """Escape a text for a Markdown table cell: no markup, links, HTML, cell separators or mentions."""
    text = printable(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]()#!|~$])", r"\\\1", text)
    # Text that looks like an address would become a link.
    text = re.sub(r"(?i)\bwww\.", "www&#8203;.", text.replace("://", ":&#8203;//"))
    return re.sub(r"(?i)((?<![a-z0-9])@(?=\w)|\\#(?=\d)|\bgh-(?=\d))", lambda match: f"{match[0]}&#8203;", text)


def to_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Render a Markdown table; the first `left` columns are left-aligned, the others right-aligned. Cells must be escaped already."""
    rules = [":--" if position < left else "--:" for position in range(len(columns))]
    lines = [columns, rules, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex_text(text: str) -> str:
    """Escape a text for LaTeX (pdfLaTeX with UTF-8 input)."""
    kept = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return "".join(_LATEX.get(character, character) for character in kept)


def latex_row(cells: Sequence[str]) -> str:
    """Render a row of a LaTeX table. Cells must be escaped already."""
    # A line that begins with a bracket or an asterisk would be an argument of the line break before it.
    protected = "{}" if cells[0].startswith(("[", "*")) else ""
    return protected + " & ".join(cells) + r" \\"


def to_latex(columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, notes: Sequence[str] = (), left: int = 1) -> str:
    """Render a LaTeX table in `booktabs` style. Cells, caption and notes must be escaped already."""
    shape = "l" * left + "r" * (len(columns) - left)
    body = list(map(latex_row, rows))
    responses = [rf"\par\smallskip\footnotesize {note}." for note in notes]
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule",
        " & ".join(columns) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *responses,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def to_html(columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", notes: Sequence[str] = ()) -> str:
    """Render an HTML table; the first column is left-aligned, the others right-aligned.

    Args:
        columns, rows: Plain texts, escaped here; a line feed becomes a line break.
        caption: Text above the table.
        notes: Texts below the table.
    """
    head = _cells("th", columns)
    body = "".join(f"<tr>{_cells('td', row)}</tr>\n" for row in rows)
    named = f"<caption{_LEFT}>{_text(caption)}</caption>\n" if caption else ""
    items = "".join(f"<li>{_text(note)}</li>\n" for note in notes)
    below = f"<ul>\n{items}</ul>\n" if items else ""
    return f"<table>\n{named}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{below}"


def _cells(tag: str, texts: Sequence[str]) -> str:
    """Return one row's cells, the first aligned left."""
    return "".join(f"<{tag}{_RIGHT if position else _LEFT}>{_text(text)}</{tag}>" for position, text in enumerate(texts))


def _text(text: str) -> str:
    return "<br>".join(map(escape, text.splitlines()))


def plain(value: Any) -> Any:
    """Convert a value to plain JSON types: NaN becomes None, tuples and arrays become lists."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Enum):
        return value.name.lower()
    return None if isinstance(value, float) and not math.isfinite(value) else value
