"""Commands documented in shipped YAML files exist, with their options, names and profiles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from methods.training import TRAININGS
from ragmeter import experiment
from tests.ragmeter.test_docs_commands import wrong, wrong_key

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = ROOT / "ragmeter" / "experiments"
FILES = [file for folder in (EXPERIMENTS, ROOT / "methods", ROOT / "examples") for file in sorted(folder.rglob("*.yaml"))]
COMMAND = r"(?:ragmeter|python -m) "
PLACEHOLDERS = ("FILE", "RUN")


def documented(text: str) -> Iterator[str]:
    """Yield the commands in the comments and descriptions of a YAML file: on separate lines, and in backticks."""
    comments = [comment[1] for comment in re.finditer(r"(?:^|\s)#\s?(.*)$", text, re.MULTILINE)]
    for line in "\n".join(comments).replace("\\\n", " ").split("\n"):
        for part in re.split(r"&&|;", re.split(r"\s#\s|`", line)[0]):
            if re.match(COMMAND, part.strip()):
                yield " ".join(part.split())
    described = re.findall(r'^ *description: *"(.*(?:\n .*)*)"', text, re.MULTILINE)
    descriptions = [" ".join(item.replace("\\\n", "").split()) for item in described]
    yield from re.findall(rf"`({COMMAND}[^`]+)`", " ".join([*" ".join(comments).split(), *descriptions]))
    for item in descriptions:
        yield from re.findall(r"(?<!`)\bragmeter (?:(?!ragmeter )[^;`])+", item)


def fault(line: str, file: Path) -> str | None:
    """Return what a documented command refers to but does not exist, or None."""
    if line.startswith("python"):
        return _module_fault(shlex.split(line)[2:])
    words = shlex.split(line)[1:]
    if wrong_word := wrong(line) or ("--set" in words and wrong_key(line)):
        return wrong_word
    profile = words[words.index("--profile") + 1] if "--profile" in words else None
    loaded = [words[1]] if words[0] == "run" and len(words) > 1 and not words[1].startswith("-") and words[1] not in PLACEHOLDERS else []
    loaded += [words[words.index("--experiment") + 1]] if "--experiment" in words else []
    for name in loaded:
        if not (file.parent / name).is_file() and name not in experiment.shipped():
            return name
        try:
            load(name, profile)
        except UserError as error:
            return str(error)
    if words[0] == "results":
        names = [word for word in words[1:] if re.fullmatch(r"[a-z]+(-[\w]+)+", word)]
        return next((name for name in names if name not in stored_names()), None)
    trained = words[1:2] if words[0] == "train" else words[2:3] if words[:2] == ["list", "trainings"] else []
    return next((name for name in trained if name not in {entry.id for entry in TRAININGS}), None)


def _module_fault(words: list[str]) -> str | None:
    spec = find_spec(words[0])
    if spec is None or spec.origin is None:
        return words[0]
    source = Path(spec.origin).read_text("utf-8")
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return next((option for option in options if f'"{option}"' not in source), None)


@cache
def load(name: str, profile: str | None) -> None:
    """Resolve methods, options, metrics and presets of a profile; `plan/test_plan.py` does so without one."""
    if profile is not None:
        experiment.load(name, profile=profile)


@cache
def stored_names() -> frozenset[str]:
    """Return the names of shipped experiments in the store, in any profile."""
    return frozenset(stored for text in experiment.shipped().values() for stored in re.findall(r"^ *name: ([\w.-]+)$", text, re.MULTILINE))


@pytest.mark.slow
def test_commands_documented_in_yaml_files_exist() -> None:
    lines = {(file, line) for file in FILES for line in documented(file.read_text("utf-8"))}
    assert len(lines) > 120
    assert sorted(f"{file.relative_to(ROOT)}: {line}: {wrong_word}" for file, line in lines if (wrong_word := fault(line, file))) == []


def test_cheap_documented_commands_run(call: Callable[..., Any]) -> None:
    lines = {line for file in FILES for line in documented(file.read_text("utf-8")) if line.startswith("ragmeter list ")}
    assert lines
    for line in lines:
        assert call(*shlex.split(line)[1:]).code == 0, line


@pytest.mark.parametrize(
    ("line", "wrong_word"),
    [
        ("ragmeter run ark/gane", "ark/gane"),
        ("ragmeter run ark/near --profile papper", "papper"),
        ("ragmeter data restyle nq:test --set model=x", "model"),
        ("ragmeter results style sark-gian --over-seeds", "sark-gian"),
        ("ragmeter train arc", "arc"),
        ("python -m tools.reel_base x", "tools.reel_base"),
        ("python -m tools.real_base x --stepps 2", "--stepps"),
        ("python -m tools.real_base x --steps 2", None),
    ],
)
def test_unknown_documented_command_is_detected(line: str, wrong_word: str | None) -> None:
    error = fault(line, EXPERIMENTS / "x.yaml")
    assert error is None if wrong_word is None else wrong_word in str(error)


def test_commands_are_read_from_comments_and_descriptions() -> None:
    text = """\
# Head: `ragmeter run
# a/b` is one.
#   ragmeter run c/d && ragmeter results c-d   # why
#   ragmeter data restyle x -o y \\
#       --style z
name: e
description: "see `ragmeter run e/f`; figures: ragmeter \\
  results g; and more"
"""
    expected = ["ragmeter run c/d", "ragmeter results c-d", "ragmeter data restyle x -o y --style z"]
    assert [*documented(text)] == [*expected, "ragmeter run a/b", "ragmeter run e/f", "ragmeter results g"]
