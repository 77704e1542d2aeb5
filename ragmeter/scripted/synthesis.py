"""Answer the prompts of CLaRa's synthesis and its teacher as the scripted LLM, from the document's facts.

At first it leaves out a third of what could be asked, so that the coverage loop has something to find.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import Any

from benchmarks.core.random import Draws
from benchmarks.text import em
from benchmarks.worlds.questions import answer_of, paraphrases
from benchmarks.worlds.text import statements
from benchmarks.worlds.world import Fact
from methods.clara.prompts import ABSENT, READING, SYNTHESIS, read_pairs
from methods.clara.rows import Pair, complex_pairs, simple_pairs
from ragmeter.scripted.prompt_patterns import UNKNOWN, Shown, Truth, answers, flat, names_any

_MAKERS = {"simple": simple_pairs, "complex": complex_pairs}


def write_questions(truth: Truth, shown: Shown, kind: str) -> str:
    """Reply to the prompts for simple and complex questions about a document."""
    pairs = _pairs(truth, shown["document"], kind)
    return _json(questions=[pair.question for pair in pairs[: -(-len(pairs) * 2 // 3)]])


def write_missing_questions(truth: Truth, shown: Shown, kind: str) -> str:
    """Reply to the coverage prompts with the questions that are still missing."""
    there = {pair.question for pair in read_pairs(shown["pairs"])}
    missing = [pair.question for pair in _pairs(truth, shown["document"], kind) if pair.question not in there]
    return _json(count=len(missing), questions=missing)


for _kind in _MAKERS:
    answers(SYNTHESIS[_kind])(partial(write_questions, kind=_kind))
    answers(SYNTHESIS[f"more_{_kind}"])(partial(write_missing_questions, kind=_kind))


@answers(SYNTHESIS["answer"])
def answer(truth: Truth, shown: Shown) -> str:
    """Reply to the prompt for the answer to a generated question."""
    return _json(answer=_known(truth, shown["document"], shown["question"]) or ABSENT)


@answers(SYNTHESIS["check_answer"])
def check_answer(truth: Truth, shown: Shown) -> str:
    """Reply to the prompt that checks a question–answer pair."""
    known = _known(truth, shown["document"], shown["question"])
    return _json(judgment="Correct" if known is not None and em(shown["answer"], [known]) else "Incorrect")


@answers(READING["answer"])
def teach(truth: Truth, shown: Shown) -> str:
    """Reply to the teacher's prompt with the answer if the documents contain it."""
    reply = truth.answer_to(shown["question"])
    return reply if reply and names_any(flat(shown["background"]).casefold(), [reply]) else UNKNOWN


@answers(SYNTHESIS["paraphrase"])
def paraphrase(truth: Truth, shown: Shown) -> str:
    """Reply to the paraphrase prompt with every fact in its last wording, with full names."""
    facts = _facts(truth, shown["document"])
    return _json(paraphrase=" ".join(statements(fact)[-1] for fact in facts) or shown["document"])


@answers(SYNTHESIS["check_paraphrase"])
def check_paraphrase(truth: Truth, shown: Shown) -> str:
    """Reply to the prompt that checks a paraphrase: head and tail of every fact must be named."""
    text = shown["paraphrase"].casefold()
    facts = _facts(truth, shown["document"])
    return _json(judgment="Yes" if all(_names(text, fact) for fact in facts) else "No")


def _names(text: str, fact: Fact) -> bool:
    tail, others = answer_of(fact)
    heads = (fact.head.name, *fact.head.aliases)
    return any(name.casefold() in text for name in heads) and any(f.casefold() in text for f in (tail, *others))


@lru_cache(maxsize=256)
def _facts(truth: Truth, document: str) -> list[Fact]:
    """Return a document's facts; its first line may be a title."""
    facts: list[Fact] = truth.shelf.facts(document.partition("\n")[2] or document) or truth.shelf.facts(document)
    return facts


def _pairs(truth: Truth, document: str, kind: str) -> list[Pair]:
    """Return all questions of a kind about a document, deterministically."""
    return _MAKERS[kind](_facts(truth, document), document, Draws("world-truth synthesis", kind))


def _known(truth: Truth, document: str, question: str) -> str | None:
    for kind in _MAKERS:
        for pair in _pairs(truth, document, kind):
            if pair.question == question:
                return pair.answer
    facts = _facts(truth, document)
    return next((answer_of(fact)[0] for fact in facts if question in paraphrases(fact)), None)


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)
