"""Questions by a chat model: our own prompt, its replies read, and asked again where they cannot be used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from benchmarks.fingerprint import fingerprint
from methods.gpr.masked import ACCEPTED, DROPPED, RETRIED, MaskedTriple, fault, unaskable
from methods.knowledge.prompts import Prompt, read_prompt
from methods.models.chat import ChatConfig, ChatModel
from methods.models.replies import Reply
from methods.models.rewriting_prompt import refuses, said

TRIES = 3
"""The first try, and two more with other seeds."""
PLACEHOLDERS = frozenset({"triple", "side", "answer"})
_LEAD = re.compile(r"^(?:[-*•>#\s]+|\(?\d{1,3}[.):]\s+|(?:\*\*)?question(?:\s*\d+)?\s*:(?:\*\*)?\s*)+", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»`*_"


class QuestionsChat(ChatConfig):
    """The model that writes questions: short replies, with some variety so that a second try differs."""

    max_tokens: int = Field(96, ge=1, description="longest reply")
    temperature: float = Field(0.7, ge=0, description="above 0, so that another seed gives another question")


class LLMQuestions:
    """Asks a model for one question a triple; what cannot be used is asked for again, at most twice.

    Args:
        model: The model; with a cache of replies, a second run makes no call.
        prompt: A template file of one's own.

    Raises:
        UserError: The template cannot be used.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = load_prompt(prompt)
        self.counts: Counter[str] = Counter()
        also = fingerprint(model.config.model_dump(mode="json"), self._prompt.hash, TRIES)
        self.name = f"llm-{model.config.model}({also[:8]})"

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """A question for each, or None.

        Raises:
            Broke: No further call could succeed: wrong key, unknown model, or nothing answers at all.
        """
        found: list[str | None] = [None] * len(batch)
        reasons = {place: why for place, one in enumerate(batch) if (why := unaskable(one)) is not None}
        waiting = [place for place in range(len(batch)) if place not in reasons]
        for number in range(TRIES):
            if not waiting:
                break
            self.counts[RETRIED] += len(waiting) if number else 0
            asked = [self._messages(batch[place]) for place in waiting]
            replies = self._model.complete(asked, repetition=number)
            for place, reply in zip(waiting, replies, strict=True):
                found[place], reason = read(reply, batch[place])
                if reason is None:
                    reasons.pop(place, None)
                else:
                    reasons[place] = reason
            waiting = [place for place in waiting if place in reasons]
        self.counts.update(DROPPED + reason for reason in reasons.values())
        self.counts[ACCEPTED] += len(batch) - len(reasons)
        return found

    def _messages(self, masked: MaskedTriple) -> list[dict[str, str]]:
        return self._prompt.messages(triple=str(masked), side=masked.side, answer=masked.hidden)


def read(reply: Reply, masked: MaskedTriple) -> tuple[str | None, str | None]:
    """The question of a reply, or why it holds none."""
    if reply.failed is not None:
        return None, "no reply"
    if refuses(reply.text):
        return None, "refusal"
    question = parse(reply.text)
    if not question:
        return None, "empty reply"
    reason = fault(question, masked)
    return (question, None) if reason is None else (None, reason)


def parse(reply: str) -> str:
    """The first line of a reply as a question, without quotation marks, bullets, numbers and a leading "Question:"."""
    for line in said(reply).splitlines():
        text = _bare(line)
        if words_in(text):
            return text if text.endswith("?") else f"{text.rstrip('.!:; ')}?"
    return ""


def words_in(text: str) -> bool:
    """Whether a line says anything."""
    return any(character.isalnum() for character in text)


def _bare(line: str) -> str:
    text, before = line.strip(), None
    while text != before:
        before = text
        text = _LEAD.sub("", text).strip()
        if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
            text = text[1:-1].strip()
    return " ".join(text.split())


def load_prompt(path: str | None = None) -> Prompt:
    """The template that ships, or one's own: two parts with a line `---` between them (`knowledge.prompts`).

    Raises:
        UserError: The file cannot be read, or does not hold exactly `$triple`, `$side` and `$answer`.
    """
    return read_prompt("methods.gpr", "questions", PLACEHOLDERS, path)
