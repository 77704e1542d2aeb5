"""Answer ragas' prompts as the scripted LLM: split texts into claims and judge them by the facts of worlds.

Each item of a bare answer is turned into a statement about the question. That statement follows from passages if the
item is accepted as an answer and the passages prove the question's facts. A sentence follows from a text that holds
it word for word, or that names, within two lines, both sides of each fact that the sentence tells. An item of a list
follows from a list that has it, and from prose that names it, under any of its names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.text import is_abstention, normalize, sentences
from ragmeter.scripted.prompt_patterns import Request, Truth, handler

TAKE_APART_ANSWER = "Given a question and an answer, analyze the complexity of each sentence in the answer."
TAKE_APART_TEXT = "Decompose and break down each of the input sentences into one or more standalone statements."
JUDGE = "Your task is to judge the faithfulness of a series of statements based on a given context."
"""First words of ragas' prompts."""

_INPUT = re.compile(r".*\nNow perform the same with the following input\ninput: (?P<input>\{.*\})\nOutput: ", re.DOTALL)
_STATEMENT = 'The answer to "{question}" is "{answer}".'
_STATED = re.compile(r'The answer to "(?P<question>.*)" is "(?P<answer>.*)"\.', re.DOTALL)
_BETWEEN_ITEMS = re.compile(r"\s*\n\s*|, ")


@handler
def take_answer_apart(truth: Truth, request: Request) -> str | None:
    """Reply to ragas' prompt for the statements of an answer to a question."""
    value = _supplied(TAKE_APART_ANSWER, request)
    if value is None:
        return None
    question, answer = str(value["question"]), str(value["answer"])
    results = [part if _is_prose(answer) else _STATEMENT.format(question=question, answer=part) for part in _split_claims(answer)]
    return json.dumps({"statements": results}, ensure_ascii=False)


@handler
def take_text_apart(truth: Truth, request: Request) -> str | None:
    """Reply to ragas' prompt for the claims of a text."""
    value = _supplied(TAKE_APART_TEXT, request)
    return None if value is None else json.dumps({"claims": _split_claims(str(value["response"]))}, ensure_ascii=False)


@handler
def judge_claims(truth: Truth, request: Request) -> str | None:
    """Reply to ragas' prompt for verdicts on claims."""
    value = _supplied(JUDGE, request)
    if value is None:
        return None
    judged = [
        {"statement": claim, "reason": "the context says so" if follows else "the context does not say so", "verdict": int(follows)}
        for claim in map(str, value["statements"])
        for follows in [_follows(truth, claim, str(value["context"]))]
    ]
    return json.dumps({"statements": judged}, ensure_ascii=False)


def _supplied(instruction: str, request: Request) -> Mapping[str, Any] | None:
    """Parse the values in a prompt of ragas; None for another prompt."""
    if not request.prompt.startswith(instruction):
        return None
    match = _INPUT.match(request.prompt)
    return json.loads(match["input"]) if match else None


def _is_prose(text: str) -> bool:
    return text.rstrip().endswith((".", "!", "?"))


def _split_claims(text: str) -> list[str]:
    """Return the sentences of prose or the items of a list; nothing for a refusal to answer."""
    if is_abstention(text):
        return []
    return sentences(text) if _is_prose(text) else [item for item in _BETWEEN_ITEMS.split(text.strip()) if item]


def _follows(truth: Truth, claim: str, context: str) -> bool:
    match = _STATED.fullmatch(claim)
    if match:
        question = truth.question(match["question"])
        accepted = question is not None and normalize(match["answer"]) in map(normalize, question.golds)
        return question is not None and accepted and truth.proven_by(question, _stretches(context))
    if _is_prose(claim):
        return normalize(claim) in normalize(context) or _tells(truth, claim, context)
    names = {normalize(name) for name in _names_of(truth, claim)}
    if _is_prose(context):
        return any(re.search(rf"\b{re.escape(name)}\b", normalize(context)) for name in names if name)
    return any(normalize(item) in names for item in _split_claims(context))


def _stretches(context: str) -> list[str]:
    """Return every two consecutive lines, such as a passage's title and its text."""
    lines = context.split("\n")
    return ["\n".join(lines[start : start + 2]) for start in range(max(1, len(lines) - 1))]


def _tells(truth: Truth, sentence: str, context: str) -> bool:
    """Return whether a sentence states at least one fact of a world, and the context states each of those facts."""
    folded = sentence.casefold()
    stretches = [stretch.casefold() for stretch in _stretches(context)]
    named_facts = [(head, tails) for head, tails in truth.names_by_head if any(name in folded for name in head)]
    sides_by_fact = [(head, tail) for head, tails in named_facts for tail in tails if any(name in folded for name in tail)]
    return bool(sides_by_fact) and all(
        any(all(any(name in stretch for name in side) for side in sides) for stretch in stretches) for sides in sides_by_fact
    )


def _names_of(truth: Truth, item: str) -> set[str]:
    """Return the names that any question accepts for the same answer."""
    wanted, result = normalize(item), {item}
    for question in truth.questions.values():
        for answer in question.answers:
            group = (answer, *question.aliases.get(answer, ()))
            if any(normalize(name) == wanted for name in group):
                result.update(group)
    return result
