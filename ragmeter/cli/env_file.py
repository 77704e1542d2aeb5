"""Variables from `.env`, in the working directory and next to an experiment file, for commands; the environment goes first.

Values that are secrets are hidden wherever endpoints repeat them, as those of the environment are. Messages hold names only.
"""

from __future__ import annotations

import logging
import os
from io import StringIO
from pathlib import Path

from benchmarks.core.errors import UserError, refused

NAME = ".env"
_state: dict[str, bool] = {"wanted": True}
_lines: list[str] = []


def begin(off: bool) -> bool:
    """Read the `.env` file of the working directory unless `--no-env` is given; return the argument."""
    _state["wanted"] = not off
    _lines.clear()
    read(Path())
    return off


def read(folder: Path) -> None:
    """Set variables from a folder's `.env` file that the environment lacks; `lines` reports which.

    Raises:
        UserError: The file cannot be read.
    """
    file = folder / NAME
    if not _state["wanted"] or not file.is_file():
        return
    try:
        from dotenv import dotenv_values
        from dotenv.parser import parse_stream
    except ImportError:
        _lines.append(f"{file} was not read: pip install python-dotenv, or --no-env")
        return
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("this file is not UTF-8 text", code="not-utf8", where=str(file), try_this="save it as UTF-8, or --no-env") from None
    except OSError as error:
        raise refused(error, str(file), what="this file cannot be read", try_this="make it readable, or --no-env") from None
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            _lines.append(f"{file}, line {binding.original.line}: ignored, as it is not NAME=VALUE")
    logging.getLogger("dotenv.main").setLevel(logging.ERROR)  # it warns of these lines without the file's name
    values = dotenv_values(stream=StringIO(text))
    names = [name for name, value in values.items() if value is not None and name not in os.environ]
    if not names:
        return
    from methods.models import secrets
    from results.store.redaction import variable_is_secret

    for name in names:
        value = str(values[name])
        os.environ[name] = value
        if variable_is_secret(name, value):
            secrets.use(value)
    _lines.append(f"{file}: read {', '.join(names)}")


def lines() -> list[str]:
    """Report which variables were read since the last call, one line per file."""
    new, _lines[:] = list(_lines), []
    return new
