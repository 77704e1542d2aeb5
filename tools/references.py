"""`python -m tools.references`: modules and files of ours that docstrings, comments and pages name, but that do not exist.

A reference stands in backticks: a dotted path that begins with one of our packages (`results.store.store.Store`), or a
file (`store.py`, `runner/loop.py`). A dotted path must lead to a module, and from there to a name that its source binds.
A file must exist below the root, the package or the folder of the file that names it, or end a path in the repository.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter", "tests", "tools", "perf")
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|sql|css|js)")
"""Files of code: data, cards and pages that texts name are mostly the reader's."""
DATA = (".json", ".yaml", ".jsonl", ".csv")
FOREIGN = frozenset({
    "ragmeter.benchmarks", "ragmeter.methods", "ragmeter.judges", "ragmeter.scripts",
    "download_data.py", "eval.py", "evaluate_results.py", "hotpot_evaluate_v1.py", "metrics.py", "pred.py",
    "qa_validation.py", "streamlit.py",
})  # fmt: skip
"""Entry-point groups, and files of authors and libraries that texts name."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines of a page, or of a module's docstrings and comments."""
    source = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        # A string that stands alone is a docstring: of a module, class or function, or below a constant.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.splitlines(), start=node.lineno)


@cache
def _bound(path: Path) -> frozenset[str]:
    """Names that a module binds or imports at any depth, and attributes of classes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.rpartition(".")[2])
    return frozenset(names)


def leads_somewhere(dotted: str, root: Path = ROOT) -> bool:
    """Return whether a dotted path names a package, a module, or an object of a module."""
    folder, parts = root, dotted.split(".")
    for position, part in enumerate(parts):
        rest = parts[position + 1 :]
        if (folder / part).is_dir():
            folder = folder / part
            continue
        module = (folder / f"{part}.py") if (folder / f"{part}.py").is_file() else folder / "__init__.py"
        names = rest if module.stem == part else parts[position:]
        return module.is_file() and set(names) <= _bound(module)
    return True


def _files(root: Path) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (root / name).is_file()]


def broken(root: Path = ROOT) -> list[str]:
    """List references in docs and docstrings whose target does not exist, as `file:line: reference`."""
    files = _files(root)
    ends = {"/".join(name.split("/")[position:]) for name in files for position in range(name.count("/") + 1)}
    results = []
    for name in files:
        if not name.endswith((".py", ".md")) or name == "CHANGELOG.md":
            continue
        for line, text in texts(root / name):
            for quoted in QUOTED.findall(text):
                if quoted.rpartition("/")[2] in FOREIGN or quoted.endswith(DATA):
                    continue
                if FILE.fullmatch(quoted):
                    wrong = quoted not in ends
                else:
                    # A page may name attributes of what the reader holds, such as results.failed.
                    dotted = DOTTED.fullmatch(quoted) and (name.endswith(".py") or quoted.count(".") > 1)
                    wrong = bool(dotted) and not leads_somewhere(quoted, root)
                if wrong:
                    results.append(f"{name}:{line}: {quoted}")
    return results


def main() -> int:
    """Print broken references; exit code 1 if there are any."""
    lines = broken()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
