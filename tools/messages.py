"""List the messages of all user errors with their codes, as `tests/messages.txt` holds them.

python -m tools.messages > tests/messages.txt
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.count import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
OWN_CODE = {"MissingPackage", "NotScored", "Stopped", "DiskFull", "Damaged", "OwnFile"}
"""Classes that give their own code to every error."""


def messages(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield place, code and text of every `UserError` in the code; values in the text become {}.

    Args:
        root: Folder that contains the packages.
    """
    classes: list[tuple[str, set[str]]] = []
    calls: list[tuple[str, str, str, str]] = []
    # Trees are dropped one by one, because Python's garbage collector walks through all that are kept.
    for path in (path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))):
        if "rror" not in (text := path.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes.append((node.name, {_name(base) for base in node.bases}))
            elif isinstance(node, ast.Call) and node.args:
                code = next((_text(keyword.value) for keyword in node.keywords if keyword.arg == "code"), "")
                place = f"{path.relative_to(root).as_posix()}:{node.lineno}"
                calls.append((_name(node.func), place, code, _text(node.args[0])))
    kinds = _kinds(classes) - OWN_CODE
    yield from ((place, code, text) for name, place, code, text in calls if name in kinds)


def _kinds(classes: list[tuple[str, set[str]]]) -> set[str]:
    """Return the names of `UserError` and of all classes that derive from it."""
    kinds = {"UserError"}
    while more := {name for name, bases in classes if bases & kinds} - kinds:
        kinds |= more
    return kinds


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return "{}"


def listing(every: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the sorted list of messages, one line with code and text each."""
    return sorted({f"{code}: {' '.join(text.split())}" for _, code, text in every})


if __name__ == "__main__":
    print("\n".join(listing(messages(ROOT))))
