"""A plug-in package: `examples/plugin` under another name, with its ids."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.core.errors import UserError
from ragmeter.cli.init_experiment import example

_PACKAGE, _PROJECT = "ragmeter_example", "ragmeter-example"
_IDS = {"title_overlap": "overlap", "two_looks": "looks", "rivers": "rivers", "brief": "brief"}
_TAKEN = frozenset(("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter", "tests"))


def plugin_files(name: str) -> tuple[dict[str, str], list[str]]:
    """Generate the files of a plug-in package, by path, and the next steps for the user.

    Args:
        name: Name of the project: letters, digits and - _ .

    Raises:
        UserError: The name is not valid for a package, or is taken by another package.
    """
    package = re.sub(r"[-_.]+", "_", name).lower()
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]", name) or not package.isidentifier():
        raise UserError(f"{name!r} cannot be the name of a package", code="bad-plugin-name", where="--plugin", try_this="--plugin acme-rag")
    if package in _TAKEN or package in sys.stdlib_module_names:
        what = f"the package name {package!r} is taken"
        raise UserError(what, code="plugin-name-taken", where="--plugin", try_this=f"--plugin {name}-rag")

    def renamed(text: str) -> str:
        text = text.replace(_PACKAGE, package).replace(_PROJECT, package.replace("_", "-"))
        return re.sub(rf"\b({'|'.join(_IDS)})\b", lambda match: f"{package}_{_IDS[match[1]]}", text)

    files = {renamed(path): renamed(item.read_text("utf-8")) for path, item in _walk(example("plugin"), "")}
    return files, ["python -m pytest tests", "pip install --editable .", f"ragmeter method check {package}_overlap"]


def _walk(folder: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir() and item.name != "__pycache__":
            yield from _walk(item, f"{prefix}{item.name}/")
        elif item.is_file() and not item.name.startswith("."):
            yield f"{prefix}{item.name}", item
