"""Build a reranker's conversation from a query and passages, truncated evenly until all fit.

Templates (`methods/prompts.py`) have `$query`, `$count`, and in repeated parts `$label` and `$passage`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.schema import Passage
from methods.models.counting import Counter
from methods.prompts import Messages, Prompt, shipped
from methods.readers.prompts import longest_prefix

PROMPTS = shipped(
    __package__,
    *("rankgpt", "rankzephyr", "reasonrank", "dro", "setwise", "rank_r1", "rank_r1_direct", "ddr_refiner"),
    released=("rankzephyr", "reasonrank", "rank_r1", "rank_r1_direct", "ddr_refiner"),
    optional=("count", "label"),
    each=("label", "passage"),
    follows=("passages",),
)
PROMPTS["rank_r1_v02"] = replace(PROMPTS["rank_r1"], published="rank_r1_v02")
LEAST = 8
"""Minimum tokens per passage; a model must have room for two such passages."""
_REFERENCE = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True)
class Writer:
    """Builder of conversations that fit the model.

    Attributes:
        prompt: The template.
        counter: Counter of tokens, exact or approximate.
        room: Maximum prompt length in tokens; None if unknown.
        context: Maximum tokens of prompt and reply together, if the reply is only an order of the labels; None: only `room` applies.
        query_tokens, passage_tokens: Maximum tokens of query and passage, applied first; None for no limit.
        passage_words: Maximum words of a passage, applied first; None for no limit.
        plain_references: Whether to rewrite `[3]` in texts as `(3)`, so that it is not confused with a passage number.
        start: Forced beginning of a local model's reply.
    """

    prompt: Prompt
    counter: Counter
    room: int | None = None
    context: int | None = None
    query_tokens: int | None = None
    passage_tokens: int | None = None
    passage_words: int | None = None
    plain_references: bool = False
    start: str = ""

    @property
    def _titled(self) -> bool:
        return self.prompt.options.passages in ("titled", "labeled")

    @property
    def _keeps(self) -> bool:
        return self.prompt.options.passages in ("kept", "decoded")

    def shown(self, passage: Passage) -> str:
        """Format a passage's title and text as one text."""
        if self.prompt.options.passages == "kept":
            return f"{passage.title} {passage.text}" if passage.title else passage.text
        if not self._titled:
            return passage.full_text
        text = (f"Title: {passage.title} Content: {passage.text}" if passage.title else passage.text).strip()
        return text if self.prompt.options.passages == "labeled" else plain_characters(text)

    def __call__(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Messages | None:
        """Build the conversation; None if it does not fit even with empty passages.

        Args:
            query: Text of the query.
            passages: Texts from `shown`.
            labels: Labels of the passages.
        """
        query = self._first(self._query(query) if self._titled else self._plain(query), self.query_tokens)
        words = self.passage_words
        special = self.prompt.options.passages != "decoded"
        texts = [self._first(self._plain(text, words), self.passage_tokens, special) for text in passages]
        messages, room = self._messages(query, texts, labels), self._room(labels[: len(texts)])
        if room is None or self.counter.count(messages) <= room:
            return messages
        if self._titled:
            return self._with_fewer_words(query, texts, labels, room)
        spans = [self.counter.spans(text) for text in texts]

        def shortened(most: int) -> Messages:
            short = [text[: own[most - 1][1]] if most < len(own) else text for text, own in zip(texts, spans, strict=True)]
            return self._messages(query, short if most else [""] * len(texts), labels)

        most = longest_prefix(max(map(len, spans), default=0), lambda tokens: self.counter.count(shortened(tokens)) <= room)
        return shortened(most) if most else None

    def require_room(self, labels: Sequence[str]) -> None:
        """Check that a prompt with two short passages fits.

        Raises:
            UserError: They do not fit.
        """
        room = self._room(labels)
        if room is not None and self.counter.count(self._messages("", ["a " * LEAST] * 2, labels)) > room:
            raise UserError(
                f"the model has room for a prompt of {room:,} tokens, too few for two passages",
                code="prompt-room-too-small",
                where="llm",
                try_this="use a smaller llm.max_tokens, or a model with a longer context",
            )

    def _messages(self, query: str, passages: Sequence[str], labels: Sequence[str]) -> Messages:
        shown = [{"label": label, "passage": text} for label, text in zip(labels, passages, strict=False)]
        filled = self.prompt.messages(shown, query=query, count=len(passages))
        kept = self.prompt.options.whitespace == "keep"
        messages = [message if kept else {**message, "content": message["content"].strip()} for message in filled]
        return [*messages, {"role": "assistant", "content": self.start}] if self.start else messages

    def _with_fewer_words(self, query: str, texts: Sequence[str], labels: Sequence[str], room: int) -> Messages | None:
        """Build the conversation with as many words of each passage as fit, found as in rank_llm."""
        split = [text.split(" ") for text in texts]
        words = self.passage_words or max(map(len, split))
        messages = self._messages(query, texts, labels)
        while words > 0 and (excess := self.counter.count(messages) - room) > 0:
            words -= max(1, excess // (4 * len(texts)))
            messages = self._messages(query, [" ".join(own[: max(0, words)]) for own in split], labels)
        return messages if words > 0 else None

    def _room(self, labels: Sequence[str]) -> int | None:
        if self.context is None:
            return self.room
        room = self.context - self.counter.counts([" > ".join(f"[{label}]" for label in labels)])[0]
        return room if self.room is None else min(room, self.room)

    def _query(self, text: str) -> str:
        text = self._references(text)
        return text if self.prompt.options.passages == "labeled" else plain_characters(text, html=False)

    def _plain(self, text: str, words: int | None = None) -> str:
        if self._keeps and words is None:
            return text
        return self._references(" ".join(text.split()[:words]))

    def _references(self, text: str) -> str:
        plain = self.plain_references and self.prompt.options.passages in ("flat", "titled")
        return _REFERENCE.sub(r"(\1)", text) if plain else text

    def _first(self, text: str, tokens: int | None, special: bool = True) -> str:
        if tokens is None:
            return text
        if self._keeps:
            return self.counter.first(text, tokens, special)
        if len(text) <= tokens:  # no token is shorter than a character
            return text
        spans = self.counter.spans(text)
        return text if len(spans) <= tokens else text[: spans[tokens - 1][1]]


def plain_characters(text: str, html: bool = True) -> str:
    """Clean a text with `ftfy`, like passages in rank_llm.

    Args:
        text: The text.
        html: Whether to decode HTML entities such as `&amp;`; off for queries.

    Raises:
        MissingPackage: ftfy is not installed.
    """
    try:
        from ftfy import fix_text
    except ImportError as error:
        raise MissingPackage("ftfy", "models", "the published preparation of passages") from error
    return str(fix_text(text, unescape_html="auto" if html else False))
