"""The code of a plug-in in a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.core.code import shortened
from benchmarks.core.errors import counted


def code_in_words(code: Mapping[str, Any]) -> str:
    """Describe a plug-in's code in words: hash, distribution, commit, files and dependencies.

    Args:
        code: The code's entry in a run's provenance (`Code.to_json`).
    """
    counts = "" if code["identity"] == "code" else " (identified by its version)"
    parts = [f"unknown: {code['unknown']}" if code.get("unknown") else code["hash"] + counts]
    if "distribution" in code:
        parts.append(f"{code['distribution']} {code['version']}")
    if git := code.get("git"):
        parts.append(f"commit {str(git['commit'])[:12]}" + (" with uncommitted changes" if git["dirty"] else ""))
    if files := code["files"]:
        named = zip(shortened(files), sorted(files), strict=True)
        parts.append(f"{counted(len(files), 'file')}: " + ", ".join(f"{name} {files[file][:8]}" for name, file in named))
    if needed := code.get("dependencies"):
        parts.append("with " + ", ".join(f"{name} {version}" for name, version in needed.items()))
    return "; ".join(parts)
