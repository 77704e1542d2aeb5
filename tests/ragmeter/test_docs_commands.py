"""Commands on pages exist with their options; test_tutorials.py runs pages with commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import typer.main
from pydantic import BaseModel

from benchmarks.registry import DATASETS
from judges.judge import JUDGES
from methods.clara.teacher import TeacherConfig
from methods.models.rewriter import RewriterConfig
from methods.registry import EXPLAINERS, METHODS
from methods.training import TRAININGS
from ragmeter import cli
from ragmeter.runner.rewriting import MEASURES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
TREE: Any = typer.main.get_command(cli.app)
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"(?:^|[;&(]|run:)\s*(ragmeter .*)", re.MULTILINE)
ENDS = re.compile(r"\s(?:\|\|?|&&?|>>?|#)(?:\s|$)|;|…")


def shown(page: str) -> Iterator[str]:
    """Yield command lines of a page: from shell blocks and from sentences."""
    for language, block in BLOCK.findall(page):
        if language in ("", "bash"):
            yield from IN_BLOCK.findall(block.replace("\\\n", " "))
    for code in re.findall(r"`(ragmeter [^`]+)`", BLOCK.sub("", page)):
        yield code.replace("\\|", "|")


def wrong(line: str) -> str | None:
    """Return the word of a command line that the command does not have."""
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


REGISTRIES: dict[str, Any] = {
    "train": TRAININGS,
    "method check": METHODS,
    "method try": METHODS,
    "method index": METHODS,
    "method explain": EXPLAINERS,
    "judge run": JUDGES,
    "judge replay": JUDGES,
}
"""Registries of the names that commands take; names of other commands are data."""


def wrong_key(line: str) -> str | None:
    """Return the first KEY of `--set KEY=VALUE` that is not an option on the line; names that do not ship are not checked."""
    words = shlex.split(ENDS.split(line)[0])[1:]
    command = " ".join(words[:2]) if words[0] not in ("train", "run") else words[0]
    registry = REGISTRIES.get(command, DATASETS)
    configs = [entry.config for word in words for entry in registry if entry.id == re.split("[/:]", word)[0] and entry.config is not None]
    if own := {"data restyle": RewriterConfig, "data instruction-rows": TeacherConfig}.get(command):
        configs = [own]
    for key in (after.partition("=")[0] for word, after in pairwise(words) if word == "--set"):
        first, _, rest = key.partition(".")
        if first in ("KEY", "data") or command == "data pretraining-rows":
            continue
        if command == "data restyle" and first in MEASURES:
            named = next(after for word, after in pairwise(words) if word == "--validate" and after.startswith(first))
            if not takes(JUDGES.get(named.partition("=")[2] or first).config, rest):
                return key
        elif configs and not any(takes(config, key) for config in configs):
            return key
    return None


def takes(annotation: Any, key: str) -> bool:
    """Return whether a config class, or a type that contains one, has an option; nested ones with dots."""
    first, _, rest = key.partition(".")
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(first)
        return field is not None and (not rest or takes(field.annotation, rest))
    if hasattr(annotation, "__value__"):
        return takes(annotation.__value__, key)
    return annotation in (Any, dict) or get_origin(annotation) in (dict, Mapping) or any(takes(part, key) for part in get_args(annotation))


def test_options_set_on_a_page_exist() -> None:
    lines = {(str(page.relative_to(ROOT)), line) for page in PAGES for line in shown(page.read_text("utf-8")) if "--set" in line}
    assert len(lines) > 20
    assert sorted(f"{page}: {line}: {key}" for page, line in lines if (key := wrong_key(line))) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("train clara --set model.lora.r=4 --set steps=1", "steps"),
        ("method check lightrag --set extractor=worlds --set extracter=x", "extracter"),
        ("data stats hotpotqa:dev --set pth=x", "pth"),
        ("data restyle nq:test --set model=x", "model"),
        ("data restyle nq:test --validate content --set content.llm.modl=x", "content.llm.modl"),
        ("method check setwise --set llm.local=pocket", None),
    ],
)
def test_setting_an_unknown_option_is_detected(line: str, key: str | None) -> None:
    assert wrong_key(f"ragmeter {line}") == key


def test_commands_on_a_page_exist_with_their_options() -> None:
    lines = {(str(page.relative_to(ROOT)), line) for page in PAGES for line in shown(page.read_text("utf-8"))}
    assert len(lines) > 200
    assert sorted(f"{page}: {line}: {word}" for page, line in lines if (word := wrong(line))) == []


def test_wrong_command_line_is_detected() -> None:
    assert [wrong(f"ragmeter {line}") for line in ("results --metrics f1", "data fetch x y", "nonsense", "run x.yaml --dry-run # why")] == [
        "--metrics", "x", "nonsense", None,
    ]  # fmt: skip
