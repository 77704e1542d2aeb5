"""How large the six packages are: files, lines of code, the median file.

A line counts when a token stands on it that is neither a comment nor part of a docstring.

    python tools/count.py [FOLDER]
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from pathlib import Path

PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter")
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Count the lines of a module that contain code, without blank lines, comments and docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def main(root: Path) -> None:
    """Print the line counts of each package, and the total of the six."""
    rows = []
    for package in (*PACKAGES, "tests"):
        sources = [path.read_text("utf-8") for path in sorted((root / package).rglob("*.py"))]
        rows.append((package, [code_lines(source) for source in sources], [source.count("\n") for source in sources]))
    print(f"{'':12} {'files':>6} {'code':>8} {'lines':>8} {'median':>7}")
    six = rows[: len(PACKAGES)]
    together = ("six packages", [n for _, code, _ in six for n in code], [n for _, _, lines in six for n in lines])
    for name, code, lines in (*rows, together):
        print(f"{name:12} {len(code):6} {sum(code):8,} {sum(lines):8,} {statistics.median(lines or [0]):7.0f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
