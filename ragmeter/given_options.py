"""Options given as `--set KEY=VALUE`: read, and explained where they are not right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from benchmarks.errors import UserError, unknown_name
from benchmarks.wording import first_error, in_words
from judges.judging import JUDGES, Judge
from results.redaction import echoed, without_secrets

SET = "--set"


def settings(options: Sequence[str]) -> dict[str, Any]:
    """`key=value` options; values are read as YAML, so that numbers, true and null are what they look like."""
    found = {}
    for text in options:
        key, mark, value = text.partition("=")
        if not mark or not key:
            raise UserError(f"{echoed(text)} sets nothing", where=SET, try_this=f"{SET} key=value")
        try:
            found[key.strip()] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError:
            found[key.strip()] = value
    return found


def judge_of(name: str, options: Mapping[str, Any], where: str = "JUDGE", *, prefix: str = "") -> Judge:
    """A registered judge with options.

    Args:
        name: Its id.
        options: As `settings` reads them.
        where: What named it.
        prefix: What stands before each option's key on the command line.

    Raises:
        UserError: There is no such judge, or an option is not right.
    """
    try:
        return Judge.of(name, options, where=where)
    except ValidationError as error:
        raise refusal(error, name, JUDGES.get(name).config, prefix) from None


def refusal(error: ValidationError, name: str, config: type[BaseModel], prefix: str = "", *, where: str = SET) -> UserError:
    """What is wrong with the first option that is; `where` is the flag that gave the options."""
    first = first_error(error)
    option = ".".join(map(str, first["loc"])) or name
    if first["type"] == "extra_forbidden":
        return unknown_name(f"option of {name}", without_secrets(option), config.model_fields, where=where)
    if first["type"] == "missing":
        hint = f"{SET} {prefix}{option}=…" if where == SET else f"{where} '{{\"{option}\": …}}'"
        return UserError(f"{name} needs {option}", where=where, try_this=hint)
    if first["type"] == "literal_error":
        offered = re.findall("'([^']*)'", first["ctx"]["expected"])
        return unknown_name(f"value of {option}", without_secrets(str(first["input"])), offered, where=where)
    return UserError(f"option {option} of {name}: {without_secrets(in_words(first))}", where=where)
