"""Name a user's Python function in an experiment, and call it: on the event loop if it is `async`, else in a thread."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from benchmarks.core.code import Code, code_of
from benchmarks.core.errors import UserError
from benchmarks.core.plugins import load_file
from benchmarks.schema import Query
from methods.registry import MethodConfig


def resolve(call: str) -> Callable[..., Any]:
    """Import the function that `module:name` or `file.py:name` names.

    Raises:
        ValueError: The module or function does not exist, or the import fails; the message gives the cause.
    """
    place, _, name = call.partition(":")
    if not place or not name:
        raise ValueError(f"{call!r} is not MODULE:FUNCTION (acme:answer)")
    try:
        target: Any = load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except UserError as error:
        raise ValueError(f"{error.what} ({error.where})") from None
    except ModuleNotFoundError as error:
        if error.name == place.partition(".")[0]:
            raise ValueError(f"there is no module {place!r} (plugins: [{place}.py] loads a file next to the experiment)") from None
        raise ValueError(f"{place} cannot be imported: {error}") from None
    except Exception as error:
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from None
    for part in name.split("."):
        if not hasattr(target, part):
            known = [item for item, value in vars(target).items() if inspect.isfunction(value) and not item.startswith("_")]
            raise ValueError(f"{place} has no {part!r}; it has {', '.join(known[:8]) or 'no function'}")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(f"{call!r} is not a function")
    return target


class CallingConfig(MethodConfig):
    """Options shared by all function methods."""

    concurrency: int = Field(
        4, ge=1, description="maximum concurrent calls; a function that is not async runs in this many threads", exclude=True
    )
    timeout_s: float = Field(300.0, gt=0, description="time limit; a question that takes longer fails", exclude=True)


class FunctionConfig(CallingConfig):
    """Options of the methods that name a function."""

    call: str = Field(description="MODULE:FUNCTION, such as acme:answer with plugins: [acme.py]")

    @field_validator("call")
    @classmethod
    def _exists(cls, value: str) -> str:
        resolve(value)
        return value

    @property
    def code(self) -> Code:
        """Return the code of the function's module and of modules next to it that it imports, for fingerprints."""
        return code_of(resolve(self.call))


class TimedOut(TimeoutError):
    """Raised if a call takes longer than `timeout_s`."""


class Caller:
    """A user's function with the options for calling it.

    Args:
        function: The function.
        config: Options.
        offered: Names of the keyword arguments that it receives if it has such parameters.

    Attributes:
        name: The function's name, for messages.
        accepts: The offered names that it has parameters for.
    """

    def __init__(self, function: Callable[..., Any], config: CallingConfig, offered: Sequence[str]) -> None:
        self._function, self._config = function, config
        self.name: str = getattr(function, "__qualname__", repr(function))
        parameters = inspect.signature(function).parameters.values()
        every = any(item.kind is item.VAR_KEYWORD for item in parameters)
        self.accepts = {name for name in offered if every or any(item.name == name for item in parameters)}
        called = function if inspect.isroutine(function) else type(function).__call__
        blocks = not (inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called))
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="function") if blocks else None

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function and return its result; what a generator yields is returned as a list.

        Raises:
            TimedOut: It took longer than `timeout_s`.
        """
        try:
            async with asyncio.timeout(self._config.timeout_s) as limit:
                return await self._called(arguments, named)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"timed out after {self._config.timeout_s:g} s (timeout_s)") from None

    async def _called(self, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        if self._threads is None:
            returned = self._function(*arguments, **named)
        else:

            def call() -> Any:
                try:
                    result = self._function(*arguments, **named)
                    return list(result) if inspect.isgenerator(result) else result
                except StopIteration as error:  # the loop's futures do not accept it, so the question would wait forever
                    raise RuntimeError("the function raised StopIteration (a next() without a default?)") from error

            returned = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        if inspect.isasyncgen(returned):
            return [item async for item in returned]
        return await returned if inspect.isawaitable(returned) else returned


def turns_for(query: Query, caller: Caller) -> list[dict[str, str]]:
    """Return a question's earlier turns as messages.

    Raises:
        UserError: It has some, and the function does not accept them.
    """
    if query.turns and "turns" not in caller.accepts:
        raise UserError(
            "a question has earlier turns, but the function does not accept turns",
            code="no-place-for-turns",
            where=caller.name,
            try_this="add a parameter `turns`, a list of {role, content}",
        )
    return [{"role": turn.role, "content": turn.text} for turn in query.turns]
