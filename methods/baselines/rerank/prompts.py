"""What a reranker's model is shown: a conversation about a query and passages, which are shortened evenly until all fit.

Templates (`methods/prompts.py`) have `$query`, `$count`, and in the parts that are repeated `$label` and `$passage`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.core.errors import UserError
from methods.models.endpoint import Counter
from methods.prompts import Messages, Prompt, shipped
from methods.readers.prompts import longest_prefix

PROMPTS = shipped(
    __package__,
    *("rankgpt", "rankzephyr", "reasonrank", "dro", "setwise", "rank_r1", "rank_r1_direct", "ddr_refiner"),
    optional=("count", "label"),
    each=("label", "passage"),
)
LEAST = 8
"""Tokens of a passage that a model must have room for, twice."""
_REFERENCE = re.compile(r"\[(\d+)\]")


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

    def __call__(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Messages | None:
        """The conversation; None where it does not fit even without the passages' words."""
        query = self._first(self._plain(query), self.query_tokens)
        texts = [self._first(self._plain(text, self.passage_words), self.passage_tokens) for text in passages]
        messages = self._messages(query, texts, labels)
        if self.room is None or self.counter.count(messages) <= self.room:
            return messages
        spans = [self.counter.spans(text) for text in texts]

        def shortened(most: int) -> Messages:
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
                code="prompt-room-too-small",
                where="llm",
                try_this="a smaller llm.max_tokens, or a model that takes longer prompts",
            )

    def _messages(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Messages:
        shown = [{"label": label, "passage": text} for label, text in zip(labels, passages, strict=False)]
        filled = self.prompt.messages(shown, query=query, count=len(passages))
        messages = [{**message, "content": message["content"].strip()} for message in filled]
        return [*messages, {"role": "assistant", "content": self.start}] if self.start else messages

    def _plain(self, text: str, words: int | None = None) -> str:
        flat = " ".join(text.split()[:words])
        return _REFERENCE.sub(r"(\1)", flat) if self.plain_references else flat

    def _first(self, text: str, tokens: int | None) -> str:
        if tokens is None or len(text) <= tokens:  # no token is shorter than a character
            return text
        spans = self.counter.spans(text)
        return text if len(spans) <= tokens else text[: spans[tokens - 1][1]]
