"""`python -m tools.same_code OLD NEW`: prove that a change between two git revisions touches only what people read.

Docstrings, comments and messages may differ; every difference of code is printed, and the exit code is then 1. Messages
are string arguments of errors, of help texts and of what is printed, wherever such a call stands (`MESSAGES`). Their
placeholders are code, so `f"{a} of {b}"` may change its words, but neither its expressions nor their formats. Module,
class and function docstrings may differ, and so may strings that stand alone below a constant. Files that are not
Python are compared byte by byte, unless they are pages (`.md`).
"""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ERRORS = (
    "UserError", "ContractError", "Broke", "Incomplete", "MissingPackage", "MissingWeights", "NotScored", "ImportError", "ValueError",
    "TypeError", "KeyError", "RuntimeError", "AssertionError", "OSError", "also_try", "Finding", "Check", "print",
)  # fmt: skip
_SUMMARIZED = ("register", "register_program", "register_training", "register_judge", "register_explainer")
MESSAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_ERRORS, ("*",)),
    **dict.fromkeys(_SUMMARIZED, ("summary",)),
    **dict.fromkeys(("unwritable", "refused"), ("what", "try_this")),
    **dict.fromkeys(("option", "argument"), ("help", "*0")),
    **dict.fromkeys(("Option", "Argument"), ("help",)),
    **dict.fromkeys(("App", "Typer"), ("help", "epilog")),
    **dict.fromkeys(("Text", "status", "warn", "set_option"), ("*0",)),
    "Field": ("description",),
    "listing": ("empty",),
}
"""What messages are: by the name of the call its keywords, `*0` for the first positional argument, `*` for all arguments."""
MASK = "…"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class _Words(ast.NodeTransformer):
    """Replace the words of a message, and keep its expressions; strings that a call in it computes with stay."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(MASK) if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # Words between placeholders may come and go; the placeholders and their order are code.
        return ast.JoinedStr([item for item in node.values if isinstance(item, ast.FormattedValue)])

    def _kept(self, node: ast.AST) -> ast.AST:
        return node

    visit_Call = visit_Subscript = visit_Compare = _kept


class _Code(ast.NodeTransformer):
    """Remove docstrings and mask messages."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            lines = getattr(node, name, None)
            if isinstance(lines, list):
                kept = [line for line in lines if not _stands_alone(line)]
                setattr(node, name, kept or ([ast.Pass()] if lines else []))
        return super().generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
        parts = MESSAGES.get(name, ())
        node.args = [_masked(item) if "*" in parts or f"*{position}" in parts else item for position, item in enumerate(node.args)]
        for keyword in node.keywords:
            if "*" in parts or keyword.arg in parts:
                keyword.value = _masked(keyword.value)
        return node


def _stands_alone(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _masked(value: ast.expr) -> ast.expr:
    result = _Words().visit(value)
    # "a" and f"a" say the same, and so do "a" "b" and "ab".
    if isinstance(result, ast.JoinedStr) and not result.values:
        return ast.Constant(MASK)
    assert isinstance(result, ast.expr)
    return result


def code_of(source: str) -> str:
    """Normalize a module: docstrings, comments and messages are removed or masked, and the code is formatted uniformly."""
    return ast.unparse(ast.fix_missing_locations(_Code().visit(ast.parse(source))))


def differences(old: str, new: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the differences in code between two revisions, as lines of a diff or as names of files.

    Args:
        old, new: Revisions; "" for `new` means the working tree.
        root: Of the repository.
    """
    span = [old, new] if new else [old]
    listed = _git(root, "diff", "--name-status", "--no-renames", *span).decode("utf-8")
    for status, name in (line.split("\t", 1) for line in listed.splitlines()):
        if name.endswith(".md"):
            continue
        if status != "M":
            yield f"{name}: {'added' if status == 'A' else 'removed'}"
            continue
        before, after = _git(root, "show", f"{old}:{name}"), _git(root, "show", f"{new}:{name}") if new else (root / name).read_bytes()
        if not name.endswith(".py"):
            yield f"{name}: changed"
            continue
        first, second = (code_of(source.decode("utf-8")).splitlines() for source in (before, after))
        yield from difflib.unified_diff(first, second, name, name, lineterm="", n=0)


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-c", "core.quotepath=off", *words], cwd=root, capture_output=True, check=True).stdout


def main(arguments: list[str], show: Callable[[str], object] = print) -> int:
    """Print the differences; exit code 1 if the code differs, 2 for wrong usage."""
    if len(arguments) not in (1, 2):
        show("usage: python -m tools.same_code OLD [NEW]   (default: the working tree)")
        return 2
    try:
        lines = list(differences(arguments[0], arguments[1] if len(arguments) > 1 else ""))
    except subprocess.CalledProcessError as error:
        show(error.stderr.decode("utf-8", "replace").strip())
        return 2
    for line in lines:
        show(line)
    show(f"{len(lines)} lines of code differ" if lines else "only docstrings, comments and messages differ")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
