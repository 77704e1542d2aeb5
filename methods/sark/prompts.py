"""Prompts for SARK's data: `answer` requests a short answer with one passage or none; `order` requests an order of passages."""

from __future__ import annotations

from collections.abc import Sequence

from methods.prompts import Messages, Prompt, Shipped

ANSWER = Shipped("methods.sark", "answer")
ORDER = Shipped("methods.sark", "order", optional=frozenset({"count", "number"}), each=frozenset({"number", "passage"}))


def asking(prompt: Prompt, question: str, passage: str | None) -> Messages:
    """Return the conversation that requests an answer, with one passage or none."""
    context = "" if passage is None else f"<Context> {' '.join(passage.split())}\n"
    return prompt.messages(question=question, context=context)


def ordering(prompt: Prompt, question: str, answer: str, passages: Sequence[str]) -> Messages:
    """Return the multi-turn conversation that requests an order of passages."""
    each = [{"number": number, "passage": " ".join(passage.split())} for number, passage in enumerate(passages, 1)]
    return prompt.messages(each, question=question, answer=answer, count=len(passages))
