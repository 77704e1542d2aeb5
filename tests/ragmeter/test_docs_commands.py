"""Commands that pages show exist, with the options that are shown; pages that run them: test_tutorials.py."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from ragmeter import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
TREE: Any = typer.main.get_command(cli.app)
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"(?:^|[;&(]|run:)\s*(ragmeter .*)", re.MULTILINE)
ENDS = re.compile(r"\s(?:\|\|?|&&|>>?|#)(?:\s|$)|;|…")


def shown(page: str) -> Iterator[str]:
    """Command lines of a page: of its blocks of shell, and those that stand in a sentence."""
    for language, block in BLOCK.findall(page):
        if language in ("", "bash"):
            yield from IN_BLOCK.findall(block.replace("\\\n", " "))
    for code in re.findall(r"`(ragmeter [^`]+)`", BLOCK.sub("", page)):
        yield code.replace("\\|", "|")


def wrong(line: str) -> str | None:
    """The word of a command line that the command does not know."""
    words = shlex.split(re.sub(r"[\[\]()]", " ", ENDS.split(line)[0]))[1:]
    command = TREE
    while hasattr(command, "list_commands"):
        if words and command.get_command(None, words[0]) is not None:
            command = command.get_command(None, words.pop(0))
        elif getattr(command, "default", None):
            command = command.get_command(None, command.default)
        else:
            break
    options = {name: item for item in command.params for name in (*item.opts, *item.secondary_opts) if name.startswith("-")}
    arguments = [item.nargs for item in command.params if item.param_type_name == "argument"]
    free = 99 if -1 in arguments else len(arguments)
    while words:
        name = words.pop(0).partition("=")[0]
        if name in ("-h", "--help", "COMMAND"):
            return None
        if not name.startswith("-"):
            free -= 1
            if free < 0:
                return name
        elif name not in options:
            return name
        elif not options[name].is_flag and words:
            words.pop(0)
    return None


def test_a_command_that_a_page_shows_exists_with_its_options() -> None:
    lines = {(str(page.relative_to(ROOT)), line) for page in PAGES for line in shown(page.read_text("utf-8"))}
    assert len(lines) > 200
    assert sorted(f"{page}: {line}: {word}" for page, line in lines if (word := wrong(line))) == []


def test_a_wrong_line_is_found() -> None:
    assert [wrong(f"ragmeter {line}") for line in ("results --metrics f1", "data fetch x y", "nonsense", "run x.yaml --dry-run # why")] == [
        "--metrics", "x", "nonsense", None,
    ]  # fmt: skip
