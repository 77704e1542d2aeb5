"""Errors for users: what is wrong, where, and how to fix it."""

from __future__ import annotations

import copyreg
import difflib
import errno
import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from pydantic import ValidationError


class UserError(Exception):
    """Error in the user's input or environment; the command line shows it without a traceback.

    Args:
        what: One sentence that says what is wrong.
        code: Stable name of the kind of error ("unknown-key", "output-exists"); tests and scripts rely on it.
        where: Location: a file with its line, a field, a flag.
        try_this: How to fix it.
    """

    exit_code = 2
    """Exit code of the command for this error: 2 for wrong usage or input."""

    def __init__(self, what: str, *, code: str = "other", where: str | None = None, try_this: str | None = None) -> None:
        self.what = what
        self.code = code
        self.where = where
        self.try_this = try_this
        super().__init__("\n".join(self.lines()))

    def __reduce__(self) -> Any:
        # It goes from process to process whatever arguments its class takes.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def lines(self) -> list[str]:
        """Return the message as lines: what, where, try."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.try_this:
            lines.append(f"  try:   {self.try_this}")
        return lines

    def also_at(self, position: str) -> None:
        """Prepend a location, such as the line of an experiment file that refers to the faulty file."""
        self.where = f"{position}; {self.where}" if self.where else position
        self.args = ("\n".join(self.lines()),)

    def also_try(self, hint: str) -> None:
        """Append a further hint on how to fix the error."""
        self.try_this = f"{self.try_this}; {hint}" if self.try_this else hint
        self.args = ("\n".join(self.lines()),)


def message_of(error: BaseException) -> str:
    """Return an error's message for storage, cut to `MESSAGE_CHARACTERS`; "" if its `__str__` raises."""
    try:
        text = str(error)
    except (Exception, SystemExit):
        return ""
    text = text if len(text) <= MESSAGE_CHARACTERS else f"{text[: MESSAGE_CHARACTERS - 1]}…"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


MESSAGE_CHARACTERS = 4000
"""Maximum number of characters kept of an error's message."""


class Broke(UserError):
    """Failure of a valid request: a full disk, an unreachable endpoint, or a method that raised an error."""

    exit_code = 1


class Incomplete(UserError):
    """The command finished, but so many questions failed that the results mean little."""

    exit_code = 3


class MissingPackage(UserError):
    """An optional package that is needed here is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed", code="missing-package", try_this=how_to_install(extra)
        )


HOME = Path(__file__).resolve().parents[2]
"""Folder that contains ragmeter's packages: the repository or site-packages."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra: from the repository, or package by package, because ragmeter is not on PyPI."""
    if (HOME / "pyproject.toml").is_file():
        pinned = " -c constraints.txt" if (HOME / "constraints.txt").is_file() else ""
        return f"in {HOME}: pip install '.[{extra}]'{pinned}"
    packages = _packages(extra)
    return f"pip install {' '.join(map(repr, packages))}" if packages else f"from a clone: pip install '.[{extra}]'"


def _packages(extra: str) -> list[str]:
    """Return the packages of an extra from ragmeter's own metadata, following extras that it names."""
    results: list[str] = []
    try:
        lines = requires("ragmeter") or []
    except PackageNotFoundError:
        return results
    for line in lines:
        what, _, marker = line.partition(";")
        if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            inner = re.fullmatch(r"ragmeter\[([\w,-]+)\]", what.strip())
            results += [package for name in inner[1].split(",") for package in _packages(name)] if inner else [what.strip()]
    return list(dict.fromkeys(results))


_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Errors of the disk itself, independent of the path."""


def unwritable(error: OSError, where: object = None, *, what: str = "this file", try_this: str | None = None) -> UserError:
    """Build the error for a path that cannot be written, with a hint that depends on the cause (another path, or free space).

    Args:
        error: The operating system's error.
        where: The path as the user named it; None for the path in `error`.
        what: Description of the output.
        try_this: How to fix it; None for the default hint.
    """
    return refused(error, where, what=f"{what} cannot be written", try_this=try_this)


def refused(error: OSError, where: object = None, *, what: str, try_this: str | None = None) -> UserError:
    """Build the error for an operation that the system refused; `what` describes the operation, other arguments as in
    `unwritable`.
    """
    kind = Broke if error.errno in _DISK else UserError
    position = error.filename if where is None else where
    message = f"{what}: {error.strerror or error}"
    return kind(
        message,
        code=f"system-{(error.strerror or 'error').lower().replace(' ', '-')}",
        where=None if position is None else str(position),
        try_this=try_this,
    )


def make_folder(folder: Path, where: object = None) -> None:
    """Create an output folder before the work for it begins.

    Raises:
        UserError: It cannot be created, or files cannot be created in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise unwritable(error, folder if where is None else where, what="this folder") from None


