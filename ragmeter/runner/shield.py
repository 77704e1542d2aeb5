"""Isolate a run from errors of its progress display."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from rich.text import Text

from methods.api import raised
from ragmeter.show.console import err

T = TypeVar("T")


def shielded(display: T) -> T:
    """Wrap a progress display so that its first error is printed and later calls are ignored, instead of stopping the run."""
    return cast(T, _Shield(display))


class _Shield:
    def __init__(self, display: object) -> None:
        self._display = display
        self._broken = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        def shown(*arguments: Any, **named: Any) -> None:
            if self._broken:
                return
            try:
                getattr(self._display, name)(*arguments, **named)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._broken = True
                with suppress(Exception):
                    err.print(Text(f"progress is not shown any more: {raised(error)}", style="yellow"), soft_wrap=True)

        return shown
