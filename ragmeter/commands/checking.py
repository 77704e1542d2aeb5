"""`check method` and `check dataset`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.text import Text

from benchmarks.errors import UserError
from methods.registry import METHODS, Component
from ragmeter.conformance import Check, check_dataset, check_method
from ragmeter.console import emit, out
from ragmeter.given_options import refusal


def method(name: str, config: str | None, as_json: bool) -> int:
    """Check a method; returns the exit code."""
    options = options_given(config)
    try:
        component = Component.of(name, options)
    except ValidationError as error:
        raise refusal(error, name, METHODS.get(name).config, where="--config") from None
    component.preflight()
    return _report(f"method {name}", check_method(component), as_json)


def dataset(reference: str, config: str | None, as_json: bool) -> int:
    """Check a dataset; returns the exit code."""
    return _report(f"dataset {reference}", check_dataset(reference, options_given(config)), as_json)


def options_given(config: str | None, path: Path | None = None) -> dict[str, Any]:
    """The options that --config and --path give.

    Raises:
        UserError: --config is no JSON object.
    """
    given = {} if path is None else {"path": str(path)}
    if config is None:
        return given
    try:
        options = json.loads(config)
    except ValueError as error:
        raise UserError(f"this is not JSON: {error}", where="--config", try_this="""--config '{"key": "value"}'""") from None
    if not isinstance(options, dict):
        raise UserError("options are a JSON object", where="--config", try_this="""--config '{"key": "value"}'""")
    return options | given


def _report(what: str, checks: list[Check], as_json: bool) -> int:
    failed = [check for check in checks if not check.passed]

    def show() -> None:
        for check in checks:
            mark = Text("✓ ", style="green") if check.passed else Text("✗ ", style="red")
            out.print(mark + Text(check.name) + Text(f"  {check.detail}" if check.detail else "", style="red"))
        out.print(Text(f"{what}: {len(checks) - len(failed)} of {len(checks)} checks passed"))

    emit({"checked": what, "passed": not failed, "checks": [asdict(check) for check in checks]}, as_json, show)
    return 1 if failed else 0
