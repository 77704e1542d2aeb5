"""What the functions of the Python API are given: checked by name, and named as Python does in what is said of it."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from benchmarks.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


def speaking_python(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function's errors name its arguments where the code below it, made for commands too, names options."""
    names = {name.replace("_", "-"): name for name in inspect.signature(function).parameters}
    option = re.compile(rf"--({'|'.join(names)})(?![\w-])(?: [A-Z]+\b)?")

    def reworded(text: str | None, mark: str) -> str | None:
        return text and option.sub(lambda found: names[found[1]] + mark, text)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            error.what = reworded(error.what, "=…") or error.what
            error.where, error.try_this = reworded(error.where, ""), reworded(error.try_this, "=…")
            error.args = ("\n".join(error.lines()),)
            raise

    return wrapped


def folder(value: Any, name: str) -> Path | None:
    """A folder, as text or path."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise _wanted("a folder", value, name)
    return Path(value)


def text(value: Any, name: str) -> str | None:
    """A text, or nothing."""
    if value is None or isinstance(value, str):
        return value
    raise _wanted("a text", value, name)


def texts(value: Any, name: str) -> list[str] | None:
    """Texts; a single one is a list of one."""
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence | set | frozenset) or not all(isinstance(one, str) for one in value):
        raise _wanted("a list of texts", value, name)
    return list(value)


def at_least_one(value: Any, name: str) -> int | None:
    """A whole number from 1 on, or nothing."""
    if value is None:
        return None
    # True is a number to Python, and hardly meant as one.
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise _wanted("a whole number", value, name)
    if value < 1:
        raise UserError(f"must be at least 1, got {value}", where=name, try_this=f"{name}=1 or more")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """True or false; a text such as "no" would be true to Python."""
    if isinstance(value, bool):
        return value
    raise _wanted("True or False", value, name)


def _wanted(what: str, value: Any, name: str) -> UserError:
    return UserError(f"{what} is wanted, got {value!r}", where=name)
