"""How the scripted LLM answers the prompts of CLaRa's synthesis: from the facts of the document's sentences.

At first it leaves out a third of what could be asked, so that the coverage loop has something to find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from benchmarks.core.random import Draws
from benchmarks.text import em
from benchmarks.worlds.questions import answer_of, paraphrases
from benchmarks.worlds.text import Rendering, statements
from benchmarks.worlds.world import Fact, World
from methods.clara.rows import Pair
from methods.clara.synthesis_prompts import ABSENT, PROMPTS, read_pairs
from methods.clara.synthetic import complex_pairs, simple_pairs
from ragmeter.scripted.knowledge import shelf_of
from ragmeter.scripted.prompt_patterns import Request, filled

_MAKERS = {"simple": simple_pairs, "complex": complex_pairs}


class Knows(Protocol):
    """What of the scripted LLM is needed here."""

    @property
    def worlds(self) -> Mapping[int, World]: ...

    @property
    def rendering(self) -> Rendering: ...


def write_questions(truth: Knows, request: Request) -> str | None:
    """The prompts for simple and complex questions."""
    for kind in _MAKERS:
        if (result := filled(PROMPTS[kind].load(), request)) is not None:
            pairs = _pairs(truth, result["document"], kind)
            return _json(questions=[pair.question for pair in pairs[: -(-len(pairs) * 2 // 3)]])
    return None


def write_missing_questions(truth: Knows, request: Request) -> str | None:
    """The prompts of the coverage loop."""
    for kind in _MAKERS:
        if (result := filled(PROMPTS[f"more_{kind}"].load(), request)) is not None:
            there = {pair.question for pair in read_pairs(result["pairs"])}
            pairs = _pairs(truth, result["document"], kind)
            missing = [pair.question for pair in pairs if pair.question not in there]
            return _json(count=len(missing), questions=missing)
    return None


def answer(truth: Knows, request: Request) -> str | None:
    """The prompt for an answer."""
    result = filled(PROMPTS["answer"].load(), request)
    return None if result is None else _json(answer=_known(truth, result["document"], result["question"]) or ABSENT)


def check_answer(truth: Knows, request: Request) -> str | None:
    """The prompt that checks a pair."""
    result = filled(PROMPTS["check_answer"].load(), request)
    if result is None:
        return None
    known = _known(truth, result["document"], result["question"])
    return _json(judgment="Correct" if known is not None and em(result["answer"], [known]) else "Incorrect")


def paraphrase(truth: Knows, request: Request) -> str | None:
    """The prompt for a paraphrase: every fact in its last wording, by the full names."""
    result = filled(PROMPTS["paraphrase"].load(), request)
    if result is None:
        return None
    facts = _facts(truth, result["document"])
    return _json(paraphrase=" ".join(statements(fact)[-1] for fact in facts) or result["document"])


def check_paraphrase(truth: Knows, request: Request) -> str | None:
    """The prompt that checks a paraphrase: head and tail of every fact must be named."""
    result = filled(PROMPTS["check_paraphrase"].load(), request)
    if result is None:
        return None
    text = result["paraphrase"].casefold()
    facts = _facts(truth, result["document"])
    return _json(judgment="Yes" if all(_names(text, fact) for fact in facts) else "No")


SYNTHESIS: tuple[Callable[[Any, Request], str | None], ...] = (
    write_questions,
    write_missing_questions,
    answer,
    check_answer,
    paraphrase,
    check_paraphrase,
)


def _names(text: str, fact: Fact) -> bool:
    tail, others = answer_of(fact)
    heads = (fact.head.name, *fact.head.aliases)
    return any(name.casefold() in text for name in heads) and any(f.casefold() in text for f in (tail, *others))


def _facts(truth: Knows, document: str) -> list[Fact]:
    """What a document states, whose first line may be a title."""
    known = _FACTS.setdefault(truth, {})
    if document not in known:
        shelf = shelf_of(truth)
        known[document] = shelf.facts(document.partition("\n")[2] or document) or shelf.facts(document)
    return known[document]


_FACTS: WeakKeyDictionary[Any, dict[str, list[Fact]]] = WeakKeyDictionary()


def _pairs(truth: Knows, document: str, kind: str) -> list[Pair]:
    """Every question of a kind that it would ask of a document, the same ones every time."""
    return _MAKERS[kind](_facts(truth, document), document, Draws("world-truth synthesis", kind))


def _known(truth: Knows, document: str, question: str) -> str | None:
    for kind in _MAKERS:
        for pair in _pairs(truth, document, kind):
            if pair.question == question:
                return pair.answer
    facts = _facts(truth, document)
    return next((answer_of(fact)[0] for fact in facts if question in paraphrases(fact)), None)


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)