def require_writable(file: Path, *, what: str = "this file") -> None:
    """Check that a file can be created or appended to before the work for it begins; creates its folder.

    Raises:
        UserError: The file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unwritable(error, file, what=what) from None


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a mistyped one, or None if none is close."""
    result = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return result[0] if result else None


_LISTED = 12


def unknown_name(noun: str, wrong: str, known: Iterable[str], *, where: str | None = None) -> UserError:
    """Build the error for an unknown name; it suggests the most similar known name, or lists the first dozen."""
    names = sorted(set(known))
    guess = nearest(wrong, names)
    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    listed = f"known: {', '.join(names[:_LISTED])}{more}" if names else f"there is no {noun} yet"
    hint = f"did you mean {guess!r}?" if guess else listed
    return UserError(
        f"unknown {noun} {wrong!r}", code="unknown-" + noun.split(" of ")[0].split(" in ")[0].replace(" ", "-"), where=where, try_this=hint
    )


def counted(number: int, noun: str, several: str | None = None) -> str:
    """Format a count with its noun: `1 task`, `2 tasks`, `1,000 tasks`. `several` is an irregular plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or noun + 's'}"


_WANTED: Mapping[str, str] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"), "a mapping of keys"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
    **dict.fromkeys(("string_type", "string_unicode"), "a text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "none_required": "null",
}
"""Expected form of a value, by kind of pydantic error."""
_MUST: Mapping[str, str] = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must be at least {min_length} characters long",
    "string_too_long": "must be at most {max_length} characters long",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "too_short": "its length must be at least {min_length}, and is {actual_length}",
    "too_long": "its length must be at most {max_length}, and is {actual_length}",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "value_error": "{error}",
    "assertion_error": "{error}",
    "json_invalid": "this is not JSON: {error}",
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
}
"""Requirement that a value violates, per kind of pydantic error; placeholders are the error's context."""
_NAME = re.compile(r"\^\[(?:A-Za-z0-9|\\w)\]\[(?:A-Za-z0-9|\\w)([._+-]+)\](?:\*|\{0,(\d+)\})\$")
"""Pattern of the patterns of names, with their signs and maximum length."""


def in_words(error: Mapping[str, Any]) -> str:
    """Describe a pydantic validation error in plain English, such as `must be at least 1`; unknown kinds keep pydantic's
    message.

    Args:
        error: One of `ValidationError.errors()`.
    """
    kind, message = error["type"], str(error["msg"])
    if kind in _WANTED:
        return f"{_WANTED[kind]} is wanted"
    if kind == "string_pattern_mismatch" and (name := _NAME.fullmatch(error["ctx"]["pattern"])):
        most = f"at most {int(name[2]) + 1} " if name[2] else ""
        return f"must be {most}letters, digits and {' '.join(dict.fromkeys('_' + name[1]))} (first a letter or digit)"
    if kind in _MUST:
        try:
            return _MUST[kind].format_map(error.get("ctx", {}))
        except KeyError:
            return message
    return message.replace("Input should ", "must ", 1)


def first_error(error: ValidationError) -> Any:
    """Select the validation error to report: an unknown key first, since a mistyped key usually causes the others."""
    first = min(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    # Which of several kinds of options was meant (`<endpoint>`) is not part of a place in a file.
    return {**first, "loc": tuple(part for part in first["loc"] if part not in ("<endpoint>", "<local>", "<scripted>")) or first["loc"]}


def described(error: ValidationError) -> tuple[str, str]:
    """Return the location in the document (`method.name`; "" for the whole document) and the description of the first error."""
    first = first_error(error)
    return ".".join(map(str, first["loc"])), in_words(first)
