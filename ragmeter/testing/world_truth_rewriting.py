"""How the world-truth LLM answers the rewriter's prompts: by the rules for testing, with every name and number kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from benchmarks.draws import Draws
from benchmarks.styles.rewriter import STYLES, RuleRewriter
from benchmarks.text import sentences
from methods.models.openai_server import ChatRequest
from methods.models.rewriting_prompt import load_prompt
from ragmeter.testing.prompt_patterns import filled


def rewrite_passage(truth: Any, request: ChatRequest) -> str | None:
    """The rewriter's prompts that ship, as text or as JSON, whole or sentence by sentence."""
    for style in STYLES:
        found = filled(load_prompt(style), request)
        if found is not None:
            return _reply(found["text"], found["form"], found["again"], style)
    return None


REWRITING: tuple[Callable[[Any, ChatRequest], str | None], ...] = (rewrite_passage,)


def _reply(text: str, form: str, again: str, style: str) -> str:
    by_lines = "each sentence retold" in form
    told = _told(text.split("\n") if by_lines else sentences(text), again, style)
    if "JSON" not in form:
        return "\n".join(told) if by_lines else " ".join(told)
    value = {"sentences": told} if by_lines else {"text": " ".join(told)}
    return json.dumps(value, ensure_ascii=False)


def _told(plain: list[str], again: str, style: str) -> list[str]:
    """Sentences in a style, told otherwise at another attempt; the first one always shows the style."""
    draws = Draws("world-truth rewriting", style, again, *plain)
    first, rest = _rewriters()
    return [(rest if number else first).sentence(sentence.strip(), style, draws) for number, sentence in enumerate(plain)]


@lru_cache(maxsize=1)
def _rewriters() -> tuple[RuleRewriter, RuleRewriter]:
    return RuleRewriter("test", opener=1.0, closer=0.3), RuleRewriter("test", opener=0.3, closer=0.3)
