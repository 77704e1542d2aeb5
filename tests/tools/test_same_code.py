"""Changes of text and changes of code between two revisions of a repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.same_code import code_of, main

BEFORE = '''"""A module."""

LIMIT = 3
"""How many."""


def half(x: int, name: str) -> float:
    """Halve."""
    if x > LIMIT:
        raise UserError(f"{name} is {x:,}", where=name, try_this="smaller" if x < 9 else "other")
    return x / 2  # Not rounded.
'''


def same(old: str, new: str) -> bool:
    return code_of(old) == code_of(new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Half of it."""'),
        ('"""How many."""', ""),
        ("  # Not rounded.", ""),
        ('    """Halve."""\n', ""),
        ('f"{name} is {x:,}"', 'f"the value of {name} must not be {x:,}: too large"'),
        ('"smaller" if', '"give a smaller one" if'),
    ],
)
def test_changes_of_docstrings_comments_and_messages_are_ignored(old: str, new: str) -> None:
    assert old in BEFORE
    assert same(BEFORE, BEFORE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("x > LIMIT", "x >= LIMIT"),
        ("x / 2", "x // 2"),
        ('{name} is {x:,}"', '{name} is {x}"'),
        ('f"{name} is {x:,}"', 'f"{x:,} is {name}"'),
        ("if x < 9 else", "if x < 8 else"),
        ("where=name", "where=name.lower()"),
        ("UserError(", "Broke("),
        ("name: str", "name: str = ''"),
    ],
)
def test_other_changes_are_reported_as_code(old: str, new: str) -> None:
    assert old in BEFORE
    assert not same(BEFORE, BEFORE.replace(old, new))


def test_strings_used_by_code_are_not_messages() -> None:
    for old, new in (
        ('x = "a"', 'x = "b"'),
        ('f("a")', 'f("b")'),
        ('raise UserError(names["a"])', 'raise UserError(names["b"])'),
        ('raise UserError("x" if kind == "a" else "y")', 'raise UserError("x" if kind == "b" else "y")'),
        ('raise UserError(f("a"))', 'raise UserError(f("b"))'),
        ('Field("a", description="x")', 'Field("b", description="x")'),
        ('register("a", summary="x")', 'register("b", summary="x")'),
    ):
        assert not same(old, new), old
    for old, new in (
        ('Field("a", description="x")', 'Field("a", description="y" " z")'),
        ('register("a", summary="x")', 'register("a", summary="y")'),
        ('typer.Option("--a", help="x")', 'typer.Option("--a", help="y")'),
        ('raise UserError("x" + name)', 'raise UserError("y" + name)'),
    ):
        assert same(old, new), old


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with one commit of a module, a page and a prompt for `tools.same_code`."""
    (tmp_path / "a.py").write_text(BEFORE)
    (tmp_path / "page.md").write_text("# Page\n")
    (tmp_path / "prompt.txt").write_text("Answer.\n")
    commit(tmp_path, init=True)
    monkeypatch.setattr("tools.same_code.differences.__defaults__", (tmp_path,))
    return tmp_path


def commit(folder: Path, *, init: bool = False) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in ([["init", "-q"]] if init else []) + [["add", "-A"], [*named, "commit", "-qm", "m"]]:
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_exit_code_is_1_if_code_differs(repository: Path) -> None:
    lines: list[str] = []
    (repository / "a.py").write_text(BEFORE.replace("Halve", "Return half").replace(" is {x:,}", " must not be {x:,}"))
    (repository / "page.md").write_text("# A page\n")
    commit(repository)
    assert main(["HEAD~1", "HEAD"], lines.append) == 0
    (repository / "a.py").write_text(BEFORE.replace("x / 2", "x / 3"))
    assert main(["HEAD"], lines.append) == 1, "the working tree"
    assert "+    return x / 3" in lines
    assert main(["nothing"], lines.append) == 2
    assert main([], lines.append) == 2


@pytest.mark.parametrize("name", ["prompt.txt", "new.py"])
def test_new_files_and_non_python_files_are_reported(repository: Path, name: str) -> None:
    lines: list[str] = []
    (repository / name).write_text("x = 1\n")
    commit(repository)
    assert main(["HEAD~1", "HEAD"], lines.append) == 1
    assert lines[0].startswith(f"{name}: ")
