"""Handlers of the scripted LLM: how a prompt is recognized by its template, and what all handlers may know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Template
from typing import Any, Protocol

from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.worlds.world import World
from methods.models.endpoint import Messages
from methods.prompts import Prompt, Shipped

UNKNOWN = "unknown"
"""Reply for an unknown answer."""
Shown = Mapping[str, str]
"""Values of a prompt's placeholders."""


@dataclass(frozen=True, slots=True)
class Request:
    """Conversation that the scripted model must reply to."""

    messages: Messages

    @property
    def prompt(self) -> str:
        """Return the last message of the conversation."""
        return self.messages[-1]["content"] if self.messages else ""


class Truth(Protocol):
    """Interface of the oracle that handlers use; see `WorldTruth`."""

    @property
    def benchmarks(self) -> tuple[Benchmark, ...]: ...
    @property
    def questions(self) -> Mapping[str, Question]: ...
    @property
    def worlds(self) -> Mapping[int, World]: ...
    @property
    def names_by_head(self) -> list[tuple[list[str], list[list[str]]]]: ...
    @property
    def shelf(self) -> Any: ...

    def __hash__(self) -> int: ...
    def question(self, text: str) -> Question | None: ...
    def answer_to(self, text: str) -> str | None: ...
    def proven_by(self, question: Question, passages: Sequence[str]) -> bool: ...


Handler = Callable[[Any, Request], str | None]
HANDLERS: list[Handler] = []
"""All handlers in the order of their use."""


def handler(reply: Handler) -> Handler:
    """Register a handler, a function of oracle and request that returns a reply, or None if it does not know the prompt."""
    HANDLERS.append(reply)
    return reply


def answers(*templates: Shipped | Prompt) -> Callable[[Callable[[Any, Shown], str]], Callable[[Any, Shown], str]]:
    """Decorate a function that replies to prompts made from given templates; it receives the oracle and the templates' values."""

    def register(reply: Callable[[Any, Shown], str]) -> Callable[[Any, Shown], str]:
        for template in templates:

            def handle(truth: Any, request: Request, template: Shipped | Prompt = template) -> str | None:
                shown = filled(template, request)
                return None if shown is None else reply(truth, shown)

            handler(handle)
        return reply

    return register


@lru_cache(maxsize=128)
def template_pattern(template: str) -> re.Pattern[str]:
    """Build a regular expression that matches filled templates (`string.Template`), with placeholders as named groups.

    A placeholder that occurs twice must have the same value.
    """
    parts, last, seen = [], 0, set()
    for match in Template.pattern.finditer(template):
        parts.append(re.escape(template[last : match.start()]))
        name = match["named"] or match["braced"]
        if name is None:
            parts.append(re.escape("$"))
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(name)
            parts.append(f"(?P<{name}>.*?)")
        last = match.end()
    parts.append(re.escape(template[last:]))
    return re.compile("".join(parts), re.DOTALL)


def filled(template: Shipped | Prompt, request: Request) -> dict[str, str] | None:
    """Extract the values of a template's placeholders from a request; None if its prompt was not made from the template."""
    prompt = template.load() if isinstance(template, Shipped) else template
    system = next((m["content"] for m in request.messages if m["role"] == "system"), "")
    if prompt.system and not template_pattern(prompt.system).fullmatch(system):
        return None
    match = template_pattern(prompt.user).fullmatch(request.prompt)
    return match.groupdict() if match else None


def flat(text: str) -> str:
    """Collapse a text to one line."""
    return " ".join(text.split())


def names_any(text: str, names: Sequence[str]) -> bool:
    """Return whether a lower-cased text contains one of the names as a word."""
    return any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text) for name in names)


def steps_of(question: Question) -> list[tuple[str, str]]:
    """Return the steps of a question with their answers; `#n` in a step is replaced by the answer of step n."""
    steps: list[tuple[str, str]] = []
    for step in question.metadata.get("steps", ()):
        text = re.sub(r"#(\d+)", lambda match: steps[int(match[1]) - 1][1], step["question"])
        steps.append((text, step["answer"]))
    return steps


def numbered_passages(text: str) -> list[str]:
    """Split a prompt's numbered list into passages."""
    return re.split(r"\n\n(?=\[\d+\] )", text)
