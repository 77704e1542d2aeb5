"""A Python function as a method: `question -> answer`, `-> (answer, contexts)`, or `-> {"answer": …, "contexts": […]}`.

    # acme.py                                              # experiment.yaml
    async def answer(question: str):                       plugins: [acme.py]
        found = await search(question)                     methods:
        return await ask(question, found), found             - {id: function, config: {call: "acme:answer"}}

The function may be `async`. It receives the question, and the keyword arguments `turns` and `id` if it has such parameters.
Contexts are texts, objects with a text (`text`, `content` or `page_content` as key or attribute, as in LangChain, LlamaIndex
and Haystack), or `{text, id, url, score}`. The code is part of the run's identity, so changed code is run again.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import string
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, field_validator

from benchmarks.core.code import Code, code_of
from benchmarks.core.errors import UserError
from benchmarks.core.plugins import load_file
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import FAILED, Indexed, Prediction, Services, Usage, reason
from methods.apps.reply import TEXTS, BadReply, answer_of, bounded, shown
from methods.apps.stated import completion_with
from methods.models.reply import read
from methods.models.thoughts import INVISIBLE
from methods.record import RECORD, Malformed, Shown, read_record
from methods.registry import MethodConfig, register
from methods.spending import charged
from methods.work import Lengths, Needs, Work, unknown

RETURNED = ("answer", *RECORD, "usage")
"""Keys that a returned object may have."""


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
    """Options of the method `function`, with the function's name."""

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


def _work(config: FunctionConfig, lengths: Lengths) -> Work:
    return unknown(f"what {config.call} takes")


@register(
    "function",
    kind="method",
    summary="your Python function: question -> answer, or (answer, contexts)",
    version=2,
    config=FunctionConfig,
    work=_work,
    needs=lambda config: None,
)
def function(config: FunctionConfig, services: Services) -> Function:
    """Build the method from the function named in the experiment."""
    return Function(resolve(config.call), config)


function.reads_turns = True  # type: ignore[attr-defined]


F = TypeVar("F", bound=Callable[..., Any])


def register_function(identifier: str, *, summary: str, needs: Callable[[Any], Needs | None] | None = None) -> Callable[[F], F]:
    """Register a function as a method with its own id; a decorator.

    Args:
        identifier: The name in experiment files.
        summary: One line for `ragmeter list methods`.
        needs: As in `register`.
    """

    def decorate(answer: F) -> F:
        def build(config: CallingConfig, services: Services) -> Function:
            return Function(answer, config)

        build.__module__, build.__wrapped__, build.reads_turns = answer.__module__, answer, True  # type: ignore[attr-defined]
        register(identifier, kind="method", summary=summary, config=CallingConfig, needs=needs)(build)
        return answer

    return decorate


class Function:
    """Method that calls a Python function once per question.

    Args:
        answer: The function.
        config: Options.
    """

    def __init__(self, answer: Callable[..., Any], config: CallingConfig) -> None:
        self._answer, self._config = answer, config
        self.in_flight = config.concurrency
        parameters = inspect.signature(answer).parameters.values()
        every = any(item.kind is item.VAR_KEYWORD for item in parameters)
        self._named = {name for name in ("turns", "id") if every or any(item.name == name for item in parameters)}
        called = answer if inspect.isroutine(answer) else type(answer).__call__
        self._async = inspect.iscoroutinefunction(called)
        self._threads = None if self._async else ThreadPoolExecutor(config.concurrency, thread_name_prefix="function")

    def index(self, corpus: Corpus) -> Indexed:
        """Do nothing, because the function has its own documents."""
        return Indexed()

    async def answer_one(self, query: Query) -> Prediction:
        """Call the function with a question, and convert its result to a prediction.

        Raises:
            UserError: The question has earlier turns, and the function takes none.
            TypeError: The result has an unsupported type.
        """
        if query.turns and "turns" not in self._named:
            raise UserError(
                "a question has earlier turns, but the function does not accept turns",
                code="no-place-for-turns",
                where=getattr(self._answer, "__qualname__", repr(self._answer)),
                try_this="add a parameter `turns`, a list of {role, content}",
            )
        turns = [{"role": turn.role, "content": turn.text} for turn in query.turns]
        named = {name: value for name, value in (("turns", turns), ("id", query.id)) if name in self._named}
        async with charged(0.0, getattr(self._answer, "__qualname__", repr(self._answer))) as charge:
            try:
                async with asyncio.timeout(self._config.timeout_s) as limit:
                    returned = await self._called(query.text, named)
            except TimeoutError:
                if not limit.expired():
                    raise
                return Prediction(query.id, "", notes={FAILED: f"timed out after {self._config.timeout_s:g} s (timeout_s)"})
            prediction = _prediction(query.id, returned)
            charge.usd = prediction.usage.cost_usd
            return prediction

    async def _called(self, text: str, named: Mapping[str, Any]) -> Any:
        if self._threads is None:
            return await self._answer(text, **named)

        def call() -> Any:
            try:
                return self._answer(text, **named)
            except StopIteration as error:  # the loop's futures do not accept it, so the question would wait forever
                raise RuntimeError("the function raised StopIteration (a next() without a default?)") from error

        returned = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await returned if inspect.isawaitable(returned) else returned


