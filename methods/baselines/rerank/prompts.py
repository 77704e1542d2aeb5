"""What a model is shown: a conversation from a template, its passages shortened evenly until all fit.

A template is a text file in parts with a line `---` between them. The first line of a part says whose turn it is
(`system`, `user`, `assistant`), and `each` behind it that the part comes once for every passage; turns of one speaker
after each other are one message. Placeholders are those of `string.Template`: `$query`, `$count`, and in parts for each
passage `$label` and `$passage`. What is put in is never searched for placeholders again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from string import Template

from benchmarks.core.errors import UserError
from methods.models import template_text
from methods.models.endpoint import Counter
from methods.readers.prompts import longest_prefix

ROLES = {"system", "user", "assistant"}
LEAST = 8
"""Tokens of a passage that a model must have room for, twice."""
_REFERENCE = re.compile(r"\[(\d+)\]")
Conversation = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a template."""

    role: str
    each: bool
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its parts."""

    parts: tuple[Part, ...]

    def messages(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Conversation:
        """The conversation about some passages."""
        messages: Conversation = []
        shown = [{"label": label, "passage": text} for label, text in zip(labels, passages, strict=False)]
        for each, parts in groupby(self.parts, key=lambda part: part.each):
            block = list(parts)
            for fields in shown if each else [{}]:
                for part in block:
                    text = Template(part.text).substitute(query=query, count=len(passages), **fields)
                    if messages and messages[-1]["role"] == part.role:
                        messages[-1]["content"] += f"\n{text}"
                    else:
                        messages.append({"role": part.role, "content": text})
        return [{"role": message["role"], "content": message["content"].strip()} for message in messages]


def load_prompt(name: str, path: str | None = None) -> Prompt:
    """A template: the one that ships, or one's own file.

    Raises:
        UserError: It cannot be read, a part does not say whose turn it is, or a placeholder is unknown or missing.
    """
    where = path or f"{name}.txt"
    parts = []
    for text in template_text(__package__, name, path).split("\n---\n"):
        head, _, body = text.partition("\n")
        role, *more = head.split()
        if role not in ROLES or more not in ([], ["each"]):
            raise UserError(
                f"a part of the prompt template begins with {head!r}", where=where, try_this="system, user or assistant; each behind it"
            )
        each = bool(more)
        known = {"query", "count", *({"label", "passage"} if each else ())}
        template = Template(body)
        unknown = set(template.get_identifiers()) - known if template.is_valid() else {"$"}
        if unknown:
            raise UserError(
                f"the prompt template holds the unknown placeholder {min(unknown)!r}", where=where, try_this="$$ for a dollar sign"
            )
        parts.append(Part(role, each, body))
    filled = "\n".join(part.text for part in parts)
    for wanted in ("query", "passage"):
        if wanted not in Template(filled).get_identifiers():
            raise UserError(f"the prompt template lacks ${wanted}", where=where, try_this="put it in: the model would not see it")
    return Prompt(tuple(parts))


@dataclass(frozen=True)
class Writer:
    """Writes conversations that fit.

    Attributes:
        prompt: The template.
        counter: Counts tokens as the model does, or about so.
        room: Longest prompt in tokens; None: unknown.
        query_tokens, passage_tokens: What goes beyond is cut off first; None: nothing.
        passage_words: The same in words.
        plain_references: Whether `[3]` in a text is written `(3)`, so that it is no passage's number.
        start: What the reply of weights of this machine is made to begin with.
    """

    prompt: Prompt
    counter: Counter
    room: int | None = None
    query_tokens: int | None = None
    passage_tokens: int | None = None
    passage_words: int | None = None
    plain_references: bool = False
    start: str = ""

    def __call__(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Conversation | None:
        """The conversation; None where it does not fit even without the passages' words."""
        query = self._first(self._plain(query), self.query_tokens)
        texts = [self._first(self._plain(text, self.passage_words), self.passage_tokens) for text in passages]
        messages = self._messages(query, texts, labels)
        if self.room is None or self.counter.count(messages) <= self.room:
            return messages
        spans = [self.counter.spans(text) for text in texts]

        def shortened(most: int) -> Conversation:
            short = [text[: own[most - 1][1]] if most < len(own) else text for text, own in zip(texts, spans, strict=True)]
            return self._messages(query, short if most else [""] * len(texts), labels)

        room = self.room
        most = longest_prefix(max(map(len, spans), default=0), lambda tokens: self.counter.count(shortened(tokens)) <= room)
        return shortened(most) if most else None

    def require_room(self, labels: Sequence[str]) -> None:
        """Check that two passages of a few words fit.

        Raises:
            UserError: They do not.
        """
        if self.room is not None and self.counter.count(self._messages("", ["a " * LEAST] * 2, labels)) > self.room:
            raise UserError(
                f"the model has room for a prompt of {self.room:,} tokens, too few for two passages",
                where="llm",
                try_this="a smaller llm.max_tokens, or a model that takes longer prompts",
            )

    def _messages(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Conversation:
        messages = self.prompt.messages(query, passages, labels)
        return [*messages, {"role": "assistant", "content": self.start}] if self.start else messages

    def _plain(self, text: str, words: int | None = None) -> str:
        flat = " ".join(text.split()[:words])
        return _REFERENCE.sub(r"(\1)", flat) if self.plain_references else flat

    def _first(self, text: str, tokens: int | None) -> str:
        if tokens is None or len(text) <= tokens:  # no token is shorter than a character
            return text
        spans = self.counter.spans(text)
        return text if len(spans) <= tokens else text[: spans[tokens - 1][1]]
