"""How the scripted LLM answers prompts that ask for something to search with: HyDE's and RQ-RAG's.

A passage that answers a question says what the world knows of it, fact by fact; a question is taken apart into the
steps that its gold names, each with what the earlier ones answered put in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from benchmarks.core.random import Draws
from benchmarks.schema import Question
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.text import sentences
from benchmarks.worlds.world import World
from methods.baselines.hyde import PROMPT
from methods.baselines.rq_rag import PROMPTS
from methods.gpr.questions import MASK, MaskedTriple, WorldsQuestions
from methods.gpr.questions import PROMPT as TRIPLE
from methods.models.rewriter import load_prompt
from methods.sark.prompts import ANSWER, ORDER
from ragmeter.scripted.prompt_patterns import Request, filled, template_pattern


class Knows(Protocol):
    """What of the scripted LLM is needed here."""

    @property
    def questions(self) -> Mapping[str, Question]: ...

    @property
    def worlds(self) -> Mapping[int, World]: ...


def write_passage(truth: Knows, request: Request) -> str | None:
    """HyDE's prompt: the facts of the question in sentences; of an unknown question, itself."""
    result = filled(PROMPT, request)
    if result is None:
        return None
    question = _known(truth, result["question"])
    if question is None or not question.triples:
        return result["question"]
    return " ".join(f"{head} {relation.replace('_', ' ')} {tail}." for head, relation, tail in question.triples)


def rewrite(truth: Knows, request: Request) -> str | None:
    """RQ-RAG's prompt for a rewritten query: the names and words of the question, without what asks."""
    result = filled(PROMPTS["rewrite"], request)
    return None if result is None else result["question"].rstrip(" ?")


def decompose(truth: Knows, request: Request) -> str | None:
    """RQ-RAG's prompt for sub-questions: the steps of the question, one a line."""
    result = filled(PROMPTS["decompose"], request)
    if result is None:
        return None
    question = _known(truth, result["question"])
    steps = _steps(question.metadata.get("steps", ())) if question is not None else []
    return "\n".join(steps or [result["question"]])


def disambiguate(truth: Knows, request: Request) -> str | None:
    """RQ-RAG's prompt for the meanings of a question: it with the full name in place of each shorter one."""
    result = filled(PROMPTS["disambiguate"], request)
    if result is None:
        return None
    question = _known(truth, result["question"])
    if question is None:
        return result["question"]
    heads = {head for head, _, _ in question.triples}
    for world in truth.worlds.values():
        for entity in world.entities:
            if entity.name in heads and entity.name not in result["question"]:
                for alias in sorted(entity.aliases, key=len, reverse=True):
                    if alias in result["question"]:
                        return result["question"].replace(alias, entity.name, 1)
    return result["question"]


SEARCHING: tuple[Callable[[Any, Request], str | None], ...] = (write_passage, rewrite, decompose, disambiguate)


def _known(truth: Knows, text: str) -> Question | None:
    return truth.questions.get(" ".join(text.split()))


def _steps(steps: Any) -> list[str]:
    """Questions of steps, `#n` replaced by what step n answers."""
    responses: list[str] = []
    answers: list[str] = []
    for step in steps:
        text = step["question"]
        for number in range(len(answers), 0, -1):
            text = text.replace(f"#{number}", answers[number - 1])
        responses.append(text)
        answers.append(step["answer"])
    return responses


# -- How it answers the rewriter's prompts: by the rules for testing, with every name and number kept --


def rewrite_passage(truth: Any, request: Request) -> str | None:
    """The rewriter's prompts that ship, as text or as JSON, whole or sentence by sentence."""
    for style in STYLES:
        result = filled(load_prompt(style), request)
        if result is not None:
            return _reply(result["text"], result["form"], result["again"], style)
    return None


REWRITING: tuple[Callable[[Any, Request], str | None], ...] = (rewrite_passage,)


def _reply(text: str, form: str, again: str, style: str) -> str:
    by_lines = "each sentence rewritten" in form
    styled = _restyled(text.split("\n") if by_lines else sentences(text), again, style)
    if "JSON" not in form:
        return "\n".join(styled) if by_lines else " ".join(styled)
    value = {"sentences": styled} if by_lines else {"text": " ".join(styled)}
    return json.dumps(value, ensure_ascii=False)


def _restyled(plain: list[str], again: str, style: str) -> list[str]:
    """Sentences in a style, worded differently at another attempt; the first one always shows the style."""
    draws = Draws("world-truth rewriting", style, again, *plain)
    first, rest = _rewriters()
    return [(rest if number else first).sentence(sentence.strip(), style, draws) for number, sentence in enumerate(plain)]


@lru_cache(maxsize=1)
def _rewriters() -> tuple[RuleRewriter, RuleRewriter]:
    return RuleRewriter("test", opener=1.0, closer=0.3), RuleRewriter("test", opener=0.3, closer=0.3)


# -- How it answers the prompts of training data: SARK's answers and orders of passages, GPR's questions about triples --


KNOWN = 0.4
"""Share of the questions that it knows by heart where an answer is asked for without a passage."""


def answer_for_labels(truth: Any, request: Request) -> str | None:
    """SARK's prompt for an answer: by the passage where there is one, else what it knows by heart."""
    result = filled(ANSWER.load(), request)
    if result is None:
        return None
    question, passage = _known(truth, result["question"]), result["context"]
    if question is None or not question.answers:
        return "unknown"
    known = truth.proven_by(question, [passage]) if passage else Draws("known by heart", question.id).chance(KNOWN)
    return question.answers[0] if known else "unknown"


def order_passages(truth: Any, request: Request) -> str | None:
    """SARK's prompt for an order: passages that prove the answer first, then those that name it."""
    opening, _, turn, *_ = ORDER.load().texts
    about = template_pattern(opening).fullmatch(request.messages[0]["content"])
    if about is None:
        return None
    question = _known(truth, about["question"])
    shown = [template_pattern(turn).fullmatch(message["content"]) for message in request.messages[2:-1:2]]

    def worth(match: re.Match[str]) -> tuple[bool, bool]:
        return question is not None and truth.proven_by(question, [match["passage"]]), about["answer"] in match["passage"]

    best = sorted((match for match in shown if match is not None), key=worth, reverse=True)
    return " > ".join(f"[{match['number']}]" for match in best)


def ask_about_triple(truth: Any, request: Request) -> str | None:
    """GPR's prompt for a question: in the words in which worlds state the relation."""
    result = filled(TRIPLE.load(), request)
    if result is None:
        return None
    inside = result["triple"].removeprefix("(").removesuffix(")")
    if result["side"] == "tail":
        head, _, relation = inside.removesuffix(f", {MASK}").rpartition(", ")
        masked = MaskedTriple((head, relation, MASK), "tail")
    else:
        relation, _, tail = inside.removeprefix(f"{MASK}, ").partition(", ")
        masked = MaskedTriple((MASK, relation, tail), "head")
    return WorldsQuestions().generate([masked])[0] or "I cannot ask that."


LABELING: tuple[Callable[[Any, Request], str | None], ...] = (answer_for_labels, order_passages, ask_about_triple)