def _prediction(identifier: str, returned: Any) -> Prediction:
    """Convert a function's result to a prediction.

    Raises:
        TypeError: The result has an unsupported type.
    """
    if isinstance(returned, tuple) and len(returned) == 2:
        returned = {"answer": returned[0], "contexts": returned[1]}
    elif not isinstance(returned, Mapping):
        returned = {"answer": returned}
    if unknown := [key for key in returned if key not in RETURNED]:
        raise TypeError(f"the function returned the key {unknown[0]!r}; known are {', '.join(RETURNED)}")
    if not isinstance(returned.get("answer"), str):
        kind = type(returned.get("answer")).__name__
        raise TypeError(f"the function returned {kind} as its answer: return a text, (text, contexts) or {{'answer': …, 'contexts': …}}")
    record = dict(returned)
    contexts = record.pop("contexts", None)
    usage = record.pop("usage", None)
    try:
        fields = read_record(record)
        if contexts is not None:
            fields["contexts"] = bounded(tuple(_shown(item) for item in _listed(contexts)))
        if usage is not None:
            fields["usage"] = _usage(usage)
        if not returned["answer"].strip(INVISIBLE + string.whitespace):
            failed = "the function returned an empty answer"
            if fields.get("contexts"):
                failed += " beside contexts: a function that only retrieves must be a retriever (docs/own-method.md#retriever)"
            return Prediction(identifier, "", notes={FAILED: reason(failed)}, **fields)
        whole = answer_of(returned, "answer")
    except (Malformed, BadReply) as error:
        raise TypeError(f"the function returned a wrong value: {error}") from None
    content = read(completion_with(whole, ""))
    notes = {} if content.failed is None else {FAILED: reason(f"the function returned no answer: {content.failed}")}
    return Prediction(identifier, content.text, notes=notes, raw=whole if whole != content.text else "", **fields)


_COUNTS = ("prompt_tokens", "completion_tokens", "memory_tokens", "model_calls", "peak_memory_bytes")


def _usage(value: Any) -> Usage:
    """Check the usage that a function returned.

    Raises:
        BadReply: It is not an object with counts and a cost.
    """
    if isinstance(value, Usage):
        usage = value
    elif isinstance(value, Mapping) and value.keys() <= {*Usage.__slots__}:
        usage = Usage(**value)
    else:
        raise BadReply(f"usage must be an object with the keys {', '.join(Usage.__slots__)}")
    counts, cost = [getattr(usage, name) for name in _COUNTS], usage.cost_usd
    if any(isinstance(count, bool) or not isinstance(count, Integral) or count < 0 for count in counts):
        raise BadReply(f"{', '.join(_COUNTS)} of usage must be whole numbers from 0 on, not {', '.join(map(repr, counts))}")
    if isinstance(cost, bool) or not isinstance(cost, Real) or not 0 <= cost < math.inf:
        raise BadReply(f"cost_usd of usage must be dollars from 0 on, not {cost!r}")
    return usage


def _listed(contexts: Any) -> Sequence[Any]:
    if isinstance(contexts, str) or not isinstance(contexts, Sequence):
        raise BadReply(f"contexts must be a list, not {type(contexts).__name__}")
    return contexts


def _shown(item: Any) -> Shown:
    """Parse a context, possibly a framework's object; LlamaIndex wraps a node with its score."""
    if isinstance(item, str | Mapping | Shown):
        return shown("contexts", item)
    inner = getattr(item, "node", item)
    text = next((value for name in TEXTS if isinstance(value := getattr(inner, name, None), str)), None)
    if text is None:
        raise BadReply(f"a context must be a text or an object with one of {', '.join(TEXTS)}, not {type(item).__name__}")
    metadata = next((value for name in ("metadata", "meta") if isinstance(value := getattr(inner, name, None), Mapping)), {})
    names = {"id": next((value for name in ("id", "node_id", "id_") if isinstance(value := getattr(inner, name, None), str)), None)}
    names["url"] = next((metadata[name] for name in ("url", "source", "file_path") if isinstance(metadata.get(name), str)), None)
    score = getattr(item, "score", None)
    named = {name: value for name, value in names.items() if value is not None}
    return shown("contexts", {"text": text, **named, "metadata": metadata, "score": score if isinstance(score, int | float) else None})
