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

import math
import string
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import FAILED, Indexed, Prediction, Services, Usage, reason
from methods.apps.calls import Caller, CallingConfig, FunctionConfig, TimedOut, resolve, turns_for
from methods.apps.reply import TEXTS, BadReply, answer_of, bounded, shown
from methods.apps.stated import completion_with, is_error
from methods.models.reply import read
from methods.models.thoughts import INVISIBLE
from methods.record import RECORD, Malformed, Shown, read_record
from methods.registry import register
from methods.spending import charged
from methods.work import Lengths, Needs, Work, unknown

RETURNED = ("answer", *RECORD, "usage")
"""Keys that a returned object may have."""


def _work(config: FunctionConfig, lengths: Lengths) -> Work:
    return unknown(f"what {config.call} takes")


@register(
    "function",
    kind="method",
    summary="your Python function: question -> answer, or (answer, contexts)",
    version=3,
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
        self._answer = Caller(answer, config, ("turns", "id"))
        self.in_flight = config.concurrency

    def index(self, corpus: Corpus) -> Indexed:
        """Do nothing, because the function has its own documents."""
        return Indexed()

    async def answer_one(self, query: Query) -> Prediction:
        """Call the function with a question, and convert its result to a prediction.

        Raises:
            UserError: The question has earlier turns, and the function takes none.
            TypeError: The result has an unsupported type.
        """
        offered = {"turns": turns_for(query, self._answer), "id": query.id}
        async with charged(0.0, self._answer.name) as charge:
            try:
                returned = await self._answer(query.text, **{name: offered[name] for name in self._answer.accepts})
            except TimedOut as error:
                return Prediction(query.id, "", notes={FAILED: str(error)})
            prediction = _prediction(query.id, returned)
            charge.usd = prediction.usage.cost_usd
            return prediction


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
        raise TypeError(
            f"the function returned {kind} as its answer: return a text, (text, contexts) or {{'answer': …, 'contexts': …}}; "
            "a function that only retrieves is a retriever (id: function_retriever)"
        )
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
                failed += " beside contexts: a function that only retrieves is a retriever (id: function_retriever)"
            return Prediction(identifier, "", notes={FAILED: reason(failed)}, **fields)
        whole = answer_of(returned, "answer")
    except (Malformed, BadReply) as error:
        raise TypeError(f"the function returned a wrong value: {error}") from None
    content = read(completion_with(whole, ""))
    why = "it is an error" if content.failed is None and is_error(content.text) else content.failed
    if why is not None:
        return Prediction(identifier, "", notes={FAILED: reason(f"the function returned no answer: {why}")}, raw=whole, **fields)
    return Prediction(identifier, content.text, raw=whole if whole != content.text else "", **fields)


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
